"""`stompbox bench`: producers and consumers in this process against any STOMP broker: how many messages, and how long each took.

Each body begins with the time at which it was made; what a consumer's clock says when it has the message, less that, is its latency. With
no --rate a message waits behind all that was sent before it, so latencies say how long the queue was: give a rate to learn how quick the
broker is.
"""

from __future__ import annotations

import asyncio
import math
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, Literal

from cyclopts import App

from stompbox.cli.asking import plain, print_json, print_table
from stompbox.cli.connecting import at_least, leaving, parse_headers, run, url_or_default
from stompbox.cli.examples import examples
from stompbox.cli.parameters import AsJson, Header, Url
from stompbox.errors import ConnectionLost

if TYPE_CHECKING:
    from stompbox.client import Subscription

app = App(name="bench", help_epilogue=examples("bench"))

AckMode = Literal["auto", "client", "client-individual"]


_STAMP: Final = Struct("!8sd")  # a mark that this is a message of ours, seconds
_MARK: Final = b"stompbox"
STEP: Final = 1.05  # a latency is known to five percent
PACE: Final = 0.005  # seconds between two bunches of a producer with a rate
QUIET: Final = 10.0  # seconds without a message after which what is missing does not come
SHARES: Final = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999), ("max", 1.0))


@dataclass(slots=True)
class Latencies:
    """How often each latency was met, in steps of five percent: as much memory for ten messages as for ten million."""

    steps: Counter[int] = field(default_factory=Counter)

    def add(self, seconds: float) -> None:
        self.steps[math.ceil(math.log(max(seconds, 1e-6) * 1e6, STEP))] += 1

    def share(self, part: float) -> float | None:
        """Milliseconds within which this part of the messages was there; None without a message."""
        left = part * self.steps.total()
        for step in sorted(self.steps):
            left -= self.steps[step]
            if left <= 0:
                return float(STEP**step / 1000)
        return None


@dataclass(slots=True)
class Tally:
    """What a run of the benchmark has counted so far."""

    expected: int
    sent: int = 0
    received: int = 0
    foreign: int = 0  # messages that somebody else had sent
    send_seconds: float = 0.0
    receive_seconds: float = 0.0
    latencies: Latencies = field(default_factory=Latencies)


@app.default
def bench(
    destination: str = "/queue/stompbox.bench",
    /,
    *,
    url: Url = None,
    header: Header = None,
    producers: int = 1,
    consumers: int = 1,
    count: int = 100_000,
    size: int = 100,
    rate: float | None = None,
    ack: AckMode = "client-individual",
    window: int = 1000,
    as_json: AsJson = False,
) -> None:
    """Send and receive messages, and print rates and latencies. Every message is confirmed by the broker.

    Parameters
    ----------
    destination
        A queue or topic of its own: what is in it already is taken, too.
    producers
        How many send, each over a connection of its own; 0: nobody, and --count waiting messages are taken.
    consumers
        How many receive; 0: nobody, and the messages stay.
    count
        Messages in all.
    size
        Octets of a body, from 16 on.
    rate
        Messages a second, of all producers together; without it as many as the broker takes.
    ack
        How consumers acknowledge: auto, client or client-individual.
    window
        Confirmations that each producer may have outstanding.
    """
    with leaving("bench"):
        for name, value, least in (
            ("producers", producers, 0),
            ("consumers", consumers, 0),
            ("count", count, 1),
            ("size", size, _STAMP.size),
            ("window", window, 1),
        ):
            at_least(name, value, least, "a number")
        at_least("rate", rate, 0.001, "messages a second")
        at_least("producers and --consumers together", producers + consumers, 1, "a number")
        headers = parse_headers(header)
    load = Load(
        url_or_default(url), destination, headers, producers, consumers, count, size, rate, ack, window
    )
    run("bench", _bench(load, as_json=as_json))


@dataclass(frozen=True, slots=True)
class Load:
    """What is to be sent and received: the arguments."""

    url: str
    destination: str
    headers: dict[str, str]
    producers: int
    consumers: int
    count: int
    size: int
    rate: float | None
    ack: AckMode
    window: int

    def shares(self) -> list[int]:
        """How many messages each of the producers sends."""
        least, more = divmod(self.count, self.producers)
        return [least + (at < more) for at in range(self.producers)]


async def _bench(load: Load, *, as_json: bool) -> None:
    is_topic = "/topic/" in load.destination
    tally = Tally(
        load.count * (load.consumers if is_topic and load.producers else 1) if load.consumers else 0
    )
    subscribed = [asyncio.Event() for _ in range(load.consumers)]
    began = time.perf_counter()
    try:
        async with asyncio.TaskGroup() as group:
            takers = [group.create_task(_take(load, tally, is_there)) for is_there in subscribed]
            for is_there in subscribed:
                await is_there.wait()
            began = time.perf_counter()
            senders = (
                [group.create_task(_send(load, share, tally)) for share in load.shares()]
                if load.producers
                else []
            )
            if senders:
                await asyncio.wait(senders)
                tally.send_seconds = time.perf_counter() - began
            if takers:
                await _arrived(tally)
                tally.receive_seconds = time.perf_counter() - began
                for taker in takers:
                    taker.cancel()
    except BaseExceptionGroup as ended:  # those of one connection or another: one is enough to be told
        raise _first(ended) from None
    _print(load, tally, as_json=as_json)
    if tally.received < tally.expected:
        raise ConnectionLost(
            "answer-timeout",
            f"{tally.expected - tally.received} of {tally.expected} messages did not come: nothing did for {QUIET:g} s",
        )


def _first(ended: BaseException) -> BaseException:
    return _first(ended.exceptions[0]) if isinstance(ended, BaseExceptionGroup) else ended


def _bodies(count: int, size: int) -> Iterator[bytes]:
    filler = b"x" * (size - _STAMP.size)
    for _ in range(count):
        yield _STAMP.pack(_MARK, time.perf_counter()) + filler


async def _paced(bodies: Iterator[bytes], rate: float) -> AsyncIterator[bytes]:
    """So many a second; who is late catches up."""
    began, done = time.perf_counter(), 0
    while True:
        due = int((time.perf_counter() - began) * rate) + 1 - done
        for _ in range(due):
            body = next(bodies, None)
            if body is None:
                return
            yield body
        done += max(due, 0)
        await asyncio.sleep(max(PACE, 1 / rate) if due <= 0 else min(PACE, 1 / rate))


async def _send(load: Load, share: int, tally: Tally) -> None:
    from stompbox.client import connect

    bodies = _bodies(share, load.size)
    async with connect(load.url) as client:
        part = None if load.rate is None else load.rate / load.producers
        given = bodies if part is None else _paced(bodies, part)
        sent = await client.send_many(load.destination, given, load.headers, window=load.window)
        tally.sent += sent  # another producer may have added to it meanwhile


async def _take(load: Load, tally: Tally, is_there: asyncio.Event) -> None:
    from stompbox.client import connect

    async with connect(load.url) as client, client.subscribe(load.destination, ack=load.ack) as messages:
        is_there.set()
        await _count(messages, tally, is_auto=load.ack == "auto")


async def _count(messages: Subscription, tally: Tally, *, is_auto: bool) -> None:
    async for message in messages:
        now = time.perf_counter()
        mark, sent = _STAMP.unpack_from(message.body) if len(message.body) >= _STAMP.size else (b"", 0.0)
        if mark == _MARK:
            tally.received += 1
            tally.latencies.add(now - sent)
        else:
            tally.foreign += 1
        if not is_auto:
            await message.ack()


async def _arrived(tally: Tally) -> None:
    """Waits until all messages are there, or nothing has come for QUIET."""
    before, since = tally.received, time.perf_counter()
    while tally.received < tally.expected:
        await asyncio.sleep(0.02)
        if tally.received != before:
            before, since = tally.received, time.perf_counter()
        elif time.perf_counter() - since > QUIET:
            return


def _print(load: Load, tally: Tally, *, as_json: bool) -> None:
    latencies = {name: tally.latencies.share(part) for name, part in SHARES}
    found: dict[str, Any] = {
        "destination": load.destination,
        "size": load.size,
        "sent": tally.sent,
        "sent_per_second": round(tally.sent / tally.send_seconds) if tally.send_seconds else None,
        "received": tally.received,
        "received_per_second": round(tally.received / tally.receive_seconds)
        if tally.receive_seconds
        else None,
        "foreign": tally.foreign,
        "latency_ms": latencies if load.consumers and load.producers else None,
    }
    if as_json:
        print_json(found)
        return
    who = f"producers {load.producers}, consumers {load.consumers}, bodies of {load.size} octets"
    print(plain(f"{load.destination}: {who}"))
    rows = [
        (what, f"{found[what]:,}", f"{found[f'{what}_per_second']:,}")
        for what in ("sent", "received")
        if found[f"{what}_per_second"] is not None
    ]
    print_table(("", "messages", "messages/s"), rows)
    if found["latency_ms"]:
        print_table(
            ("latency", *[name for name, _ in SHARES]),
            [("ms", *["-" if value is None else f"{value:.2f}" for value in latencies.values()])],
        )
    if tally.foreign:
        print(f"{tally.foreign:,} more messages were taken that somebody else had sent", file=sys.stderr)
