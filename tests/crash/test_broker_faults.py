"""Each call to the disk of a whole broker fails once, in turn: who got a RECEIPT has what it says, who got an ERROR can do it again.

A broker in this process plays the same short story again and again, another call failing in each run; then another broker is
started on what is left, with a disk that works. `make soak` leaves out no call.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree

import pytest

from stompbox.errors import StoreError
from stompbox.server import disk as server_disk
from tests.crash.disk import Disk
from tests.crash.story import MESSAGES, OTHER, QUEUE, TOPIC, Story, during, found

IS_LONG = bool(os.environ.get("SOAK"))
EVERY = 1 if IS_LONG else 9  # of the reads and writes


def told(folder: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> Story:
    """The story as it went on this disk. A broker that could not start is started again."""
    story = Story(disk)
    with monkeypatch.context() as patched:
        disk.take_over(patched)
        try:
            asyncio.run(during(folder, story.play))
        except StoreError as error:
            assert disk.failed and str(folder) in error.message
            asyncio.run(during(folder, story.play))
    return story


def check(folder: Path, story: Story, disk: Disk) -> None:
    there: dict[str, list[bytes]] = {}
    asyncio.run(during(folder, lambda port: there.update(found(port))))
    for destination in (QUEUE, OTHER, TOPIC):
        assert sorted(there[destination]) == sorted(story.left(destination)), (
            destination,
            disk.failed,
            story.refused,
        )
    assert there[QUEUE] == sorted(there[QUEUE]), "in order"
    assert [body for body in there[TOPIC] if body != b"y"] == [b"t%d" % number for number in range(MESSAGES)]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_disk, "RETRY_FIRST", 0.001)


def calls(folder: Path, monkeypatch: pytest.MonkeyPatch, kinds: str) -> Iterator[int]:
    disk = Disk(f"whole-broker-{kinds}")
    story = told(folder, disk, monkeypatch)
    assert story.refused == []
    check(folder, story, disk)
    numbers = [number for number, kind in enumerate(disk.kinds, 1) if kind in kinds.split()]
    assert numbers
    yield from numbers[::EVERY] if kinds in ("read", "write") else numbers


# what SQLite swallows, apsw tells Python
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    ("kinds", "fault", "codes"),
    [
        ("sync", "", {"io-error"}),
        ("open delete truncate", "", {"io-error", "data-not-writable"}),
        ("read", "", {"io-error"}),
        ("write", "", {"io-error"}),
        ("write", "full", {"disk-full"}),
        ("write", "read-only", {"data-not-writable"}),
    ],
    ids=["sync", "open, delete, truncate", "read", "write", "write, disk full", "write, read-only"],
)
def test_a_broker_survives_the_failure_of_any_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kinds: str, fault: str, codes: set[str]
) -> None:
    refused: list[str] = []
    for number in calls(tmp_path / "whole", monkeypatch, kinds):
        disk = Disk(f"broker-{kinds}-{fault}-{number}")
        disk.fail_at, disk.fault = number, fault
        story = told(tmp_path / str(number), disk, monkeypatch)
        check(tmp_path / str(number), story, disk)
        refused += story.refused
        rmtree(tmp_path / str(number))
    assert set(refused) <= codes
    assert refused or kinds in ("read", "open delete truncate"), "nobody was refused anything"
