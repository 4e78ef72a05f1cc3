"""Bodies as columns."""

from __future__ import annotations

import pyarrow as pa
import pytest

from stompbox.errors import UsageError
from stompbox.spark.bodies import decoding_of

FIELDS = pa.schema([("a", pa.int32()), ("b", pa.string())])


def rows(kind: str, bodies: list[bytes]) -> list[tuple[object, ...]]:
    found = decoding_of(kind, FIELDS).columns(pa.array(bodies, pa.binary()))
    return list(zip(found["a"].to_pylist(), found["b"].to_pylist(), strict=True))


NULLS = (None, None)
JSON = [
    (b'{"a": 1, "b": "x"}', (1, "x")),
    (b' {"b": "y",\n "a": 2, "more": [1]}\r\n', (2, "y")),
    (b'{"a": 3}', (3, None)),
    (b'{"a": "no number"}', NULLS),
    (b"", NULLS),
    (b'{"a": 1}{"a": 2}', NULLS),
    (b"[1]", NULLS),
    (b'{"a":', NULLS),
    (b'{"a": 4}}', NULLS),
    (b"\xff\xfe", NULLS),
]
CSV = [
    (b"1,x", (1, "x")),
    (b'2,"y,\nz"\n', (2, "y,\nz")),
    (b"3,", (3, None)),
    (b"4", NULLS),
    (b"x,y", NULLS),
    (b"", NULLS),
    (b"1,x\n2,y", NULLS),
]


@pytest.mark.parametrize(("kind", "cases"), [("json", JSON), ("csv", CSV)])
def test_a_bad_body_spoils_no_other(kind: str, cases: list[tuple[bytes, tuple[object, ...]]]) -> None:
    assert rows(kind, [body for body, _ in cases]) == [row for _, row in cases]
    for body, row in cases:
        assert rows(kind, [body]) == [row]


@pytest.mark.parametrize("kind", ["json", "csv"])
def test_no_bodies(kind: str) -> None:
    assert rows(kind, []) == []


@pytest.mark.parametrize(("kind", "type_"), [("json", pa.map_(pa.string(), pa.string())), ("csv", pa.list_(pa.string()))])
def test_types_that_cannot_be_read(kind: str, type_: pa.DataType) -> None:
    with pytest.raises(UsageError, match=f"'schema': column 'm' of type .* cannot be read from {kind}"):
        decoding_of(kind, pa.schema([("m", type_)]))
