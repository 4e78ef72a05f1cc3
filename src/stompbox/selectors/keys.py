"""What a header must be for a selector to be true, a text or a number between two: so a selector is found among many without asking it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice
from typing import Final

from stompbox.selectors.facts import BY_SPECIAL_NAME
from stompbox.selectors.intervals import EVERYTHING, Interval, Number
from stompbox.selectors.nodes import Between, Comparison, Identifier, Literal, Logic, Node, Unary

Names = tuple[str, ...]  # headers that carry a value, in the order in which they are looked at
Key = tuple[Names, str]
Bounds = tuple[Names, Interval]

TERMS: Final = 64  # that are looked at: a key is a short cut, and is looked for in one go

_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}

# facts that no broker says, only a header
_IN_HEADERS: Final = frozenset(("correlation_id", "type", "reply_to", "group_id"))


def key_of(root: Node) -> Key | None:
    """The headers and the text of the first `header = 'text'` that must hold."""
    for node in islice(_terms(root), TERMS):
        if isinstance(node, Comparison) and node.operator == "=":
            found = _equal(node.left, node.right) or _equal(node.right, node.left)
            if found is not None:
                return found
    return None


def bounds_of(root: Node) -> Bounds | None:
    """The headers of the first comparison with a number that must hold, and between which numbers all such comparisons of them leave room.
    It may be too wide (`<` is taken for `<=`), never too narrow: a text that is no number makes each of them FALSE."""
    found: Bounds | None = None
    for node in islice(_terms(root), TERMS):
        bounds = _bounds(node)
        if bounds is None:
            continue
        if found is None:
            found = bounds
        elif found[0] == bounds[0]:
            found = found[0], found[1].within(bounds[1])
    return found


def _terms(root: Node) -> Iterator[Node]:
    """What must hold, all of it, from left to right."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Logic) and node.operator == "AND":
            waiting += (node.right, node.left)
        else:
            yield node


def _equal(side: Node, other: Node) -> Key | None:
    names = _names(side)
    return (
        (names, other.value)
        if names and isinstance(other, Literal) and isinstance(other.value, str)
        else None
    )


def _bounds(node: Node) -> Bounds | None:
    if isinstance(node, Between) and not node.negated:
        names, low, high = _names(node.operand), _number(node.low), _number(node.high)
        return (names, Interval(low, high)) if names and low is not None and high is not None else None
    if not isinstance(node, Comparison) or node.operator not in _MIRRORED:
        return None
    for side, other, operator in (
        (node.left, node.right, node.operator),
        (node.right, node.left, _MIRRORED[node.operator]),
    ):
        names, number = _names(side), _number(other)
        if names and number is not None:
            return names, _interval(operator, number)
    return None


def _interval(operator: str, number: Number) -> Interval:
    if operator == "=":
        return Interval(number, number)
    return Interval(EVERYTHING.low, number) if operator.startswith("<") else Interval(number, EVERYTHING.high)


def _number(node: Node) -> Number | None:
    """The number of a literal, with or without a sign."""
    sign = 1
    while isinstance(node, Unary) and node.operator in ("+", "-"):
        sign, node = -sign if node.operator == "-" else sign, node.operand
    if (
        not isinstance(node, Literal)
        or isinstance(node.value, bool | str | None)
        or not math.isfinite(node.value)
    ):
        return None
    return sign * node.value


def _names(node: Node) -> Names:
    """The names under which a sender may say this header; empty for all else."""
    if not isinstance(node, Identifier):
        return ()
    fact = BY_SPECIAL_NAME.get(node.name)
    if fact is None:
        return (node.name,)
    if fact.name not in _IN_HEADERS:
        return ()
    return tuple(dict.fromkeys(name for name in (node.name, fact.fallback) if name))
