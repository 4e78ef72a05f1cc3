"""Which queues of an address a message goes to, and that nobody is asked twice."""

from __future__ import annotations

from collections import Counter
from unittest.mock import patch

import pytest

from stompbox.broker import engine
from stompbox.broker.addresses import plans
from stompbox.broker.addresses.routing import ADDED, PLACED
from stompbox.broker.engine import VERDICTS
from stompbox.broker.kinds import Kind
from stompbox.broker.queues import matching
from stompbox.broker.queues.consumer import AckMode
from stompbox.broker.queues.matching import PLAN, QUEUE, TAKERS
from stompbox.broker.queues.queue import Queue
from stompbox.broker.queues.reclaim import purge
from stompbox.config.settings import AddressSetting
from stompbox.message import ANYCAST, MULTICAST, Run, Shape
from stompbox.selectors import Selector, compile_selector
from tests.broker.world import World

FEW_VERDICTS = 1024


def queues_on(world: World, *filters: str) -> list[Queue]:
    """Anycast queues of address x, one for each filter."""
    address = world.address("x")
    selectors = [compile_selector(text) if text else None for text in filters]
    return [
        world.engine.new_queue(address, f"x{at}", Kind.ANYCAST, selector)
        for at, selector in enumerate(selectors)
    ]


def offsets(queue: Queue) -> set[int]:
    found = set()
    for segment in queue.backlog.clear():
        found |= set(range(segment.first, segment.stop))
    return found


# Several anycast queues


def test_each_message_goes_to_one_of_several_queues() -> None:
    world = World()
    queues = queues_on(world, "", "", "")
    world.send("x", *[b"x"] * 100)
    for _ in range(50):
        world.send("x", b"x")
    taken = [offsets(queue) for queue in queues]
    assert set.union(*taken) == set(range(150))
    assert sum(map(len, taken)) == 150
    assert min(map(len, taken)) >= 49, "in turn"


def test_what_one_filter_leaves_goes_to_another() -> None:
    """One run of messages for several filters: each message finds a queue that takes it."""
    world = World()
    red, blue, any_word = queues_on(world, "word = 'red'", "word = 'blue'", "")
    words = [b"red", b"blue", b"green"] * 20
    world.send("x", *[b"x"] * 60, holes={"word": words})
    taken = {queue.name: offsets(queue) for queue in (red, blue, any_word)}
    assert set.union(*taken.values()) == set(range(60))
    assert sum(map(len, taken.values())) == 60
    assert all(words[offset] == b"red" for offset in taken["x0"])
    assert all(words[offset] == b"blue" for offset in taken["x1"])
    assert all(offset in taken["x2"] for offset in range(2, 60, 3)), "green has only one that takes it"
    assert taken["x0"], "of two that take red each gets some"


def test_who_did_not_get_a_message_does_not_find_it_later() -> None:
    """Paged or not, and after a restart: the log has the messages of both."""
    world = World(page_size=3000)
    queues_on(world, "", "")
    for number in range(40):
        world.send("x", b"%d" % number)
        if number == 20:
            world.commit()
    world.commit()
    world = world.restart()
    got = []
    for name in ("x0", "x1"):
        consumer = world.on_queue(world.consumer(name, AckMode.AUTO), "x", name)
        while part := world.settle():
            got += part
            world.engine.flushed(consumer)
    assert Counter(int(one.body) for one in got) == Counter(range(40))
    assert {one.consumer for one in got} == {"x0", "x1"}


# Topics


def test_one_name_as_queue_and_topic() -> None:
    """Each keeps its own messages; the end of a topic subscription never touches the queue's."""
    world = World()
    topic = world.on_topic(world.consumer("topic"), "x")
    queue = world.on_queue(world.consumer("queue"), "x")
    for routing, body in ((ANYCAST, b"a"), (MULTICAST, b"m"), (ANYCAST | MULTICAST, b"am")):
        world.send("x", body, routing=routing)
    got = world.settle()
    assert [one.body for one in got if one.consumer == "queue"] == [b"a", b"am"]
    assert [one.body for one in got if one.consumer == "topic"] == [b"m", b"am"]
    world.close(topic)
    world.close(queue)
    world.on_queue(world.consumer("later"), "x")
    assert [one.body for one in world.settle()] == [b"a", b"am"]


def test_no_local() -> None:
    world = World(page_size=2000)
    consumer = world.on_topic(world.consumer(prefetch=1, session=7), "t", no_local=True)
    for number in range(20):
        world.send_to_topic("t", b"%d" % number, sender=7 if number % 2 else 8)
    world.commit()
    found = []
    while got := world.settle():
        found += [int(one.body) for one in got]
        for one in got:
            world.ack(consumer, one)
    assert found == list(range(0, 20, 2)), "its own are not found in the log either"


def test_wildcards_make_no_topic_of_an_address() -> None:
    """Who listens to everything must not change where messages go that name no kind, nor dead letters."""
    world = World(AddressSetting(match="q", max_delivery_attempts=1, dead_letter_address="dead"))
    world.on_topic(world.consumer("all"), "#")
    consumer = world.on_queue(world.consumer(), "q")
    world.send("q", b"x")
    assert not world.engine.addresses["q"].kinds & MULTICAST
    world.nack(consumer, next(got for got in world.settle() if got.consumer == "c"))
    world.on_queue(world.consumer("undertaker"), "dead")
    assert [got.body for got in world.settle() if got.consumer == "undertaker"] == [b"x"]


# Selectors: how often they are asked


class Asked:
    """Counts the evaluations of selectors."""

    def __init__(self) -> None:
        self.count = 0
        self._matches = Selector.matches

    def __enter__(self) -> Asked:
        counted = self

        def matches(selector: Selector, *arguments: object) -> bool:
            counted.count += 1
            return counted._matches(selector, *arguments)  # type: ignore[arg-type]

        self._patch = patch.object(Selector, "matches", matches)
        self._patch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.stop()


def subscribe_many(world: World, count: int) -> None:
    for number in range(count):
        world.on_topic(world.consumer(f"c{number}", AckMode.AUTO, selector=f"word = '{number}'"), "t")


def test_a_thousand_selectors_are_asked_once_per_shape() -> None:
    world = World()
    subscribe_many(world, 1000)
    shape = Shape({"destination": "t", "word": "7"})
    with Asked() as asked:
        for _ in range(50):
            world.engine.publish(world.address("t"), Run(shape, [b"x"] * 10, routing=MULTICAST))
        assert asked.count == 1000
    assert {got.consumer for got in world.out()} == {"c7"}


def test_a_thousand_selectors_are_asked_once_per_value() -> None:
    """The header varies from message to message, among a few values; no rule finds a selector by its text."""
    world = World()
    for number in range(1000):
        world.on_topic(world.consumer(f"c{number}", AckMode.AUTO, selector=f"word LIKE '{number}'"), "t")
    shape = Shape({"destination": "t"}, holes=("word", "number"))
    with Asked() as asked:
        for start in range(0, 200, 10):
            words = [b"%d" % (number % 5) for number in range(start, start + 10)]
            unlike = [b"%d" % number for number in range(start, start + 10)]
            world.engine.publish(
                world.address("t"), Run(shape, [b"x"] * 10, (words, unlike), routing=MULTICAST)
            )
        assert asked.count == 5 * 1000
    got = world.out()
    assert Counter(one.consumer for one in got) == Counter({f"c{number}": 40 for number in range(5)})
    assert all(one.headers["word"] == one.consumer[1:] for one in got)


def test_values_that_are_too_many_for_one_run_become_known_run_by_run() -> None:
    """Asking all selectors about one value takes more than half of what a run may take; in the end no run is put off."""
    world = World(portion=2000)
    for number in range(1000):
        world.on_topic(world.consumer(f"c{number}", AckMode.AUTO, selector=f"word LIKE '{number}'"), "t")
    shape = Shape({"destination": "t"}, holes=("word", "number"))
    most = 0
    for start in range(0, 100, 10):
        words = [b"%d" % (number % 5) for number in range(start, start + 10)]
        unlike = [b"%d" % number for number in range(start, start + 10)]
        world.engine.work.begin()
        with Asked() as asked:
            world.engine.publish(
                world.address("t"), Run(shape, [b"x"] * 10, (words, unlike), routing=MULTICAST)
            )
        most = max(most, asked.count)
    assert asked.count == 0
    assert 1000 <= most <= 2000


def test_of_a_thousand_selectors_those_are_asked_that_wait_for_this_text() -> None:
    """Values that never come again."""
    world = World()
    for number in range(1000):
        world.on_topic(
            world.consumer(
                f"c{number}", AckMode.AUTO, selector=f"number > -1 AND JMSCorrelationID = '{number}'"
            ),
            "t",
        )
    world.on_topic(world.consumer("all", AckMode.AUTO, selector="number >= 0"), "t")
    shape = Shape({"destination": "t"}, holes=("correlation-id", "number"))
    ids = [b"%d" % number for number in range(990, 1010)]
    with Asked() as asked:
        world.engine.publish(world.address("t"), Run(shape, [b"x"] * 20, (ids, ids), routing=MULTICAST))
        assert asked.count == 20 + 10
    assert Counter(got.consumer for got in world.out()) == Counter(
        {"all": 20} | {f"c{number}": 1 for number in range(990, 1000)}
    )


@pytest.mark.parametrize(
    "text", ["word = '{0}'", "word = {0}", "word BETWEEN {0} AND {0}", "other IS NULL AND word > {0}"]
)
def test_a_plan_for_very_many_selectors_is_made_in_portions(text: str) -> None:
    """Each run of the shape goes on with it, and goes to all who take it all the same; in the end no run is put off."""
    world, count = World(portion=1000), 2000
    for number in range(count):
        world.on_topic(world.consumer(f"c{number}", AckMode.AUTO, selector=text.format(number)), "t")
    shape, address = Shape({"destination": "t"}, holes=("word",)), world.address("t")
    expected = ["c0", "c1", "c2"] if ">" in text else ["c3"]
    runs, is_whole = 0, False
    while not is_whole:
        runs += 1
        world.engine.work.begin()
        with patch.object(matching, "is_of_shape", wraps=matching.is_of_shape) as looked:
            world.engine.publish(address, Run(shape, [b"x"], routing=MULTICAST, columns=([b"3"],)))
        assert looked.call_count <= world.engine.work.most // ADDED + 1
        assert world.engine.work.done <= world.engine.work.most + PLACED * 2 * count
        is_whole = shape.plans[address].is_whole
        assert is_whole or world.out() == []
        assert sorted(got.consumer for got in world.settle()) == expected
    assert count * ADDED // world.engine.work.most <= runs < 50


def test_a_plan_that_is_half_made_begins_anew_where_subscriptions_change() -> None:
    world = World(portion=1000)
    subscribe_many(world, 1000)
    shape, address = Shape({"destination": "t"}, holes=("word",)), world.address("t")
    for _ in range(2):
        for _ in range(2):  # the first of a shape begins a plan, and asks nobody
            world.engine.publish(address, Run(shape, [b"x"], routing=MULTICAST, columns=([b"999"],)))
        assert 0 < len(shape.plans[address].left) < 1000
        late = world.on_topic(world.consumer("late", selector="word = '999'"), "t")
        world.settle()
        world.close(late)
    for _ in range(10):
        world.engine.publish(address, Run(shape, [b"x"], routing=MULTICAST, columns=([b"999"],)))
        assert [got.consumer for got in world.settle()] == ["c999"]
    assert shape.plans[address].is_whole


def test_very_many_selectors_that_wait_for_one_text_are_asked_in_portions() -> None:
    world, count = World(portion=1000), 2000
    for number in range(count):
        selector = f"word = 'same' AND other <> '{number}'"
        world.on_topic(world.consumer(f"c{number}", AckMode.AUTO, selector=selector), "t")
    shape, address = Shape({"destination": "t", "other": "x"}, holes=("word",)), world.address("t")
    for _ in range(20):
        world.engine.work.begin()
        with Asked() as asked:
            world.engine.publish(address, Run(shape, [b"x"], routing=MULTICAST, columns=([b"same"],)))
        assert world.engine.work.done <= world.engine.work.most + world.engine.work.portion
        assert len(world.settle()) == count
    assert asked.count == 0
    world.engine.publish(address, Run(shape, [b"x"], routing=MULTICAST, columns=([b"another"],)))
    assert world.settle() == []


def test_subscriptions_that_come_later_are_asked() -> None:
    world = World()
    shape = Shape({"destination": "t", "word": "1"})
    subscribe_many(world, 1)
    world.engine.publish(world.address("t"), Run(shape, [b"0"], routing=MULTICAST))
    late = world.on_topic(world.consumer("late", selector="word = '1'"), "t")
    world.engine.publish(world.address("t"), Run(shape, [b"1"], routing=MULTICAST))
    assert [(got.consumer, got.body) for got in world.out()] == [("late", b"1")]
    world.close(late)
    world.engine.publish(world.address("t"), Run(shape, [b"2"], routing=MULTICAST))
    assert world.out() == []


def test_a_shape_does_not_remember_selectors_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request waits for its answer with a selector of its own; the answers look alike."""
    monkeypatch.setattr(engine, "VERDICTS", FEW_VERDICTS)
    world = World()
    world.on_queue(world.consumer("other", selector="word = 'other'"), "q")
    shape = Shape({"destination": "q", "word": "x"})
    for number in range(FEW_VERDICTS + 200):
        consumer = world.on_queue(world.consumer(selector=f"id = '{number}'"), "q")
        world.engine.publish(world.address("q"), Run(shape, [b""], routing=ANYCAST))
        purge(world.queue("q"))
        world.close(consumer)
    assert FEW_VERDICTS // 2 < len(world.engine.verdicts) <= FEW_VERDICTS


def test_what_selectors_say_of_shapes_that_stay_is_forgotten_in_the_end() -> None:
    """Of each of very many retained messages a thousand subscriptions ask the same."""
    world = World()
    for number in range(200):
        world.on_topic(world.consumer(f"c{number}", selector=f"word = '{number}'"), "t")
    shapes = [Shape({"destination": "t", "word": str(number)}) for number in range(200)]
    for shape in shapes:
        world.engine.publish(world.address("t"), Run(shape, [b""], routing=MULTICAST))
    assert len(world.out()) == 200
    assert VERDICTS // 2 < len(world.engine.verdicts) <= VERDICTS


def test_plans_of_shapes_that_stay_are_forgotten_in_the_end_and_made_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plans, "MOST", 20 * PLAN)
    world = World()
    world.on_topic(world.consumer("a", selector="word = '1' OR n > 5"), "t")
    world.on_topic(world.consumer("b", selector="word IS NOT NULL"), "t")
    shapes = [Shape({"destination": "t", "word": str(number)}, holes=("n",)) for number in range(100)]
    for _ in range(2):
        for number, shape in enumerate(shapes):
            run = Run(shape, [b"", b""], routing=MULTICAST, columns=([b"%d" % number, b"3"],))
            world.engine.publish(world.address("t"), run)
            assert world.engine.plans.size <= 20 * PLAN + 2 * (TAKERS + QUEUE)
            expected = ["a"] * ((number > 5) + (number == 1) + (number == 1)) + ["b"] * 2
            assert sorted(got.consumer for got in world.out()) == expected
    assert 0 < len(world.engine.plans) < 30
    address = world.address("t")
    address.look_again()
    assert (len(world.engine.plans), world.engine.plans.size) == (0, 0)


@pytest.mark.parametrize("text", ["JMSDeliveryMode = 'PERSISTENT'", "AMQAddress = 'x'"])
def test_one_shape_at_two_addresses(text: str) -> None:
    """What a selector says to a shape may depend on the address: its name, its default of persistence."""
    world = World(AddressSetting(match="y", default_persistent=False))
    for name in ("x", "y"):
        world.on_topic(world.consumer(name, selector=text), name)
    shape = Shape({"destination": "either"})
    for name in ("y", "x", "y"):
        world.engine.publish(world.address(name), Run(shape, [b""], routing=MULTICAST))
    assert [got.consumer for got in world.out()] == ["x"]
