"""The steps that one selector may take for one message: both are strangers', and each XPATH and LIKE of it draws on the same budget.

What finds the budget used up is UNKNOWN, so that a selector with it is TRUE only where it would be whatever that is. A step is about
one node of a document looked at, or 64 characters searched; to read a node of the document takes three.
"""

from __future__ import annotations

STEPS = 50_000
"""The whole takes 10 to 25 ms. A body of more than 12,000 nodes is not looked at."""


class Budget:
    """`left` is below zero once something had to be given up (`is_used_up`)."""

    __slots__ = ("_known", "left", "steps")

    def __init__(self, steps: int = STEPS) -> None:
        self.steps = steps
        self.left = steps
        self._known = 0

    def spend(self, steps: int) -> bool:
        """Takes steps from the budget. False when they are more than are left."""
        self.left -= steps
        return self.left >= 0

    def spend_long(self, steps: int) -> bool:
        """Spends steps that take longer than others."""
        return self.spend(steps)

    def affords(self, steps: int) -> bool:
        """Whether so many are left."""
        return steps <= self.left

    def know(self, steps: int) -> None:
        """What was done for another question before. It counts as if it had been done for this one, since no answer may depend on who
        asked first; but it took no time."""
        self.left -= steps
        self._known += steps

    @property
    def is_used_up(self) -> bool:
        return self.left < 0

    @property
    def spent(self) -> int:
        """But for what was known."""
        return min(self.steps, self.steps - self.left) - self._known

    def __repr__(self) -> str:
        return f"<Budget {self.left} of {self.steps} steps>"
