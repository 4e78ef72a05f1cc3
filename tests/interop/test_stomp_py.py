"""stomp.py, the oldest Python client, plays with the broker: versions 1.1 and 1.2 over TCP, 1.2 over WebSocket."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import pytest
import stomp

WITHIN = 10.0  # seconds for anything that is on its way


@dataclass(frozen=True, slots=True)
class Dialect:
    """One way to connect. `ack_headers` are the headers of a MESSAGE whose values its ACK names, in the order of `ack`."""

    name: str
    connect: Callable[[tuple[str, int]], Any]
    ack_headers: tuple[str, ...]


DIALECTS = [
    Dialect("1.1", lambda at: stomp.Connection11([at]), ("message-id", "subscription")),  # STOMP 1.1, ACK
    Dialect("1.2", lambda at: stomp.Connection12([at]), ("ack",)),  # STOMP 1.2, ACK
    Dialect("1.2 over WebSocket", lambda at: stomp.WSConnection([at], ws_path="/stomp"), ("ack",)),
]


class Inbox(stomp.ConnectionListener):  # type: ignore[misc]
    """What the client's own thread hands over, to be waited for."""

    def __init__(self) -> None:
        self.messages: SimpleQueue[Any] = SimpleQueue()
        self.receipts: SimpleQueue[str] = SimpleQueue()
        self.errors: list[Any] = []

    def on_message(self, frame: Any) -> None:
        self.messages.put(frame)

    def on_receipt(self, frame: Any) -> None:
        self.receipts.put(frame.headers["receipt-id"])

    def on_error(self, frame: Any) -> None:
        self.errors.append(frame)


@contextmanager
def session(dialect: Dialect, broker: tuple[str, int]) -> Iterator[tuple[Any, Inbox]]:
    """A connection that ends as the protocol asks: DISCONNECT, and no close before its RECEIPT."""
    connection, inbox = dialect.connect(broker), Inbox()
    connection.set_listener("inbox", inbox)
    connection.connect("guest", "guest", wait=True)
    yield connection, inbox
    connection.disconnect(receipt="goodbye")
    assert inbox.receipts.get(timeout=WITHIN) == "goodbye"
    assert inbox.errors == []


@pytest.fixture(params=DIALECTS, ids=lambda dialect: dialect.name)
def dialect(request: pytest.FixtureRequest) -> Dialect:
    chosen: Dialect = request.param
    return chosen


@pytest.fixture
def queue(dialect: Dialect, request: pytest.FixtureRequest) -> str:
    return f"/queue/interop.stomp-py.{request.function.__name__}.{dialect.name.replace(' ', '-')}"


def send(connection: Any, inbox: Inbox, queue: str, *bodies: str) -> None:
    for body in bodies:
        connection.send(queue, body, receipt=f"sent-{body}")
        assert inbox.receipts.get(timeout=WITHIN) == f"sent-{body}"


def subscribe(connection: Any, inbox: Inbox, queue: str, *, ack: str) -> None:
    connection.subscribe(queue, id="1", ack=ack, receipt="subscribed")
    assert inbox.receipts.get(timeout=WITHIN) == "subscribed"


def test_what_was_sent_with_a_receipt_arrives_as_it_was(
    broker: tuple[str, int], dialect: Dialect, queue: str
) -> None:
    with session(dialect, broker) as (connection, inbox):
        connection.send(
            queue, "grün\n1:2\\", content_type="text/plain", receipt="r", headers={"colour": "a:b\nc\\d"}
        )
        assert inbox.receipts.get(timeout=WITHIN) == "r"
        subscribe(connection, inbox, queue, ack="auto")
        frame = inbox.messages.get(timeout=WITHIN)
        assert frame.body == "grün\n1:2\\"
        assert frame.headers["destination"] == queue
        assert frame.headers["content-type"] == "text/plain"
        assert frame.headers["colour"] == "a:b\nc\\d"


def test_only_what_was_not_acknowledged_comes_again(
    broker: tuple[str, int], dialect: Dialect, queue: str
) -> None:
    with session(dialect, broker) as (connection, inbox):
        send(connection, inbox, queue, "one", "two", "three")
        subscribe(connection, inbox, queue, ack="client-individual")
        frames = [inbox.messages.get(timeout=WITHIN) for _ in range(3)]
        assert [frame.body for frame in frames] == ["one", "two", "three"]
        connection.ack(*(frames[1].headers[name] for name in dialect.ack_headers), receipt="acked")
        assert inbox.receipts.get(timeout=WITHIN) == "acked"
    with session(dialect, broker) as (connection, inbox):
        subscribe(connection, inbox, queue, ack="auto")
        again = [inbox.messages.get(timeout=WITHIN) for _ in range(2)]
        assert [(frame.body, frame.headers.get("redelivered")) for frame in again] == [
            ("one", "true"),
            ("three", "true"),
        ]


def test_a_transaction_counts_when_committed_and_not_when_aborted(
    broker: tuple[str, int], dialect: Dialect, queue: str
) -> None:
    with session(dialect, broker) as (connection, inbox):
        subscribe(connection, inbox, queue, ack="auto")
        dropped = connection.begin()
        connection.send(queue, "never", transaction=dropped)
        connection.abort(dropped)
        kept = connection.begin()
        connection.send(queue, "first", transaction=kept)
        connection.send(queue, "second", transaction=kept)
        # its receipt is here, so what came before it has been taken in
        send(connection, inbox, queue, "outside")
        assert inbox.messages.get(timeout=WITHIN).body == "outside"
        connection.commit(kept)
        assert [inbox.messages.get(timeout=WITHIN).body for _ in range(2)] == ["first", "second"]
