"""Tells the broker what the steps of a run are at, for its console.

Decides what becomes of events. Which there are is progress.py's; when and how it is told spark/telling.py's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Final

from msgspec import to_builtins

from stompbox.errors import StompboxError
from stompbox.pipelines.archive import group_of
from stompbox.pipelines.plan import Plan
from stompbox.pipelines.progress import Batch, Event, Failed, Finished, Idle, Moved, Report, Started, Warned
from stompbox.pipelines.settings import KINDS, ArchiveTable, Step, TransformTable
from stompbox.pipelines.transform import group_of as group_of_source
from stompbox.spark.telling import MOST_TEXT, Said, Teller


class Steps:
    """What is said of the steps of a run, from its events. For several threads."""

    def __init__(self, plan: Plan, steps: Sequence[Step], clock: Callable[[], float] = monotonic) -> None:
        self.clock: Final = clock
        self.changed: Final = threading.Event()
        self._lock: Final = threading.Lock()
        self._said: Final = {
            step.name: Said(step=step.name, kind=KINDS[type(step)], groups=groups_of(plan, step))
            for step in steps
        }
        self._ended: Final[dict[str, float]] = {}  # when the last batch of a step did

    def hear(self, event: Event) -> None:
        said = self._said.get(event.step)
        if said is None or isinstance(event, Warned):
            return
        with self._lock:
            self._change(said, event)
        self.changed.set()

    def _change(self, said: Said, event: Event) -> None:
        match event:
            case Started():
                said.state = "running"
            case Batch():
                said.state, said.rows, said.rate, said.lag = "running", event.total, event.rate, event.lag
                said.batch, said.batch_seconds = event.batch, event.seconds
                self._ended[said.step] = self.clock()
            case Idle():
                said.state, said.rate = "waiting", 0.0
            case Moved():
                said.state, said.rows, said.of, said.rate = "running", event.rows, event.of, event.rate
            case Failed():
                said.state, said.reason, said.rate = "failed", event.text[:MOST_TEXT], 0.0
            case Finished():
                self._finish(said, event)

    def _finish(self, said: Said, event: Finished) -> None:
        rows, sent = event.facts.get("rows"), event.facts.get("sent")
        said.state = "done" if event.ok else "failed"
        said.reason, said.rate = "" if event.ok else event.text[:MOST_TEXT], 0.0
        if isinstance(sent, int) and isinstance(rows, int):  # a replay, which may have been stopped
            said.rows, said.of, said.state = sent, rows, "done" if sent >= rows else "stopped"
        elif isinstance(rows, int):
            said.rows = rows

    def end(self, reason: str = "") -> None:
        """The run is over: what did not come to its end was stopped, or has failed where no step is known to be the reason."""
        with self._lock:
            has_failed = any(said.state == "failed" for said in self._said.values())
            for said in self._said.values():
                if not said.is_over:
                    said.state, said.rate = ("failed" if reason and not has_failed else "stopped"), 0.0
                    said.reason = reason[:MOST_TEXT] if said.state == "failed" else ""
        self.changed.set()

    def told(self) -> list[dict[str, object]]:
        """What is told of each step, as the request has it."""
        with self._lock:
            now = self.clock()
            for name, ended in self._ended.items():
                self._said[name].batch_ago = round((now - ended) * 1000)
            return [to_builtins(said) for said in self._said.values()]


def groups_of(plan: Plan, step: Step) -> list[str]:
    """The reader groups that a step reads by."""
    if isinstance(step, ArchiveTable):
        return [group_of(plan, step)]
    if isinstance(step, TransformTable):
        return [group_of_source(plan, step, source) for source in step.sources if not source.table]
    return []


@contextmanager
def telling(plan: Plan, steps: Sequence[Step], report: Report) -> Iterator[Report]:
    """Where the events of a run go that is told of: to `report`, and to the broker."""
    said = Steps(plan, steps)
    teller = Teller(plan.target(), plan.name, said.told, said.changed)

    def hear(event: Event) -> None:
        said.hear(event)
        report(event)

    teller.start()
    try:
        yield hear
        said.end()
    except BaseException as fault:
        said.end(fault.message if isinstance(fault, StompboxError) else "")
        raise
    finally:
        teller.end()
        if teller.refusal is not None and steps:
            report(
                Warned(
                    step=steps[0].name,
                    text=f"the broker does not take the progress of this run: {teller.refusal.message}",
                )
            )
