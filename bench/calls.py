"""How many calls of Python the broker needs for a message, and which of them a change has added.

    python -m bench.calls [--base origin/main] [--change HEAD] [--rows waiting-16,sensors] [--scale 0.5]

Times say little on a machine whose speed goes up and down; calls are the same on each, or nearly so: where the broker is late, more of
what comes shares a turn. Both commits are checked out and run under cProfile, a broker for each row, and what a broker calls that has
nothing to do is taken off. Exit status 1 when a row needs more calls than the limit allows, 2 when the benchmark could not go on.
"""

from __future__ import annotations

import argparse
import pstats
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from bench.brokers import BenchError, Stompbox
from bench.guard import checked_out, comparing
from bench.report import fault
from bench.rows import Row
from bench.run import OUT, prepared, run_row, say

LOADS: Final = ("waiting-16", "waiting-16-stored", "sensors", "ticker")
LIMIT: Final = 1.03  # times the base's calls
TOLD: Final = 12  # functions of a row, those whose calls have changed most
LEAST: Final = 0.05  # calls of a message that are worth telling

Calls = Mapping[tuple[str, str], float]
"""Of a message, by file and function."""


def main() -> int:
    options = parse(sys.argv[1:])
    try:
        rows, load = prepared(options.rows)
        with checked_out(options.base) as base, checked_out(options.change) as change:
            before, after = [counted(load, source, rows, options.scale) for source in (base, change)]
    except BenchError as e:
        print(f"bench.calls: {e}", file=sys.stderr)
        return 2
    print(table(rows, before, after))
    return 1 if any(change_of(before[row.key], after[row.key]) > LIMIT for row in rows) else 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    about = "Calls of Python for a message, beside another commit's."
    return comparing("bench.calls", about, LOADS, 0.5).parse_args(arguments)


def counted(load: Path, source: Path, rows: Sequence[Row], scale: float) -> dict[str, Calls]:
    """Calls of a message, by row."""
    idle, _ = profiled(load, source, None, scale)
    found: dict[str, Calls] = {}
    for row in rows:
        calls, messages = profiled(load, source, row, scale)
        calls.subtract(idle)
        found[row.key] = {name: count / messages for name, count in calls.items()}
        say(f"{row.key:18} {sum(found[row.key].values()):8.1f} calls of a message")
    return found


def profiled(load: Path, source: Path, row: Row | None, scale: float) -> tuple[Counter[tuple[str, str]], int]:
    """All calls of a broker that has had this load, or none, and how many messages that was."""
    with tempfile.TemporaryDirectory(prefix="stompbox-calls-") as folder:
        profile, messages = Path(folder) / "profile", 1
        program = ("cProfile", "-o", str(profile), "-m", "stompbox")
        broker = Stompbox(OUT / "calls.log", source=source, program=program)
        broker.start()
        try:
            if row is not None:
                result = run_row(load, broker, row, "1", scale=scale)
                if wrong := fault(result):
                    raise BenchError(f"row {row.key}: {wrong}")
                messages = int(max(result["expected"], result["sent"]))
        finally:
            broker.stop()
        return of_profile(profile, source), messages


def of_profile(profile: Path, source: Path) -> Counter[tuple[str, str]]:
    """Calls by file, as it is named below `source`, and function."""
    found = Counter[tuple[str, str]]()
    for (file, _, function), (_, calls, *_) in pstats.Stats(str(profile)).stats.items():  # type: ignore[attr-defined]
        path = Path(file)
        found[str(path.relative_to(source)) if path.is_relative_to(source) else path.name, function] += calls
    return found


def change_of(before: Calls, after: Calls) -> float:
    return sum(after.values()) / sum(before.values())


def most_changed(before: Calls, after: Calls) -> list[tuple[str, str]]:
    """Functions, those first that are called so much more often, or less."""
    names = {*before, *after}
    changes = {name: abs(after.get(name, 0.0) - before.get(name, 0.0)) for name in names}
    return sorted([name for name in names if changes[name] >= LEAST], key=lambda name: (-changes[name], name))


def table(rows: Sequence[Row], before: Mapping[str, Calls], after: Mapping[str, Calls]) -> str:
    """Markdown: each row's calls, and what has changed most of them."""
    lines = ["| load | calls of a message, base | change | to base | |", "|---|---:|---:|---:|---|"]
    for row in rows:
        first, second = before[row.key], after[row.key]
        to_base = change_of(first, second)
        verdict = f"**more than {LIMIT:.2f}**" if to_base > LIMIT else ""
        lines.append(
            f"| {row.title} | {sum(first.values()):.1f} | {sum(second.values()):.1f} | {to_base:.2f} | {verdict} |"
        )
    for row in rows:
        first, second = before[row.key], after[row.key]
        lines += ["", f"{row.key}:", ""]
        lines += [
            f"    {first.get(name, 0.0):7.2f} -> {second.get(name, 0.0):7.2f}  {' '.join(name)}"
            for name in most_changed(first, second)[:TOLD]
        ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
