"""What the tests of all logs have in common: one log, the handles of several nodes, and the faults that each kind of engine has."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from time import monotonic
from typing import TypeVar
from uuid import uuid4

import pytest

from stompbox.commitlog.base import CommitLog, Kind, LogError, Record

T = TypeVar("T")
DEADLINE = 30.0


def required(is_there: object, reason: str) -> None:
    """Skips the test for the reason; with COMMITLOG_TESTS=required it fails."""
    if not is_there:
        (pytest.fail if os.environ.get("COMMITLOG_TESTS") == "required" else pytest.skip)(reason)


def fresh_name() -> str:
    """Of a cluster that nobody has used."""
    return f"t{uuid4().hex[:12]}"


class World(ABC):
    """One empty log. Handles that it has opened are closed with it."""

    def __init__(self) -> None:
        self.handles: list[CommitLog] = []

    def open(self, node: str = "a") -> CommitLog:
        handle = self.make(node)
        self.handles.append(handle)
        return handle

    @abstractmethod
    def make(self, node: str) -> CommitLog: ...

    def close(self) -> None:
        for handle in self.handles:
            handle.close()


def in_thread(function: Callable[[], T]) -> Future[T]:
    """Runs it beside the test; its result, or what it raised, with `.result(DEADLINE)`."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    Thread(target=run, daemon=True).start()
    return future


def commit(log: CommitLog, after: int, payload: bytes = b"x", epoch: int = 1) -> int:
    return log.append(after, epoch, Kind.COMMIT, payload)


def read_to(log: CommitLog, after: int, position: int) -> list[Record]:
    """Records after `after` up to `position`, however many calls it takes."""
    found: list[Record] = []
    while not found or found[-1].position < position:
        more = log.read(found[-1].position if found else after, 1 << 16, DEADLINE)
        assert more, f"nothing behind {found[-1:]} in {DEADLINE} s"
        found += more
    return found


def read_on(log: CommitLog, after: int, count: int) -> list[Record]:
    """So many records, however often the log is away meanwhile."""
    found: list[Record] = []
    deadline = monotonic() + DEADLINE
    while len(found) < count:
        assert monotonic() < deadline
        try:
            found += log.read(found[-1].position if found else after, 200, 0.5)
        except LogError as error:
            assert error.code == "log-unavailable"
    return found
