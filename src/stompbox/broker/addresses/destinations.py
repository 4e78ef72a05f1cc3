"""What a destination header names: an address, perhaps one queue of it, and the kind of routing it asks for.

    /queue/x  anycast      /topic/x  multicast      /stream/x  the log of address x      x  what the address settings say
    address::queue  one exact queue            a.*.b  a.#  wildcards, in subscriptions; a.> and a.** are a.# (Classic, OpenMQ)
    /amq/queue/x  queue x, which must be there (RabbitMQ)
    /exchange/amq.topic/x  /exchange/amq.direct/x  multicast, the latter without wildcards (RabbitMQ); /exchange/amq.fanout, whatever
        the key, the one address of this name; there are no other exchanges
    /temp-queue/x  /temp-topic/x  gone with the connection that made them (destinations.py)
    /queue/a,/topic/b  several at once

The prefixes are the listener's, and the syntax of wildcards the configuration's. `destination-type` and `subscription-type` decide before
prefixes, prefixes before settings.

A temporary destination is a queue or a topic of one connection, for what comes back to what it asks, gone when it ends:

    /temp-queue/x               the owner's own name for it
    /temp-queue/<token>-<n>     how others see it in `reply-to`, and the owner may call it so, too

Only a SUBSCRIBE or a `reply-to` of its owner makes one, only its owner consumes; a SEND may come from anybody who knows the name,
which cannot be guessed. In the engine it is an address `temp-queue.<token>-<n>` that no wildcard reaches and no disk sees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from stompbox.broker.kinds import TYPES, Kind
from stompbox.config.matching import DOTS, Wildcards, Words
from stompbox.config.spaces import MARK, is_inside, local, space_of
from stompbox.errors import IllegalFrame, Refused
from stompbox.message import ANYCAST, MULTICAST

if TYPE_CHECKING:
    from stompbox.broker.addresses.address import Address
    from stompbox.broker.addresses.contracts import Engine

STREAM_PREFIX: Final = "/stream/"
EXISTING_PREFIX: Final = "/amq/queue/"
EXCHANGE_PREFIX: Final = "/exchange/"
FANOUT: Final = "amq.fanout"
EXCHANGES: Final = ("amq.topic", "amq.direct")
MOST: Final = 100  # destinations in one header
LONGEST: Final = 1024  # characters of a name

# All forms in which a temporary destination is met: ours and the brokers' whose clients we serve. The longer ones first.
TEMPORARY_PREFIXES: Final = MappingProxyType(
    {
        "/temp-queue/temporary_destination://queue/": ANYCAST,  # OpenMQ, as others see it
        "/temp-topic/temporary_destination://topic/": MULTICAST,
        "/temp-queue/": ANYCAST,
        "/temp-topic/": MULTICAST,
        "/remote-temp-queue/": ANYCAST,  # ActiveMQ Classic, as others see it
        "/remote-temp-topic/": MULTICAST,
        "/reply-queue/": ANYCAST,  # RabbitMQ, as others see it
    }
)
_TEMPORARY: Final = tuple(TEMPORARY_PREFIXES)
_TYPES: Final = MappingProxyType({"ANYCAST": ANYCAST, "MULTICAST": MULTICAST})
# what a destination may begin with beside the prefixes of a listener
PREFIXES: Final = (*TEMPORARY_PREFIXES, STREAM_PREFIX, EXISTING_PREFIX, EXCHANGE_PREFIX)


@dataclass(frozen=True, slots=True)
class Destination:
    """`routing` 0: nothing was said; `queue` empty: the address's own. Of a temporary one `address` is the name as it was given.
    `must_exist`: a frame that names it makes nothing."""

    text: str
    address: str
    routing: int
    queue: str = ""
    is_stream: bool = False
    is_temporary: bool = False
    must_exist: bool = False
    wildcards: Wildcards = field(default=DOTS, compare=False, repr=False)

    def within(self, space: str) -> Destination:
        """This destination in a virtual host, whose `space` may be empty. Raises for a name that is inside another one already, or too
        long: it has come from a client, and whatever has read it anew on the way (virtual topics, wildcards of other brokers) is done."""
        require_free(self.text, self.address, self.queue)
        if not space:
            return self
        return replace(self, address=space + self.address, queue=self.queue and space + self.queue)

    @property
    def is_wild(self) -> bool:
        return not self.is_temporary and self.wildcards.is_wild(self.address)

    @property
    def words(self) -> Words:
        """The words of a destination that is a wildcard."""
        return self.wildcards.words(self.address)

    def covers(self, name: str) -> bool:
        """Whether an address has this name, or one that the wildcard reaches."""
        return self.wildcards.is_named(self.address, name)


def parse_all(
    text: str,
    anycast: Sequence[str],
    multicast: Sequence[str],
    *,
    kind: str | None = None,
    wildcards: Wildcards = DOTS,
) -> tuple[Destination, ...]:
    """The destinations that a header names, each once. Raises IllegalFrame that names what is wrong."""
    if "," not in text:
        return (parse(text, anycast, multicast, kind=kind, wildcards=wildcards),)
    parts = text.split(",")
    if len(parts) > MOST:
        raise IllegalFrame(
            "bad-destination", f"a destination of {len(parts)} parts; no more than {MOST} are allowed"
        )
    if not all(part.strip(" ") for part in parts):
        raise IllegalFrame("bad-destination", f"destination {text[:200]!r} has an empty part")
    return tuple(
        {parse(part.strip(" "), anycast, multicast, kind=kind, wildcards=wildcards): None for part in parts}
    )


def parse(
    text: str,
    anycast: Sequence[str],
    multicast: Sequence[str],
    *,
    kind: str | None = None,
    wildcards: Wildcards = DOTS,
) -> Destination:
    """One destination. `kind` is the value of destination-type or subscription-type."""
    asked = _asked(kind)
    if text.startswith(_TEMPORARY):
        prefix = next(prefix for prefix in _TEMPORARY if text.startswith(prefix))
        return _temporary(text, text[len(prefix) :], TEMPORARY_PREFIXES[prefix], asked)
    if text.startswith(STREAM_PREFIX):
        name, routing, is_stream = text[len(STREAM_PREFIX) :], 0, True
    elif text.startswith(EXISTING_PREFIX):
        name, routing, is_stream = text[len(EXISTING_PREFIX) :], ANYCAST, False
    elif text.startswith(EXCHANGE_PREFIX):
        name, routing, is_stream = _routing_key(text, wildcards), MULTICAST, False
    else:
        (name, routing), is_stream = _without_prefix(text, anycast, multicast), False
    name, divider, queue = name.partition("::")
    if (">" in name or "**" in name) and wildcards.has_other_spellings:
        name = _with_house_wildcards(name)
    if not name:
        raise IllegalFrame("bad-destination", f"destination {text[:200]!r} names no address")
    is_wild = wildcards.is_wild(name)
    if divider and (not queue or is_stream or is_wild):
        raise IllegalFrame(
            "bad-destination",
            f"destination {text[:200]!r}: `::` stands between the name of one address and one queue",
        )
    if is_wild and (problem := wildcards.problem_of(name)):
        raise IllegalFrame("bad-destination", f"destination {text[:200]!r}: {problem}")
    must_exist = text.startswith(EXISTING_PREFIX)
    return Destination(
        text, name, asked or routing, queue, is_stream, must_exist=must_exist, wildcards=wildcards
    )


def _routing_key(text: str, wildcards: Wildcards) -> str:
    """RabbitMQ: the key stands for the address; each subscriber of it gets what is sent with it. A fanout looks at no key."""
    exchange, _, key = text[len(EXCHANGE_PREFIX) :].partition("/")
    if exchange == FANOUT:
        return FANOUT
    if exchange not in EXCHANGES or not key:
        allowed = (
            ", ".join([f"{EXCHANGE_PREFIX}{name}/<routing key>" for name in EXCHANGES])
            + f" and {EXCHANGE_PREFIX}{FANOUT}"
        )
        raise IllegalFrame(
            "bad-destination", f"destination {text[:200]!r}: of RabbitMQ's exchanges there are {allowed}"
        )
    is_pattern = wildcards.is_wild(key) or (wildcards.has_other_spellings and (">" in key or "**" in key))
    if exchange == "amq.direct" and is_pattern:
        raise IllegalFrame("bad-destination", f"destination {text[:200]!r}: amq.direct has no wildcards")
    return key


def _with_house_wildcards(name: str) -> str:
    """A last word `>` (ActiveMQ Classic, OpenMQ) and a word `**` (OpenMQ) stand for any number of words."""
    *words, last = ["#" if word == "**" else word for word in name.split(".")]
    return ".".join([*words, "#" if last == ">" else last])


def _without_prefix(text: str, anycast: Sequence[str], multicast: Sequence[str]) -> tuple[str, int]:
    """The name behind the longest prefix that fits, and what it means."""
    length = routing = 0
    for prefixes, meant in ((anycast, ANYCAST), (multicast, MULTICAST)):
        for prefix in prefixes:
            if len(prefix) > length and text.startswith(prefix):
                length, routing = len(prefix), meant
    return text[length:], routing


def require_free(text: str, *names: str) -> None:
    """Raises for names inside the broker, which nobody may say, and for those that are too long."""
    if any(map(is_inside, names)):
        raise IllegalFrame(
            "bad-destination", f"{text[:200]!r}: names that begin with {MARK!r} are the broker's own"
        )
    require_short(*names)


def require_short(*names: str) -> None:
    """Raises for a name of more than LONGEST characters. Whoever makes an address, a queue or a subscription has its name kept in several
    places, for as long as it is there, and thousands of them count as thousands (makers.py), however long they are."""
    for name in names:
        if len(name) > LONGEST:
            text = f"the name {name[:80]!r}… has {len(name)} characters; the most is {LONGEST}"
            raise IllegalFrame("name-too-long", text)


def _asked(kind: str | None) -> int:
    if kind is None:
        return 0
    if kind not in _TYPES:
        text = f"destination-type or subscription-type is {kind[:80]!r}; allowed are ANYCAST and MULTICAST"
        raise IllegalFrame("bad-destination-type", text)
    return _TYPES[kind]


def _temporary(text: str, name: str, routing: int, asked: int) -> Destination:
    if not name or "::" in name:
        raise IllegalFrame("bad-destination", f"destination {text[:200]!r} names no temporary destination")
    if asked not in (0, routing):
        text = f"destination {text[:200]!r} is {TYPES[routing]}; destination-type or subscription-type says {TYPES[asked]}"
        raise IllegalFrame("bad-destination-type", text)
    return Destination(text, name, routing, is_temporary=True)


_FIRST_WORD: Final = MappingProxyType({ANYCAST: "temp-queue.", MULTICAST: "temp-topic."})
_SHOWN: Final = MappingProxyType({ANYCAST: "/temp-queue/", MULTICAST: "/temp-topic/"})
_SHOWN_BY_OPENMQ: Final = MappingProxyType(
    {
        ANYCAST: "/temp-queue/temporary_destination://queue/",
        MULTICAST: "/temp-topic/temporary_destination://topic/",
    }
)


# by their kinds and names; most connections have none, and share this
_NONE: Final[dict[tuple[int, str], Address]] = {}


class Temporaries:
    """The temporary destinations of one connection, `most` of them. `owner` is its session; `draw` makes a word that is nobody
    else's, for connections that have any."""

    __slots__ = ("_by_name", "_draw", "_last", "_token", "engine", "most", "owner", "space")

    def __init__(self, engine: Engine, owner: int, draw: Callable[[], str], most: int) -> None:
        self.engine = engine
        self.owner = owner
        self._draw = draw
        self._token = ""
        self.most = most
        self.space = ""  # of the connection's virtual host
        self._by_name = _NONE
        self._last = 0

    def __len__(self) -> int:
        return len(self._by_name)

    def name_of(self, routing: int) -> str:
        """How the address of the next one begins: what rights are asked for."""
        self._token = self._token or self._draw()
        return f"{self.space}{_FIRST_WORD[routing]}{self._token}"

    def own(self, destination: Destination) -> Address | None:
        """The connection's own one of this name, the short one or the long. Where an operator has deleted its queue, what is left goes."""
        known = destination.routing, destination.address
        found = self._by_name.get(known)
        if found is None:
            found = find(self.engine, destination)
            if found is None or found.owner != self.owner:
                return None
        is_there = self.engine.addresses.get(found.name) is found
        if is_there and (found.anycast or destination.routing != ANYCAST):
            return found
        self._by_name.pop(known, None)
        self._drop(found)
        return None

    def _drop(self, address: Address) -> None:
        if self.engine.addresses.get(address.name) is address:  # no operator has deleted it
            self.engine.drop_address(address)

    def make(self, destination: Destination) -> Address:
        """The connection's own one of this name, made when it is not there yet. Raises Refused for another's."""
        found = self.own(destination)
        if found is not None:
            return found
        if find(self.engine, destination) is not None:
            raise Refused(
                "temporary-not-owned",
                f"only the connection that made {destination.text[:200]!r} may consume from it",
            )
        if len(self._by_name) >= self.most:
            raise Refused(
                "too-many-temporaries", f"a connection has no more than {self.most} temporary destinations"
            )
        address = self._create(destination.routing)
        self._by_name = self._by_name or {}
        self._by_name[destination.routing, destination.address] = address
        return address

    def _create(self, routing: int) -> Address:
        name = ""
        while not name or name in self.engine.addresses:
            self._last += 1
            name = f"{self.name_of(routing)}-{self._last}"
        address = self.engine.create_address(name, owner=self.owner)
        address.become(routing)
        if routing == ANYCAST:
            self.engine.new_queue(address, name, Kind.ANYCAST, is_durable=False)
        return address

    def closing(self) -> Iterator[None]:
        """The connection ends: so do they, with what is in them, one in each step."""
        while self._by_name:
            self._drop(self._by_name.popitem()[1])
            yield

    def __repr__(self) -> str:
        return f"<Temporaries of {self.owner}: {len(self._by_name)}>"


def find(engine: Engine, destination: Destination) -> Address | None:
    """The temporary address that others mean by this name."""
    name = destination.address
    found = engine.addresses.get(f"{space_of(name)}{_FIRST_WORD[destination.routing]}{local(name)}")
    return found if found is not None and found.owner else None


def shown(address: Address, *, as_openmq: bool = False) -> str:
    """The destination by which others than its owner know an address."""
    name = local(address.name)
    routing = ANYCAST if name.startswith(_FIRST_WORD[ANYCAST]) else MULTICAST
    prefix = (_SHOWN_BY_OPENMQ if as_openmq else _SHOWN)[routing]
    return prefix + name.removeprefix(_FIRST_WORD[routing])
