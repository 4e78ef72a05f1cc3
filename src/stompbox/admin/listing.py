"""One page of a list: filtered, sorted and cut here, so that of ten thousand entries only those travel that are looked at.

?match=TEXT    leaves out entries that do not hold the text
?sort=FIELD    in the order of a field, ?sort=-FIELD the largest first; without it by key
?limit=N       so many entries, ?offset=N without so many of the first, or ?after=KEY those behind one
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from heapq import merge
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from msgspec import Struct
from starlette.responses import Response

from stompbox.admin.endpoints import Choice, Number, Parameter, Text
from stompbox.errors import IllegalFrame
from stompbox.server.requests.replies import in_turns

if TYPE_CHECKING:
    from stompbox.admin.apirequest import ApiRequest
    from stompbox.server.turns import Turns

LISTED: Final = 1000  # entries of one answer, if the request does not say how many
MOST: Final = 10_000
FARTHEST: Final = 999_999_999
PIECE: Final = 200  # entries that are made JSON in one go
JOINED: Final = 10_000  # names in pieces that become one in one go, which takes a millisecond

Field = Callable[[Any], Any]

_CUT: Final = (
    Text("match", "Leaves out entries whose name does not hold the text.", ""),
    Number("limit", "So many entries at most.", LISTED, MOST),
    Number("offset", "Without so many of the first.", 0, FARTHEST, least=0),
    Text("after", "Those behind the entry with this key, as `next` of the page before says."),
)
_ENCODER: Final = msgspec.json.Encoder()


class Entry(NamedTuple):
    """One entry of a list; `text` is what a match looks at."""

    key: str
    item: Any
    text: str


def named(name: str, item: Any) -> Entry:
    """An entry that is looked for by its key."""
    return Entry(name, item, name)


def cutting(fields: Mapping[str, Field] = MappingProxyType({})) -> tuple[Parameter, ...]:
    """The parameters of a list; `fields`: what it can be sorted by."""
    if not fields:
        return _CUT
    choices = (*fields, *[f"-{name}" for name in fields])
    said = f"{', '.join(fields)}, each also with a hyphen before it"
    return (
        *_CUT,
        Choice(
            "sort",
            "In the order of this field; with a hyphen before it the largest first.",
            choices,
            lambda text: IllegalFrame("bad-sort", text),
            said=said,
        ),
    )


def page_of(name: str, view: Any) -> type[Struct]:
    """The form of a page: its entries, how many there are, the key to go on behind, the broker's time."""
    fields = [(name, list[view]), ("total", int), ("next", str | None), ("now", int)]
    return msgspec.defstruct(f"{name.capitalize()}Page", fields)


async def listed(
    asked: ApiRequest, name: str, entries: Iterable[Entry], view: Callable[[Any], object | Awaitable[object]],
    fields: Mapping[str, Field] = MappingProxyType({}),
) -> Response:  # fmt: skip
    """{NAME: […], "total": …, "next": …, "now": …}. `entries` by key; `fields`: what they can be sorted by."""
    values, turns = asked.values, asked.broker.turns
    limit, match = values["limit"], values["match"]
    if match:
        entries = [entry async for entry in in_turns(turns, entries) if match in entry.text]
    found = await _sorted(asked, list(entries), fields)
    total = len(found)
    found = _behind(found, values["after"])[values["offset"] :]
    pieces: list[bytes] = []
    shown: list[object] = []
    async for entry in in_turns(turns, found[:limit]):
        value = view(entry.item)
        shown.append(await value if isinstance(value, Awaitable) else value)
        if len(shown) == PIECE:
            pieces.append(_ENCODER.encode(shown)[1:-1])
            shown = []
    if shown:
        pieces.append(_ENCODER.encode(shown)[1:-1])
    following = found[limit - 1].key if len(found) > limit else None
    rest = _ENCODER.encode({"total": total, "next": following, "now": int(time.time() * 1000)})
    if (
        len(pieces) > 1
    ):  # the whole of a long answer is put together, and handed to the socket, in a turn of its own
        await turns.give_way()
    pieces[:1] = [b'{"%b":[%b' % (name.encode(), pieces[0] if pieces else b"")]
    pieces[-1] += b"],%b" % rest[1:]
    return Response(b",".join(pieces), media_type="application/json")


async def in_order(turns: Turns, names: list[str]) -> list[str]:
    """The names in order: each PIECE is sorted by itself, two become one until they are large, and these go on name by name, in as
    many turns as that takes."""
    pieces = [sorted(names[at : at + PIECE]) async for at in in_turns(turns, range(0, len(names), PIECE))]
    while len(pieces) > 1 and len(pieces[0]) < JOINED:
        # what is in order is found and only gone through by `sorted`
        pieces = [
            sorted(chain.from_iterable(pieces[at : at + 2]))
            async for at in in_turns(turns, range(0, len(pieces), 2))
        ]
    if len(pieces) < 2:
        return pieces[0] if pieces else []
    return [name async for name in in_turns(turns, merge(*pieces))]


def _behind(entries: list[Entry], after: str | None) -> list[Entry]:
    if after is None:
        return entries
    at = next((at for at, entry in enumerate(entries) if entry.key == after), None)
    return entries[at + 1 :] if at is not None else [entry for entry in entries if entry.key > after]


async def _sorted(asked: ApiRequest, entries: list[Entry], fields: Mapping[str, Field]) -> list[Entry]:
    given = asked.values.get("sort")
    if given is None:
        return entries
    field = fields[given.removeprefix("-")]
    values = [
        (field(entry.item), at) async for at, entry in in_turns(asked.broker.turns, list(enumerate(entries)))
    ]
    values.sort(
        key=lambda pair: pair[0], reverse=given.startswith("-")
    )  # stable: what is equal stays in the order of keys
    return [entries[at] for _, at in values]
