"""The first messages of a queue, to be looked at: nothing is taken, and nobody notices.

What the queue has in memory comes from there, what is in the log alone from the store. Messages that wait for their time are left out.
Decides how much of a message is shown: all headers, and the first BODY bytes of a body that is text.
"""

from __future__ import annotations

from base64 import b64encode
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable
from heapq import merge
from operator import itemgetter
from typing import TYPE_CHECKING, Final, TypeVar, cast

import msgspec
from msgspec import Raw, Struct

from stompbox.broker.addresses.contracts import address_of
from stompbox.broker.queues import matching
from stompbox.broker.queues.browsing import Held, Out, RunPart
from stompbox.broker.queues.matching import Range
from stompbox.broker.queues.queue import Queue
from stompbox.broker.work import PORTION, QUESTION
from stompbox.message import Run
from stompbox.ranges import Ranges, add_range
from stompbox.selectors import Selector
from stompbox.selectors.steps import Steps
from stompbox.server.requests.fetching import offset_at_time
from stompbox.server.requests.replies import in_turns

if TYPE_CHECKING:
    from stompbox.broker.addresses.address import Address
    from stompbox.server.broker import Broker

S = TypeVar("S", str, bytes)

BODY: Final = 4096  # bytes
WHOLE: Final = 1 << 20  # bytes of one body that is wanted whole
# characters of a body, or its octets in whole groups of three, that are made JSON in one go: two milliseconds at the most
SLICE: Final = 48 << 10
ANSWER: Final = 8 << 20  # bytes of the bodies of one answer, after which the rest comes with the next
LOOK: Final = 256 << 10  # bytes of one read of the log
LOOKS: Final = 20  # reads without enough messages for the queue in them
_DECODER: Final = getincrementaldecoder("utf-8")

Found = list[tuple[int, Run]]
"""Offsets, and the run that each is of."""


class MessageView(Struct, frozen=True):
    """A message as the API shows it. `arrived`: ms since the epoch. `body` None: it is no text, or too large to be in memory and not wanted
    whole; `is_cut`: there is more of it. `body_base64`: of what is wanted whole and no text."""

    offset: int
    arrived: int
    is_delivering: bool
    size: int
    headers: dict[str, str]
    body: str | None
    is_cut: bool
    body_base64: str | None = None


class Wanted(Struct, frozen=True):
    """Which messages are looked for: from an offset on, that arrived at a time or later (ms), that a selector takes."""

    start: int = 0
    since: int = 0
    selector: Selector | None = None


async def first_messages(
    broker: Broker, queue: Queue, count: int, wanted: Wanted, *, is_whole: bool
) -> tuple[list[MessageView], int | None]:
    """The messages in the order of their offsets, and from which offset on there may be more; None: there are none."""
    out, size = await delivering(broker, queue), 0
    found, following = await first_of(broker, queue, count, wanted)
    views: list[MessageView] = []
    async for offset, run in in_turns(broker.turns, found):
        view = await _view(broker, run, offset, is_delivering=offset in out, is_whole=is_whole)
        size += min(view.size, WHOLE) if is_whole else 0
        if views and size > ANSWER:
            return views, offset
        views.append(view)
    return views, following


async def first_of(broker: Broker, queue: Queue, count: int, wanted: Wanted) -> tuple[Found, int | None]:
    found: Found = []
    async for first, stop, run in in_turns(broker.turns, await _in_memory(broker, queue)):
        for low, high in await _picked(broker, queue, run, (first, stop), wanted):
            found += [(offset, run) for offset in range(low, min(high, low + count + 1))]
        if len(found) > count:
            return found[:count], found[count][0]
    if queue.paged_from < 0:
        return found, None
    stored, at = await _stored(broker, queue, count + 1 - len(found), wanted)
    found += stored
    if len(found) > count:
        return found[:count], found[count][0]
    return found, at if at < queue.address.log.committed else None


async def _in_memory(broker: Broker, queue: Queue) -> Iterable[RunPart]:
    """What the queue has in memory, by offset: looked at in turns, and as it was when that began."""
    held, stretches = Held(queue), list[list[RunPart]]()
    try:
        async for parts in in_turns(broker.turns, held.parts()):
            if parts and stretches and stretches[-1][-1][0] <= parts[0][0]:
                stretches[-1] += parts
            elif parts:
                stretches.append(parts)
    finally:
        held.end()
    return merge(*stretches, key=itemgetter(0))


async def _picked(
    broker: Broker, queue: Queue, run: Run, part: Range, wanted: Wanted
) -> list[tuple[int, int]]:
    """The ranges within this part of a run that are looked for."""
    first, stop = max(part[0], wanted.start), part[1]
    if first >= stop or run.arrived < wanted.since:
        return []
    return await taken_by(broker, wanted.selector, run, (first, stop), address_of(queue))


async def taken_by(
    broker: Broker, selector: Selector | None, run: Run, part: Range, address: Address
) -> list[Range]:
    """What of a part of a run a selector takes, asked in turns of the loop."""
    if selector is None:
        return [part]
    first, stop = part
    found: list[Range] = []
    if not matching.is_long(selector, run, first, stop):
        most = max(1, PORTION // selector.most_steps)
        async for low in in_turns(broker.turns, range(first, stop, most)):
            found += matching.wanted(selector, run, low, min(low + most, stop), address)
        return found
    from stompbox.selectors.question import Question  # loaded with the first XPATH

    async for offset in in_turns(broker.turns, range(first, stop)):
        question = Question(matching.asking(selector, run, offset, address))
        while (is_taken := question.go_on(PORTION // QUESTION)) is None:
            await broker.turns.give_way()
        if is_taken:
            add_range(found, offset, offset + 1)
    return found


async def delivering(broker: Broker, queue: Queue) -> Ranges:
    """The offsets of what consumers have and have not answered."""
    taken = Ranges()
    held = Out(queue)
    try:
        async for parts in in_turns(broker.turns, held.parts()):
            for first, stop, _ in parts:
                taken.add(first, stop)
    finally:
        held.end()
    return taken


async def _stored(broker: Broker, queue: Queue, count: int, wanted: Wanted) -> tuple[Found, int]:
    """What the log alone has, and how far it was looked at."""
    log = queue.address.log
    at = max(queue.paged_from, queue.cursor.position, wanted.start)
    if wanted.since:
        at = max(at, await offset_at_time(broker, address_of(queue), wanted.since))
    found: Found = []
    for _ in range(LOOKS):
        if at >= log.committed or len(found) >= count:
            break
        runs, stop = await broker.committer.load(log.id, at, log.committed, LOOK)
        async for run in in_turns(broker.turns, runs):
            for still in (
                queue.still_in_log(max(at, run.first), min(stop, run.stop)) if queue.wants(run) else ()
            ):
                for part in await taken_by(broker, queue.selector, run, still, address_of(queue)):
                    for low, high in await _picked(broker, queue, run, part, wanted):
                        found += [(offset, run) for offset in range(low, min(high, low + count))]
        at = max(stop, at + 1)
    return found[:count], at


async def _view(broker: Broker, run: Run, offset: int, *, is_delivering: bool, is_whole: bool) -> MessageView:
    index = offset - run.first
    size, most = len(run.bodies[index]), WHOLE if is_whole else BODY
    body = await _octets(broker, run, index, most) if is_whole else run.octets(index)[:most]
    is_cut = size > most and not (run.is_large and not is_whole)
    text = None if run.is_large and not is_whole else _text(body, is_whole=not is_cut)
    turns = broker.turns
    said = await turns.taken(_said(text, _escaped)) if text is not None and len(text) > SLICE else text
    encoded = await turns.taken(_said(body, b64encode)) if is_whole and text is None else None
    return MessageView(offset, run.arrived, is_delivering, size, run.headers(index), said, is_cut, encoded)


def _said(body: S, told: Callable[[S], bytes]) -> Steps[str]:
    """A body as JSON, made of slices each of which is `told`; it stands for a text in a MessageView."""
    parts = []
    for at in range(0, len(body), SLICE):
        parts.append(told(body[at : at + SLICE]))
        yield
    return cast(str, Raw(b'"%b"' % b"".join(parts)))


def _escaped(text: str) -> bytes:
    return msgspec.json.encode(text)[1:-1]


async def _octets(broker: Broker, run: Run, index: int, most: int) -> bytes:
    """The beginning of a body, out of the store, where that has it."""
    if not run.is_large:
        return run.octets(index)[:most]
    large, parts, number = run.large(index), bytearray(), 0
    while len(parts) < min(large.size, most):
        piece = broker.engine.bodies.piece(large, number)
        if piece is None:
            piece = await broker.committer.read_part(large.id, number)
        if not piece:
            break
        parts += piece
        number += 1
    return bytes(parts[:most])


def _text(body: bytes, *, is_whole: bool) -> str | None:
    """UTF-8, which may be cut in the middle of a character where it is not whole."""
    try:
        return _DECODER().decode(body, is_whole)
    except UnicodeDecodeError:
        return None
