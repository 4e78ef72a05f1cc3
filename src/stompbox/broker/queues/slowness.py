"""Slow consumers: those that take fewer messages than the settings of their address want, while more wait for them (Artemis).

Looked at once per `slow-consumer-check-period`, on queues with consumers whose settings have a threshold. What is to be done is
left in `engine.slow` for the server: NOTIFY says so, KILL ends the connection.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from stompbox.config.settings import SlowConsumerPolicy, SlowConsumerUnit

if TYPE_CHECKING:
    from stompbox.broker.engine import Engine
    from stompbox.broker.queues.consumer import Consumer
    from stompbox.broker.queues.queue import Queue

_SECONDS = {
    SlowConsumerUnit.MESSAGES_PER_SECOND: 1,
    SlowConsumerUnit.MESSAGES_PER_MINUTE: 60,
    SlowConsumerUnit.MESSAGES_PER_HOUR: 3600,
    SlowConsumerUnit.MESSAGES_PER_DAY: 86400,
}


@dataclass(frozen=True, slots=True)
class Slow:
    """`rate` and `threshold` in messages per second."""

    consumer: Consumer
    queue: Queue
    rate: float
    threshold: float
    is_to_end: bool

    @property
    def text(self) -> str:
        return (
            f"subscription {self.consumer.name.removeprefix(chr(0))!r} took {self.rate:g} messages per second from queue "
            f"{self.queue.name!r}; its address wants {self.threshold:g} at least"
        )


def watch(engine: Engine, queue: Queue) -> None:
    """A consumer has come."""
    settings = queue.address.settings
    if settings.slow_consumer_threshold >= 0 and not queue.is_watched:
        queue.is_watched = True
        engine.timers.at(engine.now + 1000 * settings.slow_consumer_check_period, partial(_look, engine, queue))


def _look(engine: Engine, queue: Queue) -> None:
    queue.is_watched = False
    if not queue.bindings or queue.id not in engine.queues:
        return
    settings = queue.address.settings
    threshold = settings.slow_consumer_threshold / _SECONDS[settings.slow_consumer_threshold_measurement_unit]
    is_waiting = queue.count > 0 or queue.paged_from >= 0
    for binding in queue.bindings:
        rate = (binding.done - binding.seen) / settings.slow_consumer_check_period
        was_there = binding.seen >= 0
        binding.seen = binding.done
        if is_waiting and was_there and rate < threshold:
            engine.counters["slow-consumers"] += 1
            is_to_end = settings.slow_consumer_policy is SlowConsumerPolicy.KILL
            engine.slow.append(Slow(binding.consumer, queue, rate, threshold, is_to_end))
    watch(engine, queue)
