"""How much there may be: of all messages in memory, of one address, and what happens to what is too much.

Two things are counted, each run by run:

    Memory   what waits in queues in memory, octets about. A run counts once, however many queues hold it. When there is too much
             (`global-max-size`, or `max-size-bytes` of an address with policy PAGE) queues leave what comes in the log alone.
    Tally    per queue, what it has not consumed, in memory, with consumers or in the log alone. Only where an address has AddressLimits.

| address-full-policy | the address is full when                    | then                                                              |
|---------------------|---------------------------------------------|-------------------------------------------------------------------|
| PAGE                | (paging.py)                                 | the log alone has what comes                                      |
| PAGE, page-limit-…  | what is not consumed reaches the limit      | `page-full-policy`: as FAIL or DROP                               |
| FAIL                | what is not consumed reaches max-size-…, or | a SEND is refused, a transaction whole                            |
| DROP                | memory reaches global-max-…                 | messages are counted and go                                       |
| BLOCK               |                                             | they are taken; whoever sent them is read no further (the server) |

A message is taken as long as there is any room, so the last one may go beyond. What the broker itself sends (dead letters, expired
messages, diverts) is refused by nobody: only DROP drops it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Final

from stompbox.broker.addresses.contracts import address_of
from stompbox.broker.addresses.duplicates import new_ones
from stompbox.broker.kinds import Kind
from stompbox.broker.logs.segments import Segment
from stompbox.broker.queues.depth import is_empty, waiting
from stompbox.broker.queues.memory import Counted, Tally
from stompbox.broker.undelivered import Fate
from stompbox.config.settings import AddressFullPolicy, PageFullPolicy
from stompbox.errors import Refused
from stompbox.handles import Body
from stompbox.message import Run, Shape

if TYPE_CHECKING:
    from stompbox.broker.addresses.address import Address
    from stompbox.broker.addresses.contracts import Engine
    from stompbox.broker.queues.queue import Queue

CODE: Final = "address-full"  # of the ERROR, in the log and among the counters
BLOCKED: Final = "address-blocked"  # the same, where an operator lets nothing in
DOUBTED: Final = 100  # of the queues that may have something else than was counted: so many are asked whether they are empty
# who reads the log takes nothing, and holds nobody up
METERED: Final = frozenset((Kind.ANYCAST, Kind.DURABLE, Kind.TOPIC))


class AddressLimits:
    """The limits of an address that does more than page. `is_full` is what was found last: it changes with a log line (`Engine.full`)."""

    __slots__ = ("_bytes", "_messages", "_word", "address", "dropped", "is_full", "policy", "together")
    value: Final = "full"  # among the reasons for which connections wait

    def __init__(self, address: Address, together: Counted | None = None) -> None:
        """Goes on with what its anycast queues have `together`, where that was counted before."""
        settings = address.settings
        self.address = address
        self.together = together if together is not None else Counted()
        self.is_full = False
        self.dropped = 0  # messages, since it became full
        self.policy = settings.address_full_policy
        self._word = "max-size"
        self._bytes, self._messages = settings.max_size_bytes, settings.max_size_messages
        if self.policy is AddressFullPolicy.PAGE:
            self.policy = (
                AddressFullPolicy.FAIL
                if settings.page_full_policy is PageFullPolicy.FAIL
                else AddressFullPolicy.DROP
            )
            self._word = "page-limit"
            self._bytes, self._messages = settings.page_limit_bytes, settings.page_limit_messages

    def size(self) -> tuple[int, int]:
        """(bytes, messages) not consumed: of anycast queues together, of subscriptions the one that has most."""
        for tally in list(islice(self.together.unsure, DOUBTED)):
            self.together.unsure.pop(tally)
            self._make_sure(tally)
        most = self._most()
        return self.together.size + most[0], self.together.count + most[1]

    def _make_sure(self, tally: Tally) -> None:
        """What was only guessed at, after a restart, is put right when the queue is empty."""
        queue = self.address.engine.queues.get(tally.queue)
        if queue is not None and is_empty(queue):
            tally.clear()
        elif queue is not None:
            tally.doubt()  # behind the others

    def _most(self) -> tuple[int, int]:
        """What the subscription has that has most. There may be thousands: who has nothing is passed over, and who is empty is asked where
        that may be wrong."""
        tallies = [
            queue.tally
            for queue in self.address.topics.values()
            if queue.tally is not None and (queue.tally.count > 0 or queue.tally.is_guessed)
        ]
        for tally in tallies:
            if tally.is_guessed:
                self._make_sure(tally)
        return max([0, *[tally.size for tally in tallies]]), max([0, *[tally.count for tally in tallies]])

    def room(self) -> tuple[int, int]:
        """(bytes, messages) that fit; not more than nothing when it is full."""
        if self._word == "max-size" and self.address.engine.memory.is_full:
            return 0, 0
        size, count = self.size() if self._bytes >= 0 or self._messages >= 0 else (0, 0)
        return (
            self._bytes - size if self._bytes >= 0 else 1 << 62,
            self._messages - count if self._messages >= 0 else 1 << 62,
        )

    def fitting(self, shape: Shape, bodies: Sequence[Body], room: tuple[int, int]) -> int:
        """How many of these messages are taken, from the first on."""
        if room[0] <= 0 or room[1] <= 0:
            return 0
        head = shape.octets
        sums = list(accumulate([len(body) + head for body in bodies]))
        return min(len(bodies), bisect_left(sums, room[0]) + 1, room[1])

    def look(self) -> bool:
        """Looks whether the address is full now, and says so."""
        size, count = self.room()
        if (size <= 0 or count <= 0) != self.is_full:
            self.turn()
        return self.is_full

    def has_room_again(self) -> bool:
        """Whether those who wait may go on: some room has come, so that they do not stop at once again."""
        size, count = self.room()
        if size <= max(0, self._bytes // 8) or count <= max(0, self._messages // 8):
            return False
        if self.is_full:
            self.turn()
        return True

    def turn(self) -> None:
        """The address is full now, or not any more; the server says so."""
        self.is_full = not self.is_full
        self.address.engine.full.append((self, self.is_full, self.dropped))
        self.dropped = 0

    def refusal(self) -> Refused:
        """The error that a sender is told."""
        if not self.is_full:
            self.turn()
        return Refused(CODE, f"address {self.address.name!r} is full ({self.reason})")

    @property
    def reason(self) -> str:
        """Names the limits that are reached, with their values."""
        limits = {f"{self._word}-bytes": self._bytes, f"{self._word}-messages": self._messages}
        said = [f"{name} {most}" for name, most in limits.items() if most >= 0]
        memory = self.address.engine.memory
        if self._word == "max-size" and memory.is_full:
            said = [f"global-max-size {memory.most}"]
        return ", ".join(said)

    def kept(self, run: Run) -> Run | None:
        """The messages of a run that fit: all, where the address does not drop what is too much. None: not one of them."""
        if self.policy is not AddressFullPolicy.DROP:
            return run
        fits = self.fitting(run.shape, run.bodies, self.room())
        gone = len(run) - fits
        if not gone:
            if self.is_full:
                self.turn()
            return run
        if not self.is_full:
            self.turn()
        self.dropped += gone
        self.address.engine.counters[CODE] += gone
        self.address.engine.undelivered.note(self.address.name, CODE, Fate.DROPPED, gone)
        if not fits:
            return None
        return run.part(0, fits)

    def __repr__(self) -> str:
        return f"<Limits of {self.address.name}: {self.policy.value} {self.reason}{' full' if self.is_full else ''}>"


def apply(address: Address) -> None:
    """The address's settings are new: what they limit."""
    change(address)
    for queue in address.queues():
        meter(queue)


def change(address: Address) -> None:
    """Gives the limits of the settings to an address but not to its queues, which are metered by who asks: they may be very many."""
    settings = address.settings
    memory = address.memory
    is_paging = settings.address_full_policy is AddressFullPolicy.PAGE
    memory.limit(
        settings.max_size_bytes if is_paging else -1, settings.max_size_messages if is_paging else -1
    )
    is_limited = (
        settings.page_limit_bytes >= 0 or settings.page_limit_messages >= 0
        if is_paging
        else not address.owner
    )
    together = address.limits.together if address.limits is not None else None
    address.limit(AddressLimits(address, together) if is_limited else None)


def end(address: Address) -> None:
    """The address goes: it is not full any more."""
    if address.limits is not None and address.limits.is_full:
        address.limits.turn()


def meter(queue: Queue) -> None:
    """A queue of an address counts what it has, if that is limited."""
    limits = address_of(queue).limits
    if limits is None or queue.kind not in METERED:
        leave(queue)
        return
    together = limits.together if queue.kind is Kind.ANYCAST else None
    if queue.tally is not None:
        queue.tally.join(together)
        return
    tally = Tally(queue.id, together)
    if not is_empty(queue):
        tally.doubt()
    queue.measure(tally)


def leave(queue: Queue) -> None:
    """A queue counts no more what it has."""
    if queue.tally is not None:
        queue.tally.join(None)
        queue.measure(None)


def measure(engine: Engine, sizes: Callable[[Iterable[int]], Mapping[int, tuple[int, int]]]) -> None:
    """After a start: about what is there, by what the store says of logs (`Store.sizes`)."""
    limited = [address for address in engine.addresses.values() if address.limits is not None]
    stored = sizes([address.log.id for address in limited if address.log.is_known])
    for address in limited:
        for queue in address.queues():
            estimate(queue, unmeasured(queue), stored.get(address.log.id, (0, 0)))


def unmeasured(queue: Queue) -> int:
    """Messages that a queue has, where its tally does not know of any."""
    return waiting(queue) if queue.tally is not None and not queue.tally.count else 0


def estimate(queue: Queue, count: int, stored: tuple[int, int]) -> None:
    """So many messages wait in a queue, of all those that the store has of its log: how many these are, and their octets."""
    if queue.tally is not None and count:
        messages, size = stored
        queue.tally.guess(count * size // messages if messages else queue.backlog.size, count)


def require(sends: Iterable[tuple[Address, Run]]) -> None:
    """Raises Refused where not all of these would be taken by addresses that refuse (FAIL)."""
    for _ in requiring(sends):
        pass


STEP: Final = 50  # runs of a transaction that are looked at in one step


def requiring(sends: Iterable[tuple[Address, Run]]) -> Iterator[None]:
    """Requires room as `require` does, some runs in each step."""
    rooms: dict[Address, tuple[int, int]] = {}
    seen: dict[Address, dict[bytes, None]] = {}
    for number, (address, run) in enumerate(sends, 1):
        if number % STEP == 0:
            yield
        limits = address.limits
        if limits is None or limits.policy is not AddressFullPolicy.FAIL:
            continue
        room = rooms.get(address) or limits.room()
        bodies = [run.bodies[index] for index in new_ones(address, run, seen.setdefault(address, {}))]
        if limits.fitting(run.shape, bodies, room) < len(bodies):
            raise limits.refusal()
        rooms[address] = (
            room[0] - sum(map(len, bodies)) - run.shape.octets * len(bodies),
            room[1] - len(bodies),
        )


def taken(address: Address, segment: Segment) -> tuple[int, str]:
    """How many of these messages the address takes now, from the first on, and the code of the refusal of the others. They wait elsewhere,
    so that an address which would drop them, or have their sender wait, takes no more than one that refuses."""
    if address.is_blocked:
        return 0, BLOCKED
    if address.limits is None:
        return len(segment), ""
    run = segment.run
    bodies = run.bodies[segment.first - run.first : segment.stop - run.first]
    return address.limits.fitting(run.shape, bodies, address.limits.room()), CODE


class Fitting:
    """Whether addresses that refuse (FAIL) would take all of what is known by its sizes alone; each kind of message is told of once."""

    def __init__(self) -> None:
        self._rooms: dict[Address, tuple[int, int]] = {}

    def take(self, address: Address, shape: Shape, count: int, size: int, last: int) -> None:
        """So many messages with bodies of `size` octets, `last` of them in the last one. Raises Refused where they do not fit."""
        limits = address.limits
        if limits is None or limits.policy is not AddressFullPolicy.FAIL or not count:
            return
        room, head = self._rooms.get(address) or limits.room(), shape.octets
        before = size - last + head * (count - 1)  # the last one may go beyond
        if room[0] <= 0 or room[1] < count or (count > 1 and before >= room[0]):
            raise limits.refusal()
        self._rooms[address] = (room[0] - size - head * count, room[1] - count)


def came(run: Run, targets: Iterable[tuple[Queue, list[tuple[int, int]]]]) -> None:
    """Counts a run that was routed to these queues."""
    for queue, ranges in targets:
        if queue.tally is not None:
            queue.tally.came(run, ranges)
