"""A disk that stands still: who waits for it waits, and nobody else does."""

from __future__ import annotations

from pathlib import Path
from threading import Event

import pytest

from stompbox.store.base import Commit
from stompbox.store.memory import MemoryStore
from tests.server.world import WITHIN, House, configured, play

BEATS = 5
EVERY = 50  # ms


class Stalling(MemoryStore):
    """Once `is_armed`, a commit lasts until `go` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.is_armed = False
        self.stands = Event()
        self.go = Event()

    def apply(self, commit: Commit) -> None:
        if self.is_armed:
            self.stands.set()
            self.go.wait(WITHIN)
        super().apply(commit)


@pytest.mark.parametrize("fast", [True, False], ids=["uvloop", "asyncio"])
def test_heart_beats_and_what_is_not_persistent_go_on(tmp_path: Path, *, fast: bool) -> None:
    store = Stalling()

    async def story(house: House) -> None:
        patient = await house.client(more=f"heart-beat:0,{EVERY}\n")
        other = await house.client()
        other.say("SUBSCRIBE\nid:1\ndestination:/topic/news\nreceipt:ready\n\n\0")
        await other.hear(b"receipt-id:ready\n\n\0\n")
        await house.until(lambda: not house.broker.committer.is_busy, "all is stored")
        store.is_armed = True
        patient.say("SEND\ndestination:/queue/q\npersistent:true\nreceipt:stored\n\nx\0")
        try:
            await house.until(store.stands.is_set, "the disk stands still")
            for number in range(BEATS):
                assert await patient.hear(b"\n") == b"\n"
                other.say(f"SEND\ndestination:/topic/news\n\n{number}\0")
                assert (await other.hear(b"\0\n")).endswith(f"\n\n{number}\0\n".encode())
            assert not store.go.is_set() and not patient.heard
        finally:
            store.go.set()
        assert b"receipt-id:stored" in await patient.hear(b"\0\n")

    play(configured(tmp_path), story, store=store, fast=fast)
