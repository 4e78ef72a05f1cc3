"""The contract of a log (commitlog/base.py), kept by each of them."""

from __future__ import annotations

from functools import partial

import pytest

from stompbox.commitlog.base import CommitLog, Fenced, Kind, LogError, Record
from stompbox.commitlog.records import Reader, cut
from stompbox.store.base import Commit
from tests.commitlog.logs import DEADLINE, World, commit, in_thread, read_to
from tests.store.runs import run, told


def filled(log: CommitLog, count: int, payload: bytes = b"record %d") -> list[Record]:
    """A LEAD, and so many records after it."""
    records = [log.lead(log.last(), b"node a")]
    for number in range(count):
        data = payload % number if b"%d" in payload else payload
        position = commit(log, records[-1].position, data, records[0].epoch)
        records.append(Record(position, records[0].epoch, Kind.COMMIT, data))
    return records


def test_an_empty_log(log: CommitLog) -> None:
    assert (log.last(), log.first(), log.heard()) == (0, 1, 0.0)
    assert log.read(0, 1000, 0) == []
    log.trim(0)
    log.trim(5)
    assert log.last() == 0


def test_it_says_what_it_is(world: World) -> None:
    one, other = world.open("a"), world.open("b")
    assert one.identity == other.identity != ""
    assert one.largest >= 1 << 10
    assert one.name


def test_what_is_appended_is_read_in_order(world: World) -> None:
    log, other = world.open("a"), world.open("b")
    written = filled(log, 20)
    positions = [record.position for record in written]
    assert positions == sorted(set(positions))
    assert read_to(log, 0, positions[-1]) == read_to(other, 0, positions[-1]) == written
    assert read_to(other, positions[7], positions[-1]) == written[8:]
    assert (other.first(), other.last()) == (positions[0], positions[-1])
    assert other.read(positions[-1], 1000, 0) == []


@pytest.mark.parametrize("kind", [Kind.COMMIT, Kind.PIECE])
@pytest.mark.parametrize("payload", [b"", b"\0", bytes(range(256)) * 40])
def test_payloads_are_bytes(log: CommitLog, kind: Kind, payload: bytes) -> None:
    position = log.append(0, 1, kind, payload)
    assert log.read(0, 1, DEADLINE) == [Record(position, 1, kind, payload)]


def test_the_largest_record(log: CommitLog) -> None:
    payload = b"x" * log.largest
    position = commit(log, 0, payload)
    assert log.read(0, 1, DEADLINE)[0].payload == payload
    with pytest.raises(ValueError, match="the most is"):
        commit(log, position, payload + b"x")
    assert log.last() == position


def test_a_read_is_about_as_large_as_asked(log: CommitLog) -> None:
    written = filled(log, 10, b"x" * 100)
    assert log.read(written[1].position, 1, DEADLINE) == written[2:3]
    found = log.read(written[1].position, 450, DEADLINE)
    assert found == written[2 : 2 + len(found)]
    assert 1 <= len(found) <= 5


def test_who_was_overtaken_is_fenced(world: World) -> None:
    old, new = world.open("a"), world.open("b")
    lead = old.lead(0, b"a")
    last = commit(old, lead.position, epoch=lead.epoch)
    again = new.lead(new.last(), b"b")
    assert (lead.epoch, again.epoch) == (1, 2)
    assert (again.kind, again.payload) == (Kind.LEAD, b"b")
    with pytest.raises(Fenced) as error:
        commit(old, last, b"of the old one", lead.epoch)
    assert error.value.code == "fenced"
    with pytest.raises(Fenced):
        old.lead(last, b"a")
    assert [record.payload for record in read_to(new, 0, again.position)] == [b"a", b"x", b"b"]
    assert commit(new, again.position, epoch=again.epoch) > again.position


@pytest.mark.parametrize("expected", [0, 1000])
def test_only_the_last_position_will_do(log: CommitLog, expected: int) -> None:
    written = filled(log, 2)
    with pytest.raises(Fenced):
        commit(log, expected)
    assert log.last() == written[-1].position


def test_of_candidates_at_once_one_leads(world: World) -> None:
    nodes = [world.open(name) for name in ("a", "b", "c", "d")]
    last = 0
    for round in range(1, 4):
        attempts = [in_thread(partial(node.lead, last, b"me")) for node in nodes]
        errors = [attempt.exception(DEADLINE) for attempt in attempts]
        assert [type(error) for error in errors if error] == [Fenced] * 3
        (winner,) = [attempt.result() for attempt in attempts if not attempt.exception()]
        assert winner.epoch == round
        assert nodes[0].last() == winner.position
        last = winner.position


def test_a_commit_in_pieces(world: World) -> None:
    log, other = world.open("a"), world.open("b")
    sent = Commit(runs={1: [run(0, 300, body=b"x" * 90)]})
    position = 0
    for kind, payload in cut(sent, 1000):
        position = log.append(position, 1, kind, payload)
    reader = Reader()
    found = [reader.take(record) for record in read_to(other, 0, position)]
    assert isinstance(found[-1], Commit)
    assert told(found[-1].runs[1]) == told(sent.runs[1])
    assert found[:-1] == [None] * (len(found) - 1)
    assert len(found) > 10


def test_reading_while_it_grows(world: World) -> None:
    log, other = world.open("a"), world.open("b")
    count = 100
    reading = in_thread(lambda: read_until(other, count))
    written = filled(log, count)
    assert reading.result(DEADLINE) == written


def read_until(log: CommitLog, count: int) -> list[Record]:
    """From the first record on until there are `count` commits."""
    found: list[Record] = []
    while sum(record.kind is Kind.COMMIT for record in found) < count:
        more = log.read(found[-1].position if found else 0, 500, DEADLINE)
        assert more
        found += more
    return found


def test_a_read_that_waits_is_woken(world: World) -> None:
    log, other = world.open("a"), world.open("b")
    lead = log.lead(0, b"a")
    waiting = in_thread(lambda: other.read(lead.position, 1000, DEADLINE))
    position = commit(log, lead.position)
    assert [record.position for record in waiting.result(DEADLINE)] == [position]


def test_a_read_that_waits_for_nothing_gives_nothing(log: CommitLog) -> None:
    lead = log.lead(0, b"a")
    assert log.read(lead.position, 1000, 0.05) == []


def test_what_is_trimmed_is_gone(world: World) -> None:
    log, other = world.open("a"), world.open("b")
    written = filled(log, 10)
    log.trim(written[4].position)
    assert log.first() == other.first() == written[4].position
    assert read_to(other, written[3].position, written[-1].position) == written[4:]
    for after in (0, written[2].position):
        with pytest.raises(LogError) as error:
            other.read(after, 1000, 0)
        assert error.value.code == "log-trimmed"
    log.trim(written[2].position)  # late
    assert log.first() == written[4].position


def test_the_last_record_is_never_trimmed(log: CommitLog) -> None:
    written = filled(log, 3)
    log.trim(written[-1].position + 100)
    assert (log.first(), log.last()) == (written[-1].position, written[-1].position)
    assert commit(log, written[-1].position) > written[-1].position
    assert log.lead(log.last(), b"a").epoch == 2


def test_epochs_go_on_when_their_records_are_trimmed(world: World) -> None:
    log = world.open("a")
    written = filled(log, 3)
    log.trim(written[-1].position)
    other = world.open("b")
    assert other.lead(other.last(), b"b").epoch == 2


def test_a_beat_is_heard_by_others(world: World) -> None:
    log, other = world.open("a"), world.open("b")
    lead = log.lead(0, b"a")
    read_to(other, 0, lead.position)
    heard = other.heard()
    waiting = in_thread(lambda: beats_until(log, lead.epoch, lambda: other.heard() > heard))
    waiting.result(DEADLINE)
    assert other.heard() > heard
    assert log.heard() == 0.0
    assert other.last() == lead.position  # it is kept nowhere


def beats_until(log: CommitLog, epoch: int, is_done: object) -> None:
    assert callable(is_done)
    while not is_done():
        log.beat(epoch)


def test_a_record_is_heard_by_others(world: World) -> None:
    log, other = world.open("a"), world.open("b")
    lead = log.lead(0, b"a")
    read_to(other, 0, lead.position)
    assert other.heard() > 0
    assert log.heard() == 0.0


def test_a_closed_log(world: World) -> None:
    log = world.open("a")
    lead = log.lead(0, b"a")
    log.close()
    log.close()
    calls = (
        log.last,
        log.first,
        lambda: commit(log, lead.position),
        lambda: log.lead(lead.position, b"a"),
        lambda: log.read(0, 100, 0),
        lambda: log.beat(1),
        lambda: log.trim(1),
    )
    for call in calls:
        with pytest.raises(LogError) as error:
            call()
        assert error.value.code == "log-closed"
    assert world.open("b").last() == lead.position


def test_close_ends_a_read_that_waits(world: World) -> None:
    log = world.open("a")
    lead = log.lead(0, b"a")
    waiting = in_thread(lambda: log.read(lead.position, 100, DEADLINE))
    log.close()
    assert isinstance(error := waiting.exception(DEADLINE), LogError)
    assert error.code == "log-closed"
