"""JSON is read as `json` reads it, with the line of each value, and refused with the line of the mistake."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompbox.conversion.places import DEEPEST, read
from stompbox.errors import ConfigError

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(), VALUES, max_size=4), st.sampled_from([None, 1]))
def test_it_says_what_json_says(value: dict[str, Any], indent: int | None) -> None:
    text = json.dumps(value, indent=indent)
    assert read(text.encode(), "f") == json.loads(text)


def test_lines_of_values() -> None:
    root = read(b'\xef\xbb\xbf{\n"a": 1, "b":\n[{"c": "x\\ny"}, {\n}]}', "f")
    assert root.lines == {"a": 2, "b": 3}
    assert [one.line for one in root.objects("b")] == [3, 3]
    assert root.objects("b")[0].text("c") == "x\ny"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", "^f:1: not JSON: it ends too early"),
        (b"[]", r"^f:1: expected an object, not \[\]"),
        (b'{"a"\n 1}', "^f:2: not JSON: expected :"),
        (b'{"a": 1\n "b": 2}', "^f:2: not JSON: expected , or }"),
        (b'{"a": [1,\n\n]}', "^f:3: not JSON: a value is missing before ]"),
        (b'{"a": nix}', "^f:1: not JSON: a value is missing"),
        (b'{"a": "b', "^f:1: not JSON: unterminated string"),
        (b'{"a": 1,\n"b": [2]\n', "^f:3: not JSON: it ends too early"),
        (b'{"a": [2\n', "^f:2: not JSON: it ends too early"),
        (b'{"a": 1,', "^f:1: not JSON: it ends too early"),
        (b'{"a"', "^f:1: not JSON: it ends too early"),
        (b'{"a":', "^f:1: not JSON: it ends too early"),
        (b"{", "^f:1: not JSON: it ends too early"),
        (b'{"a":\n01}', "^f:2: not JSON: '01' is no value"),
        (b'{"a": -01}', "^f:1: not JSON: '-01' is no value"),
        (b"{a: 1}", "^f:1: not JSON: expected a name in quotes"),
        (b'{}\n{"a"', "^f:2: not JSON: there is more after its end"),
        (b'{"a":\n"\xff"}', "^f:2: not JSON: byte 7 is not UTF-8"),
        (b'{"a":' + b"[" * DEEPEST, f"^f:1: not JSON: nested deeper than {DEEPEST}"),
    ],
)
def test_what_is_refused(text: bytes, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        read(text, "f")
