"""What queues ask of the engine above them, and nothing else of it; and what they hand to it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from stompbox.recent import Recent

if TYPE_CHECKING:
    from collections import Counter, defaultdict

    from stompbox.broker.kinds import Rules
    from stompbox.broker.logs.cursor import Cursor
    from stompbox.broker.logs.log import Log
    from stompbox.broker.logs.segments import Segment
    from stompbox.broker.queues.consumer import Consumer
    from stompbox.broker.queues.memory import Memory, Remembered
    from stompbox.broker.queues.questions import Questions
    from stompbox.broker.queues.state import QueueState
    from stompbox.broker.timers import Alarm, Timers
    from stompbox.broker.undelivered import Undelivered
    from stompbox.broker.work import Turns, Work
    from stompbox.config.settings import AddressSettings
    from stompbox.message import Run
    from stompbox.selectors import Selector


Then = Callable[[Any, "list[Run]", int, int], None]
"""The queue, runs of the log from an offset on, complete up to another."""

Verdicts = Recent[tuple[int, int, int, bool], bool]
"""What selectors said of shapes: by the numbers of both, the log of the address where its name matters, and whether the messages outlive
a restart there."""


class Load:
    """Read `log` from start (to stop at the most, about max_bytes) and answer with Engine.loaded, which hands it on to `then`."""

    __slots__ = ("log", "queue", "start", "stop", "then")

    def __init__(self, queue: QueueState, start: int, stop: int, then: Then) -> None:
        self.then = then
        self.queue = queue
        self.log = queue.address.log.id
        self.start = start
        self.stop = stop

    @property
    def max_bytes(self) -> int:
        """What is read now: a page, as far as there is room in memory; a chunk of the log in any case."""
        address = self.queue.address
        return max(1, min(address.settings.page_size_bytes, address.memory.room))

    def __repr__(self) -> str:
        return f"<Load {self.start}..{self.stop} of log {self.log} for {self.queue.name}>"


@dataclass(frozen=True, slots=True)
class Slow:
    """A consumer that is too slow; `rate` and `threshold` in messages per second."""

    consumer: Consumer
    queue: QueueState
    rate: float
    threshold: float
    is_to_end: bool

    @property
    def text(self) -> str:
        return (
            f"subscription {self.consumer.name.removeprefix(chr(0))!r} took {self.rate:g} messages per second from queue "
            f"{self.queue.name!r}; its address wants {self.threshold:g} at least"
        )


class Taking(Protocol):
    """Whoever takes a queue's messages elsewhere, in steps."""

    def go_on(self) -> None:
        """What was asked for is loaded: the work goes on."""

    def give_up(self) -> None:
        """The queue is gone: the work ends."""


class Commits(Protocol):
    """What the next commit of the store must say."""

    dirty: dict[Any, None]  # addresses whose logs have news

    def tell_delivered(self, queue: Any, told: tuple[int, int, int, int], /) -> None:
        """How often these messages of the queue were delivered, and failed."""

    def restore_if_refused(self, restore: Callable[..., object], /) -> None:
        """What is to be done when the disk refuses the unit of work that is being done; nothing where there is none."""

    def restore_if_any_refused(self, restore: Callable[..., object], /) -> None:
        """What is to be done when the disk refuses one of the units of work that are not stored yet."""


class Fanout(Protocol):
    """Messages that go to some of very many queues at a time."""

    def end_for(self, queue: Any, /) -> int:
        """The offset behind the last message that the queue has had."""


class Address(Protocol):
    """What a queue is of. It says what became of the messages that came, for all its queues."""

    @property
    def name(self) -> str: ...
    @property
    def log(self) -> Log: ...
    @property
    def memory(self) -> Memory: ...
    @property
    def engine(self) -> Engine: ...
    @property
    def settings(self) -> AddressSettings: ...
    @property
    def rules(self) -> Rules: ...
    @property
    def owner(self) -> int: ...
    @property
    def topics(self) -> Container[int]: ...
    @property
    def fanout(self) -> Fanout | None: ...

    def settings_of(self, queue: str, /) -> AddressSettings:
        """The settings of one of its queues, which a frame may have made with arguments."""

    def queues(self) -> Iterable[Any]:
        """All queues of the address."""

    def is_answered(
        self, selector: Selector, segment: Segment, queue: int, /, *, waits: bool = True
    ) -> bool: ...

    def is_long(self, selector: Selector, segment: Segment, /) -> bool: ...

    def is_volatile(self, run: Run, /) -> bool:
        """Whether the messages of a run end with the broker."""

    def wanted_of(self, selector: Selector, segment: Segment, queue: int, /) -> list[tuple[int, int]]:
        """Which of the messages a selector takes, as far as that is known or can be asked at once."""

    def wanted_by_each(
        self, selectors: Collection[Selector], segment: Segment, queue: int, /
    ) -> dict[Selector, list[tuple[int, int]]]:
        """Answers as `wanted_of` does for each of some selectors."""

    def verdicts(self, queue: Any, run: Run, first: int, stop: int, /) -> Iterator[tuple[int, int, bool]]:
        """What was decided of messages in the log when they came: parts, and whether the queue was to have them."""

    def leave_out(self, queue: Any, before: int, session: int, /) -> None:
        """The queue gets nothing that this session sends from now on."""

    def rules_changed(self, queue: Any, /) -> None:
        """The queue became one of those that are asked about each message, or is one no more."""


class Engine(Protocol):
    """`queue` is a Queue everywhere; `address` an Address, which lies above."""

    now: int

    @property
    def work(self) -> Work: ...
    @property
    def later(self) -> Turns: ...
    @property
    def questions(self) -> Questions: ...
    @property
    def verdicts(self) -> Verdicts: ...
    @property
    def timers(self) -> Timers: ...
    @property
    def memory(self) -> Memory: ...
    @property
    def relief(self) -> Alarm: ...
    @property
    def counters(self) -> defaultdict[str, int]: ...
    @property
    def undelivered(self) -> Undelivered: ...
    @property
    def remembered(self) -> Remembered: ...
    @property
    def commits(self) -> Commits: ...
    @property
    def queues(self) -> Mapping[int, QueueState]: ...
    @property
    def returning(self) -> Counter[QueueState]: ...
    @property
    def loads(self) -> list[Load]: ...
    @property
    def slow(self) -> list[Slow]: ...
    @property
    def page_size(self) -> int: ...
    @property
    def is_durable(self) -> bool: ...
    @property
    def is_view(self) -> bool:
        """Whether it shows what another broker has stored: nothing comes in, and nothing goes for want of use."""

    def note(self, queue: Any, /) -> None:
        """The queue's cursor has news for the next commit."""

    def touch(self, consumer: Consumer, /) -> None:
        """The consumer's outbox has something to encode and write."""

    def dispatch_later(self, queue: Any, /) -> None:
        """The queue goes on when it is its turn."""

    def expire(self, queue: Any, segment: Segment, /) -> None:
        """Sends messages that have expired where expired ones go."""

    def expired_at_once(self, queue: Any, segment: Segment, /) -> int:
        """How many of these may do so in one step."""

    def dead_at_once(self, queue: Any, segment: Segment, /) -> int:
        """How many of these may become dead letters in one step."""

    def dead_letter(self, queue: Any, segment: Segment, reason: str, /) -> None:
        """Sends messages that are not delivered any more where dead letters go."""

    def is_spent(self, queue: Any, segment: Segment, /) -> bool:
        """Whether these messages, found in the log, had all their attempts before a restart."""

    def log_run(self, address: Any, run: Run, /, *, is_loose: bool = False) -> None:
        """The log needs the run. `is_loose`: for want of memory alone."""

    def add_queue(self, queue: Any, /) -> None:
        """The queue is there from now on."""

    def volatile_cursor(self, position: int, /) -> Cursor:
        """A new cursor that lives in memory only."""
