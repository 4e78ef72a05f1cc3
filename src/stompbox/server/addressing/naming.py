"""What destinations mean on one listener: its prefixes. Shared by the listener's connections, which remember answers by it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

from stompbox.broker.addresses.destinations import PREFIXES, Destination, parse, parse_all, require_free
from stompbox.config import ListenerOptions, UnknownHeaderPolicy
from stompbox.config.matching import DOTS, Wild, Wildcards, Words, is_match
from stompbox.errors import IllegalFrame
from stompbox.message import ANYCAST, MULTICAST, Shape
from stompbox.server.addressing.arguments import (
    FOREIGN,
    LOOKED_AT,
    Keys,
    keys_of,
    require_its_own,
    require_known,
)

REQUESTS_AT: Final = (
    "stompbox.requests"  # the destination of requests, and what their answers seem to come from
)


class Asks(Enum):
    """What a SEND asks of the broker itself, by its destination: it goes to no address then, and is stored nowhere."""

    NOTHING = auto()
    REQUEST = auto()  # requests/dispatch.py
    QUESTION = auto()  # requests/management.py

    def refusal(self) -> IllegalFrame:
        """For a part of a transaction, or of what is staged, and for a body that comes in pieces."""
        text = "the broker itself answers what is sent there: that cannot be in a transaction, staged for a sink, or have a large body"
        return (
            IllegalFrame("bad-destination", text)
            if self is Asks.REQUEST
            else IllegalFrame("bad-management", text)
        )


def _strict() -> UnknownHeaderPolicy:
    return UnknownHeaderPolicy.ERROR


@dataclass(frozen=True, slots=True)
class Route:
    """Where the messages of a shape go, and where their answers are to come. `is_plain`: one address, nothing to look after.
    `arguments`: what the queues that they make are to be like. `asks`: whether they go to the broker itself."""

    destinations: tuple[Destination, ...]
    reply: Destination | None
    is_plain: bool
    arguments: Keys
    asks: Asks = Asks.NOTHING


class Names:
    """What destinations mean on one listener and in one virtual host, whose `space` all names get inside the broker. Compared by
    identity."""

    def __init__(
        self,
        options: ListenerOptions,
        space: str = "",
        policy: Callable[[], UnknownHeaderPolicy] = _strict,
        wildcards: Wildcards = DOTS,
        management: str = "",
    ) -> None:
        self.space = space
        self.management = (
            space + management if management else ""
        )  # the address of questions to the broker itself
        self.wildcards = wildcards
        self._policy = policy
        self._told: set[str] = set()  # headers that were logged: each once
        self.anycast = options.anycast_prefix
        self.multicast = options.multicast_prefix
        self.prefixes = (
            (*options.anycast_prefix, *options.multicast_prefix, *PREFIXES) if options.require_prefix else ()
        )
        self.virtual = [_virtual(text) for text in options.virtual_topic_consumer_wildcards]

    def parse(self, text: str, kind: str | None = None) -> tuple[Destination, ...]:
        """The destinations of a header. Raises IllegalFrame that names what is wrong."""
        found = parse_all(text, self.anycast, self.multicast, kind=kind, wildcards=self.wildcards)
        if self.prefixes:
            self._require_prefixes(found)
        if self.virtual:
            found = tuple([self._of_virtual_topic(destination) for destination in found])
        return tuple([destination.within(self.space) for destination in found])

    def parse_one(self, text: str) -> Destination:
        """Parses a text as `parse` does, but as one destination, whatever commas are in it."""
        return parse(text, self.anycast, self.multicast, wildcards=self.wildcards).within(self.space)

    def without_space(self, text: str) -> str:
        """A text for the client, which knows nothing of spaces."""
        return text.replace(self.space, "") if self.space else text

    def qualified(self, name: str) -> str:
        """A name as the broker has it. Raises IllegalFrame for one that nobody may say."""
        require_free(name, name)
        return self.space + name

    def _require_prefixes(self, destinations: Iterable[Destination]) -> None:
        for destination in destinations:
            if not destination.text.startswith(self.prefixes):
                text = (
                    f"destination {destination.text[:200]!r} begins with none of {', '.join(self.prefixes)}"
                )
                raise IllegalFrame("bad-destination", text)

    def _of_virtual_topic(self, destination: Destination) -> Destination:
        """`Consumer.a.VirtualTopic.x` is a queue of the topic VirtualTopic.x (ActiveMQ Classic), where the listener says so."""
        is_queue = destination.routing in (0, ANYCAST) and not (
            destination.queue or destination.is_temporary or destination.is_stream
        )
        if is_queue and not destination.is_wild:
            words = destination.address.split(".")
            for pattern, count in self.virtual:
                if count < len(words) and is_match(pattern, words):
                    return replace(
                        destination,
                        address=".".join(words[count:]),
                        routing=MULTICAST,
                        queue=destination.address,
                    )
        return destination

    def route(self, shape: Shape) -> Route:
        """Where a SEND goes; remembered with the shape."""
        found: Route | None = shape.routes.get(self)
        if found is None:
            found = self._route(shape)
            if FOREIGN.keys().isdisjoint(shape.headers):
                # whether those may be there is for the configuration to say, each time
                shape.routes[self] = found
        return found

    def keys_of(self, headers: Mapping[str, str]) -> Keys:
        """What a frame asks of the queues that it makes. Raises IllegalFrame for what is not known, or no value."""
        if LOOKED_AT.isdisjoint(headers):
            return {}
        require_known(headers, self._policy(), self._told)
        return keys_of(headers, self.wildcards)

    def _route(self, shape: Shape) -> Route:
        if shape.destination == REQUESTS_AT:
            return Route((), None, is_plain=False, arguments={}, asks=Asks.REQUEST)
        destinations = self.parse(shape.destination, shape.headers.get("destination-type"))
        for destination in destinations:
            if destination.is_wild or destination.is_stream:
                raise IllegalFrame(
                    "bad-destination",
                    f"destination {shape.destination[:200]!r} can be subscribed to, not sent to",
                )
        if self.management and any(one.address == self.management for one in destinations):
            return _to_management(destinations)
        require_its_own(shape.headers, destinations, self.space)
        reply = self._reply(shape.headers.get("reply-to", ""))
        arguments = self.keys_of(shape.headers)
        is_plain = len(destinations) == 1 and not (
            destinations[0].is_temporary or reply or shape.retain or arguments
        )
        return Route(destinations, reply, is_plain, arguments)

    def _reply(self, text: str) -> Destination | None:
        """A reply-to that names a temporary destination; of another broker's names nothing is known here."""
        if not text.startswith(("/temp-queue/", "/temp-topic/")):
            return None
        found = self.parse(text)
        if len(found) > 1:
            raise IllegalFrame(
                "bad-destination", f"header reply-to is {text[:200]!r}; allowed is one temporary destination"
            )
        return found[0]

    def __repr__(self) -> str:
        return f"<Names anycast={','.join(self.anycast)} multicast={','.join(self.multicast)}>"


def _to_management(destinations: tuple[Destination, ...]) -> Route:
    if len(destinations) > 1:
        raise IllegalFrame("bad-management", "a message to the management address cannot go to others, too")
    return Route(destinations, None, is_plain=False, arguments={}, asks=Asks.QUESTION)


def _virtual(text: str) -> tuple[Words, int]:
    """The words of `Consumer.*.>;2`, and how many of them are not the topic's. As in ActiveMQ Classic, whatever the broker's wildcards."""
    pattern, _, count = text.partition(";")
    return [Wild.ANY_WORDS if word == ">" else word for word in DOTS.words(pattern)], int(count)
