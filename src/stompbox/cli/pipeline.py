"""`stompbox pipeline`: init, check, run.

Decides what these print and their exit codes: 0 done (a stop by SIGINT or SIGTERM too), 1 a step failed or an audit found differences,
2 the file or an argument is wrong, 3 the broker was not reached.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

from cyclopts import App, Parameter

from stompbox.cli.connecting import FAILED, INTERRUPTED, NOT_REACHED, WRONG_USE
from stompbox.cli.examples import examples
from stompbox.cli.parameters import Flag, JsonFlag
from stompbox.errors import ConfigError, ConnectionLost, StompboxError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stompbox.pipelines.explaining import Explained
    from stompbox.pipelines.plan import Plan

app = App(name="pipeline", help_epilogue=examples("pipeline"))


@app.command
def init(file: Path = Path("pipeline.toml"), /) -> None:
    """Write an example with every kind of step, which runs as it is.

    Parameters
    ----------
    file
        Where to; an existing file is left alone.
    """
    from stompbox.pipelines.example import EXAMPLE

    try:
        with file.open("x", encoding="utf-8") as opened:
            opened.write(EXAMPLE)
    except FileExistsError:
        _leave(f"{file} is there already; name another one", WRONG_USE)
    except OSError as error:
        _leave(f"{file} cannot be written: {error.strerror}", WRONG_USE)
    print(f"wrote {file}; next: stompbox pipeline run {file} --dry-run")


@app.command
def check(file: Path, /) -> None:
    """Say whether the file is right; asks neither the broker nor Spark.

    Parameters
    ----------
    file
        The pipeline file.
    """
    from stompbox.pipelines.settings import KINDS

    print("good: " + ", ".join(f"{KINDS[type(step)]} {step.name}" for step in _plan(file).pipeline.steps))


@app.command
def run(
    file: Path,
    /,
    *,
    dry_run: Flag = False,
    once: Flag = False,
    step: Annotated[list[str] | None, Parameter(consume_multiple=False, negative="")] = None,
    json_lines: JsonFlag = False,
) -> None:
    """Run the steps of a file; archives and transforms go on until SIGINT or SIGTERM.

    Parameters
    ----------
    file
        The pipeline file.
    dry_run
        Say what would be read and written, from where on, and how much waits; starts no Spark and changes nothing.
    once
        Streams end when everything is read that was there at their start; then every other step runs once.
    step
        Only the step of this name; may be given several times.
    json_lines
        One JSON object a line for each thing that happens.
    """
    plan = _plan(file)
    try:
        good = (
            _dry_run(plan, step or (), json_lines=json_lines)
            if dry_run
            else _run(plan, step or (), once=once, json_lines=json_lines)
        )
    except UsageError as error:
        _leave(error.message, WRONG_USE)
    except ConnectionLost as error:
        _leave(error.message, NOT_REACHED)
    except StompboxError as error:
        _leave(error.message, FAILED)
    except ImportError as fault:
        _leave(f"{fault}: pip install 'stompbox[pipelines]'", WRONG_USE)
    except BrokenPipeError:  # nobody reads our output any more: cli/__init__.py
        raise
    except OSError as error:  # the pipeline's own folder
        _leave(str(error), FAILED)
    except KeyboardInterrupt:  # before the streams ran
        raise SystemExit(INTERRUPTED) from None
    raise SystemExit(0 if good else FAILED)


def _plan(file: Path) -> Plan:
    try:
        from stompbox.pipelines.checks import check as check_plan
        from stompbox.pipelines.plan import read_plan
    except ImportError as fault:
        _leave(f"{fault}: pip install 'stompbox[pipelines]'", WRONG_USE)
    try:
        plan = read_plan(file, dict(os.environ))
        check_plan(plan)
    except ConfigError as error:
        _leave(error.message, WRONG_USE)
    return plan


def _dry_run(plan: Plan, names: Sequence[str], *, json_lines: bool) -> bool:
    from stompbox.pipelines.explaining import explain
    from stompbox.pipelines.running import chosen

    steps, _ = chosen(plan, names, once=True)
    for explained in explain(plan, steps):
        if json_lines:
            import msgspec

            print(msgspec.json.encode(explained).decode())
        else:
            _print_explained(explained)
    return True


def _print_explained(explained: Explained) -> None:
    print(f"{explained.kind} {explained.step}")
    for name, lines in (("reads", explained.reads), ("writes", explained.writes), ("", explained.notes)):
        for number, line in enumerate(lines):
            print(f"  {name if number == 0 else '':7} {line}")
    for reading in explained.addresses:
        waiting = f"goes on at {reading.position:,}, {reading.waiting:,} waiting"
        print(f"  {'':7} {reading.address}: offsets {reading.first:,} to {reading.next:,}, {waiting}")


def _run(plan: Plan, names: Sequence[str], *, once: bool, json_lines: bool) -> bool:
    from stompbox.cli.progress import display
    from stompbox.pipelines import running
    from stompbox.pipelines.telling import telling

    steps, others = running.chosen(plan, names, once=once)
    running.reach(plan)
    stop = threading.Event()
    with (
        running.alone(plan, steps),
        display(json_lines=json_lines) as shown,
        telling(plan, steps, shown) as report,
    ):
        running.left_out(others, report)
        with running.spark_of(plan) as spark:
            _stop_on_signals(stop)
            return running.run(spark, plan, steps, report, stop, once=once)


def _stop_on_signals(stop: threading.Event) -> None:
    """The first SIGINT or SIGTERM ends the run after the batch under way, the second one at once."""

    def told(number: int, _: object) -> None:
        if stop.is_set():
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        stop.set()

    signal.signal(signal.SIGINT, told)
    signal.signal(signal.SIGTERM, told)


def _leave(problem: str, code: int) -> NoReturn:
    print(f"stompbox pipeline: {problem}", file=sys.stderr)
    raise SystemExit(code)
