"""The servers of a cluster's log, of either engine: what a drill does to all of them at a time."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic
from typing import Protocol

from tests.commitlog import natsservers, pgserver
from tests.commitlog.logs import DEADLINE
from tests.commitlog.natsservers import NatsServer
from tests.commitlog.pgserver import PgServer
from tests.crash.networks import Host

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

    def fail_over(self) -> str:
        """The server that takes writes dies, and another one takes over; what is wrong with that, else nothing."""


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

    def fail_over(self) -> str:
        raise AssertionError("servers of NATS do that by themselves")

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
        if standby is not None:
            both = f"{server.address}:{server.port},{standby.address}:{standby.port}"
            self.url = server.url.replace(f"{server.address}:{server.port}", both)

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

    def fail_over(self) -> str:
        """The old primary comes back, takes writes as well and waits for nobody, which no tool that fails over should allow; then it
        becomes the standby."""
        old, new = self.server, self.standby
        assert new is not None, "a log of one server has no other one"
        old.end()
        new.promote()
        new.wait_for("")
        old.start("synchronous_standby_names=")
        before, deadline = _last_on(old), monotonic() + DEADLINE
        self.server, self.standby = new, old
        while (reached := _last_on(new)) <= before and monotonic() < deadline:
            pass
        found = _last_on(old)
        old.follow(new)
        new.wait_for("ANY 1 (standby)")
        if reached <= before:
            return f"nobody writes to the server that took over: {reached}"
        return f"the old primary was written to: {before} to {found}, {reached} on the new one" * (
            found != before
        )


def _last_on(server: PgServer) -> int:
    return int(server.execute("SELECT coalesce(max(position), 0) FROM stompbox_drill")[0][0])


@contextmanager
def serving(engine: str, folder: Path, host: Host | None = None) -> Iterator[LogServers | None]:
    """The servers of a log of this engine, all at this host, else here; None for one that has none."""
    address, prefix = (host.address, host.prefix) if host is not None else ("127.0.0.1", ())
    with ExitStack() as stack:
        if engine in ("nats", "cut"):
            count = 3 if engine == "nats" and host is None else 1
            yield Nats(
                stack.enter_context(natsservers.running(folder, count, address=address, prefix=prefix))
            )
        elif engine in ("postgres", "standby"):
            names = "synchronous_standby_names = 'ANY 1 (standby)'" if engine == "standby" else ""
            server = stack.enter_context(pgserver.running(names, address=address, prefix=prefix))
            standby = stack.enter_context(pgserver.following(server)) if names else None
            yield Postgres(server, standby)
        else:
            yield None
