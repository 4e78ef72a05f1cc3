"""What messages take in memory, octets about: those that wait, and those that consumers have and did not acknowledge.

`Memory` is of one address, and of all: what waits there. A run counts once, however many queues hold some of it. As a whole it has
`global-max-size` together with what consumers have and did not acknowledge, and what else is kept for clients (`kept`: server/ledger.py):
what these take is not there for messages, which stay in the log instead. Neither may take all of it.

`Allowance` is what one session keeps in memory by its subscriptions: messages that it was handed and has not acknowledged, what it asked
for, and the queues that these are bound to. A window bounds one subscription; a client may have a thousand. So those of a session have a
bound together (`most`), and all sessions have one (`Unacknowledged.most`). Beyond them a subscription that has something gets no more,
and its messages stay in their queues; one that has nothing gets one message at a time, so that nobody waits for ever.

A wildcard binds a subscription to as many queues as there are addresses that it covers, so their number has a bound of its own. Beyond it
a SUBSCRIBE is refused; who is bound to a queue that somebody makes later must not miss messages without being told, and is closed.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable
from typing import Any, Final, Protocol

from stompbox.broker.logs.segments import Segment, cost_of, share_of
from stompbox.broker.work import Work
from stompbox.errors import TooManyBindings
from stompbox.message import Run, Shape

NO_LIMIT: Final = 1 << 62
LOOKED: Final = (
    16  # consumers that were asked and may have no more, after which the others wait for the next time
)
SHARE: Final = 64 << 10  # octets that a session may have in any case, however much the others have
# octets of memory that a queue of a subscription's own takes, with something in it, at a guess
BOUND: Final = 2 << 10


class Holder(Protocol):
    """Who is handed messages: a consumer, with the connection that it belongs to."""

    @property
    def owner(self) -> Any: ...
    @property
    def is_closed(self) -> bool: ...
    @property
    def has_credit(self) -> bool: ...
    def feed(self) -> None: ...


class Account(Protocol):
    """Who counts what is kept for a session."""

    def subscribe(self, octets: int) -> None: ...


class Unacknowledged:
    """Octets of memory that delivered messages take, of all sessions. A run counts once, however many have some of it."""

    __slots__ = ("bindings", "denied", "most", "size")

    def __init__(self) -> None:
        self.size = 0
        self.bindings: Counter[str] = Counter()  # of all sessions of a user, by its name
        self.most = NO_LIMIT
        self.denied: OrderedDict[Holder, None] = OrderedDict()  # who would have got more

    def limit(self, most: int) -> None:
        self.most = most

    def feed(self, work: Work) -> bool:
        """Feeds consumers that were denied and may have more now; LOOKED that may not are looked at, and come again behind the others. True
        where the portion is used up before all were."""
        misses = 0
        while self.denied and misses < LOOKED:
            consumer, _ = self.denied.popitem(last=False)
            if consumer.is_closed:
                continue
            if consumer.has_credit:  # else it is among them again
                consumer.feed()
                if self.denied and work.is_late:
                    return True
            else:
                misses += 1
        return False

    def __repr__(self) -> str:
        return f"<Unacknowledged {self.size} octets>"


class Allowance:
    """What one session may have. `size`: octets of messages that are not acknowledged; `subscribed`: of its subscriptions themselves.
    `bindings`: the queues that they are bound to; `most_bindings` of the session, and of all those of its `user`; -1: any number.
    `maker`: who asks, for whom the addresses and queues count that its frames make. `account`: it is told of what is subscribed."""

    __slots__ = (
        "account",
        "bindings",
        "maker",
        "most",
        "most_bindings",
        "size",
        "subscribed",
        "user",
        "whole",
    )

    def __init__(
        self,
        whole: Unacknowledged | None = None,
        most: int = NO_LIMIT,
        most_bindings: tuple[int, int] = (-1, -1),
        account: Account | None = None,
    ) -> None:
        self.whole = whole if whole is not None else Unacknowledged()
        self.most = most
        self.size = 0
        self.subscribed = 0
        self.bindings = 0
        self.most_bindings = most_bindings
        self.user = ""
        self.maker: Any = None  # a Maker (addresses/makers.py), or none
        self.account = account

    def enter(self, maker: Any) -> None:
        """The session is this user's from now on."""
        self.user, self.maker = maker.user, maker

    def require_bindings(self, consumer: Holder, count: int = 1) -> None:
        """Raises TooManyBindings where a subscription must not be bound to so many more queues."""
        most, most_of_user = self.most_bindings
        if 0 <= most < self.bindings + count:
            text = f"the subscriptions of this connection are bound to {self.bindings} queues; the limit is {most} (maxBindings)"
            raise TooManyBindings("too-many-bindings", text, consumer=consumer)
        of_user = self.whole.bindings[self.user] if self.user and most_of_user >= 0 else 0
        if self.user and 0 <= most_of_user < of_user + count:
            text = f"the subscriptions of user {self.user!r} are bound to {of_user} queues; the limit is {most_of_user}"
            raise TooManyBindings("too-many-bindings", f"{text} (maxBindingsPerUser)", consumer=consumer)

    def bind(self, count: int) -> None:
        """A subscription is bound to a queue (1), or is not any more (-1)."""
        self.bindings += count
        self.subscribe(count * BOUND)
        self.whole.bindings[self.user] += count
        if not self.whole.bindings[self.user]:
            del self.whole.bindings[self.user]

    def subscribe(self, cost: int) -> None:
        """A subscription takes so many octets from now on; less than nothing: it gives them back."""
        self.subscribed += cost
        if self.account is not None:
            self.account.subscribe(cost)

    def take(self, run: Run, octets: int, count: int) -> None:
        """Messages of a run, which take so many octets (Segment.octets), are handed out."""
        self.size += octets
        if not run.takers:
            self.whole.size += run.cost if run.cost >= 0 else cost_of(run)
        run.takers += count

    def give_back(self, run: Run, octets: int, count: int) -> None:
        self.size -= octets
        run.takers -= count
        if not run.takers:
            self.whole.size -= run.cost

    @property
    def has_room(self) -> bool:
        return self.size < self.most and (self.whole.size < self.whole.most or self.size < SHARE)

    def fitting(self, segment: Segment) -> int:
        """How many of its messages may go, one at the least."""
        room, count = self.most - self.size, segment.stop - segment.first
        if segment.octets <= room:
            return count
        by_size = count if segment.run.is_large else segment.fitting(room)
        return max(1, min(by_size, room // share_of(segment.run)))

    def __repr__(self) -> str:
        return f"<Allowance unacknowledged={self.size} of {self.most} subscribed={self.subscribed}>"


class Memory:
    """Counts the memory that an address, or the engine, takes for messages. `whole`: that of the engine, of which this one is a part.
    `unacknowledged`: the engine's, of the whole."""

    __slots__ = (
        "count",
        "is_pressed",
        "kept",
        "looked",
        "most",
        "most_messages",
        "size",
        "unacknowledged",
        "whole",
    )

    def __init__(self, whole: Memory | None = None, unacknowledged: Unacknowledged | None = None) -> None:
        self.whole = whole
        self.unacknowledged = unacknowledged
        self.kept = 0
        self.size = self.count = 0
        self.most = self.most_messages = NO_LIMIT
        self.is_pressed = False  # as a whole: it was full since reclaim.py has looked, at `looked`
        self.looked = -NO_LIMIT

    def limit(self, size: int, messages: int) -> None:
        """Sets the most octets and messages that are taken; -1: no limit."""
        self.most = size if size >= 0 else NO_LIMIT
        if self.unacknowledged is not None:
            self.unacknowledged.limit(size // 2 if size >= 0 else NO_LIMIT)
        self.most_messages = messages if messages >= 0 else NO_LIMIT

    def begin_relief(self, now: int, pause: int) -> bool:
        """Whether it is time to look again for what can be given back: `pause` ms after the last time."""
        if now < self.looked + pause:
            return False
        self.looked = now
        return True

    def end_relief(self) -> bool:
        """What could be given back was: whether it is still full."""
        self.is_pressed = self.is_full
        return self.is_pressed

    def hold(self, run: Run) -> None:
        run.holders += 1
        if run.holders == 1:
            self._add(cost_of(run), len(run.bodies))

    def release(self, run: Run) -> None:
        run.holders -= 1
        if not run.holders:
            self._add(-cost_of(run), -len(run.bodies))

    def count_beside(self, size: int) -> None:
        """What is kept beside the messages takes so many octets more, or less."""
        self._add(size, 0)

    def _add(self, size: int, count: int) -> None:
        self.size += size
        self.count += count
        if self.whole is not None:
            self.whole._add(size, count)
        elif self.taken >= self.most or self.count >= self.most_messages:
            self.is_pressed = True

    def takes(self, size: int, count: int) -> bool:
        """Whether there is room for so much more here; as a whole, whether there is any."""
        if self.taken + size > self.most or self.count + count > self.most_messages:
            return False
        return self.whole is None or not self.whole.is_full

    @property
    def taken(self) -> int:
        """Octets that are not there for what comes."""
        if self.unacknowledged is None:
            return self.size
        return self.size + min(self.kept, self.most // 4) + self.unacknowledged.size

    @property
    def room(self) -> int:
        """Octets that it may take besides, and all together may; none where these are too many messages."""
        room = 0 if self.count >= self.most_messages else self.most - self.taken
        return room if self.whole is None else min(room, self.whole.room)

    @property
    def is_crowded(self) -> bool:
        """Whether all together take an eighth more than they may: queues that have a SHARE each, although memory is full, are many."""
        if self.whole is not None:
            return self.whole.is_crowded
        return self.taken > self.most + self.most // 8

    @property
    def is_full(self) -> bool:
        """Whether this address, or all together, take as much as they may."""
        if self.taken >= self.most or self.count >= self.most_messages:
            return True
        return self.whole is not None and self.whole.is_full

    def __repr__(self) -> str:
        return f"<Memory {self.count} messages {self.size} octets{' full' if self.is_full else ''}>"


class Remembered:
    """How many message groups all queues remember."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def add(self, count: int) -> None:
        self.count += count

    def __repr__(self) -> str:
        return f"<Remembered {self.count}>"


class Counted:
    """What some queues have together that is not consumed: as much as the tallies of each say that say more than nothing. `unsure`: those
    that may be wrong."""

    __slots__ = ("count", "size", "unsure")

    def __init__(self) -> None:
        self.size = self.count = 0
        self.unsure: dict[Tally, None] = {}

    def differ(self, size: int, count: int) -> None:
        self.size += size
        self.count += count


class Tally:
    """A tally counts what was routed to one queue and is not consumed: `size` octets, with those of headers, and `count` messages.
    `queue`: its id. `whole`: where it is added up with those of others."""

    __slots__ = ("count", "is_guessed", "queue", "size", "whole")

    def __init__(self, queue: int = 0, whole: Counted | None = None) -> None:
        self.queue = queue
        self.whole: Counted | None = None
        self.size = self.count = 0
        self.is_guessed = False
        self.join(whole)

    def join(self, whole: Counted | None) -> None:
        """Adds it up there from now on, and nowhere else."""
        if whole is self.whole:
            return
        size, count = self.taken
        if self.whole is not None:
            self.whole.differ(-size, -count)
            self.whole.unsure.pop(self, None)
        self.whole = whole
        if whole is not None:
            whole.differ(size, count)
            if self.is_guessed:
                whole.unsure[self] = None

    @property
    def taken(self) -> tuple[int, int]:
        """(bytes, messages); nothing where it was wrong, and knows of less."""
        return max(0, self.size), max(0, self.count)

    def came(self, run: Run, ranges: Iterable[tuple[int, int]]) -> None:
        head = run.shape.octets
        for first, stop in ranges:
            count = stop - first
            start = first - run.first
            size = run.size if count == len(run.bodies) else sum(map(len, run.bodies[start : start + count]))
            self.less(-size - head * count, -count)

    def gone(self, size: int, count: int, shape: Shape) -> None:
        self.less(size + shape.octets * count, count)

    def less(self, size: int, count: int) -> None:
        """Counts messages off; `size`: with the octets of headers."""
        before = self.taken
        self.count -= count
        self.size -= size
        if self.whole is not None:
            after = self.taken
            self.whole.differ(after[0] - before[0], after[1] - before[1])

    def guess(self, size: int, count: int) -> None:
        """Counts messages that are there after a restart, with about so many octets."""
        self.doubt()
        self.less(-size, -count)

    def doubt(self) -> None:
        """The queue may have other messages than those that are counted: until it is empty this may be wrong."""
        self.is_guessed = True
        if self.whole is not None:
            self.whole.unsure[self] = None

    def clear(self) -> None:
        """The queue has nothing."""
        self.less(self.size, self.count)
        self.is_guessed = False
        if self.whole is not None:
            self.whole.unsure.pop(self, None)
