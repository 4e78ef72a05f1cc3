"""Single values of JSON and CSV as values of a column's type, by the rules of Spark's `from_json` and `from_csv`.

A value that its type cannot hold raises Misfit. A struct is the exception: what does not fit in it is NULL alone, and is told to `misfits`.

Two differences from Spark, on purpose: times without an offset are UTC (a task does not know the session's zone), and an offset is
written as digits or Z, not as the name of a region. Decides nothing about bodies as a whole: that is bodies.py.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from json.encoder import encode_basestring
from math import isfinite
from typing import Any, Final

import pyarrow as pa

Convert = Callable[[Any], Any]

_DATE: Final = re.compile(r"\s*(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:[T ].*)?)?)?\s*", re.ASCII | re.DOTALL)
_TIMESTAMP: Final = re.compile(
    r"\s*(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:[T ](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,9}))?)?"
    r"\s*(Z|UTC|[+-]\d{1,2}(?::?\d{2})?)?)?)?)?\s*",
    re.ASCII,
)
_INTEGER: Final = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_NUMBER: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,9})?", re.ASCII)
_NO_NUMBERS: Final = {  # Spark: the texts that stand for numbers which JSON has none for
    "NaN": float("nan"), "Infinity": float("inf"), "+Infinity": float("inf"), "+INF": float("inf"),
    "-Infinity": float("-inf"), "-INF": float("-inf"),
}  # fmt: skip
_CSV_NO_NUMBERS: Final = {**_NO_NUMBERS, "Inf": float("inf"), "+Inf": float("inf"), "-Inf": float("-inf")}


class Misfit(ValueError):
    """A value that its column's type cannot hold."""


class Fraction(str):
    """A JSON number that is not an integer, as it is written: no digit is lost before the type is known."""

    __slots__ = ()


def limits_of(kind: Any) -> tuple[int, int]:
    """The least and the largest integer of an Arrow integer type."""
    half = 1 << (kind.bit_width - 1)
    return -half, half - 1


def from_json(kind: Any, misfits: list[str]) -> Convert:
    """How a decoded JSON value becomes a value of an Arrow type. Raises TypeError for a type that cannot be read from JSON."""
    if pa.types.is_boolean(kind):
        return _json_boolean
    if pa.types.is_integer(kind):
        return _json_integer(*limits_of(kind))
    if pa.types.is_floating(kind):
        return _json_floating
    if pa.types.is_decimal(kind):
        exact = _decimal(kind)
        return lambda value: exact(value if isinstance(value, str) else _json_whole(value))
    if pa.types.is_timestamp(kind):
        moment = timestamp if kind.tz else naive_timestamp
        return lambda value: (
            moment(value) if type(value) is str else _json_moment(value, is_zoned=kind.tz is not None)
        )
    simple = {pa.string(): text_of, pa.binary(): _base64, pa.date32(): lambda value: day(_text(value))}.get(
        kind
    )
    return simple or _nested(kind, misfits)


def _nested(kind: Any, misfits: list[str]) -> Convert:
    if pa.types.is_list(kind):
        element = from_json(kind.value_type, misfits)
        return lambda value: [None if each is None else element(each) for each in _of(list, value)]
    if pa.types.is_map(kind) and kind.key_type == pa.string():
        item = from_json(kind.item_type, misfits)
        return lambda value: [
            (name, None if each is None else item(each)) for name, each in _of(dict, value).items()
        ]
    if pa.types.is_struct(kind):
        fields = [(field.name, from_json(field.type, misfits)) for field in kind]
        return lambda value: {
            name: _or_null(convert, _of(dict, value).get(name), name, misfits) for name, convert in fields
        }
    raise TypeError("this type is not read from JSON")


def _or_null(convert: Convert, value: Any, name: str, misfits: list[str]) -> Any:
    if value is None:
        return None
    try:
        return convert(value)
    except Misfit as misfit:
        misfits.append(f"{name}: {misfit}")
        return None


def from_csv(kind: Any) -> Convert:
    """How a CSV value, a text that is not empty, becomes a value of an Arrow type. Raises TypeError for a type that has no form in CSV."""
    if pa.types.is_boolean(kind):
        return _csv_boolean
    if pa.types.is_integer(kind):
        return _csv_integer(*limits_of(kind))
    if pa.types.is_floating(kind):
        return _csv_floating
    if pa.types.is_decimal(kind):
        exact = _decimal(kind)
        return lambda value: exact(value.replace(",", ""))
    if pa.types.is_timestamp(kind):
        return timestamp if kind.tz else naive_timestamp
    simple: dict[Any, Convert] = {pa.string(): str, pa.binary(): str.encode, pa.date32(): day}
    if kind not in simple:
        raise TypeError("a CSV value is neither a list nor a map nor a struct, and has no form for this type")
    return simple[kind]


# JSON


def _of(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise Misfit(f"{shown(value)} is no {'object' if kind is dict else 'array'}")
    return value


def _text(value: Any) -> str:
    if type(value) is not str:
        raise Misfit(f"{shown(value)} is no text")
    return value


def _json_boolean(value: Any) -> bool:
    if type(value) is not bool:
        raise Misfit(f"{shown(value)} is neither true nor false")
    return value


def _json_integer(least: int, most: int) -> Convert:
    def integer(value: Any) -> int:
        if type(value) is not int or not least <= value <= most:
            raise Misfit(f"{shown(value)} is no integer from {least} to {most}")
        return value

    return integer


def _json_floating(value: Any) -> float:
    kind = type(value)
    if kind is Fraction or kind is int:
        try:
            return float(value)
        except OverflowError:
            return float("-inf" if value < 0 else "inf")
    found = _NO_NUMBERS.get(value) if kind is str else None
    if found is None:
        raise Misfit(f"{shown(value)} is no number")
    return found


def _json_whole(value: Any) -> str:
    if type(value) is not int:
        raise Misfit(f"{shown(value)} is no number")
    return str(value)


def _json_moment(value: Any, *, is_zoned: bool) -> datetime:
    if type(value) is not int or not is_zoned:  # Spark: a number is seconds since the epoch
        raise Misfit(f"{shown(value)} is no timestamp")
    try:
        return datetime.fromtimestamp(value, UTC)
    except (OverflowError, ValueError, OSError):
        raise Misfit(f"{shown(value)} is no timestamp") from None


def _base64(value: Any) -> bytes:
    try:
        return b64decode(_text(value), validate=True)
    except (binascii.Error, ValueError):
        raise Misfit(f"{shown(value)} is no base64") from None


def text_of(value: Any) -> str:
    """Spark: STRING takes every value; what is no text is its JSON."""
    if type(value) is str:
        return value.encode("utf-8", "replace").decode()  # half a surrogate pair is no character
    return json_of(value)


def json_of(value: Any) -> str:
    """A value as Spark writes JSON: without blanks, numbers with a fraction as Java's doubles."""
    if value is None:
        return "null"
    kind = type(value)
    if kind is bool:
        return "true" if value else "false"
    if kind is Fraction:
        return _java_double(float(value))
    if kind is str:
        return encode_basestring(text_of(value))
    if kind is list:
        return f"[{','.join([json_of(each) for each in value])}]"
    if kind is dict:
        return (
            "{"
            + ",".join([f"{encode_basestring(name)}:{json_of(each)}" for name, each in value.items()])
            + "}"
        )
    return str(value)


def _java_double(number: float) -> str:
    """Double.toString: an exponent below 10**-3 and from 10**7 on."""
    if not isfinite(number):
        return {"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}[repr(number)]
    if not number or 1e-3 <= abs(number) < 1e7:
        return repr(number)
    sign, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
    rest = "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{digits[0]}.{rest}E{int(exponent) + len(digits) - 1}"


# CSV


def _csv_boolean(value: str) -> bool:
    found = {"true": True, "false": False}.get(value.lower())
    if found is None:
        raise Misfit(f"{shown(value)} is neither true nor false")
    return found


def _csv_integer(least: int, most: int) -> Convert:
    def integer(value: str) -> int:
        if (len(value) < 19 and value.isascii() and value.isdigit()) or _INTEGER.fullmatch(value):
            number = int(value)
            if least <= number <= most:
                return number
        raise Misfit(f"{shown(value)} is no integer from {least} to {most}")

    return integer


def _csv_floating(value: str) -> float:
    stripped = value.strip()
    if _NUMBER.fullmatch(stripped):
        return float(stripped)
    found = _CSV_NO_NUMBERS.get(stripped)
    if found is None:
        raise Misfit(f"{shown(value)} is no number")
    return found


# Both


def _decimal(kind: Any) -> Callable[[str], Decimal]:
    context, step = Context(prec=kind.precision, rounding=ROUND_HALF_UP), Decimal(1).scaleb(-kind.scale)

    def exact(value: str) -> Decimal:
        if _NUMBER.fullmatch(value):
            try:
                return Decimal(value).quantize(step, context=context)
            except InvalidOperation:  # more digits than the type has
                pass
        raise Misfit(
            f"{shown(value)} is no decimal of {kind.precision} digits, {kind.scale} of them behind the point"
        )

    return exact


def day(value: str) -> date:
    """Spark: the year, or year and month, or a day, or a day with anything behind T or a blank."""
    if len(value) == 10 and value[4] == "-" and value[7] == "-":
        try:
            return date.fromisoformat(value)
        except ValueError:
            pass
    found = _DATE.fullmatch(value)
    try:
        if found is not None:
            return date(int(found[1]), int(found[2] or 1), int(found[3] or 1))
    except ValueError:
        pass
    raise Misfit(f"{shown(value)} is no date as 2026-03-01")


def timestamp(value: str) -> datetime:
    """A moment; one without an offset is UTC."""
    found = _moment(value)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def naive_timestamp(value: str) -> datetime:
    """Reads a TIMESTAMP_NTZ, which has no offset."""
    found = _moment(value)
    if found.tzinfo is not None:
        raise Misfit(f"{shown(value)} has an offset, which TIMESTAMP_NTZ has not")
    return found


def _moment(value: str) -> datetime:
    if (
        value[4:5] == "-"
        and value[7:8] == "-"
        and value[10:11] in ("T", " ")
        and value[13:14] == ":"
        and "," not in value
    ):
        try:
            return datetime.fromisoformat(value)
        except ValueError:
            pass
    found = _TIMESTAMP.fullmatch(value)
    try:
        if found is not None:
            year, month, day, hour, minute, second, fraction, zone = found.groups()
            micros = int(f"{fraction or ''}000000"[:6])
            return datetime(
                int(year),
                int(month or 1),
                int(day or 1),
                int(hour or 0),
                int(minute or 0),
                int(second or 0),
                micros,
                _zone(zone),
            )
    except ValueError:
        pass
    raise Misfit(f"{shown(value)} is no timestamp as 2026-03-01T12:00:00Z")


def _zone(text: str | None) -> timezone | None:
    if text is None or text in ("Z", "UTC"):
        return None if text is None else UTC
    hours, minutes = text[1:].replace(":", "").ljust(4, "0")[:2], text[-2:] if len(text) > 3 else "0"
    if len(text) == 2:
        hours = text[1]
    offset = timedelta(hours=int(hours), minutes=int(minutes))
    return timezone(-offset if text[0] == "-" else offset)


def shown(value: Any) -> str:
    """A value in an error: short, and never more than a glance."""
    text = repr(str(value)) if isinstance(value, Fraction) else repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"
