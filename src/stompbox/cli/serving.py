"""What `stompbox serve` does: it runs a broker until it is told to stop.

Decides nothing about how it is asked to: serve.py has the command as the library reads it, usual.py reads the usual lines without it. So
nothing here needs that library, which would stay in memory as long as the broker runs.
"""

from __future__ import annotations

import gc
import logging
import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from stompbox.cli.greeting import greeting
from stompbox.cli.logs import set_up_logging
from stompbox.config import AdminTable, Configuration
from stompbox.config.checks import is_admin_asked as is_asked
from stompbox.errors import ConfigError, StompboxError
from stompbox.numerals import digits

if TYPE_CHECKING:
    from stompbox.admin.listening import AdminListener
    from stompbox.server.broker import Broker
    from stompbox.server.cluster.node import Node
    from stompbox.server.readings import Readings
    from stompbox.server.transport.unixsocket import BoundFile

# codes: starting once more does not help, so exit code 3
DAMAGED: Final = frozenset(("data-corrupt", "data-missing"))
STOPPED = "broker-stopped"
FAULT = 70  # exit code after a fault of its own: EX_SOFTWARE of sysexits.h


@dataclass(frozen=True, slots=True)
class Asked:
    """What a command line of `stompbox serve` asks for; its help (serve.py) says what each is. None and False: nothing of it."""

    config: Path | None = None
    listen: Sequence[str] | None = None
    data: Path | None = None
    memory: bool = False
    admin: str | None = None
    no_admin: bool = False
    fronts: str | None = None
    accept_loss: bool = False
    log_level: str | None = None
    log_format: str | None = None

    def overrides(self) -> dict[str, Any]:
        """By the keys of the configuration; None where it counts."""
        fronts = self.fronts
        return {
            "listen": None if self.listen is None else list(self.listen),
            "data": str(self.data) if self.data is not None else None,
            "memory": True if self.memory else None,
            "admin.listen": self.admin,
            "admin.enabled": False if self.no_admin else None if self.admin is None else True,
            "fronts": fronts if fronts is None or (count := digits(fronts)) is None else count,
            "log-level": self.log_level,
            "log-format": self.log_format,
        }


def serve(asked: Asked) -> None:
    """Runs the broker that was asked for until it stops, or leaves with the exit code that says why it does not."""
    try:
        _start(asked.config, asked.overrides(), accepts_loss=asked.accept_loss)
    except StompboxError as error:
        _leave(error)


def _start(config: Path | None, overrides: dict[str, Any], *, accepts_loss: bool) -> None:
    """Reads the configuration, and runs the broker that it describes until it stops. Raises StompboxError."""
    from stompbox.server.readings import Readings

    readings = Readings(config, os.environ, overrides)
    loaded = readings.first()
    set_up_logging(loaded.configuration)
    from stompbox.server.transport import descriptors
    from stompbox.server.verifying import verify

    descriptors.raise_limit()
    for warning in verify(loaded):
        logging.getLogger("stompbox").warning("%s", warning)
    _run(readings, loaded.configuration, is_admin_asked=is_asked(loaded), accepts_loss=accepts_loss)


def _leave(error: StompboxError) -> NoReturn:
    if error.code == STOPPED:  # the log has said it
        sys.exit(FAULT)
    code = f" ({error.code})" if error.code in DAMAGED else ""
    print(f"stompbox serve: {error.message}{code}", file=sys.stderr)
    sys.exit(2 if error.code.startswith("config") else 3 if error.code in DAMAGED else 1)


def _run(
    readings: Readings,
    configuration: Configuration,
    *,
    is_admin_asked: bool,
    accepts_loss: bool,
) -> None:
    gc.disable()  # until it is ready: nothing that is loaded now is garbage (server/run.py enables it)
    if configuration.cluster.log is not None:
        _run_node(readings, configuration, accepts_loss=accepts_loss)
        return
    from stompbox.server.run import serve as serve_until_stopped

    def attach(broker: Broker) -> AdminListener | None:
        if not configuration.admin.enabled:
            return None
        try:
            from stompbox.admin.listening import AdminListener

            return AdminListener(broker, configuration.admin)
        except ConfigError as error:
            # nobody asked for it there: a second broker on one machine is a broker all the same
            if is_admin_asked:
                raise
            what_to_do = "or [admin] listen; --no-admin or enabled = false: none. It goes on without"
            logging.getLogger("stompbox.admin").warning("%s; %s", error.message, what_to_do)
            return None

    def announce(_: object, urls: list[str]) -> None:
        for url in urls:
            print(f"listening on {url}", flush=True)
        if sys.stdout.isatty():
            print("\n".join(greeting(configuration, urls)))
        print("ready", flush=True)

    try:
        from uvloop import run
    except ImportError:  # not on Windows
        from asyncio import run
    run(
        serve_until_stopped(
            configuration, on_ready=announce, attach=attach, readings=readings, accepts_loss=accepts_loss
        )
    )


def _run_node(readings: Readings, configuration: Configuration, *, accepts_loss: bool) -> None:
    """A node of a cluster."""
    from stompbox.server.clustered import serve as serve_until_stopped

    def announce(urls: list[str]) -> None:
        for url in urls:
            print(f"listening on {url}", flush=True)
        print("ready", flush=True)

    try:
        from uvloop import run
    except ImportError:  # not on Windows
        from asyncio import run
    run(
        serve_until_stopped(
            configuration,
            beside=Beside(configuration.admin),
            on_ready=announce,
            readings=readings,
            accepts_loss=accepts_loss,
        )
    )


class Beside:
    """The admin interface of a node: the broker's while it leads, else what says who does."""

    def __init__(self, table: AdminTable) -> None:
        self._sockets: list[socket.socket] = []
        self._place: BoundFile | None = None
        self._table = table

    def follower(self, node: Node) -> AdminListener | None:
        """Raises ConfigError when it cannot listen."""
        if not self._table.enabled:
            return None
        from stompbox.admin.listening import AdminListener, bind

        if not self._sockets:
            self._sockets, self._place = bind(self._table)
        return AdminListener(node.view, self._table, self._duplicates())

    def _duplicates(self) -> list[socket.socket]:
        """Gives the same sockets once more; whoever gets them closes them."""
        return [each.dup() for each in self._sockets]

    def leader(self, node: Node, broker: Broker) -> AdminListener | None:
        """Raises ConfigError when it cannot listen."""
        if not self._table.enabled:
            return None
        from stompbox.admin.listening import AdminListener

        return AdminListener(broker, self._table, self._duplicates())

    def close(self) -> None:
        if self._place is not None:
            self._place.remove()
        for each in self._sockets:
            each.close()
