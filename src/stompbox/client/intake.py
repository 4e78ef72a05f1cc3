"""Bounded memory towards a slow application: when reading from the socket stops, and when it goes on.

Messages wait in the subscriptions' buffers until the application takes them. At `buffer` octets reading stops, at half of
that it goes on; the rest is TCP's flow control, and the broker's. One exception: while a call waits for its receipt
or answer, which comes behind those messages on the same connection, reading goes on up to `limit`, because the
application may take no message until its call returns. At `limit` it stops in any case.
"""

from __future__ import annotations

from typing import Final, Protocol

OVERHEAD: Final = 400  # octets that a message takes in memory beside its body, about


class Readable(Protocol):
    @property
    def awaits(self) -> bool: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class Intake:
    def __init__(self, buffer: int, limit: int) -> None:
        self.buffer = buffer
        self.limit = limit
        self._low = buffer // 2
        self.size = 0  # octets of messages read and not taken
        self.is_paused = False
        self.pauses = 0
        self._connection: Readable | None = None

    def attach(self, connection: Readable | None) -> None:
        """Makes this connection the one to be paused; a new one begins to read."""
        self._connection = connection
        self.is_paused = False
        self.regulate()

    def added(self, size: int) -> None:
        self.size += size
        if self.size >= self.buffer and not self.is_paused:
            self.regulate()

    def taken(self, size: int) -> None:
        self.size -= size
        if self.is_paused and self.size <= self._low:
            self.regulate()

    def regulate(self) -> None:
        """Decides anew; also to be called when a call begins to wait while reading is paused."""
        connection = self._connection
        if connection is None:
            return
        if self.is_paused:
            if self.size <= self._low or (self.size < self.limit and connection.awaits):
                self.is_paused = False
                connection.resume_reading()
        elif self.size >= self.limit or (self.size >= self.buffer and not connection.awaits):
            self.is_paused = True
            self.pauses += 1
            connection.pause_reading()

    def __repr__(self) -> str:
        return f"<Intake {self.size} of {self.buffer} octets{' paused' if self.is_paused else ''}>"
