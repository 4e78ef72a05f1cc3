"""An exception at any call between the arrival of octets and their commit: what was confirmed is there, and nothing else is said.

A broker in this process plays the same story again and again, another call raising in each run; then another broker is started on
what a crash at that moment leaves. `make soak` leaves out no call; else a sample is taken, the same in each run of the tests.
"""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any

import pytest

from stompbox.server.broker import Broker
from stompbox.store.base import Store
from stompbox.store.folderstore import FolderStore
from stompbox.store.memory import MemoryStore
from tests.crash.calls import Raising, Site, Told, configuration, left, played

IS_LONG = bool(os.environ.get("SOAK"))
Play = Callable[..., Coroutine[Any, Any, Raising]]
SAMPLES = 40  # calls of all, when the run is short


def check(told: Told, there: dict[str, list[bytes]], hit: str) -> None:
    everywhere = [body for bodies in there.values() for body in bodies]
    for receipt, (places, body) in told.sent.items():
        if receipt not in told.receipts or body in told.gone:
            continue
        if body in told.moved:
            assert body in everywhere, f"{body!r} is confirmed, and lost: {hit}"
        for place in () if body in told.moved else places:
            assert body in there.get(place, []), f"{body!r} is confirmed, and not in {place}: {hit}"
    for receipt, body in told.answered.items():
        assert receipt not in told.receipts or body not in everywhere, (
            f"{body!r} was acknowledged, and came back: {hit}"
        )
    assert told.written_after == 0, f"something was said after the broker had stopped: {hit}"


async def ended(broker: Broker) -> None:
    """It has stopped, and the commit that the store was at is over: it may land after the last word, and not while somebody looks."""
    await broker.stop()
    while broker.committer.is_alive:
        await asyncio.sleep(0)


def is_known(broker: Broker) -> bool:
    """Whether the exception became what docs/durability.md says: the broker has stopped, or one connection, or one queue."""
    return broker.has_failed or bool(broker.errors["internal-fault"]) or bool(broker.errors["store-failed"])


async def in_memory(folder: Path, site: Site | None = None, time: int = 1) -> Raising:
    store = MemoryStore()
    with Raising(site, time, ("broker", "server", "stomp")) as raising:
        # this store cannot break off: it has no crash to survive
        broker, told = await played(configuration(folder), store, raising)
    await ended(broker)
    assert not raising.hit or is_known(broker), f"nobody has seen the exception: {raising.hit}"
    check(told, await left(configuration(folder), store), raising.hit)
    return raising


async def on_disk(folder: Path, site: Site | None = None, time: int = 1) -> Raising:
    settings, after = configuration(folder), configuration(folder / "after")
    store: Store = FolderStore(Path(settings.data))
    with Raising(site, time) as raising:
        broker, told = await played(settings, store, raising)
    await ended(broker)
    copytree(settings.data, after.data)  # what a crash would leave
    assert not raising.hit or is_known(broker), f"nobody has seen the exception: {raising.hit}"
    check(told, await left(after, FolderStore(Path(after.data))), raising.hit)
    store.close()
    return raising


@pytest.fixture
def nothing_left(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """An exception between the making of a coroutine and that of its task leaves one that nobody awaits: it is collected here, and not in
    whichever test comes next. What was logged of the exception holds it too."""
    yield
    caplog.get_records("call").clear()
    gc.collect()


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("play", [in_memory, on_disk])
def test_an_exception_at_any_call_confirms_nothing(tmp_path: Path, play: Play) -> None:
    """The first time that it is made, and one in the middle."""
    sites = asyncio.run(play(tmp_path / "whole")).sites
    ours = [
        (site, times) for site, times in sites.items() if not site[1].endswith("calls.py")
    ]  # not the test's
    calls = sorted({(site, time) for site, times in ours for time in (1, 1 + times // 2)})
    assert len(calls) > 1000, "the story goes through the broker"
    chosen = calls if IS_LONG else calls[:: len(calls) // SAMPLES]
    hit = 0
    for number, (site, time) in enumerate(chosen):
        hit += bool(asyncio.run(play(tmp_path / str(number), site, time)).hit)
        rmtree(tmp_path / str(number))
    assert hit > len(chosen) * 2 // 3, "most of them were made again, and have raised"
