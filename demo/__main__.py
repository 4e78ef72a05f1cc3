"""`python -m demo`: the departures board, from the first flight to the report. Exit code 0: every count is right."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections import deque
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.markup import escape

from demo.display import STEPS, Display
from demo.play import Play
from demo.processes import StepFailed
from demo.settings import OutputRefused, Settings

FAILED: Final = 1
WRONG_ARGUMENT: Final = 2
INTERRUPTED: Final = 130  # 128 + SIGINT, as shells have it
LOG_LINES: Final = 15


def arguments(words: list[str]) -> Settings:
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__)
    parser.add_argument(
        "--flights",
        type=int,
        default=0,
        metavar="N",
        help="so many flights, spread over the year; default all 336,776",
    )
    parser.add_argument(
        "--output", type=Path, default=Path("demo-output"), metavar="FOLDER", help="default demo-output"
    )
    given = parser.parse_args(words)
    if given.flights < 0 or 0 < given.flights < 1000:
        parser.error(
            f"--flights is {given.flights}; allowed are 0 for all and numbers from 1000 on, or nothing is killed in the middle"
        )
    return Settings(given.output.resolve(), given.flights)


def main(words: list[str]) -> int:
    settings = arguments(words)
    console = Console(highlight=False, soft_wrap=True)
    try:
        settings.prepare()
    except OutputRefused as refusal:
        print(f"demo: {refusal}", file=sys.stderr)
        return WRONG_ARGUMENT
    try:
        with Display(console) as display:
            return FAILED if asyncio.run(_played(settings, display)) else 0
    except StepFailed as failure:
        _explain(failure, settings, console)
        return FAILED
    except (KeyboardInterrupt, asyncio.CancelledError):
        console.print(
            f"\n[bold yellow]interrupted[/]; all processes of the demo are ended, their logs are in {settings.logs}"
        )
        return INTERRUPTED


async def _played(settings: Settings, display: Display) -> int:
    """How many checks of the audit failed. SIGTERM and SIGHUP end the demo as Ctrl-C does."""
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    return await Play(settings, display).run()


def _explain(failure: StepFailed, settings: Settings, console: Console) -> None:
    console.print(f"\n[bold red]Step {failure.step} failed: {STEPS[failure.step]}[/]")
    console.print(f"  expected  {escape(failure.expected)}")
    console.print(f"  found     {escape(failure.found)}")
    if failure.log is not None and failure.log.is_file():
        with failure.log.open(encoding="utf-8", errors="replace") as log:
            lines = [escape(line.rstrip()) for line in deque(log, LOG_LINES)]
        console.print(f"  log       {failure.log}" + (", which ends with" if lines else ", which is empty"))
        for line in lines:
            console.print(f"            [dim]{line}[/]")
    console.print(f"  all logs  {settings.logs}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
