"""What stays in a log after it was consumed, and when it goes."""

from __future__ import annotations

from typing import Any

import pytest

from stompbox.broker.addresses.configuration import apply_retention, outline_retention
from stompbox.broker.logs.retention import Retention, RetentionRules
from stompbox.config.settings import AddressSetting
from stompbox.store.base import Part
from tests.broker.world import World

SECOND = 1000


def world(**settings: Any) -> World:
    return World(AddressSetting(match="q", **settings), chunk_bytes=200)


def consumed(world: World, *bodies: bytes) -> None:
    """Each is sent, acknowledged and on disk."""
    consumer = world.on_queue(world.consumer(), "q")
    for body in bodies:
        world.send("q", body)
        for got in world.out():
            if got.consumer == consumer.name:
                world.ack(consumer, got)
        world.commit()
    world.close(consumer)


def readable(world: World, start: int = 0, name: str = "reader") -> list[int]:
    """Offsets that a new reader of the stream gets."""
    reader = world.on_stream(world.consumer(name), "q", start)
    found = [got.offset for got in world.settle()]
    world.close(reader)
    return found


def test_without_a_rule_nothing_stays() -> None:
    played = world()
    consumed(played, b"0", b"1", b"2")
    assert readable(played) == []


def test_so_many_messages_stay() -> None:
    played = world(retention_messages=2)
    consumed(played, b"0", b"1", b"2", b"3")
    played.commit()
    assert played.address("q").log.oldest == 2
    assert readable(played) == [2, 3]


def test_so_many_bytes_stay() -> None:
    played = world(retention_bytes=1000)
    consumed(played, *[b"x" * 300] * 10)
    played.commit()
    assert readable(played) == [7, 8, 9]


def test_what_is_too_old_goes_although_nothing_happens() -> None:
    played = world(retention_ms=10 * SECOND)
    consumed(played, b"0")
    played.tick(6 * SECOND)
    consumed(played, b"1")
    assert readable(played) == [0, 1]
    played.commit()
    assert not played.engine.is_dirty
    deadline = played.engine.next_deadline()
    assert deadline is not None
    played.tick(deadline - played.engine.now)
    assert played.engine.is_dirty, "the clock alone brings it about"
    played.commit()
    assert readable(played) == [1]
    played.tick(10 * SECOND)
    played.commit()
    assert readable(played) == []
    assert played.store.sizes([played.address("q").log.id]) == {played.address("q").log.id: (0, 0)}


def test_any_rule_lets_go() -> None:
    played = world(retention_ms=10 * SECOND, retention_messages=3)
    consumed(played, b"0", b"1", b"2", b"3", b"4")
    played.commit()
    assert readable(played) == [2, 3, 4]
    played.tick(11 * SECOND)
    played.commit()
    assert readable(played) == []


def test_what_a_queue_needs_stays_and_does_not_count() -> None:
    played = world(retention_ms=SECOND, retention_messages=1)
    consumed(played, b"0", b"1")
    played.send("q", b"2")
    played.send("q", b"3")
    played.commit()
    played.tick(60 * SECOND)
    played.commit()
    assert readable(played) == [2, 3]
    consumer = played.on_queue(played.consumer(), "q")
    for got in played.settle():
        played.ack(consumer, got)
    played.commit()
    assert played.address("q").log.oldest == 4


def test_a_reader_of_what_is_gone_goes_on_with_what_is_there() -> None:
    played = world(retention_messages=3)
    consumed(played, b"0", b"1", b"2")
    slow = played.on_stream(played.consumer("slow", prefetch=1), "q", 0)
    (first,) = played.settle()
    assert first.offset == 0
    slow_queue = played.address("q").streams[first.queue.id]
    slow_queue.backlog.clear()
    slow_queue.paged_from = 3  # as if it had not fitted into memory
    consumed(played, *[b"%d" % number for number in range(3, 10)])
    played.commit()
    played.ack(slow, first)
    found = played.settle()
    seen = []
    while found:
        seen += [got.offset for got in found]
        for got in found:
            played.ack(slow, got)
        found = played.settle()
    assert seen == [7, 8, 9]
    assert played.engine.counters["retention"] == 4
    assert readable(played, 2, "another") == [7, 8, 9]


def test_a_slow_reader_does_not_hold_up_retention() -> None:
    played = World(AddressSetting(match="q", retention_messages=5, max_size_messages=0), chunk_bytes=200)
    played.on_stream(played.consumer("slow", prefetch=0), "q", 0)
    consumed(played, *[b"x" * 100] * 50)
    played.commit()
    assert played.address("q").log.oldest == 45
    assert played.store.sizes([played.address("q").log.id])[played.address("q").log.id][0] <= 6


def test_after_a_start_the_rules_go_on() -> None:
    played = world(retention_ms=10 * SECOND, retention_bytes=100_000)
    for body in (b"0", b"1", b"2"):
        consumed(played, body)
        played.tick(4 * SECOND)
    played.commit()
    again = played.restart()
    outline_retention(again.engine, again.store.outline)
    again.commit()
    assert readable(again) == [1, 2]
    deadline = again.engine.next_deadline()
    assert deadline is not None
    again.tick(deadline - again.engine.now)
    again.commit()
    assert readable(again) == [2]


def test_a_commit_that_fails_lets_go_later() -> None:
    played = world(retention_messages=1)
    consumed(played, b"0", b"1")
    consumer = played.on_queue(played.consumer(), "q")
    played.send("q", b"2")
    for got in played.out():
        played.ack(consumer, got)
    played.engine.commit_failed(played.engine.take_commit())
    assert played.address("q").log.oldest <= 1
    played.commit()
    played.commit()
    assert readable(played) == [2]


def test_new_settings_count_at_once() -> None:
    played = world(retention_messages=5)
    consumed(played, *[b"x"] * 6)
    address = played.address("q")
    address.settings = world(retention_messages=2).address("q").settings
    apply_retention(address)
    played.commit()
    assert readable(played) == [4, 5]
    address.settings = world().address("q").settings
    apply_retention(address)
    assert not address.log.is_kept
    consumed(played, b"more")
    played.commit()
    assert readable(played) == []


@pytest.mark.parametrize("rules", [RetentionRules(100_000, -1, -1), RetentionRules(-1, 1 << 20, -1)])
def test_parts_are_few_however_many_messages_come(rules: RetentionRules) -> None:
    kept = Retention(rules)
    for number in range(100_000):
        kept.add(Part(number, number + 1, 100, number))
    counted = len(kept._rest)
    assert 100 < counted < 5000
    low = kept.look(100_000, 100_000)
    assert 0 <= low <= 100_000
    assert len(kept._consumed) <= 300
