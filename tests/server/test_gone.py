"""A connection that is gone leaves nothing behind: it goes at once, without the collector, whatever it had done."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from stompbox.message import MULTICAST, Run, Shape
from stompbox.server.session.connection import Connection
from stompbox.server.transport.deadlines import Lane
from stompbox.server.transport.websocket import _Protocol
from tests.server.turning import LOOKS, World
from tests.server.world import KINDS, Guest, House, configured, play, uncollected
from tests.users import users

Scenario = Callable[[Guest], Awaitable[None]]
DONE = "SEND\ndestination:/topic/b\nreceipt:done\n\n\0"
USERS = users("u:p")
LOGIN = "login:u\npasscode:p\nclient-id:c\n"


def saying(text: str) -> Scenario:
    async def act(guest: Guest) -> None:
        guest.say(text + DONE)
        await guest.hear(b"receipt-id:done")

    return act


def refused(text: str) -> Scenario:
    async def act(guest: Guest) -> None:
        guest.say(text)
        await guest.hear(b"ERROR")

    return act


async def request(guest: Guest) -> None:
    guest.say("SEND\ndestination:stompbox.requests\nrequest:groups\nrequest-id:1\n\n\0")
    await guest.hear(b"request-id:1")


async def half(guest: Guest) -> None:
    guest.say(f"{DONE}SEND\ndestination:/queue/a\n\nx")
    await guest.hear(b"receipt-id:done")


async def large(guest: Guest) -> None:
    guest.say("SUBSCRIBE\nid:1\ndestination:/queue/large\nack:client\n\n\0")
    guest.say(f"SEND\ndestination:/queue/large\ncontent-length:300000\n\n{'x' * 300_000}\0")
    await guest.hear(b"x\0")
    guest.say(f"SEND\ndestination:/queue/large\ncontent-length:300000\n\n{'x' * 200_000}")


SCENARIOS: dict[str, Scenario] = {
    "nothing": saying(""),
    "messages": saying("SEND\ndestination:/queue/a\n\nx\0" * 20),
    "a subscription to a queue": saying(
        "SUBSCRIBE\nid:1\ndestination:/queue/a\nack:client\n\n\0SEND\ndestination:/queue/a\n\nx\0"
    ),
    "one with a selector": saying(
        "SUBSCRIBE\nid:1\ndestination:/topic/a\nselector:n = 1\n\n\0SEND\ndestination:/topic/a\nn:1\n\nx\0"
    ),
    "wildcards": saying(
        "SUBSCRIBE\nid:1\ndestination:/topic/#\n\n\0SUBSCRIBE\nid:2\ndestination:/queue/*,/queue/b\n\n\0"
    ),
    "a durable one": saying(
        "SUBSCRIBE\nid:1\ndestination:/topic/d\ndurable-subscription-name:n\n\n\0SEND\ndestination:/topic/d\n\nx\0"
    ),
    "a stream": saying(
        "SEND\ndestination:/queue/s\n\nx\0SUBSCRIBE\nid:1\ndestination:/stream/s\nx-stream-offset:first\n\n\0"
    ),
    "a browser": saying(
        "SEND\ndestination:/queue/b\n\nx\0SUBSCRIBE\nid:1\ndestination:/queue/b\nbrowser:true\n\n\0"
    ),
    "temporary ones": saying(
        "SUBSCRIBE\nid:1\ndestination:/temp-queue/t\n\n\0SEND\ndestination:/queue/a\nreply-to:/temp-queue/t\n\nx\0"
    ),
    "an open transaction": saying(
        "BEGIN\ntransaction:t\n\n\0SEND\ndestination:/queue/a\ntransaction:t\n\nx\0"
    ),
    "a request": request,
    "a large message": large,
    "a temporary topic and its wildcard": saying(
        "SUBSCRIBE\nid:1\ndestination:/temp-topic/t\n\n\0SUBSCRIBE\nid:2\ndestination:/topic/#,/topic/a\n\n\0"
    ),
    "retained messages": saying(
        "SEND\ndestination:/topic/r\nretain:set\n\nx\0SUBSCRIBE\nid:1\ndestination:/topic/r\n\n\0"
    ),
    "duplicate ids": saying("SEND\ndestination:/queue/a\n_AMQ_DUPL_ID:1\n\nx\0" * 2),
    "messages for later": saying(
        "SEND\ndestination:/queue/l\nAMQ_SCHEDULED_DELAY:60000\n\nx\0SUBSCRIBE\nid:1\ndestination:/queue/l\n\n\0"
    ),
    "a message group": saying(
        "SUBSCRIBE\nid:1\ndestination:/queue/g\nack:client\n\n\0"
        + "SEND\ndestination:/queue/g\nJMSXGroupID:g\n\nx\0" * 3
    ),
    "a named reader": saying(
        "SUBSCRIBE\nid:1\ndestination:/stream/s\ndurable-subscription-name:r\nx-stream-offset:first\n\n\0"
    ),
    "a browser that goes on": saying(
        "SEND\ndestination:/queue/b\n\nx\0SUBSCRIBE\nid:1\ndestination:/queue/b\nbrowser:true\nbrowser-end:false\n\n\0"
    ),
    "several selectors": saying(
        "".join([f"SUBSCRIBE\nid:{n}\ndestination:/queue/a\nselector:n = {n}\n\n\0" for n in range(3)])
    ),
    "a prefetch that is used up": saying(
        "SUBSCRIBE\nid:1\ndestination:/queue/a\nack:client\nprefetch-count:1\n\n\0"
        + "SEND\ndestination:/queue/a\n\nx\0" * 3
    ),
    "a frame that is refused": refused("ABORT\ntransaction:none\n\n\0"),
    "a frame that is none": refused("NONSENSE\n\n\0"),
    "half a frame": half,
}


@pytest.mark.parametrize("fast", [False, True], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_who_is_gone_is_gone(tmp_path: Path, scenario: str, kind: str, *, fast: bool) -> None:
    async def story(house: House) -> None:
        before = _of_sockets()
        guest = await house.client(kind, more=LOGIN)
        await SCENARIOS[scenario](guest)
        found = _weakly(house)
        assert _of_sockets() > before
        guest.leave()
        await _is_forgotten(house, found)
        await house.until(lambda: _of_sockets() == before, "nor has its socket left anything")

    with uncollected():
        play(configured(tmp_path, top=USERS), story, fast=fast)


@pytest.mark.parametrize("fast", [False, True], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("kind", KINDS)
def test_so_is_who_was_not_let_in(tmp_path: Path, kind: str, *, fast: bool) -> None:
    async def story(house: House) -> None:
        guest = await house.client(kind, version=None)
        guest.say("CONNECT\naccept-version:1.2\nhost:localhost\nlogin:u\npasscode:wrong\n\n\0")
        await guest.hear(b"ERROR")
        found = _weakly(house)
        guest.leave()
        await _is_forgotten(house, found)

    with uncollected():
        play(configured(tmp_path, top="failed-login-delay = 0\n" + USERS), story, fast=fast)


@pytest.mark.parametrize("kind", KINDS)
def test_so_is_who_said_goodbye(tmp_path: Path, kind: str) -> None:
    async def story(house: House) -> None:
        guest = await house.client(kind, more=LOGIN)
        guest.say("SUBSCRIBE\nid:1\ndestination:/queue/a\n\n\0DISCONNECT\nreceipt:bye\n\n\0")
        await guest.hear(b"receipt-id:bye")
        found = _weakly(house)
        guest.leave()
        await _is_forgotten(house, found)

    with uncollected():
        play(configured(tmp_path, top=USERS), story)


@pytest.mark.parametrize(
    "said", [b"", b"CONNECT\n\n\0", b"\x16\x03\x01\x02"], ids=["nothing", "no TLS", "half"]
)
def test_so_is_what_does_a_hand_shake(tmp_path: Path, said: bytes) -> None:
    """In the loop that the broker has in earnest: asyncio's own leaves its exception, in a circle."""

    async def story(house: House) -> None:
        before = _of_sockets()
        port = house.servers[1].sockets[0].getsockname()[1]
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(said)
        await house.until(lambda: _of_sockets() > before, "it is there")
        writer.transport.abort()
        await house.until(lambda: _of_sockets() == before, "it is forgotten")

    with uncollected():
        play(configured(tmp_path, top=USERS), story, fast=True)


@pytest.mark.parametrize("is_met", [False, True])
def test_so_is_what_reads_websockets(tmp_path: Path, *, is_met: bool) -> None:
    """A stranger may have megabytes of a frame there."""

    async def story(house: House) -> None:
        before = _protocols()
        guest = await house.client("websocket", version="1.2" if is_met else None)
        guest.writer.write(b"\x81\xfe")  # a frame, of which the rest is to come
        await house.until(lambda: _protocols() > before, "it is there")
        guest.leave()
        await house.until(lambda: not house.broker.sockets, "it is gone")
        await house.until(lambda: _protocols() == before, "it is forgotten")

    with uncollected():
        play(configured(tmp_path, top=USERS), story)


def _of_sockets() -> Counter[str]:
    """How many there are of each type that belongs to a client's socket, TLS and WebSocket among them."""
    return Counter(
        type(found).__qualname__
        for found in gc.get_objects()
        if str(type(found).__module__).startswith("stompbox.server.transport.")
        and type(found) is not Lane  # one for each length of a deadline, kept
    )


def _protocols() -> int:
    return sum(type(found) is _Protocol for found in gc.get_objects())


@pytest.mark.parametrize("kind", KINDS)
def test_so_is_who_is_told_more_while_it_leaves(tmp_path: Path, kind: str) -> None:
    """Its subscriptions end one after the other, in turns; one that has not ended yet has something that it is to be told."""

    async def story(house: House) -> None:
        guest = await house.client(kind, more=LOGIN)
        guest.say(
            "".join([f"SUBSCRIBE\nid:{n}\ndestination:/topic/a\nreceipt:{n}\n\n\0" for n in range(200)])
        )
        await guest.hear(b"receipt-id:199")
        found, connection = _weakly(house), house.connection()
        broker = house.broker
        connection.unread.is_much = True
        clock, broker.turns.clock = broker.turns.clock, partial(next, count(broker.turns.clock()))
        address = broker.engine.addresses["a"]
        broker.engine.publish(address, Run(Shape({"destination": "/topic/a"}), [b"x"], routing=MULTICAST))
        connection.end(is_failure=True)
        assert connection.is_leaving, "there was time for one step"
        broker.turns.clock = clock
        broker.flush()
        assert connection.unread.waiting
        del connection, address
        guest.leave()
        await _is_forgotten(house, found)

    with uncollected():
        play(configured(tmp_path, top=USERS), story)


def _weakly(house: House) -> weakref.ref[Connection]:
    return weakref.ref(house.connection())


async def _is_forgotten(house: House, found: weakref.ref[Connection]) -> None:
    await house.until(lambda: not house.broker.connections, "it is gone")
    try:
        await house.until(lambda: found() is None, "it is forgotten")
    except AssertionError:
        raise AssertionError("\n".join(_who(found()))) from None


def _who(thing: object, depth: int = 3) -> list[str]:
    """Who still refers to it."""
    lines = []
    for one in gc.get_referrers(thing):
        if type(one).__name__ not in ("frame", "list"):
            lines.append("  " * (3 - depth) + f"{type(one).__name__} {str(one)[:150]}")
            if depth > 1:
                lines += _who(one, depth - 1)
    return lines[:60]


def test_who_is_gone_while_its_login_is_verified_is_gone_once() -> None:
    """Its end waits for its turn, and what is said of its login comes before that."""
    world = World()
    clients = [world.client() for _ in range(4 * LOOKS)]
    world.turn()
    for client in clients:
        client.connection.reading.hold()
    for client in clients:
        client.socket.connection_lost(None)
    assert world.broker.connections
    for client in clients:
        client.connection.reading.go_on()
    assert not world.broker.connections
    world.until_idle()
    assert not world.broker.has_failed
