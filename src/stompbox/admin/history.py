"""What has happened lately, for plots that are there when a page is opened: the last ten minutes in steps of two seconds, the last day in
steps of a minute, of the whole broker and of the addresses that are busiest.

It begins with the broker; what was before is not known. A ring of whole numbers for each series, 19 KiB at most; four for each of
BUSIEST addresses, so 15 MiB when all are there. An address that is quiet gives its place to one that is not.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Collection, Generator, Mapping
from heapq import heapify, heapreplace, nlargest
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from stompbox.broker.addresses.address import Address
from stompbox.broker.queues.depth import settled_by_queue, sums_of
from stompbox.server.requests.replies import in_turns

if TYPE_CHECKING:
    from stompbox.server.broker import Broker

STEP: Final = 2000  # ms
STEPS: Final = 300  # ten minutes
BROAD: Final = 10  # steps in one of an outline
COARSE: Final = 30  # steps in one of the day's: a minute
COARSE_STEPS: Final = 1440
BUSIEST: Final = 200  # addresses
MANY: Final = 200  # queues of an address: to add up what waits in more of them, every two seconds, would cost others time

SPANS: Final = ("10m", "24h")
PASSED: Final = ("received", "delivered", "acknowledged")
EVENTS: Final = ("durable-subscriptions-timed-out", "given-back", "slow-consumers")
COUNTS: Final = (
    "received",
    "delivered",
    "acknowledged",
    "removed",
    "errors",
    "commits",
)  # how many in a step
LEVELS: Final = ("ready", "connections", "memory_bytes", "unsaved_bytes")  # the most in a step
ADDRESS_COUNTS: Final = ("received", "done")
ADDRESS_LEVELS: Final = ("ready", "consumers")
UNKNOWN: Final = -1


class Plot(Struct, frozen=True):
    """What is drawn of a time: values at equal steps. `until`: when the last step ended, ms since the epoch; `step`: ms; `series`: by name,
    the oldest first. -1: not known. Of what is counted a value is how many in a step, of what has a level the most that it had."""

    address: str | None
    span: str
    until: int
    step: int
    series: dict[str, list[int]]


class Activity(Struct, frozen=True):
    """How many messages were sent to each address that is measured, the oldest first, in each `step` (ms) of the last ten minutes; -1:
    not known. `until`: when the last step ended, ms since the epoch."""

    until: int
    step: int
    addresses: dict[str, list[int]]


class Ring:
    """The last values of one series, fine and coarse."""

    __slots__ = ("_coarse", "_fine", "_is_count", "_pending")

    def __init__(self, *, is_count: bool, missed: int = 0, coarse_missed: int = 0) -> None:
        self._is_count = is_count
        self._fine = array("q", [UNKNOWN]) * missed
        self._coarse = array("q", [UNKNOWN]) * coarse_missed
        self._pending: list[int] = []

    def add(self, value: int) -> None:
        self._fine.append(value)
        if len(self._fine) > STEPS * 2:
            del self._fine[:-STEPS]
        self._pending.append(value)
        if len(self._pending) == COARSE:
            known = [each for each in self._pending if each != UNKNOWN]
            whole = (sum(known) if self._is_count else max(known)) if known else UNKNOWN
            self._coarse.append(whole)
            del self._coarse[:-COARSE_STEPS]
            self._pending.clear()

    def values(self, span: str) -> list[int]:
        return list(self._fine[-STEPS:] if span == SPANS[0] else self._coarse)


class Series:
    """The rings of the broker, or of an address; counters that only grow become what was added."""

    __slots__ = ("_before", "_counts", "_done", "_levels", "_settled", "recent")

    def __init__(self, counts: tuple[str, ...], levels: tuple[str, ...]) -> None:
        self._counts = {name: Ring(is_count=True) for name in counts}
        self._levels = {name: Ring(is_count=False) for name in levels}
        self._before: dict[str, int] = {}
        self._settled: Mapping[int, int] = {}
        self._done = 0
        self.recent = 0.0  # messages a step, the newer the more: who is busiest

    def done(self, settled: Mapping[int, int]) -> int:
        """A count that grows by how many were done with since the last look: `settled` says how many each queue is done with. One that has
        come since has done all of that since."""
        before, self._settled = self._settled, settled
        self._done += sum([max(0, count - before.get(id, 0)) for id, count in settled.items()])
        return self._done

    def since(self, received: int, *, is_new: bool) -> None:
        """Its step began when the log was at this offset; with `is_new` the address itself began there."""
        self._before = {"received": received, "done": 0} if is_new else {"received": received}
        self._done, self._settled = 0, {}

    def add(self, now: Mapping[str, int]) -> None:
        for name, ring in self._counts.items():
            if now[name] == UNKNOWN:
                ring.add(UNKNOWN)
                self._before.pop(name, None)
                continue
            ring.add(max(0, now[name] - self._before.get(name, now[name])))
            self._before[name] = now[name]
        for name, level in self._levels.items():
            level.add(now[name])

    def gone(self) -> None:
        """What it is of is not there, and has no values."""
        self._before.clear()
        for ring in (*self._counts.values(), *self._levels.values()):
            ring.add(UNKNOWN)

    def outline(self) -> list[int]:
        """The first series of the last ten minutes, BROAD steps as one."""
        fine = next(iter(self._counts.values())).values(SPANS[0])
        known = [max(0, each) for each in fine]
        return [
            UNKNOWN
            if fine[at : at + BROAD] == [UNKNOWN] * len(fine[at : at + BROAD])
            else sum(known[at : at + BROAD])
            for at in range(len(fine) % BROAD, len(fine), BROAD)
        ]

    def values(self, span: str) -> dict[str, list[int]]:
        return {name: ring.values(span) for name, ring in (*self._counts.items(), *self._levels.items())}


class History:
    """The measurements of a broker, which are taken until it is closed."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._all = Series(COUNTS, LEVELS)
        self._addresses: dict[str, Series] = {}
        self._next: dict[str, int] | None = (
            None  # where each address's log was at the last step, if there was one
        )
        self._until = broker.now()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = self.broker.loop.create_task(self._sample())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _sample(self) -> None:
        loop = self.broker.loop
        due = loop.time()
        while True:
            await self.step()
            due = max(due + STEP / 1000, loop.time())
            await asyncio.sleep(due - loop.time())

    async def step(self) -> None:
        """One more value of each series, in portions between which the loop has its turn."""
        ready = 0
        moved: dict[str, int] = {}
        ends: dict[str, int] = {}
        async for address in in_turns(self.broker.turns, list(self.broker.engine.addresses.values())):
            if address.owner:
                continue
            ends[address.name] = address.log.next
            # one that was not there at the last step has come since; its offsets need not begin at 0
            log = address.log
            known = log.next if self._next is None else self._next.get(address.name, log.first)
            count = address.log.next - known
            if count > 0:
                moved[address.name] = count
                if len(moved) > 3 * BUSIEST:
                    moved = self._busiest(moved)
            ready += sum([queue.count for queue in address.anycast.values()])
        before, self._next = self._next or {}, ends
        chosen = await self.broker.turns.taken(self._choose(moved))
        for name in moved.keys() & self._addresses.keys():
            if name in chosen or name not in before:
                self._addresses[name].since(ends[name] - moved[name], is_new=name not in before)
        async for name in in_turns(self.broker.turns, list(self._addresses)):
            found = self.broker.engine.addresses.get(name)
            if found is None:
                self._addresses[name].gone()
            else:
                self._addresses[name].add(_of_address(found, self._addresses[name]))
        self._all.add(self._of_broker(ready))
        self._until = self.broker.now()

    def _busiest(self, moved: Mapping[str, int]) -> dict[str, int]:
        """Returns those that may get a place, and those that have one: of ten thousand, only some hundred are looked at again."""
        stay = {name: moved[name] for name in self._addresses if name in moved}
        return stay | dict(nlargest(BUSIEST, moved.items(), key=itemgetter(1)))

    def _choose(self, moved: Mapping[str, int]) -> Generator[None, None, set[str]]:
        """Gives a place, in steps, to each that had a message while there are some; then to the busiest. Returns those that got one."""
        for name, series in self._addresses.items():
            series.recent = series.recent * 0.9 + moved.get(name, 0)
        chosen: set[str] = set()
        quiet: list[tuple[float, str]] = []  # a heap: of ten thousand that came at once 200 find their place
        for name in sorted(moved, key=moved.__getitem__, reverse=True):
            if name in self._addresses:
                continue
            if len(self._addresses) >= BUSIEST:
                if not quiet:
                    quiet = [(series.recent, one) for one, series in self._addresses.items()]
                    heapify(quiet)
                recent, quietest = quiet[0]
                if recent >= moved[name]:
                    break
                heapreplace(quiet, (moved[name], name))
                del self._addresses[quietest]
            self._addresses[name] = Series(ADDRESS_COUNTS, ADDRESS_LEVELS)
            self._addresses[name].recent = moved[name]
            chosen.add(name)
            yield  # the rings of 200 that have come together take some ms
        return chosen

    def _of_broker(self, ready: int) -> dict[str, int]:
        broker, counters = self.broker, self.broker.engine.counters
        return {
            "received": counters.get("received", 0),
            "delivered": counters.get("delivered", 0),
            "acknowledged": counters.get("acknowledged", 0),
            "removed": sum([count for name, count in counters.items() if name not in (*PASSED, *EVENTS)]),
            "errors": sum(broker.errors.values()),
            "commits": broker.committer.applied,
            "ready": ready,
            "connections": len(broker.connections),
            "memory_bytes": broker.engine.memory.size,
            "unsaved_bytes": broker.engine.unsaved,
        }

    def plot(self, address: str | None, span: str) -> Plot:
        """What was measured of an address; None: of the whole broker. An address that is not measured now has no series."""
        series = self._all if address is None else self._addresses.get(address)
        step = STEP if span == SPANS[0] else STEP * COARSE
        return Plot(address, span, self._until, step, {} if series is None else series.values(span))

    async def activity(self, names: Collection[str]) -> Activity:
        """What was sent to those of these addresses that are measured, in outline."""
        measured = [name for name in self._addresses if name in names]
        found = {}
        async for name in in_turns(self.broker.turns, measured):
            if name in self._addresses:  # it may have lost its place meanwhile
                found[name] = self._addresses[name].outline()
        return Activity(self._until, STEP * BROAD, found)


_NOT_ADDED_UP: Final[Mapping[str, int]] = dict.fromkeys((*ADDRESS_COUNTS, *ADDRESS_LEVELS), UNKNOWN)


def _of_address(address: Address, series: Series) -> Mapping[str, int]:
    if len(address.anycast) + len(address.topics) > MANY:
        return {**_NOT_ADDED_UP, "received": address.log.next}
    sums = sums_of(address)
    return {
        "received": address.log.next,
        "done": series.done(settled_by_queue(address)),
        "ready": sums.ready,
        "consumers": sums.consumers,
    }
