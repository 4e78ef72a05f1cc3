"""Dictionaries that share what is empty."""

from __future__ import annotations

from stompbox.broker.sparse import NONE, put, without


def test_the_first_entry_makes_a_dictionary() -> None:
    one, other = put(NONE, "a", 1), put(NONE, "b", 2)
    assert (one, other) == ({"a": 1}, {"b": 2})
    assert put(one, "c", 3) is one
    assert one == {"a": 1, "c": 3}
    assert not NONE


def test_the_last_entry_gives_it_up() -> None:
    there = put(put(NONE, "a", 1), "b", 2)
    assert without(there, "a") is there
    assert without(there, "b") is NONE


def test_what_is_not_there_need_not_go() -> None:
    there = put(NONE, "a", 1)
    assert without(there, "b") is there
    assert without(NONE, "b") is NONE
    assert there == {"a": 1}
