"""The measurement of a backlog, with few messages: it counts what it says."""

from __future__ import annotations

import shutil

import pytest

from bench.backlog import main


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_a_small_backlog_is_filled_and_drained(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.backlog.WAITS", 0.0)
    assert main(["--messages", "2000", "--producers", "2"]) == 0
    rows = [line.split("|")[1:-1] for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert [row[0].strip() for row in rows] == ["", "growing", "waiting", "draining", "afterwards"]
    assert all(float(row[2].replace(",", "")) > 0 for row in rows[1:])
