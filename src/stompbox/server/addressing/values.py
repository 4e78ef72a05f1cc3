"""Values of headers that are not texts. A wrong one is an IllegalFrame that names header, value and what is allowed."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from stompbox.errors import IllegalFrame
from stompbox.numerals import digits, whole
from stompbox.stomp.frames import Frame

_TRUTHS: Final = MappingProxyType({"true": True, "false": False})


def truth(frame: Frame, name: str) -> bool:
    """true or false, in any case; false when it is not there."""
    given = frame.headers.get(name, "false")
    if given.lower() not in _TRUTHS:
        raise IllegalFrame("bad-boolean", f"header {name} is {given[:80]!r}; allowed are true and false")
    return _TRUTHS[given.lower()]


def number(frame: Frame, name: str) -> int:
    """The value of a header that is a whole number from -1 on. Raises IllegalFrame."""
    given = frame.headers[name]
    found = whole(given, most=12)
    if found is None or found < -1:
        raise IllegalFrame("bad-number", f"header {name} is {given[:80]!r}; allowed is a number from -1 on")
    return found


def is_negative(text: str) -> bool:
    """Whether it is a whole number below 0."""
    return text.startswith("-") and digits(text[1:], most=11) is not None
