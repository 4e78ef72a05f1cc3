"""Requests about logs: which there are, ranges of them, where a time is. Reading needs the right `consume` on each address.

A `fetch` with a selector leaves out what that does not take before it travels. The selector is asked once per shape where the shape
decides: a chunk whose shapes all agree is not taken apart, and of others the runs that it takes are copied as they lie there, in stretches.
Where headers vary from message to message it is asked once for each set of values that a run has, and only where it looks at times, sizes
or bodies once per message. It is asked in turns of the loop, so that it holds nobody up and ends with the
connection; only taking chunks apart and packing them happens in a thread beside it.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from stompbox.broker.addresses import lifetimes
from stompbox.broker.addresses.address import Address
from stompbox.broker.addresses.destinations import Destination
from stompbox.broker.addresses.makers import require_all
from stompbox.broker.queues import matching
from stompbox.broker.queues.depth import Sums
from stompbox.broker.subscriptions import subscribers
from stompbox.broker.work import PORTION, QUESTION
from stompbox.config.patterns import Patterns
from stompbox.config.spaces import local
from stompbox.errors import Refused, StoreError
from stompbox.incarnations import Position, difference
from stompbox.message import ANYCAST, MULTICAST, Run, Shape
from stompbox.security import Right
from stompbox.selectors import Selector
from stompbox.selectors.steps import Steps
from stompbox.server.addressing.selecting import compiling, is_long, selector_of
from stompbox.server.addressing.values import truth
from stompbox.server.requests.jsontext import writing
from stompbox.server.requests.replies import (
    Reply,
    destinations_of,
    durable,
    in_turns,
    json_object,
    json_reply,
    kept,
    number,
    offsets_in,
    patterns_of,
    qualified,
    wish_in,
)
from stompbox.stomp.frames import Frame
from stompbox.store.base import StoredChunk
from stompbox.store.chunks import decode, encode, tables
from stompbox.store.extracts import extract

if TYPE_CHECKING:
    from stompbox.server.requests.asker import Asker, RequestsCore

MOST_BYTES: Final = 4 << 20  # of one answer: other clients wait while it is handed to the system
MOST_WHOLE: Final = 256 << 20  # of large bodies in one answer, when its first chunk has so many
FEW: Final = 1000  # names, up to which each is looked up; beyond, all addresses are gone through
OF_A_STEP: Final = 50  # messages whose answers may be known already
_RECORD: Final = struct.Struct("<QII")  # before each blob: first offset, count, length


async def describe(connection: Asker, frame: Frame) -> Reply:
    """Addresses that match, or those that the body names: the lowest stored offset, the one after the last that is on disk, and which
    log it is. With `limit` so many at most, and where to continue; with `counts` what their queues and subscriptions hold."""
    broker = connection.broker
    wish = await wish_in(connection, frame)
    if "addresses" in wish:
        named = await offsets_in(connection, frame, wish["addresses"], "addresses in the body")
        return await _describe_named(connection, frame, named)
    missing = []
    destinations = await destinations_of(connection, frame, wish)
    async for destination in in_turns(connection.broker.turns, destinations):
        if not destination.is_wild:
            broker.permissions.require(connection.user, Right.CONSUME, destination.address)
            if frame.headers.get("create") == "true":
                await make(connection, destination)
            elif destination.address not in broker.engine.addresses:
                missing.append(destination.text)
    since = await _since(connection, frame, wish)
    found, following = await readable(connection, frame, await patterns_of(connection, destinations))
    if "continue" not in frame.headers:
        await _require_some(connection, destinations, found)
    return await _described(connection, frame, found, since, {"missing": missing, **continued(following)})


async def _since(connection: Asker, frame: Frame, wish: dict[str, Any]) -> dict[str, Position] | None:
    """From where on what lies in the logs is to be counted. None: it is not."""
    if "sizes-from" in wish:
        return await offsets_in(connection, frame, wish["sizes-from"], "sizes-from in the body")
    if "sizes-from" not in frame.headers:
        return None
    where = "header sizes-from"
    given = await json_object(connection, frame, frame.headers["sizes-from"], where)
    return await offsets_in(connection, frame, given, where)


async def _describe_named(connection: Asker, frame: Frame, wanted: dict[str, Position]) -> Reply:
    """The answer about these addresses, with sizes; and where those that are gone had ended, as far as that is remembered."""
    engine, permissions = connection.broker.engine, connection.broker.permissions
    found, ended = [], {}
    async for name in in_turns(connection.broker.turns, wanted):
        full = connection.names.qualified(name)
        if permissions.may(connection.user, Right.CONSUME, full):
            if full in engine.addresses:
                found.append(engine.addresses[full])
            elif full in engine.ended:
                ended[name] = engine.ended[full].wire()
    return await _described(connection, frame, found, wanted, {"missing": [], "ended": ended})


async def _described(
    connection: Asker,
    frame: Frame,
    found: list[Address],
    since: dict[str, Position] | None,
    answer: dict[str, object],
) -> Reply:
    """The answer in pieces, so that no turn is long however many addresses there are."""
    await _stored(connection, found)
    await confirmed(connection, found)
    sizes = None
    if since is not None:
        starts = {}
        async for address in in_turns(connection.broker.turns, found):
            position = since.get(local(address.name))
            starts[address.log.id] = 0 if position is None else position.offset
        sizes = await connection.broker.committer.sizes(starts)
    is_counted = truth(frame, "counts")
    pieces = await connection.broker.turns.taken(writing(answer))
    pieces = kept(connection, [b"".join(pieces)[:-1] + b',"addresses":{'])
    async for address in in_turns(connection.broker.turns, found):
        log = address.log
        entry: dict[str, object] = {
            "first": log.oldest,
            "next": log.committed,
            "incarnations": log.incarnations.wire(),
        }
        if sizes is not None:
            entry["messages"], entry["bytes"] = sizes[log.id]
        if is_counted:
            entry |= await _counts(connection, address)
        comma = "," if len(pieces) > 1 else ""
        pieces.append(
            f"{comma}{json.dumps(local(address.name))}:{json.dumps(entry, separators=(',', ':'))}".encode()
        )
    return {"content-type": "application/json"}, [b"".join([*pieces, b"}}"])]


async def _counts(connection: Asker, address: Address) -> dict[str, object]:
    """What the queues and subscriptions of an address hold together, of which it may have thousands."""
    sums = Sums()
    async for queue in in_turns(connection.broker.turns, list(address.queues())):
        sums.add(queue)
    return {
        "ready": sums.ready, "delayed": sums.delayed, "delivering": sums.delivering, "settled": sums.settled,
        "consumers": sums.consumers, "is-estimate": sums.is_estimate,
    }  # fmt: skip


async def _stored(connection: Asker, found: list[Address]) -> None:
    """Which log it is outlives a restart before anybody is told of it."""
    engine, is_new = connection.broker.engine, False
    async for address in in_turns(connection.broker.turns, found):
        if not address.log.is_known and engine.logs.get(address.log.id) is address:
            engine.commits.add_log(address.log)
            is_new = True
    if is_new:
        await durable(connection)


async def confirmed(connection: Asker, found: list[Address]) -> None:
    """What senders have a RECEIPT for can be read by offset from now on, also what needs no disk: that is told before its commit."""
    broker = connection.broker
    async for address in in_turns(broker.turns, found):
        if broker.engine.trouble is None and address.has_unread():
            with suppress(StoreError):
                # the disk takes nothing more, and says so itself; what it has can be read
                await durable(connection)
            return


async def readable(connection: Asker, frame: Frame, patterns: Patterns) -> tuple[list[Address], str | None]:
    """The addresses there are under these names that the user may read, in the order in which they were made; those after `continue`,
    and `limit` at most. And what is to be said there to get the rest; None: that was all."""
    permissions, engine = connection.broker.permissions, connection.broker.engine
    after, limit = number(frame, "continue", 0), number(frame, "limit", len(engine.logs))
    if patterns.has_wildcards or len(patterns.exact) > FEW:
        among = [address for id, address in engine.logs.items() if id > after]
    else:
        named = [engine.addresses[name] for name in patterns.exact if name in engine.addresses]
        among = [address for address in named if address.log.id > after]
        among.sort(key=lambda address: address.log.id)
    found: list[Address] = []
    async for address in in_turns(connection.broker.turns, among):
        if patterns.reach(address.name) and permissions.may(connection.user, Right.CONSUME, address.name):
            if len(found) >= limit:
                return found, str(found[-1].log.id if found else after)
            found.append(address)
    return found, None


def continued(following: str | None) -> dict[str, object]:
    """What an answer says that is not the last part."""
    return {} if following is None else {"continue": following}


async def _require_some(connection: Asker, destinations: list[Destination], found: list[Address]) -> None:
    """Each wildcard has addresses that may be read, or has none at all: who may read none of those that are there would take them for
    empty. The addresses are gone through once, however many wildcards there are."""
    broker, user = connection.broker, connection.user
    wild = Patterns(broker.engine.wildcards)
    places = {}
    async for destination in in_turns(broker.turns, destinations):
        if destination.is_wild:
            places[wild.add(destination.address)] = destination
    left = sum(places)
    async for address in in_turns(broker.turns, found if left else ()):
        left &= ~wild.matched(address.name)
    hidden = 0
    async for name in in_turns(broker.turns, list(broker.engine.addresses) if left else ()):
        reached = wild.matched(name) & left
        if reached and broker.permissions.may(user, Right.CONSUME, name):
            left &= ~reached
        else:
            hidden |= reached
    hidden &= left
    for place, destination in places.items() if hidden else ():
        if place & hidden:
            who = f"user {user.name!r}" if user.name else "a nameless client"
            text = f"{who} has the right {Right.CONSUME.value!r} on none of the addresses that {destination.text!r} names"
            raise Refused("not-permitted", text)


async def make(connection: Asker, destination: Destination) -> None:
    """Makes an address that is not there, as a SUBSCRIBE would."""
    await connection.broker.turns.taken(_made(connection, destination))


def _made(connection: Asker, destination: Destination) -> Generator[None, None, None]:
    engine = connection.broker.engine
    yield from lifetimes.looking(engine, destination.address)
    if destination.address not in engine.addresses:
        connection.broker.permissions.require(connection.user, Right.CREATE_ADDRESS, destination.address)
    maker = connection.allowance.maker
    if not subscribers.routing_of(engine, destination) & MULTICAST:
        require_all(engine, maker, [(destination.address, destination.queue, ANYCAST)])
    address = engine.address(destination.address, maker=maker)
    if subscribers.routing_of(engine, destination) & MULTICAST:
        address.become(address.kinds | MULTICAST)
        return
    if (destination.queue or address.name) not in address.anycast:
        connection.broker.permissions.require(
            connection.user, Right.CREATE_DURABLE_QUEUE, destination.address
        )
    engine.anycast_queue(address, destination.queue, maker)


def _known_address(connection: Asker, frame: Frame) -> Address:
    name = qualified(connection, frame, "address")
    connection.broker.permissions.require(connection.user, Right.CONSUME, name)
    address = connection.broker.engine.addresses.get(name)
    if address is None:
        raise Refused("no-such-address", f"address {name!r} does not exist")
    return address


async def fetch(connection: Asker, frame: Frame) -> Reply:
    """Chunks as they are stored, from `start` on; with a selector, the messages in them that it takes."""
    await connection.broker.catch_up(qualified(connection, frame, "address"), number(frame, "stop"))
    address = _known_address(connection, frame)
    if number(frame, "stop") > address.log.committed:
        await confirmed(connection, [address])
    end = address.log.committed
    _require_same(frame, address, number(frame, "stop"))
    start, stop = number(frame, "start"), min(number(frame, "stop"), end)
    most = max(1, min(number(frame, "max-bytes", MOST_BYTES), MOST_BYTES))
    selector = await selected(connection, frame.headers.get("selector"))
    select = SelectedChunks(connection.broker, selector, address).of if selector is not None else None
    committer = connection.broker.committer
    chunks = (
        await committer.fetch(address.log.id, start, stop, most, MOST_WHOLE, select=select)
        if start < stop
        else []
    )
    parts: list[bytes] = []
    for chunk in [chunk for chunk in chunks if chunk.blob]:
        parts += [_RECORD.pack(chunk.first, chunk.count, len(chunk.blob)), chunk.blob]
    next_offset = min(chunks[-1].stop, stop) if chunks else max(start, stop)
    headers = {"next": str(next_offset), "first": str(address.log.oldest), "end": str(end)}
    return headers if selector is None else {**headers, "selected": "true"}, parts


async def selected(connection: Asker, text: str | None) -> Selector | None:
    """The selector of a request; a long one is compiled in turns of the loop."""
    if text is None or not is_long(connection, text):
        return selector_of(connection, text)
    return await connection.broker.turns.taken(compiling(connection, text))


def _require_same(frame: Frame, address: Address, offset: int) -> None:
    """Who was told of offsets in one log is not given another's messages."""
    id, log = frame.headers.get("incarnation", ""), address.log
    if not log.incarnations.holds(id, offset):
        text = difference(local(address.name), log.incarnations, id, offset, (log.oldest, log.committed))
        raise Refused("other-incarnation", text)


async def offset_at(connection: Asker, frame: Frame) -> Reply:
    address = _known_address(connection, frame)
    await confirmed(connection, [address])
    return json_reply(
        {"offset": await offset_at_time(connection.broker, address, number(frame, "timestamp"))}
    )


async def offset_at_time(broker: RequestsCore, address: Address, timestamp: int) -> int:
    """The first message that arrived at or after a time, to the message; where the log on disk ends when there is none."""
    committer, log = broker.committer, address.log
    at = await committer.find_time(log.id, timestamp)
    while at < log.committed:  # some of it may have come to the disk since: that is looked at, too
        chunks = await committer.read(log.id, at, log.committed, 1)
        if not chunks:
            break
        for chunk in chunks:
            runs = await asyncio.get_running_loop().run_in_executor(None, decode, chunk.blob, chunk.first)
            for run in runs:
                if run.arrived >= timestamp:
                    return run.first
            at = chunk.stop
    return log.committed


# What a selector takes


class SelectedChunks:
    """What a selector takes of an address's chunks, for one request."""

    def __init__(self, broker: RequestsCore, selector: Selector, address: Address) -> None:
        self.broker = broker
        self.selector = selector
        self.address = address.name
        self.default_persistent = address.settings.default_persistent
        self._verdicts: dict[Shape, bool] = {}

    async def of(self, chunk: StoredChunk) -> StoredChunk:
        """A chunk of the same offsets with the messages that the selector takes; an empty blob when there are none. Raises StoreError for a
        corrupt chunk."""
        unpack, taken = self.broker.committer.unpack, self.broker.turns.taken
        table = await unpack(partial(tables, chunk.blob, f"chunk at offset {chunk.first}"))
        verdicts = await taken(self._on_shapes(table.shapes))
        if all(verdicts):
            return chunk
        if None not in verdicts:
            wanted = {at for at, is_taken in enumerate(verdicts) if is_taken}
            return StoredChunk(chunk.first, chunk.count, await unpack(partial(extract, table, wanted)))
        left = frozenset(index for index, verdict in enumerate(verdicts) if verdict is False)
        runs = await unpack(partial(decode, chunk.blob, chunk.first, left))
        kept = await taken(self._taken(runs))
        blob = await unpack(partial(encode, kept, chunk.first)) if kept else b""
        return StoredChunk(chunk.first, chunk.count, blob)

    def _on_shapes(self, shapes: Sequence[Shape]) -> Steps[list[bool | None]]:
        found: list[bool | None] = []
        for shape in shapes:
            verdict = yield from self._verdict(shape)
            found.append(verdict)
            yield
        return found

    def _verdict(self, shape: Shape) -> Steps[bool | None]:
        """The verdict of the selector on a shape; None: the messages of the shape may differ."""
        if not matching.is_of_shape(self.selector, shape):
            return None
        verdict = self._verdicts.get(shape)
        if verdict is None:
            one = Run(shape, [])
            is_long = matching.is_long(self.selector, one, one.first, one.first)
            verdict = yield from self._asked(shape.headers, self._shared(shape), None, is_long=is_long)
            self._verdicts[shape] = verdict
        return verdict

    def _shared(self, shape: Shape) -> matching.Facts:
        is_durable = self.default_persistent if shape.persistent is None else shape.persistent
        return matching.facts_of_shape(shape, self.address, is_durable=is_durable)

    def _asked(
        self,
        headers: Mapping[str, str],
        known: matching.Facts,
        body: Callable[[], bytes] | None,
        *,
        is_long: bool,
    ) -> Steps[bool]:
        """The answer to one question, in portions where it may be long."""
        if not is_long:
            return self.selector.matches(headers, known, body)
        from stompbox.selectors.question import Question  # loaded with the first XPATH

        question = Question(partial(self.selector.matches, headers, known, body))
        while (is_taken := question.go_on(PORTION // QUESTION)) is None:
            yield
        return is_taken

    def _taken(self, runs: Sequence[Run]) -> Steps[list[Run]]:
        kept: list[Run] = []
        for run in runs:
            if (yield from self._verdict(run.shape)):
                kept.append(run)
                yield
                continue
            verdicts = yield from self._each(run)
            at = 0
            for is_taken, group in groupby(verdicts):
                stop = at + len(list(group))
                if is_taken:
                    kept.append(run.part(at, stop))
                at = stop
                yield
        return kept

    def _each(self, run: Run) -> Steps[list[bool]]:
        """The verdict on each message of a run whose shape does not decide."""
        selector, shared = self.selector, self._shared(run.shape)
        if not selector.is_per_message:
            return (yield from self._by_values(run, shared))
        found = []
        for index in range(len(run)):
            body = None if run.is_large else partial(run.octets, index)
            known = matching.facts_of_message(run, index, shared)
            is_taken = yield from self._asked(
                run.headers(index), known, body, is_long=self._is_long(run, index)
            )
            found.append(is_taken)
            yield
        return found

    def _is_long(self, run: Run, index: int) -> bool:
        return matching.is_long(self.selector, run, run.first + index, run.first + index + 1)

    def _by_values(self, run: Run, shared: matching.Facts) -> Steps[list[bool]]:
        read = [
            (name, column)
            for name, column in zip(run.shape.holes, run.columns, strict=True)
            if name in self.selector.headers
        ]
        names = [name for name, _ in read]
        verdicts: dict[tuple[bytes, ...], bool] = {}
        found = []
        for index, row in enumerate(zip(*[column for _, column in read], strict=True)):
            is_taken = verdicts.get(row)
            if is_taken is None:
                varying = {name: value.decode("ascii") for name, value in zip(names, row, strict=True)}
                headers = {**run.shape.headers, **varying}
                is_long = self._is_long(run, index)
                is_taken = yield from self._asked(headers, shared, None, is_long=is_long)
                verdicts[row] = is_taken
            found.append(is_taken)
            if index % OF_A_STEP == 0:
                yield
        return found
