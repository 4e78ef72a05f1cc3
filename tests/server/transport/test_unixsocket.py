"""Listeners that are files: who may write to them may connect, what a crash has left is taken away, what is not ours stays."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from stompbox import blocking
from stompbox.config.options import ListenerOptions
from stompbox.errors import ConfigError, ConnectionLost
from stompbox.server.transport.unixsocket import listening
from tests.conftest import Serve

QUEUE = "/queue/file"


def permissions(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def opened(path: Path, **options: str) -> None:
    """Listens and stops to."""
    bound, place = listening(str(path), ListenerOptions(**options), 1)  # type: ignore[arg-type]
    place.remove()
    bound.close()


def cli(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "stompbox", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **environment},
    )


def test_library_and_commands_go_through_files_that_go_with_the_broker(serve: Serve, tmp_path: Path) -> None:
    stomp, admin, toml = tmp_path / "stomp.sock", tmp_path / "admin.sock", tmp_path / "stompbox.toml"
    toml.write_text(f'[admin]\nlisten = "unix://{admin}"\nsocket-mode = "0620"\n')
    served = serve("--memory", "--config", str(toml), "--listen", f"unix://{stomp}?socketMode=0660")
    assert served.listeners == (f"unix://{stomp}", f"unix://{admin}")
    assert (permissions(stomp), permissions(admin)) == (0o660, 0o620)
    with blocking.connect(f"unix://{stomp}") as client:
        client.send(QUEUE, "by the library")
    done = cli("send", QUEUE, "by a command", "--url", f"unix://{stomp}")
    assert (done.returncode, done.stderr) == (0, f"1 message sent to {QUEUE} and confirmed\n")
    done = cli("queues", "file", STOMPBOX_ADMIN_URL=f"unix://{admin}")
    assert (done.returncode, done.stderr) == (0, "")
    (row,) = [line.split() for line in done.stdout.splitlines() if line.split()[:1] == ["file"]]
    assert "2" in row
    assert served.stop() == 0
    assert not stomp.exists()
    assert not admin.exists()


def test_the_name_that_a_client_gives_its_socket_is_no_address(serve: Serve, tmp_path: Path) -> None:
    path, admin = tmp_path / "stomp.sock", tmp_path / "admin.sock"
    serve("--memory", "--admin", f"unix://{admin}", "--listen", f"unix://{path}?maxConnectionsPerAddress=1")
    with socket.socket(socket.AF_UNIX) as first, socket.socket(socket.AF_UNIX) as second:
        for client, name in ((first, "a"), (second, "b")):
            client.settimeout(20)
            client.bind(str(tmp_path / name))
            client.connect(str(path))
            client.sendall(b"CONNECT\naccept-version:1.2\nhost:localhost\n\n\0")
        assert first.recv(9) == b"CONNECTED"
        assert b"local has 1 connections; the limit is 1" in second.recv(4096)


def test_a_command_that_finds_nobody_at_the_file_names_it(tmp_path: Path) -> None:
    path = tmp_path / "none.sock"
    for arguments in (
        ("send", QUEUE, "x", "--url", f"unix://{path}"),
        ("queues", "--admin", f"unix://{path}"),
    ):
        done = cli(*arguments)
        assert done.returncode == 3
        assert f"unix://{path}" in done.stderr
        assert "No such file" in done.stderr
        assert "Traceback" not in done.stderr


def test_a_client_that_finds_nobody_at_the_file_names_it(tmp_path: Path) -> None:
    with (
        pytest.raises(ConnectionLost, match=f"unix://{tmp_path}/none.sock"),
        blocking.connect(f"unix://{tmp_path}/none.sock", reconnect=None),
    ):
        pytest.fail("connected")


def test_a_file_that_a_crash_has_left_is_taken_away(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "stomp.sock"
    first = serve("--memory", "--no-admin", "--listen", f"unix://{path}")
    first.process.kill()
    first.process.wait(30)
    assert path.is_socket()
    served = serve("--memory", "--no-admin", "--listen", f"unix://{path}")
    with blocking.connect(f"unix://{path}") as client:
        client.send(QUEUE, "x")
    assert served.stop() == 0


def test_where_somebody_listens_nobody_else_does(tmp_path: Path) -> None:
    path = tmp_path / "stomp.sock"
    bound, place = listening(str(path), ListenerOptions(), 1)
    with bound:
        with pytest.raises(OSError, match="another program listens there"):
            opened(path)
        assert path.is_socket()
        done = cli("serve", "--memory", "--no-admin", "--listen", f"unix://{path}")
        assert done.returncode == 1
        assert f"cannot listen on unix://{path}: another program listens there" in done.stderr
        done = cli("serve", "--memory", "--listen", "tcp://127.0.0.1:0", "--admin", f"unix://{path}")
        assert done.returncode == 1
        assert (
            f"the admin interface cannot listen on unix://{path}: another program listens there"
            in done.stderr
        )
        place.remove()
    assert not path.exists()


def test_a_listener_that_has_as_many_waiting_as_it_wants_is_alive(tmp_path: Path) -> None:
    path = tmp_path / "stomp.sock"
    bound, _ = listening(str(path), ListenerOptions(), 0)
    with bound, socket.socket(socket.AF_UNIX) as waiting:
        waiting.connect(str(path))
        with pytest.raises(OSError, match="another program listens there"):
            opened(path)
        assert path.is_socket()


def test_a_file_that_is_no_socket_stays(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_text("kept")
    with pytest.raises(OSError, match="a file is there already, and it is no socket"):
        opened(path)
    assert path.read_text() == "kept"


def test_a_file_that_another_has_put_there_since_stays(tmp_path: Path) -> None:
    path = tmp_path / "stomp.sock"
    bound, place = listening(str(path), ListenerOptions(), 1)
    with bound:
        path.unlink()
        path.write_text("another's")
        place.remove()
    assert path.read_text() == "another's"


@pytest.mark.parametrize(("name", "kind"), [("socket_owner", "user"), ("socket_group", "group")])
def test_an_owner_that_there_is_not_is_named_and_no_file_is_left(
    tmp_path: Path, name: str, kind: str
) -> None:
    path = tmp_path / "stomp.sock"
    with pytest.raises(ConfigError, match=f"unix://{path}: no such {kind}: 'nobody-at-all'"):
        opened(path, **{name: "nobody-at-all"})
    assert not path.exists()


def test_an_owner_may_be_a_name_or_a_number(tmp_path: Path) -> None:
    path = tmp_path / "stomp.sock"
    bound, place = listening(
        str(path), ListenerOptions(socket_owner=str(os.getuid()), socket_group=str(os.getgid())), 1
    )
    with bound:
        assert (path.stat().st_uid, path.stat().st_gid) == (os.getuid(), os.getgid())
        assert permissions(path) == 0o600
        place.remove()


def test_a_path_that_is_too_long_is_named(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 120)
    done = cli("serve", "--memory", "--no-admin", "--listen", f"unix://{path}")
    assert done.returncode == 1
    assert f"cannot listen on unix://{path}: AF_UNIX path too long" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_folder_that_there_is_not_is_named(tmp_path: Path) -> None:
    done = cli("serve", "--memory", "--no-admin", "--listen", f"unix://{tmp_path}/none/s")
    assert done.returncode == 1
    assert f"cannot listen on unix://{tmp_path}/none/s: No such file or directory" in done.stderr


def test_a_stopping_broker_leaves_the_file_of_the_next_one(tmp_path: Path) -> None:
    asyncio.run(_changed_while_stopping(tmp_path / "stomp.sock"))


async def _changed_while_stopping(path: Path) -> None:
    from stompbox.config import Configuration
    from stompbox.config.tables import ListenerTable
    from stompbox.server.run import start, stop

    configuration = Configuration(memory=True, listeners=(ListenerTable(url=f"unix://{path}"),))
    first, servers, _ = await start(configuration)
    first.acceptors[0].close()  # as it stops
    for server in servers:
        server.close()
    second, others, urls = await start(configuration)
    assert urls == [f"unix://{path}"]
    await stop(first, servers)
    assert path.is_socket()
    await stop(second, others)
    assert not path.exists()
