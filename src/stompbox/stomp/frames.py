"""Frames as values, and what each command is.

This file names commands; whether one may come now is session.py's table, how one looks on the wire is codec.py's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from stompbox.errors import FrameError
from stompbox.numerals import digits

_DIGITS: Final = 18  # of a content-length: less than 2**63

# STOMP 1.2, Augmented BNF: client-command, server-command
CLIENT_COMMANDS: Final = frozenset(
    (
        "SEND",
        "SUBSCRIBE",
        "UNSUBSCRIBE",
        "BEGIN",
        "COMMIT",
        "ABORT",
        "ACK",
        "NACK",
        "DISCONNECT",
        "CONNECT",
        "STOMP",
    )
)
CONTROL_COMMANDS: Final = CLIENT_COMMANDS - {"SEND"}  # their bodies, where they may have one, are not kept
SERVER_COMMANDS: Final = frozenset(("CONNECTED", "MESSAGE", "RECEIPT", "ERROR"))

# STOMP 1.2, Value Encoding: these do not escape, to stay readable for 1.0
RAW_COMMANDS: Final = frozenset(("CONNECT", "STOMP", "CONNECTED"))

# STOMP 1.1 and 1.2, Body: only these MUST have one; 1.0 ignores bodies elsewhere
COMMANDS_WITH_BODY: Final = frozenset(("SEND", "MESSAGE", "ERROR"))

# Header values that no log and no repr may show
SECRET_HEADERS: Final = frozenset(("passcode",))
_SECRET: Final = re.compile(rb"pass|secret|token|authori[sz]|credential|api[-_]?key", re.IGNORECASE)
STARS: Final = "***"


def is_secret(octets: bytes) -> bool:
    """Whether a header's name, or a line that is none, says of itself that it tells a secret."""
    return _SECRET.search(octets) is not None


def quoted(text: str) -> str:
    """A value of a header as an error text shows it: the beginning, and nothing of what was meant for a passcode."""
    return repr(STARS if is_secret(text.encode("utf-8", "backslashreplace")) else text[:80])


class Frame:
    """One frame: command, headers (decoded text, the first of each name), body (bytes, as it came)."""

    __slots__ = ("body", "command", "headers")

    def __init__(self, command: str, headers: dict[str, str], body: bytes = b"") -> None:
        self.command = command
        self.headers = headers
        self.body = body

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Frame) and (self.command, self.headers, self.body) == (
            other.command,
            other.headers,
            other.body,
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        pairs = [
            (k if k.isprintable() else repr(k), "…" if k in SECRET_HEADERS else repr(v))
            for k, v in self.headers.items()
        ]
        shown = "".join([f" {name}:{value}" for name, value in pairs])
        return f"<{self.command}{shown} body={len(self.body)}>"


def content_length(headers: Mapping[str, str]) -> int | None:
    """The number in content-length, None without one. Blanks around it are accepted, signs and other scripts' digits are not."""
    given = headers.get("content-length")
    if given is None:
        return None
    length = digits(given.strip(" "), _DIGITS)
    if length is None:
        raise FrameError(
            "bad-content-length",
            f"content-length {given[:80]!r} is not a number of octets (1 to {_DIGITS} digits)",
        )
    return length
