"""Every kind of log, empty, for the tests that all of them have to pass."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stompbox.commitlog.base import CommitLog
from stompbox.commitlog.disk import DiskLog
from stompbox.commitlog.memory import SharedLog
from stompbox.commitlog.opening import open_log
from tests.commitlog.logs import World, fresh_name
from tests.commitlog.natsservers import NatsServer, one_nats, three_nats
from tests.commitlog.pgserver import PgServer, postgres

__all__ = ["one_nats", "postgres", "three_nats"]


class Memory(World):
    def __init__(self) -> None:
        super().__init__()
        self.shared = SharedLog()

    def make(self, node: str) -> CommitLog:
        return self.shared.open(node)


class Disk(World):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def make(self, node: str) -> CommitLog:
        return DiskLog(self.folder, "orders", segment=2000)


class Opened(World):
    """A log of an engine."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url
        self.name = fresh_name()

    def make(self, node: str) -> CommitLog:
        return open_log(self.url, self.name, node)


def made(kind: str, request: pytest.FixtureRequest) -> World:
    if kind == "memory":
        return Memory()
    if kind == "disk":
        return Disk(request.getfixturevalue("tmp_path") / "log")
    if kind == "postgres":
        database: PgServer = request.getfixturevalue("postgres")
        return Opened(database.url)
    server: NatsServer = request.getfixturevalue("one_nats")
    return Opened(f"{server.url}?insecure=true")


@pytest.fixture(params=["memory", "disk", "jetstream", "postgres"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    world = made(request.param, request)
    yield world
    world.close()


@pytest.fixture
def log(world: World) -> CommitLog:
    return world.open("a")
