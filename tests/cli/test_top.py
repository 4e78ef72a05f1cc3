"""`stompbox top`: refused where there is no terminal or no textual, and on a terminal of its own against a live broker."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time

import pytest

from stompbox.cli import top
from tests.cli.conftest import Run
from tests.cli.test_operating import send, served, stompbox
from tests.conftest import Served

__all__ = ("served",)

WITHIN = 60.0  # seconds


def test_a_pipe_is_no_terminal(served: Served) -> None:
    done = stompbox(served, "top")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("stompbox top: a screen needs a terminal; `stompbox queues --watch 2`")
    assert done.stderr.count("\n") == 1


def test_without_the_extra(running: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top, "_refuse_without_terminal", lambda: None)
    monkeypatch.delitem(sys.modules, "stompbox.cli.topscreen", raising=False)
    monkeypatch.setitem(sys.modules, "textual.app", None)
    code, out, err = running(top.app)()
    assert (code, out) == (2, "")
    assert "pip install 'stompbox[top]'" in err and err.count("\n") == 1


def test_a_terminal_that_can_do_nothing(running: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal:
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "dumb")
    code, _, err = running(top.app)()
    assert code == 2 and "a screen needs a terminal" in err


@pytest.mark.parametrize("interval", ["0", "-1", "nan"])
def test_an_interval_that_is_none(served: Served, interval: str) -> None:
    done = stompbox(served, "top", f"--interval={interval}")
    assert done.returncode == 2
    assert done.stderr == f"stompbox top: --interval is {interval}; allowed is seconds from 0.2\n"


class Screen:
    """`stompbox top` on a terminal of 80 columns, and all that it has written."""

    def __init__(self, *arguments: str) -> None:
        self.descriptor, theirs = pty.openpty()
        os.set_blocking(self.descriptor, False)
        places = {"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"}
        command = [sys.executable, "-m", "stompbox", "top", *arguments]
        self.process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, **places}
        )
        os.close(theirs)
        self.written = ""

    def until(self, pattern: str) -> None:
        """Reads until the pattern stands in what was written."""
        deadline = time.monotonic() + WITHIN
        while re.search(pattern, self.written) is None:
            assert time.monotonic() < deadline, self.written[-2000:]
            if not self.read(1.0):
                raise AssertionError(f"it has ended: {self.written[-2000:]}")

    def read(self, within: float) -> bool:
        """Reads what there is within so many seconds. Whether there may be more."""
        if not select.select([self.descriptor], [], [], within)[0]:
            return True
        try:
            text = os.read(self.descriptor, 65536).decode(errors="replace")
        except OSError:  # Linux, when nobody has the terminal any more
            return False
        self.written += re.sub(r"\x1b\[[0-9;?]*[ -/]*[@-~]", "", text)
        return bool(text)

    def press(self, keys: str) -> None:
        os.write(self.descriptor, keys.encode())

    def left(self) -> int:
        """The exit code, when all that was written is read."""
        deadline = time.monotonic() + WITHIN
        while self.read(0.1) and (self.process.poll() is None) and time.monotonic() < deadline:
            pass
        return self.process.wait(timeout=WITHIN)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.descriptor)


def test_on_a_terminal(served: Served) -> None:
    send(served, "/queue/top.one", b"x", b"y")
    screen = Screen("top.", "--admin", served.admin, "--interval", "0.2")
    try:
        screen.until(r"top\.one")
        screen.until(r"in [0-9.]+/s")
        screen.press("q")
        assert screen.left() == 0
    finally:
        screen.close()


def test_nobody_answers_is_told_before_the_screen_is_taken() -> None:
    screen = Screen("--admin", "127.0.0.1:9")
    try:
        screen.until("no broker answers at http://127.0.0.1:9")
        assert screen.left() == 3
    finally:
        screen.close()
    assert screen.written.count("\n") == 1
