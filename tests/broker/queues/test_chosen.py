"""The selectors of a queue: whoever may take a message is asked about it, and of very many that want a text nobody else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompbox.broker.logs.segments import Segment
from stompbox.broker.queues.chosen import FEW, FOUND, Selectors
from stompbox.broker.work import Work
from stompbox.message import Run, Shape
from stompbox.selectors import Selector, compile_selector

TEXTS = (
    *[f"id = '{number}'" for number in range(FEW)], "id = '1' AND n > 3", "id = '1' AND n > 5", "JMSCorrelationID = 'a'",
    "JMSCorrelationID = 'b' AND id = '2'", "n > 4", "n IS NULL", "id = '3' OR n = 2", "id LIKE '1%'", "id = '4' AND n LIKE '%1'",
    "NOT id = '5'",
)  # fmt: skip
SHAPES = [
    Shape({"destination": "q", "n": "4"}, holes=("id",)),
    Shape({"destination": "q", "id": "1"}, holes=("n",)),
    Shape({"destination": "q", "id": "2", "correlation-id": "b"}, holes=("n",)),
    Shape({"destination": "q"}, holes=("correlation-id", "id")),
]


def selector(text: str) -> Selector:
    return compile_selector(text)


def weighed(selectors: Selectors) -> int:
    """What `steps` is to be, counted anew."""
    keyed = [one for one in selectors if one.key is not None and not one.is_costly]
    others = sum([one.most_steps for one in selectors if one not in keyed])
    if len(keyed) < FEW:
        return others + sum([one.steps for one in keyed])
    keys = [one.key for one in keyed]
    same = sum([one.steps for one in keyed if keys.count(one.key) > 1])
    return others + same + FOUND * len({key[0] for key in keys if key is not None})


@given(
    st.lists(st.tuples(st.booleans(), st.sampled_from(TEXTS)), max_size=60),
    st.sampled_from(SHAPES),
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9)), min_size=1, max_size=5),
    st.data(),
)
def test_who_is_not_asked_takes_nothing(
    changes: list[tuple[bool, str]], shape: Shape, values: list[tuple[int, int]], data: st.DataObject
) -> None:
    selectors, uses, work = Selectors(), dict[str, int](), Work()
    for is_coming, text in changes:
        if is_coming:
            assert selectors.add(selector(text), work) is (uses.get(text, 0) == 0)
            uses[text] = uses.get(text, 0) + 1
        elif uses.get(text):
            uses[text] -= 1
            assert selectors.discard(selector(text), work) is (uses[text] == 0)
    there = {text for text, count in uses.items() if count}
    assert {one.text for one in selectors} == there and len(selectors) == len(there)
    assert selectors.steps == weighed(selectors)
    assert selectors.is_long is any(one.is_costly for one in selectors)

    columns = [[b"%d" % a for a, _ in values], [b"%d" % b for _, b in values]][: len(shape.holes)]
    run = Run(shape, [b"x"] * len(values), tuple(columns), first=7)
    first = data.draw(st.integers(7, run.stop - 1))
    segment = Segment(run, first, data.draw(st.integers(first + 1, run.stop)))
    some = data.draw(st.sampled_from([selectors, selectors.after(len(selectors) // 2), frozenset(selectors)]))
    at = segment.first
    for part, asked in selectors.asked(segment, some):
        assert (part.first, part.run) == (at, run)
        at = part.stop
        assert set(asked) <= set(some)
        for offset in range(part.first, part.stop):
            left = [one for one in some if one not in asked]
            assert not any(one.matches(run.headers(offset - run.first), {}) for one in left)
    assert at == segment.stop


@pytest.mark.parametrize("is_varying", [False, True])
def test_of_very_many_that_want_a_text_a_message_finds_its_own(*, is_varying: bool) -> None:
    selectors, work = Selectors(), Work()
    for number in range(300):
        selectors.add(selector(f"id = '{number}'"), work)
    other = selector("n > 4")
    selectors.add(other, work)
    shape = (
        Shape({"destination": "q"}, holes=("id",)) if is_varying else Shape({"destination": "q", "id": "7"})
    )
    run = Run(shape, [b"x"] * 2, ([b"7", b"8"],) if is_varying else (), first=0)
    found = [
        ({one.text for one in asked}, len(part))
        for part, asked in selectors.asked(Segment(run, 0, 2), selectors)
    ]
    if is_varying:
        assert found == [({"id = '7'", "n > 4"}, 1), ({"id = '8'", "n > 4"}, 1)]
    else:
        assert found == [({"id = '7'", "n > 4"}, 2)]
    assert selectors.steps == FOUND + other.steps
    assert not selectors.is_heavy


def test_those_that_want_the_same_text_are_asked_all_and_count() -> None:
    selectors, work = Selectors(), Work()
    alike = [selector(f"id = 'same' AND n > {number}") for number in range(4000)]
    for one in alike:
        selectors.add(one, work)
    assert selectors.is_heavy
    for one in alike[1:]:
        selectors.discard(one, work)
    assert (selectors.steps, selectors.is_heavy) == (alike[0].steps, False)
