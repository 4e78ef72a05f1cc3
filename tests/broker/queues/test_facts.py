"""What selectors may ask beyond headers."""

from __future__ import annotations

import pytest

from stompbox.broker.logs.segments import octets_of
from stompbox.broker.queues import facts
from stompbox.message import Run, Shape
from stompbox.selectors import compile_selector

SHAPE = Shape({"destination": "q", "word": "a"}, holes=("number", "timestamp"), priority=7, expires=99, persistent=False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("word = 'a'", True),
        ("JMSPriority > 3", True),
        ("number > 3", False),  # a hole: each message has its own
        ("word = 'a' OR number > 3", False),
        ("AMQSize > 3", False),
        ("JMSTimestamp > 3", False),
        ("XPATH '/a'", False),
    ],
)
def test_when_the_shape_decides(text: str, expected: bool) -> None:
    assert facts.is_of_shape(compile_selector(text), SHAPE) is expected


def test_of_a_shape() -> None:
    assert facts.of_shape(SHAPE, "x", is_durable=False) == {"priority": 7, "expiration": 99, "durable": False, "address": "x"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [(b"123", 123), (b"", 5), (b"soon", 5), (b"-1", 5), (b"9" * 5000, 5)],  # a sender's timestamp if it is one, else the arrival
)
def test_timestamps(given: bytes, expected: int) -> None:
    run = Run(SHAPE, [b"body"], ([b"1"], [given]), first=0, arrived=5)
    known = facts.of_message(run, 0, {"priority": 7})
    assert known["timestamp"] == expected
    assert known["size"] == len(b"body") + octets_of(SHAPE)
    assert known["priority"] == 7


def test_a_timestamp_that_all_share() -> None:
    run = Run(Shape({"destination": "q", "timestamp": "77"}), [b""], first=0, arrived=5)
    assert facts.of_message(run, 0, {})["timestamp"] == 77
