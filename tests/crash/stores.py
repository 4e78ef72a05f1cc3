"""The stores of a data folder, opened on whatever disk, and made to do often what they do now and then."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from stompbox.store import housekeeping, journal, journaled, merging, sqlite
from stompbox.store.folderstore import FolderStore
from stompbox.store.journaled import JournaledStore
from stompbox.store.sqlite import SqliteStore

CHUNK_BYTES = 4000
AnyStore = SqliteStore | JournaledStore | FolderStore
Opening = Callable[[Path], AnyStore]


def alone(folder: Path) -> SqliteStore:
    return SqliteStore(folder, chunk_bytes=CHUNK_BYTES)


def with_journal(folder: Path) -> JournaledStore:
    return JournaledStore(SqliteStore(folder, chunk_bytes=CHUNK_BYTES))


def patient(folder: Path) -> FolderStore:
    return FolderStore(folder)


def make_busy(
    monkeypatch: pytest.MonkeyPatch, *, fold_rows: int, wal_most: int, wal_idle: int, waiting: int
) -> None:
    """Folding, checkpoints, deleting, file space, merging, and what waits in the journal."""
    monkeypatch.setattr(sqlite, "FOLD_ROWS", fold_rows)
    monkeypatch.setattr(sqlite, "WAL_MOST", wal_most)
    monkeypatch.setattr(housekeeping, "WAL_IDLE", wal_idle)
    for name, value in (("SWEEP_ROWS", 2), ("SLACK", 0), ("FREE_SHARE", 1000)):
        monkeypatch.setattr(housekeeping, name, value)
    monkeypatch.setattr(journal, "SIZE", 32 << 10)
    monkeypatch.setattr(journaled, "MOST", waiting)
    for module, name, value in ((merging, "WAITING", 1), (merging, "PORTION", 2), (sqlite, "PORTION", 2)):
        monkeypatch.setattr(module, name, value)
