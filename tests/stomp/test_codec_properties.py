"""What must hold for any frame and any bytes: writing then reading is the identity, cuts do not matter, only FrameError is raised."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stompbox.stomp.codec import Decoder, FrameLimits, encode, encode_headers
from stompbox.stomp.frames import CLIENT_COMMANDS, COMMANDS_WITH_BODY, RAW_COMMANDS, SERVER_COMMANDS, Frame
from stompbox.stomp.versions import V10, V11, V12, VERSIONS, Version
from tests.stomp.test_codec import read

ESCAPABLE = sorted((CLIENT_COMMANDS | SERVER_COMMANDS) - RAW_COMMANDS)

# All of Unicode that has a UTF-8 form, with the octets that matter to STOMP drawn far more often
common = st.sampled_from("\n\r:\\cnr \t\x0b\x85\u2028aé☕")
characters = st.one_of(common, st.characters(exclude_categories=("Cs",), exclude_characters="\0"))
texts = st.text(characters, max_size=12)
headers = st.dictionaries(texts.filter(lambda name: name not in ("", "content-length")), texts, max_size=6)
bodies = st.one_of(
    st.binary(max_size=40),
    st.lists(st.sampled_from([b"\0", b"\n", b"SEND\n\n\0", b"x"]), max_size=6).map(b"".join),
)

STREAM_PARTS = (
    *(
        b"SEND\n",
        b"MESSAGE\n",
        b"CONNECT\n",
        b"ACK\n",
        b"SEND\r\n",
        b"send\n",
        b"DISCONNECT\n\n\0",
        b"SEND\ndestination:/queue/a\n\nhi\0",
    ),
    *(b"content-length:", b"content-length:0\n", b"content-length:3\n", b"content-length:-1\n", b"3"),
    *(
        b"\n",
        b"\r\n",
        b"\n\n",
        b"\0",
        b"\r",
        b":",
        b"a:b\n",
        b"a:\\n\n",
        b"a:\\t\n",
        b"\\",
        b" ",
        b"\xff",
        "é".encode(),
        b"\0\n",
        b"xyz\0",
    ),
)
streams = st.one_of(
    st.binary(max_size=200), st.lists(st.sampled_from(STREAM_PARTS), max_size=20).map(b"".join)
)
versions = st.sampled_from(list(VERSIONS.values()))


def decoder_of(
    version: Version,
    commands: frozenset[str] = CLIENT_COMMANDS | SERVER_COMMANDS,
    limits: FrameLimits | None = None,
) -> Decoder:
    decoder = Decoder(commands, limits or FrameLimits())
    decoder.version = version
    return decoder


def has_form_in_1_0(frame: Frame) -> bool:
    values = list(frame.headers.values())
    return (
        has_form_in_1_1(frame)
        and not any("\n" in text for pair in frame.headers.items() for text in pair)
        and not any(":" in name for name in frame.headers)
        and all(value == value.strip(" \t") for value in values)
    )


def has_form_in_1_1(frame: Frame) -> bool:
    return not any(text.endswith("\r") for pair in frame.headers.items() for text in pair)


@st.composite
def frames(draw: st.DrawFn) -> Frame:
    command = draw(st.sampled_from(ESCAPABLE))
    found = draw(headers)
    body = draw(bodies) if command in COMMANDS_WITH_BODY else b""
    if b"\0" in body or draw(st.booleans()):
        found["content-length"] = str(len(body))
    return Frame(command, found, body)


def pieces_of(data: bytes, cuts: list[int]) -> list[bytes]:
    return [
        data[start:stop]
        for start, stop in pairwise([0, *sorted(min(cut, len(data)) for cut in cuts), len(data)])
    ]


@given(st.lists(frames(), max_size=4))
@example([Frame("SEND", {"\\c:\n\r": "\r\n:\\", "content-length": "1"}, b"\0")])
def test_written_then_read_is_the_identity_in_1_2(found: list[Frame]) -> None:
    data = b"".join([encode(frame, V12) for frame in found])
    decoder = decoder_of(V12)
    assert read(decoder, [data]) == (found, None)
    assert decoder.pending == 0


@given(st.lists(frames().filter(has_form_in_1_1), max_size=4))
def test_written_then_read_is_the_identity_in_1_1(found: list[Frame]) -> None:
    assert read(decoder_of(V11), [b"".join([encode(frame, V11) for frame in found])]) == (found, None)


@given(st.lists(frames().filter(has_form_in_1_0), max_size=4))
def test_written_then_read_is_the_identity_in_1_0_for_what_has_a_form(found: list[Frame]) -> None:
    assert read(decoder_of(V10), [b"".join([encode(frame, V10) for frame in found])]) == (found, None)


@given(frames(), versions)
def test_whatever_is_written_is_one_frame_with_that_body(frame: Frame, version: Version) -> None:
    """No header value, however hostile, ends its line or its frame."""
    events, code = read(decoder_of(version), [encode(frame, version)])
    assert code is None
    (event,) = events
    assert isinstance(event, Frame)
    assert (event.command, event.body) == (frame.command, frame.body)
    assert len(event.headers) <= len(frame.headers)


@given(st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=6), versions)
def test_headers_of_any_text_at_all_are_written_as_whole_lines(
    found: dict[str, str], version: Version
) -> None:
    """Also with NULs, lone surrogates and empty names, which no header can hold."""
    data = encode_headers(found, version)
    lines = data.split(b"\n")
    assert len(lines) == len(found) + 1
    assert lines[-1] == b""
    assert b"\0" not in data
    assert all(b":" in line and not line.startswith(b":") and not line.endswith(b"\r") for line in lines[:-1])
    read_back = read(decoder_of(version), [b"SEND\n" + data + b"\n\0"])
    assert read_back[1] is None


@given(streams, versions, st.lists(st.integers(0, 200), max_size=8), st.booleans())
@example(b"\r\n\r", V12, [1, 2], False)
@example(b"SEND\ncontent-length:3\n\nxyz\0", V12, [24, 26], True)
def test_cuts_do_not_matter(data: bytes, version: Version, cuts: list[int], logged_in: bool) -> None:
    results = []
    for pieces in ([data], pieces_of(data, cuts), [data[at : at + 1] for at in range(len(data))]):
        decoder = decoder_of(
            version, CLIENT_COMMANDS, FrameLimits(head=60, headers=3, body=30, before_login=50)
        )
        decoder.logged_in = logged_in
        results.append((read(decoder, pieces), decoder.pending))
    first = results[0]
    for other in results[1:]:
        assert other[0] == first[0]
        if first[0][1] is None:  # what is kept after a fault is of no interest
            assert other[1] == first[1]


@given(st.lists(st.binary(max_size=60), max_size=10), versions)
def test_random_bytes_raise_nothing_but_frame_error_and_never_outgrow_the_limits(
    pieces: list[bytes], version: Version
) -> None:
    limits = FrameLimits(head=50, headers=3, body=30, before_login=50)
    decoder = decoder_of(version, CLIENT_COMMANDS, limits)
    for piece in pieces:
        _, code = read(decoder, [piece])
        if code is not None:
            break
        assert decoder.pending <= limits.head + 4 + limits.body


@given(streams, versions)
def test_what_was_read_can_be_written_and_read_again(data: bytes, version: Version) -> None:
    """A message that came in goes out again with the same meaning, to a client of the same version."""
    events, _ = read(decoder_of(version), [data])
    for event in events:
        assert isinstance(event, Frame)
        if event.command in RAW_COMMANDS or (version is not V12 and not has_form_in_1_1(event)):
            continue
        again, code = read(decoder_of(version), [encode(event, version)])
        assert (again, code) == ([event], None)


@given(frames(), st.sampled_from([(V12, V11), (V12, V10), (V11, V10), (V10, V12), (V11, V12)]))
def test_a_frame_of_one_version_goes_to_another_with_its_body_and_names_unbroken(
    frame: Frame, ways: tuple[Version, Version]
) -> None:
    source, target = ways
    (event,), _ = read(decoder_of(source), [encode(frame, source)])
    assert isinstance(event, Frame)
    (passed,), code = read(decoder_of(target), [encode(event, target)])
    assert code is None
    assert isinstance(passed, Frame)
    assert passed.body == frame.body
    for name, value in passed.headers.items():
        assert "\n" not in name + value or target is not V10


@pytest.mark.parametrize("version", VERSIONS.values(), ids=list(VERSIONS))
def test_frames_without_number_come_back(version: Version) -> None:
    found = [
        Frame("SEND", {"destination": f"/queue/{at}", "n": str(at)}, str(at).encode()) for at in range(2000)
    ]
    data = b"".join([encode(frame, version) for frame in found])
    for size in (1 << 20, 4096, 97):
        pieces = [data[at : at + size] for at in range(0, len(data), size)]
        assert read(decoder_of(version), pieces) == (found, None)
