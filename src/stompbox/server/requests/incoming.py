"""Chunks that clients hand over: messages for a sink, checked as SENDs are. What a client says of its messages is its headers alone.

Of each run the texts of its headers, the columns and the bodies are taken; a priority, an offset, a time of arrival or a handle of a body
beside them is not believed, and the shape is made of the headers where that of a SEND is made (stomp/shapes.py). So

    headers    UTF-8 without NUL, no name empty or twice, within `maxHeaderSize` and `maxHeaders`; values as a SEND's
    columns    what a hole may hold: printable ASCII without colon and backslash. A header that means something to the broker is no
               hole, nor is one whose name must be escaped: such a run is cut into those of one value each
    bodies     within `maxBodySize`; where one has a NUL octet they are bytes, whatever the sender says of `content-length`

This file looks at bytes and knows no broker. Which destinations the messages may go to is asked in sinks.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from stompbox.config import ListenerOptions
from stompbox.errors import IllegalFrame, StoreError
from stompbox.message import GROUP_SEQUENCE, NOT_TAKEN, Run, Shape
from stompbox.stomp.runs import may_be_hole
from stompbox.stomp.shapes import SEQUENCE, shape_of
from stompbox.store.chunks import Column, Portion, portions, shape_bytes
from stompbox.store.staged import has_rows

# what a hole may hold (message.py, Shape)
_PLAIN: Final = bytes([octet for octet in range(0x20, 0x7F) if octet not in b":\\"])
_NUL: Final = re.compile(b"\0")  # looks at a view without a copy of it
_CODE: Final = "bad-chunk"


class Alike(NamedTuple):
    """Messages of one shape: how many, octets of their bodies, and of the last one."""

    shape: Shape
    messages: int
    size: int
    last: int


class Looked(NamedTuple):
    """What was found in a chunk. `is_chunk`: it may be the log's as it lies, but for offset, time and routing (store/staged.py)."""

    kinds: list[Alike]
    is_chunk: bool


def runs_of(blob: bytes, options: ListenerOptions | None = None) -> list[Run]:
    """The messages of a chunk. Raises IllegalFrame that names what is wrong. Without options: it was looked at before."""
    found: list[Run] = []
    for portion, stretches in _looked_at(blob, options):
        bodies, columns = portion.bodies.values(), None
        for shape, kept, first, stop in stretches:
            columns = [column.values() for column in kept] if columns is None else columns
            if stop - first == len(bodies):
                found.append(Run(shape, bodies, tuple(columns)))
            else:
                found.append(
                    Run(shape, bodies[first:stop], tuple([column[first:stop] for column in columns]))
                )
    return found


def kinds_of(blob: bytes, options: ListenerOptions) -> Looked:
    """What messages there are in a chunk, without a look at single ones. Raises as `runs_of` does."""
    found: dict[Shape, Alike] = {}
    is_chunk, rows = True, 0
    for portion, stretches in _looked_at(blob, options):
        rows += 1
        is_chunk = is_chunk and portion.is_plain
        for shape, _, first, stop in stretches:
            sizes = portion.bodies.lengths[first:stop]
            _, messages, size, _ = found.get(shape) or (shape, 0, 0, 0)
            found[shape] = Alike(shape, messages + len(sizes), size + sum(sizes), sizes[-1])
            is_chunk = is_chunk and shape_bytes(shape) == portion.texts.key
    kinds = list(found.values())
    # a stretch that is less than its portion has other headers than the portion: its shape differs
    return Looked(kinds, is_chunk and has_rows(blob, rows, sum([kind.messages for kind in kinds])))


Stretch = tuple[Shape, list[Column], int, int]
"""Messages first .. stop-1 of a portion: their shape, and the columns of the portion that are its holes."""


def _looked_at(blob: bytes, options: ListenerOptions | None) -> Iterator[tuple[Portion, Iterator[Stretch]]]:
    known: dict[object, Shape] = {}
    try:
        for portion in portions(blob):
            if len(portion.bodies):
                yield portion, _stretches(portion, options, known)
    except StoreError as error:
        raise IllegalFrame(
            "data-corrupt", f"the body of the request is no chunk of messages: {error.message}"
        ) from None


def _stretches(
    portion: Portion, options: ListenerOptions | None, known: dict[object, Shape]
) -> Iterator[Stretch]:
    """The messages of a portion as one stretch, or as several where a header differs that must not."""
    texts = portion.texts
    if options is not None:
        _check_sizes(portion, options)
        for name, column in zip(texts.holes, portion.columns, strict=True):
            _check_column(name, column)
    taken = [at for at, name in enumerate(texts.holes) if name not in NOT_TAKEN]
    cutting = [at for at in taken if not may_be_hole(texts.holes[at])]
    kept = [at for at in taken if at not in cutting]
    holes, columns = tuple([texts.holes[at] for at in kept]), [portion.columns[at] for at in kept]
    has_length = texts.has_length or _NUL.search(portion.bodies.octets) is not None
    for key, first, stop in _cuts([portion.columns[at].values() for at in cutting], len(portion.bodies)):
        fixed = {texts.holes[at]: value.decode() for at, value in zip(cutting, key, strict=True)}
        shape = known.get((texts, key, has_length))
        if shape is None:
            samples = {name: column.first().decode() for name, column in zip(holes, columns, strict=True)}
            length = {"content-length": ""} if has_length else {}
            shape = known[texts, key, has_length] = shape_of(
                {**dict(texts.headers), **fixed, **samples, **length}, holes=holes
            )
        yield shape, columns, first, stop


def _cuts(columns: Sequence[Sequence[bytes]], count: int) -> Iterator[tuple[tuple[bytes, ...], int, int]]:
    """Stretches of rows in which these columns have the same values: the values, and from where to where."""
    if not columns:
        yield (), 0, count
        return
    for key, part in groupby(range(count), list(zip(*columns, strict=True)).__getitem__):
        rows = list(part)
        yield key, rows[0], rows[-1] + 1


def _check_sizes(portion: Portion, options: ListenerOptions) -> None:
    texts = portion.texts
    names = [*[name for name, _ in texts.headers], *texts.holes]
    if len(names) > options.max_headers:
        raise IllegalFrame(_CODE, f"{len(names)} headers in a message; the limit is {options.max_headers}")
    if len(set(names)) < len(names) or "" in names:
        raise IllegalFrame(
            _CODE,
            f"a message has a header without name, or one twice; its headers are {', '.join(names)[:200]!r}",
        )
    if any("\0" in text for pair in texts.headers for text in pair) or any(
        "\0" in name for name in texts.holes
    ):
        raise IllegalFrame(_CODE, f"a NUL octet in a header; the headers are {', '.join(names)[:200]!r}")
    size = texts.size + sum([max(column.lengths) + 2 for column in portion.columns])
    if size > options.max_header_size:
        raise IllegalFrame(
            _CODE, f"the headers of a message have {size} octets; the limit is {options.max_header_size}"
        )
    size = max(portion.bodies.lengths)
    if size > options.max_body_size:
        raise IllegalFrame(_CODE, f"a body of {size} octets; the limit is {options.max_body_size}")


def _check_column(name: str, column: Column) -> None:
    wrong = bytes(column.octets).translate(None, _PLAIN)
    if wrong:
        text = f"header {name[:80]!r} has values with {wrong[:20]!r}; a column holds printable ASCII without colon and backslash"
        raise IllegalFrame(_CODE, text)
    if name == GROUP_SEQUENCE:
        for value in set(column.values()):
            if SEQUENCE.fullmatch(value.decode()) is None:
                raise IllegalFrame(
                    "bad-number",
                    f"header {name} is {value[:80].decode()!r}; allowed is a whole number, -1 ends the group",
                )
