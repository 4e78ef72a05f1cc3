"""The write-ahead log as SQLite writes it: each flipped bit is found, and what a crash cut short is not taken for one."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from stompbox.store import wal
from stompbox.store.losses import Losses
from stompbox.store.mending import log_of, mend_log
from stompbox.store.wal import FRAME, HEADER

PAGE = 8192
SIZE = FRAME + PAGE


@pytest.fixture
def data(tmp_path: Path) -> bytes:
    random = Random(3)
    with closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as connection:
        for setting in (f"page_size = {PAGE}", "journal_mode = WAL", "wal_autocheckpoint = 0"):
            connection.execute(f"PRAGMA {setting}")
        connection.execute("CREATE TABLE a (b)")
        for _ in range(6):
            connection.execute("INSERT INTO a VALUES (?)", (random.randbytes(10_000),))
        return (tmp_path / "a.db-wal").read_bytes()


def test_a_whole_one_is_whole(data: bytes) -> None:
    found = wal.read(data)
    assert found.frames == found.commits == (len(data) - HEADER) // SIZE > 15
    assert not (found.is_damaged or found.beyond)
    assert not wal.read(b"").is_damaged


def test_a_flipped_bit_is_found_and_mostly_known(data: bytes) -> None:
    random, known = Random(4), 0
    frames = wal.read(data).frames
    places = [
        *range(HEADER),
        *range(HEADER + SIZE, HEADER + SIZE + FRAME),
        *(len(data) - 8 + at for at in range(8)),
    ]
    for at in [*places, *random.choices(range(len(data)), k=60)]:
        bit = random.randrange(8)
        found = wal.read(wal.turned(data, at, bit))
        assert found.is_damaged, (at, bit)
        if found.flipped:
            known += 1
            assert (found.flipped, found.frames) == ([(at, bit)], frames)
    assert known > 80


def test_a_frame_that_nobody_can_put_right_is_sealed_as_it_is(data: bytes) -> None:
    frames = wal.read(data).frames
    at = HEADER + 3 * SIZE + FRAME + 4003  # the high bits of a word
    spoiled = wal.turned(data, at, 7)
    assert wal.read(spoiled).spoiled == [4]
    sealed = bytearray(spoiled)
    for place, octets in wal.resealed(spoiled, 4, frames).items():
        sealed[place : place + len(octets)] = octets
    found = wal.read(bytes(sealed))
    assert (found.frames, found.is_damaged) == (frames, False)
    assert sealed[at] == spoiled[at]


@pytest.mark.parametrize("lacks", [True, False])
def test_a_log_is_mended_only_where_something_confirmed_is_missing(
    data: bytes, lacks: bool, tmp_path: Path
) -> None:
    """After a loss of power an old frame may be one bit away from being whole: it must stay what it is."""
    file = log_of(tmp_path)
    file.write_bytes(wal.turned(data, HEADER + FRAME + 100, 3))
    mend_log(tmp_path, Losses(), lambda: lacks)
    assert (file.read_bytes() == data) == lacks


@pytest.mark.parametrize("cut", [100, FRAME, FRAME + 512, SIZE - 512])
def test_a_write_that_was_cut_short_is_no_damage(data: bytes, cut: int) -> None:
    last = len(data) - SIZE
    found = wal.read(data[: last + cut] + bytes(SIZE - cut))
    assert (found.is_damaged, found.beyond) == (False, int(cut >= FRAME))
    assert found.frames == last // SIZE


def test_a_hole_is_told_by_what_is_behind(data: bytes) -> None:
    hole = HEADER + 4 * SIZE + 1000
    found = wal.read(data[:hole] + bytes(1000) + data[hole + 1000 :])
    assert (found.frames, found.is_damaged) == (4, False)
    assert found.beyond == wal.read(data).frames - 4
