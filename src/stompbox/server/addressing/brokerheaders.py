"""What becomes of the headers of a SEND before its messages are routed: what listener and configuration add, or read otherwise.

    JMSXUserID   the sender's login, where `populate-validated-user` says so; a sender's own is not passed on then
    persistent   the listener's `defaultPersistent`, for a SEND that does not say
    expires      a time to live instead of a date, where the listener has `relativeExpires`
    names        must be property names of JMS, where the listener has `checkPropertyNames`
    amqMessageId a number that no other message has, where the listener has `stompEnableMessageId`; a sender's own is not passed on then

Headers are added to a shape once for each connection that sends it; only `expires` depends on the time, and `amqMessageId` is a column:
it belongs to the message and goes where the message goes. Connections that have nothing to add (the rule) never come here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from stompbox.config import ListenerOptions
from stompbox.errors import IllegalFrame, Refused
from stompbox.message import NUMBER, Shape

REMEMBERED: Final = 256  # shapes of one connection
USER: Final = "JMSXUserID"

# Headers of a SEND that are not a JMS message's properties, whatever they are called: the specs', the bindings', the brokers' own
_NO_PROPERTIES: Final = frozenset(
    (
        "destination", "content-type", "content-length", "receipt", "transaction", "expires", "priority", "persistent", "reply-to",
        "correlation-id", "type", "timestamp", "message-id", "destination-type", "retain", "subscription", "ack", "redelivered",
    )
)  # fmt: skip
# JMS 1.1, 3.5.1: an identifier of Java, as in a selector
_PROPERTY: Final = re.compile(r"[^\W\d][\w$]*|\$[\w$]*")
_RESERVED: Final = frozenset(
    ("NULL", "TRUE", "FALSE", "NOT", "AND", "OR", "BETWEEN", "LIKE", "IN", "IS", "ESCAPE")
)


Columns = tuple[Sequence[bytes], ...]


def is_property(name: str) -> bool:
    """May a JMS message have a property of this name, or is it no property's name at all?"""
    return name in _NO_PROPERTIES or (_PROPERTY.fullmatch(name) is not None and name.upper() not in _RESERVED)


def spelled(number: int) -> bytes:
    """The value of `amqMessageId` for a number."""
    return b"STOMP%d" % number


class AddedHeaders:
    """What the broker adds to the SENDs of one connection. `user` is its login, which MESSAGE carries where `shows_user`; without one it
    may not send where `needs_user`. `numbers` are the broker's, each given once."""

    def __init__(
        self,
        options: ListenerOptions,
        user: str,
        numbers: Iterator[int],
        *,
        shows_user: bool,
        needs_user: bool,
    ) -> None:
        self.options = options
        self.numbers = numbers
        self.user = user
        self.shows_user = shows_user
        self.is_refused = needs_user and not user
        self.known: dict[Shape, Shape] = {}
        self._with_ids: dict[Shape, Shape] = {}

    @property
    def is_idle(self) -> bool:
        options = self.options
        says = (
            options.default_persistent is not None or options.relative_expires or options.check_property_names
        )
        says = says or options.stomp_enable_message_id
        return not self.shows_user and not self.is_refused and not says

    def on(self, shape: Shape, now: int, *, is_date: bool = False) -> Shape:
        """The shape as it is routed; `now` in ms since the epoch. `is_date`: `expires` is one on every listener. Raises IllegalFrame
        or Refused."""
        known = self.known.get(shape)
        if known is None:
            known = self._added(shape)
            if len(self.known) >= REMEMBERED:
                self.known.clear()
            self.known[shape] = known
        if shape.expires and self.options.relative_expires and not is_date:
            until = now + shape.expires
            return known.with_headers({**known.headers, "expires": str(until)}, expires=until)
        return known

    def with_ids(self, shape: Shape, columns: Columns, count: int) -> tuple[Shape, Columns]:
        """A shape with added headers and the columns of `count` messages with an id for each of them, where the listener wants it."""
        if not self.options.stomp_enable_message_id:
            return shape, columns
        known = self._with_ids.get(shape)
        if known is None:
            known = _with_hole(shape)
            if len(self._with_ids) >= REMEMBERED:
                self._with_ids.clear()
            self._with_ids[shape] = known
        kept = [column for name, column in zip(shape.holes, columns, strict=True) if name != NUMBER]
        return known, (*kept, list(map(spelled, islice(self.numbers, count))))

    def _added(self, shape: Shape) -> Shape:
        if self.is_refused:
            raise Refused(
                "nameless-sender", "this broker takes messages only from clients that have logged in by name"
            )
        if self.options.check_property_names:
            _check_names((*shape.headers, *shape.holes))
        headers = shape.headers
        if self.shows_user:
            headers = {name: value for name, value in headers.items() if name != USER}
            if self.user:
                headers[USER] = self.user
        persistent = shape.persistent if shape.persistent is not None else self.options.default_persistent
        if headers is shape.headers and persistent is shape.persistent:
            return shape
        return shape.with_headers(headers, default_persistent=persistent)


def _with_hole(shape: Shape) -> Shape:
    headers = {name: value for name, value in shape.headers.items() if name != NUMBER}
    holes = (*[name for name in shape.holes if name != NUMBER], NUMBER)
    return shape.with_headers(headers, holes=holes)


def _check_names(names: Iterable[str]) -> None:
    wrong = next((name for name in names if not is_property(name)), None)
    if wrong is not None:
        text = f"header {wrong[:80]!r} is not a name that a JMS property may have: letters, digits, _ and $, no word of selectors"
        raise IllegalFrame("bad-property-name", text)
