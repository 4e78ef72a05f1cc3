"""The first messages of a queue, to be looked at: nothing is taken, and nobody notices.

What the queue has in memory comes from there, what is in the log alone from the store. Messages that wait for their time are left out.
Decides how much of a message is shown: all headers, and the first BODY bytes of a body that is text.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from itertools import islice
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from stompbox.broker.queues.browsing import held
from stompbox.broker.queues.matching import wanted
from stompbox.broker.queues.queue import Queue
from stompbox.message import Run
from stompbox.ranges import Ranges

if TYPE_CHECKING:
    from stompbox.server.broker import Broker

BODY: Final = 4096  # bytes
LOOK: Final = 256 << 10  # bytes of one read of the log
LOOKS: Final = 20  # reads without enough messages for the queue in them
_DECODER: Final = getincrementaldecoder("utf-8")


class MessageView(Struct, frozen=True):
    """A message as the API shows it. `arrived`: ms since the epoch. `body` None: it is no text, or too large to be in memory; `is_cut`:
    there is more of it."""

    offset: int
    arrived: int
    is_delivering: bool
    size: int
    headers: dict[str, str]
    body: str | None
    is_cut: bool


async def first_messages(broker: Broker, queue: Queue, count: int) -> list[MessageView]:
    """The messages in the order of their offsets."""
    out = delivering(queue)
    return [_view(run, at, is_delivering=at in out) for at, run in await first_of(broker, queue, count)]


async def first_of(broker: Broker, queue: Queue, count: int) -> list[tuple[int, Run]]:
    """Offsets, and the run that each is of."""
    found = list(
        islice(((offset, run) for first, stop, run in held(queue) for offset in range(first, stop)), count)
    )
    if len(found) < count and queue.paged_from >= 0:
        found += await _stored(broker, queue, count - len(found))
    return found


def delivering(queue: Queue) -> Ranges:
    """The offsets of what consumers have and have not answered."""
    taken = Ranges()
    for binding in queue.bindings:
        for segment in binding.taken():
            taken.add(segment.first, segment.stop)
    return taken


async def _stored(broker: Broker, queue: Queue, count: int) -> list[tuple[int, Run]]:
    """The messages of a queue that the log alone has."""
    log, at = queue.address.log, max(queue.paged_from, queue.cursor.position)
    found: list[tuple[int, Run]] = []
    for _ in range(LOOKS):
        if at >= log.committed or len(found) >= count:
            break
        runs, stop = await broker.committer.load(log.id, at, log.committed, LOOK)
        for run in runs:
            for first, end in (
                queue.still_in_log(max(at, run.first), min(stop, run.stop)) if queue.wants(run) else ()
            ):
                selector = queue.selector
                parts = (
                    [(first, end)] if selector is None else wanted(selector, run, first, end, queue.address)
                )
                found += [
                    (offset, run) for low, high in parts for offset in range(low, min(high, low + count))
                ]
        at = max(stop, at + 1)
    return found[:count]


def _view(run: Run, offset: int, *, is_delivering: bool) -> MessageView:
    index = offset - run.first
    body = run.octets(index)
    is_cut = len(body) > BODY
    text = None if run.is_large else _text(body[:BODY], is_whole=not is_cut)
    return MessageView(
        offset, run.arrived, is_delivering, len(run.bodies[index]), run.headers(index), text, is_cut
    )


def _text(body: bytes, *, is_whole: bool) -> str | None:
    """UTF-8, which may be cut in the middle of a character where it is not whole."""
    try:
        return _DECODER().decode(body, is_whole)
    except UnicodeDecodeError:
        return None
