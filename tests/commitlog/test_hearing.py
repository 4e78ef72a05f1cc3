"""A node counts for how long a leader was quiet, and not for how long the log was."""

from __future__ import annotations

import pytest

from stompbox.commitlog.hearing import SLACK, Hearing


class Ear:
    """A node that listens, and a clock that the test sets."""

    def __init__(self) -> None:
        self.now = 100.0
        self.heard = 0.0
        self.hearing = Hearing(lambda: self.heard, lambda: self.now)

    def ask(self, took: float, wait: float = 0.25) -> None:
        self.hearing.asks(wait)
        self.now += took
        self.hearing.answered()

    @property
    def quiet(self) -> float:
        return round(self.hearing.quiet, 6)


def test_it_counts_from_when_it_begins_to_listen() -> None:
    ear = Ear()
    ear.now += 5
    ear.ask(2, wait=2)
    assert ear.quiet == 2
    ear.hearing.begin()
    assert ear.quiet == 0


def test_a_sign_of_the_leader_begins_it_anew() -> None:
    ear = Ear()
    ear.ask(2, wait=2)
    ear.heard = ear.now - 0.5
    assert ear.quiet == 0.5


def test_what_it_did_not_ask_is_not_counted() -> None:
    """A disk that takes seconds for what was read, while the log may be away for all."""
    ear = Ear()
    for _ in range(4):
        ear.ask(0.25)
        ear.now += 3
        assert ear.quiet <= 1
    assert ear.quiet == 1
    ear.heard = ear.now - 2  # in which it did not ask, either
    assert ear.quiet == 0
    ear.ask(0.25)
    assert ear.quiet == 0.25


def test_answers_in_time_are_counted_whole() -> None:
    ear = Ear()
    for _ in range(8):
        ear.ask(0.25)
    assert ear.quiet == 2


def test_what_an_answer_is_late_is_not_counted() -> None:
    ear = Ear()
    ear.ask(5.0)
    assert ear.quiet == pytest.approx(0.25 + SLACK)


def test_while_no_answer_comes_it_stands_still() -> None:
    ear = Ear()
    ear.ask(1, wait=1)
    ear.hearing.asks(0.25)
    ear.now += 30
    assert ear.quiet == pytest.approx(1.25 + SLACK)
    ear.hearing.answered()
    ear.ask(1, wait=1)
    assert ear.quiet == pytest.approx(2.25 + SLACK)


def test_a_sign_that_comes_while_an_answer_is_late_counts() -> None:
    ear = Ear()
    ear.hearing.asks(0.25)
    ear.now += 30
    ear.heard = ear.now - 10
    assert ear.quiet == 0
    ear.hearing.answered()
    ear.ask(1, wait=1)
    assert ear.quiet == 1


def test_a_log_that_gives_no_answer_begins_it_anew() -> None:
    ear = Ear()
    ear.ask(5, wait=5)
    ear.hearing.asks(0.25)
    ear.hearing.refused()
    assert ear.quiet == 0
    ear.now += 1
    assert ear.quiet == 0
    ear.ask(1, wait=1)
    assert ear.quiet == 1
