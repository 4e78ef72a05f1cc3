"""The selector that a frame carries."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Final

from stompbox.selectors import Selector, SelectorLimits
from stompbox.stomp.frames import Frame

if TYPE_CHECKING:
    from stompbox.server.addressing.sender import Sender

LONG: Final = 2000  # characters, which take a millisecond to be compiled, about


def selector_of(connection: Sender, frame: Frame, asked: str | None = None) -> Selector | None:
    """What the header says, or other headers have `asked` for, by the listener's rules and limits. Raises SelectorError with the
    position."""
    text = frame.headers.get("selector") if asked is None else asked
    if text is None:
        return None
    options = connection.options
    return connection.broker.selectors.compiled(
        text, connection.user.name, conversion=options.selector_conversion, limits=_limits(connection)
    )


def is_long(connection: Sender, frame: Frame) -> bool:
    """Whether the selector of a frame is better compiled in steps before anybody asks for it."""
    text, limits = frame.headers.get("selector", ""), _limits(connection)
    conversion = connection.options.selector_conversion
    return LONG < len(text) <= limits.length and not connection.broker.selectors.knows(
        text, conversion=conversion, limits=limits
    )


def compiling(connection: Sender, frame: Frame) -> Generator[None, None, Selector]:
    """Who keeps what this returns has it at once from `selector_of`. Raises SelectorError."""
    text, conversion = frame.headers["selector"], connection.options.selector_conversion
    return connection.broker.selectors.compiling(
        text, connection.user.name, conversion=conversion, limits=_limits(connection)
    )


def _limits(connection: Sender) -> SelectorLimits:
    options = connection.options
    return SelectorLimits(
        length=options.max_selector_length, terms=options.max_selector_terms, depth=options.max_selector_depth
    )
