"""Requests over STOMP: what Spark and the command line ask of logs, groups and sinks, beside plain messages.

A request is a SEND to `stompbox.requests` with headers `request` and `request-id`; the answer is a MESSAGE on the same connection.
docs/protocol.md describes each. Rights are those of any client. The requests of a connection are answered one after the other, each when
the system has taken the answer before it, and one that has asked too much is not read any further: what waits for it is bounded.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from stompbox.errors import IllegalFrame, StompboxError
from stompbox.server import readonly
from stompbox.server.addressing.naming import REQUESTS_AT
from stompbox.server.faults import is_through
from stompbox.server.limiting import size_of
from stompbox.server.outgoing import PORTION, Portions
from stompbox.server.pressure import Reason
from stompbox.server.requests.fetching import describe, fetch, offset_at
from stompbox.server.requests.grouping import group_commit, group_delete, group_list, group_open, group_reset
from stompbox.server.requests.jsontext import Container, emptying
from stompbox.server.requests.pausing import ON_ADDRESS, ON_QUEUE, handler
from stompbox.server.requests.replies import Handler, Reply
from stompbox.server.requests.schedules import schedules, unschedule
from stompbox.server.requests.sinks import discard, publish, sink_delete, stage
from stompbox.stomp.codec import encode_headers
from stompbox.stomp.frames import Frame

if TYPE_CHECKING:
    from stompbox.server.requests.asker import Asker

READING: Final = readonly.REQUESTS
HARMLESS: Final = READING | {"progress"}  # a fault in one of these has changed no message
STAGE: Final = "stage"  # looks at all that it was given before the engine is told
LARGE: Final = 1 << 20  # octets of requests, beyond which nothing more is read while one of them waits
MOST_WAITING: Final = 16  # requests of one connection; beyond, it is not read


async def progress(connection: Asker, frame: Frame) -> Reply:
    from stompbox.server.requests.progress import progress as told  # most brokers are never told of any

    return await told(connection, frame)


REQUESTS: Final[Mapping[str, Handler]] = MappingProxyType(
    {
        "describe": describe, "fetch": fetch, "offset-at": offset_at, "group-open": group_open, "group-commit": group_commit,
        "group-delete": group_delete, "group-reset": group_reset, "groups": group_list, "stage": stage, "publish": publish,
        "discard": discard, "sink-delete": sink_delete, "progress": progress, "schedules": schedules, "unschedule": unschedule,
        **{name: handler(name) for name in (*ON_ADDRESS, *ON_QUEUE)},
    }
)  # fmt: skip


Serve = Callable[["Asker", Frame], Awaitable[None]]


class Requests:
    """What one connection has asked and was not answered yet."""

    def __init__(self, connection: Asker) -> None:
        self.connection = connection
        self.waiting: deque[tuple[Frame, Serve]] = deque()
        self.size = 0  # octets of these, and of the one that is being answered
        self.is_serving = False
        # what the one has that is being answered, and what goes in steps when it is done
        self.kept: list[Container] = []
        self._made = 0  # octets of these that were made of what the one holds that is being answered
        self._ending: Callable[[], object] | None = None  # ends it, where it changes nothing
        self._drained: asyncio.Future[None] | None = None  # the system has not taken the last answer

    def take(self, frame: Frame, serve: Serve) -> None:
        broker = self.connection.broker
        self.waiting.append((frame, serve))
        self.size += size_of(frame)
        self.connection.account.is_stale = True
        if self.is_much:
            broker.pressure.hold(self.connection, Reason.REQUESTS)
        if not self.is_serving:
            self.is_serving = True
            broker.spawn(self._serve())

    @property
    def is_much(self) -> bool:
        return len(self.waiting) >= MOST_WAITING or (self.size > LARGE and len(self.waiting) > 0)

    def count(self, size: int) -> None:
        """So many octets more are kept for the request that is being answered; where that is too much the connection ends, and
        the request with it (CancelledError)."""
        connection = self.connection
        was_ended = connection.is_ended
        self._made += size
        self.size += size
        connection.account.look(connection)
        if connection.is_ended and not was_ended:
            raise asyncio.CancelledError

    def drained(self) -> None:
        """The system has taken all that was written, or the connection is gone: nobody waits for an answer then."""
        if self.connection.is_lost and self._ending is not None:
            self._ending()
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    async def _serve(self) -> None:
        connection, turns = self.connection, self.connection.broker.turns
        until = turns.allowance()
        try:
            while self.waiting and not connection.is_lost:
                if connection.transport.is_clogged or connection.outgoing is not None:
                    self._drained = connection.broker.loop.create_future()
                    await self._drained
                    self._drained = None
                    continue
                frame, serve = self.waiting.popleft()
                if serve is _serve and frame.headers.get("request") in HARMLESS:
                    self._ending = _ending()
                try:
                    await serve(connection, frame)
                finally:
                    self._ending = None  # it has the task, whose end would have what was made here, for ever
                    self._empty()
                self.size -= size_of(frame)
                if self._made:
                    self.size, self._made = self.size - self._made, 0
                    connection.account.look(connection)
                if not self.is_much:
                    connection.broker.pressure.let_go(connection, Reason.REQUESTS)
                # short ones are answered one after the other, as far as there is time
                if self.waiting and turns.clock() > until:
                    until = await turns.give_way()
        finally:
            self.is_serving = False

    def _empty(self) -> None:
        """What a request had goes in steps: with names by the ten thousand it would take a turn of others to go at once."""
        kept, self.kept = self.kept, []
        if kept:
            self.connection.broker.turns.run(emptying(kept))

    def __repr__(self) -> str:
        return f"<Requests waiting={len(self.waiting)}>"


def _ending() -> Callable[[], object] | None:
    """What ends that which is being done here."""
    task = asyncio.current_task()
    return None if task is None else task.cancel


def receive(connection: Asker, frame: Frame) -> None:
    """Takes a request up; its answer comes when it is ready."""
    if "request-id" not in frame.headers:
        raise IllegalFrame("missing-request-id", "a request needs a request-id header")
    take(connection, frame, _serve)


def take(connection: Asker, frame: Frame, serve: Serve) -> None:
    """`serve` has the frame when all that the connection has asked before is answered."""
    requests = connection.requests
    if requests is None:
        connection.requests = requests = Requests(connection)
    requests.take(frame, serve)


async def _serve(connection: Asker, frame: Frame) -> None:
    broker = connection.broker
    broker.set_time()
    name = frame.headers.get("request", "")
    try:
        handler = REQUESTS.get(name)
        if handler is None:
            raise IllegalFrame(
                "unknown-request",
                f"request {name[:80]!r} is unknown; there are {', '.join(sorted(REQUESTS))}",
            )
        if connection.options.read_only:
            readonly.require_request(name, frame.headers)
        await broker.catch_up()
        permissions = None
        while permissions is not broker.permissions:
            # what is read is read with the rights of when it is answered
            permissions = broker.permissions
            headers, body = await handler(connection, frame)
            if name not in READING:
                break
        headers["status"] = "ok"
    except StompboxError as error:
        broker.errors[error.code] += 1
        headers, body = (
            {"status": "error", "code": error.code, "message": connection.names.without_space(error.message)},
            [],
        )
    except Exception as error:
        if name not in HARMLESS and not (
            name == STAGE and not is_through(error.__traceback__, "stompbox.broker.")
        ):
            raise
        connection.contain(f"request {name} was answered", error)
        broker.flush()
        return
    _answer(connection, frame, headers | broker.standing(), body)


def _answer(connection: Asker, frame: Frame, headers: dict[str, str], body: list[bytes]) -> None:
    if connection.is_lost or connection.is_ended:
        return
    given = frame.headers["request-id"]
    head = {
        "subscription": REQUESTS_AT,
        "destination": REQUESTS_AT,
        "message-id": f"request-{given}",
        "request-id": given,
    }
    size = sum(map(len, body))
    lines = encode_headers(head | headers | {"content-length": str(size)}, connection.session.version)
    pieces = [b"MESSAGE\n%b\n" % lines, *body, b"\0"]
    if size > PORTION:
        connection.stream(Portions(pieces))
    else:
        connection.out += pieces
    connection.write_out()
    connection.broker.flush()
