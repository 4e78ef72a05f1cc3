"""Work is counted in steps, and long work goes on in the next turn where it was: nothing is asked twice, nothing holds up a turn."""

from __future__ import annotations

from itertools import count

import pytest

from stompbox.broker.addresses.contracts import Divert
from stompbox.broker.kinds import Kind
from stompbox.broker.queues import arrivals, reclaim
from stompbox.broker.queues.consumer import AckMode
from stompbox.broker.queues.matching import asking_ahead
from stompbox.broker.queues.questions import OPEN
from stompbox.broker.transactions import Transaction, committing
from stompbox.broker.undelivered import TOO_EXPENSIVE, Fate, Loss
from stompbox.broker.work import HANDED, QUESTION, TIME, Turns, Work
from stompbox.message import ANYCAST, MULTICAST, Run, Shape
from stompbox.selectors import Selector, compile_selector
from stompbox.selectors.selector import Selector as Asked
from tests.broker.world import NOW, PORTION, Got, World


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts of selectors, each time that one is asked about a message."""
    found: list[str] = []
    matches = Asked.matches

    def counted(self: Selector, *arguments: object) -> bool:
        found.append(self.text)
        return matches(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Asked, "matches", counted)
    return found


def send(world: World, count: int, name: str = "q") -> None:
    for number in range(count):
        world.send(name, b"%d" % number, headers={"n": str(number)})


def turns(world: World) -> tuple[list[Got], int]:
    """All that comes, and the most steps that a turn took."""
    got, most = world.out(), 0
    work = world.engine.work
    before = work.total + work.done
    while world.engine.dispatch_rest(lambda: False) or world.serve() or world.engine.touched:
        most, before = max(most, work.total + work.done - before), work.total + work.done
        got += world.out()
    return got, most


def test_each_waits_once_and_goes_on_behind_the_others() -> None:
    work, said = Work(10), []
    later = Turns(work)

    def step(name: str) -> None:
        said.append(name)
        work.spend(10)

    for name in ("a", "b", "a"):
        later.add(name, lambda name=name: step(name))  # type: ignore[misc]
    assert later.run(lambda: False)
    later.add("a", lambda: step("a"))
    assert later.run(lambda: True)
    assert not later.run(lambda: True)
    assert said == ["a", "b", "a"]


def test_a_portion_is_late_when_its_steps_or_its_time_are_used_up() -> None:
    now = [1.0]
    work = Work(10)
    work.time_by(lambda: now[0])
    assert not work.is_late and work.has_begun, "from now on its time is counted"
    now[0] += TIME / 2
    assert not work.is_late
    now[0] += TIME
    assert work.is_late and not work.is_over
    work.begin()
    assert not work.has_begun and not work.is_late
    work.spend(10)
    assert work.is_late and work.is_over
    idle = Work(10)
    assert not idle.is_late and not idle.has_begun, "nobody has a clock"


def test_steps_that_take_longer_than_was_thought_are_fewer_of_a_portion() -> None:
    """Messages that expire together: each look at the clock takes a tenth of a portion here."""
    world = World()
    looks = count(1)
    for number in range(400):
        world.send("q", b"%d" % number, expires=NOW + 1)
    world.engine.work.time_by(lambda: next(looks) * TIME / 10)
    world.tick(2)
    expired = world.engine.counters
    before = expired["expired"]
    assert 0 < before < 400
    while world.engine.dispatch_rest(lambda: False):
        assert expired["expired"] - before <= 12 * arrivals.STEP
        before = expired["expired"]
    assert before == 400


def test_clients_take_turns_however_much_one_of_them_has() -> None:
    said: list[str] = []
    later = Turns(Work(10))
    for number in range(100):
        later.add(("much", number), lambda number=number: said.append(f"much {number}"), by=1)  # type: ignore[misc]
    for name in ("one", "two"):
        later.add(name, lambda name=name: said.append(name), by=2)  # type: ignore[misc]
    later.add("nobody's", lambda: said.append("nobody's"))
    assert (len(later), later.run(lambda: len(said) < 6)) == (103, True)
    assert said == ["much 0", "one", "nobody's", "much 1", "two", "much 2"]
    while later.run(lambda: True):
        pass
    assert said[6:] == [f"much {number}" for number in range(3, 100)]
    assert not later.waiting


def test_a_queue_of_one_client_waits_for_one_of_each_other_client(asked: list[str]) -> None:
    """Not for all the queues that another has with selectors and a backlog."""
    world = World(portion=100)
    for name in [*[f"much {number}" for number in range(50)], "one"]:
        send(world, 30, name)
    for number in range(50):
        consumer = world.consumer(f"much {number}", selector=f"n = {number + 100}", session=1)
        world.on_queue(consumer, f"much {number}")
    world.on_queue(world.consumer("one", selector="n = 29", session=2), "one")
    turn = 0
    while not world.out():
        assert world.engine.dispatch_rest(lambda: False)
        turn += 1
    # 30 questions of 13 steps each
    assert turn <= 20


@pytest.mark.parametrize("selector", ["", "n < 1000"])
def test_messages_that_wait_each_by_itself_are_handed_out_few_at_a_time(selector: str) -> None:
    """That is dearer than to move them: a portion of it is to be no longer than others are."""
    world = World(portion=1000)
    send(world, 100)
    world.on_queue(world.consumer("c", AckMode.AUTO, selector=selector), "q")
    got = world.out()
    while world.engine.dispatch_rest(lambda: False):
        more = world.out()
        assert len(more) <= 1000 // HANDED
        got += more
    assert [one.body for one in got] == [b"%d" % number for number in range(100)]


def test_a_selector_is_asked_once_about_each_message_that_waits(asked: list[str]) -> None:
    """Whoever comes or goes beside it: what was asked is remembered."""
    world = World()
    send(world, 3000)
    consumers = [
        world.on_queue(world.consumer(f"c{n}", AckMode.AUTO, selector=f"n = {n * 100}"), "q")
        for n in range(10)
    ]
    got, most = turns(world)
    assert sorted(int(one.body) for one in got) == [n * 100 for n in range(10)]
    assert len(asked) <= 10 * 3000
    asked.clear()
    world.close(consumers[0])
    turns(world)
    world.send("q", b"new", headers={"n": "new"})
    turns(world)
    assert len(asked) <= 2 * 9, "about what came back, and what came"
    assert most < 2 * PORTION


def test_joining_a_long_queue_takes_many_turns(asked: list[str]) -> None:
    world = World(portion=1000)
    send(world, 2000)
    world.engine.work.begin()
    world.on_queue(world.consumer("last", AckMode.AUTO, selector="n = 1999"), "q")
    assert len(asked) < 100
    assert world.bodies() == []
    got, most = turns(world)
    assert [one.body for one in got] == [b"1999"]
    assert most < 1200
    assert len(asked) == 2000


def test_a_search_of_the_log_remembers_where_it_was(asked: list[str]) -> None:
    """Each selector has seen each message once, although one consumer came after the other and none found anything."""
    world = World(page_size=6000, portion=1000)
    send(world, 1000)
    world.commit()
    for number in range(5):
        world.on_queue(world.consumer(f"c{number}", AckMode.AUTO, selector=f"n = {-number - 1}"), "q")
        turns(world)
    assert len(asked) <= 5 * 1000 + 5 * 50
    asked.clear()
    world.send("q", b"one more", headers={"n": "x"})
    _, most = turns(world)
    assert len(asked) <= 5
    assert most < 1200


@pytest.mark.parametrize("is_durable", [True, False])
def test_selectors_that_cost_more_than_a_turn_are_asked_later(asked: list[str], is_durable: bool) -> None:
    """Each in a turn of its own; in order, and nothing is lost."""
    world = World(portion=500)
    terms = " OR ".join(f"h{term} = 'x'" for term in range(100))
    for number in range(20):
        consumer = world.consumer(
            f"c{number}", AckMode.AUTO, selector=f"n = {number} OR {terms}", session=number
        )
        if is_durable:
            world.on_durable(consumer, f"d{number}", "t")
        else:
            world.on_topic(consumer, "t")
    world.engine.work.begin()
    for number in range(20):
        world.send_to_topic("t", b"%d" % number, headers={"n": str(number)})
    assert not asked
    got, most = turns(world)
    assert sorted((one.consumer, int(one.body)) for one in got) == sorted(
        (f"c{number}", number) for number in range(20)
    )
    assert len(asked) == 20 * 20
    assert most < 3 * 500
    if is_durable:
        for consumer in {id(one.queue): one.queue.bindings[0].consumer for one in got}.values():
            world.engine.flushed(consumer)
        world.commit()
        assert world.engine.addresses["t"].log.low_water() == 20


def test_what_was_put_off_comes_after_a_restart() -> None:
    world = World(portion=10)
    durable = world.on_durable(world.consumer("c", AckMode.AUTO, selector="n = 1 OR n = 2"), "d", "t")
    world.send_to_topic("t", b"1", headers={"n": "1"})
    world.send_to_topic("t", b"3", headers={"n": "3"})
    world.close(durable)
    world.commit()
    world = world.restart()
    world.on_durable(world.consumer("c", AckMode.AUTO, selector="n = 1 OR n = 2"), "d", "t")
    assert [got.body for got in world.settle()] == [b"1"]


def test_a_selector_that_takes_too_many_steps_does_not_match_and_is_told() -> None:
    world = World()
    paths = " OR ".join(f"XPATH '//a[. = {number}]'" for number in range(90))
    world.on_topic(world.consumer(selector=paths), "t")
    body = b"<r>" + b"<b>1</b>" * 5000 + b"</r>"
    world.engine.work.begin()
    world.send_to_topic("t", body)
    assert world.engine.work.done < 60_000
    assert world.settle() == []
    assert world.engine.undelivered.take() == [(Loss("t", TOO_EXPENSIVE, Fate.NOT_MATCHED), 1)]


def test_all_likes_of_a_selector_share_its_steps() -> None:
    selector = compile_selector(" OR ".join(f"h LIKE '%a_b{number}%'" for number in range(400)))
    world = World()
    world.on_topic(world.consumer(selector=selector.text), "t")
    world.engine.work.begin()
    world.send_to_topic("t", b"", headers={"h": "a" * 60_000})
    got, longest = turns(world)
    assert not got
    assert longest < 60_000 * QUESTION
    assert world.engine.undelivered.counts[Loss("t", TOO_EXPENSIVE, Fate.NOT_MATCHED)] == 1
    world.send_to_topic("t", b"found", headers={"h": "xaxb7"})
    assert [got.body for got in world.settle()] == [b"found"]


def test_a_reader_whose_window_was_given_back_reads_it_again() -> None:
    """Its cursor had passed what it had in memory."""
    world = World(portion=PORTION)
    world.engine.address("t").log.keeps = 100
    reader = world.on_topic(world.consumer(prefetch=1), "t")
    queue = next(iter(reader.bindings.values())).queue
    for _ in range(2):
        for number in range(6):
            world.send_to_topic("t", b"%d" % number)
        world.commit()
        taken = got = world.settle()
        reclaim.give_back(queue)
        while got:
            for one in got:
                world.ack(reader, one)
            got = world.settle()
            if queue.backlog.count:
                reclaim.give_back(queue)
            taken = taken + got
        assert [int(one.body) for one in taken] == list(range(6))


def conditions(count: int) -> list[str]:
    """Selectors that no message is, and that cannot be told from their texts."""
    return [f"n = -{number} - 1 OR n = {number} + 0.5" for number in range(count)]


def test_one_message_for_thousands_of_selectors_is_asked_about_in_many_turns(asked: list[str]) -> None:
    """The one consumer whose selector takes it gets it; each selector was asked once, and no turn did more than its portion."""
    world = World(portion=500)
    for number, selector in enumerate(conditions(1000)):
        world.on_queue(world.consumer(f"c{number}", AckMode.AUTO, selector=selector, session=number), "q")
    world.on_queue(world.consumer("last", AckMode.AUTO, selector="n = 'x' OR n IS NULL"), "q")
    world.engine.work.begin()
    for body in (b"1", b"2", b"3"):
        world.send("q", body, headers={"n": "x"})
    assert not asked
    got, most = turns(world)
    assert [(one.consumer, one.body) for one in got] == [("last", b"1"), ("last", b"2"), ("last", b"3")]
    assert most < 2 * 500
    assert len(asked) == 3 * 1001


def test_a_message_that_costs_two_portions_is_asked_about_in_several_turns(asked: list[str]) -> None:
    world = World(portion=500)
    texts = conditions(1000)
    steps, number = 0, 0
    while steps < 1000:
        steps += compile_selector(texts[number]).steps
        number += 1
    for at, text in enumerate(texts[:number]):
        world.on_queue(world.consumer(f"c{at}", AckMode.AUTO, selector=text, session=at), "q")
    world.engine.work.begin()
    world.send("q", b"1", headers={"n": "x"})
    assert not asked
    _, most = turns(world)
    assert most < 1.5 * 500
    assert len(asked) == number


def test_who_comes_while_a_message_is_asked_about_is_asked_too(asked: list[str]) -> None:
    world = World(portion=500)
    consumers = [
        world.on_queue(world.consumer(f"c{n}", AckMode.AUTO, selector=text), "q")
        for n, text in enumerate(conditions(200))
    ]
    world.send("q", b"it", headers={"n": "x"})
    for _ in range(3):
        world.engine.dispatch_rest(lambda: False)
    assert 20 < len(asked) < 150
    world.close(consumers[0])
    late = world.consumer("late", AckMode.AUTO, selector="n = 'x' AND n IS NOT NULL")
    world.on_queue(late, "q")
    got, most = turns(world)
    assert [(one.consumer, one.body) for one in got] == [("late", b"it")]
    assert most < 2 * 500
    assert len(asked) <= 201


def test_a_search_of_the_log_asks_about_a_message_in_many_turns(asked: list[str]) -> None:
    """Also where memory is full of what nobody takes."""
    world = World(page_size=3000, portion=500)
    send(world, 100)
    world.commit()
    for number, selector in enumerate([*conditions(100), "n = 99 OR n = 98.5"]):
        world.on_queue(world.consumer(f"c{number}", AckMode.AUTO, selector=selector, session=number), "q")
    got, most = turns(world)
    assert [one.body for one in got] == [b"99"]
    assert most < 3 * 500
    assert len(asked) <= 3 * 100 * 101


def test_lanes_that_are_empty_are_forgotten() -> None:
    """Each of these messages is taken by others than all before it."""
    world = World()
    consumers = [
        world.on_queue(world.consumer(f"c{n}", AckMode.AUTO, selector=f"b{n} = 1 OR z = {n}"), "q")
        for n in range(11)
    ]
    for number in range(1, 2000):
        world.send("q", b"", headers={f"b{bit}": "1" for bit in range(11) if number >> bit & 1})
        if number % 100 == 0:
            world.settle()
            for consumer in consumers:
                world.engine.flushed(consumer)
    queue = next(iter(world.engine.addresses["q"].anycast.values()))
    assert len(queue.backlog.by_lane) < 1000


DEEP = b"<a>" * 300 + b"</a>" * 300


@pytest.mark.parametrize("kind", ["topic", "durable", "stream", "queue"])
def test_many_xpaths_and_many_messages_are_asked_in_many_turns(asked: list[str], kind: str) -> None:
    """What an XPATH costs shows when it is asked; what is too much for one turn waits for others, in order."""
    world = World(portion=2000)
    for number in range(6):
        consumer = world.consumer(
            f"c{number}", AckMode.AUTO, selector=f"XPATH 'count(//a[.//a]) > {number}'", session=number
        )
        if kind == "durable":
            world.on_durable(consumer, f"d{number}", "t")
        elif kind == "stream":
            world.on_stream(consumer, "t", 0)
        elif kind == "topic":
            world.on_topic(consumer, "t")
        else:
            world.on_queue(consumer, "t")
    most = 0
    for number in range(8):
        world.engine.work.begin()
        (world.send if kind == "queue" else world.send_to_topic)("t", DEEP + b"<!--%d-->" % number)
        most = max(most, world.engine.work.done)
    world.commit()
    got, later = turns(world)
    assert max(most, later) < 80_000, "one evaluation, and five portions"
    assert len(got) == (8 if kind == "queue" else 48)
    for consumer in {one.consumer for one in got}:
        bodies = [one.body for one in got if one.consumer == consumer]
        assert bodies == sorted(bodies)


@pytest.mark.parametrize("kind", ["topic", "durable", "queue"])
def test_of_many_xpaths_no_more_are_asked_in_one_turn_than_have_room_in_its_portion(kind: str) -> None:
    """Neither when a message comes nor later, although what is next is in memory: each of them may take long."""
    world = World(portion=2000)
    body = b"<r>" + b"<a>1</a>" * 100 + b"</r>"
    for number in range(20):
        consumer = world.consumer(
            f"c{number}", AckMode.AUTO, selector=f"XPATH '//a[. > {-number}]'", session=number
        )
        if kind == "durable":
            world.on_durable(consumer, f"d{number}", "t")
        elif kind == "topic":
            world.on_topic(consumer, "t")
        else:
            world.on_queue(consumer, "t")
    at_once = 0
    for number in range(6):
        world.engine.work.begin()
        (world.send if kind == "queue" else world.send_to_topic)("t", body + b"<!--%d-->" % number)
        at_once = max(at_once, world.engine.work.done)
        if number % 2:
            world.commit()
        if number % 3 == 0:
            world.engine.dispatch_rest(lambda: False)
    got, later = turns(world)
    assert len(got) == (6 if kind == "queue" else 120)
    one = 2000  # steps that each of them takes, about
    assert at_once < 2000 + one
    assert later < 2000 + one + 200


def test_what_was_read_of_the_log_has_a_portion_of_its_own() -> None:
    """The store answers when nobody's turn goes on; what the last turn has left over is no measure."""
    taken = []
    for spent in (0, PORTION):
        world = World(page_size=3000)
        send(world, 100)
        world.commit()
        busy = world.on_queue(world.consumer("c", prefetch=10), "q")
        while world.engine.dispatch_rest():
            pass
        for got in world.out():
            world.ack(busy, got)
        while not world.engine.loads:
            for got in world.out():
                world.ack(busy, got)
        world.engine.work.begin()
        world.engine.work.spend(spent)
        before = world.queue("q").count + world.queue("q").delivering
        assert world.serve()
        taken.append(world.queue("q").count + world.queue("q").delivering - before)
    assert taken[0] == taken[1] > 1


DEEP = b"<a>" * 60 + b"</a>" * 60
LOOKS = compile_selector("XPATH 'count(//a[.//a]) > 20'")
EXPENSIVE = compile_selector(" OR ".join(f"XPATH '//a[. = {number}]'" for number in range(90)))


def diverted(messages: int) -> tuple[World, Transaction]:
    """A transaction whose messages a divert looks into, and a filter where that sends them."""
    world = World(portion=PORTION)
    world.engine.add_divert("a", Divert("deep", "b", LOOKS, exclusive=False))
    world.engine.new_queue(world.address("b"), "b", Kind.ANYCAST, selector=compile_selector("XPATH '//a'"))
    transaction = Transaction("t")
    for number in range(messages):
        body = DEEP if number % 2 else b"<b/>"
        transaction.sends.append(
            (world.address("a"), Run(Shape({"destination": "/queue/a"}), [body, b"%d" % number]))
        )
    return world, transaction


def test_a_commit_is_looked_into_before_its_unit_begins(asked: list[str]) -> None:
    """Others' commits are taken meanwhile; while none is, nothing is left to be asked."""
    world, transaction = diverted(20)
    ahead = 0
    for _ in committing(world.engine, transaction, is_answered=True):
        if world.engine.commits.is_held:
            assert not asked
        else:
            ahead += 1
            asked.clear()
    assert not asked
    assert ahead > 40, "each message is a step"
    assert sum(got.body == DEEP for got in world.waiting_in("b")) == 10
    assert len(world.waiting_in("a")) == 40


def test_what_is_asked_ahead_says_what_it_would_say_then() -> None:
    ahead, transaction = diverted(6)
    for _ in committing(ahead.engine, transaction, is_answered=False):
        pass
    plain, transaction = diverted(6)
    for address, run in transaction.sends:
        plain.engine.prepare([(address, run)], None)
        plain.engine.publish(address, run)
    for name in ("a", "b"):
        assert [got.body for got in ahead.waiting_in(name)] == [got.body for got in plain.waiting_in(name)]


def test_what_is_too_expensive_is_told_once_when_it_is_sent() -> None:
    world = World(portion=PORTION)
    world.engine.add_divert("a", Divert("deep", "b", EXPENSIVE, exclusive=False))
    transaction = Transaction("t")
    body = b"<r>" + b"<b>1</b>" * 5000 + b"</r>"
    transaction.sends.append((world.address("a"), Run(Shape({"destination": "/queue/a"}), [body])))
    steps = committing(world.engine, transaction, is_answered=False)
    while not world.engine.commits.is_held:
        assert not world.engine.undelivered.counts
        next(steps)
    for _ in steps:
        pass
    assert world.engine.undelivered.take() == [(Loss("a", TOO_EXPENSIVE, Fate.NOT_MATCHED), 1)]


def test_of_questions_that_are_asked_ahead_few_are_open_at_once_and_the_others_wait() -> None:
    """Each has a document in memory."""
    world = World(portion=2_000)
    body = b"<r>" + b"<b>1</b>" * 5000 + b"</r>"
    runs = [Run(Shape({"destination": "/queue/a"}), [body]) for _ in range(OPEN + 1)]
    steps = [asking_ahead(EXPENSIVE, run, world.address("a")) for run in runs]
    for one in steps:
        next(one)
    for _ in range(100):
        next(steps[OPEN])
    assert not runs[OPEN].asked
    for _ in steps[0]:
        pass
    for one in steps[::-1]:
        for _ in one:
            pass
    assert all(run.asked for run in runs)


@pytest.mark.parametrize("is_topic", [True, False])
@pytest.mark.parametrize("holes", [(), ("text",)])
def test_patterns_are_looked_for_in_long_headers_in_portions(
    *, is_topic: bool, holes: tuple[str, ...]
) -> None:
    """Twenty selectors that take 30,000 steps each for every message: no turn takes more than two portions."""
    world, found = World(portion=2_000), []
    for number in range(20):
        ends = "b" if number % 5 else "c"
        consumer = world.consumer(
            f"c{number}", AckMode.AUTO, selector=f"text LIKE '%a_{ends}{number}%'", session=number
        )
        (world.on_topic if is_topic else world.on_queue)(consumer, "t")
    values = ["a" * 60_000 + "axc5", "a" * 60_000 + "axb6", "a" * 60_000]
    work, most = world.engine.work, 0
    for value in values:
        work.begin()
        headers = {"destination": f"/{'topic' if is_topic else 'queue'}/t"}
        shape = Shape(headers if holes else {**headers, "text": value}, holes=holes)
        run = Run(shape, [value[-1].encode()], ([value.encode()],) if holes else ())
        run.routing = MULTICAST if is_topic else ANYCAST
        world.engine.publish(world.address("t"), run)
        most = max(most, work.done)
    got, longest = turns(world)
    found = [(one.consumer, one.body) for one in got]
    assert sorted(found) == [("c5", b"5"), ("c6", b"6")]
    assert max(most, longest) < 3 * 2_000
