"""From the content of a file, a variable or a request to a struct: types, ranges, unknown keys, and the words that say what is wrong where.

Decides what counts as a wrong key, type or value. Where the content comes from, and what counts where several say the same, is sources.py.
"""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar

import msgspec
from msgspec import Struct

from stompbox.config.fields import AUTO, Field, fields_of, nearest, parse_size, shown, within
from stompbox.config.listener import is_module_function, parse_endpoint, parse_listener
from stompbox.config.origins import Origins, spelled
from stompbox.config.spaces import MARK, is_inside
from stompbox.config.toml import Path

T = TypeVar("T", bound=Struct)


def converted(content: dict[str, Any], struct: type[T], blame: Origins) -> T:
    """`content` as a struct. Raises ConfigError that names the first wrong key."""
    tidy = _tidied(content, struct, (), blame)
    try:
        return msgspec.convert(tidy, struct)
    except msgspec.ValidationError as error:
        _refuse_type(str(error), tidy, struct, blame)


def _tidied(table: dict[str, Any], struct: type[Struct], path: Path, blame: Origins) -> dict[str, Any]:
    """`table` with sizes as numbers and empty texts as None where none is possible; refuses unknown keys and malformed texts."""
    known = fields_of(struct)
    tidy: dict[str, Any] = {}
    for name, value in table.items():
        if name not in known:
            blame.refuse(
                (*path, name), f"unknown key; {nearest(name, known, page=blame.page)}", "config-unknown-key"
            )
        tidy[name] = _tidied_value(value, known[name], (*path, name), blame)
    return tidy


def _tidied_value(value: Any, field: Field, path: Path, blame: Origins) -> Any:
    if field.table and field.item and isinstance(value, list):
        return [_tidied_item(item, field.table, (*path, index), blame) for index, item in enumerate(value)]
    if field.table and isinstance(value, dict):
        return _tidied(value, field.table, path, blame)
    if field.kind == AUTO and isinstance(value, str) and value.casefold() == AUTO:
        return -1
    if isinstance(value, str) and field.unit == "bytes":
        value = _size(value, field, path, blame)
    if (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and field.plain in (int, float)
        and not within(field, value)
    ):
        blame.refuse(path, f"expected {field.allowed()}, not {shown(value)}")
    if value == "" and field.optional:
        return None
    if isinstance(value, str) and field.kind:
        _check_text(value, field, path, blame)
    return value


def _tidied_item(item: Any, struct: type[Struct], path: Path, blame: Origins) -> Any:
    return _tidied(item, struct, path, blame) if isinstance(item, dict) else item


def _size(text: str, field: Field, path: Path, blame: Origins) -> int:
    try:
        return parse_size(text)
    except ValueError:
        blame.refuse(path, f"expected {field.allowed()}, not {shown(text)}")


def _check_text(text: str, field: Field, path: Path, blame: Origins) -> None:
    if field.kind == "url":
        parse_listener(text, f"{blame.where(path)}: {spelled(path)}")
    elif field.kind == "endpoint":
        parse_endpoint(text, f"{blame.where(path)}: {spelled(path)}")
    elif problem := _problem_of(text, field.kind):
        blame.refuse(path, problem)


def _problem_of(text: str, kind: str) -> str:
    """Why `text` cannot be what `kind` says; empty if it can. Never shows a password."""
    if kind == "password":
        return _problem_of_password(text)
    if kind == "module":
        return "" if is_module_function(text) else f"expected module:function, not {shown(text)}"
    if kind not in ("match", "address", "name"):
        return ""
    if not text:
        return f"an empty {'name' if kind == 'name' else kind} is not allowed"
    if not text.strip():
        return f"{shown(text)} is nothing but blanks"
    if not text.isprintable():
        return f"{shown(text)} has control characters"
    if is_inside(text):
        return f"names that begin with {MARK!r} are the broker's own; what a virtual host has stands in its [[virtual-host]]"
    return ""


def _problem_of_password(text: str) -> str:
    """A hash that cannot be verified must not pass for plain text: whoever reads the file could then log in with the hash itself."""
    if text.startswith("$argon2"):
        return (
            ""
            if text.count("$") == 5 and not text.endswith("$")
            else "not a whole argon2 hash; `stompbox user hash` prints one"
        )
    foreign = (
        "$1$",
        "$2a$",
        "$2b$",
        "$2y$",
        "$5$",
        "$6$",
        "$7$",
        "$y$",
        "$apr1$",
        "$pbkdf2",
        "$scrypt$",
        "{SHA",
        "{SSHA",
        "ENC(",
    )
    if text.startswith(foreign):
        return "looks like a hash that is not argon2; `stompbox user hash` prints one that can be used"
    return (
        ""
        if text
        else "an empty password is not allowed; leave the key out for a user who logs in by certificate only"
    )


def _refuse_type(problem: str, content: dict[str, Any], struct: type[Struct], blame: Origins) -> NoReturn:
    """Put what msgspec says ("Expected `int`, got `str` - at `$.user[0].name`") into words, with place and what is allowed."""
    text, _, place = problem.partition(" - at `$")
    path = _path_of(place.rstrip("`"))
    if "missing required field" in text:
        missing = text.split("`")[1]
        blame.refuse(path, f"the key {missing!r} is missing: {_field_at((*path, missing), struct).text}")
    field = _field_at(path, struct)
    value: Any = content
    for word in path:
        value = value[word]
    wanted = field.allowed_item() if isinstance(path[-1], int) else field.allowed()
    blame.refuse(
        path, f"expected {wanted}, not {'this' if field.kind in ('secret', 'password') else shown(value)}"
    )


def _path_of(place: str) -> Path:
    """The path of a key as msgspec writes it: `.user[0].name` is ("user", 0, "name")."""
    path: list[str | int] = []
    for word in place.replace("[...]", "").replace("[", ".[").split("."):
        # [...] is some value of a table of texts
        if word:
            path.append(int(word[1:-1]) if word.startswith("[") else word)
    return tuple(path)


def _field_at(path: Path, struct: type[Struct]) -> Field:
    field = fields_of(struct)[str(path[0])]
    for word in path[1:]:
        if isinstance(word, str) and field.table:
            field = fields_of(field.table)[word]
    return field
