"""Spans of a client against a running broker: whose child is whose, what they are called, and that the context went along."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import stompbox
from stompbox.errors import UsageError
from stompbox.tracing import TracedClient, TracedMessage, TracedSubscription, injected, traced
from tests.client.fake_broker import run

EXPORTER = InMemorySpanExporter()


@pytest.fixture(scope="module", autouse=True)
def provider() -> None:
    """There is one for a process, and it stays."""
    made = TracerProvider()
    made.add_span_processor(SimpleSpanProcessor(EXPORTER))
    trace.set_tracer_provider(made)


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    EXPORTER.clear()
    yield EXPORTER
    EXPORTER.clear()


def named(spans: InMemorySpanExporter, verb: str) -> ReadableSpan:
    """The one span of this verb."""
    (found,) = [span for span in spans.get_finished_spans() if span.name.partition(" ")[0] == verb]
    return found


def parent(span: ReadableSpan) -> int:
    assert span.parent is not None
    return span.parent.span_id


def own(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id


def test_from_send_over_process_to_ack(broker: tuple[str, int], spans: InMemorySpanExporter) -> None:
    run(from_send_over_process_to_ack(broker, spans))


async def from_send_over_process_to_ack(broker: tuple[str, int], spans: InMemorySpanExporter) -> None:
    async with traced(stompbox.connect(f"stomp://{broker[0]}:{broker[1]}")) as client:
        await client.send("/queue/traced.one", b"x")
        async with client.subscribe("/queue/traced.one", ack="client-individual") as messages:
            async for message in messages:
                async with message.process() as same:
                    assert same is message and message.headers["traceparent"].startswith("00-")
                break
    send, process, ack = (named(spans, verb) for verb in ("send", "process", "ack"))
    assert (send.name, process.name, ack.name) == (
        "send /queue/traced.one", "process /queue/traced.one", "ack /queue/traced.one",
    )  # fmt: skip
    assert (parent(process), parent(ack)) == (own(send), own(process))
    assert (send.kind, process.kind) == (trace.SpanKind.PRODUCER, trace.SpanKind.CONSUMER)
    assert send.attributes is not None and process.attributes is not None
    assert send.attributes["messaging.destination.name"] == "/queue/traced.one"
    assert process.attributes["messaging.message.id"] == message.id


def test_what_fails_is_recorded_and_refused(broker: tuple[str, int], spans: InMemorySpanExporter) -> None:
    run(what_fails_is_recorded_and_refused(broker, spans))


async def what_fails_is_recorded_and_refused(broker: tuple[str, int], spans: InMemorySpanExporter) -> None:
    async with traced(stompbox.connect(f"stomp://{broker[0]}:{broker[1]}")) as client:
        await client.send("/queue/traced.two", b"x")
        async with client.subscribe("/queue/traced.two", ack="client-individual") as messages:
            message = await messages.receive(timeout=20)
            assert message is not None
            with pytest.raises(ValueError, match="no good"):
                async with message.process():
                    raise ValueError("no good")
            again = await messages.receive(timeout=20)
            assert again is not None and again.is_redelivered
            await again.ack(confirm=True)
    process, nack, ack = (named(spans, verb) for verb in ("process", "nack", "ack"))
    assert process.status.status_code is trace.StatusCode.ERROR
    assert [event.name for event in process.events] == ["exception"]
    assert parent(nack) == own(process)
    assert parent(ack) == own(named(spans, "send"))


def test_many_in_one_span_and_a_handler(broker: tuple[str, int], spans: InMemorySpanExporter) -> None:
    run(many_in_one_span_and_a_handler(broker, spans))


async def many_in_one_span_and_a_handler(broker: tuple[str, int], spans: InMemorySpanExporter) -> None:
    url = f"stomp://{broker[0]}:{broker[1]}"
    async with traced(stompbox.connect(url)) as client, stompbox.connect(url) as plain:
        with trace.get_tracer("test").start_as_current_span("outer"):
            assert await client.send_many("/queue/traced.three", [b"1", b"2"], {"a": "b"}) == 2
            await plain.send("/queue/traced.three", b"3", injected({"a": "b"}))
        async with client.subscribe("/queue/traced.three", ack="client-individual") as messages:
            found = await messages.receive_many(3, timeout=20)
            while len(found) < 3:
                found += await messages.receive_many(3, timeout=20)
            for message in found:
                assert message.headers["a"] == "b"
                await message.ack()
    acks = [span for span in spans.get_finished_spans() if span.name.startswith("ack")]
    outer = next(span for span in spans.get_finished_spans() if span.name == "outer")
    assert [parent(span) for span in acks] == [own(named(spans, "send"))] * 2 + [own(outer)]


@pytest.mark.parametrize("kind", [TracedClient, TracedSubscription, TracedMessage])
def test_a_traced_verb_takes_what_the_plain_one_takes(kind: type) -> None:
    for name, verb in vars(kind).items():
        if inspect.isfunction(verb) and not name.startswith("_"):
            assert inspect.signature(verb) == inspect.signature(getattr(kind.__base__, name)), name


@pytest.mark.parametrize("headers", ["abc", [("a", "b")], 5])
def test_headers_that_are_none_are_refused_as_without_it(headers: Any) -> None:
    with pytest.raises(UsageError, match="headers must be a mapping of str to str or number"):
        injected(headers)


def test_who_does_not_ask_for_it_loads_none_of_it() -> None:
    code = "import stompbox, sys; print([name for name in sys.modules if 'opentelemetry' in name or name == 'stompbox.tracing'])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


def test_without_the_extra_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['opentelemetry'] = None\nimport stompbox.tracing"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert "pip install 'stompbox[otel]'" in done.stderr


def test_what_needs_no_answer_has_no_span_of_one(
    broker: tuple[str, int], spans: InMemorySpanExporter
) -> None:
    run(what_needs_no_answer_has_no_span_of_one(broker))
    assert [span.name for span in spans.get_finished_spans()] == [
        "send /queue/traced.auto",
        "process /queue/traced.auto",
    ]


async def what_needs_no_answer_has_no_span_of_one(broker: tuple[str, int]) -> None:
    async with traced(stompbox.connect(f"stomp://{broker[0]}:{broker[1]}")) as client:
        await client.send("/queue/traced.auto", b"x")
        async with client.subscribe("/queue/traced.auto", ack="auto") as messages:
            message = await messages.receive(10)
            assert message is not None
            async with message.process():
                pass
