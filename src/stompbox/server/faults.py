"""Faults of our own: exceptions that nobody foresaw. What one may have left half-done is confirmed to nobody.

| raised                                                                | what ends                                                   |
|-----------------------------------------------------------------------|-------------------------------------------------------------|
| while octets are parsed, in a login, before anything of a SEND or     | that connection: ERROR `internal-fault`, close              |
| SUBSCRIBE is done, in a request that only reads                       |                                                             |
| while a message is encoded for a consumer                             | the same, and it is a failed delivery of that message       |
| while stored messages are read and decoded                            | nothing: their queue stands still, and is tried again       |
| anywhere else: in the engine, between it and a commit, in the store   | the broker: no commit, no RECEIPT, nothing at all goes out  |

A queue whose messages stop each broker as soon as they are looked at does so TWICE: then it starts paused, until an operator resumes it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Protocol, TypeVar

from stompbox.errors import BrokerFault, StompboxError, StoreError
from stompbox.store.base import DEPOSED

if TYPE_CHECKING:
    from stompbox.broker.queues.queue import Queue
    from stompbox.server.seam import ClientConnection, Core, Peer

log = logging.getLogger("stompbox")

STOPPED: Final = "broker-stopped"  # code
FILE: Final = "stompbox.fault"  # in the data folder: the queue at which the broker stopped
_CONTAINED: Final = {"code": "internal-fault"}
TWICE: Final = 2  # times in a row at one queue, after which it starts paused,
SOON: Final = 600_000  # ms from one to the next that count as such
_TEXT: Final = 500  # characters of an exception's own words

P = ParamSpec("P")
R = TypeVar("R")


class Faults:
    """What one broker does about its own faults. `folder`: its data, None without a disk. `last`: what stopped it; `on_stop` is called
    then."""

    def __init__(self, broker: Core, folder: Path | None) -> None:
        self.broker = broker
        self.folder = folder
        self.last: BrokerFault | None = None
        self.on_stop: Callable[[], object] | None = None
        self._before = (0, 0, 0)  # a queue, how often in a row it stopped the broker, when (ms)

    def stop(self, doing: str, error: BaseException) -> None:
        """The engine, or the store, may be in the middle of something. From here on nothing leaves: no commit, no octet."""
        if isinstance(error, StoreError) and error.code in DEPOSED:
            self.depose(error)
            return
        if self.last is not None:
            log.error("and while it stops, %s: %s", doing, told(error), exc_info=error)
            return
        self._halt()
        queue = queue_in(error.__traceback__, self.broker.engine.queues)
        where = f", at queue {queue.name[:200]!r}" if queue is not None else ""
        text = f"stopped by a fault of its own, while {doing}{where}: {told(error)}"
        self.last = BrokerFault(STOPPED, text)
        said = "%s (%s). What is confirmed is in the store, nothing else will be"
        log.critical(said, text, STOPPED, exc_info=error, extra={"code": STOPPED})
        self._note(queue)
        self._end()

    def depose(self, error: StompboxError) -> None:
        """This node leads its cluster no more: all ends as after a fault, nothing more is stored or said, and nobody is at fault."""
        if self.last is None:
            self._halt()
            self.last = BrokerFault(error.code, error.message)
            log.warning("leads no more: %s (%s)", error.message, error.code, extra={"code": error.code})
            self._end()

    def _halt(self) -> None:
        self.broker.has_failed = True
        self.broker.committer.halt()

    def _end(self) -> None:
        for socket in list(self.broker.sockets):
            socket.abort()
        if self.on_stop is not None:
            self.on_stop()

    def contain(self, connection: ClientConnection, doing: str, error: Exception) -> BrokerFault:
        """What its client is told of a fault that has changed nothing but this connection, which ends with it."""
        log.error(
            "%s: a fault of the broker while %s: %s; closed",
            connection.name,
            doing,
            told(error),
            exc_info=error,
            extra={**_CONTAINED, **connection.marks},
        )
        return BrokerFault("internal-fault", f"a fault of the broker while {doing}; its log says more")

    def drop(self, socket: Peer, doing: str, error: Exception) -> None:
        """Closes a socket after a fault, before there is a connection that anything could be told."""
        self.broker.errors["internal-fault"] += 1
        log.error(
            "%s: a fault of the broker while %s: %s; closed",
            socket.peer,
            doing,
            told(error),
            exc_info=error,
            extra=_CONTAINED,
        )
        socket.abort()

    def in_loop(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """asyncio's exception handler: what a callback raised. Tasks are looked after where they are made (`Broker.spawn`)."""
        error = context.get("exception")
        if (
            isinstance(error, Exception)
            and not {"task", "future"} & context.keys()
            and is_through(error.__traceback__, "stompbox.")
        ):
            self.stop("the event loop called back", error)
        else:
            loop.default_exception_handler(context)

    # Queues that stop the broker again and again

    def pause_culprit(self) -> None:
        """At start: pauses the queue at which the broker stopped so often."""
        if self.folder is None:
            return
        with suppress(OSError, ValueError, KeyError, TypeError):  # there is none, or a crash has cut it short
            found = json.loads((self.folder / FILE).read_bytes())
            self._before = int(found["queue"]), int(found["times"]), int(found["at"])
        id, times, at = self._before
        queue = self.broker.engine.queues.get(id)
        if queue is None or times < TWICE or self.broker.now() - at > SOON:
            return
        queue.pause()
        text = (
            "queue %r starts paused: at it the broker has stopped %d times in a row. `resume` lets it go on"
        )
        log.error(text, queue.name[:200], times)

    def _note(self, queue: Queue | None) -> None:
        if self.folder is None or queue is None or not queue.is_durable:
            return
        id, times, at = self._before
        now = self.broker.now()
        again = times if id == queue.id and now - at <= SOON else 0
        try:
            with open(
                os.open(self.folder / FILE, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600),
                "w",
                encoding="ascii",
            ) as file:
                json.dump({"queue": queue.id, "times": again + 1, "at": now}, file)
        except OSError as error:
            log.warning("the next broker will not know of queue %r: %s", queue.name[:200], error)

    def __repr__(self) -> str:
        return f"<Faults {self.last.message if self.last is not None else 'none'}>"


T = TypeVar("T", bound="Receiver")


class Receiver(Protocol):
    """A protocol of asyncio whose calls are looked after."""

    peer: str

    @property
    def broker(self) -> Guard: ...


class Guard(Protocol):
    """The process that a transport's calls come to."""

    has_failed: bool

    @property
    def faults(self) -> Stopping: ...


class Stopping(Protocol):
    def stop(self, doing: str, error: BaseException) -> None: ...


def guarded(method: Callable[Concatenate[T, P], R]) -> Callable[Concatenate[T, P], R | None]:
    """A call of a transport, which would log some exceptions of its protocol and pass over others (OSError)."""

    @wraps(method)
    def call(self: T, /, *args: P.args, **kwargs: P.kwargs) -> R | None:
        if self.broker.has_failed:
            return None
        try:
            return method(self, *args, **kwargs)
        except Exception as error:
            self.broker.faults.stop(f"{method.__name__.replace('_', ' ')} of a client at {self.peer}", error)
            return None

    return call


def watch(
    broker: Core, work: Coroutine[Any, Any, None], connection: ClientConnection | None = None
) -> asyncio.Task[None]:
    """A task whose exception somebody sees. `connection`: it changes nothing but this one, which ends when it raises."""

    def ended(task: asyncio.Task[None]) -> None:
        broker.tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is None or broker.has_failed:
            return
        if connection is not None and isinstance(error, Exception):
            connection.contain("looking at a login", error)
        else:
            broker.faults.stop("something was done beside", error)

    task = broker.loop.create_task(work)
    broker.tasks.add(task)
    task.add_done_callback(ended)
    return task


def told(error: BaseException) -> str:
    """Kind and words of an exception in one line."""
    return f"{type(error).__name__}: {str(error)[:_TEXT]!r}"


def is_through(trace: TracebackType | None, package: str) -> bool:
    """Whether code of this package was running when the exception was raised."""
    return any(str(frame.f_globals.get("__name__", "")).startswith(package) for frame in _frames(trace))


def queue_in(trace: TracebackType | None, queues: Mapping[int, Queue]) -> Queue | None:
    """The one of these that was worked at in the end."""
    by_object = {id(queue): queue for queue in queues.values()}
    known = [
        by_object.get(id(value))
        for frame in _frames(trace)
        for value in map(frame.f_locals.get, ("queue", "self"))
    ]
    return next((queue for queue in reversed(known) if queue is not None), None)


def _frames(trace: TracebackType | None) -> list[Any]:
    found = []
    while trace is not None:
        found.append(trace.tb_frame)
        trace = trace.tb_next
    return found
