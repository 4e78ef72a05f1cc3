"""What one selector is asked about one message, in portions: it stops where it is when the steps of a portion are taken, and goes on there.

An evaluation is a recursion over an expression, with the reading of a document within it, and each of its parts may take most of the
budget. So it runs on a stack of its own (`greenlet`), which is left whenever the budget says so; nothing of it knows that it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from greenlet import getcurrent, greenlet

from stompbox.selectors.budget import Budget

LONG: Final = 3  # times that it takes longer to read a node of a document, for each step that it costs, than to look at one


class Question:
    """`ask` is given the budget of the message. Who lets go of a question before its answer is there has ended it."""

    __slots__ = ("_stack", "budget")

    def __init__(self, ask: Callable[[Budget], bool]) -> None:
        self.budget = _Portioned()
        self._stack = greenlet(ask)

    def go_on(self, steps: int) -> bool | None:
        """The answer, or None where it takes more than so many steps more."""
        self.budget.begin(steps)
        self._stack.parent = getcurrent()
        answer: bool = self._stack.switch(self.budget)
        return answer if self._stack.dead else None

    def __repr__(self) -> str:
        return f"<Question {self.budget!r}>"


class _Portioned(Budget):
    """The budget of a question: it leaves the stack when a portion is used up. `_until`: what is left of it then."""

    __slots__ = ("_until",)

    def begin(self, steps: int) -> None:
        self._until = self.left - steps

    def spend(self, steps: int) -> bool:
        self.left -= steps
        if self._until > self.left >= 0:
            caller = getcurrent().parent
            assert caller is not None
            caller.switch()
        return self.left >= 0

    def spend_long(self, steps: int) -> bool:
        """Uses up LONG times as many of the portion."""
        self._until += (LONG - 1) * steps
        return self.spend(steps)

    def know(self, steps: int) -> None:
        super().know(steps)
        self._until -= steps
