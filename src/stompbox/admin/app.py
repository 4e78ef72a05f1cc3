"""The admin interface as an ASGI app: each endpoint of the table at its path, the files of the console, and what errors become."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from stompbox.admin import console
from stompbox.admin.access import Guard, count, turned_away
from stompbox.admin.apirequest import ApiRequest, Shared
from stompbox.admin.endpoints import API, Endpoint
from stompbox.admin.following import attend
from stompbox.admin.lag import Lags
from stompbox.admin.metrics import Metrics
from stompbox.admin.responses import json, refusal
from stompbox.admin.sessions import Sessions
from stompbox.admin.table import ENDPOINTS
from stompbox.errors import BrokerFault, IllegalFrame, Refused, StompboxError

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from stompbox.admin.history import History
    from stompbox.config import AdminTable
    from stompbox.server.broker import Broker

PARAMETERS: Final = 100  # of a URL: to parse them takes a fifth of a millisecond
PAGES: Final = tuple([one.path for one in ENDPOINTS if not one.changes and one.path != API])


def build(broker: Broker, table: AdminTable, history: History) -> ASGIApp:
    """The whole admin interface.

    What is no endpoint of the table, and no file of the console, is not there."""
    lags, sessions = Lags(broker), Sessions(time.monotonic, table.session_timeout)
    shared = Shared(lags, history, Metrics(broker, lags), sessions)
    routes = [Route(one.path, Obey(broker, one, shared).answer, methods=[one.method]) for one in ENDPOINTS]
    app = Starlette(
        routes=[*console.routes(), *routes],
        exception_handlers={HTTPException: _no_page, StompboxError: _refused, Exception: _fault},
    )
    app.router.redirect_slashes = False  # to a URL that is made of the Host header
    app.state.broker = broker
    return Guard(app, broker, table, sessions)


class Obey:
    """One endpoint, and what it does with each request."""

    def __init__(self, broker: Broker, endpoint: Endpoint, shared: Shared) -> None:
        self.broker = broker
        self.endpoint = endpoint
        self.shared = shared

    async def answer(self, request: Request) -> Response:
        asked, endpoint = ApiRequest(self.broker, request, self.shared), self.endpoint
        headers = await attend(self.broker, endpoint)
        try:
            _require_few(request)
            asked.values = endpoint.parameters(request.query_params)
            if endpoint.form is not None:
                await asked.read(endpoint.form, endpoint.most)
            found = await self._do(asked)
        except StompboxError as error:
            error.field = error.field or endpoint.blamed(error, asked.order, asked.values)
            raise
        finally:
            asked.let_go()
            if endpoint.changes:
                self.broker.flush()
        answer = found if isinstance(found, Response) else json(found)
        answer.headers.update(headers)
        if endpoint.changes:
            asked.tell()
        return answer

    async def _do(self, asked: ApiRequest) -> object:
        """Reading changes nothing, nor does an operation that has not begun; one that raises then may have been in the middle of something.
        Who changes something begins: else nobody would know which of both it is."""
        try:
            found = await self.endpoint.do(asked)
        except StompboxError:
            raise
        except Exception as error:
            if asked.has_begun:
                self.broker.faults.stop(f"{self.endpoint.path!r} was done", error)
            raise
        if self.endpoint.changes and not asked.has_begun:
            raise RuntimeError(f"{self.endpoint.path!r} has ended, and never begun")
        return found


def _require_few(request: Request) -> None:
    """Raises IllegalFrame for a URL with more parameters than are parsed at once."""
    if request.scope["query_string"].count(b"&") >= PARAMETERS:
        raise IllegalFrame("unknown-parameter", f"there are more than {PARAMETERS} parameters")


async def _no_page(request: Request, error: Exception) -> Response:
    """What the router itself refuses."""
    path = request.scope["path"][:200]
    if isinstance(error, HTTPException) and error.status_code == 405:
        answer = refusal(Refused("wrong-method", f"{path!r} is not for {request.method}"))
        answer.headers["allow"] = (error.headers or {}).get("Allow", "")  # RFC 9110, 15.5.6: MUST
        return answer
    return refusal(Refused("no-such-page", f"{path!r} is not here; there are {', '.join(PAGES)}"))


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, StompboxError)
    count(request.app.state.broker, request, error)
    return turned_away(request, error)


async def _fault(request: Request, error: Exception) -> Response:
    """The answer to a fault of ours."""
    return refusal(BrokerFault("internal-fault", "a fault of the broker; its log says more"))
