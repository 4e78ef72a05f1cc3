"""A front, as far as it is alone: in what order it tells of its sockets."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any, cast

import pytest

from stompbox.config.listener import parse_listener
from stompbox.server.fronts.link import SIGNS, WINDOW, Kind
from stompbox.server.fronts.records import HEAD, PART, Records
from stompbox.server.fronts.records import SOME as SOME_RECORDS
from stompbox.server.fronts.relay import AGAIN, GATHERED, SOME, Front
from tests.server.turning import Loop


class Wire:
    """The link: what the front has written on it."""

    def __init__(self) -> None:
        self.records = Records(0)
        self.said: list[tuple[Kind, bytes]] = []

        self.is_read = True

    def set_write_buffer_limits(self, **_: int) -> None:
        pass

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def write(self, data: bytes) -> None:
        self.said += [(Kind(kind), payload) for kind, _, payload in self.records.read(data)]


class Accepted:
    peer = "192.0.2.7"
    silence = absence = None
    is_reset = is_aborted = False

    def abort(self) -> None:
        self.is_aborted = True


class Web:
    """A WebSocket between a socket and its relay."""

    certificate_name, port = "", 0
    is_clogged = False
    unsent = unread = 0

    def __init__(self) -> None:
        self.socket: Any = Accepted()
        self.is_aborted = False

        self.heard: list[bytes] = []
        self.is_read = True

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def write(self, data: bytes) -> None:
        self.heard.append(data)

    def abort(self) -> None:
        self.is_aborted = True


@pytest.mark.parametrize("is_first", [False, True])
def test_a_socket_is_gone_when_all_is_told_that_its_websocket_has_read(*, is_first: bool) -> None:
    """What it has read waits for its turn, also where the socket is gone."""
    loop, wire, web = Loop(), Wire(), Web()
    front = Front(cast(asyncio.AbstractEventLoop, loop))
    front.connection_made(cast(asyncio.Transport, wire))
    front.arrived(web.socket, 0, is_crowded=False)
    relay = front.client_of(parse_listener("tcp://127.0.0.1:0"), cast(Any, web), "192.0.2.7")
    relay.receive(b"first")
    if is_first:  # its end was heard before it was lost
        relay.lost()
    front.gone(web.socket)
    for _ in range(3):
        loop.turn()
    if not is_first:
        relay.receive(b"last")
        relay.lost()
        loop.turn()
        loop.turn()
    kinds = [kind for kind, _ in wire.said]
    assert kinds == [Kind.ARRIVED, Kind.OPENED, Kind.DATA, *([] if is_first else [Kind.DATA]), Kind.GONE]
    assert not (front.relays or front.numbers or front.by_number)


def test_who_is_cut_off_meanwhile_is_not_waited_for() -> None:
    loop, wire, web = Loop(), Wire(), Web()
    front = Front(cast(asyncio.AbstractEventLoop, loop))
    front.connection_made(cast(asyncio.Transport, wire))
    front.arrived(web.socket, 0, is_crowded=False)
    front.client_of(parse_listener("tcp://127.0.0.1:0"), cast(Any, web), "192.0.2.7")
    front.gone(web.socket)
    loop.turn()
    front._obey_of(Kind.ABORT, 1, b"")
    assert web.is_aborted


def test_what_lies_in_a_front_for_a_client_is_told_until_nothing_does() -> None:
    loop, wire, web = Loop(), Wire(), Web()
    front = Front(cast(asyncio.AbstractEventLoop, loop))
    front.connection_made(cast(asyncio.Transport, wire))
    front.arrived(web.socket, 0, is_crowded=False)
    relay = front.client_of(parse_listener("tcp://127.0.0.1:0"), cast(Any, web), "192.0.2.7")
    told = []
    for unread, unsent, look in ((5000, 0, relay.look_kept), (5000, 70_000, relay.look_unread)):
        web.unread, web.unsent = unread, unsent
        look()
        front._look()
        loop.turn()
        told.append([SIGNS.unpack(payload)[2] for kind, payload in wire.said if kind == Kind.SIGNS][-1])
    web.unread = web.unsent = 0
    front._look()
    loop.turn()
    told.append([SIGNS.unpack(payload)[2] for kind, payload in wire.said if kind == Kind.SIGNS][-1])
    assert told == [5000, 75_000, 0]
    assert not front.watched


def test_what_one_read_of_the_link_has_brought_is_written_in_turns_and_in_order() -> None:
    """With TLS or a WebSocket each takes some time, and thousands come in one read."""
    looks = count()
    loop, wire, web = Loop(), Wire(), Web()
    front = Front(cast(asyncio.AbstractEventLoop, loop))
    front.clock = lambda: next(looks) * PART / 2
    front.connection_made(cast(asyncio.Transport, wire))
    front.arrived(web.socket, 0, is_crowded=False)
    front.client_of(parse_listener("tcp://127.0.0.1:0"), cast(Any, web), "192.0.2.7")
    said = [b"%d" % at for at in range(40 * SOME_RECORDS)]
    front.heard(b"".join([HEAD.pack(Kind.DATA, 1, len(one)) + one for one in said]))
    before = 0
    while len(web.heard) < len(said):
        assert 0 < len(web.heard) - before <= 3 * SOME_RECORDS
        assert not wire.is_read
        before = len(web.heard)
        loop.turn()
    assert web.heard == said
    assert wire.is_read


def test_no_more_is_read_of_many_in_one_turn_than_a_front_may_gather() -> None:
    loop, wire = Loop(), Wire()
    front = Front(cast(asyncio.AbstractEventLoop, loop))
    front.connection_made(cast(asyncio.Transport, wire))
    webs = [Web() for _ in range(GATHERED // WINDOW + 10)]
    relays = []
    for web in webs:
        front.arrived(web.socket, 0, is_crowded=False)
        relay = front.client_of(parse_listener("tcp://127.0.0.1:0"), cast(Any, web), "192.0.2.7")
        relay.is_logged_in = True
        relays.append(relay)
    loop.turn()

    def read() -> int:
        """Those that are read give a whole read each. How many they were."""
        given = 0
        for relay, web in zip(relays, webs, strict=True):
            if web.is_read:
                relay.receive(bytes(WINDOW))
                relay.credited(WINDOW)
                given += 1
        return given

    assert read() == GATHERED // WINDOW + 1
    loop.turn()
    assert all(web.is_read for web in webs), "it has gone to the link"
    front.link_clogged()
    assert read() <= GATHERED // WINDOW + 1
    loop.turn()
    assert read() == 0
    front.link_drained()
    assert all(web.is_read for web in webs)


def test_very_many_clients_are_read_again_in_turns() -> None:
    """A link that takes more once more held up all of a front, until each of thousands was read again."""
    loop, wire = Loop(), Wire()
    front = Front(cast(asyncio.AbstractEventLoop, loop))
    front.connection_made(cast(asyncio.Transport, wire))
    webs = [Web() for _ in range(3 * AGAIN)]
    front.link_clogged()
    for web in webs:
        front.arrived(web.socket, 0, is_crowded=False)
        front.client_of(parse_listener("tcp://127.0.0.1:0"), cast(Any, web), "192.0.2.7").look()
    assert not any(web.is_read for web in webs)
    front.link_drained()
    assert sum([web.is_read for web in webs]) == AGAIN
    front.link_clogged()
    loop.turn()
    assert sum([web.is_read for web in webs]) == AGAIN, "there is too much again"
    front.link_drained()
    for _ in range(3):
        loop.turn()
    assert all(web.is_read for web in webs)


def test_who_is_not_read_and_has_reset_its_socket_is_gone() -> None:
    """The loop hears of the end of a socket only while it is read, or something is written to it."""
    loop, wire, web = Loop(), Wire(), Web()
    front = Front(cast(asyncio.AbstractEventLoop, loop))
    front.connection_made(cast(asyncio.Transport, wire))
    front.arrived(web.socket, 0, is_crowded=False)
    relay = front.client_of(parse_listener("tcp://127.0.0.1:0"), cast(Any, web), "192.0.2.7")
    relay.pause(is_paused=True)
    front._look()
    assert relay in front.watched
    web.socket.is_reset = True
    front._look()
    assert web.socket.is_aborted
    assert not front.watched


def test_signs_of_very_many_clients_are_given_in_turns_and_none_of_who_has_gone() -> None:
    loop, wire = Loop(), Wire()
    front = Front(cast(asyncio.AbstractEventLoop, loop))
    front.connection_made(cast(asyncio.Transport, wire))
    webs = [Web() for _ in range(10 * SOME)]
    for web in webs:
        front.arrived(web.socket, 0, is_crowded=False)
        relay = front.client_of(parse_listener("tcp://127.0.0.1:0"), cast(Any, web), "192.0.2.7")
        relay.pause(is_paused=True)
    loop.turn()
    front._look()
    relay.lost()
    front.gone(webs[-1].socket)
    told = []
    for _ in range(12):
        wire.said.clear()
        loop.turn()
        told.append(len([kind for kind, _ in wire.said if kind == Kind.SIGNS]))
    assert max(told) == SOME
    assert sum(told) == len(webs) - 1
