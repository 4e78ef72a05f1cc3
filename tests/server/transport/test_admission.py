"""Whom a newcomer takes the place of; the rest is in tests/system/test_admission.py."""

from __future__ import annotations

import pytest

from stompbox.config.options import ListenerOptions
from stompbox.errors import StompboxError
from stompbox.server.transport.admission import Admission


class Visitor:
    def __init__(self, place: object) -> None:
        self.place = place
        self.network = ""
        self.told: StompboxError | None = None

    def dismiss(self, error: StompboxError) -> None:
        self.told = error

    def abort(self) -> None:
        raise AssertionError("it is told why")


@pytest.mark.parametrize("newcomer", ["broker", "front 1", "front 2"])
def test_where_a_process_has_no_file_its_own_oldest_stranger_goes(newcomer: str) -> None:
    """That of another process would give nobody a file."""
    admission = Admission()
    there = [Visitor(place) for place in ("broker", "front 1", "front 2") for _ in range(2)]
    for visitor in there:
        admission.arrive(visitor, ListenerOptions(), is_crowded=False)
    admission.arrive(Visitor(newcomer), ListenerOptions(), is_crowded=True)
    (gone,) = [visitor for visitor in there if visitor.told is not None]
    assert gone is next(visitor for visitor in there if visitor.place == newcomer)
    assert gone not in admission.strangers
    assert getattr(gone.told, "code", "") == "too-many-connections"


def test_who_is_alone_in_its_process_goes_itself() -> None:
    admission = Admission()
    admission.arrive(Visitor("front 1"), ListenerOptions(), is_crowded=False)
    alone = Visitor("front 2")
    admission.arrive(alone, ListenerOptions(), is_crowded=True)
    assert alone.told is not None
    assert len(admission.strangers) == 1
