"""Confirmed sends, many at a time: a bounded window of messages whose RECEIPT has not come yet.

No future and no task per message: a send is a frame in the next write and an entry among the receipts, and waits only when the
window is full. What fails is raised by the next `send` or `flush`, or at the end of the block.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import TracebackType
from typing import Final

from stompbox.client.connection import BrokerConnection
from stompbox.client.link import Answered, Link
from stompbox.client.outgoing import Body, Headers, decode_frame, encode_send, encode_sends
from stompbox.errors import StompboxError, UsageError
from stompbox.stomp.frames import Frame
from stompbox.stomp.versions import Version

WINDOW: Final = 1000  # messages: enough to keep a broker busy between two of its group commits
WINDOW_SIZE: Final = 16 * 1024 * 1024  # octets of frames, so that large messages do not fill the memory


PART: Final = 256  # bodies that are taken from an iterable at once


def parts(bodies: Iterable[Body]) -> Iterator[list[Body]]:
    """Takes bodies apart into lists of which one is sent at once. Raises UsageError for what is a single body."""
    if isinstance(bodies, str | bytes | bytearray | memoryview | Mapping) or not isinstance(bodies, Iterable):
        raise UsageError(
            "bad-body",
            f"bodies must be an iterable of bodies, not one {type(bodies).__name__}; `send` takes one",
        )
    left = iter(bodies)
    while part := list(islice(left, PART)):
        yield part


def require_common(version: Version, destination: str, headers: Headers | None) -> None:
    """Raises UsageError for what messages cannot have in common, also where there are none."""
    encode_send(version, destination, b"", headers)


class Window:
    """The books of a publisher: what is outstanding, what failed. It waits for nothing and knows no threads."""

    __slots__ = ("_error", "_failures", "confirmed_count", "most", "most_size", "outstanding", "size")

    def __init__(self, most: int) -> None:
        if not isinstance(most, int) or isinstance(most, bool) or most < 1:
            raise UsageError("bad-argument", f"window is {most!r}; allowed is a number of messages from 1")
        self.most = most
        self.most_size = WINDOW_SIZE
        self.outstanding = 0
        self.size = 0
        self.confirmed_count = 0
        self._error: StompboxError | None = None
        self._failures: deque[tuple[bytes, StompboxError]] = deque(maxlen=most)

    def add(self, frame: bytes) -> None:
        self.outstanding += 1
        self.size += len(frame)

    def add_all(self, frames: Sequence[tuple[int, bytes]]) -> None:
        self.outstanding += len(frames)
        self.size += sum([len(frame) for _, frame in frames])

    @property
    def room(self) -> int:
        """How many messages may be sent before one is confirmed."""
        return self.most - self.outstanding

    def take(self, frame: bytes) -> None:
        self.outstanding -= 1
        self.size -= len(frame)
        self.confirmed_count += 1

    def fail(self, frame: bytes, error: StompboxError) -> None:
        self.outstanding -= 1
        self.size -= len(frame)
        self._error = self._error or error
        self._failures.append((frame, error))

    @property
    def is_full(self) -> bool:
        return self.outstanding >= self.most or self.size >= self.most_size

    @property
    def has_room_again(self) -> bool:
        """Half empty: a sender that waits is woken for many messages, not for one."""
        return self.outstanding * 2 <= self.most and self.size * 2 <= self.most_size

    @property
    def has_failed(self) -> bool:
        return self._error is not None

    def raise_failure(self) -> None:
        """Raises the failure that has come, once."""
        error, self._error = self._error, None
        if error is not None:
            raise error

    def failures(self, link: Link) -> list[tuple[Frame, StompboxError]]:
        return [(decode_frame(frame, link.version), error) for frame, error in self._failures]


class Publisher:
    """`async with client.publisher(window=1000) as publisher: await publisher.send(destination, body, headers)`"""

    def __init__(self, link: Link, window: int) -> None:
        self._link = link
        self._window = Window(window)
        self._numbers = link.numbers
        self._text_length = link.options.text_length
        self._waiting = 0
        self._changed = asyncio.Event()
        self._refused = asyncio.Event()
        self._answered = Answered(self._confirmed, self._failed)

    @property
    def outstanding(self) -> int:
        """How many messages are sent and not yet confirmed."""
        return self._window.outstanding

    @property
    def confirmed_count(self) -> int:
        """How many messages the broker has confirmed."""
        return self._window.confirmed_count

    @property
    def failures(self) -> list[tuple[Frame, StompboxError]]:
        """SEND frames that were refused, or are unconfirmed because the connection was lost; the newest `window` of them."""
        return self._window.failures(self._link)

    async def send(self, destination: str, body: Body = b"", headers: Headers | None = None) -> None:
        """Returns when the message is on its way and the window has room. Raises what befell an earlier message."""
        window = self._window
        connection = self._link.connection
        if (
            connection is None
            or not connection.is_open
            or connection.is_blocked
            or window.is_full
            or window.has_failed
        ):
            connection = await self._room()
        number = next(self._numbers)
        frame = encode_send(
            connection.version,
            destination,
            body,
            headers,
            f"receipt:{number}\n",
            text_length=self._text_length,
        )
        window.add(frame)
        connection.confirm(number, frame, self._answered)

    async def send_many(
        self, destination: str, bodies: Iterable[Body] | AsyncIterable[Body], headers: Headers | None = None
    ) -> int:
        """As Client.send_many, within this publisher's window; returns how many when the last of them is on its way."""
        require_common(self._link.version, destination, headers)
        count = 0
        if isinstance(bodies, AsyncIterable):
            async for body in bodies:
                await self.send(destination, body, headers)
                count += 1
            return count
        for part in parts(bodies):
            at = 0
            while at < len(part):
                at += await self._send_part(destination, part[at:], headers)
            count += len(part)
        return count

    async def _send_part(self, destination: str, bodies: Sequence[Body], headers: Headers | None) -> int:
        """As many of them as there is room for, and as make a good piece of work."""
        connection = await self._room()
        frames = encode_sends(
            connection.version,
            destination,
            bodies[: self._window.room],
            headers,
            self._numbers,
            text_length=self._text_length,
        )
        self._window.add_all(frames)
        connection.confirm_all(frames, self._answered)
        return len(frames)

    async def flush(self) -> None:
        """Returns when everything sent so far is confirmed; raises what befell it."""
        self._window.raise_failure()
        while self._window.outstanding:
            await self._progress()
            self._window.raise_failure()

    async def failure(self) -> None:
        """Waits until a message fails, and raises what befell it: for who waits for something else than the broker meanwhile."""
        while True:
            self._window.raise_failure()
            self._refused.clear()
            await self._refused.wait()

    async def _room(self) -> BrokerConnection:
        window = self._window
        while True:
            window.raise_failure()
            connection = await self._link.connected()
            if connection.is_blocked:
                await connection.drain()
            elif window.is_full:
                connection.flush()  # what fills the window must be on its way
                await self._progress()
            else:
                return connection

    async def _progress(self) -> None:
        """Waits until the window has room again or is empty, something failed, or nothing at all happens for too long."""
        limit = self._link.options.receipt_timeout
        before = self._window.confirmed_count
        self._waiting += 1
        self._changed.clear()
        try:
            async with asyncio.timeout(limit):
                await self._changed.wait()
        except TimeoutError:
            if self._window.confirmed_count == before and self._link.open_connection() is not None:
                raise self._link.receipt_timeout(
                    f"any of {self._window.outstanding} messages", limit
                ) from None
        finally:
            self._waiting -= 1

    def _confirmed(self, frame: bytes) -> None:
        window = self._window
        window.take(frame)
        if self._waiting and (window.has_room_again or not window.outstanding):
            self._changed.set()

    def _failed(self, frame: bytes, error: StompboxError) -> None:
        self._window.fail(frame, error)
        self._changed.set()
        self._refused.set()

    async def __aenter__(self) -> Publisher:
        await self._link.connected()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.flush()

    def __repr__(self) -> str:
        return f"<Publisher outstanding={self._window.outstanding} of {self._window.most} confirmed={self._window.confirmed_count}>"
