"""Texts of XML as values of TOML, `${name:default}` as its default, and listeners as URLs.

Decides how a text is read for a key that is known (configuration structs say its type). Whether the value is in range shows when the
draft is judged.
"""

from __future__ import annotations

from collections.abc import Mapping
from re import sub
from typing import Any, Final
from urllib.parse import quote, unquote

from stompbox.config.fields import Field, fields_of, parse_size, shown, words
from stompbox.config.listener import is_loopback, joined, parse_endpoint
from stompbox.config.options import ALIASES, ListenerOptions
from stompbox.conversion.draft import Draft, Table
from stompbox.conversion.elements import Element
from stompbox.errors import ConfigError
from stompbox.numerals import ANY, whole

_TRUTHS: Final = {"true": True, "false": False}
# what they say of a socket is the operating system's business here
SOCKETS: Final = frozenset((
    "tcpSendBufferSize", "tcpReceiveBufferSize", "tcpNoDelay", "useEpoll", "useKQueue", "useNio", "remotingThreads", "batchDelay",
    "directDeliver", "nioRemotingThreads", "backlog", "amqpCredits", "amqpLowCredits", "amqpMinLargeMessageSize",
    "amqpDuplicateDetection", "mqttKeepAlive", "trace", "transport.trace", "name",
))  # fmt: skip


def typed(field: Field, text: str) -> Any:
    """The value of a key. Raises ValueError that says what it should be."""
    if field.plain is bool:
        if text.casefold() in _TRUTHS:
            return _TRUTHS[text.casefold()]
    elif field.plain in (int, float):
        number = _number(field, text)
        if number is not None:
            return number
    elif choice := words(field.plain):
        if text.casefold() in [word.casefold() for word in choice]:
            return text.upper()
    else:
        return text
    raise ValueError(f"expected {field.allowed()}, not {shown(text)}")


def _number(field: Field, text: str) -> float | None:
    bare = text.strip()
    sign = -1 if bare.startswith("-") else 1
    if field.plain is float:
        parts = bare.removeprefix("-").split(".")
        is_number = len(parts) <= 2 and all(whole(part, ANY) is not None for part in parts)
        return float(bare) if is_number else None
    if field.unit == "bytes" and sign == 1:
        try:
            return parse_size(bare)
        except ValueError:
            return None
    found = whole(bare.removeprefix("-"), ANY)
    return None if found is None else sign * found


def put(table: Table, fields: Mapping[str, Field], key: str, text: str, line: int) -> None:
    """Sets a key that is known, or says why its value is none."""
    try:
        table.put(key, typed(fields[key], text), line)
    except ValueError as error:
        table.leave(line, f"{key} = {shown(text)}", str(error))


def resolved(root: Element) -> Element:
    """The document with `${name:default}` as the default; what has none stays as it is, and is no value for anything."""
    root.text = _resolved(root.text)
    root.attributes = {name: _resolved(text) for name, text in root.attributes.items()}
    for child in root.children:
        resolved(child)
    return root


def _resolved(text: str) -> str:
    return sub(r"\$\{[^{}:]*:([^{}]*)\}", r"\1", text) if "${" in text else text


def split_options(query: str) -> dict[str, str]:
    """The options of a URL by name; `;` and `&` divide them."""
    parts = [
        part.partition("=")
        for part in query.replace("&amp;", "&").replace("&", ";").split(";")
        if part.strip()
    ]
    return {name.strip(): unquote(value.strip()) for name, _, value in parts}


def write_listener(
    draft: Draft, endpoint: str, options: Mapping[str, str], line: int, *, is_tls: bool, is_open: bool
) -> Table:
    """A [[listener]] of host:port with the options that there are; the others are named beside it. `is_open`: no user is configured, so
    that only this machine may reach it."""
    table = draft.table("[[listener]]", line)
    known = fields_of(ListenerOptions)
    kept = {name: value for name, value in options.items() if ALIASES.get(name, name) in known}
    for name in options:
        if name not in kept:
            _leave_option(table, name, line)
        elif ALIASES.get(name) in kept:
            del kept[name]
            table.remark(f"{name} is left out: {ALIASES[name]} counts, which is there too", line)
    try:
        host, port = parse_endpoint(endpoint, "endpoint")
    except ConfigError:
        table.put("url", f"tcp://{endpoint}", line)  # the judge says what is wrong
        return table
    if is_open and not is_loopback(host):
        table.remark(f"was {endpoint}: as long as there is no [[user]], only this machine may connect", line)
        host = "127.0.0.1"
    said = ";".join(f"{name}={quote(value, safe=_PLAIN)}" for name, value in kept.items())
    table.put("url", f"{'ssl' if is_tls else 'tcp'}://{joined(host, port)}{'?' if said else ''}{said}", line)
    return table


_PLAIN: Final = "/,:*#.<>$@!()[]{} ~+="


def _leave_option(table: Table, name: str, line: int) -> None:
    if name in SOCKETS:
        table.remark(f"{name} is left out: nothing to set here", line)
    elif name.casefold() in (
        "truststorepassword",
        "truststoretype",
        "keystoreprovider",
        "enabledprotocols",
        "enabledciphersuites",
    ):
        table.leave(
            line,
            name,
            "key stores are PEM or PKCS12, trust stores PEM; TLS 1.2 and 1.3 with the ciphers of OpenSSL",
        )
    else:
        table.leave(
            line, f"option {name}", "no listener has it; docs/configuration.md lists those that there are"
        )
