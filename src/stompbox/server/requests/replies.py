"""What the handlers of requests share: reading headers and bodies, making answers, waiting for the disk."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from stompbox.broker.addresses.destinations import Destination
from stompbox.config.patterns import Patterns
from stompbox.errors import IllegalFrame
from stompbox.incarnations import Position
from stompbox.numerals import digits
from stompbox.server.requests.jsontext import Container, reading, writing
from stompbox.stomp.frames import Frame

if TYPE_CHECKING:
    from stompbox.server.requests.asker import Asker, RequestsCore
    from stompbox.server.turns import Turns

Reply = tuple[dict[str, str], list[bytes]]
"""Headers, and the body in pieces."""
Handler = Callable[["Asker", Frame], Awaitable[Reply]]

MOST_JSON: Final = 1 << 20  # bytes of JSON in a request
GROWN: Final = 30  # octets of memory for each of these, at a guess, where they are many short names
MOST_WORDS: Final = (
    10_000  # of the wildcards in one request together: each address is asked about all of them
)
_PART: Final = re.compile("[^,]+")

T = TypeVar("T")
C = TypeVar("C", bound=Container)


async def in_turns(
    turns: Turns, items: Iterable[T], require: Callable[[], None] | None = None
) -> AsyncIterator[T]:
    """The items, which must not change meanwhile, in as many turns of the loop as that takes. `require`: as of `Turns.taken`."""
    until = turns.allowance()
    one_by_one = _let_go(items) if isinstance(items, list) else iter(items)
    items = ()
    for item in one_by_one:
        yield item
        if turns.clock() > until:
            until = await turns.give_way()
            if require is not None:
                require()


def _let_go(items: list[T]) -> Iterator[T]:
    """Lets each item of a list that nobody else has go when the next one is asked for: what has gone meanwhile, such as the queues of
    thousands of subscriptions, is in it alone, and would go in one step with it."""
    left = items[::-1]
    items = []
    while left:
        yield left.pop()


def _require_there(connection: Asker) -> None:
    """Raises CancelledError where the client is gone: what is not begun is not done then."""
    if connection.is_lost:
        raise asyncio.CancelledError


def each(connection: Asker, items: Iterable[T]) -> AsyncIterator[T]:
    """As `in_turns`, of what a client has said, before anything is done: that ends with the connection, which counts for it."""
    return in_turns(connection.broker.turns, items, partial(_require_there, connection))


def kept(connection: Asker, container: C) -> C:
    """Makes sure that what will have very much in it is emptied in steps once the request is answered: it would all go in one."""
    if connection.requests is not None:
        connection.requests.kept.append(container)
    return container


def json_reply(value: object) -> Reply:
    return {"content-type": "application/json"}, [json.dumps(value, separators=(",", ":")).encode()]


async def long_reply(connection: Asker, value: object) -> Reply:
    """As `json_reply`, of what may be long: written in turns."""
    return {"content-type": "application/json"}, await connection.broker.turns.taken(writing(value))


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


async def json_object(connection: Asker, frame: Frame, text: str | bytes, where: str) -> dict[str, Any]:
    """What a body or header holds, read in turns. Raises IllegalFrame that says `where` it stands."""
    if len(text) > MOST_JSON:
        raise IllegalFrame(
            "bad-json",
            f"{where} of request {frame.headers['request']} is {len(text)} bytes long; allowed are {MOST_JSON}",
        )
    read: list[Container] = []
    if connection.requests is not None:
        connection.requests.count(GROWN * len(text))
        read = connection.requests.kept
    try:
        value = await connection.broker.turns.taken(reading(text, read), partial(_require_there, connection))
    except (ValueError, RecursionError) as error:
        fault = "it is nested too deep" if isinstance(error, RecursionError) else error
        raise IllegalFrame(
            "bad-json", f"{where} of request {frame.headers['request']} is not JSON: {fault}"
        ) from None
    if not isinstance(value, dict):
        raise IllegalFrame("bad-json", f"{where} of request {frame.headers['request']} must be a JSON object")
    return value


async def wish_in(connection: Asker, frame: Frame) -> dict[str, Any]:
    """What the body asks for, of a request that may have none."""
    return await json_object(connection, frame, frame.body, "the body") if frame.body else {}


async def offsets_in(connection: Asker, frame: Frame, found: Any, where: str) -> dict[str, Position]:
    """Offsets by address: a number, or [number, incarnation]."""
    known: dict[str, Position] = kept(connection, {})
    if isinstance(found, dict):
        async for address, value in each(connection, found.items()):
            position = _position(value)
            if position is None:
                break
            known[address] = position
    if not isinstance(found, dict) or len(known) < len(found):
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


async def destinations_of(connection: Asker, frame: Frame, wish: dict[str, Any]) -> list[Destination]:
    """In the body where they may be many, or in a header."""
    given = wish["destinations"] if "destinations" in wish else header(frame, "destinations")
    if not isinstance(given, str):
        raise IllegalFrame(
            "bad-json",
            f"destinations in the body of request {frame.headers['request']} must be one text, with commas",
        )
    found: list[Destination] = kept(connection, [])
    words = 0
    async for part in each(connection, _PART.finditer(given)):
        text = part.group().strip()
        if text:
            found.append(connection.names.parse_one(text))
            words += len(found[-1].words) if found[-1].is_wild else 0
            if words > MOST_WORDS:
                raise IllegalFrame(
                    "bad-destination",
                    f"the wildcards in destinations of request {frame.headers['request']} have more than {MOST_WORDS} words together",
                )
    return found


async def patterns_of(connection: Asker, destinations: Iterable[Destination]) -> Patterns:
    """All of them as one, to be asked about addresses."""
    found = Patterns(connection.broker.engine.wildcards)
    async for destination in each(connection, destinations):
        found.add(destination.address)
    return found


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
