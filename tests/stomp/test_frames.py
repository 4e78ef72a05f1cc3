"""Frames as values: equality, and a repr that one line of a log can hold."""

from __future__ import annotations

import pytest

from stompbox.stomp.frames import CLIENT_COMMANDS, COMMANDS_WITH_BODY, RAW_COMMANDS, SERVER_COMMANDS, Frame


def test_frames_are_equal_by_what_they_say() -> None:
    frame = Frame("SEND", {"a": "b"}, b"c")
    assert frame == Frame("SEND", {"a": "b"}, b"c")
    for other in (
        Frame("ACK", {"a": "b"}, b"c"),
        Frame("SEND", {"a": "x"}, b"c"),
        Frame("SEND", {"a": "b"}, b"x"),
        "SEND",
    ):
        assert frame != other


def test_a_frame_is_no_key() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(Frame("SEND", {}))


def test_repr_shows_neither_body_nor_passcode() -> None:
    shown = repr(Frame("CONNECT", {"login": "guest", "passcode": "secret"}, b"body"))
    assert shown == "<CONNECT login:'guest' passcode:… body=4>"


def test_repr_is_one_line_whatever_the_headers_say() -> None:
    shown = repr(Frame("SEND", {"a\nb": "c\r\nd", "e\x1b[31m": ""}))
    assert shown.isprintable()
    assert shown == "<SEND 'a\\nb':'c\\r\\nd' 'e\\x1b[31m':'' body=0>"


def test_no_command_belongs_to_both_sides() -> None:
    assert not CLIENT_COMMANDS & SERVER_COMMANDS
    assert COMMANDS_WITH_BODY < CLIENT_COMMANDS | SERVER_COMMANDS
    assert RAW_COMMANDS < CLIENT_COMMANDS | SERVER_COMMANDS
