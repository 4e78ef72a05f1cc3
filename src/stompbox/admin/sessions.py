"""Sessions of the admin interface: who has logged in by the log-in page has a cookie instead of sending a passcode with each request.

The cookie is random, no script can read it (HttpOnly), and a browser sends it with requests of this origin alone (SameSite=Strict). A
session ends with its log-out, when it was not used for `session-timeout`, when its user may not log in any more, and with the broker.
Decides nothing about what its user may do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from secrets import token_urlsafe
from typing import Annotated, Final

from msgspec import Meta, Struct
from starlette.responses import Response

from stompbox.admin.access import COOKIE, cookie_of
from stompbox.admin.apirequest import ApiRequest
from stompbox.admin.endpoints import Nothing, changing, reading
from stompbox.admin.responses import json
from stompbox.errors import Refused
from stompbox.security import User, Users
from stompbox.server.logins import Login

MOST: Final = 1000  # at a time; the one that was not used for the longest time goes
OCTETS: Final = 32  # of randomness


@dataclass(frozen=True, slots=True)
class Session:
    """Who has logged in, and until when that counts (seconds of the loop)."""

    login: Login
    until: float


class Sessions:
    """The sessions of one admin interface. `timeout`: ms without a request after which one ends."""

    def __init__(self, clock: Callable[[], float], timeout: int) -> None:
        self.clock = clock
        self.timeout = timeout / 1000
        self._known: dict[
            bytes, Session
        ] = {}  # by the hash of the cookie, the one that was used last at the end

    def open(self, login: Login) -> str:
        """A new session's cookie."""
        token = token_urlsafe(OCTETS)
        while len(self._known) >= MOST:
            del self._known[next(iter(self._known))]
        self._known[_key(token)] = Session(login, self.clock() + self.timeout)
        return token

    def user(self, token: str, users: Users) -> User | None:
        """Whose session it is; None where it is none any more. It counts anew from now on."""
        found = self._known.pop(_key(token), None)
        now = self.clock()
        if found is None or found.until <= now:
            return None
        try:
            user = users.again(found.login.user.name, found.login.proof)
        except Refused:
            return None
        self._known[_key(token)] = replace(found, until=now + self.timeout)
        return user

    def end(self, token: str) -> None:
        """Ends a session, if it is one."""
        self._known.pop(_key(token), None)

    def __len__(self) -> int:
        return len(self._known)

    def __repr__(self) -> str:
        return f"<Sessions {len(self)}>"


def _key(token: str) -> bytes:
    return sha256(token.encode("utf-8", "replace")).digest()


# What the API has of them


class Credentials(Struct, forbid_unknown_fields=True):
    """A login and its passcode."""

    login: Annotated[str, Meta(description="The user.")]
    passcode: Annotated[str, Meta(description="The user's passcode.")]


class SessionView(Struct, frozen=True):
    """Who asks. `user`: empty where the broker has no users; `is_session`: by cookie; `timeout`: ms without a
    request after which it ends."""

    user: str
    is_session: bool
    timeout: int


@reading("session", SessionView, "Needs no right.")
async def who(asked: ApiRequest) -> object:
    """Who asks, and whether it is by a session."""
    return _view(asked, asked.user, is_session=asked.request.state.is_session)


@changing(
    "session/start", Credentials, SessionView, "Needs no credentials but those in the body.", is_open=True
)
async def log_in(asked: ApiRequest) -> Response:
    """Logs in: the answer brings the cookie. Failures are slowed and counted with those of STOMP."""
    order: Credentials = asked.order
    asked.forget()  # the log shows no passcode
    broker, peer = asked.broker, asked.request.client
    if not len(broker.users):
        raise Refused("no-users", "this broker has no users: nobody needs to log in")
    login = await broker.logins.log_in(peer.host if peer else "local", order.login, order.passcode)
    asked.request.state.user = login.user
    asked.begin()
    answer = json(_view(asked, login.user, is_session=True))
    _set(asked, answer, asked.shared.sessions.open(login))
    return answer


@changing("session/end", Nothing, SessionView, "Needs no right.")
async def log_out(asked: ApiRequest) -> Response:
    """Logs out: the cookie is worth nothing any more."""
    cookie = cookie_of(asked.request)
    asked.begin()
    asked.shared.sessions.end(cookie)
    answer = json(_view(asked, asked.user, is_session=False))
    _set(asked, answer, "")
    return answer


def _view(asked: ApiRequest, user: User, *, is_session: bool) -> SessionView:
    return SessionView(user.name, is_session, int(asked.shared.sessions.timeout * 1000))


def _set(asked: ApiRequest, answer: Response, token: str) -> None:
    answer.set_cookie(
        COOKIE, token, max_age=None if token else 0, path="/", httponly=True, samesite="strict",
        secure=asked.request.scope["scheme"] == "https",
    )  # fmt: skip
