"""What every command that talks to a broker shares: the address, headers from the command line, and how errors end."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from stompbox.cli import DEFAULT_URL
from stompbox.cli.contexts import broker_of
from stompbox.errors import ConnectionLost, StompboxError, UsageError

FAILED = 1
WRONG_USE = 2
NOT_REACHED = 3
INTERRUPTED = 130

_LOGIN_CODES = ("login-required", "login-failed")
_LOGIN_IN_URL = "; they stand in --url stomp://login:passcode@host:port, or in STOMPBOX_URL"


def url_or_default(given: str | None) -> str:
    return given or broker_of("url") or DEFAULT_URL


def at_least(name: str, value: float | None, least: float, what: str) -> None:
    """Raises UsageError for a number that is given and less, or none at all."""
    if value is not None and not value >= least:
        raise UsageError("bad-argument", f"--{name} is {value:g}; allowed is {what} from {least:g}")


def counted(count: int, noun: str) -> str:
    """As "1 message", "2,000 messages", "0 addresses"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}{'es' if noun.endswith('s') else 's'}"


def parse_headers(given: Iterable[str] | None) -> dict[str, str]:
    """`name:value` arguments as headers. Raises UsageError that names the wrong one."""
    headers = {}
    for text in given or ():
        name, colon, value = text.partition(":")
        if not colon or not name:
            raise UsageError("bad-argument", f"--header is {text!r}; allowed is name:value")
        headers[name] = value
    return headers


def run(command: str, work: Coroutine[Any, Any, None]) -> None:
    """Runs a command to its end; an error is one line on stderr and an exit code."""
    with leaving(command, about_login=_LOGIN_IN_URL):
        asyncio.run(work)


@contextmanager
def leaving(command: str, *, about_login: str = "") -> Iterator[None]:
    """What goes wrong in here ends the command so. `about_login`: where login and passcode can be given."""
    try:
        yield
    except BrokenPipeError:  # nobody reads our output any more: cli/__init__.py
        raise
    except UsageError as error:
        leave(command, error, WRONG_USE)
    except (ConnectionLost, ConnectionError) as error:
        leave(command, error, NOT_REACHED)
    except StompboxError as error:
        leave(command, error, FAILED, about_login if error.code in _LOGIN_CODES else "")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def leave(command: str, error: Exception, code: int, hint: str = "") -> None:
    print(f"stompbox {command}: {error}{hint}", file=sys.stderr)
    sys.exit(code)
