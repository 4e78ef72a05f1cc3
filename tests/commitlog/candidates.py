"""Nodes that fight for the lead, and whether what they were told of their appends is so."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Event

from stompbox.commitlog.base import CommitLog, Fenced, Kind, LogError, Record
from tests.commitlog.logs import commit, read_on

PAYLOAD = b"in the middle of it" * 100


class Candidate:
    """A node that leads whenever it can, and remembers what it was told of each record that it tried to append."""

    def __init__(self, name: str, log: CommitLog) -> None:
        self.name = name
        self.log = log
        self.landed: dict[bytes, int] = {}
        self.refused: list[bytes] = []

    def run(self, is_over: Event) -> None:
        number = 0
        while not is_over.is_set():
            number += 1
            try:
                last = self.log.lead(self.log.last(), b"%s leads %d" % (self.name.encode(), number))
            except (Fenced, LogError):
                continue
            self.landed[last.payload] = position = last.position
            for more in range(30):
                payload = b"%s %d %d " % (self.name.encode(), number, more) + PAYLOAD
                try:
                    position = commit(self.log, position, payload, last.epoch)
                except Fenced:
                    self.refused.append(payload)
                    break
                self.landed[payload] = position


def check(nodes: Sequence[Candidate], found: Sequence[Record]) -> None:
    """What landed is there once and where it was said to be, what was refused is not, and one node leads at a time."""
    payloads = {record.payload: record for record in found}
    assert len(payloads) == len(found)
    for node in nodes:
        assert {payload: payloads[payload].position for payload in node.landed} == node.landed
        assert not payloads.keys() & set(node.refused)
    leads = [record.epoch for record in found if record.kind is Kind.LEAD]
    assert leads == list(range(1, len(leads) + 1))
    assert [record.epoch for record in found] == sorted(record.epoch for record in found)


def read_on_to(log: CommitLog, last: int) -> list[Record]:
    found: list[Record] = []
    while not found or found[-1].position < last:
        found += read_on(log, found[-1].position if found else 0, 1)
    return found
