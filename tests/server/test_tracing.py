"""Spans of the broker: which there are, whose children they are, when they end, and what a broker without them does not load."""

from __future__ import annotations

import gzip
import subprocess
import sys
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from stompbox import blocking
from stompbox.errors import Refused
from stompbox.server import tracing
from stompbox.testing import Broker
from tests.conftest import Serve

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
NOT_SAMPLED = {"traceparent": f"00-{TRACE}-{PARENT}-00"}


def numbered(number: int) -> dict[str, str]:
    """A context of its own for each message, as tracing clients write them."""
    return {"traceparent": f"00-{TRACE}-{number:016x}-01"}


Traced = Callable[..., Broker]


@pytest.fixture
def spans() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch, spans: InMemorySpanExporter) -> Iterator[Traced]:
    """traced(key=value of [tracing]) -> a broker that runs; its spans are whole when it was stopped."""
    monkeypatch.setattr(tracing, "_exporter", lambda endpoint: spans)
    running: list[Broker] = []

    def start(**keys: Any) -> Broker:
        running.append(Broker({"tracing": {"enabled": True} | keys}).start())
        return running[-1]

    yield start
    for broker in running:
        broker.stop()


def told(spans: InMemorySpanExporter) -> list[str]:
    return [span.name for span in spans.get_finished_spans()]


def of(spans: InMemorySpanExporter, verb: str) -> list[ReadableSpan]:
    return [span for span in spans.get_finished_spans() if span.name.partition(" ")[0] == verb]


def test_a_message_is_sent_delivered_and_acknowledged(traced: Traced, spans: InMemorySpanExporter) -> None:
    broker = traced()
    with blocking.connect(broker.url) as client:
        client.send("/queue/spans", b"42 apples", SAMPLED)
        with client.subscribe("/queue/spans", ack="client-individual") as messages:
            message = messages.receive(20)
            assert message is not None and message.headers["traceparent"] == SAMPLED["traceparent"]
            message.ack(confirm=True)
    broker.stop()
    assert sorted(told(spans)) == ["ack /queue/spans", "deliver /queue/spans", "send /queue/spans"]
    [sent], [delivered], [acknowledged] = of(spans, "send"), of(spans, "deliver"), of(spans, "ack")
    kinds = [span.kind for span in (sent, delivered, acknowledged)]
    assert kinds == [SpanKind.SERVER, SpanKind.PRODUCER, SpanKind.SERVER]
    for span in (sent, delivered, acknowledged):
        assert span.parent is not None and span.context is not None and span.attributes is not None
        assert (f"{span.parent.span_id:016x}", f"{span.context.trace_id:032x}") == (PARENT, TRACE)
        assert span.start_time is not None and span.end_time is not None and span.end_time >= span.start_time
        assert span.attributes["messaging.destination.name"] == "/queue/spans"
        assert span.attributes["messaging.message.body.size"] == 9
        assert span.resource.attributes["service.name"] == "stompbox"
    assert delivered.attributes is not None and acknowledged.attributes is not None
    for span in (delivered, acknowledged):
        assert span.attributes is not None
        assert span.attributes["messaging.message.id"] == message.id
        assert span.attributes["messaging.destination.subscription.name"] == "spans"
    assert acknowledged.attributes["messaging.operation.type"] == "settle"


@pytest.mark.parametrize("headers", [{}, NOT_SAMPLED, {"traceparent": "nonsense"}, {"traceparent": ""},
                                     {"traceparent": f"00-{'0' * 32}-{PARENT}-01"}])  # fmt: skip
def test_what_is_not_sampled_has_no_spans(
    traced: Traced, spans: InMemorySpanExporter, headers: dict[str, str]
) -> None:
    broker = traced()
    with blocking.connect(broker.url) as client:
        client.send("/queue/spans", b"x", headers)
        with client.subscribe("/queue/spans", ack="client") as messages:
            message = messages.receive(20)
            assert message is not None
            message.ack(confirm=True)
    broker.stop()
    assert told(spans) == []


def test_messages_of_one_run_have_their_own_parents(traced: Traced, spans: InMemorySpanExporter) -> None:
    broker = traced()
    with blocking.connect(broker.url) as client:
        with client.publisher() as publisher:
            for number in range(1, 41):
                publisher.send("/queue/spans", b"x", numbered(number))
        with client.subscribe("/queue/spans", ack="client") as messages:  # the last one's ACK is for all
            last = None
            for _ in range(40):
                last = messages.receive(20)
            assert last is not None
            last.ack(confirm=True)
    broker.stop()
    for verb in ("send", "deliver", "ack"):
        assert sorted(span.parent.span_id for span in of(spans, verb) if span.parent) == list(range(1, 41))


def test_a_transaction_sends_when_it_commits(traced: Traced, spans: InMemorySpanExporter) -> None:
    broker = traced()
    with blocking.connect(broker.url) as client:
        with pytest.raises(ZeroDivisionError), client.transaction() as given_up:
            given_up.send("/queue/spans", b"never", numbered(1))
            raise ZeroDivisionError
        with client.transaction() as transaction:
            transaction.send("/queue/spans", b"x", numbered(2))
    broker.stop()
    assert [span.parent.span_id for span in of(spans, "send") if span.parent] == [2]


def test_what_is_refused_and_comes_again(traced: Traced, spans: InMemorySpanExporter) -> None:
    broker = traced()
    with blocking.connect(broker.url) as client:
        client.send("/queue/spans", b"x", SAMPLED)
        with client.subscribe("/queue/spans", ack="client-individual") as messages:
            message = messages.receive(20)
            assert message is not None
            message.nack(confirm=True)
            again = messages.receive(20)
            assert again is not None and again.is_redelivered
            again.ack(confirm=True)
    broker.stop()
    assert (len(of(spans, "nack")), len(of(spans, "ack"))) == (1, 1)
    said = [span.attributes["stompbox.redelivered"] for span in of(spans, "deliver") if span.attributes]
    assert said == [False, True]
    again_delivered = of(spans, "deliver")[1]
    assert again_delivered.start_time == again_delivered.end_time


def test_who_only_looks_and_acknowledges_by_itself(traced: Traced, spans: InMemorySpanExporter) -> None:
    broker = traced()
    with blocking.connect(broker.url) as client:
        client.send("/queue/spans", b"x", SAMPLED)
        with client.subscribe("/queue/spans", headers={"browser": "true"}) as looking:
            assert looking.receive(20) is not None
        with client.subscribe("/queue/spans") as messages:
            assert messages.receive(20) is not None
    broker.stop()
    assert sorted(told(spans)) == ["deliver /queue/spans", "send /queue/spans"]


def test_a_send_that_is_refused_says_why(traced: Traced, spans: InMemorySpanExporter) -> None:
    broker = traced()
    broker.fill_disk()
    with blocking.connect(broker.url) as client, pytest.raises(Refused):
        client.send("/queue/spans", b"x", SAMPLED | {"persistent": "true"})
    broker.stop()
    [sent] = of(spans, "send")
    assert sent.status.status_code is StatusCode.ERROR
    assert sent.attributes is not None and sent.attributes["error.type"] in ("disk-full", "not-stored")


@pytest.mark.parametrize(("keys", "name"), [({}, "orders"), ({"service-name": "shop"}, "shop")])
def test_the_file_and_the_environment_name_the_service(
    keys: dict[str, str],
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    traced: Traced,
    spans: InMemorySpanExporter,
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "orders")
    broker = traced(**keys)
    with blocking.connect(broker.url) as client:
        client.send("/queue/spans", b"x", SAMPLED)
    broker.stop()
    [sent] = spans.get_finished_spans()
    assert sent.resource.attributes["service.name"] == name


def test_there_are_no_more_than_the_limit(traced: Traced, spans: InMemorySpanExporter) -> None:
    broker = traced(**{"max-spans-per-second": 3})
    with blocking.connect(broker.url) as client:
        client.send_many("/queue/spans", [b"x"] * 500, SAMPLED)
    broker.stop()
    assert 3 <= len(of(spans, "send")) < 100


def test_who_does_not_trace_loads_none_of_it() -> None:
    code = (
        "import asyncio, sys, stompbox.server.run as run\n"
        "from stompbox.config import load\n"
        "async def main():\n"
        "    broker, servers, _ = await run.start(load(None, {}, {'memory': True, 'listen': ['tcp://127.0.0.1:0']}))\n"
        "    print(type(broker.engine).__name__, [name for name in sys.modules if 'opentelemetry' in name])\n"
        "    await run.stop(broker, servers)\n"
        "asyncio.run(main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout.strip() == "Engine []", done.stderr


def test_without_the_extra_it_says_what_to_install(tmp_path: Path) -> None:
    code = "import sys; sys.modules['opentelemetry.sdk'] = None\nfrom stompbox.cli import main; main()"
    command = [sys.executable, "-c", code, "serve", "--memory", "--listen", "tcp://127.0.0.1:0", "--no-admin"]
    done = subprocess.run(
        command, env={"STOMPBOX_TRACING_ENABLED": "true", "PATH": "/usr/bin"}, cwd=tmp_path, capture_output=True, text=True,
        check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert "tracing.enabled is true" in done.stderr and "pip install 'stompbox[otel]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "endpoint", ["localhost:4318", "grpc://localhost:4317", "http://", "http://host:port/v1/traces"]
)
def test_an_endpoint_that_cannot_be_posted_to_is_refused(endpoint: str, tmp_path: Path) -> None:
    file = tmp_path / "stompbox.toml"
    file.write_text(f'[tracing]\nenabled = true\nendpoint = "{endpoint}"\n')
    command = [sys.executable, "-m", "stompbox", "config", "check", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert f"{file}:3: tracing.endpoint: expected http://host:port/path" in done.stderr


@pytest.fixture
def collector() -> Iterator[tuple[str, SimpleQueue[Span]]]:
    """(URL, what was posted to it): as much of an OpenTelemetry collector as there must be."""
    found: SimpleQueue[Span] = SimpleQueue()

    class Posted(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                for scope in resource.scope_spans:
                    for span in scope.spans:
                        found.put(span)
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Posted)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1/traces", found
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("fronts", ["0", "1"])
def test_spans_of_a_broker_with_a_disk_reach_a_collector(
    serve: Serve, tmp_path: Path, collector: tuple[str, SimpleQueue[Span]], fronts: str
) -> None:
    """Also of a body that lies in the store in pieces. What is there when the broker stops goes out."""
    url, found = collector
    environment = {
        "STOMPBOX_TRACING_ENABLED": "true", "STOMPBOX_TRACING_ENDPOINT": url, "STOMPBOX_FRONTS": fronts,
        "OTEL_BSP_SCHEDULE_DELAY": "100",
    }  # fmt: skip
    served = serve(
        "--data",
        str(tmp_path / "data"),
        "--listen",
        "tcp://127.0.0.1:0",
        "--no-admin",
        environment=environment,
    )
    with blocking.connect(f"stomp://{served.host}:{served.port}") as client:
        client.send("/queue/spans", b"x" * 200_000, SAMPLED)
        with client.subscribe("/queue/spans", ack="client-individual") as messages:
            message = messages.receive(20)
            assert message is not None and len(message.body) == 200_000
            message.ack(confirm=True)
    first = [found.get(timeout=20) for _ in range(3)]
    assert sorted(span.name.partition(" ")[0] for span in first) == ["ack", "deliver", "send"]
    for span in first:
        assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT)
        said = {one.key: one.value for one in span.attributes}
        assert said["messaging.message.body.size"].int_value == 200_000
    with blocking.connect(f"stomp://{served.host}:{served.port}") as client:
        client.send("/queue/spans", b"the last one", SAMPLED)
    assert served.stop() == 0
    assert found.get(timeout=20).name == "send /queue/spans"


def test_a_collector_that_is_not_there_holds_nobody_up(serve: Serve) -> None:
    environment = {
        "STOMPBOX_TRACING_ENABLED": "true",
        "STOMPBOX_TRACING_ENDPOINT": "http://127.0.0.1:1/v1/traces",
    }
    served = serve("--memory", "--listen", "tcp://127.0.0.1:0", "--no-admin", environment=environment)
    with blocking.connect(f"stomp://{served.host}:{served.port}") as client:
        client.send("/queue/spans", b"x", SAMPLED)
    assert served.stop() == 0
    assert "Traceback" not in served.log.read_text()
