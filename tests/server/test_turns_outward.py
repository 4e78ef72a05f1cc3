"""What goes out, and what the engine does by itself, has its share of a turn as well."""

from __future__ import annotations

from collections import Counter

import pytest

from stompbox.broker.addresses import fanout
from stompbox.broker.queues.consumer import Consumer
from stompbox.broker.queues.contracts import Load
from stompbox.broker.queues.queue import Queue
from stompbox.message import Run
from stompbox.selectors import compile_selector
from stompbox.server.delivering import OCTETS, Deliveries
from stompbox.server.requests.fetching import selected
from tests.server.test_turns import receipts
from tests.server.turning import LOOKS, Clock, World

# What goes out


def topic(world: World, count: int) -> None:
    """So many subscriptions, of connections with 20 each."""
    for start in range(0, count, 20):
        client = world.client()
        client.say(
            *[("SUBSCRIBE", {"id": f"{n}", "destination": "/topic/all"}) for n in range(start, start + 20)]
        )
    world.until_idle()


def test_a_message_to_thousands_goes_out_in_portions_and_another_one_goes_before() -> None:
    world = World()
    topic(world, 4000)
    normal = world.client()
    normal.say(("SUBSCRIBE", {"id": "1", "destination": "/topic/own"}))
    hostile = world.client()
    hostile.say(("SEND", {"destination": "/topic/all"}))
    delivered = world.broker.engine.counters["delivered"]
    assert 0 < delivered < 1000
    assert (
        world.broker.deliveries.waiting or world.broker.engine.later
    )  # what is left of it waits for its turn
    normal.say(("SEND", {"destination": "/topic/own"}))
    assert normal.bodies() == [b""]
    world.until_idle()
    assert world.broker.engine.counters["delivered"] == 4001


def test_a_sender_to_thousands_waits_for_its_own_message_and_nobody_else_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each step offers it to a few; the sender's next frame is obeyed when all have been offered it."""
    world = World()
    topic(world, 4000)
    offered, receipts = [], []
    offer = Queue.offer
    monkeypatch.setattr(
        Queue, "offer", lambda self, run, first, stop: (offered.append(run), offer(self, run, first, stop))[1]
    )
    monkeypatch.setattr(fanout, "AT_ONCE", 20)
    hostile, normal = world.client(), world.client()
    normal.say(("SUBSCRIBE", {"id": "1", "destination": "/topic/own"}))
    hostile.say_much(
        [("SEND", {"destination": "/topic/all", "n": f"{n}", "receipt": f"{n}"}) for n in range(3)]
    )
    for _ in range(1000):
        before = len(offered)
        normal.say(("SEND", {"destination": "/topic/own"}))
        assert len(offered) - before < 1000, "what others said meanwhile waits for a portion at the most"
        receipts.append((len(hostile.confirmed()), len(offered)))
        if (
            len(world.broker.engine.addresses["all"].log.cursors) == 0
            and not hostile.connection.reading.has_left
        ):
            break
        world.turn()
    world.until_idle()
    assert sum(run.shape.destination == "/topic/all" for run in offered) == 3 * 4000
    assert len(normal.bodies()) > 3
    assert world.broker.engine.addresses["all"].log.next == 3


def test_receipts_of_one_commit_are_said_in_portions() -> None:
    world = World()
    clients = [world.client() for _ in range(200)]
    for client in clients:
        world.broker.want_commit(client.connection)
        client.connection.confirm([b"r"], waits=True)
    world.broker._release(world.broker.sequence)
    told = sum("r" in client.confirmed() for client in clients)
    assert told <= 2 * LOOKS
    before = told
    while world.broker.turns.waiting:
        world.turn()
        told = sum("r" in client.confirmed() for client in clients)
        assert told - before <= 2 * LOOKS
        before = told
    assert told == 200
    assert not world.broker.waiting


def test_a_commit_answers_who_waited_together_in_one_go_even_where_the_turn_is_over() -> None:
    world = World()
    clients = [world.client() for _ in range(LOOKS - 1)]
    for client in clients:
        world.broker.want_commit(client.connection)
        client.connection.confirm([b"r"], waits=True)
    while not world.broker.turns.is_over:
        pass
    world.broker._release(world.broker.sequence)
    assert [client.confirmed() for client in clients] == [["r"]] * len(clients)


def test_what_was_read_for_many_paged_queues_at_once_is_taken_in_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    world.client().say(("SUBSCRIBE", {"id": "1", "destination": "/queue/paged"}))
    [queue] = world.broker.engine.queues.values()
    taken = []

    async def load(*_: int) -> tuple[list[Run], int]:
        return [], 1

    def then(*_: object) -> None:
        taken.append(world.broker.turns.clock())

    monkeypatch.setattr(world.broker.committer, "load", load)
    for _ in range(100):
        with pytest.raises(StopIteration):
            world.broker.loads.read(Load(queue, 0, 1, then)).send(None)
    turns = 0
    while len(taken) < 100:
        before = len(taken)
        world.turn()
        turns += 1
        assert len(taken) - before <= LOOKS
    assert turns >= 100 / LOOKS


def test_who_says_much_does_not_wait_for_all_that_was_read_for_paged_queues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are the work of one, however many they are: their turn comes when all others had theirs."""
    world = World()
    normal = world.client()
    normal.say(("SUBSCRIBE", {"id": "1", "destination": "/queue/paged"}))
    [queue] = world.broker.engine.queues.values()
    clock = world.broker.turns.clock
    assert isinstance(clock, Clock)

    async def load(*_: int) -> tuple[list[Run], int]:
        return [], 1

    def then(*_: object) -> None:
        clock.now += world.broker.turns.budget
        world.broker.engine.work.spend(2 * world.broker.engine.work.portion)

    monkeypatch.setattr(world.broker.committer, "load", load)
    for _ in range(100):
        with pytest.raises(StopIteration):
            world.broker.loads.read(Load(queue, 0, 1, then)).send(None)
    world.turn()
    assert not world.broker.engine.work.is_over, "whoever comes next has done nothing"
    normal.say_much(receipts("r", 20))
    world.turn(30)
    assert len(normal.confirmed()) == 20
    assert len(world.broker.engine.later) > 50


def test_a_step_of_a_client_and_one_of_the_engine_are_not_in_one_turn_where_both_take_longer_than_it() -> (
    None
):
    world = World()
    clock, later = world.broker.turns.clock, world.broker.engine.later
    assert isinstance(clock, Clock)
    engine, clients = list[int](), list[int]()

    def portion() -> None:
        clock.now += 4 * world.broker.turns.budget
        engine.append(world.loop.turns)
        later.add(object(), portion)

    def step(_: float) -> bool:
        clock.now += 4 * world.broker.turns.budget
        clients.append(world.loop.turns)
        return True

    later.add(object(), portion)
    world.broker.turns.later(step)
    world.broker.flush_soon()
    world.turn(40)
    assert max(Counter(engine + clients).values()) == 1
    assert min(len(engine), len(clients)) >= 15, "they take turns"


def test_what_stopped_half_way_goes_on_once_in_a_turn_that_is_over_whoever_asks() -> None:
    world = World()
    clock, later, taken = world.broker.turns.clock, world.broker.engine.later, list[int]()
    assert isinstance(clock, Clock)

    def step() -> None:
        clock.now += world.broker.turns.budget
        taken.append(world.loop.turns)
        if len(taken) < 20:
            later.add(object(), step)

    later.add("first", step)
    gone = [world.client() for _ in range(10)]
    while len(taken) < 20:
        if gone:
            gone.pop().socket.connection_lost(None)
        for _ in range(5):
            world.broker.flush()
        world.turn()
        assert taken, "each turn takes one at least"
    assert max(Counter(taken).values()) <= 2


def widened(count: int) -> int:
    """Lines of the longest step of a SUBSCRIBE to so many topics, which is durable."""
    world = World()
    world.broker.engine.work.portion = 1000
    sender, holder = world.client(), world.client(headers={"client-id": "wide"})
    for number in range(count):
        sender.say(("SEND", {"destination": f"/topic/wide.{number}", "retain": "set"}))
    world.until_idle()
    with world.steps() as steps:
        holder.say(
            (
                "SUBSCRIBE",
                {
                    "id": "1",
                    "destination": "/topic/wide.#",
                    "durable-subscription-name": "wide",
                    "receipt": "done",
                },
            )
        )
        world.until_idle()
    assert len(holder.connection.consumers["1"].bindings) == count
    return steps.longest


def test_no_step_of_a_durable_subscription_to_a_wildcard_is_longer_the_more_there_is() -> None:
    few, many = widened(200), widened(2000)
    assert many <= 1.2 * few


def test_a_long_selector_is_compiled_in_steps_and_its_fault_is_told_all_the_same() -> None:
    """None takes more than a twelfth of what compiling it takes in all."""
    text = " OR ".join([f"h{term} = '{term}'" for term in range(400)])
    world = World()
    client = world.client()
    with world.steps() as steps:
        compile_selector(text)
    whole = steps.longest
    with world.steps() as steps:
        client.say(("SUBSCRIBE", {"id": "1", "destination": "/topic/t", "selector": text, "receipt": "done"}))
        world.until_idle()
    assert 12 * steps.longest < whole
    assert client.confirmed() == ["done"]
    client.say(
        ("SEND", {"destination": "/topic/t", "h7": "7"}), ("SEND", {"destination": "/topic/t", "h7": "8"})
    )
    assert len(client.bodies()) == 1
    client.say(("SUBSCRIBE", {"id": "2", "destination": "/topic/t", "selector": text + " OR"}))
    world.until_idle()
    assert client.errors() == ["selector-syntax"]


@pytest.mark.parametrize(
    ("header", "text", "of_all"),
    [
        ("selector", f"XPATH '{'+'.join(['1'] * 490)}'", 8),
        ("selector", f"XPATH '{'/'.join(['a'] * 490)}'", 8),
        ("selector", " OR ".join(["a=1"] * 200), 8),
        ("x-stream-filter", ",".join([f"v{n}" for n in range(900)]), 3),
    ],
    ids=["operators", "steps", "short terms", "filter of a stream"],
)
def test_what_is_dense_is_compiled_in_steps_however_few_characters_it_has(
    header: str, text: str, of_all: int
) -> None:
    world = World()
    client = world.client()
    wanted = text if header == "selector" else f"a IN ({', '.join([repr(v) for v in text.split(',')])})"
    compile_selector(wanted)  # what is imported first
    with world.steps() as steps:
        compile_selector(wanted)
    whole = steps.longest
    with world.steps() as steps:
        client.say(("SUBSCRIBE", {"id": "1", "destination": "/stream/t", header: text, "receipt": "done"}))
        world.until_idle()
    world.turn(20)
    assert of_all * steps.longest < whole
    assert client.confirmed() == ["done"]


def test_the_selector_of_a_fetch_is_compiled_in_turns() -> None:
    world = World()
    client = world.client()
    work = selected(client.connection, " OR ".join(["a=1"] * 400))
    turns = 0
    with pytest.raises(StopIteration) as done:
        while True:
            waiter = work.send(None)
            while not waiter.done():
                world.turn()
                turns += 1
    assert done.value.value.matches({"a": "1"}, {})
    assert turns > 5


def handed_out(subscriptions: int, count: int) -> int:
    """Lines of the longest step in which one client gets so many messages by each of its subscriptions, each with a head of its own."""
    world = World()
    sender, holder = world.client(), world.client()
    for queue in range(subscriptions):
        for number in range(count):
            sender.say(("SEND", {"destination": f"/queue/{queue}", f"name-{queue}-{number}": "1"}))
    world.until_idle()
    subscribe = [
        ("SUBSCRIBE", {"id": f"{queue}", "destination": f"/queue/{queue}", "ack": "client"})
        for queue in range(subscriptions)
    ]
    with world.steps() as steps:
        holder.say_much(subscribe)
        world.until_idle()
        world.turn(200)
    assert len(holder.bodies()) == subscriptions * count
    return steps.longest


def test_no_more_heads_are_encoded_in_one_go_however_many_subscriptions_they_are_for() -> None:
    assert handed_out(12, 256) <= 2 * handed_out(1, 256)


def test_no_more_octets_are_written_in_one_go_however_many_connections_they_are_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    takers = [world.client() for _ in range(50)]
    for taker in takers:
        taker.say(("SUBSCRIBE", {"id": "1", "destination": "/topic/large"}))
    world.until_idle()
    counters, writes = world.broker.engine.counters, []
    write_some = Deliveries._write_some

    def counting(deliveries: Deliveries, consumers: list[Consumer]) -> int:
        before = counters["delivered"]
        done = write_some(deliveries, consumers)
        writes.append(counters["delivered"] - before)
        return done

    monkeypatch.setattr(Deliveries, "_write_some", counting)
    world.client().say(("SEND", {"destination": "/topic/large", "note": "x" * (OCTETS // 2)}))
    world.until_idle()
    assert sum(writes) == len(takers)
    assert max(writes) == 2


@pytest.mark.parametrize("count", [10, 20])
def test_who_gets_little_does_not_wait_for_all_that_others_get(count: int) -> None:
    """What a consumer has beyond a portion goes out behind those that wait, however often it is its turn."""
    world = World()
    sender, takers = world.client(), [world.client() for _ in range(count)]
    for number in range(count):
        sender.say(*[("SEND", {"destination": f"/queue/{number}", "h": f"{at:020000d}"}) for at in range(80)])
    world.until_idle()
    normal = world.client()
    normal.say(("SUBSCRIBE", {"id": "1", "destination": "/queue/own"}))
    for number, taker in enumerate(takers):
        subscribe = {"id": "1", "destination": f"/queue/{number}", "consumer-window-size": "-1"}
        taker.socket.data_received(taker.octets([("SUBSCRIBE", {**subscribe, "ack": "client"})]))
    counters, waits = world.broker.engine.counters, []
    while counters["delivered"] < count * 80:
        normal.socket.data_received(normal.octets([("SEND", {"destination": "/queue/own"})]))
        sent, begun = len(waits) + 1, counters["delivered"]
        while len(normal.bodies()) < sent:
            world.turn()
        waits.append(counters["delivered"] - begun)
    assert len(waits) > count // 2, waits
    assert max(waits) <= 2 * count * 14, "two portions of 256 KiB of each at the most: 14 messages"
