"""Which path does what. docs/admin.md describes each answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from stompbox.admin.access import BROKER, Guard, may_see, require, user_of
from stompbox.admin.answers import json, refusal
from stompbox.admin.health import reasons
from stompbox.admin.lag import Lags
from stompbox.admin.metrics import Metrics
from stompbox.admin.operations import OPERATIONS, Operate
from stompbox.admin.views import STAY, address_view, connection_view, group_view, in_turns, queue_view, status_of
from stompbox.broker.address import Address
from stompbox.broker.queue import Queue
from stompbox.config import AdminTable
from stompbox.errors import IllegalFrame, Refused, StompboxError
from stompbox.security import Right

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from stompbox.server.broker import Broker

API: Final = "/api/v1"
LISTED: Final = 1000  # entries of one answer, if the request does not say how many
MOST: Final = 10_000
PAGES: Final = (
    *[f"{API}/{name}" for name in ("status", "addresses", "queues", "connections", "groups")],
    "/metrics", "/healthz", "/readyz",
)  # fmt: skip

Entry = tuple[str, Any]


def build(broker: Broker, table: AdminTable) -> ASGIApp:
    """The whole admin interface as an ASGI app."""
    pages = Pages(broker)
    routes = [
        Route("/", pages.index),
        Route("/healthz", pages.healthz),
        Route("/readyz", pages.readyz),
        Route("/metrics", pages.metrics),
        Route(f"{API}/status", pages.status),
        Route(f"{API}/addresses", pages.addresses),
        Route(f"{API}/queues", pages.queues),
        Route(f"{API}/connections", pages.connections),
        Route(f"{API}/groups", pages.groups),
        *[Route(f"{API}/{path}", Operate(broker, operation).post, methods=["POST"]) for path, operation in OPERATIONS.items()],
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _no_page, StompboxError: _refused})
    app.state.broker = broker
    return Guard(app, broker, table)


async def _no_page(request: Request, error: Exception) -> Response:
    """What the router itself refuses."""
    if isinstance(error, HTTPException) and error.status_code == 405:
        return refusal(Refused("wrong-method", f"{request.url.path[:200]!r} is not for {request.method}"))
    return refusal(Refused("no-such-page", f"{request.url.path[:200]!r} is not here; there are {', '.join(PAGES)}"))


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, StompboxError)
    broker: Broker = request.app.state.broker
    broker.errors[error.code] += 1
    return refusal(error)


class Pages:
    """What can be read."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.lags = Lags(broker)
        self.prometheus = Metrics(broker, self.lags)

    async def index(self, _: Request) -> Response:
        return json({"pages": PAGES, "operations": [f"{API}/{path}" for path in OPERATIONS]})

    async def healthz(self, _: Request) -> Response:
        return json({"status": "ok"})

    async def readyz(self, _: Request) -> Response:
        found = reasons(self.broker)
        return json({"status": "not ready" if found else "ready", "reasons": found}, 503 if found else 200)

    async def metrics(self, request: Request) -> Response:
        require(self.broker, request)
        return PlainTextResponse(await self.prometheus.text(), media_type=self.prometheus.content_type)

    async def status(self, request: Request) -> Response:
        require(self.broker, request)
        return json(status_of(self.broker))

    async def connections(self, request: Request) -> Response:
        require(self.broker, request)
        broker = self.broker
        found = [(str(one.session_id), one) for one in sorted(broker.connections, key=_session)]
        return await _listed(request, "connections", found, lambda one: connection_view(broker, one))

    async def addresses(self, request: Request) -> Response:
        found = [(address.name, address) for address in self._shown(request)]
        return await _listed(request, "addresses", found, address_view)

    async def queues(self, request: Request) -> Response:
        """Those that outlive their consumers; all of them with ?all=true."""
        is_all = _truth(request, "all")
        wanted = request.query_params.get("address")
        found: list[tuple[str, Queue]] = []
        async for address in in_turns(self._shown(request)):
            if wanted in (None, address.name):
                shown = (queue for queue in address.queues() if is_all or (queue.kind in STAY and not address.owner))
                found += [(f"{address.name}::{queue.name}", queue) for queue in shown]
        return await _listed(request, "queues", found, queue_view)

    async def groups(self, request: Request) -> Response:
        broker = self.broker
        shown = list(self._shown(request))
        self.lags.forget()

        async def view(name: str) -> object:
            return await group_view(broker, self.lags, name, shown)

        return await _listed(request, "groups", [(name, name) for name in sorted(broker.engine.group_patterns)], view)

    def _shown(self, request: Request) -> list[Address]:
        """Addresses that the user may see, by name."""
        user = user_of(request)
        addresses = sorted(self.broker.engine.addresses.items())
        if self.broker.permissions.may(user, Right.MANAGE, BROKER):
            return [address for _, address in addresses]
        return [address for name, address in addresses if may_see(self.broker, user, name)]


def _session(connection: Any) -> int:
    return int(connection.session_id)


async def _listed(
    request: Request, name: str, entries: list[Entry], view: Callable[[Any], object | Awaitable[object]]
) -> Response:
    """One page of a list, {NAME: […], "total": …, "next": …}: ?match=TEXT leaves out others, ?limit=N&after=KEY goes on."""
    match, after = request.query_params.get("match", ""), request.query_params.get("after")
    limit = _number(request, "limit", LISTED, MOST)
    entries = [entry for entry in entries if match in entry[0]]
    total = len(entries)
    if after is not None:
        keys = [key for key, _ in entries]
        entries = entries[keys.index(after) + 1 :] if after in keys else [entry for entry in entries if entry[0] > after]
    found = []
    async for _, item in in_turns(entries[:limit]):
        value = view(item)
        found.append(await value if isinstance(value, Awaitable) else value)
    following = entries[limit - 1][0] if len(entries) > limit else None
    return json({name: found, "total": total, "next": following})


def _number(request: Request, name: str, default: int, most: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and 1 <= int(text) <= most):
        raise IllegalFrame("bad-number", f"{name} is {text[:80]!r}; allowed is a number from 1 to {most}")
    return int(text)


def _truth(request: Request, name: str) -> bool:
    text = request.query_params.get(name, "false")
    if text not in ("true", "false"):
        raise IllegalFrame("bad-boolean", f"{name} is {text[:80]!r}; allowed are true and false")
    return text == "true"

