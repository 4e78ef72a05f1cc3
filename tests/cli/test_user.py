"""`stompbox user hash`: from a pipe and from a terminal."""

from __future__ import annotations

import io
import sys

import argon2
import pytest

from stompbox.cli.user import app


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def stdin_with(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content), encoding="utf-8"))


def terminal_with(monkeypatch: pytest.MonkeyPatch, *answers: str) -> None:
    given = iter(answers)

    def getpass(prompt: str = "") -> str:
        answer = next(given, None)
        if answer is None:
            raise EOFError
        return answer

    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr("getpass.getpass", getpass)


def run() -> None:
    app(["hash"], result_action="return_value")


@pytest.mark.parametrize(
    ("content", "password"),
    [
        (b"secret", "secret"),
        (b"secret\n", "secret"),
        (b"secret\r\nmore\n", "secret"),
        ("päß ✓\n".encode(), "päß ✓"),
        (b" a \n", " a "),
    ],
)
def test_the_first_line_of_a_pipe_is_hashed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], content: bytes, password: str
) -> None:
    stdin_with(monkeypatch, content)
    run()
    out, err = capsys.readouterr()
    assert argon2.PasswordHasher().verify(out.strip(), password)
    assert err == "" and out.count("\n") == 1


def test_a_terminal_is_asked_twice(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal_with(monkeypatch, "secret", "secret")
    run()
    assert argon2.PasswordHasher().verify(capsys.readouterr().out.strip(), "secret")


@pytest.mark.parametrize(
    ("answers", "problem"),
    [
        (("a", "b"), "stompbox user hash: the two passcodes differ\n"),
        (("", ""), "stompbox user hash: an empty passcode is not allowed\n"),
        ((), "stompbox user hash: no passcode was given\n"),
    ],
)
def test_a_bad_answer_is_refused(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    answers: tuple[str, ...],
    problem: str,
) -> None:
    terminal_with(monkeypatch, *answers)
    with pytest.raises(SystemExit) as left:
        run()
    assert (left.value.code, *capsys.readouterr()) == (2, "", problem)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "stompbox user hash: an empty passcode is not allowed\n"),
        (b"\n", "stompbox user hash: an empty passcode is not allowed\n"),
        (b"\xff\n", "stompbox user hash: the passcode is not UTF-8\n"),
    ],
)
def test_a_bad_pipe_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], content: bytes, problem: str
) -> None:
    stdin_with(monkeypatch, content)
    with pytest.raises(SystemExit) as left:
        run()
    assert (left.value.code, *capsys.readouterr()) == (2, "", problem)
