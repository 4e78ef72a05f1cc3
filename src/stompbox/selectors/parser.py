"""Tokens -> tree, by operator precedence with two explicit stacks.

Decides: the grammar and what is refused for its type. Loosest first: OR, AND, NOT, then = <> IS, then the other comparisons,
then + -, then * / %, then signs.
NOT binds as SQL-92 has it (`NOT color = 'red'` is `NOT (color = 'red')`), not as Artemis and ActiveMQ Classic do.
Does not decide what anything means at run time. There is no recursion here, so no input can exhaust the interpreter's stack.
"""

from __future__ import annotations

from dataclasses import dataclass

from stompbox.errors import SelectorError
from stompbox.selectors.functions import SIGNATURES, BadPattern, Made, NoRegex, Parameter, made
from stompbox.selectors.like import searches_of
from stompbox.selectors.limits import SelectorLimits
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
from stompbox.selectors.refusal import FUNCTION, LIMIT, NUMBER, SYNTAX, TYPE, XPATH, refusal
from stompbox.selectors.steps import STEP, Steps, result
from stompbox.selectors.tokens import Token, TokenKind
from stompbox.selectors.xpath import XPathFault, compiling_xpath

OPEN, OR, AND, NOT, EQUALITY, ORDER, SUM, PRODUCT, SIGN = range(9)
BINARY = {
    "OR": OR,
    "AND": AND,
    "=": EQUALITY,
    "<>": EQUALITY,
    "<": ORDER,
    "<=": ORDER,
    ">": ORDER,
    ">=": ORDER,
}
BINARY |= {"+": SUM, "-": SUM, "*": PRODUCT, "/": PRODUCT, "%": PRODUCT}
LONG_MAX = (1 << 63) - 1

_CALLS = 100  # nested functions, whatever the limit of depth is: each is a call of this parser
_OPERAND = "a header name, a literal or ("
_OPERATOR = "an operator or the end"
_TERMS = (TokenKind.NAME, TokenKind.TEXT, TokenKind.NUMBER)
_WORDS = {"TRUE": True, "FALSE": False, "NULL": None}


@dataclass(slots=True)
class Pending:
    """An operator whose right operand is not complete yet. `low` is the first bound of a BETWEEN once its AND has come."""

    word: str
    binding: int
    position: int
    negated: bool = False
    low: Node | None = None


def parse(tokens: list[Token], limits: SelectorLimits) -> Node:
    """The tree of a whole selector; its root is a condition. Raises SelectorError."""
    return result(parsing(tokens, limits))


def parsing(tokens: list[Token], limits: SelectorLimits) -> Steps[Node]:
    """Parses the tokens of a selector as `parse` does, in steps."""
    return _Parser(tokens, limits).parsing()


class _Parser:
    def __init__(self, tokens: list[Token], limits: SelectorLimits) -> None:
        self._tokens = tokens
        self._at = 0
        self._limits = limits
        self._depth = 0
        # tokens within XPATHs and parts of LIKEs, beyond one for each, which its text is
        self._inner_terms = 0
        self._outer_terms = sum([token.kind in _TERMS for token in tokens])
        self._xpath: tuple[Token, Token] | None = None  # that was found, and is still to be read
        self._operands: list[Node] = []
        self._pending: list[Pending] = []

    def parsing(self) -> Steps[Node]:
        stop = STEP
        while True:
            if self._at >= stop:
                yield
                stop = self._at + STEP
            self._read_operand()
            if self._xpath is not None:
                yield from self._reading_xpath(*self._xpath)
            while not self._read_operator():
                pass
            if self._token.kind is TokenKind.END:
                return self._finish()
            self._at += 1

    @property
    def _token(self) -> Token:
        return self._tokens[self._at]

    def _next(self) -> Token:
        token = self._tokens[self._at]
        self._at += 1
        return token

    def _unexpected(self, expected: str, token: Token | None = None) -> SelectorError:
        token = token or self._token
        return refusal(SYNTAX, token.position, str(token), expected)

    def _finish(self) -> Node:
        self._reduce(OR)
        if self._pending:
            raise self._unexpected(f") for the ( at position {self._pending[-1].position}")
        return _condition(self._operands.pop())

    # Where an operand is due.

    def _read_operand(self) -> None:
        while True:
            token = self._next()
            if token.word == "(" and token.kind is TokenKind.SYMBOL:
                self._open("(", OPEN, token)
            elif token.word == "NOT" and token.kind is TokenKind.KEYWORD:
                self._open_not(token)
            elif token.word in ("+", "-") and token.kind is TokenKind.SYMBOL:
                self._open(token.word, SIGN, token)
            else:
                self._operands.append(self._primary(token))
                return

    def _open(self, word: str, binding: int, token: Token) -> None:
        self._depth += 1
        if self._depth > self._limits.depth:
            most = self._limits.depth
            expected = f"at most {most} nested parentheses, NOT and signs (maxSelectorDepth)"
            raise refusal(LIMIT, token.position, f"{token}, nested {most + 1} deep", expected)
        self._pending.append(Pending(word, binding, token.position))

    def _open_not(self, token: Token) -> None:
        # SQL-92, search condition: NOT stands before a whole condition, not behind an operator that binds tighter.
        if self._pending and self._pending[-1].binding > NOT:
            raise self._unexpected(
                f"{_OPERAND}; NOT behind {self._pending[-1].word} needs parentheses", token
            )
        self._open("NOT", NOT, token)

    def _primary(self, token: Token) -> Node:
        if token.kind is TokenKind.NAME:
            return self._identifier(token)
        if token.kind is TokenKind.TEXT:
            return Literal(token.position, token.value)
        if token.kind is TokenKind.NUMBER:
            return Literal(token.position, self._checked_number(token))
        if token.word in _WORDS:
            return Literal(token.position, _WORDS[token.word])
        if token.word in ("XPATH", "XQUERY"):
            return self._body_test(token)
        if token.word == "=" and self._tokens[self._at - 2].word == "=":
            raise self._unexpected(f"{_OPERAND}; equality is written =", token)
        raise self._unexpected(_OPERAND, token)

    def _identifier(self, token: Token) -> Node:
        if self._token.word != "(" or self._token.kind is not TokenKind.SYMBOL:
            return Identifier(token.position, token.word)
        if token.word.upper() in ("SPLIT", "MAKELIST"):
            raise refusal(
                FUNCTION,
                token.position,
                f"the list {token}",
                "a condition or a value; a list is the first argument of INLIST",
            )
        return self._call(token, 1)

    def _call(self, token: Token, depth: int) -> Call:
        name = token.word.upper()
        signature = SIGNATURES.get(name)
        if signature is None:
            expected = f"a header name, or one of the functions {', '.join(SIGNATURES)}"
            raise refusal(FUNCTION, token.position, f"the function {token}", expected)
        if depth > min(self._limits.depth, _CALLS):
            expected = f"at most {min(self._limits.depth, _CALLS)} nested functions (maxSelectorDepth)"
            raise refusal(LIMIT, token.position, f"{token}, nested {depth} deep", expected)
        arguments: list[Node] = []
        literals: list[str] = []
        parameters = list(signature.parameters)
        while (
            (not arguments and not literals) or parameters or (signature.repeats and self._token.word == ",")
        ):
            self._symbol("," if arguments or literals else "(")
            parameter = parameters.pop(0) if parameters else signature.parameters[-1]
            if parameter in (Parameter.PATTERN, Parameter.TEXT):
                literals.append(str(self._text(parameter.value).value))
            else:
                arguments.append(self._argument(parameter, depth))
        self._symbol(")")
        return Call(
            token.position, tuple(arguments), signature.result is True, self._made(name, literals, token)
        )

    def _argument(self, parameter: Parameter, depth: int) -> Node:
        token = self._next()
        is_call = (
            token.kind is TokenKind.NAME and self._token.word == "(" and self._token.kind is TokenKind.SYMBOL
        )
        wanted = ("SPLIT", "MAKELIST") if parameter is Parameter.LIST else ("REPLACE",)
        if is_call and token.word.upper() in wanted:
            return self._call(token, depth + 1)
        if parameter is Parameter.VALUE and not is_call:
            if token.kind is TokenKind.NAME:
                return Identifier(token.position, token.word)
            if token.kind in (TokenKind.TEXT, TokenKind.NUMBER):
                return Literal(token.position, self._checked_number(token))
        raise self._unexpected(parameter.value, token)

    def _made(self, name: str, literals: list[str], token: Token) -> Made:
        try:
            found = made(name, literals)
        except NoRegex:
            expected = (
                "the package google-re2, which the broker does not have (pip install 'stompbox[regex]')"
            )
            raise refusal(FUNCTION, token.position, f"the function {token}", expected) from None
        except BadPattern as fault:
            raise refusal(FUNCTION, token.position, f"the function {token}", str(fault)) from None
        self._inner_terms += found.terms
        if found.terms and self._terms_left() <= 0:
            raise self._too_many(token.position, f"a pattern as large as {found.terms} of them")
        return found

    def _checked_number(self, token: Token) -> str | int | float:
        # -2**63 has no positive twin
        least = bool(self._pending) and self._pending[-1].word == "-" and self._pending[-1].binding == SIGN
        if isinstance(token.value, int) and token.value > LONG_MAX + least:
            raise refusal(NUMBER, token.position, str(token), f"an integer of 64 bits, at most {LONG_MAX}")
        return token.value

    def _body_test(self, word: Token) -> BodyTest:
        text = self._text("an expression in single quotes")
        if word.word == "XPATH":
            self._xpath = word, text
        return BodyTest(word.position, None)

    def _reading_xpath(self, word: Token, text: Token) -> Steps[None]:
        """Puts the XPATH that was found last in the place that is kept for it."""
        self._xpath = None
        expression = str(text.value)
        try:
            xpath = yield from compiling_xpath(expression, max(0, self._terms_left()))
        except XPathFault as fault:
            # A quote within the expression was doubled in the selector.
            position = text.position + 1 + fault.offset + expression.count("'", 0, fault.offset)
            if fault.is_too_long:
                raise self._too_many(position, "one token of XPATH more") from None
            raise refusal(XPATH, position, fault.found, f"{fault.expected} (XPath)") from None
        self._inner_terms += xpath.tokens - 1
        self._operands[-1] = BodyTest(word.position, xpath)

    def _terms_left(self) -> int:
        """Tokens that one XPATH more may have, its text being counted already."""
        return self._limits.terms + 1 - self._outer_terms - self._inner_terms

    def _too_many(self, position: int, found: str) -> SelectorError:
        what = "names, literals, tokens of XPATH, parts of LIKE with a _ inside, and what patterns are worth"
        expected = f"at most {self._limits.terms} {what} (maxSelectorTerms)"
        return refusal(LIMIT, position, found, expected)

    def _text(self, expected: str) -> Token:
        if self._token.kind is not TokenKind.TEXT:
            raise self._unexpected(expected)
        return self._next()

    # Where an operator is due. True: an operand must follow (or the end is reached).

    def _read_operator(self) -> bool:
        token = self._token
        if token.kind is TokenKind.END:
            return True
        if token.kind is TokenKind.SYMBOL and token.word == ")":
            self._close(token)
            return False
        if token.kind is TokenKind.KEYWORD and token.word in ("IS", "NOT", "LIKE", "IN", "BETWEEN"):
            return self._read_predicate(token)
        if token.kind not in (TokenKind.SYMBOL, TokenKind.KEYWORD) or token.word not in BINARY:
            raise self._unexpected(_OPERATOR)
        self._binary(token)
        return True

    def _binary(self, token: Token) -> None:
        binding = BINARY[token.word]
        if token.word == "AND":
            self._reduce(SUM)
            if self._pending and self._pending[-1].word == "BETWEEN" and self._pending[-1].low is None:
                self._pending[-1].low = self._operands.pop()
                return
        self._reduce(binding)
        self._pending.append(Pending(token.word, binding, token.position))

    def _close(self, token: Token) -> None:
        self._reduce(OR)
        if not self._pending:
            raise self._unexpected(_OPERATOR, token)
        self._pending.pop()
        self._depth -= 1
        self._at += 1

    def _read_predicate(self, token: Token) -> bool:
        if token.word == "IS":
            self._is_null()
            return False
        negated = token.word == "NOT"
        if negated:
            self._at += 1
        word = self._token
        if word.kind is not TokenKind.KEYWORD or word.word not in ("LIKE", "IN", "BETWEEN"):
            raise self._unexpected("LIKE, IN or BETWEEN behind this NOT")
        self._reduce(ORDER)
        if word.word == "BETWEEN":
            self._pending.append(Pending("BETWEEN", ORDER, word.position, negated=negated))
            return True
        self._at += 1
        operand = self._operands.pop()
        self._operands.append(
            self._like(operand, negated=negated)
            if word.word == "LIKE"
            else self._in(operand, negated=negated)
        )
        return False

    def _is_null(self) -> None:
        self._reduce(EQUALITY)
        self._at += 1
        negated = self._token.word == "NOT"
        if negated:
            self._at += 1
        if self._token.word != "NULL" or self._token.kind is not TokenKind.KEYWORD:
            raise self._unexpected("NULL" if negated else "NULL or NOT NULL")
        self._at += 1
        operand = self._operands.pop()
        self._operands.append(IsNull(operand.position, operand, negated))

    def _like(self, operand: Node, *, negated: bool) -> Like:
        token = self._text("a pattern in single quotes")
        pattern, escape = str(token.value), self._escape()
        if escape and (len(pattern) - len(pattern.rstrip(escape))) % 2:
            # SQL-92, 8.5: an invalid escape sequence
            raise self._unexpected("a pattern with a character behind its last escape character", token)
        self._inner_terms += max(0, searches_of(pattern, escape) - 1)
        if self._inner_terms and self._terms_left() <= 0:
            raise self._too_many(token.position, f"a pattern with {searches_of(pattern, escape)} such parts")
        return Like(operand.position, operand, negated, pattern, escape)

    def _escape(self) -> str | None:
        if self._token.word != "ESCAPE" or self._token.kind is not TokenKind.KEYWORD:
            return None
        self._at += 1
        token = self._text("one character in single quotes")
        if len(str(token.value)) != 1:
            raise self._unexpected("one character in single quotes", token)
        return str(token.value)

    def _in(self, operand: Node, *, negated: bool) -> In:
        if not isinstance(operand, Identifier):  # JMS 1.1, 3.8.1.1: identifier [NOT] IN (...)
            raise refusal(TYPE, operand.position, operand.kind.value, "a header name on the left of IN")
        self._symbol("(")
        values = [str(self._text("a text in single quotes").value)]
        while self._token.word == "," and self._token.kind is TokenKind.SYMBOL:
            self._at += 1
            values.append(str(self._text("a text in single quotes").value))
        self._symbol(")")
        return In(operand.position, operand, negated, frozenset(values))

    def _symbol(self, symbol: str) -> None:
        if self._token.kind is not TokenKind.SYMBOL or self._token.word != symbol:
            raise self._unexpected(f", or {symbol}" if symbol == ")" else symbol)
        self._at += 1

    # Completing operators.

    def _reduce(self, binding: int) -> None:
        """Completes every pending operator that binds at least as tight."""
        while self._pending and self._pending[-1].binding >= binding:
            self._complete(self._pending.pop())

    def _complete(self, pending: Pending) -> None:
        right = self._operands.pop()
        if pending.word == "BETWEEN":
            self._operands.append(self._between(pending, right))
        elif pending.binding in (NOT, SIGN):
            self._depth -= 1
            self._operands.append(_unary(pending, right))
        else:
            self._operands.append(_binary(self._operands.pop(), pending, right))

    def _between(self, pending: Pending, high: Node) -> Between:
        if pending.low is None:
            raise self._unexpected(f"AND for the BETWEEN at position {pending.position}")
        operand = self._operands.pop()
        for node in (operand, pending.low, high):
            _check_orderable(node, "BETWEEN")
        return Between(operand.position, operand, pending.low, high, pending.negated)


def _unary(pending: Pending, operand: Node) -> Node:
    if pending.word == "NOT":
        return Unary(pending.position, "NOT", _condition(operand))
    if (
        isinstance(operand, Literal)
        and isinstance(operand.value, (int, float))
        and not isinstance(operand.value, bool)
    ):
        return Literal(pending.position, -operand.value if pending.word == "-" else operand.value)
    _check_calculable(operand, pending.word)
    return Unary(pending.position, pending.word, operand)


def _binary(left: Node, pending: Pending, right: Node) -> Node:
    position, word = left.position, pending.word
    if pending.binding in (OR, AND):
        return Logic(position, _condition(left), word, _condition(right))
    if pending.binding in (SUM, PRODUCT):
        _check_calculable(left, word)
        _check_calculable(right, word)
        return Arithmetic(position, left, word, right)
    if pending.binding == ORDER:
        _check_orderable(left, word)
        _check_orderable(right, word)
    else:
        _check_equatable(left, right, word)
    return Comparison(position, left, word, right)


def _condition(node: Node) -> Node:
    if node.kind in (ValueKind.TEXT, ValueKind.NUMBER):
        raise refusal(TYPE, node.position, node.kind.value, "a condition, such as a comparison")
    return node


def _check_orderable(node: Node, word: str) -> None:
    if node.kind not in (ValueKind.NUMBER, ValueKind.HEADER):
        raise refusal(TYPE, node.position, node.kind.value, f"a number or a header name for {word}")


def _check_calculable(node: Node, word: str) -> None:
    if node.kind is ValueKind.CONDITION:
        raise refusal(TYPE, node.position, node.kind.value, f"a number or a header name for {word}")


def _check_equatable(left: Node, right: Node, word: str) -> None:
    for node, other in ((left, right), (right, left)):
        if node.kind is ValueKind.NULL:
            raise refusal(
                TYPE, node.position, "NULL", f"a value for {word}; a missing header is asked for with IS NULL"
            )
        if node.kind is ValueKind.CONDITION and other.kind is ValueKind.NUMBER:
            raise refusal(
                TYPE,
                right.position,
                right.kind.value,
                f"{left.kind.value} like the left side of {word}, or a header name",
            )
