"""Messages that are sent again and again: when, how often, and what is left of them after a restart."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import count

import pytest

from stompbox.broker.addresses.repeating import IN_A_TURN, MOST_BYTES, after
from stompbox.broker.sweeping import LEAST
from stompbox.broker.work import TIME
from stompbox.errors import Refused
from stompbox.message import Shape
from tests.broker.world import NOW, World

DAY = 86_400_000
MINUTE = 60_000


def each(period: int, repeat: int, **more: str) -> dict[str, str]:
    return {"AMQ_SCHEDULED_PERIOD": str(period), "AMQ_SCHEDULED_REPEAT": str(repeat), **more}


def listening(world: World) -> World:
    world.on_queue(world.consumer(), "q")
    return world


def after_ms(world: World, ms: int) -> list[bytes]:
    """What comes for the first time."""
    world.tick(ms)
    return [got.body for got in world.settle() if not got.is_redelivered]


def test_one_and_then_as_many_as_repeat_says() -> None:
    world = listening(World())
    world.send("q", b"a", headers=each(100, 2))
    assert after_ms(world, 99) == []
    assert [after_ms(world, 1), after_ms(world, 99), after_ms(world, 1), after_ms(world, 100)] == [
        [b"a"],
        [],
        [b"a"],
        [b"a"],
    ]
    assert [after_ms(world, 100) for _ in range(5)] == [[]] * 5
    assert world.engine.schedules.known == {}


def test_the_first_comes_after_the_delay() -> None:
    world = listening(World())
    world.send("q", b"a", headers=each(100, 1, AMQ_SCHEDULED_DELAY="10"))
    assert [after_ms(world, 10), after_ms(world, 90), after_ms(world, 10)] == [[b"a"], [], [b"a"]]


def test_each_is_a_message_of_its_own() -> None:
    world = listening(World())
    world.send("q", b"a", headers=each(10, 2, colour="red"))
    found = []
    for _ in range(3):
        world.tick(10)
        found += world.settle()
    assert len({got.offset for got in found}) == 3
    assert [got.is_redelivered for got in found] == [False] * 3


def test_for_ever() -> None:
    world = listening(World())
    world.send("q", b"a", headers=each(10, -1))
    assert sum(len(after_ms(world, 10)) for _ in range(500)) == 500


def test_times_that_passed_are_one_message_and_count() -> None:
    world = listening(World())
    world.send("q", b"a", headers=each(10, 99))
    assert after_ms(world, 500) == [b"a"]  # the 50th
    assert sum(len(after_ms(world, 10)) for _ in range(100)) == 50


def test_cron() -> None:
    world = listening(World())
    world.send("q", b"a", headers={"AMQ_SCHEDULED_CRON": "30 2 * * *"})
    due = after("30 2 * * *", NOW) - NOW
    assert 0 < due <= DAY
    assert [after_ms(world, due - 1), after_ms(world, 1), after_ms(world, DAY - 1), after_ms(world, 1)] == [
        [],
        [b"a"],
        [],
        [b"a"],
    ]


def test_cron_begins_series() -> None:
    world = listening(World())
    world.send("q", b"a", headers=each(1000, 2, AMQ_SCHEDULED_CRON="*/5 * * * *", AMQ_SCHEDULED_DELAY="10"))
    world.tick(after("*/5 * * * *", NOW) - NOW)
    assert world.settle() == []
    for _ in range(2):
        assert [after_ms(world, 10), after_ms(world, 1000), after_ms(world, 1000)] == [[b"a"]] * 3
        assert after_ms(world, 5 * MINUTE - 2010) == []


def test_cron_is_utc() -> None:
    noon = datetime(2026, 7, 1, 11, 59, tzinfo=UTC)
    assert after("0 12 * * MON-FRI", int(noon.timestamp() * 1000)) == int(noon.timestamp() * 1000) + MINUTE


def test_survives_restarts_with_what_is_left() -> None:
    world = World()
    world.send("q", b"a", headers=each(100, 3, colour="red"))
    world.commit()
    world = listening(world.restart())
    assert [after_ms(world, 100), after_ms(world, 100)] == [[b"a"], [b"a"]]
    world.commit()
    world = listening(world.restart())
    assert [after_ms(world, 100), after_ms(world, 100), after_ms(world, 100)] == [[b"a"], [b"a"], []]
    world.commit()
    assert listening(world.restart()).engine.schedules.known == {}


def test_what_passed_while_the_broker_was_down_is_one_message() -> None:
    world = World()
    world.send("q", b"a", headers=each(100, -1))
    world.commit()
    world.engine.now += DAY
    world = listening(world.restart())
    assert after_ms(world, 0) == [b"a"]
    assert after_ms(world, 100) == [b"a"]


def test_a_crash_before_the_commit_sends_again() -> None:
    world = World()
    world.send("q", b"a", headers=each(100, 1))
    world.commit()
    listening(world)
    assert after_ms(world, 100) == [b"a"]
    world = listening(world.restart())  # nothing of it was stored
    assert [after_ms(world, 0), after_ms(world, 100), after_ms(world, 100)] == [[b"a"], [b"a"], []]


def test_not_persistent_is_gone() -> None:
    world = World()
    world.send("q", b"a", headers=each(100, -1, persistent="false"), persistent=False)
    world.commit()
    assert world.restart().engine.schedules.known == {}


def test_expires_ends_it() -> None:
    world = listening(World())
    world.send("q", b"a", headers=each(100, -1), expires=NOW + 250)
    assert [len(after_ms(world, 100)) for _ in range(4)] == [1, 1, 0, 0]
    assert world.engine.schedules.known == {}


def test_who_may_not_send_any_more_sends_no_more() -> None:
    world = listening(World())
    world.send("q", b"a", headers=each(100, -1))
    assert after_ms(world, 100) == [b"a"]
    world.engine.schedules.may_send = lambda _owner, _address: False
    assert after_ms(world, 100) == []
    assert world.engine.schedules.known == {}


def test_limits() -> None:
    world = World()
    world.engine.schedules.limit(5000 + Shape({"destination": "q", **each(100, -1)}).octets)
    with pytest.raises(Refused, match="max-scheduled-bytes"):
        world.send("q", b"a" * 4001, headers=each(100, -1))
    world.send("q", b"a" * 4000, headers=each(100, 0))
    with pytest.raises(Refused, match="max-scheduled-bytes"):
        world.send("q", b"", headers=each(100, -1))
    world.tick(100)
    world.send("q", b"", headers=each(100, -1))
    world.engine.schedules.limit(1 << 30)
    with pytest.raises(Refused, match=str(MOST_BYTES)):
        world.send("q", b"a" * (MOST_BYTES + 1), headers=each(100, -1))


def test_headers_count_for_each_message_that_repeats() -> None:
    """Those that a run has in common, and those in which its messages differ."""
    world = World()
    schedules = world.engine.schedules
    schedules.limit(100_000)
    long = {"long": "h" * 40_000}
    with pytest.raises(Refused, match="max-scheduled-bytes"):
        world.send("q", b"", b"", b"", headers=each(100, -1, **long))
    with pytest.raises(Refused, match="max-scheduled-bytes"):
        world.send("q", b"", b"", b"", headers=each(100, -1), holes={"n": [b"1" * 40_000] * 3})
    assert schedules.size == 0
    for _ in range(2):
        world.send("q", b"", headers=each(100, 0, **long))
    assert 80_000 < schedules.size <= 100_000
    with pytest.raises(Refused, match="max-scheduled-bytes"):
        world.send("q", b"", headers=each(100, 0, **long))
    world.tick(100)
    assert schedules.size == 0


def test_others_have_turns_between() -> None:
    world = listening(World())
    for _ in range(2 * IN_A_TURN + 1):
        world.send("q", b"a", headers=each(1000, 0))
    assert [len(after_ms(world, ms)) for ms in (1000, 1, 1, 1)] == [IN_A_TURN, IN_A_TURN, 1, 0]


def test_an_address_that_went_comes_again() -> None:
    world = World()
    world.send("q", b"a", headers=each(100, 1))
    world.engine.drop_address(world.engine.addresses["q"])
    world.tick(100)
    listening(world)
    assert [got.body for got in world.settle()] == [b"a"]


def test_what_is_due_stops_when_its_time_is_over_and_goes_on_behind_others() -> None:
    """Each message takes as long as a portion lasts, however few steps it is."""
    world = World()
    for number in range(20):
        world.send("q", b"%d" % number, headers=each(1000, 0))
    looks = count(1)
    world.engine.work.time_by(lambda: next(looks) * 2 * TIME)
    received = world.engine.counters
    world.tick(1000)
    before = received["received"]
    assert 0 < before < 4
    while world.engine.dispatch_rest(lambda: False):
        assert received["received"] - before < 4
        before = received["received"]
    assert before == 20
    assert world.engine.schedules.known == {}


def test_what_comes_due_meanwhile_is_sent_as_well() -> None:
    world = World(portion=1)
    for _ in range(3):
        world.send("q", b"a", headers=each(10, -1))
    world.tick(10)
    world.tick(10)  # while some of the first wait for their turn
    world.settle()
    world.tick(10)
    world.settle()
    assert world.engine.counters["received"] >= 6
    assert [schedule.next for schedule in world.engine.schedules.known.values()] == [NOW + 40] * 3


def test_a_rare_day_is_found_at_once() -> None:
    leap_sunday = datetime(2032, 2, 29, 23, 59, tzinfo=UTC)
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert after("59 23 29 2 */7", int(now.timestamp() * 1000)) == int(leap_sunday.timestamp() * 1000)


def test_of_schedules_that_were_ended_before_their_time_nothing_stays() -> None:
    world = World()
    schedules = world.engine.schedules
    world.send("q", b"kept", headers={"AMQ_SCHEDULED_CRON": "0 0 1 1 *"})
    (kept,) = schedules.known.values()
    for _ in range(1000):
        world.send("q", b"a", headers={"AMQ_SCHEDULED_CRON": "0 0 2 1 *"})
        _, schedule = schedules.known.values()
        schedules.end(schedule)
    assert list(schedules.known.values()) == [kept]
    assert len(schedules._heap) <= 2 * LEAST
    world.tick(kept.next - NOW)
    assert world.engine.counters["received"] == 1
