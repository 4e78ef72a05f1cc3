"""A node whose wall clock can jump: `python tests/crash/jumping.py FILE serve …` is `stompbox serve …`, and SIGUSR1 makes its clock differ
from the machine's by the seconds that FILE has. What is measured by the monotonic clock goes on as it does when a machine's clock is set.
"""

from __future__ import annotations

import runpy
import signal
import sys
import time
from pathlib import Path


class Clock:
    """The clock of this process."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.ahead = 0.0
        self._time, self._time_ns = time.time, time.time_ns

    def jump(self, *_: object) -> None:
        self.ahead = float(self.file.read_text())

    def time(self) -> float:
        return self._time() + self.ahead

    def time_ns(self) -> int:
        return self._time_ns() + int(self.ahead * 1e9)


def main() -> None:
    clock = Clock(Path(sys.argv.pop(1)))
    signal.signal(signal.SIGUSR1, clock.jump)
    time.time, time.time_ns = (
        clock.time,
        clock.time_ns,
    )  # before anything of ours keeps the functions themselves
    del sys.path[0]  # the folder of this file, whose names are not the program's
    runpy.run_module("stompbox", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
