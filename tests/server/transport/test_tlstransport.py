"""TLS between two ends in memory: a client of Python's own, and the transport under test with a raw one that keeps what it is given."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import cast

import pytest

from stompbox.server.sockets import Reader
from stompbox.server.transport.tlstransport import ANSWERS, PIECE, RECORDS, SMALL, STEP, TlsTransport
from stompbox.server.turns import OfLoop
from tests.certificates import of_localhost

MEGABYTE = bytes(range(256)) * 4096


class Raw:
    """What the loop would write, and what it was told."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.unread = 0
        self.is_closed = self.is_aborted = False
        self.is_read = True

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = self.is_aborted = True

    def get_write_buffer_size(self) -> int:
        return self.unread

    def get_extra_info(self, name: str, default: object = None) -> object:
        return {"peername": ("192.0.2.1", 5)}.get(name, default)


class Visitor:
    """What it was told, in order."""

    def __init__(self) -> None:
        self.told: list[object] = []
        self.transport: TlsTransport | None = None

    def accepted(self, transport: asyncio.Transport, reader: Reader) -> None:
        assert transport.get_extra_info("peername") == ("192.0.2.1", 5)
        self.told.append("accepted")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(TlsTransport, transport)
        self.told.append("made")

    def data_received(self, data: bytes) -> None:
        self.told.append(data)

    def eof_received(self) -> bool:
        self.told.append("end")
        return False

    def pause_writing(self) -> None:
        self.told.append("paused")

    def resume_writing(self) -> None:
        self.told.append("resumed")

    def connection_lost(self, error: Exception | None) -> None:
        self.told.append(error)


class Line:
    """Who waits in it is where the test can see it."""

    def __init__(self, wait: Callable[[Callable[[], None]], None]) -> None:
        self.is_late = False
        self.wait = wait


def turns(loop: asyncio.AbstractEventLoop, line: Line) -> OfLoop:
    found = OfLoop(loop)
    found.line = line  # type: ignore[assignment]  # as much of one as it uses
    return found


class Ends:
    """Both ends, before the hand-shake."""

    def __init__(self, folder: object, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> None:
        pem = f"{folder}/server.pem"
        with open(pem, "w") as file:
            file.write(of_localhost())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem)
        self.raw, self.visitor = Raw(), Visitor()
        self.waiting: list[Callable[[], None]] = []
        self.loop = cast(asyncio.AbstractEventLoop, SimpleNamespace(call_soon=self.waiting.append))
        self.line = Line(self.waiting.append)
        self.turns = turns(self.loop, self.line)
        self.server = TlsTransport(self.visitor, context, self.loop, self.turns)
        self.server.connection_made(cast(asyncio.BaseTransport, self.raw))
        trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        trusting.maximum_version = version
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = trusting.wrap_bio(self.incoming, self.outgoing)

    def turn(self) -> None:
        """What waits for its turn has one."""
        waiting, self.waiting[:] = self.waiting[:], []
        for work in waiting:
            work()

    def hear(self) -> None:
        """The client gets what the server has written."""
        for data in self.raw.written:
            self.incoming.write(data)
        self.raw.written.clear()

    def shake_hands(self, piece: int = 1 << 20) -> None:
        for _ in range(10):
            try:
                self.client.do_handshake()
            except ssl.SSLWantReadError:
                self.send(piece)
                self.hear()
            else:
                return
        raise AssertionError("no end of it")

    def send(self, piece: int = 1 << 20, *, has_turns: bool = True) -> None:
        """The server gets what the client has written, in reads of so many octets, and turns for each."""
        data = self.outgoing.read()
        for at in range(0, len(data), piece):
            self.server.data_received(data[at : at + piece])
            while self.waiting and has_turns:
                self.turn()

    def read(self) -> bytes:
        """All that the client has been told."""
        self.hear()
        found = b""
        try:
            while more := self.client.read(1 << 20):
                found += more
        except ssl.SSLWantReadError:
            pass
        return found


VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


@pytest.fixture(params=VERSIONS, ids=lambda version: version.name)
def ends(tmp_path: object, request: pytest.FixtureRequest) -> Ends:
    """After the hand-shake."""
    found = Ends(tmp_path, request.param)
    found.shake_hands()
    found.send()
    found.read()
    return found


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
def test_a_hand_shake_is_seen_from_its_first_octet_on(
    tmp_path: object, version: ssl.TLSVersion, piece: int
) -> None:
    ends = Ends(tmp_path, version)
    assert ends.visitor.told == ["accepted"]
    ends.shake_hands(piece)
    ends.client.write(b"CONNECT")  # behind what the hand-shake still had to say
    ends.send(piece)
    assert ends.visitor.told == ["accepted", "made", b"CONNECT"]
    assert ends.client.version() == version.name.replace("_", ".")


@pytest.mark.parametrize("piece", [1000, SMALL, PIECE, PIECE + 1, STEP, 1 << 21])
def test_what_one_read_brings_comes_in_few_pieces(ends: Ends, piece: int) -> None:
    for at in range(0, len(MEGABYTE), PIECE):  # a record each
        ends.client.write(MEGABYTE[at : at + PIECE])
    reads = -(-ends.outgoing.pending // min(piece, STEP))
    del ends.visitor.told[2:]
    ends.send(piece)
    found = ends.visitor.told[2:]
    assert b"".join(cast("list[bytes]", found)) == MEGABYTE
    assert len(found) <= reads
    assert ends.raw.is_read and not ends.server.unread


def test_a_small_read_is_deciphered_at_once_and_a_large_one_in_turns(ends: Ends) -> None:
    ends.client.write(b"x")
    ends.send(has_turns=False)
    assert said(ends) == b"x" and ends.raw.is_read
    for at in range(0, len(MEGABYTE), PIECE):
        ends.client.write(MEGABYTE[at : at + PIECE])
    ends.send(has_turns=False)
    while ends.waiting:
        assert not ends.raw.is_read, "no more is read before"
        before = len(said(ends))
        ends.turn()
        assert 0 < len(said(ends)) - before <= STEP
    assert said(ends) == b"x" + MEGABYTE and ends.raw.is_read


COUNT = 10 * RECORDS + 1


def say_little(ends: Ends) -> None:
    """COUNT records of an octet each, in one read."""
    for number in range(COUNT):
        ends.client.write(bytes([number % 256]))
    del ends.visitor.told[2:]
    ends.send(has_turns=False)
    ends.turn()


def said(ends: Ends) -> bytes:
    return b"".join([told for told in ends.visitor.told if isinstance(told, bytes)])


LITTLE = bytes([number % 256 for number in range(COUNT)])


def test_very_small_records_are_deciphered_in_turns(ends: Ends) -> None:
    say_little(ends)
    for turn in range(1, 11):
        assert said(ends) == LITTLE[: RECORDS * turn]
        assert not ends.raw.is_read and ends.server.unread > (COUNT - RECORDS * turn)
        assert len(ends.waiting) == 1
        ends.turn()
    assert said(ends) == LITTLE
    assert ends.raw.is_read and not ends.server.unread and not ends.waiting


class Eager(Visitor):
    """Wants more before it has obeyed what has come, as who has just learned what the peer speaks."""

    def data_received(self, data: bytes) -> None:
        assert self.transport is not None
        self.transport.resume_reading()
        super().data_received(data)


def test_what_comes_later_does_not_come_before(tmp_path: object) -> None:
    """Also where there is time for all of it in this turn."""
    ends = Ends(tmp_path)
    ends.visitor = Eager()
    context = ends.server.get_extra_info("ssl_object").context

    def at_once(work: Callable[[], None]) -> None:
        work()

    ends.server = TlsTransport(ends.visitor, context, ends.loop, turns(ends.loop, Line(at_once)))
    ends.server.connection_made(cast(asyncio.BaseTransport, ends.raw))
    ends.shake_hands()
    say_little(ends)
    while ends.waiting:
        ends.turn()
    assert said(ends) == LITTLE


def test_who_wants_no_more_gets_none_of_those_either(ends: Ends) -> None:
    say_little(ends)
    ends.server.pause_reading()
    ends.turn()
    ends.server.resume_reading()
    ends.server.pause_reading()
    ends.turn()
    assert said(ends) == LITTLE[:RECORDS]
    assert not (ends.raw.is_read or ends.server.is_reading())
    ends.server.resume_reading()
    assert not ends.raw.is_read
    while ends.waiting:
        ends.turn()
    assert said(ends) == LITTLE and ends.raw.is_read and ends.server.is_reading()


@pytest.mark.parametrize("is_paused", [False, True])
def test_what_was_read_before_the_connection_was_lost_is_said_in_turns(
    ends: Ends, *, is_paused: bool
) -> None:
    say_little(ends)
    if is_paused:  # nobody will say that it may go on
        ends.server.pause_reading()
    ends.raw.is_closed = True
    ends.server.connection_lost(None)
    assert said(ends) == LITTLE[:RECORDS] and ends.visitor.told[-1] is not None, "others have their turn"
    turns = 0
    while ends.waiting:
        ends.turn()
        turns += 1
    assert turns > 1
    assert said(ends) == LITTLE and ends.visitor.told[-1] is None and ends.visitor.told.count(None) == 1


@pytest.mark.parametrize("closes", [TlsTransport.close, TlsTransport.abort])
def test_who_closes_meanwhile_is_told_no_more(ends: Ends, closes: Callable[[TlsTransport], None]) -> None:
    say_little(ends)
    ends.raw.is_closed = True
    ends.server.connection_lost(None)
    closes(ends.server)
    ends.turn()
    assert said(ends) == LITTLE[:RECORDS] and ends.visitor.told[-1] is None and not ends.waiting


def test_what_waits_goes_with_a_connection_that_is_closed(ends: Ends) -> None:
    say_little(ends)
    ends.server.close()
    ends.turn()
    ends.server.connection_lost(None)
    assert said(ends) == LITTLE[:RECORDS] and ends.visitor.told[-1] is None


@pytest.mark.parametrize("size", [0, 1, PIECE, PIECE + 1, len(MEGABYTE)])
def test_what_is_written_goes_out_at_once(ends: Ends, size: int) -> None:
    assert ends.visitor.transport is ends.server
    ends.server.write(MEGABYTE[:size])
    assert len(ends.raw.written) == 1
    assert ends.read() == MEGABYTE[:size]


def test_the_end_of_a_peer_comes_behind_what_it_has_said(ends: Ends) -> None:
    ends.client.write(b"last")
    with pytest.raises(ssl.SSLWantReadError):
        ends.client.unwrap()
    ends.send()
    assert ends.visitor.told[2:] == [b"last", "end"]
    assert ends.raw.is_closed and not ends.raw.is_aborted
    ends.hear()
    ends.client.unwrap()  # it is told of ours, too
    ends.server.connection_lost(None)
    assert ends.visitor.told[4:] == [None]


def test_an_end_without_a_word_of_tls_closes(ends: Ends) -> None:
    assert not ends.server.eof_received()


def test_the_close_says_so_to_the_peer(ends: Ends) -> None:
    ends.server.write(b"bye")
    ends.server.close()
    ends.server.close()
    ends.server.write(b"too late")
    assert ends.server.is_closing() and ends.raw.is_closed
    ends.hear()
    assert ends.client.read() == b"bye"
    with suppress(ssl.SSLZeroReturnError):
        assert ends.client.read() == b""
    ends.client.write(b"x")
    ends.send()
    assert len(ends.visitor.told) == 2, "nobody hears of it"


@pytest.mark.parametrize(
    "said", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x04\xff\x00\x00\x00", b"\0" * 100_000]
)
def test_what_is_no_tls_ends_it(tmp_path: object, said: bytes) -> None:
    ends = Ends(tmp_path)
    ends.server.data_received(said)
    ends.turn()
    assert ends.raw.is_closed
    assert ends.visitor.told == ["accepted"]
    ends.server.connection_lost(None)
    assert isinstance(ends.visitor.told[1], ssl.SSLError)


def test_who_has_no_version_in_common_is_told(tmp_path: object) -> None:
    ends = Ends(tmp_path, ssl.TLSVersion.TLSv1_2)
    context = ends.server.get_extra_info("ssl_object").context
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    ends.server = TlsTransport(ends.visitor, context, ends.loop, ends.turns)
    ends.server.connection_made(cast(asyncio.BaseTransport, ends.raw))
    with pytest.raises(ssl.SSLError, match=r"(?i)version"):
        ends.shake_hands()


def test_a_record_that_was_changed_ends_it_behind_what_came_before(ends: Ends) -> None:
    ends.client.write(b"good")
    good = ends.outgoing.read()
    ends.client.write(b"bad")
    bad = bytearray(ends.outgoing.read())
    bad[-1] ^= 1
    ends.server.data_received(good + bytes(bad))
    assert ends.visitor.told[2:] == [b"good", "end"]
    assert ends.raw.is_closed
    with pytest.raises(ssl.SSLError):
        ends.read()  # the alert that says why
    ends.server.connection_lost(None)
    assert isinstance(ends.visitor.told[4], ssl.SSLError)


def test_who_does_not_read_what_tls_itself_answers_has_no_more_of_it_kept(ends: Ends) -> None:
    for unread in (ANSWERS, ANSWERS + 1):
        ends.raw.unread = unread
        ends.server._outgoing.write(b"new keys")
        ends.client.write(b"x")
        ends.send()
        assert ends.raw.is_aborted == (unread > ANSWERS)
    ends.server.connection_lost(None)
    assert isinstance(ends.visitor.told[-1], ConnectionAbortedError)


def test_how_fast_the_peer_reads_is_passed_on(ends: Ends) -> None:
    ends.server.pause_writing()
    ends.server.resume_writing()
    assert ends.visitor.told[2:] == ["paused", "resumed"]


def test_a_transport_that_was_lost_tells_nobody_any_more(ends: Ends) -> None:
    ends.server.connection_lost(OSError(104, "reset"))
    assert isinstance(ends.visitor.told[2], OSError)
    ends.server.pause_writing()
    ends.server.resume_writing()
    ends.server.data_received(b"x")
    ends.server.connection_lost(None)
    assert len(ends.visitor.told) == 3


def test_what_is_known_of_the_connection(ends: Ends) -> None:
    assert ends.server.get_extra_info("peername") == ("192.0.2.1", 5)
    assert ends.server.get_extra_info("peercert", "none") == "none"
    assert ends.server.get_extra_info("ssl_object").version() == ends.client.version()
    assert not ends.server.can_write_eof()


def test_where_it_is_late_a_small_read_waits_in_line_and_what_comes_behind_it_too(ends: Ends) -> None:
    ends.shake_hands()
    ends.line.is_late = True
    for said in (b"first", b"second"):
        ends.client.write(said)
        ends.server.data_received(ends.outgoing.read())
        ends.line.is_late = False  # those who wait go first all the same
        assert not ends.raw.is_read
        assert ends.visitor.told[2:] == []
    ends.turn()
    assert b"".join(cast(list[bytes], ends.visitor.told[2:])) == b"firstsecond"
    assert ends.raw.is_read
