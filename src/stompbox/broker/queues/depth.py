"""How much a queue holds: what waits, what waits for a time, what consumers have; and which of them take too little of it.

Slow consumers are those that take fewer messages than the settings of their address want, while more wait for them (Artemis). They are
looked at once per `slow-consumer-check-period`, on queues with consumers whose settings have a threshold. What is to be done is left in
`engine.slow` for the server: NOTIFY says so, KILL ends the connection.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from stompbox.broker.kinds import Kind
from stompbox.broker.queues.contracts import Slow
from stompbox.config.settings import SlowConsumerPolicy, SlowConsumerUnit

if TYPE_CHECKING:
    from stompbox.broker.queues.contracts import Address, Engine
    from stompbox.broker.queues.logged import LoggedQueue

# Kinds whose messages are theirs. Looked for by identity: the hash of a member of an enumeration is a function in Python
_HOLDS: Final = (Kind.ANYCAST, Kind.DURABLE, Kind.TOPIC)
# all that the log has from their position on is theirs
_POSITIONS: Final = (Kind.GROUP, Kind.READER)


class Depth(Struct, frozen=True):
    """Messages of one queue. `ready`: could go out now; `paged`: those of them that are in the log alone.

    What is in the log alone is not looked at, so `paged` counts messages too that the queue's selector will not take (`is_estimate`).
    """

    ready: int
    delayed: int
    delivering: int
    paged: int = 0
    is_estimate: bool = False

    @property
    def total(self) -> int:
        return self.ready + self.delayed + self.delivering


def depth_of(queue: LoggedQueue) -> Depth:
    if queue.kind in _POSITIONS:
        log = queue.address.log
        left = log.count(queue.cursor.ahead.gaps(queue.cursor.position, log.next))
        return Depth(max(0, left - queue.delivering), 0, queue.delivering, left, is_estimate=True)
    paged = _paged(queue) if queue.paged_from >= 0 else 0
    delayed = (queue.waits.count if queue.has_waits else 0) + (
        queue.later.count if queue.later is not None else 0
    )
    return Depth(queue.count + paged, delayed, queue.delivering, paged, is_estimate=paged > 0)


def _paged(queue: LoggedQueue) -> int:
    log = queue.address.log
    return log.count(queue.still_in_log(queue.paged_from, log.next))


class Sums(Struct):
    """Sums over all queues and subscriptions of an address; `settled`: messages that are done with."""

    ready: int = 0
    delayed: int = 0
    delivering: int = 0
    consumers: int = 0
    settled: int = 0
    is_estimate: bool = False

    def add(self, queue: LoggedQueue) -> None:
        if queue.kind in _HOLDS:
            depth = depth_of(queue)
            self.ready += depth.ready
            self.delayed += depth.delayed
            self.delivering += depth.delivering
            self.settled += queue.settled
            self.is_estimate |= depth.is_estimate
        self.consumers += queue.consumer_count


def sums_of(address: Address) -> Sums:
    sums = Sums()
    for queue in address.queues():
        sums.add(queue)
    return sums


def settled_by_queue(address: Address) -> dict[int, int]:
    """How many messages each queue and subscription of an address that holds some is done with, by its id."""
    return {queue.id: queue.settled for queue in address.queues() if queue.kind in _HOLDS}


def is_empty(queue: LoggedQueue) -> bool:
    """Nothing of it is anywhere: in memory, in the log alone, with a consumer."""
    return not (queue.delivering or queue.count or queue.has_waits or queue.later or queue.paged_from >= 0)


_SECONDS = {
    SlowConsumerUnit.MESSAGES_PER_SECOND: 1,
    SlowConsumerUnit.MESSAGES_PER_MINUTE: 60,
    SlowConsumerUnit.MESSAGES_PER_HOUR: 3600,
    SlowConsumerUnit.MESSAGES_PER_DAY: 86400,
}


def watch(engine: Engine, queue: LoggedQueue) -> None:
    """Begins to watch the consumers of a queue, if its settings say which are slow."""
    settings = queue.address.settings
    if settings.slow_consumer_threshold >= 0 and not queue.is_watched:
        queue.watch(is_watched=True)
        engine.timers.at(
            engine.now + 1000 * settings.slow_consumer_check_period, partial(_look, engine, queue)
        )


def _look(engine: Engine, queue: LoggedQueue) -> None:
    queue.watch(is_watched=False)
    if not queue.bindings or queue.id not in engine.queues:
        return
    settings = queue.address.settings
    threshold = settings.slow_consumer_threshold / _SECONDS[settings.slow_consumer_threshold_measurement_unit]
    is_waiting = queue.count > 0 or queue.paged_from >= 0
    for binding in queue.bindings:
        taken = binding.look()
        rate = taken / settings.slow_consumer_check_period
        if is_waiting and taken >= 0 and rate < threshold:
            engine.counters["slow-consumers"] += 1
            is_to_end = settings.slow_consumer_policy is SlowConsumerPolicy.KILL
            engine.slow.append(Slow(binding.consumer, queue, rate, threshold, is_to_end))
    watch(engine, queue)


def waiting(queue: LoggedQueue) -> int:
    """Messages that are still this queue's: delivered or not, loaded or not."""
    return sum(_stretches(queue))


def has_more(queue: LoggedQueue, most: int) -> bool:
    """Whether a queue has more than so many messages, looked through as far as it takes: what was acknowledged ahead may have very many
    gaps. What waits in memory is counted already."""
    return queue.count > most or any(count > most for count in accumulate(_stretches(queue)))


def _stretches(queue: LoggedQueue) -> Iterator[int]:
    if not queue.is_durable:
        yield queue.count + sum(binding.out for binding in queue.bindings) + (queue.paged_from >= 0)
        return
    log = queue.address.log
    position = queue.cursor.settle(queue.log_end if queue.kind is Kind.DURABLE else log.next)
    if position < log.next:
        for gap in queue.cursor.ahead.gaps(position, log.next):
            yield log.count((gap,))
