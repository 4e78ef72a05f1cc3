"""Strangers at the door: how long and how many they may be, and that they keep nobody else out."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from select import select

import pytest

from tests.conftest import Serve, Served, end, start_broker
from tests.system.plain import Plain
from tests.system.transports import (
    KINDS,
    WITHIN,
    Rude,
    connected,
    listeners,
    message,
    port_of,
    upgrade,
    wait_until,
)

Start = Callable[[str], Served]


@pytest.fixture
def start(serve: Serve, tmp_path: Path) -> Start:
    return lambda options: serve("--memory", "--no-admin", *listeners(tmp_path / "pem", options))


def silent(served: Served, kind: str = "tcp") -> socket.socket:
    return socket.create_connection(("127.0.0.1", port_of(served, kind)), WITHIN)


def ended(stream: socket.socket) -> bytes:
    """What came until the broker closed."""
    came = b""
    try:
        while octets := stream.recv(65536):
            came += octets
    except ConnectionResetError:
        pass
    return came


FIRST = {
    "nothing": ("tcp", b""),
    "a part of CONNECT": ("tcp", b"CONNECT\naccept"),
    "a part of a request": ("tcp", b"GET /ws HTTP/1.1\r\n"),
    "no TLS hand-shake": ("tls", b""),
    "a part of a TLS hand-shake": ("tls", b"\x16\x03\x01\x02\x00\x01"),
    "a WebSocket without a word": ("tcp", upgrade()),
    "a WebSocket with a part": ("tcp", upgrade() + message(b"CONNECT\n")),
}


@pytest.mark.parametrize("first", FIRST)
def test_one_deadline_for_all_that_comes_before_the_login(start: Start, first: str) -> None:
    served = start("handshakeTimeout=700")
    kind, octets = FIRST[first]
    since = time.monotonic()
    with silent(served, kind) as stream:
        stream.sendall(octets)
        time_of_more = since + 0.4
        stream.settimeout(0.4)
        came = b""
        while time.monotonic() < time_of_more:  # what comes meanwhile prolongs nothing
            try:
                came += stream.recv(65536)
            except TimeoutError:
                break
        stream.settimeout(WITHIN)
        if kind == "tcp" and first != "a part of a request":
            stream.sendall(b"\n" if not octets.startswith(b"GET") else message(b"x"))
        came += ended(stream)
        assert 0.6 < time.monotonic() - since < 5
    if kind == "tcp" and first != "a part of a request":
        assert b"\ncode:handshake-timeout\n" in came
    wait_until(lambda: "(handshake-timeout)" in served.log.read_text(), "the log says so")


@pytest.mark.parametrize("kind", KINDS)
def test_silent_strangers_do_not_keep_others_out(start: Start, kind: str) -> None:
    """More of them than there are places: each newcomer takes the place of the oldest, which is told so."""
    served = start("maxConnections=5;maxConnectionsBeforeLogin=5")
    with ExitStack() as stack:
        strangers = [stack.enter_context(silent(served, kind)) for _ in range(12)]
        # all of them have come to the broker, so that nobody who comes later is taken for the oldest
        wait_until(lambda: len(select(strangers, [], [], 0)[0]) == 7, "seven of them have ended")
        friends = []
        for _ in range(5):
            friend = stack.enter_context(connected(served, kind))
            friend.log_in()
            friends.append(friend)
        came = ended(strangers[0])
        assert kind == "tls" or b"\ncode:too-many-connections\n" in came
        with connected(served, kind) as sixth:
            sixth.say(b"CONNECT\naccept-version:1.2\nhost:localhost\n\n\0")
            assert b"\ncode:too-many-connections\n" in sixth.hear_all()


@pytest.mark.parametrize("kind", KINDS)
def test_who_was_refused_gives_back_its_place_at_once(start: Start, kind: str) -> None:
    """It lingers for a second, and counts no more."""
    served = start("maxConnections=1;maxConnectionsPerAddress=2")
    for _ in range(10):
        with connected(served, kind) as refused:
            refused.say(b"SEND\n\n\0")
            assert b"ERROR" in refused.hear(b"\0\n")
            with connected(served, kind) as friend:
                friend.log_in()
                friend.say(b"BEGIN\n\n\0")
                assert b"ERROR" in friend.hear(b"\0\n")
                with connected(served, kind) as next_one:
                    next_one.log_in()
                    next_one.say(b"DISCONNECT\nreceipt:1\n\n\0")
                    assert b"RECEIPT" in next_one.hear(b"\0\n")


def test_one_address_has_so_many_and_no_more(start: Start) -> None:
    served = start("maxConnectionsPerAddress=3")
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(silent(served))
        stack.enter_context(Plain(served.port))
        with silent(served) as fourth:
            assert b"maxConnectionsPerAddress" in ended(fourth)
        other = socket.socket()
        other.bind(("127.0.0.2", 0))
        other.settimeout(WITHIN)
        other.connect(("127.0.0.1", served.port))
        with other:
            other.sendall(b"CONNECT\n\n\0")
            assert other.recv(65536).startswith(b"CONNECTED")
    wait_until(lambda: _may_log_in(served), "places are given back")


def _may_log_in(served: Served) -> bool:
    with silent(served) as stream:
        stream.sendall(b"CONNECT\n\n\0DISCONNECT\n\n\0")
        return b"CONNECTED" in ended(stream)


def test_behind_a_balancer_each_client_has_an_address_of_its_own(serve: Serve) -> None:
    served = serve(
        "--memory",
        "--no-admin",
        "--listen",
        "tcp://127.0.0.1:0?proxyProtocolEnabled=true;maxConnectionsPerAddress=2",
    )
    with ExitStack() as stack:
        for number in range(6):
            stream = stack.enter_context(silent(served))
            stream.sendall(b"PROXY TCP4 192.0.2.%d 198.51.100.1 50000 61613\r\nCONNECT\n\n\0" % (number // 2))
            assert stream.recv(65536).startswith(b"CONNECTED")
        third = stack.enter_context(silent(served))
        third.sendall(b"PROXY TCP4 192.0.2.0 198.51.100.1 50000 61613\r\nCONNECT\n\n\0")
        assert b"\ncode:too-many-connections\n" in ended(third)


def test_thousands_of_this_machine_are_let_in(start: Start) -> None:
    """A load generator opens all it needs before the first of them logs in."""
    served = start("")
    with ExitStack() as stack:
        streams = [stack.enter_context(silent(served)) for _ in range(400)]
        for stream in streams:
            stream.sendall(b"CONNECT\n\n\0")
        assert all(stream.recv(100).startswith(b"CONNECTED") for stream in streams)


def test_a_tls_handshake_that_fails_is_told_in_the_log(start: Start) -> None:
    served = start("")
    with silent(served, "tls") as stream:
        stream.sendall(b"CONNECT\n\n\0")
        ended(stream)
    wait_until(lambda: "(tls-handshake-failed)" in served.log.read_text(), "the log says it")
    assert "Traceback" not in served.log.read_text()
    with connected(served, "tls") as client:
        client.log_in()


# --- before the login -------------------------------------------------------------------------------------------------------

SMALL = {
    "messages of one octet": message(b"\n"),
    "empty messages": message(b""),
    "empty continuations": message(b"", 0, ends=False),
    "pings": message(b"x", 9),
    "pongs": message(b"", 10),
}


@pytest.mark.parametrize("sort", SMALL)
def test_a_stranger_has_so_many_websocket_frames(start: Start, sort: str) -> None:
    served = start("webSocketMaxFramesBeforeLogin=2000")
    with connected(served, "websocket") as client, connected(served, "tcp") as other:
        other.log_in()
        opening = message(b"", 2, ends=False) if "continuations" in sort else b""
        client.raw(opening + SMALL[sort] * 100_000)
        longest = 0.0
        for number in range(20):
            since = time.monotonic()
            other.say(b"SEND\ndestination:/topic/x\nreceipt:%d\n\n\0" % number)
            assert b"RECEIPT" in other.hear(b"\0\n")
            longest = max(longest, time.monotonic() - since)
        assert longest < 2, "the others are served meanwhile"
        said = client.hear_all()
        assert b"\ncode:too-much-before-login\n" in said


def test_a_message_that_is_too_long_before_the_login_is_refused_at_its_announcement(start: Start) -> None:
    served = start("")
    with connected(served, "websocket") as client:
        client.raw(message(b"x" * 3_000_000)[:20])
        assert b"\ncode:too-much-before-login\n" in client.hear_all()


def test_fragments_without_end_before_the_login(start: Start) -> None:
    served = start("")
    with connected(served, "websocket") as client:
        client.raw(message(b"CONNECT\nx:", ends=False))
        for _ in range(100):
            client.raw(message(b"y" * 1000, 0, ends=False))
        assert b"\ncode:header-too-large\n" in client.hear_all()


def test_a_request_without_end(start: Start) -> None:
    served = start("")
    with silent(served) as stream:
        client = Rude(stream, "tcp")
        client.raw(
            b"GET /ws HTTP/1.1\r\nHost: localhost\r\n"
            + b"".join([b"x-%d: %b\r\n" % (at, b"y" * 1000) for at in range(200)])
        )
        assert client.hear_all().startswith(b"HTTP/1.1 4")


@pytest.mark.parametrize("cut", range(1, 5))
def test_a_request_may_be_cut_anywhere(start: Start, cut: int) -> None:
    served = start("")
    with silent(served) as stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client = Rude(stream, "websocket")
        whole = upgrade() + message(b"CONNECT\naccept-version:1.2\nhost:localhost\n\n\0")
        at = whole.index(b"\r\n\r\n") + cut
        client.raw(whole[:at])
        with Plain(served.port):  # the first part was read by now
            pass
        client.raw(whole[at:])
        assert b"CONNECTED" in client.hear(b"\0\n")


def test_after_the_login_small_frames_wait_for_their_turn(start: Start) -> None:
    """All of them are obeyed, in order, and the others are served meanwhile."""
    served = start("")
    with connected(served, "websocket") as client, connected(served, "tcp") as other:
        client.log_in()
        other.log_in()
        send = b"SEND\ndestination:/queue/octets\n\n%04d\0"
        octets = b"".join([message(bytes([octet])) for number in range(700) for octet in send % number])
        client.raw(octets + message(b"SEND\ndestination:/queue/end\nreceipt:end\n\n\0"))
        assert b"receipt-id:end" in client.hear(b"receipt-id:end")
        other.say(b"SUBSCRIBE\nid:1\ndestination:/queue/octets\n\n\0")
        came = other.hear(b"0699\0")
        assert [int(part[-4:]) for part in came.split(b"\0") if part[-4:].isdigit()] == list(range(700))


def test_a_frame_that_is_too_long_gets_an_error(start: Start) -> None:
    served = start("webSocketMaxFramePayloadLength=100000")
    with connected(served, "websocket") as client:
        client.log_in()
        client.raw(message(b"x" * 100_001)[:20])
        assert b"\ncode:websocket-frame-too-large\n" in client.hear_all()


def test_the_log_does_not_grow_with_refusals(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "quiet.toml"
    file.write_text("max-refusals-logged = 20\n")
    served = serve("--memory", "--no-admin", "--config", str(file), "--listen", "tcp://127.0.0.1:0")
    with Plain(served.port, "1.1") as client:
        for _ in range(500):
            client.send("ABORT", {"transaction": "none"})
        for _ in range(500):
            assert client.receive().command == "ERROR"
        client.sync()
    assert served.log.read_text().count("(no-such-transaction)") == 20


def answer(stream: socket.socket) -> bytes:
    """The first that somebody is told who says CONNECT; nothing where the connection was cut."""
    try:
        stream.sendall(b"CONNECT\naccept-version:1.2\nhost:a\n\n\0")
        return stream.recv(65536)
    except (ConnectionResetError, BrokenPipeError):
        return b""


def is_let_in(served: Served) -> bool:
    with silent(served) as stream:
        return answer(stream).startswith(b"CONNECTED")


FEW = 128  # files that a process may open


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="Windows has no such limit")
@pytest.mark.parametrize("fronts", [(), ("--fronts", "1")], ids=["one process", "a front"])
def test_a_process_without_files_refuses_who_comes_and_serves_who_is_there(
    tmp_path: Path, fronts: tuple[str, ...]
) -> None:
    """Connections take all the files that the system lets a process open, and the broker needs some itself."""
    served = start_broker(
        tmp_path, "--data", "data", "--no-admin", "--listen", "tcp://127.0.0.1:0", *fronts,
        through=("sh", "-c", f'ulimit -n {FEW}; exec "$0" "$@"'), environment={"STOMPBOX_FRONTS": "0"},
    )  # fmt: skip
    try:
        assert f"open {FEW} files" in served.log.read_text()
        with Plain(served.port) as client, ExitStack() as stack:
            others = [stack.enter_context(silent(served)) for _ in range(2 * FEW)]
            answers = [answer(other) for other in others]
            assert any(b"files, and each connection is one" in said for said in answers)
            assert any(said.startswith(b"CONNECTED") for said in answers)
            client.sync()
        wait_until(lambda: is_let_in(served), "there is room once they are gone")
    finally:
        end(served)
    assert "Traceback" not in served.log.read_text()
