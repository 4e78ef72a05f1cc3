"""`stompbox replay`: copies what is in the log of an address to another destination, from an offset or a time on.

Reads chunks by the broker's own requests (docs/protocol.md), so consumed messages are copied as long as retention keeps them, and
nothing is taken from anybody. Each copy is confirmed. The end is fixed when it begins: an address may be replayed into itself.
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final

from cyclopts import App, Parameter

from stompbox.cli.connecting import leaving, parse_headers, url_or_default
from stompbox.cli.examples import examples
from stompbox.cli.parameters import Header, JsonFlag, Url
from stompbox.errors import Refused, StompboxError, UsageError
from stompbox.incarnations import Incarnations, Position, difference, incarnations_of
from stompbox.message import EXPIRATION, SCHEDULED_DELAY, SCHEDULED_TIME
from stompbox.numerals import digits

if TYPE_CHECKING:
    from stompbox.client import Client
    from stompbox.message import Run

app = App(name="replay", help_epilogue=examples("replay"))

MOST_BYTES: Final = 4 << 20  # of one read of the log
EARLIEST: Final = "earliest"
LATEST: Final = "latest"
ORIGIN: Final = "original-destination"  # as dead letters have it
_RECORD: Final = struct.Struct("<QII")
# asked for once: a copy neither expires nor waits
_ONCE: Final = frozenset(("expires", EXPIRATION, SCHEDULED_DELAY, SCHEDULED_TIME))
_NOT_SENT: Final = _ONCE | {"destination"}
_ZERO: Final = datetime(1970, 1, 1, tzinfo=UTC)
_Bound = str | Position | datetime
_ALLOWED: Final = "earliest, latest, an offset, or a time with its zone such as 2026-11-22T05:00:00Z"


@app.default
def replay(
    source: str,
    destination: str,
    /,
    *,
    url: Url = None,
    read_url: str | None = None,
    first: Annotated[str, Parameter(name="--from")] = EARLIEST,
    last: Annotated[str, Parameter(name="--to")] = LATEST,
    rate: float | None = None,
    header: Header = None,
    window: int = 1000,
    as_json: JsonFlag = False,
) -> None:
    """Copy messages of an address; returns when the broker has confirmed all of them.

    Parameters
    ----------
    source
        The address, such as orders, /queue/orders or /topic/prices. No wildcards.
    read_url
        Where the log is read, such as a `readOnly` listener of a cluster's follower; else where the copies go.
    destination
        Where the copies go, such as /queue/orders.again.
    first
        Where to begin: earliest, latest, an offset (offset@incarnation, as a replay that was stopped says), or a time such as
        2026-11-22T05:00:00Z.
    last
        Where to end: the same; what it names is not copied. `latest` is what is in the log when the replay begins.
    rate
        Messages a second at most.
    header
        A header that each copy gets, name:value; may be given several times.
    window
        Confirmations that may be outstanding.
    as_json
        Print what was done as JSON.
    """
    if rate is not None and not rate > 0:
        raise SystemExit(_wrong(f"--rate is {rate:g}; allowed is a number above 0"))
    with leaving("replay"):
        wanted = _Wanted(source, destination, first, last, rate, window, as_json, parse_headers(header))
        to = url_or_default(url)
        asyncio.run(_replay(wanted, to, read_url or to))


def _wrong(text: str) -> int:
    print(f"stompbox replay: {text}", file=sys.stderr)
    return 2


@dataclass(frozen=True, slots=True)
class _Wanted:
    source: str
    destination: str
    first: str
    last: str
    rate: float | None
    window: int
    as_json: bool
    headers: Mapping[str, str]


@dataclass(slots=True)
class _Done:
    """How far a replay has come."""

    address: str
    offset: int  # the next one to be copied
    last: int
    incarnations: Incarnations
    messages: int = 0
    bytes: int = 0

    @property
    def reached(self) -> str:
        """For --from: the offset, and which log it is of."""
        return f"{self.offset}@{self.incarnations.of(self.offset)}"


async def _replay(wanted: _Wanted, url: str, read_url: str) -> None:
    from stompbox.client import connect

    bounds = [_bound("--from", wanted.first), _bound("--to", wanted.last)]
    begun = time.monotonic()
    async with connect(read_url) as reader, connect(url) as client:
        address, log = await _described(reader, wanted.source)
        first, last = [await _offset(reader, address, log, bound) for bound in bounds]
        if isinstance(bounds[0], Position) and not log["first"] <= first <= log["next"]:
            text = f"address {address!r} holds offsets {log['first']} to {log['next'] - 1}; --from is {first}"
            raise Refused("offset-out-of-range", text)
        last = min(last, log["next"])
        done = _Done(address, first, last, incarnations_of(log["incarnations"]))
        try:
            with _bar(f"{address} to {wanted.destination}", max(0, last - first)) as report:
                await _copy(reader, client, wanted, done, report=report)
        except (StompboxError, KeyboardInterrupt, asyncio.CancelledError):
            print(
                f"stompbox replay: stopped after {done.messages} messages; --from {done.reached} goes on",
                file=sys.stderr,
            )
            raise
    _tell(wanted, {
        "address": address, "destination": wanted.destination, "from": first, "to": max(first, last), "messages": done.messages,
        "bytes": done.bytes, "seconds": round(time.monotonic() - begun, 3),
    })  # fmt: skip


def _tell(wanted: _Wanted, result: Mapping[str, Any]) -> None:
    if wanted.as_json:
        print(json.dumps(result))
    else:
        where = (
            f"from {result['address']}, offsets {result['from']} to {result['to'] - 1}"
            if result["messages"]
            else "nothing is there"
        )
        print(f"{result['messages']} messages copied to {result['destination']} ({where})", file=sys.stderr)


# Where


def _bound(option: str, text: str) -> _Bound:
    if text in (EARLIEST, LATEST):
        return text
    number, _, id = text.partition("@")
    offset = digits(number)
    if offset is not None:
        return Position(offset, id)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError("bad-argument", f"{option} is {text[:80]!r}; allowed are {_ALLOWED}") from None
    if found.tzinfo is None:
        raise UsageError(
            "bad-argument",
            f"{option} is {text[:80]!r}, a time without zone; write {text[:80]}Z or {text[:80]}+01:00",
        )
    return found


async def _described(client: Client, source: str) -> tuple[str, dict[str, Any]]:
    """The one address that is meant, and its log: `first` and `next`."""
    found: dict[str, dict[str, Any]] = (
        await client.request("describe", headers={"destinations": source})
    ).json()["addresses"]
    if len(found) != 1 or not source.partition("::")[0].endswith(next(iter(found))):
        # what is a wildcard, the broker says
        names = ", ".join(sorted(found)[:5])
        why = f"it reaches {names}" if found else "there is none of this name"
        raise Refused("no-such-address", f"{source!r} is not one address; {why}")
    return next(iter(found.items()))


async def _offset(client: Client, address: str, log: Mapping[str, Any], bound: _Bound) -> int:
    if bound == EARLIEST:
        return int(log["first"])
    if bound == LATEST:
        return int(log["next"])
    if isinstance(bound, Position):
        _require_same(address, log, bound)
        return bound.offset
    assert isinstance(bound, datetime)
    timestamp = max(0, (bound - _ZERO) // timedelta(milliseconds=1))
    answer = await client.request("offset-at", headers={"address": address, "timestamp": timestamp})
    return max(int(log["first"]), int(answer.json()["offset"]))


def _require_same(address: str, log: Mapping[str, Any], bound: Position) -> None:
    """An offset of a log that has been another one since does not say what is meant."""
    known = incarnations_of(log["incarnations"])
    if not known.holds(bound.incarnation, bound.offset):
        extent = log["first"], log["next"]
        raise Refused(
            "other-incarnation", difference(address, known, bound.incarnation, bound.offset, extent)
        )


# Copying


async def _copy(
    reader: Client, client: Client, wanted: _Wanted, done: _Done, *, report: Callable[[int], None]
) -> None:
    last = done.last
    pace = _Pace(wanted.rate)
    first = done.offset
    async with client.publisher(window=wanted.window) as publisher:
        while done.offset < last:
            runs, following = await _fetch(reader, done)
            for found in runs:
                for offset, headers, body in _messages(found, done.offset, last):
                    await pace.next()
                    await publisher.send(wanted.destination, body, {**headers, **wanted.headers})
                    done.offset = offset + 1
                    done.messages += 1
                    done.bytes += len(body)
            await publisher.flush()
            done.offset = max(done.offset, following)
            report(done.offset - first)


async def _fetch(client: Client, done: _Done) -> tuple[list[Run], int]:
    from stompbox.store.chunks import decode

    address, start, stop = done.address, done.offset, done.last
    given: dict[str, str | int | float | bool] = {
        "address": address, "start": start, "stop": stop, "max-bytes": MOST_BYTES, "incarnation": done.incarnations.of(stop),
    }  # fmt: skip
    answer = await client.request("fetch", headers=given)
    lowest = int(answer.headers["first"])
    if lowest > start:
        gone = f"offsets {start} to {lowest - 1} of address {address!r} are gone"
        raise Refused("data-lost", f"{gone}: its retention has let them go meanwhile")
    runs: list[Run] = []
    for first, blob in _records(answer.body):
        runs += decode(blob, first)
    return runs, int(answer.headers["next"])


def _records(body: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(body):
        first, _, size = _RECORD.unpack_from(body, at)
        at += _RECORD.size
        yield first, body[at : at + size]
        at += size


def _messages(found: Run, first: int, last: int) -> Iterator[tuple[int, dict[str, str], bytes]]:
    """Offset, headers and body of each message of a run that is wanted."""
    for offset in range(max(found.first, first), min(found.stop, last)):
        index = offset - found.first
        headers = {name: value for name, value in found.headers(index).items() if name not in _NOT_SENT}
        headers.setdefault(ORIGIN, found.shape.destination)
        yield offset, headers, found.octets(index)


class _Pace:
    """Not more than `rate` a second: each waits for its time."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._begun = time.monotonic()
        self._count = 0

    async def next(self) -> None:
        if self._rate is None:
            return
        due = self._begun + self._count / self._rate
        self._count += 1
        wait = due - time.monotonic()
        if wait > 0:
            await asyncio.sleep(wait)


@contextmanager
def _bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on stderr and what moves it; nothing where nobody would see it."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(what, total=total)
        yield lambda done: bars.update(task, completed=done)
