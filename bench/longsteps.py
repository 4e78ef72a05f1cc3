"""The longest steps of a broker's loop: which they were, and what they did meanwhile, by the CPU time of the loop's own thread.

    python -m bench.hostile --steps --rows churn        (bench.hostile starts its brokers by way of this module)
    python -m bench.longsteps FILE serve …              (as `stompbox serve …`; the longest go to FILE at its end)

Waits on a machine that others use say little. How much CPU the loop needs between two looks at the sockets says how long others wait
at the least, whoever else is there. It runs on asyncio's own loop, since uvloop's turns cannot be looked into; a thread looks at what
a step is doing that is long already. A collection of the garbage collector counts as part of the step that it comes in.

SIGUSR1 has what was seen so far written to FILE, and all that comes later counts anew (stalls.py).
"""

from __future__ import annotations

import asyncio
import gc
import heapq
import json
import os
import signal
import sys
import threading
import time
from asyncio import events
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from selectors import DefaultSelector, SelectorKey
from types import FrameType, ModuleType
from typing import Any, Final

LONGEST: Final = 25  # steps, and turns, that are told
TOLD: Final = 8  # of them, on the terminal
LOOK: Final = 0.001  # seconds between two looks at a step
LEAST: Final = 0.003  # seconds of a step that is worth telling
WITHIN: Final = 30.0  # seconds in which a broker tells
DEPTH: Final = 12  # frames of Python that are told of a look


class Steps:
    """What the loop's thread did, a callback each, and each of its turns."""

    def __init__(self) -> None:
        self.longest: list[tuple[float, int, str, dict[str, int]]] = []
        self.turns: list[tuple[float, int, float, float, int]] = []
        self.collections: Counter[str] = Counter()
        self.number = 0
        self.first = sys.maxsize  # what comes after this one counts
        self.begun = 0.0
        self.looks: Counter[str] = Counter()
        self._thread = threading.get_ident()
        self._turn = self._turn_wall = self._turn_all = 0.0
        self._turn_number = 0
        self._collecting = 0.0
        gc.callbacks.append(self._collects)
        threading.Thread(target=self._look, daemon=True).start()

    def _collects(self, phase: str, told: dict[str, int]) -> None:
        if phase == "start":
            self._collecting = time.thread_time()
        else:
            took = (
                f"generation {told['generation']}: {int((time.thread_time() - self._collecting) * 1000)} ms"
            )
            self.collections[took] += 1

    def _look(self) -> None:
        while True:
            time.sleep(LOOK)
            begun, number = self.begun, self.number
            if begun and time.perf_counter() - begun > LEAST / 2:
                frame = sys._current_frames().get(self._thread)
                if number == self.number:
                    self.looks[_told(frame)] += 1

    def step(self, run: Any, handle: events.Handle) -> None:
        self.number += 1
        if self.looks:
            self.looks = Counter()
        self.begun = time.perf_counter()
        before = time.thread_time()
        run(handle)
        took = time.thread_time() - before
        self.begun = 0.0
        if took > LEAST and self.number > self.first:
            looks, self.looks = self.looks, Counter()  # the other thread may be writing to it still
            told = (took, self.number, repr(handle)[:300], dict(looks.copy().most_common(6)))
            heapq.heappush(self.longest, told)
            if len(self.longest) > LONGEST:
                heapq.heappop(self.longest)

    def is_ready(self) -> None:
        """What a start takes holds up nobody."""
        self.first = self.number
        self.collections.clear()

    def tell_and_forget(self, path: Path) -> None:
        """Writes what was seen so far; the file is whole as soon as it is there."""
        write(path, self.as_json())
        self.longest, self.turns = [], []
        self._turn = 0.0  # what writing took is no stall of the broker's
        self.is_ready()

    def turn_begins(self) -> None:
        self._turn, self._turn_wall, self._turn_number = time.thread_time(), time.perf_counter(), self.number
        self._turn_all = time.process_time()

    def turn_ends(self) -> None:
        if (
            self._turn
            and self._turn_number > self.first
            and (took := time.thread_time() - self._turn) > LEAST
        ):
            wall, others = time.perf_counter() - self._turn_wall, time.process_time() - self._turn_all - took
            self.turns.append((took, self._turn_number, wall, others, self.number - self._turn_number))
            if len(self.turns) > 1000:
                self.turns = sorted(self.turns)[-LONGEST:]

    def as_json(self) -> dict[str, object]:
        longest = sorted(self.longest, reverse=True)
        return {
            "steps": [{"ms": took * 1000, "what": what, "looks": looks} for took, _, what, looks in longest],
            "turns": [
                {"ms": took * 1000, "wall_ms": wall * 1000, "others_ms": others * 1000, "steps": count}
                for took, _, wall, others, count in sorted(self.turns, reverse=True)[:LONGEST]
            ],
            "collections": dict(self.collections),
        }


def write(path: Path, told: dict[str, Any]) -> None:
    """The file is whole as soon as it is there."""
    written = path.with_suffix(".new")
    written.write_text(json.dumps(told, indent=1))
    os.replace(written, path)


def asked(pid: int, path: Path) -> dict[str, Any]:
    """What the loop of a broker that runs did since it was asked last, once it has said so."""
    path.unlink(missing_ok=True)
    os.kill(pid, signal.SIGUSR1)
    until = time.monotonic() + WITHIN
    while not path.exists():
        if time.monotonic() > until:
            raise TimeoutError("the broker does not say what its loop did")
        time.sleep(0.01)
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def tell(told: dict[str, Any]) -> None:
    """Shows on the terminal what a broker has told."""
    for turn in told["turns"][:TOLD]:
        cpu = f"{turn['ms']:6.1f} ms CPU, {turn['others_ms']:6.1f} of other threads"
        print(f"  turn  {cpu}, {turn['wall_ms']:6.1f} ms in all, {turn['steps']} steps")
    for step in told["steps"][:TOLD]:
        print(f"  step  {step['ms']:6.1f} ms CPU: {step['what']}")
        for where, count in step["looks"].items():
            print(f"        {count} x {where}")
    print(f"  collections: {told['collections']}", flush=True)


def _told(frame: FrameType | None) -> str:
    found: list[str] = []
    while frame is not None and len(found) < DEPTH:
        name = frame.f_code.co_filename.rpartition("/stompbox/")[2].rpartition("/site-packages/")[2]
        if name.endswith("events.py"):  # asyncio's own
            break
        if name.startswith("/"):  # of the standard library
            name = "/".join(name.rsplit("/", 2)[1:])
        if not name.startswith("<frozen"):  # the machinery of imports
            found.append(f"{name}:{frame.f_lineno}:{frame.f_code.co_name}")
        frame = frame.f_back
    return " < ".join(found)


class Looking(DefaultSelector):
    """Between two calls of `select` there is a turn of the loop."""

    steps: Steps

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        self.steps.turn_ends()
        found = super().select(timeout)
        self.steps.turn_begins()
        return found


def at_first_freeze(do: Callable[[], None]) -> None:
    """The last thing that a start does (server/run.py). Later ones are of a broker that runs (server/generations.py)."""
    freeze = gc.freeze

    def first() -> None:
        gc.freeze = freeze
        freeze()
        do()

    gc.freeze = first


def main() -> None:
    path = Path(sys.argv.pop(1))
    steps = Steps()
    Looking.steps = steps
    run = events.Handle._run
    at_first_freeze(steps.is_ready)
    handles: Any = events.Handle
    handles._run = lambda handle: steps.step(run, handle)

    def looked_at(work: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(Looking())) as runner:
            runner.get_loop().add_signal_handler(signal.SIGUSR1, steps.tell_and_forget, path)
            runner.run(work)

    instead = ModuleType("uvloop")
    instead.run = looked_at  # type: ignore[attr-defined]
    sys.modules["uvloop"] = instead
    from stompbox.cli import main as stompbox

    try:
        stompbox()
    finally:
        steps.tell_and_forget(path)


if __name__ == "__main__":
    main()
