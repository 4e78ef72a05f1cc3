"""`stompbox context`: names for brokers, in a file of the user's own, in place of --url and --admin.

    stompbox context add prod --url stomp://alice:…@mq.example:61613 --admin https://mq.example:8161
    stompbox --context prod queues      for one command; STOMPBOX_CONTEXT=prod for a shell; `context use prod` from now on

Decides which broker a command means: its own --url or --admin, then the context that --context or STOMPBOX_CONTEXT names, then STOMPBOX_URL
and STOMPBOX_ADMIN_URL, then the context in use, then the default. The file is the user's alone: a URL may hold a passcode.
"""

from __future__ import annotations

import os
import sys
import tomllib
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from cyclopts import App, Parameter

from stompbox.cli.examples import examples
from stompbox.cli.names import contexts as offered
from stompbox.errors import UsageError, redacted

CHOSEN: Final = "STOMPBOX_CONTEXT"
Kind = Literal["url", "admin"]
NONE: Final = "{} has none; `stompbox context add NAME --url … --admin …` makes one"
VARIABLES: Final = {"url": "STOMPBOX_URL", "admin": "STOMPBOX_ADMIN_URL"}

app = App(name="context", help_epilogue=examples("context"))

ContextName = Annotated[str, Parameter(help="Name of the context.", completer=offered)]


def place() -> Path:
    """The file of the contexts, which need not be there."""
    folder = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(folder) / "stompbox" / "contexts.toml"


def broker_of(kind: Kind) -> str | None:
    """The URL that a command takes where its flag says none; None: the default. Raises UsageError for a context that is not there."""
    name = os.environ.get(CHOSEN)
    if not name and (said := os.environ.get(VARIABLES[kind])):
        return said
    known = _read() if name or place().exists() else {}
    name = name or known.get("current")
    if not name:
        return None
    found = known.get("context", {}).get(name)
    if found is None:
        raise UsageError("no-such-context", f"there is no context {name!r}; {_there(known)}")
    url = found.get(kind) or os.environ.get(VARIABLES[kind])
    return None if url is None else str(url)


def names() -> list[str]:
    """Names of all contexts are returned. Raises UsageError for a file that cannot be read."""
    return sorted(_read().get("context", {}))


def _there(known: dict[str, Any]) -> str:
    names = ", ".join(sorted(known.get("context", {})))
    return f"there are {names}" if names else NONE.format(place())


def _read() -> dict[str, Any]:
    file = place()
    try:
        known = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError("bad-contexts", f"{file} cannot be read: {reason}") from None
    named = known.get("context", {})
    if not isinstance(named, dict) or not all(isinstance(one, dict) for one in named.values()):
        raise UsageError("bad-contexts", f"{file}: expected tables [context.NAME] with url and admin")
    return known


def _write(known: dict[str, Any]) -> None:
    from stompbox.config.toml import write

    file = place()
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = file.with_name(file.name + ".new")
        new.unlink(missing_ok=True)
        new.touch(mode=0o600)
        new.write_text(write(known), encoding="utf-8")
        new.replace(file)
    except OSError as error:
        raise UsageError("bad-contexts", f"{file} cannot be written: {error.strerror or error}") from None


def _named(known: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] | None = known.get("context", {}).get(name)
    if found is None:
        raise UsageError("no-such-context", f"there is no context {name!r}; {_there(known)}")
    return found


@app.command
def add(
    name: ContextName,
    /,
    *,
    url: Annotated[str | None, Parameter(help="Of STOMP, stomp://login:passcode@host:port.")] = None,
    admin: Annotated[
        str | None, Parameter(help="Of the admin interface, http://login:passcode@host:port.")
    ] = None,
) -> None:
    """Give a broker a name, or another address to a name."""
    from stompbox.cli.asking import require_admin
    from stompbox.cli.connecting import leaving
    from stompbox.client.url import each_of, parse_url

    with leaving("context add"):
        if url is None and admin is None:
            raise UsageError("bad-argument", "neither --url nor --admin is given")
        if not name.strip():
            raise UsageError("bad-argument", f"NAME is {name!r}; allowed is a text that is not blank")
        if url is not None:
            for one_url in each_of(url):
                parse_url(one_url)
        if admin is not None:
            require_admin(admin)
        known = _read()
        one = known.setdefault("context", {}).setdefault(name, {})
        one |= {kind: said for kind, said in (("url", url), ("admin", admin)) if said is not None}
        _write(known)


@app.command
def use(name: ContextName, /) -> None:
    """Take this context from now on, where nothing else is said."""
    from stompbox.cli.connecting import leaving

    with leaving("context use"):
        known = _read()
        _named(known, name)
        _write({"current": name, **{key: value for key, value in known.items() if key != "current"}})


@app.command
def remove(name: ContextName, /) -> None:
    """Forget a context, and go on without it."""
    from stompbox.cli.connecting import leaving

    with leaving("context remove"):
        known = _read()
        _named(known, name)
        del known["context"][name]
        if known.get("current") == name:
            del known["current"]
        _write(known)


@app.command(name="list")
def print_contexts() -> None:
    """List contexts; passcodes are starred out."""
    from stompbox.cli.asking import print_table
    from stompbox.cli.connecting import leaving

    with leaving("context list"):
        known = _read()
        if not known.get("context"):
            print(NONE.format(place()), file=sys.stderr)
            return
        rows = [
            (
                "*" if known.get("current") == name else "",
                name,
                *[redacted(str(one.get(kind, ""))) for kind in VARIABLES],
            )
            for name, one in sorted(known.get("context", {}).items())
        ]
        print_table(("", "context", "url", "admin"), rows)
