"""A network in one process: connections to a server go through here, and can be held up, cut, or not answered."""

from __future__ import annotations

import socket
from contextlib import suppress
from threading import Event, Lock, Thread
from typing import Final

from tests.commitlog.logs import DEADLINE

BLOCK: Final = 1 << 16


class Way:
    """One direction of all connections. While it is not `open`, what comes is held; `held` is set when there is something."""

    def __init__(self) -> None:
        self.open = Event()
        self.open.set()
        self.held = Event()
        self.least = 1  # bytes of one connection that count as something
        self.passed = 0  # bytes

    def hold(self, least: int = 1) -> None:
        self.least = least
        self.held.clear()
        self.open.clear()


class Proxy:
    """Listens on a port of its own for a server at `port`."""

    def __init__(self, port: int) -> None:
        self.target = port
        self.up, self.down = Way(), Way()
        self.is_refusing = False
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._lock = Lock()
        self._is_closed = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.is_refusing:
                client.close()
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                client.close()
                continue
            with self._lock:
                self._pairs.append((client, server))
            if self.is_refusing:  # since a moment ago
                self.cut()
                continue
            for source, sink, way in ((client, server, self.up), (server, client, self.down)):
                Thread(target=self._pump, args=(source, sink, way), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, way: Way) -> None:
        with suppress(OSError):
            while data := source.recv(BLOCK):
                held = 0
                while not way.open.wait(0.005):
                    held += len(data)
                    if held >= way.least:
                        way.held.set()
                    if source.fileno() < 0:
                        return
                    source.settimeout(0.005)
                    with suppress(TimeoutError):
                        more = source.recv(BLOCK)
                        if not more:
                            return
                        data += more
                        held = len(data) - len(more)
                    source.settimeout(None)
                sink.sendall(data)
                way.passed += len(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        """All connections end; what is held is gone."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for end in pair:
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()

    def refuse(self) -> None:
        """Nobody gets through, now and later."""
        self.is_refusing = True
        self.cut()

    def restore(self) -> None:
        self.is_refusing = False
        for way in (self.up, self.down):
            way.open.set()

    def wait_held(self, way: Way) -> None:
        assert way.held.wait(DEADLINE), "nothing came to be held up"

    def close(self) -> None:
        self.refuse()
        self.restore()
        self.is_refusing = True
        self._listener.close()
