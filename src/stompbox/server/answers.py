"""What the handlers of requests share: reading headers and bodies, making answers, waiting for the disk."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from stompbox.broker.destinations import Destination
from stompbox.errors import IllegalFrame
from stompbox.stomp.frames import Frame

if TYPE_CHECKING:
    from stompbox.server.connection import Connection

Answer = tuple[dict[str, str], list[bytes]]
"""Headers, and the body in pieces."""
Handler = Callable[["Connection", Frame], Awaitable[Answer]]


def json_answer(value: object) -> Answer:
    return {"content-type": "application/json"}, [json.dumps(value, separators=(",", ":")).encode()]


def header(frame: Frame, name: str) -> str:
    given = frame.headers.get(name)
    if not given:
        raise IllegalFrame("missing-header", f"request {frame.headers['request']} needs a header {name}")
    return given


def number(frame: Frame, name: str, default: int | None = None) -> int:
    given = frame.headers.get(name)
    if given is None and default is not None:
        return default
    text = header(frame, name)
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise IllegalFrame("bad-number", f"header {name} is {text[:80]!r}; allowed is a number from 0 on")
    return int(text)


def json_object(frame: Frame, text: str | bytes, where: str) -> dict[str, Any]:
    """What a body or header holds. Raises IllegalFrame that says `where` it stands."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        fault = "it is nested too deep" if isinstance(error, RecursionError) else error
        raise IllegalFrame("bad-json", f"{where} of request {frame.headers['request']} is not JSON: {fault}") from None
    if not isinstance(value, dict):
        raise IllegalFrame("bad-json", f"{where} of request {frame.headers['request']} must be a JSON object")
    return value


def offsets_in(frame: Frame, text: str | bytes, where: str) -> dict[str, int]:
    """Offsets by address."""
    found = json_object(frame, text, where)
    if not all(type(offset) is int and 0 <= offset < 1 << 62 for offset in found.values()):
        raise IllegalFrame("bad-json", f"{where} of request {frame.headers['request']} must hold numbers from 0 on, by address")
    return found


def destinations_of(connection: Connection, frame: Frame) -> list[Destination]:
    texts = [text.strip() for text in header(frame, "destinations").split(",")]
    return [connection.names.parse_one(text) for text in texts if text]


def placed(connection: Connection, frame: Frame, name: str) -> str:
    """The name in a header, as the broker has it."""
    return connection.names.placed(header(frame, name))


async def durable(connection: Connection) -> None:
    """Until what was done up to now is on disk. Raises StoreError when it could not be stored."""
    broker = connection.broker
    if not broker.engine.is_dirty and not broker.committer.is_busy:
        return
    waiter: asyncio.Future[None] = broker.loop.create_future()
    broker.when_durable(waiter)
    broker.flush()
    await waiter
