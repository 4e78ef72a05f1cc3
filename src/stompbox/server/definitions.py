"""What an operator defines at run time is examined, written to the disk, and taken: in this order, and none of it unless all of it.

A change waits for its turn among the reloads (reloading.py), so nothing else changes the configuration while it is under way. It is made
to what counts, not to what the configuration file says by now: a file that was edited since is not read for it. A file of definitions that
was changed by somebody else since it was read last is not written over.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from stompbox.config import Configuration, Loaded, check
from stompbox.config.definitions import in_folder, written
from stompbox.config.origins import Layer
from stompbox.config.sources import convert_with
from stompbox.errors import ConfigError, Refused, StompboxError
from stompbox.server.broker import Readings
from stompbox.server.reloading import change
from stompbox.server.verifying import verify_users
from stompbox.store.folder import FILE_MODE, store_refused, sync_folder
from stompbox.syncing import sync

if TYPE_CHECKING:
    from stompbox.server.broker import Broker

MOST: Final = 8 << 20  # octets of the file: it is read whole at each start
NEW: Final = ".new"  # behind the file's name, until it is whole and on the disk

Content = dict[str, Any]
Edit = Callable[[Content, Loaded], None]
"""Changes the definitions, as tables of a file, beside a configuration that counts. Raises Refused where that cannot be."""
Allow = Callable[[Configuration], None]
"""Raises Refused for a configuration that must not come to be."""


@dataclass(frozen=True, slots=True)
class Examined:
    """What a change would lead to, and warnings that there were not before."""

    loaded: Loaded
    warnings: list[str]


def examine(counting: Loaded, edit: Edit, allow: Allow) -> Examined:
    """What the configuration would be with a change; nothing has changed. From any thread. Raises Refused or ConfigError."""
    content: Content = deepcopy({**counting.layer.content})
    edit(content, counting)
    layer = written(content, counting.layer.name)
    if len(layer.text) > MOST:
        raise Refused("too-many-definitions", f"the definitions would be longer than {MOST} bytes")
    loaded = convert_with(counting.content, counting.content_origins, layer)
    verify_users(loaded)
    found = [*check(loaded.configuration), *loaded.shadowed]
    allow(loaded.configuration)
    before = {*check(counting.configuration), *counting.shadowed}
    return Examined(loaded, [warning for warning in found if warning not in before])


def require_readings(broker: Broker) -> Readings:
    """Raises Refused where nothing can be defined at run time."""
    if broker.readings is None:
        raise Refused("no-configuration", "this broker was started with a configuration that no file has")
    return broker.readings


async def define(broker: Broker, edit: Edit, allow: Allow, *, within: float) -> tuple[Examined, bool]:
    """Makes a change. False: what was defined counts, and addresses that are there obey it later than `within` seconds. Raises
    StompboxError where nothing has changed."""
    examined: list[Examined] = []
    readings = require_readings(broker)

    async def prepare() -> Configuration:
        counting = readings.require()
        found = await asyncio.to_thread(examine, counting, edit, allow)
        if found.loaded.layer.name:
            await asyncio.to_thread(keep, found.loaded.layer, counting.layer)
        readings.take(found.loaded)
        examined.append(found)
        return found.loaded.configuration

    ended: asyncio.Future[StompboxError | None] = broker.loop.create_future()

    def tell(error: StompboxError | None) -> None:
        if not ended.done():
            ended.set_result(error)

    change(broker, prepare, tell)
    await asyncio.wait([ended], timeout=within)
    if ended.done() and (error := ended.result()) is not None:
        raise error
    if not examined:
        raise Refused("no-answer", f"the definitions have not changed within {within:.0f} s; they may yet")
    return examined[0], ended.done()


def keep(layer: Layer, before: Layer) -> None:
    """Writes the file anew, which is the old or the new one at any time, and on the disk when this returns. Raises Refused where it is not
    as it was read, StoreError where the disk refuses: then the old one is there."""
    path = Path(layer.name)
    try:
        is_same = in_folder(str(path.parent)).text == before.text
    except ConfigError as error:
        raise Refused("definitions-changed", f"{error.message}; nothing was changed") from None
    if not is_same:
        raise Refused(
            "definitions-changed",
            f"{path} was changed by somebody else; `stompbox reload` takes what it says. Nothing was changed",
        )
    new = path.with_name(path.name + NEW)
    try:
        _write(new, layer.text.encode())
        new.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            new.unlink(missing_ok=True)
        raise store_refused(error, f"nothing was changed, for {path} cannot be written") from error


def _write(path: Path, octets: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
    with os.fdopen(descriptor, "wb") as file:
        file.write(octets)
        file.flush()
        sync(file.fileno())
