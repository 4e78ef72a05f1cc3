"""How other clients fare beside a hostile one: a pair of normal clients, one attack after the other.

    python -m bench.hostile [--rows ws_pings,churn] [--peers artemis,rabbitmq] [--seconds 6] [--stored] [--turns] [--json FILE]
    python -m bench.hostile soak [--connections 5000] [--minutes 10]     (soak.py)

For each attack a broker is started anew. The pair sends 200 messages a second through a queue of its own and takes them (pair.py). The
attacker begins anew, as soon as it is through, until it has gone on for `--seconds`: a thousand messages of the pair at the least. Its
p99 is that of the worst thousand in a row. With `--stored` each of its messages is persistent, and what is measured is how long it waits
for its receipt: for what the disk, and the thread that writes, have to do for others.

Attacker, pair and broker are three processes. Where they share two cores, what the system's scheduler has to do with it is in the
columns: the p99 of the pair when nothing else happens, beside a process that computes all the time (of the same priority as an attacker)
and says nothing to the broker, and under attack. What a core of the machine stood still meanwhile, as those of virtual machines do, is
taken from each wait (standstills.py); the longest wait is told with it, too. Row `streams` is a client that does nothing wrong, and as
much of it as it can.
The broker's memory is read while the attacks go on, and 10 s after the attacker left.

Goals: p99 at most 3 times the quiet one, no wait above 50 ms; memory within what it is when idle and the limits with names that the attack
can fill (Attack.limits), and 10 % more, and given back to the same without these. Exit status 1 where Stompbox misses one.
"""

from __future__ import annotations

import argparse
import json
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from bench import longsteps, turncosts
from bench.attacks import ATTACKS
from bench.attacks.attacker import Attack
from bench.brokers import PEERS, BenchError, Broker, Peer, Stompbox, free_port, memory_mib, with_tls
from bench.pair import RATE, SPAN, Pair, Waits

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
    busy_p99: float  # beside a process that computes
    p99: float
    worst: float
    raw_worst: float  # with what cores of the machine stood still of it,
    stood_still: float  # and how long any of them did so under attack, in all
    samples: int  # messages of the pair under attack
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
        "| attack | broker | p99 ms quiet | beside who computes | under attack | longest wait ms | with standstills "
        "| of ms | messages | took s "
        "| MiB idle | MiB highest | of at most | MiB 10 s after | |"
    )
    print("|---" * 15 + "|")
    for name in names:
        for broker in ("stompbox", *filter(ATTACKS[name].suits, peers)):
            row = measured(name, broker, options.seconds, looker=options.looker, is_stored=options.stored)
            rows.append(row)
            times = f"{row.quiet_p99:.2f} | {row.busy_p99:.2f} | {row.p99:.2f} | {row.worst:.0f}"
            machine = f"{row.raw_worst:.0f} | {row.stood_still:.0f} | {row.samples:,} | {row.seconds:.1f}"
            memory = f"{row.idle:.0f} | {row.highest:.0f} | {row.most:.0f} | {row.afterwards:.0f}"
            print(
                f"| {ATTACKS[name].what} (`{name}`) | {row.broker} | {times} | {machine} | {memory} | {row.outcome} |",
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
        "--seconds",
        type=float,
        default=6.0,
        help="how long an attack goes on, at the least (default 6)",
    )
    parser.add_argument(
        "--stored",
        action="store_true",
        help="the pair's messages are persistent, and wait for their receipts",
    )
    parser.add_argument("--json", default="", help="a file for the figures")
    looking = parser.add_mutually_exclusive_group()
    looking.add_argument(
        "--steps",
        action="store_const",
        const="bench.longsteps",
        dest="looker",
        help="tell the longest steps of Stompbox's loop, too, by CPU time (longsteps.py); it is slower then",
    )
    looking.add_argument(
        "--turns",
        action="store_const",
        const="bench.turncosts",
        dest="looker",
        help="tell what the turns of Stompbox's loop take, too, by CPU time (turncosts.py)",
    )
    return parser.parse_args()


LOOKERS: Final = {"bench.longsteps": longsteps.tell, "bench.turncosts": turncosts.tell}


def measured(
    name: str, broker_name: str, seconds: float, *, looker: str | None = None, is_stored: bool = False
) -> Row:
    """One attack on one broker. `looker`: the module of LOOKERS by way of which Stompbox is started, to tell more."""
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "told"
        program = (looker, str(told)) if looker else ("stompbox",)
        with _running(broker_name, ATTACKS[name], Path(folder), program) as broker:
            row = _attacked(name, broker_name, broker, seconds, is_stored=is_stored)
            if looker and broker_name == "stompbox":  # before its stop, which holds up nobody
                LOOKERS[looker](longsteps.asked(broker.pid, told))
    return row


def _attacked(name: str, broker_name: str, broker: Broker, seconds: float, *, is_stored: bool) -> Row:
    """The row of a broker that runs."""
    idle = memory_mib(broker.pid, "VmRSS")
    port = (isinstance(broker, Stompbox) and (broker.admin or broker.secret)) or broker.port
    login = "guest" if broker_name == "rabbitmq" else "probe"  # RabbitMQ knows nobody else
    with Pair(broker.port, login=login, header=broker.not_persistent, is_stored=is_stored) as pair:
        pair.wait(WARM_UP)
        quiet = _waits(pair)
        with _who_computes():
            busy = _waits(pair)
        pair.taken()
        begun = time.monotonic()
        attacker = subprocess.Popen(
            [sys.executable, "-m", "bench.attacks", name, str(port), str(seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        highest = _wait(attacker, broker, begun)
        took = time.monotonic() - begun
        waits = pair.taken()
        pair.wait(1.0)  # in which it has no more to do than the rest
        late = pair.taken()
        worst, raw_worst = max(waits.worst, late.worst), max(waits.raw_worst, late.raw_worst)
        highest = max(highest, memory_mib(broker.pid, "VmRSS"))
        outcome = attacker.communicate(timeout=30)[0].strip() or "cut off by us"
        pair.wait(GONE)
        afterwards = memory_mib(broker.pid, "VmRSS")
        outcome = outcome if pair.is_alive else f"{outcome}; the pair lost its connection"
    times = quiet.p99, busy.p99, waits.p99, worst, raw_worst, waits.stood_still, waits.count, took
    return Row(name, broker_name, *times, idle, highest, afterwards, outcome)


def _waits(pair: Pair) -> Waits:
    """Those of a p99's worth of messages, from now on."""
    pair.taken()
    pair.wait((SPAN + 1) / RATE)
    return pair.taken()


@contextmanager
def _who_computes() -> Iterator[None]:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as neighbour:
        try:
            yield
        finally:
            neighbour.kill()


@contextmanager
def _running(name: str, attack: Attack, folder: Path, program: tuple[str, ...]) -> Iterator[Broker]:
    broker: Broker
    if name == "stompbox":
        settings = folder / "stompbox.toml"
        settings.write_text(attack.toml)
        options: tuple[str, ...] = ("--config", str(settings)) if attack.toml else ()
        admin = free_port() if attack.is_admin else 0
        secret = 0
        if attack.is_tls:
            more, secret = with_tls(folder)
            options += more
        broker = Stompbox(folder / "log", options=options, admin=admin, secret=secret, program=program)
    elif name in PEERS:
        broker = Peer(name)
    else:
        raise BenchError(f"no broker {name!r}; there are {', '.join(PEERS)}")
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


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


if __name__ == "__main__":
    if sys.argv[1:2] == ["soak"]:
        from bench import soak

        sys.exit(soak.main(sys.argv[2:]))
    else:
        sys.exit(main())
