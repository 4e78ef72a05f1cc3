"""A disk that refuses, as senders, consumers and operators see it: a limit on the size of files, set while the broker runs."""

from __future__ import annotations

import mmap
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from stompbox.stomp.frames import Frame
from stompbox.store.check import SMALL
from tests.conftest import Served, memory_of
from tests.system.conftest import Start
from tests.system.plain import WITHIN, Plain
from tests.system.test_serve import assert_refused, run_serve

LIMIT = 40_000  # bytes: less than the write-ahead log has from the start, more than the broker says on stderr
BROKEN = "messages cannot be stored"
GOOD = "messages are stored again"


@contextmanager
def broken(served: Served) -> Iterator[None]:
    """No file of the broker may grow."""
    resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE, (LIMIT, resource.RLIM_INFINITY))
    yield
    repair(served)


def repair(served: Served) -> None:
    resource.prlimit(
        served.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    )


def send(client: Plain, body: bytes, destination: str = "/queue/q", **headers: str) -> None:
    client.send("SEND", {"destination": destination, "receipt": body.decode(), **headers}, body)


def answer(client: Plain) -> tuple[str, str]:
    frame = client.receive()
    return frame.command, frame.headers.get("receipt-id", "")


def stored(client: Plain, body: bytes, destination: str = "/queue/q") -> None:
    send(client, body, destination)
    assert answer(client) == ("RECEIPT", body.decode())


def fail(served: Served) -> None:
    """So that the broker knows: a sender has met the failure."""
    with Plain(served.port) as client:
        send(client, b"met", "/queue/failing")
        assert client.receive().headers["code"] == "io-error"


def wait_until_good(served: Served) -> None:
    """A sender who tries until it works, as long as the broker may take to notice."""
    deadline = time.monotonic() + WITHIN
    while time.monotonic() < deadline:
        with Plain(served.port) as client:
            send(client, b"again", "/queue/failing")
            if answer(client)[0] == "RECEIPT":
                return
    pytest.fail(f"nothing can be stored {WITHIN} s after the disk was repaired:\n{served.log.read_text()}")


def messages(client: Plain, destination: str = "/queue/q", **headers: str) -> list[Frame]:
    """What a queue has: up to a message that is sent behind it."""
    flow = {"ack": "client-individual", "consumer-window-size": "-1"}
    client.send("SUBSCRIBE", {"destination": destination, "id": "1", **flow, **headers})
    client.send("SEND", {"destination": destination, "persistent": "false"}, b"end")
    found = []
    while (frame := client.receive()).body != b"end":
        found.append(frame)
    client.send("ACK", {"id": frame.headers["ack"]})
    return found


def bodies(served: Served, destination: str = "/queue/q") -> list[bytes]:
    with Plain(served.port) as client:
        return [frame.body for frame in messages(client, destination)]


def test_what_cannot_be_stored_gets_an_error_and_is_not_delivered(start: Start) -> None:
    served = start()
    with Plain(served.port) as client:
        stored(client, b"before")
    with broken(served):
        with Plain(served.port) as client:
            send(client, b"refused")
            error = client.receive()
            assert (error.command, error.headers["code"], error.headers["receipt-id"]) == (
                "ERROR",
                "io-error",
                "refused",
            )
            assert client.is_closed()
        assert bodies(served) == [b"before"]
        with Plain(served.port) as client:  # known by now: refused before anything is changed
            send(client, b"refused too")
            assert client.receive().headers["code"] == "io-error"
    wait_until_good(served)
    with Plain(served.port) as client:
        stored(client, b"after")
    assert bodies(served) == [b"before", b"after"]
    served.process.kill()
    served.process.wait()
    assert bodies(start()) == [b"before", b"after"]


def test_it_is_said_once_when_it_fails_and_once_when_it_works(start: Start) -> None:
    served = start()
    with broken(served):
        for _ in range(5):
            fail(served)
    wait_until_good(served)
    log = served.log.read_text()
    assert log.count(BROKEN) == 1
    assert log.count(GOOD) == 1


def test_a_connection_of_an_older_version_goes_on(start: Start) -> None:
    served = start()
    with Plain(served.port, "1.1") as client:
        with broken(served):
            send(client, b"a")
            send(client, b"b")
            assert [answer(client) for _ in range(2)] == [("ERROR", "a"), ("ERROR", "b")]
            send(client, b"volatile", persistent="false")
            assert answer(client) == ("RECEIPT", "volatile")
        wait_until_good(served)
        stored(client, b"c")
    assert bodies(served) == [b"volatile", b"c"]


def test_consumers_go_on_and_what_they_acknowledge_is_stored_later(start: Start) -> None:
    served = start()
    with Plain(served.port) as client:
        for number in range(20):
            stored(client, b"%d" % number)
    with Plain(served.port) as consumer:
        with broken(served):
            fail(served)
            found = messages(consumer, receipt="subscribed")[1:]
            assert [frame.body for frame in found] == [b"%d" % number for number in range(20)]
            for frame in found[:9]:
                consumer.send("ACK", {"id": frame.headers["ack"]})
            consumer.send("ACK", {"id": found[9].headers["ack"], "receipt": "acknowledged"})
            fail(served)
        assert answer(consumer) == ("RECEIPT", "acknowledged")
    served.process.kill()
    served.process.wait()
    assert bodies(start()) == [b"%d" % number for number in range(10, 20)]


def test_a_transaction_that_cannot_be_stored_has_not_happened(start: Start) -> None:
    served = start()
    with Plain(served.port, "1.1") as client:
        stored(client, b"input")
        client.send("SUBSCRIBE", {"destination": "/queue/q", "id": "1", "ack": "client"})
        taken = client.receive()
        with broken(served):
            client.send("BEGIN", {"transaction": "t"})
            client.send(
                "ACK", {"message-id": taken.headers["message-id"], "subscription": "1", "transaction": "t"}
            )
            client.send("SEND", {"destination": "/queue/r", "transaction": "t"}, b"output")
            client.send("SEND", {"destination": "/queue/s", "transaction": "t"}, b"more")
            client.send("COMMIT", {"transaction": "t", "receipt": "t"})
            assert answer(client) == ("ERROR", "t")
        wait_until_good(served)
    assert bodies(served, "/queue/r") == bodies(served, "/queue/s") == []
    assert bodies(served) == [b"input"]


def test_senders_wait_where_the_policy_is_block(start: Start) -> None:
    served = start(
        'disk-full-policy = "BLOCK"\n[[address-setting]]\nmatch = "failing"\ndisk-full-policy = "FAIL"\n'
    )
    with Plain(served.port) as client, Plain(served.port) as consumer:
        stored(client, b"before")
        with broken(served):
            fail(served)
            send(client, b"held")
            assert [frame.body for frame in messages(consumer)] == [b"before", b"held"]
            send(client, b"not even read")
        assert [answer(client) for _ in range(2)] == [("RECEIPT", "held"), ("RECEIPT", "not even read")]
    served.process.kill()
    served.process.wait()
    assert bodies(start()) == [b"before", b"held", b"not even read"]


def test_a_broker_stops_although_the_disk_refuses(start: Start) -> None:
    served = start()
    resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE, (LIMIT, resource.RLIM_INFINITY))
    with Plain(served.port) as client:
        client.send("SEND", {"destination": "/queue/q"}, b"nobody asked")
        client.sync()
    assert served.stop() == 0
    assert "without having stored everything" in served.log.read_text()


@pytest.mark.parametrize("policy", ["FAIL", "BLOCK"])
def test_a_broker_stops_in_the_middle_of_disk_trouble(start: Start, policy: str) -> None:
    """Senders wait, consumers have messages, a transaction is open: none of that keeps it, and what is not stored gets no RECEIPT."""
    served = start(
        f'disk-full-policy = "{policy}"\n[[address-setting]]\nmatch = "failing"\ndisk-full-policy = "FAIL"\n'
    )
    with Plain(served.port) as sender, Plain(served.port) as consumer:
        stored(sender, b"before")
        consumer.send("SUBSCRIBE", {"destination": "/queue/q", "id": "1", "ack": "client-individual"})
        assert consumer.receive().body == b"before"
        resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE, (LIMIT, resource.RLIM_INFINITY))
        fail(served)
        consumer.send("BEGIN", {"transaction": "t"})
        consumer.send("SEND", {"destination": "/queue/r", "transaction": "t"}, b"in a transaction")
        for number in range(10):
            send(sender, b"held %d" % number)
        assert served.stop() == 0
        answers = []
        with suppress(ConnectionResetError):  # the broker has not read all that was sent
            while not sender.is_closed():
                answers.append(sender.receive().command)
        assert "RECEIPT" not in answers
    assert bodies(start()) == [b"before"]


def test_too_little_space_is_a_full_disk_but_consumers_go_on(start: Start) -> None:
    served = start()
    with Plain(served.port) as client:
        stored(client, b"before")
    assert served.stop() == 0
    served = start('min-disk-free = "1000TiB"\n')
    with Plain(served.port) as client:
        send(client, b"refused")
        assert client.receive().headers["code"] == "disk-full"
    with Plain(served.port) as client:
        (found,) = messages(client)
        client.send("ACK", {"id": found.headers["ack"], "receipt": "acknowledged"})
        assert answer(client) == ("RECEIPT", "acknowledged")
    assert served.log.read_text().count("min-disk-free") == 1


@pytest.mark.usefixtures("own_process")
def test_memory_is_bounded_while_the_disk_refuses_and_senders_get_errors(
    start: Start,
) -> None:
    served = start()
    body = bytes(1 << 20)
    with Plain(served.port, "1.1") as client:
        with broken(served):
            fail(served)
            before = memory_of(served.process.pid)
            for _ in range(200):
                client.send("SEND", {"destination": "/queue/q"}, body)
                assert client.receive().headers["code"] == "io-error"
            assert memory_of(served.process.pid) - before < 32 << 20
        wait_until_good(served)
        stored(client, b"after")
    assert bodies(served) == [b"after"]


@pytest.mark.usefixtures("own_process")
def test_memory_is_bounded_while_the_disk_refuses_and_senders_wait(start: Start) -> None:
    """What is not read waits at its sender: a few buffers of the system's, and one read of the broker's for each."""
    served = start(
        'disk-full-policy = "BLOCK"\n[[address-setting]]\nmatch = "failing"\ndisk-full-policy = "FAIL"\n'
    )
    frame = b"SEND\ndestination:/queue/q\n\n" + b"x" * (64 << 10) + b"\0"
    with ExitStack() as stack:
        clients = [stack.enter_context(Plain(served.port)) for _ in range(8)]
        with broken(served):
            fail(served)
            before = memory_of(served.process.pid)
            taken = [until_nothing_is_taken(client, frame) for client in clients]
            assert all(octets < 32 << 20 for octets in taken)
            assert memory_of(served.process.pid) - before < 64 << 20
            with Plain(served.port) as consumer:
                assert messages(consumer), "what was read can be consumed"
        wait_until_good(served)
        for client, octets in zip(clients, taken, strict=True):
            client.socket.settimeout(WITHIN)
            client.socket.sendall(frame[octets % len(frame) :])  # the rest of the frame that was cut
            client.send("DISCONNECT", {"receipt": "bye"})
            assert client.receive().headers["receipt-id"] == "bye"


def until_nothing_is_taken(client: Plain, frame: bytes) -> int:
    """Sends the frame again and again until nothing goes for a second; how many bytes went."""
    client.socket.settimeout(1.0)
    sent = 0
    while sent < 64 << 20:
        try:
            sent += client.socket.send(frame[sent % len(frame) :])
        except TimeoutError:
            break
    return sent


def test_a_damaged_file_is_named_at_start(start: Start, tmp_path: Path) -> None:
    served = start()
    with Plain(served.port) as client:
        stored(client, b"a body that can be found in the file")
    assert served.stop() == 0
    file = tmp_path / "data" / "stompbox.db"
    whole = file.read_bytes()
    assert whole.count(b"a body that can be found") == 1
    file.write_bytes(whole.replace(b"a body that can be found", b"a b0dy that can be found"))
    refused = run_serve(
        tmp_path / "broker", "--data", str(tmp_path / "data"), "--no-admin", "--listen", "tcp://127.0.0.1:0"
    )
    assert_refused(refused, f"{file}: log ", "chunk at offset 0: checksum")
    assert refused.stderr.count("\n") == 1
    assert b"a b0dy that can be found" in file.read_bytes(), "it is left for whoever wants to look"


def test_a_folder_can_be_used_again_after_a_crash_and_by_one_broker_only(
    start: Start, tmp_path: Path
) -> None:
    served = start()
    served.process.kill()
    served.process.wait()
    again = start()
    refused = run_serve(
        tmp_path / "broker", "--data", str(tmp_path / "data"), "--no-admin", "--listen", "tcp://127.0.0.1:0"
    )
    assert_refused(refused, "in use by another broker", f"process {again.process.pid}")
    with Plain(again.port) as client:
        stored(client, b"none the worse")


def test_damage_in_a_large_file_stops_its_queue_and_no_other(start: Start, tmp_path: Path) -> None:
    """More than is read at start. What is whole before it comes, nothing is skipped, and the log says where it is, once."""
    served = start()
    count, wrong = 800, 500
    with Plain(served.port) as client:
        stored(client, b"fine", "/queue/other")
        for number in range(count):
            headers = (
                {"destination": "/queue/q", "receipt": str(number)}
                if number == count - 1
                else {"destination": "/queue/q"}
            )
            client.send("SEND", headers, b"message %d " % number + bytes(90_000))
        assert answer(client) == ("RECEIPT", str(count - 1))
    assert served.stop() == 0
    with (tmp_path / "data" / "stompbox.db").open("r+b") as file, mmap.mmap(file.fileno(), 0) as whole:
        assert len(whole) > SMALL
        at = whole.find(b"message %d " % wrong)
        while at >= 0:  # SQLite may have left more than one
            whole[at : at + 1] = b"M"
            at = whole.find(b"message %d " % wrong, at)
    served = start()
    with Plain(served.port) as client:
        client.send("SUBSCRIBE", {"destination": "/queue/q", "id": "q"})
        found = []
        line = b"queue q cannot be read from offset"
        deadline = time.monotonic() + WITHIN
        client.socket.settimeout(0.5)
        is_over = False
        while not is_over:
            try:
                found.append(int(client.receive().body[:20].split()[1]))
            except TimeoutError:
                is_over = line in served.log.read_bytes()
                assert time.monotonic() < deadline, served.log.read_text()
        assert found == list(range(len(found)))
        assert wrong - 100 < len(found) <= wrong
    assert bodies(served, "/queue/other") == [b"fine"]
    assert served.log.read_bytes().count(line) == 1
    command = [sys.executable, "-m", "stompbox", "store", "check", "--data", str(tmp_path / "data")]
    problems = subprocess.run(command, capture_output=True, text=True, check=False)
    assert problems.returncode == 1
    assert "checksum" in problems.stdout.splitlines()[0]
    assert "1 problem;" in problems.stdout.splitlines()[-1]
