"""What the tests of commands that need no broker share: the command in an empty folder, within this process."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from cyclopts import App

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[App], Run]:
    """running(app)(*words) -> (exit code, stdout, stderr), in an empty folder, with nothing of a broker in the environment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", None)
    for name in ("STOMPBOX_CONFIG", "STOMPBOX_DATA", "STOMPBOX_LISTEN", "STOMPBOX_MEMORY"):
        monkeypatch.delenv(name, raising=False)

    def command(app: App, *words: str) -> tuple[int, str, str]:
        try:
            app(list(words), result_action="return_value")
            code = 0
        except SystemExit as left:
            code = int(left.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return lambda app: partial(command, app)
