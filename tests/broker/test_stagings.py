"""What sinks stage: put in place of itself when it comes twice, published once, gone when nobody will publish it."""

from __future__ import annotations

import pytest

from stompbox.broker.stagings import IDLE, PART, Gathered, Sends, Stagings
from stompbox.errors import Refused
from stompbox.message import ANYCAST, Run
from stompbox.stomp.shapes import shape_of
from tests.broker.world import NOW, World, run_of


def made(world: World, most: int = 1 << 20) -> Stagings:
    return Stagings(world.engine, most)


def messages(*bodies: bytes) -> list[Run]:
    run = run_of("q", *bodies)
    run.routing = ANYCAST
    return [run]


def published(
    world: World, stagings: Stagings, batch: int, *parts: tuple[int, int], gathered: Gathered | None = None
) -> int | None:
    """How many messages."""

    def route(run: Run) -> Sends:
        return [(world.address("q"), run)]

    sent = stagings.publish("lake", batch, parts, route, gathered)
    return None if sent is None else sum([len(run) for _, run in sent])


def size_of(*bodies: bytes, sink: str = "lake") -> int:
    """What they cost, staged as one attempt."""
    alone = made(World())
    alone.stage(sink, 0, (0, 0), messages(*bodies))
    return alone.size


def test_an_attempt_that_comes_twice_takes_its_own_place() -> None:
    world = World()
    stagings = made(world)
    for _ in range(2):  # the answer to the first was lost
        assert stagings.stage("lake", 0, (0, 7), messages(b"a", b"b")) == 2
    assert stagings.size == size_of(b"a", b"b") > PART + 2
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
    most = size_of(b"fghi")
    stagings = made(World(), most=most)
    stagings.stage("lake", 0, (0, 1), messages(b"abc"))
    with pytest.raises(Refused, match=f"sinks have staged {most - 1} bytes; with {most - 2} more the limit of {most} is passed"):
        stagings.stage("lake", 0, (0, 2), messages(b"de"))
    stagings.stage("lake", 0, (0, 1), messages(b"fghi"))
    assert stagings.size == most


def test_neither_empty_messages_nor_empty_attempts_nor_columns_are_free() -> None:
    stagings = made(World(), most=20_000)
    with pytest.raises(Refused, match="max-staged-bytes"):
        for attempt in range(100):
            stagings.stage("lake", 0, (0, attempt), [])
    stagings.forget("lake")
    with pytest.raises(Refused, match="max-staged-bytes"):
        stagings.stage("lake", 0, (0, 0), messages(*[b""] * 1000))
    wide = Run(shape_of({"destination": "q", "x": ""}, holes=("x",)), [b""], ([b"x" * 30_000],))
    with pytest.raises(Refused, match="max-staged-bytes"):
        stagings.stage("lake", 0, (0, 0), [wide])
    assert stagings.size == 0


def test_a_new_run_takes_the_place_of_the_one_before() -> None:
    stagings = made(World())
    stagings.stage("lake", 0, (0, 1), messages(b"old"), run="one")
    stagings.stage("other", 0, (0, 1), messages(b"stays"), run="one")
    stagings.stage("lake", 0, (0, 2), messages(b"new"), run="two")
    assert stagings.size == size_of(b"stays", sink="other") + size_of(b"new")
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
    assert published(world, stagings, 0, (0, 1), gathered=gathered) == 2
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
    assert published(world, stagings, 0, (0, 1), gathered=gathered) == 2
