"""The table of cases, read and written in every way a network can cut it."""

from __future__ import annotations

import random
import tracemalloc
import zlib
from collections.abc import Iterable, Sequence
from itertools import pairwise

import pytest

from stompbox.errors import FrameError
from stompbox.stomp.codec import FIRST_ROOM, GATHERED_FROM, LAST_ROOM, Decoder, encode
from stompbox.stomp.frames import CLIENT_COMMANDS, SERVER_COMMANDS, Frame
from stompbox.stomp.versions import VERSIONS
from tests.conformance.cases import ROWS, Case, title

RUBBISH = (b"RUBBISH\n\n\0", b"\xff\xfe\xfd\n\n\0", b"SEND\nno colon\n\n\0")


def decoder_for(case: Case, version: str) -> Decoder:
    decoder = Decoder(SERVER_COMMANDS if case.sender == "server" else CLIENT_COMMANDS)
    decoder.version = VERSIONS[version]
    return decoder


def read(decoder: Decoder, pieces: Iterable[bytes]) -> tuple[list[object], str | None]:
    """The events up to the end or the first fault, and the fault's code."""
    events: list[object] = []
    try:
        for piece in pieces:
            for event in decoder.receive(piece):
                events.append(event)
    except FrameError as error:
        return events, error.code
    return events, None


def byte_by_byte(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


def in_random_pieces(data: bytes, source: random.Random) -> list[bytes]:
    cuts = sorted(source.randrange(len(data) + 1) for _ in range(source.randrange(1, 6)))
    return [data[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def assert_is_read(row: tuple[Case, str], pieces: Sequence[bytes]) -> None:
    case, version = row
    decoder = decoder_for(case, version)
    events, code = read(decoder, pieces)
    assert (events, code) == (list(case.frames), case.error)
    if code is None:
        assert decoder.pending == case.pending


@pytest.mark.parametrize("row", ROWS, ids=title)
def test_is_read_whole(row: tuple[Case, str]) -> None:
    assert_is_read(row, [row[0].data])


@pytest.mark.parametrize("row", ROWS, ids=title)
def test_is_read_byte_by_byte(row: tuple[Case, str]) -> None:
    assert_is_read(row, byte_by_byte(row[0].data))


@pytest.mark.parametrize("row", ROWS, ids=title)
def test_is_read_in_any_two_pieces(row: tuple[Case, str]) -> None:
    data = row[0].data
    for cut in range(len(data) + 1):
        assert_is_read(row, [data[:cut], data[cut:]])


@pytest.mark.parametrize("row", ROWS, ids=title)
def test_is_read_in_random_pieces(row: tuple[Case, str]) -> None:
    source = random.Random(zlib.crc32(title(row).encode()))
    for _ in range(20):
        assert_is_read(row, in_random_pieces(row[0].data, source))


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row[0].error is None and not row[0].pending], ids=title
)
@pytest.mark.parametrize("rubbish", RUBBISH)
def test_rubbish_after_it_changes_nothing_before(row: tuple[Case, str], rubbish: bytes) -> None:
    case, version = row
    for pieces in ([case.data + rubbish], [case.data, rubbish], byte_by_byte(case.data + rubbish)):
        events, code = read(decoder_for(case, version), pieces)
        assert events == list(case.frames)
        assert code in ("unknown-command", "header-without-colon")


@pytest.mark.parametrize("row", [row for row in ROWS if row[0].encoded is not None], ids=title)
def test_is_written_in_its_canonical_form(row: tuple[Case, str]) -> None:
    case, version = row
    assert b"".join([encode(frame, VERSIONS[version]) for frame in case.frames]) == case.encoded


@pytest.mark.parametrize("row", [row for row in ROWS if row[0].encoded is not None], ids=title)
def test_canonical_form_reads_as_the_same(row: tuple[Case, str]) -> None:
    case, version = row
    assert case.encoded is not None
    decoder = decoder_for(case, version)
    assert read(decoder, [case.encoded]) == (list(case.frames), None)
    assert decoder.pending == 0


def test_version_may_change_between_two_frames_of_one_piece() -> None:
    decoder = Decoder()
    arriving = decoder.receive(b"CONNECT\naccept-version:1.2\nlogin:a\\tb\n\n\0SEND\na:x\\ny \n\n\0")
    assert repr(next(arriving)) == "<CONNECT accept-version:'1.2' login:'a\\\\tb' body=0>"
    decoder.version = VERSIONS["1.2"]
    assert repr(next(arriving)) == "<SEND a:'x\\ny ' body=0>"
    assert next(arriving, None) is None


def test_login_lifts_the_limit_between_two_frames_of_one_piece() -> None:
    decoder = Decoder()
    arriving = decoder.receive(b"CONNECT\n\n\0SEND\n\n" + b"x" * 70_000 + b"\0")
    next(arriving)
    decoder.logged_in = True
    assert repr(next(arriving)) == "<SEND body=70000>"


def test_body_is_cut_out_of_what_was_received_and_keeps_nothing_else_alive() -> None:
    (frame,) = Decoder().receive(b"SEND\n\n" + b"x" * 10 + b"\0")
    assert type(frame.body) is bytes  # type: ignore[attr-defined]
    assert len(frame.body) == 10  # type: ignore[attr-defined]


class Remembering:
    """A reader of runs that takes every frame beginning with its word, and notes what it is taught."""

    def __init__(self, word: bytes) -> None:
        self.word = word
        self.taught: list[tuple[bytes, str]] = []

    def read(self, buffer: bytes, position: int) -> tuple[object, int] | None:
        if not buffer.startswith(self.word, position) or (end := buffer.find(b"\0", position)) < 0:
            return None
        return buffer[position:end], end + 1

    def learn(self, head: bytes, frame: object) -> None:
        self.taught.append((head, repr(frame)))


def test_reader_of_runs_is_asked_first_and_taught_the_other_sends() -> None:
    decoder = Decoder()
    decoder.runs = reader = Remembering(b"ACK")
    data = b"SEND\na:1\n\nx\0\nACK\nid:1\n\n\0\nBEGIN\ntransaction:t\n\n\0"
    events, code = read(decoder, byte_by_byte(data))
    assert code is None
    assert [repr(event) for event in events] == [
        "<SEND a:'1' body=1>",
        repr(b"ACK\nid:1\n\n"),
        "<BEGIN transaction:'t' body=0>",
    ]
    assert reader.taught == [(b"SEND\na:1", "<SEND a:'1' body=1>")]


def logged_in() -> Decoder:
    decoder: Decoder = Decoder()
    decoder.logged_in = True
    return decoder


def gathered(length: int) -> tuple[bytes, bytes]:
    """A frame whose body of so many octets is gathered, and that body."""
    body = random.Random(length).randbytes(length)
    return b"SEND\ndestination:/queue/a\nreceipt:r\ncontent-length:%d\n\n%b\0" % (length, body), body


@pytest.mark.parametrize("length", [GATHERED_FROM - 1, GATHERED_FROM, FIRST_ROOM + 1, LAST_ROOM + 5])
def test_long_bodies_come_whole_however_they_were_cut(length: int) -> None:
    """Also where the head alone, all but the last octet, or more than the frame has come; the next frame is read as always."""
    data, body = gathered(length)
    head, end = data.index(b"\n\n") + 2, len(data)
    after = b"\nSEND\ndestination:/queue/b\n\nx\0"
    for cuts in (
        (head,),
        (head - 1, head + 1),
        (head + 1, end - 1),
        (end - 2,),
        (end,),
        (end + 3,),
        tuple(range(9, end, 70_001)),
    ):
        decoder = logged_in()
        edges = [0, *cuts, len(data) + len(after)]
        pieces = [(data + after)[start:stop] for start, stop in pairwise(edges)]
        found, error = read(decoder, pieces)
        assert error is None
        assert [(frame.headers["destination"], frame.body) for frame in found] == [
            ("/queue/a", body),
            ("/queue/b", b"x"),
        ], cuts
        assert decoder.pending == 0
        assert decoder.is_between_frames


def test_what_has_come_of_a_long_body_counts_and_no_more_is_kept_for_it() -> None:
    """Who announces much and sends little has little."""
    decoder = logged_in()
    head = b"SEND\ndestination:/queue/a\ncontent-length:%d\n\n" % (50 << 20)
    assert list(decoder.receive(head + b"x" * 100)) == []
    assert len(head) - 2 + 100 == decoder.pending
    assert not decoder.is_between_frames
    tracemalloc.start()
    try:
        assert list(decoder.receive(b"x" * GATHERED_FROM)) == []
        assert tracemalloc.get_traced_memory()[1] < FIRST_ROOM + 2 * GATHERED_FROM
    finally:
        tracemalloc.stop()


def test_a_long_body_without_its_nul_is_refused_by_its_receipt() -> None:
    data, _ = gathered(GATHERED_FROM)
    decoder = logged_in()
    assert list(decoder.receive(data[:-1])) == []
    with pytest.raises(FrameError, match=f"no NUL octet after the {GATHERED_FROM} octets") as caught:
        list(decoder.receive(b"x"))
    assert (caught.value.code, caught.value.receipt) == ("missing-nul", "r")


@pytest.mark.parametrize("version", VERSIONS)
def test_the_length_of_a_control_frame_can_be_left_uncounted(version: str) -> None:
    ack = b"ACK\nid:1\ncontent-length:8511\n\n\0"
    send = b"SEND\ndestination:/queue/q\ncontent-length:3\n\n1\x002\0"
    for pieces in ([ack + send], byte_by_byte(ack + send)):
        decoder = Decoder(CLIENT_COMMANDS)
        decoder.version = VERSIONS[version]
        decoder.counts_control = False
        events, code = read(decoder, pieces)
        assert [event.body for event in events if isinstance(event, Frame)] == [b"", b"1\x002"]
        assert code is None and decoder.pending == 0
        decoder.counts_control = True
        assert read(decoder, pieces) == ([], None)
        assert decoder.pending == len(ack + send)
