"""Chunks without the messages that a selector does not take: what a `fetch` leaves out before it travels.

The selector is asked once per shape where the shape decides: a chunk whose shapes all agree is not taken apart, and of others the runs that
it takes are copied as they lie there, in stretches. Where headers vary from message to message it is asked once for each set of values
that a run has, and only where it looks at times, sizes or bodies once per message. Runs in a thread beside the loop, so it reads nothing
that the engine changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import groupby

from stompbox.broker.addresses.address import Address
from stompbox.broker.queues import matching
from stompbox.message import Run, Shape
from stompbox.selectors import Selector
from stompbox.store.base import StoredChunk
from stompbox.store.chunks import decode, encode, tables
from stompbox.store.extracts import extract


class Picking:
    """What a selector takes of an address's chunks, for one request."""

    def __init__(self, selector: Selector, address: Address) -> None:
        self.selector = selector
        self.address = address.name
        self.default_persistent = address.settings.default_persistent
        self._verdicts: dict[Shape, bool] = {}

    def of(self, chunk: StoredChunk) -> StoredChunk:
        """The same offsets with the messages that are taken; an empty blob when there are none. Raises StoreError for a corrupt chunk."""
        table = tables(chunk.blob, f"chunk at offset {chunk.first}")
        verdicts = [self._verdict(shape) for shape in table.shapes]
        if all(verdicts):
            return chunk
        if None not in verdicts:
            return StoredChunk(chunk.first, chunk.count, extract(table, {at for at, taken in enumerate(verdicts) if taken}))
        left = frozenset(index for index, verdict in enumerate(verdicts) if verdict is False)
        kept = [part for run in decode(chunk.blob, chunk.first, left) for part in self._taken(run)]
        return StoredChunk(chunk.first, chunk.count, encode(kept, chunk.first) if kept else b"")

    def _verdict(self, shape: Shape) -> bool | None:
        """None: the messages of the shape may differ."""
        if not matching.is_of_shape(self.selector, shape):
            return None
        verdict = self._verdicts.get(shape)
        if verdict is None:
            verdict = self._verdicts[shape] = self.selector.matches(shape.headers, self._shared(shape))
        return verdict

    def _shared(self, shape: Shape) -> matching.Facts:
        is_durable = self.default_persistent if shape.persistent is None else shape.persistent
        return matching.facts_of_shape(shape, self.address, is_durable=is_durable)

    def _taken(self, run: Run) -> Iterator[Run]:
        if self._verdict(run.shape):
            yield run
            return
        at = 0
        for is_taken, group in groupby(self._each(run)):
            stop = at + len(list(group))
            if is_taken:
                yield run.part(at, stop)
            at = stop

    def _each(self, run: Run) -> list[bool]:
        """The verdict on each message of a run whose shape does not decide."""
        selector, shared = self.selector, self._shared(run.shape)
        if not selector.is_per_message:
            return self._by_values(run, shared)
        found = []
        for index in range(len(run)):
            body = None if run.is_large else partial(run.bodies.__getitem__, index)
            found.append(selector.matches(run.headers(index), matching.facts_of_message(run, index, shared), body))
        return found

    def _by_values(self, run: Run, shared: matching.Facts) -> list[bool]:
        read = [(name, column) for name, column in zip(run.shape.holes, run.columns, strict=True) if name in self.selector.headers]
        names = [name for name, _ in read]
        rows = list(zip(*(column for _, column in read), strict=True))
        verdicts = {}
        for row in set(rows):
            varying = {name: value.decode("ascii") for name, value in zip(names, row, strict=True)}
            verdicts[row] = self.selector.matches({**run.shape.headers, **varying}, shared)
        return [verdicts[row] for row in rows]
