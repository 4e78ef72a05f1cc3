"""What waits, and in which order it goes out."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from stompbox.broker.logs.segments import Segment
from stompbox.broker.queues.backlog import Backlog
from tests.broker.world import run_of


def segment(first: int, count: int = 1, *, priority: int = 4, deliveries: int = 0) -> Segment:
    run = run_of("q", *[b"body"] * count, priority=priority)
    run.first = first
    return Segment(run, first, first + count, deliveries)


def order(backlog: Backlog) -> list[int]:
    found = []
    while backlog.count:
        head = backlog.head
        popped = backlog.pop()
        assert head == (-popped.run.shape.priority, popped.first), "head says what pop gives"
        found.append(popped.first)
    return found


def filled(segments: Iterable[Segment]) -> Backlog:
    backlog = Backlog()
    for one in segments:
        backlog.push(one)
    return backlog


def test_first_in_first_out() -> None:
    assert order(filled(segment(offset) for offset in range(5))) == [0, 1, 2, 3, 4]


def test_higher_priorities_first() -> None:
    assert order(
        filled(
            [segment(0), segment(1, priority=0), segment(2, priority=9), segment(3), segment(4, priority=9)]
        )
    ) == [
        2,
        4,
        0,
        3,
        1,
    ]


def test_what_came_back_goes_to_its_place() -> None:
    backlog = filled([segment(10), segment(11)])
    for offset in (7, 3, 5):
        backlog.put_back(segment(offset, deliveries=1))
    assert order(backlog) == [3, 5, 7, 10, 11]


def test_what_came_back_does_not_overtake_a_higher_priority() -> None:
    backlog = filled([segment(10, priority=9)])
    backlog.put_back(segment(3, deliveries=1))
    backlog.put_back(segment(4, priority=9, deliveries=1))
    assert order(backlog) == [4, 10, 3]


def test_a_rest_stays_in_front() -> None:
    backlog = filled([segment(0, 5), segment(5)])
    first = backlog.pop()
    first.cut(3)
    backlog.unpop(first)
    assert (backlog.count, order(backlog)) == (3, [3, 5])


def test_a_rest_of_what_came_back_unwritten_stays_before_what_came_back_later() -> None:
    """It was never delivered, but it is not to be pushed behind what is."""
    backlog = filled([segment(50)])
    backlog.put_back(segment(5, 4))
    backlog.put_back(segment(20, deliveries=1))
    rest = backlog.pop()
    rest.cut(7)
    backlog.unpop(rest)
    assert order(backlog) == [7, 20, 50]


def test_what_is_due_late_does_not_come_before_what_is_older() -> None:
    """A scheduled message is put back without having been delivered, among what waits."""
    backlog = filled([segment(10), segment(11), segment(30, priority=9), segment(40)])
    backlog.put_back(segment(20, 4))
    backlog.put_back(segment(35, priority=9))
    assert backlog.head == (-9, 30)
    assert order(backlog) == [30, 35, 10, 11, 20, 40]
    backlog.put_back(segment(20, 4))
    rest = backlog.pop()
    rest.cut(22)
    backlog.unpop(rest)
    backlog.put_back(segment(15))
    assert order(backlog) == [15, 22]


@given(st.data())
def test_the_books_are_right(data: st.DataObject) -> None:
    """Count and size are those of what is there; priority, then offset decides."""
    backlog, model, next_offset = Backlog(), dict[int, int](), 0  # priorities by offset
    free: list[int] = []  # what may be put back: it was taken, or was left out when it came
    for _ in range(data.draw(st.integers(1, 40))):
        priority = data.draw(st.sampled_from([4, 4, 4, 9, 1]))
        what = data.draw(st.sampled_from(["push", "push", "leave out", "put back", "pop", "pop a part"]))
        if what == "push":
            backlog.push(segment(next_offset, 2, priority=priority))
            model |= {next_offset: priority, next_offset + 1: priority}
            next_offset += 2
        elif what == "leave out":
            free.append(next_offset)
            next_offset += 1
        elif what == "put back" and free:
            offset = free.pop(data.draw(st.integers(0, len(free) - 1)))
            backlog.put_back(segment(offset, deliveries=data.draw(st.integers(0, 1)), priority=priority))
            model[offset] = priority
        elif what.startswith("pop") and backlog.count:
            popped = backlog.pop()
            assert popped.first == min(model, key=lambda offset: (-model[offset], offset))
            taken = popped.cut(popped.first + 1) if what == "pop a part" and len(popped) > 1 else popped
            for offset in range(taken.first, taken.stop):
                del model[offset]
                free.append(offset)
            if taken is not popped:
                backlog.unpop(popped)
        assert backlog.count == len(model)
        assert (backlog.size > 0) == bool(model)
    assert sorted(offset for one in backlog.clear() for offset in range(one.first, one.stop)) == sorted(model)
    assert (backlog.count, backlog.size) == (0, 0)
