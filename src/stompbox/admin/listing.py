"""One page of a list: filtered, sorted and cut here, so that of ten thousand entries only those travel that are looked at.

?match=TEXT    leaves out entries that do not hold the text
?sort=FIELD    in the order of a field, ?sort=-FIELD the largest first; without it by key
?limit=N       so many entries, ?offset=N without so many of the first, or ?after=KEY those behind one
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from stompbox.admin.responses import json
from stompbox.errors import IllegalFrame
from stompbox.numerals import digits
from stompbox.server.requests.replies import in_turns

LISTED: Final = 1000  # entries of one answer, if the request does not say how many
MOST: Final = 10_000
FARTHEST: Final = 999_999_999

Field = Callable[[Any], Any]


class Entry(NamedTuple):
    """One entry of a list; `text` is what a match looks at."""

    key: str
    item: Any
    text: str


def named(name: str, item: Any) -> Entry:
    """An entry that is looked for by its key."""
    return Entry(name, item, name)


async def listed(
    request: Request, name: str, entries: Iterable[Entry], view: Callable[[Any], object | Awaitable[object]],
    fields: Mapping[str, Field] = MappingProxyType({}),
) -> Response:  # fmt: skip
    """{NAME: […], "total": …, "next": …, "now": …}. `entries` by key; `fields`: what they can be sorted by."""
    match = request.query_params.get("match", "")
    limit, offset = number(request, "limit", LISTED, MOST), number(request, "offset", 0, FARTHEST, least=0)
    found = await _sorted(request, [entry for entry in entries if match in entry.text], fields)
    total = len(found)
    found = _behind(found, request.query_params.get("after"))[offset:]
    shown = []
    async for entry in in_turns(request.app.state.broker.turns, found[:limit]):
        value = view(entry.item)
        shown.append(await value if isinstance(value, Awaitable) else value)
    following = found[limit - 1].key if len(found) > limit else None
    return json({name: shown, "total": total, "next": following, "now": int(time.time() * 1000)})


def _behind(entries: list[Entry], after: str | None) -> list[Entry]:
    if after is None:
        return entries
    keys = [entry.key for entry in entries]
    return (
        entries[keys.index(after) + 1 :]
        if after in keys
        else [entry for entry in entries if entry.key > after]
    )


async def _sorted(request: Request, entries: list[Entry], fields: Mapping[str, Field]) -> list[Entry]:
    given = request.query_params.get("sort")
    if given is None:
        return entries
    field = fields.get(given.removeprefix("-"))
    if field is None:
        raise IllegalFrame(
            "bad-sort",
            f"sort is {given[:80]!r}; allowed are {', '.join(fields)}, each also with a hyphen before it",
        )
    values = [
        (field(entry.item), at)
        async for at, entry in in_turns(request.app.state.broker.turns, list(enumerate(entries)))
    ]
    down = given.startswith("-")
    values.sort(key=lambda pair: pair[0], reverse=down)  # stable: what is equal stays in the order of keys
    return [entries[at] for _, at in values]


def number(request: Request, name: str, default: int, most: int, *, least: int = 1) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    found = digits(text, most=9)
    if found is None or not least <= found <= most:
        raise IllegalFrame(
            "bad-number", f"{name} is {text[:80]!r}; allowed is a number from {least} to {most}"
        )
    return found


def truth(request: Request, name: str) -> bool:
    text = request.query_params.get(name, "false")
    if text not in ("true", "false"):
        raise IllegalFrame("bad-boolean", f"{name} is {text[:80]!r}; allowed are true and false")
    return text == "true"
