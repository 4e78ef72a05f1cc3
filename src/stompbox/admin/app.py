"""Which path does what. docs/admin.md describes each answer."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from stompbox.admin import console, messages
from stompbox.admin.access import BROKER, Guard, may_see, require, user_of
from stompbox.admin.actions import OPERATIONS, Operate, find_queue
from stompbox.admin.health import notes, reasons
from stompbox.admin.history import SPANS, History
from stompbox.admin.lag import Lags, behind
from stompbox.admin.listing import Entry, Field, listed, named, number, truth
from stompbox.admin.metrics import Metrics
from stompbox.admin.pipelines import BY_PIPELINE, entries_of
from stompbox.admin.responses import json, refusal
from stompbox.admin.views import (
    STAY,
    address_view,
    connection_view,
    dead_letter_addresses,
    group_view,
    position_view,
    queue_view,
    sink_view,
    status_of,
)
from stompbox.broker.addresses.address import Address
from stompbox.broker.queues.depth import depth_of, sums_of
from stompbox.broker.queues.queue import Queue
from stompbox.config import AdminTable
from stompbox.errors import BrokerFault, IllegalFrame, Refused, StompboxError
from stompbox.security import Right
from stompbox.server.requests.replies import in_turns

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from stompbox.server.broker import Broker

API: Final = "/api/v1"
PAGES: Final = (
    *[f"{API}/{name}" for name in ("status", "addresses", "queues", "connections", "groups", "positions", "pipelines", "sinks")],
    f"{API}/messages", f"{API}/frames", f"{API}/history", "/metrics", "/healthz", "/readyz",
)  # fmt: skip


def build(broker: Broker, table: AdminTable, history: History) -> ASGIApp:
    """The whole admin interface as an ASGI app."""
    pages = Pages(broker, history)
    routes = [
        *console.routes(),
        Route(API, pages.index),
        Route("/healthz", pages.healthz),
        Route("/readyz", pages.readyz),
        Route("/metrics", pages.metrics),
        Route(f"{API}/status", pages.status),
        Route(f"{API}/addresses", pages.addresses),
        Route(f"{API}/queues", pages.queues),
        Route(f"{API}/connections", pages.connections),
        Route(f"{API}/groups", pages.groups),
        Route(f"{API}/positions", pages.positions),
        Route(f"{API}/pipelines", pages.pipelines),
        Route(f"{API}/sinks", pages.sinks),
        Route(f"{API}/messages", pages.messages),
        Route(f"{API}/frames", pages.frames),
        Route(f"{API}/history", pages.history),
        *[
            Route(f"{API}/{path}", Operate(broker, operation).post, methods=["POST"])
            for path, operation in OPERATIONS.items()
        ],
    ]
    app = Starlette(
        routes=routes,
        exception_handlers={HTTPException: _no_page, StompboxError: _refused, Exception: _fault},
    )
    app.state.broker = broker
    return Guard(app, broker, table)


async def _no_page(request: Request, error: Exception) -> Response:
    """What the router itself answers to a request that no page is for."""
    if isinstance(error, HTTPException) and error.status_code == 405:
        return refusal(
            Refused("wrong-method", f"{request.scope['path'][:200]!r} is not for {request.method}")
        )
    return refusal(
        Refused("no-such-page", f"{request.scope['path'][:200]!r} is not here; there are {', '.join(PAGES)}")
    )


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, StompboxError)
    broker: Broker = request.app.state.broker
    broker.errors[error.code] += 1
    return refusal(error)


async def _fault(request: Request, error: Exception) -> Response:
    """The answer to a fault of ours. Reading changes nothing; an operation may have been in the middle of something."""
    broker: Broker = request.app.state.broker
    if request.method == "POST":
        broker.faults.stop(f"{request.scope['path'][:200]!r} was done", error)
    return refusal(BrokerFault("internal-fault", "a fault of the broker; its log says more"))


class Pages:
    """The endpoints of what can be read."""

    def __init__(self, broker: Broker, history: History) -> None:
        self.broker = broker
        self.lags = Lags(broker)
        self.past = history
        self.prometheus = Metrics(broker, self.lags)

    async def index(self, _: Request) -> Response:
        return json({"pages": PAGES, "operations": [f"{API}/{path}" for path in OPERATIONS]})

    async def healthz(self, _: Request) -> Response:
        return json({"status": "ok"})

    async def readyz(self, _: Request) -> Response:
        found = reasons(self.broker)
        answer = {"status": "not ready" if found else "ready", "reasons": found, "notes": notes(self.broker)}
        return json(answer, 503 if found else 200)

    async def metrics(self, request: Request) -> Response:
        require(self.broker, request)
        return PlainTextResponse(await self.prometheus.text(), media_type=self.prometheus.content_type)

    async def status(self, request: Request) -> Response:
        require(self.broker, request)
        return json(status_of(self.broker))

    async def connections(self, request: Request) -> Response:
        require(self.broker, request)
        broker, only = self.broker, request.query_params.get("connection")
        found = [
            Entry(str(one.session_id), one, f"{one.session_id} {one.peer} {one.user.name} {one.client_id}")
            for one in sorted(broker.connections, key=_session)
            if only in (None, str(one.session_id))
        ]
        return await listed(
            request, "connections", found, lambda one: connection_view(broker, one), BY_CONNECTION
        )

    async def addresses(self, request: Request) -> Response:
        found = [
            named(address.name, address)
            for address in self._shown(request, request.query_params.get("address"))
        ]
        dead_letters = dead_letter_addresses(self.broker)
        return await listed(
            request, "addresses", found, lambda address: address_view(address, dead_letters), BY_ADDRESS
        )

    async def queues(self, request: Request) -> Response:
        """The queues that outlive their consumers; all of them with ?all=true."""
        is_all = truth(request, "all")
        found: list[Entry] = []
        async for address in in_turns(
            self.broker.turns, self._shown(request, request.query_params.get("address"))
        ):
            shown = (
                queue for queue in address.queues() if is_all or (queue.kind in STAY and not address.owner)
            )
            found += [named(f"{address.name}::{queue.name}", queue) for queue in shown]
        return await listed(request, "queues", found, queue_view, BY_QUEUE)

    async def groups(self, request: Request) -> Response:
        broker = self.broker
        shown = self._shown(request)
        self.lags.forget()

        async def view(name: str) -> object:
            return await group_view(broker, self.lags, name, shown)

        return await listed(
            request, "groups", [named(name, name) for name in sorted(broker.engine.group_patterns)], view
        )

    async def positions(self, request: Request) -> Response:
        """Groups by address: the lag of each position by itself."""
        broker = self.broker
        shown = self._shown(request, request.query_params.get("address"))
        self.lags.forget()
        found: list[tuple[str, Queue | None]] = []
        async for address in in_turns(self.broker.turns, shown):
            found += address.groups.items()
        if (
            broker.permissions.may(user_of(request), Right.MANAGE, BROKER)
            and "address" not in request.query_params
        ):
            waiting = broker.engine.group_patterns.keys() - {name for name, _ in found}
            found += [(name, None) for name in waiting]
        entries = [
            named(f"{name} {queue.address.name if queue else ''}", (name, queue)) for name, queue in found
        ]
        entries.sort(key=lambda entry: entry.key)
        return await listed(
            request, "positions", entries, lambda item: position_view(broker, self.lags, *item), BY_POSITION
        )

    async def pipelines(self, request: Request) -> Response:
        """The pipelines of the user; all of them for who may manage the broker."""
        user = user_of(request)
        is_all = self.broker.permissions.may(user, Right.MANAGE, BROKER)
        found = await entries_of(self.broker, None if is_all else user.name)
        return await listed(request, "pipelines", found, lambda view: view, BY_PIPELINE)

    async def sinks(self, request: Request) -> Response:
        """The sinks of the user; all of them for who may manage the broker."""
        user, sinks = user_of(request), self.broker.sinks
        is_all = self.broker.permissions.may(user, Right.MANAGE, BROKER)
        found = [
            named(name, sink)
            for name, sink in sorted(sinks.known_sinks().items())
            if is_all or user.name in sink.users
        ]
        return await listed(request, "sinks", found, lambda sink: sink_view(sinks, sink))

    async def messages(self, request: Request) -> Response:
        """The first messages of the queue that ?queue=NAME names."""
        queue = find_queue(self.broker, request.query_params.get("queue", ""))
        require(self.broker, request, Right.BROWSE, queue.address.name)
        most = queue.address.settings.management_browse_page_size
        count = number(request, "limit", most, most)
        return json(
            {"queue": queue.name, "messages": await messages.first_messages(self.broker, queue, count)}
        )

    async def frames(self, request: Request) -> Response:
        """Whose frames are logged because an operator asked for it."""
        require(self.broker, request)
        return json({"frames": self.broker.frames.listed()})

    async def history(self, request: Request) -> Response:
        """What was measured of the whole broker, or of ?address=NAME, over ?span=10m (default) or 24h."""
        span, address = request.query_params.get("span", SPANS[0]), request.query_params.get("address")
        if span not in SPANS:
            raise IllegalFrame("bad-span", f"span is {span[:80]!r}; allowed are {' and '.join(SPANS)}")
        if address is None:
            require(self.broker, request)
        elif not self._shown(request, address):
            require(self.broker, request, Right.MANAGE, address)
            raise Refused("no-such-address", f"address {address[:200]!r} does not exist")
        return json(self.past.plot(address, span))

    def _shown(self, request: Request, only: str | None = None) -> list[Address]:
        """Addresses that the user may see, by name; `only`: no other than this."""
        user = user_of(request)
        addresses = self.broker.engine.addresses
        found = (
            sorted(addresses.items())
            if only is None
            else [(only, addresses[only])]
            if only in addresses
            else []
        )
        if self.broker.permissions.may(user, Right.MANAGE, BROKER):
            return [address for _, address in found]
        return [address for name, address in found if may_see(self.broker, user, name)]


def _session(connection: Any) -> int:
    return int(connection.session_id)


def _lag(item: tuple[str, Queue | None]) -> int:
    queue = item[1]
    return 0 if queue is None else behind(queue)


# What lists can be sorted by

BY_ADDRESS: Final[Mapping[str, Field]] = MappingProxyType(
    {
        "name": lambda one: one.name, "next": lambda one: one.log.next, "ready": lambda one: sums_of(one).ready,
        "delayed": lambda one: sums_of(one).delayed, "delivering": lambda one: sums_of(one).delivering,
        "consumers": lambda one: sums_of(one).consumers,
    }
)  # fmt: skip
BY_QUEUE: Final[Mapping[str, Field]] = MappingProxyType(
    {
        "name": lambda one: one.name, "ready": lambda one: depth_of(one).ready, "delayed": lambda one: depth_of(one).delayed,
        "delivering": lambda one: depth_of(one).delivering, "consumers": lambda one: one.consumer_count,
    }
)  # fmt: skip
BY_CONNECTION: Final[Mapping[str, Field]] = MappingProxyType(
    {
        "id": _session, "peer": lambda one: one.peer, "user": lambda one: one.user.name, "client_id": lambda one: one.client_id,
        "since": lambda one: one.since, "subscriptions": lambda one: len(one.consumers), "transactions": lambda one: len(one.transactions),
    }
)  # fmt: skip
BY_POSITION: Final[Mapping[str, Field]] = MappingProxyType(
    {
        "group": lambda item: item[0], "address": lambda item: item[1].address.name if item[1] else "", "lag_messages": _lag,
        "moved": lambda item: item[1].moved if item[1] else 0,
    }
)  # fmt: skip
