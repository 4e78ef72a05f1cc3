"""What a service manager gives a broker and asks of it, in systemd's protocols: sockets that it has opened before (sd_listen_fds(3)), and
where it is told that the broker is ready, reads its configuration again, stops, and lives (sd_notify(3)).

Does nothing where no service manager has said, in the environment, that it speaks them. Other managers speak them, too.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import MutableMapping
from functools import cache
from typing import Final

from stompbox.config import joined
from stompbox.config.listener import is_path
from stompbox.errors import ConfigError, reason_of
from stompbox.numerals import digits

log = logging.getLogger("stompbox")

FIRST: Final = 3  # the descriptor of the first socket (SD_LISTEN_FDS_START)
MOST: Final = 1000  # sockets


def tell(*lines: str) -> None:
    """One message to the service manager, if it listens. `READY=1`, `STATUS=…`: sd_notify(3) has them."""
    where = os.environ.get("NOTIFY_SOCKET", "")
    if not where.startswith(("/", "@")):
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)  # who does not read holds up nobody
            sender.sendto(
                "\n".join(lines).encode(), where.replace("@", "\0", 1) if where[0] == "@" else where
            )
    except OSError as error:
        log.warning("the service manager at NOTIFY_SOCKET %s is not told %s: %s", where, lines[0], error)


def ready(status: str) -> None:
    tell("READY=1", f"STATUS={status}")


def reloading() -> None:
    """`ready` says when it is done."""
    tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")


def stopping() -> None:
    tell("STOPPING=1", "STATUS=stopping")


class Watchdog:
    """Says out of the loop that the loop goes on, twice as often as the service manager wants to hear it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        wanted = digits(os.environ.get("WATCHDOG_USEC", "")) or 0
        is_meant = os.environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self.period = wanted / 2_000_000 if is_meant else 0.0  # seconds; 0: nobody asks
        self._timer: asyncio.TimerHandle | None = None
        if self.period:
            self._bark()

    def _bark(self) -> None:
        tell("WATCHDOG=1")
        self._timer = self._loop.call_later(self.period, self._bark)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class Inherited:
    """Sockets that were listening before the broker began. A listener takes the one at its own place, and all must be taken: one that
    nobody takes would leave clients waiting for ever."""

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        """Takes the variables out of the environment: they are not meant for children. Raises ConfigError for what is not a socket that
        listens."""
        count = digits(environ.pop("LISTEN_FDS", "")) or 0
        is_meant = environ.pop("LISTEN_PID", "") == str(os.getpid())
        environ.pop("LISTEN_FDNAMES", None)
        self.left: list[socket.socket] = []
        for number in range(FIRST, FIRST + min(count, MOST) if is_meant else FIRST):
            self.left.append(_handed(number))

    def claim(self, host: str, port: int) -> socket.socket | None:
        """The one that listens where a listener wants to, which has it from now on."""
        wanted = _wanted(host, port)
        found = next((one for one in self.left if wanted & _addresses(one)), None)
        if found is not None:
            self.left.remove(found)
        return found

    def require_none_left(self) -> None:
        """Raises ConfigError that names the first one nobody has taken."""
        for one in self.left:
            address = one.getsockname()
            where = joined(*address[:2]) if isinstance(address, tuple) else joined(str(address), 0)
            problem = f"the service manager has opened {where}, and neither a [[listener]] nor [admin] listens there"
            raise ConfigError("config-conflict", problem)


@cache
def inherited() -> Inherited:
    """The sockets that a service manager has opened for this process."""
    return Inherited(os.environ)


def _handed(number: int) -> socket.socket:
    """The socket of a descriptor, which a child of the broker does not get."""
    try:
        os.set_inheritable(number, False)
        found = socket.socket(fileno=number)
        listens = found.type == socket.SOCK_STREAM and found.getsockopt(
            socket.SOL_SOCKET, socket.SO_ACCEPTCONN
        )
    except OSError as error:
        problem = f"descriptor {number} of LISTEN_FDS is no socket: {reason_of(error)}"
        raise ConfigError("cannot-listen", problem) from None
    if not listens:
        problem = f"descriptor {number} of LISTEN_FDS is no socket that listens; a socket unit has ListenStream=, and Accept=no"
        raise ConfigError("cannot-listen", problem)
    found.setblocking(False)
    return found


def _addresses(one: socket.socket) -> set[tuple[str, int]]:
    address = one.getsockname()
    if not isinstance(address, tuple):
        return {(str(address), 0)}
    # ListenStream=61613 is every address of both kinds, which a listener says as 0.0.0.0
    return {(str(address[0]), int(address[1]))} | (
        {("0.0.0.0", int(address[1]))} if address[0] == "::" else set()
    )


def _wanted(host: str, port: int) -> set[tuple[str, int]]:
    if is_path(host):
        return {(host, 0)}
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return set()
    return {(str(address[0]), int(address[1])) for *_, address in found}
