"""How a file gets to its disk on each system: those of others are simulated."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stompbox import syncing
from stompbox.store.journal import write_through

CALL = 51  # F_FULLFSYNC of macOS

Calls = list[str]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """What the system was asked for."""
    made: Calls = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: made.append("fsync"))
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: made.append("fdatasync"), raising=False)
    return made


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    os.write(descriptor, bytes(64))
    yield descriptor
    os.close(descriptor)


def on_macos(
    monkeypatch: pytest.MonkeyPatch, calls: Calls, refusal: OSError | None = None
) -> Callable[[int, int], None]:
    def control(descriptor: int, command: int) -> None:
        assert command == CALL
        calls.append("F_FULLFSYNC")
        if refusal is not None:
            raise refusal

    monkeypatch.setattr(syncing, "FULL", CALL)
    monkeypatch.setattr(fcntl, "fcntl", control)
    monkeypatch.delattr(os, "fdatasync")
    monkeypatch.delattr(os, "RWF_DSYNC", raising=False)
    return control


def test_on_linux(calls: Calls, file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syncing, "FULL", None)
    syncing.sync(file)
    syncing.sync_content(file)
    assert calls == ["fsync", "fdatasync"]


def test_without_fdatasync(calls: Calls, file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syncing, "FULL", None)
    monkeypatch.delattr(os, "fdatasync")
    syncing.sync_content(file)
    assert calls == ["fsync"]


def test_on_macos_the_cache_of_the_disk_is_emptied(
    calls: Calls, file: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_macos(monkeypatch, calls)
    syncing.sync(file)
    syncing.sync_content(file)
    write_through(file, b"x" * 64, 0)
    assert calls == ["F_FULLFSYNC"] * 3


@pytest.mark.parametrize("number", [errno.ENOTSUP, errno.EINVAL, errno.ENOTTY])
def test_a_file_system_that_cannot_do_it_does_what_it_can(
    calls: Calls, file: int, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    on_macos(monkeypatch, calls, OSError(number, os.strerror(number)))
    syncing.sync(file)
    assert calls == ["F_FULLFSYNC", "fsync"]


def test_a_disk_that_fails_is_told(calls: Calls, file: int, monkeypatch: pytest.MonkeyPatch) -> None:
    on_macos(monkeypatch, calls, OSError(errno.EIO, "broken"))
    with pytest.raises(OSError, match="broken"):
        syncing.sync(file)
    assert calls == ["F_FULLFSYNC"]


def test_nothing_else_syncs_by_itself() -> None:
    """A call beside it would be one that macOS takes for less than it says."""
    source = Path(syncing.__file__).parent
    asked = [
        path.relative_to(source).as_posix()
        for path in sorted(source.rglob("*.py"))
        if "os.fsync(" in (text := path.read_text(encoding="utf-8")) or "os.fdatasync(" in text
    ]
    assert asked == ["syncing.py"]
