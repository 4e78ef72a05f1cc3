"""Listener URLs: `tcp://host:port?option=value;option=value`, `ssl://…`, or `unix:///path?…`; `&` divides options too.

Decides what a URL says and what its options (options.py) mean together. Values may be %-encoded. Opens no socket and reads no certificate.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, NoReturn, Protocol

from msgspec import Struct
from msgspec.structs import replace

from stompbox.config.fields import Field, fields_of, nearest, parse_size, shown, within, words
from stompbox.config.options import (
    ALIASES,
    DEFAULTS,
    DIALECTS,
    PROTOCOL,
    SOCKET_MODE,
    Dialect,
    KeyStoreType,
    ListenerOptions,
)
from stompbox.errors import ConfigError, redacted
from stompbox.numerals import ANY, digits, whole

UNIX: Final = "unix://"
ANYWHERE: Final = frozenset(("0.0.0.0", "::"))

# without a prefix each name is as it stands, as in Artemis
_MAY_BE_NONE: Final = ("anycast_prefix", "multicast_prefix")
_ELSEWHERE: Final = {
    "sslEnabled": "write ssl:// instead of tcp://",
    "useEpoll": "leave it out",
    "keyStoreProvider": "the format is keyStoreType, PEM or PKCS12",
    "trustStorePassword": "trustStorePath is a PEM file, which has no password",
    "trustStoreType": "trustStorePath is a PEM file",
}


class Listener(Struct, frozen=True):
    """One listener: `scheme` is tcp, ssl or unix, `port` 0 any free one. `host` of unix is the path of a file, and begins with "/".
    `str` gives the URL without options, so without passwords."""

    scheme: str
    host: str
    port: int
    options: ListenerOptions = DEFAULTS

    @property
    def is_tls(self) -> bool:
        return self.scheme == "ssl"

    @property
    def is_unix(self) -> bool:
        return is_path(self.host)

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.host)

    def __repr__(self) -> str:
        return f"<Listener {self}>"

    def __str__(self) -> str:
        return _shown(self.scheme, self.host, self.port)


@lru_cache(64)  # each connection says several times where it came in
def _shown(scheme: str, host: str, port: int) -> str:
    where = joined(host, port)
    return where if is_path(host) else f"{scheme}://{where}"


def parse_listener(
    url: str, where: str = "listener", *, connection_ttl: int = -1, has_keys: bool = True
) -> Listener:
    """The listener that `url` describes; `connection_ttl` (ms, -1 none) is for one that says nothing of it. Of one with `has_keys` False
    TLS ends on another machine, so the URL does not say where its keys are. Raises ConfigError, whose text begins with `where` and
    never shows a password."""
    try:
        listener = _parsed(url, where, has_keys=has_keys)
    except ConfigError:
        # what is to be said of the URL is said of it without its passwords
        _parsed(redacted(url), where, has_keys=has_keys)
        raise  # it is about a password, which no text about a value shows
    if connection_ttl >= 0 and "connectionTtl" not in _names(url):
        return replace(listener, options=replace(listener.options, connection_ttl=connection_ttl))
    return listener


def _names(url: str) -> set[str]:
    """The names of the options that are given."""
    return {part.partition("=")[0].strip() for part in url.partition("?")[2].replace("&", ";").split(";")}


def _parsed(url: str, where: str, *, has_keys: bool) -> Listener:
    scheme, divider, rest = url.partition("://")
    if not divider or scheme.lower() not in ("tcp", "ssl", "unix"):
        _refuse(
            where,
            f"{shown(_bare(url))} is not a listener URL; write tcp://host:port, ssl://host:port or unix:///path",
        )
    location, _, query = rest.partition("?")
    if "@" in location:
        _refuse(where, "login and passcode do not belong in a listener URL; users stand in [[user]]")
    is_unix = scheme.lower() == "unix"
    host, port = parse_endpoint(
        f"unix://{location}" if is_unix else location.removesuffix("/"), f"{where}: {_bare(url)}"
    )
    listener = Listener(scheme.lower(), host, port, _options(query, f"{where}: {_bare(url)}"))
    _check_together(listener, f"{where}: {listener}", has_keys=has_keys)
    return listener


def parse_endpoint(text: str, where: str) -> tuple[str, int]:
    """(host, port) of "host:port" or "[v6]:port"; (path, 0) of "unix:///path". Raises ConfigError."""
    if text.startswith(UNIX):
        return _path(text, where), 0
    host, colon, port = text.rpartition(":")
    if not colon or "]" in port:
        _refuse(where, f"{shown(text)} has no port; write host:port, port 0 for any free one")
    number = digits(port)
    if number is None or number > 65_535:
        _refuse(where, f"{shown(port)} is not a port; allowed: 0 to 65535, 0 for any free one")
    if host.startswith("[") and host.endswith("]"):
        host = _decoded(host[1:-1])  # RFC 6874: the zone of an IPv6 address comes after %25
    elif ":" in host:
        _refuse(where, f"an IPv6 address stands in brackets: [{host}]:{port}")
    if not host or any(letter in "[]/@?#*" or letter.isspace() for letter in host):
        _refuse(
            where, f"{shown(host)} is not a host; 0.0.0.0 or [::] stands for every address of this machine"
        )
    return host, number


def _path(text: str, where: str) -> str:
    path = _decoded(text.removeprefix(UNIX))
    if not is_path(path) or path.endswith("/") or "\0" in path:
        _refuse(where, f"{shown(text)} names no file; write its whole path, unix:///run/stompbox/stomp.sock")
    return path


def is_path(host: str) -> bool:
    """Whether it is the file of a socket, and no host."""
    return host.startswith("/")


def joined(host: str, port: int) -> str:
    """An endpoint as "host:port", with brackets around an IPv6 address, or as "unix:///path" of a file."""
    if is_path(host):
        return UNIX + host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Does `host` stand for this machine alone? Other names than localhost are not looked up, and count as reachable."""
    from ipaddress import ip_address  # only a start or a reload pays for it

    if host.casefold() == "localhost" or is_path(host):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def host_of(header: str) -> str | None:
    """The name in a Host header, without brackets and port; None where the whole of it is not a name or a number, and perhaps a port."""
    from re import ASCII, fullmatch

    found = fullmatch(r"(?:\[([\w.:%~-]+)\]|([\w.~-]+))(?::[0-9]{1,5})?", header, ASCII)
    return None if found is None else (found[1] or found[2]).casefold()


def is_own_host(host: str, listened: str) -> bool:
    """May who listens on `listened` be asked for by this name? No page of a stranger can have it (DNS rebinding)."""
    from ipaddress import ip_address

    if host == listened.casefold() or is_loopback(host):
        return True
    try:
        ip_address(host)
    except ValueError:
        return False
    return listened in ANYWHERE  # no name can be made to be a number


def _bare(url: str) -> str:
    return url.partition("?")[0]


def _refuse(where: str, problem: str) -> NoReturn:
    raise ConfigError("config-listener", f"{where}: {problem}")


def _options(query: str, where: str) -> ListenerOptions:
    if not query:
        return DEFAULTS
    known = fields_of(ListenerOptions)
    values: dict[str, Any] = {}
    for part in query.replace("&", ";").split(";"):
        name, equals, text = part.strip().partition("=")
        if not name and not equals:
            continue
        option = known.get(ALIASES.get(name, name))
        if option is None:
            _refuse(
                where,
                f"unknown option {shown(name)}; {_ELSEWHERE.get(name) or nearest(name, [*known, *ALIASES])}",
            )
        if option.name in values:
            _refuse(where, f"option {option.spelled} is given twice")
        if not equals:
            _refuse(where, f"option {option.spelled} has no value; allowed: {_allowed(option)}")
        values[option.name] = _value(option, text, where)
    dialect = values.get("dialect", Dialect.STOMP)
    return ListenerOptions(**{**DIALECTS[dialect], **values})


def _decoded(text: str) -> str:
    if "%" not in text:
        return text
    from urllib.parse import unquote  # only an encoded value pays for it

    return unquote(text)


def _allowed(option: Field) -> str:
    if option.name == "heart_beat":
        return "auto, or two whole numbers x,y of at least 0 (ms)"
    return (
        "texts with commas between them" + (", or nothing" if option.name in _MAY_BE_NONE else "")
        if option.item
        else "module:function"
        if option.kind == "module"
        else option.allowed()
    )


def _value(option: Field, text: str, where: str) -> Any:
    try:
        if option.item:
            return () if option.name in _MAY_BE_NONE and not text.strip() else _several(text)
        return _converted(option, _decoded(text))
    except ValueError:
        value = "this value" if option.kind == "secret" else shown(text)
        _refuse(where, f"option {option.spelled}: {value} is not allowed; allowed: {_allowed(option)}")


def _converted(option: Field, text: str) -> Any:
    """The value of an option that `text` spells. Raises ValueError."""
    if option.name == "heart_beat":
        return None if text.casefold() == "auto" else _heart_beat(text)
    if words(option.plain):
        return option.plain(text)
    if option.plain is bool:
        return (
            {"true": True, "false": False}[text.casefold()]
            if text.casefold() in ("true", "false")
            else _no(text)
        )
    if option.plain is str:
        return text if text and (option.kind != "module" or is_module_function(text)) else _no(text)
    number = (
        float(text) if option.plain is float else parse_size(text) if option.unit == "bytes" else _whole(text)
    )
    return number if within(option, number) else _no(text)


def _no(text: str) -> NoReturn:
    raise ValueError(text)


def _whole(text: str) -> int:
    found = whole(text, ANY)
    return _no(text) if found is None else found


def _several(text: str) -> tuple[str, ...]:
    values = tuple(_decoded(part.strip()) for part in text.split(","))  # an encoded comma does not divide
    return values if all(values) else _no(text)


def _heart_beat(text: str) -> tuple[int, int]:
    offered, asked = (_whole(part.strip()) for part in text.split(","))
    return (offered, asked) if offered >= 0 and asked >= 0 else _no(text)


def is_module_function(text: str) -> bool:
    """Is `text` a dotted module, a colon and a function?"""
    module, _, function = text.partition(":")
    return all(part.isidentifier() for part in module.split(".")) and function.isidentifier()


class SocketFile(Protocol):
    """What is said of the file of a socket."""

    @property
    def socket_mode(self) -> str: ...
    @property
    def socket_owner(self) -> str | None: ...
    @property
    def socket_group(self) -> str | None: ...


def check_socket(host: str, file: SocketFile, where: str, names: str, mode: str) -> None:
    """`names` and `mode` are how the keys are spelled there. Raises ConfigError."""
    text = file.socket_mode
    if not (2 < len(text) < 5 and set(text) <= set("01234567")):
        _refuse(where, f"{mode} is {shown(text)}; allowed are octal permissions, as 0660")
    if not is_path(host) and (text != SOCKET_MODE or file.socket_owner or file.socket_group):
        _refuse(where, f"{names} are for unix:///path alone")


def _check_together(listener: Listener, where: str, *, has_keys: bool) -> None:
    options = listener.options
    check_socket(listener.host, options, where, "socketMode, socketOwner and socketGroup", "socketMode")
    other = next((name for name in options.protocols if name.casefold() != PROTOCOL.casefold()), None)
    if other is not None:
        text = "a listener speaks STOMP, over TCP and WebSocket, and nothing else: write protocols=STOMP"
        _refuse(where, f"protocols has {shown(other)}; {text}")
    if has_keys and listener.is_tls and options.key_store_path is None:
        _refuse(where, "ssl needs the option keyStorePath, a file with certificate and key")
    if options.key_store_type is KeyStoreType.PKCS12 and options.key_path is not None:
        _refuse(where, "keyPath goes with keyStoreType=PEM: a PKCS12 file has its key in it")
    if not listener.is_tls and (
        options.key_store_path or options.key_path or options.trust_store_path or options.need_client_auth
    ):
        _refuse(where, f"TLS options on a {listener.scheme} listener; write ssl:// for TLS")
    if listener.is_tls and options.proxy_protocol_enabled:
        _refuse(
            where, "proxyProtocolEnabled needs tcp://: the header comes before TLS, which the balancer ends"
        )
    if has_keys and options.need_client_auth and options.trust_store_path is None:
        _refuse(where, "needClientAuth needs the option trustStorePath, the CAs of client certificates")
    if 0 <= options.connection_ttl_max < options.connection_ttl_min:
        _refuse(
            where,
            f"connectionTtlMax {options.connection_ttl_max} is below connectionTtlMin {options.connection_ttl_min}",
        )
    for text in options.virtual_topic_consumer_wildcards:
        pattern, _, count = text.partition(";")
        if not all(pattern.split(".")) or not 0 < (digits(count) or 0) < len(pattern.split(".")):
            _refuse(
                where,
                f"virtualTopicConsumerWildcards {shown(text)} is not a pattern and a number of its words, as Consumer.*.>;2",
            )
    both = set(options.anycast_prefix) & set(options.multicast_prefix)
    if both:
        _refuse(where, f"{shown(min(both))} is an anycastPrefix and a multicastPrefix")
