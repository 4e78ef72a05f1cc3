"""Where a reader of a log begins: `x-stream-offset` as RabbitMQ spells it, or Apollo's `from-seq`; with the next message without them.

    first  last  next  offset=7 or 7  -1 (next)  timestamp=1700000000 (seconds since 1970: the first that arrived then or later)

On another destination `x-queue-type:stream` asks for the same (RabbitMQ).

The RECEIPT says which log it is, `x-stream-incarnation`. Who comes back with an offset, or by name, says it again: where the log is
another one, or was restored as of an earlier offset, he gets an ERROR instead of other messages at the same offsets.

With a durable name the position is the broker's: it moves on with each ACK, and the header counts only for a name that is new.

RabbitMQ's filter, `x-stream-filter:eu,us`, takes messages whose `x-stream-filter-value` is one of these, and with
`x-stream-match-unfiltered:true` those that have none, too. There it leaves out chunks that cannot have such messages, and clients filter
once more; here it is exact, a selector.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from stompbox.broker.addresses.address import Address
from stompbox.broker.addresses.destinations import Destination
from stompbox.broker.queues.consumer import Consumer
from stompbox.broker.queues.queue import Queue
from stompbox.broker.subscriptions import readers
from stompbox.config.spaces import local
from stompbox.errors import IllegalFrame, Refused, StompboxError
from stompbox.incarnations import difference
from stompbox.numerals import digits
from stompbox.security import Right
from stompbox.server.addressing.arguments import QUEUE_TYPE
from stompbox.server.addressing.values import truth
from stompbox.server.owners import is_own, owner_of, require
from stompbox.server.requests.fetching import offset_at_time
from stompbox.stomp.frames import Frame

if TYPE_CHECKING:
    from stompbox.server.frames.speaker import Speaker

INCARNATION: Final = "x-stream-incarnation"
_NAMES: Final = ("x-stream-offset", "from-seq")
_TIME: Final = "timestamp="
_WORDS: Final = ("first", "last", "next", "-1")
_FILTER: Final = "x-stream-filter"
_UNFILTERED: Final = "x-stream-match-unfiltered"
_FILTERING: Final = frozenset((_FILTER, _UNFILTERED))


def as_asked(frame: Frame, destinations: tuple[Destination, ...]) -> tuple[Destination, ...]:
    """The destinations of a SUBSCRIBE, as streams where it says so. Raises for an offset that is none, or that nothing would look at."""
    if frame.headers.get(QUEUE_TYPE) == "stream":
        for destination in destinations:
            if destination.queue or destination.is_temporary:
                text = f"header {QUEUE_TYPE}: destination {destination.text[:200]!r} has no log of its own to read as a stream"
                raise IllegalFrame("bad-destination", text)
        destinations = tuple([replace(destination, is_stream=True) for destination in destinations])
    name = next((name for name in _NAMES if name in frame.headers), None)
    if name is not None:
        _check_offset(frame, name, is_seen=any(destination.is_stream for destination in destinations))
    return destinations


def _check_offset(frame: Frame, name: str, *, is_seen: bool) -> None:
    given = frame.headers[name]
    is_number = digits(given.removeprefix("offset=")) is not None
    is_time = name == _NAMES[0] and given.startswith(_TIME)
    if given not in _WORDS and not is_number and not is_time:
        allowed = "first, last, next, a number and timestamp= with seconds since 1970"
        raise IllegalFrame("bad-offset", f"header {name} is {given[:80]!r}; allowed are {allowed}")
    if not is_seen and not (truth(frame, "browser") and name == "from-seq"):
        raise IllegalFrame(
            "bad-offset", f"header {name} is {given[:80]!r}; only streams and browsers begin at an offset"
        )


def position(connection: Speaker, frame: Frame, destination: Destination, *, is_alone: bool) -> int:
    """The offset. `is_alone`: the SUBSCRIBE names nothing else; an offset is one of one log."""
    if destination.is_wild:
        raise IllegalFrame(
            "bad-destination", f"destination {destination.text[:200]!r}: a stream has no wildcards"
        )
    name = next((name for name in _NAMES if name in frame.headers), _NAMES[0])
    given = frame.headers.get(name, "next")
    if not is_alone and given != "next":
        raise IllegalFrame(
            "bad-offset",
            f"header {name} is {given[:80]!r}; a subscription to several destinations begins with next",
        )
    address = connection.broker.engine.address(destination.address, maker=connection.allowance.maker)
    if given in ("next", "-1"):
        return address.log.next
    if given == "first":
        return address.log.oldest
    if given == "last":
        return max(address.log.oldest, address.log.next - 1)
    return min(int(given.removeprefix("offset=")), address.log.next)


def require_same(connection: Speaker, frame: Frame, destination: Destination, offset: int) -> None:
    """Who says which log he knows is not given another's messages."""
    id, log = frame.headers.get(INCARNATION, ""), connection.broker.engine.addresses[destination.address].log
    end = log.incarnations.end_of(id) if id else offset
    if end is None or offset > end:
        extent = log.oldest, log.committed
        raise Refused(
            "other-incarnation", difference(local(destination.address), log.incarnations, id, offset, extent)
        )


def told(connection: Speaker, destination: Destination) -> dict[str, str]:
    """Which log a reader reads; it outlives a restart before he is told."""
    log = connection.broker.engine.addresses[destination.address].log
    connection.broker.engine.commits.add_log(log)
    return {INCARNATION: log.incarnations.current}


# Filters


def without_filter(headers: Mapping[str, str], destinations: tuple[Destination, ...]) -> Mapping[str, str]:
    """What is not about a stream's filter. Where it is not streams that are read, such headers are another broker's (arguments.py)."""
    if _FILTERING.isdisjoint(headers) or not all(destination.is_stream for destination in destinations):
        return headers
    return {name: value for name, value in headers.items() if name not in _FILTERING}


def filter_of(frame: Frame, destinations: tuple[Destination, ...]) -> str | None:
    """The selector that a SUBSCRIBE to streams asks for in RabbitMQ's words; None: it does not. Raises IllegalFrame for what is none."""
    headers = frame.headers
    if _FILTERING.isdisjoint(headers) or not all(destination.is_stream for destination in destinations):
        return None
    unfiltered = f" OR {_FILTER}-value IS NULL" if truth(frame, _UNFILTERED) else ""
    if _FILTER not in headers:
        return None
    values = [value.strip() for value in headers[_FILTER].split(",")]
    if not all(values):
        raise IllegalFrame(
            "bad-stream-filter",
            f"header {_FILTER} is {headers[_FILTER][:80]!r}; allowed are values with commas between",
        )
    if "selector" in headers:
        raise IllegalFrame(
            "bad-stream-filter", f"header {_FILTER} is a selector, too; say all of it in the header selector"
        )
    literals = ", ".join(["'" + value.replace("'", "''") + "'" for value in values])
    return f"hyphenated_props:{_FILTER}-value IN ({literals}){unfiltered}"


# What is asked before


def looks_first(connection: Speaker, frame: Frame, destinations: tuple[Destination, ...]) -> bool:
    """Whether a SUBSCRIBE waits until a node that follows has what there is, and the offset that it begins at; then it comes again."""
    if connection.broker.has_looked(connection, frame):
        return False
    given = frame.headers.get(next((name for name in _NAMES if name in frame.headers), ""), "")
    offset = digits(given.removeprefix("offset=")) or 0
    connection.reading.hold()
    connection.broker.spawn(_look_first(connection, frame, destinations[0].address if offset else "", offset))
    return True


async def _look_first(connection: Speaker, frame: Frame, address: str, offset: int) -> None:
    try:
        await connection.broker.catch_up_for(connection, frame, address, offset)
        _again(connection, frame)
    except StompboxError as error:
        _refuse(connection, frame, error)
    _go_on(connection)


def _again(connection: Speaker, frame: Frame) -> None:
    if not connection.is_ended:
        connection.broker.set_time()
        connection.obey_again(frame)


def _refuse(connection: Speaker, frame: Frame, error: StompboxError) -> None:
    if not connection.is_ended:
        connection.refuse(error, frame)


def _go_on(connection: Speaker) -> None:
    if connection.is_ended and not connection.is_gone:
        connection.write_out()
    connection.reading.go_on()


def looks_for_time(connection: Speaker, frame: Frame, destinations: tuple[Destination, ...]) -> bool:
    """Whether a SUBSCRIBE begins at a time: then the log is asked, off the loop, and the frame comes again with an offset."""
    given = frame.headers.get(_NAMES[0], "")
    if not given.startswith(_TIME) or not all(destination.is_stream for destination in destinations):
        return False
    seconds = digits(given.removeprefix(_TIME), most=12)
    if seconds is None or len(destinations) > 1:
        text = f"header {_NAMES[0]} is {given[:80]!r}; allowed are seconds since 1970, for one stream"
        raise IllegalFrame("bad-offset", text)
    connection.broker.permissions.require(connection.user, Right.CONSUME, destinations[0].address)
    connection.reading.hold()
    connection.broker.spawn(_subscribe_at(connection, frame, destinations[0].address, seconds * 1000))
    return True


async def _subscribe_at(connection: Speaker, frame: Frame, name: str, timestamp: int) -> None:
    broker = connection.broker
    address = broker.engine.addresses.get(name)
    try:
        offset = 0 if address is None else await _offset_at(connection, address, timestamp)
        _again(connection, Frame(frame.command, {**frame.headers, _NAMES[0]: str(offset)}, frame.body))
    except StompboxError as error:
        _refuse(connection, frame, error)
    _go_on(connection)


async def _offset_at(connection: Speaker, address: Address, timestamp: int) -> int:
    """The first message that arrived then or later; the next one when there is none."""
    offset, log = await offset_at_time(connection.broker, address, timestamp), address.log
    if offset < log.committed:
        return offset
    return next((run.first for run in log.unstored(log.committed) if run.arrived >= timestamp), log.next)


# Names


def to_named(
    connection: Speaker,
    consumer: Consumer,
    destinations: tuple[Destination, ...],
    name: str,
    start: int,
    *,
    frame: Frame,
) -> dict[str, str]:
    """A reader whose position the broker keeps; what is to be said in the RECEIPT."""
    if len(destinations) > 1:
        raise IllegalFrame("bad-destination", "a named reader reads one stream")
    engine, name_of_address = connection.broker.engine, destinations[0].address
    reader = _reader(connection, name)
    address = engine.addresses.get(name_of_address)
    known = None if address is None else reader.at(address)
    if known is None:
        connection.broker.permissions.require(connection.user, Right.CREATE_DURABLE_QUEUE, name_of_address)
    else:
        _require_own(connection, known, name)
    require_same(connection, frame, destinations[0], start if known is None else known.cursor.position)
    address = engine.address(name_of_address, maker=connection.allowance.maker)
    is_new = readers.to_named_reader(engine, consumer, address, reader, start, owner=owner_of(connection))
    said = {"durable-name": name, "subscription-created": "true" if is_new else "false"}
    return said | told(connection, destinations[0])


def holder_of(connection: Speaker, destination: Destination, name: str) -> Consumer | None:
    """Who reads on as the reader of this name now."""
    address = connection.broker.engine.addresses.get(destination.address) if destination.is_stream else None
    known = None if address is None else _reader(connection, name).at(address)
    return None if known is None else next((binding.consumer for binding in known.bindings), None)


def drop_named(connection: Speaker, name: str) -> bool:
    """UNSUBSCRIBE with a durable name: the reader ends for ever. False when there is none of this name."""
    engine = connection.broker.engine
    found = readers.found_of(engine, _reader(connection, name))
    own = [queue for queue in found if is_own(connection, readers.user_of(queue), [queue.address.name])]
    if found and not own and (connection.client_id, name) not in engine.durables:
        _require_own(connection, found[0], name)
    for queue in own:
        connection.broker.permissions.require(connection.user, Right.DELETE_DURABLE_QUEUE, queue.address.name)
    for queue in own:
        for binding in list(queue.bindings):
            binding.consumer.owner.consumers.pop(binding.consumer.name, None)
            engine.close_consumer(binding.consumer, is_failure=False)
        engine.drop_queue(queue)
    return bool(own)


def _reader(connection: Speaker, name: str) -> readers.Reader:
    space = connection.names.space
    return readers.Reader(space, connection.client_id.removeprefix(space), name)


def _require_own(connection: Speaker, queue: Queue, name: str) -> None:
    require(
        connection,
        readers.user_of(queue),
        f"reader {name!r} of {local(queue.address.name)!r}",
        [queue.address.name],
    )
