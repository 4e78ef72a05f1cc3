"""A pair of normal clients, one that sends and one that takes, in a process of their own: what they wait for the broker.

Decides how a wait is counted. Messages have a schedule: a wait begins when the message should have been sent, so that a stall counts for
each message that it held up. The p99 is that of the worst SPAN messages in a row: what went on for a short time is not made small by
what was quiet before and after it.

The pair stands for other machines: where the system allows it, it has a real-time priority, so that it waits for the broker and not for
a core that somebody else has; and of a wait is taken what a core of this machine stood still meanwhile (standstills.py), which is told.
"""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import astuple, dataclass
from typing import Final

from bench.attacks.attacker import MEGABYTE, connected, send, subscribe
from bench.brokers import BenchError
from bench.rows import NOT_PERSISTENT
from bench.standstills import Pauses, Standstills, within

RATE: Final = 200  # messages a second
SPAN: Final = 1000  # messages of one p99: ten of them are above it
STEP: Final = 200  # messages from one SPAN to the next
LOST: Final = 0.01  # seconds after which one that has not come counts as one that waits


@dataclass(frozen=True, slots=True)
class Waits:
    """Of so many messages; in ms."""

    count: int
    p99: float
    worst: float
    raw_worst: float = 0.0  # with what cores stood still of it
    stood_still: float = 0.0  # any core, in all


NEVER: Final = Waits(0, float("inf"), float("inf"), float("inf"))


class Pair:
    """The process of a pair, as who measures has it."""

    def __init__(
        self, port: int, *, login: str = "probe", header: str = NOT_PERSISTENT, is_stored: bool = False
    ) -> None:
        """`header`: of each of its messages; empty: none. `is_stored`: each is persistent instead, and waits for its receipt."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.pair", str(port), login, "stored" if is_stored else header],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Pair:
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            raise BenchError("the pair of normal clients could not connect")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=30)

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def taken(self) -> Waits:
        """What it waited since the last time, with those that still wait."""
        if not self.is_alive:
            return NEVER
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write("taken\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            return NEVER
        count, *figures = line.split()
        return Waits(int(count), *map(float, figures))


def waits_of(waits: Pauses, pauses: Pauses) -> Waits:
    """Of waits in the order of the messages, each from when to when, in s; and of the times at which cores stood still."""
    stood_still = sum([ended - begun for begun, ended in pauses]) * 1000
    if not waits:
        return Waits(0, 0.0, 0.0, stood_still=stood_still)
    times = [(ended - begun - within(pauses, begun, ended)) * 1000 for begun, ended in waits]
    spans = [times[at : at + SPAN] for at in range(0, max(1, len(times) - SPAN + STEP), STEP)]
    raw_worst = max([ended - begun for begun, ended in waits]) * 1000
    return Waits(len(times), max(map(_p99, spans)), max(times), raw_worst, stood_still)


def _p99(times: list[float]) -> float:
    return sorted(times)[int(len(times) * 0.99)]


def main() -> None:
    """`python -m bench.pair PORT LOGIN HEADER|stored`: says `ready`, then figures whenever a line comes in, until its stdin ends."""
    standstills = Standstills()
    with suppress(OSError, AttributeError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    port, login, header = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    is_stored = header == "stored"
    headers = f"{header}\n" if header and not is_stored else ""
    link = connected(port, login=login)
    # what is sent waits for nothing that was sent before
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    link.sendall(subscribe(1, "/queue/probe", headers="ack:auto\n"))
    link.setblocking(False)
    print("ready", flush=True)
    waits: Pauses = []
    # what is under way, by number: when it should have been sent
    due, waiting, rest = time.monotonic(), {}, b""
    number = 0
    while True:
        now = time.monotonic()
        if now >= due:
            waiting[number] = due
            if is_stored:
                headers = f"persistent:true\nreceipt:<{number}>\n"
            with suppress(BlockingIOError):
                link.send(send("/queue/probe", b"<%d>" % number, headers=headers))
            number, due = number + 1, due + 1 / RATE
            continue
        for readable in select.select([link, sys.stdin], [], [], due - now)[0]:
            if readable is link:
                rest = _got(link, rest, waiting, waits, b"receipt-id:" if is_stored else b"")
            elif not sys.stdin.readline():
                return
            else:
                late = [(begun, now) for begun in waiting.values() if now - begun > LOST]
                found = waits_of([*waits, *late], standstills.taken())
                print(*astuple(found), flush=True)
                waits.clear()


def _got(link: socket.socket, rest: bytes, waiting: dict[int, float], waits: Pauses, mark: bytes) -> bytes:
    """Notes whose frame has come, of those with the `mark`; the beginning of one that has not come whole."""
    data = rest + link.recv(MEGABYTE)
    if data == rest:
        sys.exit("the broker closed the connection of a normal client")
    now = time.monotonic()
    *frames, rest = data.split(b"\0")
    for frame in frames:
        if mark in frame:
            begun = waiting.pop(int(frame[frame.rindex(b"<") + 1 : frame.rindex(b">")]), None)
            if begun is not None:
                waits.append((begun, now))
    return rest


if __name__ == "__main__":
    main()
