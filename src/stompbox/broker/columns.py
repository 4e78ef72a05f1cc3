"""One header of many messages: the same for all of a shape, or a column of the run."""

from __future__ import annotations

from collections.abc import Sequence

from stompbox.message import Run


def values_of(run: Run, name: str, first: int, stop: int) -> Sequence[bytes]:
    """The header's values in messages first .. stop-1; empty where there is none."""
    holes = run.shape.holes
    if name in holes:
        return run.columns[holes.index(name)][first - run.first : stop - run.first]
    return [run.shape.headers.get(name, "").encode()] * (stop - first)
