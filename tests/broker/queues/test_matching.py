"""What selectors may ask beyond headers.

Selectors found by the values of a message: the same as by asking each of them.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompbox.broker.logs.segments import Segment
from stompbox.broker.queues import matching
from stompbox.broker.queues.matching import FEW, Plan
from stompbox.message import Run, Shape
from stompbox.selectors import Selector, compile_selector
from tests.broker.world import STAYING, World

SHAPE = Shape(
    {"destination": "q", "word": "a"}, holes=("number", "timestamp"), priority=7, expires=99, persistent=False
)


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
    assert matching.is_of_shape(compile_selector(text), SHAPE) is expected


def test_of_a_shape() -> None:
    assert matching.facts_of_shape(SHAPE, "x", is_durable=False) == {
        "priority": 7,
        "expiration": 99,
        "durable": False,
        "address": "x",
    }


@pytest.mark.parametrize(
    ("given", "expected"),
    # a sender's timestamp if it is one, else the arrival
    [(b"123", 123), (b"", 5), (b"soon", 5), (b"-1", 5), (b"9" * 5000, 5)],
)
def test_timestamps(given: bytes, expected: int) -> None:
    run = Run(SHAPE, [b"body"], ([b"1"], [given]), first=0, arrived=5)
    known = matching.facts_of_message(run, 0, {"priority": 7})
    assert known["timestamp"] == expected
    assert known["size"] == len(b"body") + SHAPE.octets
    assert known["priority"] == 7


def test_a_timestamp_that_all_share() -> None:
    run = Run(Shape({"destination": "q", "timestamp": "77"}), [b""], first=0, arrived=5)
    assert matching.facts_of_message(run, 0, {})["timestamp"] == 77


NUMBERS = st.one_of(
    st.integers(-20, 20).map(str),
    st.floats(-20, 20).map(repr),
    st.sampled_from(["9007199254740993", "1e300"]),
)
SIGNS = st.sampled_from(["<", "<=", ">", ">=", "=", "<>"])
TERMS = st.one_of(
    st.tuples(st.sampled_from("kn"), SIGNS, NUMBERS).map(" ".join),
    st.tuples(NUMBERS, NUMBERS, st.sampled_from(["", "NOT "])).map(
        lambda parts: f"k {parts[2]}BETWEEN {parts[0]} AND {parts[1]}"
    ),
    st.sampled_from(
        ["k = 'v'", "n = '3'", "JMSCorrelationID < 3", "k IS NULL", "NOT k < 3", "n IS NOT NULL OR k > 1"]
    ),
)
CONDITIONS = st.lists(TERMS.map(lambda term: f"({term})"), min_size=1, max_size=3).map(" AND ".join)
VALUES = st.one_of(NUMBERS, st.sampled_from(["v", "", "3", "nan", "1e999", "-1e999", "true", "0x3"]))
HEADERS = st.dictionaries(st.sampled_from(["k", "n", "correlation-id", "JMSCorrelationID"]), VALUES)


def plan_of(selectors: list[Selector]) -> Plan:
    plan = Plan(object(), STAYING)
    for selector in selectors:
        plan.add_by_value(selector)
    for _ in plan.numbering():
        pass
    return plan


def takers_of(plan: Plan, headers: dict[str, str]) -> list[Selector]:
    return [selector for selector in plan.candidates(headers) if selector.matches(headers, {})]


@given(st.lists(CONDITIONS, max_size=40, unique=True), st.lists(HEADERS, max_size=5), st.booleans())
def test_found_as_by_asking_each(texts: list[str], messages: list[dict[str, str]], conversion: bool) -> None:
    selectors = [compile_selector(text, conversion=conversion) for text in texts]
    plan = plan_of(selectors)
    for headers in messages:
        takers = takers_of(plan, headers)
        assert len(takers) == len(set(takers))
        assert set(takers) == {selector for selector in selectors if selector.matches(headers, {})}


@pytest.mark.parametrize("count", [1, FEW - 1, FEW, 100])
def test_each_of_few_and_of_many_gets_its_own(count: int) -> None:
    plan = plan_of([compile_selector(f"k >= {n} AND k < {n + 1}") for n in range(count)])
    for n in range(count):
        assert [selector.text for selector in takers_of(plan, {"k": f"{n}.5"})] == [
            f"k >= {n} AND k < {n + 1}"
        ]
    assert takers_of(plan, {"k": str(count)}) == []


def test_who_waits_for_other_numbers_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(Selector, "matches", lambda self, headers, facts: asked.append(self.text))
    takers_of(plan_of([compile_selector(f"k < {-n}") for n in range(1000)]), {"k": "1"})
    assert asked == []
    takers_of(plan_of([compile_selector(f"k BETWEEN {n} AND {n + 2}") for n in range(1000)]), {"k": "500"})
    assert len(asked) == 3


ASKED = (
    "word = 'a'", "number > 3", "number = '2'", "number BETWEEN 1 AND 3 AND JMSPriority > 3", "AMQSize > 3", "number LIKE '1%'",
    "XPATH '/a'", "timestamp = '7'", "word = 'b'", "NOT number = 5",
)  # fmt: skip


@given(
    st.lists(st.sampled_from(ASKED), unique=True),
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 9)), min_size=1, max_size=8),
    st.data(),
)
def test_each_of_some_takes_what_it_takes_when_it_is_asked_alone(
    texts: list[str], values: list[tuple[int, int]], data: st.DataObject
) -> None:
    world = World()
    address = world.address("q")
    columns = [b"%d" % number for number, _ in values], [b"%d" % time for _, time in values]
    run = Run(SHAPE, [b"<a/>"] * len(values), columns, first=5, arrived=5)
    first = data.draw(st.integers(5, run.stop - 1))
    segment = Segment(run, first, data.draw(st.integers(first + 1, run.stop)))
    selectors = [compile_selector(text) for text in texts]
    found = matching.wanted_by_each(selectors, segment, address, queue=3)
    assert found == {selector: address.wanted_of(selector, segment, 3) for selector in selectors}


def test_what_very_many_look_at_is_found_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[int] = []
    headers = Run.headers
    monkeypatch.setattr(Run, "headers", lambda run, index: found.append(index) or headers(run, index))  # type: ignore[func-returns-value]
    world = World()
    run = Run(SHAPE, [b"x"] * 3, ([b"1", b"2", b"3"], [b""] * 3), first=0, arrived=5)
    selectors = [compile_selector(f"number = '{number}'") for number in range(100)]
    before = world.engine.work.done
    taken = matching.wanted_by_each(selectors, Segment(run, 0, 3), world.address("q"), queue=3)
    assert [len(taken[selector]) for selector in selectors[:5]] == [0, 1, 1, 1, 0]
    assert found == [0, 1, 2]
    assert world.engine.work.done - before == 3 * sum([selector.steps for selector in selectors])
