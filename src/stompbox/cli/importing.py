"""`stompbox import`: the configuration of another broker as Stompbox's TOML.

Decides where it goes (stdout, or a file that its owner alone may read), and the exit codes: 0 all was carried over, 1 some was not and
stands there as a comment, 2 the file could not be read and nothing was written.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Final, NoReturn

from cyclopts import App, Parameter

from stompbox.cli.connecting import counted
from stompbox.cli.examples import examples
from stompbox.cli.parameters import ForceFlag
from stompbox.conversion import Accounts, Properties, convert, settled
from stompbox.errors import ConfigError

LEFT_SOME: Final = 1
BAD_INPUT: Final = 2

_Source = Annotated[Path, Parameter(help="The file; - reads stdin.")]
_Output = Annotated[
    Path | None,
    Parameter(name=["--output", "-o"], help="Write it here, for its owner alone; else to stdout."),
]
_Force = Annotated[ForceFlag, Parameter(help="Write over a file that is there.")]
_Users = Annotated[
    Path | None,
    Parameter(name="--users", help="Properties, name = password; else the usual file beside, if there."),
]
_Roles = Annotated[
    Path | None,
    Parameter(name="--roles", help="Properties, role = names; else the usual file beside, if there."),
]

app = App(name="import", help_epilogue=examples("import"))


@app.command
def artemis(
    source: _Source,
    *,
    output: _Output = None,
    users: _Users = None,
    roles: _Roles = None,
    force: _Force = False,
) -> None:
    """Convert a broker.xml of Artemis, with artemis-users.properties and artemis-roles.properties beside it."""
    beside = ("artemis-users.properties", "artemis-roles.properties")
    _convert("artemis", source, _Target(output, is_forced=force), _accounts(source, users, roles, beside))


@app.command
def activemq(
    source: _Source,
    *,
    output: _Output = None,
    users: _Users = None,
    roles: _Roles = None,
    force: _Force = False,
) -> None:
    """Convert an activemq.xml of ActiveMQ Classic, with users.properties and groups.properties beside it."""
    beside = ("users.properties", "groups.properties")
    _convert("activemq", source, _Target(output, is_forced=force), _accounts(source, users, roles, beside))


@app.command
def rabbitmq(source: _Source, *, output: _Output = None, force: _Force = False) -> None:
    """Convert the definitions of RabbitMQ, as `rabbitmqctl export_definitions` writes them."""
    _convert("rabbitmq", source, _Target(output, is_forced=force), None)


@app.command
def openmq(
    source: _Source,
    *,
    output: _Output = None,
    users: Annotated[
        Path | None, Parameter(help="The passwd file of imqusermgr; else `passwd` beside, if there.")
    ] = None,
    access: Annotated[
        Path | None, Parameter(help="Access rules; else accesscontrol.properties beside, if there.")
    ] = None,
    destinations: Annotated[Path | None, Parameter(help="What `imqcmd list dst` printed.")] = None,
    force: _Force = False,
) -> None:
    """Convert a config.properties of OpenMQ, with passwd and accesscontrol.properties beside it."""
    target = _Target(output, is_forced=force)
    beside = ("passwd", "accesscontrol.properties")
    listed = None if destinations is None else (str(destinations), _content(destinations))
    _convert("openmq", source, target, _accounts(source, users, access, beside), listed)


class _Target:
    """Where the text goes."""

    def __init__(self, path: Path | None, *, is_forced: bool) -> None:
        self.path: Final = path
        self._is_forced: Final = is_forced

    def refuse_existing(self) -> None:
        if self.path is not None and self.path.exists() and not self._is_forced:
            _leave(f"{self.path} is there already; --force writes over it")

    def write(self, text: str) -> None:
        if self.path is None:
            print(text, end="")
            return
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            _leave(f"{self.path}: cannot be written: {error.strerror or error}")


def _accounts(source: Path, users: Path | None, roles: Path | None, beside: tuple[str, str]) -> Accounts:
    from stompbox.security import hash_password

    found = [
        given or _there(source.parent / name) for given, name in zip((users, roles), beside, strict=True)
    ]
    try:
        read = [Properties.read(str(path), _content(path)) if path else None for path in found]
    except ConfigError as error:
        _leave(error.message)
    return Accounts(hash_password, *read)


def _there(path: Path) -> Path | None:
    return path if path.is_file() else None


def _convert(
    kind: str,
    source: Path,
    target: _Target,
    accounts: Accounts | None,
    listed: tuple[str, bytes] | None = None,
) -> None:
    from stompbox.security import hash_password

    target.refuse_existing()
    name = "stdin" if str(source) == "-" else str(source)
    try:
        draft = convert(kind, name, _content(source), accounts or Accounts(hash_password), listed)
        heading = f"Made of {name} by `stompbox import {kind}`. What is new, changed or not there is a comment beside its place."
        draft.top.entries.insert(0, draft.comment(heading))
        text = settled(draft, judge)
    except ConfigError as error:
        _leave(error.message)
    target.write(text)
    where = "" if target.path is None else f" to {target.path}"
    noun = f"{draft.left} not: look for `not carried over`" if draft.left else "nothing left out"
    print(f"stompbox import: {counted(draft.carried, 'key')} carried over{where}, {noun}", file=sys.stderr)
    if draft.left:
        raise SystemExit(LEFT_SOME)


def judge(text: str) -> None:
    """Refuses what `stompbox config check` would."""
    from stompbox.config import toml
    from stompbox.config.sources import convert as converted
    from stompbox.conversion.draft import NAME
    from stompbox.server.verifying import verify

    content, lines = toml.read(text, NAME)
    verify(converted(content, {key: f"{NAME}:{line}" for key, line in lines.items()}))


def _content(path: Path) -> bytes:
    try:
        return sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except OSError as error:
        _leave(f"{path}: cannot be read: {error.strerror or error}")


def _leave(problem: str) -> NoReturn:
    print(f"stompbox import: {problem}", file=sys.stderr)
    raise SystemExit(BAD_INPUT)
