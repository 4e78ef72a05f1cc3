"""Random commits, and what a store holds as something that can be compared."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any, cast

from stompbox.handles import Large
from stompbox.message import Run
from stompbox.store.base import Commit, Store
from stompbox.store.chunks import decode
from tests.store.runs import QUEUE, run, told

END = 1 << 40
LOGS = 3
LARGE = 0.2  # of the commits have pieces of large bodies, which no journal takes: the others go there


class Commits:
    """Each draws on what the ones before have made, so they must be applied in order."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.next: dict[int, int] = {}
        self.cursors: dict[int, tuple[int, int]] = {}  # id -> log, about its position
        self.floors: dict[str, int] = {}
        self.serial = 0

    def __next__(self) -> Commit:
        random, commit = self.random, Commit()
        self.serial += 1
        if len(self.next) < LOGS:
            log = len(self.next) + 1
            commit.logs[log], commit.cursors[log], self.next[log], self.cursors[log] = (
                f"log {log}",
                (log, 0),
                0,
                (log, 0),
            )
        for log in random.sample(sorted(self.next), random.randint(1, len(self.next))):
            first, count = self.next[log], random.randint(1, 30)
            commit.runs[log] = [
                run(first, count, body=random.randbytes(random.choice((0, 10, 500))), arrived=self.serial)
            ]
            self.next[log] = first + count
        if random.random() < LARGE:
            self._large(commit)
        for cursor, (log, position) in self.cursors.items():
            if random.random() < 0.7:
                stop = random.randint(position, self.next[log])
                ahead = random.randint(stop, self.next[log])
                commit.acknowledged[cursor] = [(position, stop), (ahead, min(ahead + 2, self.next[log]))]
                self.cursors[cursor] = log, stop
                commit.trims[log] = self.floors[str(log)] = stop
        commit.entries["queue", random.choice("abc")] = random.choice((None, random.randbytes(20)))
        commit.entries["serial", ""] = b"%d" % self.serial
        commit.entries["floors", ""] = json.dumps(self.floors).encode()
        if random.random() < 0.1:
            log = random.choice(sorted(self.next))
            commit.next_offsets[log] = self.next[log] = self.next[log] + 1000
        return commit

    def _large(self, commit: Commit) -> None:
        """Pieces of a large body and the message that has it, or pieces of one whose sender vanished."""
        random = self.random
        pieces = [random.randbytes(random.randint(1, 20_000)) for _ in range(random.randint(1, 3))]
        for number, piece in enumerate(pieces):
            commit.parts[self.serial, number] = piece
        commit.holds[self.serial] = False
        if random.random() < 0.7:
            log = random.choice(sorted(self.next))
            handle = cast(bytes, Large(self.serial, sum(map(len, pieces))))
            commit.runs.setdefault(log, []).append(
                Run(QUEUE, [handle], first=self.next[log], arrived=self.serial)
            )
            self.next[log] += 1


def whole(store: Store, run: Run) -> Run:
    """With its large bodies in place."""
    if not run.is_large:
        return run
    bodies = []
    for at in range(len(run)):
        body, number = b"", 0
        while len(body) < run.large(at).size:
            body += store.read_part(run.large(at).id, number)
            number += 1
        bodies.append(body)
    return Run(run.shape, bodies, run.columns, first=run.first, arrived=run.arrived, routing=run.routing)


def contents(store: Store) -> dict[str, Any]:
    """Everything that a reader of the store can rely on: what lies below a log's floor may be there still or not."""
    found = store.recover()
    floors = json.loads(found.entries.get(("floors", ""), b"{}"))
    messages = {log.id: list(_messages(store, log.id, floors.get(str(log.id), 0))) for log in found.logs}
    for log in found.logs:
        assert all(log.first <= message[0] < log.next for message in messages[log.id])
    return {
        "logs": {log.id: (log.name, log.next) for log in found.logs},
        "cursors": {cursor.id: (cursor.log, cursor.position, list(cursor.ahead)) for cursor in found.cursors},
        "entries": found.entries,
        "messages": messages,
    }


def _messages(store: Store, log: int, floor: int) -> Iterator[tuple[Any, ...]]:
    for chunk in store.read(log, 0, END, END):
        for message in told([whole(store, stored) for stored in decode(chunk.blob, chunk.first)]):
            if message[0] >= floor:
                yield message
