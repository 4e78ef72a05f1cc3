"""Message groups: one consumer for each, as long as it is there."""

from __future__ import annotations

import pytest

from stompbox.broker.queues import groups
from stompbox.broker.queues.consumer import Consumer
from stompbox.broker.queues.lanes import LANES
from stompbox.broker.work import HANDED
from stompbox.config.settings import AddressSetting
from tests.broker.queues.test_dispatch import FEW, counted, joined, with_selector
from tests.broker.test_very_many import lines
from tests.broker.world import Got, World


def group_consumer(world: World, name: str, prefetch: int = -1, selector: str = "") -> Consumer:
    return world.on_queue(world.consumer(name, prefetch=prefetch, selector=selector), "q")


def send(world: World, *names: str) -> None:
    """A message of each group; its body says which."""
    for name in names:
        world.send("q", name.encode(), headers={"JMSXGroupID": name} if name else {})


def owners(found: list[Got]) -> dict[str, set[str]]:
    seen: dict[str, set[str]] = {}
    for got in found:
        seen.setdefault(got.body.decode().rstrip("0123456789"), set()).add(got.consumer)
    return seen


def test_each_group_has_one_consumer_and_groups_are_shared_out() -> None:
    world = World()
    for name in "ABC":
        group_consumer(world, name)
    send(world, *"uvwxyz" * 20)
    found = world.settle()
    assert len(found) == 120
    assert all(len(names) == 1 for names in owners(found).values())
    counts = [sum(got.consumer == name for got in found) for name in "ABC"]
    assert min(counts) >= 20, "none gets less than half of its even share"


def test_groups_in_the_columns_of_runs() -> None:
    world = World()
    for name in "AB":
        group_consumer(world, name)
    bodies = [f"{'xyz'[i % 3]}{i}".encode() for i in range(300)]
    world.send("q", *bodies, holes={"JMSXGroupID": [body[:1] for body in bodies]})
    found = world.settle()
    assert len(found) == 300
    assert all(len(names) == 1 for names in owners(found).values())
    for name in "AB":
        mine = [int(got.body[1:]) for got in found if got.consumer == name]
        assert mine == sorted(mine)


def test_order_within_a_group_while_its_consumer_has_no_credit() -> None:
    world = World()
    a, b = group_consumer(world, "A", prefetch=1), group_consumer(world, "B", prefetch=1)
    for i in range(30):
        world.send("q", b"%s%02d" % (b"xy"[i % 2 : i % 2 + 1], i), headers={"JMSXGroupID": "xy"[i % 2]})
    seen: list[Got] = []
    while found := world.settle():
        seen += found
        for got in found:
            world.ack({"A": a, "B": b}[got.consumer], got)
    assert len(seen) == 30
    for group in b"xy":
        mine = [got.body for got in seen if got.body[0] == group]
        assert mine == sorted(mine)
    assert all(len(names) == 1 for names in owners(seen).values())


def test_groups_beside_many_selectors_make_nobody_look_at_all_of_them() -> None:
    """Each selector has a lane with messages of groups. Who gets the next is found without a look at the others, also where there are more
    lanes than the takers of each are remembered of."""

    def cost(count: int) -> int:
        world, consumers, _ = joined(with_selector, count)
        for consumer in consumers:
            consumer.prefetch = 10
        queue, costs = world.queue("q"), []
        for group in ("what is made once is made", "and now"):
            queue.pause()
            for number in range(2 * count):
                world.engine.work.begin()
                headers = {"n": str(number % count), "JMSXGroupID": f"{group}{number}"}
                world.send("q", b"x", headers=headers)
            with counted() as calls:
                queue.resume()
                while world.engine.dispatch_rest():
                    pass
            assert not queue.backlog.count
            costs.append(calls[0])
        return costs[1]

    many = LANES + 50
    assert cost(many) / many <= 2 * cost(FEW) / FEW


def many_groups(world: World, count: int) -> list[Got]:
    """Sends a run with as many groups as messages; who gets them at once."""
    names = [b"g%d" % (number % 50) for number in range(count)]
    world.send("q", *[b"%d" % number for number in range(count)], holes={"JMSXGroupID": names})
    return world.out()


@pytest.mark.parametrize("is_paused", [False, True])
def test_a_run_of_many_groups_is_handed_out_in_portions(*, is_paused: bool) -> None:
    world = World(portion=10 * HANDED)
    for name in "ABC":
        group_consumer(world, name)
    if is_paused:
        world.queue("q").pause()
    found = many_groups(world, 400)
    assert len(found) == (0 if is_paused else 10)
    if is_paused:
        world.queue("q").resume()
        found += world.out()
        assert 10 <= len(found) <= 20
    while world.engine.dispatch_rest(lambda: False):
        got = world.out()
        assert len(got) <= 20
        found += got
    assert len(found) == 400
    of_group = {group: [one for one in found if int(one.body) % 50 == group] for group in range(50)}
    for ones in of_group.values():
        assert len({one.consumer for one in ones}) == 1
        assert [int(one.body) for one in ones] == sorted([int(one.body) for one in ones])


def test_a_full_consumer_holds_up_its_own_groups_alone() -> None:
    world = World()
    group_consumer(world, "A", prefetch=1)
    group_consumer(world, "B", prefetch=100)
    send(world, "x", "x", "y", "x", "y", "")
    found = world.settle()
    busy = next(iter(owners(found)["x"]))
    assert owners(found)["y"] != {busy}
    assert sum(got.body == b"y" for got in found) == (2 if busy == "A" else 1)
    assert any(got.body == b"" for got in found)


def test_messages_before_the_first_consumer() -> None:
    world = World()
    send(world, *"xxyyxy")
    group_consumer(world, "A")
    assert len(world.settle()) == 6
    group_consumer(world, "B")
    send(world, *"xy")
    assert owners(world.settle()) == {"x": {"A"}, "y": {"A"}}


def test_leaving_consumer_gives_its_groups_back() -> None:
    world = World()
    a = group_consumer(world, "A", prefetch=1)
    send(world, "x", "x", "x")
    assert owners(world.settle()) == {"x": {"A"}}
    group_consumer(world, "B")
    world.close(a)
    found = world.settle()
    assert owners(found) == {"x": {"B"}}
    assert len(found) == 3
    assert [got.is_redelivered for got in found] == [True, False, False]
    assert [got.offset for got in found] == [0, 1, 2]


def test_sequence_minus_one_ends_a_group() -> None:
    world = World()
    group_consumer(world, "A")
    group_consumer(world, "B")
    before: set[str] = set()
    after: set[str] = set()
    for _ in range(6):
        send(world, "x")
        before |= owners(world.settle())["x"]
        world.send("q", b"x", headers={"JMSXGroupID": "x", "JMSXGroupSeq": "-1"})
        after |= owners(world.settle())["x"]
    assert before == after == {"A", "B"}, "each time the next consumer in turn"


def test_sequence_in_the_columns_of_a_run() -> None:
    world = World()
    for name in "AB":
        group_consumer(world, name)
    world.send("q", *[b"x"] * 4, holes={"JMSXGroupID": [b"x"] * 4, "JMSXGroupSeq": [b"1", b"-1", b"1", b"2"]})
    found = {got.offset: got.consumer for got in world.settle()}
    assert found[0] == found[1] != found[2] == found[3]


def test_rebalance() -> None:
    world = World(AddressSetting(match="q", default_group_rebalance=True))
    group_consumer(world, "A")
    send(world, *"uvwxyz")
    assert {got.consumer for got in world.settle()} == {"A"}
    group_consumer(world, "B")
    send(world, *"uvwxyz")
    assert {got.consumer for got in world.settle()} == {"A", "B"}


def test_rebalance_waits_for_what_is_in_flight() -> None:
    world = World(
        AddressSetting(match="q", default_group_rebalance=True, default_group_rebalance_pause_dispatch=True)
    )
    a = group_consumer(world, "A")
    send(world, *"xy")
    found = world.settle()
    group_consumer(world, "B")
    send(world, *"uvxy")
    assert world.settle() == [], "paused"
    world.ack(a, found[0])
    assert world.settle() == []
    world.ack(a, found[1])
    assert {got.consumer for got in world.settle()} == {"A", "B"}


def test_buckets() -> None:
    world = World(AddressSetting(match="q", default_group_buckets=1))
    group_consumer(world, "A")
    group_consumer(world, "B")
    send(world, *"uvwxyz")
    assert len({got.consumer for got in world.settle()}) == 1, "one bucket, one consumer"
    assert len(world.queue("q").groups or ()) == 1


def test_no_buckets_no_groups() -> None:
    world = World(AddressSetting(match="q", default_group_buckets=0))
    group_consumer(world, "A")
    group_consumer(world, "B")
    send(world, *"xxxx")
    assert owners(world.settle()) == {"x": {"A", "B"}}
    assert world.queue("q").groups is None


def test_first_key_marks_the_first_message_for_a_consumer() -> None:
    world = World(AddressSetting(match="q", default_group_first_key="first"))
    a = group_consumer(world, "A")
    world.send("q", b"x1", b"x2", headers={"JMSXGroupID": "x"})
    send(world, "y")
    assert [got.headers.get("first") for got in world.settle()] == ["true", None, "true"]
    world.close(a)
    group_consumer(world, "B")
    assert [got.headers.get("first") for got in world.settle()] == ["true", None, "true"]


def test_groups_and_selectors() -> None:
    world = World()
    group_consumer(world, "A", selector="colour = 'red'")
    group_consumer(world, "B", selector="colour = 'blue'")
    for i in range(6):
        world.send("q", b"x%d" % i, headers={"JMSXGroupID": "x", "colour": ("red", "blue")[i % 2]})
    assert len(world.settle()) >= 3


def test_groups_are_paged_and_come_in_order() -> None:
    world = World(page_size=3000)
    for i in range(60):
        world.send("q", b"x%02d" % i, headers={"JMSXGroupID": "x"})
        world.commit()
    assert world.queue("q").is_paged
    a = group_consumer(world, "A", prefetch=5)
    group_consumer(world, "B", prefetch=5)
    seen: list[Got] = []
    while found := world.settle():
        seen += found
        for got in found:
            world.ack(
                a
                if got.consumer == "A"
                else next(b.consumer for b in world.queue("q").bindings if b.consumer.name == "B"),
                got,
            )
    assert [got.body for got in seen] == [b"x%02d" % i for i in range(60)]
    assert len({got.consumer for got in seen}) == 1


def test_the_owner_of_a_group_gets_nothing_that_its_selector_leaves() -> None:
    world = World()
    world.on_queue(world.consumer("choosy", selector="kind = 'x'", session=2), "q")
    world.send("q", b"a", headers={"kind": "x", "JMSXGroupID": "g"})
    assert [got.consumer for got in world.settle()] == ["choosy"]
    world.on_queue(world.consumer("any", session=3), "q")
    world.send("q", b"b", headers={"kind": "y", "JMSXGroupID": "g"})
    world.send("q", b"c", headers={"kind": "x", "JMSXGroupID": "g"})
    assert [(got.consumer, got.body) for got in world.settle()] == [("any", b"b"), ("choosy", b"c")]


def test_a_group_stays_in_order_when_a_selector_parts_it() -> None:
    """What another consumer's selector takes, too, may be found first: it waits for the owner behind what is older of the group."""
    world = World()
    owner = world.on_queue(world.consumer("owner", prefetch=1), "q")
    world.send("q", b"0", headers={"JMSXGroupID": "g"})
    (first,) = world.settle()
    world.on_queue(world.consumer("red", selector="colour = 'red'", session=2), "q")
    world.send("q", b"alone")  # what comes behind it in its lane waits there
    for number, colour in enumerate(("blue", "red"), 1):
        world.send("q", b"%d" % number, headers={"JMSXGroupID": "g", "colour": colour})
    found = []
    for _ in range(3):
        world.ack(owner, first)
        (first,) = world.settle()
        found.append((first.consumer, first.body))
    assert found == [("owner", b"alone"), ("owner", b"1"), ("owner", b"2")]


def test_a_long_name_of_a_group_is_remembered_by_its_digest() -> None:
    world = World()
    for name in "AB":
        group_consumer(world, name)
    long = ["x" * 50_000 + letter for letter in "uvwxyz"]
    for number in range(60):
        world.send("q", long[number % 6][-1].encode(), headers={"JMSXGroupID": long[number % 6]})
    found = world.settle()
    assert len(found) == 60
    assert all(len(names) == 1 for names in owners(found).values())
    known = world.queue("q").groups
    assert known is not None
    assert len(known) == 6
    assert max(len(key) for key in known._owners if isinstance(key, bytes)) <= 64


def test_all_queues_together_remember_so_many_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond, the oldest of the queue that has one more; a queue that goes is forgotten."""
    monkeypatch.setattr(groups, "MOST_GROUPS", 10)
    world = World()
    for queue in ("q", "r"):
        world.on_queue(world.consumer(f"A{queue}"), queue)
        world.on_queue(world.consumer(f"B{queue}"), queue)
        for number in range(20):
            world.send(queue, b"x", headers={"JMSXGroupID": str(number)})
    assert len(world.settle()) == 40
    first, second = world.queue("q").groups, world.queue("r").groups
    assert first is not None and second is not None
    assert len(first) == 10
    assert list(second._owners) == [b"19"]
    assert world.engine.remembered.count == 11
    world.engine.drop_queue(world.queue("q"))
    world.settle()
    assert world.engine.remembered.count == 1


def test_who_leaves_frees_its_groups_at_no_cost_for_each() -> None:
    found = {}
    for count in (50, 500):
        world = World()
        a = group_consumer(world, "A")
        for number in range(count):
            world.send("q", b"x", headers={"JMSXGroupID": str(number)})
        for got in world.settle():
            world.ack(a, got)
        group_consumer(world, "B")
        found[count] = lines(lambda world=world, a=a: world.close(a))  # type: ignore[misc]
        world.send("q", b"x", headers={"JMSXGroupID": "7"})
        assert [got.consumer for got in world.settle()] == ["B"]
    assert found[500] <= found[50] + 20, found
