"""The selector that a frame carries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stompbox.selectors import Limits, Selector
from stompbox.stomp.frames import Frame

if TYPE_CHECKING:
    from stompbox.server.addressing.sender import Sender


def selector_of(connection: Sender, frame: Frame, asked: str | None = None) -> Selector | None:
    """What the header says, or other headers have `asked` for, by the listener's rules and limits. Raises SelectorError with the
    position."""
    text = frame.headers.get("selector") if asked is None else asked
    if text is None:
        return None
    options = connection.options
    limits = Limits(length=options.max_selector_length, terms=options.max_selector_terms, depth=options.max_selector_depth)
    return connection.broker.selectors.compiled(text, connection.user.name, conversion=options.selector_conversion, limits=limits)
