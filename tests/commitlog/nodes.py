"""Nodes for tests: a store that loses its loose tail when its process is killed, and what a store holds, as a value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stompbox.store.base import CLUSTER, Commit, Recovered
from stompbox.store.memory import MemoryStore


class FragileStore(MemoryStore):
    """A store whose `crashed` copy has what was durable, and so many of the loose commits behind it."""

    def __init__(self, commits: list[Commit] | None = None) -> None:
        super().__init__()
        self.commits: list[Commit] = []
        self.durable = 0
        for commit in commits or ():
            self.apply(commit)
        self.durable = len(self.commits)

    def apply(self, commit: Commit) -> None:
        super().apply(commit)
        self.commits.append(commit)
        if not commit.is_loose:
            self.durable = len(self.commits)

    def crashed(self, keeps: int = 0) -> FragileStore:
        return FragileStore(self.commits[: self.durable + keeps])


def content(store: Any) -> dict[str, Any]:
    """All that a store has but what is each node's own."""
    found: Recovered = store.recover()
    logs = {log.id: (log.name, log.next, list(_messages(store, log.id))) for log in found.logs}
    cursors = {cursor.id: (cursor.log, cursor.position, str(cursor.ahead)) for cursor in found.cursors}
    entries = {key: value for key, value in found.entries.items() if key[0] != CLUSTER}
    return {"logs": logs, "cursors": cursors, "entries": entries}


def _messages(store: Any, log: int) -> Iterator[tuple[int, int, bytes]]:
    for chunk in store.read(log, 0, 1 << 62, 1 << 30):
        yield chunk.first, chunk.count, chunk.blob
