"""What a long selector takes to be compiled is done in steps, between which whoever compiles it may let others have their turn."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, TypeVar

T = TypeVar("T")
Steps = Generator[None, None, T]

STEP: Final = 64
"""Tokens or nodes of one step, which takes a quarter of a millisecond at the most."""


def result(steps: Steps[T]) -> T:
    """What they come to, all of them taken at once."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            made: T = done.value
            return made
