"""What a long selector takes to be compiled is done in steps, between which whoever compiles it may let others have their turn."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Final, TypeVar

T = TypeVar("T")
Steps = Generator[None, None, T]

STEP: Final = 64
"""Tokens or nodes of one step, which takes a quarter of a millisecond at the most."""


def on_a_stack(recursion: Callable[[Callable[[], None]], T]) -> Steps[T]:
    """The steps of a recursion, which is given what it calls between two of them. It has a stack of its own (`greenlet`), which is left
    there and taken up again."""
    from greenlet import getcurrent, greenlet  # loaded with the first long XPATH

    def leave() -> None:
        caller = getcurrent().parent
        assert caller is not None
        caller.switch()

    stack = greenlet(recursion)
    while True:
        stack.parent = getcurrent()
        found: T = stack.switch(leave)
        if stack.dead:
            return found
        yield


def result(steps: Steps[T]) -> T:
    """What they come to, all of them taken at once."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            made: T = done.value
            return made
