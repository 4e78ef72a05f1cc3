"""Thousands of connections for minutes, half of them slow readers: what a pair of normal clients feels, and the broker's memory.

    python -m bench.hostile soak [--connections 5000] [--minutes 10] [--json FILE]

Each connection subscribes to one of 100 topics, to which one sender says 100 messages a second in all. A slow reader takes 256 octets
of them a second, half of what it is told. Every 10 s a line says how the pair fared in these, and how large the broker is. At the end
all go, and 10 s later the broker must be back near where it began. Exit status 1 where a goal of hostile.py is missed.
"""

from __future__ import annotations

import argparse
import json
import resource
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.attacks.attacker import connected, send, subscribe
from bench.brokers import Stompbox, memory_mib
from bench.hostile import FACTOR, GONE, LEFT, WORST
from bench.pair import Pair

TOPICS = 100
RATE = 100  # messages a second, of one sender
BODY = b"x" * 500
SLOW = 256  # octets that a slow reader takes in a second, less than it is told
# seconds within which each connection says something, if only a line feed: who is silent for 60 is taken for dead
BEAT = 20
SPAN = 10.0  # seconds of one line
QUIET = 3.0
EACH = 64.0 / 1024  # MiB that a slow reader may have of what it was told, beside the system's buffers
IDLE = 10.0 / 1024  # MiB of a connection


@dataclass(frozen=True, slots=True)
class Span:
    """Times in ms, memory in MiB."""

    seconds: float
    p99: float
    worst: float
    raw_worst: float  # with what cores of the machine stood still of it
    memory: float


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="bench.hostile soak", description="Thousands of connections, half of them slow readers."
    )
    parser.add_argument("--connections", type=int, default=5000)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--json", default="", help="a file for the figures")
    options = parser.parse_args(arguments)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory() as folder:
        broker = Stompbox(Path(folder) / "log")
        broker.start()
        try:
            return _soaked(broker, options)
        finally:
            broker.stop()


def _soaked(broker: Stompbox, options: argparse.Namespace) -> int:
    idle = memory_mib(broker.pid, "VmRSS")
    with Pair(broker.port) as pair:
        pair.wait(QUIET)
        quiet = pair.taken().p99
        crowd = subprocess.Popen(
            [sys.executable, "-m", "bench.soak", str(broker.port), str(options.connections)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert crowd.stdout is not None
        if crowd.stdout.readline() != "ready\n":
            print("hostile: the connections were not let in", file=sys.stderr)
            return 1
        pair.taken()
        spans = list(_watched(broker, pair, options.minutes * 60))
        told = crowd.communicate(timeout=60)[0].strip()
        pair.wait(GONE)
        afterwards = memory_mib(broker.pid, "VmRSS")
    limit = (idle + options.connections * (IDLE + EACH / 2)) * 1.1
    highest = max(span.memory for span in spans)
    is_good = all(span.p99 <= max(FACTOR * quiet, 2.0) and span.worst <= WORST for span in spans)
    is_small = highest <= limit and afterwards <= idle * 1.1 + LEFT
    memory = (
        f"idle {idle:.0f} MiB, highest {highest:.0f} of {limit:.0f}, 10 s after all went {afterwards:.0f}"
    )
    print(f"quiet p99 {quiet:.2f} ms; {memory}; {told}")
    if options.json:
        figures = {
            "quiet_p99": quiet,
            "idle": idle,
            "highest": highest,
            "limit": limit,
            "afterwards": afterwards,
        }
        Path(options.json).write_text(
            json.dumps({**figures, "spans": [asdict(span) for span in spans]}, indent=1)
        )
    return 0 if is_good and is_small else 1


def _watched(broker: Stompbox, pair: Pair, seconds: float) -> Iterator[Span]:
    print("| s | p99 ms | longest wait ms | with standstills | MiB |\n|---|---|---|---|---|")
    begun = time.monotonic()
    while time.monotonic() < begun + seconds:
        pair.wait(min(SPAN, seconds))
        waits = pair.taken()
        memory = memory_mib(broker.pid, "VmRSS")
        span = Span(time.monotonic() - begun, waits.p99, waits.worst, waits.raw_worst, memory)
        longest = f"{span.worst:.0f} | {span.raw_worst:.0f}"
        print(f"| {span.seconds:.0f} | {span.p99:.2f} | {longest} | {span.memory:.0f} |", flush=True)
        yield span


class Crowd:
    """All the connections, and the sender, in a process of its own."""

    def __init__(self, port: int, count: int) -> None:
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        self.poll = select.epoll()
        self.sender = connected(port)
        self.slow: list[socket.socket] = []
        self.quick: dict[int, socket.socket] = {}
        self.lost = 0
        for number in range(count):
            self._join(port, number)

    def _join(self, port: int, number: int) -> None:
        link = connected(port)
        link.sendall(subscribe(1, f"/topic/soak.{number % TOPICS}"))
        link.setblocking(False)
        if (number // TOPICS) % 2:
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            self.slow.append(link)
        else:
            self.quick[link.fileno()] = link
            self.poll.register(link, select.EPOLLIN)

    def run(self) -> None:
        """Until stdin ends."""
        self.poll.register(sys.stdin, select.EPOLLIN)
        number, due, slow_due = 0, time.monotonic(), time.monotonic()
        while True:
            now = time.monotonic()
            if now >= due:
                self.sender.sendall(
                    send(f"/topic/soak.{number % TOPICS}", BODY, headers="persistent:false\n")
                )
                number, due = number + 1, due + 1 / RATE
            if now >= slow_due:
                self.slow = [link for link in self.slow if self._took(link, SLOW)]
                self._beat(int(now) % BEAT)
                slow_due = now + 1
            for handle, _ in self.poll.poll(max(0.0, min(due, slow_due) - now)):
                if handle == sys.stdin.fileno():
                    return
                if not self._took(self.quick[handle], 1 << 16):
                    self.poll.unregister(self.quick.pop(handle))

    def _beat(self, which: int) -> None:
        """One in BEAT of the connections, another one in each second."""
        for link in [*self.slow, *self.quick.values()][which::BEAT]:
            with suppress(OSError):
                link.send(b"\n")

    def _took(self, link: socket.socket, most: int) -> bool:
        """False: the broker has closed it."""
        with suppress(BlockingIOError):
            if not link.recv(most):
                self.lost += 1
                return False
        return True


def crowd(port: int, count: int) -> None:
    """`ready` when all are there; at the end how many were closed by the broker."""
    found = Crowd(port, count)
    print("ready", flush=True)
    found.run()
    print(f"{count} connections, {found.lost} of them closed by the broker", flush=True)


if __name__ == "__main__":
    crowd(int(sys.argv[1]), int(sys.argv[2]))
