"""Bodies as columns: the option `schema` reads JSON objects or CSV lines with Arrow's own readers, thousands at a time.

    every body is one object (json) or one line (csv); fields that the schema does not name are left out
    a body that cannot be read so, or holds a value of another type, makes its row's columns NULL, and no other row's

Where one of many fails, halves are tried, so that a bad body costs a few more calls. Decides what a bad body means, not its columns'
types: those are Spark's.
"""

from __future__ import annotations

from dataclasses import dataclass
from re import DOTALL, fullmatch
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from stompbox.errors import UsageError
from stompbox.spark.columns import TYPES

FORMATS: Final = ("json", "csv")
_DDL: Final = frozenset(  # the first word of a type
    (
        "BOOLEAN", "TINYINT", "BYTE", "SMALLINT", "SHORT", "INT", "INTEGER", "BIGINT", "LONG", "FLOAT", "REAL", "DOUBLE", "DECIMAL", "DEC",
        "NUMERIC", "DATE", "TIME", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ", "STRING", "CHAR", "CHARACTER", "VARCHAR", "BINARY",
        "INTERVAL", "ARRAY", "MAP", "STRUCT", "VARIANT", "VOID",
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Decoding:
    """How bodies become the columns of `fields` (an Arrow schema)."""

    format: str
    fields: Any

    def columns(self, bodies: Any) -> dict[str, Any]:
        """A column per field, each as long as `bodies` (a binary array)."""
        table = self._read(pc.ascii_trim(bodies.view(pa.string()), " \t\r\n"))
        return {name: table.column(name).combine_chunks() for name in self.fields.names}

    def _read(self, bodies: Any) -> Any:
        try:
            table = self._read_all(bodies)
        except pa.ArrowInvalid:
            table = None
        if table is not None and len(table) == len(bodies):
            return table
        if len(bodies) <= 1:
            return pa.table([pa.nulls(len(bodies), field.type) for field in self.fields], schema=self.fields)
        middle = len(bodies) // 2
        return pa.concat_tables([self._read(bodies[:middle]), self._read(bodies[middle:])])

    def _read_all(self, bodies: Any) -> Any:
        """One row per body, or something else where a body is not what it should be."""
        joined = pc.binary_join(pa.ListArray.from_arrays([0, len(bodies)], bodies), "\n")[0].as_buffer()
        return _read_json(bodies, joined, self.fields) if self.format == "json" else _read_csv(joined, self.fields)


def check_columns(schema: str) -> bool:
    """Are there any? Raises UsageError naming what in the option `schema` is no column: Spark's own words would count its letters from
    the beginning of our columns. What stands inside of a type is left to it."""
    names = {name.lower() for name in TYPES}
    for part in _parts(schema):
        found = fullmatch(r"\s*(`(?:[^`]|``)+`|\w+)(?:\s*:\s*|\s+)([A-Za-z_]+)\b.*", part, DOTALL)
        if found is None or found[2].upper() not in _DDL:
            raise UsageError(
                "bad-option", f"option 'schema': {part.strip()[:80]!r} is no column; allowed is Spark DDL: carrier STRING, delay INT"
            )
        name = found[1].strip("`").lower()
        if name in names:
            raise UsageError("bad-option", f"option 'schema' names the column {name!r}, which is there already; take another name")
        names.add(name)
    return bool(schema)


def _parts(schema: str) -> list[str]:
    """What stands between the commas that are not inside of a type, a name or a comment."""
    parts, depth, quote = [""], 0, ""
    for letter in schema:
        if letter == quote or (not quote and letter in "`'\""):
            quote = "" if quote else letter
        elif not quote:
            depth += (letter in "<(") - (letter in ">)")
            if letter == "," and not depth:
                parts.append("")
                continue
        parts[-1] += letter
    return parts if schema.strip() else []


def _unreadable(field: Any, format_: str, why: str) -> UsageError:
    return UsageError("bad-option", f"option 'schema': column {field.name!r} of type {field.type} cannot be read from {format_}: {why}")


def decoding_of(format_: str, fields: Any) -> Decoding:
    """Raises UsageError naming a column of a type that cannot be read."""
    for field in fields:
        if format_ == "csv" and pa.types.is_nested(field.type):
            raise _unreadable(field, format_, "a CSV value is neither a list nor a map nor a struct")
        try:
            Decoding(format_, pa.schema([field])).columns(pa.array([b"{}"]))
        except pa.ArrowNotImplementedError as fault:
            raise _unreadable(field, format_, str(fault)) from None
    return Decoding(format_, fields)


def _read_json(bodies: Any, joined: Any, fields: Any) -> Any:
    from pyarrow import json

    if not pc.all(pc.starts_with(bodies, "{")).as_py():  # else a piece of an object could be completed by the next body
        return None
    read = json.ReadOptions(use_threads=False, block_size=max(1, joined.size + 1))
    parse = json.ParseOptions(explicit_schema=fields, unexpected_field_behavior="ignore")
    return json.read_json(pa.BufferReader(joined), read, parse)


def _read_csv(joined: Any, fields: Any) -> Any:
    from pyarrow import csv

    read = csv.ReadOptions(use_threads=False, block_size=max(1, joined.size + 1), column_names=fields.names)
    parse = csv.ParseOptions(ignore_empty_lines=False)
    convert = csv.ConvertOptions(column_types=fields, strings_can_be_null=True, quoted_strings_can_be_null=False)
    return csv.read_csv(pa.BufferReader(joined), read, parse, convert)
