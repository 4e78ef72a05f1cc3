"""What a destination header names: an address, perhaps one queue of it, and the kind of routing it asks for.

    /queue/x  anycast      /topic/x  multicast      /stream/x  the log of address x      x  what the address settings say
    address::queue  one exact queue            a.*.b  a.#  wildcards, in subscriptions; a.> and a.** are a.# (Classic, OpenMQ)
    /amq/queue/x  queue x, which must be there (RabbitMQ)
    /exchange/amq.topic/x  /exchange/amq.direct/x  multicast, the latter without wildcards (RabbitMQ); /exchange/amq.fanout, whatever
        the key, the one address of this name; there are no other exchanges
    /temp-queue/x  /temp-topic/x  gone with the connection that made them (temporaries.py)
    /queue/a,/topic/b  several at once

The prefixes are the listener's, and the syntax of wildcards the configuration's. `destination-type` and `subscription-type` decide before
prefixes, prefixes before settings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from stompbox.config.matching import DOTS, Wildcards, Words
from stompbox.config.spaces import MARK, is_inside
from stompbox.errors import IllegalFrame
from stompbox.message import ANYCAST, MULTICAST

STREAM_PREFIX: Final = "/stream/"
EXISTING_PREFIX: Final = "/amq/queue/"
EXCHANGE_PREFIX: Final = "/exchange/"
FANOUT: Final = "amq.fanout"
EXCHANGES: Final = ("amq.topic", "amq.direct")
MOST: Final = 100  # destinations in one header

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
_TYPES: Final = MappingProxyType({"ANYCAST": ANYCAST, "MULTICAST": MULTICAST})
KINDS: Final = MappingProxyType({ANYCAST: "ANYCAST", MULTICAST: "MULTICAST", ANYCAST | MULTICAST: "ANYCAST and MULTICAST"})


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
        """The same in a virtual host, whose `space` may be empty. Raises for a name that is inside another one already: it has come
        from a client, and whatever has read it anew on the way (virtual topics, wildcards of other brokers) is done."""
        require_free(self.text, self.address, self.queue)
        if not space:
            return self
        return replace(self, address=space + self.address, queue=self.queue and space + self.queue)

    @property
    def is_wild(self) -> bool:
        return not self.is_temporary and self.wildcards.is_wild(self.address)

    @property
    def words(self) -> Words:
        """Of a wildcard."""
        return self.wildcards.words(self.address)

    def covers(self, name: str) -> bool:
        """Whether an address has this name, or one that the wildcard reaches."""
        return self.wildcards.is_named(self.address, name)


def parse_all(
    text: str, anycast: Sequence[str], multicast: Sequence[str], *, kind: str | None = None, wildcards: Wildcards = DOTS
) -> tuple[Destination, ...]:
    """The destinations that a header names, each once. Raises IllegalFrame that names what is wrong."""
    if "," not in text:
        return (parse(text, anycast, multicast, kind=kind, wildcards=wildcards),)
    parts = text.split(",")
    if len(parts) > MOST:
        raise IllegalFrame("bad-destination", f"a destination of {len(parts)} parts; no more than {MOST} are allowed")
    if not all(part.strip(" ") for part in parts):
        raise IllegalFrame("bad-destination", f"destination {text[:200]!r} has an empty part")
    return tuple({parse(part.strip(" "), anycast, multicast, kind=kind, wildcards=wildcards): None for part in parts})


def parse(
    text: str, anycast: Sequence[str], multicast: Sequence[str], *, kind: str | None = None, wildcards: Wildcards = DOTS
) -> Destination:
    """One destination. `kind` is the value of destination-type or subscription-type."""
    asked = _asked(kind)
    for prefix, routing in TEMPORARY_PREFIXES.items():
        if text.startswith(prefix):
            return _temporary(text, text[len(prefix) :], routing, asked)
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
    if divider and (not queue or is_stream or wildcards.is_wild(name)):
        raise IllegalFrame("bad-destination", f"destination {text[:200]!r}: `::` stands between the name of one address and one queue")
    if wildcards.is_wild(name) and (problem := wildcards.problem_of(name)):
        raise IllegalFrame("bad-destination", f"destination {text[:200]!r}: {problem}")
    must_exist = text.startswith(EXISTING_PREFIX)
    return Destination(text, name, asked or routing, queue, is_stream, must_exist=must_exist, wildcards=wildcards)


def _routing_key(text: str, wildcards: Wildcards) -> str:
    """RabbitMQ: the key stands for the address; each subscriber of it gets what is sent with it. A fanout looks at no key."""
    exchange, _, key = text[len(EXCHANGE_PREFIX) :].partition("/")
    if exchange == FANOUT:
        return FANOUT
    if exchange not in EXCHANGES or not key:
        allowed = ", ".join([f"{EXCHANGE_PREFIX}{name}/<routing key>" for name in EXCHANGES]) + f" and {EXCHANGE_PREFIX}{FANOUT}"
        raise IllegalFrame("bad-destination", f"destination {text[:200]!r}: of RabbitMQ's exchanges there are {allowed}")
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
    fitting = [(prefix, ANYCAST) for prefix in anycast if prefix and text.startswith(prefix)]
    fitting += [(prefix, MULTICAST) for prefix in multicast if prefix and text.startswith(prefix)]
    prefix, routing = max(fitting, key=lambda entry: len(entry[0]), default=("", 0))
    return text[len(prefix) :], routing


def require_free(text: str, *names: str) -> None:
    """Raises for names inside the broker, which nobody may say."""
    if any(map(is_inside, names)):
        raise IllegalFrame("bad-destination", f"{text[:200]!r}: names that begin with {MARK!r} are the broker's own")


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
        text = f"destination {text[:200]!r} is {KINDS[routing]}; destination-type or subscription-type says {KINDS[asked]}"
        raise IllegalFrame("bad-destination-type", text)
    return Destination(text, name, routing, is_temporary=True)
