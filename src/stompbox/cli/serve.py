"""`stompbox serve`: runs a broker until it is told to stop."""

from __future__ import annotations

import gc
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NoReturn

from cyclopts import App, Parameter

from stompbox.cli.greeting import greeting
from stompbox.cli.logs import set_up_logging
from stompbox.cli.parameters import Flag
from stompbox.config import Configuration, read
from stompbox.config.checks import is_admin_asked as is_asked
from stompbox.config.origins import Loaded
from stompbox.errors import ConfigError, StompboxError
from stompbox.numerals import digits

if TYPE_CHECKING:
    from stompbox.admin.listening import AdminListener
    from stompbox.server.broker import Broker

app = App(name="serve")

# codes: starting once more does not help, so exit code 3
DAMAGED: Final = frozenset(("data-corrupt", "data-missing"))
STOPPED = "broker-stopped"
FAULT = 70  # exit code after a fault of its own: EX_SOFTWARE of sysexits.h


@app.default
def serve(
    *,
    config: Path | None = None,
    listen: Annotated[list[str] | None, Parameter(consume_multiple=False, negative="")] = None,
    data: Path | None = None,
    memory: Annotated[bool | None, Parameter(negative="")] = None,
    admin: str | None = None,
    no_admin: Flag = False,
    fronts: str | None = None,
    accept_loss: Flag = False,
    log_level: Literal["debug", "info", "warning", "error"] | None = None,
    log_format: Literal["text", "json"] | None = None,
) -> None:
    """Run a broker until SIGTERM or SIGINT; prints one line per listener once it accepts, then `ready`.

    Exit codes: 0 told to stop, 1 cannot start, 2 wrong configuration, 70 stopped by a fault of its own.

    Parameters
    ----------
    config
        TOML file; else STOMPBOX_CONFIG, else ./stompbox.toml if it is there.
    listen
        URL to listen on, tcp://host:port?option=value, ssl://… or unix:///path; may be given several times.
    data
        Folder of the store; made when it is not there.
    memory
        Keep everything in memory; nothing outlives the process.
    admin
        host:port of the admin interface, or unix:///path.
    no_admin
        No admin interface.
    fronts
        Processes that have the clients' sockets, a number or auto: one for each core but one. Default: none, all is one process.
    accept_loss
        Start although confirmed messages are damaged or gone, and say which; else such a start is refused with exit code 3.
    log_level
        What is logged on stderr.
    log_format
        How.
    """
    overrides: dict[str, Any] = {
        "listen": listen,
        "data": str(data) if data is not None else None,
        "memory": memory,
        "admin.listen": admin,
        "admin.enabled": False if no_admin else None if admin is None else True,
        "fronts": fronts if fronts is None or (count := digits(fronts)) is None else count,
        "log-level": log_level,
        "log-format": log_format,
    }
    try:
        _start(config, overrides, accepts_loss=accept_loss)
    except StompboxError as error:
        _leave(error)


def _start(config: Path | None, overrides: dict[str, Any], *, accepts_loss: bool) -> None:
    """Reads the configuration, and runs the broker that it describes until it stops. Raises StompboxError."""
    loaded = read(config, os.environ, overrides)
    set_up_logging(loaded.configuration)
    from stompbox.server.verifying import verify

    for warning in verify(loaded):
        logging.getLogger("stompbox").warning("%s", warning)
    _run(Readings(config, overrides, loaded), is_admin_asked=is_asked(loaded), accepts_loss=accepts_loss)


def _leave(error: StompboxError) -> NoReturn:
    if error.code == STOPPED:  # the log has said it
        sys.exit(FAULT)
    code = f" ({error.code})" if error.code in DAMAGED else ""
    print(f"stompbox serve: {error.message}{code}", file=sys.stderr)
    sys.exit(2 if error.code.startswith("config") else 3 if error.code in DAMAGED else 1)


class Readings:
    """What was read of the configuration: at the start, and with each SIGHUP. The last one may have been refused."""

    def __init__(self, config: Path | None, overrides: dict[str, Any], first: Loaded) -> None:
        self.config = config
        self.overrides = overrides
        self.first = first
        self.known = [first]
        self.broker: Broker | None = None

    def again(self) -> Configuration:
        """The configuration, read again at SIGHUP. Raises ConfigError."""
        from stompbox.server.verifying import verify

        loaded = read(self.config, os.environ, self.overrides)
        for warning in verify(loaded):
            logging.getLogger("stompbox").warning("%s", warning)
        counting = self.counting()
        self.known = [loaded] if counting is None else [counting, loaded]
        return loaded.configuration

    def counting(self) -> Loaded | None:
        """What the broker obeys now, with where each key comes from."""
        obeyed = None if self.broker is None else self.broker.configuration
        return next((one for one in self.known if one.configuration is obeyed), None)

    def listen(self, broker: Broker) -> AdminListener:
        """Opens the admin interface. Raises ConfigError when it cannot listen."""
        from stompbox.admin.listening import AdminListener

        self.broker = broker
        return AdminListener(broker, self.first.configuration.admin, self.counting)


def _run(
    readings: Readings,
    *,
    is_admin_asked: bool,
    accepts_loss: bool,
) -> None:
    configuration = readings.first.configuration
    gc.disable()  # until it is ready: nothing that is loaded now is garbage (server/run.py enables it)
    from stompbox.server.run import serve as serve_until_stopped

    def attach(broker: Broker) -> AdminListener | None:
        if not configuration.admin.enabled:
            return None
        try:
            return readings.listen(broker)
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
            configuration, on_ready=announce, attach=attach, read=readings.again, accepts_loss=accepts_loss
        )
    )
