"""What a reload changes while very much is there, by the turns that it takes: settings, diverts, queues, each address whole."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from msgspec.structs import replace

from stompbox import selectors
from stompbox.broker.addresses.address import Address
from stompbox.config import Configuration
from stompbox.config.settings import AddressFullPolicy, AddressSetting, DeletePolicy
from stompbox.config.tables import AddressTable, DivertTable, PermissionTable, QueueTable, UserTable
from stompbox.errors import ConfigError, StompboxError
from stompbox.message import ANYCAST
from stompbox.server import reloading
from stompbox.server.broker import Broker
from stompbox.server.readings import Readings
from stompbox.store.memory import MemoryStore
from tests.crash.calls import WITHIN, configuration
from tests.server.turning import LOOKS, World

MANY = 1000
LIMITED = (AddressSetting(match="#", address_full_policy=AddressFullPolicy.FAIL, max_size_messages=3),)


def filled(world: World, count: int = MANY) -> None:
    engine = world.broker.engine
    for number in range(count):
        engine.anycast_queue(engine.address(f"a.{number}", ANYCAST))


def reload(world: World, **changes: object) -> None:
    async def read() -> Configuration:
        return replace(world.broker.configuration, **changes)

    reloading.reload(world.broker, read)


def obeying(world: World) -> int:
    return sum(address.limits is not None for address in world.broker.engine.addresses.values())


def test_very_many_queues_obey_new_settings_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    filled(world)
    steps: list[str] = []
    obey = Address.obey
    monkeypatch.setattr(
        Address, "obey", lambda self, settings: (steps.append(self.name), obey(self, settings))[1]
    )
    client = world.client()
    for _ in range(2):
        client.say(("SEND", {"destination": "/queue/a.7"}))
    reload(world, address_settings=LIMITED)
    most, before = len(steps), len(steps)
    client.say(("SEND", {"destination": "/queue/new", "receipt": "meanwhile"}))
    assert client.confirmed() == ["meanwhile"], "others have their turn"
    assert world.broker.engine.addresses["new"].limits is not None, (
        "what is made meanwhile obeys the new ones"
    )
    while world.broker.turns.waiting:
        world.turn()
        most, before = max(most, len(steps) - before), len(steps)
    assert 0 < most <= LOOKS + 1
    assert sorted(steps) == sorted(f"a.{number}" for number in range(MANY))
    assert obeying(world) == MANY + 1
    assert not world.broker.reloads
    for number in range(2):
        client.say(("SEND", {"destination": "/queue/a.7", "receipt": f"{number}"}))
    assert client.confirmed() == ["meanwhile", "0"], "what was there before counts"
    assert client.errors() == ["address-full"]


def test_very_much_of_a_configuration_is_looked_at_in_steps() -> None:
    """What each request asks was made of all users, permissions and settings at once, and the addresses that stay were compared so."""
    addresses = tuple([AddressTable(name=f"a.{number}") for number in range(MANY)])
    world = World(addresses=addresses)
    for table in addresses:
        world.broker.engine.create_address(table.name)
    world.until_idle()
    changes = {
        "users": tuple([UserTable(name=f"u{number}", password="p") for number in range(MANY)]),
        "permissions": tuple([PermissionTable(match=f"p{number}", send=("g",)) for number in range(MANY)]),
        "address_settings": tuple([AddressSetting(match=f"s{number}") for number in range(MANY)]),
        "addresses": tuple([replace(table) for table in addresses]),
    }
    with world.steps() as steps:
        reload(world, **changes)
        world.until_idle()
    assert len(world.broker.users) == MANY
    assert steps.longest < MANY


def told(told: list[StompboxError | None]) -> list[str]:
    return ["" if error is None else error.code for error in told]


def test_a_fault_while_the_file_is_read_changes_nothing_and_the_next_has_its_turn() -> None:
    world, ended = World(), list[StompboxError | None]()
    filled(world, 10)

    async def faulty() -> Configuration:
        raise RecursionError("a fault of ours")

    reload(world, address_settings=LIMITED)
    reloading.reload(world.broker, faulty, ended.append)
    for _ in range(100):
        world.turn()
    assert told(ended) == ["internal-fault"]
    reloading.reload(world.broker, faulty, ended.append)
    reload(world, address_settings=())
    for _ in range(100):
        world.turn()
    assert told(ended) == ["internal-fault"] * 2
    assert not world.broker.reloads
    assert world.broker.faults.last is None
    assert obeying(world) == 0


def test_a_fault_while_a_change_is_prepared_changes_nothing_and_the_next_has_its_turn(tmp_path: Path) -> None:
    """It kept its place for ever, and whoever came after it waited in vain."""
    ended: list[StompboxError | None] = []

    async def story() -> None:
        settings = configuration(tmp_path)
        broker = Broker(settings, MemoryStore(), asyncio.get_running_loop(), is_durable=True)

        async def faulty() -> Configuration:
            raise RecursionError("a fault of ours")

        async def fine() -> Configuration:
            return replace(settings, address_settings=LIMITED)

        done = asyncio.Event()
        reloading.change(broker, faulty, ended.append)
        reloading.change(broker, fine, lambda error: (ended.append(error), done.set()))
        async with asyncio.timeout(WITHIN):
            await done.wait()
        assert broker.configuration.address_settings == LIMITED
        assert broker.faults.last is None
        await broker.stop()

    asyncio.run(story())
    assert told(ended) == ["internal-fault", ""]


def test_very_many_queues_of_one_address_are_metered_in_portions() -> None:
    world = World()
    engine = world.broker.engine
    address = engine.address("a", ANYCAST)
    for number in range(MANY):
        engine.anycast_queue(address, f"q{number}")
    reload(world, address_settings=LIMITED)
    most = before = sum(queue.tally is not None for queue in address.queues())
    while world.broker.turns.waiting:
        world.turn()
        now = sum(queue.tally is not None for queue in address.queues())
        most, before = max(most, now - before), now
    assert before == MANY
    assert most < MANY // 2


def test_diverts_change_address_by_address_and_what_is_sent_meanwhile_goes_by_one_of_the_two() -> None:
    old, new = [
        DivertTable(name="d", address="#", forwarding_address=to, exclusive=True) for to in ("old", "new")
    ]
    world = World(diverts=(old,))
    filled(world)
    client = world.client()
    reload(world, diverts=(new,))
    for number in range(MANY):
        client.say(("SEND", {"destination": f"/queue/a.{number}"}))
        world.turn()
    world.until_idle()
    engine = world.broker.engine
    counts = [
        engine.addresses[name].anycast[name].count for name in ("old", "new") if name in engine.addresses
    ]
    assert sum(counts) == MANY, "none is lost, and none goes twice"
    assert all(not engine.addresses[f"a.{number}"].anycast[f"a.{number}"].count for number in range(MANY))
    assert [divert.forwarding_address for _, divert in engine.diverts] == ["new"]


def test_a_reload_that_comes_meanwhile_has_its_turn_then_and_reads_what_is_there_then() -> None:
    world = World()
    filled(world)
    reload(world, address_settings=LIMITED)
    reads: list[int] = []

    async def read() -> Configuration:
        reads.append(obeying(world))
        return replace(world.broker.configuration, address_settings=())

    for _ in range(3):
        reloading.reload(world.broker, read)
    assert reads == []
    for _ in range(10_000):
        world.turn()
        if not world.broker.reloads:
            break
    assert reads == [MANY], "once, when the first was done"
    assert obeying(world) == 0


def test_one_that_is_refused_changes_nothing_and_the_next_has_its_turn() -> None:
    world = World()
    filled(world, 10)

    async def wrong() -> Configuration:
        raise ConfigError("bad-value", "no")

    reload(world, address_settings=LIMITED)
    reloading.reload(world.broker, wrong)
    for _ in range(100):
        world.turn()
    assert not world.broker.reloads
    assert obeying(world) == 10
    assert world.broker.configuration.address_settings == LIMITED
    reload(world, address_settings=())
    for _ in range(100):
        world.turn()
    assert obeying(world) == 0


def test_queues_and_an_address_that_went_from_the_file_go_in_portions() -> None:
    force = (
        AddressSetting(
            match="#", config_delete_queues=DeletePolicy.FORCE, config_delete_addresses=DeletePolicy.FORCE
        ),
    )
    queues = tuple(QueueTable(name=f"q{number}") for number in range(MANY))
    tables = (AddressTable(name="stays", queues=queues), AddressTable(name="goes", queues=queues))
    world = World(addresses=tables, address_settings=force)
    engine, clients = world.broker.engine, [world.client("1.2") for _ in range(3)]
    for client, queue in zip(clients, ("stays::q0", "stays::q1", "goes::q0"), strict=True):
        client.say(("SUBSCRIBE", {"id": "1", "destination": f"/queue/{queue}"}))
    assert len(engine.queues) == 2 * MANY
    reload(world, addresses=(AddressTable(name="stays", queues=queues[:1]),))
    most, before = 0, len(engine.queues)
    while world.broker.turns.waiting:
        world.turn()
        most, before = max(most, before - len(engine.queues)), len(engine.queues)
    assert [queue.name for queue in engine.queues.values()] == ["q0"]
    assert "goes" not in engine.addresses
    assert [client.errors() for client in clients] == [[], ["queue-deleted"], ["queue-deleted"]]
    assert most <= 64 * (LOOKS + 1)


def test_filters_with_very_many_terms_are_compiled_in_portions() -> None:
    world = World()
    client = world.client()
    text = " OR ".join([f"a{term} = {term}" for term in range(450)])
    diverts = tuple(
        DivertTable(name=f"{number}", address="a", forwarding_address="b", filter=f"{text} OR c = {number}")
        for number in range(5)
    )
    queues = (QueueTable(name="q", filter=text),)
    selectors.load()
    with world.steps() as steps:
        reload(world, diverts=diverts, addresses=(AddressTable(name="c", queues=queues),))
        world.until_idle()
    assert not world.broker.reloads
    assert steps.longest < 10_000, "lines of Python: a whole filter takes more than a hundred thousand"
    engine = world.broker.engine
    assert len(engine.diverts) == 5
    assert engine.addresses["c"].anycast["q"].selector is not None
    client.say(("SEND", {"destination": "/queue/a", "a7": "7", "receipt": "r"}))
    world.until_idle()
    assert client.confirmed() == ["r"]
    assert engine.addresses["b"].anycast["b"].backlog.count == 5


def test_the_file_is_read_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        readings, has_gone_on = Readings(None, {}, {}), threading.Event()
        monkeypatch.setattr(readings, "again", lambda: has_gone_on.wait(WITHIN))
        asyncio.get_running_loop().call_soon(has_gone_on.set)
        assert await readings.beside(), "what waits for the loop while it is read"

    asyncio.run(story())
