"""docs/architecture.md tells the way of a SEND and of an ACK hop by hop: one of each is followed, and compared."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import uvloop

import stompbox
from stompbox.server.run import open_store
from tests.conftest import ROOT
from tests.server.world import Guest, House, configured
from tests.test_rooms import BY_ITSELF, FLOORS

SOURCE = str(Path(stompbox.__file__).parent) + "/"
PAGE = (ROOT / "docs/architecture.md").read_text()
FILES = re.compile(r"`((?:[a-z]+/)*[a-z_]+\.py)`")
LEARNED = 40  # SENDs after which the broker knows what they look like

Hop = tuple[str, str]
"""A file and a function in it."""


def hops_of(section: str) -> list[Hop]:
    text = PAGE.partition(f"## {section}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| `([a-z/]+\.py)` \| `([\w.]+)` \|", text, re.MULTILINE)


class Followed:
    """The calls of functions of ours, in all threads, in their order."""

    def __init__(self) -> None:
        self.calls: list[Hop] = []
        self.is_on = False

    def _called(self, frame: FrameType, event: str, _: Any) -> None:
        if self.is_on and event == "call" and frame.f_code.co_filename.startswith(SOURCE):
            self.calls.append((frame.f_code.co_filename.removeprefix(SOURCE), frame.f_code.co_qualname))

    @contextmanager
    def following(self) -> Iterator[list[Hop]]:
        self.calls = []
        self.is_on = True
        yield self.calls
        self.is_on = False

    @contextmanager
    def installed(self) -> Iterator[None]:
        threading.setprofile(self._called)  # the committer's thread begins later
        sys.setprofile(self._called)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]


async def once(house: House, sender: Guest, consumer: Guest, number: int) -> str:
    """A message is sent, confirmed and delivered: its id for the ACK."""
    sender.say(f"SEND\ndestination:/queue/a\npersistent:true\nreceipt:{number}\n\nhello\0")
    got = (await consumer.hear(b"hello\0\n")).decode()
    await sender.hear(b"receipt-id:%d\n\n\0\n" % number)
    return re.findall(r"\nack:(\S+)\n", got)[-1]


async def acknowledge(house: House, consumer: Guest, ack: str) -> None:
    """Returns when the store has it."""
    sequence = house.broker.sequence
    consumer.say(f"ACK\nid:{ack}\n\n\0")
    await house.until(
        lambda: house.broker.sequence > sequence and not house.broker.committer.is_busy, "the ACK is stored"
    )


async def followed(folder: Path) -> tuple[list[Hop], list[Hop]]:
    """The calls for one SEND, and those for the ACK of it."""
    configuration, follow = configured(folder), Followed()
    with follow.installed():
        house = House(configuration, store=open_store(configuration))
        await house.open()
        sender, consumer = await house.client(), await house.client()
        consumer.say("SUBSCRIBE\nid:1\ndestination:/queue/a\nack:client-individual\nreceipt:s\n\n\0")
        await consumer.hear(b"receipt-id:s\n\n\0\n")
        for number in range(LEARNED):
            await acknowledge(house, consumer, await once(house, sender, consumer, number))
        with follow.following() as send:
            ack = await once(house, sender, consumer, LEARNED)
        with follow.following() as acked:
            await acknowledge(house, consumer, ack)
    await house.close()
    return send, acked


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Hop], list[Hop]]:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(followed(tmp_path_factory.mktemp("house")))


@pytest.mark.parametrize(
    ("section", "which", "least"), [("The way of a SEND", 0, 25), ("The way of an ACK", 1, 8)]
)
def test_the_page_has_the_hops_in_their_order(
    ways: tuple[list[Hop], list[Hop]], section: str, which: int, least: int
) -> None:
    hops, calls = hops_of(section), iter(ways[which])
    assert len(hops) >= least
    for hop in hops:
        # looks on from the last one
        assert hop in calls, f"{section}: {hop} does not come where the page has it; the way is {ways[which]}"


def test_no_file_on_the_way_is_a_stranger_to_the_page(ways: tuple[list[Hop], list[Hop]]) -> None:
    told = set(FILES.findall(PAGE.partition("\n## The way of a SEND")[2].partition("\n## Why")[0]))
    assert {file for way in ways for file, _ in way} <= told
    assert {
        file for section in ("The way of a SEND", "The way of an ACK") for file, _ in hops_of(section)
    } < told


def test_files_that_the_page_names_are_there() -> None:
    named = set(FILES.findall(PAGE))
    assert len(named) > 30

    assert [
        name for name in sorted(named) if not any((folder / name).exists() for folder in (Path(SOURCE), ROOT))
    ] == []


@pytest.mark.parametrize("house", FLOORS)
def test_each_room_has_its_row(house: str) -> None:
    """In the order of the floors, so that the table is the drawing of what test_rooms.py enforces."""
    section = PAGE.partition(f"## The rooms of {house}/\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?`[^|]*) \|", section, re.MULTILINE)
    rooms = [room for row in rows for room in _rooms_in(house, row)]
    assert sorted(set(rooms)) == sorted(FLOORS[house])
    assert [FLOORS[house].index(room) for room in rooms] == sorted(
        FLOORS[house].index(room) for room in rooms
    )


def _rooms_in(house: str, row: str) -> list[str]:
    """The rooms that a row names: the house itself, folders, files that are not on the lowest floor."""
    found = []
    for name in re.findall(rf"`{house}/([a-z]*)(?:/|\.py)?`", row):
        found.append(BY_ITSELF[house].get(name, name))
    return found
