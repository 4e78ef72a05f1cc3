"""The columns of rows, and a user's own."""

from __future__ import annotations

import pytest

from stompbox.errors import UsageError
from stompbox.spark.ddl import check_columns, refuse_types


@pytest.mark.parametrize("schema", ["a INT", "a INT, `b c`: STRING", "s STRUCT<x: INT, y: ARRAY<STRING>>, d DECIMAL(5,2)"])
def test_columns(schema: str) -> None:
    assert check_columns(schema)


def test_none() -> None:
    assert not check_columns("")


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("n INTEGRAL", "'n INTEGRAL' is no column"),
        ("a INT,", "'' is no column"),
        ("offset INT", "the column 'offset', which is there already"),
        ("a INT, A STRING", "the column 'a', which is there already"),
        ("v VARIANT", "'v VARIANT' is no column"),
        ("c CHAR(3)", r"'c CHAR\(3\)' is no column"),
    ],
)
def test_what_is_no_column(schema: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        check_columns(schema)


@pytest.mark.parametrize("kind", ["struct<v:variant>", "array<interval>", "map<string,struct<t:time(6)>>", "void"])
def test_types_that_no_body_holds(kind: str) -> None:
    with pytest.raises(UsageError, match=r"column 'c' of type .* cannot be read from json: (variant|interval|time|void) is none"):
        refuse_types("c", kind, "json")


@pytest.mark.parametrize("kind", ["int", "decimal(5,2)", "array<struct<a:int,b:map<string,timestamp_ntz>>>"])
def test_types_that_bodies_hold(kind: str) -> None:
    assert check_columns(f"c {kind}")
    refuse_types("c", kind, "json")
