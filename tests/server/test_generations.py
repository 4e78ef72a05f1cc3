"""What is made while as much goes is collected before it is much."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from threading import Event, Thread
from weakref import ref

import pytest

from stompbox.server import generations
from stompbox.server.generations import EVERY, FEW, MANY, OFTEN, Collector, YoungGeneration
from tests.server.turning import World


@pytest.fixture
def collected() -> Iterator[list[int]]:
    """Generations that were collected meanwhile. The collector does nothing by itself."""
    found: list[int] = []

    def note(phase: str, told: dict[str, int]) -> None:
        if phase == "start":
            found.append(told["generation"])

    gc.collect()
    gc.disable()
    gc.callbacks.append(note)
    yield found
    gc.callbacks.remove(note)
    gc.enable()


def test_many_young_objects_are_collected(collected: list[int]) -> None:
    young = YoungGeneration()
    young.look(1.0)
    assert collected == []
    kept = [[number] for number in range(2 * MANY)]
    young.look(1.0 + EVERY)
    assert collected == [1]
    assert len(gc.get_objects(0)) < len(kept)
    young.look(1.0 + 3 * EVERY)
    assert collected == [1], "those are old now"


def test_those_that_are_not_many_yet_are_looked_at_once_and_collected_when_all_together_are(
    collected: list[int],
) -> None:
    young = YoungGeneration()
    young.look(1.0)
    kept: list[list[list[int]]] = []
    for turn in range(1, 2 + MANY // (2 * FEW)):
        kept.append([[number] for number in range(2 * FEW)])
        young.look(1.0 + 2 * turn * EVERY)
        assert len(gc.get_objects(0)) < FEW
        if 1 in collected:  # a look makes some objects itself
            break
    assert set(collected[:-1]) == {0} and collected[-1] == 1
    assert turn >= MANY // (2 * FEW)


def test_few_young_objects_are_left_where_they_are(collected: list[int]) -> None:
    young = YoungGeneration()
    kept = [[number] for number in range(FEW // 2)]
    young.look(1.0)
    assert collected == [] and kept


def test_it_is_not_looked_all_the_time(collected: list[int]) -> None:
    young = YoungGeneration()
    young.look(1.0)
    kept = [[number] for number in range(2 * MANY)]
    young.look(1.0 + EVERY / 2)
    assert collected == [] and kept


def test_a_broker_looks_while_it_has_something_to_do(collected: list[int]) -> None:
    world = World()
    client = world.client()
    world.turn()
    kept = [[number] for number in range(2 * MANY)]
    client.say(("SEND", {"destination": "/queue/a"}))
    world.turn(2)
    assert 1 in collected and kept


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """From now on, and where it finds that very much is alive."""
    monkeypatch.setattr(generations, "SHORT", -(1 << 40))
    thresholds = gc.get_threshold()
    found = Collector()
    found.begin()
    yield found
    found.end()
    gc.set_threshold(*thresholds)
    gc.unfreeze()


def test_what_is_old_is_put_aside_before_it_is_much(collector: Collector) -> None:
    """Whatever lives: a whole collection, if one came, would take some ms."""
    frozen, young, most = gc.get_freeze_count(), YoungGeneration(), 0
    kept: list[list[list[int]]] = []
    for turn in range(1, 200):
        kept.append([[number] for number in range(MANY)])
        young.look(2 * turn * EVERY)
        most = max(most, len(gc.get_objects(2)))
    assert collector.has_put_aside
    assert most <= (OFTEN + 1) * 2 * MANY
    assert gc.get_freeze_count() - frozen > 170 * MANY


def test_little_is_not_put_aside(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generations, "SHORT", 1 << 40)
    young = YoungGeneration()
    kept: list[list[list[int]]] = []
    for turn in range(1, 50):
        kept.append([[number] for number in range(MANY)])
        young.look(2 * turn * EVERY)
    assert not collector.has_put_aside and kept


class Node:
    def __init__(self) -> None:
        self.other = self


def test_circles_of_what_was_put_aside_are_found_when_all_is_collected(collector: Collector) -> None:
    node = Node()
    circle = ref(node)
    young = YoungGeneration()
    kept: list[list[list[int]]] = []
    for turn in range(1, 50):
        kept.append([[number] for number in range(MANY)])
        young.look(2 * turn * EVERY)
    del node
    assert collector.has_put_aside
    gc.collect()
    assert circle() is not None, "it is not looked at"
    frozen = gc.get_freeze_count()
    kept.clear()
    collector.collect_all()
    assert circle() is None
    assert not collector.has_put_aside
    assert frozen - gc.get_freeze_count() > 30 * MANY


def test_what_is_old_is_not_counted_to_be_put_aside(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To ask for the list of it takes as long as what is to be spared."""
    asked: list[int] = []
    count = generations._count
    monkeypatch.setattr(
        generations, "_count", lambda generation: asked.append(generation) or count(generation)
    )
    young = YoungGeneration()
    kept: list[list[list[int]]] = []
    for turn in range(1, 100):
        kept.append([[number] for number in range(MANY)])
        young.look(2 * turn * EVERY)
    assert collector.has_put_aside and set(asked) == {0}


@pytest.mark.parametrize("is_short", [True, False])
def test_what_python_keeps_for_itself_goes_by_a_collection_of_few_objects(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, *, is_short: bool
) -> None:
    """Only one of the oldest generation lets it go; of much that is old it looks at nothing."""
    monkeypatch.setattr(generations, "SHORT", 1 << 40 if is_short else -(1 << 40))
    kept = [[number] for number in range(50 * MANY)]
    gc.collect(1)
    found: list[int] = []

    def note(phase: str, told: dict[str, int]) -> None:
        if phase == "start" and told["generation"] == 2:
            found.append(len(gc.get_objects()))

    gc.callbacks.append(note)
    collector.collect()
    gc.callbacks.remove(note)
    (looked_at,) = found
    assert looked_at > len(kept) if is_short else looked_at < FEW
    assert collector.has_put_aside != is_short


def test_what_is_loaded_after_the_start_is_not_looked_at_again(collector: Collector) -> None:
    kept: list[list[int]] = []
    collector.load(lambda: kept.extend([[number] for number in range(MANY)]))
    assert len(gc.get_objects()) < len(kept)
    assert not collector.has_put_aside


def test_circles_that_were_found_are_counted(collector: Collector) -> None:
    for _ in range(100):
        Node()
    gc.freeze()
    assert collector.collect_all() >= 100
    assert collector.collect_all() < 100


def test_a_collector_that_has_ended_does_nothing(collector: Collector) -> None:
    before = list(gc.callbacks)
    collector.end()
    collector.begin()
    collector.end()
    assert len(gc.callbacks) == len(before) - 1
    collector.begin()


def test_other_threads_make_tuples_meanwhile(collected: list[int]) -> None:
    """A tuple that is made of a generator must be known to nobody else while it grows: Python raises SystemError, there, where it is."""
    interval, failed = sys.getswitchinterval(), []
    kept = [[number] for number in range(FEW)]
    looked = Event()

    def make_tuples() -> None:
        while not looked.is_set():
            try:
                assert tuple(one for one in "abc") == ("a", "b", "c")
            except SystemError as error:
                failed.append(error)
                return

    thread = Thread(target=make_tuples)
    sys.setswitchinterval(1e-6)
    try:
        thread.start()
        for turn in range(5_000):
            YoungGeneration().look(1.0 + turn)
    finally:
        looked.set()
        thread.join()
        sys.setswitchinterval(interval)
    assert kept and not failed
