"""Steps 2 to 4, which are one: the stream of flights, who listens to it, and who is killed while it flows.

  0 %   board, control room, two workers and the archive are there
 25 %   the control room leaves
 then   kill -9 to a worker, when it has seen to an eighth of all late flights
        kill -9 to the archive, when a third is in the table and the next batch is planned and not committed; it is started again
 75 %   the control room comes back and catches up
100 %   everybody gets to the end
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any, Final

import stompbox
from demo.display import Display
from demo.lines import REPORT_EVERY
from demo.processes import Child, Stage
from demo.settings import Settings

START: Final = 180.0  # s until a process is ready; Spark takes 10 where it has two cores for itself
STALL: Final = 120.0  # s without any progress

BATCHES: Final = 8  # of the archive, about: the fewer, the less is spent on Spark's fixed cost of a batch
LEAST_ROWS: Final = 500
# the part of all late flights that it has seen to: the other one has, too, so a quarter is done
WORKER_DIES_AT: Final = 8
ARCHIVE_DIES_AT: Final = 3  # the part of all flights that is in the table
WATCH: Final = 0.005  # s between two looks at the checkpoint

Facts = dict[str, Any]


class Stream:
    """`levels` says how far everybody is; `facts` what became of them, for the audit and the page."""

    def __init__(self, settings: Settings, stage: Stage, display: Display, url: str) -> None:
        self.settings: Final = settings
        self.stage: Final = stage
        self.display: Final = display
        self.url: Final = url
        self.total = 0
        self.late = 0
        self.levels: Final = {"published": 0, "board": 0, "control_room": 0, "late": 0, "archived": 0}
        self.batches: Final[list[Facts]] = []
        self.facts: Final[Facts] = {"events": []}
        self._handled: Final[dict[str, int]] = {}
        self._visited = 0  # flights that the control room got in its first visit

    # What is heard

    def hear(self, child: Child, facts: Facts) -> None:
        levels = self.levels
        if child.name == "publisher":
            levels["published"] = facts.get("confirmed", levels["published"])
        elif child.name == "board":
            levels["board"] = facts.get("count", levels["board"])
            self.display.departures(facts.get("last", ()))
        elif child.name.startswith("control-room"):
            levels["control_room"] = self._visited + facts.get("count", 0)
        elif child.name.startswith("worker"):
            self._handled[child.name] = facts.get("handled", 0)
            levels["late"] = min(self.late, sum(self._handled.values()))
        elif "archived" in facts:
            levels["archived"] = facts["archived"]
            self.batches.append({"job": child.name, **facts})
        for name, level in levels.items():
            self.display.move(name, level)

    async def _until(
        self, what: Callable[[], bool], step: int, expected: str, *, within: float = STALL
    ) -> None:
        await self.stage.until(what, step, expected, measure=self.levels.copy, within=within)

    async def _ready(self, child: Child, fact: str, expected: str) -> None:
        await self.stage.until(
            lambda: fact in child.said, child.step, expected, measure=child.said.copy, within=START
        )

    def _mark(self, kind: str, text: str) -> None:
        """An event for the page's curves: who goes, who comes, when."""
        self.facts["events"].append({"kind": kind, "text": text, "at": monotonic()})

    # The acts

    async def play(self) -> None:
        publisher = await self.stage.start(
            "publisher", 2, "demo.publisher", self.url, self.settings.limit, self.settings.late
        )
        await self._ready(publisher, "total", "the publisher to read the flights")
        self.total, self.late = publisher.said["total"], publisher.said["late"]
        self._bars()
        board, room, workers, archive = await self._audience()
        publisher.tell("publish")
        self.facts["began"] = monotonic()
        async with asyncio.TaskGroup() as acts:
            second_room = acts.create_task(self._control_room(publisher, room))
            acts.create_task(self._kill_worker(workers))
            second_archive = acts.create_task(self._kill_archive(archive))
            acts.create_task(self._finish_publisher(publisher))
        await self._finish(board, second_room.result(), workers[1], second_archive.result())

    def _bars(self) -> None:
        self.display.bar("published", "published to /topic/flights.…", self.total)
        self.display.bar("board", "board: /topic/flights.#", self.total)
        self.display.bar("control_room", "control room: durable", self.total)
        self.display.bar("late", "workers: /queue/late", self.late)
        self.display.bar("archived", "Spark: rows in the table", self.total)

    async def _audience(self) -> tuple[Child, Child, list[Child], Child]:
        archive = await self._archive("archive-1")
        board = await self.stage.start("board", 3, "demo.board", self.url, self.total)
        room = await self._room("control-room-1")
        workers = [await self._worker("worker-1"), await self._worker("worker-2")]
        for child in (board, room, *workers):
            await self._ready(child, "subscribed", "the broker to confirm its subscription")
        self.display.done("board, control room and two workers have subscribed")
        await self._ready(archive, "running", "Spark's streaming query to run")
        self.display.done("Spark's streaming query runs")
        return board, room, workers, archive

    async def _room(self, name: str) -> Child:
        return await self.stage.start(name, 3, "demo.control_room", self.url, self.total)

    async def _worker(self, name: str) -> Child:
        return await self.stage.start(name, 3, "demo.worker", self.url, self.settings.book(name))

    async def _archive(self, name: str) -> Child:
        rows = max(LEAST_ROWS, -(-self.total // BATCHES))
        return await self.stage.start(
            name, 4, "demo.archive", self.url, self.settings.table, self.settings.checkpoint, rows
        )

    # The control room goes and comes back

    async def _control_room(self, publisher: Child, room: Child) -> Child:
        left_at = await self._paused(publisher, after=0)
        await self._until(
            lambda: room.said.get("count", 0) >= left_at,
            3,
            f"the control room to get the first {left_at:,} flights",
        )
        room.tell("leave")
        await self.stage.ended(room, "the control room to leave", within=STALL)
        self._visited = left_at
        self.display.event(f"the control room leaves, with {left_at:,} flights seen", style="yellow")
        self.display.note("control_room", "away")
        self._mark("goes", "control room leaves")
        publisher.tell(f"go on from {left_at}")
        back_at = await self._paused(publisher, after=left_at)
        again = await self._room("control-room-2")
        await self._ready(again, "subscribed", "the broker to know the durable subscription")
        missed, since = back_at - left_at, monotonic()
        self.display.event(f"the control room is back; it missed {missed:,} flights", style="yellow")
        self.display.note("control_room", "catches up")
        self._mark("comes", "control room is back")
        publisher.tell(f"go on from {back_at}")
        await self._until(
            lambda: again.said.get("count", 0) >= missed,
            3,
            f"the control room to get the {missed:,} flights that it missed",
        )
        seconds = monotonic() - since
        self.display.done(
            f"the control room has got the {missed:,} flights that it missed, in {seconds:.1f} s"
        )
        self.display.note("control_room", "")
        self.facts["control_room"] = {
            "visits": [room.said],
            "missed": missed,
            "left_at": left_at,
            "back_at": back_at,
            "seconds": seconds,
        }
        return again

    async def _paused(self, publisher: Child, *, after: int) -> int:
        await self._until(
            lambda: publisher.said.get("paused_at", 0) > after,
            2,
            "the publisher to go on, confirmed, to its next pause",
        )
        return int(publisher.said["paused_at"])

    # The kills

    async def _kill_worker(self, workers: list[Child]) -> None:
        first, second = workers
        share = self.late // WORKER_DIES_AT

        def is_busy() -> bool:
            handled = first.said.get("handled", 0)
            return bool(handled >= share and (first.said["waiting"] > 0 or handled >= 2 * share))

        await self._until(is_busy, 3, f"worker-1 to see to {share:,} late flights")
        seen = first.said["handled"]
        await self.stage.kill(first)
        self._mark("killed", "worker killed")
        text = f"kill -9 to worker-1, which had seen to about {seen:,} late flights"
        self.display.event(f"✗ {text}; worker-2 goes on alone", style="red")
        self.facts["worker_kill"] = {"pid": first.pid, "handled": seen, "survivor": second.name}

    async def _kill_archive(self, archive: Child) -> Child:
        share = self.total // ARCHIVE_DIES_AT
        await self._until(
            lambda: self.levels["archived"] >= share, 4, f"Spark to put {share:,} rows into the table"
        )
        batch = await self._batch_in_flight(archive)
        archived, files = self.levels["archived"], self._files()
        killed = await self.stage.kill(archive)
        self._mark("killed", "Spark killed")
        text = f"kill -9 to Spark ({len(killed)} processes) with {archived:,} rows in the table, in the middle of batch {batch}"
        self.display.event(f"✗ {text}", style="red")
        self.display.note("archived", "restarting")
        at = monotonic()
        again = await self._archive("archive-2")
        await self._ready(again, "running", "Spark's streaming query to run again")
        await self._until(lambda: "batch" in again.said, 4, f"Spark to do batch {batch} again")
        seconds = monotonic() - at
        if (done := self._first_batch(again)) != batch:
            raise again.failed(
                f"batch {batch}, planned and not committed, to be done first after the restart",
                f"did batch {done}",
            )
        self._mark("comes", "Spark is back")
        self.display.done(f"Spark is back and has done batch {batch} again, {seconds:.1f} s after the kill")
        self.display.note("archived", "")
        self.facts["archive_kill"] = {
            "processes": len(killed), "archived": archived, "batch": batch, "seconds": seconds, "files": files,
        }  # fmt: skip
        return again

    def _first_batch(self, archive: Child) -> int:
        return int(next(batch["batch"] for batch in self.batches if batch["job"] == archive.name))

    async def _batch_in_flight(self, archive: Child) -> int:
        """Waits until the checkpoint has a batch that is planned and not committed; its number."""
        planned, committed = self.settings.checkpoint / "offsets", self.settings.checkpoint / "commits"
        deadline = monotonic() + STALL
        while (batch := newest(planned)) <= newest(committed):
            self.stage.check()
            if monotonic() > deadline:
                raise archive.failed("another batch to begin", f"began none for {STALL:g} s")
            await asyncio.sleep(WATCH)
        return batch

    def _files(self) -> int:
        return sum(1 for _ in self.settings.table.glob("*.parquet"))

    # The end

    async def _finish_publisher(self, publisher: Child) -> None:
        await self._until(lambda: "finished" in publisher.said, 2, "the broker to confirm every flight")
        await self.stage.ended(publisher, "the publisher to end", within=STALL)
        self.facts["published"] = publisher.said
        self.display.done(
            f"{publisher.said['confirmed']:,} flights published, each confirmed, in {publisher.said['seconds']:.1f} s"
        )

    async def _finish(self, board: Child, room: Child, worker: Child, archive: Child) -> None:
        """Everybody gets to the end of the stream, and leaves."""
        total, levels = self.total, self.levels
        await self._until(lambda: levels["board"] >= total, 3, f"the board to get all {total:,} flights")
        await self._until(
            lambda: levels["control_room"] >= total, 3, f"the control room to get all {total:,} flights"
        )
        await self._until(
            lambda: levels["archived"] >= total, 4, f"Spark to put all {total:,} flights into the table"
        )
        await self._until(self._books_are_full, 3, f"the workers to see to all {self.late:,} late flights")
        await self._queue_is_empty(worker)
        self.facts["ended"] = monotonic()
        for child, order in ((board, "finish"), (room, "leave"), (worker, "finish"), (archive, "finish")):
            child.tell(order)
            await self.stage.ended(child, f"{child.name} to end", within=STALL)
        self.facts["board"] = board.said
        self.facts["control_room"]["visits"].append(room.said)
        self.display.done(
            f"{total:,} flights on the board, in the control room and in the table; {self.late:,} late ones seen to"
        )

    def books(self) -> dict[str, list[str]]:
        return {
            path.stem: path.read_text().splitlines()
            for path in sorted(self.settings.output.glob("worker-*.txt"))
        }

    def _books_are_full(self) -> bool:
        """Does every late flight stand in a book? The workers' reports cannot tell: the dead one's is old, and some flights come twice."""
        return len({line.split()[0] for book in self.books().values() for line in book}) >= self.late

    async def _queue_is_empty(self, worker: Child) -> None:
        """What came again after the kill may stand in the dead worker's book already; it is still the other one's to see to."""
        deadline = monotonic() + STALL
        async with stompbox.connect(self.url) as client:
            while (log := (await describe(client))["late"])["first"] < log["next"]:
                self.stage.check()
                if monotonic() > deadline:
                    left = log["next"] - log["first"]
                    raise worker.failed(
                        "/queue/late to become empty", f"left {left:,} messages in it for {STALL:g} s"
                    )
                await asyncio.sleep(REPORT_EVERY)


async def describe(client: stompbox.Client) -> dict[str, Facts]:
    """The broker's logs that the demo fills: per address the lowest offset stored and the next one."""
    answer = await client.request(
        "describe", headers={"destinations": "/topic/flights.#,/queue/late", "create": "false"}
    )
    return dict(answer.json()["addresses"])


def newest(folder: Path) -> int:
    """The number of the last batch that a folder of a checkpoint has; -1 when there is none."""
    names = os.listdir(folder) if folder.is_dir() else []
    return max((int(name) for name in names if name.isdigit()), default=-1)
