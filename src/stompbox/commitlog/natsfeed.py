"""Reading a JetStream stream: an ephemeral consumer that sends records as they are committed, as many as were asked for.

Each entry has a head of ours before the payload: <2sBB4xQQ16sQ> SB, layout, kind, epoch, the position before it, who appended it, and
the number that this node gave it. By the position before it, a reader knows that it has missed nothing; by who and number, a node whose
answer was lost knows its own record again.

Requests are bounded in bytes, and the next one goes out when this one is served: a reader that is slow holds nobody up.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import json
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from stompbox.commitlog.base import Kind, LogError, Record

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.subscription import Subscription

LAYOUT: Final = 1
BATCH: Final = 256  # records of one request
BYTES: Final = 8 << 20  # of one request
EXPIRES: Final = 30.0  # seconds of one request
BEAT: Final = 1.0  # seconds after which the server says that the consumer lives
SILENCE: Final = 3.5  # seconds after which it does not
IDLE: Final = 60.0  # seconds after which the server drops a consumer that nobody asks

MAGIC: Final = b"SB"
_HEAD: Final = struct.Struct("<2sBB4xQQ16sQ")
HEAD: Final = _HEAD.size
_KINDS: Final = (Kind.COMMIT, Kind.PIECE, Kind.LEAD)
_ALIVE: Final = "100"
_OVER: Final = ("404", "408")
_SERVED: Final = ("Message Size Exceeds MaxBytes", "Batch Completed")


class Entry(NamedTuple):
    """A record, and what its head says beside."""

    record: Record
    before: int  # the position of the record before it
    writer: bytes
    number: int


def packed(entry: Entry) -> bytes:
    """What stands in the stream; the position is the server's to say."""
    record = entry.record
    kind = _KINDS.index(record.kind)
    return (
        _HEAD.pack(MAGIC, LAYOUT, kind, record.epoch, entry.before, entry.writer, entry.number)
        + record.payload
    )


def unpacked(position: int, data: bytes) -> Entry:
    """Raises LogError `log-corrupt` for what no node has appended, `log-too-new`."""
    if len(data) < HEAD or data[:2] != MAGIC:
        raise LogError("log-corrupt", f"record {position}: {len(data)} bytes that no node has appended")
    _, layout, kind, epoch, before, writer, number = _HEAD.unpack_from(data)
    if layout > LAYOUT:
        raise LogError("log-too-new", f"record {position} has layout {layout}, this program reads {LAYOUT}")
    if kind >= len(_KINDS):
        raise LogError("log-corrupt", f"record {position}: there is no kind {kind}")
    return Entry(Record(position, epoch, _KINDS[kind], data[HEAD:]), before, writer, number)


class Feed:
    """Entries of a stream in order, from one position on. It lives in the loop of its client; `answer`: seconds that JetStream has."""

    def __init__(self, client: Client, stream: str, subject: str, answer: float) -> None:
        self._client = client
        self._stream = stream
        self._subject = subject
        self._answer = answer
        self._after = -1  # entries that were taken end here
        self._queue: deque[Entry] = deque()
        self._arrived = asyncio.Event()
        self._inbox: Subscription | None = None
        self._life = 0  # of the consumer: what an earlier one still sends is not looked at
        self._consumer = ""
        self._due = 0  # records of the request under way that have not come
        self._seen = 0.0  # when the server was heard, in the loop's time
        self._is_lost = False
        self._fault: LogError | None = None

    async def take(self, after: int, most: int, wait: float) -> list[Entry]:
        """Entries behind `after`, as CommitLog.read; none after `wait` seconds. Raises LogError for damaged ones; what the client
        raises goes through."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait
        if after != self._after or self._is_lost:
            await self._begin(after)
        while not self._queue and self._fault is None:
            if not self._due:
                await self._ask(most)
            left = min(deadline, self._seen + SILENCE) - loop.time()
            if left <= 0 and loop.time() < deadline:
                await self._begin(after)
                continue
            if left <= 0:
                return []
            self._arrived.clear()
            try:
                async with asyncio.timeout(left):
                    await self._arrived.wait()
            except TimeoutError:
                continue
            if self._is_lost and not self._queue:
                await self._begin(after)
        if self._fault is not None and not self._queue:
            fault, self._fault, self._is_lost = self._fault, None, True
            raise fault
        return self._taken(most)

    def _taken(self, most: int) -> list[Entry]:
        found: list[Entry] = []
        size = 0
        while self._queue:
            size += len(self._queue[0].record.payload)
            if found and size > most:
                break
            found.append(self._queue.popleft())
        self._after = found[-1].record.position
        return found

    async def _begin(self, after: int) -> None:
        """A consumer behind `after`; the one before goes by itself."""
        await self.end()
        self._queue.clear()
        self._fault = None
        self._after = -1
        found = await self._client.jetstream(timeout=self._answer).add_consumer(
            self._stream,
            ConsumerConfig(
                deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
                opt_start_seq=after + 1,
                ack_policy=AckPolicy.NONE,
                inactive_threshold=IDLE,
                mem_storage=True,
                num_replicas=1,
            ),
        )
        self._consumer = found.name or ""
        self._inbox = await self._client.subscribe(
            self._client.new_inbox(), cb=partial(self._receive, self._life)
        )
        self._seen = asyncio.get_running_loop().time()
        self._due = 0
        self._is_lost = False
        self._after = after

    def lose(self) -> None:
        """What was asked for does not come: whoever waits asks anew."""
        self._is_lost = True
        self._arrived.set()

    async def end(self) -> None:
        """Nothing comes any more."""
        inbox, self._inbox = self._inbox, None
        self._is_lost = True
        self._life += 1
        if inbox is not None and not self._client.is_closed:
            await inbox.unsubscribe()

    async def _ask(self, most: int) -> None:
        if self._inbox is None:
            return
        request = {
            "batch": BATCH,
            "max_bytes": max(most, BYTES),
            "expires": int(EXPIRES * 1e9),
            "idle_heartbeat": int(BEAT * 1e9),
        }
        self._due = BATCH
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._stream}.{self._consumer}"
        await self._client.publish(subject, json.encode(request), reply=self._inbox.subject)

    async def _receive(self, life: int, message: Msg) -> None:
        if life != self._life:
            return
        self._seen = asyncio.get_running_loop().time()
        if message.subject != self._subject:
            told = message.headers or {}
            if told.get("Status") != _ALIVE:  # the request is served, or over, or the consumer is gone
                is_over = told.get("Status") in _OVER or told.get("Description") in _SERVED
                self._is_lost = self._is_lost or not is_over
                self._due = 0
                self._arrived.set()
            return
        self._due = max(0, self._due - 1)
        try:
            entry = unpacked(message.metadata.sequence.stream, message.data)
        except LogError as error:
            self._fault = self._fault or error
        else:
            if self._fault is None:
                self._queue.append(entry)
        self._arrived.set()
