"""How large a selector and the work it causes may be.

Decides: the limits and their defaults. Does not decide where a listener takes them from.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SelectorLimits:
    """A selector comes from a stranger and runs for every message, so each way to make it big has an end.

    length: octets of the text in UTF-8 (`maxSelectorLength`).
    terms: identifiers and literals, tokens of an XPATH and parts of a LIKE with a `_` inside (`maxSelectorTerms`); each costs time at
        every message.
    depth: nested parentheses, NOT and signs (`maxSelectorDepth`).
    xpath_size: octets of a body that XPATH still looks at; the default is the size from which bodies are streamed to the store.
    """

    length: int = 16384
    terms: int = 1000
    depth: int = 100
    xpath_size: int = 102_400
