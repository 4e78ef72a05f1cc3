"""How long things took: in which bucket, and what is not counted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from stompbox.broker.kinds import Kind
from stompbox.message import Run, Shape
from stompbox.server.latency import BOUNDS, Latency


@pytest.mark.parametrize(
    ("ms", "bucket"), [(0, 0), (0.4, 0), (1, 0), (1.5, 1), (2, 1), (60_000, len(BOUNDS) - 1), (60_001, len(BOUNDS)), (10**9, len(BOUNDS))]
)  # fmt: skip
def test_each_bound_is_of_its_bucket(ms: float, bucket: int) -> None:
    latency = Latency()
    latency.add(ms, 3)
    assert (latency.counts[bucket], sum(latency.counts), latency.total) == (3, 3, ms * 3)


def output(kind: Kind, arrived: int, *, is_redelivered: bool = False, **headers: str) -> Any:
    run = Run(Shape({"destination": "/queue/q", **headers}), [b"x"], arrived=arrived)
    return SimpleNamespace(
        run=run, is_redelivered=is_redelivered, binding=SimpleNamespace(queue=SimpleNamespace(kind=kind))
    )


@pytest.mark.parametrize(
    ("one", "total"),
    [
        (output(Kind.ANYCAST, 1000), 500),
        (output(Kind.TOPIC, 1000), 500),
        (output(Kind.DURABLE, 2000), 0),  # a clock that was put back
        (output(Kind.ANYCAST, 1000, AMQ_SCHEDULED_DELAY="400"), 100),
        (output(Kind.ANYCAST, 1000, AMQ_SCHEDULED_TIME="1450"), 50),
        (output(Kind.ANYCAST, 1000, is_redelivered=True), None),
        (output(Kind.STREAM, 1000), None),
        (output(Kind.BROWSER, 1000), None),
    ],
)
def test_it_counts_from_when_the_message_could_go(one: Any, total: int | None) -> None:
    latency = Latency()
    latency.deliver(one, 1500, 2)
    assert (sum(latency.counts), latency.total) == ((0, 0) if total is None else (2, 2 * total))
