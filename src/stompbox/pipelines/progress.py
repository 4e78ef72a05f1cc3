"""What a run says of itself, as values: the terminal shows them, `--json` prints them, one object a line.

Decides which facts there are and their names. Not how they look: that is cli/pipeline.py.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct

from stompbox.spark.offsets import number_of

MOST_LAGS: Final = 10  # addresses of one batch whose lag is told: a wildcard may have thousands


class Event(Struct, frozen=True, kw_only=True, tag_field="event", omit_defaults=True):
    step: str


class Started(Event, frozen=True, kw_only=True, tag="started"):
    """A step of the pipeline has begun."""

    kind: str


class Batch(Event, frozen=True, kw_only=True, tag="batch"):
    """One batch of a stream is done. `lag` is how many messages wait on the broker, by the last look at it; `lags` says so of the addresses
    that have most."""

    batch: int
    rows: int
    total: int  # rows of this run
    rate: float  # rows/s, of this batch
    lag: int
    seconds: float
    lags: dict[str, int] = {}


class Idle(Event, frozen=True, kw_only=True, tag="idle"):
    """A stream has read all there is and has had nothing to do for some seconds. Said once, until there is a batch again."""


class Moved(Event, frozen=True, kw_only=True, tag="moved"):
    """A step that has an end: how far it is. `of` is 0 where nobody knows."""

    rows: int
    of: int
    rate: float  # rows/s, since its begin


class Compacted(Event, frozen=True, kw_only=True, tag="compacted"):
    files: int


class Warned(Event, frozen=True, kw_only=True, tag="warning"):
    text: str


class Failed(Event, frozen=True, kw_only=True, tag="failed"):
    """A step has failed, and the run ends."""

    text: str


class Finished(Event, frozen=True, kw_only=True, tag="finished"):
    """A step has ended well. `facts` are its figures."""

    text: str
    facts: dict[str, Any] = {}
    ok: bool = True


Report = Callable[[Event], None]


def progress_since(query: Any, seen: tuple[str, int]) -> list[Any]:
    """A query's progress after the one of this time and batch, the oldest first.

    Each has the offsets of all addresses, so only what is new is asked of Java: pyspark's own `recentProgress` gets all that Spark keeps.
    """
    from pyspark.sql.streaming.listener import StreamingQueryProgress

    last = query._jsq.lastProgress()
    if last is None or (last.timestamp(), last.batchId()) == seen:
        return []
    found: list[Any] = []
    for progress in reversed(list(query._jsq.recentProgress())):
        if (progress.timestamp(), progress.batchId()) == seen:
            break
        found.insert(0, StreamingQueryProgress.fromJson(json.loads(progress.json())))
    return found


def batch_of(step: str, progress: Any, rows: int, total: int) -> Batch:
    """What Spark says of a batch (StreamingQueryProgress) of so many rows."""
    millis = progress.durationMs.get("triggerExecution", 0)
    lags = Counter[str]()
    for source in progress.sources:
        lags.update(_lags(source))
    most = dict(lags.most_common(MOST_LAGS))
    rate = rows / (millis / 1000) if millis else 0.0
    rate, seconds = round(rate, 1), millis / 1000
    return Batch(
        step=step,
        batch=progress.batchId,
        rows=rows,
        total=total,
        rate=rate,
        lag=lags.total(),
        seconds=seconds,
        lags=most,
    )


def _lags(source: Any) -> dict[str, int]:
    """What waits behind the end of the batch; a source that reads addresses is the only one with offsets by name."""
    try:
        end, latest = json.loads(source.endOffset or "{}"), json.loads(source.latestOffset or "{}")
    except ValueError:
        return {}
    if not isinstance(end, dict) or not isinstance(latest, dict):
        return {}
    lags = {address: number_of(offset) - number_of(end.get(address, 0)) for address, offset in latest.items()}
    return {address: lag for address, lag in lags.items() if lag > 0}
