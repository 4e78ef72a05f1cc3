"""What the queries of a session are at: lag by address, skipped offsets, rows, bytes and malformed bodies, batch by batch.

    spark.streams.addListener(ProgressListener("stomp://broker:61613"))     and they stand on the pipelines page of that broker's console
    spark.streams.addListener(ProgressListener(report=print))               or each micro-batch goes to a function of one's own

Spark tells a listener of every query of its session; those that read no address of ours are passed over. What Spark itself counts is in
what it tells; how large bodies are and which are malformed is counted while they are read, by the columns that `observed` adds.

Decides what is said of a micro-batch. When the broker is told is telling.py's.
"""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

from msgspec import to_builtins
from pyspark.sql.streaming import StreamingQueryListener

from stompbox.spark.offsets import between, number_of
from stompbox.spark.options import Given, target_of
from stompbox.spark.targets import Target
from stompbox.spark.telling import MOST_TEXT, Said, Teller

OBSERVED: Final = "stompbox"
KIND: Final = "query"
MOST_OVER: Final = 50  # queries that have ended and are still told of
_OURS: Final = re.compile(r"stompbox\.errors\.\w+: ([^\n]+)")
_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """One micro-batch. `lags` is what waits behind its end, by address; `skipped` its offsets that gave no row: their messages were gone
    (failOnDataLoss=false), or a selector or the mode DROPMALFORMED left them out. `size` (bytes of bodies) and `malformed` are -1 where
    the query does not count them with `observed`."""

    query: str
    batch: int
    rows: int
    seconds: float
    lags: Mapping[str, int] = field(default_factory=dict)
    skipped: int = 0
    size: int = -1
    malformed: int = -1

    @property
    def lag(self) -> int:
        return sum(self.lags.values())

    @property
    def rate(self) -> float:
        """How many rows were read per second."""
        return round(self.rows / self.seconds, 1) if self.seconds else 0.0

    def __str__(self) -> str:
        parts = [f"{self.rows} rows in {self.seconds:g} s", f"lag {self.lag}"]
        parts += [f"{self.skipped} offsets without a row"] if self.skipped else []
        parts += [f"{self.size} bytes"] if self.size >= 0 else []
        parts += [f"{self.malformed} malformed"] if self.malformed > 0 else []
        return f"query {self.query!r}, batch {self.batch}: {', '.join(parts)}"


def observed(rows: Any, corrupt: str = "_corrupt_record") -> Any:
    """The rows of a query, whose bodies are counted as they are read: how many there are, how large, and how many are malformed.

    The last where `rows` has the column of such bodies (option columnNameOfCorruptRecord, here `corrupt`).
    """
    from pyspark.sql.functions import coalesce, count, length, lit
    from pyspark.sql.functions import sum as total

    counted = [coalesce(total(length("body")), lit(0)).alias("bytes")] if "body" in rows.columns else []
    counted += [count(corrupt).alias("malformed")] if corrupt in rows.columns else []
    return rows.observe(OBSERVED, count(lit(1)).alias("rows"), *counted)


class ProgressListener(StreamingQueryListener):  # type: ignore[misc]
    """Hears what Spark says of the queries of its session. `report` is called with each micro-batch, `latest` has the last one of each.

    With `url` the broker is told, under the name `pipeline`; `options` are those of a connection, as the data source has them (login,
    passcode, trustStorePath …). Raises UsageError naming the option that is wrong.
    """

    def __init__(
        self,
        url: str = "",
        *,
        pipeline: str = "spark",
        report: Callable[[QueryProgress], object] | None = None,
        clock: Callable[[], float] = monotonic,
        **options: str,
    ) -> None:
        self.latest: Final[dict[str, QueryProgress]] = {}
        self._target: Final[Target | None] = (
            target_of(Given({"url": url, **options})) if url or options else None
        )
        self._pipeline: Final = pipeline
        self._report: Final = report
        self._clock: Final = clock
        self._lock: Final = threading.RLock()
        self._said: Final[dict[str, Said]] = {}  # by the id of a run
        self._ended: Final[dict[str, float]] = {}  # when the last batch of a run did
        self._changed: Final = threading.Event()
        self._teller: Teller | None = None

    def onQueryStarted(self, event: Any) -> None:
        """Nothing is known yet of what it reads."""

    def onQueryProgress(self, event: Any) -> None:
        progress = event.progress
        run = str(progress.runId)
        sources = [source for source in progress.sources if _is_ours(source)]
        if not sources and run not in self._said:
            return
        found = progress_of(progress, sources)
        self.latest[found.query] = found
        _log.info("%s", found)
        with self._lock:
            said = self._said.setdefault(run, Said(step=found.query[:200], kind=KIND))
            said.state, said.rate, said.lag = "running", found.rate, found.lag
            said.rows, said.batch, said.batch_seconds = said.rows + found.rows, found.batch, found.seconds
            self._ended[run] = self._clock()
            self._tell()
        if self._report is not None:
            self._report(found)

    def onQueryIdle(self, event: Any) -> None:
        self._change(str(event.runId), "waiting")

    def onQueryTerminated(self, event: Any) -> None:
        self._change(
            str(event.runId), "failed" if event.exception else "done", reason_of(event.exception or "")
        )

    def close(self) -> None:
        """Tells the broker a last time, and no more after that."""
        if self._teller is not None:
            self._teller.end()

    def _change(self, run: str, state: str, reason: str = "") -> None:
        with self._lock:
            said = self._said.get(run)
            if said is None:
                return
            said.state, said.reason, said.rate = state, reason, 0.0
            over = [run for run, said in self._said.items() if said.is_over]
            for old in over[:-MOST_OVER]:
                del self._said[old], self._ended[old]
            self._tell()

    def _tell(self) -> None:
        """A thread does, which lives as long as there is a query that goes on."""
        self._changed.set()
        if self._target is None:
            return
        goes_on = any(not said.is_over for said in self._said.values())
        if goes_on and (self._teller is None or (self._teller.is_ending and self._teller.refusal is None)):
            self._teller = _Teller(self._target, self._pipeline, self._told, self._changed)
            self._teller.start()
        elif not goes_on and self._teller is not None:
            self._teller.end(within=0.0)

    def _told(self) -> list[dict[str, Any]]:
        """As the request has them; of two runs under one name the later one."""
        with self._lock:
            now = self._clock()
            for run, ended in self._ended.items():
                self._said[run].batch_ago = round((now - ended) * 1000)
            return list({said.step: to_builtins(said) for said in self._said.values()}.values())


class _Teller(Teller):
    def run(self) -> None:
        super().run()
        if self.refusal is not None:
            _log.warning("the broker does not take the progress of this session's queries: %s", self.refusal)


def progress_of(progress: Any, sources: list[Any]) -> QueryProgress:
    """What Spark says of a micro-batch (StreamingQueryProgress), of which `sources` are ours."""
    lags: dict[str, int] = {}
    for source in sources:
        end, latest = _offsets(source.endOffset), _offsets(source.latestOffset)
        for address, offset in latest.items():
            lags[address] = max(lags.get(address, 0), number_of(offset) - number_of(end.get(address, 0)))
    counted = progress.observedMetrics.get(OBSERVED)
    known = counted.asDict() if counted is not None else {}
    return QueryProgress(
        progress.name or str(progress.id),
        int(progress.batchId),
        int(progress.numInputRows),
        progress.durationMs.get("triggerExecution", 0) / 1000,
        {address: lag for address, lag in sorted(lags.items()) if lag > 0},
        sum(_skipped(source) for source in sources),
        int(known.get("bytes", -1)),
        int(known.get("malformed", -1)),
    )


def _skipped(source: Any) -> int:
    """Offsets of the batch that are no rows of it; 0 in the first batch after a start, of which Spark does not say where it begins."""
    if source.startOffset is None:
        return 0
    ranges = between(_offsets(source.startOffset), _offsets(source.endOffset))
    return max(0, sum(map(len, ranges)) - int(source.numInputRows))


def _is_ours(source: Any) -> bool:
    """Offsets by address, each a number or [number, incarnation …], of a source in Python."""
    return "python" in source.description.lower() and bool(_offsets(source.endOffset))


def _offsets(text: str | None) -> Mapping[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    if not isinstance(found, dict) or not all(_is_offset(value) for value in found.values()):
        return {}
    return found


def _is_offset(value: object) -> bool:
    is_pair = (
        isinstance(value, list)
        and len(value) in (2, 3)
        and isinstance(value[0], int)
        and isinstance(value[1], str)
    )
    return (isinstance(value, int) and not isinstance(value, bool)) or is_pair


def reason_of(exception: str) -> str:
    """What one of us has said, from under the stacks of Java and Python; else the first line of it."""
    said = _OURS.findall(exception)
    return (said[-1] if said else exception.strip().partition("\n")[0])[:MOST_TEXT]
