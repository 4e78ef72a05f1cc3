"""Memory that clients have left goes back to the system, within seconds.

What Python frees stays with the C library, which gives back by itself only what lies at the very end of its heap. So the process would
stay as large as it was in its worst hour, for other processes of the machine as well. Every PERIOD it is looked whether the process has
become larger than what it keeps (ledger.py) explains; if so the C library is told to give back what is free, in a thread: it takes some
ms for each 100 MB. Where that has not helped, something is kept that nobody counts, and the next look is NEXT_LOOK later.

Before that Python gives back what it keeps for itself: it has its objects in arenas of 1 MiB, and keeps up to 2,000 tuples of each
length that nobody needs any more, wherever they were made. After forty thousand subscriptions had gone these held 40 MiB. A collection
of the garbage collector lets them go, on the loop: it takes 2 to 5 ms for the tuples, and looks at few objects (generations.py). Where
that has not helped either, what only saves time goes, which lies between what has gone: compiled selectors that nobody has just now, and
what selectors have said of late; and why the last connections ended, one for each arena in which they were, is kept elsewhere.

Circles of what is gone, if there are any among what was put aside, only a collection of all that there is finds, which takes 50 ms and
more: others would feel it. So it comes where nobody has said anything since the last look, once in LONG at the most: when few objects are
alive, or when MUCH was in use for LONG that nothing explains. Where somebody speaks all the time it comes for that reason, too, and the
next one after twice as long where it has found next to nothing: so nobody can have others stand still again and again.

Memory is given back where the system says how large a process is (/proc) and the C library can do it (glibc: malloc_trim). The broker's
process does so and each front, which has what TLS takes.
"""

from __future__ import annotations

import asyncio
import logging
import mmap
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from stompbox.server.generations import Collector

log = logging.getLogger("stompbox")

PERIOD: Final = 2.0  # seconds
NEXT_LOOK: Final = 6.0
LEAST: Final = 4 << 20  # octets for which it is worth while
MUCH: Final = 64 << 20  # octets
LONG: Final = 600.0  # seconds
LONGEST: Final = 86_400.0
WORTH: Final = 1000  # objects in circles, for which it was worth while that nobody had a turn
CONNECTION: Final = 4 << 10  # octets that an idle connection takes at the most
TLS: Final = 16 << 10  # and OpenSSL for it, in the process that has its socket
_STATM: Final = Path("/proc/self/statm")


class Whose(Protocol):
    """Whose process it is."""

    loop: asyncio.AbstractEventLoop

    @property
    def kept(self) -> int:
        """Octets that are kept for somebody, and counted."""

    @property
    def happened(self) -> int:
        """Grows with each turn of the loop in which something was said, by a client or to one."""

    async def let_go(self) -> bool:
        """Lets go what only saves time. Whether there was any."""


class Trimming:
    """Memory that one process gives back. `resident` is its size in octets now, where the system says so, `trim` gives back what is
    free."""

    def __init__(
        self,
        whose: Whose,
        collector: Collector,
        resident: Callable[[], int] | None,
        trim: Callable[[], object],
    ) -> None:
        self._whose = whose
        self._collector = collector
        self._resident = resident
        self._trim = trim
        self._size = 0
        self._happened = whose.happened  # at the last look
        self._all_from = 0.0  # when all may be collected again, by the loop's clock
        self._patience = LONG  # of MUCH that nothing explains, while clients speak
        self._least = self._unexplained()
        self._much_since = whose.loop.time()  # not before
        self._running: asyncio.Task[None] | None = None
        self._timer = whose.loop.call_later(PERIOD, self._look)

    def _unexplained(self) -> int:
        """Octets of the process that are not kept for anybody, the code itself among them."""
        if self._resident is None:
            return 0
        with suppress(OSError):  # the process can open no file more just now: it counts as large as it was
            self._size = self._resident()
        return self._size - self._whose.kept

    def _look(self) -> None:
        loop = self._whose.loop
        self._timer, now = loop.call_later(PERIOD, self._look), loop.time()
        before = self._unexplained()
        self._least = min(self._least, before)
        if before <= self._least + MUCH:
            self._much_since = now
        if now >= self._all_from:
            self._look_for_circles(now)
        self._happened = self._whose.happened
        if before > self._least + LEAST and self._running is None:
            self._running = loop.create_task(self._give_back(before))

    def _look_for_circles(self, now: float) -> None:
        """Nobody has a turn meanwhile: it comes where nobody wants one, or must."""
        collector, much_for = self._collector, now - self._much_since
        is_quiet = self._whose.happened == self._happened
        is_easy = is_quiet and collector.has_put_aside and collector.has_few
        if is_easy or much_for >= (LONG if is_quiet else self._patience):
            self._all_from = now + LONG
            found = collector.collect_all()
            if not is_quiet:
                self._patience = LONG if found >= WORTH else min(2 * self._patience, LONGEST)

    async def _give_back(self, before: int) -> None:
        after = await self._trimmed()
        if after > self._least + LEAST and await self._whose.let_go():
            after = await self._trimmed()
        log.debug("%d octets of memory went back to the system", max(0, before - after))
        if after > self._least + LEAST:
            await asyncio.sleep(NEXT_LOOK)
        self._running = None

    async def _trimmed(self) -> int:
        """What is free goes back: octets that nothing explains after that."""
        self._collector.collect()
        await self._whose.loop.run_in_executor(None, self._trim)
        return self._unexplained()

    def stop(self) -> None:
        self._timer.cancel()
        if self._running is not None:
            self._running.cancel()

    def __repr__(self) -> str:
        return f"<Trimming {self._least} octets that nothing explains>"


def trimming(whose: Whose, collector: Collector) -> Trimming:
    """Begins to give memory back to the system, where that is possible."""
    trim = _malloc_trim()
    can = trim is not None and _STATM.exists()
    return Trimming(whose, collector, _resident if can else None, trim or _nothing)


def _nothing() -> None:
    """Where the C library cannot give back."""


def _resident() -> int:
    return int(_STATM.read_bytes().split()[1]) * mmap.PAGESIZE


def _malloc_trim() -> Callable[[], object] | None:
    """The function malloc_trim(3) of glibc, where there is one."""
    try:
        import ctypes

        found = ctypes.CDLL(None).malloc_trim
    except (ImportError, OSError, TypeError, AttributeError):
        return None
    return lambda: found(ctypes.c_size_t(0))
