"""Answers: JSON from values, and errors as problem details (RFC 9457) with the status that fits their code."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Final

import msgspec
from msgspec import Struct
from starlette.responses import Response

from stompbox.errors import BrokerFault, ConnectionLost, PeerError, StompboxError

PROBLEM: Final = "application/problem+json"
_TYPE: Final = "urn:problem-type:stompbox:"  # and the code

_STATUS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "cross-site": 403, "host-not-allowed": 421, "login-failed": 401, "login-required": 401, "no-such-address": 404,
        "no-such-queue": 404, "no-such-page": 404, "no-such-connection": 404, "not-json": 415, "not-permitted": 403, "queue-busy": 409,
        "queue-in-use": 409, "no-such-group": 404, "no-such-sink": 404,
        "body-too-large": 413, "too-many-failed-logins": 429,
        "too-many-requests": 429, "logins-busy": 503, "wrong-method": 405, "disk-full": 503, "io-error": 503,
        "shutting-down": 503, "not-the-leader": 503, "not-defined": 404, "no-such-virtual-host": 404,
        "no-such-subscription": 404, "unencodable-header": 400,
    }
)  # fmt: skip
_CHALLENGE: Final = 'Basic realm="Stompbox", charset="UTF-8"'  # RFC 7617


class Fault(Struct, frozen=True):
    """Code and text of an error, as they stand in an ERROR frame, too."""

    code: str
    message: str


class Problem(Struct, frozen=True, omit_defaults=True):
    """An error. `code` is stable; `field`: which field of the body, or parameter of the URL, was wrong; `error` has code and detail once
    more, as whole programs know them."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    error: Fault
    field: str | None = None


def json(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def html(text: str) -> Response:
    """A page that loads a style sheet and an icon of the broker, and nothing else."""
    policy = "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    return Response(text, headers={"content-security-policy": policy}, media_type="text/html")


def status_of(error: StompboxError) -> int:
    if isinstance(error, BrokerFault | ConnectionLost):
        return 503
    return _STATUS.get(error.code, 400 if isinstance(error, PeerError) else 409)


def problem(error: StompboxError) -> Problem:
    status = status_of(error)
    return Problem(
        _TYPE + error.code,
        HTTPStatus(status).phrase,
        status,
        error.message,
        error.code,
        Fault(error.code, error.message),
        error.field,
    )


def refusal(error: StompboxError) -> Response:
    """The problem, as an answer that can be sent."""
    found = problem(error)
    answer = Response(msgspec.json.encode(found), found.status, media_type=PROBLEM)
    if found.status == 401:
        answer.headers["www-authenticate"] = _CHALLENGE
    return answer
