"""The faults that a log in memory has on demand do what they say: the models of the cluster rely on them."""

from __future__ import annotations

import pytest

from stompbox.commitlog.base import Fenced, LogError
from stompbox.commitlog.memory import Loss, MemoryLog, SharedLog
from tests.commitlog.logs import DEADLINE, commit, in_thread


class Stuck(Exception):
    """A call would have waited."""


def stuck() -> None:
    raise Stuck


@pytest.fixture
def shared() -> SharedLog:
    return SharedLog()


def test_what_is_away_does_not_answer(shared: SharedLog) -> None:
    log = shared.open()
    log.is_away = True
    for call in (log.last, log.first, lambda: log.read(0, 1, 0), lambda: log.beat(1), lambda: log.trim(1)):
        with pytest.raises(LogError) as error:
            call()
        assert error.value.code == "log-unavailable"
    log.is_away = False
    assert log.last() == 0


def test_an_append_waits_until_the_log_is_back(shared: SharedLog) -> None:
    log = shared.open()
    log.is_away = True
    waiting = in_thread(lambda: commit(log, 0))
    assert shared.open().last() == 0
    log.is_away = False
    assert waiting.result(DEADLINE) == 1


@pytest.mark.parametrize("loss", Loss)
def test_an_append_without_an_answer_finds_out(shared: SharedLog, loss: Loss) -> None:
    log, other = shared.open("a"), shared.open("b")
    log.loses = loss
    seen: list[int] = []

    def blocked() -> None:
        seen.append(other.last())
        log.is_away = False

    log.blocked = blocked
    assert commit(log, 0) == 1
    assert seen == [1 if loss is Loss.LANDED else 0]
    assert other.last() == 1


@pytest.mark.parametrize(("loss", "is_fenced"), [(Loss.BEFORE, True), (Loss.LANDED, False)])
def test_another_one_leads_meanwhile(shared: SharedLog, loss: Loss, is_fenced: bool) -> None:
    log, other = shared.open("a"), shared.open("b")
    log.loses = loss

    def blocked() -> None:
        other.lead(other.last(), b"b")
        log.is_away = False

    log.blocked = blocked
    if is_fenced:
        with pytest.raises(Fenced):
            commit(log, 0)
    else:
        assert commit(log, 0) == 1
    assert [record.payload for record in other.read(0, 100, 0)] == [b"b"] if is_fenced else [b"x", b"b"]


def test_one_thread_can_play_several_nodes(shared: SharedLog) -> None:
    log = shared.open()
    log.blocked = stuck
    assert log.read(0, 1, 1e9) == []
    log.is_away = True
    with pytest.raises(Stuck):
        commit(log, 0)


def test_a_full_log_refuses_and_keeps_nothing(shared: SharedLog) -> None:
    log = shared.open()
    shared.capacity = 1
    commit(log, 0)
    with pytest.raises(LogError) as error:
        commit(log, 1)
    assert (error.value.code, log.last()) == ("log-full", 1)
    log.trim(1)
    shared.capacity = 2
    assert commit(log, 1) == 2


def test_close_ends_an_append_that_waits(shared: SharedLog) -> None:
    log = shared.open()
    log.is_away = True
    waiting = in_thread(lambda: commit(log, 0))
    log.close()
    assert isinstance(error := waiting.exception(DEADLINE), LogError)
    assert error.code == "log-closed"


def test_a_slow_log_is_slow_and_can_be_closed(shared: SharedLog) -> None:
    log = shared.open()
    log.delay = 0.001
    assert commit(log, 0) == 1
    log.delay = 1e6
    waiting = in_thread(lambda: commit(log, 1))
    log.close()
    assert waiting.exception(DEADLINE) is not None


def test_a_beat_of_an_old_epoch_is_fenced(shared: SharedLog) -> None:
    log, other = shared.open("a"), shared.open("b")
    log.lead(0, b"a")
    other.lead(1, b"b")
    with pytest.raises(Fenced):
        log.beat(1)


def test_what_is_away_hears_nothing() -> None:
    now = 5.0
    shared = SharedLog(clock=lambda: now)
    log, other = shared.open("a"), shared.open("b")
    other.is_away = True
    log.beat(0)
    assert other.heard() == 0.0
    other.is_away = False
    log.beat(0)
    assert other.heard() == 5.0


def test_it_says_what_it_is(shared: SharedLog) -> None:
    log: MemoryLog = shared.open("a")
    commit(log, 0)
    assert repr(log) == "<MemoryLog a 1..1 away=False>"
