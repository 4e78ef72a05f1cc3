"""The load generator sees each fault of a broker: loss, duplicate, disorder, damage, refusal."""

from __future__ import annotations

import json
import shutil
import socketserver
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest

from bench.brokers import HERE

Bodies = list[bytes]
Fault = Callable[[Bodies], Bodies]

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


class Relay(socketserver.StreamRequestHandler):
    """The least that stompload takes for a broker: it hands over the bodies of a whole run at once, after a fault."""

    fault: ClassVar[Fault]
    expected: ClassVar[int]
    backlog: ClassVar[Bodies]
    goodbye: ClassVar[bytes]
    subscribers: ClassVar[list[Relay]]
    bodies: ClassVar[Bodies]
    lock: ClassVar[threading.Lock]

    def handle(self) -> None:
        try:
            while frame := self.read_frame():
                head, _, body = frame.partition(b"\n\n")
                self.answer(head.split(b"\n")[0], body)
        except ConnectionError:  # the generator closes as soon as it has seen enough
            return

    def read_frame(self) -> bytes:
        octets = bytearray()
        while (octet := self.rfile.read(1)) not in (b"", b"\0"):
            octets += octet
        return bytes(octets)

    def answer(self, command: bytes, body: bytes) -> None:
        if command == b"CONNECT":
            self.wfile.write(b"CONNECTED\nversion:1.2\n\n\0")
        elif command == b"SUBSCRIBE":
            self.subscribers.append(self)
            self.wfile.write(b"RECEIPT\nreceipt-id:r\n\n\0\n" + messages(self.backlog))
        elif command == b"DISCONNECT":
            self.wfile.write(self.goodbye)
        elif command == b"SEND":
            self.collect(body)

    def collect(self, body: bytes) -> None:
        with self.lock:
            self.bodies.append(body)
            if len(self.bodies) < self.expected:
                return
            for subscriber in self.subscribers:
                subscriber.wfile.write(messages(type(self).fault(self.bodies)))


def messages(bodies: Bodies) -> bytes:
    return b"".join([b"MESSAGE\nsubscription:s0\n\n%b\0\n" % body for body in bodies])


GOODBYE = b"RECEIPT\nreceipt-id:bye\n\n\0"


@contextmanager
def relay(
    fault: Fault, *, expected: int, backlog: Sequence[bytes] = (), goodbye: bytes = GOODBYE
) -> Iterator[int]:
    """The port where a broker with this fault listens."""
    namespace: dict[str, Any] = {
        "subscribers": [],
        "bodies": [],
        "lock": threading.Lock(),
        "backlog": list(backlog),
    }
    handler = type(
        "Playing",
        (Relay,),
        {**namespace, "fault": staticmethod(fault), "expected": expected, "goodbye": goodbye},
    )
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Path:
    binary = tmp_path_factory.mktemp("bench") / "stompload"
    subprocess.run(
        ["cc", "-O1", "-Wall", "-Werror", "-pthread", "-o", str(binary), str(HERE / "stompload.c")],
        check=True,
    )
    return binary


def play(load: Path, port: int, *arguments: str) -> tuple[int, dict[str, float]]:
    command = [str(load), "--port", str(port), "--timeout", "1", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def nothing(bodies: Bodies) -> Bodies:
    return bodies


def drop_third(bodies: Bodies) -> Bodies:
    return bodies[:2] + bodies[3:]


def double_third(bodies: Bodies) -> Bodies:
    return bodies[:3] + bodies[2:]


def swap_first_two(bodies: Bodies) -> Bodies:
    return [bodies[1], bodies[0], *bodies[2:]]


def cut_third(bodies: Bodies) -> Bodies:
    return [*bodies[:2], bodies[2][:-1], *bodies[3:]]


@pytest.mark.parametrize("topic", [False, True], ids=["queue", "topic"])
@pytest.mark.parametrize(
    ("broken", "key", "count", "status"),
    [
        (nothing, "received", 10, 0),
        (drop_third, "received", 9, 1),
        (double_third, "duplicates", 1, 0),
        (swap_first_two, "disorder", 1, 0),
        (cut_third, "damaged", 1, 1),
    ],
    ids=["nothing", "loss", "duplicate", "disorder", "damage"],
)
def test_a_fault_is_counted(
    load: Path, broken: Fault, key: str, count: int, status: int, *, topic: bool
) -> None:
    with relay(broken, expected=10) as port:
        returned, result = play(load, port, "--msgs", "10", "--batch", "4", *(["--topic"] if topic else []))
    assert (returned, result[key]) == (status, count)
    others = {"duplicates", "disorder", "damaged"} - {key}
    assert all(result[other] == 0 for other in others)


def test_deliveries_right_behind_a_receipt_are_counted(load: Path) -> None:
    backlog = [b"%016x%016x" % (1, number) for number in range(5)]
    with relay(nothing, expected=0, backlog=backlog) as port:
        returned, result = play(load, port, "--drain-only", "--msgs", "5", "--size", "32")
    assert (returned, result["received"], result["disorder"]) == (0, 5, 0)


@pytest.mark.parametrize("host", ["unix:///run/s", "localhost"])
def test_what_it_cannot_connect_to_is_named(load: Path, host: str) -> None:
    done = subprocess.run(
        [str(load), "--host", host], capture_output=True, text=True, timeout=20, check=False
    )
    assert done.returncode == 2
    assert f"--host {host}: stompload connects over TCP" in done.stderr


def test_a_refusal_ends_the_run_at_once(load: Path) -> None:
    with relay(nothing, expected=100, goodbye=b"ERROR\nmessage:no\n\n\0") as port:
        command = [str(load), "--port", str(port), "--send-only", "--msgs", "10", "--timeout", "50"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 1
    assert "producer: ERROR\nmessage:no" in done.stderr


def test_an_address_where_nothing_listens_is_an_error(load: Path) -> None:
    with relay(nothing, expected=1) as port:
        closed = port
    done = subprocess.run(
        [str(load), "--port", str(closed)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "connect: Connection refused" in done.stderr
