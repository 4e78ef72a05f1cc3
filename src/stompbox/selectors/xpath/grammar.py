"""Tokens of XPath 1.0 -> a compiled expression, by recursive descent (productions of XPath 1.0 are named on the functions).

Decides: what is a legal expression, the types of its parts included, so nothing is found faulty only when a message comes.
`DEPTH` bounds the recursion here and at evaluation.
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches

from stompbox.selectors.steps import STEP, Steps, on_a_stack, result
from stompbox.selectors.xpath.document import XML_NAMESPACE, NodeKind, XmlNode
from stompbox.selectors.xpath.evaluation import (
    AXES,
    Axis,
    Call,
    Chain,
    Constant,
    Converted,
    Expression,
    Logic,
    Negative,
    Path,
    Predicate,
    Step,
    Union,
    XPath,
    operation,
)
from stompbox.selectors.xpath.functions import CONVERSIONS, FUNCTIONS, Function
from stompbox.selectors.xpath.tokens import TOKENS, Lexeme, XPathFault, XPathToken, tokenizing_xpath
from stompbox.selectors.xpath.types import XType

DEPTH = 32
"""Nested parentheses, predicates and calls."""

_LEVELS = (("or",), ("and",), ("=", "!="), ("<", "<=", ">", ">="), ("+", "-"), ("*", "div", "mod"))
_LEVEL = {sign: level for level, signs in enumerate(_LEVELS) for sign in signs}
_OPERATORS = (Lexeme.SYMBOL, Lexeme.NAME)
_NODE_TYPES = ("comment", "text", "processing-instruction", "node")
_OPERAND = "a path, a function, a string or a number"


def compile_xpath(text: str, most: int = TOKENS) -> XPath:
    """Raises XPathFault for what is no XPath 1.0, for variables, prefixes and the namespace axis, and for more than `most` tokens."""
    return result(compiling_xpath(text, most))


def compiling_xpath(text: str, most: int) -> Steps[XPath]:
    """Compiles an expression as `compile_xpath` does, in steps."""
    tokens = yield from tokenizing_xpath(text, most)
    grammar = _Grammar(tokens)
    expression = grammar.whole() if len(tokens) <= STEP else (yield from on_a_stack(grammar.whole_in_steps))
    return XPath(text, expression, len(tokens) - 1)


def _joined(level: int, first: Expression, rest: list[tuple[str, Expression]]) -> Expression:
    """The expression of operators of one level and their operands."""
    if level < 2:
        return Logic((first, *[operand for _, operand in rest]), ends_at=level == 0)
    result = XType.BOOLEAN if level < 4 else XType.NUMBER
    return Chain(first, tuple([(operation(sign), operand) for sign, operand in rest]), result)


class _Grammar:
    def __init__(self, tokens: list[XPathToken]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0
        self._positional = False
        self._stop = len(tokens)  # behind which another step begins
        self._rest: Callable[[], None] = _no_rest

    def whole_in_steps(self, rest: Callable[[], None]) -> Expression:
        """The expression as `whole` says it; `rest` is called between two steps."""
        self._stop, self._rest = STEP, rest
        return self.whole()

    def _take_a_rest(self) -> None:
        self._stop = self._at + STEP
        self._rest()

    def whole(self) -> Expression:
        expression = self._expression()
        if self._token.kind is not Lexeme.END:
            raise self._fault("an operator or the end of the expression")
        return expression

    @property
    def _token(self) -> XPathToken:
        return self._tokens[self._at]

    def _fault(self, expected: str, token: XPathToken | None = None) -> XPathFault:
        token = token or self._token
        return XPathFault(token.offset, str(token), expected)

    def _is(self, *symbols: str) -> bool:
        return self._token.kind is Lexeme.SYMBOL and self._token.text in symbols

    def _take(self, *symbols: str) -> bool:
        if not self._is(*symbols):
            return False
        self._at += 1
        return True

    def _demand(self, symbol: str) -> None:
        if not self._take(symbol):
            raise self._fault(f"'{symbol}'")

    def _followed_by(self, symbol: str) -> bool:
        after = self._tokens[min(self._at + 1, len(self._tokens) - 1)]
        return after.kind is Lexeme.SYMBOL and after.text == symbol

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > DEPTH:
            raise self._fault(f"at most {DEPTH} nested parentheses, predicates and calls")

    # [14] Expr, [21] to [27]: operators, loosest first.

    def _expression(self, level: int = 0) -> Expression:
        """Operands joined by operators of this level or a tighter one."""
        found = self._unary()
        while (at := self._level()) >= level:
            rest: list[tuple[str, Expression]] = []
            while self._level() == at:
                sign = self._token.text
                self._at += 1
                rest.append((sign, self._expression(at + 1)))
            found = _joined(at, found, rest)
        return found

    def _level(self) -> int:
        """How tightly the operator that is next binds, the loosest 0; -1: it is none."""
        token = self._tokens[self._at]
        return _LEVEL.get(token.text, -1) if token.kind in _OPERATORS else -1

    def _unary(self) -> Expression:
        if self._at >= self._stop:
            self._take_a_rest()
        minus = 0
        while self._take("-"):
            minus += 1
        operand = self._union()
        if not minus:
            return operand
        return Negative(operand) if minus % 2 else Negative(Negative(operand))

    def _union(self) -> Expression:
        token = self._token
        operands = [self._path()]
        while self._take("|"):
            operands.append(self._path())
        if len(operands) == 1:
            return operands[0]
        if any(operand.type is not XType.NODES for operand in operands):
            raise XPathFault(token.offset, "a value that is no node-set", "node-sets on both sides of '|'")
        return Union(tuple(operands))

    # [1] LocationPath, [19] PathExpr, [20] FilterExpr

    def _path(self) -> Expression:
        if self._starts_primary():
            return self._filtered()
        if self._take("//"):
            return Path(self._relative([_EVERYWHERE]), absolute=True)
        if self._take("/"):
            return Path(self._relative([]) if self._starts_step() else (), absolute=True)
        return Path(self._relative([]))

    def _starts_primary(self) -> bool:
        if self._token.kind is Lexeme.NAME:
            return self._followed_by("(") and self._token.text not in _NODE_TYPES
        return self._token.kind in (Lexeme.TEXT, Lexeme.NUMBER) or self._is("(", "$")

    def _starts_step(self) -> bool:
        return self._token.kind is Lexeme.NAME or self._is(".", "..", "@", "*")

    def _filtered(self) -> Expression:
        token = self._token
        start = self._primary()
        predicates = self._predicates()
        steps: tuple[Step, ...] = ()
        goes_on = self._is("/", "//")
        if (predicates or goes_on) and start.type is not XType.NODES:
            raise XPathFault(token.offset, start.type.value, "a node-set before '[' or '/'")
        if self._take("//"):
            steps = self._relative([_EVERYWHERE])
        elif self._take("/"):
            steps = self._relative([])
        return Path(steps, start, predicates) if predicates or steps else start

    def _relative(self, steps: list[Step]) -> tuple[Step, ...]:
        _add(steps, self._step())
        while self._is("/", "//"):
            if self._take("//"):
                steps.append(_EVERYWHERE)
            else:
                self._at += 1
            _add(steps, self._step())
        return tuple(steps)

    def _step(self) -> Step:
        if self._at >= self._stop:
            self._take_a_rest()
        if self._take("."):
            return Step(AXES["self"], _any_node, ())
        if self._take(".."):
            return Step(AXES["parent"], _any_node, ())
        axis = self._axis()
        return Step(axis, self._node_test(axis), self._predicates())

    def _axis(self) -> Axis:
        if self._take("@"):
            return AXES["attribute"]
        if self._token.kind is not Lexeme.NAME or not self._followed_by("::"):
            return AXES["child"]
        axis = AXES.get(self._token.text)
        if axis is None:
            raise self._fault(_nearest(self._token.text, AXES, "an axis (the namespace axis is not offered)"))
        self._at += 2
        return axis

    # [7] NodeTest, [37] NameTest, [38] NodeType

    def _node_test(self, axis: Axis) -> Callable[[XmlNode], bool]:
        if self._take("*"):
            return lambda node: node.kind is axis.principal
        if self._token.kind is not Lexeme.NAME:
            raise self._fault(_OPERAND)
        if self._followed_by("("):
            return self._type_test()
        prefix, colon, local = self._token.text.rpartition(":")
        if colon and prefix != "xml":
            raise self._fault(
                "a name without prefix; there are no namespace declarations here, use local-name() and namespace-uri()"
            )
        self._at += 1
        uri = XML_NAMESPACE if colon else ""
        if local == "*":
            return lambda node: node.kind is axis.principal and node.uri == uri
        return lambda node: node.local == local and node.kind is axis.principal and node.uri == uri

    def _type_test(self) -> Callable[[XmlNode], bool]:
        token = self._token
        if token.text not in _NODE_TYPES:
            raise self._fault(_nearest(token.text, _NODE_TYPES, "a node type"))
        self._at += 2
        target = self._token
        named = token.text == "processing-instruction" and target.kind is Lexeme.TEXT
        self._at += named
        self._demand(")")
        if named:
            return lambda node: node.kind is NodeKind.INSTRUCTION and node.local == target.text[1:-1]
        return _TYPE_TESTS[token.text]

    def _predicates(self) -> tuple[Predicate, ...]:
        found: list[Predicate] = []
        outside = self._positional
        while self._is("["):
            self._enter()
            self._at += 1
            self._positional = False
            expression = self._expression()
            found.append(Predicate(expression, self._positional or expression.type is XType.NUMBER))
            self._demand("]")
            self._depth -= 1
        self._positional = outside
        return tuple(found)

    # [15] PrimaryExpr, [16] FunctionCall

    def _primary(self) -> Expression:
        token = self._token
        if self._is("$"):
            raise self._fault(f"{_OPERAND}; there are no variables")
        if token.kind is Lexeme.NAME:
            return self._call()
        if token.kind is Lexeme.SYMBOL:
            self._enter()
            self._at += 1
            expression = self._expression()
            self._demand(")")
            self._depth -= 1
            return expression
        self._at += 1
        if token.kind is Lexeme.TEXT:
            return Constant(token.text[1:-1], XType.TEXT)
        return Constant(float(token.text), XType.NUMBER)

    def _call(self) -> Expression:
        token = self._token
        function = FUNCTIONS.get(token.text)
        if function is None:
            raise self._fault(_nearest(token.text, FUNCTIONS, "a function of XPath 1.0"))
        self._positional = self._positional or function.positional
        self._enter()
        self._at += 2
        arguments = self._arguments(function)
        if not function.accepts(len(arguments)):
            raise self._fault(f"{_arity(function)} in {token.text}()", token)
        self._depth -= 1
        return Call(function.result, function.call, tuple(arguments))

    def _arguments(self, function: Function) -> list[Expression]:
        arguments: list[Expression] = []
        if self._take(")"):
            return arguments
        while True:
            token = self._token
            last = len(function.parameters) - 1
            wanted = function.parameters[min(len(arguments), last)] if last >= 0 else None
            arguments.append(_converted(self._expression(), wanted, token))
            if self._take(")"):
                return arguments
            self._demand(",")


def _converted(argument: Expression, wanted: XType | None, token: XPathToken) -> Expression:
    if wanted is None or argument.type is wanted:
        return argument
    if wanted is XType.NODES:
        raise XPathFault(token.offset, argument.type.value, "a node-set as the argument")
    return Converted(wanted, CONVERSIONS[wanted], argument)


def _arity(function: Function) -> str:
    most = len(function.parameters)
    if function.repeats:
        return f"at least {most} arguments"
    least = most - function.optional
    return f"{least} arguments" if least == most else f"{least} to {most} arguments"


def _nearest(word: str, known: dict[str, Axis] | dict[str, Function] | tuple[str, ...], what: str) -> str:
    near = get_close_matches(word, list(known), 1)
    return f"{what}; the nearest is {near[0]}" if near else what


def _no_rest() -> None:
    pass


def _any_node(node: XmlNode) -> bool:
    return True


_TYPE_TESTS: dict[str, Callable[[XmlNode], bool]] = {
    "node": _any_node,
    "text": lambda node: node.kind is NodeKind.TEXT,
    "comment": lambda node: node.kind is NodeKind.COMMENT,
    "processing-instruction": lambda node: node.kind is NodeKind.INSTRUCTION,
}

_EVERYWHERE = Step(AXES["descendant-or-self"], _any_node, ())
"""What `//` stands for."""


def _add(steps: list[Step], step: Step) -> None:
    """One step more; `//name` becomes one over the descendants, where no predicate asks for a position among siblings."""
    plain = step.axis is AXES["child"] and not any(predicate.positional for predicate in step.predicates)
    if steps and steps[-1] is _EVERYWHERE and plain:
        steps[-1] = Step(AXES["descendant"], step.test, step.predicates)
    else:
        steps.append(step)
