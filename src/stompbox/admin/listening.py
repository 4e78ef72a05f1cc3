"""The admin interface's sockets: bound at start, so that a busy port is known then; what serves HTTP is loaded at the first request.

Loading it takes as long as a third of the whole start, and most brokers are never asked.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from functools import partial
from typing import TYPE_CHECKING, Protocol

from stompbox.admin.history import History
from stompbox.config import AdminTable, joined
from stompbox.config.listener import is_path
from stompbox.errors import ConfigError, reason_of
from stompbox.server import systemd
from stompbox.server.transport import unixsocket
from stompbox.server.transport.keystores import admin_context

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from stompbox.server.broker import Broker

log = logging.getLogger("stompbox.admin")

BACKLOG = 128


class Serving(Protocol):
    """The server behind the sockets (http.py), once it is loaded."""

    async def close(self) -> None: ...


class AdminListener:
    """The listener of the admin interface, which listens from now on. Raises ConfigError when it cannot."""

    def __init__(self, broker: Broker, table: AdminTable, sockets: list[socket.socket] | None = None) -> None:
        """`sockets` are those that listen there already, where some do."""
        endpoint = table.endpoint()
        assert endpoint is not None
        self.broker = broker
        self.table = table
        self.host = endpoint[0]
        self.context = admin_context(table)
        self.file: unixsocket.BoundFile | None = None  # the file that it has made
        if sockets is None:
            sockets, self.file = bind(table)
        self.sockets = sockets
        self.history = History(broker)
        self.history.start()
        self._serving: Serving | None = None
        self._loading: asyncio.Task[None] | None = None
        for each in self.sockets:
            broker.loop.add_reader(each.fileno(), self._wake)

    @property
    def url(self) -> str:
        if is_path(self.host):
            return joined(self.host, 0)
        return f"http{'s' if self.context else ''}://{joined(self.host, self.sockets[0].getsockname()[1])}"

    def _wake(self) -> None:
        """Loads the server, because somebody has connected for the first time."""
        self._ignore()
        self._loading = self.broker.loop.create_task(self._load())

    def _ignore(self) -> None:
        for each in self.sockets:
            self.broker.loop.remove_reader(each.fileno())

    async def _load(self) -> None:
        try:
            serve = await self.broker.loop.run_in_executor(None, _prepared, self)
            self._serving = await serve()
        except Exception:
            log.exception("the admin interface cannot be started; the broker goes on without")
            self._close_sockets()

    def _close_sockets(self) -> None:
        for each in self.sockets:
            each.close()

    async def close(self) -> None:
        """Answers what is being asked, then no more."""
        await self.history.close()
        if self.file is not None:  # before the socket is closed: after that another broker may take the name
            self.file.remove()
        if self._loading is None:
            self._ignore()
        else:
            await self._loading
        if self._serving is not None:
            await self._serving.close()
        self._close_sockets()

    def __repr__(self) -> str:
        return f"<AdminListener {self.url} {'serving' if self._serving else 'asleep'}>"


def _prepared(listener: AdminListener) -> Callable[[], Awaitable[Serving]]:
    """Loads the libraries and builds what they serve. In a thread: the loop goes on meanwhile."""
    from stompbox.admin.http import prepare, serve

    return partial(serve, listener, prepare(listener))


def bind(table: AdminTable) -> tuple[list[socket.socket], unixsocket.BoundFile | None]:
    """What listens where the table says, and the file that it has made. Raises ConfigError."""
    endpoint = table.endpoint()
    assert endpoint is not None
    host, port = endpoint
    opened = systemd.inherited().claim(host, port)
    if opened is not None:
        return [opened], None
    if not is_path(host):
        return _bind(host, port), None
    try:
        bound, file = unixsocket.listening(host, table, BACKLOG)
    except OSError as error:
        raise ConfigError("cannot-listen", _said(host, port, error)) from None
    return [bound], file


def _bind(host: str, port: int) -> list[socket.socket]:
    """A socket for each address of the host, all with one port."""
    bound: list[socket.socket] = []
    absent: OSError | None = None
    try:
        found = dict.fromkeys(
            socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        )
        for family, *_, address in found:
            try:
                one = socket.create_server((str(address[0]), port), family=family, backlog=BACKLOG)
            except OSError as error:
                if error.errno != errno.EADDRNOTAVAIL:
                    raise
                absent = error  # localhost is ::1 too, which a machine without IPv6 does not have
                continue
            one.setblocking(False)
            bound.append(one)
            port = port or one.getsockname()[1]
        if absent is not None and not bound:
            raise absent
    except OSError as error:
        for one in bound:
            one.close()
        raise ConfigError("cannot-listen", _said(host, port, error)) from None
    return bound


def _said(host: str, port: int, error: OSError) -> str:
    where = joined(host, port) if is_path(host) else f"http://{joined(host, port)}"
    return (
        f"the admin interface cannot listen on {where}: {reason_of(error)}; --admin chooses another address"
    )
