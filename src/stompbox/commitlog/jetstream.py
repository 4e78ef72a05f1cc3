"""A log in NATS JetStream: one stream, one subject, and appends that name the sequence before them.

| verb     | is                                                                                                                |
|----------|-------------------------------------------------------------------------------------------------------------------|
| `append` | a publish with Nats-Expected-Last-Subject-Sequence; the position is the stream's sequence                          |
| `read`   | an ephemeral consumer (natsfeed.py)                                                                                |
| `beat`   | a message on another subject, that the server has when it answers the PING behind it                               |
| `trim`   | a purge up to the position                                                                                         |

When an answer is lost, the same record is published again with the same expectation, until there is an answer or the record behind the
expected one can be read: it is ours, by the number in its head, or another one, and then none of our copies can ever get in.

The client of nats-py lives in an event loop in a thread of its own; calls of other threads wait for what they have it do. What the
stream must be is natsstream.py.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from threading import Lock, Thread
from time import monotonic
from typing import Any, Final, TypeVar
from urllib.parse import unquote

from msgspec import MsgspecError, Struct, json
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import AuthorizationError, Error, MaxPayloadError, NoRespondersError
from nats.js.api import StreamInfo
from nats.js.client import JetStreamContext
from nats.js.errors import APIError, NotFoundError

from stompbox.commitlog.base import Fenced, Kind, LogError, Record
from stompbox.commitlog.natsfeed import HEAD, Entry, Feed, packed, unpacked
from stompbox.commitlog.natsstream import (
    OLDEST,
    REPLICAS,
    beats_of,
    check_copies,
    check_owner,
    check_safe,
    check_synced,
    stream_of,
    subject_of,
    wanted,
)
from stompbox.commitlog.opening import LogUrl
from stompbox.errors import redacted

T = TypeVar("T")

ANSWER: Final = 2.0  # seconds after which an answer counts as lost
OPENING: Final = 6.0  # seconds until a connection is there
PAUSE: Final = 0.05  # seconds between two attempts
HEADERS: Final = 512  # bytes that a server counts beside the payload
EXPECTED: Final = "Nats-Expected-Last-Subject-Sequence"

# https://github.com/nats-io/nats-server/blob/main/server/errors.json
_WRONG_LAST: Final = frozenset((10071, 10164))
_FULL: Final = frozenset((10002, 10023, 10047, 10054, 10077))
_NAME_IN_USE: Final = 10058
_TOO_FEW: Final = frozenset((10005, 10074))  # servers for so many replicas
_FORBIDDEN: Final = ("permissions violation", "authorization violation")


class _Fault(Struct):
    code: int = 0
    err_code: int = 0
    description: str = ""


class _Answer(Struct):
    seq: int = 0
    error: _Fault | None = None


_NOBODY: Final = _Answer(error=_Fault(503))


class JetStreamLog:
    """A node's connection to the stream of its cluster. Raises LogError when it cannot be used."""

    def __init__(self, url: LogUrl, cluster: str, node: str) -> None:
        self._url = url
        self._cluster = cluster
        self._node = node
        self._stream = stream_of(cluster)
        self._subject = subject_of(cluster)
        self._servers = ", ".join(server.rpartition("@")[2] for server in url.rest.split(","))
        self._writer = os.urandom(16)
        self._number = 0  # of the last record that was tried to append
        self._mine = 0  # epoch of the last record that was appended
        self._tip = (0, 0)  # the last record that is known: position, epoch
        self._heard = 0.0
        self.identity = ""
        self.largest = 0
        self._said = ""  # the last error of the connection
        self._refused = ""  # what it does not let us do
        self._client: Client | None = None
        self._feed: Feed | None = None
        self._is_closed = False
        self._turn = Lock()
        self._calls: set[Future[Any]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="stompbox-log", daemon=True)
        self._thread.start()
        try:
            self._call(self._open())
        except BaseException:
            self.close()
            raise

    @property
    def name(self) -> str:
        return f"JetStream stream {self._stream} at {self._servers}"

    # From other threads

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        """Has the loop do it, and waits."""
        with self._turn:
            if self._is_closed:
                work.close()
                raise self._closed()
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
            self._calls.add(future)
        try:
            return future.result()
        except CancelledError:
            raise self._closed() from None
        finally:
            self._calls.discard(future)

    def _closed(self) -> LogError:
        return LogError("log-closed", f"{self.name}: it was closed")

    def last(self) -> int:
        return self._call(self._ask_last())

    def first(self) -> int:
        return self._call(self._ask_first())

    def append(self, expected: int, epoch: int, kind: Kind, payload: bytes) -> int:
        if len(payload) > self.largest:
            raise ValueError(f"a record of {len(payload)} bytes; the most is {self.largest}")
        return self._call(self._append(expected, epoch, kind, payload))

    def lead(self, expected: int, node: bytes) -> Record:
        return self._call(self._lead(expected, node))

    def read(self, after: int, most: int, wait: float) -> list[Record]:
        return self._call(self._read(after, most, wait))

    def beat(self, epoch: int) -> None:
        self._call(self._beat(epoch))

    def heard(self) -> float:
        return self._heard

    def trim(self, position: int) -> None:
        self._call(self._trim(position))

    def close(self) -> None:
        with self._turn:
            if self._is_closed:
                return
            self._is_closed = True
        for call in list(self._calls):
            call.cancel()
        ending = asyncio.run_coroutine_threadsafe(self._end(), self._loop)
        ending.result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        if self._client is not None:
            with suppress(Error, OSError, TimeoutError):
                async with asyncio.timeout(ANSWER):
                    await self._client.close()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        await self._loop.shutdown_asyncgens()

    # The connection

    async def _open(self) -> None:
        await self._connect()
        info = await self._prepare()
        self.identity = check_owner(info, self._cluster, self.name)
        check_safe(info, self._cluster, self.name)
        if not self._url.is_insecure:
            check_copies(info, self.name)
            await self._check_servers(info)

    async def _check_servers(self, info: StreamInfo) -> None:
        monitors = self._url.options.get("monitor", "")
        if monitors:
            await asyncio.to_thread(check_synced, monitors, info, self.name)
        elif self._url.options.get("sync") != "always":
            raise LogError(
                "log-not-safe",
                f"{self.name}: whether the servers sync what they confirm cannot be seen from here. "
                "With sync_interval: always in the jetstream block of each, say sync=always in the URL, "
                "or name their monitoring ports with monitor=http://host:8222,…; insecure=true does without",
            )

    async def _connect(self) -> None:
        """A client that comes back by itself until it is closed. Raises LogError when it is not there in time."""
        forbidden = asyncio.Event()

        async def told(error: Exception) -> None:
            self._said = str(error) or type(error).__name__
            if isinstance(error, AuthorizationError) or any(
                word in self._said.lower() for word in _FORBIDDEN
            ):
                self._refused = self._said
                forbidden.set()

        client = Client()
        connecting = asyncio.ensure_future(
            client.connect(error_cb=told, reconnected_cb=self._back, **self._arguments())
        )
        refusal = asyncio.ensure_future(forbidden.wait())
        await asyncio.wait((connecting, refusal), timeout=OPENING, return_when=asyncio.FIRST_COMPLETED)
        refusal.cancel()
        if connecting.done() and not connecting.cancelled() and connecting.exception() is None:
            await self._use(client)
            return
        if connecting.done() and (error := connecting.exception()) is not None:
            self._said = str(error) or type(error).__name__
        connecting.cancel()
        await asyncio.gather(connecting, return_exceptions=True)
        with suppress(Error, OSError):
            await client.close()
        code = "log-not-allowed" if forbidden.is_set() else "log-unavailable"
        raise LogError(code, f"{self.name}: {self._said or 'no answer'}")

    async def _use(self, client: Client) -> None:
        version = client.connected_server_version
        if (version.major, version.minor) < OLDEST and not self._url.is_insecure:
            await client.close()
            least = ".".join(map(str, OLDEST))
            raise LogError(
                "log-not-safe",
                f"{self.name}: nats-server {version.major}.{version.minor} is older than {least}",
            )
        self._client = client
        self._refused = ""
        self.largest = client.max_payload - HEAD - HEADERS
        self._feed = Feed(client, self._stream, self._subject, ANSWER)
        await client.subscribe(beats_of(self._cluster), cb=self._hear)

    async def _back(self) -> None:
        """With another server, or the same one again: what was asked for before does not come any more."""
        if self._feed is not None:
            self._feed.lose()

    def _arguments(self) -> dict[str, Any]:
        """What the client is connected with."""
        options = self._url.options
        users, _, servers = self._url.rest.rpartition("@")
        user, _, password = users.partition(":")
        found: dict[str, Any] = {
            "servers": [f"{self._url.scheme}://{server.rpartition('@')[2]}" for server in servers.split(",")],
            "name": f"stompbox {self._cluster} {self._node}".strip(),
            "max_reconnect_attempts": -1,
            "reconnect_time_wait": 0.2,
            "connect_timeout": 2,
            "ping_interval": 1,
            "max_outstanding_pings": 3,
        }
        if password:
            found |= {"user": unquote(user), "password": unquote(password)}
        elif user:
            found["token"] = unquote(user)
        if "credentials" in options:
            found["user_credentials"] = options["credentials"]
        if self._url.scheme == "tls" or {"ca", "cert", "key"} & options.keys():
            found["tls"] = self._tls()
        return found

    def _tls(self) -> ssl.SSLContext:
        options = self._url.options
        try:
            context = ssl.create_default_context(cafile=options.get("ca"))
            if "cert" in options:
                context.load_cert_chain(options["cert"], options.get("key"))
        except (OSError, ValueError) as error:
            raise LogError(
                "log-not-allowed", f"{self.name}: certificates cannot be read ({error})"
            ) from error
        return context

    async def _connected(self) -> Client:
        """The client, as soon as it has a server. Raises LogError `log-unavailable` when it takes too long."""
        deadline = monotonic() + ANSWER
        while self._client is None or not self._client.is_connected:
            if self._client is None or self._client.is_closed:  # a server ended it for good
                self._client = None
                await self._connect()
                continue
            if monotonic() > deadline:
                raise LogError("log-unavailable", f"{self.name}: not connected ({self._said or 'no answer'})")
            await asyncio.sleep(PAUSE)
        return self._client

    async def _ask(self, question: Callable[[JetStreamContext], Awaitable[T]]) -> T:
        """What JetStream answers. What it does not is a LogError `log-unavailable`."""
        client = await self._connected()
        self._refused = ""
        try:
            return await question(client.jetstream(timeout=ANSWER))
        except (Error, OSError, TimeoutError) as error:
            await self._look_at(client, error)
            if self._refused:
                raise LogError("log-not-allowed", f"{self.name}: {self._refused}") from error
            raise LogError("log-unavailable", f"{self.name}: {error or 'no answer'}") from error

    async def _look_at(self, client: Client, error: Exception) -> None:
        """After a lost answer: a server that does not answer a PING either is left for another one."""
        if not isinstance(error, TimeoutError) or not client.is_connected:
            return
        try:
            await client.flush(timeout=1)
        except (Error, OSError, TimeoutError):
            with suppress(Error, OSError):
                await client.force_reconnect()

    # The stream

    async def _prepare(self) -> StreamInfo:
        """The stream, made where there is none."""
        try:
            return await self._ask(lambda stream: stream.stream_info(self._stream))
        except LogError as error:
            if not isinstance(error.__cause__, NotFoundError):
                raise
        try:
            return await self._ask(lambda stream: stream.add_stream(wanted(self._cluster, REPLICAS)))
        except LogError as error:
            cause = error.__cause__
            code = cause.err_code if isinstance(cause, APIError) else 0
            if code == _NAME_IN_USE:  # another node was faster
                return await self._ask(lambda stream: stream.stream_info(self._stream))
            if code not in _TOO_FEW:
                raise
            if not self._url.is_insecure:
                hint = "three servers in a cluster, or insecure=true in the URL to do without"
                raise LogError(
                    "log-not-safe", f"{self.name}: no stream of {REPLICAS} replicas can be made: {hint}"
                ) from error
        return await self._ask(lambda stream: stream.add_stream(wanted(self._cluster, 1)))

    async def _info(self) -> StreamInfo:
        return await self._ask(lambda stream: stream.stream_info(self._stream))

    async def _ask_last(self) -> int:
        return int((await self._info()).state.last_seq)

    async def _ask_first(self) -> int:
        state = (await self._info()).state
        return int(state.first_seq if state.messages else state.last_seq + 1)

    async def _trim(self, position: int) -> None:
        last = await self._ask_last()
        before = min(position, last)
        if before > 1:
            await self._ask(lambda stream: stream.purge_stream(self._stream, seq=before))

    # Appending

    async def _lead(self, expected: int, node: bytes) -> Record:
        epoch = await self._epoch_at(expected) + 1
        position = await self._append(expected, epoch, Kind.LEAD, node)
        return Record(position, epoch, Kind.LEAD, node)

    async def _epoch_at(self, position: int) -> int:
        """The epoch of that record, however long the engine is away. Raises Fenced when it is not there."""
        if position == 0 or position == self._tip[0]:
            return self._tip[1] if position else 0
        while True:
            try:
                found = await self._entry(position)
                if found is not None and found.record.position == position:
                    return found.record.epoch
                raise Fenced("fenced", f"{self.name}: record {position} is not the last")
            except LogError as error:
                if error.code != "log-unavailable":
                    raise
            await asyncio.sleep(PAUSE)

    async def _entry(self, position: int) -> Entry | None:
        """The first entry from `position` on."""
        try:
            found = await self._ask(
                lambda stream: stream.get_msg(self._stream, seq=position, subject=self._subject, next=True)
            )
        except LogError as error:
            if isinstance(error.__cause__, NotFoundError):
                return None
            raise
        return unpacked(int(found.seq or 0), found.data or b"")

    async def _append(self, expected: int, epoch: int, kind: Kind, payload: bytes) -> int:
        self._number += 1
        number = self._number
        data = packed(Entry(Record(0, epoch, kind, payload), expected, self._writer, number))
        is_lost = False  # a copy may be in the log, or get there yet
        while True:
            answer = await self._published(expected, data, is_lost=is_lost)
            if answer is _NOBODY:
                pass
            elif answer is None:
                is_lost = True
            elif answer.error is None:
                position = answer.seq
                break
            elif (found := await self._outcome(expected, number, answer.error, is_lost=is_lost)) is not None:
                position = found
                break
            else:
                is_lost = True
            await asyncio.sleep(PAUSE)
        self._tip = position, epoch
        self._mine = epoch
        return position

    async def _published(self, expected: int, data: bytes, *, is_lost: bool) -> _Answer | None:
        """The server's answer to one attempt; None: nobody knows what became of it."""
        try:
            client = await self._connected()
        except LogError as error:
            if error.code == "log-unavailable" or is_lost:  # an earlier copy may be there all the same
                return None
            raise
        self._refused = ""
        try:
            found = await client.request(
                self._subject, data, timeout=ANSWER, headers={EXPECTED: str(expected)}
            )
            return json.decode(found.data, type=_Answer)
        except MaxPayloadError as error:
            if not is_lost:
                raise LogError(
                    "log-full", f"{self.name}: the server takes no record of {len(data)} bytes"
                ) from error
        except NoRespondersError:  # no server has the stream at this moment: nobody has the record
            return _NOBODY
        except (Error, OSError, TimeoutError, MsgspecError) as error:
            await self._look_at(client, error)
            if self._refused and not is_lost:
                raise LogError("log-not-allowed", f"{self.name}: {self._refused}") from error
        return None

    async def _outcome(self, expected: int, number: int, fault: _Fault, *, is_lost: bool) -> int | None:
        """What a refusal says of the record: its position, None when it has to be tried again. Raises Fenced, LogError `log-full`."""
        is_wrong = fault.err_code in _WRONG_LAST
        if not is_lost:
            if is_wrong:
                raise Fenced(
                    "fenced", f"{self.name}: record {expected} is not the last ({fault.description})"
                )
            if fault.err_code in _FULL:
                raise LogError("log-full", f"{self.name}: {fault.description}")
            return None
        try:
            found = await self._entry(expected + 1)
        except LogError as error:
            if error.code in ("log-corrupt", "log-too-new"):  # so it is not ours
                raise Fenced("fenced", f"{self.name}: {error.message}") from error
            return None
        if found is None:
            return None
        if (found.writer, found.number) == (self._writer, number):
            return found.record.position
        raise Fenced(
            "fenced", f"{self.name}: record {expected} is not the last, {found.record.position} is behind it"
        )

    # Reading

    async def _read(self, after: int, most: int, wait: float) -> list[Record]:
        client = await self._connected()
        assert self._feed is not None
        self._refused = ""
        try:
            found = await self._feed.take(after, most, wait)
            if not found and await self._ask_last() > after:  # there was no time to answer
                found = await self._feed.take(after, most, ANSWER)
                if not found:
                    raise LogError("log-unavailable", f"{self.name}: record {after + 1} does not come")
        except (Error, OSError, TimeoutError) as error:
            await self._look_at(client, error)
            code = "log-not-allowed" if self._refused else "log-unavailable"
            raise LogError(code, f"{self.name}: {self._refused or error or 'no answer'}") from error
        before = after
        for entry in found:
            if entry.before != before:
                await self._feed.end()
                raise await self._gap(before, entry)
            before = entry.record.position
        records = [entry.record for entry in found]
        if records:
            self._note(records[-1])
        return records

    async def _gap(self, after: int, entry: Entry) -> LogError:
        """What it means that this entry is the next one behind position `after`."""
        where = f"{self.name}: record {entry.record.position} follows {entry.before}, and not {after}"
        if await self._ask_first() > after + 1:
            return LogError("log-trimmed", f"{where}: what is between them is gone")
        return LogError("log-corrupt", where)

    def _note(self, record: Record) -> None:
        if record.position > self._tip[0]:
            self._tip = record.position, record.epoch
        if record.epoch != self._mine:
            self._heard = monotonic()

    # Beats

    async def _beat(self, epoch: int) -> None:
        if self._tip[1] > epoch:
            raise Fenced("fenced", f"{self.name}: epoch {self._tip[1]} leads, not {epoch}")
        client = await self._connected()
        try:
            await client.publish(beats_of(self._cluster), epoch.to_bytes(8, "little") + self._writer)
            await client.flush(timeout=2)
        except (Error, OSError, TimeoutError) as error:
            raise LogError("log-unavailable", f"{self.name}: {error or 'no answer'}") from error

    async def _hear(self, message: Msg) -> None:
        if message.data[8:] != self._writer:
            self._heard = monotonic()

    def __repr__(self) -> str:
        return f"<JetStreamLog {self._stream} tip={self._tip[0]} epoch={self._tip[1]} {redacted(self._url.whole)}>"
