"""/api/v1/history: what is counted in each step, over which time, of whom, and that it does not grow without bound."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from sys import getsizeof
from typing import Any

import pytest

from stompbox.admin import history
from stompbox.admin.history import BUSIEST, COARSE, COARSE_STEPS, STEPS, UNKNOWN, History, Ring, Series
from stompbox.broker.kinds import Kind
from stompbox.config import Configuration, ListenerTable
from stompbox.message import ANYCAST, Run, Shape
from stompbox.server.broker import Broker
from stompbox.server.run import start as start_here
from stompbox.server.run import stop
from tests.admin.asking import ask, read
from tests.admin.conftest import Start
from tests.admin.test_access import USERS
from tests.conftest import Served
from tests.server.turning import World
from tests.system.plain import Plain


def played(story: Callable[[Broker, History], Awaitable[None]]) -> None:
    """With a broker in memory, whose history takes a step when the story says so."""

    async def run() -> None:
        configuration = Configuration(memory=True, listeners=(ListenerTable("tcp://127.0.0.1:0"),))
        broker, servers, _ = await start_here(configuration)
        try:
            await story(broker, History(broker))
        finally:
            await stop(broker, servers)

    asyncio.run(run())


def sent(broker: Broker, address: str, count: int) -> None:
    engine = broker.engine
    run = Run(Shape({"destination": address}, persistent=False), [b"x"] * count, routing=ANYCAST)
    engine.publish(engine.address(address, ANYCAST), run)


# --- one series ---------------------------------------------------------------------------------------------------------------


def test_a_ring_has_the_last_steps_and_the_last_minutes() -> None:
    counts, levels = Ring(is_count=True), Ring(is_count=False)
    total = COARSE * (COARSE_STEPS + 10)
    for value in range(total):
        counts.add(1)
        levels.add(value)
    assert counts.values("10m") == [1] * STEPS
    assert levels.values("10m") == [*range(total - STEPS, total)]
    assert counts.values("24h") == [COARSE] * COARSE_STEPS
    assert levels.values("24h")[-2:] == [total - COARSE - 1, total - 1]


def test_what_is_not_known_does_not_count() -> None:
    ring = Ring(is_count=True)
    for value in [UNKNOWN] * COARSE + [UNKNOWN, 5] * (COARSE // 2):
        ring.add(value)
    assert ring.values("24h") == [UNKNOWN, 5 * (COARSE // 2)]


def test_a_day_of_the_busiest_addresses_takes_20_mib() -> None:
    """All places are taken, and all rings full of large values: as many of the last ten minutes as they hold at worst, and of the day."""

    def lived(every: list[Series], steps: range) -> None:
        for step in steps:
            for series in every:
                series.add(dict.fromkeys((*series._counts, *series._levels), step * 10**9))

    def octets(series: Series) -> int:
        rings = [*series._counts.values(), *series._levels.values()]
        lists = [kept for ring in rings for kept in (ring._fine, ring._coarse, ring._pending)]
        values = [value for ring in rings for value in ring._pending]
        parts = (
            series,
            series._counts,
            series._levels,
            series._before,
            *series._before.values(),
            *rings,
            *lists,
            *values,
        )
        return sum(map(getsizeof, parts))

    async def story(broker: Broker, past: History) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(history, "COARSE", 1)  # each step is a minute
            await past.step()
            for number in range(history.BUSIEST + 50):
                sent(broker, f"address.{number}", 1)
            await past.step()
            every = [past._all, *past._addresses.values()]
            assert len(every) == 1 + history.BUSIEST
            lived(every, range(COARSE_STEPS + 1))
        lived(every, range(COARSE_STEPS + 1, COARSE_STEPS + COARSE))  # most of one more
        whole = sum(map(octets, every))
        kept = past.plot(next(iter(past._addresses)), "24h").series
        assert {len(values) for values in kept.values()} == {COARSE_STEPS}
        assert {len(values) for values in past.plot(None, "10m").series.values()} == {STEPS}
        assert 10 << 20 < whole < 20 << 20, f"{whole / (1 << 20):.1f} MiB"

    played(story)


def test_a_counter_that_begins_again_has_no_negative_step() -> None:
    series = Series(("n",), ())
    for value in (7, 10, 4, 6):
        series.add({"n": value})
    assert series.values("10m") == {"n": [0, 3, 0, 2]}


# --- the broker ---------------------------------------------------------------------------------------------------------------


def test_each_step_has_what_happened_in_it() -> None:
    async def story(broker: Broker, past: History) -> None:
        sent(broker, "a", 3)
        await past.step()
        sent(broker, "a", 5)
        sent(broker, "b", 1)
        await past.step()
        await past.step()
        whole = past.plot(None, "10m")
        assert (whole.step, whole.address) == (2000, None)
        assert whole.series["received"] == [0, 6, 0]
        assert whole.series["ready"] == [3, 9, 9]
        assert {len(values) for values in whole.series.values()} == {3}
        assert past.plot("a", "10m").series["received"] == [
            5,
            0,
        ]  # it has had a place since it was busy first
        assert past.plot("b", "10m").series["received"] == [1, 0]  # and what gave it that place counts
        assert past.plot("a", "10m").series["ready"] == [8, 8]
        assert past.plot("nobody", "10m").series == {}

    played(story)


def test_the_busiest_addresses_have_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "BUSIEST", 2)

    async def story(broker: Broker, past: History) -> None:
        for name in ("a", "b", "c"):
            sent(broker, name, 1)
        await past.step()
        for name, count in (("a", 1), ("b", 9), ("c", 5)):
            sent(broker, name, count)
        await past.step()
        assert [name for name in "abc" if past.plot(name, "10m").series] == ["b", "c"]
        for _ in range(40):  # b and c are quiet for so long that a message to a counts more
            await past.step()
        sent(broker, "a", 1)
        await past.step()
        assert past.plot("a", "10m").series
        assert sum(bool(past.plot(name, "10m").series) for name in "abc") == 2

    played(story)


def test_an_address_that_is_gone_has_no_values() -> None:
    async def story(broker: Broker, past: History) -> None:
        await past.step()
        sent(broker, "a", 1)
        await past.step()
        sent(broker, "a", 1)
        await past.step()
        broker.engine.drop_address(broker.engine.addresses["a"])
        await past.step()
        assert past.plot("a", "10m").series["received"][-1] == UNKNOWN
        sent(broker, "a", 4)
        await past.step()
        await past.step()
        assert past.plot("a", "10m").series["received"] == [1, 1, UNKNOWN, 4, 0]  # its offsets go on
        assert past.plot("a", "10m").series["done"] == [0, 0, UNKNOWN, 0, 0]

    played(story)


def test_a_queue_that_comes_later_has_done_nothing_yet() -> None:
    """It begins at the end of its log: what is below was never its own."""

    async def story(broker: Broker, past: History) -> None:
        engine = broker.engine
        await past.step()
        sent(broker, "a", 1000)
        await past.step()
        engine.new_queue(engine.addresses["a"], "late", Kind.ANYCAST)
        await past.step()
        assert past.plot("a", "10m").series["done"] == [0, 0]

    played(story)


def test_what_was_done_in_the_first_step_counts() -> None:
    series = Series(("received", "done"), ())
    series.since(500, is_new=True)
    for queues in ({1: 3, 2: 7}, {1: 4, 2: 7, 3: 0}, {1: 5, 3: 1}):  # 2 goes, 3 comes later
        series.add({"received": 510, "done": series.done(queues)})
    assert series.values("10m") == {"received": [10, 0, 0], "done": [10, 1, 2]}


def test_what_was_done_meanwhile_is_not_known_and_is_not_one_step() -> None:
    series = Series(("n",), ())
    for value in (7, UNKNOWN, 500, 502):
        series.add({"n": value})
    assert series.values("10m") == {"n": [0, UNKNOWN, 0, 2]}


def test_an_address_with_very_many_queues_costs_no_sum_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MANY", 0)
    monkeypatch.setattr(history, "sums_of", lambda address: pytest.fail("added up"))

    async def story(broker: Broker, past: History) -> None:
        sent(broker, "a", 1)
        await past.step()
        sent(broker, "a", 2)
        await past.step()
        sent(broker, "a", 2)
        await past.step()
        assert past.plot("a", "10m").series["received"] == [2, 2]
        assert past.plot("a", "10m").series["ready"] == [UNKNOWN, UNKNOWN]

    played(story)


# --- over HTTP ----------------------------------------------------------------------------------------------------------------


def test_it_is_read_over_http(served: Served) -> None:
    with Plain(served.port) as client:
        client.send("SEND", {"destination": "/queue/past.a", "receipt": "r"}, b"x")
        assert client.receive().command == "RECEIPT"
    found: dict[str, Any] = read(served.admin, "history")
    assert (found["step"], found["span"]) == (2000, "10m")
    assert {"received", "delivered", "ready", "connections"} <= found["series"].keys()
    assert read(served.admin, "history?span=24h")["step"] == 60_000
    assert read(served.admin, "history?address=past.a")["address"] == "past.a"


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [("span=1y", 400, "bad-span"), ("address=nobody", 404, "no-such-address")],
)
def test_a_wrong_question(served: Served, query: str, status: int, code: str) -> None:
    answer = ask(served.admin, f"/api/v1/history?{query}")
    assert (answer.status, answer.json["error"]["code"]) == (status, code)


def test_it_takes_the_right_to_see_it(start: Start) -> None:
    served = start(USERS)
    assert ask(served.admin, "/api/v1/history").status == 401


def test_what_was_sent_is_there_in_outline() -> None:
    async def story(broker: Broker, past: History) -> None:
        for number in range(2 * history.BROAD + 3):
            sent(broker, "drawn", number % 2)
            sent(broker, "other", 1)
            await past.step()
        found = await past.activity(["drawn", "not.there"])
        assert (found.step, list(found.addresses)) == (history.STEP * history.BROAD, ["drawn"])
        whole = past.plot("drawn", "10m").series["received"]
        assert len(found.addresses["drawn"]) == len(whole) // history.BROAD
        assert found.addresses["drawn"][-1] == sum(whole[-history.BROAD :])

    played(story)
    assert Series(("n",), ()).outline() == []


def test_one_message_is_enough_for_an_address_that_has_come_since() -> None:
    async def story(broker: Broker, past: History) -> None:
        sent(broker, "before", 1)
        await past.step()
        sent(broker, "since", 1)
        await past.step()
        assert past.plot("since", "10m").series
        assert not past.plot("before", "10m").series, "it may be as old as its log"

    played(story)


def test_places_for_very_many_that_come_together_are_made_in_turns() -> None:
    world = World()
    measured = History(world.broker)
    world.driven(measured.step())
    for number in range(BUSIEST):
        sent(world.broker, f"many.{number}", 1)
    world.until_idle()
    with world.steps() as steps:
        world.driven(measured.step())
    assert len(measured._addresses) == BUSIEST
    assert steps.longest < 10 * BUSIEST, "lines of Python; the rings of one address take 40"
