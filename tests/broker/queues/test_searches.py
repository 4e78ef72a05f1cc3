"""Lives of a paged queue with consumers of several selectors, some of which overlap: each message comes once, to each in order."""

from __future__ import annotations

from random import Random

import pytest

from stompbox.broker.queues.consumer import Consumer
from stompbox.config.settings import AddressSetting
from tests.broker.world import Got, World

SELECTORS = (
    "", "", "word = 'a'", "word = 'b'", "word = 'c'", "word IN ('a', 'b')", "word IN ('b', 'c')", "word <> 'a'",
)  # fmt: skip


class Life:
    """`out`: what consumers have. `again`: what may come out of order, since it has come before."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        choice = self.random.choice
        self.world = World(
            AddressSetting(match="q", max_read_page_bytes=choice([-1, 50, 200, 1000])),
            page_size=choice([1300, 3000, 6000]),
            portion=choice([1, 5, 40, 200, 20_000]),
            chunk_bytes=choice([300, 2000, 1 << 20]),
        )
        self.sent = 0
        self.consumers: dict[str, Consumer] = {}
        self.out: dict[str, list[Got]] = {}
        self.last: dict[str, int] = {}
        self.acknowledged: list[int] = []
        self.again: set[int] = set()

    def send(self) -> None:
        count, pad = self.random.choice([1, 1, 3, 8]), b"." * self.random.choice([5, 60])
        bodies = [b"%d" % number + pad for number in range(self.sent, self.sent + count)]
        self.world.send("q", *bodies, headers={"word": self.random.choice("aaaabc")})
        self.sent += count
        if self.random.random() < 0.5:
            self.world.commit()

    def come(self, name: str, selector: str, prefetch: int) -> None:
        self.out[name] = []
        consumer = self.world.consumer(name, selector=selector, prefetch=prefetch)
        self.consumers[name] = self.world.on_queue(consumer, "q")

    def go(self, name: str) -> None:
        self.take(self.world.out())
        self.again.update(map(number_of, self.out.pop(name)))
        self.world.close(self.consumers.pop(name))

    def take(self, found: list[Got]) -> None:
        for got in found:
            number = number_of(got)
            assert number not in self.acknowledged
            assert number not in [number_of(one) for held in self.out.values() for one in held]
            self.out[got.consumer].append(got)
            if number not in self.again:
                assert number > self.last.get(got.consumer, -1)
                self.last[got.consumer] = number

    def answer(self, name: str, most: int) -> None:
        self.take(self.world.out())
        for got in self.out[name][:most]:
            self.out[name].remove(got)
            if self.random.random() < 0.95:
                self.acknowledged.append(number_of(got))
                self.world.ack(self.consumers[name], got)
            else:
                self.again.add(number_of(got))
                self.world.nack(self.consumers[name], got)

    def move(self, name: str) -> None:
        way, choice = self.random.random(), self.random.choice
        if way < 0.15 and len(self.consumers) < 12:
            self.come(name, choice(SELECTORS), choice([1, 2, 3, 5, 20]))
        elif way < 0.2:
            self.send()
        elif way < 0.25 and self.consumers:
            self.go(choice(sorted(self.consumers)))
        elif way < 0.6 and self.consumers:
            self.answer(choice(sorted(self.consumers)), choice([1, 2, 99]))
        elif way < 0.9:
            for _ in range(choice([1, 2, 5])):
                _ = (
                    self.world.engine.dispatch_rest()
                    if choice([True, False])
                    else self.world.serve(max_bytes=1)
                )
            self.take(self.world.out())
        else:
            self.take(self.world.settle())


def number_of(got: Got) -> int:
    return int(got.body.rstrip(b"."))


@pytest.mark.parametrize("seed", range(60))
def test_each_message_comes_once_and_to_each_consumer_in_order(seed: int) -> None:
    life = Life(seed)
    for _ in range(life.random.choice([20, 60])):
        life.send()
    if seed % 2:
        life.world.commit()
        life.world = life.world.restart()
    for number in range(life.random.choice([40, 120])):
        life.move(f"c{number}")
    for name in list(life.consumers):
        life.go(name)
    life.again.update(range(life.sent))
    life.come("last", "", 20)
    life.take(life.world.settle())
    while life.out["last"]:
        life.answer("last", 99)
        life.take(life.world.settle())
    assert sorted(life.acknowledged) == list(range(life.sent)), "nothing stays"
