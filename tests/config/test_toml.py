"""Where each key of a TOML file stands, what is said of broken files, and the way back to text."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompbox.config.toml import DEEP, Path, Scanner, read, write
from stompbox.errors import ConfigError

# Every value is the number of the line on which its key, or as an element itself, stands.
PLACES = {
    "keys": "a = 1 # x\n\"b c\" = 2\n\n# a = 9\n'd.e' = 5\n",
    "dotted keys": "a.b.c = 1\na . d = 2\na.'x.y'.z = 3",
    "tables": '[a]\nb = 2\n[a.c] # [x]\nd = 4\n [ e . "f.g" ]\nh = 6\n',
    "arrays of tables": "[[a]]\nb = 2\n[[a]]\nb = 4\n[[a.c]]\nd = 6\n[a.e]\nf = 8\n[[a]]\n[[a.c]]\nd = 11\n[[a.c]]\nd = 13",
    "arrays": "a = [ 1, 1,\n 2, # 5, ]\n\n 4\n]\nb = 6",
    "nested arrays": "a = [[1, 1], [\n2,\n3]]\nb = 4",
    "inline tables": "a = {b = 1, c.d = 1, e = {f = 1}}\ng = [{h = 2},\n {h = 3}]",
    "line ends": "a = 1\r\nb = 2\r\n[c]\r\nd = 4\r\n",
}


def leaves(value: Any, path: Path = ()) -> dict[Path, Any]:
    if isinstance(value, dict):
        return {
            place: leaf for name, item in value.items() for place, leaf in leaves(item, (*path, name)).items()
        }
    if isinstance(value, list):
        return {
            place: leaf
            for index, item in enumerate(value)
            for place, leaf in leaves(item, (*path, index)).items()
        }
    return {path: value}


@pytest.mark.parametrize("text", PLACES.values(), ids=PLACES.keys())
def test_the_line_of_each_key(text: str) -> None:
    content, lines = read(text, "x.toml")
    assert {place: lines[place] for place in leaves(content)} == leaves(content)


def test_the_line_of_tables_and_lists() -> None:
    _, lines = read('x = 1\n[a.b]\n[[c]]\n\n[[c]]\nd = [\n"e"]\n', "x.toml")
    expected = {
        ("a",): 2,
        ("a", "b"): 2,
        ("c",): 3,
        ("c", 0): 3,
        ("c", 1): 5,
        ("c", 1, "d"): 6,
        ("c", 1, "d", 0): 7,
    }
    assert {place: lines[place] for place in expected} == expected


@pytest.mark.parametrize(
    "value",
    [
        '"a \\" # ] } = \\\\"',
        "'a \\'",
        '"""a\n\\" "" b = 1\n# c\n"""',
        '"""\na\\\n  b\\""""',
        '"""a"""""',
        "'''a\n'b'\n'''''",
        '""',
        "''",
        '""""""',
        "2001-01-01 10:00:00Z # x",
        "[ # x\n]",
        "[1, [2, '#', \"]\"], {a = '}'}]",
        "{}",
        "-1_000.5e3",
    ],
)
def test_a_value_of_any_kind_ends_where_it_ends(value: str) -> None:
    content, lines = read(f"a = {value}\nlast = 1\n[t]\nx = 2", "x.toml")
    assert content["last"] == 1 and content["t"] == {"x": 2}
    after = 1 + value.count("\n") + 1
    assert (lines[("a",)], lines[("last",)], lines[("t",)], lines[("t", "x")]) == (
        1,
        after,
        after + 1,
        after + 2,
    )


names = st.text("ab-_", min_size=1, max_size=3) | st.sampled_from(["a.b", "c d", 'e"f', "", "ü", "#"])
scalars = (
    st.integers(-(2**40), 2**40)
    | st.booleans()
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3).filter(
        lambda items: not all(isinstance(i, dict) for i in items)
    ),
)
trees = st.recursive(
    st.dictionaries(names, values, max_size=3),
    lambda inner: st.dictionaries(
        names, values | inner | st.lists(inner, min_size=1, max_size=3), max_size=4
    ),
    max_leaves=8,
)


@given(trees)
def test_what_is_written_is_read_again(tree: dict[str, Any]) -> None:
    text = write(tree)
    assert tomllib.loads(text) == tree
    lines = Scanner(text).lines()
    assert set(leaves(tree)) <= set(lines)
    assert max([0, *lines.values()]) <= text.count("\n") + 1


def test_what_is_none_is_left_out_and_notes_are_comments() -> None:
    content = {"a": 1, "b": None, "t": {"c": 2}, "u": [{"d": 3}, {"d": 4}]}
    notes: dict[Path, str] = {("a",): "x:1", ("t", "c"): "x:2", ("u",): "y", ("u", 1, "d"): "x:9"}
    expected = "a = 1  # x:1\n\n[t]\nc = 2  # x:2\n\n[[u]]  # y\nd = 3\n\n[[u]]  # y\nd = 4  # x:9\n"
    assert write(content, notes) == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a = 1\nb = \n", "x.toml:2: not TOML: invalid value"),
        ("a = 1\na = 2\n", "x.toml:2: not TOML: cannot overwrite a value"),
        ("a = 1\nb = [1,\n", "x.toml:2: not TOML: invalid value"),
        ("[a\n", "x.toml:1: not TOML: expected ']' at the end of a table declaration"),
        ("a = 'x", 'x.toml:1: not TOML: expected "\'"'),
        ("=", "x.toml:1: not TOML: invalid statement"),
        ("a = " + "[" * 5000, "x.toml: not TOML: nested too deeply"),
    ],
)
def test_broken_toml_is_named_with_its_line(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(text, "x.toml")
    assert (caught.value.code, str(caught.value)) == ("config-syntax", problem)


@pytest.mark.parametrize(
    "text",
    [
        ".".join(["a"] * 200_000) + " = 1",
        "[" + ' . "b".'.join(["a"] * 100_000) + "]",
        "x = {" + ".'c'.".join(["a"] * 100_000) + " = 1}",
        "x = " + "[" * DEEP + "1, 2" + "]" * DEEP,
    ],
)
def test_keys_that_are_too_deep_are_refused_before_anything_takes_the_square_of_that(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^f\.toml: not TOML: nested too deeply$"):
        read(text, "f.toml")


@pytest.mark.parametrize(
    "value", ['"{}"', "'{}'", '"""\n{}\\""""""', "'''{}'''''", "1 # {}", '"""{}"""" # {}', '["{}\\"", "{}"]']
)
def test_texts_and_comments_have_any_number_of_dots(value: str) -> None:
    text = "x = " + value.replace("{}", "a." * 10_000)
    assert read(text, "f.toml") == (tomllib.loads(text), Scanner(text).lines())
