"""The tables of docs/configuration.md, made from the structs: `python -m stompbox.config.reference docs/configuration.md`.

Decides how a key is described there. The text between `<!-- table NAME -->` and `<!-- end -->` is this file's, the rest the author's.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from re import DOTALL, Match, sub
from typing import Any, Final

from msgspec import Struct, UnsetType

from stompbox.config.cluster import ClusterTable
from stompbox.config.configuration import Configuration
from stompbox.config.fields import Field, Word, fields_of, words
from stompbox.config.options import DIALECTS, Dialect, ListenerOptions
from stompbox.config.settings import AddressSettings
from stompbox.config.tables import (
    AddressTable,
    AdminTable,
    DivertTable,
    ListenerTable,
    PermissionTable,
    QueueTable,
    UserTable,
    VirtualHostTable,
    WildcardTable,
)
from stompbox.config.tracing import TracingTable

TABLES: Final[dict[str, type[Struct]]] = {
    "top-level": Configuration,
    "listener": ListenerTable,
    "listener-options": ListenerOptions,
    "admin": AdminTable,
    "cluster": ClusterTable,
    "tracing": TracingTable,
    "wildcard-addresses": WildcardTable,
    "user": UserTable,
    "permission": PermissionTable,
    "address-setting": AddressSettings,
    "address": AddressTable,
    "address.queue": QueueTable,
    "divert": DivertTable,
    "virtual-host": VirtualHostTable,
}


def documented(text: str) -> str:
    """`text` with every table between its markers made anew."""
    return sub(r"(<!-- table ([\w.-]+) -->\n).*?(<!-- end -->)", _filled, text, flags=DOTALL)


def _filled(match: Match[str]) -> str:
    return (
        match[1]
        + "\n"
        + "\n".join(_dialects() if match[2] == "dialects" else table(match[2]))
        + "\n\n"
        + match[3]
    )


def table(name: str) -> Iterator[str]:
    """The lines of the page that describe one table."""
    yield "| key | value | default | unit | meaning | default from |"
    yield "|---|---|---|---|---|---|"
    for field in fields_of(TABLES[name]).values():
        cells = (
            f"`{field.spelled}`",
            value_of(field),
            default_of(field),
            field.unit or "-",
            field.text,
            field.source or "-",
        )
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _dialects() -> Iterator[str]:
    yield "| option | " + " | ".join(f"`{dialect.value}`" for dialect in Dialect) + " |"
    yield "|---|" + "---|" * len(Dialect)
    for spelled, field in fields_of(ListenerOptions).items():
        values = [_written(changes.get(field.name, field.default), field) for changes in DIALECTS.values()]
        if len(set(values)) > 1:
            yield f"| `{spelled}` | " + " | ".join(values) + " |"


def value_of(field: Field) -> str:
    """What kind of value a key takes, in few words."""
    if field.table:
        return "tables" if field.item else "table"
    if field.name == "heart_beat":
        return "`auto` or `x,y`"
    if choice := words(field.item or field.plain):
        return ", ".join(f"`{word}`" for word in choice) + (" (list)" if field.item else "")
    plain = {bool: "true, false", int: "size" if field.unit == "bytes" else "whole number", float: "number"}
    return "list of texts" if field.item else plain.get(field.plain, "text")


def default_of(field: Field) -> str:
    return "required" if field.required else _written(field.default, field)


def _written(value: Any, field: Field) -> str:
    if field.name == "heart_beat" and value is None:
        return "`auto`"
    if value is None or isinstance(value, UnsetType) or value in ((), ""):
        return "-"
    if field.table:
        return f"`{value[0].url}`" if isinstance(value, tuple) else "-"
    if isinstance(value, tuple):
        return ", ".join(f"`{item}`" for item in value)
    if isinstance(value, bool):
        return str(value).lower()
    return (
        f"`{value.value}`"
        if isinstance(value, Word)
        else f"`{value}`"
        if isinstance(value, str)
        else _number(value, field)
    )


def _number(value: float, field: Field) -> str:
    for unit, size in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if field.unit == "bytes" and value >= size and value % size == 0:
            return f"{value // size:.0f}{unit}"
    return str(value)


def main(paths: list[str]) -> None:
    for path in map(Path, paths):
        path.write_text(documented(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
