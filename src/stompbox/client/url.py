"""A broker's URL, taken apart: where to connect, how, and as whom.

    stomp://user:pass@host:61613            STOMP over TCP (also tcp://)
    stomp+ssl://user:pass@host:61614        over TLS (also stomps://, ssl://)
    ws://host:61613/stomp   wss://host/ws   over WebSocket; path and query belong to the WebSocket
    unix:///run/stompbox/stomp.sock         at a file of this machine; unix://user:pass@/run/… as somebody

    stomp://user:pass@a:61613,b,c           several brokers, such as the nodes of a cluster, one after the other (`each_of`)

After `?` a STOMP URL may carry options, for those who can only pass a URL on: the table URL_OPTIONS. What the options mean is
decided in options.py; this file only reads them.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from stompbox.errors import UsageError, redacted


@dataclass(frozen=True, slots=True)
class Scheme:
    secure: bool
    websocket: bool
    port: int  # where the URL names none
    is_file: bool = False


_STOMP: Final = Scheme(False, False, 61613)
_STOMP_TLS: Final = Scheme(True, False, 61614)
SCHEMES: Final = MappingProxyType(
    {
        "stomp": _STOMP,
        "tcp": _STOMP,
        "stomp+ssl": _STOMP_TLS,
        "stomps": _STOMP_TLS,
        "ssl": _STOMP_TLS,
        "ws": Scheme(False, True, 80),
        "wss": Scheme(True, True, 443),
        "unix": Scheme(False, False, 0, is_file=True),
    }
)
URL_OPTIONS: Final = ("host", "client-id", "heart-beat", "ca", "cert", "key", "verify")


@dataclass(frozen=True, slots=True)
class Target:
    """One address to try. `resource` is what a WebSocket handshake asks for; `options` come from the URL's query. `host` of a unix URL
    is the path of a file, and `port` is 0."""

    scheme: str
    host: str
    port: int
    secure: bool = False
    websocket: bool = False
    login: str | None = None
    passcode: str | None = field(default=None, repr=False)
    resource: str = "/"
    options: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def is_file(self) -> bool:
        return SCHEMES[self.scheme].is_file

    def __str__(self) -> str:
        """For logs and errors: never a passcode, never a query (it may hold a token)."""
        if self.is_file:
            return f"{self.scheme}://{self.host}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}" + (
            self.resource.partition("?")[0] if self.websocket else ""
        )


def each_of(url: str) -> list[str]:
    """One URL for each of the hosts that stand in it, divided by commas: they have the scheme, the login and the options in common."""
    if not isinstance(url, str) or "," not in url or "://" not in url:
        return [url]
    scheme, _, rest = url.partition("://")
    userinfo, at, place = rest.rpartition("@")
    if "?" in userinfo:  # the @ belongs to an option
        userinfo, at, place = "", "", rest
    end = next((index for index, letter in enumerate(place) if letter in "/?#"), len(place))
    hosts, tail = place[:end].split(","), place[end:]
    return [f"{scheme}://{userinfo}{at}{host}{tail}" for host in hosts]


def parse_url(url: str) -> Target:
    """Raises UsageError that names the part of `url` that is wrong and what is allowed there."""
    if not isinstance(url, str):
        raise UsageError(
            "bad-url", f"url must be a str such as 'stomp://host:61613', not {type(url).__name__}"
        )
    if "#" in url:
        raise UsageError("bad-url", f"url {_shown(url)} has a fragment (#…); write a # in a passcode as %23")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:  # whose text may show a piece of the passcode
        text = (
            "host and port cannot be read; a passcode has / ? # @ as %2F %3F %23 %40"
            if "@" in url
            else str(error)
        )
        raise UsageError("bad-url", f"url {_shown(url)}: {text}") from None
    scheme = SCHEMES.get(parts.scheme)
    if scheme is None:
        known = ", ".join(f"{name}://" for name in SCHEMES)
        raise UsageError(
            "bad-url", f"url {_shown(url)} begins with {parts.scheme or 'no scheme'!r}; allowed are {known}"
        )
    if scheme.is_file:
        return _file(url, parts)
    if not parts.hostname:
        raise UsageError(
            "bad-url", f"url {_shown(url)} names no host; it looks like {parts.scheme}://host:{scheme.port}"
        )
    if port == 0:
        raise UsageError(
            "bad-url", f"url {_shown(url)}: port 0 cannot be connected to; allowed are 1 to 65535"
        )
    if not scheme.websocket and parts.path not in ("", "/"):
        raise UsageError(
            "bad-url", f"url {_shown(url)} has the path {parts.path!r}; only ws:// and wss:// URLs have one"
        )
    return Target(
        parts.scheme,
        parts.hostname,
        port or scheme.port,
        scheme.secure,
        scheme.websocket,
        None if parts.username is None else unquote(parts.username),
        None if parts.password is None else unquote(parts.password),
        _resource(parts),
        {} if scheme.websocket else _options(url, parts.query),
    )


def _file(url: str, parts: SplitResult) -> Target:
    path = unquote(parts.path)
    if parts.netloc.rpartition("@")[2] or not path.strip("/") or "\0" in path:
        raise UsageError(
            "bad-url", f"url {_shown(url)} names no file; it looks like unix:///run/stompbox/stomp.sock"
        )
    login, passcode = [None if text is None else unquote(text) for text in (parts.username, parts.password)]
    options = _options(url, parts.query)
    return Target(parts.scheme, path, 0, login=login, passcode=passcode, options=options)


def _resource(parts: SplitResult) -> str:
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def _options(url: str, query: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in URL_OPTIONS:
            raise UsageError(
                "unknown-option",
                f"url {_shown(url)} has the unknown option {name!r}; {nearest(name, URL_OPTIONS)}",
            )
        if name in found:
            raise UsageError("bad-url", f"url {_shown(url)} gives the option {name!r} twice")
        found[name] = value
    return found


def nearest(name: str, allowed: tuple[str, ...]) -> str:
    """How an error about an unknown name ends."""
    close = difflib.get_close_matches(name, allowed, 1)
    return (f"did you mean {close[0]!r}? " if close else "") + f"allowed are {', '.join(allowed)}"


def _shown(url: str) -> str:
    """The URL as it is shown, without its passcode."""
    return repr(redacted(url))
