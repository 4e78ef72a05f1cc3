"""How headers look on the wire where a version has no form for them, and what is refused rather than written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompbox.errors import FrameError, UsageError
from stompbox.stomp.codec import Decoder, encode, encode_headers, escape, parse_head, unescape
from stompbox.stomp.frames import SERVER_COMMANDS, Frame
from stompbox.stomp.versions import V10, V11, V12, Version

# text, then its form as a value in 1.0, 1.1, 1.2
VALUES = (
    ("plain", "plain", "plain", "plain"),
    ("", "", "", ""),
    ("a\\b", "a\\b", "a\\\\b", "a\\\\b"),
    ("a:b", "a:b", "a\\cb", "a\\cb"),
    ("a\nb", "a\\nb", "a\\nb", "a\\nb"),  # 1.0 has no form: its escape as characters, never the octet
    ("a\rb", "a\rb", "a\rb", "a\\rb"),
    ("ab\r", "ab\\r", "ab\\\\r", "ab\\r"),  # the receiver would take a CR at the end for a line end
    ("\r", "\\r", "\\\\r", "\\r"),
    ("a\r\n", "a\r\\n", "a\r\\n", "a\\r\\n"),
    ("\n\r", "\\n\\r", "\\n\\\\r", "\\n\\r"),
    (" padded ", " padded ", " padded ", " padded "),  # STOMP 1.1: never trim or pad
    ("☕", "☕", "☕", "☕"),
    ("a\tb\x0b\x85\u2028", "a\tb\x0b\x85\u2028", "a\tb\x0b\x85\u2028", "a\tb\x0b\x85\u2028"),
)
NAMES = (
    ("a:b", "a\\cb", "a\\cb", "a\\cb"),  # 1.0: a colon would end the name
    ("a\nb", "a\\nb", "a\\nb", "a\\nb"),
    ("a\\b", "a\\b", "a\\\\b", "a\\\\b"),
    ("a\r", "a\\r", "a\\\\r", "a\\r"),
)
ROWS = [
    (text, form, version)
    for text, *forms in VALUES
    for form, version in zip(forms, (V10, V11, V12), strict=True)
]
NAME_ROWS = [
    (text, form, version)
    for text, *forms in NAMES
    for form, version in zip(forms, (V10, V11, V12), strict=True)
]


@pytest.mark.parametrize(("text", "form", "version"), ROWS)
def test_value_as_written(text: str, form: str, version: Version) -> None:
    assert escape(text, version) == form
    assert encode_headers({"name": text}, version) == f"name:{form}\n".encode()


@pytest.mark.parametrize(("text", "form", "version"), NAME_ROWS)
def test_name_as_written(text: str, form: str, version: Version) -> None:
    assert escape(text, version, is_name=True) == form
    assert encode_headers({text: "value"}, version) == f"{form}:value\n".encode()


@pytest.mark.parametrize("version", [V10, V11, V12])
def test_what_no_header_can_hold_is_replaced_and_breaks_nothing(version: Version) -> None:
    """Such texts come from elsewhere than the wire: another protocol, or a program that writes to the store."""
    assert (
        encode_headers({"a\0": "b\0c", "": "d", "e": "\ud800"}, version)
        == "a\ufffd:b\ufffdc\n\ufffd:d\ne:?\n".encode()
    )


def test_a_value_of_1_1_cannot_inject_a_header_into_1_0() -> None:
    decoder = Decoder()
    decoder.version = V11
    (frame,) = decoder.receive(b"SEND\na:x\\nadmin\\ctrue\n\n\0")
    assert isinstance(frame, Frame)
    assert frame.headers == {"a": "x\nadmin:true"}
    assert encode(Frame("MESSAGE", frame.headers), V10) == b"MESSAGE\na:x\\nadmin:true\n\n\0\n"


def test_a_value_of_1_0_that_looks_escaped_stays_what_it_is() -> None:
    """1.0 has no escapes, so the backslash is one, and a 1.2 client must read one."""
    _, headers = parse_head(rb"SEND" + b"\n" + rb"a:x\ny", V10, {b"SEND": "SEND"}, 10)
    assert headers == {"a": "x\\ny"}
    assert encode_headers(headers, V12) == b"a:x\\\\ny\n"
    assert encode_headers(headers, V10) == b"a:x\\ny\n"


@pytest.mark.parametrize("command", ["CONNECT", "STOMP", "CONNECTED"])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("a", "b\nc"),
        ("a", "b\rc"),
        ("a", "b\r"),
        ("a", "b\0"),
        ("a:b", "c"),
        ("a\nb", "c"),
        ("", "c"),
        ("a", "\udc80"),
        ("\r", ""),
    ],
)
def test_what_a_raw_frame_cannot_say_is_refused(command: str, name: str, value: str) -> None:
    with pytest.raises(UsageError, match="has no form") as refusal:
        encode(Frame(command, {"host": "x", name: value}), V12)
    assert refusal.value.code == "unencodable-header"
    assert repr(name) in refusal.value.message


def test_refusal_of_a_passcode_does_not_show_it() -> None:
    with pytest.raises(UsageError) as refusal:
        encode(Frame("CONNECT", {"passcode": "secret\n"}), V12)
    assert "secret" not in refusal.value.message
    assert "passcode" in refusal.value.message


def test_raw_frames_keep_colons_and_backslashes() -> None:
    assert encode(Frame("CONNECT", {"passcode": ":=1\\n"}), V12) == b"CONNECT\npasscode::=1\\n\n\n\0\n"


@pytest.mark.parametrize("version", [V10, V11, V12])
def test_a_body_with_a_nul_gets_its_length(version: Version) -> None:
    """STOMP 1.2, Header content-length: MUST, or the rest of the body is read as another frame."""
    data = encode(Frame("MESSAGE", {"a": "b"}, b"x\0DISCONNECT\n\n\0"), version)
    decoder = Decoder(SERVER_COMMANDS)
    decoder.version = version
    assert list(decoder.receive(data)) == [
        Frame("MESSAGE", {"a": "b", "content-length": "15"}, b"x\0DISCONNECT\n\n\0")
    ]


def test_a_body_without_nul_gets_no_length_that_nobody_asked_for() -> None:
    """The flag had-content-length decides bytes or text for a 1.0 client of a JMS broker, so the caller must have the last word."""
    assert encode(Frame("MESSAGE", {}, b"x"), V10) == b"MESSAGE\n\nx\0\n"
    assert (
        encode(Frame("MESSAGE", {"content-length": "1"}, b"\0"), V10)
        == b"MESSAGE\ncontent-length:1\n\n\0\0\n"
    )


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (b"SEDN\na:b", ["unknown command 'SEDN'", "SEND"]),
        (b"SEND\nabc", ["'abc'", "SEND", "no colon"]),
        (b"SEND\n:abc", ["':abc'", "SEND", "no name"]),
        (b"SEND\na:b\\t", ["'\\\\t'", "SEND", "1.2"]),
        (b"SEND\na:\xff", ["'a'", "SEND", "UTF-8"]),
        (b"SEND\na:b\rc", ["'a'", "SEND", "CR"]),
        (b"SEND\na:b\na:b\na:b\na:b", ["4 headers", "SEND", "limit is 3"]),
        (b"X" * 500, ["'" + "X" * 80 + "'…"]),
    ],
)
def test_faults_say_what_and_where(head: bytes, words: list[str]) -> None:
    with pytest.raises(FrameError) as fault:
        parse_head(head, V12, {b"SEND": "SEND"}, 3)
    for word in words:
        assert word in fault.value.message


def test_unescape_alone() -> None:
    assert unescape(rb"\\\n\c", V11, "SEND") == b"\\\n:"
    assert unescape(b"plain", V10, "SEND") == b"plain"
    with pytest.raises(FrameError, match=r"STOMP 1\.1"):
        unescape(rb"\r", V11, "SEND")


@given(st.lists(st.sampled_from([b"\\", b"\\\\", b"c", b"n", b"r", b"\n", b":", b"t", b"x"]), max_size=12))
def test_unescape_goes_from_the_left(pieces: list[bytes]) -> None:
    """As one who reads octet by octet would: each backslash that is none itself has one octet behind it, which the version knows."""
    text = b"".join(pieces)
    for version in (V11, V12):
        meant, at, is_known = b"", 0, True
        while at < len(text) and is_known:
            escaped = text[at + 1 : at + 2] if text[at : at + 1] == b"\\" else None
            is_known = escaped is None or escaped in version.escapes
            meant += text[at : at + 1] if escaped is None else version.escapes.get(escaped, b"")
            at += 1 if escaped is None else 2
        if is_known:
            assert unescape(text, version, "SEND") == meant
        else:
            with pytest.raises(FrameError, match="undefined escape"):
                unescape(text, version, "SEND")
