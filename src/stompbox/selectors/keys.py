"""The text that a header must have for a selector to be true: by it a selector is found among many without asking it."""

from __future__ import annotations

from typing import Final

from stompbox.selectors.facts import BY_SPECIAL_NAME
from stompbox.selectors.nodes import Comparison, Identifier, Literal, Logic, Node

Key = tuple[tuple[str, ...], str]

_IN_HEADERS: Final = frozenset(("correlation_id", "type", "reply_to", "group_id"))  # facts that no broker says, only a header


def key_of(root: Node) -> Key | None:
    """Of the first `header = 'text'` that must hold: the headers that carry it, in the order in which they are looked at, and the text."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Logic) and node.operator == "AND":
            waiting += (node.right, node.left)
        elif isinstance(node, Comparison) and node.operator == "=":
            found = _equal(node.left, node.right) or _equal(node.right, node.left)
            if found is not None:
                return found
    return None


def _equal(side: Node, other: Node) -> Key | None:
    if not (isinstance(side, Identifier) and isinstance(other, Literal) and isinstance(other.value, str)):
        return None
    fact = BY_SPECIAL_NAME.get(side.name)
    if fact is None:
        return (side.name,), other.value
    if fact.name not in _IN_HEADERS:
        return None
    return tuple(dict.fromkeys(name for name in (side.name, fact.fallback) if name)), other.value
