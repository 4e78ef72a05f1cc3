"""WebSocket as clients see it: messages that the strictest of them takes, and text that is none."""

from __future__ import annotations

import socket
import struct
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.exceptions import ConnectionClosed
from websockets.extensions.permessage_deflate import PerMessageDeflate
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.sync.client import connect

from stompbox.config.listener import parse_listener
from stompbox.errors import StompboxError
from stompbox.server.transport import inflating
from stompbox.server.transport.webframes import MESSAGE, is_utf8
from stompbox.server.transport.websocket import CHEAPER, INFLATED, KEPT, LAST, SELDOM, TURN, WebSocket

WITHIN = 20.0  # seconds
UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


class Ends:
    """Both ends of a WebSocket, and the loop: what it is read, what its client's end is given, what it has to do in the next turn."""

    users = ()
    is_clogged = is_ended = False
    is_logged_in = takes_more = True

    def __init__(self) -> None:
        self.loop = self.turns = self.line = self
        self.is_late = False
        self.heard = b""
        self.answered = ""
        self.waiting: list[Callable[[], None]] = []
        self.codes: list[str] = []
        self.is_closed = False
        self.is_read = True
        self.losses = self.looks = 0
        self.now = 0.0
        self.later: list[Callable[[], None]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, work: Callable[[], None]) -> None:
        self.now += seconds
        self.later.append(work)

    def lost(self) -> None:
        self.losses += 1

    def look_kept(self) -> None:
        self.looks += 1

    def client_of(self, *_: object) -> Ends:
        return self

    def enter(self, user: str) -> None:
        """Logged in."""

    def receive(self, data: bytes) -> None:
        self.heard += data

    def wait(self, work: Callable[[], None]) -> None:
        self.waiting.append(work)

    def dismiss(self, error: StompboxError) -> bool:
        self.codes.append(error.code)
        self.is_ended = True
        return True

    def close(self) -> None:
        self.is_closed = True

    def write(self, data: bytes) -> None:
        self.answered += data.decode("latin-1")

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True


TEXTS = st.one_of(st.text(max_size=50), st.integers(120, 300).map(lambda size: "x" * size))
MESSAGES = st.one_of(
    TEXTS.map(lambda text: [Frame(Opcode.TEXT, text.encode())]),
    st.binary(max_size=200).map(lambda data: [Frame(Opcode.BINARY, data)]),
    st.just([Frame(Opcode.PING, b"p")]),
    st.lists(st.binary(max_size=20), min_size=1, max_size=3).map(
        lambda rest: [
            Frame(Opcode.BINARY, b"first", fin=False),
            *[Frame(Opcode.CONT, data, fin=False) for data in rest],
            Frame(Opcode.CONT, b"last"),
        ]
    ),
)


@given(st.lists(MESSAGES, max_size=40), st.lists(st.integers(0, 2000), max_size=12))
def test_however_reads_cut_the_frames_all_their_payloads_arrive(
    messages: list[list[Frame]], cuts: list[int]
) -> None:
    frames = [frame for message in messages for frame in message]
    data = b"".join(frame.serialize(mask=True) for frame in frames)
    ends: Any = Ends()
    web = WebSocket(ends, parse_listener("tcp://127.0.0.1:0"), ends, "127.0.0.1")
    web.receive(UPGRADE)
    at = 0
    for cut in [*sorted(cuts), len(data)]:
        web.receive(data[at:cut])
        at = max(at, cut)
        while ends.waiting:  # while it is not read, nothing more comes
            ends.waiting.pop(0)()
        assert ends.is_read
    assert ends.heard == b"".join(bytes(frame.data) for frame in frames if frame.opcode is not Opcode.PING)


COMPRESSED = UPGRADE[:-2] + b"Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n\r\n"


def test_little_that_inflates_to_very_much_is_inflated_a_portion_in_a_turn() -> None:
    """A megabyte of one octet is a kilobyte of a frame. Of the frames of one read one turn inflates no more than it has time for."""
    ends: Any = Ends()
    web = WebSocket(
        ends, parse_listener("tcp://127.0.0.1:0?webSocketCompressionSupported=true"), ends, "127.0.0.1"
    )
    web.receive(COMPRESSED)
    web.enter("guest")
    (extension,) = web.protocol.extensions
    assert "no_context_takeover" in ends.answered
    sizes, count = [1 << 20, 1 << 18, inflating.PIECE, 100], 0
    for size in sizes:
        squeeze = PerMessageDeflate(True, True, 15, 15)
        frame = Frame(Opcode.BINARY, b"\n" * size).serialize(mask=True, extensions=[squeeze])
        ends.heard, before = bytearray(), 0
        web.receive(frame * 50)
        while ends.waiting:
            assert len(ends.heard) - before < TURN * INFLATED + inflating.PIECE
            before = len(ends.heard)
            ends.waiting.pop(0)()
            count += 1
        assert ends.heard == b"\n" * size * 50
        assert ends.is_read
    assert count >= 50
    assert not hasattr(extension, "encoder"), "nothing is kept between two messages"


def squeezed(
    data: bytes, *cuts: int, opcode: Opcode = Opcode.BINARY, squeeze: PerMessageDeflate | None = None
) -> bytes:
    """One compressed message, cut into fragments."""
    squeeze = squeeze or PerMessageDeflate(True, True, 15, 15)
    places = [0, *sorted(cuts), len(data)]
    return b"".join(
        Frame(Opcode.CONT if at else opcode, data[first:stop], fin=at == len(cuts)).serialize(
            mask=True, extensions=[squeeze]
        )
        for at, (first, stop) in enumerate(pairwise(places))
    )


def compressing(url: str = "tcp://127.0.0.1:0?webSocketCompressionSupported=true") -> tuple[Any, WebSocket]:
    ends: Any = Ends()
    web = WebSocket(ends, parse_listener(url), ends, "127.0.0.1")
    web.receive(COMPRESSED)
    web.enter("guest")
    return ends, web


def taken(ends: Any, web: WebSocket, data: bytes) -> None:
    web.receive(data)
    while ends.waiting:
        ends.waiting.pop(0)()


SQUEEZED = st.tuples(
    st.one_of(
        st.binary(max_size=300),
        st.tuples(st.binary(min_size=1, max_size=3), st.integers(1, 1000)).map(lambda of: of[0] * of[1]),
        st.text("aé€😀", max_size=300).map(str.encode),
    ),
    st.lists(st.integers(0, 300), max_size=3),
)


@given(
    st.lists(SQUEEZED, max_size=6),
    st.lists(st.integers(0, 2000), max_size=8),
    st.sampled_from([1, 7, 64, 300]),
)
def test_however_compressed_messages_are_cut_all_that_they_come_to_arrives(
    messages: list[tuple[bytes, list[int]]], cuts: list[int], piece: int
) -> None:
    """With pieces so small that each of their edges is met; text that is none ends it where it stands."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(inflating, "PIECE", piece)
        ends, web = compressing()
        data = wanted = b""
        is_fine = True
        for body, places in messages:
            is_text = body.isascii() or len(body) % 2 == 0
            data += squeezed(
                body,
                *[min(place, len(body)) for place in places],
                opcode=Opcode.TEXT if is_text else Opcode.BINARY,
            )
            if is_text and not is_utf8(body):
                is_fine = False
                break
            wanted += body
        at = 0
        for cut in [*sorted(cuts), len(data)]:
            taken(ends, web, data[at:cut])
            at = max(at, cut)
        assert ends.heard.startswith(wanted)
        assert ends.codes == ([] if is_fine else ["not-utf-8"])
        assert ends.heard == wanted or not is_fine


@pytest.mark.parametrize("cuts", [(), (10,), (1000, 2000), (3000, 3000, 3000)], ids=str)
@pytest.mark.parametrize("size", [4096, 4097, 100_000])
@pytest.mark.parametrize("piece", [100, 4095, 4096, 4097, 1 << 17])
def test_a_message_may_not_come_to_more_than_the_limit(
    monkeypatch: pytest.MonkeyPatch, piece: int, size: int, cuts: tuple[int, ...]
) -> None:
    """Not in one frame, and not in all its fragments together."""
    monkeypatch.setattr(inflating, "PIECE", piece)
    ends, web = compressing(
        "tcp://127.0.0.1:0?webSocketCompressionSupported=true;webSocketMaxFramePayloadLength=4096"
    )
    taken(ends, web, squeezed(b"x" * size, *cuts))
    assert ends.codes == ([] if size == 4096 else ["websocket-frame-too-large"])
    assert len(ends.heard) <= 4096 + piece
    assert ends.heard == b"x" * len(ends.heard)


@pytest.mark.parametrize("at", [20, 3000])
def test_what_is_no_compressed_message_ends_it(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """In its first piece, and in a later one."""
    monkeypatch.setattr(inflating, "PIECE", 64)
    ends, web = compressing()
    good = zlib.compressobj(wbits=-15, level=0)
    data = good.compress(b"x" * at) + good.flush(zlib.Z_SYNC_FLUSH) + b"\xff" * 20
    frame = Frame(Opcode.BINARY, data).serialize(mask=True)
    taken(ends, web, bytes([frame[0] | 0x40]) + frame[1:])  # RFC 7692, 6: it says that it is compressed
    assert web.protocol.state is State.CLOSING and ends.is_closed
    assert ends.heard == b"x" * len(ends.heard) and len(ends.heard) <= at


def test_a_backlog_comes_in_messages_that_every_client_takes(broker: tuple[str, int]) -> None:
    """A client that takes 8 KiB at a time, as Spring's does on Tomcat, gets a thousand messages at once."""
    sends = b"".join(
        [b"SEND\ndestination:/queue/small\n\n%04d%b\0" % (number, b"x" * 500) for number in range(1000)]
    )
    with socket.create_connection(broker, WITHIN) as stream:
        stream.sendall(b"CONNECT\n\n\0" + sends + b"DISCONNECT\nreceipt:1\n\n\0")
        while stream.recv(65536):
            pass
    found: list[str] = []
    deadline = time.monotonic() + WITHIN
    with connect(f"ws://{broker[0]}:{broker[1]}/ws", max_size=MESSAGE) as client:
        client.send(
            "CONNECT\naccept-version:1.2\nhost:h\n\n\0SUBSCRIBE\nid:1\ndestination:/queue/small\n\n\0"
        )
        while len(found) < 1001:
            message = client.recv(deadline - time.monotonic())
            assert isinstance(message, str)
            found += [one for one in message.split("\0\n") if one]
    assert [one.rpartition("\n")[2][:4] for one in found[1:]] == [f"{number:04}" for number in range(1000)]


LOGIN = "CONNECT\naccept-version:1.2\nhost:h\n\n\0"


@pytest.mark.parametrize(
    "bad",
    [
        [b"\xff"],
        [b"SEND\ndestination:/queue/utf\n\n\xc3", b"\0"],
        [b"\xe2\x82"],
        [b"ok", b"\xed\xa0\x80"],
        [b"\xc0\xaf"],
        [b"\xe2", b"\x82"],
    ],
    ids=repr,
)
def test_a_text_message_that_is_not_utf8_ends_it(broker: tuple[str, int], bad: list[bytes]) -> None:
    """RFC 6455, 8.1; what came in messages before it is obeyed."""
    with connect(f"ws://{broker[0]}:{broker[1]}/ws") as client:
        client.send(LOGIN)
        assert str(client.recv(WITHIN)).startswith("CONNECTED")
        client.send("SEND\ndestination:/topic/nobody\nreceipt:before\n\n\0")
        with suppress(ConnectionClosed):  # its last fragment, when the broker has heard enough
            client.send(bad, text=True)
        assert "receipt-id:before" in str(client.recv(WITHIN))
        assert "code:not-utf-8" in str(client.recv(WITHIN))
        with pytest.raises(ConnectionClosed) as closed:
            client.recv(WITHIN)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1007


def test_characters_may_be_cut_between_fragments_and_binary_messages_hold_anything(
    broker: tuple[str, int],
) -> None:
    """And a text message begins anew whatever a binary one before it ended with."""
    euro = "€".encode()
    send = b"SEND\ndestination:/topic/nobody\nreceipt:%b\n\n"
    with connect(f"ws://{broker[0]}:{broker[1]}/ws") as client:
        client.send(LOGIN)
        assert str(client.recv(WITHIN)).startswith("CONNECTED")
        client.send([send % b"text" + euro[:1], euro[1:2], euro[2:] + b"\0"], text=True)
        assert "receipt-id:text" in str(client.recv(WITHIN))
        client.send(send % b"binary" + euro[:2] + b"\xff\0" + send % b"half" + euro[:1])
        assert "receipt-id:binary" in _text(client.recv(WITHIN))
        client.send("\0")
        assert "receipt-id:half" in _text(client.recv(WITHIN))


def _text(message: str | bytes) -> str:
    return message if isinstance(message, str) else message.decode()


def test_where_it_is_late_what_is_read_waits_in_line_and_no_more_is_read_than_once() -> None:
    ends = Ends()
    web = WebSocket(ends, parse_listener("tcp://127.0.0.1:0"), ends, "local")  # type: ignore[arg-type]
    ends.is_late = True
    web.receive(UPGRADE)
    assert "101" in ends.answered, "who is not there yet waits elsewhere"
    said = [Frame(Opcode.BINARY, b"%d" % number).serialize(mask=True) for number in range(3)]
    web.receive(said[0] + said[1][:3])
    assert (ends.heard, ends.is_read, len(ends.waiting)) == (b"", True, 1)
    web.receive(said[1][3:] + said[2])
    assert (ends.heard, ends.is_read, len(ends.waiting)) == (b"", False, 1)
    ends.waiting.pop()()
    assert (ends.heard, ends.is_read, ends.waiting) == (b"012", True, [])
    ends.is_late = False
    web.receive(said[0])
    assert ends.heard == b"0120"


SAID = [Frame(Opcode.BINARY, b"%d" % number).serialize(mask=True) for number in range(3000)]
ALL = b"".join([b"%d" % number for number in range(3000)])


class Stubborn(Ends):
    """Its client's end wants no more after each piece, and does not say that it does again."""

    def __init__(self) -> None:
        super().__init__()
        self.web = WebSocket(self, parse_listener("tcp://127.0.0.1:0"), self, "local")  # type: ignore[arg-type]
        self.web.receive(UPGRADE)

    def receive(self, data: bytes) -> None:
        super().receive(data)
        self.web.pause_reading()

    def turn(self, waiting: list[Callable[[], None]]) -> None:
        [work] = waiting
        waiting.clear()
        work()

    def abort(self) -> None:
        """It is gone already."""


@pytest.mark.parametrize("size, looks", [(KEPT, 0), (4 * KEPT, 1)])
def test_a_part_of_a_frame_counts_for_its_client_where_it_is_long(size: int, looks: int) -> None:
    """Nothing of it has come to the client's end, which says what is counted of all else."""
    ends: Any = Ends()
    web = WebSocket(ends, parse_listener("tcp://127.0.0.1:0"), ends, "local")
    web.receive(UPGRADE)
    frame = Frame(Opcode.BINARY, b"x" * size).serialize(mask=True)
    web.receive(frame[: size // 2])
    assert (web.unread > KEPT, ends.looks) == (looks == 1, looks)
    web.receive(frame[size // 2 :])
    assert (ends.heard, web.unread, ends.looks) == (b"x" * size, 0, looks)


def test_what_is_not_inflated_yet_is_counted() -> None:
    ends, web = compressing()
    data = squeezed(b"".join([str(at).encode() for at in range(500_000)]))
    web.pause_reading()
    web._is_paused = False
    ends.is_late = True
    before = web.unread
    web.receive(data)
    ends.waiting.pop(0)()
    assert before == 0 < len(ends.heard)
    assert web.unread > len(data) // 2
    while ends.waiting:
        ends.waiting.pop(0)()
    assert web.unread == 0


def test_what_was_read_before_the_socket_was_lost_is_obeyed_in_turns() -> None:
    ends = Stubborn()
    ends.web.receive(b"".join(SAID))
    assert len(ends.heard) < len(ALL) and not ends.waiting, "it is to wait"
    before = ends.heard
    ends.web.lost()
    assert (ends.heard, ends.losses) == (before, 0), "others have their turn"
    while ends.waiting:
        before = ends.heard
        ends.turn(ends.waiting)
        assert len(before) < len(ends.heard) <= len(before) + 4 * TURN * CHEAPER
    assert (ends.heard, ends.losses) == (ALL, 1)


def test_who_takes_no_more_then_is_asked_again_and_not_for_ever() -> None:
    ends = Stubborn()
    ends.web.receive(b"".join(SAID))
    before, ends.takes_more = ends.heard, False
    ends.web.lost()
    for _ in range(3):
        ends.turn(ends.later)
    assert (ends.heard, ends.losses, ends.waiting) == (before, 0, [])
    ends.takes_more = True
    ends.turn(ends.later)
    assert len(ends.heard) > len(before) and ends.losses == 0
    after, ends.takes_more = ends.heard, False
    ends.turn(ends.waiting)
    while ends.later and ends.now < 2 * LAST:
        ends.turn(ends.later)
    assert (ends.heard, ends.losses, ends.later) == (after, 1, [])
    assert ends.now < LAST + 1


def test_who_takes_no_more_is_asked_more_and_more_seldom() -> None:
    ends = Stubborn()
    ends.web.receive(b"".join(SAID))
    ends.takes_more = False
    ends.web.lost()
    asked = 0
    while ends.later:
        ends.turn(ends.later)
        asked += 1
    assert ends.losses == 1
    assert asked < 2 * LAST / SELDOM


@pytest.mark.parametrize("ends_it", [WebSocket.close, WebSocket.abort])
def test_who_ends_it_meanwhile_is_told_at_once(ends_it: Callable[[WebSocket], None]) -> None:
    ends = Stubborn()
    ends.web.receive(b"".join(SAID))
    before = ends.heard
    ends.web.lost()
    ends_it(ends.web)
    assert (ends.heard, ends.losses) == (before, 1)
    ends.turn(ends.waiting)
    assert (ends.heard, ends.losses, ends.waiting) == (before, 1, [])


def test_who_says_much_and_resets_the_connection_does_not_stop_the_broker(broker: tuple[str, int]) -> None:
    """What it is answered cannot be written, so the socket is lost while what it has said waits."""
    said = [
        Frame(
            Opcode.BINARY, b"SEND\ndestination:/queue/reset\npersistent:false\nreceipt:%d\n\n\0" % number
        ).serialize(mask=True)
        for number in range(4_000)
    ]
    hello = b"CONNECT\naccept-version:1.2\nhost:localhost\n\n\0"
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", broker[1]), WITHIN) as link:
            link.sendall(UPGRADE)
            assert link.recv(4096)
            link.sendall(Frame(Opcode.BINARY, hello).serialize(mask=True))
            assert link.recv(4096)
            link.sendall(b"".join(said))
            link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with socket.create_connection(("127.0.0.1", broker[1]), WITHIN) as other:
            other.sendall(hello)
            assert other.recv(4096).startswith(b"CONNECTED")
