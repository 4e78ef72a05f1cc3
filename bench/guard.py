"""`make bench-guard`: whether a change costs the broker more CPU for a message than what it is compared with.

    python -m bench.guard [--base origin/main] [--rounds 5] [--rows sensors,sync] [--scale 1] [--compiled] [--fronts 2]

Both commits are checked out beside each other and run with the installed packages of this one. A round starts a broker of each, warms
it up and gives both each load, in turns; so the machine's own ups and downs meet both. CPU time, not rates: it hardly changes with what
else the machine does. The figure of a load is the median over the rounds of change to base. Exit status 1 when one of them is above
the limit, 2 when the benchmark could not go on. With --fronts it is the CPU of the broker's own process, without that of its fronts.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from bench.brokers import HERE, BenchError, Stompbox, with_fronts
from bench.report import fault
from bench.rows import ROWS, WARM_UP, Row
from bench.run import OUT, prepared, run_row, say

LOADS = ("queue", "topic", "ack", "persistent", "sync", "waiting-16", "sensors", "sensors-stored")
CACHE = "COMPILED_CACHE"  # hatch_build.py
LIMIT = 1.10  # times the base's CPU


def main() -> int:
    options = parse(sys.argv[1:])
    try:
        rows, load = prepared(options.rows)
        with (
            checked_out(options.base) as base,
            checked_out(options.change, is_compiled=options.compiled) as change,
        ):
            measured = [
                one_round(load, {"base": base, "change": change}, rows, turn, options)
                for turn in range(options.rounds)
            ]
    except BenchError as e:
        print(f"bench.guard: {e}", file=sys.stderr)
        return 2
    print(table(rows, measured))
    return 1 if too_dear(rows, measured) else 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = comparing("bench.guard", "CPU of the broker for a message, beside another commit's.", LOADS, 1)
    parser.add_argument(
        "--rounds", type=int, default=5, help="broker starts of each; the median counts (default 5)"
    )
    parser.add_argument(
        "--compiled",
        action="store_true",
        help="the change as mypyc has compiled it; with --base HEAD, what that gains",
    )
    parser.add_argument(
        "--fronts", type=int, default=0, help="of both: processes that have the clients' sockets (default 0)"
    )
    return parser.parse_args(arguments)


def comparing(program: str, about: str, loads: Sequence[str], scale: float) -> argparse.ArgumentParser:
    """Of a program that compares two commits: which ones, and by which loads."""
    parser = argparse.ArgumentParser(prog=program, description=about)
    parser.add_argument("--base", default="HEAD~1", help="the commit to compare with (default HEAD~1)")
    parser.add_argument(
        "--change",
        default="HEAD",
        help="the commit that is looked at (default HEAD); what is not committed is not seen",
    )
    parser.add_argument("--rows", default=",".join(loads), help=f"of {', '.join(row.key for row in ROWS)}")
    parser.add_argument(
        "--scale",
        type=float,
        default=scale,
        help=f"multiplies the messages of each load (default {scale:g})",
    )
    return parser


@contextmanager
def checked_out(commit: str, *, is_compiled: bool = False) -> Iterator[Path]:
    """A folder with the commit's packages."""
    with tempfile.TemporaryDirectory(prefix="stompbox-guard-") as folder:
        git("worktree", "add", "--quiet", "--detach", folder, commit)
        try:
            if is_compiled:
                compile_in(Path(folder))
            yield Path(folder) / "src"
        finally:
            git("worktree", "remove", "--force", folder)


def compile_in(checkout: Path) -> None:
    """Its extension modules are beside its sources, and are what Python takes."""
    say("compiling, a few minutes")
    script = "import hatch_build, pathlib, sys; print(hatch_build.compiled(pathlib.Path(sys.argv[1])))"
    command = [sys.executable, "-c", script, os.environ.get(CACHE) or str(checkout / "build")]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"it does not compile: {done.stderr.strip()[-300:]}")
    shutil.copytree(done.stdout.split()[-1], checkout / "src", dirs_exist_ok=True)


def git(*arguments: str) -> None:
    done = subprocess.run(["git", *arguments], cwd=HERE, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"git {' '.join(arguments)}: {done.stderr.strip()[-300:]}")


def one_round(
    load: Path, sources: dict[str, Path], rows: Sequence[Row], turn: int, options: argparse.Namespace
) -> dict[str, float]:
    """CPU of the change divided by that of the base, by row."""
    costs: dict[tuple[str, str], float] = {}
    with ExitStack() as running:
        brokers = {
            name: Stompbox(
                OUT / f"guard-{name}.log", name, source=source, options=with_fronts(options.fronts)
            )
            for name, source in sources.items()
        }
        for broker in brokers.values():
            broker.start()
            running.callback(broker.stop)
            for row in WARM_UP:
                cost_of(load, broker, row, turn, min(1.0, options.scale))
        for row in rows:
            for name, broker in brokers.items():
                costs[name, row.key] = cost_of(load, broker, row, turn, options.scale)
                say(f"{row.key:16} {turn + 1}/{options.rounds} {name:6} {costs[name, row.key]:8.2f} us")
    return {row.key: costs["change", row.key] / costs["base", row.key] for row in rows}


def cost_of(load: Path, broker: Stompbox, row: Row, turn: int, scale: float) -> float:
    """us of CPU of the broker's own process for a message."""
    result = run_row(load, broker, row, str(turn), scale=scale)
    if wrong := fault(result):
        raise BenchError(f"{broker.name}, row {row.key}: {wrong}")
    if not result["core_us"]:
        raise BenchError(f"row {row.key} took less than a clock tick of CPU; give it more messages (--scale)")
    return result["core_us"]


def change_of(row: Row, measured: Sequence[dict[str, float]]) -> float:
    return median(one[row.key] for one in measured)


def too_dear(rows: Sequence[Row], measured: Sequence[dict[str, float]]) -> list[str]:
    """Keys of the rows that cost more than they may."""
    return [row.key for row in rows if change_of(row, measured) > LIMIT]


def table(rows: Sequence[Row], measured: Sequence[dict[str, float]]) -> str:
    """Markdown: each row's median, and the least and the most of the rounds."""
    lines = ["| load | CPU for a message, to base | rounds | |", "|---|---:|---|---|"]
    for row in rows:
        found = [one[row.key] for one in measured]
        verdict = f"**more than {LIMIT:.2f}**" if row.key in too_dear(rows, measured) else ""
        lines.append(
            f"| {row.title} | {median(found):.2f} | {min(found):.2f} to {max(found):.2f} | {verdict} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
