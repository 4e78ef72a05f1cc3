"""Reading and writing at a place: by the system's calls, and by steps where there are none."""

from __future__ import annotations

import os
import tempfile

import pytest

from stompbox.store.positioned import read_at, write_at


@pytest.mark.parametrize("has_calls", [True, False])
def test_each_goes_to_its_place(monkeypatch: pytest.MonkeyPatch, has_calls: bool) -> None:
    if not has_calls:
        monkeypatch.delattr(os, "pread")
        monkeypatch.delattr(os, "pwrite")
    with tempfile.TemporaryFile(buffering=0) as file:
        assert write_at(file.fileno(), b"world", 6) == 5
        assert write_at(file.fileno(), memoryview(b"hello "), 0) == 6
        assert read_at(file.fileno(), 5, 6) == b"world"
        assert read_at(file.fileno(), 100, 0) == b"hello world"
        assert read_at(file.fileno(), 5, 100) == b""
