"""Answers: JSON from values, and errors as JSON with the status that fits their code."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec
from starlette.responses import Response

from stompbox.errors import BrokerFault, ConnectionLost, PeerError, StompboxError

_STATUS: Final[Mapping[str, int]] = MappingProxyType(
    {
        "cross-site": 403, "host-not-allowed": 421, "login-failed": 401, "login-required": 401, "no-such-address": 404,
        "no-such-queue": 404, "no-such-page": 404, "no-such-connection": 404, "not-json": 415, "not-permitted": 403, "queue-busy": 409,
        "queue-in-use": 409, "no-such-group": 404, "no-such-sink": 404,
        "body-too-large": 413, "too-many-failed-logins": 429, "logins-busy": 503, "wrong-method": 405, "disk-full": 503, "io-error": 503,
        "shutting-down": 503,
    }
)  # fmt: skip
_CHALLENGE: Final = 'Basic realm="Stompbox", charset="UTF-8"'  # RFC 7617


def json(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def status_of(error: StompboxError) -> int:
    if isinstance(error, BrokerFault | ConnectionLost):
        return 503
    return _STATUS.get(error.code, 400 if isinstance(error, PeerError) else 409)


def refusal(error: StompboxError) -> Response:
    """{"error": {"code": …, "message": …}}, as an answer that can be sent."""
    answer = json({"error": {"code": error.code, "message": error.message}}, status_of(error))
    if answer.status_code == 401:
        answer.headers["www-authenticate"] = _CHALLENGE
    return answer
