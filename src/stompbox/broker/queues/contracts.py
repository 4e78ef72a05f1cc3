"""What queues ask of the engine above them, and nothing else of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections import Counter

    from stompbox.broker.logs.cursor import Cursor
    from stompbox.broker.logs.segments import Segment
    from stompbox.broker.queues.consumer import Consumer
    from stompbox.broker.queues.depth import Slow
    from stompbox.broker.queues.memory import Memory
    from stompbox.broker.queues.paging import Load
    from stompbox.broker.queues.queue import Queue
    from stompbox.broker.timers import Alarm, Timers
    from stompbox.broker.undelivered import Undelivered
    from stompbox.broker.work import Turns, Work
    from stompbox.message import Run


class Taking(Protocol):
    """Whoever takes a queue's messages elsewhere, in steps."""

    def go_on(self) -> None:
        """Something was loaded."""

    def give_up(self) -> None:
        """The queue is gone."""


class Commits(Protocol):
    """What the next commit of the store must say."""

    dirty: dict[Any, None]  # addresses whose logs have news

    def tell_delivered(self, queue: Any, told: tuple[int, int, int, int], /) -> None:
        """How often these messages of the queue were delivered, and failed."""

    def restore_if_refused(self, restore: Callable[..., object], /) -> None:
        """What is to be done when the disk refuses the unit of work that is being done; nothing where there is none."""

    def restore_if_any_refused(self, restore: Callable[..., object], /) -> None:
        """The same for each unit of work that is not stored yet, and may never be."""


class Engine(Protocol):
    """`queue` is a Queue everywhere; `address` an Address, which lies above."""

    now: int

    @property
    def work(self) -> Work: ...
    @property
    def later(self) -> Turns: ...
    @property
    def timers(self) -> Timers: ...
    @property
    def memory(self) -> Memory: ...
    @property
    def relief(self) -> Alarm: ...
    @property
    def counters(self) -> Counter[str]: ...
    @property
    def undelivered(self) -> Undelivered: ...
    @property
    def commits(self) -> Commits: ...
    @property
    def queues(self) -> Mapping[int, Queue]: ...
    @property
    def returning(self) -> Counter[Queue]: ...
    @property
    def loads(self) -> list[Load]: ...
    @property
    def slow(self) -> list[Slow]: ...
    @property
    def page_size(self) -> int: ...
    @property
    def is_durable(self) -> bool: ...

    def note(self, queue: Any, /) -> None:
        """The queue's cursor has news for the next commit."""

    def touch(self, consumer: Consumer, /) -> None:
        """The consumer's outbox has something to encode and write."""

    def dispatch_later(self, queue: Any, /) -> None:
        """The queue goes on when it is its turn."""

    def expire(self, queue: Any, segment: Segment, /) -> None:
        """These messages have expired."""

    def dead_letter(self, queue: Any, segment: Segment, reason: str, /) -> None:
        """These messages are not delivered any more."""

    def is_spent(self, queue: Any, segment: Segment, /) -> bool:
        """Whether these messages, found in the log, had all their attempts before a restart."""

    def log_run(self, address: Any, run: Run, /, *, is_loose: bool = False) -> None:
        """The log needs the run. `is_loose`: for want of memory alone."""

    def add_queue(self, queue: Any, /) -> None:
        """The queue is there from now on."""

    def volatile_cursor(self, position: int, /) -> Cursor:
        """A cursor that lives in memory only."""
