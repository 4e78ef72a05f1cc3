"""What each turn of a broker's loop takes of the processor, beside each attack: for so long others wait at the least, on any machine.

    python -m bench.hostile --turns --rows churn        (bench.hostile starts its brokers by way of this module)
    python -m bench.turncosts FILE serve …              (as `stompbox serve …`; what there was goes to FILE at its end, and on SIGUSR1)

How long a pair of clients waits is a matter of the machine, too: of two cores for three processes, and of a host that has others to serve.
What the loop's own thread computes from the end of one turn to the end of the next (server/turns.py) is not. The sockets are read in that
time; waiting for them takes none of it. It runs on the loop that a broker has in service; what a long turn did is in longsteps.py.
"""

from __future__ import annotations

import signal
import sys
import time
from asyncio import AbstractEventLoop
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from bench.longsteps import at_first_freeze, write

STEP: Final = 0.05  # ms by which turns are told apart
LONG: Final = 5.0  # ms of a turn that others notice


class Costs:
    """Turns by what they have taken, in STEPs of a ms. `clock`: in seconds, of the thread that takes the turns."""

    def __init__(self, clock: Callable[[], float] = time.thread_time) -> None:
        self.clock = clock
        self.counts: Counter[int] = Counter()
        self.longest = 0.0
        self._last = 0.0  # when the turn before this one was over; 0: nobody knows
        self._has_line = False  # transports that wait in line have had this turn

    def line_begins(self) -> None:
        """Transports that wait in line have their part of a turn: the second time since one ended there is another one, in which nothing
        else was to be done."""
        if self._has_line:
            self.turn_ends()
        self._has_line = True

    def turn_ends(self) -> None:
        self._has_line = False
        now = self.clock()
        if self._last:
            took = (now - self._last) * 1000
            self.counts[int(took / STEP)] += 1
            self.longest = max(self.longest, took)
        self._last = now

    def forget(self) -> None:
        """All that comes later counts anew; what a start has taken holds up nobody."""
        self.counts.clear()
        self.longest = self._last = 0.0

    def part(self, share: float) -> float:
        """So many ms have this share of the turns taken at the most."""
        left = share * self.counts.total()
        for steps, count in sorted(self.counts.items()):
            left -= count
            if left <= 0:
                return (steps + 1) * STEP
        return 0.0

    @property
    def long_share(self) -> float:
        """Of all that was computed, how much was in turns of more than LONG."""
        whole = sum([(steps + 0.5) * count for steps, count in self.counts.items()])
        long = sum([(steps + 0.5) * count for steps, count in self.counts.items() if steps * STEP >= LONG])
        return long / whole if whole else 0.0

    def as_json(self) -> dict[str, float]:
        return {
            "turns": self.counts.total(),
            "p50_ms": self.part(0.5),
            "p99_ms": self.part(0.99),
            "p999_ms": self.part(0.999),
            "longest_ms": self.longest,
            "long_share": self.long_share,
        }

    def tell_and_forget(self, path: Path) -> None:
        """Writes what there was."""
        write(path, self.as_json())
        self.forget()


def tell(told: dict[str, Any]) -> None:
    """Shows on the terminal what a broker has told."""
    figures = f"p50 {told['p50_ms']:.2f}, p99 {told['p99_ms']:.2f}, p99.9 {told['p999_ms']:.2f}, longest {told['longest_ms']:.1f}"
    share = f"{told['long_share']:.1%} of it in turns of more than {LONG:g} ms"
    print(f"  {told['turns']:,} turns, ms of CPU: {figures}; {share}", flush=True)


def main() -> None:
    path = Path(sys.argv.pop(1))
    from stompbox.server import turns
    from stompbox.server.broker import Broker

    costs = Costs()
    at_first_freeze(costs.forget)
    serve, begin, prepare = turns.Turns.serve, turns.Line._begin, Broker.__init__

    def counted(self: turns.Turns) -> None:
        serve(self)
        costs.turn_ends()

    def begun(self: turns.Line) -> None:
        costs.line_begins()
        begin(self)

    def heard(self: Broker, configuration: Any, store: Any, loop: AbstractEventLoop, **more: Any) -> None:
        prepare(self, configuration, store, loop, **more)
        loop.add_signal_handler(signal.SIGUSR1, costs.tell_and_forget, path)

    turns.Turns.serve = counted  # type: ignore[method-assign]
    turns.Line._begin = begun  # type: ignore[method-assign]
    Broker.__init__ = heard  # type: ignore[method-assign]
    from stompbox.cli import main as stompbox

    try:
        stompbox()
    finally:
        costs.tell_and_forget(path)


if __name__ == "__main__":
    main()
