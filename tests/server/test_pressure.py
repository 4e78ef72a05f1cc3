"""Who waits for a disk that is behind: those who send it much, and nobody else; and what waiting costs, however many wait."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

import pytest

from stompbox.broker.addresses.address import Address
from stompbox.broker.addresses.limits import AddressLimits
from stompbox.broker.commits import MANY, Trouble
from stompbox.broker.work import AGAIN
from stompbox.config.settings import AddressFullPolicy, AddressSetting
from stompbox.message import MULTICAST
from stompbox.server import pressure
from stompbox.server.pressure import (
    ASK,
    LITTLE,
    MOST,
    RUNS,
    SEVERAL,
    SOME,
    SOME_RUNS,
    UNSAVED,
    UPLOADS,
    Reason,
)
from stompbox.server.transport.tcp import Socket
from stompbox.store.base import PIECE
from tests.server.turning import LOOKS, Client, Clock, World, loaded
from tests.server.world import KINDS, House, configured, play


def behind(octets: int) -> World:
    """A broker whose disk is at a commit, with so much on its way."""
    world = World(is_durable=True)
    world.until_stored()
    world.broker.committer.is_busy = True
    world.broker.engine.unsaved = octets
    return world


def send(client: Client, size: int) -> None:
    client.say(("SEND", {"destination": "/queue/a", "padding": "x" * size}))
    client.world.until_idle()


def is_read(client: Client) -> bool:
    return client.wire.is_read


def test_who_sends_the_disk_much_is_read_no_further_until_half_of_all_is_there() -> None:
    world = behind(UNSAVED)
    sender = world.client()
    send(sender, 2 * LITTLE)
    assert not is_read(sender)
    world.broker.engine.unsaved = UNSAVED // 2
    world.broker.pressure.relieve()
    assert not is_read(sender)
    world.broker.engine.unsaved -= 1
    world.broker.pressure.relieve()
    assert is_read(sender)


def test_many_runs_are_much_however_small_they_are() -> None:
    world = behind(0)
    world.broker.engine.unsaved_runs = RUNS
    sender = world.client()
    pressure = world.broker.pressure
    pressure.has_read(sender.connection, 1, SOME_RUNS + 1)
    assert is_read(sender)
    world.broker.engine.unsaved_runs += 1
    pressure.has_read(sender.connection, 1, SOME_RUNS)
    assert is_read(sender), "what one read has made is little"
    pressure.has_read(sender.connection, 1, SOME_RUNS + 1)
    assert not is_read(sender)
    world.broker.engine.unsaved_runs = RUNS // 2
    pressure.relieve()
    assert not is_read(sender)
    world.broker.engine.unsaved_runs -= 1
    pressure.relieve()
    assert is_read(sender)


ONE_BY_ONE = {"ack": "client-individual"}


def dying(count: int, clients: int = 1) -> tuple[World, list[Client]]:
    """Clients that have so many messages each, which are dead letters when they fail, and go to the disk; that is at a commit."""
    setting = AddressSetting(match="#", max_delivery_attempts=1, dead_letter_address="dead")
    world = World(is_durable=True, address_settings=(setting,))
    holders = [loaded(world, count, ONE_BY_ONE, f"/queue/{number}")[0] for number in range(clients)]
    world.until_stored()
    world.broker.committer.is_busy = True
    return world, holders


def fail(holder: Client) -> None:
    """NACKs all that it has, in one read."""
    ids = [frame.headers["message-id"] for frame in holder.heard() if frame.command == "MESSAGE"]
    holder.say_much([("NACK", {"message-id": id, "subscription": "1"}) for id in ids])


def test_who_makes_much_for_the_disk_in_turns_waits_for_it_and_others_do_not() -> None:
    count = 2 * RUNS
    world, (holder,) = dying(count)
    other, counters = world.client(), world.broker.engine.counters
    fail(holder)
    world.turn(3 * count)
    assert RUNS < counters["dead"] <= RUNS + LOOKS
    begun = [("BEGIN", {"transaction": str(n), "receipt": str(n)}) for n in range(count)]
    other.say_much(
        [said for one in begun for said in (one, ("ABORT", {"transaction": one[1]["transaction"]}))]
    )
    world.turn(3 * count)
    assert len(other.confirmed()) == count
    assert counters["dead"] <= RUNS + LOOKS
    world.broker.committer.is_busy = False
    assert world.broker.is_wanted, "who waits for the disk wants it to be at work"
    world.until_stored()
    assert counters["dead"] == count


def test_who_makes_very_many_queues_waits_for_the_disk_too() -> None:
    """A durable subscription has an entry of the catalogue, or several, for each address: a commit had all of them."""
    world = World(is_durable=True)
    for number in range(2 * RUNS):
        world.broker.engine.address(f"t.{number}", MULTICAST)
    world.until_stored()
    world.broker.committer.is_busy = True
    engine, client = world.broker.engine, world.client(headers={"client-id": "one"})
    headers = {"id": "1", "destination": "/topic/t.#", "durable-subscription-name": "all"}
    client.say(("SUBSCRIBE", headers | {"receipt": "subscribed"}))
    world.turn(20 * RUNS)
    assert RUNS < engine.unsaved_runs <= 3 * RUNS
    assert len(engine.queues) <= RUNS
    world.broker.committer.is_busy = False
    world.until_stored()
    world.turn(20)
    assert client.confirmed() == ["subscribed"]
    assert len(engine.queues) == 2 * RUNS


def test_what_a_commit_waits_for_goes_on_although_it_makes_more_for_the_disk() -> None:
    """What finds duplicates has its values in the catalogue, where it puts them as the commit is gathered, in steps."""
    world = World(is_durable=True)
    client, commits = world.client(), world.broker.engine.commits
    for number in range(MANY + 1):
        client.say(("SEND", {"destination": f"/queue/{number}", "_AMQ_DUPL_ID": "1"}))
        world.until_idle()
    world.until_stored()
    world.broker.committer.is_busy = True
    for number in range(MANY + 1):
        client.say(("SEND", {"destination": f"/queue/{number}", "_AMQ_DUPL_ID": "2", "receipt": str(number)}))
        world.turn(2)
    client.wire.is_read = True
    world.broker.committer.is_busy = False
    assert commits.is_large and world.broker.pressure.is_behind
    world.broker.turns.clock = Clock(1.0)  # a step is a turn
    world.until_stored()
    world.turn(20)
    assert len(client.confirmed()) == MANY + 1


def test_of_many_who_wait_for_the_disk_few_go_on_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 5 * AGAIN
    world, holders = dying(3 * LOOKS, count)
    monkeypatch.setattr(pressure, "RUNS", 1)
    counters, disk = world.broker.engine.counters, world.broker.pressure
    for holder in holders:
        fail(holder)
    world.turn(100)
    before = counters["dead"]
    assert before < count * LOOKS * 1.5, "each has made some, and is held up"
    disk.relieve()
    world.turn(100)
    assert before < counters["dead"] <= before + AGAIN * LOOKS
    monkeypatch.setattr(pressure, "RUNS", 10_000)
    disk.relieve()
    world.until_idle()
    assert counters["dead"] == count * 3 * LOOKS, "the others without another commit"


def test_however_many_send_large_bodies_few_pieces_of_all_are_on_their_way() -> None:
    """Each had five on its way, so a commit had a megabyte of each."""
    world = World(is_durable=True)
    clients = [world.client() for _ in range(24)]
    left = dict.fromkeys(clients, 12)  # pieces
    for client in clients:
        head = f"SEND\ndestination:/queue/large\ncontent-length:{12 * PIECE}\n\n"
        client.socket.data_received(head.encode())
    engine, most, at_once = world.broker.engine, 0, 0
    while any(left.values()):
        ready = [client for client, pieces in left.items() if pieces and is_read(client)]
        for client in ready:
            client.socket.data_received(bytes(PIECE))
            left[client] -= 1
        world.until_idle()
        most = max(most, engine.bodies.all_unsaved)
        if not any(pieces and is_read(client) for client, pieces in left.items()):
            world.until_stored()
            world.broker.pressure.relieve()  # as the timer would
            world.turn(5)
            waiting = [client for client, pieces in left.items() if pieces]
            at_once = max(at_once, sum(map(is_read, waiting)))
    assert PIECE < most <= UNSAVED + len(clients) * PIECE
    assert 0 < at_once <= 2 * UPLOADS, "the commit lets go some, and so does the timer"
    for client in clients:
        client.socket.data_received(b"\0")
    world.until_idle()
    world.until_stored()
    assert engine.addresses["large"].anycast["large"].count == len(clients)
    assert all(client.errors() == [] for client in clients)


def test_so_do_few_runs_where_very_much_is_on_its_way() -> None:
    world, (holder,) = dying(10 * LOOKS)
    world.broker.engine.unsaved = SEVERAL
    fail(holder)
    world.turn(100 * LOOKS)
    assert 0 < world.broker.engine.counters["dead"] <= 2 * LOOKS


@pytest.mark.parametrize("why", ["in trouble", "held", "stopping"])
def test_nobody_waits_for_a_disk_that_does_nothing_before(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither for one in trouble, nor for a commit that waits for the rest of a unit, nor while the broker stops."""
    world, (holder,) = dying(2 * RUNS)
    broker = world.broker
    if why == "in trouble":
        broker.engine.trouble = Trouble("disk-full", "there is no room")
    elif why == "held":
        broker.engine.commits.hold()
    else:
        monkeypatch.setattr(broker, "is_stopping", True)
    fail(holder)
    world.turn(6 * RUNS)
    assert broker.engine.counters["dead"] == 2 * RUNS


MUCH = {"padding": "x" * 2 * LITTLE}
NOTHING = {
    "not persistent": ("SEND", {"destination": "/queue/a", "persistent": "false", **MUCH}),
    "nobody is there": ("SEND", {"destination": "/topic/a", **MUCH}),
    "no message": ("BEGIN", {"transaction": "t"}),
}


@pytest.mark.parametrize("kind", NOTHING)
def test_who_sends_the_disk_nothing_is_read_however_far_it_is_behind(kind: str) -> None:
    world = behind(2 * MOST)
    client = world.client()
    client.say(NOTHING[kind])
    world.until_idle()
    assert is_read(client)


def test_who_sends_the_disk_little_goes_on_for_longer_and_not_without_end() -> None:
    world = behind(UNSAVED + 1)
    sender = world.client()
    for _ in range(10):
        send(sender, LITTLE // 2)
        assert is_read(sender)
    world.broker.engine.unsaved = MOST
    send(sender, LITTLE // 2)
    assert not is_read(sender)


def test_very_many_who_need_not_wait_any_more_go_on_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pressure, "FEW", 1)
    world = behind(MOST)
    senders = [world.client() for _ in range(100)]
    for sender in senders:
        world.broker.pressure.hold(sender.connection, Reason.BEHIND)
    other = world.client()
    world.broker.pressure.hold(other.connection, Reason.REQUESTS)
    world.broker.engine.unsaved = 0
    world.broker.pressure.relieve()
    assert len([sender for sender in senders if is_read(sender)]) <= LOOKS + 1
    world.broker.pressure.hold(senders[0].connection, Reason.BEHIND)  # once more, and nothing comes after it
    world.broker.pressure.relieve()
    world.until_idle()
    assert all(is_read(sender) for sender in senders)
    assert not is_read(other)


ONE_EACH = AddressSetting(match="#", max_size_messages=1, address_full_policy=AddressFullPolicy.BLOCK)


def taken(world: World, count: int) -> None:
    """All that waits in so many queues."""
    taker = world.client()
    for number in range(count):
        taker.say(("SUBSCRIBE", {"id": str(number), "destination": f"/queue/{number}"}))
    world.until_idle()
    world.turn(5)


def test_who_waits_for_room_in_very_many_addresses_is_looked_at_for_one_after_the_other() -> None:
    world = World(address_settings=(ONE_EACH,))
    sender, count = world.client(), 300
    sends = [("SEND", {"destination": f"/queue/{number}", "transaction": "t"}) for number in range(count)]
    sender.say(("BEGIN", {"transaction": "t"}), *sends, ("COMMIT", {"transaction": "t"}))
    world.until_idle()
    waiting = world.broker.pressure
    assert not is_read(sender)
    assert len(waiting.full) == 1
    assert [reason.value for reason in waiting.waiting[sender.connection]] == ["full"]
    taken(world, count - 1)
    for _ in range(count):
        world.broker.flush()
    assert not is_read(sender), "the last of them is full still"
    assert len(waiting.full) == 1
    taken(world, count)
    for _ in range(count):
        world.broker.flush()
    assert is_read(sender)
    assert not (waiting.full or waiting.waiting)


def test_who_leaves_while_very_many_addresses_are_full_waits_for_none_of_them() -> None:
    world = World(address_settings=(ONE_EACH,))
    sender = world.client()
    for number in range(3):
        world.broker.pressure.hold(sender.connection, AddressLimits(world_address(world, sender, number)))
    sender.socket.connection_lost(None)
    world.until_idle()
    assert repr(world.broker.pressure) == "<Pressure 0 connections wait>"
    assert not world.broker.pressure.full


def world_address(world: World, client: Client, number: int) -> Address:
    client.say(("SEND", {"destination": f"/topic/{number}"}))
    world.until_idle()
    return world.broker.engine.addresses[str(number)]


def test_of_very_many_full_addresses_some_are_looked_at_in_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(address_settings=(ONE_EACH,))
    senders = [world.client() for _ in range(2 * SOME + 1)]
    for number, sender in enumerate(senders):
        sender.say(("SEND", {"destination": f"/queue/{number}"}))
    world.until_idle()
    assert not any(is_read(sender) for sender in senders)
    looked = [0]
    has_room_again = AddressLimits.has_room_again

    def count(limits: AddressLimits) -> bool:
        looked[0] += 1
        return has_room_again(limits)

    monkeypatch.setattr(AddressLimits, "has_room_again", count)
    world.broker.flush()
    assert looked[0] == SOME
    taken(world, len(senders))
    for _ in range(3):
        world.broker.flush()
    assert all(is_read(sender) for sender in senders)


@pytest.mark.parametrize("kind", KINDS)
def test_who_is_not_read_and_has_reset_its_socket_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Also where no time to live ends it: the loop hears nothing of a socket that it does not read."""
    monkeypatch.setattr(pressure, "LOOK", 0.001)

    async def story(house: House) -> None:
        guest = await house.client(kind)
        connection = house.connection()
        house.broker.pressure.hold(connection, Reason.DISK)
        assert connection.pulse is not None
        house.broker.beats.leave(connection)
        raw = guest.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        guest.leave()
        await house.until(lambda: not (house.broker.connections or house.broker.sockets), "it is gone")
        assert not house.broker.pressure.waiting

    play(configured(tmp_path), story, fast=True)


def test_whose_client_may_be_silent_is_asked_once_whether_it_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[Socket, int]] = []
    monkeypatch.setattr(Socket, "probe", lambda socket, seconds: asked.append((socket, seconds)))
    world = World("?connectionTtl=-1", address_settings=(ONE_EACH,))
    silent, beating, idle = world.client(), world.client(headers={"heart-beat": "1000,0"}), world.client()
    for client in (silent, beating):
        client.say(("SEND", {"destination": "/queue/full"}))
    world.until_idle()
    assert not is_read(silent)
    assert is_read(idle)
    for _ in range(2):
        world.broker.pressure._look_for_gone()
        world.until_idle()
    assert asked == [(silent.socket, ASK)]
    silent.socket.connection_lost(None)
    world.until_idle()
    assert not world.broker.pressure._asked
