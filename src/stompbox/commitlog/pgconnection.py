"""One connection to PostgreSQL that comes back by itself, whose calls end at a deadline and when it is closed; and what its errors mean.

A server that stands still, or is cut off, answers neither with data nor with an error. libpq would wait for it: so a watch looks after all
calls under way, and shuts the socket of one that is overdue. Then its call ends as after any lost connection.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Lock, Thread
from time import monotonic
from typing import Any, Final, TypeVar

import psycopg
from psycopg import Connection, OperationalError, errors

from stompbox.commitlog.base import LogError
from stompbox.commitlog.pgservers import CONNECTING, Servers

T = TypeVar("T")

LOOKS: Final = 0.1  # seconds between two looks at what is overdue

_FULL: Final = ("53", "54")  # classes of SQLSTATE: no room on the disk, limits of the program
_FORBIDDEN: Final = ("28", "42501", "3D", "42P01")
_DENIED: Final = (  # what a connection is refused with, which has no SQLSTATE
    "authentication failed",
    "no pg_hba.conf entry",
    "does not exist",
    "permission denied",
    "certificate",
)


def is_unknown(error: psycopg.Error) -> bool:
    """Whether the server may have done all the same what it was told: the connection ended, or the server does."""
    state = error.sqlstate or ""
    return not state or state[:2] in ("08", "57", "25", "40") or state == "55P03"


def meaning(error: psycopg.Error, name: str) -> LogError:
    """What the server said, as an error of the log."""
    state = error.sqlstate or ""
    text = " ".join((str(error) or type(error).__name__).split())
    is_denied = state.startswith(_FORBIDDEN) or (not state and any(word in text for word in _DENIED))
    code = "log-full" if state.startswith(_FULL) else "log-not-allowed" if is_denied else "log-unavailable"
    return LogError(code, f"{name}: {text}")


class Watch:
    """Ends calls that are overdue."""

    def __init__(self) -> None:
        self._lines: list[Line] = []
        self._closed = Event()
        self._thread = Thread(target=self._look, name="stompbox-log-watch", daemon=True)
        self._thread.start()

    def add(self, line: Line) -> None:
        self._lines.append(line)

    def _look(self) -> None:
        while not self._closed.wait(LOOKS):
            now = monotonic()
            for line in list(self._lines):
                line.end_overdue(now)

    def close(self) -> None:
        self._closed.set()
        self._thread.join()


class Line:
    """A connection for one thread at a time. `called`: what the server calls it; `ready` prepares a new one."""

    def __init__(
        self,
        servers: Servers,
        called: str,
        name: str,
        watch: Watch,
        ready: Callable[[Connection[Any]], None] | None = None,
    ) -> None:
        self._servers = servers
        self._server = -1  # which of them,
        self._timeline = 0  # and when it was connected
        self._called = called
        self._name = name
        self._ready = ready
        self._turn = Lock()
        self._connection: Connection[Any] | None = None
        self._guard = Lock()  # of the three below
        self._socket: socket.socket | None = None
        self._due: float | None = None
        self._is_closed = False
        watch.add(self)

    def call(self, work: Callable[[Connection[Any]], T], wait: float) -> T:
        """What `work` gives on a connection that is there. Raises what psycopg raises, also when there is no answer after `wait`
        seconds, and LogError `log-closed`."""
        with self._turn:
            self.refuse_closed()
            try:
                connection = self._connected()
                self._until(monotonic() + wait)
                try:
                    return work(connection)
                finally:
                    self._until(None)
            except (psycopg.Error, OSError) as error:
                if not isinstance(error, psycopg.Error) or is_unknown(error):
                    self._servers.avoid(self._server)
                    self._drop()
                self.refuse_closed()
                if isinstance(error, OSError):
                    raise OperationalError(str(error)) from error
                raise

    def refuse_closed(self) -> None:
        if self._is_closed:
            raise LogError("log-closed", f"{self._name}: it was closed")

    def _connected(self) -> Connection[Any]:
        connection = self._connection
        if connection is not None and not connection.closed and self._timeline >= self._servers.timeline:
            return connection
        self._drop()
        more = {"application_name": self._called[:63]}
        connection, self._timeline, self._server = self._servers.connect(more, self._adopt)
        if self._ready is not None:
            self._until(monotonic() + CONNECTING)
            self._ready(connection)
        return connection

    def _adopt(self, connection: Connection[Any]) -> None:
        """A new one: what is asked of it ends, too."""
        self._drop()
        self._connection = connection
        with self._guard:
            self._socket = socket.socket(fileno=os.dup(connection.fileno()))
        self.refuse_closed()  # meanwhile: nobody would cut it any more
        self._until(monotonic() + CONNECTING)

    def _until(self, due: float | None) -> None:
        with self._guard:
            self._due = due

    def end_overdue(self, now: float) -> None:
        """From another thread: the call that should have been done ends."""
        with self._guard:
            if self._due is not None and now > self._due:
                self._due = None
                self._cut()

    def _cut(self) -> None:
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        with self._guard:
            if self._socket is not None:
                self._cut()
                self._socket.close()
                self._socket = None
        if connection is not None:
            with suppress(psycopg.Error, OSError):
                connection.close()

    def close(self) -> None:
        """From any thread: a call under way ends."""
        with self._guard:
            self._is_closed = True
            self._cut()
        with self._turn:
            self._drop()


def is_taken(error: psycopg.Error) -> bool:
    """Whether a row with this key is there."""
    return isinstance(error, errors.UniqueViolation)
