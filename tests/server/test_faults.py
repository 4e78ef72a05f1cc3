"""Exceptions that nobody foresaw: what they end, and that nothing of what they left half-done is confirmed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from stompbox.broker.commits import Commits
from stompbox.broker.queues.contracts import Load
from stompbox.broker.queues.queue import Queue
from stompbox.errors import StoreError
from stompbox.server import clients, committer, delivering, loading
from stompbox.server.broker import Broker
from stompbox.server.requests import dispatch
from stompbox.server.transport.tcp import Acceptor, Socket
from stompbox.stomp.codec import Decoder, encode
from stompbox.stomp.frames import Frame
from stompbox.stomp.versions import VERSIONS
from stompbox.store.base import Commit
from stompbox.store.memory import MemoryStore
from tests.crash.calls import WITHIN, Client, Raised, Wire, configuration


def raising(*_: object, **__: object) -> Any:
    raise Raised("a fault of ours")


class World:
    """One broker in this process, on a store in memory."""

    def __init__(self, folder: Path) -> None:
        self.settings = configuration(folder)
        self.store = MemoryStore()
        loop = asyncio.get_running_loop()
        self.broker = Broker(self.settings, self.store, loop, is_durable=True)
        loop.set_exception_handler(self.broker.faults.in_loop)

    def client(self) -> Client:
        return Client(self.broker, self.settings, "")

    async def until(self, is_so: Callable[[], object]) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + WITHIN
        while not is_so():
            assert loop.time() < deadline, "it never came"
            await asyncio.sleep(0)

    async def confirmed(self, client: Client, body: bytes, destination: str = "/queue/q") -> None:
        client.say("SEND", {"destination": destination, "receipt": body.decode()}, body)
        await self.until(lambda: body.decode() in client.receipts)


def play(folder: Path, story: Callable[[World], Awaitable[None]]) -> World:
    async def run() -> World:
        world = World(folder)
        await story(world)
        await world.broker.stop()
        return world

    return asyncio.run(run())


def assert_stopped(world: World, *clients: Client) -> None:
    assert world.broker.has_failed
    assert world.broker.faults.last is not None
    assert world.broker.faults.last.code == "broker-stopped"
    assert all(client.wire.is_gone for client in clients)


def assert_contained(world: World, client: Client) -> None:
    assert not world.broker.has_failed
    assert client.heard()[-1].headers["code"] == "internal-fault"
    assert client.is_ended


def test_a_commit_that_is_lost_is_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The first sender's commit is gone: neither it nor who comes later in the same turn is told anything."""

    async def story(world: World) -> None:
        one, other = world.client(), world.client()
        await world.confirmed(one, b"before")
        monkeypatch.setattr(Queue, "is_durable", property(raising))
        monkeypatch.setattr(Commits, "_gather", raising)
        one.say("SEND", {"destination": "/queue/q", "receipt": "lost"}, b"lost")
        monkeypatch.undo()
        other.say("SEND", {"destination": "/queue/other", "receipt": "later"}, b"later")
        await world.until(lambda: world.broker.has_failed)
        assert_stopped(world, one, other)
        assert one.receipts == {"before"}
        assert other.receipts == set()

    world = play(tmp_path, story)
    assert [chunk.first for chunk in world.store.read(1, 0, 9, 1000)] == [0]
    critical = [record for record in caplog.records if record.levelno == logging.CRITICAL]
    assert len(critical) == 1
    assert "broker-stopped" in critical[0].getMessage()
    assert critical[0].exc_info is not None


def test_a_broker_that_stops_begins_no_read_that_comes_too_late(tmp_path: Path) -> None:
    """What connections give back as they end may want more of the log, when the threads that read it are gone."""

    async def story() -> bool:
        world = World(tmp_path)
        await world.confirmed(world.client(), b"kept")
        await world.broker.stop()
        queue = world.broker.engine.addresses["q"].anycast["q"]
        world.broker.engine.loads.append(Load(queue, 0, 1, Queue.loaded))
        world.broker.flush()
        await world.until(lambda: not world.broker.engine.loads and not world.broker.tasks)
        return world.broker.has_failed

    assert not asyncio.run(story())


def test_a_broker_that_is_told_to_stop_again_stops_once(tmp_path: Path) -> None:
    """At the same time, and when it is over."""

    async def story() -> bool:
        world = World(tmp_path)
        await world.confirmed(world.client(), b"kept")
        async with asyncio.timeout(WITHIN):
            await asyncio.gather(world.broker.stop(), world.broker.stop())
            await world.broker.stop()
        return world.broker.has_failed

    assert not asyncio.run(story())


def test_duplicates_of_what_is_stored_are_confirmed_while_the_disk_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when they come in one run with messages that are new."""
    many = 60  # more than it takes until frames that look alike are read in runs

    def send(number: int) -> bytes:
        name = str(number)
        return encode(
            Frame("SEND", {"destination": "/queue/q", "_AMQ_DUPL_ID": name, "receipt": name}, name.encode()),
            VERSIONS["1.2"],
        )

    def full(commit: Commit) -> None:
        raise StoreError("disk-full", "the disk is full")

    async def story(world: World) -> None:
        before = world.client()
        before.say_all(*[send(number) for number in range(many)])
        await world.until(lambda: len(before.receipts) == many)
        monkeypatch.setattr(world.store, "apply", full)
        before.say("SEND", {"destination": "/queue/q"}, b"the disk is asked")
        await world.until(lambda: world.broker.engine.trouble)
        client = world.client()
        client.say_all(*[send(number) for number in (*range(many), many, 0)])
        await world.until(lambda: client.is_ended)
        assert client.receipts == {str(number) for number in range(many)}
        error = client.heard()[-1]
        assert (error.command, error.headers["code"], error.headers["receipt-id"]) == (
            "ERROR",
            "disk-full",
            str(many),
        )
        monkeypatch.undo()

    play(tmp_path, story)


def test_a_lost_commit_is_remembered_even_if_nobody_listens() -> None:
    from tests.broker.world import World as Engines

    world = Engines()
    world.send("q", b"a")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Commits, "_gather", raising)
        with pytest.raises(Raised):
            world.engine.take_commit()
    with pytest.raises(RuntimeError, match="lost"):
        world.engine.take_commit()


@pytest.mark.parametrize(
    "error", [ValueError("x"), StoreError("no-such-log", "not what is in memory"), MemoryError()]
)
def test_a_store_that_does_not_know_what_it_has_gets_no_other_commit(
    tmp_path: Path, error: Exception
) -> None:
    async def story(world: World) -> None:
        client = world.client()
        await world.confirmed(client, b"before")
        applied: list[Commit] = []

        def apply(commit: Commit) -> None:
            applied.append(commit)
            raise error

        world.store.apply = apply  # type: ignore[method-assign]
        client.say("SEND", {"destination": "/queue/q", "receipt": "lost"}, b"lost")
        await world.until(lambda: world.broker.has_failed)
        world.broker.committer.submit(Commit(logs={99: "x"}))
        assert_stopped(world, client)
        assert client.receipts == {"before"}
        assert [frame.command for frame in client.frames[1:]] == ["RECEIPT"], "no ERROR either: nobody knows"
        assert len(applied) == 1

    play(tmp_path, story)


def test_housekeeping_that_raises_stops_the_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committer, "IDLE", 0.001)

    async def story(world: World) -> None:
        client = world.client()
        await world.confirmed(client, b"before")
        world.store.maintain = raising  # type: ignore[method-assign]
        client.say("SEND", {"destination": "/queue/q"}, b"wakes the committer")
        await world.until(lambda: world.broker.has_failed)
        assert_stopped(world)

    play(tmp_path, story)


@pytest.mark.parametrize(
    "error",
    [Raised("a fault"), OSError("which transports pass over"), ConnectionResetError(), RecursionError()],
)
def test_any_exception_behind_a_frame_stops_the_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async def story(world: World) -> None:
        client, other = world.client(), world.client()
        await world.confirmed(client, b"before")

        def offer(*_: object) -> None:
            raise error

        monkeypatch.setattr(Queue, "offer", offer)
        client.say("SEND", {"destination": "/queue/q", "receipt": "lost"}, b"lost")
        monkeypatch.undo()
        other.say("SEND", {"destination": "/queue/q", "receipt": "after"}, b"after")
        assert_stopped(world, client, other)
        assert client.receipts == {"before"}
        assert other.receipts == set()

    play(tmp_path, story)


def test_a_callback_that_raises_stops_the_broker_and_a_library_does_not(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        asyncio.get_running_loop().call_soon(raising)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not world.broker.has_failed, "no code of ours was in it"
        world.broker.engine.timers.at(1, raising)
        world.broker.flush()
        await world.until(lambda: world.broker.has_failed)
        assert_stopped(world)

    play(tmp_path, story)


def test_a_task_that_raises_stops_the_broker(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        async def work() -> None:
            raising()

        world.broker.spawn(work())
        await world.until(lambda: world.broker.has_failed)
        assert_stopped(world)

    play(tmp_path, story)


def test_a_request_that_changes_something_stops_the_broker_and_one_that_reads_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def handler(*_: object) -> Any:
        raising()

    monkeypatch.setattr(dispatch, "REQUESTS", {"describe": handler, "group-open": handler})

    async def story(world: World) -> None:
        reader, writer = world.client(), world.client()
        reader.say("SEND", {"destination": "stompbox.requests", "request": "describe", "request-id": "1"})
        await world.until(lambda: reader.is_ended)
        assert_contained(world, reader)
        writer.say("SEND", {"destination": "stompbox.requests", "request": "group-open", "request-id": "1"})
        await world.until(lambda: world.broker.has_failed)
        assert_stopped(world, writer)

    play(tmp_path, story)


def test_a_staged_chunk_that_cannot_be_decoded_ends_one_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes from outside; where the engine has been told of it, nobody knows any more."""
    headers = {
        "destination": "stompbox.requests",
        "request": "stage",
        "request-id": "1",
        "sink": "s",
        "batch": "0",
    }

    async def story(world: World) -> None:
        client, other = world.client(), world.client()
        monkeypatch.setattr(dispatch, "REQUESTS", {"stage": decoding})
        client.say("SEND", headers)
        await world.until(lambda: client.is_ended)
        assert_contained(world, client)
        monkeypatch.setattr(dispatch, "REQUESTS", {"stage": staging})
        other.say("SEND", headers)
        await world.until(lambda: world.broker.has_failed)
        assert_stopped(world, other)

    async def decoding(*_: object) -> Any:
        raising()

    async def staging(connection: Any, _: object) -> Any:
        connection.broker.sinks.stage(None)

    play(tmp_path, story)


def test_a_fault_in_parsing_ends_one_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        client, other = world.client(), world.client()
        failing, receive = client.socket._receiver.decoder, Decoder.receive  # type: ignore[union-attr]
        monkeypatch.setattr(
            Decoder,
            "receive",
            lambda self, data: map(raising, [1]) if self is failing else receive(self, data),
        )
        client.say("SEND", {"destination": "/queue/q", "receipt": "1"}, b"1")
        assert_contained(world, client)
        await world.confirmed(other, b"goes on")

    play(tmp_path, story)


def test_a_fault_in_what_is_asked_of_a_frame_ends_one_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who sends it again and again stops nobody."""

    async def story(world: World) -> None:
        for command in ("SEND", "SUBSCRIBE"):
            client, other = world.client(), world.client()
            monkeypatch.setattr(clients.Names, "route", raising)
            monkeypatch.setattr(clients.Names, "parse", raising)
            client.say(command, {"destination": "/queue/new", "id": "1", "receipt": "1"})
            monkeypatch.undo()
            assert_contained(world, client)
            await world.confirmed(other, b"goes on")

    play(tmp_path, story)


@pytest.mark.parametrize("head", [b"GET //[ HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nOrigin: http://[\r\n"])
def test_a_fault_in_a_hand_shake_ends_one_connection(tmp_path: Path, head: bytes) -> None:
    """No stranger stops the broker."""

    async def story(world: World) -> None:
        wire = Wire()
        socket = Socket(world.broker, Acceptor(world.broker, world.settings.listeners[0].parse()))
        socket.connection_made(wire)
        key = b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        socket.data_received(head + b"Host: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" + key)
        await world.until(lambda: wire.is_gone or socket._closing)
        assert not world.broker.has_failed
        await world.confirmed(world.client(), b"goes on")

    play(tmp_path, story)


def test_a_peer_that_is_gone_is_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half-closing a socket whose peer has reset it raises in some event loops."""

    async def story(world: World) -> None:
        client = world.client()
        monkeypatch.setattr(client.wire, "can_write_eof", lambda: True)

        def write_eof() -> None:
            raise OSError("not connected")

        monkeypatch.setattr(client.wire, "write_eof", write_eof)
        client.say("DISCONNECT", {})
        assert client.wire.is_gone
        assert not world.broker.has_failed
        await world.confirmed(world.client(), b"goes on")

    play(tmp_path, story)


def test_a_message_that_cannot_be_encoded_is_dead_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = delivering.messages

    def messages(head: Any, run: Any, start: int, count: int, **more: Any) -> bytes:
        if any(b"poison" in body for body in run.bodies[start : start + count]):
            raising()
        return encode(head, run, start, count, **more)

    monkeypatch.setattr(delivering, "messages", messages)

    async def story(world: World) -> None:
        sender = world.client()
        for body in (b"1", b"poison", b"3"):
            await world.confirmed(sender, body)
        found: list[bytes] = []
        while world.broker.engine.counters["dead"] == 0:
            client = world.client()
            client.say("SUBSCRIBE", {"destination": "/queue/q", "id": "1", "ack": "client-individual"})
            await world.until(lambda: client.is_ended)  # noqa: B023
            assert_contained(world, client)
        client = world.client()
        client.say("SUBSCRIBE", {"destination": "/queue/q", "id": "1", "ack": "client-individual"})
        await world.until(lambda: len(client.messages) == 2)
        found = [frame.body for frame in client.messages]
        assert found == [b"1", b"3"]
        assert world.broker.engine.addresses["DLQ"].anycast["DLQ"].backlog.count == 1

    play(tmp_path, story)


def test_messages_that_cannot_be_decoded_stop_their_queue_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "RELOAD", 0.001)

    async def story(world: World) -> None:
        client, other = world.client(), world.client()
        await world.confirmed(client, b"x" * 9000, "/queue/small")
        await world.confirmed(client, b"in the log", "/queue/small")
        monkeypatch.setattr(committer, "decode", raising)
        client.say("SUBSCRIBE", {"destination": "/queue/small", "id": "1", "ack": "auto"})
        await world.until(lambda: world.broker.loads.unreadable)
        await world.confirmed(other, b"goes on")
        monkeypatch.setattr(committer, "decode", DECODE)
        await world.until(lambda: [frame.body for frame in client.messages][-1:] == [b"in the log"])
        assert not world.broker.has_failed

    play(tmp_path, story)


DECODE = committer.decode


def test_a_fault_while_the_broker_is_told_to_stop_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(world: World) -> None:
        await world.confirmed(world.client(), b"before")
        monkeypatch.setattr(Commits, "_gather", raising)

    assert_stopped(play(tmp_path, story))


def test_a_commit_that_is_under_way_when_a_node_stops_leading_is_no_fault(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(world: World) -> None:
        world.broker.faults.depose(StoreError("fenced", "somebody else leads"))
        world.broker.faults.stop("the store was at work", StoreError("log-closed", "it was closed"))

    with caplog.at_level(logging.INFO, "stompbox"):
        play(tmp_path, story)
    assert [record.levelname for record in caplog.records if "lead" in record.message] == ["WARNING"]
    assert not any(record.levelno >= logging.ERROR for record in caplog.records)
