"""Runs cut to the size of chunks (store/cutting.py)."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from stompbox.message import Run, Shape
from stompbox.store import chunks
from stompbox.store.cutting import EACH, pieces, split
from tests.store.runs import QUEUE, run_lists, told


@given(run_lists(first=0), st.integers(1, 300))
def test_pieces_hold_everything_in_order(runs: list[Run], limit: int) -> None:
    found = [list(piece) for piece in pieces([*runs, Run(QUEUE, [], first=1)], limit)]
    assert told([run for piece in found for run in piece]) == told(runs)
    assert all(piece for piece in found)
    for piece in found:
        weight = sum(run.size + EACH * len(run) for run in piece)
        assert weight <= limit or sum(map(len, piece)) == 1, "only a single message may be larger"


def test_pieces_are_few() -> None:
    """Portions of whole runs are filled up, and a long run is cut where the limit is reached."""
    bodies = [random.Random(1).randbytes(68)] * 1000
    limit = 100 * (68 + EACH) + QUEUE.octets
    assert [sum(map(len, piece)) for piece in pieces([Run(QUEUE, bodies, first=0)], limit)] == [100] * 10
    single = [Run(QUEUE, bodies[:1], first=first) for first in range(1000)]
    assert [sum(map(len, piece)) for piece in pieces(single, limit)] == [100] * 10


def test_nothing_makes_no_piece() -> None:
    assert list(pieces([], 100)) == []
    assert list(pieces([Run(QUEUE, [], first=0)], 100)) == []


def test_headers_count() -> None:
    """A thousand messages of 1 KB in a header each are as many octets as those with bodies of 1 KB."""
    runs = [Run(Shape({"destination": "q", "h": f"{n:01000d}"}), [b""], first=n) for n in range(100)]
    found = list(pieces(runs, 10_000))
    assert [run.first for piece in found for run in piece] == list(range(100))
    assert max(len(chunks.encode(piece, piece[0].first)) for piece in found) <= 10_000
    assert len(found) <= 12


def test_headers_that_runs_share_count_once() -> None:
    shape = Shape({"destination": "q", "h": "x" * 5000})
    runs = [Run(shape, [b"body"], first=n) for n in range(100)]
    assert len(list(pieces(runs, 10_000))) == 1


def test_values_of_holes_count() -> None:
    """Of one run as of many."""
    shape = Shape({"destination": "q"}, holes=("h",))
    values = [b"%01000d" % n for n in range(100)]
    together = Run(shape, [b""] * 100, (values,), first=0)
    single = [together.part(n, n + 1) for n in range(100)]
    for runs in ([together], single):
        found = list(pieces(runs, 10_000))
        assert max(len(chunks.encode(piece, piece[0].first)) for piece in found) <= 10_500
        assert len(found) <= 12
    assert [len(part) for part in split(together, 10_000)] == [9] * 11 + [1]
