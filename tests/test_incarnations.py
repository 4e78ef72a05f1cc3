"""Logs that were copied, restored and made anew, and readers of each who come to the others."""

from __future__ import annotations

import pytest

from stompbox.incarnations import MOST, Incarnations, difference, incarnations_of

FIRST = Incarnations((("a", 0),))
RESTORED = FIRST.followed_by("b", 100)
AGAIN = RESTORED.followed_by("c", 250)


@pytest.mark.parametrize(
    ("log", "id", "offset", "is_held"),
    [
        (FIRST, "a", 5000, True),
        (FIRST, "b", 5, False),
        (FIRST, "b", 0, True),  # nothing was read
        (FIRST, "", 5000, True),  # a reader who never knew
        (Incarnations(), "a", 5, True),  # a broker that does not say
        (RESTORED, "a", 100, True),
        (RESTORED, "a", 101, False),
        (RESTORED, "b", 101, True),
        (AGAIN, "a", 100, True),
        (AGAIN, "b", 250, True),
        (AGAIN, "b", 251, False),
        (AGAIN, "c", 9000, True),
        (RESTORED, "c", 251, False),
    ],
)
def test_who_can_go_on(log: Incarnations, id: str, offset: int, is_held: bool) -> None:
    assert log.holds(id, offset) is is_held


def test_what_a_reader_remembers_is_the_incarnation_of_the_last_message_that_it_has_read() -> None:
    assert [AGAIN.of(offset) for offset in (0, 1, 100, 101, 250, 251)] == ["a", "a", "a", "b", "b", "c"]
    assert Incarnations().of(7) == ""


def test_where_a_reader_goes_on() -> None:
    assert AGAIN.resumed("b", 200, 30) == 200
    assert AGAIN.resumed("b", 20, 30) == 30
    assert AGAIN.resumed("b", 900, 30) == 250  # what both have is not read again
    assert AGAIN.resumed("x", 900, 30) == 30


def test_readers_of_two_copies_of_one_backup_are_told_apart() -> None:
    one, other = FIRST.followed_by("b", 100), FIRST.followed_by("c", 100)
    place = (one.of(150), 150)
    assert one.holds(*place) and not other.holds(*place)
    assert other.holds(one.of(100), 100)


def test_an_incarnation_without_a_message_is_forgotten() -> None:
    assert RESTORED.followed_by("d", 100) == Incarnations((("a", 0), ("d", 100)))
    assert FIRST.followed_by("d", 0) == Incarnations((("d", 0),))


def test_a_log_that_was_restored_very_often() -> None:
    log = FIRST
    for count in range(1, 3 * MOST):
        log = log.followed_by(str(count), count)
    assert len(log.entries) == MOST and log.current == str(3 * MOST - 1)
    assert not log.holds("a", 1)


def test_there_and_back() -> None:
    assert incarnations_of(AGAIN.wire()) == AGAIN


def test_what_is_said() -> None:
    said = difference("orders", FIRST, "x", 1000, (0, 5000))
    assert all(
        word in said
        for word in ("orders", "another one", "offset 1000", "incarnation x", "incarnation a", "0 to 5000")
    )
    assert "restored as of offset 100" in difference("orders", RESTORED, "a", 150, (0, 300))
