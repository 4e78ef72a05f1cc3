"""A real PostgreSQL server on this machine, in a folder of its own, that can be stopped, killed and started again."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
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

    def __init__(
        self,
        folder: Path,
        settings: str = "",
        primary: PgServer | None = None,
        *,
        address: str = "127.0.0.1",
        prefix: Sequence[str] = (),
    ) -> None:
        """`primary`: the server whose standby this is, which has to be running; `prefix`: what begins a command on the host with this
        address."""
        self.folder = folder
        self.address = address
        self.port = free_ports(1)[0]
        self._settings = settings
        self._prefix = prefix
        self.process: subprocess.Popen[bytes] | None = None
        self._bin = binaries()
        self._user: dict[str, Any] = {}
        if os.geteuid() == 0:
            self._user = {"user": "nobody", "group": "nogroup", "extra_groups": []}
            shutil.chown(folder, "nobody", "nogroup")
        data = folder / "data"
        if primary is not None:
            self._copy(primary)
            return
        self._run(
            "initdb", "-D", data, "-U", "tests", "--auth=trust", "-E", "UTF8", "--no-sync", "--no-instructions", "--locale=C",
        )  # fmt: skip
        with (data / "pg_hba.conf").open("a") as out:
            out.write(f"host all all {address}/8 trust\n")
        self._configure()

    def _run(self, program: str, *arguments: Any) -> None:
        assert self._bin is not None
        command = [self._bin / program, *arguments]
        subprocess.run(command, check=True, capture_output=True, cwd=self.folder, **self._user)

    def _copy(self, primary: PgServer) -> None:
        """As a standby begins."""
        source = f"host={primary.address} port={primary.port} user=tests application_name=standby"
        self._run("pg_basebackup", "-D", self.folder / "data", "-d", source, "-R", "-c", "fast", "--no-sync")
        self._configure()

    def _configure(self) -> None:
        with (self.folder / "data" / "postgresql.conf").open("a") as out:
            out.write(
                f"listen_addresses = '{self.address}'\nport = {self.port}\nunix_socket_directories = ''\n"
                f"shared_buffers = 32MB\nmax_connections = 60\nautovacuum = off\n{self._settings}\n"
            )

    def promote(self) -> None:
        """It was a standby, and takes writes when this returns."""
        self.execute("SELECT pg_promote()")

    def wait_for(self, standbys: str) -> None:
        """Its commits wait for these standbys from now on."""
        self.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{standbys}'")
        self.reload()

    def follow(self, primary: PgServer) -> None:
        """It begins anew, as a standby of the other one."""
        self.end()
        shutil.rmtree(self.folder / "data")
        self._copy(primary)
        self.start()

    def start(self, *more: str) -> None:
        """`more`: settings, as `name=value`, for as long as it runs."""
        assert self._bin is not None
        settings = [word for one in more for word in ("-c", one)]
        user = self._user
        command: list[Any] = [self._bin / "postgres", "-D", self.folder / "data", *settings]
        if self._prefix:  # to another network with our rights, then without them
            become = ["setpriv", "--reuid", user["user"], "--regid", user["group"], "--clear-groups"]
            command, user = [*self._prefix, *become * bool(user), *command], {}
        with (self.folder / "server.log").open("ab") as out:
            self.process = subprocess.Popen(
                command, stdout=out, stderr=out, cwd=self.folder, start_new_session=True, **user
            )
        deadline = monotonic() + DEADLINE
        while True:
            try:
                psycopg.connect(self.url, connect_timeout=2).close()
                return
            except psycopg.OperationalError:
                assert monotonic() < deadline, (self.folder / "server.log").read_text()[-2000:]

    @property
    def url(self) -> str:
        return f"postgresql://tests@{self.address}:{self.port}/postgres"

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
def running(
    settings: str = "", *, address: str = "127.0.0.1", prefix: Sequence[str] = ()
) -> Iterator[PgServer]:
    """In a folder that another user may reach, which pytest's are not."""
    required(binaries(), "PostgreSQL is not installed: apt-get install postgresql")
    with tempfile.TemporaryDirectory(prefix="stompbox-postgres-") as folder:
        server = PgServer(Path(folder), settings, address=address, prefix=prefix)
        try:
            server.start()
            yield server
        finally:
            server.end()


@contextmanager
def following(primary: PgServer) -> Iterator[PgServer]:
    """A standby, called so, which has all that the primary has confirmed when that waits for it. Promoted, it waits for none."""
    with tempfile.TemporaryDirectory(prefix="stompbox-postgres-") as folder:
        server = PgServer(Path(folder), "synchronous_standby_names = ''", primary)
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
