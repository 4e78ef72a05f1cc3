"""How other clients fare beside a hostile one: a pair of normal clients, one attack after the other.

    python -m bench.hostile [--rows ws_pings,churn] [--peers artemis,rabbitmq] [--quiet-seconds 3] [--json FILE]
    python -m bench.hostile soak [--connections 5000] [--minutes 10]     (soak.py)

For each attack a broker is started anew. The pair sends 200 messages a second through a queue of its own and takes them; its waits are
counted from when a message should have been sent, so that a stall counts for each message that it held up. Three columns are the
pair's (p99 when quiet, p99 and the longest wait under attack), two the broker's memory: at its highest, and 10 s after the attacker left.
The pair stands for other machines: where the system allows it, it has a real-time priority, so that it waits for the broker and not for a
core that the attacker has. Row `only_computes` is what such an attacker costs that never says a word.

Goals: p99 at most 3 times the quiet one, no wait above 50 ms; memory within what it is when idle and the limits with names that the attack
can fill (Attack.limits), and 10 % more, and given back to the same without these. Exit status 1 where Stompbox misses one.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from bench import longsteps
from bench.attacks import ATTACKS
from bench.attacks.attacker import MEGABYTE, Attack, connected, send, subscribe
from bench.brokers import PEERS, BenchError, Broker, Peer, Stompbox, memory_mib

RATE = 200  # messages a second
GONE = 10.0  # seconds after which memory must be given back
LONGEST = 180.0  # seconds that an attack may take
WARM_UP = 2.0  # seconds of the pair alone before anything is measured: what just started is slow
FACTOR, WORST = 3.0, 50.0  # the goals: times the quiet p99, ms
MARGIN, LEFT = 1.1, 25.0  # of memory: 10 %; MiB that may stay in the allocator after very much


@dataclass(frozen=True, slots=True)
class Row:
    """Times in ms, memory in MiB."""

    attack: str
    broker: str
    quiet_p99: float
    p99: float
    worst: float
    seconds: float
    idle: float
    highest: float
    afterwards: float
    outcome: str

    @property
    def is_good(self) -> bool:
        return self.p99 <= max(FACTOR * self.quiet_p99, 2.0) and self.worst <= WORST and self.is_small

    @property
    def most(self) -> float:
        """What it may have at its highest, in MiB."""
        return (self.idle + ATTACKS[self.attack].limits) * MARGIN

    @property
    def is_small(self) -> bool:
        return (
            self.highest <= self.most
            and self.afterwards <= (self.idle + ATTACKS[self.attack].stays) * MARGIN + LEFT
        )


def main() -> int:
    options = _parse()
    names = [name for name in options.rows.split(",") if name] or list(ATTACKS)
    for name in names:
        if name not in ATTACKS:
            print(f"hostile: no attack {name!r}; there are {', '.join(ATTACKS)}", file=sys.stderr)
            return 2
    peers = [name for name in options.peers.split(",") if name]
    rows: list[Row] = []
    print(
        "| attack | broker | quiet p99 ms | p99 ms | longest wait ms | took s | MiB idle | MiB highest | of at most | MiB 10 s after | |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for name in names:
        for broker in ("stompbox", *(() if ATTACKS[name].is_ours else peers)):
            row = measured(name, broker, options.quiet_seconds, is_looked_into=options.steps)
            rows.append(row)
            times = f"{row.quiet_p99:.2f} | {row.p99:.2f} | {row.worst:.0f} | {row.seconds:.1f}"
            memory = f"{row.idle:.0f} | {row.highest:.0f} | {row.most:.0f} | {row.afterwards:.0f}"
            print(
                f"| {ATTACKS[name].what} (`{name}`) | {row.broker} | {times} | {memory} | {row.outcome} |",
                flush=True,
            )
    if options.json:
        Path(options.json).write_text(json.dumps([asdict(row) for row in rows], indent=1))
    return 0 if all(row.is_good for row in rows if row.broker == "stompbox") else 1


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench.hostile", description="What others feel beside a hostile client."
    )
    parser.add_argument("--rows", default="", help=f"only these, with commas: {', '.join(ATTACKS)}")
    parser.add_argument("--peers", default="", help=f"also these brokers, with commas: {', '.join(PEERS)}")
    parser.add_argument(
        "--quiet-seconds",
        type=float,
        default=3.0,
        help="how long the pair is measured alone first (default 3)",
    )
    parser.add_argument("--json", default="", help="a file for the figures")
    parser.add_argument(
        "--steps",
        action="store_true",
        help="tell the longest steps of Stompbox's loop, too, by CPU time (longsteps.py); it is slower then",
    )
    return parser.parse_args()


def measured(name: str, broker_name: str, quiet: float, *, is_looked_into: bool = False) -> Row:
    """One attack on one broker."""
    with tempfile.TemporaryDirectory() as folder:
        steps = Path(folder) / "steps" if is_looked_into and broker_name == "stompbox" else None
        with _running(broker_name, ATTACKS[name], Path(folder), steps) as broker:
            row = _attacked(name, broker_name, broker, quiet)
            if steps is not None:  # before its stop, which holds up nobody
                longsteps.tell(longsteps.asked(broker.pid, steps))
    return row


def _attacked(name: str, broker_name: str, broker: Broker, quiet: float) -> Row:
    """The row of a broker that runs."""
    idle = memory_mib(broker.pid, "VmRSS")
    port = broker.admin if isinstance(broker, Stompbox) and broker.admin else broker.port
    with Pair(broker.port) as pair:
        pair.wait(WARM_UP)
        pair.taken()
        pair.wait(quiet)
        quiet_p99, _ = pair.taken()
        begun = time.monotonic()
        attacker = subprocess.Popen(
            [sys.executable, "-m", "bench.attacks", name, str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        highest = _wait(attacker, broker, begun)
        seconds = time.monotonic() - begun
        pair.wait(1.0)
        p99, worst = pair.taken()
        highest = max(highest, memory_mib(broker.pid, "VmRSS"))
        outcome = attacker.communicate(timeout=30)[0].strip() or "cut off by us"
        pair.wait(GONE)
        afterwards = memory_mib(broker.pid, "VmRSS")
        outcome = outcome if pair.is_alive else f"{outcome}; the pair lost its connection"
    return Row(name, broker_name, quiet_p99, p99, worst, seconds, idle, highest, afterwards, outcome)


@contextmanager
def _running(name: str, attack: Attack, folder: Path, steps: Path | None = None) -> Iterator[Broker]:
    broker: Broker
    if name == "stompbox":
        settings = folder / "stompbox.toml"
        settings.write_text(attack.toml)
        options = ("--config", str(settings)) if attack.toml else ()
        admin = _free_port() if attack.is_admin else 0
        broker = Stompbox(folder / "log", options=options, admin=admin, steps=steps)
    elif name in PEERS:
        broker = Peer(name)
    else:
        raise BenchError(f"no broker {name!r}; there are {', '.join(PEERS)}")
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _wait(attacker: subprocess.Popen[str], broker: Broker, begun: float) -> float:
    """Until the attack has done its worst; the highest memory of the broker meanwhile."""
    assert attacker.stdout is not None
    highest = 0.0
    while time.monotonic() < begun + LONGEST:
        highest = max(highest, memory_mib(broker.pid, "VmRSS"))
        if select.select([attacker.stdout], [], [], 0.05)[0]:
            return highest
    attacker.kill()
    return highest


class Pair:
    """A normal client's sending and taking, in a process of its own."""

    def __init__(self, port: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.hostile", "--pair", str(port)],
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

    def taken(self) -> tuple[float, float]:
        """(p99, longest wait) in ms since the last time, with those that still wait."""
        if not self.is_alive:
            return float("inf"), float("inf")
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write("taken\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            return float("inf"), float("inf")
        p99, worst = line.split()
        return float(p99), float(worst)


def pair(port: int) -> None:
    """The process of the pair: `ready`, then figures whenever a line comes in, until stdin ends."""
    with suppress(OSError, AttributeError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    link = connected(port, login="probe")
    link.sendall(subscribe(1, "/queue/probe", headers="ack:auto\n"))
    link.setblocking(False)
    print("ready", flush=True)
    waits: list[float] = []
    # what is under way, by number: when it should have been sent
    due, waiting, rest = time.monotonic(), {}, b""
    number = 0
    while True:
        now = time.monotonic()
        if now >= due:
            waiting[number] = due
            with suppress(BlockingIOError):
                link.send(send("/queue/probe", b"<%d>" % number, headers="persistent:false\n"))
            number, due = number + 1, due + 1 / RATE
            continue
        for readable in select.select([link, sys.stdin], [], [], due - now)[0]:
            if readable is link:
                rest = _got(link, rest, waiting, waits)
            elif not sys.stdin.readline():
                return
            else:
                print(*_figures(waits, waiting), flush=True)
                waits.clear()


def _got(link: socket.socket, rest: bytes, waiting: dict[int, float], waits: list[float]) -> bytes:
    data = rest + link.recv(MEGABYTE)
    if data == rest:
        sys.exit("the broker closed the connection of a normal client")
    now = time.monotonic()
    *frames, rest = data.split(b"\0")
    for frame in frames:
        begun = waiting.pop(int(frame[frame.rindex(b"<") + 1 : -1]), None)
        if begun is not None:
            waits.append((now - begun) * 1000)
    return rest


def _figures(waits: list[float], waiting: dict[int, float]) -> tuple[float, float]:
    now = time.monotonic()
    every = sorted([*waits, *((now - begun) * 1000 for begun in waiting.values() if now - begun > 0.01)])
    return (every[int(len(every) * 0.99)], every[-1]) if every else (0.0, 0.0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--pair"]:
        pair(int(sys.argv[2]))
    elif sys.argv[1:2] == ["soak"]:
        from bench import soak

        sys.exit(soak.main(sys.argv[2:]))
    else:
        sys.exit(main())
