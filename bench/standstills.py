"""When a core of the machine stood still: a virtual machine whose host is busy gets no time for 5 to 25 ms, several times a minute.

Decides what of a wait no program of this machine has caused. On each core a process of the highest real-time priority sleeps for a
millisecond, again and again. Whatever other programs do, it is woken in time as long as the core runs at all; where it is woken late, the
core had nothing for anybody. Where the system does not allow such a priority nothing is watched, and no wait is made shorter.
"""

from __future__ import annotations

import os
import select
import struct
import time
from bisect import bisect_left
from contextlib import suppress
from typing import Final

PERIOD: Final = 0.001  # seconds between two looks at a core
LEAST: Final = 0.002  # seconds that it is late at the least, to count
PAUSE: Final = struct.Struct("=dd")  # from, to: seconds of the monotonic clock
READ: Final = 4096 * PAUSE.size

Pauses = list[tuple[float, float]]


class Standstills:
    """Those of all cores that this process may use, from now on."""

    def __init__(self) -> None:
        self._reader, writer = os.pipe()
        parent = os.getpid()
        for core in sorted(os.sched_getaffinity(0)):
            if os.fork() == 0:
                with suppress(OSError):
                    _watch(core, writer, parent)
                os._exit(0)
        os.close(writer)

    def taken(self) -> Pauses:
        """What was seen since the last time, in order, none touching another: of several cores what any of them has."""
        found: Pauses = []
        while select.select([self._reader], [], [], 0)[0] and (data := os.read(self._reader, READ)):
            found += PAUSE.iter_unpack(data)
        return merged(found)


def _watch(core: int, writer: int, parent: int) -> None:
    """Tells of one core until `parent` has gone. Raises OSError where it may not."""
    os.sched_setaffinity(0, {core})
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(os.sched_get_priority_max(os.SCHED_FIFO)))
    last = time.monotonic()
    while os.getppid() == parent:
        time.sleep(PERIOD)
        now = time.monotonic()
        if now - last > PERIOD + LEAST:
            os.write(writer, PAUSE.pack(last + PERIOD, now))
        last = now


def merged(pauses: Pauses) -> Pauses:
    """The same times, in order, where what overlaps is one."""
    found: Pauses = []
    for begun, ended in sorted(pauses):
        if found and begun <= found[-1][1]:
            found[-1] = found[-1][0], max(ended, found[-1][1])
        else:
            found.append((begun, ended))
    return found


def within(pauses: Pauses, begun: float, ended: float) -> float:
    """Seconds of these pauses, which are `merged`, that lie between the two times."""
    at = max(0, bisect_left(pauses, (begun, begun)) - 1)
    sum_of = 0.0
    while at < len(pauses) and pauses[at][0] < ended:
        sum_of += max(0.0, min(ended, pauses[at][1]) - max(begun, pauses[at][0]))
        at += 1
    return sum_of
