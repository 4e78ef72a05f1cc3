"""`stompbox serve` as the library of the command line reads it, with its help. What it does is in serving.py."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from stompbox.cli import serving
from stompbox.cli.examples import examples
from stompbox.cli.parameters import Flag

app = App(name="serve", help_epilogue=examples("serve"))


@app.default
def serve(
    *,
    config: Path | None = None,
    listen: Annotated[list[str] | None, Parameter(consume_multiple=False, negative="")] = None,
    data: Path | None = None,
    memory: Flag = False,
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
    serving.serve(
        serving.Asked(
            config, listen, data, memory, admin, no_admin, fronts, accept_loss, log_level, log_format
        )
    )
