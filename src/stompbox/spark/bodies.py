"""Bodies as columns: the option `schema` reads JSON objects or CSV lines as Spark's `from_json` and `from_csv` do, a body at a time.

    every body is one object (json) or one line (csv); fields that the schema does not name are left out
    a value that its type cannot hold is NULL, alone; a body that is no object makes its row's columns NULL; an empty one, too
    either is malformed (an empty body is not): the option `mode` says whether such rows stay, go, or end the read

A row's columns come from its own body because nothing else is looked at while it is read. Differences from Spark, on purpose: what
stands behind the object is malformed and not passed over; JSON is RFC 8259's, with NaN and Infinity but without single quotes; a
quote in a CSV value may be doubled (RFC 4180) as well as escaped, and a line break at the end is not the last value's.

Decides what a bad body means. The values of types are values.py's, which rows stay reading.py's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from operator import attrgetter
from re import DOTALL
from typing import Annotated, Any, Final

import msgspec
import pyarrow as pa

from stompbox.errors import UsageError
from stompbox.spark.values import Convert, Fraction, Misfit, from_csv, from_json, limits_of, shown

# quoted; or whatever is before the next comma
_CSV_VALUE: Final = re.compile(r'"((?:[^"\\]++|""|\\.)*+)"(?=,|\Z)|(")?([^,]*+)', DOTALL)
_CSV_QUOTE: Final = re.compile(r'""|\\(["\\])')

_BLANK: Final = b" \t\r\n"
# Spark reads these (half of a pair, too), the fast reader does not
_ONLY_PYTHON: Final = re.compile(rb"NaN|Infinity|\\u[dD][89a-fA-F]")

Malformed = tuple[int, str]
"""A row, and what was wrong with its body."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """A column for each field, and the rows whose body was malformed, in their order."""

    columns: dict[str, Any]
    malformed: list[Malformed]


@dataclass(frozen=True, slots=True)
class Decoding:
    """How bodies become the columns of `fields` (an Arrow schema). `corrupt`: the one of them that has the text of malformed bodies."""

    format: str
    fields: Any
    mode: str = "PERMISSIVE"
    corrupt: str = ""
    _names: list[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_names", [name for name in self.fields.names if name != self.corrupt])

    def decode(self, bodies: Any) -> Decoded:
        """Columns as long as `bodies` (a binary array)."""
        octets = bodies.to_pylist()
        read = _reader(self.format, pa.schema([self.fields.field(name) for name in self._names]))
        columns, malformed = read(octets)
        found = {
            name: pa.array(column, self.fields.field(name).type)
            for name, column in zip(self._names, columns, strict=True)
        }
        if self.corrupt:
            texts: list[str | None] = [None] * len(octets)
            for row, _ in malformed:
                texts[row] = octets[row].decode("utf-8", "replace")
            found[self.corrupt] = pa.array(texts, pa.string())
        return Decoded(found, malformed)


Reader = Callable[[list[bytes]], tuple[list[list[Any]], list[Malformed]]]


@lru_cache(maxsize=16)  # a task decodes a batch at a time
def _reader(format_: str, fields: Any) -> Reader:
    return _Json(fields) if format_ == "json" else _Csv(fields)


class _Json:
    """Bodies that fit are read at once into an object with a slot per field; what does not is read again, value by value."""

    def __init__(self, fields: Any) -> None:
        self._misfits: list[str] = []
        self._fields: list[tuple[str, Convert]] = [
            (each.name, from_json(each.type, self._misfits)) for each in fields
        ]
        self._finish = [
            None if _plain(each.type) else convert
            for each, (_, convert) in zip(fields, self._fields, strict=True)
        ]
        slots = [f"f{number}" for number in range(len(fields))]
        types: Any = [
            (slot, _plain(each.type) or Any, None) for slot, each in zip(slots, fields, strict=True)
        ]
        whole = msgspec.defstruct("Body", types, rename=dict(zip(slots, fields.names, strict=True)), gc=False)
        self._decode = msgspec.json.Decoder(whole, float_hook=Fraction).decode
        self._decode_any = msgspec.json.Decoder(float_hook=Fraction).decode
        self._empty = whole()
        self._slots = slots
        self._get = [attrgetter(slot) for slot in slots]

    def __call__(self, bodies: list[bytes]) -> tuple[list[list[Any]], list[Malformed]]:
        decode, found, again = self._decode, [], []
        malformed: dict[int, str] = {}
        for row, body in enumerate(bodies):
            try:
                found.append(decode(body))
            except msgspec.ValidationError:
                found.append(self._empty)
                again.append(row)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
                found.append(self._empty)
                if _ONLY_PYTHON.search(body) or not body.strip(_BLANK):
                    again.append(row)
                else:
                    malformed[row] = f"no JSON object: {str(fault)[:80]}"
        columns = [list(map(get, found)) for get in self._get]
        for column, convert in zip(columns, self._finish, strict=True):
            if convert is not None:
                self._convert(column, convert, malformed)
        for row in again:
            self._read_again(bodies[row], row, columns, malformed)
        return columns, sorted(malformed.items())

    def _convert(self, column: list[Any], convert: Convert, malformed: dict[int, str]) -> None:
        self._misfits.clear()
        try:
            found = [None if value is None else convert(value) for value in column]
        except Misfit:
            pass
        else:
            if not self._misfits:
                column[:] = found
                return
        for row, value in enumerate(column):
            if value is not None:
                column[row] = self._converted(convert, value, row, malformed)

    def _converted(self, convert: Convert, value: Any, row: int, malformed: dict[int, str]) -> Any:
        self._misfits.clear()
        try:
            found = convert(value)
        except Misfit as misfit:
            malformed.setdefault(row, str(misfit))
            return None
        if self._misfits:  # within a struct
            malformed.setdefault(row, self._misfits[0])
        return found

    def _read_again(self, body: bytes, row: int, columns: list[list[Any]], malformed: dict[int, str]) -> None:
        """A body that does not fit as a whole: each value by itself."""
        if not body.strip(_BLANK):  # Spark: no body is no fault
            return
        try:
            value = self._loose(body)
        except (ValueError, RecursionError) as fault:
            malformed[row] = f"no JSON: {str(fault)[:80]}"
            return
        if type(value) is not dict:
            malformed[row] = f"{shown(value)} is no JSON object"
            return
        for column, (name, convert) in zip(columns, self._fields, strict=True):
            given = value.get(name)
            column[row] = None if given is None else self._converted(convert, given, row, malformed)

    def _loose(self, body: bytes) -> Any:
        try:
            return self._decode_any(body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return json.loads(body.decode(), parse_float=Fraction, parse_constant=Fraction)


def _plain(kind: Any) -> Any:
    """What msgspec reads by itself for a column of this type; None: a converter finishes it."""
    if pa.types.is_boolean(kind):
        return bool | None
    if pa.types.is_integer(kind):
        least, most = limits_of(kind)
        return Annotated[int, msgspec.Meta(ge=least, le=most)] | None
    if pa.types.is_floating(kind):
        return float | None
    return str | None if pa.types.is_string(kind) else None


class _Csv:
    def __init__(self, fields: Any) -> None:
        self._convert = [from_csv(each.type) for each in fields]

    def __call__(self, bodies: list[bytes]) -> tuple[list[list[Any]], list[Malformed]]:
        wanted = len(self._convert)
        flat: list[Any] = []  # of all rows, one after the other
        malformed: dict[int, str] = {}
        for row, body in enumerate(bodies):
            text = body.decode("utf-8", "replace").rstrip("\r\n")
            if not text:  # Spark: no body is no fault
                flat += [""] * wanted
                continue
            values = text.split(",")
            if '"' in text:
                values, fault = _quoted(text)
                if fault:
                    malformed[row] = fault
            if len(values) != wanted:
                malformed.setdefault(row, f"{len(values)} values for {wanted} columns")
                values = [*values[:wanted], *[""] * (wanted - len(values))]
            flat += values
        columns = [flat[number::wanted] for number in range(wanted)]
        for column, convert in zip(columns, self._convert, strict=True):
            _convert_texts(column, convert, malformed)
        return columns, sorted(malformed.items())


def _convert_texts(column: list[Any], convert: Convert, malformed: dict[int, str]) -> None:
    try:
        column[:] = [convert(value) if value else None for value in column]
        return
    except Misfit:  # one by one, then
        pass
    for row, value in enumerate(column):
        if not value:
            column[row] = None
            continue
        try:
            column[row] = convert(value)
        except Misfit as misfit:
            malformed.setdefault(row, str(misfit))
            column[row] = None


def _quoted(text: str) -> tuple[list[str], str]:
    """The values of a line with quotes in it, and what is wrong with it."""
    values: list[str] = []
    fault, at = "", 0
    while True:
        found = _CSV_VALUE.match(text, at)
        assert found is not None  # its second form takes anything
        if found[1] is not None:
            values.append(_CSV_QUOTE.sub(lambda quote: quote[1] or '"', found[1]))
        else:
            values.append(f"{found[2] or ''}{found[3]}")
            if found[2]:
                fault = fault or f"the quote of value {len(values)} does not end where the value does"
        at = found.end()
        if at == len(text):
            return values, fault
        at += 1  # the comma


def _unreadable(field: Any, format_: str, why: str) -> UsageError:
    return UsageError(
        "bad-option",
        f"option 'schema': column {field.name!r} of type {field.type} cannot be read from {format_}: {why}",
    )


def decoding_of(
    format_: str, fields: Any, *, mode: str = "PERMISSIVE", corrupt: str = "_corrupt_record"
) -> Decoding:
    """`corrupt` names the column for malformed bodies, if there is one of that name. Raises UsageError naming a column of a type that
    cannot be read."""
    for each in fields:
        if each.name == corrupt and each.type != pa.string():
            text = f"option 'schema': column {corrupt!r} takes the text of malformed bodies and must be STRING, not {each.type}"
            raise UsageError("bad-option", text)
        try:
            from_json(each.type, []) if format_ == "json" else from_csv(each.type)
        except TypeError as fault:
            raise _unreadable(each, format_, str(fault)) from None
    return Decoding(format_, fields, mode, corrupt if corrupt in fields.names else "")
