"""What a service manager is told, and the sockets that it hands over: against a socket that stands for it, and a parent that opens some."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stompbox import blocking
from stompbox.errors import ConfigError
from stompbox.server import systemd
from stompbox.server.systemd import Inherited

WITHIN = 30.0  # seconds
# becomes the broker, with its sockets as descriptors from 3 on: LISTEN_PID is known to nobody before
BECOME = """
import os, sys
for number, given in enumerate(sys.argv[1].split(",") if sys.argv[1] else []):
    os.dup2(int(given), 3 + number)
os.environ["LISTEN_PID"] = str(os.getpid())
os.execv(sys.executable, [sys.executable, "-m", "stompbox", "serve", *sys.argv[2:]])
"""


class Manager:
    """What a service manager hears at NOTIFY_SOCKET."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.socket.settimeout(WITHIN)

    def hears(self, *, but: str = "WATCHDOG=1") -> list[str]:
        """The lines of the next message, those of a watchdog left out."""
        while (lines := self.socket.recv(4096).decode().splitlines()) == [but]:
            continue
        return lines


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    found = Manager(tmp_path / "notify")
    yield found
    found.socket.close()


@contextmanager
def broker(
    manager: Manager, *arguments: str, sockets: tuple[socket.socket, ...] = (), **environment: str
) -> Iterator[subprocess.Popen[str]]:
    # above those that they become
    given = [os.dup(one.fileno()) for one in sockets]
    high = [systemd_number(number) for number in given]
    process = subprocess.Popen(
        [sys.executable, "-c", BECOME, ",".join(map(str, high)), *arguments],
        pass_fds=high,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=manager.path.parent,
        env={
            **os.environ,
            "NOTIFY_SOCKET": str(manager.path),
            "LISTEN_FDS": str(len(sockets)),
            "STOMPBOX_GRACEFUL_SHUTDOWN_TIMEOUT": "0",
            **environment,
        },
    )
    for number in {*given, *high}:
        os.close(number)
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=WITHIN)


def systemd_number(number: int) -> int:
    import fcntl

    return fcntl.fcntl(number, fcntl.F_DUPFD, 100)


def test_a_service_manager_hears_how_the_broker_is(manager: Manager, tmp_path: Path) -> None:
    (tmp_path / "stompbox.toml").write_text("memory = true\n")
    with broker(manager, "--no-admin", "--listen", "tcp://127.0.0.1:0") as process:
        said = manager.hears()
        assert said[0] == "READY=1"
        assert said[1].startswith("STATUS=listening on tcp://127.0.0.1:")
        process.send_signal(signal.SIGHUP)
        said = manager.hears()
        assert said[0] == "RELOADING=1"
        assert said[1].partition("=")[0] == "MONOTONIC_USEC"
        assert manager.hears() == ["READY=1", "STATUS=the configuration was read again"]
        (tmp_path / "stompbox.toml").write_text("memory = 7\n")
        process.send_signal(signal.SIGHUP)
        assert manager.hears()[0] == "RELOADING=1"
        assert manager.hears() == ["READY=1", "STATUS=the configuration was not read again; the log says why"]
        process.terminate()
        assert manager.hears() == ["STOPPING=1", "STATUS=stopping"]
        assert process.wait(WITHIN) == 0


def test_who_asks_for_life_signs_gets_them_from_the_loop(manager: Manager) -> None:
    with broker(manager, "--memory", "--no-admin", "--listen", "tcp://127.0.0.1:0", WATCHDOG_USEC="100000"):
        heard = [manager.hears(but="") for _ in range(4)]
        assert heard.count(["WATCHDOG=1"]) == 3
        assert [lines[0] for lines in heard if lines != ["WATCHDOG=1"]] == ["READY=1"]


def test_life_signs_that_another_process_is_to_give_are_not_given(manager: Manager) -> None:
    asked = {"WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"}
    with broker(manager, "--memory", "--no-admin", "--listen", "tcp://127.0.0.1:0", **asked) as process:
        assert manager.hears(but="")[0] == "READY=1"
        process.terminate()
        assert manager.hears(but="")[0] == "STOPPING=1"


def test_nobody_to_tell_is_no_fault(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    systemd.ready("x")
    assert caplog.text == ""
    monkeypatch.setenv("NOTIFY_SOCKET", "/nowhere/at/all")
    systemd.ready("x")
    assert "the service manager at NOTIFY_SOCKET /nowhere/at/all is not told READY=1" in caplog.text


def test_sockets_that_a_parent_has_opened_are_listened_at(manager: Manager, tmp_path: Path) -> None:
    path = tmp_path / "stomp.sock"
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.create_server(("127.0.0.1", 0)) as admin,
        socket.socket(socket.AF_UNIX) as file,
    ):
        file.bind(str(path))
        file.listen()
        port, console = tcp.getsockname()[1], admin.getsockname()[1]
        arguments = ("--listen", f"tcp://127.0.0.1:{port}", "--listen", f"unix://{path}")
        sockets = (file, admin, tcp)  # in any order
        with socket.create_connection(("127.0.0.1", port), WITHIN) as early:  # before there is a broker
            early.sendall(b"CONNECT\naccept-version:1.2\nhost:localhost\n\n\0")
            where = ("--admin", f"127.0.0.1:{console}")
            with broker(manager, "--memory", *where, *arguments, sockets=sockets) as process:
                assert early.recv(9) == b"CONNECTED"
                assert manager.hears()[0] == "READY=1"
                for url in (f"stomp://127.0.0.1:{port}", f"unix://{path}"):
                    with blocking.connect(url) as client:
                        client.send("/queue/handed", "x")
                with socket.create_connection(("127.0.0.1", console), WITHIN) as asking:
                    asking.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                    assert asking.recv(12) == b"HTTP/1.1 200"
                process.terminate()
                assert process.wait(WITHIN) == 0
    assert path.is_socket()  # it is the parent's


def test_a_socket_that_nobody_listens_at_stops_the_start(manager: Manager) -> None:
    with socket.create_server(("127.0.0.1", 0)) as tcp:
        where = f"127.0.0.1:{tcp.getsockname()[1]}"
        given = ("--memory", "--no-admin", "--listen", "tcp://127.0.0.1:0")
        with broker(manager, *given, sockets=(tcp,)) as process:
            _, said = process.communicate(timeout=WITHIN)
    assert process.returncode == 2
    assert f"opened {where}, and neither a [[listener]] nor [admin] listens there" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("kind", [socket.SOCK_DGRAM, socket.SOCK_STREAM])
def test_what_does_not_listen_is_refused(manager: Manager, kind: socket.SocketKind) -> None:
    with socket.socket(socket.AF_INET, kind) as one:
        one.bind(("127.0.0.1", 0))
        where = f"tcp://127.0.0.1:{one.getsockname()[1]}"
        with broker(manager, "--memory", "--no-admin", "--listen", where, sockets=(one,)) as process:
            _, said = process.communicate(timeout=WITHIN)
    assert process.returncode == 1
    assert "descriptor 3 of LISTEN_FDS is no socket that listens" in said
    assert "Traceback" not in said


def test_sockets_for_another_process_are_left_alone() -> None:
    environ = {"LISTEN_FDS": "900", "LISTEN_PID": "1", "LISTEN_FDNAMES": "x", "HOME": "/"}
    assert Inherited(environ).left == []
    assert environ == {"HOME": "/"}  # they are not meant for children


def test_a_descriptor_that_is_not_open_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systemd, "FIRST", 100_000)
    with pytest.raises(
        ConfigError, match="descriptor 100000 of LISTEN_FDS is no socket: Bad file descriptor"
    ):
        Inherited({"LISTEN_FDS": "1", "LISTEN_PID": str(os.getpid())})


def test_a_socket_for_all_addresses_of_both_kinds_is_that_of_0000() -> None:
    inherited = Inherited({})
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as both:
        port = both.getsockname()[1]
        inherited.left = [both]
        assert inherited.claim("127.0.0.1", port) is None  # nothing listens for others by mistake
        assert inherited.claim("0.0.0.0", port + 1) is None
        assert inherited.claim("0.0.0.0", port) is both
        assert inherited.left == []
        inherited.require_none_left()
