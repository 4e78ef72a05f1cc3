"""A message as the application sees it."""

from __future__ import annotations

import pytest

from stompbox.client.message import Message, message_from_headers
from stompbox.errors import UsageError


def message(body: bytes = b"", **headers: str) -> Message:
    return message_from_headers(
        None, {name.replace("_", "-"): value for name, value in headers.items()}, body, None
    )


def test_properties() -> None:
    found = message(b"x", destination="/q", message_id="m1", content_type="text/csv", redelivered="true")
    assert (found.destination, found.id, found.content_type, found.is_redelivered) == (
        "/q",
        "m1",
        "text/csv",
        True,
    )
    empty = message()
    assert (empty.destination, empty.id, empty.content_type, empty.is_redelivered) == ("", "", None, False)
    assert repr(found) == "<Message m1 from /q body=1>"


@pytest.mark.parametrize(
    ("content_type", "body", "text"),
    [
        ("text/plain", "grün".encode(), "grün"),
        ("text/plain;charset=iso-8859-1", b"gr\xfcn", "grün"),
        ('text/plain; Charset="UTF-16"', "grün".encode("utf-16"), "grün"),
        ("", b"plain", "plain"),
    ],
)
def test_text(content_type: str, body: bytes, text: str) -> None:
    assert message(body, content_type=content_type).text == text


@pytest.mark.parametrize(
    ("content_type", "body"),
    [("text/plain", b"\xff"), ("text/plain;charset=klingon", b"x"), ("a/b;charset=undefined", b"x")],
)
def test_what_is_no_text(content_type: str, body: bytes) -> None:
    with pytest.raises(UsageError, match="no text in"):
        _ = message(body, content_type=content_type, message_id="m7").text


def test_json() -> None:
    assert message(b'{"a": [1, 2]}').json() == {"a": [1, 2]}


@pytest.mark.parametrize("body", [b"[" * 200_000, b"9" * 10_000, b"\xff\xfe\xff"])
def test_what_is_no_json(body: bytes) -> None:
    with pytest.raises(UsageError, match="the body of message 'm7' is no JSON"):
        message(body, message_id="m7").json()
