"""Long JSON says what it says to `json`, and is read and written in steps of few items."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompbox.selectors.steps import result
from stompbox.server.requests import jsontext
from stompbox.server.requests.jsontext import (
    AT_ONCE,
    BATCH,
    DEEP,
    STEP,
    Container,
    emptying,
    reading,
    writing,
)

SPACE = " " * AT_ONCE  # makes a text long
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=4), inner, max_size=6),
    max_leaves=30,
)


@given(VALUES, st.sampled_from([None, 1]), st.booleans())
def test_what_is_read_is_what_json_reads(value: Any, indent: int | None, is_ascii: bool) -> None:
    text = SPACE + json.dumps(value, indent=indent, ensure_ascii=is_ascii) + "\n"
    assert result(reading(text, [])) == value
    assert result(reading(text.encode(), [])) == value


@given(VALUES)
def test_what_is_written_is_what_json_writes(value: Any) -> None:
    assert b"".join(result(writing(value))) == json.dumps(value, separators=(",", ":")).encode()


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[", "]", "}", "{]", "[}", "[1 2]", "[1,,2]", "[,1]", '{"a"}', '{"a" 1}', '{"a":}', '{"a":1 "b":2}', "{1:2}",
        '{,"a":1}', '{"a":1}}', "[1] 2", "nul", "01", "[1", '{"a":1', '"a', '["\n"]', '{"a":1,b:2}', "\ufeff[]", "+1",
        "-", "{'a':1}", '{"\\x":1}',
    ],
)  # fmt: skip
def test_what_json_refuses_is_refused_with_the_same_words(text: str) -> None:
    with pytest.raises(ValueError) as expected:
        json.loads(SPACE + text)
    if text == "\ufeff[]":  # json says more of it where it begins the text
        with pytest.raises(ValueError):
            result(reading(SPACE + text, []))
        return
    with pytest.raises(ValueError) as found:
        result(reading(SPACE + text, []))
    assert str(found.value) == str(expected.value)


@pytest.mark.parametrize("text", ["[1,]", '{"a":1,}'])
def test_a_comma_too_many_is_refused(text: str) -> None:
    """Each Python has words of its own for it."""
    with pytest.raises(ValueError):
        result(reading(SPACE + text, []))


def test_octets_that_are_no_text_are_refused() -> None:
    with pytest.raises(ValueError):
        result(reading(b"\xff" + b" " * AT_ONCE, []))


@pytest.mark.parametrize("one", ["[", '{"a":'])
def test_what_is_nested_too_deep_is_refused(one: str) -> None:
    with pytest.raises(RecursionError):
        result(reading(SPACE + one * (DEEP + 1), []))


@pytest.mark.parametrize(
    "text",
    ['[1, 2 , "x","y\\n", [1,2],[3 ,"a"],[[4]],{"a":[]},-1.5e3,true, 7]', '{"a":1 , "b" : [1,2], "c\\n":2, "d": {"e":1},"f":"g","b":3}'],
)  # fmt: skip
def test_short_and_long_items_stand_in_their_order(text: str) -> None:
    found = result(reading(SPACE + text, []))
    expected = json.loads(text)
    assert found == expected and list(found) == list(expected)


@pytest.mark.parametrize("item", ["[{}, 1]", '"a\\n"', '"x"', "7", "{}"])
def test_no_step_reads_many_items(monkeypatch: pytest.MonkeyPatch, item: str) -> None:
    """However long the text is, and whether its items are short or not."""
    count = 3000
    text = json.dumps({"list": ["ITEM"] * count, "names": {f"n{n}": "ITEM" for n in range(count)}})
    text = text.replace('"ITEM"', item)
    expected, read, loads, scalar = json.loads(text), [0], json.loads, jsontext._scalar

    def counted_batch(text: str) -> Any:
        found = loads(text)
        read[-1] += len(found)
        return found

    def counted(text: str, at: int) -> Any:
        read[-1] += 1
        return scalar(text, at)

    monkeypatch.setattr(json, "loads", counted_batch)
    monkeypatch.setattr(jsontext, "_scalar", counted)
    steps = reading(text, [])
    found = None
    try:
        while True:
            next(steps)
            read.append(0)
    except StopIteration as done:
        found = done.value
    assert found == expected
    assert max(read) <= STEP + BATCH
    assert len(read) >= 2 * count // BATCH


def test_no_step_writes_many_items() -> None:
    count = 3000
    value = {"list": list(range(count)), "names": {f"n{n}": [n, "x"] for n in range(count)}}
    assert sum(1 for _ in writing(value)) >= 4 * count // STEP


@given(st.lists(st.lists(VALUES, max_size=9) | st.dictionaries(st.text(max_size=4), VALUES), max_size=5))
def test_all_is_taken_out_of_what_is_emptied(containers: list[Container]) -> None:
    outermost = list(containers)
    for _ in emptying(containers):
        pass
    assert not containers
    assert not any(outermost)


@pytest.mark.parametrize("end", ["]", "", "] x"])
def test_what_was_read_goes_in_steps_of_few_items_also_where_it_is_wrong(end: str) -> None:
    count = 20 * BATCH
    text = "[" + ",".join([f'["name.{n}",{n}]' for n in range(count)]) + end
    kept: list[Container] = []
    try:
        result(reading(text, kept))
    except ValueError:
        assert end != "]"
    (found,) = kept
    assert isinstance(found, list) and len(found) == count
    left = [len(found)]
    for _ in emptying(kept):
        left.append(len(found))
    assert len(left) > 3 * 20 - 2  # each of these has two more in it
    assert max([before - after for before, after in itertools.pairwise(left)]) <= BATCH
    assert not found
