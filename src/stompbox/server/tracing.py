"""Spans of OpenTelemetry for what the broker does with messages that bring a sampled `traceparent`: [tracing], extra `otel`.

| span                  | kind     | from                                       | to                                          |
|-----------------------|----------|--------------------------------------------|---------------------------------------------|
| `send <destination>`  | server   | the SEND, or the COMMIT of its transaction | it is on disk; at once where it need not be |
| `deliver <destination>` | producer | the broker had it, or it was due         | it is encoded for a subscription            |
| `ack`, `nack <destination>` | server | the ACK or NACK, or its COMMIT         | as of `send`                                |

Each is a child of the span whose context the message brought: that of its sender. What is delivered again, and what a stream delivers,
was there long before, and its span has no length. Browsers and `ack:auto` acknowledge nothing, so there is no span either.

A broker that traces has an engine and deliveries of the classes below, and only it imports this file: the way of a message through any
other one has no branch for it. Decides names, attributes (OpenTelemetry's conventions for messaging) and how many spans there may be.
What is sent where and when is OpenTelemetry's: a thread of its own, a queue that drops what is too much.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Iterable, Iterator
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

from stompbox import __version__
from stompbox.broker.addresses.address import Address
from stompbox.broker.addresses.redelivery import Refusal
from stompbox.broker.engine import Engine
from stompbox.broker.kinds import Kind
from stompbox.broker.queues.consumer import AckMode, Binding, Consumer, Output, Sent
from stompbox.broker.queues.state import QueueState
from stompbox.config import Configuration, TracingTable
from stompbox.config.matching import Wildcards
from stompbox.config.settings import AddressSettingsTable
from stompbox.config.spaces import local
from stompbox.errors import ConfigError, StompboxError
from stompbox.incarnations import NewId
from stompbox.message import Run, Shape
from stompbox.server.addressing.transforming import Transform
from stompbox.server.delivering import Deliveries
from stompbox.store.base import Commit

try:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
    from opentelemetry.trace import Span, SpanKind, Status, StatusCode, get_current_span
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as error:
    raise ConfigError(
        "no-opentelemetry", f"tracing.enabled is true, and {error}: pip install 'stompbox[otel]'"
    ) from None

if TYPE_CHECKING:
    from stompbox.server.broker import Broker
    from stompbox.server.session.connection import Connection

log = logging.getLogger("stompbox")

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
CLOSING: Final = 2.0  # seconds in which the last spans may go out when the broker stops
# W3C Trace Context, traceparent: the last bit of the flags is `sampled`
_SAMPLED: Final = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f][13579bdf]")
_OPERATIONS: Final = {"send": "send", "deliver": "deliver", "ack": "settle", "nack": "settle"}
_NS: Final = 1_000_000  # in a ms


def is_traced(shape: Shape) -> bool:
    """Whether messages of this shape bring a context at all."""
    return TRACEPARENT in shape.headers or TRACEPARENT in shape.holes


class Tracing:
    """What a broker that traces is made with. Raises ConfigError where spans could not go out."""

    def __init__(self, table: TracingTable, exporter: SpanExporter | None = None) -> None:
        """Spans go to this exporter, or to the endpoint of the configuration."""
        self.provider = TracerProvider(resource=_resource(table), shutdown_on_exit=False)
        self.spans = Spans(self.provider, table.max_spans_per_second)
        self.provider.add_span_processor(BatchSpanProcessor(exporter or _exporter(table.endpoint)))

    def engine(
        self,
        settings: AddressSettingsTable,
        *,
        wildcards: Wildcards,
        epoch: int,
        is_durable: bool,
        new_id: NewId,
    ) -> Engine:
        return TracedEngine(
            self.spans, settings, wildcards=wildcards, epoch=epoch, is_durable=is_durable, new_id=new_id
        )

    def deliveries(self, broker: Broker) -> Deliveries:
        return TracedDeliveries(broker, self.spans)

    def close(self) -> None:
        """Lets the last spans go out, where somebody takes them in time. Blocks."""
        closing = Thread(target=self.provider.shutdown, name="stompbox-tracing-end", daemon=True)
        closing.start()
        closing.join(CLOSING)
        if closing.is_alive():
            log.warning("the last spans were not taken within %g s, and are lost", CLOSING)


def tracing_of(configuration: Configuration) -> Tracing:
    return Tracing(configuration.tracing)


def _resource(table: TracingTable) -> Resource:
    """Who makes the spans. The environment (OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES) gives way to what the file says alone."""
    said = table.service_name
    if said is None and {"OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"}.isdisjoint(os.environ):
        said = "stompbox"
    return Resource.create({SERVICE_VERSION: __version__, **({SERVICE_NAME: said} if said else {})})


def _exporter(endpoint: str | None) -> SpanExporter:
    try:
        return OTLPSpanExporter(endpoint)
    except Exception as error:  # what the environment says is no value that it takes
        raise ConfigError("config-value", f"tracing: spans cannot be sent: {error}") from error


class Spans:
    """Begins spans, so many a second at most. Of the loop's thread."""

    def __init__(self, provider: TracerProvider, most: int) -> None:
        self.most = most
        self.made = 0
        self.left_out = 0  # there were too many in their second
        self._tracer = provider.get_tracer("stompbox", __version__)
        self._propagator = TraceContextTextMapPropagator()
        self._second = 0
        self._in_second = 0

    def begin(self, verb: str, run: Run, index: int, since: int, more: dict[str, Any]) -> Span | None:
        """A span for one message of a run, where its sender's was sampled and there is room. `since`: ns since the epoch."""
        parent = _header(run, index, TRACEPARENT)
        if not _SAMPLED.match(parent):
            return None
        carrier = {TRACEPARENT: parent, TRACESTATE: _header(run, index, TRACESTATE)}
        context = self._propagator.extract(carrier)
        if not get_current_span(context).get_span_context().is_valid or not self._has_room():
            return None
        self.made += 1
        destination = run.shape.destination
        return self._tracer.start_span(
            f"{verb} {destination}",
            context,
            SpanKind.PRODUCER if verb == "deliver" else SpanKind.SERVER,
            {
                "messaging.system": "stomp",
                "messaging.operation.name": verb,
                "messaging.operation.type": _OPERATIONS[verb],
                "messaging.destination.name": destination,
                "messaging.message.body.size": len(run.bodies[index]),
                **more,
            },
            start_time=since,
        )

    def _has_room(self) -> bool:
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._in_second = second, 0
        if 0 <= self.most <= self._in_second:
            self.left_out += 1
            return False
        self._in_second += 1
        return True

    def of_run(self, verb: str, run: Run, more: dict[str, Any]) -> list[Span]:
        """Spans that begin now, for each message of a run that is traced."""
        now = time.time_ns()
        begun = [self.begin(verb, run, index, now, more) for index in range(len(run))]
        return [span for span in begun if span is not None]

    def of_answers(self, verb: str, sent: Iterable[Sent]) -> list[Span]:
        """Spans that begin now, for messages that are acknowledged or refused."""
        now, begun = time.time_ns(), list[Span]()
        for binding, segment in sent:
            run = segment.run
            if not is_traced(run.shape):
                continue
            for offset in range(segment.first, segment.stop):
                more = of_binding(binding, offset)
                span = self.begin(verb, run, offset - run.first, now, more)
                if span is not None:
                    begun.append(span)
        return begun

    def __repr__(self) -> str:
        return f"<Spans made={self.made} left out={self.left_out}>"


def _header(run: Run, index: int, name: str) -> str:
    """What one message of a run says in a header, which may differ from message to message."""
    shape = run.shape
    if name in shape.holes:
        return bytes(run.columns[shape.holes.index(name)][index]).decode("ascii")
    return shape.headers.get(name, "")


def of_binding(binding: Binding, offset: int) -> dict[str, Any]:
    """Which message it is, and of which queue or subscription, as MESSAGE says it."""
    queue: QueueState = binding.queue
    return {
        "messaging.message.id": f"{queue.id}-{offset}",
        "messaging.destination.subscription.name": local(queue.name),
        "messaging.client.id": str(binding.consumer.owner.session_id),
    }


def end(spans: Iterable[Span], problem: str = "", text: str = "") -> None:
    """Ends them now; `problem`: a code of docs/errors.md."""
    now = time.time_ns()
    for span in spans:
        if problem:
            span.set_attribute("error.type", problem)
            span.set_status(Status(StatusCode.ERROR, text))
        span.end(now)


class TracedEngine(Engine):
    """An engine with a span for each message that it is sent and each answer to one, until that is on disk."""

    def __init__(
        self,
        spans: Spans,
        settings: AddressSettingsTable,
        *,
        wildcards: Wildcards,
        epoch: int,
        is_durable: bool,
        new_id: NewId,
    ) -> None:
        super().__init__(settings, wildcards=wildcards, epoch=epoch, is_durable=is_durable, new_id=new_id)
        self.spans = spans
        self.next_spans: list[Span] = []  # they end with the next commit,
        self.taken_spans: list[Span] = []  # and with the one that is under way

    def publish(self, address: Address, run: Run, *, is_answered: bool = False) -> bool:
        if not is_traced(run.shape):
            return super().publish(address, run, is_answered=is_answered)
        spans = self._of_sends([(address, run)])
        try:
            waits = super().publish(address, run, is_answered=is_answered)
        except StompboxError as error:
            end(spans, error.code, error.message)
            raise
        self._end(spans, waits=waits)
        return waits

    def publish_all(self, sends: Iterable[tuple[Address, Run]], *, is_answered: bool) -> bool:
        sends = list(sends)
        spans = self._of_sends(sends)
        try:
            waits = super().publish_all(sends, is_answered=is_answered)
        except StompboxError as error:
            end(spans, error.code, error.message)
            raise
        self._end(spans, waits=waits)
        return waits

    def _of_sends(self, sends: Iterable[tuple[Address, Run]]) -> list[Span]:
        """Spans of what comes; what goes to several addresses is one message all the same."""
        spans: list[Span] = []
        seen: list[Any] = []
        for _, run in sends:
            if is_traced(run.shape) and not any(run.bodies is one for one in seen):
                seen.append(run.bodies)
                client = {"messaging.client.id": str(run.sender)} if run.sender else {}
                spans += self.spans.of_run("send", run, client)
        return spans

    def acknowledge(self, consumer: Consumer, sent: list[Sent]) -> None:
        if consumer.ack is AckMode.AUTO or consumer.is_browser:
            super().acknowledge(consumer, sent)
            return
        spans = self.spans.of_answers("ack", sent)
        super().acknowledge(consumer, sent)
        self._end(spans, waits=self._is_kept(sent))

    def refusing(self, consumer: Consumer, sent: list[Sent], refusal: Refusal) -> Iterator[None]:
        self._end(self.spans.of_answers("nack", sent), waits=self._is_kept(sent))
        return super().refusing(consumer, sent, refusal)

    def _is_kept(self, sent: list[Sent]) -> bool:
        return self.is_durable and any(binding.queue.is_durable for binding, _ in sent)

    def _end(self, spans: list[Span], *, waits: bool) -> None:
        if waits:
            self.next_spans += spans
        else:
            end(spans)

    def take_commit(self) -> Commit:
        commit = super().take_commit()
        self.taken_spans, self.next_spans = self.next_spans, []
        return commit

    def committed(self) -> None:
        super().committed()
        end(self.taken_spans)
        self.taken_spans = []

    def commit_failed(self, commit: Commit) -> None:
        super().commit_failed(commit)
        end(self.taken_spans, "not-stored", "the store has refused the commit")
        self.taken_spans = []


class TracedDeliveries(Deliveries):
    """Deliveries with a span for each message that goes out."""

    def __init__(self, broker: Broker, spans: Spans) -> None:
        super().__init__(broker)
        self.spans = spans

    def _frames(self, output: Output, connection: Connection, first: int, stop: int) -> bytes:
        data = super()._frames(output, connection, first, stop)
        if is_traced(output.run.shape):
            self._tell(output, first, stop)
        return data

    def _stream(self, consumer: Consumer, output: Output, connection: Connection) -> None:
        super()._stream(consumer, output, connection)
        if is_traced(output.run.shape):
            self._tell(output, output.first, output.stop)

    def _transformed(
        self, consumer: Consumer, transform: Transform, output: Output, run: Run, offset: int
    ) -> bytes:
        data = super()._transformed(consumer, transform, output, run, offset)
        if data and is_traced(output.run.shape):
            self._tell(output, offset, offset + 1)
        return data

    def _tell(self, output: Output, first: int, stop: int) -> None:
        """Makes the spans of messages that are on their way to a subscription."""
        binding, run = output.binding, output.run
        kind = binding.queue.kind
        if kind is Kind.BROWSER:
            return
        now = time.time_ns()
        is_first = not output.is_redelivered and kind in (Kind.ANYCAST, Kind.DURABLE, Kind.TOPIC)
        since = min(now, _due(run) * _NS) if is_first else now
        for offset in range(first, stop):
            more = of_binding(binding, offset)
            span = self.spans.begin("deliver", run, offset - run.first, since, more)
            if span is not None:
                span.set_attribute("stompbox.redelivered", output.is_redelivered)
                span.end(now)


def _due(run: Run) -> int:
    """When its messages could be delivered first, ms since the epoch."""
    special = run.shape.special
    return run.arrived if special is None else max(run.arrived, special.delivery_time(run.arrived))
