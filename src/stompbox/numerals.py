"""Numbers in texts from outside: ASCII digits and no more of them than asked for, so that no text is a number by surprise (other scripts'
digits, blanks, underscores) and none takes long to read."""

from __future__ import annotations

from typing import Final

MOST: Final = 18  # digits of a number that fits into 64 bits, whatever they are
# of one that need not fit, and is compared with a limit afterwards; Python reads few more at once
ANY: Final = 4000


def digits(text: str, most: int = MOST) -> int | None:
    """The number that a text of 1 to `most` ASCII digits is; None where it is no such text."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= most else None


def whole(text: str, most: int = MOST) -> int | None:
    """The number that a text of digits is, which may have one minus before them."""
    found = digits(text.removeprefix("-"), most)
    return -found if found is not None and text[0] == "-" else found
