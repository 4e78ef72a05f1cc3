"""The environment as a layer of configuration: each key as STOMPBOX_..., upper case, `_` for `-` and for the dot.

    data                STOMPBOX_DATA=/var/lib/stompbox
    disk-full-policy    STOMPBOX_DISK_FULL_POLICY=BLOCK
    admin.listen        STOMPBOX_ADMIN_LISTEN=127.0.0.1:8161       STOMPBOX_ADMIN_ENABLED=false: no admin interface
    [[listener]]        STOMPBOX_LISTEN="tcp://0.0.0.0:61613 ssl://0.0.0.0:61614?keyStorePath=..."    URLs with blanks between them
    any array of tables STOMPBOX_USER='[{"name": "alice", "password": "..."}]'    JSON or TOML, in place of all of the file's

Decides names and how text becomes a value. A STOMPBOX_ variable that means nothing is refused like an unknown key, except those of other
parts of Stompbox and those that Kubernetes sets for a service of this name.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NoReturn

from stompbox.config.configuration import Configuration
from stompbox.config.fields import Field, fields_of, nearest, shown
from stompbox.config.toml import Path
from stompbox.errors import ConfigError

PREFIX: Final = "STOMPBOX_"
CONFIG: Final = "STOMPBOX_CONFIG"  # the file, when no --config names one
LISTEN: Final = "STOMPBOX_LISTEN"

_OTHERS: Final = frozenset(
    (
        CONFIG,
        "STOMPBOX_CONTEXT",
        "STOMPBOX_URL",
        "STOMPBOX_ADMIN_URL",
        "STOMPBOX_LOGIN",
        "STOMPBOX_PASSCODE",
        "STOMPBOX_COMPILE",
    )
)
_FAMILIES: Final = (
    "STOMPBOX_TEST_",
    "STOMPBOX_BENCH_",
    "STOMPBOX_DEMO_",
    "STOMPBOX_SERVICE_",
    "STOMPBOX_PORT_",
)
_KUBERNETES_PORT: Final = "STOMPBOX_PORT"  # Kubernetes: tcp://10.0.0.1:61613 for a service called stompbox
_WHOLE: Final = re.compile("[+-]?[0-9]+")
_FRACTION: Final = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")
_TRUTHS: Final = MappingProxyType({"true": True, "false": False})  # as in the file


def variables() -> dict[str, tuple[tuple[str, ...], Field]]:
    """Every variable that is a key: its path in the file, and its field."""
    found: dict[str, tuple[tuple[str, ...], Field]] = {}
    for name, field in fields_of(Configuration).items():
        if field.table and not field.item:
            found |= {
                variable_of(name, inner): ((name, inner), below)
                for inner, below in fields_of(field.table).items()
            }
        else:
            found[variable_of(name)] = ((name,), field)
    return found


def variable_of(*path: str) -> str:
    return PREFIX + "_".join(path).replace("-", "_").upper()


def read(environ: Mapping[str, str]) -> tuple[dict[str, Any], dict[Path, str]]:
    """(content, origin of each key) of the STOMPBOX_ variables. Raises ConfigError."""
    content: dict[str, Any] = {}
    origins: dict[Path, str] = {}
    known = variables()
    for name in sorted(environ):
        if (
            not name.startswith(PREFIX)
            or name in _OTHERS
            or name == _KUBERNETES_PORT
            or name.startswith(_FAMILIES)
        ):
            continue
        if name == LISTEN:
            if "STOMPBOX_LISTENER" in environ:
                _refuse(name, "STOMPBOX_LISTENER says the same; only one of them can")
            path: tuple[str, ...] = ("listener",)
            value: Any = [{"url": url} for url in environ[name].split()]
        elif name in known:
            path, value = known[name][0], _value(name, environ[name], known[name][1])
        else:
            _refuse(
                name,
                f"unknown environment variable; {nearest(name, [*known, LISTEN, CONFIG], PREFIX)}",
                "config-unknown-key",
            )
        put(content, path, value)
        origins[path] = name
    return content, origins


def _refuse(name: str, problem: str, code: str = "config-value") -> NoReturn:
    raise ConfigError(code, f"{name}: {problem}")


def put(content: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    """Set a value deep in a tree of tables."""
    for word in path[:-1]:
        content = content.setdefault(word, {})
    content[path[-1]] = value


def _value(name: str, text: str, field: Field) -> Any:
    if field.table:
        return _tables(name, text)
    if field.item:
        return _list(name, text)
    if field.plain is bool:
        return _truth(name, text)
    if field.plain in (int, float):
        return _number(text, field)
    return text


def _truth(name: str, text: str) -> bool:
    if text not in _TRUTHS:
        _refuse(name, f"{shown(text)} is not allowed; allowed: {', '.join(_TRUTHS)}")
    return _TRUTHS[text]


def _number(text: str, field: Field) -> Any:
    """A number where it is one in digits, as in the file; other text goes on as it is, to be refused, or read as a size."""
    form = _WHOLE if field.plain is int else _FRACTION
    return (int if field.plain is int else float)(text) if form.fullmatch(text) else text


def _list(name: str, text: str) -> list[Any]:
    if text.lstrip().startswith("["):
        value = _parsed(name, text)
        return value if isinstance(value, list) else [value]
    return text.replace(",", " ").split()


def _tables(name: str, text: str) -> Any:
    value = _parsed(name, text) if text.strip() else []
    return [value] if isinstance(value, dict) else value


def _parsed(name: str, text: str) -> Any:
    """JSON, else a TOML value. An array of tables may have line ends in it."""
    from msgspec import DecodeError
    from msgspec.json import decode

    try:
        return decode(text)
    except DecodeError:
        pass
    try:
        return tomllib.loads(f"value = {text.strip()}")["value"]
    except tomllib.TOMLDecodeError:
        _refuse(
            name,
            'neither JSON nor a TOML value; an array of tables looks like [{name = "alice", password = "…"}]',
        )
