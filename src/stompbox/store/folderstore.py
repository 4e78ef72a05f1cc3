"""The store of a data folder, also where its disk is full or read-only from the start.

Then what is there is read (readonly.py), and each commit tries first to open it for writing: until that works it is refused with what
the disk says. The folder stays locked all the while. Where nothing is there to be read the broker cannot start.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from threading import RLock
from typing import TypeVar

from stompbox.errors import StoreError
from stompbox.store.base import NOWHERE, REFUSALS, Commit, Part, Recovered, StoredChunk
from stompbox.store.folder import lock_folder
from stompbox.store.journaled import JournaledStore
from stompbox.store.losses import Losses
from stompbox.store.readonly import ReadOnlyStore
from stompbox.store.sqlite import SqliteStore

T = TypeVar("T")


class FolderStore:
    """The Store of the data folder `path`; `losses`: what to do about damage. Raises StoreError when it can neither be opened nor read."""

    def __init__(self, path: Path, losses: Losses | None = None) -> None:
        self.path = path
        self._losses = losses or Losses()
        self._turn = RLock()
        self._readonly: ReadOnlyStore | None = None
        self._lock = -1  # of the folder, while only read
        try:
            self._store: JournaledStore | None = JournaledStore(SqliteStore(path, losses=self._losses))
        except StoreError as error:
            if error.code not in REFUSALS:
                raise
            self._store = None
            self._open_readonly(error)

    def _open_readonly(self, refusal: StoreError) -> None:
        """Reads from a folder that cannot be opened for writing; `refusal` says why."""
        try:
            self._lock = lock_folder(self.path)
        except StoreError:
            raise refusal from None
        try:
            self._readonly = ReadOnlyStore(self.path)
        except StoreError as error:
            os.close(self._lock)
            raise (error if error.code in ("data-corrupt", "data-missing") else refusal) from error

    def _open(self) -> JournaledStore:
        """Opens the store for writing, when the disk lets us now. What was opened to be read is closed before: the database may be that
        one's alone."""
        if self._store is not None:
            return self._store
        self._refuse_closed()
        if self._readonly is not None:
            self._readonly.close()
            self._readonly = None
        try:
            self._store = JournaledStore(SqliteStore(self.path, lock=os.dup(self._lock), losses=self._losses))
        except StoreError as error:
            # anew: some of the journal may be in the database by now
            self._readonly = ReadOnlyStore(self.path)
            raise StoreError(error.code, error.message) from error
        os.close(self._lock)
        self._lock = -1
        return self._store

    def _ask(self, asked: Callable[[JournaledStore | ReadOnlyStore], T]) -> T:
        if self._store is not None:
            return asked(self._store)
        with self._turn:
            if self._store is None and self._readonly is None:  # it could not even be read the last time
                self._refuse_closed()
                self._readonly = ReadOnlyStore(self.path)
            found: JournaledStore | ReadOnlyStore | None = self._store or self._readonly
            assert found is not None
            return asked(found)

    def _refuse_closed(self) -> None:
        if self._lock < 0:
            raise StoreError("store-closed", f"data folder {self.path}: the store is closed")

    def apply(self, commit: Commit) -> None:
        store = self._store
        if store is None:
            with self._turn:
                store = self._open()
        store.apply(commit)

    @property
    def unverified(self) -> str:
        return self._store.unverified if self._store is not None else ""

    def maintain(self) -> bool:
        return self._store is not None and self._store.maintain()

    def recover(self) -> Recovered:
        return self._ask(lambda store: store.recover())

    def ends(self) -> dict[int, int]:
        """Per log: after the last message that it has, or had. `Recovered` has the next offset, which is stored ahead of use."""
        return self._ask(lambda store: store.ends())

    def read(self, log: int, start: int, stop: int, max_bytes: int) -> list[StoredChunk]:
        return self._ask(lambda store: store.read(log, start, stop, max_bytes))

    def read_part(self, body: int, number: int) -> bytes:
        return self._ask(lambda store: store.read_part(body, number))

    def find_time(self, log: int, timestamp: int) -> int:
        return self._ask(lambda store: store.find_time(log, timestamp))

    def sizes(self, logs: Iterable[int], since: Mapping[int, int] = NOWHERE) -> dict[int, tuple[int, int]]:
        return self._ask(lambda store: store.sizes(logs, since))

    def outline(self, log: int) -> Iterator[Part]:
        return self._ask(lambda store: store.outline(log))

    def close(self) -> None:
        with self._turn:
            if self._store is not None:
                self._store.close()
            if self._readonly is not None:
                self._readonly.close()
                self._readonly = None
            if self._lock >= 0:
                os.close(self._lock)
                self._lock = -1

    def __repr__(self) -> str:
        return f"<FolderStore {self._store or self._readonly!r}>"
