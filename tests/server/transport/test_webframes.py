"""Messages that are taken without the library are those that it would have found, and nothing else is taken; what goes out is cut between
frames, in messages that are not too big for the strictest of clients."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.extensions.permessage_deflate import ServerPerMessageDeflateFactory
from websockets.frames import Frame, Opcode

from stompbox.server.transport import webframes
from stompbox.server.transport.webframes import MESSAGE, Frames, messages, whole_messages

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


def run_of(frame: Frame, times: int) -> list[Frame]:
    """Messages that are as long and begin alike; each says something else, where that is no question of UTF-8."""
    if not bytes(frame.data).isascii():
        return [frame] * times
    return [
        replace(
            frame,
            data=bytes(frame.data).translate(bytes((at + number) % 128 for at in range(128)) + bytes(128)),
        )
        for number in range(times)
    ]


RUNS = st.builds(run_of, FRAMES, st.sampled_from([1, 1, 2, 3, 5, 20, 150]))


def is_simple(frame: Frame) -> bool:
    if frame.opcode not in (Opcode.TEXT, Opcode.BINARY) or not frame.fin or len(frame.data) > LIMIT:
        return False
    try:
        frame.opcode is Opcode.TEXT and bytes(frame.data).decode()
    except UnicodeDecodeError:
        return False
    return True


@given(st.lists(RUNS, max_size=6), st.integers(0, 400), st.integers(1, 8) | st.integers(100, 400))
def test_the_simple_messages_at_the_front_are_taken_and_no_more(
    runs: list[list[Frame]], missing: int, most: int
) -> None:
    frames = list(itertools.chain.from_iterable(runs))
    simple = list(itertools.takewhile(is_simple, frames))[:most]
    octets = [serialized(frame) for frame in frames]
    data = b"".join(octets)
    data = data[: max(0, len(data) - missing)]
    ends = list(itertools.accumulate(map(len, octets)))
    there = [frame for frame, end in zip(simple, ends, strict=False) if end <= len(data)]
    found = whole_messages(b"before" + data, len(b"before"), most, LIMIT)
    assert found.messages == len(there)
    assert found.payload == b"".join(bytes(frame.data) for frame in there)
    assert found.stop == len(b"before") + ([0, *ends][len(there)])
    assert found.is_text is bool(there and there[-1].opcode is Opcode.TEXT)


@pytest.mark.parametrize("count", [1, 2, 3, 17, 18, 19, 145, 146, 147, 500])
def test_a_stream_of_messages_that_begin_alike_ends_where_one_does_not(count: int) -> None:
    stream = [b"%03d" % number for number in range(count)]
    octets = b"".join(serialized(Frame(Opcode.BINARY, payload)) for payload in stream)
    others = b"".join(serialized(Frame(Opcode.PING, b"abc")) for _ in range(2000))
    assert whole_messages(octets + others, 0, MOST, LIMIT) == (len(octets), count, b"".join(stream), False)


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
    assert whole_messages(octets, 0, 10, MOST) == (0, 0, b"", False)
    simple = Frame(Opcode.BINARY, b"1").serialize(mask=True)
    assert whole_messages(simple + octets + simple, 0, 10, MOST) == (len(simple), 1, b"1", False)


def test_compressed_messages_are_left() -> None:
    _, deflate = ServerPerMessageDeflateFactory().process_request_params([], [])
    octets = Frame(Opcode.TEXT, b"x" * 200).serialize(mask=True, extensions=[deflate])
    assert whole_messages(octets, 0, 10, MOST) == (0, 0, b"", False)


@given(st.lists(FRAMES, min_size=2, max_size=6), st.data())
def test_the_rest_of_a_frame_is_taken_without_those_behind_it(
    frames: list[Frame], data: st.DataObject
) -> None:
    octets = [serialized(frame) for frame in frames]
    cut = data.draw(st.integers(1, len(octets[0]) - 1))
    reader = Frames()
    reader.portion(octets[0][:cut], 0, 1, MOST)
    if not reader.is_within:  # its head is not whole, or it has no payload
        return
    assert reader.portion(octets[0][cut:] + b"".join(octets[1:]), 0, 0, MOST) == (len(octets[0]) - cut, 0, 0)
    assert reader.is_between


@given(st.lists(FRAMES, min_size=1, max_size=6), st.integers(0, 200))
def test_between_frames_is_where_the_last_one_has_ended(frames: list[Frame], missing: int) -> None:
    octets = [serialized(frame) for frame in frames]
    data = b"".join(octets)
    cut = max(0, len(data) - missing)
    reader = Frames()
    reader.portion(data[:cut], 0, MOST, MOST)
    assert reader.is_between is (cut in [0, *itertools.accumulate(map(len, octets))])


ODD = [b"\0\nMESSAGE\n\n\0\n", b"\n\n\0", b"x" * 5000, b"\0" * MESSAGE, b"y" * 20_000]
BODIES = st.one_of(st.binary(max_size=200), st.sampled_from(ODD))


def frame(body: bytes, *, counted: bool) -> bytes:
    length = b"content-length:%d\n" % len(body) if counted or b"\0" in body else b""
    lines = [b"subscription:1\n", b"colour:red\n"]
    lines.insert(len(body) % 3, length)  # last as a rule, elsewhere where a transformer wanted it so
    return b"MESSAGE\n%b\n%b\0\n" % (b"".join(lines), body)


def in_runs(runs: list[tuple[bytes, int]]) -> list[bytes]:
    """Each frame so many times, one behind the other."""
    return [one for one, times in runs for _ in range(times)]


FRAMES = st.builds(frame, BODIES, counted=st.booleans())
RUNS = st.lists(st.tuples(FRAMES, st.integers(1, 120)), max_size=8).map(in_runs)


@given(st.one_of(st.lists(FRAMES, max_size=30), RUNS))
def test_cut_between_frames_and_only_there(frames: list[bytes]) -> None:
    parts = list(messages(b"".join(frames)))
    assert b"".join(parts) == b"".join(frames)
    ends, at = {0}, 0
    for one in frames:
        at += len(one)
        ends.add(at)
    at = 0
    for part in parts:
        at += len(part)
        assert at in ends
        assert len(part) <= MESSAGE or part in frames
    # no more parts than need be
    assert all(len(one) + len(next) > MESSAGE for one, next in itertools.pairwise(parts) if one not in frames)


def test_a_body_that_looks_like_the_end_of_a_head_is_not_cut() -> None:
    """Its length is that of the frame before, whose line is looked for first: it counts where the head ends and nowhere else."""
    forged = b"x\ncontent-length:3000\n\n" + b"y" * 500 + b"\0\nMESSAGE\n\n"
    bodies = [b"a" * 3000, forged + b"z" * (3000 - len(forged)), forged * 5, b"", b"b" * 3000] * 3
    frames = [
        b"MESSAGE\nmessage-id:1-%d\ncontent-length:%d\n\n%b\0\n" % (n, len(body), body)
        for n, body in enumerate(bodies)
    ]
    parts = list(messages(b"\n".join(frames)))  # heart-beats between them
    assert b"".join(parts) == b"\n".join(frames)
    assert all(
        part.removeprefix(b"\n").startswith(b"MESSAGE\nmessage-id:") and part.rstrip(b"\n").endswith(b"\0")
        for part in parts
    )


@given(st.binary(max_size=3 * MESSAGE), st.integers(0, 3 * MESSAGE))
def test_pieces_of_a_large_frame_pass_whatever_they_hold(data: bytes, more: int) -> None:
    data += bytes(more)
    assert b"".join(messages(data)) == data
