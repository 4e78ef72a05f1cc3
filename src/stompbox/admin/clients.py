"""Who is at a queue, who has gone and why, which processes have the sockets, and where a page can speak STOMP. Each is an endpoint
(endpoints.py), whose description is its docstring."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from starlette.responses import Response

from stompbox.admin.actions import find_queue
from stompbox.admin.endpoints import ON_ADDRESS, ON_BROKER, naming, reading
from stompbox.admin.listing import Field, by_field, cutting, listed, page_of
from stompbox.admin.pages import QUEUE
from stompbox.config import host_of, is_loopback
from stompbox.config.listener import ANYWHERE
from stompbox.security import Right
from stompbox.server.closings import Closing

if TYPE_CHECKING:
    from starlette.requests import Request

    from stompbox.admin.apirequest import ApiRequest
    from stompbox.broker.queues.consumer import Binding
    from stompbox.config import Listener
    from stompbox.server.broker import Broker
    from stompbox.server.seam import Front


class ConsumerView(Struct, frozen=True):
    """A consumer of one queue. `id`: of its subscription; `delivering`: messages of the queue that it has and has not acknowledged, of
    which `oldest` is the lowest offset; `acknowledged`: so many were. `selector`: its own."""

    connection: int
    peer: str
    port: int
    user: str
    client_id: str
    id: str
    destination: str
    ack: str
    selector: str | None
    priority: int
    delivering: int
    oldest: int | None
    acknowledged: int


class FrontView(Struct, frozen=True):
    """A process that has the sockets of some clients. `busy`: the share of a core that it takes; octets on its link since the start."""

    name: str
    connections: int
    busy: float
    received_bytes: int
    sent_bytes: int
    restarts: int


class WebSockets(Struct, frozen=True):
    """URLs of listeners, as a browser that sees this host can reach them."""

    urls: list[str]


BY_CONSUMER: Final[Mapping[str, Field]] = MappingProxyType(
    {
        "connection": lambda one: one.consumer.owner.session_id, "user": lambda one: one.consumer.owner.user.name,
        "delivering": lambda one: one.out, "acknowledged": lambda one: one.done,
    }
)  # fmt: skip
BY_CLOSING: Final[Mapping[str, Field]] = MappingProxyType(
    {"at": lambda one: one.at, "code": lambda one: one.code, "user": lambda one: one.user}
)


@reading("consumers", page_of("consumers", ConsumerView), ON_ADDRESS, QUEUE, *cutting(BY_CONSUMER))
async def consumers(asked: ApiRequest) -> Response:
    """Consumers of a queue, with what each of them holds."""
    with naming("queue"):
        queue = await find_queue(asked, asked.values["queue"])
        asked.require(Right.MANAGE, queue.address.name)
    found = [one for one in queue.bindings if one.consumer.owner is not None]  # else it is the broker's own
    found = await asked.broker.turns.taken(by_field(found, _consumer))
    return await listed(
        asked, "consumers", found, consumer_view, key=_consumer, text=lambda one: _client(one.consumer.owner), fields=BY_CONSUMER
    )  # fmt: skip


def _consumer(one: Binding) -> str:
    return f"{one.consumer.owner.session_id:012} {one.consumer.name}"


def _client(owner: Any) -> str:
    return f"{owner.session_id} {owner.peer} {owner.user.name} {owner.client_id}"


def consumer_view(one: Binding) -> ConsumerView:
    """A consumer as the API shows it."""
    consumer = one.consumer
    owner = consumer.owner
    return ConsumerView(
        owner.session_id, owner.peer, owner.transport.port, owner.user.name, owner.client_id, consumer.name, consumer.destination,
        consumer.ack.value, consumer.selector.text if consumer.selector else None, consumer.priority, one.out,
        one.oldest, one.done,
    )  # fmt: skip


@reading("closings", page_of("closings", Closing), ON_BROKER, *cutting(BY_CLOSING))
async def closings(asked: ApiRequest) -> Response:
    """The last 200 connections that have ended, the latest first, and why they did."""
    asked.require()
    return await listed(
        asked, "closings", list(asked.broker.closings)[::-1], lambda closing: closing, key=lambda one: f"{one.id:012}",
        text=lambda one: f"{one.id} {one.peer} {one.user} {one.client_id} {one.code}", fields=BY_CLOSING,
    )  # fmt: skip


@reading("fronts", page_of("fronts", FrontView), ON_BROKER, *cutting())
async def fronts(asked: ApiRequest) -> Response:
    """Processes that have the sockets of clients, where the broker was started with some."""
    asked.require()
    return await listed(asked, "fronts", asked.broker.fronts, front_view, key=lambda one: one.name)


def front_view(front: Front) -> FrontView:
    return FrontView(front.name, front.connections, front.busy, *front.octets, front.restarts)


@reading("websockets", WebSockets, "Needs no right.")
async def websockets(asked: ApiRequest) -> object:
    """Where a page of this host can speak STOMP over WebSocket: what the console's policy lets it connect to."""
    return WebSockets(list(socket_urls(asked.broker, asked.request)))


def socket_urls(broker: Broker, request: Request) -> dict[str, str]:
    """URLs of the listeners for who asks by this Host header, each with its origin. An IPv6 address that is no loopback is left out: a
    page's policy cannot name one. So is what has no TLS where the page came by TLS, for no browser would connect."""
    host, is_safe = host_of(request.headers.get("host", "")), request.scope["scheme"] == "https"
    found = {}
    for acceptor in broker.acceptors:
        one = acceptor.listener
        name = None if one.is_unix or (is_safe and not one.is_tls) else _name(one, host or "localhost")
        if name is not None:
            origin = f"{'wss' if one.is_tls else 'ws'}://{name}:{one.port}"
            found[origin + (one.options.web_socket_path or ("/",))[0]] = origin
    return found


def _name(listener: Listener, host: str) -> str | None:
    """What a page that was asked for by this host calls the listener's."""
    at = host if listener.host in ANYWHERE else listener.host
    if ":" not in at:
        return at
    return "localhost" if is_loopback(at) else None
