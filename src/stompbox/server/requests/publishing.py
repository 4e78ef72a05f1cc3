"""How a batch that sinks have staged becomes messages: in portions, each of which is one turn of the loop and a small commit.

    looked at    what each attempt holds, by a summary that lies in front of its chunk: rights, room, what cannot be sent. Nothing is
                 changed but addresses and queues that had to be made; the first fault refuses the batch, and it stays staged
    decided      with the first portion, in one commit. When the disk refuses that, the batch is staged as before
    gone on with until all is there, whatever happens: also when its client has gone, when the disk is full for a while, after a restart

A piece of what is staged that the disk has damaged after the batch was decided is the one exception: its attempt is left out, and when
the rest is there the answer is the error that names it, and not that all was published.

So consumers may have the first messages of a batch while the last ones are being published, and never keep some of a batch whose rest does
not come: once a message of it outlives a crash, all do. The answer comes when all of it is durable. What others send to the same
addresses comes in between; the order of the batch is kept.

What is staged lies in the store: piece 0 of a body is the summary, its chunk follows in the others. Reading, sending and storing go on
side by side: while PORTION of messages is sent, the one before it is on its way to the disk, and what comes next is read. So no more than
two portions, or chunks, are in memory for a batch, and two portions on their way to the disk.

Where the log alone takes them (Address.leaves_in_log) a chunk is neither read nor written again: it becomes the log's as it lies.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import msgpack

from stompbox.broker.addresses import destinations, retained
from stompbox.broker.addresses.address import Address
from stompbox.broker.addresses.destinations import Destination
from stompbox.broker.addresses.duplicates import new_ones
from stompbox.broker.addresses.limits import Fitting
from stompbox.broker.addresses.makers import Maker
from stompbox.broker.addresses.routing import ALL, at_once, in_parts, portion_of
from stompbox.broker.subscriptions.staging import Attempt, Prefixes, Publication, Published
from stompbox.broker.subscriptions.subscribers import kind_of_queue
from stompbox.broker.undelivered import NO_ROUTE, Fate
from stompbox.config import ListenerOptions
from stompbox.errors import IllegalFrame, StompboxError, StoreError
from stompbox.handles import Large, Staged
from stompbox.message import MULTICAST, Run, Shape
from stompbox.server.addressing.naming import Names
from stompbox.server.addressing.routing import addressed, made_queue, require_all
from stompbox.server.requests.incoming import Alike, runs_of
from stompbox.server.requests.replies import in_turns, stored, when_stored
from stompbox.store.base import PIECE
from stompbox.store.chunks import decode, shape_bytes, shape_of
from stompbox.store.cutting import gather, size_of, split

if TYPE_CHECKING:
    from stompbox.server.requests.asker import Asker, RequestsCore

log = logging.getLogger("stompbox.sinks")

# octets of messages that are read at once, and that are published before the disk is waited for
PORTION: Final = 1 << 20
UNSTORED: Final = 1  # portions that may be on their way to the disk while another one is sent
STEP: Final = 128 << 10  # octets of messages of one run after which the clock is looked at
LOOKED_AT: Final = 64  # summaries, or attempts, that are read at once
LEAST_READ: Final = 4 << 10  # octets for which an attempt counts at least that is read ahead
MOST_SEEN: Final = 100_000  # values that find duplicates within a batch
WINDOW: Final = 4 << 20  # octets of what is staged that are on their way to the disk
AGAIN: Final = 1.0  # seconds until what could not be read is read again
GONE: Final = ("data-corrupt", "no-such-body")  # which it will never be

Summary = list[tuple[bytes, int, int, int]]
"""For each kind of message: the shape as it stands in a chunk, messages, octets of their bodies, octets of the last one."""

_encode: Final = msgpack.Encoder().encode
_decode: Final = msgpack.Decoder(Summary).decode


# What lies in the store


def summary_of(kinds: Iterable[Alike]) -> bytes:
    found: dict[bytes, tuple[bytes, int, int, int]] = {}
    for kind in kinds:
        key = shape_bytes(kind.shape)
        _, count, size, _ = found.get(key, (key, 0, 0, 0))
        found[key] = (key, count + kind.messages, size + kind.size, kind.last)
    return _encode(list(found.values()))


async def keep(broker: RequestsCore, body: Large, summary: bytes, chunk: bytes) -> None:
    """Brings it to the store, a few pieces with each commit; the last ones go with the entry that comes after this."""
    bodies, engine = broker.engine.bodies, broker.engine
    body.size = len(chunk)
    bodies.put(body, 0, summary)
    engine.unsaved += len(summary)
    # to copy some megabytes is more than one step of the loop
    for number, piece in enumerate(await broker.loop.run_in_executor(None, _pieces, chunk), 1):
        if bodies.unsaved(body) >= WINDOW:
            await stored(broker)
        bodies.put(body, number, piece)
        engine.unsaved += len(piece)


def _pieces(chunk: bytes) -> list[bytes]:
    return [chunk[at : at + PIECE] for at in range(0, len(chunk), PIECE)]


def _summaries(read_part: Callable[[int, int], bytes], attempts: Sequence[Attempt]) -> list[Summary]:
    return [_decode(read_part(attempt.body.id, 0)) for attempt in attempts]


async def _read(broker: RequestsCore, attempt: Attempt) -> list[Run]:
    """The runs that an attempt has staged, the same each time, however often it is read, none of them larger than what one look at the
    clock may cost. Others who read wait for the disk alone."""
    read_part = broker.committer.store.read_part
    if attempt.body.size <= PIECE:
        return await broker.committer.do(lambda: _decoded(_chunk(read_part, attempt.body), attempt.is_given))
    chunk = await broker.committer.do(partial(_chunk, read_part, attempt.body))
    return await broker.loop.run_in_executor(None, _decoded, chunk, attempt.is_given)


def _chunk(read_part: Callable[[int, int], bytes], body: Large) -> bytes:
    return b"".join([read_part(body.id, 1 + number) for number in range(-(-body.size // PIECE))])


def _decoded(chunk: bytes, is_given: bool) -> list[Run]:
    return list(_steps(gather(runs_of(chunk) if is_given else decode(chunk, 0))))


# Before anything is published


@dataclass(slots=True)
class Inspection:
    """The check of all that a batch holds, before any of it is sent. `addresses`: where it goes; `temporary`: those among them that go
    with their connection."""

    connection: Asker
    fitting: Fitting = field(default_factory=Fitting)
    addresses: set[str] = field(default_factory=set)
    temporary: dict[str, Address] = field(default_factory=dict)
    seen: dict[Address, dict[bytes, None]] = field(default_factory=dict)  # values of _AMQ_DUPL_ID that it has

    def at(self, shape: Shape, count: int, size: int, last: int) -> bool:
        """Raises as a SEND of these would. False where their sizes do not say enough, and the messages themselves must be looked at."""
        special = shape.special
        if shape.retain or (special is not None and (special.repeats or special.is_numbered)):
            return False
        for address, run in routed(self.connection, Run(shape, [b""], tuple([[b""]] * len(shape.holes)))):
            self._note(address, run)
            self._take(address, run, count, size, last)
        return True

    def closer(self, run: Run) -> None:
        """Looks closer at the messages of a run: duplicates need no room, and what repeats or is retained needs some elsewhere."""
        engine = self.connection.broker.engine
        for address, sent in routed(self.connection, run):
            self._note(address, sent)
            if sum(map(len, self.seen.values())) > MOST_SEEN:
                self.seen.clear()  # one that comes again later in the batch is then thought to need room
            new = [run.bodies[index] for index in new_ones(address, sent, self.seen.setdefault(address, {}))]
            if new:
                self._take(address, sent, len(new), sum(map(len, new)), len(new[-1]))
            engine.schedules.require([(address, sent)])
            retained.check([(address, sent)])

    def _take(self, address: Address, run: Run, count: int, size: int, last: int) -> None:
        address.engine.require_disk(address, run)
        self.fitting.take(address, run.shape, count, size, last)

    def _note(self, address: Address, run: Run) -> None:
        self.addresses.add(f"{address.name}::{run.queue}" if run.queue else address.name)
        if address.owner:
            self.temporary[run.shape.destination] = address


def routed(connection: Asker, run: Run) -> list[tuple[Address, Run]]:
    """Where its messages go, as a SEND's would. Raises for what may not be sent."""
    route = connection.names.route(run.shape)
    require_all(connection, route)
    return addressed(connection, run.shape, route, run.bodies, run.columns)


async def checked(connection: Asker, attempts: Sequence[Attempt]) -> Inspection:
    """Raises StompboxError for the first fault in all of it."""
    broker, look = connection.broker, Inspection(connection)
    read, until = broker.committer.store.read_part, broker.turns.allowance()
    for first in range(0, len(attempts), LOOKED_AT):
        some = attempts[first : first + LOOKED_AT]
        for attempt, summary in zip(
            some, await broker.committer.do(partial(_summaries, read, some)), strict=True
        ):
            is_enough = True
            for key, *sizes in summary:
                broker.set_time()
                is_enough &= look.at(shape_of(key), *sizes)
                if broker.turns.clock() > until:
                    until = await broker.turns.give_way()
            if not is_enough:
                await _closer(look, attempt)
    return look


async def _closer(look: Inspection, attempt: Attempt) -> None:
    """Checks each message of an attempt that has some of which sizes do not say enough."""
    broker = look.connection.broker
    async for run in in_turns(broker.turns, await _read(broker, attempt)):
        special = run.shape.special
        if run.shape.retain or (special is not None and (special.repeats or special.is_numbered)):
            broker.set_time()
            look.closer(run)


# On its way


class Publications:
    """The batches that one broker publishes. `busy`: sinks of which one batch is looked at or published; another one waits for it."""

    def __init__(self, broker: RequestsCore) -> None:
        self.broker = broker
        self.busy: dict[str, asyncio.Future[None]] = {}
        self.owners: dict[int, str] = {}  # whose messages have which session's number

    def resume(self) -> None:
        """What the broker before this one was at."""
        for publication in list(self.broker.sinks.publishing.values()):
            self.busy[publication.sink] = self.broker.loop.create_future()
            session = self.broker.new_session()
            log.warning(
                "batch %d of sink %r: is published on, from where the last broker was",
                publication.batch,
                publication.sink,
            )
            self.broker.spawn(
                _Way(self, publication, _names_of(self.broker, publication.reading), session).go()
            )

    async def enter(self, sink: str) -> None:
        """Waits until no batch of the sink is on its way; `leave` must follow."""
        while (busy := self.busy.get(sink)) is not None:
            await asyncio.shield(busy)
        self.busy[sink] = self.broker.loop.create_future()

    def leave(self, sink: str) -> None:
        self.busy.pop(sink).set_result(None)

    async def publish(self, connection: Asker, publication: Publication, look: Inspection) -> int:
        """Publishes a whole batch in the turn of its sink, which was entered and is left, and returns how many messages were sent. Raises
        StoreError when the disk has refused the first of it, and nothing was published then."""
        before = self.broker.sinks.published.get(publication.sink)
        way = _Way(
            self, publication, connection.names, connection.session_id, connection, look.temporary, before
        )
        way.done = self.broker.loop.create_future()
        self.broker.spawn(way.go())
        return await way.done

    def __repr__(self) -> str:
        return f"<Publications {len(self.busy)} under way>"


def reading_of(connection: Asker) -> Prefixes:
    options = connection.options
    virtual = list(options.virtual_topic_consumer_wildcards)
    return Prefixes(
        list(options.anycast_prefix), list(options.multicast_prefix), virtual, connection.names.space
    )


def _names_of(broker: RequestsCore, reading: Prefixes) -> Names:
    options = ListenerOptions(
        anycast_prefix=tuple(reading.anycast), multicast_prefix=tuple(reading.multicast),
        virtual_topic_consumer_wildcards=tuple(reading.virtual),
    )  # fmt: skip
    return Names(options, reading.space, wildcards=broker.engine.wildcards)


@dataclass(slots=True, eq=False)
class _Way:
    """The publishing of one batch. `session`: whose messages they are."""

    publications: Publications
    publication: Publication
    names: Names
    session: int
    connection: Asker | None = None
    temporary: dict[str, Address] = field(default_factory=dict)
    before: Published | None = None
    done: asyncio.Future[int] | None = None
    sent: int = 0
    lost: StoreError | None = None  # why messages of it are not there, and cannot be any more
    size: int = 0  # octets of the portion that is being sent
    _runs: deque[deque[Run]] = field(default_factory=deque)  # what was read ahead, by attempt
    _reading: asyncio.Task[None] | None = None  # what comes behind that
    # portions on their way to the disk: when they are there, and how many attempts are published with them
    _flying: deque[tuple[asyncio.Future[None] | None, int]] = field(default_factory=deque)

    async def go(self) -> None:
        publications, publication = self.publications, self.publication
        publications.owners[self.session] = publication.user
        error: StompboxError | None = None
        try:
            await self._all()
            error = self.lost
        except StompboxError as caught:
            error = caught
        finally:
            if self._reading is not None:
                self._reading.cancel()
                self._reading = None  # its end would have what it has read, and this, for ever
            del publications.owners[self.session]
            publications.leave(publication.sink)
        if self.done is not None and not self.done.done():
            if error is not None:
                self.done.set_exception(error)
            else:
                self.done.set_result(self.sent)

    async def _all(self) -> None:
        broker, publication = self.publications.broker, self.publication
        await self._read_ahead()
        self._pass_over(publication.done)
        while not publication.is_whole:
            await self._look_again()
            broker.set_time()
            is_first = not publication.is_decided
            if is_first:
                self._decide()
            else:
                self._portion()
            broker.flush()
            self._read_on()
            if is_first or publication.is_whole:
                await self._stored(0)
            elif self.size >= PORTION:
                await self._stored(UNSTORED)
            else:
                await broker.turns.give_way()
            if not self._runs and self._reading is not None:
                await self._reading

    def _read_on(self) -> None:
        """Has what comes next read, as soon as the last of what was read is being sent."""
        publication = self.publication
        if self._reading is not None and self._reading.done():
            self._reading.result()
            self._reading = None
        is_more = publication.published + len(self._runs) < publication.total
        if self._reading is None and is_more and len(self._runs) < 2:
            self._reading = self.publications.broker.loop.create_task(self._read_ahead())

    def _decide(self) -> None:
        """The first portion, which the disk may refuse, and which goes with what decides."""
        broker, publication = self.publications.broker, self.publication
        sinks, commits = broker.sinks, broker.engine.commits
        sinks.decide(publication)
        unit = commits.begin()
        unit.consequences.undo.append(partial(sinks.withdraw, publication, self.before))
        try:
            self._portion()
        finally:
            commits.end(is_stored=True)

    def _portion(self) -> None:
        """As much as there is time for in this turn, of what was read ahead."""
        publication, goes_on = self.publication, self.publications.broker.turns.goes_on()
        while self._runs:
            runs = self._runs[0]
            while runs:
                run = runs[0]
                if run.is_staged and not self._is_left_in_log(run):
                    self._note()
                    return
                run = self._next_of(runs)
                self._send(run)
                publication.done += len(run)
                self.size += LEAST_READ if run.is_staged else size_of(run)
                if runs and (self.size >= PORTION or not goes_on()):
                    self._note()
                    return
            self._runs.popleft()
            publication.published, publication.done = publication.published + 1, 0
            if self.size >= PORTION or not goes_on():
                break
        self._note()

    def _next_of(self, runs: deque[Run]) -> Run:
        """Takes what is sent in one step: the first run, or as much of it as may go at once to where it is sent."""
        run = runs[0]
        most = ALL if run.is_staged or len(run) == 1 else self._most(run.shape)
        if len(run) <= most:
            return runs.popleft()
        runs[0] = run.part(most, len(run))
        return run.part(0, most)

    def _most(self, shape: Shape) -> int:
        found = [ALL]
        for destination in self.names.parse(shape.destination, shape.headers.get("destination-type")):
            with suppress(StompboxError):  # whoever sends says so
                found.append(at_once(self._target(destination, shape)[0], shape))
        return min(found)

    def _note(self) -> None:
        self.publications.broker.sinks.reached(self.publication)

    def _send(self, run: Run) -> None:
        broker = self.publications.broker
        for address, sent in self._routed(run):
            try:
                if sent.shape.special is not None:
                    broker.engine.schedules.require([(address, sent)])
                broker.engine.publish_prepared(address, sent)
            except StompboxError:
                self._drop(address.name, len(sent))
            else:
                self.sent += len(sent)
                if self.connection is not None and (
                    broker.engine.trouble is not None or address.limits is not None
                ):
                    broker.pressure.sent(self.connection, address, sent)

    def _routed(self, run: Run) -> Iterator[tuple[Address, Run]]:
        """As when the batch was looked at, but that nobody is asked for rights any more, and that what went meanwhile comes again."""
        shape = run.shape
        for destination in self.names.parse(shape.destination, shape.headers.get("destination-type")):
            try:
                address, routing = self._target(destination, shape)
            except StompboxError:
                self._drop(destination.address, len(run))
            else:
                yield address, self._sent(run, routing, destination.queue)

    def _sent(self, run: Run, routing: int, queue: str) -> Run:
        bodies = run.bodies
        if isinstance(bodies, Staged):
            return Run.of_staged(run.shape, bodies, routing=routing, sender=self.session)
        return Run(run.shape, bodies, run.columns, routing=routing, sender=self.session, queue=queue)

    def _is_left_in_log(self, run: Run) -> bool:
        """Whether that is so at each address to which its messages go."""
        addresses, shape = self.publications.broker.engine.addresses, run.shape
        for destination in self.names.parse(shape.destination, shape.headers.get("destination-type")):
            address = addresses.get(destination.address)
            if address is None or destination.is_temporary or destination.queue:
                return False
            if (destination.routing or address.kinds) != MULTICAST or not address.leaves_in_log(run):
                return False
        return True

    def _target(self, destination: Destination, shape: Shape) -> tuple[Address, int]:
        engine = self.publications.broker.engine
        if destination.is_temporary:
            found = self.temporary.get(shape.destination) or destinations.find(engine, destination)
            if found is None or engine.addresses.get(found.name) is not found:
                raise IllegalFrame(
                    "no-such-temporary", f"temporary destination {destination.text[:200]!r} is gone"
                )
            return found, destination.routing
        maker = Maker(self.publication.user)
        address = engine.addresses.get(destination.address) or engine.create_address(
            destination.address, is_auto=True, maker=maker
        )
        kind = kind_of_queue(address, destination) if destination.queue else 0
        routing = kind or destination.routing or address.kinds or engine.default_routing(address.name)
        address.add_kind(routing)
        return address, made_queue(address, destination, maker) if destination.queue else routing

    def _drop(self, name: str, count: int) -> None:
        engine = self.publications.broker.engine
        engine.counters["dropped"] += count
        engine.undelivered.note(name, NO_ROUTE, Fate.DROPPED, count)

    async def _read_ahead(self) -> None:
        """What cannot be read now is read again until it can; what is damaged is left out, and is told when the rest is there."""
        publication, size = self.publication, 0
        while (
            size < PORTION
            and len(self._runs) < LOOKED_AT
            and publication.published + len(self._runs) < publication.total
        ):
            attempt = publication.attempts[publication.published + len(self._runs) - publication.stored]
            is_begun = publication.done > 0 and not self._runs  # before a restart
            staged = None if is_begun else self._whole(attempt)
            if staged is not None:
                self._runs.append(deque((staged,)))
                size += LEAST_READ
            else:
                self._runs.append(deque(await self._runs_of(attempt)))
                size += max(LEAST_READ, attempt.body.size)

    def _whole(self, attempt: Attempt) -> Run | None:
        """The run that all of an attempt is, where it becomes the log's as it lies."""
        if not attempt.ready:
            return None
        bodies = Staged(attempt.body, attempt.count)
        run = Run.of_staged(shape_of(attempt.ready), bodies, routing=MULTICAST, sender=self.session)
        return run if self._is_left_in_log(run) else None

    async def _look_again(self) -> None:
        """What was to be left in the log, and somebody is to have now, is read after all."""
        publication = self.publication
        while self._runs and self._runs[0] and self._runs[0][0].is_staged:
            if self._is_left_in_log(self._runs[0][0]):
                return
            self._runs[0] = deque(
                await self._runs_of(publication.attempts[publication.published - publication.stored])
            )

    async def _runs_of(self, attempt: Attempt) -> list[Run]:
        """Its messages; none where they are lost."""
        broker, publication = self.publications.broker, self.publication
        said = False
        while True:
            try:
                return await _read(broker, attempt)
            except StompboxError as error:
                if not publication.is_decided:
                    raise
                if error.code in GONE:
                    self._lose(attempt, error)
                    return []
                if not said:
                    said = True
                    where = publication.batch, publication.sink, error.message, error.code
                    log.error(
                        "batch %d of sink %r: its rest cannot be read: %s (%s)",
                        *where,
                        extra={"code": error.code},
                    )
                await asyncio.sleep(AGAIN)

    def _lose(self, attempt: Attempt, error: StompboxError) -> None:
        """Goes on without an attempt that cannot be read. Others may have read some of its batch, which cannot be taken back."""
        engine, publication = self.publications.broker.engine, self.publication
        is_begun = attempt is publication.attempts[publication.published - publication.stored]
        count = attempt.count - (publication.done if is_begun else 0)
        engine.counters["dropped"] += count
        partition, number = attempt.part
        which = f"attempt {number} at partition {partition} of batch {attempt.batch} of sink {attempt.sink!r}"
        self.lost = StoreError(
            error.code, f"{which} is damaged, and {count} of its messages are lost: {error.message}"
        )
        log.error("%s (%s)", self.lost.message, error.code, extra={"code": error.code})

    def _pass_over(self, count: int) -> None:
        """What was published of the first attempt before a restart."""
        runs = self._runs[0] if self._runs else deque[Run]()
        while count and runs:
            run = runs.popleft()
            if len(run) > count:
                runs.appendleft(run.part(count, len(run)))
            count -= min(count, len(run))

    async def _stored(self, most: int) -> None:
        """Ends a portion, and waits until no more than so many are not durable, also while the disk is in trouble. Raises StoreError when
        what decides was taken back."""
        broker, publication = self.publications.broker, self.publication
        self._flying.append((when_stored(broker), publication.published))
        self.size = 0
        while len(self._flying) > most:
            waiter, published = self._flying[0]
            try:
                if waiter is not None:
                    await waiter
            except StoreError:
                if publication.is_withdrawn:
                    raise
                # it goes in with the next commit
                self._flying[0] = when_stored(broker), published
                continue
            self._flying.popleft()
            broker.sinks.stored(publication, published)
            broker.flush()


def _steps(runs: Iterable[Run]) -> Iterator[Run]:
    """Runs that are not larger than what one look at the clock may cost."""
    for run in runs:
        for part in (run,) if size_of(run) <= STEP else split(run, STEP):
            yield from in_parts(part, portion_of(part.shape))
