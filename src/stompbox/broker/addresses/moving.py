"""Messages of one queue to another address, by an operator: what waits there now, portion by portion, oldest first."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from stompbox.broker.addresses.redrive import Redrive
from stompbox.broker.logs.segments import Segment
from stompbox.broker.queues.paging import is_doubtful
from stompbox.message import Run

if TYPE_CHECKING:
    from stompbox.broker.engine import Engine
    from stompbox.broker.queues.queue import Queue


class Move(Redrive):
    """`to`: the address. The messages keep their headers, and are new ones there."""

    def __init__(self, engine: Engine, queue: Queue, to: str, *, most: int = -1, on_done: Callable[[int], None] | None = None) -> None:
        self.to = to
        super().__init__(engine, queue, most=most, on_done=on_done)

    def _send_back(self, segment: Segment) -> int:
        fitting = self._fitting(self.to, segment)
        if fitting is None:
            return 0
        run = fitting.run
        low, high = fitting.first - run.first, fitting.stop - run.first
        shape = run.shape.marked() if is_doubtful(self.queue, fitting) else run.shape
        copy = Run(shape, run.bodies[low:high], tuple([column[low:high] for column in run.columns]), sender=run.sender)
        self.engine.forward(self.to, copy)
        self._gone(fitting, "moved")
        return len(fitting)
