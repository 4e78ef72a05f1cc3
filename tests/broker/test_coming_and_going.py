"""What frames have made goes by itself, when and only when nobody needs it; what an address keeps for newcomers; operators.

Time is an argument: days pass in no time.
"""

from __future__ import annotations

import pytest

from stompbox.broker import transactions
from stompbox.broker.addresses import lifetimes
from stompbox.broker.addresses.contracts import Divert
from stompbox.broker.addresses.destinations import Destination, Temporaries, shown
from stompbox.broker.engine import Engine
from stompbox.broker.queues.consumer import AckMode, Consumer
from stompbox.broker.queues.depth import waiting
from stompbox.broker.recovery import recover
from stompbox.broker.subscriptions import durables, subscribers
from stompbox.broker.subscriptions.durables import DurableSubscription
from stompbox.broker.transactions import Transaction
from stompbox.config.settings import AddressSetting, AddressSettingsTable
from stompbox.errors import IllegalFrame, Refused
from stompbox.message import ANYCAST, MULTICAST, Run, Shape
from stompbox.store.memory import MemoryStore

NOW = 1_000_000
DAY = 86_400_000


class Life:
    """An engine and its store; `again` is the next start."""

    def __init__(self, *rules: AddressSetting, store: MemoryStore | None = None, epoch: int = 1) -> None:
        self.rules = rules
        self.store = store or MemoryStore()
        self.engine = Engine(AddressSettingsTable(rules), epoch=epoch)
        self.engine.now = NOW
        recover(self.engine, self.store.recover())

    def commit(self) -> None:
        while self.engine.is_dirty:
            self.store.apply(self.engine.take_commit())
            self.engine.committed()

    def again(self) -> Life:
        self.commit()
        return Life(*self.rules, store=self.store, epoch=self.engine.epoch + 1)

    def send(
        self, name: str, body: bytes = b"1", kind: int = ANYCAST, *, retain: str = "", queue: str = ""
    ) -> None:
        headers = {"destination": name} | ({"retain": retain} if retain else {})
        run = Run(Shape(headers), [body], routing=kind, sender=7, queue=queue)
        self.engine.publish(self.engine.address(name, kind), run)

    def listen(self, name: str, kind: int = ANYCAST, session: int = 1) -> Consumer:
        consumer = Consumer(f"c{session}", AckMode.INDIVIDUAL, session=session)
        if kind == ANYCAST:
            subscribers.to_queue(self.engine, consumer, Destination(name, name, ANYCAST))
        else:
            subscribers.to_topic(
                self.engine, consumer, Destination(name, name, MULTICAST), subscribers.Plain()
            )
        subscribers.start(consumer)
        return consumer

    def leave(self, consumer: Consumer) -> None:
        self.engine.close_consumer(consumer, is_failure=False)


def got(consumer: Consumer) -> list[bytes]:
    return [
        output.run.bodies[at - output.run.first]
        for output in consumer.outbox
        for at in range(output.first, output.stop)
    ]


def rule(match: str = "#", **keys: object) -> AddressSetting:
    return AddressSetting(match=match, **keys)  # type: ignore[arg-type]


@pytest.mark.parametrize("key", ["auto_delete_queues", "auto_delete_addresses"])
def test_settings_keep_them(key: str) -> None:
    life = Life(rule(**{key: False}))
    life.leave(life.listen("q"))
    assert bool(life.engine.addresses["q"].anycast) is (key == "auto_delete_queues")


def test_other_consumers_keep_a_queue() -> None:
    life = Life()
    one, other = life.listen("q"), life.listen("q", session=2)
    life.leave(one)
    assert "q" in life.engine.addresses
    life.leave(other)
    assert life.engine.addresses == life.engine.queues == life.engine.logs == {}


def test_so_many_messages_do_not_keep_a_queue() -> None:
    life = Life(rule(auto_delete_queues_message_count=2))
    for _ in range(3):
        life.send("q")
    life.leave(life.listen("q"))
    assert "q" in life.engine.addresses
    consumer = life.listen("q", session=2)
    life.engine.acknowledge(consumer, consumer.take(next(iter(consumer.bindings)), 0, 1)[0])
    life.leave(consumer)
    assert "q" not in life.engine.addresses


def test_what_was_made_on_purpose_stays_over_restarts() -> None:
    life = Life()
    life.engine.create_address("q").add_kind(ANYCAST)
    life.leave(life.listen("q"))
    assert life.again().engine.addresses["q"].kinds == ANYCAST


def test_delays_begin_anew_with_each_use() -> None:
    life = Life(rule(auto_delete_queues_delay=DAY, auto_delete_addresses_delay=50))
    life.leave(life.listen("q"))
    life.engine.tick(NOW + DAY - 1)
    second = life.listen("q")
    life.engine.tick(NOW + DAY)
    life.leave(second)
    life.engine.tick(NOW + 2 * DAY - 1)
    assert life.engine.addresses["q"].anycast
    life.engine.tick(NOW + 2 * DAY)
    assert not life.engine.addresses["q"].anycast
    life.engine.tick(NOW + 2 * DAY + 50)
    assert "q" not in life.engine.addresses


def test_an_address_that_never_had_a_queue_stays_unless_the_settings_say_otherwise() -> None:
    life = Life(rule("short.#", auto_delete_addresses_skip_usage_check=True, auto_delete_addresses_delay=10))
    life.send("t", kind=MULTICAST)
    life.send("short.t", kind=MULTICAST)
    life.engine.tick(NOW + 10)
    assert list(life.engine.addresses) == ["t"]


def test_nothing_is_looked_through() -> None:
    life = Life()
    for number in range(1000):
        life.send(f"q{number}")
    assert life.engine.next_deadline() is None


def test_what_is_forgotten_lies_below_all_that_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifetimes, "REMEMBERED", 1)
    life = Life()
    for name in ("one", "two"):
        life.send(name)
        consumer = life.listen(name)
        life.engine.acknowledge(consumer, consumer.take(next(iter(consumer.bindings)), 0, 1)[0])
        life.leave(consumer)
    assert list(life.engine.ended) == ["two"]
    assert life.engine.beyond == life.engine.create_address("one").log.next == 1


def test_a_transaction_brings_an_address_back() -> None:
    life = Life()
    consumer, transaction = life.listen("q"), Transaction("t")
    transaction.sends.append(
        (life.engine.addresses["q"], Run(Shape({"destination": "q"}), [b"1"], routing=ANYCAST))
    )
    life.leave(consumer)
    assert "q" not in life.engine.addresses
    life.engine.commit(transaction)
    assert got(life.listen("q")) == [b"1"]


def test_a_durable_subscription_that_nobody_comes_back_to_goes_after_days() -> None:
    def subscribe() -> Consumer:
        consumer = Consumer("d", AckMode.INDIVIDUAL, session=1)
        durables.to_durable(
            life.engine, consumer, DurableSubscription("client", "d", "t", None, no_local=False)
        )
        return consumer

    life = Life(rule(offline_durable_subscription_timeout=2 * DAY))
    life.leave(subscribe())
    life.engine.tick(NOW + DAY)
    again = subscribe()
    life.engine.tick(NOW + 3 * DAY)
    life.leave(again)
    life.engine.tick(NOW + 5 * DAY - 1)
    assert life.engine.durables
    life.engine.tick(NOW + 5 * DAY)
    assert life.engine.durables == life.engine.addresses == {}


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_retained_message_stays_until_it_is_removed(*, is_restarted: bool) -> None:
    life = Life()
    life.send("t", b"old", MULTICAST, retain="set")
    life.send("t", b"new", MULTICAST, retain="set")
    life = life.again() if is_restarted else life
    listener = life.listen("t", MULTICAST)
    assert got(listener) == [b"new"]
    life.leave(listener)
    life.send("t", b"", MULTICAST, retain="remove")
    life.leave(life.listen("t", MULTICAST))
    assert "t" not in life.engine.addresses
    assert "t" not in life.again().engine.addresses


def test_a_retroactive_address_keeps_so_many_messages_and_no_more() -> None:
    life = Life(rule(retroactive_message_count=3))
    for number in range(10):
        life.send("t", b"%d" % number, MULTICAST)
        life.commit()
    life.listen("t", MULTICAST)
    assert life.engine.loads[0].start == 7
    log = life.engine.addresses["t"].log.id
    assert life.store.sizes([log])[log][0] <= 4


@pytest.mark.parametrize("kind", [ANYCAST, MULTICAST])
def test_a_paused_address_gives_nothing_out_and_keeps_what_comes(kind: int) -> None:
    life = Life()
    life.engine.address("a", kind).pause()
    consumer = life.listen("a", kind)
    life.send("a", kind=kind)
    assert got(consumer) == []
    life.engine.addresses["a"].resume()
    assert got(consumer) == [b"1"]


def test_temporary_destinations_are_not_stored_and_go_together() -> None:
    life = Life()
    own = Temporaries(life.engine, 5, lambda: "token", 2)
    address = own.make(Destination("/temp-queue/a", "a", ANYCAST, is_temporary=True))
    assert shown(address) == "/temp-queue/token-1"
    life.send(address.name)
    life.commit()
    assert life.store.recover().logs == []
    own.make(Destination("/temp-topic/a", "a", MULTICAST, is_temporary=True))
    with pytest.raises(Refused, match="no more than 2"):
        own.make(Destination("/temp-queue/b", "b", ANYCAST, is_temporary=True))
    list(own.closing())
    assert life.engine.addresses == life.engine.queues == {}


@pytest.mark.parametrize("name", ["a", "token-1"], ids=["short", "long"])
@pytest.mark.parametrize("what", ["queue", "address"])
def test_a_temporary_queue_that_an_operator_has_deleted_is_made_again(what: str, name: str) -> None:
    """Its connection finds no half of it when it comes back to it, nor when it ends."""
    life = Life()
    own = Temporaries(life.engine, 5, lambda: "token", 2)
    first = own.make(Destination("/temp-queue/a", "a", ANYCAST, is_temporary=True))
    if what == "queue":
        life.engine.drop_queue(next(iter(first.anycast.values())))
    else:
        list(transactions.dropping(life.engine, first))
    second = own.make(Destination(f"/temp-queue/{name}", name, ANYCAST, is_temporary=True))
    assert second is not first
    assert list(life.engine.addresses.values()) == [second]
    assert len(second.anycast) == 1
    list(own.closing())
    assert life.engine.addresses == life.engine.queues == {}


def test_a_temporary_destination_that_an_operator_has_deleted_does_not_end_once_more() -> None:
    life = Life()
    own = Temporaries(life.engine, 5, lambda: "token", 2)
    for kind, word in ((ANYCAST, "queue"), (MULTICAST, "topic")):
        address = own.make(Destination(f"/temp-{word}/a", "a", kind, is_temporary=True))
        list(transactions.dropping(life.engine, address))
    list(own.closing())
    assert len(own) == 0 and life.engine.addresses == {}


def test_an_exact_queue_alone_gets_it_also_after_a_restart() -> None:
    life = Life()
    for name in ("one", "two"):
        life.engine.exact_queue(life.engine.address("a", ANYCAST), name, ANYCAST)
    life.send("a", queue="two")
    queues = life.again().engine.addresses["a"].anycast
    assert list(queues) == ["two"], "the other one was empty, and nobody came"
    assert waiting(queues["two"]) == 1


def test_a_divert_in_a_circle_ends() -> None:
    life = Life()
    life.engine.add_divert("a", Divert("there", "b", None, exclusive=False))
    life.engine.add_divert("b", Divert("back", "a", None, exclusive=False))
    life.send("a")
    assert {name: address.anycast[name].backlog.count for name, address in life.engine.addresses.items()} == {
        "a": 2,
        "b": 1,
    }


def test_a_kind_that_may_not_be_added() -> None:
    life = Life(rule("c", auto_create_addresses=False))
    life.engine.create_address("c").add_kind(ANYCAST)
    with pytest.raises(IllegalFrame, match="is ANYCAST; its settings do not let a frame make it MULTICAST"):
        life.engine.address("c", MULTICAST)
    assert life.engine.addresses["c"].kinds == ANYCAST
