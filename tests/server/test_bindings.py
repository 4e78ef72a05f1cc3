"""Wildcards bind a subscription to many queues: what each costs, how many there may be, and what is said beyond."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from stompbox.broker.addresses.destinations import Destination
from stompbox.broker.queues.consumer import AckMode
from stompbox.broker.queues.memory import BOUND
from stompbox.broker.subscriptions import subscribers
from stompbox.config.options import MIB, ListenerOptions
from stompbox.message import ANYCAST, MULTICAST
from tests.broker.world import World
from tests.server.world import Guest, House, configured, play

ADDRESSES = 300


async def ask(guest: Guest, frame: str) -> bytes:
    guest.say(frame)
    return await guest.hear(b"\0\n")


def subscribe(number: int, destination: str, more: str = "") -> str:
    return f"SUBSCRIBE\nid:{number}\ndestination:{destination}\nreceipt:{number}\n{more}\n\0"


def send(destination: str, receipt: str = "sent") -> str:
    return f"SEND\ndestination:{destination}\nreceipt:{receipt}\n\n\0"


@pytest.mark.parametrize("ack", list(AckMode))
def test_an_address_of_a_wildcard_costs_little_as_long_as_it_is_silent(ack: AckMode) -> None:
    world = World()
    for number in range(ADDRESSES):
        world.address(f"wide.{number}", MULTICAST)
    tracemalloc.start()
    try:
        for number in range(10):
            consumer = world.consumer(str(number), ack)
            subscribers.to_topic(
                world.engine, consumer, Destination("#", "#", MULTICAST), subscribers.Plain()
            )
            subscribers.start(consumer)
        each = tracemalloc.get_traced_memory()[0] / (10 * ADDRESSES)
    finally:
        tracemalloc.stop()
    assert each <= 1350, f"{each:.0f} octets per subscription and address"
    assert each <= BOUND, "less is counted than it takes"


def test_what_a_wildcard_is_bound_to_counts_for_its_connection_until_it_goes(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        guest, maker = await house.client(more="login:guest\n"), await house.client(more="login:maker\n")
        for number in range(20):
            await ask(maker, subscribe(number, f"/topic/bound.{number}"))
        (connection,) = [known for known in house.broker.connections if known.user.name == "guest"]
        before = house.broker.ledger.by_kind["subscriptions"]
        await ask(guest, subscribe(1, "/topic/bound.#"))
        assert connection.allowance.bindings == 20
        assert house.broker.ledger.by_kind["subscriptions"] >= before + 20 * BOUND
        assert house.broker.engine.unacknowledged.bindings == {"guest": 20, "maker": 20}
        await ask(guest, "UNSUBSCRIBE\nid:1\nreceipt:2\n\n\0")
        assert connection.allowance.bindings == 0
        assert house.broker.ledger.by_kind["subscriptions"] == before
        assert house.broker.engine.unacknowledged.bindings == {"maker": 20}

    play(configured(tmp_path), story)


def test_addresses_that_others_make_count_for_who_says_nothing(tmp_path: Path) -> None:
    """What a silent wildcard grows by is counted as it grows; who has most of what all have together is ended for it."""

    async def story(house: House) -> None:
        guest, maker = await house.client(more="login:guest\n"), await house.client(more="login:maker\n")
        await ask(guest, subscribe(1, "/topic/bound.#"))
        (connection,) = [known for known in house.broker.connections if known.user.name == "guest"]
        account, ledger = connection.account, house.broker.ledger
        before, of_all = account.size, ledger.by_kind["subscriptions"]
        for number in range(20):
            await ask(maker, send(f"/topic/bound.{number}"))
        assert account.size == before + 20 * BOUND
        assert ledger.of_user["guest"] == account.size
        assert ledger.by_kind["subscriptions"] == of_all + 20 * BOUND
        for number in range(20, 60):
            maker.say(send(f"/topic/bound.{number}"))
        assert b"(max-client-memory)" in await guest.end()
        await house.until(lambda: "guest" not in ledger.of_user, "nothing is kept for who is gone")
        assert ledger.by_kind["subscriptions"] == 0

    play(configured(tmp_path, top=f"max-client-memory = {50 * BOUND}\n"), story)


def test_who_was_let_grow_beyond_its_limit_is_ended_when_it_says_something(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        guest, maker = await house.client(), await house.client()
        await ask(guest, subscribe(1, "/topic/bound.#"))
        for number in range(20):
            await ask(maker, send(f"/topic/bound.{number}"))
        guest.say(send("/queue/any"))
        assert b"(maxConnectionMemory)" in await guest.end()

    play(configured(tmp_path, f"maxConnectionMemory={20 * BOUND}"), story)


def test_a_wildcard_over_25000_addresses_is_within_the_defaults() -> None:
    """Those of a large application, and what its connection keeps besides does not meet another limit first."""
    options = ListenerOptions()
    assert options.max_bindings > 25_000
    assert options.max_bindings * BOUND + 4 * MIB <= options.max_connection_memory


def test_a_reader_group_is_bound_to_nothing(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        guest = await house.client()
        for number in range(20):
            house.broker.engine.address(f"many.{number}", MULTICAST)
        guest.say('SEND\ndestination:stompbox.requests\nrequest:group-open\nrequest-id:1\ngroup:g\nstarting:earliest\n\n'
                  '{"destinations":"/topic/many.#"}\0')  # fmt: skip
        said = await guest.hear(b'"many.19":')
        assert b"status:ok\n" in said
        assert house.connection().allowance.bindings == 0
        assert all("g" in address.groups for address in house.broker.engine.addresses.values())

    play(configured(tmp_path, "maxBindings=2"), story)


@pytest.mark.parametrize(
    ("destination", "more"),
    [
        ("/topic/many.#", ""),
        ("/queue/many.#", ""),
        ("/topic/many.#", "durable-subscription-name:d\n"),
        ("/topic/many.*,/queue/many.*", ""),
    ],
    ids=["topics", "queues", "durable", "several"],
)
def test_a_subscribe_beyond_max_bindings_is_refused_and_leaves_nothing(
    tmp_path: Path, destination: str, more: str
) -> None:
    async def story(house: House) -> None:
        engine = house.broker.engine
        for number in range(4):
            engine.anycast_queue(engine.address(f"many.{number}", ANYCAST | MULTICAST))
        guest = await house.client(version="1.1", more="client-id:c\n")
        await ask(guest, subscribe(0, "/topic/other"))
        there = len(engine.queues), len(engine.watchers), len(engine.durables)
        said = await ask(guest, subscribe(1, destination, more))
        assert b"code:too-many-bindings\n" in said
        assert b"the limit is 4 (maxBindings)" in said
        assert (len(engine.queues), len(engine.watchers), len(engine.durables)) == there
        assert house.connection().allowance.bindings == 1
        await ask(guest, "UNSUBSCRIBE\nid:0\nreceipt:u\n\n\0")
        assert b"RECEIPT" in await ask(guest, subscribe(2, "/topic/many.#", more)), "now there is room"

    play(configured(tmp_path, "maxBindings=4"), story)


def test_the_limit_of_a_user_counts_all_of_its_connections(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        first, second, other = [
            await house.client(version="1.1", more=f"login:{name}\n") for name in ("u", "u", "v")
        ]
        for number in range(2):
            await ask(first, subscribe(number, f"/queue/{number}"))
            await ask(second, subscribe(number, f"/queue/{number}"))
        said = await ask(second, subscribe(5, "/queue/5"))
        assert b"code:too-many-bindings\n" in said
        assert b"user 'u' are bound to 4 queues; the limit is 4 (maxBindingsPerUser)" in said
        assert b"RECEIPT" in await ask(other, subscribe(5, "/queue/5"))
        first.leave()
        await house.until(
            lambda: house.broker.engine.unacknowledged.bindings["u"] == 2, "the connection left"
        )
        assert b"RECEIPT" in await ask(second, subscribe(5, "/queue/5"))

    play(configured(tmp_path, "maxBindingsPerUser=4"), story)


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
@pytest.mark.parametrize(
    ("destination", "made", "more"),
    [
        ("/topic/late.#", "/topic/late.x", ""),
        ("/queue/late.#", "/queue/late.x", ""),
        ("/topic/late.#", "/topic/late.x", "durable-subscription-name:d\n"),
    ],
    ids=["topics", "queues", "durable"],
)
def test_who_would_miss_an_address_that_is_made_later_is_closed_and_its_maker_is_not(
    tmp_path: Path, version: str, destination: str, made: str, more: str
) -> None:
    async def story(house: House) -> None:
        guest, maker = await house.client(version=version, more="client-id:c\n"), await house.client()
        await ask(guest, subscribe(1, destination, more))
        for number in range(2):
            assert b"RECEIPT" in await ask(maker, send(f"{made}.{number}"))
        assert b"code:" not in guest.heard
        assert b"RECEIPT" in await ask(maker, send(f"{made}.2"))
        said = await guest.end()
        assert b"code:too-many-bindings\n" in said
        assert b"the limit is 2 (maxBindings)" in said
        assert house.broker.errors["too-many-bindings"] == 1
        assert b"RECEIPT" in await ask(maker, send(f"{made}.3"))

    play(configured(tmp_path, "maxBindings=2"), story)


@pytest.mark.parametrize(
    "destination",
    [
        "/topic/#,/topic/over.#,/topic/over.*,/topic/*.a",
        "/topic/#,/topic/over.a",
        "/topic/over.a,/topic/#",
        "/topic/over.a, /topic/over.a",
    ],
)
def test_destinations_of_one_subscription_that_overlap_join_an_address_once(
    tmp_path: Path, destination: str
) -> None:
    async def story(house: House) -> None:
        guest = await house.client()
        house.broker.engine.address("over.a", MULTICAST)
        await ask(guest, subscribe(1, destination))
        assert house.connection().allowance.bindings == 1
        if "#" in destination:
            await ask(guest, send("/topic/over.later"))
            assert house.connection().allowance.bindings == 2
            assert guest.heard.count(b"MESSAGE") <= 1
        guest.say("SEND\ndestination:/topic/over.a\n\nonce\0SEND\ndestination:/topic/over.a\n\nend\0")
        assert (await guest.hear(b"end\0")).count(b"once") == 1

    play(configured(tmp_path), story)
