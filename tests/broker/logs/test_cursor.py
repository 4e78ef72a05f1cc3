"""How far a reader has come, and what the next commit has to say about it."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from stompbox.broker.logs.cursor import FAR, Counts, Cursor
from stompbox.ranges import Ranges
from stompbox.store.base import Delivered
from stompbox.store.changes import CursorState
from tests.broker.logs.test_segments import segment_of


def test_acknowledging_in_order_moves_the_position() -> None:
    cursor = Cursor(1, 5, is_durable=True)
    assert cursor.acknowledge(5, 8), "first news for the commit"
    assert not cursor.acknowledge(8, 9)
    assert (cursor.position, cursor.unsaved, list(cursor.ahead)) == (9, [(5, 9)], [])


def test_acknowledging_ahead_waits_for_the_gap() -> None:
    cursor = Cursor(1, 0, is_durable=True)
    cursor.acknowledge(5, 6)
    cursor.acknowledge(2, 4)
    assert (cursor.position, list(cursor.ahead)) == (0, [(2, 4), (5, 6)])
    cursor.acknowledge(0, 2)
    assert (cursor.position, list(cursor.ahead)) == (4, [(5, 6)])
    cursor.acknowledge(4, 5)
    assert (cursor.position, list(cursor.ahead)) == (6, [])


def test_a_cursor_in_memory_has_no_news() -> None:
    cursor = Cursor(1, 0, is_durable=False)
    assert not cursor.acknowledge(0, 1)
    assert (cursor.position, cursor.unsaved) == (1, None)


def test_backwards_is_one_range_of_news() -> None:
    cursor = Cursor(1, 0, is_durable=True)
    for offset in range(1000, 0, -1):
        cursor.acknowledge(offset, offset + 1)
    assert (cursor.unsaved, list(cursor.ahead)) == ([(1, 1001)], [(1, 1001)])


def test_who_answered_all_needs_nothing_of_what_is_not_its_own() -> None:
    cursor = Cursor(1, 0, is_durable=True)
    cursor.reach = 3
    assert cursor.settle(100) == 0, "0..2 are not answered"
    cursor.acknowledge(0, 3)
    assert cursor.settle(100) == 100
    assert cursor.settle(100) == 100


def test_who_has_to_look_at_the_log_needs_all_of_it() -> None:
    cursor = Cursor(1, 7, is_durable=True)
    cursor.reach = FAR
    assert cursor.settle(100) == 7


def test_what_never_was_stored_is_not_told() -> None:
    """Acknowledgements of messages that were never stored: nothing to say, until something stored lies beyond them."""
    cursor = Cursor(1, 0, is_durable=True)
    cursor.acknowledge(0, 50)
    assert cursor.news(stored=0) == []
    cursor.acknowledge(50, 51)
    assert cursor.news(stored=51) == [(0, 51)], (
        "one range: the stored cursor gets no gap that this one has not"
    )


def test_gaps_in_the_store_do_not_grow_behind_a_stuck_message() -> None:
    """Every second message is stored, the first is never answered: the store is told ranges as large as they are here."""
    cursor, stored = Cursor(1, 0, is_durable=True), CursorState(1, 0, Ranges())
    for offset in range(1, 101):
        cursor.acknowledge(offset, offset + 1)
        stored.acknowledge(cursor.news(stored=offset + 1 if offset % 2 else offset))
    assert (stored.position, list(stored.ahead)) == (0, [(1, 100)])
    assert list(cursor.ahead) == [(1, 101)]


def test_of_very_many_news_so_many_are_told_in_one_go_the_oldest_first() -> None:
    cursor = Cursor(1, 0, is_durable=True)
    for offset in range(1, 21, 2):
        cursor.acknowledge(offset, offset + 1)
    assert cursor.news(100, 4) == [(1, 2), (3, 4), (5, 6), (7, 8)]
    assert not cursor.acknowledge(21, 22)  # some are not told yet, so this is not the first
    cursor.revoke(9, 10)
    assert cursor.news(100, 4) == [(11, 12), (13, 14), (15, 16)]
    assert cursor.news(100, 4) == [(17, 18), (19, 20), (21, 22)]
    assert (cursor.news(100, 4), cursor.unsaved) == ([], [])
    assert cursor.acknowledge(30, 31)


def test_news_that_were_not_saved_come_again() -> None:
    cursor = Cursor(1, 0, is_durable=True)
    cursor.acknowledge(0, 3)
    cursor.acknowledge(7, 9)
    told = cursor.news(stored=10)
    assert sorted(told) == [(0, 3), (7, 9)]
    assert cursor.news(stored=10) == []
    cursor.not_saved(told)
    cursor.acknowledge(3, 4)
    assert sorted(cursor.news(stored=10)) == [(0, 4), (7, 9)]


def test_nothing_acknowledged_is_no_news() -> None:
    cursor = Cursor(1, 0, is_durable=True)
    assert not cursor.acknowledge(5, 5)
    cursor.pass_over(7, 7)
    assert (cursor.unsaved, list(cursor.ahead), cursor.news(stored=9)) == ([], [], [])


@given(st.data())
def test_the_stored_cursor_follows(data: st.DataObject) -> None:
    """With any acknowledgements, commits and failed commits, and what was refused with those, the store knows in the end what of the stored
    messages is answered."""
    cursor, stored, model = Cursor(1, 0, is_durable=True), CursorState(1, 0, Ranges()), set[int]()
    saved = set[int]()
    for _ in range(data.draw(st.integers(1, 30))):
        firsts = data.draw(st.lists(st.integers(0, 40), min_size=1, max_size=4))
        ranges = [(first, first + data.draw(st.integers(0, 5))) for first in firsts]
        was_told = not cursor.unsaved
        if data.draw(st.booleans()):
            is_news = cursor.acknowledge_all([first for first, _ in ranges], [stop for _, stop in ranges])
        else:
            is_news = bool(sum([cursor.acknowledge(first, stop) for first, stop in ranges]))
        assert is_news is (was_told and any(first < stop for first, stop in ranges))
        model |= {offset for first, stop in ranges for offset in range(first, stop)}
        what = data.draw(st.sampled_from(["nothing", "commit", "failure", "refusal"]))
        if what != "nothing":
            told = cursor.news(stored=45)
            if what == "commit":
                stored.acknowledge(told)
                saved = set(model)
            else:
                cursor.not_saved(told)
        if what == "refusal" and model - saved:
            for refused in data.draw(st.sets(st.sampled_from(sorted(model - saved)))):
                cursor.revoke(refused, refused + 1)
                model.discard(refused)
    stored.acknowledge(cursor.news(stored=45))
    assert {offset for offset in range(60) if offset < stored.position or offset in stored.ahead} == model
    assert {offset for offset in range(60) if offset < cursor.position or offset in cursor.ahead} == model


class Told(list[Delivered]):
    """Counts what of it is looked at."""

    looked = 0

    def __getitem__(self, at: Any) -> Any:
        self.looked += len(range(*at.indices(len(self)))) if isinstance(at, slice) else 1
        return super().__getitem__(at)


def test_how_often_a_message_was_delivered_is_told_without_a_look_at_the_others() -> None:
    count = 1000
    told = Told([(offset, offset + 1, 2, 1) for offset in range(0, count, 2)])
    counts = Counts(told)
    for offset in range(count):
        [part] = counts.parted(segment_of(1, first=offset))
        assert (part.deliveries, part.failures) == ((0, 0) if offset % 2 else (2, 1))
    assert told.looked <= 2 * count
    assert [part.deliveries for part in counts.parted(segment_of(1, 1, 1, 1, first=1))] == [0, 2, 0, 2]
