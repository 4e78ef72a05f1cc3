"""The usual lines of `stompbox serve`, read without the library of the command line.

A broker is asked for once and then runs for months: the library, and what it needs, would be a fifth of its start and 3 MiB of its
memory. Decides which lines are usual: options by their full names, each with its value behind it or behind `=`. All else, whatever is
wrong and whoever asks for help, is the library's; what both read is the same (tests/cli/test_usual.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from stompbox.cli.serving import Asked

FLAGS: Final = ("memory", "no_admin", "accept_loss")
TEXTS: Final = ("listen", "admin", "fronts")
PATHS: Final = ("config", "data")
CHOICES: Final = {"log_level": ("debug", "info", "warning", "error"), "log_format": ("text", "json")}
SEVERAL: Final = "listen"


def asked(words: Sequence[str]) -> Asked | None:
    """What the words behind `stompbox serve` ask for; None where they are not the usual ones."""
    found: dict[str, Any] = {}
    left = iter(words)
    for word in left:
        option, equals, value = word.partition("=")
        name = option.removeprefix("--").replace("-", "_")
        if option != f"--{name.replace('_', '-')}":
            return None
        if name in FLAGS:
            if equals:
                return None
            read: bool | str | Path | None = True
        else:
            read = _value(name, value if equals else next(left, ""))
        if read is None or (name in found and name != SEVERAL):
            return None
        found[name] = [*found.get(name, ()), read] if name == SEVERAL else read
    return Asked(**found)


def _value(name: str, text: str) -> str | Path | None:
    """None where it is none: what begins with a hyphen may be the next option."""
    if not text or text.startswith("-"):
        return None
    if name in PATHS:
        return Path(text)
    return text if name in TEXTS or text in CHOICES.get(name, ()) else None
