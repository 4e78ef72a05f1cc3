"""Where each key of a configuration comes from, and the refusal that says so.

Decides how a place is written. Does not read anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NoReturn

from msgspec import Struct

from stompbox.config.configuration import Configuration
from stompbox.config.toml import Path
from stompbox.errors import ConfigError


class Origins(Struct, frozen=True, kw_only=True):
    """Where each key comes from: `stompbox.toml:12`, `STOMPBOX_DATA` or `--data`. `page` is the document that lists all keys."""

    origins: Mapping[Path, str]
    page: str = "docs/configuration.md"

    def where(self, path: Path) -> str:
        """The origin of a key, or of the nearest table around it; "default" for what nobody set."""
        found = next(
            (self.origins[path[:end]] for end in range(len(path), -1, -1) if path[:end] in self.origins), ""
        )
        return found or "default"

    def refuse(self, path: Path, problem: str, code: str = "config-value") -> NoReturn:
        """Raises the ConfigError that says where a key stands and what is wrong with it."""
        where = self.where(path)
        before = [] if where == "default" else [where]
        raise ConfigError(code, ": ".join([*before, *([spelled(path)] if path else []), problem]))


class Layer(Struct, frozen=True):
    """What was defined at run time (definitions.py), as a tree of tables, where each key stands, and the text that has been read or is to
    be written. `name`: of its file; empty where there is none."""

    content: Mapping[str, Any] = MappingProxyType({})
    places: Mapping[Path, str] = MappingProxyType({})
    text: str = ""
    name: str = ""


NONE: Final = Layer()


class Loaded(Origins, frozen=True, kw_only=True):
    """A configuration and where each of its keys comes from. `layer`: what was defined at run time; `content` with its
    origins: what was there before that; `shadowed`: what of the layer does not count, in words."""

    configuration: Configuration
    content: Mapping[str, Any] = MappingProxyType({})
    content_origins: Mapping[Path, str] = MappingProxyType({})
    layer: Layer = NONE
    shadowed: tuple[str, ...] = ()


def spelled(path: Path) -> str:
    """A key as it is written in errors: `address-setting[0].match`, counted from 0 as in JSON."""
    text = "".join(f"[{word}]" if isinstance(word, int) else f".{word}" for word in path)
    return text.removeprefix(".")
