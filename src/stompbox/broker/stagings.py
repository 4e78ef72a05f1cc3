"""Messages that a sink staged, to be published all at once: by batch, each batch one time.

A batch that was published is remembered with it, in the same commit; the stagings themselves live in memory, for a sink that
finds them gone stages and publishes the batch again. They go when

    their batch, or a later one of the sink, is published or discarded
    the sink is run anew       each start of a query has a name; a task that outlived the one before is refused
    nobody touched the batch for an hour
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import is_
from typing import Final

from stompbox.broker.address import Address
from stompbox.broker.engine import Engine
from stompbox.broker.segments import cost_of
from stompbox.errors import Refused
from stompbox.message import Run

Part = tuple[int, int]  # partition, attempt
Sends = Sequence[tuple[Address, Run]]

IDLE: Final = 3_600_000  # ms
PART: Final = 500  # octets that an attempt costs beside its messages, at a guess
MOST_ENDED: Final = 1000  # sinks whose earlier runs are remembered


@dataclass(slots=True)
class Staged:
    """What was staged for one batch of a sink."""

    run: str  # which start of the query; empty: not said
    parts: dict[Part, list[Run]] = field(default_factory=dict)
    touched: int = 0  # ms since the epoch
    sizes: dict[Part, int] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return sum(self.sizes.values())


def _size_of(sink: str, runs: Iterable[Run]) -> int:
    """Octets of memory, about: messages without bodies, and attempts without messages, are not free."""
    return PART + len(sink) + sum(map(cost_of, runs))


@dataclass(frozen=True, slots=True)
class Gathered:
    """The messages of some attempts in fewer runs; good for as long as the attempts have the lists `of`."""

    of: list[list[Run]]
    runs: list[Run]


class Stagings:
    """What all sinks have staged. `most` octets of memory together, about."""

    def __init__(self, engine: Engine, most: int) -> None:
        self.engine = engine
        self.most = most
        self.size = 0
        self.batches: dict[tuple[str, int], Staged] = {}
        self.ended: dict[str, list[str]] = {}  # runs of a sink that another one has followed
        self._is_watched = False

    def limit(self, most: int) -> None:
        """What is staged stays."""
        self.most = most

    def stage(self, sink: str, batch: int, part: Part, runs: list[Run], *, run: str = "") -> int:
        """Puts runs under one attempt at one partition, in the place of those that it had: how many messages it has now."""
        if batch <= self.engine.batches.get(sink, -1):
            return 0
        if run:
            self._begin(sink, run)
        staged = self.batches.get((sink, batch))
        size = _size_of(sink, runs)
        more = size - (0 if staged is None else staged.sizes.get(part, 0))
        if self.size + more > self.most:
            text = f"sinks have staged {self.size} bytes; with {more} more the limit of {self.most} is passed (max-staged-bytes)"
            raise Refused("staging-full", text)
        if staged is None:
            staged = self.batches[sink, batch] = Staged(run)
        staged.parts[part], staged.sizes[part] = runs, size
        staged.touched = self.engine.now
        self.size += more
        self._watch()
        return sum(map(len, runs))

    def _begin(self, sink: str, run: str) -> None:
        """Forgets what other runs of the sink have staged. Raises Refused for one that another has followed."""
        ended = self.ended.get(sink, [])
        if run in ended:
            raise Refused("sink-run-anew", f"sink {sink!r} was started again; what its run {run!r} stages is not published any more")
        for key in [key for key, staged in self.batches.items() if key[0] == sink and staged.run not in ("", run)]:
            gone = self._drop(key)
            if gone.run not in ended:
                self.ended.pop(sink, None)
                self.ended[sink] = ended = [*ended, gone.run][-8:]
                if len(self.ended) > MOST_ENDED:
                    del self.ended[next(iter(self.ended))]

    def chosen(self, sink: str, batch: int, attempts: Iterable[Part]) -> list[list[Run]] | None:
        """What the winning attempts have staged; None when this batch was published before. Raises Refused where it is gone."""
        if batch <= self.engine.batches.get(sink, -1):
            return None
        attempts = list(dict.fromkeys(attempts))
        found = self.batches.get((sink, batch))
        staged = {} if found is None else found.parts
        missing = [part for part in attempts if part not in staged]
        if missing:
            text = f"sink {sink!r} batch {batch}: nothing is staged for {len(missing)} of {len(attempts)} attempts"
            raise Refused("not-staged", f"{text}, the first (partition, attempt) {missing[0]}; the broker may have been started anew")
        return [staged[part] for part in attempts]

    def publish(
        self, sink: str, batch: int, attempts: Iterable[Part], route: Callable[[Run], Sends], gathered: Gathered | None = None
    ) -> Sends | None:
        """Publishes the winning attempts in one commit: what went where; None when this batch was published before. `route` says
        where a run goes, and raises for one that may not."""
        chosen = self.chosen(sink, batch, attempts)
        if chosen is None:
            self.discard(sink, batch)
            return None
        is_good = gathered is not None and len(gathered.of) == len(chosen) and all(map(is_, gathered.of, chosen))
        runs = gathered.runs if gathered is not None and is_good else [run for part in chosen for run in part]
        routed = [sent for run in runs for sent in route(run)]
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
        return routed

    def _remember(self, sink: str, batch: int | None) -> None:
        """The last batch of the sink that was published."""
        if batch is None:
            self.engine.batches.pop(sink, None)
        else:
            self.engine.batches[sink] = batch
        self.engine.put("sink", sink, None if batch is None else {"batch": batch})

    def discard(self, sink: str, batch: int) -> None:
        """Forgets the stagings of this batch and of older ones."""
        for key in [key for key in self.batches if key[0] == sink and key[1] <= batch]:
            self._drop(key)

    def forget(self, sink: str) -> None:
        """The sink is done with: its stagings go, and which batch it published last."""
        for key in [key for key in self.batches if key[0] == sink]:
            self._drop(key)
        self.ended.pop(sink, None)
        if sink in self.engine.batches:
            self._remember(sink, None)

    def _drop(self, key: tuple[str, int]) -> Staged:
        gone = self.batches.pop(key)
        self.size -= gone.size
        return gone

    def _watch(self) -> None:
        if not self._is_watched:
            self._is_watched = True
            self.engine.timers.at(self.engine.now + IDLE, self._look)

    def _look(self) -> None:
        """Drops what nobody touched for long."""
        self._is_watched = False
        for key in [key for key, staged in self.batches.items() if staged.touched + IDLE <= self.engine.now]:
            self._drop(key)
        if self.batches:
            self._watch()

    def __repr__(self) -> str:
        return f"<Stagings batches={len(self.batches)} {self.size} of {self.most} bytes>"
