"""What a queue may read of its log: whether its consumers have room for more, and what was read and not looked through yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stompbox.broker.logs.segments import cost_of_all

if TYPE_CHECKING:
    from stompbox.broker.queues.consumer import Binding
    from stompbox.broker.queues.state import QueueState
    from stompbox.message import Run


class Unread:
    """Runs of the log that were read, complete up to `stop`, and looked through up to `start`: the work of a turn was used up. `cost`:
    octets of memory that they take, about."""

    __slots__ = ("cost", "runs", "start", "stop")

    def __init__(self, runs: list[Run], start: int, stop: int) -> None:
        self.runs = runs
        self.start = start
        self.stop = stop
        self.cost = cost_of_all(runs)


class Room:
    """Which consumers of a queue have nothing unacknowledged, after others of them had too much, and whether it waits until some of that
    comes back. Nobody looks through the consumers for it, but once."""

    __slots__ = ("_idle", "is_awaited")

    def __init__(self, queue: QueueState) -> None:
        self._idle: dict[Binding, None] = dict.fromkeys(
            [binding for binding in queue.bindings if not binding.out]
        )
        self.is_awaited = False

    def has_idle(self, queue: QueueState) -> bool:
        """Whether one who has nothing has credit; who has none is not asked again before he is fed."""
        if queue.takers is not queue.bindings:  # one or none
            return any(not binding.out and binding.consumer.has_credit for binding in queue.takers)
        while self._idle:
            binding, _ = self._idle.popitem()
            if binding.out:
                continue
            if binding.consumer.has_credit:
                self._idle[binding] = None
                return True
            binding.starve()
        return False

    def has_idle_or_waits(self, queue: QueueState) -> bool:
        """Whether one who has nothing has credit, and there is nothing at hand for it; else it waits until something comes back."""
        if not queue.count and self.has_idle(queue):
            return True
        self.is_awaited = True
        return False

    def readmit(self, binding: Binding) -> None:
        """Lists a consumer that has come, or was fed, as one that may get messages."""
        if not binding.out:
            self._idle[binding] = None

    def grow(self, queue: QueueState, binding: Binding) -> None:
        """A consumer has given something back, or acknowledged it."""
        self.readmit(binding)
        if self.is_awaited:
            self.is_awaited = False
            queue.engine.dispatch_later(queue)

    def leave(self, binding: Binding) -> None:
        self._idle.pop(binding, None)
