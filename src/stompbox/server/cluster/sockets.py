"""The sockets on which clients come: opened once, and kept while the node follows, leads, and follows again.

While nobody accepts there, who comes waits in the system's queue, and is let in as soon as there is a leader.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from stompbox.server import systemd
from stompbox.server.transport import unixsocket
from stompbox.server.transport.tcp import BACKLOG, Acceptor, accept, cannot_listen

if TYPE_CHECKING:
    from stompbox.config import Listener


class ClientSockets:
    """What one node listens on for clients."""

    def __init__(self, listeners: Sequence[Listener]) -> None:
        self.listeners = list(listeners)
        self.sockets: list[list[socket.socket]] = []  # for each listener
        self.files: list[unixsocket.BoundFile] = []
        self._servers: list[asyncio.Server] = []

    def open(self) -> None:
        """Listens, and accepts nobody yet. Raises ConfigError where it cannot."""
        try:
            for listener in self.listeners:
                self.sockets.append(self._bound(listener))
        except OSError as error:
            self.close()
            raise cannot_listen(listener, error) from None
        except BaseException:
            self.close()
            raise

    def _bound(self, listener: Listener) -> list[socket.socket]:
        claimed = systemd.inherited().claim(listener.host, listener.port)
        if claimed is not None:
            return [claimed]
        if listener.is_unix:
            bound, file = unixsocket.listening(listener.host, listener.options, BACKLOG)
            self.files.append(file)
            return [bound]
        return listening(listener.host, listener.port)

    def port(self, at: int) -> int:
        """The port of the listener, which the system may have chosen; 0 for a file."""
        return 0 if self.listeners[at].is_unix else int(self.sockets[at][0].getsockname()[1])

    async def serve(self, loop: asyncio.AbstractEventLoop, acceptors: Sequence[Acceptor]) -> None:
        """Accepts from now on, at each listener with its acceptor."""
        for at, acceptor in enumerate(acceptors):
            if not self.listeners[at].is_unix:
                acceptor.opened(self.port(at))
            for bound in self.sockets[at]:
                # a socket of its own for the same queue: a server closes what it was given
                self._servers.append(cast(asyncio.Server, await accept(loop, acceptor, bound.dup())))

    def rest(self) -> None:
        """Accepts nobody; who comes waits."""
        for server in self._servers:
            server.close()
        self._servers.clear()

    def close(self) -> None:
        self.rest()
        for file in self.files:  # while the sockets are open: after that another broker may take the name
            file.remove()
        for bound in [bound for sockets in self.sockets for bound in sockets]:
            bound.close()
        self.sockets.clear()
        self.files.clear()

    def __repr__(self) -> str:
        return f"<ClientSockets {' '.join(map(str, self.listeners))}>"


def listening(host: str, port: int) -> list[socket.socket]:
    """A socket for each address of the host, all with one port. Raises OSError."""
    found: list[socket.socket] = []
    infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    try:
        for family, _, _, _, address in dict.fromkeys(infos):
            where: Any = (address[0], port, *address[2:])
            bound = socket.create_server(where[:2], family=family, backlog=BACKLOG)
            bound.setblocking(False)
            found.append(bound)
            port = port or bound.getsockname()[1]
    except BaseException:
        for bound in found:
            bound.close()
        raise
    return found
