"""What an append to a cluster's log costs, on each engine: a commit of 1000 messages, a lone one, and how soon another node has it.

    python -m bench.commitlog [--logs memory,disk,jetstream,jetstream3,postgres] [--seconds 3] [--bytes 110]

The servers are started for it, on this machine: one nats-server alone and three in a cluster with three replicas, each with
`sync_interval: always`, and one PostgreSQL as initdb makes it, with fsync. So all of them and this program share its cores and its disk.
Times are what the caller of `append` waits, from a commit as a value to the log's word for it: encoded, cut and appended.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import quantiles
from threading import Thread
from time import perf_counter

from stompbox.commitlog.base import CommitLog, LogError
from stompbox.commitlog.disk import DiskLog
from stompbox.commitlog.memory import SharedLog
from stompbox.commitlog.opening import open_log
from stompbox.commitlog.records import cut
from stompbox.message import Run, Shape
from stompbox.store.base import Commit
from tests.commitlog import natsservers, pgserver

BATCH = 1000  # messages of a commit
NAME = "bench"
SHAPE = Shape({"destination": "/queue/bench", "content-type": "text/plain"})

Open = Callable[[], CommitLog]


@contextmanager
def memory(folder: Path) -> Iterator[Open]:
    yield SharedLog().open


@contextmanager
def disk(folder: Path) -> Iterator[Open]:
    yield lambda: DiskLog(folder / "disk", NAME)


@contextmanager
def jetstream(folder: Path) -> Iterator[Open]:
    with natsservers.running(folder, 1) as servers:
        yield lambda: open_log(f"{natsservers.url_of(servers)}?insecure=true", NAME)


@contextmanager
def jetstream3(folder: Path) -> Iterator[Open]:
    with natsservers.running(folder, 3) as servers:
        yield lambda: retried(f"{natsservers.url_of(servers)}?sync=always")


def retried(url: str) -> CommitLog:
    """The servers elect a leader of their own after they say that they are healthy."""
    for _ in range(10):
        try:
            return open_log(url, NAME)
        except LogError as error:
            if error.code != "log-unavailable":
                raise
    return open_log(url, NAME)


@contextmanager
def postgres(folder: Path) -> Iterator[Open]:
    with pgserver.running() as server:
        yield lambda: open_log(server.url, NAME)


LOGS = {
    "memory": memory,
    "disk": disk,
    "jetstream": jetstream,
    "jetstream3": jetstream3,
    "postgres": postgres,
}


def commit_of(count: int, size: int, first: int) -> Commit:
    return Commit(runs={1: [Run(SHAPE, [b"x" * size] * count, first=first, arrived=first)]})


def append(log: CommitLog, last: int, commit: Commit) -> int:
    for kind, payload in cut(commit, log.largest):
        last = log.append(last, 1, kind, payload)
    return last


def waits(log: CommitLog, count: int, size: int, seconds: float) -> list[float]:
    """How long each append took, in seconds, one after another."""
    last, found, first = log.last(), list[float](), 0
    warm, end = perf_counter() + seconds / 5, perf_counter() + seconds * 1.2
    while (begun := perf_counter()) < end:
        last = append(log, last, commit_of(count, size, first))
        first += count
        if begun > warm:
            found.append(perf_counter() - begun)
    return found


def arrivals(log: CommitLog, other: CommitLog, seconds: float) -> list[float]:
    """How long it takes from the begin of a lone append until another node has read the record."""
    last, found, done = log.last(), list[float](), perf_counter() + seconds
    begun: dict[int, float] = {}
    is_over = False

    def read() -> None:
        after = last
        while not is_over:
            for record in other.read(after, 1 << 20, 0.2):
                after = record.position
                if record.position in begun:
                    found.append(perf_counter() - begun[record.position])

    reader = Thread(target=read)
    reader.start()
    at = last
    while perf_counter() < done:
        begun[at + 1] = perf_counter()
        at = append(log, at, commit_of(1, 110, at))
    is_over = True
    reader.join()
    return found


def percentiles(times: list[float]) -> tuple[float, float]:
    """p50 and p99 in ms."""
    cuts = quantiles(times, n=100)
    return 1000 * cuts[49], 1000 * cuts[98]


def row(name: str, open: Open, options: argparse.Namespace) -> str:
    log, other = open(), open()
    try:
        batch = waits(log, BATCH, options.bytes, options.seconds)
        lone = waits(log, 1, options.bytes, options.seconds)
        read = arrivals(log, other, options.seconds)
    finally:
        log.close()
        other.close()
    rate = BATCH * len(batch) / sum(batch)
    cells = [f"{rate:,.0f}"]
    cells += ["{:.2f} / {:.2f}".format(*percentiles(times)) for times in (batch, lone, read)]
    return f"| {name} | " + " | ".join(cells) + " |"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="bench.commitlog", description="What an append to a cluster's log costs."
    )
    parser.add_argument("--logs", default=",".join(LOGS), help=f"of {', '.join(LOGS)}")
    parser.add_argument("--seconds", type=float, default=3, help="for each figure (default 3)")
    parser.add_argument("--bytes", type=int, default=110, help="of a message (default 110)")
    options = parser.parse_args()
    unknown = set(options.logs.split(",")) - LOGS.keys()
    if unknown:
        parser.error(f"no log {', '.join(sorted(unknown))}; there are {', '.join(LOGS)}")
    heads = (
        "log",
        f"messages/s in commits of {BATCH}",
        "append of such a commit, ms: p50 / p99",
        "of one message",
        "until another node has read it",
    )
    print(f"| {' | '.join(heads)} |")
    print("|---|---|---|---|---|")
    for name in options.logs.split(","):
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stompbox-bench-")))
            print(row(name, stack.enter_context(LOGS[name](folder)), options), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
