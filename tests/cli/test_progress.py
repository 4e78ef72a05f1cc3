"""How events of a pipeline look: as lines, as JSON, and as a table on a terminal."""

from __future__ import annotations

import io
import json

import pytest

pytest.importorskip("pyarrow")

from rich.console import Console
from rich.live import Live

from stompbox.cli.progress import _Live, display, line_of
from stompbox.pipelines.progress import (
    Batch,
    Compacted,
    Event,
    Failed,
    Finished,
    Idle,
    Moved,
    Started,
    Warned,
)

BATCH = Batch(step="orders", batch=3, rows=1200, total=5000, rate=600.5, lag=70, seconds=2.0)
FOUND = {"kind": "gap", "address": "a", "offset": 3, "last": 5, "id": ""}
TWICE = {"kind": "twice", "address": "a", "offset": 9, "last": 9, "id": "x"}


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (Started(step="orders", kind="archive"), "archive begins"),
        (BATCH, "batch 3, 1,200 rows, 600/s, 70 waiting"),
        (Moved(step="again", rows=10, of=2000, rate=5.0), "10 of 2,000 messages, 5/s"),
        (Idle(step="orders"), "waits for messages"),
        (Compacted(step="orders", files=12), "12 small files rewritten"),
        (Warned(step="audit", text="audit runs with --once"), "audit runs with --once"),
        (
            Finished(step="audit", text="2 found", facts={"listed": [FOUND, TWICE]}),
            "2 found\n  gap: a 3 to 5\n  twice: a 9 id x",
        ),
    ],
)
def test_lines(event: Event, line: str) -> None:
    assert line_of(event) == line


@pytest.mark.parametrize("json_lines", [False, True])
def test_a_line_is_written_as_one_so_that_those_of_two_threads_never_mix(
    monkeypatch: pytest.MonkeyPatch, json_lines: bool
) -> None:
    written: list[str] = []
    stream = io.StringIO()
    monkeypatch.setattr(stream, "write", written.append)
    monkeypatch.setattr("sys.stdout", stream)
    monkeypatch.setattr("sys.stderr", stream)
    with display(json_lines=json_lines) as report:
        report(BATCH)
        report(Warned(step="audit", text="audit runs with --once"))
    assert len(written) == 2
    assert all(line.endswith("\n") for line in written)


def test_json_is_one_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with display(json_lines=True) as report:
        report(BATCH)
        report(Finished(step="orders", text="done", facts={"rows": 5000}))
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == {
        "event": "batch",
        "step": "orders",
        "batch": 3,
        "rows": 1200,
        "total": 5000,
        "rate": 600.5,
        "lag": 70,
        "seconds": 2,
    }
    assert lines[1] == {"event": "finished", "step": "orders", "text": "done", "facts": {"rows": 5000}}


def test_a_terminal_shows_one_row_per_step() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    shown = _Live()
    with Live(get_renderable=shown.table, console=console, auto_refresh=False) as shown.live:
        for event in (
            Started(step="orders", kind="archive"),
            BATCH,
            Moved(step="again", rows=10, of=2000, rate=5.0),
        ):
            shown.hear(event)
        shown.hear(Idle(step="again"))
        shown.hear(Failed(step="orders", text="the run says so at its end"))
        shown.hear(Warned(step="audit", text="[not] markup"))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "audit: [not] markup" in text and "at its end" not in text
    rows = [[cell.strip() for cell in column.cells] for column in shown.table().columns]
    assert rows == [
        ["orders", "again"],
        ["3", ""],
        ["5,000", "10"],
        ["600", "5"],
        ["70", "1,990"],
        ["2.00 s", "waits for messages"],
    ]
