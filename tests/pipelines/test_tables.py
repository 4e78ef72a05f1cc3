"""Tables in three formats: a batch counts once, small files become few, and a kill at any file operation loses and doubles nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from stompbox.errors import UsageError
from stompbox.pipelines import disk
from stompbox.pipelines.parquet import LOGS
from stompbox.pipelines.settings import Format
from stompbox.pipelines.tables import Policy, Retention, Table, compact, open_table, staging_of, tidy
from tests.pipelines.lake import DAYS, expected, listed, offsets, staged

ALL = [
    Format.PARQUET,
    pytest.param(Format.DELTA, marks=pytest.mark.filterwarnings("default")),
    pytest.param(Format.ICEBERG, marks=pytest.mark.filterwarnings("default")),
]
POLICY = Policy(files=3, small=1 << 20, target=1 << 24)
OPERATIONS = ("write", "rename", "move", "link", "remove", "sync")


@pytest.fixture(params=ALL, ids=lambda kept: kept.value)
def kept(request: pytest.FixtureRequest) -> Format:
    found: Format = request.param
    pytest.importorskip({Format.DELTA: "deltalake", Format.ICEBERG: "pyiceberg"}.get(found, "pyarrow"))
    return found


def filled(kept: Format, folder: Path, batches: int) -> Table:
    table = open_table(kept, folder)
    for batch in range(batches):
        assert table.append(staged(table, kept, batch), "query", batch)
    return table


class Killed(BaseException):
    """The process is gone: nothing catches this."""


def kill_at(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """The file operation of this number, counted from 0, does not happen, and nothing after it."""
    left = number

    def dying(operation: Callable[..., Any]) -> Callable[..., Any]:
        def operate(*arguments: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed
            return operation(*arguments)

        return operate

    for name in OPERATIONS:
        monkeypatch.setattr(disk, name, dying(getattr(disk, name)))


def test_a_table_that_is_not_there_is_empty(kept: Format, tmp_path: Path) -> None:
    table = open_table(kept, tmp_path / "table")
    assert (table.files(), table.last_batch("query"), compact(table, POLICY)) == ([], -1, 0)


def test_a_batch_counts_once(kept: Format, tmp_path: Path) -> None:
    table = filled(kept, tmp_path / "table", 2)
    assert not table.append(staged(table, kept, 1), "query", 1)
    assert not table.append(staged(table, kept, 0), "query", 0)
    assert table.append(staged(table, kept, 7), "other", 0)
    again = open_table(kept, tmp_path / "table")
    assert offsets(again) == expected(0, 1, 7)
    assert (again.last_batch("query"), again.last_batch("other"), again.last_batch("third")) == (1, 0, -1)


def test_small_files_become_one_a_day(kept: Format, tmp_path: Path) -> None:
    table = filled(kept, tmp_path / "table", 3)
    assert compact(table, POLICY) == 6
    assert (len(table.files()), offsets(table)) == (len(DAYS), expected(0, 1, 2))
    assert compact(table, POLICY) == 0
    assert table.append(staged(table, kept, 3), "query", 3)
    assert (table.last_batch("query"), offsets(table)) == (3, expected(0, 1, 2, 3))


def test_a_replayed_batch_is_known_after_its_files_were_rewritten(kept: Format, tmp_path: Path) -> None:
    table = filled(kept, tmp_path / "table", 3)
    compact(table, POLICY)
    assert not table.append(staged(table, kept, 2), "query", 2)
    assert offsets(table) == expected(0, 1, 2)


def test_files_that_somebody_else_rewrote_are_left_alone(kept: Format, tmp_path: Path) -> None:
    table = filled(kept, tmp_path / "table", 3)
    old = [file for file in table.files() if file.partition.endswith("01")]
    merged = staging_of(tmp_path / "table") / "merged-x.parquet"
    compact(table, POLICY)
    merged.parent.mkdir(exist_ok=True)
    merged.write_bytes(table.files()[0].path.read_bytes())
    assert not table.replace(old, merged)
    assert offsets(table) == expected(0, 1, 2)


@pytest.mark.parametrize("doing", ["append", "compact"])
def test_a_kill_at_any_file_operation_loses_and_doubles_nothing(
    kept: Format, doing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed at each operation in turn: a reader sees all or nothing of what was being done, and doing it again makes it whole."""
    number = 0
    while True:
        folder = tmp_path / str(number)
        table = filled(kept, folder, 3)
        batch = staged(table, kept, 3)
        with monkeypatch.context() as patched:
            kill_at(patched, number)
            try:
                if doing == "append":
                    table.append(batch, "query", 3)
                else:
                    compact(table, POLICY)
                died = False
            except Killed:
                died = True
        again = open_table(kept, folder)
        seen = offsets(again)
        tidy(again)
        assert offsets(again) == seen
        if kept is Format.PARQUET:
            assert listed(folder) == seen, number  # also when there is nothing more to do
        assert seen in (
            expected(0, 1, 2),
            expected(0, 1, 2, 3) if doing == "append" else expected(0, 1, 2),
        ), number
        assert again.append(staged(again, kept, 3), "query", 3) is (seen == expected(0, 1, 2))
        compact(again, POLICY)
        assert offsets(again) == expected(0, 1, 2, 3), number
        if kept is Format.PARQUET:
            assert listed(folder) == expected(0, 1, 2, 3), number  # readers without the log see the same
        if not died:
            break
        number += 1
    assert number >= (4 if doing == "append" else 2), "nothing was killed"


@pytest.mark.parametrize("doing", ["append", "compact"])
@pytest.mark.parametrize(("kept", "commit"), [(Format.DELTA, "deltalake.DeltaTable.create_write_transaction"),
                                              (Format.ICEBERG, "pyiceberg.table.Transaction.commit_transaction")])  # fmt: skip
@pytest.mark.filterwarnings("default")
def test_a_kill_before_the_commit_of_the_library(
    kept: Format, commit: str, doing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(commit.partition(".")[0])
    table = filled(kept, tmp_path / "table", 3)
    batch = staged(table, kept, 3)

    def die(*arguments: Any, **options: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(commit, die)
        with pytest.raises(Killed):
            table.append(batch, "query", 3) if doing == "append" else compact(table, POLICY)
    assert offsets(table) == expected(0, 1, 2)
    assert table.append(staged(table, kept, 3), "query", 3)
    compact(table, POLICY)
    assert offsets(table) == expected(0, 1, 2, 3)


def test_files_of_other_columns_stay_among_themselves(tmp_path: Path) -> None:
    from pyarrow import parquet

    table = open_table(Format.PARQUET, tmp_path / "table")
    for batch in range(4):
        ready = staged(table, Format.PARQUET, batch)
        if batch >= 2:
            for file in ready.files:
                content = parquet.ParquetFile(file.path).read()
                parquet.write_table(content.append_column("more", content.column("offset")), file.path)
        table.append(ready, "query", batch)
    assert compact(table, POLICY) == 8
    assert Counter(len(parquet.read_schema(file.path).names) for file in table.files()) == {5: 2, 6: 2}
    assert offsets(table) == expected(0, 1, 2, 3)


@pytest.mark.parametrize("kept", [Format.DELTA, Format.ICEBERG])
@pytest.mark.filterwarnings("default")
def test_columns_may_be_added_and_not_change_their_type(kept: Format, tmp_path: Path) -> None:
    from dataclasses import replace

    import pyarrow as pa
    from pyarrow import parquet

    pytest.importorskip({Format.DELTA: "deltalake", Format.ICEBERG: "pyiceberg"}[kept])
    table = filled(kept, tmp_path / "table", 1)

    def with_column(batch: int, column: Any) -> Any:
        ready = staged(table, kept, batch)
        for file in ready.files:
            parquet.write_table(
                parquet.ParquetFile(file.path).read().append_column("more", column), file.path
            )
        return replace(ready, schema=ready.schema.append(pa.field("more", column.type)))

    assert table.append(with_column(1, pa.array([1, 2, 3, 4], pa.int64())), "query", 1)
    with pytest.raises(UsageError, match="more"):
        table.append(with_column(2, pa.array(["a", "b", "c", "d"])), "query", 2)
    assert offsets(table) == expected(0, 1)


def test_a_table_of_sparks_own_sink_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "_spark_metadata"
    log.mkdir()
    (log / "0").write_text("v1\n")
    with pytest.raises(UsageError, match="another folder"):
        open_table(Format.PARQUET, tmp_path).files()


def test_the_last_logs_stay_for_those_who_have_listed_them(tmp_path: Path) -> None:
    table = open_table(Format.PARQUET, tmp_path)
    for batch in range(LOGS + 4):
        table.append(staged(table, Format.PARQUET, batch), "query", batch)
    assert sorted(int(path.stem) for path in (tmp_path / "_spark_metadata").iterdir()) == list(
        range(4, LOGS + 4)
    )
    assert offsets(table) == expected(*range(LOGS + 4))


class Clock:
    """A time that stands until it is moved, in s."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


KEEP = 600.0
COMMITS = 90  # of Iceberg: three times as many as it takes to fill what is kept


def kept_files(folder: Path, clock: Clock, batches: int) -> Any:
    from stompbox.pipelines.parquet import ParquetFiles

    table = ParquetFiles(folder, KEEP, clock)
    for batch in range(batches):
        table.append(staged(table, Format.PARQUET, batch), "query", batch)
    return table


def rows_in(paths: list[Path]) -> Counter[int]:
    from pyarrow import parquet

    return Counter(
        offset
        for path in paths
        for offset in parquet.ParquetFile(path).read(["offset"]).column("offset").to_pylist()
    )


def test_a_compaction_between_listing_and_reading_takes_nothing_away(tmp_path: Path) -> None:
    """For who reads by the log, and for who lists the folder: both have listed before."""
    clock = Clock()
    table = kept_files(tmp_path / "table", clock, 3)
    by_log = [file.path for file in table.files()]
    by_list = list((tmp_path / "table").glob("**/*.parquet"))
    assert compact(table, POLICY) == 6
    table.append(staged(table, Format.PARQUET, 3), "query", 3)
    compact(table, Policy(files=2, small=1 << 20, target=1 << 24))
    clock.now += KEEP - 1
    table.sweep()
    assert rows_in(by_log) == rows_in(by_list) == expected(0, 1, 2)
    assert offsets(table) == listed(tmp_path / "table") == expected(0, 1, 2, 3)


def test_files_that_were_replaced_go_after_their_time_all_at_once(tmp_path: Path) -> None:
    """Rewritten again and again meanwhile: who lists sees each row once, and what the newest compaction replaced stays for its own time."""
    folder, clock = tmp_path / "table", Clock()
    table = kept_files(folder, clock, 3)
    often = Policy(files=2, small=1 << 20, target=1 << 24)
    for batch in range(3, 30):
        clock.now += KEEP / 10
        table.append(staged(table, Format.PARQUET, batch), "query", batch)
        before = [file.path for file in table.files()]
        compact(table, often)
        seen = expected(*range(batch + 1))
        assert offsets(table) == listed(folder) == rows_in(before) == seen, batch
        assert len(list(folder.glob("*=*/*.parquet"))) <= len(DAYS) * 22, (
            "never more than two such times of files"
        )
    clock.now += KEEP
    table.sweep()
    clock.now += KEEP
    table.sweep()
    clock.now += KEEP
    table.sweep()
    assert listed(folder) == offsets(table) == expected(*range(30))
    left = [path for path in folder.glob("*=*/*") if path.is_file()]
    assert sorted(left) == sorted(file.path for file in table.files()), "one file a day, and nothing beside"


def test_files_stay_as_long_as_a_step_reads(tmp_path: Path) -> None:
    clock = Clock()
    table = kept_files(tmp_path / "table", clock, 3)
    with disk.reading(table.folder):
        paths = [file.path for file in table.files()]
        compact(table, POLICY)
        clock.now += 2 * KEEP
        table.sweep()
        assert rows_in(paths) == expected(0, 1, 2)
    table.sweep()
    assert not any(path.exists() for path in paths)
    assert listed(table.folder) == expected(0, 1, 2)


def test_a_kill_at_any_operation_of_an_exchange_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number, died = 0, True
    while died:
        clock = Clock()
        table = kept_files(tmp_path / str(number), clock, 3)
        compact(table, POLICY)
        clock.now += KEEP
        with monkeypatch.context() as patched:
            kill_at(patched, number)
            try:
                table.sweep()
                died = False
            except Killed:
                died = True
        assert offsets(table) == expected(0, 1, 2), number
        tidy(table)
        assert offsets(table) == listed(table.folder) == expected(0, 1, 2), number
        number += 1
    assert number > 4, "nothing was killed"


def test_nothing_of_what_does_not_count_yet_lies_in_the_folder(kept: Format, tmp_path: Path) -> None:
    """Whoever reads all files below it, however deep, would take it for data."""
    table = filled(kept, tmp_path / "table", 3)
    batch = staged(table, kept, 3)
    assert rows_in(list((tmp_path / "table").rglob("*.parquet"))) == expected(0, 1, 2)
    table.append(batch, "query", 3)
    assert rows_in(list((tmp_path / "table").rglob("*.parquet"))) == expected(0, 1, 2, 3)


def test_a_filesystem_without_second_names_has_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError

    clock = Clock()
    table = kept_files(tmp_path / "table", clock, 3)
    compact(table, POLICY)
    clock.now += KEEP
    monkeypatch.setattr("os.link", refuse)
    table.sweep()
    assert offsets(table) == listed(table.folder) == expected(0, 1, 2)


@pytest.mark.filterwarnings("default")
def test_snapshots_of_iceberg_and_their_files_do_not_grow_without_end(tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg")
    folder = tmp_path / "my table"
    table = open_table(Format.ICEBERG, folder, Retention(replaced=0.0, snapshots=4))
    most = Counter[str]()
    for batch in range(COMMITS):
        table.append(staged(table, Format.ICEBERG, batch), "query", batch)
        compact(table, Policy(files=5, small=1 << 20, target=1 << 24))
        found = table._open()  # type: ignore[attr-defined]
        assert 1 <= len(found.metadata.snapshots) < 10
        if batch in (COMMITS // 3, COMMITS - 1):
            table.sweep()
            now = Counter(snapshots=len(found.metadata.snapshots), log=len(found.metadata.snapshot_log))
            now["documents"] = len(list((folder / "metadata").glob("*.metadata.json")))
            now["manifests"] = len(found.current_snapshot().manifests(found.io))
            now["files"] = len(list((folder / "metadata").iterdir()))
            now["bytes"] = Path(found.metadata_location.removeprefix("file://")).stat().st_size
            assert not most or all(count <= 1.5 * most[name] + 5 for name, count in now.items()), (most, now)
            most = now
    assert 4 <= most["snapshots"] < 10
    assert most["documents"] <= 22
    table.sweep()
    named = {file.path for file in table.files()}
    assert len(list((folder / "data").rglob("*.parquet"))) <= 8 * len(named), (
        "files that no snapshot names are gone"
    )
    assert offsets(table) == expected(*range(COMMITS))
    assert all(snapshot.manifests(found.io) for snapshot in found.metadata.snapshots), (
        "older snapshots can be read"
    )


@pytest.mark.filterwarnings("default")
def test_files_of_expired_snapshots_stay_for_readers(tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg")
    table = open_table(Format.ICEBERG, tmp_path / "table", Retention(replaced=KEEP, snapshots=2))
    for batch in range(4):
        table.append(staged(table, Format.ICEBERG, batch), "query", batch)
    paths = [file.path for file in table.files()]
    compact(table, POLICY)
    for batch in range(4, 9):
        table.append(staged(table, Format.ICEBERG, batch), "query", batch)
    assert rows_in(paths) == expected(0, 1, 2, 3)
    late = open_table(Format.ICEBERG, tmp_path / "table", Retention(replaced=0.0, snapshots=2))
    late.sweep()
    assert not any(path.exists() for path in paths)
    assert offsets(late) == expected(*range(9))
