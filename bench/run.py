"""`make bench`: runs the rows against Stompbox and, on request, against other brokers, and prints the table.

    python -m bench.run [--peers artemis,classic,rabbitmq] [--rows queue,latency] [--runs 3] [--messages-scale 0.1]

Every broker runs for the whole time and the brokers take turns, run by run, so that a drift of the machine's speed meets all of
them. Exit status 1 when Stompbox lost, doubled, reordered or damaged a message in any run, 2 when the benchmark could not go on.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from bench.brokers import (
    HERE,
    PEERS,
    BenchError,
    Broker,
    Peer,
    Stompbox,
    cpu_seconds,
    memory_mib,
    with_fronts,
)
from bench.report import Machine, Measured, Result, fault, table
from bench.rows import ROWS, WARM_UP, Row

OUT = HERE / "out"
IDLE_SECONDS = 2.0  # a broker's idle memory is read this long after it was ready
PAUSE_SECONDS = 0.3  # between two runs: the broker before has written and freed what it had to


def main() -> int:
    options = parse(sys.argv[1:])
    try:
        rows, load = prepared(options.rows)
        measured = measure(load, rows, options)
    except BenchError as e:
        print(f"bench: {e}", file=sys.stderr)
        return 2
    text = table(about_machine(), rows, measured)
    print(text)
    print(f"every run: {write(text, measured)}")
    return 1 if report_faults(measured) else 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line; peers and rows stay comma lists, checked where they are used."""
    parser = argparse.ArgumentParser(prog="bench.run", description="Stompbox's speed, beside other brokers'.")
    parser.add_argument("--peers", default="", help=f"also measure these, with commas: {', '.join(PEERS)}")
    parser.add_argument(
        "--rows", default="", help=f"only these, with commas: {', '.join(row.key for row in ROWS)}"
    )
    parser.add_argument(
        "--runs", type=int, default=3, help="runs of each row; the median is shown (default 3)"
    )
    parser.add_argument(
        "--messages-scale", type=float, default=1.0, help="multiplies the messages of each run (default 1)"
    )
    parser.add_argument(
        "--fronts", type=int, default=0, help="processes that have the clients' sockets (default 0: none)"
    )
    parser.add_argument("--only-peers", action="store_true", help="leave Stompbox itself out")
    return parser.parse_args(arguments)


def prepared(keys: str) -> tuple[list[Row], Path]:
    """The rows of these keys, and the load generator for them. Raises BenchError."""
    OUT.mkdir(exist_ok=True)
    return chosen_rows(keys), build_stompload()


def chosen_rows(keys: str) -> list[Row]:
    """The rows named, in the table's order; all where none is named."""
    wanted = [key for key in keys.split(",") if key]
    known = [row.key for row in ROWS]
    for key in wanted:
        if key not in known:
            raise BenchError(f"no row {key!r}; there are {', '.join(known)}")
    return [row for row in ROWS if row.key in wanted or not wanted]


def chosen_peers(names: str) -> list[Peer]:
    wanted = [name for name in names.split(",") if name]
    for name in wanted:
        if name not in PEERS:
            raise BenchError(f"no peer {name!r}; there are {', '.join(PEERS)}")
    return [Peer(name) for name in wanted]


def build_stompload() -> Path:
    """Compiles the load generator where it is older than its source."""
    source, binary = HERE / "stompload.c", OUT / "stompload"
    if binary.exists() and binary.stat().st_mtime >= source.stat().st_mtime:
        return binary
    try:
        command = ["cc", "-O2", "-pthread", "-o", str(binary), str(source)]
        built = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    except FileNotFoundError as e:
        raise BenchError("the load generator needs a C compiler, and there is no `cc`") from e
    if built.returncode != 0:
        raise BenchError(f"cc could not build {source.name}: {built.stderr[-600:]}")
    return binary


def measure(load: Path, rows: Sequence[Row], options: argparse.Namespace) -> dict[str, Measured]:
    """All rows on all brokers; every broker started here is stopped again."""
    measured: dict[str, Measured] = {}
    brokers: list[Broker] = [
        *(
            []
            if options.only_peers
            else [Stompbox(OUT / "stompbox.log", options=with_fronts(options.fronts))]
        ),
        *chosen_peers(options.peers),
    ]
    with ExitStack() as running:
        for broker in brokers:
            say(f"starting {broker.name}")
            broker.start()
            running.callback(broker.stop)
            time.sleep(IDLE_SECONDS)
            measured[broker.name] = Measured(broker.start_seconds, memory_mib(broker.pid, "VmRSS"))
        for broker in brokers:
            for row in WARM_UP:
                wrong = fault(run_row(load, broker, row, "0", scale=min(1.0, options.messages_scale)))
                say(f"warming up {broker.name}, {row.title} {wrong}")
        for row in rows:
            measure_row(load, brokers, row, measured, options)
        for broker in brokers:
            measured[broker.name].peak_mib = memory_mib(broker.pid, "VmHWM")
    return measured


def measure_row(
    load: Path,
    brokers: Sequence[Broker],
    row: Row,
    measured: dict[str, Measured],
    options: argparse.Namespace,
) -> None:
    for turn in range(1, options.runs + 1):
        for broker in brokers:
            time.sleep(PAUSE_SECONDS)
            result = run_row(load, broker, row, str(turn), scale=options.messages_scale)
            measured[broker.name].runs.setdefault(row.key, []).append(result)
            wrong = fault(result)
            figures = f"{result['msgs_per_s']:>12,.0f}/s   p99 {result['lat_ms_p99']:,.2f} ms   {result['cpu_us']:,.1f} us of CPU"
            if options.fronts:
                figures += f", {result['core_us']:,.1f} of them without the fronts"
            say(f"{row.key:14} {turn}/{options.runs} {broker.name:10} {wrong or figures}")


def run_row(load: Path, broker: Broker, row: Row, turn: str, *, scale: float) -> Result:
    """One run of one row. What a send-only row left in its queue is read back, not timed, and counted."""
    before, own = cpu_seconds(broker.pid), cpu_seconds(broker.pid, is_alone=True)
    result = run_stompload(
        load, broker, row.arguments(turn, scale=scale, not_persistent=broker.not_persistent)
    )
    share = 1e6 / max(1, result["expected"], result["sent"])
    result["cpu_us"] = (cpu_seconds(broker.pid) - before) * share
    result["core_us"] = (cpu_seconds(broker.pid, is_alone=True) - own) * share
    if not row.send_only or result["failed"]:
        return result
    drained = run_stompload(load, broker, row.drain_arguments(turn, scale=scale))
    lost = drained["expected"] - drained["received"]
    return {
        **result,
        "drained_lost": lost,
        "drained_duplicates": drained["duplicates"],
        "drained_disorder": drained["disorder"],
    }


def run_stompload(load: Path, broker: Broker, arguments: Sequence[str]) -> dict[str, float]:
    """One call of the load generator. A run that went wrong is a result too; one that printed nothing is not."""
    command = [str(load), "--port", str(broker.port), "--timeout", "20", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.stderr:
        say(f"{broker.name}: {done.stderr.strip()[:300]}")
    try:
        result: dict[str, float] = json.loads(done.stdout)
    except json.JSONDecodeError as e:
        raise BenchError(
            f"stompload ended with status {done.returncode} on {broker.name}: {' '.join(arguments)}"
        ) from e
    return result


def about_machine() -> Machine:
    asked = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=HERE, capture_output=True, text=True, check=False
    )
    commit = asked.stdout.strip() or "unknown"
    return Machine(os.cpu_count() or 0, platform.python_version(), commit, fdatasync_ms(OUT / "fdatasync"))


def fdatasync_ms(path: Path, *, times: int = 200) -> float:
    """The median of an append of 4 KiB and its fdatasync, the floor under every receipt of a persistent message."""
    taken = []
    with path.open("wb", buffering=0) as file:
        for _ in range(times):
            started = time.perf_counter()
            file.write(bytes(4096))
            os.fdatasync(file.fileno())
            taken.append((time.perf_counter() - started) * 1000)
    path.unlink()
    return median(taken)


def write(text: str, measured: dict[str, Measured]) -> Path:
    """bench/out/<time>.json with every run, and the table as .md beside it."""
    stem = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    path = OUT / f"{stem}.json"
    path.write_text(json.dumps({name: asdict(m) for name, m in measured.items()}, indent=1) + "\n")
    path.with_suffix(".md").write_text(text)
    return path


def report_faults(measured: dict[str, Measured]) -> bool:
    """Tells each run that went wrong, of any broker; true where one was ours."""
    ours = False
    for name, m in measured.items():
        for key, runs in m.runs.items():
            for turn, run in enumerate(runs, 1):
                if fault(run):
                    say(f"{name}, row {key}, run {turn}: {fault(run)}")
                    ours = ours or name == "stompbox"
    return ours


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
