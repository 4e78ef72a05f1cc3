"""From file, environment and flags to one `Configuration`: flag before environment before file before default.

Decides precedence, what counts as a wrong key, type or value, and the words that say where it stands. What keys are there is tables.py;
what spans keys is checks.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from os.path import exists
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import msgspec
from msgspec import Struct

from stompbox.config import environment, toml
from stompbox.config.checks import check_names
from stompbox.config.configuration import Configuration
from stompbox.config.fields import AUTO, Field, fields_of, nearest, parse_size, shown, within
from stompbox.config.listener import is_module_function, parse_endpoint, parse_listener
from stompbox.config.origins import Loaded, Origins, spelled
from stompbox.config.spaces import MARK, is_inside
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
) -> Loaded:
    """The configuration as `load` makes it, with the origin of each key."""
    environ = environ or {}
    layers = [_file_layer(path, environ), environment.read(environ), _flag_layer(overrides or {})]
    content: dict[str, Any] = {}
    origins: dict[Path, str] = {}
    for layer, places in layers:
        _lay_over(content, origins, layer, places)
    _without_off(content, origins)
    return convert(content, origins)


def convert(content: dict[str, Any], origins: Mapping[Path, str]) -> Loaded:
    """`content` as a `Configuration`, or a ConfigError that names the first wrong key."""
    loaded = Loaded(
        configuration=_converted(content, Configuration, Origins(origins=origins)), origins=origins
    )
    check_names(loaded)
    return loaded


def read_file(path: FilePath, struct: type[T], page: str) -> tuple[T, Origins]:
    """A TOML file of other tables than the broker's, and where its keys stand; `page` lists them. Raises ConfigError."""
    content, lines = toml.read(_text(str(path)), str(path))
    blame = Origins(
        origins={key: f"{path}:{line}" for key, line in lines.items()} | {(): str(path)}, page=page
    )
    return _converted(content, struct, blame), blame


def _converted(content: dict[str, Any], struct: type[T], blame: Origins) -> T:
    tidy = _tidied(content, struct, (), blame)
    try:
        return msgspec.convert(tidy, struct)
    except msgspec.ValidationError as error:
        _refuse_type(str(error), tidy, struct, blame)


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


def _tidied(table: dict[str, Any], struct: type[Struct], path: Path, blame: Origins) -> dict[str, Any]:
    """`table` with sizes as numbers and empty texts as None where none is possible; refuses unknown keys and malformed texts."""
    known = fields_of(struct)
    tidy: dict[str, Any] = {}
    for name, value in table.items():
        if name not in known:
            blame.refuse(
                (*path, name), f"unknown key; {nearest(name, known, page=blame.page)}", "config-unknown-key"
            )
        tidy[name] = _tidied_value(value, known[name], (*path, name), blame)
    return tidy


def _tidied_value(value: Any, field: Field, path: Path, blame: Origins) -> Any:
    if field.table and field.item and isinstance(value, list):
        return [_tidied_item(item, field.table, (*path, index), blame) for index, item in enumerate(value)]
    if field.table and isinstance(value, dict):
        return _tidied(value, field.table, path, blame)
    if field.kind == AUTO and isinstance(value, str) and value.casefold() == AUTO:
        return -1
    if isinstance(value, str) and field.unit == "bytes":
        value = _size(value, field, path, blame)
    if (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and field.plain in (int, float)
        and not within(field, value)
    ):
        blame.refuse(path, f"expected {field.allowed()}, not {shown(value)}")
    if value == "" and field.optional:
        return None
    if isinstance(value, str) and field.kind:
        _check_text(value, field, path, blame)
    return value


def _tidied_item(item: Any, struct: type[Struct], path: Path, blame: Origins) -> Any:
    return _tidied(item, struct, path, blame) if isinstance(item, dict) else item


def _size(text: str, field: Field, path: Path, blame: Origins) -> int:
    try:
        return parse_size(text)
    except ValueError:
        blame.refuse(path, f"expected {field.allowed()}, not {shown(text)}")


def _check_text(text: str, field: Field, path: Path, blame: Origins) -> None:
    if field.kind == "url":
        parse_listener(text, f"{blame.where(path)}: {spelled(path)}")
    elif field.kind == "endpoint":
        parse_endpoint(text, f"{blame.where(path)}: {spelled(path)}")
    elif problem := _problem_of(text, field.kind):
        blame.refuse(path, problem)


def _problem_of(text: str, kind: str) -> str:
    """Why `text` cannot be what `kind` says; empty if it can. Never shows a password."""
    if kind == "password":
        return _problem_of_password(text)
    if kind == "module":
        return "" if is_module_function(text) else f"expected module:function, not {shown(text)}"
    if kind not in ("match", "address", "name"):
        return ""
    if not text:
        return f"an empty {'name' if kind == 'name' else kind} is not allowed"
    if not text.isprintable():
        return f"{shown(text)} has control characters"
    if is_inside(text):
        return f"names that begin with {MARK!r} are the broker's own; what a virtual host has stands in its [[virtual-host]]"
    return ""


def _problem_of_password(text: str) -> str:
    """A hash that cannot be verified must not pass for plain text: whoever reads the file could then log in with the hash itself."""
    if text.startswith("$argon2"):
        return (
            ""
            if text.count("$") == 5 and not text.endswith("$")
            else "not a whole argon2 hash; `stompbox user hash` prints one"
        )
    foreign = (
        "$1$",
        "$2a$",
        "$2b$",
        "$2y$",
        "$5$",
        "$6$",
        "$7$",
        "$y$",
        "$apr1$",
        "$pbkdf2",
        "$scrypt$",
        "{SHA",
        "{SSHA",
        "ENC(",
    )
    if text.startswith(foreign):
        return "looks like a hash that is not argon2; `stompbox user hash` prints one that can be used"
    return (
        ""
        if text
        else "an empty password is not allowed; leave the key out for a user who logs in by certificate only"
    )


def _refuse_type(problem: str, content: dict[str, Any], struct: type[Struct], blame: Origins) -> NoReturn:
    """Put what msgspec says ("Expected `int`, got `str` - at `$.user[0].name`") into words, with place and what is allowed."""
    text, _, place = problem.partition(" - at `$")
    path = _path_of(place.rstrip("`"))
    if "missing required field" in text:
        missing = text.split("`")[1]
        blame.refuse(path, f"the key {missing!r} is missing: {_field_at((*path, missing), struct).text}")
    field = _field_at(path, struct)
    value: Any = content
    for word in path:
        value = value[word]
    wanted = field.allowed_item() if isinstance(path[-1], int) else field.allowed()
    blame.refuse(
        path, f"expected {wanted}, not {'this' if field.kind in ('secret', 'password') else shown(value)}"
    )


def _path_of(place: str) -> Path:
    """The path of a key as msgspec writes it: `.user[0].name` is ("user", 0, "name")."""
    path: list[str | int] = []
    for word in place.replace("[...]", "").replace("[", ".[").split("."):
        # [...] is some value of a table of texts
        if word:
            path.append(int(word[1:-1]) if word.startswith("[") else word)
    return tuple(path)


def _field_at(path: Path, struct: type[Struct]) -> Field:
    field = fields_of(struct)[str(path[0])]
    for word in path[1:]:
        if isinstance(word, str) and field.table:
            field = fields_of(field.table)[word]
    return field
