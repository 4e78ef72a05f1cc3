"""Commits as payloads of records: what comes back has the same effect, in pieces or whole; what is damaged, missing or newer is named."""

from __future__ import annotations

import zlib
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stompbox.commitlog.base import Kind, LogError, Record
from stompbox.commitlog.records import HEAD, VERSION, Lead, Reader, cut, decode, encode, lead_payload
from stompbox.handles import Large
from stompbox.message import Run
from stompbox.store.base import Commit
from stompbox.store.memory import MemoryStore
from tests.store.runs import QUEUE, described, run, run_lists

LARGEST = 1 << 20
U64 = st.integers(0, 2**64 - 1)
ids = st.integers(1, 3)
offsets = st.integers(0, 2**62)
ranges = st.lists(st.tuples(offsets, offsets), max_size=3)
texts = st.text(max_size=5)


@st.composite
def large_runs(draw: st.DrawFn) -> list[Run]:
    handles = draw(st.lists(st.builds(Large, U64, st.integers(0, 2**40)), min_size=1, max_size=3))
    return [Run(QUEUE, handles, first=draw(st.integers(0, 2**40)), arrived=7)]


commits = st.builds(
    Commit,
    logs=st.dictionaries(st.integers(10, 12), texts, max_size=2),
    runs=st.dictionaries(ids, run_lists(max_runs=4) | large_runs(), max_size=2),
    next_offsets=st.dictionaries(ids, offsets, max_size=2),
    cursors=st.dictionaries(ids, st.tuples(ids, offsets), max_size=2),
    acknowledged=st.dictionaries(ids, ranges, max_size=2),
    delivered=st.dictionaries(
        ids,
        st.lists(st.tuples(offsets, offsets, st.integers(0, 9), st.integers(0, 9)), max_size=2),
        max_size=2,
    ),
    dropped_cursors=st.lists(ids, max_size=2),
    entries=st.dictionaries(st.tuples(texts, texts), st.none() | st.binary(max_size=9), max_size=3),
    trims=st.dictionaries(ids, offsets, max_size=2),
    dropped_logs=st.lists(ids, max_size=2),
    parts=st.dictionaries(st.tuples(U64, st.integers(0, 9)), st.binary(max_size=30), max_size=2),
    holds=st.dictionaries(U64, st.booleans(), max_size=2),
    is_loose=st.booleans(),
)


def told_runs(runs: list[Run]) -> list[tuple[Any, ...]]:
    """Run by run, all that a store can see."""
    return [
        (
            run.first,
            run.arrived,
            run.routing,
            run.size,
            run.is_large,
            described(run.shape),
            [list(column) for column in run.columns],
            [(body.id, body.size) if isinstance(body, Large) else body for body in run.bodies],
        )
        for run in runs
    ]


def told(commit: Commit) -> dict[str, Any]:
    """Field by field; a field that Commit gets later is in it as well."""
    found = {field.name: getattr(commit, field.name) for field in fields(Commit)}
    found["runs"] = {log: told_runs(runs) for log, runs in commit.runs.items()}
    found["entries"] = list(commit.entries.items())  # their order is that of the catalogue
    return found


def records(commit: Commit, largest: int, first: int = 1) -> list[Record]:
    return [
        Record(position, 1, kind, payload)
        for position, (kind, payload) in enumerate(cut(commit, largest), first)
    ]


def read(found: list[Record], reader: Reader | None = None) -> list[Commit]:
    reader = reader or Reader()
    return [commit for record in found if isinstance(commit := reader.take(record), Commit)]


@given(commits)
def test_every_field_comes_back(commit: Commit) -> None:
    assert told(decode(encode(commit))) == told(commit)


@given(commits, st.integers(HEAD.size + 1, 200))
def test_pieces_make_the_commit_again(commit: Commit, largest: int) -> None:
    found = records(commit, largest)
    assert [record.kind for record in found] == [Kind.PIECE] * (len(found) - 1) + [Kind.COMMIT]
    assert all(len(record.payload) <= largest for record in found)
    (again,) = read(found)
    assert told(again) == told(commit)


@settings(max_examples=50)
@given(st.lists(st.integers(1, 12), min_size=1, max_size=4), st.integers(0, 40), st.integers(0, 40))
def test_the_effect_is_the_same_down_to_the_chunks(counts: list[int], floor: int, acknowledged: int) -> None:
    firsts = [sum(counts[:at]) for at in range(len(counts))]
    sent = [
        Commit(logs={1: "orders"}, cursors={7: (1, 0)}),
        Commit(
            runs={1: [run(first, count, arrived=first) for first, count in zip(firsts, counts, strict=True)]},
            acknowledged={7: [(0, acknowledged)]},
            entries={("queue", "a"): b"{}"},
            trims={1: floor},
        ),
    ]
    stores = MemoryStore(chunk_bytes=200), MemoryStore(chunk_bytes=200)
    for commit in sent:
        stores[0].apply(commit)
        stores[1].apply(read(records(commit, 64))[0])
    assert stores[0].recover() == stores[1].recover()
    assert stores[0].read(1, 0, 100, 1 << 30) == stores[1].read(1, 0, 100, 1 << 30)


def large() -> Commit:
    return Commit(runs={1: [run(0, 40, body=b"x" * 50)]})


def test_what_a_leader_left_undone_is_void() -> None:
    left = records(large(), 500)[:-1]
    lead = Record(90, 2, Kind.LEAD, lead_payload(Lead("b")))
    reader = Reader()
    assert read(left, reader) == []
    assert reader.take(lead) == Lead("b")
    (found,) = read(records(large(), 500, first=91), reader)
    assert told(found) == told(large())


def test_a_commit_that_was_given_up_in_the_middle_is_void_without_a_new_leader() -> None:
    """The log was full: the same leader goes on with another commit when there is room."""
    reader = Reader()
    assert read(records(large(), 500)[:-1], reader) == []
    other = Commit(entries={("queue", "a"): b"x" * 900})
    (found,) = read(records(other, 500, first=50), reader)
    assert told(found) == told(other)


def test_a_missing_piece_is_named() -> None:
    found = records(large(), 500)
    with pytest.raises(LogError, match="record 3 is piece 2 of a commit, 1 were before it") as error:
        read([found[0], *found[2:]])
    assert error.value.code == "log-corrupt"


def test_who_leads_comes_back() -> None:
    lead = Lead("a", "stomp://10.0.0.1:61614", "0.1.0", VERSION, "abc")
    assert Reader().take(Record(1, 1, Kind.LEAD, lead_payload(lead))) == lead


def headed(data: bytes, version: int = VERSION, number: int = 0) -> bytes:
    return HEAD.pack(version, number, zlib.crc32(data)) + data


@pytest.mark.parametrize("kind", Kind)
def test_a_newer_format_is_named(kind: Kind) -> None:
    record = Record(7, 1, kind, headed(b"what nobody knows yet", VERSION + 1))
    with pytest.raises(LogError, match=f"record 7 has format {VERSION + 1}, .* newer Stompbox") as error:
        Reader().take(record)
    assert error.value.code == "log-too-new"


@pytest.mark.parametrize("kind", [Kind.COMMIT, Kind.LEAD])
@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\x01",
        headed(b""),
        headed(b"\xc1"),
        headed(b"\x90"),
        headed(b"x", 0),
        headed(encode(large()))[:-1],
    ],
    ids=["empty", "short", "nothing", "garbage", "no fields", "version 0", "cut off"],
)
def test_what_is_no_record_is_named(kind: Kind, payload: bytes) -> None:
    with pytest.raises(LogError, match="record 9") as error:
        Reader().take(Record(9, 1, kind, payload))
    assert error.value.code == "log-corrupt"


@given(st.data())
def test_a_flipped_bit_is_found(data: st.DataObject) -> None:
    payload = bytearray(records(large(), LARGEST)[0].payload)
    # beyond the head's version and padding, where it may mean a newer format
    bit = data.draw(st.integers(32, 8 * len(payload) - 1))
    payload[bit // 8] ^= 1 << bit % 8
    with pytest.raises(LogError) as error:
        Reader().take(Record(1, 1, Kind.COMMIT, bytes(payload)))
    assert error.value.code == "log-corrupt"


def test_a_shape_that_is_not_there_is_damage() -> None:
    wrong = encode(large()).replace(b"\x91\xc4", b"\x90\xc4", 1)
    with pytest.raises(LogError, match="cannot be read"):
        decode(wrong)


def test_records_need_room_for_their_head() -> None:
    with pytest.raises(ValueError, match="no room for a head"):
        list(cut(Commit(), HEAD.size))
