"""The longest steps: what a start takes does not count, and all that comes after it does."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from bench.longsteps import at_first_freeze


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    freeze = gc.freeze
    yield
    gc.freeze = freeze
    gc.unfreeze()


def test_only_the_first_freeze_is_the_end_of_a_start() -> None:
    """A broker that runs puts aside what has become old again and again: what was seen before that is not forgotten."""
    ready: list[int] = []
    at_first_freeze(lambda: ready.append(gc.get_freeze_count()))
    for _ in range(3):
        gc.freeze()
    assert len(ready) == 1 and ready[0] > 0
