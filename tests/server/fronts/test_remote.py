"""A front that is out of order: whatever it writes on its link, it is the front that ends, and the broker goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest

from stompbox.errors import LinkError
from stompbox.server.fronts import link
from stompbox.server.fronts.link import AHEAD, COUNT, CREDIT, LEAST, SHARED, SIGNS, TAKEN, WINDOW, Kind
from stompbox.server.fronts.records import HEAD, PART, SOME, Record, Records
from stompbox.server.fronts.remote import PORTION, FrontLink, RemoteSocket
from tests.server.fronts.wild import ARRIVES, CONNECT, OPENED, OPENS, WITHIN, Wild, played, record
from tests.server.turning import LOOKS, Recorded, World

WRONG = {
    "a kind that there is not": record(99),
    "a kind that there is not, of a socket": OPENED + record(99, 1),
    "a record of the broker": record(Kind.END),
    "a record that is too long": HEAD.pack(Kind.DATA, 1, 1 << 30),
    "a socket that has not arrived": record(Kind.DATA, 7, b"x"),
    "a socket that arrives twice": OPENED + record(Kind.ARRIVED, 1, ARRIVES),
    "a number that is used again": OPENED + record(Kind.GONE, 1) + record(Kind.ARRIVED, 1, ARRIVES),
    "a socket without a number": record(Kind.ARRIVED, 0, ARRIVES),
    "a listener that is not there": record(Kind.ARRIVED, 1, link.packed(link.Arrival(9, "x"))),
    "a listener below the first": record(Kind.ARRIVED, 1, link.packed(link.Arrival(-1, "x"))),
    "an arrival that is none": record(Kind.ARRIVED, 1, b"{}"),
    "a socket that speaks before it is opened": record(Kind.ARRIVED, 1, ARRIVES) + record(Kind.DATA, 1, b"x"),
    "a socket that is opened twice": OPENED + record(Kind.OPENED, 1, OPENS),
    "more taken than given": OPENED + record(Kind.TAKEN, 1, COUNT.pack(1)),
    "a count that is none": OPENED + record(Kind.TAKEN, 1, b"1"),
    "signs that are none": OPENED + record(Kind.SIGNS, 1, b"1"),
    "an error that is none": OPENED + record(Kind.DISMISSED, 1, b"null"),
    "an error of the broker's own": OPENED
    + record(Kind.DISMISSED, 1, link.packed(link.Fault("BrokerFault", "a", "b", closes=True))),
    "a line that is none": record(Kind.LOGGED, 0, b"\xff"),
    "a pulse that is none": record(Kind.BEAT, 0, b"0"),
}  # fmt: skip


@pytest.mark.parametrize("said", WRONG.values(), ids=WRONG)
def test_what_is_wrong_ends_the_front_and_not_the_broker(said: bytes, tmp_path: Path) -> None:
    async def work(wild: Wild) -> None:
        wild.say(said)
        found = await wild.until_ended()
        assert isinstance(found, LinkError)
        assert found.code == "bad-link"
        assert not wild.broker.sockets

    played(tmp_path, work)


def test_the_end_of_a_clients_side_waits_for_what_came_before_it(tmp_path: Path) -> None:
    async def work(wild: Wild) -> None:
        wild.say(OPENED + record(Kind.DATA, 1, CONNECT))
        await wild.hear(Kind.ENTERED)
        connection = wild.house.connection()
        connection.reading.hold()
        send = b"SEND\ndestination:/queue/q\npersistent:false\nreceipt:last\n\n\0"
        wild.say(record(Kind.DATA, 1, send) + record(Kind.ENDED_ITS_SIDE, 1))
        await wild.house.until(lambda: connection.reading.has_left, "both have come")
        connection.reading.go_on()
        await wild.hear(Kind.FINISH)
        assert any(b"receipt-id:last" in said for kind, _, said in wild.heard if kind == Kind.DATA)

    played(tmp_path, work)


@pytest.mark.parametrize("is_front", [False, True])
def test_what_waits_for_its_turn_is_obeyed_unless_its_front_is_gone(
    tmp_path: Path, *, is_front: bool
) -> None:
    """By another front its client may have said more already, and that comes behind nothing any more."""

    async def work(wild: Wild) -> None:
        broker = wild.broker
        wild.say(OPENED + record(Kind.DATA, 1, CONNECT))
        await wild.hear(Kind.ENTERED)
        connection = wild.house.connection()
        connection.reading.hold()
        wild.say(record(Kind.DATA, 1, b"SEND\ndestination:/queue/q\npersistent:false\n\n\0"))
        await wild.house.until(lambda: connection.reading.has_left, "it has come")
        if is_front:
            wild.writer.close()
            await wild.until_ended()
        else:
            wild.say(record(Kind.GONE, 1))
            await wild.house.until(lambda: connection.is_lost, "its socket is gone")
        connection.reading.go_on()
        await wild.house.until(lambda: not broker.connections, "it has left")
        assert broker.engine.counters["received"] == (0 if is_front else 1)

    played(tmp_path, work)


def test_a_stranger_is_answered_with_credit_however_little_it_has_said(tmp_path: Path) -> None:
    """Its front waits for it before it judges what comes next."""

    async def work(wild: Wild) -> None:
        wild.say(OPENED + record(Kind.DATA, 1, CONNECT[:9]))
        assert await wild.hear(Kind.CREDIT) == COUNT.pack(9)
        wild.say(record(Kind.DATA, 1, CONNECT[9:]))
        await wild.hear(Kind.ENTERED)
        assert Kind.CREDIT not in [kind for kind, _, _ in wild.heard]

    played(tmp_path, work)


def test_noise_ends_the_front_and_not_the_broker(tmp_path: Path) -> None:
    random = Random(5)

    async def work(wild: Wild) -> None:
        wild.say(OPENED + random.randbytes(100_000))
        assert isinstance(await wild.until_ended(), LinkError)

    played(tmp_path, work)


def test_a_client_speaks_through_the_link_and_goes_with_it(tmp_path: Path) -> None:
    async def work(wild: Wild) -> None:
        wild.say(OPENED + record(Kind.DATA, 1, CONNECT))
        assert (await wild.hear(Kind.DATA)).startswith(b"CONNECTED")
        [connection] = wild.broker.connections
        assert (connection.peer, connection.transport.certificate_name) == ("192.0.2.7", "alice")
        assert connection.transport.port == 50_000
        wild.say(record(Kind.SIGNS, 1, SIGNS.pack(2000, -1, 0)))
        wild.say(record(Kind.DATA, 1, b"SUBSCRIBE\nid:1\ndestination:/queue/a\nreceipt:1\n\n\0"))
        await wild.hear(Kind.DATA)
        silence = connection.transport.silence
        assert silence is not None
        assert 1.9 < silence < WITHIN
        assert connection.transport.absence is None
        wild.writer.close()
        assert await wild.until_ended() is None
        assert not wild.broker.connections
        assert not wild.broker.sockets

    played(tmp_path, work)


def test_it_obeys_when_it_has_answered_all_that_it_was_told(tmp_path: Path) -> None:
    async def work(wild: Wild) -> None:
        settings = link.Settings("front 1", [], 0, "INFO")
        wild.link.configure(settings)
        wild.link.configure(settings)
        assert link.settings_in(await wild.hear(Kind.BEGIN)) == settings
        wild.say(record(Kind.READY))
        while not wild.link.is_ready:
            await asyncio.sleep(0)
        assert not wild.link.obeys.is_set()
        wild.say(record(Kind.READY))
        async with asyncio.timeout(WITHIN):
            await wild.link.obeys.wait()
        wild.link.configure(settings)
        assert not wild.link.obeys.is_set()
        wild.writer.close()
        assert await wild.until_ended() is None
        assert wild.link.obeys.is_set()

    played(tmp_path, work)


def test_credit_is_given_for_what_was_obeyed_and_not_while_nothing_is(tmp_path: Path) -> None:
    async def work(wild: Wild) -> None:
        wild.say(OPENED + record(Kind.DATA, 1, CONNECT))
        await wild.hear(Kind.DATA)
        [connection] = wild.broker.connections
        frame = b"SEND\ndestination:/topic/nobody\n\n%b\0" % (b"x" * 1000)
        wild.say(record(Kind.DATA, 1, frame * (CREDIT // 1000)))
        [octets] = COUNT.unpack(await wild.hear(Kind.CREDIT))
        assert CREDIT <= octets <= WINDOW
        connection.transport.pause_reading()
        await wild.hear(Kind.PAUSE)
        wild.say(record(Kind.DATA, 1, frame * (CREDIT // 1000)) + record(Kind.DATA, 1, b"\n"))
        wild.say(record(Kind.DATA, 1, b"SEND\ndestination:/topic/nobody\nreceipt:2\n\n\0"))
        assert b"receipt-id:2" in await wild.hear(Kind.DATA)
        assert not [found for found in wild.heard if found[0] == Kind.CREDIT]
        connection.transport.resume_reading()
        assert COUNT.unpack(await wild.hear(Kind.CREDIT))[0] >= CREDIT

    played(tmp_path, work)


def test_a_socket_is_clogged_until_its_system_has_taken_most(tmp_path: Path) -> None:
    async def work(wild: Wild) -> None:
        wild.say(OPENED + record(Kind.DATA, 1, CONNECT))
        given = len(await wild.hear(Kind.DATA))
        [connection] = wild.broker.connections
        transport = connection.transport
        transport.write(b"x" * (AHEAD - given))
        assert not transport.is_clogged
        assert transport.unsent == 0
        transport.write(b"y")
        assert transport.is_clogged
        assert transport.unsent == AHEAD + 1
        wild.say(
            record(Kind.TAKEN, 1, COUNT.pack(AHEAD)) + record(Kind.BEAT, 0, link.packed(link.Pulse(7, 0.5)))
        )
        while wild.link.answered != 7:
            await asyncio.sleep(0)
        assert not transport.is_clogged

    played(tmp_path, work)


def test_what_a_front_keeps_counts_for_its_client(tmp_path: Path) -> None:
    """Less than AHEAD, which a client does not read, or what has come of a frame of its WebSocket."""

    async def work(wild: Wild) -> None:
        wild.say(OPENED + record(Kind.DATA, 1, CONNECT))
        await wild.hear(Kind.DATA)
        [connection] = wild.broker.connections
        for kept in (AHEAD // 2, 3 << 20, 0):
            wild.say(record(Kind.SIGNS, 1, SIGNS.pack(-1, -1, kept)))
            sign = record(Kind.BEAT, 0, link.packed(link.Pulse(kept, 0.5)))
            wild.say(sign)
            await wild.house.until(lambda: wild.link.answered == kept, "it was told")  # noqa: B023
            assert connection.account.passing == wild.broker.ledger.by_kind["output"] == kept
            assert not connection.transport.is_clogged

    played(tmp_path, work)


def test_where_very_many_have_something_on_its_way_each_has_less_room() -> None:
    world, wire = World(), Recorded()
    found = FrontLink(world.broker, "front 1", [world.acceptor], lambda _: None)
    found.connection_made(wire)
    last = SHARED // AHEAD + 1
    arrived = [record(Kind.ARRIVED, number, ARRIVES) for number in range(1, last + 1)]
    found.data_received(b"".join(arrived))
    world.until_idle()
    for number in range(1, last):
        found.sockets[number].write(b"x" * AHEAD)
    one = found.sockets[last]
    one.write(b"y" * LEAST)
    assert not [socket for socket in found.sockets.values() if socket.is_clogged]
    one.write(b"y")
    assert one.is_clogged
    assert one.unsent == LEAST + 1
    one.taken(LEAST - TAKEN)
    assert one.is_clogged
    one.taken(1)
    assert not one.is_clogged
    for number in range(1, last):
        found._obey_some([(Kind.GONE, number, b"")])
    assert found.on_the_way == TAKEN
    one.write(b"y" * (AHEAD - TAKEN))
    assert not one.is_clogged


def test_who_is_refused_at_the_door_is_told_when_he_speaks(tmp_path: Path) -> None:
    """Between his arrival and the answer of the broker a client may have said anything."""

    async def work(wild: Wild) -> None:
        for number in range(1, 1002):  # maxConnectionsPerAddress
            wild.say(record(Kind.ARRIVED, number, ARRIVES) + record(Kind.LOCATED, number, b"192.0.2.7"))
        wild.say(record(Kind.OPENED, 1001, OPENS) + record(Kind.DATA, 1001, CONNECT))
        assert b'"too-many-connections"' in await wild.hear(Kind.DISMISS)
        said = await wild.hear(Kind.DATA)
        assert b"ERROR\n" in said
        assert b"CONNECTED" not in said
        await wild.hear(Kind.CLOSE)

    played(tmp_path, work)


MANY = 5000


def many() -> tuple[World, FrontLink, Recorded]:
    """A link whose front has told of MANY sockets, in one read; the last one has logged in."""
    world, wire = World(), Recorded()
    found = FrontLink(world.broker, "front 1", [world.acceptor], lambda _: None)
    found.connection_made(wire)
    arrived = [record(Kind.ARRIVED, number, ARRIVES) for number in range(1, MANY + 1)]
    last = record(Kind.OPENED, MANY, OPENS) + record(Kind.DATA, MANY, CONNECT)
    found.data_received(b"".join(arrived) + last)
    return world, found, wire


def test_what_one_read_of_a_link_has_brought_is_obeyed_in_turns_and_in_order() -> None:
    world, found, wire = many()
    most = SOME * (2 + round(PART * LOOKS / world.broker.turns.budget))
    assert 0 < len(found.sockets) <= most < MANY
    assert not wire.is_read
    for _ in range(MANY):
        if wire.is_read:
            break
        before = len(found.sockets)
        world.turn()
        assert len(found.sockets) - before <= most
    assert len(found.sockets) == MANY
    world.until_idle()
    assert [connection.is_logged_in for connection in world.broker.connections] == [True]


def test_what_waits_of_a_link_is_not_obeyed_when_its_front_is_gone() -> None:
    world, found, _ = many()
    found.connection_lost(None)
    world.turn(MANY // SOME)
    assert not found.sockets
    assert not world.broker.sockets
    assert not world.broker.connections


def test_very_many_whose_front_is_gone_go_in_portions_and_nothing_of_them_is_obeyed_meanwhile() -> None:
    world, wire, count = World(), Recorded(), 10 * LOOKS
    found = FrontLink(world.broker, "front 1", [world.acceptor], lambda _: None)
    found.connection_made(wire)
    for number in range(1, count + 1):
        arrived = record(Kind.ARRIVED, number, ARRIVES) + record(Kind.OPENED, number, OPENS)
        found.data_received(arrived + record(Kind.DATA, number, CONNECT))
        world.until_idle()
    send = b"SEND\ndestination:/queue/q\npersistent:false\n\n\0"
    readings = [one.connection.reading for one in found.sockets.values() if one.connection is not None]
    for reading in readings:
        reading.hold()
    found.data_received(b"".join(record(Kind.DATA, number, send) for number in found.sockets))
    world.turn(count)
    assert all(connection.is_logged_in for connection in world.broker.connections)
    assert [reading.has_left for reading in readings] == [True] * count
    world.turn()
    found.connection_lost(None)
    assert found.lost == count
    assert 0 < count - len(world.broker.sockets) <= LOOKS
    for reading in readings:
        reading.go_on()
    world.until_idle()
    assert not world.broker.sockets
    assert not world.broker.connections
    assert not world.broker.engine.counters["received"]


class Hanging:
    """A link whose front takes nothing any more. `sockets` are logged in."""

    def __init__(self, count: int) -> None:
        self.world, self.wire = World(), Recorded()
        self.link = FrontLink(self.world.broker, "front 1", [self.world.acceptor], lambda _: None)
        self.link.connection_made(self.wire)
        for number in range(1, count + 1):
            arrived = record(Kind.ARRIVED, number, ARRIVES) + record(Kind.OPENED, number, OPENS)
            self.link.data_received(arrived + record(Kind.DATA, number, CONNECT))
        self.world.until_idle()
        self.sockets: list[RemoteSocket] = list(self.link.sockets.values())
        self.said()
        self.link.pause_writing()

    def said(self) -> list[Record]:
        """What the front was told since the last time."""
        self.world.turn(3)
        written = bytes(self.wire.written)
        self.wire.written.clear()
        return Records(0).read(written)

    def tell(self, one: RemoteSocket, octets: int) -> None:
        assert one.connection is not None
        one.connection.out.append(b"x" * octets)
        one.connection.write_out()

    @property
    def output(self) -> int:
        """Octets that the broker keeps of what clients were told, as it has counted them."""
        return self.world.broker.ledger.by_kind["output"]


def test_what_a_front_does_not_take_is_kept_for_each_client_and_given_back_with_it() -> None:
    """All of it lay on the link: who was ended for what was kept gave nothing of it back before the front took it, or was killed."""
    hanging = Hanging(2)
    first, second = hanging.sockets
    hanging.tell(first, 600_000)
    hanging.tell(second, 5000)
    assert not hanging.said()
    assert first.is_clogged
    assert second.is_clogged
    assert hanging.output == first.unsent + second.unsent > 605_000
    first.abort()
    assert hanging.said() == [(Kind.ABORT, first.number, b"")]
    assert hanging.output == second.unsent < 6000
    first.write(b"y")
    hanging.link.resume_writing()
    assert [(kind, number) for kind, number, _ in hanging.said()] == [(Kind.DATA, second.number)]
    assert not second.is_clogged
    assert not hanging.link.is_full


def test_what_was_kept_for_a_front_comes_in_order_and_all_clients_have_their_turn() -> None:
    hanging = Hanging(3)
    first, second, third = hanging.sockets
    for octets in (PORTION, 1, 2):
        hanging.tell(first, octets)
    for octets in (3, 4):
        hanging.tell(second, octets)
    second.close()
    hanging.link.end()
    assert hanging.said() == [(Kind.PAUSE, first.number, b"")]  # that is no client's to wait for
    hanging.link.resume_writing()
    hanging.tell(third, 5)
    assert [(kind, number, len(payload)) for kind, number, payload in hanging.said()] == [
        (Kind.DATA, first.number, PORTION),
        (Kind.DATA, second.number, 3),
        (Kind.DATA, second.number, 4),
        (Kind.CLOSE, second.number, 0),
        (Kind.DATA, third.number, 5),
        (Kind.DATA, first.number, 1),
        (Kind.DATA, first.number, 2),
        (Kind.END, 0, 0),
    ]
    hanging.tell(third, 6)
    assert hanging.said() == [(Kind.DATA, third.number, b"x" * 6)]


def test_no_more_is_handed_on_than_a_front_takes_and_what_is_kept_goes_with_it() -> None:
    hanging = Hanging(2)
    for one in hanging.sockets:
        hanging.tell(one, 10_000)
    write = hanging.wire.write

    def takes_little(data: bytes) -> None:
        write(data)
        hanging.link.pause_writing()

    hanging.wire.write = takes_little  # type: ignore[method-assign]
    hanging.link.resume_writing()
    assert [number for _, number, _ in hanging.said()] == [hanging.sockets[0].number]
    assert hanging.link.is_full
    assert hanging.output > 20_000
    hanging.link.connection_lost(None)
    hanging.world.until_idle()
    assert not hanging.output
    assert not hanging.link.on_the_way
    assert not hanging.world.broker.connections
