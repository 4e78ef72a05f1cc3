"""From file, environment and flags to one `Configuration`: flag before environment before file before default.

Decides precedence. What counts as a wrong key, type or value is converting.py; what keys are there is tables.py; what spans keys is
checks.py; what is defined while a broker runs is definitions.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from os.path import exists
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from stompbox.config import environment, toml
from stompbox.config.checks import check_names
from stompbox.config.configuration import Configuration
from stompbox.config.converting import converted
from stompbox.config.definitions import Kept, defined, in_folder
from stompbox.config.origins import NONE, Layer, Loaded, Origins
from stompbox.config.tables import OFF
from stompbox.config.toml import Path
from stompbox.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path as FilePath

DEFAULT_FILE: Final = "stompbox.toml"

T = TypeVar("T", bound=Struct)


def load(
    path: FilePath | None = None,
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] | None = None,
) -> Configuration:
    """The configuration of `path` (else STOMPBOX_CONFIG, else ./stompbox.toml if there), `environ` and `overrides`.

    `overrides` are flags by the dotted path of their key, with values as TOML would have them: `{"data": "x", "memory": True,
    "listen": ["tcp://127.0.0.1:0"], "admin.listen": "off"}`; None means that the flag was not given. Raises ConfigError.
    """
    return read(path, environ, overrides).configuration


def read(
    path: FilePath | None = None,
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] | None = None,
    kept: Kept = lambda _: NONE,
) -> Loaded:
    """The configuration as `load` makes it, with the origin of each key. `kept`: what is defined at run time (definitions.py), which comes
    behind all the others."""
    environ = environ or {}
    layers = [_file_layer(path, environ), environment.read(environ), _flag_layer(overrides or {})]
    content: dict[str, Any] = {}
    origins: dict[Path, str] = {}
    for layer, places in layers:
        _lay_over(content, origins, layer, places)
    _without_off(content, origins)
    return convert_with(content, origins, kept(content))


def kept_of(content: Mapping[str, Any]) -> Layer:
    """What the data folder of a configuration keeps; nothing where it has none. Raises ConfigError."""
    if content.get("memory") is True:
        return NONE
    return in_folder(str(content.get("data", Configuration().data)))


def convert_with(content: Mapping[str, Any], origins: Mapping[Path, str], layer: Layer) -> Loaded:
    """`content` and a layer of definitions as a `Configuration`. Raises ConfigError as below."""
    whole, places, said = defined(content, origins, layer)
    loaded = convert(whole, places)
    return replace(loaded, content=content, content_origins=origins, layer=layer, shadowed=tuple(said))


def convert(content: dict[str, Any], origins: Mapping[Path, str]) -> Loaded:
    """`content` as a `Configuration`, or a ConfigError that names the first wrong key."""
    loaded = Loaded(
        configuration=converted(content, Configuration, Origins(origins=origins)), origins=origins
    )
    check_names(loaded)
    return loaded


def read_file(path: FilePath, struct: type[T], page: str) -> tuple[T, Origins]:
    """A TOML file of other tables than the broker's, and where its keys stand; `page` lists them. Raises ConfigError."""
    content, lines = toml.read(_text(str(path)), str(path))
    blame = Origins(
        origins={key: f"{path}:{line}" for key, line in lines.items()} | {(): str(path)}, page=page
    )
    return converted(content, struct, blame), blame


def _file_layer(path: FilePath | None, environ: Mapping[str, str]) -> tuple[dict[str, Any], dict[Path, str]]:
    name = str(path or environ.get(environment.CONFIG) or "")
    if not name and not exists(DEFAULT_FILE):
        return {}, {}
    name = name or DEFAULT_FILE
    content, lines = toml.read(_text(name), name)
    return content, {key: f"{name}:{line}" for key, line in lines.items()}


def _text(name: str) -> str:
    try:
        with open(name, encoding="utf-8", newline="") as file:
            return file.read()
    except OSError as error:
        raise ConfigError("config-file", f"{name}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise ConfigError("config-syntax", f"{name}: not TOML: byte {error.start} is not UTF-8") from None


def _flag_layer(overrides: Mapping[str, object]) -> tuple[dict[str, Any], dict[Path, str]]:
    content: dict[str, Any] = {}
    origins: dict[Path, str] = {}
    for name, value in overrides.items():
        if value is None:
            continue
        if name == "listen":
            path: tuple[str, ...] = ("listener",)
            content["listener"] = [
                {"url": url} for url in (value if isinstance(value, list | tuple) else [value])
            ]
        else:
            path = tuple(name.split("."))
            environment.put(content, path, value)
        origins[path] = (
            "--no-admin" if (name, value) == ("admin.enabled", False) else "--" + name.partition(".")[0]
        )
    return content, origins


def _lay_over(
    content: dict[str, Any], origins: dict[Path, str], layer: dict[str, Any], places: dict[Path, str]
) -> None:
    """Put a layer over what is there: key by key in [admin], whole values elsewhere. Of data and memory the upper layer's counts."""
    if layer.get("memory") is True and "data" in layer:
        Origins(origins=places).refuse(
            ("memory",), "memory = true and data exclude each other; leave one out", "config-conflict"
        )
    if layer.get("memory") is True:
        _take_away(content, origins, ("data",))
    elif "data" in layer and "memory" not in layer:
        _take_away(content, origins, ("memory",))
    for name, value in layer.items():
        if isinstance(value, dict) and isinstance(content.get(name), dict):
            for inner in value:
                _forget(origins, (name, inner))
            content[name] = content[name] | value
        else:
            _forget(origins, (name,))
            content[name] = value
    origins |= places


def _take_away(content: dict[str, Any], origins: dict[Path, str], path: tuple[str]) -> None:
    content.pop(path[0], None)
    _forget(origins, path)


def _forget(origins: dict[Path, str], path: Path) -> None:
    for below in [place for place in origins if place[: len(path)] == path]:
        del origins[below]


def _without_off(content: dict[str, Any], origins: dict[Path, str]) -> None:
    """`listen = "off"` is another word for `enabled = false`."""
    admin = content.get("admin")
    if isinstance(admin, dict) and str(admin.get("listen", "on")).casefold() in (OFF, ""):
        content["admin"] = {name: value for name, value in admin.items() if name != "listen"} | {
            "enabled": False
        }
        if ("admin", "listen") in origins:
            origins["admin", "enabled"] = origins.pop(("admin", "listen"))
