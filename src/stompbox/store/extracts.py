"""A part of a chunk as a chunk: the runs of some of its shapes, copied as they lie there.

No message is touched, and no run but by its row: where they lie is added up over whole columns, and neighbours are copied together.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator, Sequence
from itertools import accumulate, compress

from stompbox.store.chunks import ChunkHead, Tables, assembled


def extract(table: Tables, kept: Collection[int]) -> bytes:
    """The blob with the runs of the shapes `kept` (by their place) alone; empty when there are none."""
    runs = array("I", table.runs.tobytes())  # eight numbers each, as chunks.py describes them
    shapes = runs[4::8].tolist()
    wanted = [shape in kept for shape in shapes]
    stays = list(_stretches(wanted))
    if not stays:
        return b""
    places = {shape: place for place, shape in enumerate(sorted(set(compress(shapes, wanted))))}
    runs[4::8] = array("I", [places.get(shape, 0) for shape in shapes])
    at, octets = _ends(table, runs, shapes)
    rows, data = memoryview(runs), table.data
    lengths = [table.numbers[at[start] : at[stop]] for start, stop in stays]
    rest = [*lengths, *[data[octets[at[start]] : octets[at[stop]]] for start, stop in stays]]
    head = ChunkHead(
        table.head.first,
        table.head.count,
        _newest(table, runs, at, wanted),
        sum(compress(runs[5::8], wanted)),
    )
    kept_runs = [rows[8 * start : 8 * stop] for start, stop in stays]
    return assembled(head, [table.shapes[shape] for shape in places], kept_runs, rest, sum(map(len, lengths)))


def _stretches(wanted: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """The stretches of shapes that are wanted, as start .. stop-1."""
    start = 0
    while True:
        try:
            start = wanted.index(True, start)
        except ValueError:
            return
        try:
            stop = wanted.index(False, start)
        except ValueError:
            stop = len(wanted)
        yield start, stop
        start = stop


def _ends(table: Tables, runs: array[int], shapes: Sequence[int]) -> tuple[list[int], list[int]]:
    """Where the numbers of each run begin, and where the octets that each number measures do; each with the end of the last."""
    columns = [len(shape.holes) + 1 for shape in table.shapes]
    counts, arrivals = runs[5::8], runs[7::8]
    sizes = [
        2 * stretches + columns[shape] * count
        for stretches, shape, count in zip(arrivals, shapes, counts, strict=True)
    ]
    at = list(accumulate(sizes, initial=0))
    lengths = table.numbers.tolist()
    for row in [row for row, stretches in enumerate(arrivals) if stretches]:
        lengths[at[row] : at[row] + 2 * arrivals[row]] = [0] * (2 * arrivals[row])  # these measure nothing
    return at, list(accumulate(lengths, initial=0))


def _newest(table: Tables, runs: array[int], at: Sequence[int], wanted: Sequence[bool]) -> int:
    arrived = memoryview(runs).cast("B").cast("q")[1::4].tolist()
    found = max(compress(arrived, wanted))
    for row in [row for row, stretches in enumerate(runs[7::8]) if stretches and wanted[row]]:
        found = max(
            found,
            arrived[row] + max(table.numbers[at[row] + 1 : at[row] + 2 * runs[8 * row + 7] : 2].tolist()),
        )
    return int(found)
