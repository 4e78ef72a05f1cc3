"""What the fields of configuration structs are made of: their description, words in any case, sizes, nearest names.

Decides how a value is written (sizes, words, lists) and how a refusal words what is allowed. Knows no key of its own.

The modules whose structs have the keys do without `from __future__ import annotations`: msgspec would compile and evaluate each of some
300 texts when the first configuration is read, some of them several times, which takes longer than all else of a broker's start in a test.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

from msgspec import NODEFAULT, Meta, Struct, UnsetType
from msgspec.structs import FieldInfo, fields

from stompbox.numerals import ANY, whole

LARGEST: Final = (1 << 63) - 1  # that a whole number may be: the store has no larger ones
AUTO: Final = "auto"  # a number that the machine decides; -1 is the same
_UNITS: Final = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class Word(Enum):
    """A closed set of words, read in any case."""

    @classmethod
    def _missing_(cls, value: object) -> Word | None:
        wanted = value.casefold() if isinstance(value, str) else None
        return next((member for member in cls if str(member.value).casefold() == wanted), None)


def key(
    text: str,
    unit: str = "",
    *,
    source: str = "",
    at_least: float | None = None,
    at_most: float | None = None,
    kind: str = "",
) -> Meta:
    """Describe one key: meaning, unit, where its default comes from, range.

    `kind` names a further check or treatment: `secret` (never shown), `match`, `address`, `name`, `endpoint`, `url`, `password`,
    `module` (`module:function`), `auto` (a number, or the word), `log` (a URL that may hold a password).
    """
    about = {"unit": unit, "source": source, "kind": kind}
    return Meta(
        ge=at_least,
        le=at_most,
        description=text,
        extra=about,
        extra_json_schema=({"x-unit": unit} if unit else {}) | ({"x-auto": True} if kind == AUTO else {})
        or None,
    )


class Field(Struct, frozen=True, kw_only=True):
    """One field of a struct, as files, URLs and the documentation see it.

    `plain` is the type without annotation, None and UNSET; `item` is the type of the elements when `plain` is a tuple.
    """

    name: str
    spelled: str
    plain: Any
    item: Any
    optional: bool
    default: Any
    required: bool
    text: str
    unit: str
    source: str
    kind: str
    at_least: float | None
    at_most: float | None

    @property
    def table(self) -> type[Struct] | None:
        """The struct behind a table or an array of tables."""
        inner = self.item or self.plain
        return inner if isinstance(inner, type) and issubclass(inner, Struct) else None

    def allowed(self) -> str:
        """Says for people what may be written here."""
        return _allowed_items(self) if self.item else _allowed(self, self.plain)

    def allowed_item(self) -> str:
        """What one element of a list may be."""
        return _allowed(self, self.item)


@cache
def fields_of(struct: type[Struct]) -> dict[str, Field]:
    """The fields of `struct` by the name that files and URLs use."""
    return {info.encode_name: _field(info) for info in fields(struct)}


def _field(info: FieldInfo) -> Field:
    plain, metas, optional = _unwrap(info.type)
    meta = metas[0] if metas else Meta()
    about = meta.extra or {}
    return Field(
        name=info.name,
        spelled=info.encode_name,
        plain=plain,
        item=_unwrap(get_args(plain)[0])[0]
        if get_origin(plain) is tuple and Ellipsis in get_args(plain)
        else None,
        optional=optional,
        default=info.default if info.default_factory is NODEFAULT else info.default_factory(),
        required=info.required,
        text=meta.description or "",
        unit=about.get("unit", ""),
        source=about.get("source", ""),
        kind=about.get("kind", ""),
        at_least=meta.ge,
        at_most=meta.le,
    )


def _unwrap(hint: Any) -> tuple[Any, list[Meta], bool]:
    """(the type itself, the annotations around it, whether it may be None); a union with None or UNSET is what else is in it."""
    if get_origin(hint) is Annotated:
        inner, *metas = get_args(hint)
        plain, more, optional = _unwrap(inner)
        return plain, [*(meta for meta in metas if isinstance(meta, Meta)), *more], optional
    if get_origin(hint) not in (Union, UnionType):
        return hint, [], False
    members = [member for member in get_args(hint) if member not in (NoneType, UnsetType)]
    plain, metas, optional = _unwrap(members[0])
    return plain, metas, optional or NoneType in get_args(hint)


def _allowed_items(field: Field) -> str:
    if field.table:
        return "an array of tables"
    return f"a list of {' / '.join(words(field.item))}" if words(field.item) else "a list of texts"


def _allowed(field: Field, plain: Any) -> str:
    if field.table:
        return "a table"
    if words(plain):
        return "one of " + ", ".join(words(plain))
    if plain is bool:
        return "true or false"
    if plain is str:
        return "a text"
    if get_origin(plain) is dict:
        return "a table of texts"
    return _allowed_number(field, "a number" if plain is float else "a whole number")


def _allowed_number(field: Field, noun: str) -> str:
    low, high = field.at_least, field.at_most
    bounds = (
        f" from {low:g} to {high:g}"
        if low is not None and high is not None
        else f" of at least {low:g}"
        if low is not None
        else ""
    )
    if field.kind == AUTO:
        return f"{noun}{bounds}, or {AUTO}"
    unit = {"bytes": ' (bytes, or a size such as "512MiB")', "": ""}.get(field.unit, f" ({field.unit})")
    return noun + bounds + unit


def words(plain: Any) -> list[str]:
    """The words of a `Word` type, else nothing."""
    return [member.value for member in plain] if isinstance(plain, type) and issubclass(plain, Word) else []


def parse_size(text: str) -> int:
    """Bytes of "512MiB", "10 MB", "64k" or "4096". K, M, G and T are powers of 1024 with or without the i, as in Artemis.

    Raises ValueError.
    """
    number = text.strip().upper().removesuffix("IB").removesuffix("B").rstrip()
    unit = number[-1:] if number[-1:].isalpha() else ""
    count = whole(number.removesuffix(unit).rstrip() if unit else number, ANY)
    if unit not in _UNITS or count is None:
        raise ValueError(f"{text!r} is not a size")
    return count * _UNITS[unit]


def within(field: Field, number: float) -> bool:
    """Is `number` finite, of 64 bits where it is a whole one, and inside the field's range?"""
    low, high = field.at_least, field.at_most
    if isinstance(number, int) and abs(number) > LARGEST:
        return False
    return math.isfinite(number) and (low is None or number >= low) and (high is None or number <= high)


def nearest(wrong: str, known: Iterable[str], prefix: str = "", page: str = "docs/configuration.md") -> str:
    """A clause that leads from a wrong name to the right one: the nearest known name, or all of them when they are few.

    `prefix` is what all names begin with; it does not count as likeness. `page` is the document that lists all names.
    """
    from difflib import get_close_matches  # only a refusal pays for it

    names = sorted(known)
    bare = {_plain(name.removeprefix(prefix)): name for name in names}
    close = get_close_matches(_plain(wrong.removeprefix(prefix)), bare, n=1, cutoff=0.6)
    if close:
        return f"the nearest known name is {bare[close[0]]!r}"
    return "known here: " + ", ".join(names) if 0 < len(names) <= 12 else f"{page} lists all names"


def _plain(name: str) -> str:
    return name.replace("-", "").replace("_", "").casefold()


def shown(value: object) -> str:
    """A short repr of a wrong value, for error texts."""
    try:
        text = repr(value) if not isinstance(value, bool) else str(value).lower()
    except ValueError:  # a number of thousands of digits, which TOML may have in hexadecimal
        text = "a number of thousands of digits"
    return text if len(text) <= 60 else text[:57] + "..."
