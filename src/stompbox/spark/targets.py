"""Where a broker is, or the nodes of its cluster, and how to log in there: the options `url` and `readUrl`, taken apart.

    stomp://user:passcode@host:61613        stomps://…  with TLS        stomp://a:61613,b:61613,c:61613  one after the other

Decides nothing about which of several is asked: that is link.py's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote, urlsplit

from stompbox.errors import UsageError, redacted

DEFAULT_PORT: Final = 61613

_TLS_SCHEMES: Final = frozenset(("stomps", "stomp+ssl", "stomp+tls", "ssl", "tls"))
_PLAIN_SCHEMES: Final = frozenset(("stomp", "tcp"))


@dataclass(frozen=True, slots=True)
class Tls:
    """How the connection is encrypted and who vouches for whom. Paths are of PEM files, as the worker sees them."""

    trust_store: str = ""
    key_store: str = ""
    key: str = ""
    password: str = field(default="", repr=False)
    verify_host: bool = True


@dataclass(frozen=True, slots=True)
class Target:
    """The broker, or the nodes of one, each with host and port, and how to log in. Equal targets share connections."""

    nodes: tuple[tuple[str, int], ...]
    login: str = ""
    passcode: str = field(default="", repr=False)
    virtual_host: str = ""
    tls: Tls | None = None
    request_timeout: float = 60.0  # s
    reconnect_timeout: float = 30.0  # s
    is_spread: bool = False  # each connection begins at any of the nodes, and not at the first

    def __str__(self) -> str:
        hosts = [(f"[{host}]" if ":" in host else host, port) for host, port in self.nodes]
        places = ",".join([f"{host}:{port}" for host, port in hosts])
        return f"{'stomps' if self.tls else 'stomp'}://{places}"


@dataclass(frozen=True, slots=True)
class Place:
    """What a URL says."""

    nodes: tuple[tuple[str, int], ...]
    login: str
    passcode: str = field(repr=False)
    is_encrypted: bool


def parse_place(option: str, url: str) -> Place:
    """Takes the value of the option apart. Raises UsageError that names it."""
    scheme, _, rest = url.partition("://")
    if scheme == "unix":
        raise UsageError(
            "bad-option",
            f"option {option!r}: {redacted(url)!r} is a file of one machine, and Spark's executors may run on others; "
            "expected stomp://host:port or stomps://host:port",
        )
    account, at, tail = rest.rpartition("@")
    end = next((index for index, letter in enumerate(tail) if letter in "/?#"), len(tail))
    nodes: list[tuple[str, int]] = []
    login = passcode = ""
    for one in tail[:end].split(","):
        host, port, login, passcode = _parsed(option, url, f"{scheme}://{account}{at}{one}{tail[end:]}")
        if scheme not in _TLS_SCHEMES | _PLAIN_SCHEMES or not host or "," in host:
            allowed = (
                "stomp://host:port and stomps://host:port, with several nodes stomp://host:port,host:port"
            )
            raise UsageError(
                "bad-option", f"option {option!r} is {redacted(url)[:80]!r}; allowed are {allowed}"
            )
        if (host, port) in nodes:
            raise UsageError("bad-option", f"option {option!r} names {host}:{port} twice: {redacted(url)!r}")
        nodes.append((host, port))
    return Place(tuple(nodes), login, passcode, scheme in _TLS_SCHEMES)


def _parsed(option: str, url: str, one: str) -> tuple[str, int, str, str]:
    """Host, port, login and passcode of the URL with one host; `url` is the whole that the user gave."""
    try:
        parts = urlsplit(one)
        port = parts.port or DEFAULT_PORT
        (parts.hostname or "").encode("idna")
    except ValueError as fault:  # whose text may show a piece of the passcode
        text = (
            "host and port cannot be read; a passcode has / ? # @ as %2F %3F %23 %40"
            if "@" in url
            else str(fault)
        )
        raise UsageError("bad-option", f"option {option!r} is not a URL: {redacted(url)!r}: {text}") from None
    return parts.hostname or "", port, unquote(parts.username or ""), unquote(parts.password or "")
