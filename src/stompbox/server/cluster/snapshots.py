"""A node whose place in the log is gone gets a copy of another node's store, and reads on from there.

The node that is asked copies its store as a backup is made (store/backup.py), but as the same logs: it is the same cluster. What is sent
is that file with its length and hash; it counts when it is whole, and was looked through. This file moves bytes; when one is needed is
the node's to say.
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from stompbox.config.definitions import FILE as DEFINITIONS
from stompbox.errors import LinkError, StoreError, reason_of
from stompbox.server.cluster.talk import Talk
from stompbox.store.backup import copy
from stompbox.store.folder import DATABASE, DRAINED, LOCK, NODES, prepare_folder, store_refused
from stompbox.syncing import sync

PORTION: Final = 256 << 10  # octets read at a time
GOING: Final = ".outgoing"  # folders beside the data folder, which are gone afterwards
COMING: Final = ".incoming"


class Announced(Struct, frozen=True):
    """What is about to come."""

    size: int
    sha256: str


async def give(talk: Talk, data: Path, number: int) -> None:
    """Sends a copy of the store in folder `data`, which is in use. Raises StoreError, ConnectionLost."""
    folder = data.with_name(f"{data.name}{GOING}-{number}")
    try:
        announced = await asyncio.to_thread(_made, data, folder)
        talk.say(announced)
        with (folder / DATABASE).open("rb") as file:
            while portion := await asyncio.to_thread(file.read, PORTION):
                await talk.give(portion)
    finally:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


def _made(data: Path, folder: Path) -> Announced:
    shutil.rmtree(folder, ignore_errors=True)
    copy(data, folder, is_same=True)
    found = hashlib.sha256()
    with (folder / DATABASE).open("rb") as file:
        while portion := file.read(PORTION):
            found.update(portion)
    return Announced((folder / DATABASE).stat().st_size, found.hexdigest())


async def take(talk: Talk, data: Path) -> Path:
    """The folder beside `data` in which a whole copy is. Raises LinkError for one that is not what was announced, StoreError,
    ConnectionLost."""
    announced = await talk.hear(Announced)
    folder = data.with_name(data.name + COMING)
    shutil.rmtree(folder, ignore_errors=True)
    prepare_folder(folder)
    found, left = hashlib.sha256(), announced.size
    try:
        with (folder / DATABASE).open("wb") as file:
            while left > 0:
                portion = await talk.some()
                left -= len(portion)
                found.update(portion)
                await asyncio.to_thread(file.write, portion)
            file.flush()
            sync(file.fileno())
    except OSError as error:
        raise store_refused(error, f"the copy for {data}") from error
    if left or found.hexdigest() != announced.sha256:
        raise LinkError("bad-link", "the copy of a store is not what was announced")
    return folder


def put_in_place(folder: Path, data: Path) -> None:
    """The copy takes the place of what is in the data folder, which is closed. Raises StoreError."""
    try:
        for path in data.iterdir():
            if path.is_file() and path.name not in (LOCK, DEFINITIONS, DRAINED, NODES):
                path.unlink()
        (folder / DATABASE).rename(data / DATABASE)
        shutil.rmtree(folder, ignore_errors=True)
    except OSError as error:
        raise StoreError("io-error", f"{data}: {reason_of(error)}") from error


def places_in(data: Path) -> list[str]:
    """Where other nodes were reached when this one ran last: each may have a copy."""
    try:
        return (data / NODES).read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError):
        return []


def keep_places(data: Path, places: Sequence[str]) -> None:
    """Remembers where other nodes are. Raises StoreError."""
    new = data / f"{NODES}.new"
    try:
        new.write_text("".join(f"{place}\n" for place in places), encoding="utf-8")
        new.replace(data / NODES)
    except OSError as error:
        raise StoreError("io-error", f"{data}: {reason_of(error)}") from error
