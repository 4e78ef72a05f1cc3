"""What reports and audits put out, and the records that they read: in a folder, or in an object store.

Spark writes to this machine, as Java takes no part in object stores. From there files are put into the store, each in place of the one
that had its name.
"""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import Final

from stompbox.errors import UsageError
from stompbox.pipelines.locations import Store, is_url
from stompbox.pipelines.plan import Plan

DATA: Final = ".parquet"


class Output:
    """What a step writes below a path of the file. `folder` is on this machine; `put` takes it to where it belongs."""

    def __init__(self, plan: Plan, step: str, text: str) -> None:
        self._store: Final = plan.store(text) if is_url(text) else None
        self.folder: Final = plan.path(text) if self._store is None else plan.state(step) / "output"

    def __repr__(self) -> str:
        return f"<Output {self.shown('')}>"

    def shown(self, name: str) -> str:
        return str(self.folder / name) if self._store is None else f"{self._store.uri}/{name}"

    def put(self, *names: str) -> None:
        """Puts these files, and folders of Parquet files, into the store, in this order."""
        if self._store is not None:
            for name in names:
                _put(self.folder / name, self._store, self._store.path / name)


def _put(path: Path, store: Store, target: PurePath) -> None:
    if path.is_file():
        _copy(path, store, target)
        return
    placed = set()
    for number, file in enumerate(sorted(path.glob(f"*{DATA}"))):
        placed.add(target / f"part-{number:05}{DATA}")
        _copy(file, store, target / f"part-{number:05}{DATA}")
    for old, _ in list(store.files(target.relative_to(store.path).as_posix())):
        if old.parent == target and old.suffix == DATA and old not in placed:
            store.remove(old)


def _copy(path: Path, store: Store, target: PurePath) -> None:
    from pyarrow.fs import LocalFileSystem, copy_files

    copy_files(str(path), str(target), LocalFileSystem(), store.filesystem())


def fetched(plan: Plan, step: str, text: str) -> Path:
    """A file, or a folder of files, as it lies on this machine. Raises UsageError where there is none."""
    if not is_url(text):
        return plan.path(text)
    from pyarrow.fs import FileType, LocalFileSystem, copy_files

    store, target = plan.store(text), plan.state(step) / f"fetched{PurePath(text).suffix}"
    found = store.filesystem().get_file_info(str(store.path))
    if found.type == FileType.NotFound:
        raise UsageError("no-such-file", f"{store.uri} is not there")
    target.parent.mkdir(parents=True, exist_ok=True)
    copy_files(str(store.path), str(target), store.filesystem(), LocalFileSystem())
    return target
