"""What looks into bodies is asked in portions, wherever it is asked: no turn takes much more, and each consumer gets what it would."""

from __future__ import annotations

import pytest

from stompbox.broker.engine import PAGE_SIZE
from stompbox.broker.queues import questions
from stompbox.broker.queues.browsing import browse
from stompbox.broker.subscriptions.subscribers import start
from stompbox.broker.work import QUESTION, Work
from stompbox.config.settings import AddressSetting
from stompbox.message import ANYCAST, MULTICAST
from tests.broker.world import World

ELEMENTS = 1500
NODES = 2 * ELEMENTS + 3
PORTION = 1000
MOST = PORTION + 3 * QUESTION * NODES  # what a condition on all nodes costs is paid in one go


def body(number: int) -> bytes:
    return b"<a>" + b"<b>x</b>" * ELEMENTS + b"<c>%d</c></a>" % number


def path(number: int) -> str:
    return f"XPATH '//c[. = {number}] and not(//b[. = {number}])'"


def longest_turn(world: World) -> int:
    """Steps of the longest of the turns that follow until nothing is left to do."""
    work, most = world.engine.work, 0
    work.begin()
    for _ in range(100_000):
        before = work.total + work.done
        if not (world.engine.dispatch_rest(lambda: False) or world.serve(max_bytes=1)):
            return most
        most = max(most, work.total + work.done - before)
    raise AssertionError("it does not end")


def sent(world: World, name: str, count: int, **more: object) -> int:
    """Steps of the longest send; each is a turn of its own."""
    most = 0
    for number in range(count):
        world.engine.work.begin()
        world.send(name, body(number), **more)  # type: ignore[arg-type]
        most = max(most, world.engine.work.done)
    return most


@pytest.mark.parametrize("consumers", [1, 3])
def test_of_a_queue(consumers: int) -> None:
    world = World(portion=PORTION)
    for number in range(consumers):
        world.on_queue(world.consumer(str(number), selector=path(number)), "q")
    assert sent(world, "q", 4) <= MOST
    assert longest_turn(world) <= MOST
    assert {(got.consumer, got.body) for got in world.settle()} == {
        (str(number), body(number)) for number in range(consumers)
    }
    assert world.queue("q").backlog.count == 4 - consumers


def test_of_a_queue_that_has_messages_already_and_is_paged() -> None:
    world = World(AddressSetting(match="q", max_size_bytes=1), portion=PORTION)
    sent(world, "q", 4)
    for number in (3, 1):
        world.on_queue(world.consumer(str(number), selector=path(number)), "q")
    assert longest_turn(world) <= MOST
    assert {(got.consumer, got.body) for got in world.settle()} == {("3", body(3)), ("1", body(1))}


def test_of_a_topic() -> None:
    world = World(portion=PORTION)
    for number in range(6):
        world.on_topic(world.consumer(str(number), selector=path(number)), "t")
    assert sent(world, "t", 3, routing=MULTICAST) <= MOST
    assert longest_turn(world) <= MOST
    assert [(got.consumer, got.body) for got in world.settle()] == [
        (str(number), body(number)) for number in range(3)
    ]


def abandoned(world: World, session: int) -> None:
    """A client has as many questions open as it may, and goes."""
    gone = [world.consumer(str(n), selector=path(n), session=session) for n in range(questions.OF_ONE)]
    for number, consumer in enumerate(gone):
        world.on_queue(consumer, f"q{number}")
        world.send(f"q{number}", body(0))
    world.engine.work.begin()
    for _ in range(2 * questions.OF_ONE):
        world.engine.dispatch_rest(lambda: False)
    for consumer in gone:
        world.close(consumer)


def test_questions_that_nobody_comes_back_to_hold_up_nobody_else() -> None:
    world = World(portion=PORTION)
    abandoned(world, session=1)
    world.on_queue(world.consumer("other", selector=path(1), session=2), "next")
    world.send("next", body(1))
    assert [got.body for got in world.settle()] == [body(1)]


def test_and_go_after_a_while() -> None:
    world = World(portion=PORTION)
    abandoned(world, session=1)
    world.on_queue(world.consumer("next", selector=path(1), session=1), "next")
    world.send("next", body(1))
    for _ in range(10):
        world.engine.dispatch_rest(lambda: False)
    assert not world.out(), "the others may come back"
    world.engine.tick(world.engine.now + questions.FORGOTTEN)
    assert [got.body for got in world.settle()] == [body(1)]


def test_those_of_a_subscription_go_with_it() -> None:
    world = World(portion=PORTION)
    gone = [world.consumer(str(n), selector=path(n)) for n in range(questions.OF_ONE)]
    for consumer in gone:
        world.on_topic(consumer, "t")
    world.send_to_topic("t", body(0))
    for _ in range(2 * questions.OF_ONE):
        world.engine.dispatch_rest(lambda: False)
    assert len(world.engine.questions)
    for consumer in gone:
        world.close(consumer)
    assert not len(world.engine.questions)


def asking(world: World, clients: int) -> None:
    for number in range(clients):
        world.on_queue(world.consumer(str(number), selector=path(1), session=number), f"q{number}")
        world.send(f"q{number}", body(1))


def test_where_very_many_clients_ask_each_gets_its_answer_and_none_in_one_go() -> None:
    world = World(portion=PORTION)
    asking(world, 2 * questions.OPEN)
    for _ in range(4 * questions.OPEN):
        world.engine.dispatch_rest(lambda: False)
        assert len(world.engine.questions) <= questions.OPEN
    assert longest_turn(world) <= MOST
    assert len(world.settle()) == 2 * questions.OPEN


def test_who_has_gone_holds_up_the_line_for_a_while_at_the_most() -> None:
    world = World(portion=PORTION)
    asking(world, questions.OPEN)
    for _ in range(questions.OPEN):
        world.engine.dispatch_rest(lambda: False)
    first = world.consumer("first", selector=path(1), session=100)
    world.on_topic(first, "t")
    world.send_to_topic("t", body(1))
    for _ in range(questions.OPEN + 1):
        world.engine.dispatch_rest(lambda: False)
    world.close(first)
    world.on_queue(world.consumer("second", selector=path(1), session=101), "next")
    world.send("next", body(1))
    world.engine.tick(world.engine.now + questions.FORGOTTEN)
    assert len(world.settle()) == questions.OPEN + 1


def test_of_those_asked_ahead_few_are_open_and_who_came_first_is_next() -> None:
    line = questions.Questions(Work())
    places = [line.ahead() for _ in range(questions.OPEN + 2)]
    entered = [place.__enter__() for place in places]
    assert [place.may_ask for place in entered] == [True] * questions.OPEN + [False] * 2
    places[3].__exit__(None, None, None)
    assert [place.may_ask for place in entered[-2:]] == [True, False]


@pytest.mark.parametrize("kind", ["memory", "log", "goes on"])
def test_of_a_browser(kind: str) -> None:
    world = World(portion=PORTION, page_size=20_000 if kind == "log" else PAGE_SIZE)
    if kind != "goes on":
        sent(world, "q", 6)
    assert world.address("q", ANYCAST) is not None
    consumer = world.consumer("b", selector=path(4), prefetch=-1)
    queue = world.engine.anycast_queue(world.address("q"))
    world.engine.work.begin()
    browse(world.engine, queue, consumer, goes_on=kind == "goes on")
    start(consumer)
    if kind == "goes on":
        assert sent(world, "q", 6) <= MOST
    assert world.engine.work.done <= MOST
    assert longest_turn(world) <= MOST
    got = [one.headers.get("browser", one.body) for one in world.settle()]
    assert got == [body(4), *(() if kind == "goes on" else ("end",))]
    assert world.waiting_in("q")[0].body == body(0), "nothing was taken"


def test_of_who_looks_at_a_durable_subscription_with_one() -> None:
    world = World(portion=PORTION, page_size=20_000)
    consumer = world.on_durable(world.consumer("d", selector=path(4)), "d", "t")
    world.close(consumer)
    for number in range(6):
        world.engine.work.begin()
        world.send_to_topic("t", body(number))
        world.commit()
    longest_turn(world)
    (queue,) = next(iter(world.engine.durables.values())).queues
    looking = world.consumer("b", prefetch=-1)
    world.engine.work.begin()
    browse(world.engine, queue, looking, goes_on=False)
    start(looking)
    assert world.engine.work.done <= MOST
    assert longest_turn(world) <= MOST
    assert [one.headers.get("browser", one.body) for one in world.settle()] == [body(4), "end"]


def test_who_looks_and_goes_half_way_leaves_nothing() -> None:
    world = World(portion=PORTION)
    sent(world, "q", 6)
    consumer = world.consumer("b", selector=path(4), prefetch=-1)
    browse(world.engine, world.queue("q"), consumer, goes_on=False)
    start(consumer)
    world.engine.dispatch_rest(lambda: False)
    world.close(consumer)
    assert longest_turn(world) <= MOST
    assert list(world.engine.queues.values()) == [world.queue("q")]
    assert not world.engine.returning


@pytest.mark.parametrize(("number", "expected"), [(1, [1, 7]), (2, [7])], ids=["taken", "left"])
def test_of_retained_messages(number: int, expected: list[int]) -> None:
    """Of very many topics; what is retained comes before what comes meanwhile."""
    world = World(portion=PORTION)
    for name in "abcd":
        world.send_to_topic(name, body(1), headers={"retain": "set"})
    text = f"{path(number)} OR {path(7)}"
    consumer = world.consumer("c", selector=text)
    world.engine.work.begin()
    for name in "abcd":
        world.on_topic(consumer, name)
    assert world.engine.work.done <= MOST
    world.engine.work.begin()
    for name in "abcd":
        world.send_to_topic(name, body(7))
    assert world.engine.work.done <= 2 * MOST
    assert longest_turn(world) <= 2 * MOST
    got = world.settle()
    for name in "abcd":
        assert [one.body for one in got if one.queue.address.name == name] == [body(n) for n in expected]
