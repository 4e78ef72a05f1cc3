"""What sinks stage: put in place of itself when it comes twice, published once, gone when nobody will publish it; what is remembered."""

from __future__ import annotations

from collections import deque

import pytest

from stompbox.broker.subscriptions.staging import (
    LEAST,
    MOST_NAMED,
    STEP,
    Attempt,
    PartitionAttempt,
    Prefixes,
    Publication,
    Published,
    Sinks,
    digest_of,
)
from stompbox.errors import Refused
from stompbox.selectors.steps import result
from tests.broker.world import NOW, World, run_of

READING = Prefixes(["/queue/"], ["/topic/"], [], "")


def made(
    world: World, most: int = 1 << 30, *, of_user: int = 1 << 30, sinks: int = 100, timeout: int = 1000
) -> Sinks:
    found = Sinks(world.engine, world.store.recover().entries)
    found.limit(most, of_user, sinks, timeout)
    return found


def attempt(
    world: World,
    batch: int,
    part: PartitionAttempt,
    size: int = 10,
    *,
    sink: str = "lake",
    run: str = "",
    user: str = "",
) -> Attempt:
    """Its chunk is of so many octets."""
    body = world.engine.bodies.new()
    body.size = size
    world.engine.bodies.put(body, 0, b"summary")
    return Attempt(sink, batch, part, run, user, body, 2, is_given=True)


def stage(
    world: World,
    sinks: Sinks,
    batch: int,
    part: PartitionAttempt,
    size: int = 10,
    *,
    sink: str = "lake",
    run: str = "",
    user: str = "",
) -> int:
    one = attempt(world, batch, part, size, sink=sink, run=run, user=user)
    sinks.reserve(one)
    return sinks.stage(one)


def publication(
    sinks: Sinks, batch: int, *parts: PartitionAttempt, user: str = "", after: Published | None = None
) -> Publication:
    return Publication(
        "lake",
        batch,
        user,
        deque(sinks.chosen("lake", batch, parts)),
        READING,
        after or Published(batch, user),
    )


def publish(
    world: World, sinks: Sinks, batch: int, *parts: PartitionAttempt, after: Published | None = None
) -> None:
    """In one portion, one message for each attempt."""
    one = publication(sinks, batch, *parts, after=after)
    sinks.decide(one)
    for _ in one.attempts:
        world.engine.publish(world.address("q"), run_of("q", b"m"))
    one.published = len(one.attempts)
    sinks.reached(one)
    world.commit()
    sinks.stored(one, one.published)


def test_an_attempt_that_comes_twice_takes_its_own_place() -> None:
    world = World()
    sinks = made(world)
    for _ in range(2):  # the answer to the first was lost
        assert stage(world, sinks, 0, (0, 7), 100_000) == 2
    assert sinks.size == sinks.of_user[""] == 100_000
    publish(world, sinks, 0, (0, 7))
    assert (sinks.size, sinks.of_user) == (0, {})


def test_attempts_that_lost_go() -> None:
    world = World()
    sinks = made(world)
    stage(world, sinks, 3, (0, 1))
    stage(world, sinks, 3, (0, 2))
    publish(world, sinks, 3, (0, 2), (0, 2))
    assert world.engine.addresses["q"].log.next == 1
    assert (sinks.size, sinks.batches) == (0, {})
    assert [sinks.is_published("lake", batch) for batch in (2, 3, 4)] == [True, True, False]


def test_what_is_not_there_is_named() -> None:
    world = World()
    sinks = made(world)
    stage(world, sinks, 0, (0, 1))
    with pytest.raises(
        Refused, match=r"nothing is staged for 1 of 2 attempts, the first \(partition, attempt\) \(1, 5\)"
    ) as caught:
        sinks.chosen("lake", 0, [(0, 1), (1, 5)])
    assert caught.value.code == "not-staged"


def test_many_attempts_are_looked_for_in_steps_and_what_is_not_there_is_named_alike() -> None:
    world = World()
    sinks = made(world)
    parts = [(number, 1) for number in range(10 * STEP)]
    for part in parts[: 2 * STEP]:
        stage(world, sinks, 0, part)
    steps = sinks.choosing("lake", 0, parts[: 2 * STEP])
    assert sum(1 for _ in steps) >= 2
    assert result(sinks.choosing("lake", 0, parts[:7])) == sinks.chosen("lake", 0, parts[:7])
    said = []
    for ask in (sinks.chosen, lambda *asked: result(sinks.choosing(*asked))):
        with pytest.raises(Refused, match=f"for {8 * STEP} of {10 * STEP} attempts") as caught:
            ask("lake", 0, parts)
        said.append((caught.value.code, caught.value.message))
    assert said[0] == said[1]


def test_what_goes_while_attempts_are_looked_for_is_not_chosen() -> None:
    world = World()
    sinks = made(world)
    parts = [(number, 1) for number in range(2 * STEP)]
    for part in parts:
        stage(world, sinks, 0, part)
    steps = sinks.choosing("lake", 0, parts)
    next(steps)
    sinks.discard("lake", 0)
    with pytest.raises(Refused, match="nothing is staged for"):
        result(steps)


def test_the_limits() -> None:
    world = World()
    sinks = made(world, 5 * LEAST, of_user=4 * LEAST)
    stage(world, sinks, 0, (0, 1), 3 * LEAST, user="anna")
    with pytest.raises(
        Refused, match=f"sinks of this user have staged {3 * LEAST} bytes; with {2 * LEAST} more .* is passed"
    ) as caught:
        stage(world, sinks, 0, (0, 2), 2 * LEAST, user="anna")
    assert (caught.value.code, "max-staged-bytes-per-user" in caught.value.message) == ("staging-full", True)
    stage(world, sinks, 0, (0, 1), 4 * LEAST, user="anna")  # in its own place
    with pytest.raises(
        Refused, match=f"with {2 * LEAST} more the limit of {5 * LEAST} is passed .max-staged-bytes."
    ):
        stage(world, sinks, 0, (0, 1), 2 * LEAST, sink="other", user="bert")
    assert sinks.size == 4 * LEAST


def test_an_attempt_without_messages_is_not_free() -> None:
    world = World()
    sinks = made(world, 10 * LEAST)
    with pytest.raises(Refused, match="max-staged-bytes"):
        for number in range(11):
            stage(world, sinks, 0, (0, number), 0)
    sinks.forget("lake")
    assert sinks.size == 0


def test_a_new_run_takes_the_place_of_the_one_before() -> None:
    world = World()
    sinks = made(world)
    stage(world, sinks, 0, (0, 1), run="one")
    stage(world, sinks, 0, (0, 1), sink="other", run="one")
    stage(world, sinks, 0, (0, 2), run="two")
    assert {(key, *batch.attempts) for key, batch in sinks.batches.items()} == {
        (("lake", 0), (0, 2)),
        (("other", 0), (0, 1)),
    }
    with pytest.raises(Refused) as caught:
        stage(world, sinks, 0, (1, 1), run="one")  # of a task that outlived its driver
    assert (caught.value.code, sinks.size) == ("sink-run-anew", 2 * LEAST)


def test_what_nobody_touches_goes_from_the_store_too() -> None:
    world = World()
    sinks = made(world, timeout=500)
    stage(world, sinks, 0, (0, 1))
    world.commit()
    world.engine.tick(NOW + 499)
    stage(world, sinks, 0, (0, 1), sink="young")
    world.engine.tick(NOW + 500)
    assert list(sinks.batches) == [("young", 0)]
    world.engine.tick(NOW + 1000)
    assert (list(sinks.batches), sinks.size) == ([], 0)
    commit = world.commit()
    assert set(commit.holds.values()) == {False}
    assert [key for key in world.store.recover().entries if key[0] == "staged"] == []


def test_what_is_staged_outlives_a_restart() -> None:
    world = World()
    stage(world, made(world), 4, (1, 2), 100_000, run="r", user="anna")
    world.commit()
    world = world.restart()
    sinks = made(world)
    found = sinks.chosen("lake", 4, [(1, 2)])[0]
    assert (found.part, found.run, found.user, found.count, found.is_given, found.body.size) == (
        (1, 2),
        "r",
        "anna",
        2,
        True,
        100_000,
    )
    assert (sinks.size, sinks.of_user) == (100_000, {"anna": 100_000})
    assert world.commit().holds == {found.body.id: True}


def test_a_publication_goes_on_after_a_restart() -> None:
    world = World()
    sinks = made(world)
    for number in range(3):
        stage(world, sinks, 0, (number, 1))
    one = publication(sinks, 0, (0, 1), (1, 1), (2, 1), user="anna")
    sinks.decide(one)
    one.published, one.done = 1, 1
    sinks.reached(one)
    world.commit()
    for _ in range(2):  # and once more, before anything was done
        world = world.restart()
        sinks = made(world)
        one = sinks.publishing["lake"]
        assert ([attempt.part for attempt in one.attempts], one.published, one.done, one.user) == (
            [(1, 1), (2, 1)],
            0,
            1,
            "anna",
        )
        assert (one.reading, one.is_decided, sinks.is_published("lake", 0), sinks.size) == (
            READING,
            True,
            True,
            2 * LEAST,
        )
        world.commit()
    one.published = 2
    sinks.reached(one)
    world.commit()
    sinks.stored(one, one.published)
    sinks = made(world.restart())
    assert (sinks.publishing, sinks.published) == ({}, {"lake": Published(0, "anna")})


def test_a_batch_that_the_disk_refused_is_staged_as_before() -> None:
    world = World()
    sinks = made(world)
    stage(world, sinks, 0, (0, 1))
    world.commit()
    one = publication(sinks, 0, (0, 1))
    sinks.decide(one)
    one.published = 1
    sinks.reached(one)
    commit = world.engine.take_commit()
    world.engine.commit_failed(commit)
    sinks.withdraw(one, None)
    world.commit()
    for there in (sinks, made(world.restart())):
        assert (there.published, there.publishing, there.is_published("lake", 0), there.size) == (
            {},
            {},
            False,
            LEAST,
        )
        assert there.chosen("lake", 0, [(0, 1)])[0].part == (0, 1)


def test_what_was_staged_anew_meanwhile_is_not_published_as_it_was() -> None:
    world = World()
    sinks = made(world)
    stage(world, sinks, 0, (0, 1))
    one = publication(sinks, 0, (0, 1))
    stage(world, sinks, 0, (0, 1))
    with pytest.raises(Refused, match="staged anew"):
        sinks.decide(one)
    assert sinks.publishing == {}


def test_a_sink_that_is_forgotten() -> None:
    world = World()
    sinks = made(world)
    stage(world, sinks, 0, (0, 1))
    publish(world, sinks, 0, (0, 1))
    stage(world, sinks, 1, (0, 1))
    sinks.forget("lake")
    world.commit()
    assert (sinks.size, made(world.restart()).published) == (0, {})


def test_no_sink_is_forgotten_for_another() -> None:
    world = World()
    sinks = made(world, sinks=1)
    stage(world, sinks, 0, (0, 1))
    publish(world, sinks, 0, (0, 1))
    sinks.require_known("lake", "")  # is known already
    sinks.require_known("pond", "bert")  # has none
    with pytest.raises(Refused, match="max-sinks-per-user") as caught:
        sinks.require_known("pond", "")
    assert caught.value.code == "too-many-sinks"
    sinks.forget("lake")
    sinks.require_known("pond", "")


def test_a_sink_of_one_batch_is_forgotten_after_a_while() -> None:
    world = World()
    sinks = made(world, timeout=500)
    stage(world, sinks, 0, (0, 1))
    publish(world, sinks, 0, (0, 1), after=Published(0, until=NOW + 500))
    world.engine.tick(NOW + 499)
    assert sinks.is_published("lake", 0)
    world.engine.tick(NOW + 500)
    world.commit()
    assert (sinks.published, made(world.restart()).published) == ({}, {})


def test_a_sink_that_an_older_broker_has_remembered() -> None:
    world = World()
    world.engine.put("sink", "lake", {"batch": 7})
    world.commit()
    assert [made(world.restart()).is_published("lake", batch) for batch in (7, 8)] == [True, False]


def names(*found: str) -> frozenset[str]:
    return frozenset(found)


def test_writes_of_one_batch_are_told_apart_by_where_they_go() -> None:
    last = Published(3, "", names("a", "b"))
    assert last.has(names("a"))
    assert last.has(names())
    assert not last.has(names("c"))
    with pytest.raises(Refused, match="published to 'b' already") as caught:
        last.has(names("b", "c"))
    assert caught.value.code == "batch-overlaps"
    both = last.with_more(names("c"))
    assert both.has(names("b", "c"))
    assert Published(3).has(names("c")), "one write is one write"


def test_writes_to_very_many_addresses_are_known_by_a_digest() -> None:
    many = frozenset(map(str, range(MOST_NAMED)))
    last = Published(3, "", many).with_more(names("a"))
    assert (last.addresses, last.digest) == (frozenset(), digest_of({*many, "a"}))
    assert last.has(many | {"a"})
    with pytest.raises(Refused, match="some of its addresses"):
        last.has(many)
