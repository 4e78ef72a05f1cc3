"""`stompbox config`: check, show, schema.

Decides what these print and their exit codes: 0 when the configuration is good, 2 when it is not, with one line on stderr.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

from cyclopts import App

from stompbox.cli.asking import print_json
from stompbox.cli.connecting import counted
from stompbox.cli.examples import examples
from stompbox.cli.parameters import AsJson, ConfigFile, Data
from stompbox.config import Loaded, read, schema
from stompbox.config.sources import kept_of
from stompbox.errors import ConfigError

BAD_CONFIGURATION = 2

app = App(name="config", help_epilogue=examples("config"))


@app.command(name="check")
def check_configuration(config: ConfigFile = None, *, data: Data = None) -> None:
    """Say whether the configuration is good, as `stompbox serve` would find it with this file, data folder and environment."""
    loaded, warnings = _checked(config, data)
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)
    configuration = loaded.configuration
    listeners = ", ".join(str(table.parse()) for table in configuration.listeners)
    users = (
        counted(len(configuration.users), "user")
        if configuration.users
        else "no users, so anyone from this machine"
    )
    print(f"good: {listeners}; {users}; {counted(len(warnings), 'warning')}")


@app.command
def show(config: ConfigFile = None, *, data: Data = None, as_json: AsJson = False) -> None:
    """Print every key with its value and where it was set. Passwords are starred out."""
    from stompbox.config.listing import content_of, listing

    loaded, _ = _checked(config, data, insecure=True)
    if not as_json:
        print(listing(loaded), end="")
        return
    print_json(content_of(loaded.configuration))


@app.command(name="schema")
def print_schema() -> None:
    """Print the JSON Schema of the file, for editors."""
    print_json(schema())


def _checked(config: Path | None, data: Path | None, *, insecure: bool = False) -> tuple[Loaded, list[str]]:
    """The configuration and its warnings. With `insecure`, one that a start would refuse as unsafe is shown none the less."""
    from stompbox.server.verifying import verify

    try:
        loaded, unread = _with_run_time(config, data)
        return loaded, [*unread, *([] if insecure else verify(loaded))]
    except ConfigError as error:
        _leave(str(error))


def _with_run_time(config: Path | None, data: Path | None) -> tuple[Loaded, list[str]]:
    """Also what is defined at run time; a warning where only the broker may read that."""
    overrides = {"data": str(data) if data is not None else None}
    try:
        return read(config, os.environ, overrides, kept_of), []
    except ConfigError as error:
        if error.code != "definitions-unreadable":
            raise
        return read(config, os.environ, overrides), [
            f"{error.message}: what is defined at run time is not looked at"
        ]


def _leave(problem: str) -> NoReturn:
    print(f"stompbox: {problem}", file=sys.stderr)
    raise SystemExit(BAD_CONFIGURATION)
