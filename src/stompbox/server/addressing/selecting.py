"""The selector that a frame carries: compiled at once, or in steps where it is long."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Final

from stompbox.selectors import Selector, SelectorLimits

if TYPE_CHECKING:
    from stompbox.server.addressing.sender import Sender

LONG: Final = 256  # characters: each may be a token, of which that many take two milliseconds to be compiled


def selector_of(connection: Sender, text: str | None) -> Selector | None:
    """What the text says by the listener's rules and limits. Raises SelectorError with the position."""
    if text is None:
        return None
    options = connection.options
    return connection.broker.selectors.compiled(
        text, connection.user.name, conversion=options.selector_conversion, limits=_limits(connection)
    )


def is_long(connection: Sender, text: str | None) -> bool:
    """Whether a selector is better compiled in steps before anybody asks for it."""
    if text is None or len(text) <= LONG:
        return False
    limits, conversion = _limits(connection), connection.options.selector_conversion
    return len(text) <= limits.length and not connection.broker.selectors.knows(
        text, conversion=conversion, limits=limits
    )


def compiling(connection: Sender, text: str) -> Generator[None, None, Selector]:
    """Who keeps what this returns has it at once from `selector_of`. Raises SelectorError."""
    return connection.broker.selectors.compiling(
        text,
        connection.user.name,
        conversion=connection.options.selector_conversion,
        limits=_limits(connection),
    )


def _limits(connection: Sender) -> SelectorLimits:
    options = connection.options
    return SelectorLimits(
        length=options.max_selector_length, terms=options.max_selector_terms, depth=options.max_selector_depth
    )
