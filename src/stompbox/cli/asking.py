"""What the commands share that ask the admin interface of a running broker: its address, one request, tables.

Decides which errors a user sees: nobody answers, it is no broker, or what the broker says. Names come from clients, so what a terminal
would obey is not printed as it is.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

from stompbox.cli.contexts import broker_of
from stompbox.errors import ConnectionLost, PeerError, Refused, UsageError, reason_of, redacted

if TYPE_CHECKING:
    from http.client import HTTPConnection

DEFAULT_ADMIN = "http://127.0.0.1:8161"
WITHIN = 60.0  # seconds; the broker answers an operation within 30
_WHERE = "; they stand in --admin http://login:passcode@host:port, or in STOMPBOX_LOGIN and STOMPBOX_PASSCODE"
WIDTH = 1000  # columns of a table that no terminal shows


def ask(admin: str | None, path: str, body: Mapping[str, object] | None = None) -> Any:
    """The answer of the API to a GET, or to a POST with a body. Raises what `connecting.leaving` turns into an exit code."""
    shown, status, answer = _answer(admin, path, body)
    return _content(shown, status, answer)


def ask_text(admin: str | None, path: str) -> str:
    """The answer of the API to a GET, where it is a text."""
    shown, status, answer = _answer(admin, path, None)
    if status != 200:
        _content(shown, status, answer)
    return answer.decode()


def _answer(admin: str | None, path: str, body: Mapping[str, object] | None) -> tuple[str, int, bytes]:
    """(who has answered, status, body)"""
    url = _whole(admin or broker_of("admin") or DEFAULT_ADMIN)
    connection, headers = _connection(url)
    is_file = url.startswith("unix://")
    shown = (
        f"unix://{unquote(urlsplit(url).path)}"
        if is_file
        else f"{urlsplit(url).scheme}://{connection.host}:{connection.port}"
    )
    from http.client import HTTPException

    try:
        connection.request(
            "GET" if body is None else "POST", f"/api/v1/{path}", None if body is None else json.dumps(body),
            headers if body is None else headers | {"content-type": "application/json"},
        )  # fmt: skip
        answer = connection.getresponse()
        return shown, answer.status, answer.read()
    except (OSError, HTTPException) as error:
        reason = reason_of(error)
        problem = f"no broker answers at {shown} ({reason}); --admin says where its admin interface is"
        raise ConnectionLost("connect-failed", problem) from None
    finally:
        connection.close()


def require_admin(admin: str) -> None:
    """Raises UsageError for what is no address of an admin interface."""
    _connection(_whole(admin))


def _whole(admin: str) -> str:
    return admin if "://" in admin else f"http://{admin}"


def _connection(url: str) -> tuple[HTTPConnection, dict[str, str]]:
    """Not connected yet, and the headers that say who asks."""
    from base64 import b64encode
    from http.client import HTTPConnection, HTTPSConnection

    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:  # whose text may show a piece of the passcode
        raise UsageError(
            "bad-argument", f"--admin is {redacted(url)!r}, whose host and port cannot be read"
        ) from None
    is_file = parts.scheme == "unix" and not parts.hostname and parts.path.strip("/")
    if not is_file and (parts.scheme not in ("http", "https") or not parts.hostname):
        raise UsageError(
            "bad-argument",
            f"--admin is {redacted(url)}; allowed is host:port, http://login:passcode@host:port, or unix:///path",
        )
    login = unquote(parts.username) if parts.username is not None else os.environ.get("STOMPBOX_LOGIN")
    passcode = (
        unquote(parts.password) if parts.password is not None else os.environ.get("STOMPBOX_PASSCODE", "")
    )
    headers = {}
    if login is not None:
        headers["authorization"] = "Basic " + b64encode(f"{login}:{passcode}".encode()).decode()
    if is_file:
        return _at_file(unquote(parts.path)), headers
    assert parts.hostname is not None
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    return kind(parts.hostname, port or (443 if parts.scheme == "https" else 80), timeout=WITHIN), headers


def _at_file(path: str) -> HTTPConnection:
    """HTTP over a socket that is a file. The Host header says localhost."""
    import socket
    from http.client import HTTPConnection

    class AtFile(HTTPConnection):
        def connect(self) -> None:
            if not hasattr(socket, "AF_UNIX"):
                raise OSError("this system has no sockets that are files")
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.sock.settimeout(WITHIN)
            self.sock.connect(path)

    return AtFile("localhost", timeout=WITHIN)


def _content(shown: str, status: int, body: bytes) -> Any:
    try:
        content = json.loads(body)
        error = {} if status == 200 else content["error"]
    except (ValueError, KeyError, TypeError):
        raise PeerError(
            "bad-answer", f"what answers at {shown} is not the admin interface of a broker (status {status})"
        ) from None
    if status != 200:
        where = _WHERE if status == 401 else ""
        raise Refused(
            error.get("code", "refused"),
            f"{_named(content)}{error.get('message', 'refused')} ({error.get('code', status)}){where}",
        )
    return content


def _named(problem: Mapping[str, Any]) -> str:
    """Which of several keys the refusal is about, where it does not say so itself: `settings.max-size` is one that the caller has given."""
    _, _, key = str(problem.get("field") or "").partition(".")
    return f"{key}: " if key and key not in str(problem.get("detail")) else ""


def every(admin: str | None, path: str, **query: str) -> Iterator[dict[str, Any]]:
    """All entries of a list, page by page."""
    following: str | None = None
    while True:
        given = query if following is None else query | {"after": following}
        page = ask(
            admin, path + "?" + "&".join([f"{name}={quote(value, safe='')}" for name, value in given.items()])
        )
        yield from page[path]
        following = page["next"]
        if following is None:
            return


def print_json(value: object) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Numbers stand to the right. Where no terminal is, nothing is cut or wrapped."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    listed = [list(row) for row in rows]
    for at, name in enumerate(columns):
        is_number = bool(listed) and all(isinstance(row[at], int) for row in listed)
        table.add_column(name, justify="right" if is_number else "left", overflow="fold")
    for row in listed:
        table.add_row(*[Text(plain(cell)) for cell in row])
    Console(width=None if sys.stdout.isatty() else WIDTH, highlight=False).print(table)


def plain(cell: object) -> str:
    """A cell as text that a terminal shows, and obeys nothing of."""
    text = f"{cell:,}" if isinstance(cell, int) else str(cell)
    return "".join([letter if letter.isprintable() else repr(letter)[1:-1] for letter in text])


def span(ms: int | None) -> str:
    """A duration, in the two largest units that it has."""
    if ms is None:
        return "?"
    if ms < 1000:
        return f"{ms} ms"
    parts = []
    left = ms // 1000
    for unit, seconds in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left = divmod(left, seconds)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])
