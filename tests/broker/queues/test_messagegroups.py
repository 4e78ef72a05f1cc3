"""Message groups: one consumer for each, as long as it is there."""

from __future__ import annotations

from stompbox.broker.queues.consumer import Consumer
from stompbox.config.settings import AddressSetting
from tests.broker.world import Got, World


def consumer(world: World, name: str, prefetch: int = -1, selector: str = "") -> Consumer:
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
        consumer(world, name)
    send(world, *"uvwxyz" * 20)
    found = world.settle()
    assert len(found) == 120
    assert all(len(names) == 1 for names in owners(found).values())
    counts = [sum(got.consumer == name for got in found) for name in "ABC"]
    assert min(counts) >= 20, "none gets less than half of its even share"


def test_groups_in_the_columns_of_runs() -> None:
    world = World()
    for name in "AB":
        consumer(world, name)
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
    a, b = consumer(world, "A", prefetch=1), consumer(world, "B", prefetch=1)
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


def test_a_full_consumer_holds_up_its_own_groups_alone() -> None:
    world = World()
    consumer(world, "A", prefetch=1)
    consumer(world, "B", prefetch=100)
    send(world, "x", "x", "y", "x", "y", "")
    found = world.settle()
    busy = next(iter(owners(found)["x"]))
    assert owners(found)["y"] != {busy}
    assert sum(got.body == b"y" for got in found) == (2 if busy == "A" else 1)
    assert any(got.body == b"" for got in found)


def test_messages_before_the_first_consumer() -> None:
    world = World()
    send(world, *"xxyyxy")
    consumer(world, "A")
    assert len(world.settle()) == 6
    consumer(world, "B")
    send(world, *"xy")
    assert owners(world.settle()) == {"x": {"A"}, "y": {"A"}}


def test_leaving_consumer_gives_its_groups_back() -> None:
    world = World()
    a = consumer(world, "A", prefetch=1)
    send(world, "x", "x", "x")
    assert owners(world.settle()) == {"x": {"A"}}
    consumer(world, "B")
    world.close(a)
    found = world.settle()
    assert owners(found) == {"x": {"B"}}
    assert len(found) == 3
    assert [got.is_redelivered for got in found] == [True, False, False]
    assert [got.offset for got in found] == [0, 1, 2]


def test_sequence_minus_one_ends_a_group() -> None:
    world = World()
    consumer(world, "A")
    consumer(world, "B")
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
        consumer(world, name)
    world.send("q", *[b"x"] * 4, holes={"JMSXGroupID": [b"x"] * 4, "JMSXGroupSeq": [b"1", b"-1", b"1", b"2"]})
    found = {got.offset: got.consumer for got in world.settle()}
    assert found[0] == found[1] != found[2] == found[3]


def test_rebalance() -> None:
    world = World(AddressSetting(match="q", default_group_rebalance=True))
    consumer(world, "A")
    send(world, *"uvwxyz")
    assert {got.consumer for got in world.settle()} == {"A"}
    consumer(world, "B")
    send(world, *"uvwxyz")
    assert {got.consumer for got in world.settle()} == {"A", "B"}


def test_rebalance_waits_for_what_is_in_flight() -> None:
    world = World(AddressSetting(match="q", default_group_rebalance=True, default_group_rebalance_pause_dispatch=True))
    a = consumer(world, "A")
    send(world, *"xy")
    found = world.settle()
    consumer(world, "B")
    send(world, *"uvxy")
    assert world.settle() == [], "paused"
    world.ack(a, found[0])
    assert world.settle() == []
    world.ack(a, found[1])
    assert {got.consumer for got in world.settle()} == {"A", "B"}


def test_buckets() -> None:
    world = World(AddressSetting(match="q", default_group_buckets=1))
    consumer(world, "A")
    consumer(world, "B")
    send(world, *"uvwxyz")
    assert len({got.consumer for got in world.settle()}) == 1, "one bucket, one consumer"
    assert len(world.queue("q").groups or ()) == 1


def test_no_buckets_no_groups() -> None:
    world = World(AddressSetting(match="q", default_group_buckets=0))
    consumer(world, "A")
    consumer(world, "B")
    send(world, *"xxxx")
    assert owners(world.settle()) == {"x": {"A", "B"}}
    assert world.queue("q").groups is None


def test_first_key_marks_the_first_message_for_a_consumer() -> None:
    world = World(AddressSetting(match="q", default_group_first_key="first"))
    a = consumer(world, "A")
    world.send("q", b"x1", b"x2", headers={"JMSXGroupID": "x"})
    send(world, "y")
    assert [got.headers.get("first") for got in world.settle()] == ["true", None, "true"]
    world.close(a)
    consumer(world, "B")
    assert [got.headers.get("first") for got in world.settle()] == ["true", None, "true"]


def test_groups_and_selectors() -> None:
    world = World()
    consumer(world, "A", selector="colour = 'red'")
    consumer(world, "B", selector="colour = 'blue'")
    for i in range(6):
        world.send("q", b"x%d" % i, headers={"JMSXGroupID": "x", "colour": ("red", "blue")[i % 2]})
    assert len(world.settle()) >= 3


def test_groups_are_paged_and_come_in_order() -> None:
    world = World(page_size=3000)
    for i in range(60):
        world.send("q", b"x%02d" % i, headers={"JMSXGroupID": "x"})
        world.commit()
    assert world.queue("q").is_paged
    a = consumer(world, "A", prefetch=5)
    consumer(world, "B", prefetch=5)
    seen: list[Got] = []
    while found := world.settle():
        seen += found
        for got in found:
            world.ack(a if got.consumer == "A" else next(b.consumer for b in world.queue("q").bindings if b.consumer.name == "B"), got)
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
