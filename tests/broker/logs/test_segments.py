"""Parts of runs, and what is held of them in any order of answers."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompbox.broker import sweeping
from stompbox.broker.logs import segments
from stompbox.broker.logs.segments import (
    EACH,
    FEW,
    HEADER,
    LATE,
    NEAR,
    RUN,
    VALUE,
    Held,
    Segment,
    Spans,
    cost_of,
    share_of,
)
from stompbox.handles import Large, Staged
from stompbox.message import MULTICAST, Run, Shape
from tests.broker.world import run_of


def segment_of(*sizes: int, first: int = 100) -> Segment:
    run = run_of("q", *[b"x" * size for size in sizes])
    run.first = first
    return Segment(run, first, run.stop)


def test_size_is_what_is_left_of_it() -> None:
    segment = segment_of(1, 2, 4, 8, 16)
    assert segment.size == 31
    front = segment.cut(102)
    back = segment.cut_back(104)
    assert [(s.first, s.stop, s.size) for s in (front, segment, back)] == [
        (100, 102, 3),
        (102, 104, 12),
        (104, 105, 16),
    ]


def test_parts_keep_their_history() -> None:
    run = run_of("q", b"a", b"b", b"c")
    segment = Segment(run, 0, 3, 2, 1, is_suspect=True)
    segment.turn = 7
    part = segment.part(1, 2)
    assert (part.deliveries, part.failures, part.is_suspect, part.turn, part.is_redelivered) == (
        2,
        1,
        True,
        7,
        True,
    )


@given(st.lists(st.integers(0, 9), min_size=1, max_size=300), st.integers(1, 400), st.integers(0, 5))
def test_fitting_lets_the_last_one_go_beyond(sizes: list[int], room: int, offset: int) -> None:
    segment = segment_of(*[1] * offset, *sizes)
    segment.cut(100 + offset)
    count = segment.fitting(room)
    assert 1 <= count <= len(sizes)
    assert sum(sizes[: count - 1]) < room, "the one before the last filled the room already"
    assert count == len(sizes) or sum(sizes[:count]) >= room, "another one would have fitted"


def test_one_message_of_a_large_run_is_looked_at_alone() -> None:
    """A window of one message on runs of many: the work is in proportion to what goes, not to what waits."""
    looked = 0

    class Body(bytes):
        def __len__(self) -> int:
            nonlocal looked
            looked += 1
            return super().__len__()

    run = Run(Shape({"destination": "q"}), [Body(b"x") for _ in range(10_000)], first=0)
    segment = Segment(run, 0, 10_000)
    looked = 0
    while len(segment) > 1:
        count = segment.fitting(1)
        assert count == 1
        assert segment.cut(segment.first + count).size == 1
    assert looked < 100 * 10_000


def test_empty_bodies_are_not_free() -> None:
    shape = Shape({"destination": "q", "note": "x" * 1000})
    run = Run(shape, [b""] * 10)
    assert shape.octets == len("destination") + len("q") + len("note") + 1000 + 2 * 2
    assert cost_of(run) == Segment(run, 0, 10).cost == RUN + HEADER + 10 * EACH + shape.octets


def test_what_varies_counts_where_it_is() -> None:
    """A head whose values differ from message to message is in no shape, but in memory."""
    run = Run(Shape({"destination": "q"}, holes=("n",)), [b""] * 3, ([b"x" * 1000, b"", b"yy"],))
    assert cost_of(run) == Segment(run, 0, 3).cost == RUN + 3 * EACH + run.shape.octets + 1002 + 3 * VALUE
    run.first = 0
    assert Segment(run, 0, 1).cost - Segment(run, 1, 2).cost == 1000


# Held


def held_of(*segments: Segment) -> Held:
    held = Held()
    for segment in segments:
        held.add(segment)
    return held


def test_an_unknown_offset_ends_what_is_taken() -> None:
    held = held_of(segment_of(1, 1, first=10), segment_of(1, first=13))
    taken, reached = held.take(10, 14)
    assert ([(s.first, s.stop) for s in taken], reached) == ([(10, 12)], 12)
    assert held.take(12, 13) == ([], 12)
    assert held.take(9, 10) == ([], 9)
    assert held.take(14, 15) == ([], 14)


def test_a_middle_part_leaves_two() -> None:
    held = held_of(segment_of(1, 2, 4, 8))
    taken, _ = held.take(101, 103)
    assert [(s.first, s.stop, s.size) for s in taken] == [(101, 103, 6)]
    assert [(s.first, s.stop, s.size) for s in held.clear()] == [(100, 101, 1), (103, 104, 8)]


@given(st.data())
def test_held_is_a_set_of_offsets(data: st.DataObject) -> None:
    """Whatever is added and taken in whatever order, it is what a set of offsets would say."""
    held, model = Held(), set[int]()
    for _ in range(data.draw(st.integers(1, 25))):
        first = data.draw(st.integers(0, 60))
        stop = first + data.draw(st.integers(1, 12))
        offsets = set(range(first, stop))
        if not offsets & model and data.draw(st.booleans()):
            held.add(segment_of(*[1] * (stop - first), first=first))
            model |= offsets
            continue
        assert held.may_have(first) or first not in model
        taken, reached = held.take(first, stop)
        expected = first
        while expected < stop and expected in model:
            expected += 1
        assert reached == expected
        assert [offset for segment in taken for offset in range(segment.first, segment.stop)] == list(
            range(first, expected)
        )
        model -= set(range(first, expected))
    left = held.clear()
    assert {offset for segment in left for offset in range(segment.first, segment.stop)} == model
    assert [segment.first for segment in left] == sorted(segment.first for segment in left)
    assert len(held) == 0


def test_a_hundred_thousand_answers_in_any_order_are_cheap() -> None:
    """What is searched through stays in proportion: the list of firsts is never much longer than what is held."""
    count = 100_000
    orders = {"forwards": range(count), "backwards": range(count - 1, -1, -1)}
    shuffled = list(range(count))
    random.Random(7).shuffle(shuffled)
    for name, order in (orders | {"shuffled": shuffled}).items():
        run = run_of("q", *[b"x"] * count)
        run.first = 0
        held = held_of(*[Segment(run, offset, offset + 1) for offset in range(count)])
        for at, offset in enumerate(order):
            taken, reached = held.take(offset, offset + 1)
            assert reached == offset + 1 and len(taken) == 1, f"{name}: {offset}"
            if at % 5000 == 0:
                assert len(held._firsts) <= 2 * len(held) + 64, (
                    f"{name}: {len(held._firsts)} firsts for {len(held)} segments"
                )
        assert len(held) == 0


class Looked(list[bytes]):
    """Bodies that count how many of them were looked at."""

    def __init__(self, bodies: list[bytes]) -> None:
        super().__init__(bodies)
        self.looks = 0

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        self.looks += len(found) if isinstance(at, slice) else 1
        return found


@pytest.mark.parametrize("order", ["every second one", "from the front", "from the back", "in any order"])
def test_a_segment_that_is_taken_in_pieces_is_not_added_up_anew_for_each(order: str) -> None:
    count, chance = 4096, random.Random(7)
    offsets = list(range(100, 100 + count))
    if order == "every second one":
        offsets = offsets[::2] + offsets[1::2]
    elif order == "from the back":
        offsets.reverse()
    elif order == "in any order":
        chance.shuffle(offsets)
    sizes = {offset: chance.randrange(9) for offset in offsets}
    segment = segment_of(*[sizes[offset] for offset in range(100, 100 + count)])
    segment.run.bodies = bodies = Looked(list(segment.run.bodies))
    assert segment.size == sum(sizes.values())
    held = held_of(segment)
    for offset in offsets:
        assert [part.size for part in held.take(offset, offset + 1)[0]] == [sizes[offset]]
    assert not held and bodies.looks <= count * 14


def test_what_is_delivered_again_moves_nothing_that_is_above_it() -> None:
    """Of a hundred thousand that came back, each would move all that are held: they stand apart, and are joined LATE at a time."""
    count = 20_000
    held, spans, joined = held_of(), Spans(), 0
    for offset in range(count, 2 * count):
        held.add(segment_of(1, first=offset))
        spans.add(offset, offset + 1)
    for offset in range(count):
        before = len(held._firsts)
        held.add(segment_of(1, first=offset))
        spans.add(offset, offset + 1)
        joined += len(held._firsts) > before
        assert len(held._late) < LATE and len(spans._late) < LATE
    assert joined == count // LATE
    assert all(offset in spans for offset in (0, 1, count - 1, count))
    assert held.oldest() == spans.oldest() == 0
    assert [segment.first for segment in held.behind(count - 2, 3)[0]] == [count - 1, count, count + 1]
    assert [segment.first for segment in held.clear()] == list(range(2 * count))


def test_what_moves_little_that_is_above_it_does_not_stand_apart() -> None:
    held = held_of()
    for offset in range(0, 4 * NEAR, 2):
        held.add(segment_of(1, first=offset))
    known = len(held._firsts)
    for number, offset in enumerate(range(2 * NEAR + 1, 4 * NEAR, 2), 1):  # from where NEAR of them are above
        held.add(segment_of(1, first=offset))
        assert (len(held._firsts), held._late) == (known + number, [])
    held.add(segment_of(1, first=1))
    assert held._late == [1]
    assert [segment.first for segment in held.behind(2 * NEAR, 3)[0]] == [2 * NEAR + n for n in (1, 2, 3)]


@pytest.mark.parametrize("near", [NEAR, LATE // 8], ids=["near", "apart"])
def test_held_is_a_set_whatever_stands_apart_and_is_joined(
    near: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "NEAR", near)
    seeded = random.Random(3)
    held, model = Held(), set[int]()
    for step in range(6 * LATE):
        first = seeded.randrange(3 * LATE)
        if first in model:
            assert held.may_have(first)
            assert held.take(first, first + 1)[1] == first + 1
            model.discard(first)
        else:
            held.add(segment_of(1, first=first))
            model.add(first)
        if step % 50 == 0:
            assert held.oldest() == min(model, default=None)
            behind = sorted(offset for offset in model if offset > first)
            assert [segment.first for segment in held.behind(first, 10 * LATE)[0]] == behind
    while held:
        part = held.take_lowest(100)
        assert [segment.first for segment in part] == sorted(model)[: len(part)]
        model -= {segment.first for segment in part}
    assert not model


def test_what_is_taken_is_let_go() -> None:
    """A segment that was acknowledged must not keep its bodies in memory."""
    held = held_of(*[segment_of(1, first=offset) for offset in range(50)])
    for offset in range(49):
        held.take(offset, offset + 1)
    assert len(held._segments) == 1


def test_spans_are_those_of_a_set() -> None:
    seeded = random.Random(11)
    spans, model = Spans(), dict[int, int]()
    for _ in range(4000):
        first = seeded.randrange(300) * 10
        if first in model and seeded.random() < 0.7:
            spans.remove(first)
            del model[first]
        else:
            model[first] = first + seeded.randrange(1, 11)
            spans.add(first, model[first])
        asked = seeded.randrange(3100)
        assert (asked in spans) == any(low <= asked < high for low, high in model.items())
        assert len(spans) == len(model)


def test_very_many_at_once_are_added_as_one_by_one() -> None:
    seeded = random.Random(5)
    for _ in range(300):
        firsts = seeded.sample(range(0, 600, 10), 40)
        kept, gone, again = firsts[:20], firsts[10:15], firsts[12:]
        held, spans = held_of(*[segment_of(1, first=first) for first in kept]), Spans()
        for first in kept:
            spans.add(first, first + 1)
        for first in gone:
            held.take(first, first + 1)
            spans.remove(first)
        more = [segment_of(1, first=first) for first in again]
        held.add_all(more)
        spans.add_all(more)
        there = {*kept, *again} - set(gone) | {*again}
        assert [first in spans for first in range(610)] == [first in there for first in range(610)]
        assert held._firsts == sorted(set(held._firsts))
        assert [segment.first for segment in held.clear()] == sorted(there)


def test_spans_that_go_from_the_front_cost_no_more_than_their_number() -> None:
    spans = Spans()
    for first in range(100_000):
        spans.add(first, first + 1)
    for first in range(99_990):
        spans.remove(first)
    assert 99_995 in spans
    assert 5 not in spans
    assert len(spans._firsts) <= 64


class Asked(dict[int, int]):
    """Spans that count how often it is asked whether one is there."""

    asked = 0

    def __contains__(self, first: object) -> bool:
        self.asked += 1
        return super().__contains__(first)


@pytest.mark.parametrize("order", ["forwards", "backwards", "every second one", "in blocks", "shuffled"])
def test_for_each_that_goes_few_are_looked_at_whatever_the_order(order: str) -> None:
    count, block = 20_000, 500
    firsts = list(range(count))
    if order == "backwards":
        firsts.reverse()
    elif order == "every second one":
        firsts = firsts[::2] + firsts[1::2]
    elif order == "in blocks":
        blocks = [firsts[at : at + block] for at in range(0, count, block)]
        random.Random(1).shuffle(blocks)
        firsts = [first for one in blocks for first in one]
    elif order == "shuffled":
        random.Random(3).shuffle(firsts)
    spans = Spans()
    spans._stops = there = Asked()
    for first in range(count):
        spans.add(first, first + 1)
    there.asked = 0
    for at, first in enumerate(firsts):
        spans.remove(first)
        assert there.asked <= FEW * (at + 1)
        assert len(spans._firsts) <= 1.2 * len(there) + 2 * sweeping.LEAST
    assert len(there) == 0


def test_what_is_not_in_memory_costs_none() -> None:
    shape = Shape({"destination": "/topic/kept"})
    run = Run.of_staged(shape, Staged(Large(1, 1 << 20), 10_000), routing=MULTICAST, sender=0)
    assert cost_of(run) == cost_of(Run(shape, []))


@pytest.mark.parametrize(("character", "octets"), [("x", 1), ("\N{EURO SIGN}", 2), ("\N{GRINNING FACE}", 4)])
def test_texts_count_with_the_octets_that_they_take_in_memory(character: str, octets: int) -> None:
    plain = Run(Shape({"destination": "q", "h": "x" * 10_000}), [b""])
    run = Run(Shape({"destination": "q", "h": character * 10_000}), [b""])
    assert 0 <= cost_of(run) - cost_of(plain) - 10_000 * (octets - 1) < 100


def test_the_messages_of_a_run_share_its_headers() -> None:
    shape = Shape({"destination": "q", "h": "x" * 60_000})
    alone, together = Run(shape, [b"body"], first=0), Run(shape, [b"body"] * 100, first=0)
    assert share_of(alone) - EACH == shape.octets > 60_000
    assert 99 * (share_of(together) - EACH) < shape.octets < 101 * (share_of(together) - EACH)
    assert Segment(alone, 0, 1).octets == EACH + 4 + shape.octets
    assert Segment(together, 0, 100).octets <= 100 * (EACH + 4) + shape.octets


class Counted(bytes):
    """Counts who asks how long it is."""

    asked = 0

    def __len__(self) -> int:
        Counted.asked += 1
        return super().__len__()


@pytest.mark.parametrize("back", [True, False])
def test_who_takes_a_run_bit_by_bit_does_not_add_up_the_values_of_the_rest(*, back: bool) -> None:
    values = [Counted(b"x" * (at % 7)) for at in range(1000)]
    run = Run(Shape({"destination": "q"}, holes=("k",)), [b""] * 1000, (values,))
    run.first = 0
    whole = Segment(run, 0, 999)
    fixed = whole.cost - whole.values - 999 * (EACH + VALUE)
    Counted.asked = 0
    total = 0
    while len(whole) > 10:
        part = whole.cut_back(whole.stop - 10) if back else whole.cut(whole.first + 10)
        assert part.cost == fixed + 10 * (EACH + VALUE) + part.values
        total += part.values
        assert whole.cost == fixed + len(whole) * (EACH + VALUE) + whole.values
    assert total + whole.values == sum([at % 7 for at in range(999)])
    assert Counted.asked < 10_000
