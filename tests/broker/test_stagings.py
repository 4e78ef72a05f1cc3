"""What sinks stage: put in place of itself when it comes twice, published once, gone when nobody will publish it."""

from __future__ import annotations

import pytest

from stompbox.broker.address import Address
from stompbox.broker.stagings import IDLE, Gathered, Stagings
from stompbox.errors import Refused
from stompbox.message import ANYCAST, Run
from tests.broker.world import NOW, World, run_of


def made(world: World, most: int = 1 << 20) -> Stagings:
    return Stagings(world.engine, most)


def messages(*bodies: bytes) -> list[Run]:
    run = run_of("q", *bodies)
    run.routing = ANYCAST
    return [run]


def published(world: World, stagings: Stagings, batch: int, *parts: tuple[int, int]) -> int | None:
    def route(run: Run) -> Address:
        return world.address("q")

    return stagings.publish("lake", batch, parts, route)


def test_an_attempt_that_comes_twice_takes_its_own_place() -> None:
    world = World()
    stagings = made(world)
    for _ in range(2):  # the answer to the first was lost
        assert stagings.stage("lake", 0, (0, 7), messages(b"a", b"b")) == 2
    assert stagings.size == 2
    assert published(world, stagings, 0, (0, 7)) == 2
    assert stagings.size == 0


def test_attempts_that_lost_are_not_published() -> None:
    world = World()
    stagings = made(world)
    stagings.stage("lake", 3, (0, 1), messages(b"lost"))
    stagings.stage("lake", 3, (0, 2), messages(b"won"))
    assert published(world, stagings, 3, (0, 2), (0, 2)) == 1
    assert published(world, stagings, 3, (0, 1)) is None
    assert (stagings.stage("lake", 3, (0, 3), messages(b"late")), stagings.size) == (0, 0)


def test_what_is_not_there_is_named() -> None:
    world = World()
    stagings = made(world)
    stagings.stage("lake", 0, (0, 1), messages(b"a"))
    with pytest.raises(Refused, match=r"nothing is staged for 1 of 2 attempts, the first \(partition, attempt\) \(1, 5\)") as caught:
        published(world, stagings, 0, (0, 1), (1, 5))
    assert caught.value.code == "not-staged"
    assert "q" not in world.engine.addresses


def test_the_limit() -> None:
    stagings = made(World(), most=4)
    stagings.stage("lake", 0, (0, 1), messages(b"abc"))
    with pytest.raises(Refused, match="sinks have staged 3 bytes; with 2 more the limit of 4 is passed"):
        stagings.stage("lake", 0, (0, 2), messages(b"de"))
    stagings.stage("lake", 0, (0, 1), messages(b"fghi"))
    assert stagings.size == 4


def test_a_new_run_takes_the_place_of_the_one_before() -> None:
    stagings = made(World())
    stagings.stage("lake", 0, (0, 1), messages(b"old"), run="one")
    stagings.stage("other", 0, (0, 1), messages(b"stays"), run="one")
    stagings.stage("lake", 0, (0, 2), messages(b"new"), run="two")
    assert stagings.size == len(b"stays") + len(b"new")
    with pytest.raises(Refused) as caught:
        stagings.stage("lake", 0, (1, 1), messages(b"a task that outlived its driver"), run="one")
    assert caught.value.code == "sink-run-anew"


def test_what_nobody_touches_goes() -> None:
    world = World()
    stagings = made(world)
    stagings.stage("lake", 0, (0, 1), messages(b"old"))
    world.engine.tick(NOW + IDLE - 1)
    stagings.stage("young", 0, (0, 1), messages(b"new"))
    world.engine.tick(NOW + IDLE)
    assert list(stagings.batches) == [("young", 0)]
    world.engine.tick(NOW + 2 * IDLE)
    assert (list(stagings.batches), stagings.size) == ([], 0)


def test_a_sink_that_is_forgotten() -> None:
    world = World()
    stagings = made(world)
    stagings.stage("lake", 0, (0, 1), messages(b"a"))
    published(world, stagings, 0, (0, 1))
    world.commit()
    assert world.restart().engine.batches == {"lake": 0}
    stagings.stage("lake", 1, (0, 1), messages(b"b"))
    stagings.forget("lake")
    world.commit()
    assert stagings.size == 0
    assert world.restart().engine.batches == {}


def test_runs_that_were_gathered_are_published_in_place_of_many() -> None:
    world = World()
    stagings = made(world)
    stagings.stage("lake", 0, (0, 1), [*messages(b"a"), *messages(b"b")])
    chosen = stagings.chosen("lake", 0, [(0, 1)])
    assert chosen is not None
    gathered = Gathered(chosen, messages(b"a", b"b"))
    assert stagings.publish("lake", 0, [(0, 1)], lambda run: world.address("q"), gathered) == 2
    assert world.engine.addresses["q"].log.next == 2
    assert stagings.chosen("lake", 0, [(0, 1)]) is None


def test_what_was_staged_anew_meanwhile_is_not_published_as_it_was() -> None:
    world = World()
    stagings = made(world)
    stagings.stage("lake", 0, (0, 1), messages(b"old"))
    chosen = stagings.chosen("lake", 0, [(0, 1)])
    assert chosen is not None
    gathered = Gathered(chosen, messages(b"old"))
    stagings.stage("lake", 0, (0, 1), messages(b"new", b"newer"))
    assert stagings.publish("lake", 0, [(0, 1)], lambda run: world.address("q"), gathered) == 2
