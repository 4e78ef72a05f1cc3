"""Where the admin interface listens, what is said when it cannot, and that it costs nothing until it is asked."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.admin.asking import ask
from tests.admin.conftest import PLACES
from tests.conftest import Serve, Served
from tests.system.test_serve import assert_refused, run_serve
from tests.test_floors import modules_after
from tests.users import users

LIBRARIES = {"starlette", "uvicorn", "prometheus_client", "anyio", "h11"}


def test_its_line_is_printed_and_it_answers(served: Served) -> None:
    assert served.admin.startswith("http://127.0.0.1:")
    assert ask(served.admin, "/healthz").json == {"status": "ok"}


def test_a_broker_loads_no_http_before_it_is_asked() -> None:
    loaded = modules_after(
        "import stompbox.cli.serving, stompbox.server.run, stompbox.admin.listening, stompbox.store.sqlite"
    )
    assert "stompbox.admin.listening" in loaded
    assert loaded.isdisjoint(LIBRARIES)


def test_without_one_nothing_listens(serve: Serve) -> None:
    assert serve("--memory", "--no-admin", "--listen", "tcp://127.0.0.1:0").admin == ""


def test_a_busy_port_that_was_asked_for_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        done = run_serve(
            tmp_path, "--memory", "--listen", "tcp://127.0.0.1:0", "--admin", f"127.0.0.1:{port}"
        )
    assert_refused(done, f"127.0.0.1:{port}", "in use")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1


def test_a_busy_default_port_is_gone_on_without(serve: Serve) -> None:
    """As the second broker of a machine meets it."""
    with ExitStack() as stack:
        try:
            stack.enter_context(socket.create_server(("127.0.0.1", 8161)))
        except OSError as error:
            assert "in use" in str(error)  # by somebody else: the same to our broker
        served = serve("--memory", "--listen", "tcp://127.0.0.1:0")
    assert served.admin == ""
    [warning] = [line for line in served.log.read_text().splitlines() if "WARNING" in line]
    assert "127.0.0.1:8161" in warning
    assert "--no-admin" in warning
    assert served.stop() == 0


def test_a_file_of_one_line_takes_nothing_away(serve: Serve, tmp_path: Path) -> None:
    """The default place, which may be somebody else's: then a warning that names it. `enabled = false` asks for none."""
    (tmp_path / "one.toml").write_text("memory = true\n")
    (tmp_path / "none.toml").write_text("memory = true\n[admin]\nenabled = false\n")
    places = {}
    for name in ("one.toml", "none.toml"):
        served = serve(
            "--listen",
            "tcp://127.0.0.1:0",
            is_graceful=True,
            environment={"STOMPBOX_CONFIG": str(tmp_path / name)},
        )
        places[name] = served.admin or next(
            (line for line in served.log.read_text().splitlines() if ":8161" in line), ""
        )
        assert served.stop() == 0
        served.log.unlink()
    assert "127.0.0.1:8161" in places["one.toml"]
    assert places["none.toml"] == ""


@pytest.mark.parametrize("place", ["0.0.0.0:0", "[::]:0"])
def test_open_to_others_without_users_is_refused(tmp_path: Path, place: str) -> None:
    assert_refused(
        run_serve(tmp_path, "--memory", "--listen", "tcp://127.0.0.1:0", "--admin", place), place, "[[user]]"
    )


def test_a_place_that_is_not_here_is_refused(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "stompbox.toml").write_text(users("a:b"))
    # RFC 5737: nobody's
    done = run_serve(tmp_path, "--memory", "--listen", "tcp://127.0.0.1:0", "--admin", "192.0.2.1:0")
    assert_refused(done, "192.0.2.1", "cannot listen")
    served = serve("--memory", "--listen", "tcp://127.0.0.1:0", "--admin", "localhost:0")
    assert ask(served.admin, "/healthz").status == 200


def test_a_certificate_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "stompbox.toml").write_text('[admin]\nkey-store-path = "none.pem"\n')
    assert_refused(
        run_serve(tmp_path, "--memory", "--listen", "tcp://127.0.0.1:0", "--admin", "127.0.0.1:0"),
        "key-store-path",
        "none.pem",
    )


REQUEST = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


def answered(asking: socket.socket) -> bytes:
    """The whole of one answer, whose body ends with the brace that it begins with."""
    found = b""
    while not found.endswith(b"}"):
        more = asking.recv(1 << 16)
        assert more, found
        found += more
    return found


def test_https(serve: Serve, tmp_path: Path) -> None:
    files = Path(__file__).parent.parent / "client"
    text = f'[admin]\nkey-store-path = "{files}/tls-certificate.pem"\nkey-path = "{files}/tls-key.pem"\n'
    (tmp_path / "tls.toml").write_text(text)
    served = serve("--config", str(tmp_path / "tls.toml"), "--memory", *PLACES)
    assert served.admin.startswith("https://127.0.0.1:")
    trusted = ssl.create_default_context(cafile=str(files / "tls-certificate.pem"))
    with (
        socket.create_connection(place_of(served), 20) as plain,
        trusted.wrap_socket(plain, server_hostname="127.0.0.1") as asking,
    ):
        asking.sendall(REQUEST)
        assert answered(asking).startswith(b"HTTP/1.1 200")
    done = subprocess.run(
        [sys.executable, "-m", "stompbox", "status", "--admin", served.admin], capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "SSL_CERT_FILE": str(files / "tls-certificate.pem")},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_those_who_ask_first_at_once_are_all_answered(serve: Serve) -> None:
    """While the server is being loaded."""
    served = serve("--memory", *PLACES)
    with ExitStack() as stack:
        asking = [stack.enter_context(socket.create_connection(place_of(served), 20)) for _ in range(5)]
        for one in asking:
            one.sendall(REQUEST)
        assert [answered(one)[:12] for one in asking] == [b"HTTP/1.1 200"] * 5


def test_it_stops_with_the_broker_and_with_a_connection_open(serve: Serve) -> None:
    served = serve("--memory", *PLACES)
    with socket.create_connection(place_of(served), 20) as idle:
        idle.sendall(REQUEST)
        answered(idle)
        assert served.stop() == 0
        assert idle.recv(1) == b""
    assert "Traceback" not in served.log.read_text()


def test_it_stops_when_nobody_has_asked(serve: Serve) -> None:
    served = serve("--memory", *PLACES)
    assert served.stop() == 0
    assert "Traceback" not in served.log.read_text()


def place_of(served: Served) -> tuple[str, int]:
    parts = urlsplit(served.admin)
    return parts.hostname or "", parts.port or 0
