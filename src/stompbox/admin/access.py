"""Who may ask the admin interface, from where, and what browsers are told with every answer.

| what                                      | against                                                                       |
|-------------------------------------------|-------------------------------------------------------------------------------|
| the Host header must be a known one       | a page whose name was made to point here (DNS rebinding)                      |
| login and passcode, or a session's cookie  | strangers; failures are slowed, and counted with those of STOMP               |
| a right for everything that is not public | users: `manage` on BROKER for the whole, `manage` or `browse` for one address |
| a POST is JSON, and of this origin        | pages that post in the name of who reads them (CSRF)                          |
| so many requests in a second              | who asks without end                                                          |
| HEADERS                                   | pages that frame, sniff or run what is answered                               |
"""

from __future__ import annotations

import asyncio
import base64
import re
import time
from email.utils import formatdate
from typing import TYPE_CHECKING, Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from stompbox.admin.responses import refusal
from stompbox.config import AdminTable, host_of, is_own_host
from stompbox.errors import Refused, StompboxError
from stompbox.security import Right, User, network_of
from stompbox.server import stopping

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from stompbox.admin.sessions import Sessions
    from stompbox.server.broker import Broker

BROKER: Final = "stompbox.admin"  # the address that stands for the broker as a whole where rights are asked
COOKIE: Final = "stompbox-session"
_COOKIE: Final = re.compile(rf"(?:^|;)[ \t]*{COOKIE}=([^;]*)")
HEALTH: Final = frozenset(("/healthz", "/readyz"))  # without credentials: whoever asks these has none
# without credentials, too, and what the log-in page is made of
OPEN: Final = frozenset(
    (*HEALTH, "/login", "/login.js", "/console.css", "/icon.svg", "/api/v1/session/start")
)
LOGIN: Final = "/login"
FAILURES: Final = frozenset(("login-failed", "too-many-failed-logins"))  # that somebody guesses, perhaps
BURST: Final = 10  # seconds in which what was not asked may be asked at once
ADDRESSES: Final = 10_000  # clients whose requests are counted; the one that was counted first is forgotten
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

    def __init__(
        self, app: ASGIApp, broker: Broker, table: AdminTable, sessions: Sessions | None = None
    ) -> None:
        self.app = app
        self.sessions = sessions
        self.rate = Rate(table.max_requests_per_second)
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

        try:
            app = await self._let_in(Request(scope))
            await app(scope, receive, send_with_headers)
        except asyncio.CancelledError:  # the broker ends, and no request outlives it
            if not is_answered:
                await refusal(stopping.refusal())(scope, receive, send_with_headers)

    async def _let_in(self, request: Request) -> ASGIApp:
        """What answers the request, when it is its turn: of very many at once others wait for a turn of them, and no longer."""
        turns = self.broker.turns
        if turns.is_over:
            await turns.give_way()
        try:
            self._check_host(request)
            if request.scope["path"] not in HEALTH:
                self.rate.count(request.client.host if request.client else "", time.monotonic())
            request.state.is_session = False
            request.state.user = await self._user(request)
            if request.method not in ("GET", "HEAD"):
                _check_origin(request)
        except StompboxError as error:
            count(self.broker, request, error)
            return turned_away(request, error)
        return self.app

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
        cookie = cookie_of(request)
        if cookie and self.sessions is not None:
            user = self.sessions.user(cookie, self.broker.users)
            if user is not None:
                request.state.is_session = True
                return user
        login, passcode = credentials(request.headers.get("authorization", ""))
        if login is None:
            raise Refused("login-required", "login and passcode are required")
        peer = request.client.host if request.client else "local"
        return (await self.broker.logins.log_in(peer, login, passcode)).user


def count(broker: Broker, request: Request, error: StompboxError) -> None:
    """Counts a refused request; of a login that failed the log is told, too, as of that of a STOMP client."""
    if error.code not in FAILURES:
        broker.errors[error.code] += 1
        return
    peer = request.client.host if request.client else "local"
    broker.refusals.tell(f"admin interface, login from {peer}", error, closes=False)


class Rate:
    """How many requests a client address (an IPv6 network of 64 bits) may make in a second, on average; -1: any."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._left: dict[
            str, tuple[float, float]
        ] = {}  # requests that it may make at once, and when that was so

    def count(self, address: str, now: float) -> None:
        """Counts one request, or raises Refused."""
        if self.most < 0:
            return
        network = network_of(address) if address else ""
        most = float(self.most * BURST)
        left, at = self._left.pop(network, (most, now))
        left = min(most, left + (now - at) * self.most)
        while len(self._left) >= ADDRESSES:
            del self._left[next(iter(self._left))]
        self._left[network] = max(0.0, left - 1), now
        if left < 1:
            raise Refused(
                "too-many-requests", f"more than {self.most} requests in a second (max-requests-per-second)"
            )


def turned_away(request: Request, error: StompboxError) -> Response:
    """The refusal. A browser that opens a page goes to the log-in page; a script of the console's gets no dialog of the browser's."""
    answer = refusal(error)
    is_page = request.method in ("GET", "HEAD") and "text/html" in request.headers.get("accept", "")
    if answer.status_code == 401 and is_page:
        return RedirectResponse(LOGIN, 303)
    if answer.status_code == 401 and "sec-fetch-mode" in request.headers:
        answer.headers["www-authenticate"] = "Session"
    if error.code == "too-many-requests":
        answer.headers["retry-after"] = "1"
    return answer


def cookie_of(request: Request) -> str:
    """The cookie of a session; empty: there is none. Of what else is said there nothing is parsed: that may be much, before anybody has
    logged in."""
    found = _COOKIE.search(";".join(request.headers.getlist("cookie")))
    return found[1].rstrip() if found else ""


def credentials(header: str) -> tuple[str | None, str | None]:
    """(login, passcode) of an Authorization header of HTTP Basic (RFC 7617); None for what is no such thing."""
    kind, _, text = header.partition(" ")
    if kind.casefold() != "basic":
        return None, None
    try:
        login, colon, passcode = base64.b64decode(text.strip(), validate=True).decode().partition(":")
    except ValueError:  # no base64, or no UTF-8
        return None, None
    return (login, passcode) if colon else (None, None)


def _check_origin(request: Request) -> None:
    """Only a script of the same origin, or no browser at all, can send JSON here: everybody else's browser would have to ask first."""
    origin = request.headers.get("origin")
    if origin is not None and origin.partition("://")[2] != request.headers.get("host"):
        raise Refused("cross-site", f"a request from {origin[:80]!r}, which is another site")
    if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        raise Refused("cross-site", "a request from another site")
    if request.method != "POST":  # there is nothing here for it: the answer says so
        return
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
