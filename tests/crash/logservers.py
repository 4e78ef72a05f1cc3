"""The servers of a cluster's log, of either engine: what a drill does to all of them at a time."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

from tests.commitlog import natsservers, pgserver
from tests.commitlog.natsservers import NatsServer
from tests.commitlog.pgserver import PgServer

ENGINES = ("disk", "nats", "cut", "postgres", "standby")


class LogServers(Protocol):
    """Servers that can be stopped, killed and started again. `url`: of the log; `ports`: of servers that may be reached by a proxy."""

    url: str
    ports: Sequence[int]

    def stop(self) -> None: ...
    def go_on(self) -> None: ...
    def kill(self) -> None: ...
    def start(self) -> None: ...
    def kill_one(self, chosen: int) -> None:
        """One of those of which the log can spare one; `start` brings it back."""


class Nats:
    """One server of NATS, or several."""

    def __init__(self, servers: list[NatsServer]) -> None:
        self.servers = servers
        self.url = natsservers.url_of(servers)
        self.ports = [server.port for server in servers]

    def stop(self) -> None:
        for server in self.servers:
            server.send(signal.SIGSTOP)

    def go_on(self) -> None:
        for server in self.servers:
            server.send(signal.SIGCONT)
        natsservers.wait_healthy(self.servers)

    def kill(self) -> None:
        for server in self.servers:
            server.kill()

    def kill_one(self, chosen: int) -> None:
        self.servers[chosen % len(self.servers)].kill()

    def start(self) -> None:
        for server in self.servers:
            if server.process is None:
                server.start()
        natsservers.wait_healthy(self.servers)


class Postgres:
    """A server of PostgreSQL, and its synchronous standby, where it has one: without that nothing is confirmed."""

    ports: Sequence[int] = ()

    def __init__(self, server: PgServer, standby: PgServer | None) -> None:
        self.server = server
        self.standby = standby
        self.url = server.url

    @property
    def _all(self) -> list[PgServer]:
        return [self.server, self.standby] if self.standby is not None else [self.server]

    def stop(self) -> None:
        for server in self._all:
            server.send(signal.SIGSTOP)

    def go_on(self) -> None:
        for server in self._all:
            server.send(signal.SIGCONT)

    def kill(self) -> None:
        for server in self._all:
            server.end()

    def kill_one(self, chosen: int) -> None:
        """The standby: RECEIPTs wait until it is back."""
        assert self.standby is not None, "a log of one server can spare none"
        self.standby.end()

    def start(self) -> None:
        for server in self._all:
            if server.process is None:
                server.start()


@contextmanager
def serving(engine: str, folder: Path) -> Iterator[LogServers | None]:
    """The servers of a log of this engine; None for one that has none."""
    with ExitStack() as stack:
        if engine in ("nats", "cut"):
            yield Nats(stack.enter_context(natsservers.running(folder, 3 if engine == "nats" else 1)))
        elif engine in ("postgres", "standby"):
            names = "synchronous_standby_names = 'ANY 1 (standby)'" if engine == "standby" else ""
            server = stack.enter_context(pgserver.running(names))
            standby = stack.enter_context(pgserver.following(server)) if names else None
            yield Postgres(server, standby)
        else:
            yield None
