"""`stompbox pipeline run FILE --once --json` that kills itself: `python -m tests.pipelines.killing FILE [STEP POINT NUMBER]`.

With SIGKILL, at the NUMBERth time (from 0 on) that the archive STEP comes to POINT. Its table is STEP-table.
Without a point it is the command as it is.

    staged     the files of a batch are written, and wait
    moving     a file of data is about to get its name in the table
    committing the commit of the table is next
    committed  it was made; the checkpoint does not know of it
    done       all of a batch is done but the commit of the checkpoint
    next       the checkpoint's commit is made, and the next batch begins
    merged     small files are merged into one, which does not count yet
    exchanging the commit that puts it in their place is next
    exchanged  it was made
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from stompbox.cli.pipeline import run
from stompbox.pipelines import archive, disk, tables
from stompbox.pipelines.settings import Format

STEPS: Final = (*(kept.value for kept in Format), "java")
POINTS: Final = (
    "staged",
    "moving",
    "committing",
    "committed",
    "done",
    "next",
    "merged",
    "exchanging",
    "exchanged",
)

Place = Callable[..., bool]


class _Death:
    """Comes at the NUMBERth call."""

    def __init__(self, number: int) -> None:
        self._left = number

    def __call__(self) -> None:
        self._left -= 1
        if self._left < 0:
            os.kill(os.getpid(), signal.SIGKILL)


def before(owner: Any, name: str, death: _Death, *, here: Place = lambda *_, **__: True) -> None:
    kept = getattr(owner, name)

    def dying(*arguments: Any, **named: Any) -> Any:
        if here(*arguments, **named):
            death()
        return kept(*arguments, **named)

    setattr(owner, name, dying)


def after(owner: Any, name: str, death: _Death, *, here: Place = lambda *_, **__: True) -> None:
    kept = getattr(owner, name)

    def dying(*arguments: Any, **named: Any) -> Any:
        found = kept(*arguments, **named)
        if here(*arguments, **named):
            death()
        return found

    setattr(owner, name, dying)


def format_of(step: str) -> Format:
    return Format.PARQUET if step == "java" else Format(step)


def writer_of(step: str) -> str:
    return "java" if step == "java" else "arrow"


def files_of(step: str) -> Any:
    """The class of the table of a step."""
    return type(tables.open_table(format_of(step), Path("nowhere")))


def is_of(step: str) -> Place:
    """Is this call of the table of the step?"""
    return lambda table, *_, **__: table.folder.name == f"{step}-table"


def commit_of(kept: Format) -> tuple[Any, str, Place]:
    """What makes a commit in this format, and which of its calls do."""
    if kept is Format.DELTA:
        from deltalake import DeltaTable

        return DeltaTable, "create_write_transaction", lambda *_, **__: True
    if kept is Format.ICEBERG:
        from pyiceberg.table import Transaction

        return Transaction, "commit_transaction", lambda *_, **__: True
    return disk, "write", lambda path, _: path.parent.name == "_spark_metadata"


def inside(step: str, doing: str, call: tuple[Any, str, Place], death: _Death) -> None:
    """Before a call (of whom, its name, which ones) in a thread in which the table of the step is `doing` something (append, replace)."""
    under_way: set[int] = set()
    made, of_table = files_of(step), getattr(files_of(step), doing)

    def noted(*arguments: Any) -> Any:
        if not is_of(step)(*arguments):
            return of_table(*arguments)
        under_way.add(threading.get_ident())
        try:
            return of_table(*arguments)
        finally:
            under_way.discard(threading.get_ident())

    setattr(made, doing, noted)
    owner, name, here = call

    def is_here(*arguments: Any, **named: Any) -> bool:
        return threading.get_ident() in under_way and here(*arguments, **named)

    before(owner, name, death, here=is_here)


def arm(name: str, point: str, number: int) -> None:
    """Lays death in wait."""
    death, kept, files = _Death(number), format_of(name), files_of(name)
    move: tuple[Any, str, Place] = (disk, "move", lambda *_: True)
    of_step: Place = lambda *_, step, **__: step.name == name  # noqa: E731
    # which argument says where
    stager, place = ("stage", 1) if writer_of(name) == "java" else ("stage_messages", 2)
    {
        "staged": lambda: after(
            archive, stager, death, here=lambda *given: f"{name}-table" in str(given[place])
        ),
        "moving": lambda: inside(name, "append", move, death),
        "committing": lambda: inside(name, "append", commit_of(kept), death),
        "committed": lambda: after(files, "append", death, here=is_of(name)),
        "done": lambda: after(archive, "_write", death, here=of_step),
        "next": lambda: before(archive, "_write", death, here=of_step),
        "merged": lambda: inside(name, "replace", move, death),
        "exchanging": lambda: inside(name, "replace", commit_of(kept), death),
        "exchanged": lambda: after(files, "replace", death, here=is_of(name)),
    }[point]()


if __name__ == "__main__":
    if len(sys.argv) > 2:
        arm(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    run(Path(sys.argv[1]), once=True, json_lines=True)
