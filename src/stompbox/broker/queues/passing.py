"""Messages for one of very many queues of an address: the others pass them over, in steps behind all that is more urgent.

Whom a message is for stands in its routing (message.py, FOR_ONE), so that no other queue takes it for its own, before a restart or after
it. But a queue that nobody reads would hold it in the log, and all that comes behind it; so each queue is told, of all that came since
the last round together. A round walks through the queues once, however many messages came.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from stompbox.broker.queues import paging
from stompbox.broker.work import MESSAGE
from stompbox.message import ANYCAST, FOR_ONE
from stompbox.ranges import Ranges

if TYPE_CHECKING:
    from stompbox.broker.addresses.address import Address
    from stompbox.broker.engine import Engine
    from stompbox.broker.queues.queue import Queue
    from stompbox.message import Run

FEW: Final = 64  # queues that are told at once of each message that is not for them
STEP: Final = 64  # queues of one step


class Passing:
    """Of one address: what came since the last round began."""

    __slots__ = ("_address", "_all", "_own")

    def __init__(self, address: Address) -> None:
        self._address = address
        self._clear()

    def _clear(self) -> None:
        self._all: dict[bool, Ranges] = {}  # by whether it is for an anycast queue
        self._own: dict[int, Ranges] = {}  # what is for each queue, by its number

    def note(self, run: Run) -> None:
        """It is for one queue alone."""
        self._all.setdefault(bool(run.routing & ANYCAST), Ranges()).add(run.first, run.stop)
        self._own.setdefault(run.routing >> FOR_ONE, Ranges()).add(run.first, run.stop)
        self._address.engine.later.add(self, self._begin)

    def _begin(self) -> None:
        self._address.engine.later.take(self, self._rounds())

    def _rounds(self) -> Iterator[None]:
        address = self._address
        while self._all:
            every, own = self._all, self._own
            self._clear()
            for is_anycast, ranges in every.items():
                queues = address.anycast if is_anycast else address.topics
                for number, queue in enumerate(list(queues.values()), 1):
                    if queue.id in address.engine.queues:
                        _pass_over(queue, ranges, own.get(queue.cursor.number))
                    if number % STEP == 0:
                        address.engine.work.spend(MESSAGE * STEP)
                        yield

    def __repr__(self) -> str:
        return f"<Passing of {self._address.name}: {sum(map(len, self._all.values()))} ranges>"


def _pass_over(queue: Queue, ranges: Iterable[tuple[int, int]], own: Ranges | None) -> None:
    for first, stop in ranges:
        for low, high in own.gaps(first, stop) if own is not None else ((first, stop),):
            queue.skip(low, high)


def look(engine: Engine) -> None:
    """After a start: queues that were not told of everything before it read what the log has, so that they hold nothing for others."""
    for address in engine.addresses.values():
        if len(address.anycast) > FEW or len(address.topics) > FEW:
            engine.later.add((look, address), lambda address=address: engine.later.take((look, address), _looking(address)))  # type: ignore[misc]


def _looking(address: Address) -> Iterator[None]:
    for number, queue in enumerate([*address.anycast.values(), *address.topics.values()], 1):
        if queue.paged_from >= 0 and queue.id in address.engine.queues:
            paging.load(address.engine, queue)
        if number % STEP == 0:
            address.engine.work.spend(MESSAGE * STEP)
            yield
