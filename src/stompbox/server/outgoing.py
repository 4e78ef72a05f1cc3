"""What is large on its way out: bodies read from the store as the socket takes them, and long answers that are in memory.

A frame cannot be interrupted by another, so what else is said on the connection waits its turn behind it (connection.out). Other
connections never wait: a piece is read off the loop, and only when the one before it has left. Two pieces are in memory at the most,
the one that the system has not yet taken and the next. The system is given one of them, or a portion of an answer, and the next one when it
is the user's turn (turns.py): to take megabytes costs it milliseconds, in which nobody else would be heard.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from stompbox.errors import StoreError
from stompbox.handles import Large
from stompbox.server.turns import OUTWARD
from stompbox.store.base import PIECE

if TYPE_CHECKING:
    from stompbox.server.seam import ClientConnection

log = logging.getLogger("stompbox.connection")

END: Final = b"\0\n"
# bytes of a long answer in one turn of the loop, about 30 us; of what was said behind a large message, and one piece then
PORTION: Final = 64 << 10
SHOWN: Final = 2 << 10  # bytes of what is said to a client whose frames are logged, each of which takes 60 us
STREAM: Final = 1 << 10  # octets of memory that a large message takes while it waits for its turn, at a guess
GRACE: Final = 5.0  # seconds in which a connection that ends may take the rest of a frame


class Stream:
    """One large message. `opening`: its frame up to the body. `on_gone`: who reads it holds nothing up, so its body may be gone when its
    turn comes; then nothing of it is written, and this is done instead. Without, that is damage. `is_shown`: it is in portions for the sake
    of the log of frames alone, and goes to the system whether that takes it now or not."""

    is_shown = False

    def __init__(self, opening: bytes, large: Large, on_gone: Callable[[], None] | None = None) -> None:
        self.opening = opening
        self.large = large
        self.kept = STREAM + len(opening)  # octets of memory, about
        self.on_gone = on_gone
        self.is_begun = False  # some of it was written
        self.is_told = on_gone is None  # the store keeps the body for it from now on
        self.left = large.size
        self.number = 0  # of the next piece
        self.ready: bytes | None = b"" if not large.size else None  # that piece
        self.is_reading = False

    def came(self, data: bytes) -> None:
        self.ready = data

    def take(self) -> bytes:
        """What is ready, as it goes to the socket."""
        data, self.ready = self.ready or b"", None
        self.left -= len(data)
        self.number += 1
        self.is_begun = True
        opening, self.opening = self.opening, b""
        return b"".join((opening, data, END if self.left <= 0 else b""))

    @property
    def is_done(self) -> bool:
        return self.left <= 0 and self.ready is None


class Whole(Stream):
    """One that must be seen whole by a transformer: `made` gives its frame, or nothing when it could not."""

    def __init__(
        self, large: Large, made: Callable[[bytes], bytes], on_gone: Callable[[], None] | None = None
    ) -> None:
        super().__init__(b"", large, on_gone)
        self.kept += large.size
        self._made = made
        self._parts: list[bytes] = []

    def came(self, data: bytes) -> None:
        self._parts.append(data)
        if sum(map(len, self._parts)) >= self.large.size:
            self.ready = b"".join(self._parts)
        else:
            self.number += 1

    def take(self) -> bytes:
        whole, self.ready, self.left = self.ready or b"", None, 0
        return self._made(whole)


class Portions(Stream):
    """A frame that is in memory, `pieces` joined: its portions are not asked of the store, they wait for the next turn of the loop."""

    def __init__(self, pieces: Sequence[bytes], portion: int = PORTION) -> None:
        self.left = self.kept = sum(map(len, pieces))
        self.is_shown = portion == SHOWN
        self._portions = _portions(pieces, portion)
        self.ready = next(self._portions)

    def go_on(self) -> None:
        """Has the next portion ready, where it has none."""
        if self.ready is None:
            self.ready = next(self._portions)

    def take(self) -> bytes:
        data, self.ready = self.ready or b"", None
        self.left -= len(data)
        return data


def _portions(pieces: Sequence[bytes], portion: int) -> Iterator[bytes]:
    gathered: list[memoryview] = []
    room = portion
    for piece in pieces:
        rest = memoryview(piece)
        while rest:
            part, rest = rest[:room], rest[room:]
            gathered.append(part)
            room -= len(part)
            if not room:
                yield b"".join(gathered)
                gathered, room = [], portion
    if gathered:
        yield b"".join(gathered)


class Outgoing:
    """What one connection is to be sent, from the first large message on until all are written."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.items: deque[bytes | Stream] = deque()
        self._is_planned = False  # it has a turn
        self.waiting = 0  # octets of the bytes among them
        self._streamed = 0  # and of memory that the others take

    def add(self, stream: Stream) -> None:
        """Puts a stream behind all that was said before."""
        self.follow(self.connection.out)
        self._append(stream)

    def _append(self, stream: Stream) -> None:
        self.items.append(stream)
        self._streamed += stream.kept

    @property
    def size(self) -> int:
        """How many octets of memory are taken, about."""
        return self.waiting + self._streamed + (PIECE if self._streamed else 0)

    def follow(self, out: list[bytes]) -> None:
        """Takes over what was said behind the stream."""
        if self.connection.frames is not None and sum(map(len, out)) > SHOWN:
            self._append(Portions([b"".join(out)], SHOWN))
            out.clear()
        if out:
            self.items.append(b"".join(out))
            self.waiting += sum(map(len, out))
            out.clear()

    def write(self) -> bool:
        """Hands over what can be, as much as goes into one turn; True when all of it was."""
        connection, handed = self.connection, 0
        while self.items:
            item = self.items[0]
            if isinstance(item, bytes):
                handed += self._hand_over(item)
                self.items.popleft()
                self.waiting -= len(item)
                continue
            if item.ready is None:
                self._read(item)
            if item.ready is None or (connection.transport.is_clogged and not item.is_shown):
                return False
            if handed >= PORTION:
                self._wait()
                return False
            handed += self._hand_over(item.take())
            if item.is_done:
                self._go_by(item)
        return True

    def _wait(self) -> None:
        """Goes on in a later turn; all connections of a user have one together."""
        if not self._is_planned:
            self._is_planned = True
            self.connection.broker.turns.later(self._have_turn, OUTWARD, by=self.connection.user.name)

    def _have_turn(self, _: float) -> bool:
        self._is_planned = False
        if self.connection.outgoing is self:
            if self.items and isinstance(self.items[0], Portions):
                self.items[0].go_on()
            self.connection.write_out()
        return False

    def _go_by(self, stream: Stream) -> None:
        self.items.popleft()
        self._streamed -= stream.kept

    def _hand_over(self, data: bytes) -> int:
        """How many octets it was."""
        connection = self.connection
        if data:
            if connection.frames is not None:
                connection.frames.went(data)
            connection.transport.write(data)
            if connection.pulse is not None:
                connection.pulse.sent(connection.broker.loop.time())
        return len(data)

    def _read(self, stream: Stream) -> None:
        """The next piece: from memory while it is not durable, else from the store."""
        broker = self.connection.broker
        if isinstance(stream, Portions):
            self._wait()
            return
        if not (stream.is_told or stream.is_reading) and broker.engine.bodies.is_untold(stream.large):
            self._tell(stream)
        while stream.ready is None and not stream.is_reading:
            found = broker.engine.bodies.piece(stream.large, stream.number)
            if found is None:
                stream.is_reading = True
                future = broker.committer.read_part(stream.large.id, stream.number)
                future.add_done_callback(partial(self._has_read, stream))
            else:
                stream.came(found)

    def _tell(self, stream: Stream) -> None:
        """Reading begins when the store keeps the body for us: it does not go half-way then."""
        broker = self.connection.broker
        stream.is_reading = True
        told: asyncio.Future[None] = broker.loop.create_future()
        told.add_done_callback(partial(self._has_told, stream))
        broker.when_durable(told)

    def _has_told(self, stream: Stream, told: asyncio.Future[None]) -> None:
        """When the disk refuses, what is there is read all the same."""
        stream.is_reading, stream.is_told = False, True
        if not told.cancelled() and told.exception() is not None:
            text = "%s: a large body is read before the store knows of it"
            log.debug(text, self.connection.name, extra=self.connection.marks)
        self._write_on()

    def _has_read(self, stream: Stream, future: asyncio.Future[bytes]) -> None:
        stream.is_reading = False
        error = None if future.cancelled() else future.exception()
        if future.cancelled() or self.connection.outgoing is not self:
            return
        if (
            isinstance(error, StoreError)
            and error.code == "no-such-body"
            and stream.on_gone is not None
            and not stream.is_begun
        ):
            self._go_by(stream)
            stream.on_gone()
        elif error is not None:
            self._fail(error)
            return
        else:
            stream.came(future.result())
        self.connection.broker.turns.in_time(self._write_on)

    def _write_on(self) -> None:
        if self.connection.outgoing is not self:
            return
        broker = self.connection.broker
        broker.set_time()
        self.connection.write_out()
        broker.flush()

    def _fail(self, error: BaseException) -> None:
        """The frame cannot be finished, and nothing else can be said within it: the connection ends, the message goes back."""
        connection = self.connection
        code = error.code if isinstance(error, StoreError) else "store-failed"
        connection.broker.errors[code] += 1
        log.error(
            "%s: a large body cannot be read, closed: %s (%s)",
            connection.name,
            error,
            code,
            extra={"code": code, **connection.marks},
        )
        connection.transport.abort()

    def __repr__(self) -> str:
        return f"<Outgoing {len(self.items)} of {self.connection.name}>"
