"""Tree -> one Python function.

Decides: the shape of the generated code. It is put together from fixed lines; every name, text and number of the selector gets in as a
constant `k0, k1, …` of the function's namespace, never as source, so no selector can write code. Each node's code leaves its value in one
variable; the right side of AND and OR runs only where the left side leaves the result open. Nested blocks end at `_NESTING`, what is deeper
becomes a function of its own, so neither the compiler nor the running selector recurses deep.

Does not decide what an operation does: `values`, `like` and `xpath` do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from sys import getsizeof
from typing import Any, cast

from stompbox.selectors import like
from stompbox.selectors.facts import BY_SPECIAL_NAME, WORDS, Value
from stompbox.selectors.like import compile_like, weight_of
from stompbox.selectors.nodes import (
    Arithmetic,
    Between,
    BodyTest,
    Call,
    Comparison,
    Identifier,
    In,
    IsNull,
    Like,
    Literal,
    Logic,
    Node,
    Unary,
    ValueKind,
)
from stompbox.selectors.program import assembling
from stompbox.selectors.steps import Steps
from stompbox.selectors.values import CONVERTING, STRICT, is_found, is_in, is_like
from stompbox.selectors.xpath import Document

Compiled = Callable[[Mapping[str, Value], Mapping[str, Value], Document | None], bool | None]

LARGEST = 128
"""Nodes of a tree that becomes Python code, which takes about 2 ms; larger ones are run as they are (program.py)."""

_NODE_SIZE = 330  # octets
_XPATH_SIZE = 220  # for each token of one
_VALUE_SIZE = 40  # for each text of an IN, beside the text itself

_NESTING = 16
_PYTHON = {"=": "==", "<>": "!="}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "<>": "<>"}


@dataclass(slots=True)
class Code:
    """Lines that compute a value, the variable or constant it is in, and how deep their blocks are nested."""

    result: str
    lines: list[str] = field(default_factory=list)
    nesting: int = 0


def generating(nodes: list[Node], *, conversion: bool, is_costly: bool) -> Steps[Compiled]:
    """The function (headers, facts, document) -> True, False or None of a checked tree, given in_order_of_evaluation; made in steps.

    `is_costly`: LIKEs spend the document's budget.
    """
    if len(nodes) > LARGEST:
        return (yield from assembling(nodes, CONVERTING if conversion else STRICT, is_costly=is_costly))
    return _Generator(conversion=conversion, is_costly=is_costly).function(nodes)


def size_of(node: Node) -> int:
    """Octets of memory that the compiled form of a node takes, without its operands, about."""
    if isinstance(node, Literal):
        return _NODE_SIZE // 4 + getsizeof(node.value)
    if isinstance(node, In):
        return (
            _NODE_SIZE
            + getsizeof(node.values)
            + sum(map(getsizeof, node.values))
            + _VALUE_SIZE * len(node.values)
        )
    if isinstance(node, Like):
        return _NODE_SIZE + like.size_of(node.pattern, node.escape)
    if isinstance(node, BodyTest) and node.xpath is not None:
        return _NODE_SIZE + getsizeof(node.xpath.text) + _XPATH_SIZE * node.xpath.tokens
    return _NODE_SIZE + (node.made.size if isinstance(node, Call) else 0)


class _Generator:
    def __init__(self, *, conversion: bool, is_costly: bool) -> None:
        self._is_costly = is_costly
        self._reading = CONVERTING if conversion else STRICT
        self._constants: dict[str, Any] = {
            "number": self._reading.number,
            "truth": self._reading.truth,
            "is_in": is_in,
        }
        self._constants |= {"is_like": is_like, "is_found": is_found}
        self._functions: list[str] = []
        self._count = 0

    def function(self, nodes: list[Node]) -> Compiled:
        root = nodes[-1]
        done: dict[int, Code] = {}
        for node in nodes:
            operands = [done.pop(id(operand)) for operand in node.operands]
            done[id(node)] = _EMITTERS[type(node)](self, node, *operands)
        name = self._define(self._condition(root, done[id(root)]))
        lines = ["def made():", *[f" {line}" for line in self._functions], f" return {name}"]
        exec(compile("\n".join(lines), "<selector>", "exec"), self._constants)
        # not left in its own namespace: a selector that nobody needs any more is gone at once, and not when the collector comes
        return cast(Compiled, self._constants.pop("made")())

    def _define(self, code: Code) -> str:
        name = self._name("f")
        self._functions.append(f"def {name}(headers, facts, document):")
        self._functions.extend(" " + line for line in code.lines)
        self._functions.append(f" return {code.result}")
        return name

    def _name(self, letter: str) -> str:
        self._count += 1
        return f"{letter}{self._count}"

    def _constant(self, value: object) -> str:
        name = self._name("k")
        self._constants[name] = value
        return name

    def _then(self, operands: tuple[Code, ...], expression: str) -> Code:
        """The operands one after the other, then a variable for what `expression` makes of their results."""
        first = operands[0]
        for other in operands[1:]:
            first.lines.extend(other.lines)
        result = self._name("t")
        first.lines.append(f"{result} = {expression}")
        return Code(result, first.lines, max(code.nesting for code in operands))

    def _variable(self, code: Code) -> Code:
        """`code` with its result in a variable that may be assigned again."""
        return code if code.result.startswith("t") else self._then((code,), code.result)

    def _condition(self, node: Node, code: Code) -> Code:
        return self._then((code,), f"truth({code.result})") if node.kind is ValueKind.HEADER else code

    # One method per kind of node: the node, the code of its operands -> its code.

    def _literal(self, node: Literal) -> Code:
        return Code(
            repr(node.value)
            if node.value is None or isinstance(node.value, bool)
            else self._constant(node.value)
        )

    def _identifier(self, node: Identifier) -> Code:
        result = self._name("t")
        fact = BY_SPECIAL_NAME.get(node.name)
        if fact is None:
            return Code(result, [f"{result} = headers.get({self._constant(node.name)})"])
        lines = [f"{result} = facts.get({self._constant(fact.name)})"]
        if node.name in WORDS:
            lines.append(
                f"if {result}.__class__ is bool: {result} = {self._constant(WORDS[node.name])}[{result}]"
            )
        lines.append(f"if {result} is None: {result} = headers.get({self._constant(node.name)})")
        if fact.fallback not in (None, node.name):
            lines.append(f"if {result} is None: {result} = headers.get({self._constant(fact.fallback)})")
        return Code(result, lines)

    def _unary(self, node: Unary, operand: Code) -> Code:
        if node.operator == "NOT":
            operand = self._condition(node.operand, operand)
            return self._then((operand,), f"None if {operand.result} is None else not {operand.result}")
        if node.operator == "-":
            return self._then(
                (operand,), f"{self._constant(self._reading.calculate['-'])}(0, {operand.result})"
            )
        return self._then((operand,), f"number({operand.result})")

    def _logic(self, node: Logic, left: Code, right: Code) -> Code:
        left, right = self._condition(node.left, left), self._condition(node.right, right)
        if right.nesting >= _NESTING:
            right = Code(f"{self._define(right)}(headers, facts, document)")
        ends = "False" if node.operator == "AND" else "True"
        goes_on = "True" if node.operator == "AND" else "False"
        code = self._variable(left)
        code.lines.append(f"if {code.result} is not {ends}:")
        code.lines.extend(" " + line for line in right.lines)
        # The left side is UNKNOWN or leaves the result to the right side, so the right side decides unless it leaves the result alone.
        code.lines.append(f" right = {right.result}")
        code.lines.append(f" if right is not {goes_on}: {code.result} = right")
        code.nesting = max(code.nesting, right.nesting + 1)
        return code

    def _comparison(self, node: Comparison, left: Code, right: Code) -> Code:
        if node.right.kind is ValueKind.NUMBER and isinstance(node.right, Literal):
            return self._with_number(left, node.operator, right)
        if node.left.kind is ValueKind.NUMBER and isinstance(node.left, Literal):
            return self._with_number(right, _MIRRORED[node.operator], left)
        compare = self._constant(self._reading.compare[node.operator])
        if node.left.kind is ValueKind.HEADER and node.right.kind is ValueKind.TEXT:
            same = f"{left.result} {_PYTHON[node.operator]} {right.result} if {left.result}.__class__ is str else "
            return self._then((left, right), f"{same}{compare}({left.result}, {right.result})")
        return self._then((left, right), f"{compare}({left.result}, {right.result})")

    def _with_number(self, value: Code, sign: str, literal: Code) -> Code:
        """A comparison with a number, the commonest, without a call for the comparison."""
        return self._as_number(value, f"{{}} {_PYTHON.get(sign, sign)} {literal.result}")

    def _as_number(self, value: Code, condition: str) -> Code:
        """Whether `condition` holds for the number that `value` is; FALSE where it is none."""
        code = self._variable(value)
        code.lines.append(f"if {code.result} is not None:")
        code.lines.append(f" {code.result} = number({code.result})")
        code.lines.append(f" {code.result} = {code.result} is not None and {condition.format(code.result)}")
        code.nesting += 1
        return code

    def _arithmetic(self, node: Arithmetic, left: Code, right: Code) -> Code:
        return self._then(
            (left, right),
            f"{self._constant(self._reading.calculate[node.operator])}({left.result}, {right.result})",
        )

    def _between(self, node: Between, operand: Code, low: Code, high: Code) -> Code:
        if isinstance(node.low, Literal) and isinstance(node.high, Literal):
            code = self._as_number(operand, f"{low.result} <= {{}} <= {high.result}")
            return self._negated(code) if node.negated else code
        at_least, at_most = (
            self._constant(self._reading.compare[">="]),
            self._constant(self._reading.compare["<="]),
        )
        code = self._then((operand, low, high), f"{at_least}({operand.result}, {low.result})")
        code.lines.append(f"if {code.result} is not False:")
        code.lines.append(f" right = {at_most}({operand.result}, {high.result})")
        code.lines.append(f" if right is not True: {code.result} = right")
        code.nesting += 1
        return self._negated(code) if node.negated else code

    def _negated(self, code: Code) -> Code:
        return self._then((code,), f"None if {code.result} is None else not {code.result}")

    def _is_null(self, node: IsNull, operand: Code) -> Code:
        return self._then((operand,), f"{operand.result} is {'not ' if node.negated else ''}None")

    def _like(self, node: Like, operand: Code) -> Code:
        fits, weight = (
            self._constant(compile_like(node.pattern, node.escape)),
            weight_of(node.pattern, node.escape),
        )
        is_counted = self._is_costly and weight > 0
        asked = (
            f"is_found({operand.result}, {fits}, {weight}, document.budget)"
            if is_counted
            else f"is_like({operand.result}, {fits})"
        )
        code = self._then((operand,), asked)
        return self._negated(code) if node.negated else code

    def _in(self, node: In, operand: Code) -> Code:
        code = self._then((operand,), f"is_in({operand.result}, {self._constant(node.values)})")
        return self._negated(code) if node.negated else code

    def _body_test(self, node: BodyTest) -> Code:
        if node.xpath is None:
            return Code("False")
        result = self._name("t")
        return Code(result, [f"{result} = {self._constant(node.xpath.holds)}(document)"])

    def _call(self, node: Call, *arguments: Code) -> Code:
        values = ", ".join([argument.result for argument in arguments])
        return self._then(arguments, f"{self._constant(node.made.call)}({values}, document)")


_EMITTERS: dict[type[Node], Callable[..., Code]] = {
    Literal: _Generator._literal,
    Identifier: _Generator._identifier,
    Unary: _Generator._unary,
    Logic: _Generator._logic,
    Comparison: _Generator._comparison,
    Arithmetic: _Generator._arithmetic,
    Between: _Generator._between,
    IsNull: _Generator._is_null,
    Like: _Generator._like,
    In: _Generator._in,
    BodyTest: _Generator._body_test,
    Call: _Generator._call,
}
