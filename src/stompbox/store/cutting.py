"""Runs cut to the size of chunks: by bodies, values of holes, and headers, of which each shape has its own.

A chunk is made, read, decoded and deleted in one go, during which nobody else in the process has a turn.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import add
from typing import Final

from stompbox.message import MEMO, Run, Shape
from stompbox.store.chunks import shape_bytes

EACH: Final = 32  # bytes that a message costs beside its body, at a guess


def pieces(runs: Sequence[Run], limit: int) -> Iterator[Sequence[Run]]:
    """The runs in portions of about `limit` bytes, for chunks that can be read, decoded and deleted one at a time."""
    runs = [run for run in runs if run.bodies]
    sizes = [size_of(run) for run in runs]
    if sum(sizes) + sum([run.shape.octets for run in runs]) <= limit:
        if runs:
            yield runs
        return
    portion: list[Run] = []
    size = 0
    shapes: set[bytes | int] = set()  # in the portion
    for run, weight in zip(runs, sizes, strict=True):
        key, head = _key(run.shape), run.shape.octets
        for part in split(run, limit) if weight > limit else (run,):
            more = weight if part is run else size_of(part)
            new = 0 if key in shapes else head
            if portion and size + more + new > limit:
                yield portion
                portion, size, new = [], 0, head
                shapes.clear()
            portion.append(part)
            size += more + new
            shapes.add(key)
    yield portion


def _key(shape: Shape) -> bytes | int:
    """Equal shapes have one key, but for long ones, which nobody has in this form."""
    return shape_bytes(shape) if shape.octets <= MEMO else shape.number


def size_of(run: Run) -> int:
    """Octets that a run takes in a chunk, about, beside those of its shape."""
    return run.size + EACH * len(run.bodies) + run.varying


def split(run: Run, limit: int) -> Iterator[Run]:
    """Divides a run into parts of about `limit` bytes, of one message at least."""
    sizes = [len(body) + EACH for body in run.bodies]
    for column in run.columns:
        sizes = list(map(add, sizes, map(len, column)))
    ends = list(accumulate(sizes))
    start, begun = 0, 0
    while start < len(ends):
        # the first message that ends beyond the limit begins the next part, unless it is alone in this one
        stop = max(start + 1, bisect_right(ends, begun + limit, start))
        yield run.part(start, stop)
        start, begun = stop, ends[stop - 1]
