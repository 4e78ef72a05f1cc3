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
from typing import Any, Final, Protocol, cast

PIECE: Final = 16 << 10  # octets: what one record holds at the most (RFC 8446, 5.1)
ANSWERS: Final = 64 << 10  # octets of what TLS itself says, like new keys, that a peer may leave unread


class Visitor(Protocol):
    """Who is told of a socket before and after its hand-shake."""

    def accepted(self, transport: asyncio.Transport) -> None:
        """The first that is known of it. What it closes or aborts is that transport until `connection_made`."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The hand-shake is done."""

    def data_received(self, data: bytes) -> None: ...
    def eof_received(self) -> bool | None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...
    def connection_lost(self, error: Exception | None) -> None: ...


class TlsTransport(asyncio.Protocol):
    """The server's end: a protocol to the raw transport, and a transport to the visitor. It has no deadline: the visitor has one for all
    that comes before its login."""

    __slots__ = (
        "__weakref__", "_fault", "_incoming", "_is_closing", "_is_met", "_object", "_outgoing", "_raw", "_visitor"
    )  # fmt: skip

    def __init__(self, visitor: Visitor, context: ssl.SSLContext) -> None:
        self._visitor: Visitor | None = (
            visitor  # until it is told of the end: it knows its transport, which is this
        )
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._is_met = False  # the hand-shake is done
        self._is_closing = False
        self._fault: Exception | None = None  # that has ended it

    # The protocol of the raw transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = cast(asyncio.Transport, transport)
        if self._visitor is not None:
            self._visitor.accepted(self._raw)

    def data_received(self, data: bytes) -> None:
        """Deciphers all of it before the visitor hears of it, who may say then that no more is to be read."""
        if self._is_closing:
            return
        found: list[bytes] = []
        is_over = False
        try:
            is_over = self._decipher(data, found)
        except ssl.SSLError as error:
            self._fault = error.with_traceback(None)  # which knows this here
        if self._outgoing.pending:
            self._answer()
        visitor = self._visitor
        if found and visitor is not None:
            visitor.data_received(found[0] if len(found) == 1 else b"".join(found))
        if self._fault is not None:
            self._is_closing = True
            self._raw.close()  # what says why to the peer goes out
        elif is_over and visitor is not None and not visitor.eof_received():
            self.close()

    def _decipher(self, data: bytes, found: list[bytes]) -> bool:
        """Appends what these octets say. True: and that the peer says no more (RFC 8446, 6.1). Raises SSLError for what is no TLS."""
        incoming, size = self._incoming, len(data)
        for at in range(0, size, PIECE):
            incoming.write(data if size <= PIECE else data[at : at + PIECE])
            try:
                if not self._is_met:
                    self._shake_hands()
                read = self._object.read
                while incoming.pending:
                    plain = read(PIECE)
                    if not plain:
                        return True
                    found.append(plain)
            except ssl.SSLWantReadError:  # the rest of a record, or of the hand-shake, is to come
                continue
            except ssl.SSLZeroReturnError:
                return True
        return False

    def _shake_hands(self) -> None:
        self._object.do_handshake()
        self._is_met = True
        self._answer()
        if self._visitor is not None:
            self._visitor.connection_made(cast(asyncio.BaseTransport, self))

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
        return False

    def pause_writing(self) -> None:
        if self._visitor is not None:
            self._visitor.pause_writing()

    def resume_writing(self) -> None:
        if self._visitor is not None:
            self._visitor.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._is_closing = True
        visitor, self._visitor = self._visitor, None
        if visitor is not None:
            visitor.connection_lost(error or self._fault)

    # The transport of the visitor

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "ssl_object":
            return self._object
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
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        self._raw.resume_reading()

    def is_reading(self) -> bool:
        return self._raw.is_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._raw.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._raw.get_write_buffer_size()

    def can_write_eof(self) -> bool:
        return False

    def __repr__(self) -> str:
        return f"<TlsTransport{' closing' if self._is_closing else ''}>"
