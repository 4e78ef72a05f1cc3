"""A compiled selector, and the way from text to it.

Decides: the public face of this room, and what a selector tells about itself (what it reads, what it costs, whether a verdict may be kept).
Does not decide who may use a selector or what becomes of a message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from sys import getsizeof
from typing import TYPE_CHECKING, Final

from stompbox.selectors.budget import STEPS, Budget
from stompbox.selectors.facts import BY_SPECIAL_NAME, PER_MESSAGE, Value
from stompbox.selectors.limits import SelectorLimits
from stompbox.selectors.steps import STEP, Steps, result

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
    is_per_message: two messages with equal headers may get different verdicts, as it reads the body or a fact of `PER_MESSAGE`.
    key: headers, the first that is there counts, and the text that this one must be, or the selector takes nothing; None: no such rule.
    bounds: the same with two numbers, between which or at which it must be.
    steps: what it costs to ask it about one message, XPATH and LIKE apart; about the terms that it has.
    is_costly: its XPATHs, LIKEs and functions have a budget for each message (budget.py).
    most_steps: that it may cost with these.
    searched: steps that its LIKEs and functions take for 64 characters of a text.
    size: octets of memory, about, its text and its compiled form together.
    number: no other has it while this process runs, and who remembers the number does not keep the selector.
    """

    __slots__ = (
        "__weakref__", "_conversion", "_hash", "_limits", "_run", "bounds", "facts", "headers", "is_costly", "is_per_message", "key",
        "most_steps", "names", "needs_body", "number", "searched", "size", "steps", "text",
    )  # fmt: skip

    def __init__(
        self, text: str, root: Node, reads: _Reads, run: Compiled, *, conversion: bool, limits: SelectorLimits
    ) -> None:
        """Takes what `compiling` has made."""
        from stompbox.selectors.keys import bounds_of, key_of

        self.text = text
        self.names = frozenset(reads.names)
        self.facts = frozenset(reads.facts)
        self.headers = self.names | reads.headers
        self.needs_body = reads.needs_body
        self.is_per_message = reads.needs_body or not PER_MESSAGE.isdisjoint(self.facts)
        self.steps = reads.steps
        self.key = key_of(root)
        self.bounds = bounds_of(root)
        self.is_costly = reads.is_costly
        self.most_steps = self.steps + (STEPS if self.is_costly else 0)
        self.searched = reads.searched
        self.size = getsizeof(text) + reads.size
        self.number = next(_NUMBERS)
        self._run = run
        self._conversion = conversion
        self._limits = limits
        self._hash = hash(self._key())

    @property
    def conversion(self) -> bool:
        """Whether texts are read as numbers, as `compile_selector` was told."""
        return self._conversion

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
    return result(compiling(text, conversion=conversion, limits=limits))


def compiling(text: str, *, conversion: bool, limits: SelectorLimits) -> Steps[Selector]:
    """Compiles a selector as `compile_selector` does, in steps, as one with a thousand terms takes more than ten milliseconds."""
    from stompbox.selectors.codegen import generating
    from stompbox.selectors.nodes import in_order_of_evaluation
    from stompbox.selectors.parser import parsing
    from stompbox.selectors.tokens import tokenizing

    dialect, tokens = yield from tokenizing(text, conversion=conversion, limits=limits)
    root = yield from parsing(tokens, limits)
    yield
    nodes = yield from in_order_of_evaluation(root)
    reads = _Reads()
    for first in range(0, len(nodes), STEP):
        yield
        reads.add(nodes[first : first + STEP])
    run = yield from generating(nodes, conversion=dialect.conversion, is_costly=reads.is_costly)
    yield
    return Selector(text, root, reads, run, conversion=conversion, limits=limits)


class _Reads:
    """What the nodes of a selector read, and what they cost, added up."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.facts: set[str] = set()
        self.headers: set[str] = set()  # beside the names
        self.needs_body = False
        self.steps = _ASKED
        self.size = _SIZE
        self.searched = 0

    @property
    def is_costly(self) -> bool:
        return self.needs_body or self.searched * _LONG // 64 > STEPS // 2

    def add(self, nodes: list[Node]) -> None:
        from stompbox.selectors.codegen import size_of
        from stompbox.selectors.like import weight_of
        from stompbox.selectors.nodes import BodyTest, Call, Identifier, Like

        self.steps += len(nodes)
        self.size += sum(map(size_of, nodes))
        for node in nodes:
            if isinstance(node, Identifier):
                self._add_name(node.name)
            elif isinstance(node, Like):
                self.steps += node.pattern.count("%")
                self.searched += weight_of(node.pattern, node.escape)
            elif isinstance(node, Call):
                self.searched += node.made.weight
            elif isinstance(node, BodyTest) and node.xpath is not None:
                self.needs_body = True

    def _add_name(self, name: str) -> None:
        self.names.add(name)
        fact = BY_SPECIAL_NAME.get(name)
        if fact is not None:
            self.facts.add(fact.name)
            self.headers.update(fact.headers)
