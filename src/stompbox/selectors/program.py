"""Tree -> a list of instructions and the loop that runs them, for selectors that are too large to become Python code.

Python's compiler takes 20 us for each node of a selector, this 1 us; in turn a large selector takes two to three times as long for a
message. What an instruction does is what the code that `codegen` makes would do: both call `values`, `like` and `xpath`.

A program runs on a stack: LOAD puts a value on it, ONE, TWO, THREE and CALL replace so many values on top of it by what they make of
them, and JUMP goes on at its target when the top is what it asks for (the right side of AND and OR is left out where the left side
decides). There is no recursion, neither here nor in a running selector, so trees may be as high as the selector is long.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

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
from stompbox.selectors.steps import STEP, Steps
from stompbox.selectors.values import Reading, Truth, is_found, is_in, is_like
from stompbox.selectors.xpath import Document

Headers = Mapping[str, Value]
Load = Callable[[Headers, Headers, Document | None], Any]
Test = Callable[[Value, Document | None], Truth]
# what it does, with what (JUMP: the value it asks for), where a JUMP goes, how many a CALL takes
Instruction = tuple[int, Any, int]

LOAD: Final = 0
ONE: Final = 1
TWO: Final = 2
THREE: Final = 3
JUMP: Final = 4
CALL: Final = 5


def assembling(nodes: list[Node], reading: Reading, *, is_costly: bool) -> Steps[Load]:
    """The function (headers, facts, document) -> True, False or None of a checked tree, made in steps; see codegen.generating."""
    program = yield from _Assembler(reading, is_costly=is_costly).program(nodes)
    return _runner(program)


def _runner(program: list[Instruction]) -> Load:
    end = len(program)

    def run(headers: Headers, facts: Headers, document: Document | None) -> Any:
        stack: list[Any] = []
        at = 0
        while at < end:
            kind, operate, target = program[at]
            at += 1
            if kind == LOAD:
                stack.append(operate(headers, facts, document))
            elif kind == JUMP:
                if stack[-1] is operate:
                    at = target
            elif kind == TWO:
                right = stack.pop()
                stack[-1] = operate(stack[-1], right)
            elif kind == ONE:
                stack[-1] = operate(stack[-1])
            elif kind == CALL:
                stack[-target:] = [operate(*stack[-target:], document)]
            else:
                high, low = stack.pop(), stack.pop()
                stack[-1] = operate(stack[-1], low, high)
        return stack[0]

    return run


class _Assembler:
    def __init__(self, reading: Reading, *, is_costly: bool) -> None:
        self._reading = reading
        self._is_costly = is_costly
        self._program: list[Instruction] = []

    def program(self, nodes: list[Node]) -> Steps[list[Instruction]]:
        left_of: dict[int, Logic] = {}
        fused: set[int] = set()
        for number, node in enumerate(nodes):
            if number % STEP == 0:
                yield
            if isinstance(node, Logic):
                left_of[id(node.left)] = node
            elif _is_test_of_a_header(node):
                fused.update(map(id, node.operands))
        jumps: dict[int, int] = {}  # by AND and OR, where the program leaves its right side out
        for number, node in enumerate(nodes):
            if number % STEP == 0:
                yield
            if id(node) in fused:
                continue
            self._emit(node, jumps)
            logic = left_of.get(id(node))
            if logic is not None:
                self._truth_of(node)
                jumps[id(logic)] = len(self._program)
                self._add(JUMP, logic.operator == "OR")
        self._truth_of(nodes[-1])
        _shorten(self._program)
        return self._program

    def _add(self, kind: int, operate: object) -> None:
        self._program.append((kind, operate, 0))

    def _truth_of(self, node: Node) -> None:
        if node.kind is ValueKind.HEADER:
            self._add(ONE, self._reading.truth)

    def _emit(self, node: Node, jumps: dict[int, int]) -> None:
        if isinstance(node, Logic):
            self._truth_of(node.right)
            self._add(TWO, _either if node.operator == "OR" else _both)
            jump = jumps.pop(id(node))
            self._program[jump] = (JUMP, self._program[jump][1], len(self._program))
        elif _is_test_of_a_header(node):
            self._add(LOAD, _tested(_header(node.operands[0]), self._test(node)))
        elif isinstance(node, Literal):
            self._add(LOAD, _constant(node.value))
        elif isinstance(node, Identifier):
            self._add(LOAD, _header(node))
        elif isinstance(node, Call):
            self._program.append((CALL, node.made.call, len(node.arguments)))
        elif isinstance(node, BodyTest):
            self._add(LOAD, _constant(False) if node.xpath is None else _body(node.xpath.holds))
        else:
            self._operation(node)

    def _operation(self, node: Node) -> None:
        reading = self._reading
        if isinstance(node, Comparison):
            self._add(TWO, reading.compare[node.operator])
        elif isinstance(node, Arithmetic):
            self._add(TWO, reading.calculate[node.operator])
        elif isinstance(node, Between):
            self._add(THREE, _between(reading))
            if node.negated:
                self._add(ONE, _negation)
        elif isinstance(node, Unary) and node.operator == "NOT":
            self._truth_of(node.operand)
            self._add(ONE, _negation)
        elif isinstance(node, Unary):
            self._add(ONE, _negative(reading) if node.operator == "-" else reading.number)
        else:  # of what is no header, so no text of a message is searched
            test = self._test(node)
            self._add(ONE, lambda value: test(value, None))

    def _test(self, node: Node) -> Test:
        """The function that is asked about one value."""
        if isinstance(node, IsNull):
            return _is_null if not node.negated else _is_not_null
        if isinstance(node, In):
            values = node.values
            return (
                _negated(lambda value, document: is_in(value, values))
                if node.negated
                else lambda value, document: is_in(value, values)
            )
        if isinstance(node, Like):
            found = self._like(node)
            return _negated(found) if node.negated else found
        assert isinstance(node, Comparison) and isinstance(node.right, Literal)
        compare, wanted = self._reading.compare[node.operator], node.right.value
        return lambda value, document: compare(value, wanted)

    def _like(self, node: Like) -> Test:
        fits, weight = compile_like(node.pattern, node.escape), weight_of(node.pattern, node.escape)
        if not self._is_costly or not weight:
            return lambda value, document: is_like(value, fits)
        return lambda value, document: (
            is_like(value, fits) if document is None else is_found(value, fits, weight, document.budget)
        )


def _is_test_of_a_header(node: Node) -> bool:
    """Then it is one instruction with its operand: most of a large selector is such."""
    if isinstance(node, Comparison):
        return isinstance(node.left, Identifier) and isinstance(node.right, Literal)
    return isinstance(node, (IsNull, In, Like)) and isinstance(node.operand, Identifier)


def _tested(read: Load, test: Test) -> Load:
    return lambda headers, facts, document: test(read(headers, facts, document), document)


def _header(node: Node) -> Load:
    assert isinstance(node, Identifier)
    name, fact = node.name, BY_SPECIAL_NAME.get(node.name)
    if fact is None:
        return lambda headers, facts, document: headers.get(name)
    known, words, fallback = fact.name, WORDS.get(name), fact.fallback

    def read(headers: Headers, facts: Headers, document: Document | None) -> Value:
        value = facts.get(known)
        if words is not None and isinstance(value, bool):
            return words[value]
        if value is None:
            value = headers.get(name)
        return headers.get(fallback) if value is None and fallback is not None else value

    return read


def _constant(value: Value) -> Load:
    return lambda headers, facts, document: value


def _body(holds: Callable[[Document | None], Truth]) -> Load:
    return lambda headers, facts, document: holds(document)


def _either(left: Truth, right: Truth) -> Truth:
    """The value of an OR whose left side was not TRUE."""
    return left if right is False else right


def _both(left: Truth, right: Truth) -> Truth:
    """The value of an AND whose left side was not FALSE."""
    return left if right is True else right


def _negation(value: Truth) -> Truth:
    return None if value is None else not value


def _negated(test: Test) -> Test:
    return lambda value, document: _negation(test(value, document))


def _is_null(value: Value, document: Document | None) -> Truth:
    return value is None


def _is_not_null(value: Value, document: Document | None) -> Truth:
    return value is not None


def _negative(reading: Reading) -> Callable[[Value], Value]:
    minus = reading.calculate["-"]
    return lambda value: minus(0, value)


def _between(reading: Reading) -> Callable[[Value, Value, Value], Truth]:
    at_least, at_most = reading.compare[">="], reading.compare["<="]

    def between(value: Value, low: Value, high: Value) -> Truth:
        truth = at_least(value, low)
        return truth if truth is False else _both(truth, at_most(value, high))

    return between


def _shorten(program: list[Instruction]) -> None:
    """A jump to a jump that asks the same goes on with that one: a long OR ends at once behind its first TRUE."""
    for at in range(len(program) - 1, -1, -1):
        kind, asked, target = program[at]
        if kind == JUMP and target < len(program):
            then = program[target]
            if then[0] == JUMP and then[1] is asked:
                program[at] = (JUMP, asked, then[2])
