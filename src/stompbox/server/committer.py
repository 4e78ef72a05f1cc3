"""The thread that owns the disk: one group commit after the other, and reads of the log beside it.

A commit starts at once when somebody waits for it and the disk is free; what nobody waits for rides along, at the latest after
`max_delay`. The loop never waits for the disk: it hands a commit over and is told when it is durable. Only what is told so is ever
confirmed. Where the store itself is at fault nobody is told anything more (faults.py).
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter, sleep
from typing import TypeVar

from stompbox.broker.logs.segments import cost_of_all
from stompbox.errors import Refused, StoreError
from stompbox.message import Run
from stompbox.server.latency import Latency
from stompbox.store.base import DEPOSED, Commit, Store, StoredChunk
from stompbox.store.chunks import decode, large_size, with_bodies

log = logging.getLogger("stompbox.store")

IDLE = 1.0  # seconds without a commit after which the store gets time for its housekeeping
BREATH = 0.005  # seconds between two portions of it
LONG = 0.003  # seconds of a commit after which the loop lets the thread have Python,
SHARE = 0.001  # so many seconds of a turn at the most, and as long as it wants it,
MOMENT = 0.000_05  # for so many seconds: it keeps it until the loop asks for it
WANTED = 0.000_3  # seconds until the loop has Python again, if the thread has had it
TURNS = 8  # of the loop, in which it is not offered where it was not wanted
POLITE = 0.005  # seconds for which a reader lets the loop have its way, at the most
RUNS = 1024  # that are read for the loop in one go, and those of the last chunk
# octets of runs that were read and that the loop has not taken over; where it is more, a chunk is read
AHEAD = 8 << 20

# codes: what broker and store know is not the same any more
DISAGREES = frozenset(("log-exists", "no-such-log", "store-closed")) | DEPOSED

T = TypeVar("T")
Done = Callable[[Commit, StoreError | None], None]
Failed = Callable[[str, BaseException], None]
Selection = Callable[[StoredChunk], Awaitable[StoredChunk]]


class Committer:
    """Applies commits in the order in which they are submitted; `done` is called in the loop, and so is `failed`: what was done, and why
    the broker must not go on."""

    def __init__(self, store: Store, loop: asyncio.AbstractEventLoop, done: Done, failed: Failed) -> None:
        self.store = store
        self.loop = loop
        self.done = done
        self.is_busy = False
        self.is_halted = False
        self.since = 0.0  # by the loop's clock: when the commit was submitted that it is busy with
        # octets of memory of runs that were read for queues, as the thread that reads them counts, and of those that the loop has by now
        self._loaded = self._taken_over = 0
        self._unwanted = 0  # turns in which Python is not offered to the thread
        self._on_fault = failed
        self.applied = 0  # commits that are in the store,
        self.failed = 0  # and those that it refused
        self.seconds = 0.0  # that they all took
        self.latency = Latency()  # of each
        self._jobs: queue.SimpleQueue[Commit | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._work, name="stompbox-committer", daemon=True)
        self._readers = ThreadPoolExecutor(1, thread_name_prefix="stompbox-reader")
        self._unpackers = ThreadPoolExecutor(1, thread_name_prefix="stompbox-unpacker")
        self._writer.start()

    def submit(self, commit: Commit) -> None:
        if self.is_halted:
            return
        self.is_busy = True
        self.since = self.loop.time()
        self._jobs.put(commit)

    def give_way(self) -> None:
        """Lets the thread have Python for a share of each turn where a commit takes long. Who waits for Python's lock asks for it
        after a while in which nobody lets go of it; a loop that is busy does so for each call of the system, and has it again before the
        other is awake. Where nobody wanted it (the disk is slow) it is not offered again for some turns."""
        if not self.is_busy or self.loop.time() - self.since < LONG:
            return
        if self._unwanted:
            self._unwanted -= 1
            return
        begun = perf_counter()
        if not _is_wanted():
            self._unwanted = TURNS
            return
        while perf_counter() - begun < SHARE and _is_wanted():
            pass

    @property
    def is_alive(self) -> bool:
        """The thread is there, and may be at a commit, also after `abandon`."""
        return self._writer.is_alive()

    def halt(self) -> None:
        """No commit is begun any more. One that the disk works on may land; nobody is told."""
        self.is_halted = True

    def abandon(self) -> None:
        """Ends the threads and leaves the store as a crash would: what it has in memory is not to be trusted."""
        self.halt()
        self._jobs.put(None)
        self._readers.shutdown(wait=False, cancel_futures=True)
        self._unpackers.shutdown(wait=False, cancel_futures=True)

    def bury(self) -> None:
        """After `abandon`: waits until the threads are at nothing any more, so that the store can be closed."""
        self._writer.join()
        self._readers.shutdown()
        self._unpackers.shutdown()

    async def read(self, log_id: int, start: int, stop: int, max_bytes: int) -> list[StoredChunk]:
        return await self.loop.run_in_executor(self._readers, self.store.read, log_id, start, stop, max_bytes)

    def read_part(self, body: int, number: int) -> asyncio.Future[bytes]:
        """Reads a piece of a large body."""
        return self.loop.run_in_executor(self._readers, self.store.read_part, body, number)

    async def do(self, reading: Callable[[], T]) -> T:
        """Something that reads from the store, in its turn."""
        return await self.loop.run_in_executor(self._readers, reading)

    async def unpack(self, work: Callable[[], T]) -> T:
        """Something that makes much of what was read, or the other way round, and reads nothing: beside the loop and all who read. One
        piece of it at a time, since each has Python to itself for as long as Python lets it."""
        return await self.loop.run_in_executor(self._unpackers, work)

    async def sizes(self, starts: Mapping[int, int]) -> dict[int, tuple[int, int]]:
        """Per log: (messages, bytes) stored from an offset on."""
        return await self.loop.run_in_executor(self._readers, self.store.sizes, starts, starts)

    async def fetch(
        self,
        log_id: int,
        start: int,
        stop: int,
        max_bytes: int,
        most: int,
        *,
        select: Selection | None = None,
    ) -> list[StoredChunk]:
        """Reads chunks as `read` does, for somebody who has no store: large bodies are in place. Raises Refused when a chunk has more than
        `most` bytes.

        `select` leaves messages out meanwhile: others who read wait for the disk alone.
        """
        if select is None:
            return await self.loop.run_in_executor(
                self._readers, self._fetch, log_id, start, stop, max_bytes, most
            )
        chunks = await self.read(log_id, start, stop, max_bytes)
        selected = [await select(chunk) for chunk in chunks]
        return await self.loop.run_in_executor(self._readers, self._whole, selected, max_bytes, most)

    def _fetch(self, log_id: int, start: int, stop: int, max_bytes: int, most: int) -> list[StoredChunk]:
        return self._whole(self.store.read(log_id, start, stop, max_bytes), max_bytes, most)

    def _whole(self, chunks: Iterable[StoredChunk], max_bytes: int, most: int) -> list[StoredChunk]:
        """The runs with large bodies in place, as many as go into max_bytes."""
        found: list[StoredChunk] = []
        size = 0
        for chunk in chunks:
            more = large_size(chunk.blob, chunk.first)
            size += more + len(chunk.blob)
            if found and size > max_bytes:
                break
            if more > most:
                raise Refused(
                    "too-large-to-fetch",
                    f"bodies of {more} bytes at offset {chunk.first}; a request reads no more than {most}",
                )
            blob = with_bodies(chunk.blob, chunk.first, self.store.read_part) if more else chunk.blob
            found.append(StoredChunk(chunk.first, chunk.count, blob))
        return found

    async def load(self, log_id: int, start: int, stop: int, max_bytes: int) -> tuple[list[Run], int]:
        """Runs of the log, of about max_bytes and not very many, and the offset up to which they are complete. Raises StoreError, also for
        a fault in what decodes them."""
        return await self.loop.run_in_executor(self._readers, self._load, log_id, start, stop, max_bytes)

    def _load(self, log_id: int, start: int, stop: int, max_bytes: int) -> tuple[list[Run], int]:
        """Reads a chunk at a time, until there are RUNS: the loop has something to do for each of them. Who decodes has Python's lock, for
        which each of the loop's calls of the system would wait: so the loop has it to itself for as long after each chunk."""
        runs: list[Run] = []
        at, size = start, 0
        most = min(max_bytes, AHEAD) - (self._loaded - self._taken_over)
        try:
            while at < stop and len(runs) < RUNS and (size < most or at == start):
                chunks = self.store.read(log_id, at, stop, 1)
                begun = perf_counter()
                runs += [run for chunk in chunks for run in decode(chunk.blob, chunk.first)]
                sleep(min(POLITE, perf_counter() - begun))
                size += sum([len(chunk.blob) for chunk in chunks])
                # nothing found: there is nothing up to stop
                at = min(chunks[-1].stop, stop) if chunks else stop
        except StoreError:
            raise
        except Exception as error:
            # a fault of ours, which has changed nothing: these messages must not stop each broker that reads them
            log.exception("log %d cannot be read from offset %d on", log_id, start)
            raise StoreError("store-failed", f"{type(error).__name__}: {error}") from error
        self._loaded += cost_of_all(runs)
        return runs, at

    def take_over(self, runs: list[Run]) -> None:
        """The loop has these runs, which were read for it, where they count."""
        self._taken_over += cost_of_all(runs)

    async def find_time(self, log_id: int, timestamp: int) -> int:
        return await self.loop.run_in_executor(self._readers, self.store.find_time, log_id, timestamp)

    def close(self) -> None:
        """Ends the threads after what was submitted, and closes the store."""
        self._jobs.put(None)
        self._writer.join()
        self._readers.shutdown()
        self._unpackers.shutdown()
        self.store.close()

    def _work(self) -> None:
        try:
            self._serve()
        except Exception as error:
            self.is_halted = True
            self.loop.call_soon_threadsafe(self._on_fault, "the store was at work", error)

    def _serve(self) -> None:
        wait: float | None = IDLE
        while True:
            try:
                commit = self._jobs.get(timeout=wait)
            except queue.Empty:
                wait = BREATH if self._maintain() else None
                continue
            if commit is None or self.is_halted:
                return
            wait = IDLE
            self._obey(commit)
            del commit  # it may have megabytes, and the next one may be long in coming

    def _obey(self, commit: Commit) -> None:
        begun = perf_counter()
        error = self._apply(commit)
        took = perf_counter() - begun
        self.seconds += took
        self.latency.add(took * 1000)
        if error is None:
            self.applied += 1
        else:
            self.failed += 1
        self.loop.call_soon_threadsafe(self.done, commit, error)

    def _apply(self, commit: Commit) -> StoreError | None:
        """What the store refuses is told, and may be tried again; any other exception leaves a store of which nobody knows what it has."""
        try:
            self.store.apply(commit)
        except StoreError as error:
            if error.code in DISAGREES:
                raise
            return error
        return None

    def _maintain(self) -> bool:
        """One portion of the store's housekeeping; True when more is due."""
        try:
            return self.store.maintain()
        except StoreError as error:
            log.warning(
                "housekeeping of the store failed: %s (%s)", error, error.code, extra={"code": error.code}
            )
            return False


def _is_wanted() -> bool:
    """Lets go of Python's lock for a MOMENT; whether another thread has had it then."""
    begun = perf_counter()
    sleep(MOMENT)
    return perf_counter() - begun > WANTED
