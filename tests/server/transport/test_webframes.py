"""Messages that are taken without the library are those that it would have found, and nothing else is taken."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.extensions.permessage_deflate import ServerPerMessageDeflateFactory
from websockets.frames import Frame, Opcode

from stompbox.server.transport import webframes
from stompbox.server.transport.webframes import Frames, whole_messages

LIMIT = 300
MOST = 1 << 16

PAYLOADS = st.one_of(
    st.binary(max_size=140),
    st.text(max_size=60).map(str.encode),
    st.integers(120, 310).map(lambda size: b"x" * size),
)
FRAMES = st.one_of(
    st.builds(
        Frame,
        st.sampled_from([Opcode.TEXT, Opcode.TEXT, Opcode.BINARY, Opcode.CONT]),
        PAYLOADS,
        st.sampled_from([True, True, True, False]),
    ),
    st.builds(Frame, st.just(Opcode.PING), st.binary(max_size=3)),
)


def serialized(frame: Frame) -> bytes:
    return frame.serialize(mask=True)


def is_simple(frame: Frame) -> bool:
    if frame.opcode not in (Opcode.TEXT, Opcode.BINARY) or not frame.fin or len(frame.data) > LIMIT:
        return False
    try:
        frame.opcode is Opcode.TEXT and bytes(frame.data).decode()
    except UnicodeDecodeError:
        return False
    return True


@given(st.lists(FRAMES, max_size=12), st.integers(0, 400), st.integers(1, 8))
def test_the_simple_messages_at_the_front_are_taken_and_no_more(
    frames: list[Frame], missing: int, most: int
) -> None:
    simple = list(itertools.takewhile(is_simple, frames))[:most]
    octets = [serialized(frame) for frame in frames]
    data = b"".join(octets)
    data = data[: max(0, len(data) - missing)]
    ends = list(itertools.accumulate(map(len, octets)))
    there = [frame for frame, end in zip(simple, ends, strict=False) if end <= len(data)]
    at, payloads, is_text = whole_messages(b"before" + data, len(b"before"), most, LIMIT)
    assert payloads == [bytes(frame.data) for frame in there]
    assert at == len(b"before") + ([0, *ends][len(there)])
    assert is_text is bool(there and there[-1].opcode is Opcode.TEXT)


@given(st.binary(max_size=2000), st.binary(min_size=4, max_size=4))
def test_a_mask_is_taken_off_with_the_library_s_c_and_without(payload: bytes, mask: bytes) -> None:
    expected = bytes(octet ^ mask[at % 4] for at, octet in enumerate(payload))
    assert webframes._apply_mask(payload, mask) == webframes._unmasked(payload, mask) == expected


@pytest.mark.parametrize(
    "octets",
    [
        b"\x81\x03abc",  # not masked: RFC 6455, 5.1 has the library close
        b"\xc1\x83\0\0\0\0abc",  # a reserved bit, which compression has
        b"\x83\x83\0\0\0\0abc",  # an opcode that means nothing
        b"\x81\xff" + (70_000).to_bytes(8, "big") + bytes(4) + b"x" * 70_000,
        b"\x81\x83\0\0\0\0ab\xff",  # no UTF-8
        b"\x88\x80\0\0\0\0",
    ],
)
def test_what_is_anything_else_is_left(octets: bytes) -> None:
    assert whole_messages(octets, 0, 10, MOST) == (0, [], False)
    simple = Frame(Opcode.BINARY, b"1").serialize(mask=True)
    assert whole_messages(simple + octets + simple, 0, 10, MOST) == (len(simple), [b"1"], False)


def test_compressed_messages_are_left() -> None:
    _, deflate = ServerPerMessageDeflateFactory().process_request_params([], [])
    octets = Frame(Opcode.TEXT, b"x" * 200).serialize(mask=True, extensions=[deflate])
    assert whole_messages(octets, 0, 10, MOST) == (0, [], False)


@given(st.lists(FRAMES, min_size=1, max_size=6), st.integers(0, 200))
def test_between_frames_is_where_the_last_one_has_ended(frames: list[Frame], missing: int) -> None:
    octets = [serialized(frame) for frame in frames]
    data = b"".join(octets)
    cut = max(0, len(data) - missing)
    reader = Frames()
    reader.portion(data[:cut], 0, MOST, MOST)
    assert reader.is_between is (cut in [0, *itertools.accumulate(map(len, octets))])
