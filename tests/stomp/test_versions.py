"""The table of what differs, against the texts."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields

import pytest

from stompbox.stomp.versions import SUPPORTED, V10, V11, V12, VERSIONS, Version

# what the specifications say: 1.0, 1.1, 1.2
EXPECTED = {
    "name": ("1.0", "1.1", "1.2"),
    "escapes": (
        {},
        {b"n": b"\n", b"c": b":", b"\\": b"\\"},
        {b"n": b"\n", b"c": b":", b"\\": b"\\", b"r": b"\r"},
    ),
    "trims": (True, False, False),
    "bare_cr": (True, True, False),
    "closes_on_error": (False, False, True),
    "may_nack": (False, True, True),
    "needs_subscription_id": (False, True, True),
    "ack_header": ("message-id", "message-id", "id"),
    "ack_needs_subscription": (False, True, False),
    "sends_ack_id": (False, False, True),
    "heart_beats": (False, True, True),
    "may_ignore_bodies": (True, False, False),
}


@pytest.mark.parametrize("field", [field.name for field in fields(Version)])
def test_table_says_what_the_specifications_say(field: str) -> None:
    assert tuple(getattr(version, field) for version in (V10, V11, V12)) == EXPECTED[field]


def test_versions_are_found_by_name_from_lowest_to_highest() -> None:
    assert list(VERSIONS.items()) == [("1.0", V10), ("1.1", V11), ("1.2", V12)]
    assert SUPPORTED == "1.0,1.1,1.2"
    assert repr(V12) == "<STOMP 1.2>"


def test_table_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        V12.trims = True  # type: ignore[misc]
    with pytest.raises(TypeError):
        V12.escapes[b"t"] = b"\t"  # type: ignore[index]
