"""What the handlers of requests share: reading headers and bodies, making answers, waiting for the disk."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from stompbox.broker.addresses.destinations import Destination
from stompbox.errors import IllegalFrame
from stompbox.incarnations import Position
from stompbox.numerals import digits
from stompbox.stomp.frames import Frame

if TYPE_CHECKING:
    from stompbox.server.requests.asker import Asker, RequestsCore
    from stompbox.server.turns import Turns

Reply = tuple[dict[str, str], list[bytes]]
"""Headers, and the body in pieces."""
Handler = Callable[["Asker", Frame], Awaitable[Reply]]

MOST_JSON: Final = 1 << 20  # bytes of JSON in a request: reading it takes some 10 ms, in which others wait

T = TypeVar("T")


async def in_turns(turns: Turns, items: Iterable[T]) -> AsyncIterator[T]:
    """The items, which must not change meanwhile, in as many turns of the loop as that takes."""
    until = turns.allowance()
    for item in items:
        yield item
        if turns.clock() > until:
            until = await turns.give_way()


def json_reply(value: object) -> Reply:
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
    found = digits(text)
    if found is None:
        raise IllegalFrame("bad-number", f"header {name} is {text[:80]!r}; allowed is a number from 0 on")
    return found


def json_object(frame: Frame, text: str | bytes, where: str) -> dict[str, Any]:
    """What a body or header holds. Raises IllegalFrame that says `where` it stands."""
    if len(text) > MOST_JSON:
        raise IllegalFrame(
            "bad-json",
            f"{where} of request {frame.headers['request']} is {len(text)} bytes long; allowed are {MOST_JSON}",
        )
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        fault = "it is nested too deep" if isinstance(error, RecursionError) else error
        raise IllegalFrame(
            "bad-json", f"{where} of request {frame.headers['request']} is not JSON: {fault}"
        ) from None
    if not isinstance(value, dict):
        raise IllegalFrame("bad-json", f"{where} of request {frame.headers['request']} must be a JSON object")
    return value


def wish_in(frame: Frame) -> dict[str, Any]:
    """What the body asks for, of a request that may have none."""
    return json_object(frame, frame.body, "the body") if frame.body else {}


def offsets_in(frame: Frame, found: Any, where: str) -> dict[str, Position]:
    """Offsets by address: a number, or [number, incarnation]."""
    positions = (
        {address: _position(value) for address, value in found.items()}
        if isinstance(found, dict)
        else {"": None}
    )
    known = {address: position for address, position in positions.items() if position is not None}
    if len(known) < len(positions):
        what = "must hold numbers from 0 on, or [number, incarnation], by address"
        raise IllegalFrame("bad-json", f"{where} of request {frame.headers['request']} {what}")
    return known


def _position(value: Any) -> Position | None:
    offset, id = value if isinstance(value, list) and len(value) == 2 else (value, "")
    return (
        Position(offset, id)
        if type(offset) is int and 0 <= offset < 1 << 62 and isinstance(id, str)
        else None
    )


def destinations_of(connection: Asker, frame: Frame, wish: dict[str, Any]) -> list[Destination]:
    """In the body where they may be many, or in a header."""
    given = wish["destinations"] if "destinations" in wish else header(frame, "destinations")
    if not isinstance(given, str):
        raise IllegalFrame(
            "bad-json",
            f"destinations in the body of request {frame.headers['request']} must be one text, with commas",
        )
    return [connection.names.parse_one(text.strip()) for text in given.split(",") if text.strip()]


def qualified(connection: Asker, frame: Frame, name: str) -> str:
    """The name in a header, as the broker has it."""
    return connection.names.qualified(header(frame, name))


async def durable(connection: Asker) -> None:
    """Waits until what was done up to now is on disk. Raises StoreError when it could not be stored."""
    await stored(connection.broker)


async def stored(broker: RequestsCore) -> None:
    """Waits as `durable` does, for what no connection waits for."""
    waiter = when_stored(broker)
    if waiter is not None:
        await waiter


def when_stored(broker: RequestsCore) -> asyncio.Future[None] | None:
    """What is resolved when all that was done up to now is on disk, or fails with the StoreError; None: it is there."""
    if not broker.engine.is_dirty and not broker.committer.is_busy:
        return None
    waiter: asyncio.Future[None] = broker.loop.create_future()
    broker.when_durable(waiter)
    broker.flush()
    return waiter
