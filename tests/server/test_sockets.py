"""How many sockets are read in a turn of a real loop, and whose: by a clock that goes on by as much as it is looked at."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from typing import cast

import pytest
import uvloop

from stompbox.server import sockets
from stompbox.server.sockets import CROWDS, ENDING, OF_STRANGERS, READING, SEATS, Reader, Sockets
from tests.server.turning import Clock

WITHIN = 20.0  # seconds
LOOK = READING / 10  # that the clock goes on by when it is looked at: after each read
IN_A_TURN = 10  # reads
LOOPS = pytest.mark.parametrize(
    "new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)


class Client(asyncio.Protocol):
    """The server's end of one client, and the client's."""

    def __init__(self, house: House, user: str) -> None:
        self.house = house
        self.user = user
        self.heard = b""
        self.has_ended = self.is_gone = False
        self.error: Exception | None = None
        self.far, self.near = socket.socketpair()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.reader = self.house.sockets.reads(self.transport, self)
        if self.user:
            self.reader.enter(self.user)

    def data_received(self, data: bytes) -> None:
        self.heard += data
        self.house.read[self.user] += 1

    def eof_received(self) -> bool:
        self.has_ended = True
        self.house.ended += 1
        return True

    def connection_lost(self, error: Exception | None) -> None:
        self.is_gone, self.error = True, error
        self.reader.end()


class House:
    def __init__(self, clock: Callable[[], float]) -> None:
        loop = asyncio.get_running_loop()
        self.sockets = Sockets(loop, clock, self.go_out)
        self.read: Counter[str] = Counter()
        self.gone_out: list[Counter[str]] = []  # what had been read then
        self.ended = 0
        self.clients: list[Client] = []

    def go_out(self) -> None:
        self.gone_out.append(self.read.copy())

    async def client(self, user: str = "") -> Client:
        client = Client(self, user)
        await asyncio.get_running_loop().connect_accepted_socket(lambda: client, client.near)
        self.clients.append(client)
        return client

    async def many(self, count: int, user: str = "") -> list[Client]:
        found = [await self.client(user) for _ in range(count)]
        await self.settled()
        return found

    async def settled(self) -> None:
        """The loop has been told that it does not read them."""
        for _ in range(3):
            await asyncio.sleep(0)

    async def until(self, is_so: Callable[[], object]) -> None:
        async with asyncio.timeout(WITHIN):
            while not is_so():
                await asyncio.sleep(0)

    async def most(self, count: Callable[[], int], whole: int) -> int:
        """The most of what is counted that comes in one turn of the loop, until all has come."""
        most, before = 0, count()
        async with asyncio.timeout(WITHIN):
            while before < whole:
                await asyncio.sleep(0)
                most, before = max(most, count() - before), count()
        return most


def play(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
    story: Callable[[House], Awaitable[None]],
    clock: Callable[[], float] | None = None,
) -> None:
    async def told() -> None:
        house = House(clock or Clock(LOOK))
        with ExitStack() as stack:
            try:
                await story(house)
            finally:
                for client in house.clients:
                    stack.enter_context(client.far)
                    client.transport.abort()
                await house.until(all_gone(house.clients))
        assert "0" in repr(house.sockets)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(told())


def heard_more(client: Client) -> Callable[[], bool]:
    before = len(client.heard)
    return lambda: len(client.heard) > before


def all_heard(clients: list[Client]) -> Callable[[], bool]:
    return lambda: all(client.heard for client in clients)


def all_gone(clients: list[Client]) -> Callable[[], bool]:
    return lambda: all(client.is_gone for client in clients)


def say(clients: list[Client], what: bytes = b"x") -> None:
    for client in clients:
        client.far.send(what)


@LOOPS
def test_of_very_many_that_speak_at_once_a_turn_reads_as_many_as_it_has_time_for(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def story(house: House) -> None:
        clients = await house.many(200, "bob")
        say(clients)
        most = await house.most(house.read.total, len(clients))
        assert most <= IN_A_TURN + 2  # what sits takes its time, and a crowd one read
        assert {client.heard for client in clients} == {b"x"}

    play(new_loop, story)


@LOOPS
def test_who_has_one_socket_does_not_wait_for_those_of_who_has_very_many(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def story(house: House) -> None:
        crowd = await house.many(200, "bob")
        (alone,) = await house.many(1, "ann")
        say(crowd)
        say([alone])
        await house.until(lambda: alone.heard)
        assert house.read["bob"] <= SEATS + IN_A_TURN

    play(new_loop, story)


@LOOPS
@pytest.mark.parametrize("count", [SEATS + 2, 200])
def test_where_a_turn_was_too_short_what_others_said_goes_out_before_a_crowd_is_read(
    new_loop: Callable[[], asyncio.AbstractEventLoop], count: int
) -> None:
    """Who is not late lets out all that a turn has read at once."""

    async def story(house: House) -> None:
        crowd = await house.many(count, "bob")
        (alone,) = await house.many(1, "ann")
        say(crowd)
        await house.until(lambda: house.read["bob"] > SEATS)
        before = len(house.gone_out)
        say([alone])
        await house.until(lambda: alone.heard)
        read = house.read["bob"]
        await house.until(all_heard(crowd))
        told = [gone for gone in house.gone_out[before:] if gone["ann"]]
        if count == 200:
            assert told[0]["bob"] < read + SEATS < count
        else:
            assert not house.gone_out

    play(new_loop, story)


@LOOPS
def test_strangers_wait_for_each_other(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def story(house: House) -> None:
        strangers = await house.many(100)
        (known,) = await house.many(1, "ann")
        say(strangers)
        say([known])
        await house.until(lambda: known.heard)
        assert house.read[""] <= 2
        assert await house.most(lambda: house.read[""], len(strangers)) <= 2

    play(new_loop, story, Clock(OF_STRANGERS))


@LOOPS
def test_crowds_share_a_turn_however_large_they_are(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def story(house: House) -> None:
        large, small = await house.many(200, "bob"), await house.many(SEATS + 20, "ann")
        say(large)
        say(small)
        await house.until(lambda: house.read["ann"] == len(small))
        assert house.read["bob"] <= 2 * len(small)

    play(new_loop, story)


@LOOPS
def test_whom_there_was_no_time_for_comes_first_in_the_next_turn(
    new_loop: Callable[[], asyncio.AbstractEventLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system tells of all of them again, in the same order."""
    monkeypatch.setattr(sockets, "SIZE", 1)

    async def story(house: House) -> None:
        clients = await house.many(40, "bob")
        say(clients, bytes(100))
        await house.until(lambda: house.read["bob"] >= 20 * len(clients))
        crowd = [len(client.heard) for client in clients[SEATS:]]
        assert max(crowd) - min(crowd) <= 2

    play(new_loop, story)


@LOOPS
def test_of_those_that_end_at_once_few_do_in_a_turn(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def story(house: House) -> None:
        clients = await house.many(100, "bob")
        for client in clients:
            client.far.shutdown(socket.SHUT_WR)
        assert await house.most(lambda: house.ended, len(clients)) <= IN_A_TURN + 2
        assert not any(client.heard for client in clients)

    play(new_loop, story)


def test_an_end_counts_for_more_than_the_clock_shows() -> None:
    """What the loop does for it comes later."""

    async def story(house: House) -> None:
        clients = await house.many(100, "bob")
        for client in clients:
            client.far.shutdown(socket.SHUT_WR)
        most = await house.most(lambda: house.ended, len(clients))
        assert most <= READING / ENDING + 1

    play(uvloop.new_event_loop, story, Clock(0.0))


@LOOPS
def test_what_was_said_before_the_end_comes_before_it(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def story(house: House) -> None:
        (client,) = await house.many(1, "ann")
        say([client], b"last words")
        client.far.close()
        await house.until(lambda: client.has_ended)
        assert client.heard == b"last words"

    play(new_loop, story)


@LOOPS
@pytest.mark.parametrize("user", ["", "ann"])
def test_a_connection_that_is_reset_is_lost(
    new_loop: Callable[[], asyncio.AbstractEventLoop], user: str
) -> None:
    async def story(house: House) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            client = Client(house, user)
            client.far.close()
            client.near.close()
            client.far = socket.create_connection(listening.getsockname())
            client.near = listening.accept()[0]
        await asyncio.get_running_loop().connect_accepted_socket(lambda: client, client.near)
        house.clients.append(client)
        await house.settled()
        client.far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.far.close()
        await house.until(lambda: client.is_gone or client.has_ended)
        assert client.is_gone

    play(new_loop, story)


@LOOPS
def test_who_is_paused_is_not_read(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def story(house: House) -> None:
        paused, other = await house.many(2, "ann")
        paused.reader.pause_reading()
        say([paused, other], b"first")
        await house.until(lambda: other.heard)
        say([other], b" second")
        await house.until(lambda: other.heard == b"first second")
        assert not paused.heard
        paused.reader.resume_reading()
        await house.until(lambda: paused.heard == b"first")

    play(new_loop, story)


@LOOPS
def test_who_is_paused_at_once_is_not_read_by_the_loop(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """It begins to as soon as it has told of the socket, which may have megabytes."""

    class Hasty(Client):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.reader.pause_reading()

    async def story(house: House) -> None:
        client = Hasty(house, "ann")
        house.clients.append(client)
        client.far.setblocking(False)
        sent = 0
        with suppress(BlockingIOError):
            while True:
                sent += client.far.send(bytes(1 << 14))
        await asyncio.get_running_loop().connect_accepted_socket(lambda: client, client.near)
        await house.until(lambda: client.heard)
        await house.settled()
        assert house.read["ann"] == 1
        while len(client.heard) < sent:
            is_more = heard_more(client)
            client.reader.resume_reading()
            await house.until(is_more)

    play(new_loop, story)


@LOOPS
def test_who_logs_in_while_it_is_paused_stays_so(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def story(house: House) -> None:
        client, other = await house.many(2)
        client.reader.pause_reading()
        say([client, other])
        await house.until(lambda: other.heard)
        client.reader.enter("ann")
        say([other])
        await house.until(lambda: other.heard == b"xx")
        assert not client.heard
        client.reader.resume_reading()
        await house.until(lambda: client.heard)

    play(new_loop, story)


@LOOPS
def test_who_is_paused_is_not_told_of_its_end(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def story(house: House) -> None:
        client, other = await house.many(2, "ann")
        client.reader.pause_reading()
        client.far.shutdown(socket.SHUT_WR)
        say([other])
        await house.until(lambda: other.heard)
        assert not client.has_ended
        client.reader.resume_reading()
        await house.until(lambda: client.has_ended)
        assert not client.is_gone  # it may be told something still

    play(new_loop, story)


@LOOPS
def test_when_the_last_socket_has_gone_no_file_is_left(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def story(house: House) -> None:
        files: list[int] = []
        for _ in range(3):  # the loop opens some of its own with the first ones
            clients = await house.many(SEATS + 5, "bob") + await house.many(3)
            say(clients)
            await house.until(all_heard(clients))
            for client in clients:
                client.transport.abort()
                client.far.close()
            await house.until(all_gone(house.clients))
            await house.settled()
            files.append(len(os.listdir("/proc/self/fd")))
        assert files[1] == files[2]

    play(new_loop, story)


@LOOPS
def test_those_who_come_when_there_are_many_crowds_share_one(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """Each of them is a file of the process, and there are as many users as somebody may have accounts."""

    async def story(house: House) -> None:
        (alone,) = await house.many(1, "ann")
        before = len(os.listdir("/proc/self/fd"))
        sockets = 0
        for number in range(2 * CROWDS):
            sockets += len(await house.many(SEATS + 2, f"user {number}"))
        assert len(os.listdir("/proc/self/fd")) - before - 2 * sockets <= CROWDS + 1
        say(house.clients)
        await house.until(all_heard(house.clients))
        last = [client for client in house.clients if client is not alone]
        for client in reversed(last):
            client.transport.abort()
        await house.until(all_gone(last))
        say([alone])
        await house.until(lambda: alone.heard == b"xx")
        assert len(os.listdir("/proc/self/fd")) - before == len(last)  # the clients' ends

    play(new_loop, story)


@LOOPS
def test_a_seat_that_was_left_is_taken_by_the_next_one(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def story(house: House) -> None:
        first = await house.many(SEATS, "bob")
        first[0].transport.abort()
        await house.until(lambda: first[0].is_gone)
        crowd = await house.many(30, "bob")
        say(crowd[1:])
        say(crowd[:1])
        await house.until(lambda: crowd[0].heard)
        assert sum(bool(client.heard) for client in crowd) <= IN_A_TURN

    play(new_loop, story)


@LOOPS
def test_where_there_is_no_epoll_the_loop_reads(
    new_loop: Callable[[], asyncio.AbstractEventLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "HAS_EPOLL", False)

    async def story(house: House) -> None:
        client, other = await house.many(2, "ann")
        client.reader.pause_reading()
        say([client, other])
        await house.until(lambda: other.heard)
        assert not client.heard
        client.reader.resume_reading()
        await house.until(lambda: client.heard)
        client.far.shutdown(socket.SHUT_WR)
        await house.until(lambda: client.has_ended)
        client.transport.abort()
        client.reader.resume_reading()

    play(new_loop, story)


def test_who_has_gone_before_it_was_read_leaves_nothing() -> None:
    async def story(house: House) -> None:
        client = await house.client("ann")
        client.transport.abort()
        await house.until(lambda: client.is_gone)
        client.reader.end()  # as of TLS
        client.reader.enter("ann")
        assert isinstance(client.reader, Reader)

    play(uvloop.new_event_loop, story)
