"""A front as a process: the broker starts it, gives it its link and the sockets that listen, and it ends with the broker.

It has no terminal and no signals of its own: who stops the broker stops all of it, however the signal comes.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, cast

from stompbox.server.fronts import link
from stompbox.server.fronts.link import Kind, packed
from stompbox.server.fronts.relay import Front
from stompbox.server.generations import Collector
from stompbox.server.transport import descriptors
from stompbox.server.trimming import CONNECTION, TLS, trimming

PR_SET_PDEATHSIG: Final = 1  # of prctl(2)
FAILED: Final = 70  # exit code after a fault of its own: EX_SOFTWARE of sysexits.h
LONGEST: Final = 8000  # characters of a line of the log


def main(descriptor: int) -> None:
    """Runs on the link that this descriptor is, until the broker is gone."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    _die_with_broker()
    run = _runner()
    sys.exit(run(_serve(socket.socket(fileno=descriptor))))


def _die_with_broker() -> None:
    """A front that hangs, or is stopped, does not hear that its link is gone: the system ends it with the broker's process, or the next
    broker would find what is listened on in use for ever. The thread that has started it, which is what the system looks at, is one of the
    loop's own, and they live as long as the loop."""
    if sys.platform == "linux":
        import ctypes

        with suppress(OSError, AttributeError):  # a system that has no such call
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def _runner() -> Callable[[Coroutine[Any, Any, int]], int]:
    try:
        from uvloop import run
    except ImportError:
        return asyncio.run
    found: Callable[[Coroutine[Any, Any, int]], int] = run
    return found


class Link(asyncio.Protocol):
    """The front's end of it."""

    def __init__(self, front: Front) -> None:
        self.front = front

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.front.connection_made(cast(asyncio.Transport, transport))

    def data_received(self, data: bytes) -> None:
        try:
            self.front.heard(data)
        except Exception as error:
            self.front.faults.stop("it was told something by the broker", error)

    def pause_writing(self) -> None:
        self.front.link_clogged()

    def resume_writing(self) -> None:
        self.front.link_drained()

    def connection_lost(self, error: Exception | None) -> None:
        """The broker is gone, or wants this front to be."""
        self.front.disconnected()
        self.front.end()


class OfFront:
    """The process, as what gives memory back: all that it keeps it has for a client of its own."""

    def __init__(self, front: Front) -> None:
        self._front = front
        self.loop = front.loop

    @property
    def kept(self) -> int:
        return CONNECTION * len(self._front.sockets) + TLS * descriptors.with_tls()

    @property
    def happened(self) -> int:
        return self._front.happened

    async def let_go(self) -> bool:
        return False


class LinkHandler(logging.Handler):
    """The log is the broker's."""

    def __init__(self, front: Front) -> None:
        super().__init__()
        self._front = front

    def emit(self, record: logging.LogRecord) -> None:
        line = link.Line(record.levelno, self.format(record)[:LONGEST], getattr(record, "code", ""))
        self._front.say(Kind.LOGGED, 0, packed(line))


async def _serve(connected: socket.socket) -> int:
    loop = asyncio.get_running_loop()
    front = Front(loop)
    loop.set_exception_handler(front.faults.in_loop)
    logging.basicConfig(level=logging.INFO, handlers=[LinkHandler(front)], force=True)
    connected.setblocking(False)
    await _connect(loop, front, connected)
    collector = Collector()
    collector.begin()
    giving_back = trimming(OfFront(front), collector)
    await front.ended
    giving_back.stop()
    await asyncio.sleep(0)  # sockets that were told to close do so
    return FAILED if front.has_failed else 0


async def _connect(loop: Any, front: Front, connected: socket.socket) -> None:
    await loop.connect_accepted_socket(lambda: Link(front), connected)
