"""What destinations mean on one listener: its prefixes. Shared by the listener's connections, which remember answers by it."""

from __future__ import annotations

from dataclasses import dataclass

from stompbox.broker.destinations import Destination, parse_all
from stompbox.config import ListenerOptions
from stompbox.errors import IllegalFrame
from stompbox.message import Shape


@dataclass(frozen=True, slots=True)
class Route:
    """Where the messages of a shape go, and where their answers are to come. `is_plain`: one address, nothing to look after."""

    destinations: tuple[Destination, ...]
    reply: Destination | None
    is_plain: bool


class Names:
    """Of one listener. Compared by identity."""

    def __init__(self, options: ListenerOptions) -> None:
        self.anycast = options.anycast_prefix
        self.multicast = options.multicast_prefix

    def parse(self, text: str, kind: str | None = None) -> tuple[Destination, ...]:
        """The destinations of a header. Raises IllegalFrame that names what is wrong."""
        return parse_all(text, self.anycast, self.multicast, kind=kind)

    def route(self, shape: Shape) -> Route:
        """Where a SEND goes; remembered with the shape."""
        found: Route | None = shape.routes.get(self)
        if found is None:
            found = shape.routes[self] = self._route(shape)
        return found

    def _route(self, shape: Shape) -> Route:
        destinations = self.parse(shape.destination, shape.headers.get("destination-type"))
        for destination in destinations:
            if destination.is_wild or destination.is_stream:
                raise IllegalFrame("bad-destination", f"destination {shape.destination[:200]!r} can be subscribed to, not sent to")
        reply = self._reply(shape.headers.get("reply-to", ""))
        is_plain = len(destinations) == 1 and not destinations[0].is_temporary and reply is None and not shape.retain
        return Route(destinations, reply, is_plain)

    def _reply(self, text: str) -> Destination | None:
        """A reply-to that names a temporary destination; of another broker's names nothing is known here."""
        if not text.startswith(("/temp-queue/", "/temp-topic/")):
            return None
        found = self.parse(text)
        if len(found) > 1:
            raise IllegalFrame("bad-destination", f"header reply-to is {text[:200]!r}; allowed is one temporary destination")
        return found[0]

    def __repr__(self) -> str:
        return f"<Names anycast={','.join(self.anycast)} multicast={','.join(self.multicast)}>"


