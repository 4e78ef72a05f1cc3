"""What clients have left goes back to the system: when it is worth while, beside the loop, and not again and again for nothing."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from weakref import ReferenceType, ref

import pytest

from stompbox.selectors import SelectorLimits
from stompbox.server import generations, trimming
from stompbox.server.generations import Collector
from stompbox.server.run import OfBroker
from stompbox.server.trimming import LEAST, LONG, MUCH, Trimming
from tests.conftest import Serve, memory_of
from tests.server.world import House, configured, play
from tests.system.plain import Plain
from tests.system.transports import wait_until

IDLE = 100 << 20


class Process:
    """A process that has a size, and a C library."""

    def __init__(self) -> None:
        self.size = IDLE
        self.free = 0
        self.looks = 0
        self.trims: list[int] = []  # by which thread

    def resident(self) -> int:
        self.looks += 1
        return self.size

    def trim(self) -> None:
        self.trims.append(threading.get_ident())
        self.size -= self.free
        self.free = 0


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trimming, "PERIOD", 0.001)
    monkeypatch.setattr(trimming, "NEXT_LOOK", 1000.0)


async def looked(house: House, process: Process, times: int = 3) -> None:
    until = process.looks + times
    await house.until(lambda: process.looks >= until, "it was looked at")


def test_what_is_free_is_given_back_in_a_thread(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        process = Process()
        giving_back = Trimming(OfBroker(house.broker), Collector(), process.resident, process.trim)
        process.size, process.free = IDLE + LEAST, LEAST
        await looked(house, process)
        assert not process.trims, "it is not worth while"
        process.size, process.free = IDLE + 50 * LEAST, 50 * LEAST
        await house.until(lambda: process.trims, "it is given back")
        await looked(house, process)
        assert (process.size, len(process.trims)) == (IDLE, 1)
        assert process.trims != [threading.get_ident()]
        process.size, process.free = IDLE + 50 * LEAST, 50 * LEAST
        await house.until(lambda: len(process.trims) == 2, "and again")
        giving_back.stop()

    play(configured(tmp_path), story)


def test_a_process_that_can_open_no_file_gives_back_all_the_same(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        process = Process()
        house.broker.loop.set_exception_handler(house.broker.faults.in_loop)
        has_files = True

        def resident() -> int:
            size = process.resident()
            if not has_files:
                raise OSError(24, "Too many open files", "/proc/self/statm")
            return size

        giving_back = Trimming(OfBroker(house.broker), Collector(), resident, process.trim)
        has_files = False
        await looked(house, process)
        assert not house.broker.has_failed
        has_files = True
        process.size, process.free = IDLE + 50 * LEAST, 50 * LEAST
        await house.until(lambda: process.trims, "it is looked at again")
        giving_back.stop()

    play(configured(tmp_path), story)


def test_what_is_kept_is_not_asked_for(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        process, memory = Process(), house.broker.engine.memory
        giving_back = Trimming(OfBroker(house.broker), Collector(), process.resident, process.trim)
        memory.size, process.size = 50 * LEAST, IDLE + 50 * LEAST
        await looked(house, process)
        assert not process.trims
        memory.size, process.free = 0, 50 * LEAST
        await house.until(lambda: process.size == IDLE, "what was kept is free now, and is given back")
        giving_back.stop()

    play(configured(tmp_path), story)


def test_where_it_does_not_help_it_is_not_done_at_each_look(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        process = Process()
        giving_back = Trimming(OfBroker(house.broker), Collector(), process.resident, process.trim)
        process.size = IDLE + 50 * LEAST
        await house.until(lambda: process.trims, "it is tried")
        await looked(house, process, 20)
        assert len(process.trims) == 1
        giving_back.stop()

    play(configured(tmp_path), story)


@pytest.mark.skipif(trimming._malloc_trim() is None, reason="the C library cannot give back")
@pytest.mark.usefixtures("own_process")
def test_memory_of_clients_that_are_gone_is_back_soon(serve: Serve) -> None:
    """Transactions that are open, of many messages and connections, and then nobody."""
    served = serve("--memory", "--no-admin")
    with Plain(served.port) as first:
        first.sync()
        idle = memory_of(served.process.pid)
        clients = [Plain(served.port).__enter__() for _ in range(10)]
        for client in clients:
            client.send("BEGIN", {"transaction": "t"})
            frame = (
                b"SEND\ndestination:/queue/never\ntransaction:t\ncontent-length:3000\n\n"
                + b"x" * 3000
                + b"\0"
            )
            client.socket.sendall(frame * 1000)
            client.sync()
        assert memory_of(served.process.pid) > idle + (20 << 20)
        for client in clients:
            client.socket.close()
        wait_until(
            lambda: memory_of(served.process.pid) <= idle * 1.1 + (2 << 20), "it is as small as it was"
        )


class Node:
    """One of a circle, which only a whole collection finds once it is old."""

    def __init__(self) -> None:
        self.other = self


def old_circle() -> ReferenceType[Node]:
    node = Node()
    gc.collect()
    return ref(node)


@pytest.mark.parametrize("is_short", [True, False])
def test_python_gives_back_what_it_keeps_where_few_objects_are_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_short: bool
) -> None:
    """Where many are, what has become old is not looked at for that."""
    monkeypatch.setattr(generations, "SHORT", 1 << 40 if is_short else -(1 << 40))
    monkeypatch.setattr(generations, "ALIVE", -(1 << 40))  # else all is looked through at the next look

    async def story(house: House) -> None:
        process = Process()
        giving_back = Trimming(OfBroker(house.broker), Collector(), process.resident, process.trim)
        circle = old_circle()
        process.size, process.free = IDLE + 50 * LEAST, 50 * LEAST
        await house.until(lambda: process.size == IDLE, "it is given back")
        assert (circle() is None) == is_short
        giving_back.stop()

    gc.disable()  # nothing but what is asked for here
    try:
        play(configured(tmp_path), story)
    finally:
        gc.enable()


class Clock:
    """The loop's own, and what has passed besides."""

    def __init__(self, loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch) -> None:
        self.passed = 0.0
        now = loop.time
        monkeypatch.setattr(loop, "time", lambda: now() + self.passed, raising=False)


@pytest.fixture
def put_aside() -> Iterator[None]:
    """Nothing is collected but what is asked for, and what is old now is put aside."""
    gc.disable()
    gc.freeze()
    yield
    gc.unfreeze()
    gc.enable()


@pytest.mark.usefixtures("put_aside")
def test_a_whole_collection_of_much_comes_where_what_nothing_explains_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes long then, but without it circles of what is gone would stay for ever."""
    monkeypatch.setattr(generations, "ALIVE", -(1 << 40))
    monkeypatch.setattr(generations, "SHORT", -(1 << 40))
    monkeypatch.setattr(trimming, "NEXT_LOOK", 0.0)

    async def story(house: House) -> None:
        process, clock = Process(), Clock(house.broker.loop, monkeypatch)
        giving_back = Trimming(OfBroker(house.broker), Collector(), process.resident, process.trim)
        circle = old_circle()
        for much in (2 * MUCH, 0, 2 * MUCH):
            clock.passed += LONG / 2
            process.size = IDLE + much
            await looked(house, process, 20)
        clock.passed += LONG / 3
        await looked(house, process, 20)
        assert circle() is not None, "there was less in between"
        clock.passed += LONG / 2
        await house.until(lambda: circle() is None, "it is found")
        circle = old_circle()
        await looked(house, process, 20)
        assert circle() is not None
        clock.passed += LONG
        await house.until(lambda: circle() is None, "and again after as long")
        giving_back.stop()

    play(configured(tmp_path), story)


@pytest.mark.usefixtures("put_aside")
@pytest.mark.parametrize("is_known", [True, False])
def test_what_was_put_aside_is_looked_through_once_few_objects_are_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_known: bool
) -> None:
    """Also where nothing can be given back; not more often than it is worth."""
    monkeypatch.setattr(generations, "ALIVE", -(1 << 40))

    async def story(house: House) -> None:
        process, clock, collector = Process(), Clock(house.broker.loop, monkeypatch), Collector()
        collector.has_put_aside = True
        resident = process.resident if is_known else None
        giving_back = Trimming(OfBroker(house.broker), collector, resident, process.trim)
        circle = old_circle()
        gc.freeze()
        for _ in range(100):
            await asyncio.sleep(0)
        assert circle() is not None, "many are alive"
        monkeypatch.setattr(generations, "ALIVE", 1 << 40)
        await house.until(lambda: circle() is None, "it is found")
        assert not collector.has_put_aside
        circle = old_circle()
        collector.has_put_aside = True
        clock.passed += LONG / 2
        for _ in range(100):
            await asyncio.sleep(0)
        assert circle() is not None
        clock.passed += LONG
        await house.until(lambda: circle() is None, "and again")
        assert process.trims == []
        giving_back.stop()

    play(configured(tmp_path), story)


async def spoken(house: House, process: Process, times: int) -> None:
    """As `looked`, while somebody speaks all the time."""
    until = process.looks + times

    def is_done() -> bool:
        house.broker.turns.serve()
        return process.looks >= until

    await house.until(is_done, "it was looked at")


@pytest.mark.usefixtures("put_aside")
def test_nothing_that_was_put_aside_is_looked_through_while_somebody_speaks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who speaks would feel it, however few objects are alive."""
    monkeypatch.setattr(generations, "ALIVE", 1 << 40)

    async def story(house: House) -> None:
        process, collector = Process(), Collector()
        collector.has_put_aside = True
        giving_back = Trimming(OfBroker(house.broker), collector, process.resident, process.trim)
        circle = old_circle()
        gc.freeze()
        await spoken(house, process, 30)
        assert circle() is not None and collector.has_put_aside
        await house.until(lambda: circle() is None, "nobody speaks any more")
        giving_back.stop()

    play(configured(tmp_path), story)


@pytest.mark.usefixtures("put_aside")
@pytest.mark.parametrize("is_worth", [True, False])
def test_while_somebody_speaks_a_collection_that_was_not_worth_while_comes_half_as_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_worth: bool
) -> None:
    monkeypatch.setattr(generations, "ALIVE", -(1 << 40))
    monkeypatch.setattr(generations, "SHORT", -(1 << 40))
    monkeypatch.setattr(trimming, "WORTH", 0 if is_worth else 1 << 40)

    async def story(house: House) -> None:
        process, clock = Process(), Clock(house.broker.loop, monkeypatch)
        giving_back = Trimming(OfBroker(house.broker), Collector(), process.resident, process.trim)
        process.size = IDLE + 2 * MUCH
        circle = old_circle()
        await spoken(house, process, 20)
        assert circle() is not None
        clock.passed += LONG
        await spoken(house, process, 20)
        assert circle() is None, "nothing explains what is there"
        process.size = IDLE
        await spoken(house, process, 20)
        process.size, circle = IDLE + 2 * MUCH, old_circle()
        await spoken(house, process, 20)
        clock.passed += 1.5 * LONG
        await spoken(house, process, 20)
        assert (circle() is None) == is_worth
        clock.passed += LONG
        await spoken(house, process, 20)
        assert circle() is None
        giving_back.stop()

    play(configured(tmp_path), story)


def test_something_has_happened_where_a_client_has_spoken(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        guest, whose = await house.client(), OfBroker(house.broker)
        for _ in range(20):
            await asyncio.sleep(0)
        before = whose.happened
        for _ in range(20):
            await asyncio.sleep(0)
        assert whose.happened == before
        guest.say("SEND\ndestination:/queue/a\n\n\0")
        await house.until(lambda: whose.happened > before, "it has happened")

    play(configured(tmp_path), story)


def test_what_only_saves_time_goes_where_that_has_not_helped(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        process, cache = Process(), house.broker.selectors
        giving_back = Trimming(OfBroker(house.broker), Collector(), process.resident, process.trim)
        ask = partial(cache.compiled, user="u", conversion=True, limits=SelectorLimits())
        used, _ = ask("a = 1"), [ask(f"b = {number}") for number in range(50)]
        house.broker.engine.verdicts.note((used.number, 1, 0, True), value=True)
        process.size, process.free = IDLE + 50 * LEAST, 50 * LEAST
        await house.until(lambda: process.size == IDLE, "it is given back")
        assert (len(cache), len(house.broker.engine.verdicts)) == (51, 1)
        process.size = IDLE + 50 * LEAST
        await house.until(lambda: not len(cache), "they go")
        await house.until(lambda: len(process.trims) > 1, "and it is tried again")
        assert (cache.size, len(house.broker.engine.verdicts)) == (0, 0)
        assert ask("a = 1") is used
        giving_back.stop()

    play(configured(tmp_path), story)
