"""A message as the application sees it: headers, body, and how to say that it is done with.

A message read in a run keeps its head as it came and takes it apart when somebody asks for a header: many applications only
want the body. Acknowledging goes through the message's route (subscription.py), which knows whether it still can be.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from numbers import Real
from types import TracebackType
from typing import Any, Final, NamedTuple, Protocol

from stompbox.client.options import require_confirm
from stompbox.errors import UsageError
from stompbox.numerals import digits

MOST_DELAY: Final = 86_400.0 * 365  # seconds: a delay that is longer is a mistake in its unit


class Head(Protocol):
    """How the heads of messages with the same header names are taken apart (runs.py)."""

    def headers(self, head: bytes) -> dict[str, str]: ...


class Answer(NamedTuple):
    """ACK or NACK, with the header lines that it has beside those which name the message."""

    command: str
    lines: str = ""
    delay: float = 0.0  # seconds


ACK: Final = Answer("ACK")
NACK: Final = Answer("NACK")


def refusal(requeue: bool, delay: float) -> Answer:
    """The NACK that the arguments of `nack` mean. Raises UsageError that names the argument and what is allowed."""
    if not isinstance(requeue, bool):
        raise UsageError("bad-argument", f"requeue is {requeue!r}; allowed are True and False")
    if not isinstance(delay, Real) or isinstance(delay, bool) or not 0 <= delay <= MOST_DELAY:
        raise UsageError(
            "bad-argument", f"delay is {delay!r}; allowed are seconds from 0 to {MOST_DELAY:g}, as a number"
        )
    if not requeue and delay:
        raise UsageError(
            "bad-argument", "requeue=False and a delay: what is not delivered again waits for nothing"
        )
    if not requeue:
        return Answer("NACK", "requeue:false\n")
    return Answer("NACK", f"redelivery-delay:{round(delay * 1000)}\n", float(delay)) if delay else NACK


class Route(Protocol):
    """Where a message came from: one subscription on one connection."""

    def say(self, message: ReceivedMessage, answer: Answer) -> bool: ...
    async def breathe(self) -> None: ...
    async def settle(self, message: ReceivedMessage, answer: Answer, timeout: float | None) -> None: ...

    async def settle_processed(self, message: ReceivedMessage, *, failed: bool) -> None: ...


class ReceivedMessage:
    """What the frames MESSAGE hold, for all clients."""

    # _ack_id: the header that an ACK repeats, as it came (octets, escapes and all), or None
    __slots__ = ("_ack_id", "_form", "_head", "_headers", "_route", "body", "is_settled")

    def __init__(self, route: Any, body: bytes, ack_id: bytes | None, form: Head | None, head: bytes) -> None:
        self._route = route
        self.body = body
        self._ack_id = ack_id
        self.is_settled = False  # acknowledged, or not, by the application
        self._form = form
        self._head = head
        self._headers: dict[str, str] | None = None

    @property
    def headers(self) -> Mapping[str, str]:
        """All headers, decoded; of a repeated header the first (STOMP 1.2, Repeated Header Entries)."""
        found = self._headers
        if found is None:
            found = self._headers = {} if self._form is None else self._form.headers(self._head)
            self._head = b""
        return found

    @property
    def destination(self) -> str:
        return self.headers.get("destination", "")

    @property
    def id(self) -> str:
        """The value of the header message-id."""
        return self.headers.get("message-id", "")

    @property
    def content_type(self) -> str | None:
        return self.headers.get("content-type")

    @property
    def is_redelivered(self) -> bool:
        """May have been delivered before. False also where the broker does not say."""
        return self.headers.get("redelivered") == "true"

    @property
    def delivery_count(self) -> int:
        """How often it was handed out, this time counted: 1 at first. At least 2 where a broker says `redelivered` and no number."""
        return self._number("JMSXDeliveryCount") or (2 if self.is_redelivered else 1)

    @property
    def offset(self) -> int | None:
        """Where it stands in its address's log; None where the subscription does not read a log (`subscribe(offset=…)` does)."""
        return self._number("x-stream-offset")

    @property
    def timestamp(self) -> datetime | None:
        """When the broker took it, or when its sender says he sent it, in UTC; None where neither said."""
        milliseconds = self._number("timestamp")
        try:
            return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC)
        except (OverflowError, ValueError, OSError):
            return None

    @property
    def reply_to(self) -> str | None:
        """Where its sender waits for a reply (`client.reply` sends one)."""
        return self.headers.get("reply-to")

    @property
    def correlation_id(self) -> str | None:
        return self.headers.get("correlation-id")

    def _number(self, name: str) -> int | None:
        """A header with a whole number; None also where it is none."""
        return digits(self.headers.get(name, ""))

    @property
    def text(self) -> str:
        """The body decoded by the charset of content-type (STOMP 1.2, Header content-type: UTF-8 where it names none)."""
        charset = "utf-8"
        for parameter in (self.content_type or "").split(";")[1:]:
            name, _, value = parameter.partition("=")
            if name.strip().lower() == "charset":
                charset = value.strip().strip('"')
        try:
            return self.body.decode(charset)
        except (LookupError, UnicodeError) as error:
            raise UsageError(
                "not-text", f"the body of message {self.id!r} is no text in {charset}: {error}; use .body"
            ) from None

    def json(self) -> Any:
        """What the body's JSON says. Raises UsageError("no-json") with the place where it is none."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise UsageError("no-json", f"the body of message {self.id!r} is no JSON: {error}") from None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} from {self.destination} body={len(self.body)}>"


class Message(ReceivedMessage):
    """A message that a subscription of the asynchronous client delivered."""

    __slots__ = ()

    async def ack(self, *, confirm: bool = False, timeout: float | None = None) -> None:
        """Tells the broker that this message (with ack="client" also all before it) is done with.

        Returns when the frame is on its way; with `confirm` when the broker has recorded it. Raises UsageError on a subscription
        with ack="auto", ConnectionLost("stale-message") when the connection it came over is gone: it will be delivered again.
        """
        require_confirm(confirm, timeout)
        if confirm:
            await self._route.settle(self, ACK, timeout)
        elif self._route.say(self, ACK):
            await self._route.breathe()

    async def nack(
        self,
        *,
        requeue: bool = True,
        delay: float = 0.0,
        confirm: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Tells the broker that this message could not be processed; what follows (again, dead letter, dropped) is the broker's.

        `requeue`  False: a dead letter at once (Stompbox, RabbitMQ; others do with every NACK what they do)
        `delay`    seconds until the next delivery; 0: as the broker's settings say. Stompbox alone knows it: elsewhere a UsageError
        """
        answer = refusal(requeue, delay)
        require_confirm(confirm, timeout)
        if confirm:
            await self._route.settle(self, answer, timeout)
        elif self._route.say(self, answer):
            await self._route.breathe()

    def process(self) -> Processing:
        """`async with message.process():` acknowledges when the block ends well, sends NACK when it raises (and lets it raise).

        A block that is cancelled has not failed: its message stays unacknowledged and comes again.
        """
        return Processing(self)


class Processing:
    __slots__ = ("_message",)

    def __init__(self, message: Message) -> None:
        self._message = message

    async def __aenter__(self) -> Message:
        return self._message

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or isinstance(error, Exception):
            await self._message._route.settle_processed(self._message, failed=error is not None)


def message_from_headers(route: Any, headers: dict[str, str], body: bytes, ack_id: bytes | None) -> Message:
    message = Message(route, body, ack_id, None, b"")
    message._headers = headers
    return message
