"""What speaks for very many messages, in counted work: a cumulative ACK or NACK, a COMMIT, an ABORT, the end of a subscription."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from stompbox.broker.addresses.redelivery import PIECE
from stompbox.broker.queues.consumer import Consumer
from stompbox.broker.transactions import PART
from stompbox.server.frames import transactions
from stompbox.stomp.frames import Frame
from tests.server.turning import LOOKS, PADDING, Client, World, loaded


def work_of(world: World, count: Callable[[], int]) -> list[int]:
    """By how much a figure changes in each of the turns that follow, until no work waits."""
    changes, before = [], count()
    while world.broker.turns.waiting:
        world.turn()
        now = count()
        changes.append(abs(now - before))
        before = now
    return changes


MANY_SENT = 3000


@pytest.mark.parametrize("command", ["ACK", "NACK"])
def test_a_cumulative_answer_for_very_many_is_given_in_portions(command: str) -> None:
    world = World()
    holder, _ = loaded(world, MANY_SENT, {"ack": "client"})
    consumer = holder.connection.consumers["1"]
    last = [frame.headers["message-id"] for frame in holder.heard() if frame.command == "MESSAGE"][-1]
    normal = world.client()
    holder.say((command, {"message-id": last, "subscription": "1", "receipt": "done"}))
    assert len(consumer.ledger) >= MANY_SENT - (LOOKS + 1) * PART
    normal.say(("BEGIN", {"transaction": "t", "receipt": "now"}))
    assert normal.confirmed() == ["now"]
    assert holder.confirmed() == []
    assert max(work_of(world, lambda: consumer.messages_out)) <= (LOOKS + 1) * PART
    world.turn(20)
    assert holder.confirmed() == ["done"]
    if command == "ACK":
        assert world.broker.engine.counters["acknowledged"] == MANY_SENT


@pytest.mark.parametrize("transaction", [{}, {"transaction": "t"}])
def test_dead_letters_of_few_long_runs_are_made_in_portions(transaction: dict[str, str]) -> None:
    """One NACK refuses few runs, with very many messages."""
    world = World()
    sender, holder = world.client(), world.client()
    holder.say(
        ("SUBSCRIBE", {"id": "1", "destination": "/queue/q", "ack": "client", "consumer-window-size": "-1"})
    )
    for _ in range(4):
        sender.say(*[("SEND", {"destination": "/queue/q"})] * 1500)
        world.until_idle()
    world.turn(20)
    consumer, counters = holder.connection.consumers["1"], world.broker.engine.counters
    assert consumer.messages_out == 6000
    assert len(consumer.ledger) < 50
    last = [frame.headers["message-id"] for frame in holder.heard() if frame.command == "MESSAGE"][-1]
    nack = {"message-id": last, "subscription": "1", "requeue": "false", **transaction}
    if transaction:
        holder.say(("BEGIN", transaction), ("NACK", nack), ("COMMIT", {**transaction, "receipt": "done"}))
    else:
        holder.say(("NACK", {**nack, "receipt": "done"}))
    assert counters["dead"] <= (LOOKS + 1) * PIECE
    assert max(work_of(world, lambda: counters["dead"])) <= (LOOKS + 1) * PIECE
    world.turn(20)
    assert holder.confirmed() == ["done"]
    assert counters["dead"] == 6000


@pytest.mark.parametrize("mode", ["client", "client-individual"])
def test_a_large_abort_gives_back_in_portions_what_was_acknowledged(mode: str) -> None:
    world = World()
    holder, _ = loaded(world, MANY_SENT, {"ack": mode})
    consumer = holder.connection.consumers["1"]
    ids = [frame.headers["message-id"] for frame in holder.heard() if frame.command == "MESSAGE"]
    ends = ids if mode == "client-individual" else ids[-1:]
    said = [("ACK", {"message-id": id, "subscription": "1", "transaction": "t"}) for id in ends]
    holder.say(("BEGIN", {"transaction": "t"}), *said)
    world.until_idle()
    assert consumer.messages_out == 0
    before = [id(segment) for _, segment in holder.connection.transactions["t"].answered[0][1]]
    holder.say(("ABORT", {"transaction": "t", "receipt": "done"}))
    assert holder.confirmed() == []
    assert consumer.messages_out <= (LOOKS + 1) * PART
    assert max(work_of(world, lambda: consumer.messages_out)) <= (LOOKS + 1) * PART
    world.turn(20)
    assert holder.confirmed() == ["done"]
    assert consumer.messages_out == MANY_SENT
    if mode == "client":
        assert [id(segment) for _, segment in consumer.ledger] == before, (
            "in the order in which they were sent"
        )


@pytest.mark.parametrize("mode", ["client", "client-individual"])
def test_what_an_abort_gives_back_to_a_subscription_that_ends_goes_to_its_queue(mode: str) -> None:
    world = World()
    holder, _ = loaded(world, MANY_SENT, {"ack": mode})
    consumer, queue = holder.connection.consumers["1"], world.broker.engine.addresses["q"].anycast["q"]
    ids = [frame.headers["message-id"] for frame in holder.heard() if frame.command == "MESSAGE"]
    ends = ids if mode == "client-individual" else ids[-1:]
    holder.say(
        ("BEGIN", {"transaction": "t"}),
        *[("ACK", {"message-id": id, "subscription": "1", "transaction": "t"}) for id in ends],
    )
    world.until_idle()
    transactions.time_out(holder.connection, holder.connection.transactions["t"])
    while not consumer.messages_out:
        world.turn()
    assert consumer.messages_out < MANY_SENT
    holder.socket.connection_lost(None)
    world.until_idle()
    world.turn(5)
    assert consumer.messages_out == 0
    assert queue.backlog.count == MANY_SENT
    assert sum(len(segment) for segment in queue.backlog.segments()) == MANY_SENT
    assert world.broker.engine.unacknowledged.size == 0


def test_a_cumulative_answer_in_a_transaction_that_ends_meanwhile_is_none() -> None:
    world = World()
    holder, _ = loaded(world, MANY_SENT, {"ack": "client"})
    connection, consumer = holder.connection, holder.connection.consumers["1"]
    last = [frame.headers["message-id"] for frame in holder.heard() if frame.command == "MESSAGE"][-1]
    holder.say(
        ("BEGIN", {"transaction": "t"}),
        ("ACK", {"message-id": last, "subscription": "1", "transaction": "t"}),
    )
    assert 0 < consumer.messages_out < MANY_SENT
    transactions.time_out(connection, connection.transactions["t"])
    world.until_idle()
    assert holder.errors() == ["transaction-timeout"]
    assert consumer.messages_out == MANY_SENT


@pytest.mark.parametrize("end", ["UNSUBSCRIBE", "lost"])
def test_what_a_subscription_had_is_taken_from_it_in_portions(end: str) -> None:
    world = World()
    holder, _ = loaded(world, MANY_SENT, {"ack": "client"})
    consumer = holder.connection.consumers["1"]
    if end == "lost":
        holder.socket.connection_lost(None)
    else:
        holder.say(("UNSUBSCRIBE", {"id": "1"}))
    assert consumer.messages_out >= MANY_SENT - (LOOKS + 1) * PART
    assert max(work_of(world, lambda: consumer.messages_out)) <= (LOOKS + 1) * PART
    assert world.broker.engine.addresses["q"].anycast["q"].backlog.count == MANY_SENT


def answered(count: int, command: str, *, mode: str = "client", queue: str = "/queue/q") -> int:
    """Lines of the longest step, where ACKs of so many messages, in a transaction or in two, are given and taken back or committed."""
    world = World()
    holder, _ = loaded(world, count, {"ack": mode}, queue)
    ids = [frame.headers["message-id"] for frame in holder.heard() if frame.command == "MESSAGE"]
    ends = ids if mode == "client-individual" else ids[-1:]
    acks = [("ACK", {"message-id": id, "subscription": "1", "transaction": "t"}) for id in ends]
    if command == "ABORT twice":  # the older ones come back first, and the others behind them
        acks.insert(0, ("ACK", {"message-id": ids[count // 2], "subscription": "1", "transaction": "first"}))
    octets = PADDING + holder.octets(acks)
    with world.steps() as steps:
        holder.say(("BEGIN", {"transaction": "first"}), ("BEGIN", {"transaction": "t"}))
        holder.socket.data_received(octets)
        world.until_idle()
        if command == "ABORT twice":
            holder.say(("ABORT", {"transaction": "first"}))
            world.until_idle()
        holder.say((command.split(maxsplit=1)[0], {"transaction": "t", "receipt": "done"}))
        world.until_idle()
    world.turn(20)
    assert holder.confirmed() == ["done"]
    consumer = holder.connection.consumers["1"]
    if command.startswith("ABORT"):
        assert [binding.queue.id for binding, _ in consumer.ledger] == [
            int(id.partition("-")[0]) for id in ids if mode == "client"
        ]
        assert [segment.first for _, segment in consumer.ledger] == [
            int(id.partition("-")[2]) for id in ids if mode == "client"
        ]
    assert consumer.messages_out == (count if command.startswith("ABORT") else 0)
    return steps.longest


@pytest.mark.parametrize(("command", "mode", "queue"), [
    ("ABORT", "client", "/queue/q"),
    ("ABORT twice", "client", "/queue/q"),
    ("ABORT", "client-individual", "/queue/q"),
    ("COMMIT", "client-individual", "/queue/q"),
    ("COMMIT", "client", "/topic/q"),  # whether one of their queues is durable is looked at for all of them
])  # fmt: skip
def test_no_step_of_a_transaction_with_many_answers_is_longer_the_more_there_are(
    command: str, mode: str, queue: str
) -> None:
    few, many = (answered(count, command, mode=mode, queue=queue) for count in (500, 5000))
    assert many <= 1.2 * few


def sent_to(
    world: World, count: int, *subscriptions: str, mode: str = "client-individual"
) -> tuple[Client, list[Frame]]:
    """A client of STOMP 1.2 with so many messages, one by one, which its subscriptions to one queue have in turn."""
    sender, client = world.client(), world.client("1.2")
    for name in subscriptions:
        client.say(
            ("SUBSCRIBE", {"id": name, "destination": "/queue/q", "ack": mode, "consumer-window-size": "-1"})
        )
    for number in range(count):
        sender.say(("SEND", {"destination": "/queue/q", f"name-{number}": "1"}))
        world.turn()
    world.until_idle()
    world.turn(20)
    return client, [frame for frame in client.heard() if frame.command == "MESSAGE"]


def acks_of(messages: Iterable[Frame]) -> list[tuple[str, dict[str, str]]]:
    return [("ACK", {"id": message.headers["ack"]}) for message in messages]


def test_acks_of_one_read_are_for_messages_of_several_subscriptions() -> None:
    world = World()
    client, messages = sent_to(world, 6, "1", "2")
    assert [message.headers["subscription"] for message in messages[:4]] in (["1", "2"] * 2, ["2", "1"] * 2)
    client.say(*acks_of(messages))
    assert client.errors() == []
    assert world.broker.engine.counters["acknowledged"] == 6


@pytest.mark.parametrize("more", [{}, {"receipt": "1"}], ids=["as a run", "one by one"])
def test_of_very_many_subscriptions_that_is_asked_which_has_the_message(
    monkeypatch: pytest.MonkeyPatch, more: dict[str, str]
) -> None:
    world = World()
    client, messages = sent_to(world, 100, *map(str, range(100)))
    asked: list[Consumer] = []
    take = Consumer.take
    monkeypatch.setattr(
        Consumer, "take", lambda self, *given, **more: (asked.append(self), take(self, *given, **more))[1]
    )
    client.say(*[(command, headers | more) for command, headers in acks_of(messages[::-1])])
    world.until_idle()
    assert client.errors() == []
    assert len(asked) == len(messages)


@pytest.mark.parametrize("more", [{}, {"receipt": "1"}], ids=["as a run", "one by one"])
def test_subscriptions_to_other_queues_are_not_asked(
    monkeypatch: pytest.MonkeyPatch, more: dict[str, str]
) -> None:
    world = World()
    sender, client = world.client(), world.client("1.2")
    for name in (*map(str, range(100)), "q"):
        client.say(("SUBSCRIBE", {"id": name, "destination": f"/queue/{name}", "ack": "client-individual"}))
    for number in range(10):
        sender.say(("SEND", {"destination": "/queue/q", f"name-{number}": "1"}))
    world.until_idle()
    messages = [frame for frame in client.heard() if frame.command == "MESSAGE"]
    sent_to(world, 0, *map(str, range(5)))  # others who consume from the queue
    asked = [0]
    ask = Consumer.may_have

    def counted(consumer: Consumer, queue: int, offset: int) -> bool:
        asked[0] += 1
        return ask(consumer, queue, offset)

    monkeypatch.setattr(Consumer, "may_have", counted)
    client.say(*[(command, headers | more) for command, headers in acks_of(messages)])
    world.until_idle()
    assert client.errors() == []
    assert world.broker.engine.counters["acknowledged"] == len(messages) == 10
    assert asked[0] <= len(messages)


@pytest.mark.parametrize("mode", ["client", "client-individual"])
@pytest.mark.parametrize("count", [6, 150])
def test_acks_of_one_read_are_obeyed_behind_one_that_is_wrong(mode: str, count: int) -> None:
    world = World("?closeAfterOrdinaryErrors=false")
    client, messages = sent_to(world, count, "1", mode=mode)
    first, *others = acks_of(messages)
    client.say(first, first, *others[::2], first, *others[1::2])
    world.until_idle()
    world.turn()
    # a cumulative one has spoken for those before it
    assert client.errors() == ["unknown-message"] * (
        2 if mode == "client-individual" else 2 + (count - 1) // 2
    )
    assert world.broker.engine.counters["acknowledged"] == count


def longest_of(count: int, order: Callable[[list[Frame]], list[Frame]], mode: str) -> int:
    """Lines of the longest step in which the ACKs of so many messages are obeyed."""
    world = World(max_turn_frames=1_000_000)
    client, messages = sent_to(world, count, "1", mode=mode)
    octets = PADDING + client.octets(acks_of(order(messages)))
    with world.steps() as steps:
        client.socket.data_received(octets)
        world.until_idle()
    world.turn(20)
    assert client.errors() == []
    assert world.broker.engine.counters["acknowledged"] == count
    return steps.longest


@pytest.mark.parametrize(
    ("order", "mode"),
    [(list, "client-individual"), (list, "client"), (lambda given: given[::-1], "client-individual")],
    ids=["in order", "cumulative", "backwards"],
)
def test_no_step_is_longer_the_more_acks_a_read_has(
    order: Callable[[list[Frame]], list[Frame]], mode: str
) -> None:
    few, many = (longest_of(count, order, mode) for count in (200, 800))
    assert many <= 2 * few
