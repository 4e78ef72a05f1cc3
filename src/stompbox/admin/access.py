"""Who may ask the admin interface, from where, and what browsers are told with every answer.

| what                                      | against                                                                       |
|-------------------------------------------|-------------------------------------------------------------------------------|
| the Host header must be a known one       | a page whose name was made to point here (DNS rebinding)                      |
| login and passcode, where users are known | strangers; failures are slowed, and counted with those of STOMP               |
| a right for everything that is not public | users: `manage` on BROKER for the whole, `manage` or `browse` for one address |
| a POST is JSON, and of this origin        | pages that post in the name of who reads them (CSRF)                          |
| HEADERS                                   | pages that frame, sniff or run what is answered                               |
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from email.utils import formatdate
from typing import TYPE_CHECKING, Final

from starlette.requests import Request

from stompbox.admin.responses import refusal
from stompbox.config import AdminTable, host_of, is_own_host
from stompbox.errors import Refused, StompboxError
from stompbox.security import Right, User
from stompbox.server import stopping

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from stompbox.server.broker import Broker

BROKER: Final = "stompbox.admin"  # the address that stands for the broker as a whole where rights are asked
OPEN: Final = frozenset(("/healthz", "/readyz"))  # without credentials: whoever asks these has none
HEADERS: Final = (
    (
        b"content-security-policy",
        b"default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)


class Guard:
    """In front of the app: lets through what may be asked, with `request.state.user`."""

    def __init__(self, app: ASGIApp, broker: Broker, table: AdminTable) -> None:
        self.app = app
        self.broker = broker
        endpoint = table.endpoint()
        self.listened = endpoint[0].casefold() if endpoint else ""
        self.allowed = frozenset(name.casefold() for name in table.allowed_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_answered = False

        async def send_with_headers(message: Message) -> None:
            nonlocal is_answered
            if message["type"] == "http.response.start":
                is_answered = True
                date = (b"date", formatdate(usegmt=True).encode())
                given = {name for name, _ in message["headers"]}  # the console says itself what it may do
                message["headers"] = [
                    *message["headers"],
                    *[header for header in HEADERS if header[0] not in given],
                    date,
                ]
            await send(message)

        request = Request(scope)
        app: ASGIApp = self.app
        try:
            self._check_host(request)
            request.state.user = await self._user(request)
            if request.method not in ("GET", "HEAD"):
                _check_origin(request)
        except StompboxError as error:
            self.broker.errors[error.code] += 1
            app = refusal(error)
        try:
            await app(scope, receive, send_with_headers)
        except asyncio.CancelledError:  # the broker ends, and no request outlives it
            if not is_answered:
                await refusal(stopping.refusal())(scope, receive, send_with_headers)

    def _check_host(self, request: Request) -> None:
        header = ", ".join(request.headers.getlist("host"))  # with two of them nobody knows which one counts
        host = host_of(header)
        if host is None or not self._is_known(host):
            known = "its own address, localhost, and what admin.allowed-hosts names"
            raise Refused(
                "host-not-allowed",
                f"the Host header is {header[:80]!r}; the admin interface answers to {known}",
            )

    def _is_known(self, host: str) -> bool:
        return host in self.allowed or is_own_host(host, self.listened)

    async def _user(self, request: Request) -> User:
        if not len(self.broker.users) or request.scope["path"] in OPEN:
            # the URL of the request is made of its Host header, too
            return User("")
        login, passcode = credentials(request.headers.get("authorization", ""))
        if login is None:
            raise Refused("login-required", "login and passcode are required")
        peer = request.client.host if request.client else "local"
        return (await self.broker.logins.log_in(peer, login, passcode)).user


def credentials(header: str) -> tuple[str | None, str | None]:
    """(login, passcode) of an Authorization header of HTTP Basic (RFC 7617); None for what is no such thing."""
    kind, _, text = header.partition(" ")
    if kind.casefold() != "basic":
        return None, None
    try:
        login, colon, passcode = base64.b64decode(text.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None, None
    return (login, passcode) if colon else (None, None)


def _check_origin(request: Request) -> None:
    """Only a script of the same origin, or no browser at all, can send JSON here: everybody else's browser would have to ask first."""
    origin = request.headers.get("origin")
    if origin is not None and origin.partition("://")[2] != request.headers.get("host"):
        raise Refused("cross-site", f"a request from {origin[:80]!r}, which is another site")
    if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        raise Refused("cross-site", "a request from another site")
    if request.headers.get("content-type", "").partition(";")[0].strip().casefold() != "application/json":
        raise Refused("not-json", "a POST must have the header content-type: application/json")


# Rights


def user_of(request: Request) -> User:
    user: User = request.state.user
    return user


def require(broker: Broker, request: Request, right: Right = Right.MANAGE, address: str = BROKER) -> None:
    """Raises Refused when the user has not this right there."""
    broker.permissions.require(user_of(request), right, address)


def may_see(broker: Broker, user: User, address: str) -> bool:
    """Whether an address, and what belongs to it, is shown."""
    return broker.permissions.may(user, Right.MANAGE, address) or broker.permissions.may(
        user, Right.BROWSE, address
    )
