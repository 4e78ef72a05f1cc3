"""A backlog that does not fit in memory: how much the broker takes while it grows, waits and drains, and how fast that goes.

    python -m bench.backlog [--messages 4000000] [--size 1024] [--producers 1]

Prints a Markdown table. One queue, persistent messages without receipts, one consumer with ack:auto; all are counted by the load
generator. Memory is the resident set of the process, read four times a second.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from bench.brokers import BenchError, Stompbox, memory_mib
from bench.run import OUT, build_stompload, run_stompload

EVERY = 0.25  # seconds between two looks at memory
WAITS = 3.0  # seconds that the backlog just waits
RETURNED_WITHIN = 30.0  # seconds in which the disk is to be given back


class Watch:
    """The most that a process has resident, until it is asked."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._most = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._ended.wait(EVERY):
            self._most = max(self._most, memory_mib(self._pid, "VmRSS"))

    def most(self) -> float:
        most, self._most = max(self._most, memory_mib(self._pid, "VmRSS")), 0.0
        return most

    def end(self) -> None:
        self._ended.set()
        self._thread.join()


def on_disk(folder: str) -> float:
    """MiB of all files."""
    return sum([path.stat().st_size for path in Path(folder).rglob("*") if path.is_file()]) / (1 << 20)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench.backlog", description="Memory, speed and disk of a backlog.")
    parser.add_argument("--messages", type=int, default=4_000_000)
    parser.add_argument("--size", type=int, default=1024, help="bytes of each body")
    parser.add_argument("--producers", type=int, default=1)
    options = parser.parse_args(arguments)
    OUT.mkdir(exist_ok=True)
    broker = Stompbox(OUT / "backlog.log")
    try:
        load = build_stompload()
        broker.start()
        try:
            return measure(broker, load, options)
        finally:
            broker.stop()
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2


def measure(broker: Stompbox, load: Path, options: argparse.Namespace) -> int:
    each = options.messages // options.producers
    count = each * options.producers
    common = [
        "--dest",
        "/queue/bench.backlog",
        "--msgs",
        str(each),
        "--size",
        str(options.size),
        "--producers",
        str(options.producers),
    ]
    watch = Watch(broker.pid)
    print(f"{count:,} messages of {options.size} bytes, {options.producers} producers")
    print("\n| | messages/s | resident at most, MiB | on disk afterwards, MiB |\n|---|---|---|---|")
    begun = time.monotonic()
    run_stompload(load, broker, [*common, "--sendhdrs", "persistent:true", "--send-only"])
    wait_until_taken(broker, load, options.size)
    say("growing", count / (time.monotonic() - begun), watch, broker)
    time.sleep(WAITS)
    say("waiting", 0, watch, broker)
    drained = run_stompload(load, broker, [*common, "--drain-only", "--consumers", "1"])
    say("draining", drained["msgs_per_s"], watch, broker)
    deadline = time.monotonic() + RETURNED_WITHIN
    while on_disk(broker.folder) > 100 and time.monotonic() < deadline:
        time.sleep(EVERY)
    say("afterwards", 0, watch, broker)
    watch.end()
    wrong = {key: drained[key] for key in ("duplicates", "disorder", "damaged") if drained[key]}
    lost = drained["expected"] - drained["received"]
    if lost or wrong:
        print(f"bench: lost {lost:.0f}, {wrong}", file=sys.stderr)
    return 1 if lost or wrong else 0


def wait_until_taken(broker: Stompbox, load: Path, size: int) -> None:
    """A SEND with a receipt, behind all the others' bytes: the disk has them."""
    run_stompload(
        load,
        broker,
        ["--dest", "/queue/bench.marker", "--msgs", "1", "--size", str(size), "--window", "1", "--send-only"],
    )


def say(phase: str, rate: float, watch: Watch, broker: Stompbox) -> None:
    shown = f"{rate:,.0f}" if rate else "-"
    print(f"| {phase} | {shown} | {watch.most():,.0f} | {on_disk(broker.folder):,.0f} |", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
