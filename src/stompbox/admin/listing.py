"""One page of a list: filtered, sorted and cut here, so that of ten thousand entries only those travel that are looked at.

?match=TEXT    leaves out entries that do not hold the text
?sort=FIELD    in the order of a field, ?sort=-FIELD the largest first; without it by key
?limit=N       so many entries, ?offset=N without so many of the first, or ?after=KEY those behind one
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from inspect import iscoroutinefunction
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from msgspec import Struct
from starlette.responses import Response

from stompbox.admin.endpoints import Choice, Number, Parameter, Text
from stompbox.errors import IllegalFrame
from stompbox.selectors.steps import Steps
from stompbox.server.requests.replies import in_turns

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from stompbox.admin.apirequest import ApiRequest
    from stompbox.server.turns import Turns

LISTED: Final = 1000  # entries of one answer, if the request does not say how many
MOST: Final = 10_000
FARTHEST: Final = 999_999_999
PIECE: Final = 200  # entries that are made JSON in one go
PART: Final = 256 << 10  # octets that are handed to the socket in one go
RUN: Final = 1000  # items that are sorted in one go
JOINED: Final = 10_000  # items in pieces that become one in one go, which takes a millisecond

T = TypeVar("T")
Field = Callable[[Any], Any]
View = Callable[[T], object] | Callable[[T], Awaitable[object]]
"""Makes of an item what is shown of it; a coroutine where that has to wait."""

_CUT: Final = (
    Text("match", "Leaves out entries whose name does not hold the text.", ""),
    Number("limit", "So many entries at most.", LISTED, MOST),
    Number("offset", "Without so many of the first.", 0, FARTHEST, least=0),
    Text("after", "Those behind the entry with this key, as `next` of the page before says."),
)
_ENCODER: Final = msgspec.json.Encoder()


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
    asked: ApiRequest, name: str, items: Sequence[T], view: View[T], *, key: Callable[[T], str],
    text: Callable[[T], str] | None = None, fields: Mapping[str, Field] = MappingProxyType({}),
) -> Response:  # fmt: skip
    """{NAME: […], "total": …, "next": …, "now": …}. `items` by `key`; `text`: what a match looks at, where that is not the key; `fields`:
    what they can be sorted by."""
    values, turns = asked.values, asked.broker.turns
    limit, match, after = values["limit"], values["match"], values["after"]
    if match:
        items = await turns.taken(_matching(items, match, text or key))
    if given := values.get("sort"):
        items = await turns.taken(by_field(items, fields[given.removeprefix("-")], reverse=given[0] == "-"))
    total = len(items)
    if after is not None:
        items = await turns.taken(_behind(items, after, key))
    items = items[values["offset"] :]
    shown = items[:limit]
    if iscoroutinefunction(view):
        views = [await view(item) async for item in in_turns(turns, shown)]
        pieces = await turns.taken(_pieces(views, _itself))
    else:
        pieces = await turns.taken(_pieces(shown, view))
    following = key(shown[-1]) if len(items) > limit else None
    rest = _ENCODER.encode({"total": total, "next": following, "now": int(time.time() * 1000)})
    head = b'{"%b":[' % name.encode()
    if len(pieces) < 2:
        return Response(b"%b%b],%b" % (head, b"".join(pieces), rest[1:]), media_type="application/json")
    pieces[0] = head + pieces[0]
    pieces[-1] += b"],%b" % rest[1:]
    return Pieces(turns, pieces)


class Pieces(Response):
    """A long answer. It is handed to the socket piece by piece, in as many turns as that takes, and never put together."""

    def __init__(self, turns: Turns, pieces: list[bytes]) -> None:
        self.turns = turns
        self.pieces = pieces
        size = sum([len(piece) for piece in pieces])
        super().__init__(headers={"content-length": str(size)}, media_type="application/json")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async for part in in_turns(self.turns, self._parts()):
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    def _parts(self) -> Iterator[bytes]:
        for piece in self.pieces:
            for at in range(0, len(piece), PART):
                yield piece[at : at + PART]


async def in_pieces(
    turns: Turns,
    before: Mapping[str, object],
    name: str,
    items: Sequence[object],
    after: Mapping[str, object],
) -> Response:
    """An object with a list of entries that may be long, each made JSON by itself; `before`, `after`: its other fields."""
    pieces: list[bytes] = []
    async for item in in_turns(turns, items):
        pieces.append((b",%b" if pieces else b"%b") % _ENCODER.encode(item))
    head = b'%b,"%b":[' % (_ENCODER.encode(before)[:-1], name.encode())
    return Pieces(turns, [head, *pieces, b"],%b" % _ENCODER.encode(after)[1:]])


def members(table: Mapping[str, object]) -> Iterator[bytes]:
    """An object as JSON, key by key, and lists in it entry by entry: what has ten thousand entries is never made JSON in one go."""
    yield b"{"
    for number, (name, value) in enumerate(table.items()):
        yield b"%b%b:" % (b"," if number else b"", _ENCODER.encode(name))
        if isinstance(value, list):
            yield b"["
            for at, entry in enumerate(value):
                yield b"%b%b" % (b"," if at else b"", _ENCODER.encode(entry))
            yield b"]"
        else:
            yield _ENCODER.encode(value)
    yield b"}"


def joined(pieces: Iterable[bytes]) -> list[bytes]:
    """Few pieces of PART octets, or a little more, with the same octets."""
    found, small, size = list[bytes](), list[bytes](), 0
    for piece in pieces:
        small.append(piece)
        size += len(piece)
        if size >= PART:
            found.append(b"".join(small))
            small, size = [], 0
    return [*found, b"".join(small)]


def _pieces(items: Sequence[T], view: Callable[[T], object]) -> Steps[list[bytes]]:
    """The items as JSON, with commas between them."""
    pieces = []
    for at in range(0, len(items), PIECE):
        shown = []
        for item in items[at : at + PIECE]:
            shown.append(_ENCODER.encode(view(item)))  # each by itself: one may be long
            yield
        pieces.append((b",%b" if at else b"%b") % b",".join(shown))
        yield
    return pieces


def _itself(item: T) -> T:
    return item


def in_order(
    items: Sequence[Any], key: Callable[[Any], Any] | None = None, *, reverse: bool = False
) -> Steps[list[Any]]:
    """The items in order: each RUN is sorted by itself, two become one until they are large, and these go on item by item. What is equal
    stays in the order in which it is."""
    pieces: list[list[Any]] = []
    for at in range(0, len(items), RUN):
        pieces.append(sorted(items[at : at + RUN], key=key, reverse=reverse))
        yield
    while len(pieces) > 1 and len(pieces[0]) < JOINED:
        joined = []
        for at in range(0, len(pieces), 2):
            # what is in order is found and only gone through by `sorted`
            joined.append(sorted(chain.from_iterable(pieces[at : at + 2]), key=key, reverse=reverse))
            yield
        pieces = joined
    if len(pieces) < 2:
        return pieces[0] if pieces else []
    found = []
    for item in merge(*pieces, key=key, reverse=reverse):
        found.append(item)
        yield
    return found


def _matching(items: Sequence[T], match: str, text: Callable[[T], str]) -> Steps[list[T]]:
    found = []
    for item in items:
        if match in text(item):
            found.append(item)
        yield
    return found


def _behind(items: Sequence[T], after: str, key: Callable[[T], str]) -> Steps[Sequence[T]]:
    """What comes after the item of this key; where that is gone, what has a higher one."""
    found = []
    for at, item in enumerate(items, 1):
        name = key(item)
        if name == after:
            return items[at:]
        if name > after:
            found.append(item)
        yield
    return found


def by_field(items: Sequence[T], field: Callable[[T], Any], *, reverse: bool = False) -> Steps[list[T]]:
    """The items in the order of a field, or key; what is equal stays in the order in which it is."""
    values = []
    for item in items:
        values.append(field(item))
        yield
    order = yield from in_order(range(len(items)), values.__getitem__, reverse=reverse)
    found = []
    for at in order:
        found.append(items[at])
        yield
    return found
