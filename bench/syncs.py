"""How long one small commit takes from the loop and back, by who writes it: what a client that waits for each receipt waits for.

    python -m bench.syncs [--folder DIR] [--rounds 5] [--writes 1000] [--busy 0]

    thread     the loop hands the record to a thread, which writes it and tells the loop, as server/committer.py does
    loop       the loop writes it itself, and can do nothing else meanwhile
    io_uring   the kernel is handed the record, and tells the loop by an eventfd

Each writes a sector past the cache, durable when the call returns, as store/journal.py does, into a file in DIR. The three take turns; said
are the median, the 99th percentile and the longest of all writes of a round in us, and the CPU time of the process for a write, each as the
median of the rounds. `--busy`: so many processes compute meanwhile, as the clients of a broker and its neighbours do; where they take all
cores, whoever is woken for an answer waits for one. Needs Linux.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import mmap
import os
import queue
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final

import uvloop

SIZE: Final = 4 << 20  # bytes of the file
SECTOR: Final = 512
Told = Callable[[], None]
Way = Callable[[int, memoryview, asyncio.AbstractEventLoop], "Writer"]


class Writer:
    """Writes a sector at an offset, and calls `told` in the loop when it is on the disk. This one does so in the loop."""

    def __init__(self, descriptor: int, data: memoryview, loop: asyncio.AbstractEventLoop) -> None:
        self.descriptor, self.data, self.loop = descriptor, data, loop

    def write(self, at: int, told: Told) -> None:
        os.pwritev(self.descriptor, [self.data], at, os.RWF_DSYNC)
        self.loop.call_soon(told)

    def close(self) -> None:
        """Nothing is under way any more."""


class ThreadWriter(Writer):
    """By a thread that waits for work."""

    def __init__(self, descriptor: int, data: memoryview, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(descriptor, data, loop)
        self._jobs: queue.SimpleQueue[tuple[int, Told] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def write(self, at: int, told: Told) -> None:
        self._jobs.put((at, told))

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            os.pwritev(self.descriptor, [self.data], job[0], os.RWF_DSYNC)
            self.loop.call_soon_threadsafe(job[1])

    def close(self) -> None:
        self._jobs.put(None)
        self._thread.join()


class Ring(Writer):
    """By io_uring(7): a ring of one entry, and an eventfd that the loop listens to."""

    _SETUP, _ENTER, _REGISTER = 425, 426, 427  # numbers of the system calls
    _EVENTFD, _WRITE, _DSYNC = 4, 23, 2
    _AT_ENTRIES = 0x10000000

    def __init__(self, descriptor: int, data: memoryview, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(descriptor, data, loop)
        self._call = ctypes.CDLL(None, use_errno=True).syscall
        parameters = ctypes.create_string_buffer(120)
        self._ring = self._asked(self._SETUP, 1, parameters)
        (entries, completed), offsets = struct.unpack_from("<2I", parameters), parameters.raw
        # struct io_sqring_offsets at 40: head, tail, ring_mask, ring_entries, flags, dropped, array; struct io_cqring_offsets at 80
        self._tail, self._array = (
            struct.unpack_from("<I", offsets, 44)[0],
            struct.unpack_from("<I", offsets, 64)[0],
        )
        self._seen, self._found = (
            struct.unpack_from("<I", offsets, 80)[0],
            struct.unpack_from("<I", offsets, 100)[0],
        )
        length = max(self._array + 4 * entries, self._found + 16 * completed)
        self._rings = mmap.mmap(self._ring, length, flags=mmap.MAP_SHARED)
        self._entries = mmap.mmap(self._ring, 64 * entries, flags=mmap.MAP_SHARED, offset=self._AT_ENTRIES)
        self._completed = completed
        self._event = os.eventfd(0, os.EFD_NONBLOCK)
        self._asked(self._REGISTER, self._ring, self._EVENTFD, ctypes.byref(ctypes.c_int(self._event)), 1)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(data))
        self._told: Told = print
        loop.add_reader(self._event, self._done)

    def _asked(self, *arguments: object) -> int:
        answer: int = self._call(*arguments)
        if answer < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return answer

    def write(self, at: int, told: Told) -> None:
        self._told = told
        entry = struct.pack(
            "<BBHiQQIIQ24x", self._WRITE, 0, 0, self.descriptor, at, self._address, SECTOR, self._DSYNC, 0
        )
        self._entries[:64] = entry
        (tail,) = struct.unpack_from("<I", self._rings, self._tail)
        struct.pack_into("<I", self._rings, self._array, 0)
        struct.pack_into("<I", self._rings, self._tail, (tail + 1) & 0xFFFFFFFF)
        self._asked(self._ENTER, self._ring, 1, 0, 0, None, 0)

    def _done(self) -> None:
        os.eventfd_read(self._event)
        (head,) = struct.unpack_from("<I", self._rings, self._seen)
        at = self._found + 16 * (head % self._completed)
        _, written, _ = struct.unpack_from("<QiI", self._rings, at)
        struct.pack_into("<I", self._rings, self._seen, (head + 1) & 0xFFFFFFFF)
        if written != SECTOR:
            raise OSError(-written if written < 0 else 0, f"io_uring has written {written} of {SECTOR} bytes")
        self._told()

    def close(self) -> None:
        self.loop.remove_reader(self._event)
        os.close(self._event)
        os.close(self._ring)


async def measured(way: Way, descriptor: int, data: memoryview, writes: int) -> list[float]:
    """Median, 99th percentile, longest, and CPU time of one write, in us."""
    loop = asyncio.get_running_loop()
    writer = way(descriptor, data, loop)
    took: list[float] = []
    cpu = time.process_time()
    for number in range(writes):
        event = loop.create_future()
        begun = time.perf_counter()
        writer.write(number * SECTOR % SIZE, lambda event=event: event.set_result(None))  # type: ignore[misc]
        await event
        took.append((time.perf_counter() - begun) * 1e6)
    cpu = time.process_time() - cpu
    writer.close()
    took.sort()
    return [took[len(took) // 2], took[len(took) * 99 // 100], took[-1], cpu / writes * 1e6]


WAYS: Final[dict[str, Way]] = {"thread": ThreadWriter, "loop": Writer, "io_uring": Ring}


@contextmanager
def busy(count: int) -> Iterator[None]:
    """So many processes compute, and nothing else."""
    command = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


async def main(folder: Path, rounds: int, writes: int) -> None:
    file = folder / "syncs"
    file.write_bytes(bytes(SIZE))
    descriptor = os.open(file, os.O_RDWR | os.O_DIRECT)
    pages = mmap.mmap(-1, 4096)
    data = memoryview(pages)[:SECTOR]
    found: dict[str, list[list[float]]] = {name: [] for name in WAYS}
    try:
        for _ in range(rounds):
            for name, way in WAYS.items():
                found[name].append(await measured(way, descriptor, data, writes))
    finally:
        os.close(descriptor)
        file.unlink()
    print(f"{'us':10}{'median':>8}{'p99':>8}{'longest':>10}{'CPU':>8}")
    for name, all_rounds in found.items():
        each = [median(column) for column in zip(*all_rounds, strict=True)]
        print(f"{name:10}{each[0]:8.0f}{each[1]:8.0f}{each[2]:10.0f}{each[3]:8.0f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()), help="on the disk in question"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--writes", type=int, default=1000, help="of each way, in each round")
    parser.add_argument("--busy", type=int, default=0, help="processes that compute meanwhile")
    options = parser.parse_args()
    with busy(options.busy):
        uvloop.run(main(options.folder, options.rounds, options.writes))
