"""The actors without Spark: each with a live broker that has the demo's configuration."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import stompbox
from demo.audit import late_facts
from demo.flights import load
from demo.processes import Child, Stage
from demo.publisher import PAUSES
from demo.settings import Settings
from demo.worker import AGAIN

FLIGHTS = 2_000
WITHIN = 60.0


@asynccontextmanager
async def theatre(folder: Path) -> AsyncIterator[tuple[Stage, Settings, str]]:
    """A stage with a broker that is ready, and its URL."""
    settings = Settings(folder / "out", FLIGHTS)
    settings.prepare()
    stage = Stage(settings.logs, lambda child, facts: None)
    try:
        broker = await stage.start("broker", 1, "stompbox", "serve", "--config", settings.configuration)
        await stage.until(
            lambda: "ready" in broker.lines, 1, "ready", measure=lambda: len(broker.lines), within=WITHIN
        )
        url = next(line for line in broker.lines if line.startswith("listening")).split()[-1]
        yield stage, settings, url.replace("tcp:", "stomp:")
    finally:
        await stage.end_all()


async def has(stage: Stage, child: Child, what: Callable[[dict[str, Any]], bool]) -> None:
    await stage.until(
        lambda: what(child.said),
        child.step,
        "what the test waits for",
        measure=child.said.copy,
        within=WITHIN,
    )


async def start(stage: Stage, name: str, *arguments: object) -> Child:
    child = await stage.start(name, 3, *arguments)
    await has(stage, child, lambda said: "subscribed" in said)
    return child


async def nothing(pause: int) -> None:
    """What most tests do at a pause."""


async def publish(
    stage: Stage, settings: Settings, url: str, *, at_pause: Callable[[int], Awaitable[None]] = nothing
) -> dict[str, Any]:
    """All flights; `at_pause` is called at each pause with the number of flights before it. What the publisher said."""
    publisher = await stage.start("publisher", 2, "demo.publisher", url, FLIGHTS, settings.late)
    publisher.tell("publish")
    for pause in [int(FLIGHTS * share) for share in PAUSES]:
        await has(stage, publisher, lambda said, pause=pause: said.get("paused_at") == pause)  # type: ignore[misc]
        assert publisher.said["confirmed"] == pause
        await at_pause(pause)
        publisher.tell(f"go on from {pause}")
    await has(stage, publisher, lambda said: "finished" in said)
    await stage.ended(publisher, "the publisher to end", within=WITHIN)
    return publisher.said


async def leave(stage: Stage, child: Child, order: str) -> dict[str, Any]:
    child.tell(order)
    await stage.ended(child, "it to leave", within=WITHIN)
    return child.said


def test_the_board_gets_what_is_published_and_the_broker_keeps_it(tmp_path: Path) -> None:
    async def played() -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        async with theatre(tmp_path) as (stage, settings, url):
            board = await start(stage, "board", "demo.board", url, FLIGHTS)
            published = await publish(stage, settings, url)
            await has(stage, board, lambda said: said.get("count", 0) >= FLIGHTS)
            async with stompbox.connect(url) as client:
                logs = (
                    await client.request(
                        "describe", headers={"destinations": "/topic/flights.#", "create": "false"}
                    )
                ).json()["addresses"]
            return published, await leave(stage, board, "finish"), logs

    published, board, logs = asyncio.run(played())
    expected = Counter(flight.carrier for flight in load(FLIGHTS))
    assert (published["count"], published["confirmed"]) == (FLIGHTS, FLIGHTS)
    assert published["by_carrier"] == board["by_carrier"] == expected
    assert (board["count"], board["duplicates"], board["out_of_order"]) == (FLIGHTS, 0, 0)
    assert board["checksum"] == published["checksum"]
    assert (
        logs
        == {f"flights.{carrier}": {"first": 0, "next": count} for carrier, count in expected.items()} | logs
    )
    assert len(board["last"]) == 8


def test_the_control_room_gets_what_it_missed(tmp_path: Path) -> None:
    async def played() -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        async with theatre(tmp_path) as (stage, settings, url):
            rooms = [await start(stage, "room-1", "demo.control_room", url, FLIGHTS)]
            visits: list[dict[str, Any]] = []

            async def at_pause(pause: int) -> None:
                if visits:
                    rooms.append(await start(stage, "room-2", "demo.control_room", url, FLIGHTS))
                    return
                await has(stage, rooms[0], lambda said: said.get("count", 0) >= pause)
                visits.append(await leave(stage, rooms[0], "leave"))

            published = await publish(stage, settings, url, at_pause=at_pause)
            await has(stage, rooms[1], lambda said: said.get("count", 0) >= FLIGHTS - visits[0]["count"])
            return published, visits[0], await leave(stage, rooms[1], "leave")

    published, first, second = asyncio.run(played())
    left_at = int(FLIGHTS * PAUSES[0])
    assert (first["count"], first["lowest"], first["highest"]) == (left_at, 0, left_at - 1)
    assert (second["count"], second["lowest"], second["highest"]) == (FLIGHTS - left_at, left_at, FLIGHTS - 1)
    assert first["duplicates"] == second["duplicates"] == 0
    assert first["checksum"] + second["checksum"] == published["checksum"]


def test_late_flights_survive_their_worker(tmp_path: Path) -> None:
    async def played() -> tuple[list[str], dict[str, list[str]]]:
        async with theatre(tmp_path) as (stage, settings, url):
            first = await start(stage, "worker-1", "demo.worker", url, settings.book("worker-1"))
            second = await start(stage, "worker-2", "demo.worker", url, settings.book("worker-2"))

            async def at_pause(pause: int) -> None:
                if pause == int(FLIGHTS * PAUSES[0]):
                    await has(stage, first, lambda said: said.get("handled", 0) > 0)
                    os.kill(first.pid, signal.SIGSTOP)  # from now on it holds what it gets
                else:
                    await stage.kill(first)

            await publish(stage, settings, url, at_pause=at_pause)
            late = settings.late.read_text().split()

            def books() -> dict[str, list[str]]:
                return {
                    name: settings.book(name).read_text().splitlines() for name in ("worker-1", "worker-2")
                }

            await has(
                stage,
                second,
                lambda said: {line.split()[0] for book in books().values() for line in book} >= set(late),
            )
            await leave(stage, second, "finish")
            return late, books()

    late, books = asyncio.run(played())
    expected = [flight.number for flight in load(FLIGHTS) if flight.is_late]
    assert sorted(map(int, late)) == expected
    found = late_facts(expected, books)
    assert (found["handled"], found["strangers"], found["unmarked"]) == (len(expected), 0, 0)
    assert books["worker-1"] and all(AGAIN not in line for line in books["worker-1"])
    assert found["again"] > 0  # what the first one held, to the second one


def test_the_reader_reads_what_was_sent_and_sees_when_there_is_more(tmp_path: Path) -> None:
    async def played() -> dict[str, Any]:
        async with theatre(tmp_path) as (stage, _, url):
            async with stompbox.connect(url) as client:
                for number in range(3):
                    await client.send(
                        "/queue/report", b'{"flights": %d}' % number, headers={"report": "hour"}
                    )
            reader = await stage.start("reader", 5, "demo.reader", url, 2)
            await stage.ended(reader, "the reader to end", within=WITHIN)
            return reader.said

    found = asyncio.run(played())
    assert found["rows"] == [["hour", {"flights": 0}], ["hour", {"flights": 1}]]
    assert found["is_more"] is True
