"""Expiry: what senders and settings say, by injected time; 100,000 expiring messages cost no scan."""

from __future__ import annotations

import time

import pytest

from stompbox.broker.addresses.routing import ADMITTED
from stompbox.broker.queues.consumer import AckMode
from stompbox.broker.queues.expiry import LATEST, check, with_expiry
from stompbox.broker.queues.reclaim import purge
from stompbox.broker.work import COPY
from stompbox.config.settings import AddressSetting, AddressSettings
from stompbox.errors import IllegalFrame
from stompbox.message import Shape
from tests.broker.world import NOW, World

DAY = 86_400_000
TO_EXPIRED = AddressSetting(match="q", expiry_address="expired")


def shape(expires: int = 0, **headers: str) -> Shape:
    if expires:
        headers["expires"] = str(expires)
    return Shape({"destination": "q", **headers}, expires=expires)


@pytest.mark.parametrize(
    ("settings", "asked", "expected"),
    [
        ({}, 0, 0),
        ({}, NOW + 5, NOW + 5),
        ({"expiry_delay": 10}, 0, NOW + 10),
        ({"expiry_delay": 10}, NOW + 99, NOW + 99),
        ({"expiry_delay": 0}, 0, NOW + 1),
        ({"min_expiry_delay": 10}, NOW + 3, NOW + 10),
        ({"min_expiry_delay": 10}, NOW + 99, NOW + 99),
        ({"min_expiry_delay": 10}, 0, NOW + 10),
        ({"max_expiry_delay": 50}, NOW + 99, NOW + 50),
        ({"max_expiry_delay": 50}, NOW + 3, NOW + 3),
        ({"max_expiry_delay": 50}, 0, NOW + 50),
        ({"min_expiry_delay": 10, "max_expiry_delay": 50}, 0, NOW + 50),
        ({"min_expiry_delay": 10, "max_expiry_delay": 50, "expiry_delay": 7}, NOW + 99, NOW + 99),
        ({"no_expiry": True, "expiry_delay": 7}, NOW + 99, 0),
        ({"expiry_delay": (1 << 63) - 1}, 0, LATEST),
        ({"min_expiry_delay": (1 << 63) - 1}, NOW + 3, LATEST),
        ({"max_expiry_delay": (1 << 63) - 1}, 0, LATEST),
    ],
)
def test_settings_decide(settings: dict[str, int], asked: int, expected: int) -> None:
    given = shape(asked)
    found = with_expiry(given, AddressSettings(**settings), NOW)  # type: ignore[arg-type]
    assert found.expires == expected
    assert found.headers.get("expires", "0") == str(expected)
    assert found is given or found is with_expiry(given, AddressSettings(**settings), NOW), "made once"  # type: ignore[arg-type]


def test_expiration_is_ms_from_now_and_stays_as_it_was_sent() -> None:
    found = with_expiry(shape(expiration="100"), AddressSettings(), NOW)
    assert found.expires == NOW + 100
    assert found.headers == {"destination": "q", "expiration": "100"}
    assert with_expiry(found, AddressSettings(), NOW + 50).expires == NOW + 100, "decided once"


def test_cut_expiration_is_told_as_expires() -> None:
    found = with_expiry(shape(expiration="100"), AddressSettings(max_expiry_delay=10), NOW)
    assert found.headers == {"destination": "q", "expires": str(NOW + 10)}


def test_expires_and_expiration_must_agree() -> None:
    check(shape(NOW + 100, expiration="100"), NOW)
    check(shape(NOW + 100, expiration="600"), NOW)
    for expires, expiration in ((NOW + 100, "5000"), (0, "5000")):
        given = Shape(
            {"destination": "q", "expires": str(expires), "expiration": expiration}, expires=expires
        )
        with pytest.raises(IllegalFrame, match=r"header expires is \d+ and expiration 5000"):
            check(given, NOW)


def test_expired_messages_go_to_the_expiry_address_with_their_headers() -> None:
    world = World(TO_EXPIRED)
    world.send("q", b"a", b"b", expires=NOW + 100, headers={"expires": str(NOW + 100)})
    world.send("q", b"c")
    world.tick(99)
    assert "expired" not in world.engine.addresses
    world.tick(1)
    assert world.queue("q").backlog.count == 1
    world.on_queue(world.consumer(), "expired")
    found = world.settle()
    assert [got.body for got in found] == [b"a", b"b"]
    assert found[1].headers == {
        "destination": "q", "original-destination": "q", "_AMQ_ORIG_ADDRESS": "q", "_AMQ_ORIG_QUEUE": "q",
        "_AMQ_ORIG_MESSAGE_ID": f"{world.queue('q').id}-1", "dead-letter-reason": "expired", "_AMQ_ACTUAL_EXPIRY": str(NOW + 100),
    }  # fmt: skip
    assert world.engine.counters["expired"] == 2


def test_what_is_past_is_taken_and_expires() -> None:
    world = World(TO_EXPIRED)
    consumer = world.on_queue(world.consumer(), "q")
    world.send("q", b"a", expires=NOW - 1)
    assert world.settle() == []
    assert consumer.messages_out == 0
    assert world.queue("expired").backlog.count == 1


def test_delivered_messages_do_not_expire_before_they_come_back() -> None:
    world = World(TO_EXPIRED)
    consumer = world.on_queue(world.consumer(), "q")
    world.send("q", b"a", expires=NOW + 100)
    (got,) = world.settle()
    world.tick(DAY)
    assert world.engine.counters["expired"] == 0
    world.nack(consumer, got)
    assert world.settle() == []
    assert world.engine.counters["expired"] == 1


def test_expired_in_the_middle_is_taken_out_of_order_and_priorities() -> None:
    world = World()
    for i in range(10):
        world.send("q", b"%d" % i, expires=NOW + 10 if i % 3 == 1 else 0, priority=i % 2 * 5 + 2)
    world.tick(10)
    assert world.queue("q").backlog.count == 7
    world.on_queue(world.consumer(), "q")
    assert [got.body for got in world.settle()] == [b"3", b"5", b"9", b"0", b"2", b"6", b"8"]


def test_days_of_expiry_in_order_of_time() -> None:
    world = World(TO_EXPIRED)
    for i in range(50):
        world.send("q", b"%02d" % i, expires=NOW + DAY * (50 - i))
    for day in range(1, 51):
        world.tick(DAY)
        assert world.queue("q").backlog.count == 50 - day
        assert world.queue("expired").backlog.count == day
    assert world.engine.next_deadline() is None


def test_consumed_messages_leave_nothing_behind() -> None:
    """A long time to live must not keep in memory what was consumed long ago."""
    world = World()
    queue = world.address("q")
    world.send("q", b"first", expires=NOW + DAY)
    consumer = world.on_queue(world.consumer("c", AckMode.AUTO), "q")
    world.close(consumer)
    for i in range(300):
        world.send("q", b"%d" % i, expires=NOW + DAY + i)
        consumer = world.on_queue(world.consumer("c", AckMode.AUTO), "q")
        world.out()
        world.engine.flushed(consumer)
        world.close(consumer)
    expiring = queue.anycast["q"].backlog.expiring
    assert len(expiring) == 0
    assert len(expiring._times) <= 130
    assert len(world.engine.timers) <= 2


def test_expiry_while_consumers_have_selectors() -> None:
    world = World(TO_EXPIRED)
    world.on_queue(world.consumer("none", selector="colour = 'none'"), "q")
    world.send("q", b"a", expires=NOW + 10, headers={"colour": "red"})
    world.send("q", b"b", headers={"colour": "red"})
    world.tick(10)
    backlog = world.queue("q").backlog
    assert backlog.count == 1
    world.on_queue(world.consumer("red", selector="colour = 'red'"), "q")
    assert world.bodies() == [b"b"]
    assert backlog.count == backlog.size == 0


def test_addresses_that_expire_to_each_other_take_their_time() -> None:
    world = World(
        AddressSetting(match="q", expiry_delay=0, expiry_address="p"),
        AddressSetting(match="p", expiry_delay=0, expiry_address="q"),
    )
    world.send("q", b"a")
    for _ in range(10):
        world.tick(1)
    assert world.engine.counters["expired"] == 10


def test_own_queues_among_the_expired() -> None:
    world = World(AddressSetting(match="q", expiry_address="expired", auto_create_expiry_resources=True))
    world.send("q", b"a", expires=NOW + 1)
    world.tick(1)
    assert world.queue("EXP.q", "expired").backlog.count == 1


def test_an_address_with_a_very_long_name_has_no_queue_of_its_own_among_the_expired() -> None:
    """A selector could not hold its name: what expires goes to the address, and the time of others comes all the same."""
    name = "q" * 60_000
    world = World(AddressSetting(match="#", expiry_address="expired", auto_create_expiry_resources=True))
    world.send(name, b"a", expires=NOW + 1)
    world.send("q", b"b", expires=NOW + 1)
    world.tick(1)
    assert world.queue("expired").backlog.count == 1
    assert world.queue("EXP.q", "expired").backlog.count == 1
    world.commit()
    again = world.restart()
    assert again.queue("EXP.q", "expired").selector is not None


def test_a_reader_of_the_past_sees_nothing_expire() -> None:
    world = World(AddressSetting(match="s", retention_messages=100, expiry_address="expired"))
    world.send("s", b"a", expires=NOW + 10, routing=2)
    world.commit()
    world.tick(20)
    world.on_stream(world.consumer(), "s", 0)
    world.settle()
    assert "expired" not in world.engine.addresses


@pytest.mark.parametrize("headers", [{}, {"AMQ_SCHEDULED_DELAY": "1000"}], ids=["at once", "later"])
def test_what_expires_to_where_something_is_done_for_each_goes_in_portions_and_in_order(
    headers: dict[str, str],
) -> None:
    """A last-value queue asks for the key of each."""
    to_keys = AddressSetting(match="expired", default_last_value_key="k")
    world = World(TO_EXPIRED, to_keys, portion=COPY)
    count = 3 * ADMITTED + 10
    world.send("expired", b"first", headers={"k": "0"})
    for first in (0, count):
        numbers = [b"%d" % number for number in range(first, first + count)]
        world.send("q", *numbers, headers=headers, holes={"k": numbers}, expires=NOW + 10)
    world.engine.tick(NOW + 20)
    before = most = expired = world.engine.counters["expired"]
    while world.engine.dispatch_rest(lambda: False):
        expired = world.engine.counters["expired"]
        before, most = expired, max(most, expired - before)
    assert 0 < most < 2 * ADMITTED
    assert expired == 2 * count
    assert world.engine.counters["replaced"] == 1
    assert [got.body for got in world.waiting_in("expired")] == numbers_up_to(2 * count)
    assert not world.engine.returning


def test_what_is_purged_while_it_expires_is_gone_once() -> None:
    world = World(TO_EXPIRED, AddressSetting(match="expired", default_last_value_key="k"), portion=COPY)
    for _ in range(3):
        world.send("q", *[b"x"] * (2 * ADMITTED), headers={"k": "0"}, expires=NOW + 10)
    world.engine.tick(NOW + 20)
    purge(world.queue("q"))
    world.settle()
    counters = world.engine.counters
    assert counters["expired"] + counters["purged"] == 6 * ADMITTED
    assert world.queue("q").backlog.count == 0
    purge(world.queue("expired"))
    world.settle()
    assert world.engine.memory.taken == 0


def test_a_queue_that_is_deleted_while_it_expires_keeps_nothing() -> None:
    world = World(TO_EXPIRED, AddressSetting(match="expired", default_last_value_key="k"), portion=COPY)
    for _ in range(3):
        world.send("q", *[b"x"] * (2 * ADMITTED), headers={"k": "0"}, expires=NOW + 10)
    world.engine.tick(NOW + 20)
    assert 0 < world.engine.counters["expired"] < 6 * ADMITTED
    world.engine.drop_queue(world.queue("q"))
    world.settle()
    assert world.engine.counters["expired"] < 6 * ADMITTED
    purge(world.queue("expired"))
    world.settle()
    assert world.engine.memory.taken == 0


def numbers_up_to(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_expiring_messages_cost_no_scan() -> None:
    """Each of 100,000 with a time of its own behind one that never expires: a step each, whatever waits."""
    world = World(page_size=1 << 40)
    world.send("q", b"stays")
    for i in range(100_000):
        world.send("q", b"x", expires=NOW + 1 + i)
    start = time.process_time()
    world.tick(1)
    one = time.process_time() - start
    assert world.engine.counters["expired"] == 1
    start = time.process_time()
    world.tick(99_999)
    world.settle()
    rest = time.process_time() - start
    assert world.engine.counters["expired"] == 100_000
    assert world.queue("q").backlog.count == 1
    assert one < 0.05, "one that expires costs nothing of the others"
    assert rest < 10
