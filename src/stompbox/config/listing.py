"""A configuration as a file would have it: `stompbox config show`. Passwords are starred out.

Decides what is shown. Defaults are shown like what was set; what was set says where.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct, to_builtins
from msgspec.structs import fields

from stompbox.config import toml
from stompbox.config.configuration import Configuration
from stompbox.config.fields import fields_of
from stompbox.config.origins import Loaded
from stompbox.errors import redacted

STARS: Final = "***"


def content_of(configuration: Configuration) -> dict[str, Any]:
    """Tables and keys as in the file, without passwords and without tables that nobody made."""
    # key by key: who shows it while others are served keeps nobody from running for all of it
    values = {
        field.encode_name: to_builtins(getattr(configuration, field.name)) for field in fields(Configuration)
    }
    content = masked(values, Configuration)
    if configuration.memory:  # the two exclude each other in a file
        del content["data"]
    return content


def listing(loaded: Loaded) -> str:
    """TOML with a comment on each key that somebody set."""
    return toml.write(content_of(loaded.configuration), loaded.origins)


def masked(table: dict[str, Any], struct: type[Struct]) -> dict[str, Any]:
    """The values of a struct without its passwords."""
    known = fields_of(struct)
    shown: dict[str, Any] = {}
    for name, value in table.items():
        field = known[name]
        if field.item and field.table and not value:
            continue
        if field.table:
            shown[name] = (
                [masked(item, field.table) for item in value] if field.item else masked(value, field.table)
            )
        elif field.kind in ("secret", "password") and value is not None:
            shown[name] = STARS
        else:
            shown[name] = redacted(value) if field.kind in ("url", "log") and value else value
    return shown
