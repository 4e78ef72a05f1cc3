"""Tables in an object store, and in an Iceberg catalogue: the promises of tables in folders, without locks and renames."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePath, PurePosixPath
from typing import Any

import pytest

pytest.importorskip("moto")
pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

import pyarrow as pa
from pyarrow import parquet
from pyarrow.fs import FileSelector

from stompbox.errors import LocalError
from stompbox.pipelines import locations
from stompbox.pipelines.faults import Masking, named
from stompbox.pipelines.locations import NAMED, UNCOMMITTED, CatalogEntry, Store
from stompbox.pipelines.settings import ArchiveTable, Format
from stompbox.pipelines.storage import Google, Storage
from stompbox.pipelines.tables import Policy, Retention, Staged, Table, compact, merge, open_table, tidy
from stompbox.pipelines.tasks import staged_in
from stompbox.spark.files import Files
from tests.pipelines.conftest import Run, send, stored
from tests.pipelines.google import google_store
from tests.pipelines.lake import DAYS, expected
from tests.pipelines.stores import BUCKET, CREDENTIAL, KEY, SECRET, RestCatalog, object_store, rest_catalog

pytestmark = pytest.mark.filterwarnings("default")
KEEP = Retention()
POLICY = Policy(files=3, small=1 << 20, target=1 << 24)


@pytest.fixture(scope="module")
def storage() -> Iterator[Storage]:
    with object_store() as endpoint:
        yield Storage(endpoint, "us-east-1", KEY, SECRET, path_style=True)


@pytest.fixture(scope="module")
def catalog(storage: Storage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalog]:
    with rest_catalog(tmp_path_factory.mktemp("catalogue"), storage.endpoint) as found:
        yield found


@pytest.fixture(scope="module")
def google() -> Iterator[Storage]:
    with google_store() as endpoint:
        yield Storage(google=Google(endpoint, is_anonymous=True))


@pytest.fixture(params=["delta-s3", "delta-gs", "iceberg-s3"])
def case(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def kept(case: str) -> Format:
    return Format(case.partition("-")[0])


@pytest.fixture
def where(
    case: str, storage: Storage, google: Storage, catalog: RestCatalog, request: pytest.FixtureRequest
) -> Any:
    name = "".join(each if each.isalnum() else "-" for each in request.node.name)
    if case.startswith("delta"):
        scheme = case.partition("-")[2]
        return Store(f"{scheme}://{BUCKET}/{name}", google if scheme == "gs" else storage)
    return entry(catalog, storage, f"tests.{name}")


def entry(catalog: RestCatalog, storage: Storage, name: str) -> CatalogEntry:
    given = {
        "type": "rest",
        "uri": catalog.uri,
        "credential": CREDENTIAL,
        "oauth2-server-uri": f"{catalog.uri}/v1/oauth/tokens",
    }
    return CatalogEntry(name, catalog.uri, tuple(given.items()), storage)


def staged(table: Table, kept: Format, batch: int, rows: int = 4) -> Staged:
    """One file a day as tasks write it, offsets of the batch from 100 * batch on."""
    whole = pa.schema(
        [("address", pa.string()), ("offset", pa.int64()), ("body", pa.binary()), ("date", pa.date32())]
    )
    schema = whole if kept is Format.ICEBERG else whole.remove(3)
    attempt = table.attempt(f"query-{batch}", whole, "date")
    with Files(attempt.folder, schema, "snappy", attempt.filesystem(), attempt.prefix) as files:
        for place, day in enumerate(DAYS):
            for offset in range(100 * batch + place * rows, 100 * batch + (place + 1) * rows):
                row = {"address": "orders", "offset": offset, "body": b"%d" % offset, "date": day}
                files.add(pa.RecordBatch.from_pylist([row], schema=schema), f"date={day}")
    return staged_in(attempt, files.written, whole, "date")


def offsets(table: Table) -> Counter[int]:
    found: Counter[int] = Counter()
    for file in table.files():
        content = (
            parquet.ParquetFile(str(file.path), filesystem=table.filesystem())
            .read(["offset"])
            .column("offset")
            .to_pylist()
        )
        assert len(content) == file.rows and file.partition in {f"date={day}" for day in DAYS}
        found.update(content)
    return found


def filled(kept: Format, where: Any, batches: int, retention: Retention = KEEP) -> Table:
    table = open_table(kept, where, retention)
    for batch in range(batches):
        assert table.append(staged(table, kept, batch), "query", batch)
    return table


def objects(table: Table) -> set[PurePath]:
    """The files of data that lie in the store, named or not."""
    [root] = {file.path.parents[1] for file in table.files()}
    found = [
        PurePosixPath(each.path)
        for each in table.filesystem().get_file_info(FileSelector(str(root), recursive=True))
    ]
    return {path for path in found if path.suffix == ".parquet" and path.name.startswith(NAMED)}


def test_a_table_that_is_not_there_is_empty(kept: Format, where: Any) -> None:
    table = open_table(kept, where)
    assert (table.files(), table.last_batch("query"), compact(table, POLICY)) == ([], -1, 0)
    tidy(table)


def test_a_batch_counts_once(kept: Format, where: Any) -> None:
    table = filled(kept, where, 2)
    assert not table.append(staged(table, kept, 1), "query", 1)
    assert not table.append(staged(table, kept, 0), "query", 0)
    assert table.append(staged(table, kept, 7), "other", 0)
    again = open_table(kept, where)
    assert offsets(again) == expected(0, 1, 7)
    assert (again.last_batch("query"), again.last_batch("other"), again.last_batch("third")) == (1, 0, -1)


def test_small_files_become_one_a_day(kept: Format, where: Any) -> None:
    table = filled(kept, where, 4)
    assert compact(table, POLICY) == 8
    assert len(table.files()) == len(DAYS) and offsets(table) == expected(0, 1, 2, 3)
    assert not table.append(staged(table, kept, 3), "query", 3), "known after its files were rewritten"


def test_of_two_drivers_with_one_batch_one_is_in(
    kept: Format, where: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other commits between this one's look at the table and its commit, where no lock can keep them from each other."""
    first, second = filled(kept, where, 1), open_table(kept, where)
    given, late = staged(first, kept, 1), staged(second, kept, 1)
    owner: Any = type(first)
    widen, others = (
        owner._widen,
        [lambda: second.append(late, "query", 1), lambda: second.append(staged(second, kept, 5), "third", 0)],
    )

    def interrupted(table: Any, *arguments: Any) -> None:
        widen(table, *arguments)
        while table is first and others:
            others.pop()()

    monkeypatch.setattr(owner, "_widen", interrupted)
    assert not first.append(given, "query", 1)
    assert offsets(first) == expected(0, 1, 5)


def test_two_writers_of_two_queries_are_both_in(
    kept: Format, where: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = filled(kept, where, 1), open_table(kept, where)
    owner: Any = type(first)
    widen, others = owner._widen, [lambda: second.append(staged(second, kept, 2), "other", 0)]

    def interrupted(table: Any, *arguments: Any) -> None:
        widen(table, *arguments)
        while table is first and others:
            others.pop()()

    monkeypatch.setattr(owner, "_widen", interrupted)
    assert first.append(staged(first, kept, 1), "query", 1)
    assert offsets(first) == expected(0, 1, 2)


def test_files_that_somebody_else_rewrote_meanwhile_are_left_alone(kept: Format, where: Any) -> None:
    table, other = filled(kept, where, 3), open_table(kept, where)
    day = [file for file in table.files() if file.partition == f"date={DAYS[0]}"]
    merged = table.merging(day[0].partition)
    merge(day, merged, table.filesystem())
    assert compact(other, POLICY) == 6
    assert not table.replace(day, merged)
    assert offsets(table) == expected(0, 1, 2)


def test_of_two_that_rewrite_the_same_files_at_once_one_does(
    kept: Format, where: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stompbox.pipelines import delta, iceberg

    table, other = filled(kept, where, 3), open_table(kept, where)
    day = [file for file in table.files() if file.partition == f"date={DAYS[0]}"]
    merged = table.merging(day[0].partition)
    merge(day, merged, table.filesystem())
    module: Any = delta if kept is Format.DELTA else iceberg
    name = "file_of" if kept is Format.DELTA else "parquet_files_to_data_files"
    made, others = getattr(module, name), [lambda: compact(other, POLICY)]

    def interrupted(*arguments: Any) -> Any:
        while others:
            others.pop()()
        return made(*arguments)

    monkeypatch.setattr(module, name, interrupted)
    assert not table.replace(day, merged)
    assert offsets(table) == expected(0, 1, 2)


def test_what_nobody_committed_is_swept_up_when_it_is_old(
    kept: Format, where: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(kept, where, 4, Retention(replaced=0.0, snapshots=50))
    compact(table, POLICY)
    left = {file.path for file in staged(table, kept, 9).files}
    before = objects(table)
    assert left < before
    tidy(table)
    assert objects(table) == before, "it may be a batch of somebody who has not committed it yet"
    monkeypatch.setattr(locations, "UNCOMMITTED", 0.0)
    monkeypatch.setattr("stompbox.pipelines.delta.UNCOMMITTED", 0.0)
    tidy(table)
    tidy(table)
    assert objects(table) == before - left, "and what older versions name stays"
    assert offsets(table) == expected(0, 1, 2, 3)


def test_a_task_that_fails_leaves_nothing(storage: Storage) -> None:
    schema = pa.schema([("offset", pa.int64())])
    with (
        pytest.raises(ZeroDivisionError),
        Files(PurePosixPath(BUCKET, "failed"), schema, "snappy", storage.filesystem(), NAMED) as files,
    ):
        files.add(pa.RecordBatch.from_pylist([{"offset": 1}], schema=schema), "date=2026-03-01")
        raise ZeroDivisionError
    assert list(Store(f"s3://{BUCKET}/failed", storage).files("")) == []


@pytest.mark.parametrize("fault", ["conflicts", "lost"])
def test_commits_that_a_catalogue_refuses_are_made_again(
    fault: str, catalog: RestCatalog, storage: Storage
) -> None:
    """`lost`: made, and answered with 500, so that nobody knows."""
    table = open_table(Format.ICEBERG, entry(catalog, storage, f"tests.{fault}"))
    assert table.append(staged(table, Format.ICEBERG, 0), "query", 0)
    setattr(catalog, fault, 2 if fault == "conflicts" else 1)
    table.append(staged(table, Format.ICEBERG, 1), "query", 1)
    assert (catalog.conflicts, catalog.lost) == (0, 0)
    assert offsets(table) == expected(0, 1) and table.last_batch("query") == 1


def test_a_conflict_that_does_not_end_is_told(
    catalog: RestCatalog, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyiceberg.exceptions import CommitFailedException

    table = filled(Format.ICEBERG, entry(catalog, storage, "tests.endless"), 1)
    monkeypatch.setattr("stompbox.pipelines.tables.PAUSE", 0.0)
    given = staged(table, Format.ICEBERG, 1)
    catalog.conflicts = 1000
    try:
        with pytest.raises(CommitFailedException, match="another writer was first"):
            table.append(given, "query", 1)
    finally:
        catalog.conflicts = 0
    assert offsets(table) == expected(0)


def test_a_catalogue_in_a_database_and_its_tables_in_a_folder(tmp_path: Path) -> None:
    """Other writers of it know nothing of our locks: what they have not committed yet is left alone."""
    properties = (
        ("type", "sql"),
        ("uri", f"sqlite:///{tmp_path / 'catalogue.db'}"),
        ("warehouse", f"file://{tmp_path / 'warehouse'}"),
    )
    table = filled(
        Format.ICEBERG,
        CatalogEntry("tests.orders", "sqlite", properties, Storage()),
        4,
        Retention(replaced=0.0),
    )
    stranger = Path(table.files()[0].path).with_name("theirs.parquet")
    stranger.write_bytes(b"not committed yet")
    old = time.time() - 2 * UNCOMMITTED
    os.utime(stranger, (old, old))
    assert compact(table, POLICY) == 8
    tidy(table)
    assert stranger.exists() and offsets(table) == expected(0, 1, 2, 3)


STEPS = """
[storage]
endpoint = "{endpoint}"
access-key-id = "lake-key"
secret-access-key = "geheim-of-the-store"
[catalog]
uri = "{catalog}"
credential = "lake:geheim-of-the-catalogue"
{steps}
[[transform]]
name = "sums"
table = "s3://lake/{name}/sums"
format = "delta"
partition-by = "region"
sql = "SELECT region, CAST(id AS BIGINT) AS id, timestamp, map('a', body) AS bodies FROM orders"
[[transform.source]]
name = "orders"
destinations = ["/queue/{name}"]
schema = "region STRING, id INT"
[[replay]]
name = "again"
archive = "iceberg"
destination = "/queue/{name}.again"
[[report]]
name = "figures"
archives = ["delta", "iceberg"]
output = "s3://lake/{name}/report"
"""
ARCHIVE = """
[[archive]]
name = "{kept}"
destinations = ["/queue/{name}"]
table = "{table}"
format = "{kept}"
schema = "region STRING, id INT"
[[audit]]
name = "check-{kept}"
archive = "{kept}"
sent = "s3://lake/{name}/sent.jsonl"
output = "s3a://lake/{name}/differences-{kept}"
"""


def test_a_pipeline_in_an_object_store_without_a_jar(
    run: Run, url: str, storage: Storage, catalog: RestCatalog, tmp_path: Path
) -> None:
    """Every kind of step, in both formats; what was read and what was written is in the store, and secrets are nowhere else."""
    from deltalake import DeltaTable

    name, bodies = (
        "stores",
        [b'{"region": "%s", "id": %d}' % ((b"EU", b"U S/%")[number % 2], number) for number in range(200)],
    )
    send(url, f"/queue/{name}", bodies)
    tables = {"delta": f"s3a://lake/{name}/orders", "iceberg": "tests.orders"}
    steps = "".join(ARCHIVE.format(kept=kept, name=name, table=table) for kept, table in tables.items())
    record = [
        {"id": str(number), "checksum": hashlib.sha256(body).hexdigest()}
        for number, body in enumerate(bodies)
    ]
    store = Store(f"s3://lake/{name}", storage)
    store.write("sent.jsonl", "\n".join(json.dumps(line) for line in record).encode())
    text = STEPS.format(endpoint=storage.endpoint, catalog=catalog.uri, name=name, steps=steps)
    done = run(text)
    for kept in tables:
        facts = done[f"check-{kept}"].facts
        assert (facts["differences"], facts["archived"], facts["compared"], facts["sent"]) == (
            {},
            200,
            200,
            200,
        ), kept
    assert {path.name for path, _ in store.files("differences-delta")} == {"part-00000.parquet"}
    found = (
        DeltaTable(f"s3://lake/{name}/sums", storage_options=storage.delta()).to_pyarrow_table().to_pylist()
    )
    assert {row["id"]: row["region"] for row in found} == {
        number: ("EU", "U S/%")[number % 2] for number in range(200)
    }
    assert Counter(row["body"] for row in stored(url, f"/queue/{name}.again")) == Counter(bodies)
    assert (
        done["figures"].facts["messages"] == 400
        and done["figures"].facts["page"] == f"s3://lake/{name}/report/index.html"
    )
    assert b"<html" in (store.read("report/index.html") or b"") and store.read(
        "report/hours/part-00000.parquet"
    )
    kept_on_disk = b"".join(
        path.read_bytes() for path in (tmp_path / "pipeline-state").rglob("*") if path.is_file()
    )
    assert b"geheim" not in kept_on_disk


IN_GOOGLE = """
[storage.google]
endpoint = "{endpoint}"
anonymous = true
[[archive]]
name = "orders"
destinations = ["/queue/{name}"]
table = "gs://lake/{name}/orders"
format = "delta"
[[replay]]
name = "again"
archive = "orders"
destination = "/queue/{name}.again"
[[report]]
name = "figures"
archives = ["orders"]
output = "gs://lake/{name}/report"
[[audit]]
name = "check"
archive = "orders"
output = "gs://lake/{name}/differences"
"""


def test_a_pipeline_in_the_store_of_google(run: Run, url: str, google: Storage) -> None:
    name, bodies = "in-google", [b"%d" % number for number in range(100)]
    send(url, f"/queue/{name}", bodies)
    done = run(IN_GOOGLE.format(endpoint=google.google.endpoint, name=name))
    facts = done["check"].facts
    assert (facts["differences"], facts["archived"], facts["compared"]) == ({}, 100, 100)
    assert Counter(row["body"] for row in stored(url, f"/queue/{name}.again")) == Counter(bodies)
    assert done["figures"].facts["messages"] == 100
    store = Store(f"gs://lake/{name}", google)
    assert b"<html" in (store.read("report/index.html") or b"") and store.read(
        "differences/part-00000.parquet"
    )


def test_what_a_server_repeats_of_a_secret_is_not_told(
    catalog: RestCatalog, storage: Storage, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = "lake:geheim-that-is-wrong"
    given = {
        "type": "rest",
        "uri": catalog.uri,
        "credential": wrong,
        "oauth2-server-uri": f"{catalog.uri}/v1/oauth/tokens",
    }
    step, said = ArchiveTable(name="orders", destinations=("/queue/x",), table="a.b"), list[Any]()
    secrets = (wrong, wrong.partition(":")[2])
    with pytest.raises(LocalError) as caught, named(step, said.append, secrets):
        open_table(Format.ICEBERG, CatalogEntry("a.b", catalog.uri, tuple(given.items()), storage)).files()
    assert catalog.refused_logins[-1:] == [wrong], "it was repeated"
    assert "archive 'orders'" in str(caught.value) and "***" in str(caught.value)
    lines = [Masking("%(message)s", secrets).format(record) for record in caplog.records]
    assert any("Traceback" in line for line in lines)
    assert not any("geheim" in text for text in (*lines, *(event.text for event in said), str(caught.value)))


def test_secrets_are_in_no_representation(storage: Storage, catalog: RestCatalog) -> None:
    store = Store("s3://lake/x", storage)
    shown = repr((storage, store, entry(catalog, storage, "a.b"), open_table(Format.DELTA, store)))
    assert SECRET not in shown and CREDENTIAL.partition(":")[2] not in shown
