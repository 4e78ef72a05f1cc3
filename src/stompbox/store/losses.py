"""What happens when something that was confirmed is damaged or gone: it is said, and a broker does not start on it unless told to.

| code            | means                                                              | the store                     |
|-----------------|--------------------------------------------------------------------|-------------------------------|
| data-repaired   | a flipped bit was found by its checksum and turned back; nothing is lost | opens                         |
| data-unverified | there is too much to read it through now; it is read beside the work     | opens                         |
| data-verified   | that is done                                                       | is open                       |
| data-corrupt    | something that was confirmed is damaged                            | refuses, unless losses are accepted |
| data-missing    | something that was confirmed is not there any more                 | refuses, unless losses are accepted |

Before a damaged file is changed it is copied, beside itself, with `.damaged-1` behind its name, or the next free number.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

from stompbox.errors import StoreError
from stompbox.store.folder import make_file, store_refused, sync_folder
from stompbox.syncing import sync

WHAT_HELPS: Final = (
    "a backup helps (`stompbox store restore`); `stompbox serve --accept-loss` goes on without"
)


def _say_nothing(code: str, text: str) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Losses:
    """Whether they are accepted, and who is told."""

    are_accepted: bool = False
    tell: Callable[[str, str], None] = _say_nothing  # code, text

    def corrupt(self, text: str) -> None:
        """Raises StoreError `data-corrupt`, or says so and goes on."""
        if not self.are_accepted:
            raise StoreError("data-corrupt", f"{text}; {WHAT_HELPS}")
        self.tell("data-corrupt", f"{text}; accepted")

    def missing(self, text: str) -> None:
        """Raises StoreError `data-missing`, or says so and goes on."""
        if not self.are_accepted:
            raise StoreError("data-missing", f"{text}; {WHAT_HELPS}")
        self.tell("data-missing", f"{text}; accepted")


def kept(file: Path) -> Path:
    """A copy of a damaged file, durable. Raises StoreError: then nothing must be changed."""
    copy = _free(file)
    try:
        shutil.copyfile(file, copy)
        os.chmod(copy, 0o600)
        descriptor = os.open(copy, os.O_RDWR | os.O_CLOEXEC)
        try:
            sync(descriptor)
        finally:
            os.close(descriptor)
        sync_folder(file.parent)
    except OSError as error:
        copy.unlink(missing_ok=True)
        raise store_refused(error, str(copy)) from error
    return copy


def kept_bytes(beside: Path, data: bytes) -> Path:
    """Keeps a copy of what was in a damaged file, and returns its path."""
    copy = _free(beside)
    make_file(copy)
    write_back(copy, {0: data})
    return copy


def _free(file: Path) -> Path:
    return next(
        copy for number in count(1) if not (copy := file.with_name(f"{file.name}.damaged-{number}")).exists()
    )


def write_back(file: Path, changes: dict[int, bytes]) -> None:
    """Puts bytes durably where they belong in a file."""
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CLOEXEC)
        try:
            for at, data in changes.items():
                os.pwrite(descriptor, data, at)
            sync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise store_refused(error, str(file)) from error
