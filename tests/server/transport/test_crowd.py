"""Thousands of strangers who speak in one turn of the loop are read in many."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest
import uvloop

from stompbox.config import Configuration, ListenerTable
from stompbox.server.run import start, stop
from stompbox.server.transport.crowd import MANY, PORTION, Crowd
from stompbox.server.turns import Few
from tests.server.turning import Loop, Recorded, World

WITHIN = 20.0  # seconds
CONNECT = b"CONNECT\naccept-version:1.2\nhost:localhost\n\n\0"


class Reader:
    """A stranger. `is_read`: the loop tells it what comes."""

    def __init__(self) -> None:
        self.is_read = True

    def hold_off(self) -> bool:
        was_read, self.is_read = self.is_read, False
        return was_read

    def read_on(self) -> None:
        self.is_read = True


def crowd(strangers: list[Reader]) -> tuple[Loop, Crowd]:
    loop = Loop()
    return loop, Crowd(loop, Few(loop).few, strangers)  # type: ignore[arg-type]  # as much of a loop as it uses


def test_when_many_have_spoken_in_one_turn_the_others_are_read_in_portions_the_oldest_first() -> None:
    others = [Reader() for _ in range(5 * PORTION)]
    loop, found = crowd(others)
    for _ in range(MANY - 1):
        found.spoke()
    assert all(other.is_read for other in others)
    found.spoke()
    before = [other.is_read for other in others].index(False)
    assert before <= PORTION
    while before < len(others):
        loop.turn()
        read = [other.is_read for other in others]
        now = read.index(False) if False in read else len(others)
        assert not any(read[now:])
        assert 0 < now - before <= PORTION
        before = now


def test_each_turn_counts_by_itself() -> None:
    others = [Reader()]
    loop, found = crowd(others)
    for _ in range(MANY):
        found.spoke()
        loop.turn()
    assert others[0].is_read


def test_whom_something_else_keeps_from_being_read_stays_so() -> None:
    others = [Reader(), Reader()]
    others[0].is_read = False
    loop, found = crowd(others)
    for _ in range(MANY):
        found.spoke()
    for _ in range(5):
        loop.turn()
    assert [other.is_read for other in others] == [False, True]


def test_a_socket_that_is_held_obeys_whoever_says_how_it_is_to_be_read() -> None:
    world = World()
    accepted, wire = world.acceptor.receive(), Recorded()
    assert isinstance(accepted, asyncio.Protocol)
    accepted.connection_made(wire)
    for order, is_read in (("pause_reading", False), ("resume_reading", True)):
        wire.is_read = True
        assert accepted.hold_off()  # type: ignore[attr-defined]
        assert not wire.is_read
        getattr(accepted, order)()
        accepted.read_on()  # type: ignore[attr-defined]
        assert wire.is_read is is_read
    wire.abort()
    assert not accepted.hold_off()  # type: ignore[attr-defined]


class Counted(Crowd):
    def spoke(self) -> None:
        self.count += 1
        super().spoke()

    count = 0


@pytest.mark.parametrize(
    "new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
def test_of_sockets_that_all_have_something_the_loop_reads_no_more_than_many(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """Also those of which the system has told the loop already are left out."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(_speaking_at_once())


async def _speaking_at_once() -> None:
    listener = ListenerTable(url="tcp://127.0.0.1:0")
    broker, servers, urls = await start(Configuration(memory=True, listeners=(listener,)))
    acceptor = broker.acceptors[0]
    counted = Counted(broker.loop, broker.turns.few, acceptor.admission.strangers)  # type: ignore[arg-type]
    acceptor.crowd = counted  # type: ignore[attr-defined]
    where = ("127.0.0.1", urlsplit(urls[0]).port)
    try:
        with ExitStack() as stack:
            links = [stack.enter_context(socket.create_connection(where, WITHIN)) for _ in range(6 * MANY)]
            async with asyncio.timeout(WITHIN):
                while len(broker.sockets) < len(links):
                    await asyncio.sleep(0)
            for link in links:
                link.sendall(CONNECT[:1])
            before = most = turns = 0
            async with asyncio.timeout(WITHIN):
                while before < len(links):
                    await asyncio.sleep(0)
                    most, before, turns = max(most, counted.count - before), counted.count, turns + 1
            assert most <= MANY + PORTION
            assert turns > len(links) / (MANY + PORTION)
            for link in links:
                link.sendall(CONNECT[1:])
            await asyncio.to_thread(_all_are_answered, links)
    finally:
        await stop(broker, servers)


def _all_are_answered(links: list[socket.socket]) -> None:
    for link in links:
        assert link.recv(4096).startswith(b"CONNECTED")
