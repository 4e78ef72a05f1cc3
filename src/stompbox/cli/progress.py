"""How a pipeline's events look: a live table on a terminal, lines of text elsewhere, lines of JSON on request.

Decides the look alone; which events there are is pipelines/progress.py's.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

import msgspec
from rich.console import Console
from rich.live import Live
from rich.table import Table

from stompbox.pipelines.progress import (
    Batch,
    Compacted,
    Event,
    Failed,
    Finished,
    Idle,
    Moved,
    Report,
    Started,
    Warned,
)

COLUMNS = ("step", "batch", "rows", "rows/s", "waiting", "")


@contextmanager
def display(*, json_lines: bool) -> Iterator[Report]:
    """Gives what the events of a run are told to: a printer of lines, or of bars."""
    console = Console()
    if json_lines:
        yield _print_json
    elif not console.is_terminal:
        yield _print_line
    else:
        shown = _Live()
        with Live(get_renderable=shown.table, console=console, refresh_per_second=4) as live:
            shown.live = live
            yield shown.hear


def _print_json(event: Event) -> None:
    _write(sys.stdout, msgspec.json.encode(event).decode())


def _print_line(event: Event) -> None:
    if isinstance(event, Failed):  # the run ends and says so
        return
    _write(sys.stderr if isinstance(event, Warned) else sys.stdout, f"{event.step}: {line_of(event)}")


def _write(stream: TextIO, line: str) -> None:
    """Writes the line and its end as one: steps tell their events from threads of their own, and ``print`` writes twice."""
    stream.write(f"{line}\n")
    stream.flush()


def line_of(event: Event) -> str:
    """An event of a run as a line of text."""
    match event:
        case Started():
            return f"{event.kind} begins"
        case Batch():
            return f"batch {event.batch}, {event.rows:,} rows, {event.rate:,.0f}/s, {event.lag:,} waiting"
        case Moved():
            return f"{event.rows:,} of {event.of:,} messages, {event.rate:,.0f}/s"
        case Idle():
            return "waits for messages"
        case Compacted():
            return f"{event.files:,} small files rewritten"
        case Finished():
            return "\n  ".join([event.text, *_differences(event.facts)])
        case Warned():
            return event.text
        case _:
            return ""


def _differences(facts: dict[str, Any]) -> Iterator[str]:
    """What an audit has found, one line each."""
    for found in facts.get("listed", ()):
        place = f"{found['address']} {found['offset']}" if found["offset"] is not None else ""
        last = f" to {found['last']}" if found["last"] != found["offset"] else ""
        name = f"id {found['id']}" if found["id"] else ""
        yield " ".join([word for word in (f"{found['kind']}:", f"{place}{last}", name) if word])


class _Live:
    """One row per step; what is worth keeping goes above the table."""

    def __init__(self) -> None:
        self.live: Live | None = None
        self._rows: dict[str, tuple[str, ...]] = {}

    def hear(self, event: Event) -> None:
        match event:
            case Started():
                self._rows[event.step] = ("", "", "", "", f"{event.kind} begins")
            case Batch():
                figures = (
                    f"{event.total:,}",
                    f"{event.rate:,.0f}",
                    f"{event.lag:,}",
                    f"{event.seconds:.2f} s",
                )
                self._rows[event.step] = (str(event.batch), *figures)
            case Moved():
                self._rows[event.step] = (
                    "",
                    f"{event.rows:,}",
                    f"{event.rate:,.0f}",
                    f"{event.of - event.rows:,}",
                    "",
                )
            case Idle():
                self._rows[event.step] = (
                    *self._rows.get(event.step, ("", "", "", "", ""))[:4],
                    "waits for messages",
                )
            case Failed():  # the run ends and says so
                pass
            case _:
                assert self.live is not None
                self.live.console.print(f"{event.step}: {line_of(event)}", markup=False, highlight=False)

    def table(self) -> Table:
        table = Table(box=None, pad_edge=False)
        for name in COLUMNS:
            table.add_column(name, justify="left" if name in ("step", "") else "right")
        for step, cells in self._rows.items():
            table.add_row(step, *cells)
        return table
