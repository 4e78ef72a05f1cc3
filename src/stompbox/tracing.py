"""Spans of OpenTelemetry for what a client sends, works on and acknowledges: `traced(stompbox.connect(url))` (extra `otel`).

Decides the names of spans and attributes (OpenTelemetry's conventions for messaging), and that the context travels in the headers
`traceparent` and `tracestate`, which every broker passes on. Who does not import this module pays nothing for it.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final

from stompbox.client.client import Client
from stompbox.client.message import Message, Processing
from stompbox.client.outgoing import Body, Headers, header_texts
from stompbox.client.publisher import WINDOW
from stompbox.client.subscription import Subscription
from stompbox.errors import UsageError

try:
    from opentelemetry import propagate, trace
    from opentelemetry.trace import SpanKind
except ImportError as error:
    raise UsageError("no-opentelemetry", f"{error}: pip install 'stompbox[otel]'") from None

NAME: Final = "stompbox"
_TYPES: Final = {"send": "send", "process": "process", "ack": "settle", "nack": "settle"}


def traced(client: Client) -> TracedClient:
    """Makes the client, not opened yet, one with a span for each `send`, `process`, `ack` and `nack`. Spans go where the program's tracer
    provider sends them; without one they go nowhere."""
    return TracedClient(client._link)


def injected(headers: Headers | None = None) -> dict[str, Any]:
    """Headers with the context of the span that is current: for publishers and transactions, whose sends have no spans of their own."""
    found: dict[str, Any] = header_texts(headers or {})
    propagate.inject(found)
    return found


@contextmanager
def _span(
    verb: str, destination: str, kind: SpanKind, context: Any = None, **more: str | int
) -> Iterator[None]:
    """A span that is current within the block, and ends with it; what is raised there is recorded."""
    attributes: dict[str, str | int] = {
        "messaging.system": "stomp",
        "messaging.operation.name": verb,
        "messaging.operation.type": _TYPES[verb],
        "messaging.destination.name": destination,
        **{f"messaging.{name}": value for name, value in more.items()},
    }
    tracer = trace.get_tracer(NAME)
    with tracer.start_as_current_span(
        f"{verb} {destination}", context=context, kind=kind, attributes=attributes
    ):
        yield


def _context_of(message: Message) -> Any:
    """The span that an answer belongs to: the one that is current, else that of the message's sender."""
    if trace.get_current_span().get_span_context().is_valid:
        return None
    return propagate.extract(message.headers)


class TracedSubscription(Subscription):
    """A subscription of a traced client."""

    def __aiter__(self) -> AsyncIterator[Message]:
        return self

    async def __anext__(self) -> Message:
        return _as_traced(await super().__anext__())

    async def receive(self, timeout: float | None = None) -> Message | None:
        """The next message, as of `Subscription.receive`."""
        found = await super().receive(timeout)
        return None if found is None else _as_traced(found)

    async def receive_many(self, most: int, timeout: float | None = None) -> list[Message]:
        """The next messages, as of `Subscription.receive_many`."""
        return [_as_traced(message) for message in await super().receive_many(most, timeout)]


class TracedClient(Client):
    """A client whose messages carry the context of the span in which they were sent. Made by `traced`."""

    _subscription = TracedSubscription

    async def send(
        self,
        destination: str,
        body: Body = b"",
        headers: Headers | None = None,
        *,
        confirm: bool = True,
        timeout: float | None = None,
    ) -> None:
        """Sends as `Client.send` does, in a span of its own, which ends with the RECEIPT."""
        with _span("send", destination, SpanKind.PRODUCER):
            await super().send(destination, body, injected(headers), confirm=confirm, timeout=timeout)

    async def send_many(
        self,
        destination: str,
        bodies: Iterable[Body] | AsyncIterable[Body],
        headers: Headers | None = None,
        *,
        window: int = WINDOW,
    ) -> int:
        """Sends as `Client.send_many` does, in one span for all."""
        with _span("send", destination, SpanKind.PRODUCER):
            count = await super().send_many(destination, bodies, injected(headers), window=window)
            trace.get_current_span().set_attribute("messaging.batch.message_count", count)
            return count


class TracedMessage(Message):
    """A message whose work and whose answer are spans below that of its sender."""

    __slots__ = ()

    async def ack(self, *, confirm: bool = False, timeout: float | None = None) -> None:
        """Answers as `Message.ack` does, in a span of its own."""
        with _span("ack", self.destination, SpanKind.CLIENT, _context_of(self), **_id_of(self)):
            await super().ack(confirm=confirm, timeout=timeout)

    async def nack(
        self,
        *,
        requeue: bool = True,
        delay: float = 0.0,
        confirm: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Answers as `Message.nack` does, in a span of its own."""
        with _span("nack", self.destination, SpanKind.CLIENT, _context_of(self), **_id_of(self)):
            await super().nack(requeue=requeue, delay=delay, confirm=confirm, timeout=timeout)

    def process(self) -> Processing:
        """Processes as `Message.process` does, in a span that is current within the block and has the answer's span below it."""
        return TracedProcessing(self)


class TracedProcessing(Processing):
    """The block of `message.process()`, as a span."""

    __slots__ = ("_opened",)

    async def __aenter__(self) -> Message:
        message = self._message
        self._opened = _span(
            "process",
            message.destination,
            SpanKind.CONSUMER,
            propagate.extract(message.headers),
            **_id_of(message),
        )
        self._opened.__enter__()
        return message

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            is_auto = self._message._route.subscription.ack == "auto"
            is_answered = self._message.is_settled or not isinstance(error, Exception | None)
            if is_auto or is_answered:  # no frame goes out
                await super().__aexit__(kind, error, trace)
            else:
                verb = "ack" if error is None else "nack"
                with _span(verb, self._message.destination, SpanKind.CLIENT, **_id_of(self._message)):
                    await super().__aexit__(kind, error, trace)
        except BaseException as fault:
            self._end(fault)
            raise
        self._end(error)

    def _end(self, error: BaseException | None) -> None:
        """Ends the span; what was raised in the block is recorded in it, and goes on from the block itself."""
        try:
            self._opened.__exit__(
                type(error) if error else None, error, error.__traceback__ if error else None
            )
        except BaseException as raised:
            if raised is not error:
                raise


def _id_of(message: Message) -> Mapping[str, str]:
    return {"message.id": message.id}


def _as_traced(message: Message) -> Message:
    """Makes a traced message of it, which stays the same object: who holds it sees it answered, too."""
    message.__class__ = TracedMessage
    return message
