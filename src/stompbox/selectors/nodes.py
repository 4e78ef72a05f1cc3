"""The tree of a selector.

Decides: the kinds of nodes and the static kind of value each has. A tree can be as high as the selector is long (`a IS NULL IS NULL …`),
so whoever walks it goes `in_order_of_evaluation`, never recursively.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from stompbox.selectors.functions import Made
from stompbox.selectors.steps import STEP, Steps
from stompbox.selectors.xpath import XPath


class ValueKind(Enum):
    """What is known of a value before any message is there; the value says it in a message to the user."""

    TEXT = "a text"
    NUMBER = "a number"
    CONDITION = "a condition"
    NULL = "NULL"
    HEADER = "a header"


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A node of the tree of a selector. `position`: where its text starts, from 1."""

    position: int

    @property
    def kind(self) -> ValueKind:
        return ValueKind.CONDITION

    @property
    def operands(self) -> tuple[Node, ...]:
        return ()


@dataclass(frozen=True, slots=True, eq=False)
class Literal(Node):
    value: str | int | float | bool | None

    @property
    def kind(self) -> ValueKind:
        if self.value is None:
            return ValueKind.NULL
        if isinstance(self.value, bool):
            return ValueKind.CONDITION
        return ValueKind.TEXT if isinstance(self.value, str) else ValueKind.NUMBER


@dataclass(frozen=True, slots=True, eq=False)
class Identifier(Node):
    name: str

    @property
    def kind(self) -> ValueKind:
        return ValueKind.HEADER


@dataclass(frozen=True, slots=True, eq=False)
class Unary(Node):
    """The operator NOT, or a sign, on one operand."""

    operator: str
    operand: Node

    @property
    def kind(self) -> ValueKind:
        return ValueKind.CONDITION if self.operator == "NOT" else ValueKind.NUMBER

    @property
    def operands(self) -> tuple[Node, ...]:
        return (self.operand,)


@dataclass(frozen=True, slots=True, eq=False)
class Binary(Node):
    left: Node
    operator: str
    right: Node

    @property
    def operands(self) -> tuple[Node, ...]:
        return self.left, self.right


class Logic(Binary):
    """The operators AND and OR on two operands."""

    __slots__ = ()


class Comparison(Binary):
    """A comparison of two operands: =, <>, <, <=, >, >=."""

    __slots__ = ()


class Arithmetic(Binary):
    """Arithmetic of two operands: +, -, *, /, %."""

    __slots__ = ()

    @property
    def kind(self) -> ValueKind:
        return ValueKind.NUMBER


@dataclass(frozen=True, slots=True, eq=False)
class Between(Node):
    operand: Node
    low: Node
    high: Node
    negated: bool

    @property
    def operands(self) -> tuple[Node, ...]:
        return self.operand, self.low, self.high


@dataclass(frozen=True, slots=True, eq=False)
class Predicate(Node):
    """What asks about one operand; `negated` is the NOT inside it (IS NOT NULL, NOT LIKE, NOT IN)."""

    operand: Node
    negated: bool

    @property
    def operands(self) -> tuple[Node, ...]:
        return (self.operand,)


@dataclass(frozen=True, slots=True, eq=False)
class IsNull(Predicate):
    pass


@dataclass(frozen=True, slots=True, eq=False)
class Like(Predicate):
    pattern: str
    escape: str | None


@dataclass(frozen=True, slots=True, eq=False)
class In(Predicate):
    values: frozenset[str]


@dataclass(frozen=True, slots=True, eq=False)
class BodyTest(Node):
    """XPATH; without an expression XQUERY, which is always FALSE."""

    xpath: XPath | None


@dataclass(frozen=True, slots=True, eq=False)
class Call(Node):
    """A function. What it makes of texts and lists counts as the value of a header, of which nothing is known before."""

    arguments: tuple[Node, ...]
    is_condition: bool
    made: Made

    @property
    def kind(self) -> ValueKind:
        return ValueKind.CONDITION if self.is_condition else ValueKind.HEADER

    @property
    def operands(self) -> tuple[Node, ...]:
        return self.arguments


def in_order_of_evaluation(root: Node) -> Steps[list[Node]]:
    """All nodes of the tree, every one after its operands."""
    ordered: list[Node] = []
    waiting = [root]
    while waiting:
        node = waiting.pop()
        ordered.append(node)
        waiting.extend(node.operands)
        if len(ordered) % STEP == 0:
            yield
    ordered.reverse()
    return ordered
