"""What features cost a broker: many selectors on one topic, messages that wait for their time, a start with many addresses.

    python -m bench.features [selectors] [waiting] [start] [--messages 20000] [--waiting 100000] [--many 10000]

Prints the processor time of the broker's process for each message, not the time on the wall: what the client takes does not
count, nor what else the machine does. A start is given in seconds from the launch to `ready`.
"""

from __future__ import annotations

import argparse
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

SUBSCRIPTIONS = 1000
HOUR = 3_600_000  # ms
PIECE = 1 << 20  # octets read at once
numbers = count()


@dataclass(frozen=True, slots=True)
class Server:
    """`stompbox serve` from this checkout; `seconds` from its launch to `ready`."""

    port: int
    pid: int
    seconds: float

    def processor(self) -> float:
        """Seconds that the threads of the process have run."""
        threads = Path(f"/proc/{self.pid}/task").iterdir()
        return sum([int((thread / "schedstat").read_text().split()[0]) for thread in threads]) / 1e9


@contextmanager
def serving(*arguments: str) -> Iterator[Server]:
    url = f"tcp://127.0.0.1:0?maxSubscriptions={1 << 20}"
    command = [sys.executable, "-m", "stompbox", "serve", "--listen", url, "--no-admin", *arguments]
    launched = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        port = next(
            int(found[1]) for line in process.stdout if (found := re.search(r"127\.0\.0\.1:(\d+)", line))
        )
        next(line for line in process.stdout if line.strip() == "ready")
        yield Server(port, process.pid, time.monotonic() - launched)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


class Client:
    """One connection, whose frames a thread reads and counts. `settle` returns when the broker has obeyed all that was said."""

    def __init__(self, port: int, login: str = "") -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.messages = 0
        self._receipts = 0
        self._came = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()
        self.say(f"CONNECT\naccept-version:1.2\nhost:bench\n{login}\n\0".encode())

    def say(self, data: bytes) -> None:
        self.socket.sendall(data)

    def _read(self) -> None:
        rest = b""
        while piece := self._piece():
            *frames, rest = (rest + piece).split(b"\0")
            with self._came:
                self.messages += sum(frame.lstrip(b"\n").startswith(b"MESSAGE") for frame in frames)
                self._receipts += sum(frame.lstrip(b"\n").startswith(b"RECEIPT") for frame in frames)
                self._came.notify_all()

    def _piece(self) -> bytes:
        try:
            return self.socket.recv(PIECE)
        except OSError:  # closed by this side
            return b""

    def settle(self, receipts: int = 1) -> None:
        """After `receipts` more receipts, the one that this asks for among them."""
        with self._came:
            wanted = self._receipts + receipts
        self.say(f"SEND\ndestination:/topic/bench.settle\nreceipt:settle-{next(numbers)}\n\n\0".encode())
        self._wait(lambda: self._receipts >= wanted, "receipts")

    def expect(self, messages: int) -> None:
        self._wait(lambda: self.messages >= messages, "messages")

    def _wait(self, is_there: Callable[[], bool], what: str) -> None:
        with self._came:
            if not self._came.wait_for(is_there, timeout=120):
                raise TimeoutError(f"{what} stayed away: {self.messages} messages, {self._receipts} receipts")

    def close(self) -> None:
        self.socket.close()


def sends(destination: str, lines: list[str]) -> bytes:
    """A SEND for each; the lines are headers of its own."""
    head = f"SEND\ndestination:{destination}\npersistent:false\n"
    return "".join([f"{head}{line}\n\nx\0" for line in lines]).encode()


def each(
    server: Server, client: Client, frames: bytes, messages: int, consumer: Client | None = None
) -> float:
    """Microseconds of the broker for each message; where a consumer is to get all of them, until it has."""
    before, had = server.processor(), consumer.messages if consumer is not None else 0
    client.say(frames)
    client.settle()
    if consumer is not None:
        consumer.expect(had + messages)
    return (server.processor() - before) / messages * 1e6


# Selectors


def selectors(messages: int) -> None:
    print(
        f"{'one topic, a header with a value of each message':58} {'1 selector':>12} {SUBSCRIPTIONS:>6} selectors {'factor':>7}"
    )
    kinds = [
        ("values that come again, `k = 'v7'`", lambda n: f"k:v{n % SUBSCRIPTIONS}", lambda n: f"k = 'v{n}'"),
        ("values that never come again, `k = 'v7'`", lambda n: f"k:v{n}", lambda n: f"k = 'v{n}'"),
        ("values that never come again, `k < -7`", lambda n: f"k:{n}", lambda n: f"k < {-n}"),
        (
            "the same, `k BETWEEN 7 AND 8`",
            lambda n: f"k:{n % SUBSCRIPTIONS}.{n}",
            lambda n: f"k BETWEEN {n} AND {n + 1}",
        ),
        ("all alike, nothing taken, `k > 7`", lambda _: "k:3", lambda n: f"k > {n + 3}"),
    ]
    for title, line, selector in kinds:
        one, many = (selecting(messages, how_many, line, selector) for how_many in (1, SUBSCRIPTIONS))
        print(f"{title:58} {one:9.2f} us {many:14.2f} us {many / one:7.1f}")


def selecting(
    messages: int, how_many: int, line: Callable[[int], str], selector: Callable[[int], str]
) -> float:
    with serving("--memory") as server:
        consumer, producer = Client(server.port), Client(server.port)
        for n in range(how_many):
            consumer.say(
                f"SUBSCRIBE\nid:{n}\ndestination:/topic/bench\nselector:{selector(n)}\n\n\0".encode()
            )
        consumer.settle()
        # the broker learns the form of the frames
        each(server, producer, sends("/topic/bench", [line(n) for n in range(2000)]), 2000)
        frames = sends("/topic/bench", [line(n) for n in range(messages)])
        return each(server, producer, frames, messages)


# What waits


def waiting(messages: int, how_many: int) -> None:
    print(
        f"{'messages through one queue while others wait in it':58} {'none waits':>12} {how_many:>9} wait {'factor':>7}"
    )
    now = int(time.time() * 1000)
    kinds: list[tuple[str, Callable[[int], str]]] = [
        ("scheduled, in an hour", lambda _: f"AMQ_SCHEDULED_DELAY:{HOUR}"),
        ("scheduled, each for a time of its own", lambda n: f"AMQ_SCHEDULED_TIME:{now + HOUR + n}"),
        ("expiring, in an hour", lambda _: f"expires:{now + HOUR}"),
        ("expiring, each at a time of its own", lambda n: f"expires:{now + HOUR + n}"),
    ]
    for title, line in kinds:
        with serving("--memory") as server:
            consumer, producer = Client(server.port), Client(server.port)
            consumer.say(b"SUBSCRIBE\nid:0\ndestination:/queue/bench\nselector:now = 'yes'\n\n\0")
            consumer.settle()
            frames = sends("/queue/bench", ["now:yes"] * messages)
            each(server, producer, frames, messages, consumer)
            without = each(server, producer, frames, messages, consumer)
            into = each(server, producer, sends("/queue/bench", [line(n) for n in range(how_many)]), how_many)
            beside = each(server, producer, frames, messages, consumer)
            print(
                f"{title:58} {without:9.2f} us {beside:11.2f} us {beside / without:7.1f}    ({into:.2f} us to get in)"
            )


# Starting


def starting(many: int) -> None:
    """`many` addresses, each with a durable subscription and a message that waits for it; and as many queues with one message."""
    with tempfile.TemporaryDirectory(prefix="stompbox-bench-") as folder:
        with serving("--data", folder) as server:
            client = Client(server.port, "client-id:bench\n")
            topics = [
                f"SUBSCRIBE\nid:{n}\ndestination:/topic/bench.{n}\nack:client\ndurable-subscriber-name:d{n}\n\n\0"
                for n in range(many)
            ]
            client.say("".join(topics).encode())
            client.settle()
            client.close()
            client = Client(server.port)
            for kind in ("topic", "queue"):
                client.say(
                    "".join(
                        [f"SEND\ndestination:/{kind}/bench.{n}\npersistent:true\n\nx\0" for n in range(many)]
                    ).encode()
                )
            client.say(b"SEND\ndestination:/queue/bench.last\npersistent:true\nreceipt:last\n\n\0")
            client.settle(2)
        with serving("--data", folder) as server:
            print(
                f"start with {many} addresses, {many} durable subscriptions and {many} queues, a message in each: {server.seconds:.2f} s"
            )


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench.features", description="What features cost a broker.")
    parser.add_argument("what", nargs="*", choices=[[], "selectors", "waiting", "start"], help="default: all")
    parser.add_argument("--messages", type=int, default=20_000, help="that are counted (default 20000)")
    parser.add_argument("--waiting", type=int, default=100_000, help="that wait (default 100000)")
    parser.add_argument(
        "--many", type=int, default=10_000, help="addresses and durable subscriptions (default 10000)"
    )
    options = parser.parse_args()
    what = options.what or ["selectors", "waiting", "start"]
    if "selectors" in what:
        selectors(options.messages)
    if "waiting" in what:
        waiting(options.messages, options.waiting)
    if "start" in what:
        starting(options.many)


if __name__ == "__main__":
    main()
