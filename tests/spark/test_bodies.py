"""Bodies as columns."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompbox.errors import UsageError
from stompbox.spark.bodies import decoding_of

FIELDS = pa.schema([("a", pa.int32()), ("b", pa.string())])


def rows(kind: str, bodies: list[bytes]) -> list[tuple[object, ...]]:
    found = decoding_of(kind, FIELDS).decode(pa.array(bodies, pa.binary())).columns
    return list(zip(found["a"].to_pylist(), found["b"].to_pylist(), strict=True))


NULLS = (None, None)
JSON = [
    (b'{"a": 1, "b": "x"}', (1, "x")),
    (b' {"b": "y",\n "a": 2, "more": [1]}\r\n', (2, "y")),
    (b'{"a": 3}', (3, None)),
    (b'{"a": "no number", "b": "stays"}', (None, "stays")),
    (b'{"a": 2147483648, "b": "stays"}', (None, "stays")),
    (b'{"a": 5, "b": 1.50}', (5, "1.5")),
    (b'{"a": 6, "b": {"c": [true, null, "q"]}}', (6, '{"c":[true,null,"q"]}')),
    (b'{"a": 7, "b": NaN}', (7, '"NaN"')),
    (b'{"b": "\\ud800"}', (None, "?")),
    (b'{"a": 8, "a": 9}', (9, None)),
    (b"", NULLS),
    (b'{"a": 1}{"a": 2}', NULLS),
    (b"[1]", NULLS),
    (b"null", NULLS),
    (b'{"a":', NULLS),
    (b'{"b":1}', (None, "1")),
    (b'{"a": 4}}', NULLS),
    (b"\xff\xfe", NULLS),
    (b'{"b": "\xff"}', NULLS),
    (b'{"a":1,"c":' + b"[" * 100_000, NULLS),
]
CSV = [
    (b"1,x", (1, "x")),
    (b'2,"y,\nz"\n', (2, "y,\nz")),
    (b"3,", (3, None)),
    (b"4", (4, None)),
    (b"5,x,more", (5, "x")),
    (b"x,y", (None, "y")),
    (b"", NULLS),
    (b"1,x\n2,y", (1, "x\n2")),
    (b'6,"open', (6, '"open')),
    (b'7,"say ""so"""', (7, 'say "so"')),
    (b'8,"say \\"so\\""', (8, 'say "so"')),
    (b'9,a "b" c', (9, 'a "b" c')),
    (b'1_0,""', (None, None)),
]


@pytest.mark.parametrize(("kind", "cases"), [("json", JSON), ("csv", CSV)])
def test_a_row_has_the_values_of_its_own_body(
    kind: str, cases: list[tuple[bytes, tuple[object, ...]]]
) -> None:
    assert rows(kind, [body for body, _ in cases]) == [row for _, row in cases]
    for body, row in cases:
        assert rows(kind, [body]) == [row]


PIECES = [
    b'{"a":',
    b"1",
    b"}",
    b'{"a":1}',
    b'"',
    b",",
    b"\n",
    b"[",
    b"]",
    b'{"b":"',
    b"\\",
    b"null",
    b" ",
    b"x",
    b'{"a":2,"b":"y"}',
]


@given(
    st.lists(st.lists(st.sampled_from(PIECES), max_size=6).map(b"".join), max_size=12),
    st.sampled_from(["json", "csv"]),
)
def test_what_stands_beside_a_body_changes_nothing(bodies: list[bytes], kind: str) -> None:
    assert rows(kind, bodies) == [rows(kind, [body])[0] for body in bodies]


def test_malformed_bodies_are_named_and_stand_in_a_column_of_their_own() -> None:
    fields = pa.schema([("a", pa.int32()), ("_corrupt_record", pa.string())])
    found = decoding_of("json", fields).decode(
        pa.array([b'{"a":1}', b'{"a":"x"}', b"", b'{"a":', b"\xff"], pa.binary())
    )
    assert found.columns["_corrupt_record"].to_pylist() == [None, '{"a":"x"}', None, '{"a":', "\ufffd"]
    assert [row for row, _ in found.malformed] == [1, 3, 4]
    assert "'x' is no integer" in found.malformed[0][1]


def test_the_column_of_malformed_bodies_is_text() -> None:
    with pytest.raises(
        UsageError, match="'_corrupt_record' takes the text of malformed bodies and must be STRING"
    ):
        decoding_of("json", pa.schema([("_corrupt_record", pa.int32())]))


@pytest.mark.parametrize("kind", ["json", "csv"])
def test_no_bodies(kind: str) -> None:
    assert rows(kind, []) == []


@pytest.mark.parametrize(
    ("kind", "type_"),
    [("json", pa.map_(pa.int32(), pa.string())), ("json", pa.duration("us")), ("csv", pa.list_(pa.string()))],
)
def test_types_that_cannot_be_read(kind: str, type_: pa.DataType) -> None:
    with pytest.raises(UsageError, match=f"'schema': column 'm' of type .* cannot be read from {kind}"):
        decoding_of(kind, pa.schema([("m", type_)]))
