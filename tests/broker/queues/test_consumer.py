"""Credit, and what a subscription has and has not answered."""

from __future__ import annotations

from collections import deque
from typing import NoReturn

import pytest

from stompbox.broker.queues.consumer import AUTO_WINDOW, AckMode, Consumer, Sent
from stompbox.broker.transactions import Transaction
from tests.broker.world import Got, World


def opened(world: World, consumer: Consumer) -> list[Got]:
    world.on_queue(consumer, "q")
    return world.out()


@pytest.mark.parametrize(
    ("window", "prefetch", "sizes", "expected"),
    [
        (-1, -1, [10] * 9, 9),
        (0, -1, [10] * 9, 1),  # one at a time
        (1, -1, [10] * 9, 1),  # one message always flows, however large
        (10, -1, [10] * 9, 1),
        (11, -1, [10] * 9, 2),  # the last one may go beyond
        (35, -1, [10] * 9, 4),
        (-1, 0, [10] * 9, 1),
        (-1, 3, [10] * 9, 3),
        (25, 5, [10] * 9, 3),
        (0, -1, [0] * 9, 1),  # empty bodies, too, go one at a time
        (4, -1, [0] * 9, 4),  # and take a byte of a window each
    ],
)
@pytest.mark.parametrize("is_one_run", [True, False])
def test_what_goes_without_an_answer(
    window: int, prefetch: int, sizes: list[int], expected: int, is_one_run: bool
) -> None:
    world = World()
    bodies = [b"x" * size for size in sizes]
    for part in [bodies] if is_one_run else [[body] for body in bodies]:
        world.send("q", *part)
    consumer = world.consumer(window=window, prefetch=prefetch)
    got = opened(world, consumer)
    assert len(got) == expected
    world.ack(consumer, got[0])
    assert len(world.out()) == (0 if expected == len(sizes) else 1), "an answer makes room"


def test_nothing_goes_before_it_is_started() -> None:
    world = World()
    world.send("q", b"a")
    consumer = world.consumer()
    consumer.is_started = False
    assert not consumer.has_credit
    assert [got.body for got in opened(world, consumer)] == [b"a"]


def test_cumulative_acknowledgement() -> None:
    """STOMP 1.2, SUBSCRIBE ack: client: the message and all that were sent on the subscription before it."""
    world = World()
    world.send("q", *b"abcdef".split(b"/"), b"b", b"c", b"d")
    consumer = world.consumer(ack=AckMode.CLIENT)
    got = opened(world, consumer)
    world.ack(consumer, got[2])
    assert consumer.messages_out == 1
    assert consumer.take(got[0].queue.id, 1, 2) == ([], 1), "it is acknowledged already"
    world.close(consumer)
    assert [(one.body, one.is_redelivered) for one in opened(world, world.consumer("next"))] == [(b"d", True)]


class Unread(deque[Sent]):
    """A ledger that nobody may look through."""

    def __iter__(self) -> NoReturn:
        pytest.fail("the ledger was looked through")


def test_an_unknown_message_is_not_looked_for_in_all_that_was_sent() -> None:
    world = World()
    for number in range(1000):
        world.send("q", b"%d" % number)
    consumer = world.consumer(ack=AckMode.CLIENT)
    got = opened(world, consumer)
    while world.engine.dispatch_rest():
        got += world.out()
    world.ack(consumer, got[9])
    ledger, consumer.ledger = consumer.ledger, Unread(consumer.ledger)
    id = got[0].queue.id
    assert [consumer.take(id, offset, offset + 1)[0] for offset in (0, 9, 1000, 5000)] == [[]] * 4
    assert consumer.take(id + 1, 500, 501)[0] == []
    consumer.ledger = ledger
    assert len(consumer.take(id, 499, 500)[0]) == 490
    assert consumer.take(id, 499, 500)[0] == []


def test_cumulative_over_several_queues() -> None:
    world = World()
    for name in ("w.a", "w.b"):
        world.send(name, b"first")
    consumer = world.on_queue(world.consumer(ack=AckMode.CLIENT), "w.*")
    world.send("w.a", b"second")
    world.send("w.b", b"second")
    got = world.out()
    assert [(one.queue.name, one.body) for one in got] == [
        ("w.a", b"first"),
        ("w.b", b"first"),
        ("w.a", b"second"),
        ("w.b", b"second"),
    ]
    world.ack(consumer, got[2])
    assert [(binding.queue.name, segment.first) for binding, segment in consumer.ledger] == [("w.b", 1)]


def test_individual_acknowledgement_in_any_order() -> None:
    world = World()
    world.send("q", *[b"%d" % number for number in range(10)])
    consumer = world.consumer()
    got = opened(world, consumer)
    for at in (5, 0, 9, 4):
        world.ack(consumer, got[at])
    world.close(consumer)
    assert [one.body for one in opened(world, world.consumer("next"))] == [b"1", b"2", b"3", b"6", b"7", b"8"]


def test_auto_has_nothing_to_answer() -> None:
    world = World()
    world.send("q", b"a")
    consumer = world.consumer(ack=AckMode.AUTO)
    got = opened(world, consumer)
    assert consumer.take(got[0].queue.id, got[0].offset, got[0].offset + 1) == ([], got[0].offset)


def test_flushed_is_only_what_was_written() -> None:
    """What was handed out after the last look into the outbox has not left the process."""
    world = World()
    consumer = world.on_queue(world.consumer(ack=AckMode.AUTO), "q")
    world.send("q", b"written")
    world.out()
    world.send("q", b"not written")
    world.engine.flushed(consumer)
    assert (consumer.messages_out, world.queue("q").cursor.position) == (1, 1)
    world.close(consumer, is_failure=True)
    assert [
        (one.body, one.is_redelivered, one.deliveries) for one in opened(world, world.consumer("next"))
    ] == [(b"not written", False, 0)]


def test_an_auto_consumer_whose_socket_is_full_is_bounded_whatever_it_gets() -> None:
    """Headers fill a socket as bodies do."""
    world = World()
    consumer = world.on_topic(world.consumer(ack=AckMode.AUTO), "t")
    for _ in range(200):
        world.send_to_topic("t", b"", headers={"note": "x" * 60_000})
    octets = sum(len(got.headers["note"]) for got in world.out())
    assert octets <= 2 * AUTO_WINDOW
    world.engine.flushed(consumer)
    assert consumer.bytes_out > 0, "the next ones are on their way"
    world.engine.flushed(consumer)
    world.out()
    while consumer.messages_out:
        world.engine.flushed(consumer)
        world.out()
    assert consumer.bytes_out == 0


def test_aborted_answers_are_to_be_given_again_in_the_order_of_sending() -> None:
    """ACKs of several transactions that were aborted in any order: a cumulative ACK still means what was sent before."""
    world = World()
    world.send("q", *[b"%d" % number for number in range(9)])
    consumer = world.consumer(ack=AckMode.CLIENT)
    got = opened(world, consumer)
    one, two = Transaction("one"), Transaction("two")
    world.hold(one, consumer, got[1])
    world.hold(two, consumer, got[3], is_good=False)
    world.hold(one, consumer, got[5])
    world.engine.abort(one)
    world.engine.abort(two)
    assert [segment.first for _, segment in consumer.ledger] == [0, 2, 4, 6]
    world.ack(consumer, got[1])
    assert consumer.messages_out == 7


def test_answers_of_a_client_beside_a_transaction() -> None:
    """A cumulative ACK passes over what an open transaction holds."""
    world = World()
    world.send("q", b"0", b"1", b"2", b"3")
    consumer = world.consumer(ack=AckMode.CLIENT)
    got = opened(world, consumer)
    transaction = Transaction("x")
    world.hold(transaction, consumer, got[1])
    world.ack(consumer, got[3])
    assert world.queue("q").cursor.position == 0, "0 and 1 are the transaction's"
    world.engine.commit(transaction)
    assert world.queue("q").cursor.position == 4


def test_an_answer_frees_credit_in_a_transaction_too() -> None:
    world = World()
    world.send("q", b"0", b"1")
    consumer = world.consumer(prefetch=1)
    got = opened(world, consumer)
    transaction = Transaction("x")
    world.hold(transaction, consumer, got[0])
    assert [one.body for one in world.out()] == [b"1"]
    world.engine.abort(transaction)
    assert consumer.messages_out == 2, "both are out: the window is overdrawn, and nothing more comes"
    assert not consumer.has_credit


def test_a_queue_that_goes_takes_its_messages_along() -> None:
    """Credit is not lost with a queue of a wildcard subscription."""
    world = World()
    consumer = world.on_queue(world.consumer(prefetch=2), "w.*")
    world.send("w.a", b"a", b"a")
    world.send("w.b", b"b")
    got = world.out()
    assert len(got) == 2
    world.engine.drop_queue(got[0].queue)
    assert consumer.messages_out == 0
    world.engine.feed(consumer)
    assert [one.body for one in world.out()] == [b"b"]
