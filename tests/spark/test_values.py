"""Single values, as Spark's from_json and from_csv read them (test_with_spark.py asks Spark itself)."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from stompbox.spark.bodies import decoding_of


def one(kind: str, type_: pa.DataType, body: bytes) -> tuple[object, bool]:
    """The value of a column, and whether the body was malformed."""
    found = decoding_of(kind, pa.schema([("v", type_)])).decode(pa.array([body], pa.binary()))
    return found.columns["v"].to_pylist()[0], bool(found.malformed)


UTC_US = pa.timestamp("us", "UTC")
WHEN = datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)
NOON = datetime(2024, 1, 2, tzinfo=UTC)
# kind, type, body, value (None: it does not fit), as Spark 4.2 answers
VALUES = [
    ("json", pa.int8(), b"300", None),
    ("json", pa.int32(), b"1.0", None),
    ("json", pa.int32(), b'"1"', None),
    ("json", pa.int32(), b"true", None),
    ("json", pa.bool_(), b'"true"', None),
    ("json", pa.bool_(), b"true", True),
    ("json", pa.float64(), b"1", 1.0),
    ("json", pa.float64(), b'"1"', None),
    ("json", pa.float64(), b'"-INF"', float("-inf")),
    ("json", pa.float64(), b"1.7e400", float("inf")),
    ("json", pa.decimal128(5, 2), b"1e3", None),
    ("json", pa.decimal128(5, 2), b'"1"', Decimal("1.00")),
    ("json", pa.decimal128(20, 0), b"1.5", Decimal(2)),
    ("json", pa.decimal128(5, 2), b'" 5 "', None),
    ("json", pa.string(), b"1e3", "1000.0"),
    ("json", pa.string(), b"12345678901234567890123", "12345678901234567890123"),
    ("json", pa.date32(), b'"2024-1-2"', date(2024, 1, 2)),
    ("json", pa.date32(), b'"2024-01-02T03:04:05Z"', date(2024, 1, 2)),
    ("json", pa.date32(), b'"2024-13-02"', None),
    ("json", pa.date32(), b"5", None),
    ("json", UTC_US, b"1704164645", WHEN),
    ("json", UTC_US, b'"2024-01-02T05:04:05+02:00"', WHEN),
    ("json", UTC_US, b'"2024-1-2"', NOON),
    ("json", UTC_US, b'"2024-01-02 3:4:5"', WHEN),
    ("json", UTC_US, b'"soon"', None),
    ("json", pa.timestamp("us"), b'"2024-01-02T03:04:05Z"', None),
    ("json", pa.timestamp("us"), b'"2024-01-02"', datetime(2024, 1, 2)),
    ("json", pa.binary(), b'"aGk="', b"hi"),
    ("json", pa.binary(), b'"$$"', None),
    ("json", pa.list_(pa.int32()), b"[1, null]", [1, None]),
    ("json", pa.list_(pa.int32()), b'[1, "b"]', None),
    ("json", pa.map_(pa.string(), pa.int32()), b'{"x": 1}', [("x", 1)]),
    ("json", pa.map_(pa.string(), pa.int32()), b'{"x": "z"}', None),
    ("csv", pa.int32(), b"+1", 1),
    ("csv", pa.int32(), b" 1", None),
    ("csv", pa.int32(), b"1e3", None),
    ("csv", pa.float64(), b" 1", 1.0),
    ("csv", pa.float64(), b"Inf", float("inf")),
    ("csv", pa.float64(), b"1_0", None),
    ("csv", pa.bool_(), b"TRUE", True),
    ("csv", pa.decimal128(5, 2), b'"1,5"', Decimal("15.00")),
    ("csv", pa.date32(), b"2024-01-02", date(2024, 1, 2)),
    ("csv", UTC_US, b"2024-01-02 03:04:05", WHEN),
    ("csv", UTC_US, b"1704164645", None),
    ("csv", pa.binary(), b"aGk=", b"aGk="),
]


@pytest.mark.parametrize(("kind", "type_", "body", "value"), VALUES)
def test_values_of_types(kind: str, type_: pa.DataType, body: bytes, value: object) -> None:
    assert one(kind, type_, b'{"v": %b}' % body if kind == "json" else body) == (value, value is None)


def test_a_struct_keeps_what_fits() -> None:
    kind = pa.struct([("x", pa.int32()), ("y", pa.string())])
    assert one("json", kind, b'{"v": {"x": "a", "y": "b"}}') == ({"x": None, "y": "b"}, True)
