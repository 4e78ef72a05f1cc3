"""What the store costs: chunks, commits with fsync, recovery, reading, deleting and giving file space back.

    python -m bench.store [--seconds 2] [--chunks 10000] [--folder DIR]

Best of several runs, because other work on the machine can only make it slower; commits are given as a mean with the pauses
of checkpoints in it, and as percentiles, by a store that has a journal in front and by SQLite alone, in turns. The folder should lie on
the disk that is meant: /tmp may be memory.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import perf_counter, process_time

from stompbox.message import Run, Shape
from stompbox.store import chunks
from stompbox.store.base import Commit
from stompbox.store.journaled import JournaledStore
from stompbox.store.sqlite import SqliteStore

SHAPES = [
    Shape({"destination": "/queue/bench", "content-type": "application/json", "n": str(n)}) for n in range(2)
]
HOLES = Shape(
    {"destination": "/queue/bench", "content-type": "application/json"}, holes=("correlation-id", "timestamp")
)
COUNT = 1000  # messages in a commit
ARRIVED = 1_700_000_000_000
MAX_READ = 4 << 20


def main() -> None:
    options = parse()
    encoding()
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="stompbox-bench-") as folder:
        commits(Path(folder), options.seconds)
        backlog(Path(folder), options.chunks)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.store", description="What the store costs.")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each kind of commit (default 2)")
    parser.add_argument(
        "--chunks",
        type=int,
        default=10_000,
        help=f"of {COUNT} messages, for recovery and draining (default 10000)",
    )
    parser.add_argument("--folder", type=Path, default=Path.cwd(), help="where the data goes (default here)")
    return parser.parse_args()


def bodies(size: int) -> list[bytes]:
    return [b"%0*d" % (size, n) for n in range(COUNT)]


# Chunks


def encoding() -> None:
    print(
        f"{'chunk of 1000 messages':42} {'encode':>10} {'decode':>10} {'parts':>10}   ns/message; {'bytes':>9}"
    )
    for size in (100, 1024):
        for name, runs in layouts(bodies(size)).items():
            line(f"{name}, {size} B", runs, COUNT)
    line("one message, 100 B", [Run(SHAPES[0], [b"x" * 100], first=0, arrived=ARRIVED)], 1)


def line(name: str, runs: list[Run], messages: int) -> None:
    blob = chunks.encode(runs, 0)
    times = [
        best(lambda: chunks.encode(runs, 0)),
        best(lambda: chunks.decode(blob, 0)),
        best(lambda: chunks.tables(blob)),
    ]
    print(f"{name:42} " + " ".join(f"{time / messages * 1e9:10.0f}" for time in times) + f"{len(blob):26}")


def layouts(all: list[bytes]) -> dict[str, list[Run]]:
    column = [b"%d" % n for n in range(COUNT)]
    return {
        "one run": [Run(SHAPES[0], all, first=0, arrived=ARRIVED)],
        "one run with two holes": [Run(HOLES, all, (column, column), first=0, arrived=ARRIVED)],
        "1000 runs, one shape": [
            Run(SHAPES[0], [body], first=n, arrived=ARRIVED) for n, body in enumerate(all)
        ],
        "1000 runs, two shapes in turn": [
            Run(SHAPES[n % 2], [body], first=n, arrived=ARRIVED) for n, body in enumerate(all)
        ],
    }


def best(work: Callable[[], object]) -> float:
    """Seconds of the fastest of many calls."""
    fastest, until = 1e9, perf_counter() + 0.4
    while perf_counter() < until:
        begun = perf_counter()
        work()
        fastest = min(fastest, perf_counter() - begun)
    return fastest


# Commits

Store = SqliteStore | JournaledStore
STORES: dict[str, Callable[[SqliteStore], Store]] = {
    "SQLite alone": lambda database: database,
    "journal in front": JournaledStore,
}
# commits that one store makes before the other has its turn: what else the machine does meets both
SLICE = 64


@dataclass(slots=True)
class Taken:
    """What the commits of one store took: seconds of each, of CPU, and bytes written."""

    seconds: list[float] = field(default_factory=list)
    cpu: float = 0.0
    written: int = 0

    def line(self, messages: int) -> str:
        count, ordered = len(self.seconds), sorted(self.seconds)
        times = [ordered[count * part // 100] * 1e3 for part in (50, 99)]
        rate = count / sum(ordered)
        figures = (
            f"{rate:9.0f} {rate * messages:10.0f} {times[0]:7.2f} {times[1]:7.2f} {ordered[-1] * 1e3:7.2f}"
        )
        return f"{figures} {self.cpu / count * 1e6:7.0f} {self.written / count / 1024:8.1f}"


def commits(folder: Path, seconds: float) -> None:
    """What a broker has, beside the same database without the journal."""
    print(
        f"\n{'commit with fsync':55} {'commits/s':>9} {'messages/s':>10} {'p50':>7} {'p99':>7} {'max':>7} {'CPU us':>7} {'KiB each':>8}"
    )
    for count, size in ((1, 100), (10, 100), (100, 100), (COUNT, 100), (COUNT, 1024)):
        lot = bodies(size)[:count]
        for name, make in {
            "kept": partial(kept, lot),
            "acknowledged and trimmed": partial(passing, lot),
        }.items():
            report(f"{count} x {size} B, {name}", count, in_turns(folder, seconds, make))
    report(
        "acknowledgement only", 0, in_turns(folder, seconds, lambda n: Commit(acknowledged={1: [(n, n + 1)]}))
    )


def kept(lot: list[bytes], n: int) -> Commit:
    first = n * len(lot)
    return Commit(runs={1: [Run(SHAPES[0], lot, first=first, arrived=ARRIVED + n)]})


def passing(lot: list[bytes], n: int, behind: int = 5) -> Commit:
    """A queue that is consumed as fast as it is filled."""
    commit = kept(lot, n)
    done = max(0, (n - behind) * len(lot))
    commit.acknowledged[1] = [(done, done + len(lot))]
    commit.trims[1] = done
    return commit


def in_turns(folder: Path, seconds: float, make: Callable[[int], Commit]) -> dict[str, Taken]:
    """Each store for `seconds`, a slice at a time."""
    taken = {name: Taken() for name in STORES}
    with ExitStack() as stack:
        stores = {
            name: stack.enter_context(closing(opening(SqliteStore(folder / name))))
            for name, opening in STORES.items()
        }
        for store in stores.values():
            store.apply(Commit(logs={1: "bench"}, cursors={1: (1, 0)}))
            store.apply(kept([b"first"], 0))  # which makes the journal
        while any(sum(one.seconds) < seconds for one in taken.values()):
            for name, store in stores.items():
                if sum(taken[name].seconds) < seconds:
                    some_commits(store, make, taken[name])
    for name in STORES:
        shutil.rmtree(folder / name)
    return taken


def some_commits(store: Store, make: Callable[[int], Commit], taken: Taken) -> None:
    begun = len(taken.seconds) + 1
    made = [make(n) for n in range(begun, begun + SLICE)]
    cpu, written = process_time(), bytes_written()
    for commit in made:
        at = perf_counter()
        store.apply(commit)
        taken.seconds.append(perf_counter() - at)
    taken.cpu += process_time() - cpu
    taken.written += bytes_written() - written


def bytes_written() -> int:
    """What this process has given to disks, as Linux counts it; 0 elsewhere."""
    try:
        found = re.search(r"^write_bytes: (\d+)$", Path("/proc/self/io").read_text(), re.M)
    except OSError:
        return 0
    return int(found[1]) if found else 0


def report(name: str, messages: int, taken: dict[str, Taken]) -> None:
    for store, one in taken.items():
        print(f"{name:38} {store:16} {one.line(messages)}", flush=True)


@contextmanager
def opened(path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(path)
    try:
        yield store
    finally:
        store.close()


# A backlog


def backlog(folder: Path, count: int, size: int = 100) -> None:
    """Filled without fsync, because only what comes after is measured."""
    path = folder / "backlog"
    store = SqliteStore(path, synchronous=False)
    store.apply(Commit(logs={1: "bench"}, cursors={1: (1, 0)}))
    lot = bodies(size)
    begun = perf_counter()
    for n in range(count):
        store.apply(kept(lot, n))
    took = perf_counter() - begun
    tidy(store)
    store.close()
    print(f"\nbacklog of {count * COUNT:,} messages of {size} B in {count:,} chunks, {megabytes(path)} MB")
    print(f"{'filled without fsync':42} {count * COUNT / took:10,.0f} messages/s")
    with opened(path) as store:
        print(f"{'recover':42} {clock(store.recover) * 1e3:10.1f} ms")
    print(f"{'open, recover, close':42} {best_of_three(lambda: reopen(path)) * 1e3:10.1f} ms")
    with opened(path) as store:
        print(f"{'sizes of a log':42} {clock(lambda: store.sizes([1])) * 1e3:10.1f} ms")
        print(
            f"{'find_time near the end':42} {clock(lambda: store.find_time(1, ARRIVED + count - 2)) * 1e3:10.1f} ms"
        )
        read = clock(lambda: drain(store, count * COUNT, decoding=False))
        decoded = clock(lambda: drain(store, count * COUNT, decoding=True))
        print(f"{'read':42} {count * COUNT / read:10,.0f} messages/s, decoded {count * COUNT / decoded:,.0f}")
        trim = clock(lambda: store.apply(Commit(trims={1: count * COUNT})))
        portions = tidy(store)
        print(f"{'commit that trims all of it':42} {trim * 1e3:10.1f} ms")
        print(
            f"{'deleting it, giving the space back':42} {sum(portions):10.1f} s in {len(portions):,} portions",
            end="",
        )
        print(f", the longest {max(portions) * 1e3:.0f} ms; {megabytes(path)} MB left")


def reopen(path: Path) -> None:
    with opened(path) as store:
        store.recover()


def clock(work: Callable[[], object]) -> float:
    begun = perf_counter()
    work()
    return perf_counter() - begun


def best_of_three(work: Callable[[], object]) -> float:
    return min(clock(work) for _ in range(3))


def drain(store: SqliteStore, stop: int, *, decoding: bool) -> None:
    at = 0
    while at < stop:
        found = store.read(1, at, stop, MAX_READ)
        if decoding:
            for chunk in found:
                chunks.decode(chunk.blob, chunk.first)
        at = found[-1].stop


def tidy(store: SqliteStore) -> list[float]:
    """Seconds of each portion of housekeeping until there is none."""
    took = []
    more = True
    while more:
        begun = perf_counter()
        more = store.maintain()
        took.append(perf_counter() - begun)
    return took


def megabytes(path: Path) -> int:
    return sum(os.stat(file).st_size for file in path.iterdir()) >> 20


if __name__ == "__main__":
    main()
