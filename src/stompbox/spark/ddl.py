"""The columns of rows as Spark's DDL names them, and what a user's own columns (option `schema`) may be called and be.

Loads no library, so that Spark finds the source `stomp` without loading what only a query needs.
"""

from __future__ import annotations

from re import DOTALL, findall, fullmatch
from typing import Final

from stompbox.errors import UsageError

TYPES: Final = {  # as Spark names them
    "address": "string",
    "offset": "bigint",
    "timestamp": "timestamp",
    "destination": "string",
    "headers": "map<string,string>",
    "body": "binary",
}
_DDL: Final = frozenset(  # the first word of a type
    (
        "BOOLEAN", "TINYINT", "BYTE", "SMALLINT", "SHORT", "INT", "INTEGER", "BIGINT", "LONG", "FLOAT", "REAL", "DOUBLE", "DECIMAL", "DEC",
        "NUMERIC", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ", "STRING", "BINARY", "ARRAY", "MAP", "STRUCT",
    )
)  # fmt: skip


def check_columns(schema: str, *taken: str) -> bool:
    """Are there any? `taken`: names besides our own that a column may not have. Raises UsageError naming what in the option `schema` is no
    column: Spark's own words would count its letters from the beginning of our columns. What stands inside of a type is left to it."""
    names = {name.lower() for name in (*TYPES, *taken)}
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


def refuse_types(name: str, kind: str, format_: str) -> None:
    """Raises UsageError where a type, as Spark writes it, has one in it that no body can hold: struct<v:variant>, say."""
    for word in findall(r"(?:^|[<:,])(\w+)(?=$|[<(>,])", kind):
        if word.upper() not in _DDL:
            raise UsageError("bad-option", f"option 'schema': column {name!r} of type {kind} cannot be read from {format_}: {word} is none")
