"""Readers that move from one view of a store to the next, whatever they have had and read by then."""

from __future__ import annotations

import random

import pytest

from stompbox.broker.engine import Engine
from stompbox.broker.queues.browsing import browse
from stompbox.broker.queues.consumer import AckMode, Consumer
from stompbox.broker.recovery import recover
from stompbox.broker.subscriptions.moving import move
from stompbox.broker.subscriptions.subscribers import start
from stompbox.errors import Refused
from stompbox.message import MULTICAST
from tests.broker.world import Got, World, settings


class Watched:
    """A broker, and a view of its store with one consumer, which moves when it is told."""

    def __init__(self) -> None:
        self.world = World()
        self.view = World(store=self.world.store, is_durable=False)
        self.consumer = self.view.consumer(ack=AckMode.AUTO)
        self.sent = 0

    def send(self, name: str, count: int, *, routing: int = MULTICAST, priority: int = 4) -> None:
        for _ in range(count):
            body = b"%d" % self.sent
            self.world.send(name, body, routing=routing, priority=priority, persistent=True)
            self.sent += 1
        self.world.commit()

    def look(self) -> None:
        before, engine = self.view.engine, Engine(settings(), is_durable=False)
        engine.succeed(before)
        engine.now = before.now
        recover(engine, self.world.store.recover())
        self.view.engine = engine
        if self.consumer.bindings:
            move(engine, self.consumer)

    def browse(self, name: str, *, goes_on: bool) -> None:
        self.consumer.is_browser = True
        self.consumer.destination = name
        queue = self.view.engine.addresses[name].anycast[name]
        browse(self.view.engine, queue, self.consumer, goes_on=goes_on)
        start(self.consumer)

    def settle(self) -> list[Got]:
        """All that comes, if the system takes whatever is written."""
        found: list[Got] = []
        while more := self.view.settle():
            found += more
            self.view.engine.flushed(self.consumer)
        return found


def numbers(found: list[Got]) -> list[int]:
    return [int(got.body) for got in found if got.body]


def few(consumer: Consumer) -> Consumer:
    """It has room for little, so that much is read and not handed out."""
    consumer.window = 3
    return consumer


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("kind", ["stream", "browser", "browser that goes on"])
def test_nothing_is_left_out_and_nothing_comes_twice(kind: str, seed: int) -> None:
    chance, watched = random.Random(seed), Watched()
    is_stream = kind == "stream"
    watched.world.on_stream(watched.world.consumer("keeps"), "s", 0)
    if is_stream:
        watched.world.engine.address("s").log.keep(1 << 30, None)

    def send() -> None:
        if is_stream:
            watched.send("s", chance.randrange(1, 8))
        else:
            watched.send("s", chance.randrange(1, 8), routing=1, priority=chance.choice((4, 4, 7)))

    send()
    watched.look()
    few(watched.consumer)
    if is_stream:
        watched.view.on_stream(watched.consumer, "s", 0)
    else:
        watched.browse("s", goes_on=kind != "browser")
    there, found = watched.sent, []
    for _ in range(40):
        what = chance.randrange(5)
        if what == 0:
            send()
        elif what == 1:
            watched.look()
        elif what == 2:
            watched.view.serve(max_bytes=chance.choice((1, 1 << 20)))
        elif what == 3:
            found += watched.view.out()
            watched.view.engine.flushed(watched.consumer)
        else:
            watched.view.engine.dispatch_rest()
    watched.look()
    found += watched.settle()
    if is_stream:
        assert numbers(found) == list(range(watched.sent))
    elif kind == "browser":
        assert [got.headers.get("browser") for got in found][-1] == "end"
        assert len(set(numbers(found))) == len(numbers(found))
        assert set(range(there)) <= set(numbers(found))
    else:
        assert sorted(numbers(found)) == list(range(watched.sent))


def test_what_it_had_is_done_with_after_it_has_moved() -> None:
    watched = Watched()
    watched.world.engine.address("s").log.keep(100, None)
    watched.send("s", 10)
    watched.look()
    few(watched.consumer)
    watched.view.on_stream(watched.consumer, "s", 0)
    had = watched.view.settle()
    assert 0 < len(had) < 10
    watched.send("s", 5)
    watched.look()
    assert watched.view.settle() == []  # no credit
    allowance = watched.consumer.allowance
    assert allowance.bindings == 1 and watched.consumer.messages_out == len(had)
    watched.view.engine.flushed(watched.consumer)
    assert numbers(had + watched.settle()) == list(range(15))
    watched.view.close(watched.consumer)
    assert allowance.bindings == watched.consumer.messages_out == 0
    assert watched.view.engine.addresses["s"].streams == {}


def test_what_is_gone_is_told() -> None:
    watched = Watched()
    watched.world.engine.address("s").log.keep(100, None)
    watched.send("s", 1)
    watched.look()
    watched.view.on_stream(watched.consumer, "s", 0)
    assert numbers(watched.settle()) == [0]
    watched.world.engine.drop_address(watched.world.engine.addresses["s"])
    watched.world.commit()
    with pytest.raises(Refused) as refused:
        watched.look()
    assert refused.value.code == "no-such-address" and refused.value.closes
    watched.view.close(watched.consumer)


def test_in_a_view_nothing_goes_for_want_of_use() -> None:
    watched = Watched()
    watched.world.engine.address("s").log.keep(100, None)
    watched.send("s", 3)
    watched.look()
    engine = watched.view.engine
    engine.settings = World().engine.settings
    watched.view.on_stream(watched.consumer, "s", 3)
    watched.view.close(watched.consumer)
    assert "s" in engine.addresses
