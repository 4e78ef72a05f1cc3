"""A real PostgreSQL server on this machine, in a folder of its own, that can be stopped, killed and started again."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Any

import psycopg
import pytest

from tests.commitlog.logs import DEADLINE, required
from tests.commitlog.natsservers import free_ports


def binaries() -> Path | None:
    """The folder with initdb, newest first; distributions keep it off the path."""
    found = shutil.which("initdb")
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), reverse=True)
    return Path(found).resolve().parent if found else places[0].parent if places else None


class PgServer:
    """One server; a server of PostgreSQL does not run as root, so it runs as somebody else then."""

    def __init__(self, folder: Path, settings: str = "", primary: PgServer | None = None) -> None:
        """`primary`: the server whose standby this is, which has to be running."""
        self.folder = folder
        self.port = free_ports(1)[0]
        self.process: subprocess.Popen[bytes] | None = None
        self._bin = binaries()
        self._user: dict[str, Any] = {}
        if os.geteuid() == 0:
            self._user = {"user": "nobody", "group": "nogroup", "extra_groups": []}
            shutil.chown(folder, "nobody", "nogroup")
        assert self._bin is not None
        data = folder / "data"
        making: list[Any] = [
            "initdb", "-D", data, "-U", "tests", "--auth=trust", "-E", "UTF8", "--no-sync", "--no-instructions", "--locale=C",
        ]  # fmt: skip
        if primary is not None:
            source = f"host=127.0.0.1 port={primary.port} user=tests application_name=standby"
            making = ["pg_basebackup", "-D", data, "-d", source, "-R", "-c", "fast", "--no-sync"]
        subprocess.run(
            [self._bin / making[0], *making[1:]], check=True, capture_output=True, cwd=folder, **self._user
        )
        with (folder / "data" / "postgresql.conf").open("a") as out:
            out.write(
                f"listen_addresses = '127.0.0.1'\nport = {self.port}\nunix_socket_directories = ''\n"
                f"shared_buffers = 32MB\nmax_connections = 60\nautovacuum = off\n{settings}\n"
            )

    def start(self) -> None:
        assert self._bin is not None
        with (self.folder / "server.log").open("ab") as out:
            self.process = subprocess.Popen(
                [self._bin / "postgres", "-D", self.folder / "data"], stdout=out, stderr=out, cwd=self.folder,
                start_new_session=True, **self._user,
            )  # fmt: skip
        deadline = monotonic() + DEADLINE
        while True:
            try:
                psycopg.connect(self.url, connect_timeout=2).close()
                return
            except psycopg.OperationalError:
                assert monotonic() < deadline, (self.folder / "server.log").read_text()[-2000:]

    @property
    def url(self) -> str:
        return f"postgresql://tests@127.0.0.1:{self.port}/postgres"

    def execute(self, query: str) -> list[Any]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(query)
            return list(cursor.fetchall()) if cursor.description else []

    def send(self, number: signal.Signals) -> None:
        """To all of its processes."""
        assert self.process is not None
        self.process.send_signal(number)
        pid = self.process.pid
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            with suppress(ProcessLookupError):
                os.kill(int(child), number)

    def reload(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGHUP)

    def end(self, number: signal.Signals = signal.SIGQUIT) -> None:
        """At once, as after a crash."""
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(DEADLINE)
            self.process = None


@contextmanager
def running(settings: str = "") -> Iterator[PgServer]:
    """In a folder that another user may reach, which pytest's are not."""
    required(binaries(), "PostgreSQL is not installed: apt-get install postgresql")
    with tempfile.TemporaryDirectory(prefix="stompbox-postgres-") as folder:
        server = PgServer(Path(folder), settings)
        try:
            server.start()
            yield server
        finally:
            server.end()


@contextmanager
def following(primary: PgServer) -> Iterator[PgServer]:
    """A standby, called so, which has all that the primary has confirmed when that waits for it."""
    with tempfile.TemporaryDirectory(prefix="stompbox-postgres-") as folder:
        server = PgServer(Path(folder), primary=primary)
        try:
            server.start()
            yield server
        finally:
            server.end()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PgServer]:
    """A server; a test that ends or changes it puts it back."""
    with running() as server:
        yield server
