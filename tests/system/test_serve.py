"""`stompbox serve` as its user meets it: what it prints, how it stops, what it says when it cannot start."""

from __future__ import annotations

import gzip
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Served
from tests.system.plain import Plain


def run_serve(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Starts a broker that is expected to refuse to start."""
    return subprocess.run(
        [sys.executable, "-m", "stompbox", "serve", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def assert_refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """One clear line on stderr, and an exit code."""
    assert done.returncode not in (0, None)
    assert "ready" not in done.stdout
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr


def test_prints_its_listeners_then_ready_and_stops_on_sigterm(serve: Callable[..., object]) -> None:
    served = serve("--memory", "--no-admin", "--listen", "tcp://127.0.0.1:0", "--listen", "tcp://127.0.0.1:0")
    assert len(served.listeners) == 2  # type: ignore[attr-defined]
    assert served.stop() == 0  # type: ignore[attr-defined]


def test_stops_on_sigint(serve: Callable[..., object]) -> None:
    served = serve("--memory", "--no-admin", "--listen", "tcp://127.0.0.1:0")
    served.process.send_signal(signal.SIGINT)  # type: ignore[attr-defined]
    assert served.process.wait(30) == 0  # type: ignore[attr-defined]


def test_an_unknown_flag_is_refused(tmp_path: Path) -> None:
    assert_refused(run_serve(tmp_path, "--memry"), "--memry")


def test_a_busy_port_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        done = run_serve(tmp_path, "--memory", "--no-admin", "--listen", f"tcp://127.0.0.1:{port}")
    assert_refused(done, str(port), "in use")
    assert done.stderr.count("\n") == 1


def test_a_data_folder_in_use_is_refused(serve: Callable[..., object], tmp_path: Path) -> None:
    data = tmp_path / "data"
    serve("--data", str(data), "--no-admin", "--listen", "tcp://127.0.0.1:0")
    done = run_serve(tmp_path, "--data", str(data), "--no-admin", "--listen", "tcp://127.0.0.1:0")
    assert_refused(done, str(data))
    assert done.stderr.count("\n") == 1


def test_a_data_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("no folder")
    assert_refused(
        run_serve(tmp_path, "--data", str(tmp_path / "data"), "--no-admin"), str(tmp_path / "data")
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_data_folder_that_is_not_writable_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o500)
    assert_refused(
        run_serve(tmp_path, "--data", str(tmp_path / "data"), "--no-admin"), str(tmp_path / "data")
    )


def test_an_unknown_configuration_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "stompbox.toml").write_text('dat = "x"\n')
    done = run_serve(tmp_path)
    assert_refused(done, "stompbox.toml:1", "dat", "data")
    assert done.returncode == 2


def test_a_listener_open_to_others_without_users_is_refused(tmp_path: Path) -> None:
    assert_refused(
        run_serve(tmp_path, "--memory", "--no-admin", "--listen", "tcp://0.0.0.0:0"), "0.0.0.0", "user"
    )


def test_the_data_folder_is_its_owners_alone(serve: Callable[..., object], tmp_path: Path) -> None:
    serve("--data", str(tmp_path / "data"), "--no-admin", "--listen", "tcp://127.0.0.1:0")
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o077 for path in (tmp_path / "data").iterdir()} == {0}


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_what_was_confirmed_is_there_after_a_restart(
    serve: Callable[..., object], tmp_path: Path, how: signal.Signals
) -> None:
    data = ("--data", str(tmp_path / "data"), "--no-admin", "--listen", "tcp://127.0.0.1:0")
    first = serve(*data)
    with Plain(first.port) as client:  # type: ignore[attr-defined]
        for number in range(100):
            client.send(
                "SEND", {"destination": "/queue/kept", "receipt": str(number)}, b"message %d" % number
            )
        assert [client.receive().headers["receipt-id"] for _ in range(100)] == [
            str(number) for number in range(100)
        ]
    first.process.send_signal(how)  # type: ignore[attr-defined]
    first.process.wait(30)  # type: ignore[attr-defined]
    second = serve(*data)
    with Plain(second.port) as client:  # type: ignore[attr-defined]
        client.send("SUBSCRIBE", {"destination": "/queue/kept", "id": "1", "ack": "client-individual"})
        got = [client.receive() for _ in range(100)]
        assert [frame.body for frame in got] == [b"message %d" % number for number in range(100)]
        assert {frame.headers["redelivered"] for frame in got} == {
            "true" if how is signal.SIGKILL else "false"
        }
        for frame in got[:50]:
            client.send("ACK", {"id": frame.headers["ack"]})
        client.send("DISCONNECT", {"receipt": "bye"})
        assert client.receive().headers["receipt-id"] == "bye"
    second.process.kill()  # type: ignore[attr-defined]
    second.process.wait(30)  # type: ignore[attr-defined]
    third = serve(*data)
    with Plain(third.port) as client:  # type: ignore[attr-defined]
        client.send("SUBSCRIBE", {"destination": "/queue/kept", "id": "1"})
        assert [client.receive().body for _ in range(50)] == [
            b"message %d" % number for number in range(50, 100)
        ]


def test_after_a_stop_only_what_was_delivered_comes_marked(
    serve: Callable[..., object], tmp_path: Path
) -> None:
    data = ("--data", str(tmp_path / "data"), "--no-admin", "--listen", "tcp://127.0.0.1:0")
    first = serve(*data)
    with Plain(first.port) as client:  # type: ignore[attr-defined]
        for number in range(4):
            client.send("SEND", {"destination": "/queue/kept", "receipt": str(number)}, b"%d" % number)
        assert [client.receive().command for _ in range(4)] == ["RECEIPT"] * 4
        client.send(
            "SUBSCRIBE",
            {"destination": "/queue/kept", "id": "1", "ack": "client-individual", "prefetch-count": "2"},
        )
        assert [client.receive().body for _ in range(2)] == [b"0", b"1"]
        first.process.send_signal(signal.SIGTERM)  # type: ignore[attr-defined]
        first.process.wait(30)  # type: ignore[attr-defined]
    second = serve(*data)
    with Plain(second.port) as client:  # type: ignore[attr-defined]
        client.send("SUBSCRIBE", {"destination": "/queue/kept", "id": "1"})
        got = [(frame.body, frame.headers["redelivered"]) for frame in [client.receive() for _ in range(4)]]
        assert got == [(b"0", "true"), (b"1", "true"), (b"2", "false"), (b"3", "false")]


@pytest.mark.parametrize("version", [1, 2])
def test_a_data_folder_of_an_older_version_is_taken_over(
    serve: Callable[..., object], tmp_path: Path, version: int
) -> None:
    """Left by a broker that was killed: of six orders 0, 1 and 4 were acknowledged, and a durable subscription had read its news."""
    older = Path(__file__).parents[1] / "store" / "data" / f"version-{version}.db.gz"
    data = tmp_path / "data"
    data.mkdir()
    (data / "stompbox.db").write_bytes(gzip.decompress(older.read_bytes()))
    served = serve("--data", str(data), "--no-admin", "--listen", "tcp://127.0.0.1:0")
    with Plain(served.port, headers={"client-id": "anna"}) as client:  # type: ignore[attr-defined]
        client.send("SEND", {"destination": "/topic/news", "receipt": "sent"}, b"news 3")
        assert client.receive().headers["receipt-id"] == "sent"
        client.send(
            "SUBSCRIBE", {"destination": "/topic/news", "id": "news", "durable-subscription-name": "news"}
        )
        assert client.receive().body == b"news 3"
        client.send("SUBSCRIBE", {"destination": "/queue/orders", "id": "orders"})
        got = [client.receive() for _ in range(3)]
    assert [(frame.body, frame.headers["redelivered"]) for frame in got] == [
        (b"order %d" % number, "true") for number in (2, 3, 5)
    ]


@pytest.mark.parametrize("last", [b"", b"DISCONNECT\nreceipt:last\n\n\0"])
def test_who_ends_its_side_still_gets_its_receipts(
    serve: Callable[..., Served], tmp_path: Path, last: bytes
) -> None:
    """As with `nc -N`: all is said, then only read. Receipts wait for the disk, and what was not acknowledged goes back."""
    served = serve("--data", str(tmp_path / "data"), "--no-admin", "--listen", "tcp://127.0.0.1:0")
    sends = b"".join([b"SEND\ndestination:/queue/half\nreceipt:%d\n\nx\0" % number for number in range(100)])
    subscribe = b"SUBSCRIBE\nid:1\ndestination:/queue/half\nack:client\n\n\0"
    with socket.create_connection(("127.0.0.1", served.port), 20) as stream:
        stream.sendall(b"CONNECT\naccept-version:1.2\nhost:h\n\n\0" + subscribe + sends + last)
        stream.shutdown(socket.SHUT_WR)
        came = b""
        while octets := stream.recv(65536):
            came += octets
    receipts = [line for line in came.split(b"\n") if line.startswith(b"receipt-id:")]
    assert receipts == [b"receipt-id:%d" % number for number in range(100)] + [b"receipt-id:last"] * bool(
        last
    )
    with Plain(served.port) as client:
        client.send("SUBSCRIBE", {"destination": "/queue/half", "id": "1"})
        assert [client.receive().body for _ in range(100)] == [b"x"] * 100
