"""How long things took, as a histogram of fixed bounds: two numbers and a list, whatever happens.

Decides what is counted as the way of a message: from when the broker had it, or from when it was due, until it was encoded for a
subscription, once for each run. Redeliveries, streams and browsers are not counted: what they get may have been there for days.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from stompbox.broker.kinds import Kind
from stompbox.broker.queues.consumer import Output

# the upper bounds of the buckets; above the last one there is one more
BOUNDS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000)  # ms
_ANYCAST, _DURABLE, _TOPIC = (
    Kind.ANYCAST,
    Kind.DURABLE,
    Kind.TOPIC,
)  # compared by identity: a set would hash each time


class Latency:
    """How often what took how long. Of one thread; another one may look at it."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0  # ms

    def add(self, ms: float, count: int = 1) -> None:
        """`count` things took so long each."""
        self.counts[0 if ms <= 1 else bisect_left(BOUNDS, ms)] += count
        self.total += ms * count

    def deliver(self, output: Output, now: int, count: int) -> None:
        """So many messages of an output are on their way to a subscription."""
        kind = output.binding.queue.kind
        if output.is_redelivered or not (kind is _ANYCAST or kind is _TOPIC or kind is _DURABLE):
            return
        run = output.run
        since, special = run.arrived, run.shape.special
        if special is not None and (due := special.delivery_time(since)) > since:
            since = due
        if now <= since:  # most of them: in the turn in which they came
            self.counts[0] += count
        else:
            self.add(now - since, count)

    def __repr__(self) -> str:
        return f"<Latency {sum(self.counts)} in {self.total:.0f} ms>"
