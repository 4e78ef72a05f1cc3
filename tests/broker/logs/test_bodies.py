"""Large bodies as the engine sees them: handles in runs, pieces in commits, and what becomes of a body when nobody has its handle."""

from __future__ import annotations

from typing import cast

import pytest

from stompbox.broker.addresses.contracts import Divert
from stompbox.broker.logs.bodies import EPOCH, Bodies
from stompbox.broker.queues.browsing import browse
from stompbox.broker.transactions import Transaction
from stompbox.config.settings import AddressSetting
from stompbox.errors import Refused, StoreError
from stompbox.handles import Large
from stompbox.message import ANYCAST, MULTICAST, Run, Shape
from stompbox.store.base import Commit
from tests.broker.world import Got, World


def sent(
    world: World,
    name: str,
    *pieces: bytes,
    routing: int = ANYCAST,
    persistent: bool = True,
    expires: int = 0,
    transaction: Transaction | None = None,
) -> int:
    """A SEND with a large body, whose pieces came in commits of their own; the body's id."""
    bodies = world.engine.bodies
    large = bodies.new()
    for number, piece in enumerate(pieces):
        bodies.put(large, number, piece)
        large.size += len(piece)
        world.commit()
    shape = Shape({"destination": name}, persistent=persistent, expires=expires)
    run = Run(shape, [cast(bytes, large)], routing=routing)
    address = world.address(name, routing)
    if transaction is not None:
        transaction.sends.append((address, run))
    else:
        world.engine.publish(address, run)
    return large.id


def whole(world: World, got: Got) -> bytes:
    large = cast(Large, got.body)
    found, number = b"", 0
    while len(found) < large.size:
        piece = world.engine.bodies.piece(large, number)
        found += world.store.read_part(large.id, number) if piece is None else piece
        number += 1
    return found


def drain(world: World) -> None:
    """Until there is nothing more to commit."""
    while world.engine.is_dirty:
        world.commit()


def is_stored(world: World, body: int) -> bool:
    try:
        world.store.read_part(body, 0)
    except StoreError as error:
        assert error.code == "no-such-body"
        return False
    return True


# Without an engine


def test_pieces_are_here_until_they_are_durable() -> None:
    bodies, commit = Bodies(3), Commit()
    large = bodies.new()
    assert large.id == 3 * EPOCH
    bodies.put(large, 0, b"one")
    assert bodies.is_dirty
    bodies.give(commit)
    bodies.put(large, 1, b"two")
    assert commit.parts == {(large.id, 0): b"one"}
    assert (bodies.piece(large, 0), bodies.piece(large, 1), bodies.unsaved(large)) == (b"one", b"two", 6)
    bodies.landed()
    assert (bodies.piece(large, 0), bodies.piece(large, 1), bodies.unsaved(large)) == (None, b"two", 3)


def test_pieces_of_a_commit_that_failed_come_again() -> None:
    bodies, commit, again = Bodies(1), Commit(), Commit()
    large = bodies.new()
    bodies.put(large, 0, b"one")
    bodies.give(commit)
    bodies.put(large, 1, b"two")
    bodies.failed(commit)
    assert not commit
    bodies.give(again)
    assert again.parts == {(large.id, 0): b"one", (large.id, 1): b"two"}


def test_a_body_that_nobody_has_is_let_go_once() -> None:
    bodies, first, second, third = Bodies(1), Commit(), Commit(), Commit()
    large = bodies.new()
    id = large.id
    bodies.put(large, 0, b"one")
    bodies.give(first)
    bodies.put(large, 1, b"two")
    del large
    assert bodies.is_dirty
    bodies.landed()
    bodies.give(second)
    assert (second.parts, second.holds) == ({}, {id: False})
    bodies.give(third)
    assert not third
    assert not bodies.is_dirty


def test_a_body_of_which_the_store_has_heard_nothing_is_no_news() -> None:
    bodies, commit = Bodies(1), Commit()
    bodies.put(bodies.new(), 0, b"one")
    bodies.give(commit)
    assert not commit


def test_a_handle_read_again_is_the_one_that_is_there() -> None:
    bodies, commit = Bodies(1), Commit()
    large = bodies.new()
    read, other = [
        Run(Shape({"destination": "a"}), [cast(bytes, Large(id, 5))], first=0) for id in (large.id, 99)
    ]
    bodies.adopt([read, other])
    assert read.large(0) is large
    bodies.give(commit)
    assert commit.holds == {99: True}
    del other
    bodies.give(commit)
    assert commit.holds == {99: False}


# In an engine


@pytest.fixture
def world() -> World:
    return World(AddressSetting(match="orders", max_delivery_attempts=2, dead_letter_address="DLQ"))


def test_a_large_message_is_stored_delivered_and_gone(world: World) -> None:
    consumer = world.on_queue(world.consumer(), "orders")
    body = sent(world, "orders", b"first ", b"second")
    (got,) = world.settle()
    assert whole(world, got) == b"first second"
    world.commit()
    assert is_stored(world, body)
    world.ack(consumer, got)
    del got
    drain(world)
    assert not is_stored(world, body)


def test_one_that_nobody_wants_is_gone_at_once(world: World) -> None:
    body = sent(world, "news", b"x", routing=MULTICAST)
    drain(world)
    assert not is_stored(world, body)


def test_it_comes_again_and_dies_with_its_body(world: World) -> None:
    consumer = world.on_queue(world.consumer(), "orders")
    body = sent(world, "orders", b"again")
    for _ in range(2):
        (got,) = world.settle()
        assert whole(world, got) == b"again"
        world.nack(consumer, got)
    del got
    drain(world)
    assert is_stored(world, body)
    dead = world.on_queue(world.consumer("d"), "DLQ")
    (last,) = world.settle()
    assert last.headers["dead-letter-reason"] == "max-delivery-attempts"
    assert whole(world, last) == b"again"
    world.ack(dead, last)
    del last
    drain(world)
    assert not is_stored(world, body)


def test_it_survives_a_restart(world: World) -> None:
    world.on_queue(world.consumer(), "orders")
    body = sent(world, "orders", b"once ", b"more")
    world.settle()
    drain(world)
    after = world.restart()
    consumer = after.on_queue(after.consumer(), "orders")
    (got,) = after.settle()
    assert got.is_redelivered
    assert whole(after, got) == b"once more"
    after.ack(consumer, got)
    del got
    drain(after)
    assert body == EPOCH
    assert after.store.sizes([1])[1] == (0, 0)


def test_a_transaction_holds_its_bodies_and_lets_them_go_when_aborted(world: World) -> None:
    transaction = Transaction("t")
    body = sent(world, "orders", b"held", transaction=transaction)
    drain(world)
    assert is_stored(world, body)
    world.engine.abort(transaction)
    del transaction
    drain(world)
    assert not is_stored(world, body)


def test_a_transaction_that_is_committed_sends_them(world: World) -> None:
    transaction = Transaction("t")
    body = sent(world, "orders", b"held", transaction=transaction)
    world.engine.commit(transaction)
    del transaction
    drain(world)
    assert is_stored(world, body)
    world.on_queue(world.consumer(), "orders")
    assert [whole(world, got) for got in world.settle()] == [b"held"]


def test_copies_share_a_body(world: World) -> None:
    world.engine.add_divert("orders", Divert("copy", "archive", None, exclusive=False))
    body = sent(world, "orders", b"shared")
    for name in ("orders", "archive"):
        drain(world)
        assert is_stored(world, body)
        consumer = world.on_queue(world.consumer(name), name)
        (got,) = world.settle()
        assert whole(world, got) == b"shared"
        world.ack(consumer, got)
        del got
    drain(world)
    assert not is_stored(world, body)


def test_a_divert_with_a_transformer_leaves_it_where_it_is(world: World) -> None:
    def transform(run: Run, index: int) -> Run:
        raise Refused("transformer-failed", f"{run.bodies[index]!r} cannot be seen")

    world.engine.add_divert("orders", Divert("copy", "archive", None, exclusive=True, transform=transform))
    sent(world, "orders", b"here")
    world.on_queue(world.consumer(), "orders")
    assert [whole(world, got) for got in world.settle()] == [b"here"]
    assert world.engine.counters["not-diverted"] == 1


def test_its_length_counts_and_its_xml_does_not(world: World) -> None:
    """XPATH looks at no body that is not in memory: what it says is UNKNOWN, and so is the opposite."""
    for name, selector in (("size", "AMQSize > 100"), ("xml", "XPATH '//a'"), ("no-xml", "NOT XPATH '//a'")):
        world.on_queue(world.consumer(name, selector=selector), "orders")
    sent(world, "orders", b"<a>", b" " * 200, b"</a>")
    assert [got.consumer for got in world.settle()] == ["size"]
    sent(world, "orders", b"<a/>")
    assert world.settle() == []


def test_credit_counts_its_length(world: World) -> None:
    consumer = world.on_queue(world.consumer(window=100), "orders")
    for _ in range(3):
        sent(world, "orders", b"x" * 70)
    first, second = world.settle()
    world.ack(consumer, second)
    (third,) = world.settle()
    assert [got.offset for got in (first, second, third)] == [0, 1, 2]


def test_memory_counts_no_body(world: World) -> None:
    """A body larger than what a queue has in memory does not make it page."""
    small = World(page_size=10_000)
    sent(small, "orders", *[b"x" * 10_000] * 3)
    queue = small.queue("orders")
    assert not queue.is_paged
    assert queue.backlog.count == 1


def test_a_paged_queue_finds_its_large_messages() -> None:
    world = World(page_size=100)
    bodies = [sent(world, "orders", b"%d" % at, persistent=at % 2 == 0) for at in range(6)]
    assert world.queue("orders").is_paged
    drain(world)
    consumer = world.on_queue(world.consumer(), "orders")
    got: list[Got] = []
    while found := world.settle():
        got += found
        drain(world)
    assert [whole(world, one) for one in got] == [b"%d" % at for at in range(6)]
    while got:
        world.ack(consumer, got.pop())
    drain(world)
    assert [body for body in bodies if is_stored(world, body)] == []


def test_a_browser_and_a_stream_see_them(world: World) -> None:
    world.engine.anycast_queue(world.engine.address("orders", ANYCAST))
    world.on_stream(world.consumer("stream"), "orders", 0)
    sent(world, "orders", b"seen")
    browser = world.consumer("browser")
    browse(world.engine, world.queue("orders"), browser, goes_on=True)
    browser.is_started = True
    world.queue("orders").dispatch()
    found = world.settle()
    assert [(got.consumer, whole(world, got)) for got in found if got.consumer == "stream"] == [
        ("stream", b"seen")
    ]


def test_an_expired_one_goes(world: World) -> None:
    body = sent(world, "news", b"late", expires=world.engine.now + 10)
    drain(world)
    assert is_stored(world, body)
    world.tick(20)
    drain(world)
    assert not is_stored(world, body)


def test_a_commit_that_fails_keeps_pieces_for_the_next(world: World) -> None:
    large = world.engine.bodies.new()
    world.engine.bodies.put(large, 0, b"kept")
    commit = world.engine.take_commit()
    world.engine.commit_failed(commit)
    assert world.engine.is_dirty
    assert world.engine.unsaved == 4
    world.commit()
    assert world.store.read_part(large.id, 0) == b"kept"
    assert world.engine.unsaved == 0
