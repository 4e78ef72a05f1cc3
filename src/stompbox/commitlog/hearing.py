"""For how long a node could hear the log, and heard nothing of a leader: by this, and by no other clock, it decides to try to lead.

Time in which the log did not answer the node itself is not counted: a log that is away for all says nothing of the leader. Nor is time in
which the node did not ask, as while its disk is slow: whether the log would have answered then, nobody knows. This file counts seconds that
others tell it, and asks nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Final

SLACK: Final = 0.1  # seconds that an answer may take beyond the time for which the log was asked to wait


class Hearing:
    """A node that listens. `heard`: when the log last had something of another node's appending (CommitLog.heard), by the same clock."""

    def __init__(self, heard: Callable[[], float], clock: Callable[[], float]) -> None:
        self._heard = heard
        self._clock = clock
        self._lock = Lock()
        self._since = clock()  # it counts from here on,
        self._deaf = 0.0  # without so many seconds
        self._late = self._since  # when it counts no more: an answer is late, or none is waited for

    def begin(self) -> None:
        """Counts from now on."""
        with self._lock:
            self._restart(self._clock())

    def _restart(self, now: float) -> None:
        self._since, self._deaf = now, 0.0

    def asks(self, wait: float) -> None:
        """The log was asked for records, and to wait for so many seconds where there is none."""
        with self._lock:
            self._leave_out()
            self._late = self._clock() + wait + SLACK

    def answered(self) -> None:
        """The log has answered what it was asked last."""
        with self._lock:
            self._leave_out()
            self._late = self._clock()

    def refused(self) -> None:
        """The log has given no answer."""
        with self._lock:
            self._late = self._clock()
            self._restart(self._late)

    def _leave_out(self) -> None:
        """What is not counted until now stays so."""
        self._look()
        self._deaf += self._lateness()

    def _look(self) -> None:
        heard = self._heard()
        if heard > self._since:
            self._restart(heard)

    def _lateness(self) -> float:
        return max(0.0, self._clock() - max(self._late, self._since))

    @property
    def quiet(self) -> float:
        """Seconds in which the log would have told of a leader, and did not."""
        with self._lock:
            self._look()
            return max(0.0, self._clock() - self._since - self._deaf - self._lateness())

    def __repr__(self) -> str:
        return f"<Hearing quiet for {self.quiet:.1f} s>"
