"""STOMP over WebSocket (RFC 6455): the hand-shake, and frames in messages of the kind that the client sends.

A message from the client may hold any part of the stream; what goes out is whole frames (large ones in pieces), several in one message
as long as they are small, as text where they are UTF-8 and the client speaks text, else as binary.
"""

from __future__ import annotations

import codecs
import http
import logging
import zlib
from collections.abc import Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final
from urllib.parse import SplitResult, urlsplit

from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from stompbox.config import Listener, host_of, is_loopback, is_own_host
from stompbox.errors import FrameError, PeerError, Refused, StompboxError
from stompbox.server.transport.inflating import InPieces, Pieces, TooBig, pending
from stompbox.server.transport.webframes import Frames, is_utf8, messages, whole_messages

if TYPE_CHECKING:
    from stompbox.server.transport.host import ClientEnd, Host
    from stompbox.server.transport.tcp import Socket

_library = logging.getLogger("stompbox.websockets")  # what it says of each connection is said here
_library.setLevel(logging.WARNING)
STATUS: Final = MappingProxyType(
    {
        "no-such-path": http.HTTPStatus.NOT_FOUND,
        "origin-refused": http.HTTPStatus.FORBIDDEN,
        "host-not-allowed": http.HTTPStatus.MISDIRECTED_REQUEST,
    }
)
TURN: Final = 12  # frames of one client that are parsed before others have their turn: a ping costs 60 us
INFLATED: Final = 16 << 10  # octets of what was compressed that cost as much as a frame
LAST: Final = 10.0  # seconds in which somebody else must take what a socket had read that is gone
AGAIN: Final = 0.005  # seconds until he is asked again, twice as long each time,
SELDOM: Final = 0.32  # up to this: there may be thousands
KEPT: Final = 4 << 10  # octets of frames that are not whole, from which on they count for their client
CHEAPER: Final = 40  # messages that need no library cost as one that does, at the most
# octets that one message may have beyond the frame in it: the codec says better what is too long
MORE: Final = 1024
# octets that the request of a hand-shake may have at the least: browsers send cookies
REQUEST: Final = 16 << 10
GET: Final = b"GET "  # RFC 6455, 4.1: the method of the hand-shake
_END_OF_HEAD: Final = b"\r\n\r\n"
_TextDecoder = codecs.getincrementaldecoder("utf-8")
SUBPROTOCOLS = [Subprotocol(name) for name in ("v12.stomp", "v11.stomp", "v10.stomp")]


class _Protocol(ServerProtocol):
    """The library would close without a word where a message is too big; here an ERROR comes before the close (WebSocket._parse)."""

    is_too_big = False

    def select_subprotocol(self, offered: Sequence[Subprotocol]) -> Subprotocol | None:
        """The highest version that both know; a client that offers none is let in, too."""
        return next((name for name in SUBPROTOCOLS if name in offered), None)

    def fail(self, code: CloseCode | int, reason: str = "") -> None:
        if code == CloseCode.MESSAGE_TOO_BIG and self.state is State.OPEN:
            self.is_too_big = True
            return
        super().fail(code, reason)


class WebSocket:
    """Between a socket and its client's end (host.py); a transport for the one, a receiver for the other."""

    def __init__(self, broker: Host, listener: Listener, socket: Socket, peer: str) -> None:
        self.broker = broker
        self.listener = listener
        self.socket = socket
        self.peer = peer
        options = listener.options
        extensions = None
        if options.web_socket_compression_supported:
            extensions = [InPieces()]
        most = options.max_frame_size_before_login + MORE
        self.protocol = _Protocol(
            subprotocols=SUBPROTOCOLS, extensions=extensions, max_size=most, logger=_library
        )  # fmt: skip
        self.connection: ClientEnd | None = None
        self.speaks_text = True
        self._text = _TextDecoder()  # of a text message, what has come of it
        self._close_code = CloseCode.NORMAL_CLOSURE
        self._frames = Frames()
        self._is_fragmented = False  # more frames of a message are to come
        self._pieces: Pieces | None = None  # the rest of a compressed frame
        self._strange = 0  # frames that came before the login
        self._request = 0  # octets of the hand-shake
        self._left = b""  # what waits for the next turn
        self._is_planned = False
        self._is_paused = False
        self._again = AGAIN  # seconds until who takes nothing just now is asked once more
        self._is_lost = False  # the socket is gone, or the peer has said that it takes nothing more,
        self._until = 0.0  # and up to this time of the loop what it has read may wait
        self._is_refused = False

    # The receiver of a socket

    def receive(self, data: bytes) -> None:
        if self.connection is None and not self._request and not data.startswith(GET):
            self._refuse_method(data.partition(b" ")[0].decode())
            return
        self._left = self._left + data if self._left else data
        if self._is_planned:
            self.socket.pause_reading()
        elif self.connection is not None and self.broker.turns.line.is_late:
            self._plan()
        else:
            self._read()

    def _read(self) -> None:
        """As many frames as one turn of the loop may have; the rest of them waits behind the other connections."""
        data, self._left = self._left, b""
        at = frames = 0
        if self.connection is None:
            at = self._read_request(data)
        while (at < len(data) or self._pieces) and frames < TURN and not self._is_paused and self._is_open:
            if self._pieces is not None:
                frames += 1 + self._inflate(self._pieces) // INFLATED
                continue
            most = 1 if self._is_strange or self.protocol.extensions else TURN - frames
            stop, count = self._take_whole(data, at, most * CHEAPER)
            if count:
                at, frames = stop, frames + -(-count // CHEAPER)
                continue
            # of one that came in part the rest alone: what comes behind it may need no library again
            most = 0 if self._frames.is_within else most
            stop, count, longest = self._frames.portion(data, at, most, self._limit)
            frames += count
            if not self._may_be(count, longest):
                break
            size = self._parse(data[at:stop])
            if self.protocol.extensions:
                frames += size // INFLATED
            at = stop
        if (at < len(data) or self._pieces) and self._is_open:
            self._left = data[at:]
            self.socket.pause_reading()
            self._plan()
        if self.connection is not None and self.unread > KEPT:
            self.connection.look_kept()

    @property
    def _has_left(self) -> bool:
        """Something has come that was not taken yet."""
        return bool(self._left or self._pieces)

    def _take_whole(self, data: bytes, at: int, most: int) -> tuple[int, int]:
        """Takes messages that need no library, of a client that has logged in: where they end, and how many they are."""
        if self._is_strange or self._is_fragmented or not self._frames.is_between:
            return at, 0
        found = whole_messages(data, at, most, self._limit)
        if found.messages and self.connection is not None:
            self.speaks_text = found.is_text
            self.connection.receive(found.payload)
        return found.stop, found.messages

    def _plan(self) -> None:
        if not self._has_left or self._is_paused or self._is_planned:
            return
        self._is_planned = True
        if self._takes_more:
            self._again = AGAIN
            self.broker.turns.line.wait(self._read_on)
        else:
            self.broker.loop.call_later(self._again, self._read_on)
            self._again = min(2 * self._again, SELDOM)

    def _read_on(self) -> None:
        self._is_planned = False
        if self._is_lost:
            self._say_last()
        elif self._is_open and not self._is_paused:
            self._read()
            if not (self._has_left or self._is_paused):
                self.socket.resume_reading()

    @property
    def _takes_more(self) -> bool:
        """Whose socket is gone is told no more that it is to wait, or no longer: it asks."""
        return not self._is_lost or self.connection is None or self.connection.takes_more

    def _say_last(self) -> None:
        """Goes on with what was read before the socket was lost, while there is any. Nobody waits for long that it is taken."""
        if self._takes_more and self._is_open:
            self._read()
        if self._has_left and self._is_open and self.broker.loop.time() < self._until:
            self._plan()
        else:
            self._go()

    @property
    def _is_open(self) -> bool:
        connection = self.connection
        return connection is not None and not connection.is_ended and self.protocol.state is State.OPEN

    @property
    def _is_strange(self) -> bool:
        return self.connection is None or not self.connection.is_logged_in

    @property
    def _limit(self) -> int:
        """The most octets that a frame may have."""
        options = self.listener.options
        return (
            options.max_frame_size_before_login + MORE
            if self._is_strange
            else options.web_socket_max_frame_payload_length
        )

    def _may_be(self, count: int, longest: int) -> bool:
        """Whether such frames may come; a long one is refused at its announcement."""
        assert self.connection is not None
        options = self.listener.options
        if not self._is_strange:
            limit = self._limit
            if longest <= limit:
                return True
            text = f"a WebSocket frame of {longest} octets; the limit is {limit} (webSocketMaxFramePayloadLength)"
            self._close_code = CloseCode.MESSAGE_TOO_BIG  # RFC 6455, 7.4.1
            self.connection.dismiss(FrameError("websocket-frame-too-large", text))
            return False
        self._strange += count
        if longest > self._limit:
            text = f"a WebSocket frame of {longest} octets before CONNECT; the limit is {options.max_frame_size_before_login}"
            self._close_code = CloseCode.MESSAGE_TOO_BIG
            self.connection.dismiss(FrameError("too-much-before-login", f"{text} (maxFrameSizeBeforeLogin)"))
        elif self._strange > options.web_socket_max_frames_before_login:
            text = f"{self._strange} WebSocket frames before CONNECT; the limit is {options.web_socket_max_frames_before_login}"
            self.connection.dismiss(
                FrameError("too-much-before-login", f"{text} (webSocketMaxFramesBeforeLogin)")
            )
        return not self.connection.is_ended

    def _read_request(self, data: bytes) -> int:
        """The HTTP request; where the first WebSocket frame begins, or the end of what came."""
        end = data.find(_END_OF_HEAD)
        stop = end + len(_END_OF_HEAD) if end >= 0 else len(data)
        self._request += stop
        limit = max(self.listener.options.max_frame_size_before_login, REQUEST)
        if self._request > limit:
            error = PeerError(
                "bad-handshake", f"the request of a WebSocket hand-shake has more than {limit} octets"
            )
            self._answer(http.HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, error)
            return len(data)
        if end < 0 and data:  # the end of the head may be cut in two
            kept = next((size for size in (3, 2, 1) if data.endswith(_END_OF_HEAD[:size])), 0)
            stop -= kept
            self._request -= kept
            self._left = data[stop:]
        self._parse(data[:stop])
        return stop if self.connection is not None else len(data)

    def _parse(self, data: bytes) -> int:
        """Takes what is in these octets. How many that comes to."""
        payloads: list[bytes] = []
        try:
            is_text = all(self._take(frame, payloads) for frame in self._parsed(data))
        except Exception as error:
            self.broker.faults.drop(self.socket, "what a WebSocket brought was parsed", error)
            return 0
        fault = self.protocol.handshake_exc
        if self.connection is None and fault is not None and not self._is_refused:
            # nothing that HTTP could answer to
            text = f"the WebSocket hand-shake is no HTTP request: {str(fault)[:200]!r}"
            self._answer(http.HTTPStatus.BAD_REQUEST, PeerError("bad-handshake", text))
        self._hand_on(payloads[0] if len(payloads) == 1 else b"".join(payloads), is_text=is_text)
        return sum(map(len, payloads))

    def _inflate(self, pieces: Pieces) -> int:
        """Takes one more piece of a compressed frame. How many octets it is."""
        is_text, data = True, b""
        try:
            data = pieces.more()
            is_text = self._is_fine(data, is_last=not (self._is_fragmented or pieces.is_pending))
        except zlib.error:
            self._pieces = None
            self.protocol.fail(CloseCode.PROTOCOL_ERROR, "decompression failed")
        except TooBig:
            self._pieces = None
            self.protocol.is_too_big = True
        if not pieces.is_pending:
            self._pieces = None
            if self.protocol.current_size is not None:  # of the message: the library knows the first piece
                self.protocol.current_size += pieces.size
        self._hand_on(data, is_text=is_text)
        return len(data)

    def _hand_on(self, data: bytes, *, is_text: bool) -> None:
        """Gives the client's end what a message has brought, and ends the connection where it has brought what may not be."""
        self._send()
        if data and self.connection is not None:
            self.connection.receive(data)
        if not is_text and self.connection is not None:
            self._close_code = CloseCode.INVALID_DATA  # RFC 6455, 8.1
            self.connection.dismiss(
                FrameError(
                    "not-utf-8", "a text message of WebSocket is not UTF-8; send octets in binary messages"
                )
            )
        if self.protocol.is_too_big and self.connection is not None:
            self._refuse_size(self.connection)
        if self.protocol.close_expected():
            self.socket.close()
            self.lost()  # as it takes no message any more (RFC 6455, 5.5.1): what would be for it stays for others

    def _refuse_size(self, connection: ClientEnd) -> None:
        """Ends the connection for a message whose fragments together, or whose octets when they are inflated, are more than it may have."""
        name, limit = (
            "webSocketMaxFramePayloadLength",
            self.listener.options.web_socket_max_frame_payload_length,
        )
        if self._is_strange:
            name, limit = "maxFrameSizeBeforeLogin", self.listener.options.max_frame_size_before_login
        self._close_code = CloseCode.MESSAGE_TOO_BIG  # RFC 6455, 7.4.1
        code = "too-much-before-login" if self._is_strange else "websocket-frame-too-large"
        connection.dismiss(
            FrameError(code, f"a WebSocket message has more than {limit} octets, which is the limit ({name})")
        )

    def dismiss(self, error: StompboxError) -> bool:
        """Before its login; False: there is nobody yet who could be told."""
        return self.connection is not None and self.connection.dismiss(error)

    def says_its_last(self) -> bool:
        """A WebSocket has no half that could be open still."""
        return False

    def drained(self) -> None:
        if self.connection is not None:
            self.connection.drained()

    def lost(self) -> None:
        """What was read before is obeyed all the same, in turns as ever."""
        self._is_lost, self._is_paused = True, False
        self._until = self.broker.loop.time() + LAST
        if not (self._has_left and self._is_open):
            self._go()
        else:
            self._plan()

    def _go(self) -> None:
        self._left = b""
        self.protocol.parser.close()  # else it and what it has read of a frame hold each other
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.lost()

    def _parsed(self, data: bytes) -> list[Frame]:
        """Frames of WebSocket, after the hand-shake is answered. A fault in here has changed nothing but this socket."""
        self.protocol.receive_data(data)
        events = self.protocol.events_received()
        for event in events:
            if isinstance(event, Request):
                self._accept(event)
        return [event for event in events if isinstance(event, Frame)]

    def _accept(self, request: Request) -> None:
        error = self._fault(request)
        if error is None:
            response = self.protocol.accept(request)
        else:
            response = self.protocol.reject(STATUS[error.code], f"{error.message} ({error.code})\n")
        if error is None and response.status_code != http.HTTPStatus.SWITCHING_PROTOCOLS:
            error = PeerError(
                "bad-handshake", f"no WebSocket hand-shake: {str(self.protocol.handshake_exc)[:200]!r}"
            )
        if error is not None:
            self._refuse(error)
        self.protocol.send_response(response)
        if self.protocol.state is State.OPEN:
            self.connection = self.broker.client_of(self.listener, self, self.peer)

    def _fault(self, request: Request) -> StompboxError | None:
        path, paths = _parts_of(request.path).path, self.listener.options.web_socket_path
        origins = request.headers.get_all("Origin")
        if path not in paths:
            return PeerError(
                "no-such-path", f"nothing is at {path[:80]!r}; STOMP over WebSocket is at {', '.join(paths)}"
            )
        if not self._is_asked_by_a_name_of_its_own(request):
            shown = ", ".join(request.headers.get_all("Host"))[:80]
            text = f"the Host header is {shown!r}; without users this listener answers to its own address and localhost alone"
            return Refused("host-not-allowed", text)
        if origins and not self._may_come_from(origins[0], request.headers.get("Host", "")):
            return Refused(
                "origin-refused",
                f"the Origin {origins[0][:80]!r} is not allowed here (listener option allowedOrigins)",
            )
        return None

    def _is_asked_by_a_name_of_its_own(self, request: Request) -> bool:
        """Without users a page must not reach this machine by a name that was made to point here (DNS rebinding)."""
        if len(self.broker.users) or self.listener.options.allowed_origins is not None:
            return True
        hosts = request.headers.get_all("Host")
        host = host_of(hosts[0]) if len(hosts) == 1 else None
        return host is not None and is_own_host(host, self.listener.host)

    def _refuse_method(self, method: str) -> None:
        text = f"{method} on a STOMP port; HTTP opens a WebSocket here, with GET, and nothing else"
        self._answer(
            http.HTTPStatus.METHOD_NOT_ALLOWED,
            PeerError("method-not-allowed", text),
            has_body=method != "HEAD",
        )

    def _answer(self, status: http.HTTPStatus, error: PeerError, *, has_body: bool = True) -> None:
        """To what is no request of a WebSocket: in HTTP, and the close."""
        self._refuse(error)
        body = f"{error.message} ({error.code})\n".encode()
        allow = "Allow: GET\r\n" if status is http.HTTPStatus.METHOD_NOT_ALLOWED else ""  # RFC 9110, 15.5.6
        lines = (
            f"Connection: close\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        )
        self.socket.write(
            f"HTTP/1.1 {status.value} {status.phrase}\r\n{allow}{lines}\r\n".encode()
            + (body if has_body else b"")
        )
        self.socket.close()

    def _refuse(self, error: StompboxError) -> None:
        """Told in HTTP, counted and logged as everything that is refused."""
        self._is_refused = True
        self.broker.refusals.tell(f"connection from {self.peer}", error, closes=True)

    def _may_come_from(self, origin: str, host: str) -> bool:
        """Browsers say where a page is from; one of a stranger must not use a broker that trusts this machine."""
        allowed = self.listener.options.allowed_origins
        if allowed is not None:
            return "*" in allowed or origin in allowed
        if len(self.broker.users):
            return True
        parts = _parts_of(origin)
        return parts.hostname is not None and (is_loopback(parts.hostname) or parts.netloc == host)

    def _take(self, frame: Frame, payloads: list[bytes]) -> bool:
        """Messages and fragments alike hold any part of the stream, so nothing waits for the end of a message. False: what should be
        text is none."""
        if frame.opcode in (Opcode.TEXT, Opcode.BINARY):
            self.speaks_text = frame.opcode is Opcode.TEXT
            self._text.reset()
        elif frame.opcode is not Opcode.CONT:
            return True
        self._is_fragmented = not frame.fin
        data = bytes(frame.data)
        if self.protocol.extensions:
            self._pieces = pending(self.protocol)
        if not self._is_fine(data, is_last=frame.fin and self._pieces is None):
            return False
        if data:
            payloads.append(data)
        return True

    def _is_fine(self, data: bytes, *, is_last: bool) -> bool:
        """Whether text is UTF-8. A character may be cut between two fragments, and not between two messages."""
        if not self.speaks_text or (data.isascii() and not self._text.getstate()[0]):
            return True
        try:
            self._text.decode(data, is_last)
        except UnicodeDecodeError:
            return False
        return True

    def _send(self) -> None:
        data = b"".join(self.protocol.data_to_send())
        if data:
            self.socket.write(data)
            if self.socket.is_clogged and self.connection is not None:
                self.connection.look_unread()

    # The transport of a client's end

    @property
    def certificate_name(self) -> str:
        return self.socket.certificate_name

    @property
    def port(self) -> int:
        return self.socket.port

    @property
    def is_clogged(self) -> bool:
        return self.socket.is_clogged

    def write(self, data: bytes) -> None:
        if self.protocol.state is not State.OPEN:
            return
        kind = self.listener.options.web_socket_encoder_type.value
        wants_text = kind == "text" or (kind == "auto" and self.speaks_text)
        for part in messages(data):
            if wants_text and is_utf8(part):
                self.protocol.send_text(part)
            else:
                self.protocol.send_binary(part)
        self._send()

    @property
    def unread(self) -> int:
        inflated = self._pieces.waiting if self._pieces is not None else 0
        return len(self._left) + len(self.protocol.reader.buffer) + inflated

    @property
    def unsent(self) -> int:
        return self.socket.unsent

    @property
    def silence(self) -> float | None:
        return self.socket.silence

    @property
    def absence(self) -> float | None:
        return self.socket.absence

    @property
    def is_reset(self) -> bool:
        return self.socket.is_reset

    def probe(self, seconds: int) -> None:
        self.socket.probe(seconds)

    def enter(self, user: str) -> None:
        self.socket.enter(user)
        self.protocol.max_message_size = self.listener.options.web_socket_max_frame_payload_length

    def pause_reading(self) -> None:
        self._is_paused = not self._is_lost
        self.socket.pause_reading()

    def resume_reading(self) -> None:
        self._is_paused = False
        if self._has_left:
            self._plan()
        else:
            self.socket.resume_reading()

    def close(self) -> None:
        if self.protocol.state is State.OPEN:
            self.protocol.send_close(self._close_code)
            self._send()
        self.socket.close()
        self._end()

    def abort(self) -> None:
        self.socket.abort()
        self._end()

    def _end(self) -> None:
        """Nobody else says of a socket that is gone that it is closed."""
        if self._is_lost:
            self._go()


def _parts_of(url: str) -> SplitResult:
    """What is no URL has none."""
    try:
        return urlsplit(url)
    except ValueError:
        return SplitResult("", "", "", "", "")
