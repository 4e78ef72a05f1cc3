"""SEND frames as the client writes them, read back by the codec."""

from __future__ import annotations

import math
from enum import Enum, IntEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompbox.client.outgoing import decode_frame, encode_lines, encode_send, recode
from stompbox.errors import UsageError
from stompbox.stomp.versions import V10, V11, V12, VERSIONS, Version


class Colour(str, Enum):  # noqa: UP042 (what older code has)
    RED = "red"


class Number(IntEnum):
    SEVEN = 7


@pytest.mark.parametrize("version", VERSIONS.values(), ids=repr)
def test_plain_frame(version: Version) -> None:
    octets = encode_send(version, "/queue/a", b"hello", {"x": "1", "y": 2}, "receipt:7\n")
    assert octets == b"SEND\ndestination:/queue/a\nx:1\ny:2\nreceipt:7\ncontent-length:5\n\nhello\0\n"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", "a"),
        ("", ""),
        (0, "0"),
        (-5, "-5"),
        (1.5, "1.5"),
        (1e30, "1e+30"),
        (True, "true"),
        (False, "false"),
        (Colour.RED, "red"),
        (Number.SEVEN, "7"),
        (math.inf, "inf"),
    ],
)
def test_values_become_text(value: Any, text: str) -> None:
    assert decode_frame(encode_send(V12, "/q", b"", {"h": value}), V12).headers["h"] == text


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ({"h": None}, "header 'h' has a value of type NoneType; allowed are str, int, float and bool"),
        ({"h": b"x"}, "type bytes"),
        ({"h": [1]}, "type list"),
        ({1: "x"}, "header name 1"),
        ({"": "x"}, "header name ''"),
        ({b"h": "x"}, "header name b'h'"),
        ([("h", "x")], "headers must be a mapping"),
        ("h:x", "headers must be a mapping"),
        ({"receipt": "1"}, "'receipt' is written by the client; use confirm=True"),
        ({"destination": "1"}, "'destination'"),
        ({"transaction": "1"}, "client.transaction()"),
        ({"content-length": 1}, "'content-length'"),
        ({"h": "a\0b"}, "holds a NUL"),
        ({"h": "\ud800"}, "UTF-8"),
    ],
)
def test_wrong_headers_are_named(headers: Any, text: str) -> None:
    with pytest.raises(UsageError) as caught:
        encode_send(V12, "/q", b"", headers)
    assert text in caught.value.message


@pytest.mark.parametrize("destination", ["", None, 7, b"/q"])
def test_wrong_destination_is_named(destination: Any) -> None:
    with pytest.raises(UsageError, match="destination must be a str"):
        encode_send(V12, destination, b"", None)


@pytest.mark.parametrize("body", [None, 7, ("x",), {"x"}])
def test_wrong_body_is_named(body: Any) -> None:
    with pytest.raises(UsageError, match="body must be bytes, str, or a dict or list for JSON, not "):
        encode_send(V12, "/q", body, None)


@pytest.mark.parametrize(
    ("body", "octets"),
    [({"a": [1, None, "grün"]}, '{"a":[1,null,"grün"]}'.encode()), ([], b"[]"), ({}, b"{}")],
)
def test_a_dict_or_list_is_json(body: Any, octets: bytes) -> None:
    frame = decode_frame(encode_send(V12, "/q", body, None), V12)
    assert frame.body == octets
    assert frame.headers["content-type"] == "application/json"
    assert frame.headers["content-length"] == str(len(octets))
    own = decode_frame(encode_send(V12, "/q", body, {"content-type": "application/x"}), V12)
    assert own.headers["content-type"] == "application/x"


@pytest.mark.parametrize("body", [{"a": object()}, [float("nan")], [b"x"], {"a": "\ud800"}, {(1,): 2}])
def test_what_is_no_json(body: Any) -> None:
    with pytest.raises(UsageError, match="body cannot be written as JSON"):
        encode_send(V12, "/q", body, None)


def test_body_that_is_no_text() -> None:
    with pytest.raises(UsageError, match="body cannot be written"):
        encode_send(V12, "/q", "\ud800", None)


def test_text_has_a_type_and_no_length() -> None:
    frame = decode_frame(encode_send(V12, "/q", "grün", None), V12)
    assert frame.headers == {"destination": "/q", "content-type": "text/plain"}
    assert frame.body == "grün".encode()


def test_text_keeps_the_senders_type() -> None:
    frame = decode_frame(encode_send(V12, "/q", "{}", {"content-type": "application/json"}), V12)
    assert frame.headers["content-type"] == "application/json"


def test_text_with_a_nul_or_by_option_has_a_length() -> None:
    assert decode_frame(encode_send(V12, "/q", "a\0b", None), V12).headers["content-length"] == "3"
    assert (
        decode_frame(encode_send(V12, "/q", "ab", None, text_length=True), V12).headers["content-length"]
        == "2"
    )


@pytest.mark.parametrize("body", [b"a\0b", bytearray(b"a\0b"), memoryview(b"a\0b")])
def test_octets_have_a_length(body: Any) -> None:
    frame = decode_frame(encode_send(V12, "/q", body, None), V12)
    assert (frame.body, frame.headers["content-length"]) == (b"a\0b", "3")


@pytest.mark.parametrize("headers", [{"a:b": "x"}, {"a": "x\ny"}, {"a": "x\r"}])
def test_no_form_in_1_0(headers: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=r"1\.0 has no form"):
        encode_send(V10, "/q", b"", headers)


def test_colon_and_backslash_stand_for_themselves_in_1_0() -> None:
    assert b"\na:x:y\\z\n" in encode_send(V10, "/q", b"", {"a": "x:y\\z"})


def test_escapes_by_version() -> None:
    assert b"\na\\cb:x\\\\y\\nz\n" in encode_send(V11, "/q", b"", {"a:b": "x\\y\nz"})
    assert b"\na:x\\ry\n" in encode_send(V12, "/q", b"", {"a": "x\ry"})
    assert b"\na:x\ry\n" in encode_send(V11, "/q", b"", {"a": "x\ry"})


TEXT = st.text(st.characters(blacklist_characters="\0", blacklist_categories=("Cs",)), max_size=12)
NAME = TEXT.filter(lambda name: name not in ("", "destination", "receipt", "transaction", "content-length"))


@given(
    st.sampled_from([V11, V12]),
    TEXT.filter(bool),
    st.dictionaries(NAME, TEXT, max_size=5),
    st.binary(max_size=20),
)
def test_what_is_written_is_read_back(
    version: Version, destination: str, headers: dict[str, str], body: bytes
) -> None:
    if version is V11:  # it has no escape for a CR, and one before the line end is taken for a part of it
        headers = {
            name.replace("\r", ""): value.replace("\r", "")
            for name, value in headers.items()
            if name.replace("\r", "")
        }
        destination = destination.replace("\r", "") or "x"
        headers = {
            name: value
            for name, value in headers.items()
            if name not in ("destination", "receipt", "transaction", "content-length")
        }
    frame = decode_frame(encode_send(version, destination, body, headers, "receipt:1\n"), version)
    assert frame.headers == {
        "destination": destination,
        **headers,
        "receipt": "1",
        "content-length": str(len(body)),
    }
    assert frame.body == body


@given(st.sampled_from([V11, V12]), st.dictionaries(NAME, TEXT, max_size=5))
def test_quick_and_careful_way_write_the_same(version: Version, headers: dict[str, str]) -> None:
    careful = encode_lines({"destination": "/q", **headers}, version)
    assert encode_send(version, "/q", b"", headers) == f"SEND\n{careful}content-length:0\n\n\0\n".encode()


def test_a_frame_for_another_version() -> None:
    octets = encode_send(V12, "/q", b"x\0", {"a": "b:c"}, "receipt:1\n")
    assert recode(octets, V12, V12) is octets
    assert decode_frame(recode(octets, V12, V10), V10) == decode_frame(octets, V12)
    assert b"a:b:c\n" in recode(octets, V12, V10)
