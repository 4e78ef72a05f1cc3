"""Backlogs side by side, one for each combination of selectors that takes what waits in it."""

from __future__ import annotations

from functools import partial
from random import Random

import pytest

from stompbox.broker.queues.consumer import AckMode, Consumer
from stompbox.broker.queues.lanes import KNOWN, WIDE
from stompbox.broker.transactions import Transaction
from stompbox.broker.work import ASKED
from stompbox.config.settings import AddressSetting
from tests.broker.test_very_many import lines
from tests.broker.world import Got, World


def test_each_consumer_gets_what_its_selector_takes() -> None:
    world = World()
    world.on_queue(world.consumer("red", selector="colour = 'red'"), "q")
    world.on_queue(world.consumer("small", selector="size < 3"), "q")
    for number, (colour, size) in enumerate([("red", "9"), ("blue", "1"), ("blue", "9"), ("red", "9")]):
        world.send("q", b"%d" % number, headers={"colour": colour, "size": size})
    assert {(got.consumer, got.body) for got in world.settle()} == {
        ("red", b"0"),
        ("small", b"1"),
        ("red", b"3"),
    }
    assert world.queue("q").backlog.count == 1, "what nobody takes waits"


def test_one_run_is_sorted_by_its_values() -> None:
    world = World()
    world.on_queue(world.consumer("red", selector="colour = 'red'"), "q")
    world.on_queue(world.consumer("blue", selector="colour = 'blue'"), "q")
    world.send(
        "q",
        *[b"%d" % number for number in range(6)],
        holes={"colour": [b"red", b"red", b"blue", b"green", b"blue", b"red"]},
    )
    got = world.settle()
    assert {one.consumer: [g.body for g in got if g.consumer == one.consumer] for one in got} == {
        "red": [b"0", b"1", b"5"],
        "blue": [b"2", b"4"],
    }


def test_what_nobody_took_goes_to_who_comes() -> None:
    world = World()
    red = world.on_queue(world.consumer("red", selector="colour = 'red'"), "q")
    for number in range(4):
        world.send("q", b"%d" % number, headers={"colour": "red" if number % 2 else "blue"})
    assert [got.body for got in world.settle()] == [b"1", b"3"]
    world.on_queue(world.consumer("all"), "q")
    assert [(got.consumer, got.body) for got in world.settle()] == [("all", b"0"), ("all", b"2")]
    world.close(red)
    assert [(got.body, got.is_redelivered) for got in world.settle()] == [(b"1", True), (b"3", True)]


def test_alternating_lanes_favour_nobody() -> None:
    """Messages for one pair of consumers and for another come in turn: each of the four gets its half of its pair's."""
    world = World()
    for name in ("a1", "a2", "b1", "b2"):
        world.on_queue(world.consumer(name, selector=f"word = '{name[0]}'"), "q")
    for number in range(100):
        world.send("q", b"", headers={"word": "ab"[number % 2]})
    got = [one.consumer for one in world.settle()]
    assert {name: got.count(name) for name in ("a1", "a2", "b1", "b2")} == {
        "a1": 25,
        "a2": 25,
        "b1": 25,
        "b2": 25,
    }


def test_order_holds_across_lanes() -> None:
    """A consumer of everything beside one with a selector: what it gets is in order, whatever lane it waited in."""
    world = World()
    world.on_queue(world.consumer("red", prefetch=1, selector="colour = 'red'"), "q")
    one = world.on_queue(world.consumer("all", prefetch=1), "q")
    for number in range(20):
        world.send("q", b"%d" % number, headers={"colour": "red" if number % 3 else "blue"})
    bodies = []
    got = world.settle()
    while got:
        mine = [entry for entry in got if entry.consumer == "all"]
        bodies += [int(entry.body) for entry in mine]
        for entry in mine:
            world.ack(one, entry)
        got = world.settle()
    assert bodies == sorted(bodies)
    assert len(bodies) == 19, "the other one holds one message"


def test_what_is_due_late_does_not_hold_up_its_lane() -> None:
    """It is newer than what waits in its lane, and was put back there: what is older in the lane still comes before another lane's."""
    world = World()
    busy = world.on_queue(world.consumer("busy", prefetch=1), "q")
    world.on_queue(world.consumer("other", selector="kind <> 'w'", prefetch=1, session=2), "q")
    world.send("q", b"0", b"1", headers={"kind": "x"})
    taken = world.settle()
    for kind in "wwxx":
        world.send("q", b"b", headers={"kind": kind})
    world.send("q", b"late", headers={"kind": "w", "AMQ_SCHEDULED_DELAY": "10"})
    world.tick(10)
    assert sorted(got.offset for got in taken) == [0, 1]
    found = []
    for _ in range(5):
        mine = next(got for got in taken if got.consumer == "busy")
        world.ack(busy, mine)
        taken = world.settle()
        found += [got.offset for got in taken]
    assert found == [2, 3, 4, 5, 6]


KINDS = "wxyz"
SELECTORS = ("", "", "kind <> 'w'", "kind = 'x'", "kind in ('x', 'y')")


class Mixture:
    """Consumers with selectors and small credit on one queue: what each gets for the first time is in order, whatever happens."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.world = World(
            AddressSetting(match="q", default_ring_size=random.choice((-1, 20))),
            page_size=random.choice((2000, 1 << 20)),
        )
        self.late: set[int] = set()  # offsets of what was scheduled
        self.priorities: dict[int, int] = {}  # by offset
        # offset that was given last, by consumer, priority and group
        self.latest: dict[tuple[str, int, str], int] = {}
        self.consumers: dict[str, Consumer] = {}
        self.have: dict[str, list[Got]] = {}
        self.number = 0
        for _ in range(random.randint(2, 4)):
            self.come()

    def come(self) -> None:
        random, world, name = self.random, self.world, f"c{self.number}"
        self.number += 1
        consumer = world.consumer(
            name, selector=random.choice(SELECTORS), prefetch=random.choice((1, 1, 5)), session=1
        )
        self.consumers[name], self.have[name] = world.on_queue(consumer, "q"), []

    def step(self) -> None:
        what = self.random.random()
        if what < 0.35:
            self.send()
        elif what < 0.45:
            self.world.tick(self.random.randint(1, 200))
        elif what < 0.5:
            self.world.commit()
        elif what < 0.53:
            self.take(self.world.settle())
            name = self.random.choice(sorted(self.consumers))
            self.world.close(self.consumers.pop(name))
            self.come()
        else:
            self.answer(self.random.choice(sorted(self.consumers)))
        if self.random.random() < 0.7:
            self.take(self.world.settle())
        else:
            self.take(self.world.out())

    def send(self) -> None:
        random = self.random
        for _ in range(random.randint(1, 4)):
            headers = {"kind": random.choice(KINDS)}
            if random.random() < 0.2:
                headers["AMQ_SCHEDULED_DELAY"] = str(random.randint(1, 300))
            if random.random() < 0.1:
                headers["JMSXGroupID"] = random.choice("ab")
            expires = self.world.engine.now + random.randint(1, 300) if random.random() < 0.1 else 0
            bodies = [b"." * random.choice((1, 100))] * random.randint(1, 3)
            priority = random.choice((4, 4, 4, 7))
            run = self.world.send("q", *bodies, headers=headers, priority=priority, expires=expires)
            self.priorities |= dict.fromkeys(range(run.first, run.stop), priority)
            if "AMQ_SCHEDULED_DELAY" in headers:
                self.late.update(range(run.first, run.stop))

    def answer(self, name: str) -> None:
        """ACKs; in a transaction that is aborted at times."""
        consumer, have = self.consumers[name], self.have[name]
        if not have:
            return
        self.random.shuffle(have)
        some = [have.pop() for _ in range(self.random.randint(1, len(have)))]
        if self.random.random() < 0.5:
            for got in some:
                self.world.ack(consumer, got)
            return
        transaction = Transaction("t")
        for got in some:
            self.world.hold(transaction, consumer, got)
            self.take(self.world.out())
        if self.random.random() < 0.5:
            self.world.engine.commit(transaction)
        else:
            self.world.engine.abort(transaction)
            have += some

    def take(self, found: list[Got]) -> None:
        for got in found:
            self.have[got.consumer].append(got)
            lane = got.consumer, self.priorities[got.offset], got.headers.get("JMSXGroupID", "")
            if not got.is_redelivered and got.offset not in self.late:
                assert got.offset > self.latest.get(lane, -1), (
                    f"{got.consumer} has {self.latest[lane]} already, and gets {got.offset}"
                )
                self.latest[lane] = got.offset


@pytest.mark.parametrize("seed", range(100))
def test_nobody_gets_what_is_older_after_what_is_newer(seed: int) -> None:
    mixture = Mixture(Random(seed))
    for _ in range(80):
        mixture.step()


# Very many lanes


def filled(bits: int, *rules: AddressSetting) -> tuple[World, list[int]]:
    """A queue with a lane for each set of selectors, and the lines that each of the messages took that came into one."""
    world, taken = World(*rules, portion=1_000_000), []
    for bit in range(bits):
        world.on_queue(world.consumer(f"c{bit}", prefetch=1, selector=f"b{bit} = '1'"), "q")
    for bit in range(bits):
        world.send("q", b"", headers={f"b{bit}": "1"})
    assert len(world.settle()) == bits, "nobody has credit"
    for number in range(1, 1 << bits):
        headers = {f"b{bit}": "1" for bit in range(bits) if number >> bit & 1}
        taken.append(lines(partial(world.send, "q", b"%d" % number, headers=headers)))
    assert len(world.queue("q").backlog.by_lane) == 1 << bits
    return world, taken


def test_a_lane_more_does_not_walk_through_the_others() -> None:
    few, many = (max(filled(bits)[1]) for bits in (7, 10))
    assert many < 3 * few


def test_a_ring_finds_the_oldest_without_a_walk_through_the_lanes() -> None:
    found = []
    for bits in (5, 9):
        world, _ = filled(bits, AddressSetting(match="q", default_ring_size=(1 << bits) - 1))
        found.append(lines(partial(world.send, "q", b"more", headers={"b1": "1"})))
        assert world.engine.counters["overwritten"] == 1
    assert found[1] < 3 * found[0], found


def test_who_comes_to_very_many_lanes_does_not_walk_through_them() -> None:
    found = []
    for bits in (5, 9):
        world, _ = filled(bits)
        world.engine.work.begin()
        world.engine.work.portion = 400
        late = world.consumer("late", AckMode.AUTO, selector="b1 = '1' AND b2 = '1'")
        found.append(lines(partial(world.on_queue, late, "q")))
        got = [int(one.body) for one in world.settle()]
        assert got == [number for number in range(1, 1 << bits) if number & 6 == 6]
        world.close(late)
        assert world.settle() == []
        assert world.queue("q").count == (1 << bits) - 1
        assert not world.queue("q").backlog.unsorted, "nothing is kept of how they were sorted before"
    assert found[1] < 3 * found[0], found


def test_who_has_credit_again_is_looked_at_alone_however_many_wait_beside_it() -> None:
    found = []
    for count in (20, 320):
        world = World(portion=1_000_000)
        consumers = [
            world.on_queue(world.consumer(f"c{n}", prefetch=1, selector=f"n = '{n}'"), "q")
            for n in range(count)
        ]
        for number in range(3 * count):
            world.send("q", b"%d" % number, headers={"n": str(number % count)})
        first = {one.consumer: one for one in world.settle()}
        assert len(first) == count, "nobody has credit, and each has two that wait"
        consumer, got = consumers[7], first["c7"]
        found.append(lines(partial(world.ack, consumer, got)))
        assert [one.body for one in world.settle()] == [b"%d" % (count + 7)]
    assert found[1] < 1.2 * found[0], found


def test_who_has_no_credit_is_not_asked_again_however_many_have_the_same_selector() -> None:
    found = []
    for count in (20, 320):
        world = World(portion=1_000_000)
        consumers = [
            world.on_queue(world.consumer(f"c{n}", prefetch=1, selector="a = '1'"), "q") for n in range(count)
        ]
        world.send("q", *[b"%d" % number for number in range(2 * count)], headers={"a": "1"})
        first = {one.consumer: one for one in world.settle()}
        assert len(first) == count, "nobody has credit, and as many wait"
        queue = world.queue("q")
        for _ in range(1 + count // ASKED):  # so many are asked in one go
            queue.is_starving(consumers[0].selector)
        acknowledged = lines(partial(world.ack, consumers[7], first["c7"]))
        assert [one.consumer for one in world.settle()] == ["c7"]
        assert queue.is_starving(consumers[0].selector)
        found.append((acknowledged, lines(queue.dispatch)))
    assert found[1][0] < 1.2 * found[0][0], found
    assert found[1][1] < 1.2 * found[0][1], found


@pytest.mark.parametrize("seed", range(20))
def test_who_has_credit_again_gets_what_is_next_for_it_whatever_the_others_wait_for(seed: int) -> None:
    """Beside others who come, go and give back; each gets what it takes in order, and nothing stays that somebody could have."""
    random = Random(seed)
    world = World(portion=random.choice((100, 10_000)))
    selectors = ["", "a = '1'", "b = '1'", "a = '1' AND b = '1'", "c = '1'"]
    consumers: dict[str, Consumer] = {}
    held: dict[str, list[Got]] = {}
    latest: dict[str, int] = {}
    sent = done = 0

    def take(found: list[Got]) -> None:
        for one in found:
            held.setdefault(one.consumer, []).append(one)
            if not one.is_redelivered:
                assert one.offset > latest.get(one.consumer, -1), "each gets what is new in order"
                latest[one.consumer] = one.offset

    for number in range(300):
        what = random.random()
        if what < 0.4:
            headers = {name: str(random.randint(0, 1)) for name in "abc"}
            world.send("q", b"%d" % number, headers=headers)
            sent += 1
        elif what < 0.5 and len(consumers) < 6:
            name, few = f"c{number}", random.randint(1, 3)
            consumer = world.consumer(name, prefetch=few, selector=random.choice(selectors))
            consumers[name] = world.on_queue(consumer, "q")
        elif what < 0.55 and consumers:
            name = random.choice(sorted(consumers))
            world.close(consumers.pop(name))
            held.pop(name, None)
        elif any(held.values()):
            name = random.choice(sorted(name for name, mine in held.items() if mine))
            one = held[name].pop(random.randrange(len(held[name])))
            world.ack(consumers[name], one)
            done += 1
        take(world.settle())
    late = world.on_queue(world.consumer("late"), "q")
    take(world.settle())
    assert sum(map(len, held.values())) == sent - done, "somebody has each of them"
    assert late.has_credit


# Very many selectors


def test_a_message_that_very_many_selectors_take_costs_each_of_them_once() -> None:
    world, taken, count = World(portion=200), [], 4 * WIDE
    for number in range(count):
        world.on_queue(world.consumer(f"c{number}", prefetch=1, selector=f"n <> {number}"), "q")
    steps = world.queue("q").backlog.selectors.steps + KNOWN * count
    for _ in range(2):
        world.engine.work.begin()
        taken.append(lines(partial(world.send, "q", b"x", headers={"n": "-1"})))
        while len(world.engine.later):
            taken.append(lines(partial(world.engine.dispatch_rest, lambda: False)))
    assert len(world.out()) == 2
    assert len(taken) < 1.5 * (2 * steps / 200), "nobody looks in each portion at those that were asked"
    assert max(taken) < 10 * count, "in no step the lane is noted for each of them"


def test_whoever_takes_from_a_lane_of_very_many_gets_all_in_order() -> None:
    world = World(portion=500)
    selectors = [f"n <> {number}" for number in range(WIDE + 2)]
    consumers = {
        name: world.on_queue(world.consumer(name, prefetch=0, selector=text, session=1), "q")
        for name, text in [*[(f"c{n}", text) for n, text in enumerate(selectors)], ("all", "")]
    }
    for number in range(3 * len(consumers)):  # n = 5: one lane of WIDE + 1, else of WIDE + 2
        world.send("q", b"%d" % number, headers={"n": "5" if number % 3 else "-1"})
    latest, count = {}, 0
    while got := world.settle():
        for one in got:
            assert one.offset > latest.get(one.consumer, -1)
            assert one.consumer != "c5" or one.headers["n"] == "-1"
            latest[one.consumer] = one.offset
            world.ack(consumers[one.consumer], one)
        count += len(got)
    assert count == 3 * len(consumers)
    assert world.queue("q").count == 0


@pytest.mark.parametrize("is_varying", [False, True])
def test_an_answer_finds_who_waits_for_it_however_many_wait_in_the_same_queue(*, is_varying: bool) -> None:
    found = {}
    for count in (100, 1000):
        world = World()
        for number in range(count):
            world.on_queue(
                world.consumer(str(number), AckMode.AUTO, selector=f"JMSCorrelationID = 'id-{number}'"), "q"
            )

        def answer(world: World = world) -> None:
            if is_varying:
                world.send("q", b"answer", holes={"correlation-id": [b"id-7"]})
            else:
                world.send("q", b"answer", headers={"correlation-id": "id-7"})

        found[count] = lines(answer)
        assert [got.consumer for got in world.out()] == ["7"]
    assert found[1000] < found[100] + 20, found
