"""A part of a chunk has the messages of the shapes that are kept, where they were, and nothing else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stompbox.handles import Large
from stompbox.message import Run, Shape
from stompbox.store import chunks
from stompbox.store.extracts import extract
from tests.store.runs import QUEUE, run, run_lists, told


@given(run_lists(), st.sets(st.integers(0, 3)))
def test_the_runs_of_some_shapes(runs: list[Run], kept: set[int]) -> None:
    first = runs[0].first if runs else 7
    table = chunks.tables(chunks.encode(runs, first))
    shapes = [chunks.shape_bytes(shape) for index, shape in enumerate(table.shapes) if index in kept]
    wanted = [run for run in runs if run.bodies and chunks.shape_bytes(run.shape) in shapes]
    blob = extract(table, kept)
    if not wanted:
        assert blob == b""
        return
    assert told(chunks.decode(blob, first)) == told(wanted)
    head, part = chunks.verify(blob), chunks.tables(blob)
    assert (head.first, head.count, head.messages) == (first, table.head.count, sum(map(len, wanted)))
    assert head.newest == max(run.arrived for run in wanted)
    assert [chunks.shape_bytes(shape) for shape in part.shapes] == shapes
    if len(shapes) == len(table.shapes):
        assert blob == chunks.encode(runs, first)


def test_only_a_part_with_large_bodies_says_that_it_has_some() -> None:
    large = Run(QUEUE, [Large(1, 10), Large(2, 20)], first=0, arrived=1)  # type: ignore[list-item]
    table = chunks.tables(chunks.encode([large, run(2, shape=Shape({"destination": "/queue/small"}))], 0))
    both = [extract(table, {at}) for at in range(2)]
    assert [chunks.has_handles(blob) for blob in both] == [True, False]
    assert chunks.large_size(both[0], 0) == 30
