"""What only the store on disk promises: locks, crashes, damage, a full disk, versions, file space."""

from __future__ import annotations

import gzip
import os
import random
import resource
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from stompbox.errors import StoreError
from stompbox.message import Run
from stompbox.store import folder, housekeeping, schema
from stompbox.store.backup import copy
from stompbox.store.base import Commit
from stompbox.store.check import damage
from stompbox.store.chunks import decode
from stompbox.store.sqlite import FOLD_ROWS, SqliteStore
from tests.store.runs import run
from tests.store.writer import BEHIND, COUNT

EVERYTHING = 1 << 40
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def store(data: Path) -> Iterator[SqliteStore]:
    with closing(SqliteStore(data)) as found:
        yield found


def offsets(store: SqliteStore, log: int = 1) -> list[int]:
    chunks = store.read(log, 0, EVERYTHING, EVERYTHING)
    return [
        offset
        for chunk in chunks
        for part in decode(chunk.blob, chunk.first)
        for offset in range(part.first, part.stop)
    ]


def runs_of(store: SqliteStore, log: int) -> list[Run]:
    return [
        part
        for chunk in store.read(log, 0, EVERYTHING, EVERYTHING)
        for part in decode(chunk.blob, chunk.first)
    ]


def filled(data: Path, *, chunks: int = 4, size: int = 20_000) -> Path:
    """A closed store with one message per chunk; returns its file."""
    with closing(SqliteStore(data)) as store:
        store.apply(
            Commit(
                logs={1: "orders"}, cursors={1: (1, 0)}, entries={("queue", "orders"): b'{"filter": "none"}'}
            )
        )
        for first in range(chunks):
            store.apply(
                Commit(
                    runs={1: [run(first, body=random.Random(first).randbytes(size))]},
                    acknowledged={1: [(first, first + 1)]},
                )
            )
    return data / folder.DATABASE


def recover(data: Path) -> None:
    with closing(SqliteStore(data)) as store:
        store.recover()


def refusal(open: Callable[[], object]) -> StoreError:
    with pytest.raises(StoreError) as caught:
        open()
    return caught.value


# The folder and its lock


def test_files_are_the_owners_alone(data: Path) -> None:
    before = os.umask(0o022)
    try:
        with closing(SqliteStore(data)) as store:
            store.apply(Commit(logs={1: "orders"}))
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in data.iterdir()}
    finally:
        os.umask(before)
    assert modes == dict.fromkeys(
        ("stompbox.db", "stompbox.db-wal", "stompbox.db-shm", "stompbox.lock", "stompbox.watermark"), 0o600
    )
    assert stat.S_IMODE(data.stat().st_mode) == 0o700


def test_an_empty_folder_becomes_the_owners_and_a_used_one_keeps_its_mode(data: Path) -> None:
    data.mkdir(mode=0o755)
    SqliteStore(data).close()
    assert stat.S_IMODE(data.stat().st_mode) == 0o700
    data.chmod(0o755)
    SqliteStore(data).close()
    assert stat.S_IMODE(data.stat().st_mode) == 0o755


def test_a_second_store_is_refused_and_changes_nothing(store: SqliteStore, data: Path) -> None:
    error = refusal(lambda: SqliteStore(data))
    assert error.code == "data-in-use"
    assert str(data) in error.message
    assert f"process {os.getpid()}" in error.message
    store.apply(Commit(logs={1: "orders"}))
    assert [log.name for log in store.recover().logs] == ["orders"]


def test_a_closed_store_frees_its_folder_and_refuses_work(data: Path) -> None:
    store = SqliteStore(data)
    store.close()
    store.close()
    for use in (
        lambda: store.apply(Commit(logs={1: "x"})),
        store.recover,
        store.maintain,
        lambda: store.read(1, 0, 1, 1),
    ):
        assert refusal(use).code == "store-closed"
    SqliteStore(data).close()
    assert "closed" in repr(store)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for path in (tmp_path / "file", tmp_path / "file" / "data"):
        error = refusal(lambda path=path: SqliteStore(path))
        assert error.code == "data-not-writable"
        assert str(path) in error.message


@pytest.mark.parametrize("name", [folder.DATABASE, folder.LOCK])
def test_a_file_that_cannot_be_opened_is_named(data: Path, name: str) -> None:
    (data / name).mkdir(parents=True)
    error = refusal(lambda: SqliteStore(data))
    assert error.code == "data-not-writable"
    assert str(data / name) in error.message


# Crashes


def started(data: Path, first: int = 0) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.store.writer", str(data), str(first)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def killed(process: subprocess.Popen[str], commits: int) -> int:
    """Kills it after so many commits; returns the last offset that it called durable."""
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(commits + 1)]
    process.kill()
    lines += process.stdout.readlines()
    process.stdout.close()
    process.wait(30)
    return int([line for line in lines if line.endswith("\n")][-1])


def test_what_was_durable_survives_sigkill(data: Path) -> None:
    first = 0
    for commits in (3, 40, 1, 120, 77):
        durable = killed(started(data, first), commits)
        with closing(SqliteStore(data)) as store:
            found = store.recover()
            (log,), (cursor,) = found.logs, found.cursors
            assert log.next - durable in (0, COUNT), (
                "the last commit may be durable without having been called so"
            )
            assert int(found.entries["queue", "orders"]) == log.next
            assert (cursor.position, list(cursor.ahead)[-1]) == (COUNT - 5, (log.next - COUNT, log.next - 5))
            assert offsets(store) == list(range(log.first, log.next))
            assert max(0, log.next - COUNT - BEHIND) - log.first in range(COUNT)
            first = log.next
    assert first > 200 * COUNT


def test_a_killed_process_frees_the_lock_and_a_living_one_holds_it(data: Path) -> None:
    process = started(data)
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    error = refusal(lambda: SqliteStore(data))
    assert error.code == "data-in-use"
    assert f"process {process.pid}" in error.message
    killed(process, 1)
    SqliteStore(data).close()


# Damage


def test_a_file_that_is_no_database_is_refused(data: Path) -> None:
    data.mkdir()
    (data / folder.DATABASE).write_bytes(b"not a database, whatever it is called" * 300)
    error = refusal(lambda: SqliteStore(data))
    assert error.code == "data-corrupt"
    assert str(data / folder.DATABASE) in error.message


def test_a_database_of_another_program_is_refused(data: Path) -> None:
    data.mkdir()
    with closing(sqlite3.connect(data / folder.DATABASE)) as other:
        other.execute("CREATE TABLE accounts (id)")
    error = refusal(lambda: SqliteStore(data))
    assert error.code == "data-corrupt"
    assert "another program" in error.message


def test_damage_anywhere_is_found_when_opening_a_small_file(data: Path) -> None:
    """In every copy of it: SQLite leaves some in space that it does not use."""
    file = filled(data)
    whole = file.read_bytes()
    bodies = [random.Random(first).randbytes(20_000) for first in range(4)]
    wanted = [b"orders", b'{"filter"', *(body[at : at + 20] for body in bodies for at in (0, 9000, 19_900))]
    for text in wanted:
        assert text in whole
        file.write_bytes(whole.replace(text, bytes([text[0] ^ 4]) + text[1:]))
        error = refusal(lambda: recover(data))
        assert (text, error.code) == (text, "data-corrupt")
        assert str(file) in error.message
    file.write_bytes(whole)
    recover(data)


def test_overwritten_pages_are_found(data: Path) -> None:
    file = filled(data)
    whole = file.read_bytes()
    for page in range(len(whole) // schema.PAGE):
        file.write_bytes(whole[: page * schema.PAGE] + bytes(schema.PAGE) + whole[(page + 1) * schema.PAGE :])
        error = refusal(lambda: recover(data))
        assert (page, error.code) == (page, "data-corrupt")
        assert str(file) in error.message


def test_a_file_cut_short_is_found(data: Path) -> None:
    file = filled(data)
    os.truncate(file, file.stat().st_size // 2)
    assert refusal(lambda: SqliteStore(data)).code == "data-corrupt"


def test_damage_in_a_large_file_is_found_by_reading(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = filled(data)
    whole = file.read_bytes()
    at = whole.index(random.Random(2).randbytes(20_000)[9000:9020])
    file.write_bytes(whole[:at] + b"\xff" + whole[at + 1 :])
    monkeypatch.setattr("stompbox.store.check.SMALL", 0)
    with closing(SqliteStore(data)) as store:
        assert len(store.read(1, 0, 2, EVERYTHING)) == 2
        error = refusal(lambda: store.read(1, 0, 3, EVERYTHING))
        assert error.code == "data-corrupt"
        assert f"{file}: log 1, chunk at offset 2: checksum" in error.message
        assert [chunk.first for chunk in store.read(1, 3, 4, EVERYTHING)] == [3], "what is whole can be read"


# Versions


def test_a_newer_version_is_refused(data: Path) -> None:
    file = filled(data)
    with closing(sqlite3.connect(file)) as other:
        other.execute(f"PRAGMA user_version = {schema.SCHEMA_VERSION + 1}")
    error = refusal(lambda: SqliteStore(data))
    assert error.code == "data-too-new"
    assert f"{file}: written by a newer broker (schema version {schema.SCHEMA_VERSION + 1}" in error.message


# As brokers of that version left them when they were killed: six orders, of which 0, 1 and 4 are done.
OLDER = Path(__file__).parent / "data"


@pytest.mark.parametrize("version", range(1, schema.SCHEMA_VERSION))
def test_a_file_of_each_older_version_can_be_read(data: Path, version: int) -> None:
    data.mkdir()
    (data / folder.DATABASE).write_bytes(gzip.decompress((OLDER / f"version-{version}.db.gz").read_bytes()))
    assert list(damage(data)) == [], "checked as it is"
    copy(data, data.with_name("copy"))
    for path in (data, data.with_name("copy")):
        with closing(SqliteStore(path)) as store:
            found = store.recover()
            logs = {log.name: log.id for log in found.logs}
            bodies = {
                name: [body for part in runs_of(store, logs[name]) for body in part.bodies] for name in logs
            }
            assert bodies == {"orders": [b"order %d" % n for n in range(1, 6)], "news": []}
            (cursor,) = [cursor for cursor in found.cursors if cursor.log == logs["orders"]]
            assert (cursor.position, list(cursor.ahead), cursor.delivered) == (2, [(4, 5)], [])
            store.apply(Commit(delivered={cursor.id: [(2, 4, 1, 1)]}))
        assert list(damage(path)) == []
        with closing(sqlite3.connect(path / folder.DATABASE)) as other:
            assert other.execute("PRAGMA user_version").fetchone() == (schema.SCHEMA_VERSION,)


def test_an_older_version_is_brought_up_to_date(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(data)
    latest = schema.SCHEMA_VERSION + 2
    monkeypatch.setattr(schema, "SCHEMA_VERSION", latest)
    steps = {
        latest - 2: ("CREATE TABLE extra (id)", "INSERT INTO extra VALUES (1)"),
        latest - 1: ("ALTER TABLE extra ADD COLUMN name",),
    }
    monkeypatch.setattr(schema, "MIGRATIONS", steps)
    for _ in range(2):
        with closing(SqliteStore(data)) as store:
            assert offsets(store) == [0, 1, 2, 3]
    with closing(sqlite3.connect(data / folder.DATABASE)) as other:
        assert other.execute("SELECT * FROM extra").fetchall() == [(1, None)]
        assert other.execute("PRAGMA user_version").fetchone() == (latest,)


def test_a_migration_that_fails_changes_nothing(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(data)
    monkeypatch.setattr(schema, "SCHEMA_VERSION", schema.SCHEMA_VERSION + 1)
    monkeypatch.setattr(schema, "MIGRATIONS", {schema.SCHEMA_VERSION - 1: ("DROP TABLE entry", "no SQL")})
    assert refusal(lambda: SqliteStore(data)).code == "store-failed"
    monkeypatch.undo()
    with closing(SqliteStore(data)) as store:
        assert store.recover().entries


# Trouble


def full(store: SqliteStore, pages: int) -> None:
    """What SQLite does with a full disk, at a size of our choice; 0: no limit."""
    (now,) = store._db.execute("PRAGMA page_count").fetchone()
    store._db.execute(f"PRAGMA max_page_count = {now + pages if pages else 1 << 30}")


def test_a_full_disk_fails_the_commit_and_only_that(store: SqliteStore, data: Path) -> None:
    store.apply(Commit(logs={1: "orders"}, cursors={1: (1, 0)}, runs={1: [run(0)]}))
    before = store.recover()
    full(store, 2)
    runs = {1: [run(1, 20, body=b"x" * 10_000)], 2: [run(0)]}
    large = Commit(logs={2: "new"}, runs=runs, acknowledged={1: [(0, 1)]}, trims={1: 1}, next_offsets={1: 99})
    error = refusal(lambda: store.apply(large))
    assert error.code == "disk-full"
    assert str(data / folder.DATABASE) in error.message
    assert store.recover() == before
    assert offsets(store) == [0]
    store.apply(Commit(acknowledged={1: [(0, 1)]}))  # consumers go on
    full(store, 0)
    store.apply(large)
    assert offsets(store, 2) == [0]
    assert [log.next for log in store.recover().logs] == [99, 1]
    store.close()
    with closing(SqliteStore(data)) as again:
        assert offsets(again) == list(range(1, 21))


@pytest.mark.parametrize("size", [10, 100_000, 20 << 20])
def test_a_write_that_fails_fails_the_commit_and_only_that(store: SqliteStore, data: Path, size: int) -> None:
    """Of the write-ahead log, in the middle of a transaction or at its end."""
    store.apply(Commit(logs={1: "orders"}, cursors={1: (1, 0)}, runs={1: [run(0)]}))
    before = store.recover()
    commit = Commit(
        runs={1: [run(1, body=bytes(size))]},
        acknowledged={1: [(0, 1)]},
        entries={("queue", "a"): b"1"},
        next_offsets={1: 9},
    )
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(
        resource.RLIMIT_FSIZE, (store.file.with_name(f"{folder.DATABASE}-wal").stat().st_size, hard)
    )
    try:
        for _ in range(3):
            assert refusal(lambda: store.apply(commit)).code in {"io-error", "disk-full"}
            assert store.recover() == before
            assert offsets(store) == [0]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    store.apply(commit)
    store.close()
    with closing(SqliteStore(data)) as again:
        assert offsets(again) == [0, 1]
        assert again.recover().entries == commit.entries
        assert [log.next for log in again.recover().logs] == [9]


def test_another_program_that_locks_the_file_is_named(store: SqliteStore, data: Path) -> None:
    store._db.execute("PRAGMA busy_timeout = 1")
    with closing(sqlite3.connect(data / folder.DATABASE, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        error = refusal(lambda: store.apply(Commit(logs={1: "orders"})))
        assert error.code == "data-in-use"
        assert str(data / folder.DATABASE) in error.message
        other.execute("ROLLBACK")
    store.apply(Commit(logs={1: "orders"}))
    assert len(store.recover().logs) == 1


# Space and time


def test_file_space_comes_back_while_running(store: SqliteStore) -> None:
    store.apply(Commit(logs={1: "orders", 2: "keep"}, runs={2: [run(0)]}))
    size = 40 << 20
    for first in range(40):
        store.apply(Commit(runs={1: [run(first, body=bytes(1 << 20))]}))
    store.apply(Commit(runs={2: [run(1)]}))  # lies at the end of the file
    while store.maintain():
        pass
    assert store.file.stat().st_size > size
    store.apply(Commit(trims={1: 40}))
    portions = 1
    while store.maintain():
        portions += 1
    assert portions > 10
    assert store.file.stat().st_size < housekeeping.SLACK + (1 << 20)
    assert offsets(store, 2) == [0, 1]
    assert not store.maintain()


def test_a_commit_deletes_only_a_portion_of_a_big_trim(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, "SWEEP_ROWS", 10)
    store.apply(Commit(logs={1: "orders"}))
    for first in range(100):
        store.apply(Commit(runs={1: [run(first)]}))
    store.apply(Commit(trims={1: 100}))
    count = "SELECT count(*) FROM chunk"
    assert store._db.execute(count).fetchone() == (90,)
    assert offsets(store) == [], "what is trimmed cannot be read"
    while store.maintain():
        pass
    assert store._db.execute(count).fetchone() == (0,)


def test_a_big_trim_is_finished_after_a_restart(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(data)
    monkeypatch.setattr(housekeeping, "SWEEP_ROWS", 1)
    with closing(SqliteStore(data)) as store:
        store.apply(Commit(dropped_logs=[1]))
    with closing(SqliteStore(data)) as store:
        while store.maintain():
            pass
        assert store._db.execute("SELECT count(*) FROM chunk").fetchone() == (0,)
        assert store._db.execute("SELECT count(*) FROM log").fetchone() == (0,)


def test_the_write_ahead_log_stays_short_without_idle_time(store: SqliteStore) -> None:
    store.apply(Commit(logs={1: "orders"}))
    wal = store.file.with_name(folder.DATABASE + "-wal")
    for first in range(60):
        store.apply(Commit(runs={1: [run(first, body=bytes(1 << 20))]}))
        assert wal.stat().st_size < housekeeping.WAL_MOST + (4 << 20)


def test_a_reader_that_stays_does_not_stop_commits(store: SqliteStore) -> None:
    store.apply(Commit(logs={1: "orders"}, runs={1: [run(0)]}))
    with closing(sqlite3.connect(store.file, isolation_level=None)) as other:
        other.execute("BEGIN")
        before = other.execute("SELECT count(*) FROM chunk").fetchone()
        for first in range(1, 30):
            store.apply(Commit(runs={1: [run(first, body=bytes(1 << 20))]}))
            store.maintain()
        assert other.execute("SELECT count(*) FROM chunk").fetchone() == before
        other.execute("COMMIT")
    assert offsets(store) == list(range(30))


def test_changes_never_pile_up(store: SqliteStore) -> None:
    store.apply(Commit(logs={1: "orders"}, cursors={1: (1, 0)}))

    def rows() -> int:
        return int(store._db.execute("SELECT count(*) FROM change").fetchone()[0])

    for at in range(FOLD_ROWS + 50):
        store.apply(Commit(acknowledged={1: [(2 * at, 2 * at + 1)]}))
        assert rows() <= FOLD_ROWS
    assert rows() == 50
    while store.maintain():
        pass
    assert rows() == 0
    assert len(store.recover().cursors[0].ahead) == FOLD_ROWS + 49


@pytest.mark.parametrize("table", ["log", "cursor", "change", "delivery", "entry"])
def test_rows_that_say_nothing_sensible_are_named(data: Path, table: str) -> None:
    file = filled(data)
    with closing(SqliteStore(data)) as store:
        store.apply(Commit(delivered={1: [(3, 4, 1, 1)]}))
    column = {
        "log": "next",
        "cursor": "position",
        "change": "data",
        "delivery": "failures",
        "entry": "value",
    }[table]
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute(f"UPDATE {table} SET {column} = 12345")
    error = refusal(lambda: recover(data))
    assert error.code == "data-corrupt"
    where = {"entry": "row journal state"}.get(table, "row 1")
    assert error.message == f"{file}: {where} of table {table} is damaged (checksum)"


def test_recovery_and_counting_read_no_blobs(store: SqliteStore) -> None:
    """The plans name the covering index only."""
    statements = [statement for statement in traced(store) if "chunk" in statement]
    assert len(statements) >= 5
    for statement in statements:
        plan = [row[3] for row in store._db.execute(f"EXPLAIN QUERY PLAN {statement}")]
        steps = [step for step in plan if "chunk" in step]
        assert steps
        assert all("COVERING INDEX chunk_place" in step for step in steps), statement


def test_a_commit_of_very_much_is_few_statements(store: SqliteStore) -> None:
    """Each lets go of Python's lock, and has to have it again."""
    count = 1000
    logs = {number: f"log-{number}" for number in range(1, count + 1)}
    keys = [("queue", str(number)) for number in range(count)]
    told = [(0, 1, 1, 0)]
    commits = [
        Commit(logs=logs, cursors={log: (log, 0) for log in logs}, entries=dict.fromkeys(keys, b"there")),
        Commit(runs={log: [run(0)] for log in logs}, delivered=dict.fromkeys(logs, told)),
        Commit(acknowledged={log: [(0, 1)] for log in logs}, entries=dict.fromkeys(keys)),
        Commit(dropped_cursors=list(logs)),
        Commit(dropped_logs=[log for log in logs if log % 2]),
    ]
    for commit in commits:
        said: list[str] = []
        store._db.set_trace_callback(said.append)
        store.apply(commit)
        store._db.set_trace_callback(None)
        assert len(said) < count
    found = store.recover()
    assert ([log.id for log in found.logs], found.cursors) == ([log for log in logs if not log % 2], [])
    assert not [key for kind, key in found.entries if kind == "queue"]


def test_dropped_logs_that_have_nothing_go_at_once(store: SqliteStore) -> None:
    count = 1000
    store.apply(Commit(logs={number: f"log-{number}" for number in range(1, count + 1)}))
    said: list[str] = []
    store._db.set_trace_callback(said.append)
    store.apply(Commit(dropped_logs=list(range(1, count + 1))))
    store._db.set_trace_callback(None)
    assert store._db.execute("SELECT count(*) FROM log").fetchone() == (0,)
    assert len(said) < count / 5


def traced(store: SqliteStore) -> list[str]:
    """The statements of a start and of a trim."""
    store.apply(Commit(logs={1: "orders"}, runs={1: [run(0)]}))
    found: list[str] = []
    with store._reader() as connection:
        connection.set_trace_callback(found.append)
    store.recover()
    store.sizes([1])
    store.find_time(1, 0)
    store._db.set_trace_callback(found.append)
    store._load()
    store.apply(Commit(trims={1: 1}))
    store._db.set_trace_callback(None)
    return [statement for statement in found if statement.lstrip().startswith("SELECT")]
