"""The parts of a compiled XPath expression, and how each is evaluated.

Decides: axes, steps, predicates, operators. Depth of recursion is the nesting of the expression, never that of the document.
Does not decide what is a legal expression: `grammar` has checked every type before anything here runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from stompbox.selectors.xpath.document import Document, NodeKind, NotXml, Unseen, XmlNode
from stompbox.selectors.xpath.types import (
    PART,
    Exhausted,
    Focus,
    NodeSet,
    XType,
    XValue,
    compare_equal,
    compare_order,
    to_boolean,
    to_number,
)


class Expression(Protocol):
    @property
    def type(self) -> XType: ...

    def evaluate(self, focus: Focus) -> XValue: ...


@dataclass(frozen=True, slots=True)
class XPath:
    """A compiled expression, and how many tokens it has."""

    text: str
    expression: Expression
    tokens: int = 0

    def holds(self, document: Document | None) -> bool | None:
        """The expression as a boolean; FALSE for what is not XML, None (UNKNOWN) where the body is not looked at or the steps ran out."""
        if document is None:
            return None
        try:
            nodes = document.nodes
            focus = Focus(nodes[0], 1, 1, nodes, document.budget)
            focus.spend(1)
            return to_boolean(self.expression.evaluate(focus), focus)
        except NotXml:
            return False
        except (Unseen, Exhausted):
            return None


@dataclass(frozen=True, slots=True)
class Constant:
    value: str | float
    type: XType

    def evaluate(self, focus: Focus) -> XValue:
        return self.value


@dataclass(frozen=True, slots=True)
class Call:
    """`arguments` are converted to the function's parameters already."""

    type: XType
    function: Callable[..., XValue]
    arguments: tuple[Expression, ...]

    def evaluate(self, focus: Focus) -> XValue:
        focus.spend(3)
        return self.function(focus, *[argument.evaluate(focus) for argument in self.arguments])


@dataclass(frozen=True, slots=True)
class Converted:
    type: XType
    convert: Callable[[XValue, Focus], XValue]
    operand: Expression

    def evaluate(self, focus: Focus) -> XValue:
        return self.convert(self.operand.evaluate(focus), focus)


@dataclass(frozen=True, slots=True)
class Logic:
    """`or` ends at the first true operand, `and` at the first false one."""

    operands: tuple[Expression, ...]
    ends_at: bool
    type: XType = XType.BOOLEAN

    def evaluate(self, focus: Focus) -> XValue:
        for operand in self.operands:
            if to_boolean(operand.evaluate(focus), focus) is self.ends_at:
                return self.ends_at
        return not self.ends_at


@dataclass(frozen=True, slots=True)
class Chain:
    """Operators of one precedence, from left to right."""

    first: Expression
    rest: tuple[tuple[Callable[[XValue, XValue, Focus], XValue], Expression], ...]
    type: XType

    def evaluate(self, focus: Focus) -> XValue:
        value = self.first.evaluate(focus)
        for operate, operand in self.rest:
            focus.spend(1)
            value = operate(value, operand.evaluate(focus), focus)
        return value


@dataclass(frozen=True, slots=True)
class Negative:
    operand: Expression
    type: XType = XType.NUMBER

    def evaluate(self, focus: Focus) -> XValue:
        return -to_number(self.operand.evaluate(focus), focus)


@dataclass(frozen=True, slots=True)
class Union:
    operands: tuple[Expression, ...]
    type: XType = XType.NODES

    def evaluate(self, focus: Focus) -> XValue:
        return in_document_order((_nodes(operand.evaluate(focus)) for operand in self.operands), focus)


@dataclass(frozen=True, slots=True)
class Predicate:
    """A condition on the nodes of a step. `positional`: its value depends on the position, so it must see each step's set for itself."""

    expression: Expression
    positional: bool

    def kept(self, nodes: NodeSet, focus: Focus) -> NodeSet:
        """`nodes` in the order of the axis (XPath 1.0, 2.4)."""
        size = len(nodes)
        focus.spend(3 * size)  # an expression is evaluated for each
        return [node for position, node in enumerate(nodes, 1) if self._holds(focus.at(node, position, size))]

    def _holds(self, focus: Focus) -> bool:
        value = self.expression.evaluate(focus)
        return value == focus.position if isinstance(value, float) else to_boolean(value, focus)


@dataclass(frozen=True, slots=True)
class Step:
    axis: Axis
    test: Callable[[XmlNode], bool]
    predicates: tuple[Predicate, ...]

    def select(self, nodes: NodeSet, focus: Focus) -> NodeSet:
        found = [self._from(node, focus) for node in nodes]
        if len(found) == 1:
            return found[0][::-1] if self.axis.reverse else found[0]
        return in_document_order(found, focus)

    def _from(self, node: XmlNode, focus: Focus) -> NodeSet:
        selected = [other for part in self.axis.walk(node, focus) for other in part if self.test(other)]
        for predicate in self.predicates:
            selected = predicate.kept(selected, focus)
        return selected


@dataclass(frozen=True, slots=True)
class Path:
    """From the document's root, the nodes of `start`, or (neither) the node in focus, along `steps`; `predicates` filter `start`."""

    steps: tuple[Step, ...]
    start: Expression | None = None
    predicates: tuple[Predicate, ...] = ()
    absolute: bool = False
    type: XType = XType.NODES

    def evaluate(self, focus: Focus) -> XValue:
        nodes = self._start(focus)
        for predicate in self.predicates:
            nodes = predicate.kept(nodes, focus)
        for step in self.steps:
            nodes = step.select(nodes, focus)
        return nodes

    def _start(self, focus: Focus) -> NodeSet:
        if self.absolute:
            return focus.nodes[:1]
        return [focus.node] if self.start is None else _nodes(self.start.evaluate(focus))


def _nodes(value: XValue) -> NodeSet:
    assert isinstance(value, list)  # the grammar has checked the type
    return value


def in_document_order(sets: Iterable[NodeSet], focus: Focus) -> NodeSet:
    unique: dict[int, XmlNode] = {}
    paid = 0
    for nodes in sets:
        unique.update([(node.order, node) for node in nodes])
        if len(unique) - paid > PART:
            focus.spend(len(unique) - paid)
            paid = len(unique)
    focus.spend(len(unique) - paid)
    return [unique[order] for order in sorted(unique)]


# Axes (XPath 1.0, 2.2). Each gives the nodes in its own order, reverse axes from the nearest to the farthest, in parts, and spends what it
# looks at before it does.

Parts = Iterable[Sequence[XmlNode]]


@dataclass(frozen=True, slots=True)
class Axis:
    walk: Callable[[XmlNode, Focus], Parts]
    reverse: bool = False
    principal: NodeKind = NodeKind.ELEMENT


def _parted(nodes: Sequence[XmlNode], focus: Focus) -> Parts:
    if len(nodes) > PART:
        return _in_parts(nodes, focus)
    focus.spend(1 + len(nodes))
    return (nodes,)


def _in_parts(nodes: Sequence[XmlNode], focus: Focus) -> Parts:
    """Many of them: with each part others may have their turn, since who spends may leave the stack."""
    focus.spend(1)
    for at in range(0, len(nodes), PART):
        part = nodes[at : at + PART]
        focus.spend(len(part))
        yield part


def _no_attributes(nodes: NodeSet, focus: Focus) -> Parts:
    return [[node for node in part if node.kind is not NodeKind.ATTRIBUTE] for part in _parted(nodes, focus)]


def _ancestors_or_self(node: XmlNode, focus: Focus) -> Parts:
    return ([node], focus.ancestors(node))


def _attributes(node: XmlNode, focus: Focus) -> Parts:
    return _parted(node.attributes, focus)


def _children(node: XmlNode, focus: Focus) -> Parts:
    return _parted(node.children, focus)


def _descendants(node: XmlNode, focus: Focus) -> Parts:
    return _no_attributes(focus.nodes[node.order + 1 : node.last + 1], focus)


def _descendants_or_self(node: XmlNode, focus: Focus) -> Parts:
    return ([node], *_descendants(node, focus))


def _following(node: XmlNode, focus: Focus) -> Parts:
    return _no_attributes(focus.nodes[node.last + 1 :], focus)


def _following_siblings(node: XmlNode, focus: Focus) -> Parts:
    return [[other for other in part if other.order > node.order] for part in _siblings(node, focus)]


def _parent(node: XmlNode, focus: Focus) -> Parts:
    return _parted([focus.nodes[node.parent]] if node.parent >= 0 else [], focus)


def _preceding(node: XmlNode, focus: Focus) -> Parts:
    before = list(_no_attributes(focus.nodes[: node.order], focus))
    return [[other for other in reversed(part) if other.last < node.order] for part in reversed(before)]


def _preceding_siblings(node: XmlNode, focus: Focus) -> Parts:
    before = list(_siblings(node, focus))
    return [[other for other in reversed(part) if other.order < node.order] for part in reversed(before)]


def _self(node: XmlNode, focus: Focus) -> Parts:
    return _parted([node], focus)


def _siblings(node: XmlNode, focus: Focus) -> Parts:
    return (
        _children(focus.nodes[node.parent], focus)
        if node.parent >= 0 and node.kind is not NodeKind.ATTRIBUTE
        else ()
    )


AXES: dict[str, Axis] = {
    "ancestor": Axis(lambda node, focus: (focus.ancestors(node),), reverse=True),
    "ancestor-or-self": Axis(_ancestors_or_self, reverse=True),
    "attribute": Axis(_attributes, principal=NodeKind.ATTRIBUTE),
    "child": Axis(_children),
    "descendant": Axis(_descendants),
    "descendant-or-self": Axis(_descendants_or_self),
    "following": Axis(_following),
    "following-sibling": Axis(_following_siblings),
    "parent": Axis(_parent, reverse=True),
    "preceding": Axis(_preceding, reverse=True),
    "preceding-sibling": Axis(_preceding_siblings, reverse=True),
    "self": Axis(_self),
}


def _divide(left: float, right: float) -> float:
    if right:
        return left / right
    return (
        math.nan
        if not left or math.isnan(left)
        else math.copysign(math.inf, left) * math.copysign(1.0, right)
    )


def _modulo(left: float, right: float) -> float:
    return math.fmod(left, right) if right and math.isfinite(left) and not math.isnan(right) else math.nan


_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "div": _divide,
    "mod": _modulo,
}


def operation(sign: str) -> Callable[[XValue, XValue, Focus], XValue]:
    """The function of a binary operator other than `and`, `or` and `|`."""
    if sign in _ARITHMETIC:
        calculate = _ARITHMETIC[sign]
        return lambda left, right, focus: calculate(to_number(left, focus), to_number(right, focus))
    if sign in ("=", "!="):
        return lambda left, right, focus: compare_equal(left, right, focus, same=sign == "=")
    return lambda left, right, focus: compare_order(left, right, focus, sign)
