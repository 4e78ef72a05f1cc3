"""Runs cut to the size of chunks: by bodies, values of holes, and headers, of which each shape has its own. And small ones gathered.

A chunk is made, read, decoded and deleted in one go, during which nobody else in the process has a turn.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import add
from typing import Final

from stompbox.message import MEMO, Run, Shape
from stompbox.store.chunks import joined, shape_bytes

MOST_GATHERED: Final = 1 << 20  # bytes of small runs that become one
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


def gather(runs: Sequence[Run]) -> list[Run]:
    """Makes fewer runs of the same messages: those of a destination keep their order, and neighbours of one shape become one."""
    groups: dict[str, list[list[Run]]] = {}
    sizes: dict[str, int] = {}
    for run in runs:
        destination = run.shape.destination
        found = groups.setdefault(destination, [])
        own = size_of(run)
        size = sizes.get(destination, 0) + own
        if found and size <= MOST_GATHERED and _is_alike(found[-1][0], run):
            found[-1].append(run)
            sizes[destination] = size
        else:
            found.append([run])
            sizes[destination] = own
    return [_one(group) for found in groups.values() for group in found]


def _is_alike(one: Run, other: Run) -> bool:
    return one.shape is other.shape or shape_bytes(one.shape) == shape_bytes(other.shape)


def _one(group: Sequence[Run]) -> Run:
    if len(group) == 1:
        return group[0]
    bodies, columns = joined(group)
    return Run(group[0].shape, bodies, columns)
