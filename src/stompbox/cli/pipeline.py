"""`stompbox pipeline`: init, check, run.

Decides what these print and their exit codes: 0 done, 1 a step failed or an audit found differences, 2 the file or an argument is wrong,
3 the broker was not reached.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

from cyclopts import App, Parameter

from stompbox.errors import ConfigError

if TYPE_CHECKING:
    from stompbox.pipelines.settings import Plan

WRONG_USE = 2

app = App(name="pipeline", help="Archive, transform, replay, report and audit with Spark, from one TOML file.")

File = Annotated[Path, Parameter(help="The pipeline file.")]


@app.command
def init(file: Path = Path("pipeline.toml")) -> None:
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
def check(file: File) -> None:
    """Say whether the file is right; asks neither the broker nor Spark."""
    plan = _plan(file)
    steps = ", ".join(f"{kind} {name}" for kind, name in _steps(plan))
    print(f"good: {steps}")


def _plan(file: Path) -> Plan:
    from stompbox.pipelines.checks import check as check_plan
    from stompbox.pipelines.settings import read_plan

    try:
        plan = read_plan(file, dict(os.environ))
        check_plan(plan)
    except ConfigError as error:
        _leave(error.message, WRONG_USE)
    return plan


def _steps(plan: Plan) -> list[tuple[str, str]]:
    from stompbox.pipelines.settings import KINDS

    return [(KINDS[type(step)], step.name) for step in plan.pipeline.steps]


def _leave(problem: str, code: int) -> NoReturn:
    print(f"stompbox pipeline: {problem}", file=sys.stderr)
    raise SystemExit(code)
