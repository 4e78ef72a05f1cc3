"""What values mean when a selector is evaluated: three values, types, texts read as numbers.

Decides: which text is a number or a boolean, what is compared with what, arithmetic. None is UNKNOWN throughout.
Two readings: `CONVERTING` takes a text for what stands on the other side of a comparison, as ActiveMQ Classic does for STOMP;
`STRICT` never does (`no_convert_string_expressions:`), so a text compared with a number is FALSE.
Does not decide when an operation is called: `codegen` does.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from stompbox.selectors.budget import Budget
from stompbox.selectors.facts import Value

Number = int | float
Truth = bool | None

LONG_MIN, LONG_MAX = -(1 << 63), (1 << 63) - 1
# so many decimal digits a double holds exactly, and reading one takes half the time of reading an integer
_EXACT_DIGITS = 15
_EXACT = 1 << 53  # below this a double is the number itself
# longer texts are read as a double, whose cost does not grow with the square of the length
_INTEGER_LENGTH = 40
_FIRST = frozenset("+-.0123456789")
_LAST = frozenset(".0123456789")
_FREE = 64  # characters of a text that a search costs nothing for
_CHARACTERS_PER_STEP = 64
_BOOLEANS = {"true": True, "false": False}


def value_of(headers: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    """What a message says under these names of a header: the first that is there counts."""
    return next((headers[name] for name in names if name in headers), None)


def number_of_text(text: str) -> Number | None:
    """A decimal number without blanks around it: `21`, `-3`, `21.7`, `.5`, `1e3`. None for all else, `nan`, `inf`, `1_000` included.

    No regular expression: this runs for every message, and Python's float takes only a little more than what is wanted.
    """
    if len(text) <= _EXACT_DIGITS and text.isdecimal() and text.isascii():
        return float(text)
    if text[-1:] not in _LAST or text[0] not in _FIRST or "_" in text or not text.isascii():
        return None
    try:
        number = float(text)
    except ValueError:
        return None
    if -_EXACT < number < _EXACT or len(text) > _INTEGER_LENGTH or not text.lstrip("+-").isdecimal():
        return number
    return _fitted(int(text))


def boolean_of_text(text: str) -> bool | None:
    """`true` and `false` in any case, as Java's Boolean reads them and as the keywords are written."""
    return _BOOLEANS.get(text.lower()) if len(text) <= 5 else None


def _fitted(number: Number) -> Number | None:
    """Integers have 64 bits, what is beyond is a double; what is not a number is UNKNOWN."""
    if isinstance(number, int):
        return number if LONG_MIN <= number <= LONG_MAX else float(number)
    return None if math.isnan(number) else number


def number_converting(value: Value) -> Number | None:
    """The number that stands for `value`, None if there is none."""
    return number_of_text(value) if value.__class__ is str else number_strict(value)


def number_strict(value: Value) -> Number | None:
    """As `number_converting`, for values that are numbers already."""
    return value if isinstance(value, (int, float)) and value.__class__ is not bool else None


def truth_converting(value: Value) -> Truth:
    """A bare header as a condition is `header = TRUE`: other types and other texts are FALSE."""
    if value is None or value.__class__ is bool:
        return value
    return isinstance(value, str) and boolean_of_text(value) is True


def truth_strict(value: Value) -> Truth:
    """The truth of a value as `truth_converting` says it, without reading texts."""
    return None if value is None else value is True


def aligned_strict(left: Value, right: Value) -> tuple[Any, Any] | None:
    """Both sides if they can be compared, else None."""
    left_type, right_type = left.__class__, right.__class__
    if left_type is right_type or (left_type in (int, float) and right_type in (int, float)):
        return left, right
    return None


def aligned_converting(left: Value, right: Value) -> tuple[Any, Any] | None:
    """As `aligned_strict`; a text beside another type is read as that type first."""
    if isinstance(left, str) is not isinstance(right, str):
        if isinstance(left, str):
            left = _read_like(left, right)
        elif isinstance(right, str):
            right = _read_like(right, left)
        if left is None or right is None:
            return None
    return aligned_strict(left, right)


def _read_like(text: str, other: Value) -> Value:
    return boolean_of_text(text) if isinstance(other, bool) else number_of_text(text)


Aligned = Callable[[Value, Value], tuple[Any, Any] | None]
Comparing = Callable[[Value, Value], Truth]
Calculating = Callable[[Value, Value], Number | None]


def _equality(compare: Callable[[Any, Any], bool], aligned: Aligned) -> Comparing:
    def compared(left: Value, right: Value) -> Truth:
        if left is None or right is None:
            return None
        pair = aligned(left, right)
        return pair is not None and compare(*pair)  # JMS 1.1, 3.8.1.2: different types are FALSE, for <> too

    return compared


def _order(compare: Callable[[Any, Any], bool], aligned: Aligned) -> Comparing:
    def compared(left: Value, right: Value) -> Truth:
        if left is None or right is None:
            return None
        pair = aligned(left, right)
        return pair is not None and pair[0].__class__ is not bool and compare(*pair)

    return compared


def _arithmetic(
    calculate: Callable[[Number, Number], Number], number: Callable[[Value], Number | None]
) -> Calculating:
    def calculated(left: Value, right: Value) -> Number | None:
        a, b = number(left), number(right)
        if a is None or b is None:
            return None
        try:
            return _fitted(calculate(a, b))
        except (ZeroDivisionError, OverflowError, ValueError):
            return None

    return calculated


def _remainder(left: Number, right: Number) -> Number:
    """The sign of the dividend, as SQL and Java have it."""
    if isinstance(left, int) and isinstance(right, int):
        rest = abs(left) % abs(right)
        return rest if left >= 0 else -rest
    return math.fmod(left, right)


def is_in(value: Value, values: frozenset[str]) -> Truth:
    """IN looks at texts only: anything else is UNKNOWN."""
    return value in values if value.__class__ is str else None


def is_like(value: Value, fits: Callable[[str], bool]) -> Truth:
    """LIKE looks at texts only: anything else is UNKNOWN."""
    return fits(value) if value.__class__ is str else None


def is_found(value: Value, fits: Callable[..., bool], each: int, budget: Budget) -> Truth:
    """Whether a pattern is found in a text, which costs `each` steps for 64 characters; UNKNOWN when they are used up."""
    if not isinstance(value, str):
        return None
    if len(value) <= _FREE:
        return fits(value)
    steps = each * len(value) // _CHARACTERS_PER_STEP
    if each > 1 and budget.affords(steps):  # a part with `_`: it takes its steps as it goes
        return fits(value, budget.spend)
    return fits(value) if budget.spend(steps) else None


@dataclass(frozen=True, slots=True)
class Reading:
    """The operations of one of the two readings, by operator."""

    number: Callable[[Value], Number | None]
    truth: Callable[[Value], Truth]
    compare: dict[str, Comparing]
    calculate: dict[str, Calculating]


_EQUALITIES = {"=": operator.eq, "<>": operator.ne}
_ORDERS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_CALCULATIONS: dict[str, Callable[[Any, Any], Number]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "%": _remainder,
}


def _reading(
    number: Callable[[Value], Number | None], truth: Callable[[Value], Truth], aligned: Aligned
) -> Reading:
    equalities = {sign: _equality(compare, aligned) for sign, compare in _EQUALITIES.items()}
    orders = {sign: _order(compare, aligned) for sign, compare in _ORDERS.items()}
    calculate = {sign: _arithmetic(calculation, number) for sign, calculation in _CALCULATIONS.items()}
    return Reading(number, truth, equalities | orders, calculate)


CONVERTING = _reading(number_converting, truth_converting, aligned_converting)
STRICT = _reading(number_strict, truth_strict, aligned_strict)
