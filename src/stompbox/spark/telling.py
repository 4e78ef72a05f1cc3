"""Tells the broker what the steps of a pipeline, or the queries of a session, are at: for its console.

A thread of its own with a connection of its own says it: once a second while something changes, now and then otherwise. A broker that is
away is tried again with growing pauses, one that refuses is not asked again. Nobody waits for it, and nobody fails by it.

The form of what is told is docs/protocol.md's. Decides when it is told, not what.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import monotonic
from typing import Final

from msgspec import UNSET, Struct, UnsetType

from stompbox.errors import ConnectionLost, StompboxError
from stompbox.spark.link import SparkLink
from stompbox.spark.requests import tell_progress
from stompbox.spark.targets import Target

EVERY: Final = 1.0  # s between two reports while something changes
STILL: Final = 10.0  # s while nothing does: less than the broker waits for a silent client
LONGEST_PAUSE: Final = 30.0  # s between two attempts to reach a broker that is away
ANSWER_WITHIN: Final = 5.0  # s
ENDING: Final = 3.0  # s for the last word of a run
MOST_TEXT: Final = 1000  # characters of a reason


class Said(Struct, kw_only=True):
    """One step, in the form of the request; `batch_ago` is reckoned when it is told."""

    step: str
    kind: str
    state: str = "waiting"
    reason: str = ""
    groups: list[str] = []
    rows: int = 0
    of: int = 0
    rate: float = 0.0
    lag: int | UnsetType = UNSET
    batch: int | UnsetType = UNSET
    batch_ago: int | UnsetType = UNSET
    batch_seconds: float = 0.0

    @property
    def is_over(self) -> bool:
        return self.state in ("done", "failed", "stopped")


class Teller(threading.Thread):
    """Says what `told` gives until it is to end, and then once more. `changed` says that there is something new."""

    def __init__(
        self,
        target: Target,
        pipeline: str,
        told: Callable[[], Sequence[Mapping[str, object]]],
        changed: threading.Event,
    ) -> None:
        super().__init__(name="pipeline-progress", daemon=True)
        self._pipeline: Final = pipeline
        self._told: Final = told
        self._changed: Final = changed
        self._link: Final = SparkLink(replace(target, reconnect_timeout=0.0, request_timeout=ANSWER_WITHIN))
        self._ending: Final = threading.Event()
        self._pause = EVERY
        self.refusal: StompboxError | None = None

    @property
    def is_ending(self) -> bool:
        return self._ending.is_set()

    def run(self) -> None:
        try:
            while self.refusal is None and not self._ending.is_set():
                self._tell()
                self._wait()
            if self.refusal is None:
                self._tell()
        finally:
            self._link.close()

    def _wait(self) -> None:
        """Waits until there is something new, but not for less than a pause nor for more than STILL."""
        self._ending.wait(self._pause)
        deadline = monotonic() + max(0.0, STILL - self._pause)
        while not self._ending.is_set() and not self._changed.wait(0.2) and monotonic() < deadline:
            pass

    def _tell(self) -> None:
        self._changed.clear()
        try:
            tell_progress(self._link, self._pipeline, self._told())
            self._pause = EVERY
        except (ConnectionLost, OSError):
            self._pause = min(LONGEST_PAUSE, 2 * self._pause)
        except StompboxError as fault:
            self.refusal = fault

    def end(self, within: float = ENDING) -> None:
        """Waits for the last word, but not for long."""
        self._ending.set()
        self.join(within)
