"""What a message is: a row of a run.

    Shape   what many messages have in common: the headers of their SEND, parsed and judged once
    Run     messages of one shape that came one after another: bodies, and a column for each header that varies (a hole)

    Large   a body that is not here: it lies in the store in pieces, and whoever has its handle can have them read (broker/logs/bodies.py)

A single message is (run, index). State per message exists only for the exceptions (delivered and not yet acknowledged,
redelivered), and lives in the queue that has the exception, never here. A run never changes once it has its offset.

This file decides what is kept of a SEND. It does not read bytes (stomp/), route (broker/) or store (store/).

| field            | unit    | owner                                                              |
|------------------|---------|--------------------------------------------------------------------|
| Shape.headers    | text    | the sender: names and values, decoded, first of each name, broker's own names left out |
| Shape.holes      | names   | the codec: headers whose values differ from message to message    |
| Shape.persistent | or None | the sender; None: what the address settings say                    |
| Shape.priority   | 0..9    | the sender, default 4 (JMS)                                        |
| Shape.expires    | ms      | the sender, absolute since the epoch, 0 = never (JMSExpiration)    |
| Shape.has_length | bool    | the sender gave content-length; decides whether a 1.0 client gets one |
| Shape.retain     | set, remove or empty | the sender: the last one of a topic that new subscriptions get first |
| Shape.is_suspect | yes, no | the engine: a copy of what may have been delivered before a crash  |
| Shape.special    | or None | what its headers ask for when it arrives; None for most            |
| Run.is_large     | yes, no | the server: all its bodies are handles, or none                    |
| Run.is_staged    | yes, no | the server: all that its messages hold lies in the store, as one chunk (store/staged.py) |
| Run.first        | offset  | the engine, in the address's log                                   |
| Run.arrived      | ms      | the engine, since the epoch                                        |
| Run.routing      | bits    | the engine: ANYCAST, MULTICAST or both; above them FOR_ONE         |
| Run.queue        | name    | the sender (`address::queue`): the one queue it is for, else empty  |
| Run.sender       | id      | the session it came from (no-local), 0 after a restart             |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any, Final

from stompbox.handles import Body, Large, Staged
from stompbox.numerals import digits
from stompbox.recent import Recent

_NUMBERS: Final = count()
MEMO: Final = 256  # octets
ANYCAST: Final = 1
MULTICAST: Final = 2
KINDS: Final = ANYCAST | MULTICAST
# how far left in a routing the number stands of the one queue that a run is for; 0: all queues of the kind
FOR_ONE: Final = 2
VOLATILE: Final = 1 << 28  # in that number: the queue is not stored
DEFAULT_PRIORITY: Final = 4

# Headers of a SEND that are the broker's to write: a sender's value is not passed on.
BROKER_HEADERS: Final = frozenset(
    (
        "subscription",
        "ack",
        "message-id",
        "redelivered",
        "JMSXDeliveryCount",
        "receipt",
        "transaction",
        "content-length",
    )
)

# in a shape's headers: of copies of what may have been delivered, and copied, before a crash
REDELIVERED: Final = "redelivered"

# What a copy that could not be delivered says of where it came from (broker/addresses/redelivery.py), and a redrive believes
ORIGINAL_ID: Final = "_AMQ_ORIG_MESSAGE_ID"
ORIGINAL_ADDRESS: Final = "_AMQ_ORIG_ADDRESS"
ORIGINAL_QUEUE: Final = "_AMQ_ORIG_QUEUE"
ACTUAL_EXPIRY: Final = "_AMQ_ACTUAL_EXPIRY"
REASON: Final = "dead-letter-reason"
# All that the broker alone says of a message: no sender's value comes in. (`original-destination` is what others call an address, too.)
NOT_TAKEN: Final = BROKER_HEADERS | {ORIGINAL_ID, ORIGINAL_ADDRESS, ORIGINAL_QUEUE, ACTUAL_EXPIRY, REASON}

# Headers that ask for something when a message arrives
EXPIRATION: Final = "expiration"  # RabbitMQ: ms from now
SCHEDULED_DELAY: Final = "AMQ_SCHEDULED_DELAY"  # ms from now
SCHEDULED_TIME: Final = "AMQ_SCHEDULED_TIME"  # ms since the epoch
SCHEDULED_PERIOD: Final = "AMQ_SCHEDULED_PERIOD"  # ms from one message to the next
SCHEDULED_REPEAT: Final = "AMQ_SCHEDULED_REPEAT"  # messages after the first
SCHEDULED_CRON: Final = "AMQ_SCHEDULED_CRON"  # times of the first
SCHEDULED: Final = frozenset(
    (SCHEDULED_DELAY, SCHEDULED_TIME, SCHEDULED_PERIOD, SCHEDULED_REPEAT, SCHEDULED_CRON)
)
MANDATORY: Final = (
    "mandatory"  # false: what goes to a temporary destination that is gone is dropped, and no fault
)
GROUP: Final = "JMSXGroupID"
GROUP_SEQUENCE: Final = "JMSXGroupSeq"
DUPLICATE_ID: Final = "_AMQ_DUPL_ID"
# Artemis: STOMP and a number, where a listener gives one (server/addressing/brokerheaders.py)
NUMBER: Final = "amqMessageId"
_SPECIAL: Final = frozenset((EXPIRATION, *SCHEDULED, GROUP, DUPLICATE_ID))


class Special:
    """What the headers of a shape ask for when its messages arrive. What is no number asks for nothing here: a SEND with such a
    value is refused before (stomp/shapes.py)."""

    __slots__ = (
        "cron",
        "delay",
        "due",
        "is_grouped",
        "is_numbered",
        "period",
        "repeat",
        "repeats",
        "time_to_live",
    )

    def __init__(self, headers: Mapping[str, str], holes: Sequence[str]) -> None:
        self.time_to_live: Final = milliseconds(headers.get(EXPIRATION), -1)  # ms; -1 none
        self.delay: Final = milliseconds(headers.get(SCHEDULED_DELAY), 0)  # ms after it arrived
        self.due: Final = milliseconds(headers.get(SCHEDULED_TIME), 0)  # ms since the epoch
        self.period: Final = milliseconds(headers.get(SCHEDULED_PERIOD), 0)  # ms; 0 none
        self.repeat: Final = (
            -1
            if headers.get(SCHEDULED_REPEAT, "").startswith("-")
            else milliseconds(headers.get(SCHEDULED_REPEAT), 0)
        )
        self.cron: Final = headers.get(SCHEDULED_CRON, "")
        # a schedule sends them (broker/addresses/repeating.py)
        self.repeats: Final = bool(self.period or self.cron)
        self.is_grouped: Final = bool(headers.get(GROUP)) or GROUP in holes
        # duplicates are to be dropped
        self.is_numbered: Final = DUPLICATE_ID in headers or DUPLICATE_ID in holes

    def delivery_time(self, arrived: int) -> int:
        """When it is to be delivered, ms since the epoch; 0 at once."""
        return arrived + self.delay if self.delay else self.due


def milliseconds(text: str | None, default: int) -> int:
    """The number that a header holds, or `default`. Negative ones are no time."""
    found = None if text is None else digits(text)
    return default if found is None else found


def room_of(text: str) -> int:
    """Octets that the characters of a text take in memory: one each, or two or four where one of them is not Latin."""
    return len(text) if text.isascii() else text.__sizeof__()


class Shape:
    """The headers that a run of messages share, and what they mean. Treat as immutable; the dicts below `cache` are memos.

    What is made of the headers, and is longer than MEMO octets, does not stay here: there may be a hundred thousand shapes, each with more
    copies of a long header than anybody counts. Who makes it again and again keeps what was made last (recent.py).

    `headers` keeps the order of the SEND and holds `destination`; `holes` names headers that are not in `headers` because
    each message has its own value. Hole values are bytes that mean themselves in every version: printable ASCII
    without colon and backslash.
    """

    __slots__ = (
        "cache", "destination", "expires", "has_length", "headers", "holes", "is_suspect", "number", "octets", "persistent", "plans",
        "priority", "retain", "routes", "special", "was_sent",
    )  # fmt: skip

    def __init__(
        self,
        headers: Mapping[str, str],
        *,
        holes: tuple[str, ...] = (),
        persistent: bool | None = None,
        priority: int = DEFAULT_PRIORITY,
        expires: int = 0,
        has_length: bool = True,
    ) -> None:
        self.number: Final = next(_NUMBERS)  # no other has it while this process runs
        self.headers: Final = headers
        self.destination: Final = headers["destination"]
        # of the headers, as they are on the wire or nearly so
        self.octets: Final = sum([len(name) + len(value) + 2 for name, value in headers.items()])
        self.holes: Final = holes
        self.persistent: Final = persistent
        self.priority: Final = priority
        self.expires: Final = expires
        self.has_length: Final = has_length
        self.retain: Final = headers.get("retain", "")
        self.is_suspect: Final = REDELIVERED in headers  # the broker's own mark: a sender's is not taken
        is_plain = _SPECIAL.isdisjoint(headers) and _SPECIAL.isdisjoint(holes)
        self.special: Final = None if is_plain else Special(headers, holes)
        self.cache: dict[Any, Any] = {}  # encoded heads, by version and flavour (stomp/)
        # to a subscriber; what it is encoded to is kept from the second time on (stomp/encode.py)
        self.was_sent = False
        self.plans: dict[Any, Any] = {}  # who gets its messages, by address (broker/)
        self.routes: dict[Any, Any] = {}  # where each listener sends it (server/)

    def marked(self) -> Shape:
        """The shape of the same messages as ones that may have been delivered before."""
        return self.with_headers({**self.headers, REDELIVERED: "true"})

    def with_headers(
        self,
        headers: Mapping[str, str],
        *,
        holes: tuple[str, ...] | None = None,
        expires: int | None = None,
        default_persistent: bool | None = None,
    ) -> Shape:
        """The shape with these headers instead of its own. `holes` and `expires` (ms since the epoch) are changed where they are given;
        `default_persistent` is for messages whose sender said nothing about it."""
        return shaped(
            headers,
            holes=self.holes if holes is None else holes,
            persistent=default_persistent if self.persistent is None else self.persistent,
            priority=self.priority,
            expires=self.expires if expires is None else expires,
            has_length=self.has_length,
        )

    def __repr__(self) -> str:
        holes = f" holes={','.join(self.holes)}" if self.holes else ""
        return f"<Shape {self.destination} headers={len(self.headers)}{holes} priority={self.priority}>"


def _weight(shape: Shape) -> int:
    """Octets of memory, about: with what is made of its headers."""
    return _SHAPE + 4 * shape.octets


_SHAPE: Final = 2000  # octets that a shape takes beside its headers, at a guess
_KNOWN: Final[Recent[object, Shape]] = Recent(1 << 20, _weight)


def shaped(
    headers: Mapping[str, str],
    *,
    holes: tuple[str, ...],
    persistent: bool | None,
    priority: int,
    expires: int,
    has_length: bool,
) -> Shape:
    """The shape that says this. Of those that were asked for lately it is the same object again: messages that alternate between a few
    shapes, or die one by one, have all that was made of the headers of those before them."""
    key = tuple(headers.items()), holes, persistent, priority, expires, has_length
    shape = _KNOWN.of(key)
    if shape is None:
        shape = Shape(
            headers,
            holes=holes,
            persistent=persistent,
            priority=priority,
            expires=expires,
            has_length=has_length,
        )
        _KNOWN.note(key, shape)
    return shape


class Run:
    """Consecutive messages of one shape. `columns[k][i]` is the value of hole k in message i; offsets are first .. first+n-1."""

    __slots__ = (
        "arrived", "asked", "bodies", "cache", "columns", "cost", "first", "holders", "is_large", "is_logged", "is_loose", "is_withdrawn",
        "queue", "routing", "sender", "shape", "share", "size", "takers",
    )  # fmt: skip

    def __init__(
        self,
        shape: Shape,
        bodies: Sequence[Body],
        columns: tuple[Sequence[bytes], ...] = (),
        *,
        first: int = -1,
        arrived: int = 0,
        routing: int = ANYCAST,
        sender: int = 0,
        queue: str = "",
    ) -> None:
        self.shape = shape
        self.bodies = bodies
        self.columns = columns
        self.first = first
        self.arrived = arrived
        self.routing = routing
        self.sender = sender
        self.queue = queue
        self.size = len(bodies[0]) if len(bodies) == 1 else sum(map(len, bodies))  # body bytes
        self.is_large = isinstance(bodies[0], Large) if bodies else False
        self.cost = -1  # octets of memory, once somebody has asked (broker/logs/segments.py)
        self.share = 0  # and those that each message of it takes beside its body
        self.holders = 0  # backlogs' segments that keep it in memory (broker/queues/memory.py)
        # of its messages: handed out and not acknowledged, once for each subscription (broker/queues/memory.py)
        self.takers = 0
        self.is_logged = False  # the log has it, or will with the next commit
        self.is_loose = False  # in the log for want of memory alone: it need not outlive a loss of power
        # its sender was told that it could not be stored: it is not delivered (again)
        self.is_withdrawn = False
        # encoded rows that several subscriptions share, while they are delivered
        self.cache: dict[Any, Any] | None = None
        # what selectors were asked ahead about each message (broker/queues/matching.py)
        self.asked: dict[Any, bytearray] | None = None

    @classmethod
    def of_staged(cls, shape: Shape, bodies: Staged, *, routing: int, sender: int) -> Run:
        """A run of which memory has nothing but how many messages it is. `shape`: of one of them; they may have several, which mean the
        same to their address."""
        run = cls(shape, (), routing=routing, sender=sender)
        run.bodies, run.size, run.is_large = bodies, bodies.body.size, True
        return run

    def __len__(self) -> int:
        return len(self.bodies)

    @property
    def is_staged(self) -> bool:
        return self.is_large and isinstance(self.bodies, Staged)

    @property
    def stop(self) -> int:
        """The offset after the last message of the run."""
        return self.first + len(self.bodies)

    def part(
        self,
        low: int,
        high: int,
        *,
        shape: Shape | None = None,
        bodies: Sequence[Body] | None = None,
        routing: int | None = None,
    ) -> Run:
        """Its messages low .. high-1, counted from its first, with their offsets, as a run of its own; `shape`, `bodies` and `routing` in
        place of its own where they are given. A shape with holes has those of this one."""
        is_same = shape is None and bodies is None
        shape = self.shape if shape is None else shape
        found = Run(
            shape,
            self.bodies[low:high] if bodies is None else bodies,
            tuple([column[low:high] for column in self.columns]) if shape.holes else (),
            first=self.first + low if self.first >= 0 else -1,
            arrived=self.arrived,
            routing=self.routing if routing is None else routing,
            sender=self.sender,
            queue=self.queue,
        )
        if is_same:
            found.is_logged = self.is_logged
            if self.asked is not None:
                found.asked = {key: flags[low:high] for key, flags in self.asked.items()}
        return found

    def note_asked(self, key: object, flags: bytearray) -> None:
        """Keeps what a selector was asked ahead, an octet for each message."""
        self.asked = self.asked or {}
        self.asked[key] = flags

    def large(self, index: int) -> Large:
        """The handle of a body that lies in the store, where `is_large`."""
        body = self.bodies[index]
        assert isinstance(body, Large)
        return body

    @property
    def varying(self) -> int:
        """Octets of the values of holes."""
        return sum([sum(map(len, column)) for column in self.columns]) if self.columns else 0

    def octets(self, index: int) -> bytes:
        """The octets of a body; a handle has none."""
        return bytes(self.bodies[index])

    def headers(self, index: int) -> dict[str, str]:
        """All headers of one message as its sender gave them, holes filled in."""
        found = dict(self.shape.headers)
        for name, column in zip(self.shape.holes, self.columns, strict=True):
            found[name] = column[index].decode("ascii")
        return found

    def __repr__(self) -> str:
        return f"<Run {self.shape.destination} {self.first}..{self.stop} bytes={self.size}>"
