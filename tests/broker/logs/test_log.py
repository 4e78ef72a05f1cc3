"""Offsets, what goes to the store, what may be deleted."""

from __future__ import annotations

from stompbox.broker.logs.cursor import FAR, Cursor
from stompbox.broker.logs.log import RESERVE, Log
from stompbox.incarnations import Incarnations
from stompbox.message import Run
from stompbox.store.base import Commit
from tests.broker.world import run_of


def log_with(*positions: int, next: int = 0, is_known: bool = False) -> Log:
    log = Log(1, "q", Incarnations(), next=next, is_known=is_known)
    for id, position in enumerate(positions):
        log.hold(id, Cursor(id, position, is_durable=True))
        log.cursors[id].reach = FAR
    return log


def appended(log: Log, count: int = 1) -> Run:
    run = run_of("q", *[b"x"] * count)
    run.first, log.next = log.next, log.next + count
    log.add(run)
    return run


def given(log: Log) -> Commit:
    commit = Commit()
    log.give(commit)
    return commit


def test_the_first_commit_tells_of_the_log() -> None:
    log = log_with(0)
    run = appended(log, 3)
    commit = given(log)
    assert (commit.logs, commit.runs, commit.next_offsets, commit.trims) == ({1: "q"}, {1: [run]}, {}, {})
    assert given(log).runs == {}, "each run once"


def test_logs_that_reserve_the_same_offsets_have_one_number_for_it() -> None:
    one, other = log_with(), log_with()
    one.next = other.next = 3
    assert given(one).next_offsets == given(other).next_offsets == {1: RESERVE + 3}
    assert one.reserved is other.reserved


def test_what_nobody_needs_any_more_is_not_written() -> None:
    log = log_with(3)
    appended(log, 3)
    needed = appended(log)
    commit = given(log)
    assert commit.runs == {1: [needed]}


def test_nothing_is_left_to_be_read_of_what_was_done_with_before_it_was_stored() -> None:
    log = log_with(0)
    appended(log, 3)
    given(log)
    assert (log.oldest, log.committed) == (0, 0), "it is not there yet"
    log.landed(3)
    appended(log, 2)
    log.cursors[0].acknowledge(0, 5)
    given(log)
    assert log.oldest == 3, "the store has those before"
    log.landed(5)
    assert (log.oldest, log.committed, log.next, log.stored) == (5, 5, 5, 3)
    appended(log)
    given(log)
    late = appended(log)
    log.landed(6)
    assert (log.oldest, log.committed) == (5, 6)
    log.cursors[0].acknowledge(5, 7)
    given(log)
    assert not late.is_logged
    log.landed(7)
    assert log.oldest == log.next == 7


def test_nobody_is_told_that_what_he_has_not_read_is_gone() -> None:
    """A reader of the log who came before it was known what would be stored: messages that are not persistent, and without takers."""
    log = log_with(0)
    log.next = 1
    given(log)
    log.landed(1)
    assert (log.oldest, log.committed) == (0, 1)


def test_what_the_log_has_is_not_stored_again_whoever_asks() -> None:
    log = log_with(0)
    run = appended(log, 2)
    assert not log.add(run)
    assert given(log).runs == {1: [run]}
    assert not log.add(run), "on its way"
    log.landed(log.next)
    assert not log.add(run), "there"
    assert given(log).runs == {}
    assert log.in_memory(2) == ([], 2)


def test_what_is_needed_again_while_a_commit_flies_that_has_it_not_is_there_once() -> None:
    log = log_with(3)
    again, needed = appended(log, 3), appended(log)
    given(log)
    log.add(again)
    assert log.in_memory(0) == ([again, needed], 4)
    log.failed()
    assert log.in_memory(0) == ([again, needed], 4)
    log.hold(0, Cursor(0, 0, is_durable=True))
    log.cursors[0].reach = FAR
    assert given(log).runs == {1: [again, needed]}


def test_offsets_that_are_not_stored_are_reserved() -> None:
    """They were given to messages; a message-id must not name two."""
    log = log_with(5)
    log.next = 5
    assert given(log).next_offsets == {1: 5 + RESERVE}
    log.next = 5 + RESERVE
    assert given(log).next_offsets == {}
    log.next += 1
    assert given(log).next_offsets == {1: log.next + RESERVE}


def test_trimming_goes_as_far_as_the_slowest_cursor() -> None:
    log = log_with(0, 0)
    appended(log, 10)
    given(log)
    log.cursors[0].acknowledge(0, 8)
    assert given(log).trims == {}
    log.cursors[1].acknowledge(0, 4)
    assert given(log).trims == {1: 4}
    assert log.low_water() == 4
    assert given(log).trims == {}, "once is enough"


def test_a_retained_log_keeps_everything() -> None:
    log = log_with(0)
    log.is_retained = True
    runs = [appended(log, 2), appended(log)]
    log.cursors[0].acknowledge(0, 3)
    commit = given(log)
    assert (commit.runs, commit.trims) == ({1: runs}, {})


def test_what_fails_comes_again() -> None:
    log = log_with(0)
    run = appended(log)
    given(log)
    later = appended(log)
    assert list(log.unstored(0)) == [run, later]
    log.failed()
    assert given(log).runs == {1: [run, later]}


def test_what_is_on_disk_is_not_in_memory() -> None:
    log = log_with(0)
    appended(log)
    given(log)
    later = appended(log)
    log.landed(1)
    assert (log.committed, list(log.unstored(0))) == (1, [later])


def test_a_run_is_taken_once_and_in_its_place() -> None:
    """A run that is paged after others, which were published because of it, still comes before them."""
    log = log_with(0)
    run = run_of("q", b"x")
    run.first, log.next = 0, 1
    later = appended(log)
    assert log.add(run)
    assert not log.add(run)
    assert not log.add(later)
    assert given(log).runs == {1: [run, later]}


def test_what_comes_late_is_read_from_memory_until_it_is_on_disk() -> None:
    """It was needed nowhere when what came after it was stored."""
    log = log_with(0)
    late, later = run_of("q", b"0", b"1"), run_of("q", b"5")
    late.first, later.first, log.next = 0, 5, 6
    stored = run_of("q", b"2", b"3", b"4")
    stored.first = 2
    log.add(stored)
    given(log)
    log.landed(5)
    assert log.add(late)
    assert log.add(later)
    assert [log.on_disk(start) for start in (0, 1, 2, 5)] == [0, 0, 5, 5]
    assert log.in_memory(0) == ([late], 2)
    assert log.in_memory(1) == ([late], 2)
    assert log.in_memory(5) == ([later], 6)
    given(log)
    assert (log.on_disk(0), log.stored) == (0, 6)
    log.failed()
    assert log.pending == [late, later]
    given(log)
    log.landed(6)
    assert log.on_disk(0) == 6
