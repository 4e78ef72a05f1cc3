"""Messages that a sink staged, to be published all at once: by batch, each batch one time.

A batch that was published is remembered with it, in the same commit; the stagings themselves live in memory, for a sink that
finds them gone stages and publishes the batch again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from stompbox.broker.address import Address
from stompbox.broker.engine import Engine
from stompbox.errors import Refused
from stompbox.message import Run

Part = tuple[int, int]  # partition, attempt


class Stagings:
    """What all sinks have staged. `most` bytes of bodies together."""

    def __init__(self, engine: Engine, most: int) -> None:
        self.engine = engine
        self.most = most
        self.size = 0
        self.parts: dict[tuple[str, int], dict[Part, list[Run]]] = {}

    def stage(self, sink: str, batch: int, part: Part, runs: list[Run]) -> int:
        """Adds runs to one attempt at one partition; how many messages it has now."""
        if batch <= self.engine.batches.get(sink, -1):
            return 0
        size = sum(run.size for run in runs)
        if self.size + size > self.most:
            raise Refused("staging-full", f"sinks have staged {self.size} bytes; with {size} more the limit of {self.most} is passed")
        self.size += size
        staged = self.parts.setdefault((sink, batch), {}).setdefault(part, [])
        staged += runs
        return sum(map(len, staged))

    def publish(self, sink: str, batch: int, attempts: Iterable[Part], route: Callable[[Run], Address]) -> int | None:
        """Publishes the winning attempts in one commit: how many messages; None when this batch was published before."""
        if batch <= self.engine.batches.get(sink, -1):
            self.discard(sink, batch)
            return None
        attempts = list(dict.fromkeys(attempts))
        staged = self.parts.get((sink, batch), {})
        missing = [part for part in attempts if part not in staged]
        if missing:
            raise Refused("not-staged", f"sink {sink!r} batch {batch}: nothing is staged for (partition, attempt) {missing}")
        routed = [(route(run), run) for part in attempts for run in staged[part]]
        self.engine.prepare(routed)
        unit = self.engine.commits.begin()
        unit.undo.append(partial(self._remember, sink, self.engine.batches.get(sink)))
        try:
            for address, run in routed:
                self.engine.publish(address, run)
        finally:
            self.engine.commits.end(is_stored=True)
        self._remember(sink, batch)
        self.discard(sink, batch)
        return sum(len(run) for _, run in routed)

    def _remember(self, sink: str, batch: int | None) -> None:
        """The last batch of the sink that was published."""
        if batch is None:
            self.engine.batches.pop(sink, None)
        else:
            self.engine.batches[sink] = batch
        self.engine.put("sink", sink, None if batch is None else {"batch": batch})

    def discard(self, sink: str, batch: int) -> None:
        """Forgets the stagings of this batch and of older ones."""
        for key in [key for key in self.parts if key[0] == sink and key[1] <= batch]:
            self.size -= sum(run.size for runs in self.parts.pop(key).values() for run in runs)
