"""Limits at and beyond, and the work that the worst pieces cause, counted in octets looked at."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from stompbox.errors import FrameError
from stompbox.stomp import codec
from stompbox.stomp.codec import Decoder, FrameLimits, content_length
from stompbox.stomp.frames import CLIENT_COMMANDS, CONTROL_COMMANDS, SERVER_COMMANDS, Frame
from stompbox.stomp.versions import V11, V12

SMALL = FrameLimits(head=40, headers=3, body=20, before_login=64)


def small_decoder(*, logged_in: bool = True) -> Decoder:
    decoder = Decoder(limits=SMALL)
    decoder.version = V12
    decoder.logged_in = logged_in
    return decoder


def outcome(decoder: Decoder, pieces: list[bytes]) -> list[str]:
    """Commands of the frames, then the code of the fault if there is one."""
    found: list[str] = []
    try:
        for piece in pieces:
            for frame in decoder.receive(piece):
                found.append(frame.command)  # type: ignore[attr-defined]
    except FrameError as error:
        found.append(error.code)
    return found


def whole(data: bytes) -> list[bytes]:
    return [data]


def bytewise(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


def behind_heart_beats(data: bytes) -> list[bytes]:
    return [b"\r", b"\n\r", b"\n", b"\n" * 100, *bytewise(data)]


CUTS = pytest.mark.parametrize("cut", [whole, bytewise, behind_heart_beats])
Cut = Callable[[bytes], list[bytes]]


def head_of(size: int) -> bytes:
    return b"SEND\na:" + b"x" * (size - 7)


@CUTS
@pytest.mark.parametrize("empty_line", [b"\n\n", b"\n\r\n"])
def test_head_at_and_beyond_its_limit(cut: Cut, empty_line: bytes) -> None:
    assert outcome(small_decoder(), cut(head_of(40) + empty_line + b"\0")) == ["SEND"]
    assert outcome(small_decoder(), cut(head_of(41) + empty_line + b"\0")) == ["header-too-large"]


@CUTS
def test_head_without_end_is_refused_at_its_limit(cut: Cut) -> None:
    assert outcome(small_decoder(), cut(head_of(40))) == []
    assert outcome(small_decoder(), cut(head_of(41))) == ["header-too-large"]


@CUTS
@pytest.mark.parametrize(("size", "code"), [(40, "nul-in-header"), (41, "header-too-large")])
def test_a_nul_in_a_head_does_not_hide_its_size(cut: Cut, size: int, code: str) -> None:
    assert outcome(small_decoder(), cut(head_of(size) + b"\0")) == [code]


@CUTS
def test_headers_at_and_beyond_their_limit(cut: Cut) -> None:
    assert outcome(small_decoder(), cut(b"SEND\na:1\nb:2\nc:3\n\n\0")) == ["SEND"]
    assert outcome(small_decoder(), cut(b"SEND\na:1\nb:2\nc:3\nd:4\n\n\0")) == ["too-many-headers"]
    # repeated ones cost as much
    assert outcome(small_decoder(), cut(b"SEND\na:1\na:1\na:1\na:1\n\n\0")) == ["too-many-headers"]


@CUTS
def test_body_at_and_beyond_its_limit(cut: Cut) -> None:
    assert outcome(small_decoder(), cut(b"SEND\n\n" + b"x" * 20 + b"\0")) == ["SEND"]
    assert outcome(small_decoder(), cut(b"SEND\n\n" + b"x" * 21 + b"\0")) == ["body-too-large"]
    assert outcome(small_decoder(), cut(b"SEND\n\n" + b"x" * 21)) == ["body-too-large"]


@CUTS
def test_announced_body_at_and_beyond_its_limit(cut: Cut) -> None:
    assert outcome(small_decoder(), cut(b"SEND\ncontent-length:20\n\n" + b"\0" * 20 + b"\0")) == ["SEND"]
    # before an octet of it has come
    assert outcome(small_decoder(), cut(b"SEND\ncontent-length:21\n\n")) == ["body-too-large"]


@CUTS
@pytest.mark.parametrize("head", [b"STOMP\na:b", b"STOMP\na:b\ncontent-length:%d"])
def test_whole_frame_at_and_beyond_its_limit_before_login(cut: Cut, head: bytes) -> None:
    room = 64 - len(head) - 2  # octets of the frame before its body: the head and the empty line
    room = room if b"%d" not in head else room - len(b"%d" % room) + 2
    for size, expected in ((min(room, 20), ["STOMP"]), (21, ["body-too-large"])):
        whole_head = head % size if b"%d" in head else head
        assert (
            outcome(small_decoder(logged_in=False), cut(whole_head + b"\n\n" + b"x" * size + b"\0"))
            == expected
        )


@CUTS
def test_before_login_the_smaller_limit_counts(cut: Cut) -> None:
    limits = FrameLimits(head=1000, body=1000, before_login=64)
    for size, expected in ((64, ["STOMP"]), (65, ["body-too-large"])):
        frame = b"STOMP\na:b\n\n" + b"x" * (size - 11) + b"\0"
        assert outcome(Decoder(limits=limits), cut(frame)) == expected
        assert outcome(Decoder(limits=limits), cut(frame.replace(b"a:b", b"content-length:%d" % size))) == [
            "body-too-large"
        ]
    for size, expected in ((64, []), (65, ["header-too-large"])):
        assert outcome(Decoder(limits=limits), cut(b"STOMP\na:" + b"x" * (size - 8))) == expected


def test_limits_do_not_add_up_over_frames() -> None:
    frame = head_of(40) + b"\n\n" + b"x" * 20 + b"\0"
    assert outcome(small_decoder(), [frame * 50]) == ["SEND"] * 50


def test_a_client_has_no_stranger_in_front_of_it() -> None:
    decoder = Decoder(SERVER_COMMANDS, FrameLimits(before_login=10))
    assert [repr(frame) for frame in decoder.receive(b"CONNECTED\nversion:1.2\n\n\0")] == [
        "<CONNECTED version:'1.2' body=0>"
    ]


def test_limits_are_those_of_the_design() -> None:
    assert FrameLimits() == FrameLimits(
        head=64 * 1024, headers=1000, body=100 * 1024 * 1024, before_login=64 * 1024
    )


def test_unfinished_frame_never_grows_beyond_the_limits() -> None:
    most = SMALL.head + 2 + SMALL.body + 1
    for endless in (
        b"SEND\na:x\n\n" + b"y" * 500,
        b"x" * 500,
        b"SEND\ncontent-length:20\n\n" + b"x" * 20,
        b"\n" * 500 + b"\r",
    ):
        decoder = small_decoder()
        for piece in bytewise(endless):
            if outcome(decoder, [piece]):
                break
            assert decoder.pending <= most
        assert decoder.pending <= most


@pytest.mark.parametrize("text", ["0", "00", "5 ", " 5", "  12  ", "9" * 18])
def test_content_length_numbers(text: str) -> None:
    assert content_length({"content-length": text}) == int(text)


def test_content_length_absent() -> None:
    assert content_length({"Content-Length": "1"}) is None


# --- work -----------------------------------------------------------------------------------------------------------------


class Work:
    """Octets that searches looked at and copies moved."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.octets = 0
        work = self

        def searched(data: bytes | bytearray, found: int, start: int, stop: int | None) -> None:
            work.octets += (
                (found if found >= 0 else min(len(data), len(data) if stop is None else stop)) - start + 1
            )

        class Octets(bytes):
            def find(self, what: Any, start: Any = 0, stop: Any = None) -> int:
                found = super().find(what, start, stop)
                searched(self, found, start, stop)
                return found

        class Rest(bytearray):
            def find(self, what: Any, start: Any = 0, stop: Any = None) -> int:
                found = super().find(what, start, stop)
                searched(self, found, start, stop)
                return found

        class EmptyLine:
            def search(self, data: bytes | bytearray, start: int) -> re.Match[bytes] | None:
                match = re.compile(rb"\n\r?\n").search(data, start)
                searched(data, match.start() if match else -1, start, None)
                return match

        def copied(data: bytes | bytearray) -> Octets:
            work.octets += len(data)
            return Octets(data)

        monkeypatch.setattr(codec, "_EMPTY_LINE", EmptyLine())
        monkeypatch.setattr(codec, "bytes", copied, raising=False)
        monkeypatch.setattr(codec, "bytearray", Rest, raising=False)
        self.piece = Octets


WORST = {
    "body without NUL": b"SEND\n\n" + b"x" * 60_000 + b"\0",
    "counted body of NULs": b"SEND\ncontent-length:60000\n\n" + b"\0" * 60_001,
    "counted body of empty lines": b"SEND\ncontent-length:60000\n\n" + b"\n" * 60_000 + b"\0",
    "uncounted body of empty lines": b"SEND\n\n" + b"\n" * 60_000 + b"\0",
    "one long header": b"SEND\na:" + b"x" * 60_000 + b"\n\n\0",
    "a head of CRs and LFs": b"SEND\n" + b"a:\r\n" * 900 + b"\n\0",
    "a head of colons and backslashes": b"SEND\n" + b"a:" + b"\\\\" * 30_000 + b"\n\n\0",
    "heart-beats": b"\n" * 60_000,
    "heart-beats of CR LF": b"\r\n" * 30_000,
    "NULs": b"\0" * 60_000,
    "smallest frames": b"ACK\n\n\0" * 10_000,
    "frames of one CR LF header": b"ACK\r\nid:1\r\n\r\n\0\r\n" * 3_000,
    "two CRs that end nothing": b"SEND\na:" + b"\r" * 60_000,
}


@pytest.mark.parametrize("size", [1, 2, 7, 1000, 65536])
@pytest.mark.parametrize("name", WORST)
def test_work_is_linear_whatever_the_pieces(monkeypatch: pytest.MonkeyPatch, name: str, size: int) -> None:
    work = Work(monkeypatch)
    data = WORST[name]
    decoder = Decoder()
    decoder.version = V12
    decoder.logged_in = True
    outcome(decoder, [work.piece(data[at : at + size]) for at in range(0, len(data), size)])
    assert work.octets <= 12 * len(data), f"{work.octets / len(data):.1f} octets looked at for each one fed"
    assert decoder.pending <= len(data)


def test_work_is_counted_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    work = Work(monkeypatch)
    assert outcome(Decoder(), [work.piece(b"SEND\n"), work.piece(b"\nhello\0")]) == ["SEND"]
    assert work.octets > 12


@pytest.mark.parametrize("command", sorted(CONTROL_COMMANDS))
@pytest.mark.parametrize("counts", [True, False])
def test_frames_that_are_no_send_have_small_bodies(command: str, *, counts: bool) -> None:
    """Refused at its announcement; without one as it grows, before it is complete."""
    limits = FrameLimits(control=100)
    head = f"{command}\n".encode()
    for size, is_good in ((100, True), (101, False)):
        decoder = Decoder(CLIENT_COMMANDS, limits)
        decoder.logged_in, decoder.version = True, V11
        data = head + b"content-length:%d\n\n" % size if counts else head + b"\n" + b"x" * size
        if is_good:
            rest = b"x" * size + b"\0" if counts else b"\0"
            assert [
                len(frame.body)
                for frame in [*decoder.receive(data), *decoder.receive(rest)]
                if isinstance(frame, Frame)
            ] == [size]
        else:
            with pytest.raises(FrameError, match="the limit of 100 octets"):
                list(decoder.receive(data))
