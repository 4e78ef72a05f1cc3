"""Dictionaries that share what is empty."""

from __future__ import annotations

import pytest

from stompbox.broker.sparse import NONE, NOTHING, put, without


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


def test_what_all_share_takes_nothing() -> None:
    empty, items = NONE, NOTHING
    with pytest.raises(TypeError, match="takes nothing"):
        empty["a"] = 1
    with pytest.raises(TypeError, match="takes nothing"):
        empty |= {"a": 1}
    for add in (NOTHING.append, NOTHING.extend, NONE.update, NONE.setdefault):
        with pytest.raises(TypeError, match="takes nothing"):
            add([])
    with pytest.raises(TypeError, match="takes nothing"):
        NOTHING.insert(0, 1)
    with pytest.raises(TypeError, match="takes nothing"):
        items += [1]
    assert (NONE, NOTHING) == ({}, [])
