"""A compiled selector, and the way from text to it.

Decides: the public face of this room, and what a selector tells about itself (what it reads, what it costs, whether a verdict may be kept).
Does not decide who may use a selector or what becomes of a message.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from functools import partial
from itertools import count
from sys import getsizeof
from typing import TYPE_CHECKING, Final

from stompbox.selectors.budget import STEPS, Budget
from stompbox.selectors.facts import BY_SPECIAL_NAME, PER_MESSAGE, Value
from stompbox.selectors.limits import SelectorLimits

if TYPE_CHECKING:  # the compiler is loaded with the first selector: most brokers start without one
    from stompbox.selectors.codegen import Compiled
    from stompbox.selectors.nodes import Node

_NUMBERS: Final = count()
_LONG = 64 << 10  # characters of a header, as long as it may be when nobody says otherwise
_ASKED = 10  # steps that it takes to ask at all
_SIZE = 2_000  # octets that it takes, beside those for the nodes of its tree


class Selector:
    """A condition on messages. Made by `compile_selector`; immutable, cheap to evaluate, picklable by its text.

    text: as given.
    names: identifiers it reads, special names too.
    facts: canonical facts it reads (`facts.FACT_TABLE`).
    headers: headers its verdict can depend on: the names, and those that the facts it reads are derived from.
    needs_body: it has an XPATH.
    key: headers, the first that is there counts, and the text that this one must be, or the selector takes nothing; None: no such rule.
    bounds: the same with two numbers, between which or at which it must be.
    steps: what it costs to ask it about one message, XPATH and LIKE apart; about the terms that it has.
    is_costly: its XPATHs, LIKEs and functions have a budget for each message (budget.py).
    most_steps: that it may cost with these.
    size: octets of memory, about, its text and its compiled form together.
    number: no other has it while this process runs, and who remembers the number does not keep the selector.
    """

    __slots__ = (
        "__weakref__", "_conversion", "_hash", "_limits", "_run", "bounds", "facts", "headers", "is_costly", "key", "most_steps", "names",
        "needs_body", "number", "size", "steps", "text",
    )  # fmt: skip

    def __init__(
        self, text: str, root: Node, *, conversion: bool, dialect_conversion: bool, limits: SelectorLimits
    ) -> None:
        from stompbox.selectors.codegen import generate, size_of
        from stompbox.selectors.keys import bounds_of, key_of
        from stompbox.selectors.like import weight_of
        from stompbox.selectors.nodes import BodyTest, Call, Identifier, Like, in_order_of_evaluation

        nodes = in_order_of_evaluation(root)
        facts = [
            BY_SPECIAL_NAME[node.name]
            for node in nodes
            if isinstance(node, Identifier) and node.name in BY_SPECIAL_NAME
        ]
        self.text = text
        self.names = frozenset(node.name for node in nodes if isinstance(node, Identifier))
        self.facts = frozenset(fact.name for fact in facts)
        self.headers = self.names.union(*(fact.headers for fact in facts))
        self.needs_body = any(isinstance(node, BodyTest) and node.xpath is not None for node in nodes)
        self.steps = (
            _ASKED + len(nodes) + sum([node.pattern.count("%") for node in nodes if isinstance(node, Like)])
        )
        self.key = key_of(root)
        self.bounds = bounds_of(root)
        searched = sum(weight_of(node.pattern, node.escape) for node in nodes if isinstance(node, Like))
        searched += sum(node.made.weight for node in nodes if isinstance(node, Call))
        self.is_costly = self.needs_body or searched * _LONG // 64 > STEPS // 2
        self.most_steps = self.steps + (STEPS if self.is_costly else 0)
        self.size = _SIZE + getsizeof(text) + sum(map(size_of, nodes))
        self.number = next(_NUMBERS)
        self._run: Compiled = generate(nodes, conversion=dialect_conversion, is_costly=self.is_costly)
        self._conversion = conversion
        self._limits = limits
        self._hash = hash(self._key())

    @property
    def conversion(self) -> bool:
        """As it was given to `compile_selector`."""
        return self._conversion

    @property
    def is_per_message(self) -> bool:
        """Whether two messages with equal headers may get different verdicts: it reads the body or a fact of `PER_MESSAGE`."""
        return self.needs_body or not PER_MESSAGE.isdisjoint(self.facts)

    def matches(
        self,
        headers: Mapping[str, Value],
        facts: Mapping[str, Value],
        body: Callable[[], bytes] | None = None,
        budget: Budget | None = None,
    ) -> bool:
        """Whether the condition is TRUE (neither FALSE nor UNKNOWN) for a message. Never raises.

        headers: the message's headers, decoded, of repeated ones the first; texts, though typed values are understood.
        facts: what the broker knows, by canonical name, typed as `facts.FACT_TABLE` says; absent or None: the header of the special name.
        body: called at most once, and only where `needs_body`; None: there is no body to look at, XPATH is UNKNOWN.
        budget: of what `is_costly`; what comes when it is used up is UNKNOWN, too.
        """
        if self.is_costly:
            from stompbox.selectors.xpath import Document

            return self._run(headers, facts, Document(body, self._limits.xpath_size, budget)) is True
        return self._run(headers, facts, None) is True

    def __repr__(self) -> str:
        return f"Selector({self.text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Selector) and self._key() == other._key()

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Callable[[str], Selector], tuple[str]]:
        return partial(compile_selector, conversion=self._conversion, limits=self._limits), (self.text,)

    def _key(self) -> tuple[str, bool, SelectorLimits]:
        return self.text, self._conversion, self._limits


def compile_selector(
    text: str,
    *,
    conversion: bool = True,
    limits: SelectorLimits = SelectorLimits(),  # noqa: B008 - a frozen value
) -> Selector:
    """The selector of a text. Who gets the same texts again and again asks a SelectorCache (cache.py).

    conversion: a text header counts as a number or boolean beside one (`selectorConversion`); the prefixes of the text win.
    Raises SelectorError, whose code is one of `refusal`, naming the position, what was found and what was expected.
    """
    steps = compiling(text, conversion=conversion, limits=limits)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            selector: Selector = done.value
            return selector


def compiling(text: str, *, conversion: bool, limits: SelectorLimits) -> Generator[None, None, Selector]:
    """The same in steps, as one with a thousand terms takes more than ten milliseconds."""
    from stompbox.selectors.parser import parse
    from stompbox.selectors.tokens import tokenize

    dialect, tokens = tokenize(text, conversion=conversion, limits=limits)
    yield
    root = parse(tokens, limits)
    yield
    return Selector(text, root, conversion=conversion, dialect_conversion=dialect.conversion, limits=limits)
