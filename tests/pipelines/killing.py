"""`stompbox pipeline run FILE --once --json` that kills itself: `python -m tests.pipelines.killing FILE [FORMAT POINT NUMBER]`.

With SIGKILL, at the NUMBERth time (from 0 on) that an archive of FORMAT comes to POINT. Without a point it is the command as it is.

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

POINTS: Final = ("staged", "moving", "committing", "committed", "done", "next", "merged", "exchanging", "exchanged")

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


def files_of(kept: Format) -> Any:
    """The class of the tables of a format."""
    return type(tables.open_table(kept, Path("nowhere")))


def commit_of(kept: Format) -> tuple[Any, str, Place]:
    """What makes a commit in this format, and which of its calls do."""
    if kept is Format.DELTA:
        from deltalake import DeltaTable

        return DeltaTable, "create_write_transaction", lambda *_, **__: True
    if kept is Format.ICEBERG:
        from pyiceberg.table import Transaction

        return Transaction, "commit_transaction", lambda *_, **__: True
    return disk, "write", lambda path, _: path.parent.name == "_spark_metadata"


def inside(kept: Format, doing: str, call: tuple[Any, str, Place], death: _Death) -> None:
    """Before a call (of whom, its name, which ones) in a thread in which a table of the format is `doing` something (append, replace)."""
    under_way: set[int] = set()
    made, of_table = files_of(kept), getattr(files_of(kept), doing)

    def noted(*arguments: Any) -> Any:
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


def arm(kept: Format, point: str, number: int) -> None:
    """Lays death in wait."""
    death = _Death(number)
    move: tuple[Any, str, Place] = (disk, "move", lambda *_: True)
    of_step: Place = lambda *_, step, **__: step.format is kept  # noqa: E731
    {
        "staged": lambda: after(archive, "stage", death, here=lambda _, __, given, *___: given is kept),
        "moving": lambda: inside(kept, "append", move, death),
        "committing": lambda: inside(kept, "append", commit_of(kept), death),
        "committed": lambda: after(files_of(kept), "append", death),
        "done": lambda: after(archive, "_write", death, here=of_step),
        "next": lambda: before(archive, "_write", death, here=of_step),
        "merged": lambda: inside(kept, "replace", move, death),
        "exchanging": lambda: inside(kept, "replace", commit_of(kept), death),
        "exchanged": lambda: after(files_of(kept), "replace", death),
    }[point]()


if __name__ == "__main__":
    if len(sys.argv) > 2:
        arm(Format(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
    run(Path(sys.argv[1]), once=True, json_lines=True)
