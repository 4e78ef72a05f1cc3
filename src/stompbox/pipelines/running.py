"""A run: the session, the streams that go on together, then the steps that have an end, one after the other.

Streams (archive, transform) go on until they are stopped, or with `once` to the end of what is there. Replay, report and audit run with
`once`, when they are named, or when the file has nothing else. A stop lets the batch under way finish; what is cut off is done again.

Decides the order. What a step does is its module's; what its faults read like, faults.py's.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from subprocess import TimeoutExpired
from threading import Event
from time import monotonic, sleep
from typing import Any, Final

from stompbox.errors import LocalError, UsageError
from stompbox.pipelines import archive, audit, disk, replay, transform
from stompbox.pipelines import report as reports
from stompbox.pipelines.checkpoints import claim
from stompbox.pipelines.faults import Masking, named, plain, quieten
from stompbox.pipelines.plan import Plan
from stompbox.pipelines.progress import Finished, Idle, Report, Started, Warned, batch_of, progress_since
from stompbox.pipelines.settings import (
    KINDS,
    ArchiveTable,
    AuditTable,
    BodyMode,
    ReplayTable,
    ReportTable,
    Step,
    TransformTable,
)
from stompbox.spark import session
from stompbox.spark.classes import sharing_classes
from stompbox.spark.home import at_home
from stompbox.spark.link import leased
from stompbox.spark.offsets import between
from stompbox.spark.requests import describe

POLL: Final = 0.1  # s between two looks at the streams
BETWEEN: Final = 0.02  # s between two looks for the end of a batch
WRITER: Final = "_writer"  # in a table's folder: who has the lock writes it
LOG: Final = "spark.log"  # in the pipeline's folder: what Java and Spark's workers say
DYING: Final = 0.5  # s
LOOK_EVERY: Final = 1.0  # s between two looks for whether a stream has something to do
IDLE_AFTER: Final = 5.0  # s without anything to do
FINISH_WITHIN: Final = 30.0  # s for the batch under way after a stop
LATE_WORKER: Final = "Python worker failed to connect back"  # within 10 s, which Spark has no setting for
SETTINGS: Final = {
    "spark.sql.shuffle.partitions": "4",
    # kept in Java, each with the offsets of all addresses, three times
    "spark.sql.streaming.numRecentProgressUpdates": "20",
}
STARTS: Final = 5  # of a query that this has ended, in one run

Streaming = ArchiveTable | TransformTable


def chosen(plan: Plan, names: Sequence[str], *, once: bool) -> tuple[list[Step], list[Step]]:
    """(the steps of this run, those that are left out). Raises UsageError for a name that is none."""
    steps = list(plan.pipeline.steps)
    known = [step.name for step in steps]
    for name in names:
        if name not in known:
            raise UsageError(
                "bad-argument", f"--step {name!r} is no step of {plan.file}; there are {', '.join(known)}"
            )
    if names:
        return [step for step in steps if step.name in names], []
    streams = [step for step in steps if isinstance(step, Streaming)]
    if once or not streams:
        return steps, []
    return [*streams], [step for step in steps if step not in streams]


@contextmanager
def alone(plan: Plan, steps: Sequence[Step]) -> Iterator[None]:
    """No other process runs one of these steps meanwhile, nor writes one of their tables; and what they have under way is no other
    pipeline's. Raises LocalError that names it."""
    folder = plan.path(plan.pipeline.folder)
    with ExitStack() as owned:
        for step in steps:
            name = f"{KINDS[type(step)]} {step.name!r} of {plan.file}"
            _own(owned, folder / f".{step.name}.lock", f"{name} is run already")
            if (
                isinstance(step, Streaming)
                and step.table
                and isinstance(table := plan.where(step.table, step.format), Path)
            ):
                _own(owned, table / WRITER, f"{name}: the table {table} is written already")
            if isinstance(step, Streaming | ReplayTable):
                claim(plan.state(step.name), plan.name)
        yield


def _own(owned: ExitStack, file: Path, problem: str) -> None:
    if owner := owned.enter_context(disk.owned(file)):
        by = f" by process {owner}" if owner > 0 else ""
        raise LocalError(
            "already-running", f"{problem}{by}; wait for its end, or run other steps with --step"
        )


def reach(plan: Plan) -> None:
    """Raises ConnectionLost, or Refused for a wrong login, before Spark's start is waited for."""
    with leased(plan.target()) as link:
        # a wildcard: it names what this user may read, and refuses nothing
        describe(link, "stompbox.pipelines.#", create=False)


@contextmanager
def spark_of(plan: Plan) -> Any:
    """A local session for the pipeline, in a process group of its own: Ctrl-C is for us to handle. It writes to a log of its own."""
    settings = {**SETTINGS, **plan.pipeline.spark.settings}
    log = plan.path(plan.pipeline.folder) / LOG
    _launch_apart(log, settings, plan)
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        spark = session.local(plan.name, cores=plan.pipeline.spark.cores, settings=settings)
    except (PySparkException, Py4JError) as fault:
        raise plain("Spark", str(fault)) from None
    try:
        yield spark
    except (LocalError, Py4JError, OSError):
        if not _has_ended():
            raise
        raise LocalError(
            "spark-ended",
            f"Java has ended, killed or out of memory; {log} may say why; the next run goes on from here",
        ) from None
    finally:
        with suppress(Py4JError, OSError):
            spark.stop()


def _has_ended() -> bool:
    """Is Java gone? Connections to it break a moment before it is."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    with suppress(TimeoutExpired):
        return process is not None and process.wait(DYING) is not None
    return False


def _launch_apart(log: Path, settings: dict[str, str], plan: Plan) -> None:
    try:
        from pyspark import SparkConf, SparkContext
        from pyspark.errors import PySparkException
        from pyspark.java_gateway import launch_gateway
    except ImportError as fault:
        raise UsageError("no-spark", f"{fault}: pip install 'stompbox[spark]'") from None
    if SparkContext._gateway is None:
        java = session.prepare()
        conf = SparkConf().setAll([*session.SETTINGS.items(), *settings.items()])
        log.parent.mkdir(parents=True, exist_ok=True)
        handler = logging.FileHandler(log)
        # what py4j says has stacks
        handler.setFormatter(Masking("%(asctime)s %(levelname)s %(name)s: %(message)s", plan.secrets()))
        logging.basicConfig(handlers=[handler])
        try:
            with log.open("ab") as said:
                # Spark's workers are its children: Ctrl-C would end them in the middle of a batch
                popen = {"start_new_session": True, "stdout": said, "stderr": said}
                nice = plan.pipeline.spark.nice

                def start() -> None:
                    gateway = launch_gateway(conf, popen)
                    session.session_gives_way(gateway.proc.pid, nice)
                    SparkContext._ensure_initialized(gateway=gateway, conf=conf)

                with at_home(), sharing_classes(java) if plan.pipeline.spark.share_classes else nullcontext():
                    session.giving_way(nice, start)
        except PySparkException:
            raise LocalError("spark-ended", f"Java did not start; {log} says why") from None


def run(spark: Any, plan: Plan, steps: Sequence[Step], report: Report, stop: Event, *, once: bool) -> bool:
    """Runs the steps; False when an audit found differences. Raises StompboxError when a step fails."""
    quieten()
    streams = [step for step in steps if isinstance(step, Streaming)]
    if streams:
        _stream(spark, plan, streams, report, stop, once=once)
    good = True
    for step in steps:
        if not isinstance(step, Streaming) and not stop.is_set():
            report(Started(step=step.name, kind=KINDS[type(step)]))
            with named(step, report, plan.secrets()):
                done = _finish(spark, plan, step, report, stop)
            good = good and done.ok
            report(done)
    return good


def _finish(spark: Any, plan: Plan, step: Step, report: Report, stop: Event) -> Finished:
    if isinstance(step, ReplayTable):
        return replay.run(spark, plan, step, report, stop)
    if isinstance(step, ReportTable):
        return reports.run(spark, plan, step)
    assert isinstance(step, AuditTable)
    return audit.run(spark, plan, step)


class _Stream:
    """One query, and what was said of it. `counts` has the rows of those batches whose rows Spark did not see."""

    def __init__(self, step: Streaming, start: Callable[[], Any], counts: Mapping[int, int]) -> None:
        self.step: Final = step
        self._start: Final = start
        self._starts = 0
        self.query = self._started()
        self._counts: Final = counts
        self.rows = 0
        self.skipped = 0  # offsets that held no message any more
        self._seen = "", -1  # the progress that was asked for last
        # when it last had something to do, and when that was looked for
        self._busy = self._looked = monotonic()
        self._has_begun = False
        self._is_idle = False

    def _started(self) -> Any:
        """The query, whose plan needs workers of Spark's already."""
        while True:
            self._starts += 1
            try:
                return self._start()
            except Exception as fault:
                if not self._is_late(fault):
                    raise

    def _is_late(self, fault: Exception | None) -> bool:
        """Did a worker come too late, and may it be waited for once more? Nothing is wrong but that the machine is busy."""
        return fault is not None and LATE_WORKER in str(fault) and self._starts < STARTS

    def start_again(self, report: Report) -> bool:
        """Where nothing but such a worker has ended the query. The checkpoint says where it was."""
        if self.query.isActive or not self._is_late(self.query.exception()):
            return False
        self.tell(report)
        self.query = self._started()
        return True

    def tell(self, report: Report) -> None:
        """The batches that are done since the last time."""
        for progress in progress_since(self.query, self._seen):
            self._seen = progress.timestamp, progress.batchId
            rows = self._counts.get(progress.batchId, int(progress.numInputRows))
            if rows > 0:
                self.rows += rows
                report(batch_of(self.step.name, progress, rows, self.rows))
                self._busy, self._is_idle = monotonic(), False
            if count := self._skipped(progress, rows):
                self.skipped += count
                report(
                    Warned(
                        step=self.step.name,
                        text=f"batch {progress.batchId}: {count:,} offsets held no message any more, skipped",
                    )
                )
        self._look(report, monotonic())

    def _look(self, report: Report, now: float) -> None:
        """Whether it waits for messages, which Spark says of a query that is under way."""
        if self._is_idle or now < self._looked + LOOK_EVERY or not self.query.isActive:
            return
        self._looked = now
        status = self.query.status
        # before that it only prepares itself
        self._has_begun = self._has_begun or status["message"].startswith("Waiting")
        if status["isDataAvailable"] or not self._has_begun:
            self._busy = now
        elif now >= self._busy + IDLE_AFTER:
            self._is_idle = True
            report(Idle(step=self.step.name))

    def _skipped(self, progress: Any, rows: int) -> int:
        """Offsets of a batch that are no rows of it. With a selector nobody knows, nor where malformed bodies are dropped. A step that
        fails on loss has none, and a batch that was in the table already has said so before."""
        sources = [self.step] if isinstance(self.step, ArchiveTable) else self.step.sources
        is_unknown = any(source.selector or source.mode is BodyMode.DROPMALFORMED for source in sources)
        if self.step.fail_on_data_loss or is_unknown or rows == archive.IN_TABLE:
            return 0
        seen = (
            [rows]
            if isinstance(self.step, ArchiveTable)
            else [source.numInputRows for source in progress.sources]
        )
        offsets = [offsets_of(source.startOffset, source.endOffset) for source in progress.sources]
        return sum(max(0, each - count) for each, count in zip(offsets, seen, strict=True))

    def stop(self, deadline: float) -> None:
        """Between two batches, if there is such a moment before the deadline."""
        while self.query.isActive and self.query.status["isTriggerActive"] and monotonic() < deadline:
            sleep(BETWEEN)
        self.query.stop()


def offsets_of(start: str | None, end: str | None) -> int:
    """How many lie between two positions as Spark prints them; 0 where one of them is not known. Logs that were made anew begin at 0."""
    first, last = (json.loads(text or "null") for text in (start, end))
    if not isinstance(first, dict) or not isinstance(last, dict):
        return 0
    return sum(map(len, between(first, last)))


def _stream(
    spark: Any, plan: Plan, steps: Sequence[Streaming], report: Report, stop: Event, *, once: bool
) -> None:
    streams: list[_Stream] = []
    try:
        for step in steps:
            with named(step, report, plan.secrets()):
                counts: dict[int, int] = {}
                if isinstance(step, ArchiveTable):
                    start = partial(archive.start, spark, plan, step, report, counts, once=once)
                else:
                    start = partial(transform.start, spark, plan, step, report, once=once)
                streams.append(_Stream(step, start, counts))
            report(Started(step=step.name, kind=KINDS[type(step)]))
        while not stop.wait(POLL):
            for stream in streams:
                stream.tell(report)
            if any(stream.start_again(report) for stream in streams):
                continue
            has_failed = any(
                not stream.query.isActive and not (once and stream.query.exception() is None)
                for stream in streams
            )
            if has_failed or not any(stream.query.isActive for stream in streams):
                break
    finally:
        deadline = monotonic() + FINISH_WITHIN
        failed = [stream for stream in streams if stream.query.exception() is not None]
        for stream in streams:
            stream.stop(deadline)
    for stream in failed:
        with named(stream.step, report, plan.secrets()):
            raise stream.query.exception()
    for stream in streams:
        stream.tell(report)
        skipped = {"skipped": stream.skipped} if stream.skipped else {}
        text = f"{stream.rows:,} rows" + (f", {stream.skipped:,} offsets skipped" if skipped else "")
        report(Finished(step=stream.step.name, text=text, facts={"rows": stream.rows, **skipped}))


def left_out(steps: Sequence[Step], report: Report) -> None:
    for step in steps:
        report(
            Warned(step=step.name, text=f"{KINDS[type(step)]} runs with --once, or with --step {step.name}")
        )
