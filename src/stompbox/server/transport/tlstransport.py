"""TLS between the socket of a client and what stands behind it, over memory BIOs, with the client's octets in one place at a time.

    raw transport  octets of TLS        TlsTransport  octets of STOMP        the visitor
      data_received    ->   records of a PIECE are deciphered    ->    data_received, once for all that was read

The protocols of asyncio and uvloop keep for each connection what they read into, and all the room that the largest read and the largest
write have taken in OpenSSL: a client that had sent one megabyte took 700 KiB for as long as it was there, and nobody had counted it. Here
it is a PIECE each, about 50 KiB with OpenSSL's own. Besides, asyncio tells a protocol of a connection when the hand-shake is done: here it
is seen from its first octet on, so that it is counted, and can be ended.

TLS 1.2 and 1.3 (RFC 5246, RFC 8446). A hand-shake is not repeated: OpenSSL refuses that to clients of itself.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

if TYPE_CHECKING:
    from stompbox.server.sockets import Reader
    from stompbox.server.transport.host import Turns

PIECE: Final = 16 << 10  # octets: what one record holds at the most (RFC 8446, 5.1)
ANSWERS: Final = 64 << 10  # octets of what TLS itself says, like new keys, that a peer may leave unread
SMALL: Final = 4 << 10  # octets of a read that are deciphered at once
STEP: Final = 64 << 10  # octets, and
RECORDS: Final = 64  # records, that are deciphered in one go of others: 0.2 ms


class Visitor(Protocol):
    """Who is told of a socket before and after its hand-shake."""

    def accepted(self, transport: asyncio.Transport, reader: Reader) -> None:
        """The first that is known of it. What it closes or aborts is that transport until `connection_made`."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        """The hand-shake is done."""

    def data_received(self, data: bytes) -> None: ...
    def eof_received(self) -> bool | None:
        """The peer says no more, or nothing that could be deciphered."""

    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...
    def connection_lost(self, error: Exception | None) -> None: ...


class TlsTransport(asyncio.Protocol):
    """The server's end: a protocol to the raw transport, and a transport to the visitor. It has no deadline: the visitor has one for all
    that comes before its login."""

    __slots__ = (
        "__weakref__", "_error", "_fault", "_incoming", "_is_closing", "_is_full", "_is_lost", "_is_met", "_is_paused", "_is_planned",
        "_left", "_loop", "_object", "_outgoing", "_raw", "_reader", "_turns", "_visitor",
    )  # fmt: skip

    def __init__(
        self,
        visitor: Visitor,
        context: ssl.SSLContext,
        loop: asyncio.AbstractEventLoop,
        turns: Turns,
    ) -> None:
        self._loop = loop
        self._turns = turns
        # until it is told of the end: it knows its transport, which is this
        self._visitor: Visitor | None = visitor
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._is_met = False  # the hand-shake is done
        self._is_closing = False
        self._is_paused = False  # the visitor wants no more
        self._is_lost = False  # the raw transport is gone,
        self._error: Exception | None = None  # and why
        self._left = b""  # of what was read, more than one turn has time for: nothing is read meanwhile
        self._is_full = False  # more records than that are in the BIO
        self._is_planned = False  # that it goes on
        self._fault: Exception | None = None  # that has ended it

    # The protocol of the raw transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = cast(asyncio.Transport, transport)
        self._reader = self._turns.sockets.reads(self._raw, self)
        if self._visitor is not None:
            self._visitor.accepted(self._raw, self._reader)

    def data_received(self, data: bytes) -> None:
        """Deciphers a small read at once, where nobody waits; what is more waits for its turn, and nothing is read meanwhile."""
        if self._is_closing:
            return
        self._left += data
        if len(self._left) <= SMALL and not (self._is_planned or self._turns.line.is_late):
            self._obey()
        if self._has_left:
            self._plan()
        if self._has_left and not self.is_closing():
            self._reader.pause_reading()

    def _obey(self) -> None:
        """One go. All that it deciphers comes at once to the visitor, who may say then that no more is to be read."""
        found: list[bytes] = []
        is_over = False
        try:
            is_over = self._decipher(found)
        except ssl.SSLError as error:
            self._fault = error.with_traceback(None)  # which knows this here
        if self._outgoing.pending:
            self._answer()
        visitor = self._visitor
        if found and visitor is not None:
            visitor.data_received(found[0] if len(found) == 1 else b"".join(found))
        if self._fault is not None:
            self._is_closing = True
            self._say_end()
            self._raw.close()  # what says why to the peer goes out
        elif is_over and visitor is not None and not visitor.eof_received():
            self.close()

    @property
    def _has_left(self) -> bool:
        return self._is_full or bool(self._left)

    def _decipher(self, found: list[bytes]) -> bool:
        """Appends what these octets say. True: and that the peer says no more (RFC 8446, 6.1). Raises SSLError for what is no TLS."""
        data, self._left = self._left, b""
        incoming, read = self._incoming, self._object.read
        at, size = 0, len(data)
        while self._is_full or at < size:
            if not self._is_full:
                incoming.write(data if size <= PIECE else data[at : at + PIECE])
                at += PIECE
            self._is_full = False
            try:
                if not self._is_met:
                    self._shake_hands()
                while incoming.pending:
                    if len(found) >= RECORDS:
                        self._is_full = True
                        break
                    plain = read(PIECE)
                    if not plain:
                        return True
                    found.append(plain)
            except ssl.SSLWantReadError:  # the rest of a record, or of the hand-shake, is to come
                pass
            except ssl.SSLZeroReturnError:
                return True
            if self._is_full or at >= STEP or self._outgoing.pending:
                self._left = data[at:]
                break
        return False

    @property
    def _goes_on(self) -> bool:
        """Whether what was read may be deciphered: of a transport that is gone, also where the visitor wanted to wait."""
        return not self._is_closing and (self._is_lost or not self._is_paused)

    def _plan(self) -> None:
        if self._has_left and self._goes_on and not self._is_planned:
            self._is_planned = True
            self._turns.line.wait(self._go_on)

    def _go_on(self) -> None:
        self._is_planned = False
        if self._goes_on:
            self._obey()
            if self._has_left:
                self._plan()
            else:
                self._read_on()
        self._look_whether_it_goes()

    def _read_on(self) -> None:
        if not (self._has_left or self._is_paused or self.is_closing()):
            self._reader.resume_reading()

    def _shake_hands(self) -> None:
        self._object.do_handshake()
        self._is_met = True
        self._answer()
        if self._visitor is not None:
            self._visitor.connection_made(cast(asyncio.Transport, self))

    def _answer(self) -> None:
        """What TLS itself says. Who asks for it again and again and does not read it has no more of it kept."""
        if self._raw.is_closing():
            return
        self._raw.write(self._outgoing.read())
        if self._is_met and self._raw.get_write_buffer_size() > ANSWERS:
            self._fault = ConnectionAbortedError("the peer does not read what TLS answers")
            self.abort()

    def eof_received(self) -> bool | None:
        """Without a word of TLS before it: the raw transport closes by itself."""
        self._say_end()
        return False

    def _say_end(self) -> None:
        """The raw transport closes once the system has taken all, and knows no deadline for that; before the hand-shake there is one."""
        if self._is_met and self._visitor is not None:
            self._visitor.eof_received()

    def pause_writing(self) -> None:
        if self._visitor is not None:
            self._visitor.pause_writing()

    def resume_writing(self) -> None:
        if self._visitor is not None:
            self._visitor.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        """What was read before is obeyed all the same, in turns, and before the visitor is told."""
        self._is_lost, self._error = True, error
        self._reader.end()
        self._plan()
        self._look_whether_it_goes()

    def _look_whether_it_goes(self) -> None:
        if self._is_lost and (self._is_closing or not self._has_left):
            self._is_closing = True
            visitor, self._visitor = self._visitor, None
            if visitor is not None:
                visitor.connection_lost(self._error or self._fault)

    # The transport of the visitor

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "ssl_object":
            return self._object
        if name == "sslcontext":
            return self._object.context
        if name == "peercert":
            return self._object.getpeercert() or default
        return self._raw.get_extra_info(name, default)

    def write(self, data: bytes) -> None:
        """A record holds a PIECE at the most: so much room it takes in between, however much is written."""
        if self._is_closing:
            return
        encipher, outgoing, size = self._object.write, self._outgoing, len(data)
        try:
            if size <= PIECE:
                encipher(data)
                records = outgoing.read()
            else:
                parts: list[bytes] = []
                for at in range(0, size, PIECE):
                    encipher(data[at : at + PIECE])
                    parts.append(outgoing.read())
                records = b"".join(parts)
        except ssl.SSLError as error:
            self._fault = error.with_traceback(None)
            self.abort()
            return
        self._raw.write(records)

    def is_closing(self) -> bool:
        return self._is_closing or self._raw.is_closing()

    def close(self) -> None:
        """Says that no more comes, and closes once the system has taken all."""
        if self._is_closing:
            return
        self._is_closing = True
        if not self._raw.is_closing():
            with suppress(ssl.SSLError):  # the peer has not said so itself, and is not waited for
                self._object.unwrap()
            self._raw.write(self._outgoing.read())
        self._raw.close()

    def abort(self) -> None:
        self._is_closing = True
        self._raw.abort()

    def pause_reading(self) -> None:
        self._is_paused = True
        self._reader.pause_reading()

    def resume_reading(self) -> None:
        self._is_paused = False
        if self._has_left:
            self._loop.call_soon(self._plan)  # who says so may be about to obey what came before
        self._read_on()

    @property
    def unread(self) -> int:
        """Octets that were read and that the visitor has not been given."""
        return len(self._left) + self._incoming.pending

    def is_reading(self) -> bool:
        return not (self._is_paused or self.is_closing())

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._raw.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._raw.get_write_buffer_size()

    def can_write_eof(self) -> bool:
        return False

    def __repr__(self) -> str:
        return f"<TlsTransport{' closing' if self._is_closing else ''}>"
