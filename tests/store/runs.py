"""Runs for the tests of this folder: made by hand, and drawn by hypothesis."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from stompbox.message import Run, Shape

QUEUE = Shape({"destination": "/queue/orders", "content-type": "text/plain"})


def run(first: int, count: int = 1, *, body: bytes = b"body", arrived: int = 0, shape: Shape = QUEUE) -> Run:
    return Run(
        shape, [b"%s %d" % (body, first + index) for index in range(count)], first=first, arrived=arrived
    )


def told(runs: list[Run]) -> list[tuple[Any, ...]]:
    """Everything that must come back, message by message: (offset, arrived, routing, shape, headers, body)."""
    return [
        (
            run.first + index,
            run.arrived,
            run.routing,
            described(run.shape),
            run.headers(index),
            run.bodies[index],
        )
        for run in runs
        for index in range(len(run))
    ]


def described(shape: Shape) -> tuple[Any, ...]:
    return (
        list(shape.headers.items()),
        shape.holes,
        shape.persistent,
        shape.priority,
        shape.expires,
        shape.has_length,
    )


texts = st.text(st.characters(exclude_categories=()), max_size=8)
values = st.binary(max_size=4).map(lambda raw: raw.hex().encode())  # of holes: printable ASCII
shapes = st.builds(
    lambda headers, **rest: Shape({**headers, "destination": "/queue/ü"}, **rest),
    st.dictionaries(texts.filter(lambda name: name[:1] not in ("h", "d")), texts, max_size=3),
    holes=st.sampled_from([(), (), ("h1",), ("h1", "hé2")]),
    persistent=st.sampled_from([None, True, False]),
    priority=st.integers(0, 9),
    expires=st.sampled_from([0, 1, 1_700_000_000_000, 2**62]),
    has_length=st.booleans(),
)


@st.composite
def run_lists(draw: st.DrawFn, *, max_runs: int = 8, first: int | None = None) -> list[Run]:
    """Runs in offset order, with gaps, of a few shapes, so that some can be joined and some cannot."""
    known = draw(st.lists(shapes, min_size=1, max_size=3))
    at = draw(st.integers(0, 2**40)) if first is None else first
    arrived = draw(st.sampled_from([0, 1_700_000_000_000]))
    found = []
    for _ in range(draw(st.integers(0, max_runs))):
        shape = draw(st.sampled_from(known))
        bodies = draw(st.lists(st.binary(max_size=6), min_size=1, max_size=4))
        columns = tuple(
            draw(st.lists(values, min_size=len(bodies), max_size=len(bodies))) for _ in shape.holes
        )
        at += draw(st.sampled_from([0, 0, 0, 1, 2**33]))
        arrived = max(0, arrived + draw(st.sampled_from([0, 0, 1, -1, 2**40])))
        routing = draw(st.sampled_from([1, 1, 2, 3]))
        found.append(Run(shape, bodies, columns, first=at, arrived=arrived, routing=routing))
        at += len(bodies)
    return found
