"""Fronts: processes that have the clients' sockets. A client sees what it sees without them; what dies takes what is its own alone."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.conftest import Serve, Served, children, end, memory_of, start_broker
from tests.system.plain import Plain
from tests.system.transports import KINDS, connected, listeners, message, wait_until

FRONTS = ("--fronts", "2")
MANY = 24  # connections: with two fronts, none of which gets all


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("fronts")
    # through `env`: one whose memory is looked at is a process of its own
    served = start_broker(
        folder, "--memory", "--admin", "127.0.0.1:0", *FRONTS, *listeners(folder), through=("env",)
    )
    yield served
    end(served)
    assert "Traceback" not in served.log.read_text()


def asked(served: Served, path: str) -> str:
    with urllib.request.urlopen(f"{served.admin}{path}", timeout=20) as answer:
        return str(answer.read().decode())


def of_fronts(served: Served, name: str) -> dict[str, float]:
    """The values of a metric, by front."""
    lines = [line for line in asked(served, "/metrics").splitlines() if line.startswith(f"{name}{{")]
    return {line.partition('front="')[2].partition('"')[0]: float(line.rpartition(" ")[2]) for line in lines}


def is_alive(client: Plain) -> bool:
    try:
        client.sync()
    except (AssertionError, OSError):
        return False
    return True


def spread(served: Served, stack: ExitStack) -> list[Plain]:
    """Clients at both fronts."""
    clients = [Plain(served.port) for _ in range(MANY)]
    for client in clients:
        stack.callback(client.socket.close)
    return clients


def kill_one(served: Served, number: int = signal.SIGKILL) -> int:
    killed = children(served.process.pid)[0]
    os.kill(killed, number)
    return killed


def test_who_says_all_at_once_and_ends_its_side_hears_all_answers(served: Served) -> None:
    """Its end reaches the broker together with frames that wait for their turn."""
    send = b"SEND\ndestination:/queue/half\npersistent:false\nreceipt:%d\n\nx\0"
    with connected(served, "tcp") as client:
        client.raw(
            b"CONNECT\naccept-version:1.2\nhost:localhost\n\n\0" + b"".join([send % at for at in range(2000)])
        )
        client.stream.shutdown(socket.SHUT_WR)
        assert client.hear_all().count(b"RECEIPT\n") == 2000


def test_what_comes_behind_the_login_over_websocket_is_no_strangers(served: Served) -> None:
    """A front counts frames of WebSocket, and learns from the broker alone who has logged in."""
    send = b"SEND\ndestination:/topic/much\n\n" + b"x" * 100_000 + b"\0"
    login = b"CONNECT\naccept-version:1.2\nhost:localhost\n\n\0"
    with connected(served, "websocket") as client:
        client.raw(b"".join(map(message, (login, send, b"DISCONNECT\nreceipt:bye\n\n\0"))))
        said = client.hear_all()
        assert b"receipt-id:bye" in said
        assert b"ERROR" not in said


def test_a_stranger_whose_frames_of_websocket_are_too_long_is_refused(served: Served) -> None:
    with connected(served, "websocket") as client:
        client.raw(message(b"\n") + message(b"CONNECT\nx:" + b"y" * 100_000))
        assert b"\ncode:too-much-before-login\n" in client.hear_all()


@pytest.mark.parametrize("kind", KINDS)
def test_every_way_in_goes_through_a_front(served: Served, kind: str) -> None:
    with connected(served, kind) as client:
        client.log_in()
        client.say(b"SUBSCRIBE\nid:1\ndestination:/queue/%b\n\n\0" % kind.encode())
        body = os.urandom(1 << 20)
        client.say(
            b"SEND\ndestination:/queue/%b\ncontent-length:%d\n\n%b\0" % (kind.encode(), len(body), body)
        )
        came = client.hear(body[-64:])
    assert b"MESSAGE\n" in came
    assert body in came


def test_clients_are_at_all_fronts_and_are_seen(served: Served) -> None:
    with ExitStack() as stack:
        clients = spread(served, stack)
        found = of_fronts(served, "stompbox_front_connections")
        assert set(found) == {"front 1", "front 2"}
        assert sum(found.values()) >= MANY
        assert min(found.values()) > 0
        assert set(of_fronts(served, "stompbox_front_busy_ratio")) == set(found)
        shown = json.loads(asked(served, "/api/v1/connections"))["connections"]
        assert {view["peer"] for view in shown} == {"127.0.0.1"}
        assert len(shown) >= MANY
        assert all(is_alive(client) for client in clients)


def test_a_front_that_dies_takes_its_own_connections_and_nothing_else(serve: Serve) -> None:
    served = serve("--listen", "tcp://127.0.0.1:0", "--no-admin", *FRONTS)
    with ExitStack() as stack:
        clients = spread(served, stack)
        for client in clients:
            client.send("SUBSCRIBE", {"id": "1", "destination": "/queue/a", "ack": "client-individual",
                                      "activemq.prefetchSize": "1", "receipt": "s"})  # fmt: skip
            assert client.receive().headers["receipt-id"] == "s"
        sender = Plain(served.port)
        stack.callback(sender.socket.close)
        for number in range(MANY):
            sender.send("SEND", {"destination": "/queue/a", "receipt": "r"}, b"%d" % number)
            assert sender.receive().headers["receipt-id"] == "r"
        bodies = {client.receive().body: client for client in clients}
        assert len(bodies) == MANY
        killed = kill_one(served)
        lost = [body for body, client in bodies.items() if not is_alive(client)]
        assert 0 < len(lost) < MANY
        wait_until(lambda: len(set(children(served.process.pid)) - {killed}) == 2, "another front")
        late = Plain(served.port)
        stack.callback(late.socket.close)
        late.send("SUBSCRIBE", {"id": "1", "destination": "/queue/a", "ack": "client"})
        again = [late.receive() for _ in lost]
        assert sorted(frame.body for frame in again) == sorted(lost)
        assert {frame.headers["redelivered"] for frame in again} == {"true"}
    assert "(front-ended)" in served.log.read_text()


def test_a_front_that_hangs_is_ended(serve: Serve) -> None:
    served = serve(
        "--listen", "tcp://127.0.0.1:0", "--no-admin", "--memory", *FRONTS,
        environment={"STOMPBOX_FRONT_TIMEOUT": "1000"},  # front-timeout
    )  # fmt: skip
    with ExitStack() as stack:
        clients = spread(served, stack)
        hanging = kill_one(served, signal.SIGSTOP)
        wait_until(lambda: hanging not in children(served.process.pid), "it is killed")
        alive = [client for client in clients if is_alive(client)]
        assert 0 < len(alive) < MANY
        wait_until(lambda: len(children(served.process.pid)) == 2, "another front")
        for _ in range(MANY):
            late = Plain(served.port)
            stack.callback(late.socket.close)
            late.sync()
    assert "(front-hangs)" in served.log.read_text()


def test_fronts_end_with_the_broker_however_it_ends(serve: Serve) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        served = serve("--listen", "tcp://127.0.0.1:0", "--no-admin", "--memory", *FRONTS)
        fronts = children(served.process.pid)
        assert len(fronts) == 2
        client = Plain(served.port)
        os.kill(served.process.pid, number)
        if number == signal.SIGTERM:
            assert client.receive().headers["code"] == "shutting-down"
        with suppress(ConnectionResetError):
            assert client.is_closed()
        served.process.wait(20)
        wait_until(
            lambda fronts=fronts: not any(Path(f"/proc/{pid}/cwd").exists() for pid in fronts), "no front"
        )
        client.socket.close()


@pytest.mark.skipif(sys.platform != "linux", reason="the system ends no process with another one")
def test_a_front_that_hangs_ends_with_a_broker_that_is_killed(serve: Serve) -> None:
    """It kept its port for ever, and no other broker could listen there."""
    served = serve("--listen", "tcp://127.0.0.1:0", "--no-admin", "--memory", *FRONTS)
    Plain(served.port).socket.close()
    fronts = children(served.process.pid)
    kill_one(served, signal.SIGSTOP)
    served.kill()
    wait_until(lambda: not any(Path(f"/proc/{pid}/cwd").exists() for pid in fronts), "no front")
    again = serve("--listen", f"tcp://127.0.0.1:{served.port}", "--no-admin", "--memory", *FRONTS)
    assert again.stop() == 0


def test_a_front_may_die_while_the_broker_stops(serve: Serve) -> None:
    served = serve("--listen", "tcp://127.0.0.1:0", "--no-admin", "--memory", *FRONTS, is_graceful=True)
    with ExitStack() as stack:
        clients = spread(served, stack)
        for client in clients:
            client.send("SUBSCRIBE", {"id": "1", "destination": "/topic/a", "ack": "client", "receipt": "s"})
            assert client.receive().headers["receipt-id"] == "s"
        clients[0].send("SEND", {"destination": "/topic/a"})
        assert {client.receive().command for client in clients} == {"MESSAGE"}
        served.process.terminate()
        wait_until(lambda: "stopping:" in served.log.read_text(), "it waits for what is in flight")
        kill_one(served)
        wait_until(lambda: "(front-ended)" in served.log.read_text(), "it is noticed")
        assert served.process.wait(20) == 0
    assert "Traceback" not in served.log.read_text()
    assert "Another one" not in served.log.read_text()


def test_a_client_that_does_not_read_fills_neither_the_broker_nor_its_front(served: Served) -> None:
    body = os.urandom(64 << 10)
    fronts = children(served.process.pid)
    with ExitStack() as stack:
        slow = stack.enter_context(connected(served, "tcp", receive_buffer=4096))
        slow.log_in()
        slow.say(b"SUBSCRIBE\nid:1\ndestination:/topic/much\nconsumer-window-size:-1\nreceipt:s\n\n\0")
        slow.hear(b"receipt-id:s")
        sender = Plain(served.port)
        stack.callback(sender.socket.close)
        before = memory_of(served.process.pid), [memory_of(front) for front in fronts]
        for number in range(400):
            sender.send(
                "SEND", {"destination": "/topic/much", "receipt": f"{number}", "persistent": "false"}, body
            )
            assert sender.receive().headers["receipt-id"] == f"{number}"
        after = memory_of(served.process.pid), [memory_of(front) for front in fronts]
        assert max(now - then for now, then in zip(after[1], before[1], strict=True)) < 12 << 20
        assert is_alive(sender)


def test_limits_are_those_of_all_fronts_together(serve: Serve) -> None:
    served = serve("--listen", "tcp://127.0.0.1:0?maxConnections=5", "--no-admin", "--memory", *FRONTS)
    with ExitStack() as stack:
        for _ in range(5):
            stack.callback(Plain(served.port).socket.close)
        for _ in range(4):
            one_more = Plain(served.port, None)
            stack.callback(one_more.socket.close)
            one_more.send("CONNECT", {"accept-version": "1.2", "host": "localhost"})
            assert one_more.receive().headers["code"] == "too-many-connections"


def test_what_comes_before_the_login_is_limited_at_a_front_too(serve: Serve) -> None:
    served = serve("--listen", "tcp://127.0.0.1:0?handshakeTimeout=300", "--no-admin", "--memory", *FRONTS)
    silent = Plain(served.port, None)
    assert silent.receive().headers["code"] == "handshake-timeout"
    assert silent.is_closed()
    silent.socket.close()


def test_a_balancer_says_whose_connection_it_is(serve: Serve) -> None:
    served = serve(
        "--listen", "tcp://127.0.0.1:0?proxyProtocolEnabled=true;maxConnectionsPerAddress=1", "--no-admin", "--memory", *FRONTS
    )  # fmt: skip
    with ExitStack() as stack:
        for number, code in ((7, None), (8, None), (7, "too-many-connections")):
            client = Plain(served.port, None)
            stack.callback(client.socket.close)
            client.socket.sendall(b"PROXY TCP4 192.0.2.%d 198.51.100.1 50000 61613\r\n" % number)
            client.send("CONNECT", {"accept-version": "1.2", "host": "localhost"})
            assert client.receive().headers.get("code") == code


def test_a_reload_reaches_the_fronts(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "stompbox.toml"
    text = 'memory = true\nfronts = 2\nadmin = {{ enabled = false }}\n[[listener]]\nurl = "tcp://127.0.0.1:0?handshakeTimeout={}"\n'
    file.write_text(text.format(60_000))
    served = serve("--config", str(file))
    file.write_text(text.format(200))
    served.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "was read again" in served.log.read_text(), "it is read")
    late = Plain(served.port, None)
    assert late.receive().headers["code"] == "handshake-timeout"
    late.socket.close()


def test_a_file_to_listen_at_is_shared_by_the_fronts(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "stomp.sock"
    served = serve(
        "--listen", f"unix://{path}", "--listen", "tcp://127.0.0.1:0", "--no-admin", "--memory", *FRONTS
    )
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(20)
        client.connect(str(path))
        client.sendall(b"CONNECT\naccept-version:1.2\nhost:localhost\n\n\0")
        assert client.recv(9) == b"CONNECTED"
    assert served.stop() == 0
    assert not path.exists()


def test_a_place_that_is_taken_is_refused_although_ports_are_shared(serve: Serve, tmp_path: Path) -> None:
    first = serve("--listen", "tcp://127.0.0.1:0", "--no-admin", "--memory", *FRONTS)
    with pytest.raises(pytest.fail.Exception, match="cannot listen"):
        start_broker(tmp_path, "--listen", f"tcp://127.0.0.1:{first.port}", "--no-admin", "--memory", *FRONTS)
