"""The arguments of `subscribe`, checked, and the headers of the SUBSCRIBE that they mean to the broker that answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeAlias

from stompbox.client.outgoing import Headers, header_texts
from stompbox.errors import UsageError

ACK_MODES: Final = ("auto", "client", "client-individual")  # STOMP 1.2, SUBSCRIBE ack Header
OFFSETS: Final = ("first", "last", "next")
Offset: TypeAlias = int | str | datetime
_OWN_HEADERS: Final = frozenset(
    ("destination", "id", "ack", "selector", "receipt", "transaction", "content-length")
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The arguments of `subscribe` after they were checked."""

    destination: str
    ack: str
    id: str | None = None  # of a durable subscription its name: RabbitMQ knows it by that
    selector: str | None = None
    durable: str | None = None
    prefetch: int | None = None
    offset: str | None = None  # as x-stream-offset spells it
    headers: Mapping[str, str] = field(default_factory=dict)

    def headers_for(self, server: str, client_id: str | None) -> dict[str, str]:
        """The SUBSCRIBE's headers, in the spelling of the broker that CONNECTED named."""
        found = {"destination": self.destination, "ack": self.ack}
        if self.selector is not None:
            found["selector"] = self.selector
        if self.durable is not None:
            found.update(durable_headers(self.durable, server, client_id))
        if self.prefetch is not None:
            found[_prefetch_header(server)] = str(self.prefetch)
        if self.offset is not None:
            found.update(_offset_headers(self.offset, server))
        return {**found, **self.headers}


def wanted(
    destination: str,
    ack: str,
    *,
    id: str | None,
    selector: str | None,
    durable: str | None,
    prefetch: int | None,
    offset: Offset | None,
    headers: Headers | None,
) -> Wanted:
    """Raises UsageError that names the argument and what is allowed."""
    for name, value in (
        ("destination", destination),
        ("id", id),
        ("selector", selector),
        ("durable", durable),
    ):
        if (value is None and name == "destination") or not isinstance(value, str | None) or value == "":
            raise UsageError("bad-argument", f"{name} is {value!r}; allowed is a str that is not empty")
    if ack not in ACK_MODES:
        raise UsageError("bad-argument", f"ack is {ack!r}; allowed are {', '.join(ACK_MODES)}")
    if prefetch is not None and (not isinstance(prefetch, int) or isinstance(prefetch, bool) or prefetch < 1):
        raise UsageError("bad-argument", f"prefetch is {prefetch!r}; allowed is a number of messages from 1")
    texts = header_texts(headers)
    for name in _OWN_HEADERS & texts.keys():
        raise UsageError(
            "reserved-header",
            f"header {name!r} of a SUBSCRIBE is written by the client; use the argument of that name",
        )
    start = None if offset is None else _offset(offset)
    return Wanted(destination, ack, id or durable, selector, durable, prefetch, start, texts)


def durable_headers(name: str, server: str, client_id: str | None) -> dict[str, str]:
    """A durable subscription: by client-id and name as in JMS, or RabbitMQ's way, where the `id` is the name."""
    if server.startswith("RabbitMQ"):
        return {"durable": "true", "auto-delete": "false"}
    if client_id is None:
        raise UsageError(
            "no-client-id",
            f"the durable subscription {name!r} needs a client_id in connect(…): the broker knows it by both",
        )
    return {"durable-subscription-name": name, "activemq.subscriptionName": name}


def _prefetch_header(server: str) -> str:
    """Artemis counts octets where ActiveMQ Classic, RabbitMQ and Stompbox count messages."""
    if server.startswith("ActiveMQ-Artemis"):
        raise UsageError(
            "no-prefetch",
            'prefetch: Artemis counts octets, not messages; use headers={"consumer-window-size": …}',
        )
    return "activemq.prefetchSize" if server.startswith("ActiveMQ") else "prefetch-count"


def _offset(offset: Offset) -> str:
    if isinstance(offset, int) and not isinstance(offset, bool) and offset >= 0:
        return f"offset={offset}"
    if isinstance(offset, str) and offset in OFFSETS:
        return offset
    if isinstance(offset, datetime) and offset.tzinfo is not None:
        return f"timestamp={max(0, int(offset.timestamp()))}"
    raise UsageError(
        "bad-argument",
        f"offset is {offset!r}; allowed are a number from 0, {', '.join(OFFSETS)}, and a datetime with a time zone",
    )


def _offset_headers(offset: str, server: str) -> dict[str, str]:
    if server and not server.startswith(("Stompbox", "RabbitMQ")):
        raise UsageError("no-offset", f"offset: {server} keeps no log that could be read from an offset")
    return {"x-queue-type": "stream", "x-stream-offset": offset}
