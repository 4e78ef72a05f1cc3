"""The limits of the HTTP server: who does not ask, asks slowly, asks too much."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from urllib.parse import urlsplit

import h11
import pytest
from msgspec import structs
from uvicorn.protocols.http.h11_impl import H11Protocol

from stompbox.admin import apirequest, http, listing
from stompbox.admin.listening import AdminListener
from stompbox.config import AdminTable, Configuration, ListenerTable
from stompbox.server.faults import Faults
from stompbox.server.run import start, stop
from stompbox.server.turns import Turns
from tests.admin.asking import post
from tests.conftest import Served

WITHIN = 20.0  # seconds
LOOKS = 10  # at the clock in a turn
CERTIFICATE = Path(__file__).parent.parent / "client" / "tls-certificate.pem"
LIST = b"GET /api/v1/addresses?limit=10000 HTTP/1.1\r\nHost: localhost\r\n\r\n"
GOOD = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


def played(
    asking: Callable[[socket.socket], bytes], addresses: Sequence[str] = (), *, is_tls: bool = False
) -> bytes:
    """What a client got from a broker in this process that has these addresses."""
    table = AdminTable(listen="127.0.0.1:0")
    if is_tls:
        key = str(CERTIFICATE.with_name("tls-key.pem"))
        table = structs.replace(table, key_store_path=str(CERTIFICATE), key_path=key)

    async def play() -> bytes:
        broker, servers, _ = await start(
            Configuration(memory=True, listeners=(ListenerTable(url="tcp://127.0.0.1:0"),))
        )
        for name in addresses:
            broker.engine.create_address(name)
        listener = AdminListener(broker, table)
        try:
            return await asyncio.to_thread(connected, listener.sockets[0].getsockname(), asking)
        finally:
            await stop(broker, servers)
            await listener.close()

    return asyncio.run(play())


def connected(place: tuple[str, int], asking: Callable[[socket.socket], bytes]) -> bytes:
    with socket.create_connection(place, WITHIN) as client:
        return asking(client)


def to_the_end(client: socket.socket) -> bytes:
    """All until the server closes."""
    found = b""
    while more := client.recv(1 << 16):
        found += more
    return found


def after(*sent: bytes) -> Callable[[socket.socket], bytes]:
    def asking(client: socket.socket) -> bytes:
        for part in sent:
            client.sendall(part)
        return to_the_end(client)

    return asking


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\nHost: local"])
def test_who_does_not_ask_is_closed(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(http, "HEAD_WITHIN", 0.05)
    assert played(after(sent)) == b""


def test_who_does_not_go_on_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A first answer, then half a head."""
    monkeypatch.setattr(http, "HEAD_WITHIN", 0.05)
    found = played(after(GOOD, GOOD[:20]))
    assert found.count(b"HTTP/1.1 200") == 1


def test_who_has_connected_is_answered_when_the_interface_ends() -> None:
    """As when its node comes to lead: the request is on its way."""

    async def play() -> bytes:
        broker, servers, _ = await start(
            Configuration(memory=True, listeners=(ListenerTable(url="tcp://127.0.0.1:0"),))
        )
        listener = AdminListener(broker, AdminTable(listen="127.0.0.1:0"))
        place = listener.sockets[0].getsockname()
        try:
            await asyncio.to_thread(
                connected, place, after(GOOD.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
            )
            reader, writer = await asyncio.open_connection(*place)
            assert isinstance(listener._serving, http.HttpServer)
            while not listener._serving.state.connections:
                await asyncio.sleep(0)
            closing = asyncio.ensure_future(listener.close())
            await asyncio.sleep(0)
            writer.write(GOOD)
            answer = await asyncio.wait_for(reader.read(), WITHIN)
            await closing
            writer.close()
            return answer
        finally:
            await stop(broker, servers)

    assert asyncio.run(play()).startswith(b"HTTP/1.1 200")


def test_who_asks_and_does_not_read_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for it is more than the system's buffers take."""
    monkeypatch.setattr(http, "UNREAD_WITHIN", 0.05)

    async def play() -> None:
        broker, servers, _ = await start(Configuration(memory=True, listeners=()))
        for number in range(5000):
            broker.engine.create_address(f"many.{number}")
        listener = AdminListener(broker, AdminTable(listen="127.0.0.1:0"))
        listener.sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(WITHIN)
        try:
            await asyncio.to_thread(client.connect, listener.sockets[0].getsockname())
            client.sendall(LIST)
            async with asyncio.timeout(WITHIN):
                while listener._serving is None or not listener._serving.state.connections:  # type: ignore[attr-defined]
                    await asyncio.sleep(0)
                while listener._serving.state.connections:  # type: ignore[attr-defined]
                    await asyncio.sleep(0)
        finally:
            client.close()
            await stop(broker, servers)
            await listener.close()

    asyncio.run(play())


def test_answers_that_nobody_reads_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first reader does not read: who asks for as much is told 503, and what is small is answered."""
    begun: list[int] = []
    pause = http.HttpProtocol.pause_writing

    def paused(protocol: http.HttpProtocol) -> None:
        begun.append(protocol.unread)
        monkeypatch.setattr(http, "UNREAD", begun[0] + 10_000)
        pause(protocol)

    monkeypatch.setattr(http.HttpProtocol, "pause_writing", paused)
    names = [f"{number}{'x' * 1000}" for number in range(10_000)]

    def ask(client: socket.socket) -> bytes:
        with socket.create_connection(client.getpeername()) as idle:
            idle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            idle.sendall(LIST)
            idle.recv(1)
            small = after(GOOD.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
            with socket.create_connection(client.getpeername()) as other:
                assert small(other).startswith(b"HTTP/1.1 200 ")
            return after(LIST)(client)

    assert played(ask, names).startswith(b"HTTP/1.1 503 ")
    assert len(begun) == 1


def answering(unread: Mapping[str, int], whose: str, length: int) -> tuple[bool, list[str]]:
    """Whether there is room for an answer of so many octets among those that are not read, by `USER` or `USER/NUMBER`; and who goes."""
    gone: list[str] = []
    connections: set[Any] = set()
    for name, octets in {**unread, whose: 0}.items():
        protocol = object.__new__(http.HttpProtocol)
        protocol.connections = connections
        protocol.transport = Mock(
            get_write_buffer_size=lambda octets=octets: octets, abort=partial(gone.append, name)
        )
        protocol._whose = (name.partition("/")[0], "")
        connections.add(protocol)
    return protocol._has_room(length), gone


@pytest.mark.parametrize(
    ("unread", "length", "found"),
    [
        ({"one": 60}, 40, (True, [])),
        ({"one": 60}, 41, (True, ["one"])),
        ({"one": 60}, 60, (False, [])),
        ({}, 1000, (True, [])),
        ({"one": 60, "two": 30}, 20, (True, ["one"])),
        ({"one/1": 40, "one/2": 40, "two": 20}, 40, (True, ["one/1"])),
        ({"one/1": 40, "one/2": 40, "two": 20}, 70, (False, [])),
        ({f"one/{number}": 9 for number in range(10)}, 30, (True, ["one/0", "one/1", "one/2"])),
        ({"me": 90}, 20, (True, ["me"])),
        ({"me": 50, "one": 45}, 60, (False, [])),
        ({f"me/{number}": 9 for number in range(10)}, 20, (False, [])),
    ],
)  # fmt: skip
def test_who_has_most_of_what_is_not_read_makes_room(
    monkeypatch: pytest.MonkeyPatch, unread: dict[str, int], length: int, found: tuple[bool, list[str]]
) -> None:
    """Of 100 octets. One who read nothing had all of them, and everybody else was told 503."""
    monkeypatch.setattr(http, "UNREAD", 100)
    has_room, gone = answering(unread, "me/now", length)
    assert (has_room, len(gone)) == (found[0], len(found[1]))
    assert {name.partition("/")[0] for name in gone} == {name.partition("/")[0] for name in found[1]}


def test_a_slow_reader_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "UNREAD_WITHIN", 0.0)

    async def play() -> list[int]:
        left, is_gone = [300, 200, 100, 100], asyncio.Event()  # octets that wait, at each look
        protocol = object.__new__(http.HttpProtocol)
        protocol.flow = Mock()
        protocol.transport = Mock(get_write_buffer_size=lambda: left.pop(0), abort=is_gone.set)
        left.insert(1, 200)  # looked at once to compare, and once to go on from
        left.insert(3, 100)
        protocol.pause_writing()
        await asyncio.wait_for(is_gone.wait(), WITHIN)
        return left

    assert asyncio.run(play()) == [], "it was waited for until nothing more was taken"


def test_a_long_answer_says_how_long_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is sent in pieces; HEAD is told the same of it, and gets nothing."""
    monkeypatch.setattr(listing, "PIECE", 7)
    names = [f"many.{number:03}" for number in range(100)]

    def asking(client: socket.socket) -> bytes:
        found = b""
        for method in (b"HEAD", b"GET"):
            client.sendall(LIST.replace(b"GET", method))
            while b"\r\n\r\n" not in found:
                found += client.recv(1 << 16)
            head, _, found = found.partition(b"\r\n\r\n")
            size = int(re.search(rb"content-length: (\d+)", head)[1])  # type: ignore[index]
        while len(found) < size:
            found += client.recv(1 << 16)
        return found

    found = json.loads(played(asking, names))
    assert [one["name"] for one in found["addresses"]] == names
    assert (found["total"], found["next"]) == (100, None)


def test_a_slow_body_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apirequest, "BODY_WITHIN", 0.05)
    head = b"POST /api/v1/queues/purge HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    found = played(after(head))
    assert found.startswith(b"HTTP/1.1 400")
    assert b"did not come" in found


def test_a_head_that_is_too_large_is_refused() -> None:
    found = played(after(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * (http.HEAD + 1)))
    assert found.startswith(b"HTTP/1.1 4")


def test_what_is_no_http_is_refused() -> None:
    assert played(after(b"CONNECT\naccept-version:1.2\n\n\0")).startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize("is_chunked_first", [False, True])
def test_a_body_of_two_lengths_is_refused_and_what_is_behind_it_is_no_request(
    *, is_chunked_first: bool
) -> None:
    lengths = [b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n"]
    head = b"POST /healthz HTTP/1.1\r\nHost: localhost\r\n" + b"".join(
        lengths[:: -1 if is_chunked_first else 1]
    )
    found = played(after(head + b"\r\n0\r\n\r\n" + GOOD))
    assert found.startswith(b"HTTP/1.1 400")
    assert b"both Content-Length and Transfer-Encoding" in found
    assert found.count(b"HTTP/1.1") == 1


POST = b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("path", [b"/api/v1/session/start", b"/api/v1/queues/purge", b"/nowhere"])
@pytest.mark.parametrize(
    "parts",
    [
        (b"Content-Length: 100\r\n\r\n{",),
        (CHUNKED + b"no number\r\n",),
        (CHUNKED + b"1\r\n{\r\nno number\r\n",),
        (CHUNKED + b"1\r\n{no end",),
        (CHUNKED + b"0\r\nno trailer\r\n\r\n",),
        (b"Expect: 100-continue\r\n" + CHUNKED, b"no number\r\n"),
    ],
)
def test_a_body_that_breaks_off_is_no_fault_of_the_broker(
    served: Served, path: bytes, parts: tuple[bytes, ...]
) -> None:
    """Nobody needs to have logged in for it, and the broker goes on and confirms what is done."""
    place = urlsplit(served.admin)
    with socket.create_connection((place.hostname, place.port), WITHIN) as client:
        client.sendall(POST % path + parts[0])
        for part in parts[1:]:
            client.recv(12)  # `100 Continue`, or the answer, where it does not wait for the body
            client.sendall(part)
        client.shutdown(socket.SHUT_WR)
        to_the_end(client)
    assert post(served.admin, "addresses/create", {"address": "after-a-broken-body"}).status == 200
    assert "fault" not in served.log.read_text()


def test_what_is_no_body_behind_an_answer_ends_the_connection_alone(served: Served) -> None:
    place = urlsplit(served.admin)
    with socket.create_connection((place.hostname, place.port), WITHIN) as client:
        client.sendall(GOOD[:-2] + CHUNKED)
        found = b""
        while not found.endswith(b"}"):
            found += client.recv(1 << 16)
        client.sendall(b"no number\r\n")
        assert to_the_end(client) == b""
    assert post(served.admin, "addresses/create", {"address": "after-a-broken-body"}).status == 200
    assert "fault" not in served.log.read_text()


def test_a_fault_in_the_parser_ends_its_connection_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: H11Protocol) -> None:
        raise ValueError("nobody has foreseen this")

    monkeypatch.setattr(H11Protocol, "handle_events", broken)
    drops: list[str] = []
    monkeypatch.setattr(Faults, "drop", lambda self, peer, doing, error: (drops.append(doing), peer.abort()))
    with suppress(ConnectionResetError):
        assert played(after(GOOD)) == b""
    assert drops == ["a request was parsed"]


def test_of_what_has_very_many_parts_some_are_parsed_in_one_go() -> None:
    """Chunks of an octet: each is an event."""
    parser, goes, events = http.Parser(), 0, list[object]()
    parser.receive_data(POST % b"/" + CHUNKED + b"1\r\nx\r\n" * 1000 + b"0\r\n\r\n")
    while not (events and isinstance(events[-1], h11.EndOfMessage)):
        parser.more()
        before = len(events)
        while (event := parser.next_event()) is not h11.NEED_DATA:
            events.append(event)
        assert len(events) - before <= http.EVENTS
        goes += 1
    assert b"".join([event.data for event in events if isinstance(event, h11.Data)]) == b"x" * 1000
    assert goes > 1000 / http.EVENTS


def test_a_body_of_very_many_parts_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind it comes another request, which is answered after it."""
    monkeypatch.setattr(http, "EVENTS", 3)
    monkeypatch.setattr(http, "PART", 7)
    body = b'{"address":"of-many-chunks"}'
    chunks = b"".join([b"1\r\n%c\r\n" % octet for octet in body]) + b"0\r\n\r\n"
    last = GOOD.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    found = played(after(POST % b"/api/v1/addresses/create" + CHUNKED + chunks + GOOD * 5 + last))
    assert found.count(b"HTTP/1.1 200") == 7
    assert b'"address":"of-many-chunks","is_new":true' in found.split(b"HTTP/1.1 200")[1]


@pytest.mark.parametrize("head", [GOOD[:-2], POST % b"/" + CHUNKED + b"0\r\n"])
def test_a_head_of_very_many_lines_is_not_parsed(head: bytes) -> None:
    """Nor are trailers."""
    parser = http.Parser()
    parser.receive_data(head + b"a: b\r\n" * 5000 + b"\r\n")
    with pytest.raises(h11.RemoteProtocolError, match="lines"):
        for _ in range(http.EVENTS):
            parser.next_event()
    few = http.Parser()
    few.receive_data(head + b"a: b\r\n" * (http.LINES // 2) + b"\r\n")
    assert isinstance(few.next_event(), h11.Request)
    assert isinstance(few.next_event(), h11.EndOfMessage)


def test_a_head_of_very_many_lines_is_refused() -> None:
    assert played(after(GOOD[:-2] + b"a: b\r\n" * 5000 + b"\r\n")).startswith(b"HTTP/1.1 400")


def test_slow_heads_make_room_for_who_asks() -> None:
    """One address has more than all places, and says half a head on each."""

    def asking(client: socket.socket) -> bytes:
        place = client.getpeername()
        slow = [socket.create_connection(place, WITHIN) for _ in range(http.CONNECTIONS + 20)]
        try:
            for one in slow:
                one.sendall(GOOD[:20])
            with socket.create_connection(place, WITHIN) as another:
                another.sendall(GOOD)
                return another.recv(1 << 16)
        finally:
            for one in slow:
                one.close()

    assert played(asking).startswith(b"HTTP/1.1 200")


def test_who_does_not_shake_hands_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "HEAD_WITHIN", 0.05)
    assert played(after(b"\x16\x03\x01"), is_tls=True) == b""


def test_who_does_not_shake_hands_makes_room_for_who_asks() -> None:
    def asking(client: socket.socket) -> bytes:
        place = client.getpeername()
        with ExitStack() as stack:
            for _ in range(http.CONNECTIONS + 20):
                stack.enter_context(socket.create_connection(place, WITHIN)).sendall(b"\x16\x03\x01")
            another = stack.enter_context(socket.create_connection(place, WITHIN))
            secret = ssl.create_default_context(cafile=str(CERTIFICATE))
            with secret.wrap_socket(another, server_hostname="127.0.0.1") as asked:
                asked.sendall(GOOD)
                return asked.recv(1 << 16)

    assert played(asking, is_tls=True).startswith(b"HTTP/1.1 200")


def test_requests_and_answers_over_tls_are_whole_and_in_order() -> None:
    """Very many in one write, and answers much longer than a record."""
    names = [f"a-rather-long-name-of-an-address-{number}" for number in range(2000)]

    def asking(client: socket.socket) -> bytes:
        secret = ssl.create_default_context(cafile=str(CERTIFICATE))
        with secret.wrap_socket(client, server_hostname="127.0.0.1") as asked:
            last = GOOD.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
            asked.sendall(LIST + GOOD * 50 + LIST + last)
            found = b""
            while more := asked.recv(1 << 16):
                found += more
            return found

    found = played(asking, names, is_tls=True)
    assert [len(part) > 10_000 for part in found.split(b"HTTP/1.1 200")[1:]] == [
        True,
        *[False] * 50,
        True,
        False,
    ]
    assert all(found.count(b'"%s"' % name.encode()) == 2 for name in names)


def test_one_address_does_not_have_all_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of its connections are being answered, so none can make room: the next of it is refused, and one of another address is not."""
    monkeypatch.setattr(http.HttpProtocol, "is_waiting", False)

    def asking(client: socket.socket) -> bytes:
        place = client.getpeername()
        most = AdminTable().max_connections_per_address
        here = [client, *[socket.create_connection(place, WITHIN) for _ in range(most - 1)]]
        try:
            for one in here:
                one.sendall(GOOD)
                assert one.recv(12) == b"HTTP/1.1 200"
            with (
                socket.create_connection(place, WITHIN) as another,
                socket.create_connection(place, WITHIN, ("127.0.0.2", 0)) as elsewhere,
            ):
                another.sendall(GOOD)
                elsewhere.sendall(GOOD)
                return another.recv(12) + elsewhere.recv(12)
        finally:
            for one in here[1:]:
                one.close()

    assert played(asking) == b"HTTP/1.1 503HTTP/1.1 200"


def test_when_all_are_being_answered_one_more_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "CONNECTIONS", 2)
    monkeypatch.setattr(http.HttpProtocol, "is_waiting", False)

    def asking(client: socket.socket) -> bytes:
        place = client.getpeername()
        client.sendall(GOOD)
        assert client.recv(12) == b"HTTP/1.1 200"
        with socket.create_connection(place, WITHIN), socket.create_connection(place, WITHIN) as third:
            third.sendall(GOOD)
            return third.recv(1 << 16)

    assert played(asking).startswith(b"HTTP/1.1 503")


def test_of_many_requests_at_once_few_are_parsed_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """And all are answered, also those that come in two pieces: none of the second before the first."""
    count, turn, parsed = 60, 0, []
    following, served = http.Parser.next_event, Turns.serve

    def note(self: http.Parser) -> object:
        event = following(self)
        if isinstance(event, h11.Request):
            parsed.append(turn)
        return event

    def serve(self: Turns) -> None:
        nonlocal turn
        served(self)
        turn += 1

    monkeypatch.setattr(http.Parser, "next_event", note)
    monkeypatch.setattr(Turns, "serve", serve)

    def asking(place: tuple[str, int]) -> list[bytes]:
        with ExitStack() as stack:
            clients = [stack.enter_context(socket.create_connection(place, WITHIN)) for _ in range(count)]
            clients[0].sendall(GOOD)
            first = b""
            while not first.endswith(b"}"):
                first += clients[0].recv(1 << 16)
            for piece in (LIST[:20], LIST[20:]):
                for client in clients:
                    client.sendall(piece)
            return [first, *[client.recv(1 << 16) for client in clients]]

    async def play() -> list[bytes]:
        broker, servers, _ = await start(
            Configuration(memory=True, listeners=(ListenerTable(url="tcp://127.0.0.1:0"),))
        )
        turns, looks = broker.turns, itertools.count()
        turns.clock = lambda: next(looks) * turns.budget / LOOKS
        listener = AdminListener(broker, AdminTable(listen="127.0.0.1:0", max_connections_per_address=-1))
        try:
            return await asyncio.to_thread(asking, listener.sockets[0].getsockname())
        finally:
            await stop(broker, servers)
            await listener.close()

    answers = asyncio.run(play())
    assert [answer.split()[1] for answer in answers] == [b"200"] * (count + 1)
    assert max(Counter(parsed).values()) <= 2 * LOOKS, parsed
    assert len(set(parsed)) > count // LOOKS
