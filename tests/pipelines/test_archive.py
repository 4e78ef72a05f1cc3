"""Archives with a real broker and a real Spark: every message once in each format, whatever was lost in between."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from stompbox import blocking
from stompbox.errors import LocalError
from stompbox.pipelines.settings import Format
from stompbox.pipelines.tables import Policy, compact, open_table
from stompbox.spark.link import Request, leased
from stompbox.spark.options import Given, target_of
from stompbox.spark.requests import describe
from tests.pipelines.conftest import Run, send
from tests.pipelines.lake import rows_of

FORMATS = [
    Format.PARQUET,
    pytest.param(Format.DELTA, marks=pytest.mark.filterwarnings("default")),
    pytest.param(Format.ICEBERG, marks=pytest.mark.filterwarnings("default")),
]


BY_JAVA = [*FORMATS, "java", pytest.param("iceberg-java", marks=pytest.mark.filterwarnings("default"))]
"""Each format by the tasks, and what Java writes in other ways than they."""
MEGABYTE = 1 << 20
LARGE = 270  # bodies: more than the 256 MiB of one batch
WITHIN = 300.0  # s
TYPES = {
    "whole": "INT", "large": "BIGINT", "tiny": "TINYINT", "exact": "DECIMAL(9,2)", "precise": "DECIMAL(30,3)", "yes": "BOOLEAN",
    "day": "DATE", "moment": "TIMESTAMP", "local": "TIMESTAMP_NTZ", "text": "STRING", "many": "ARRAY<STRING>",
    "both": "STRUCT<a: INT, b: ARRAY<DECIMAL(4,1)>>", "each": "MAP<STRING, DOUBLE>", "float": "FLOAT",
}  # fmt: skip
VALUES = {
    "whole": -7, "large": 1 << 40, "tiny": 3, "exact": 1234567.89, "precise": 12345.678, "yes": True, "day": "2026-03-01",
    "moment": "2026-03-01T12:00:00.123456Z", "local": "2026-03-01T12:00:00", "text": "ä", "many": ["a", None], "both": {"a": 1, "b": [2.5]},
    "each": {"k": 0.5}, "float": 1.5,
}  # fmt: skip


def archive(name: str, more: str = "", kind: str = "queue") -> str:
    return f'[[archive]]\nname = "{name}"\ndestinations = ["/{kind}/{name}.#"]\ntable = "table"\ncompact-files = 3\n{more}'


def fill(url: str, name: str, first: int, count: int, kind: str = "queue") -> None:
    for region in ("eu", "us"):
        send(url, f"/{kind}/{name}.{region}", [b"%d" % number for number in range(first, first + count)])


def bodies(rows: list[dict[str, Any]]) -> Counter[tuple[str, int]]:
    return Counter((row["address"].rpartition(".")[2], int(row["body"])) for row in rows)


def each(count: int) -> Counter[tuple[str, int]]:
    return Counter((region, number) for region in ("eu", "us") for number in range(count))


def kept_by(kind: Format | str) -> tuple[Format, str]:
    """The format of a case, and its keys."""
    if isinstance(kind, Format):
        return kind, f'format = "{kind.value}"\n'
    kept = Format.ICEBERG if "iceberg" in kind else Format.PARQUET
    return kept, f'format = "{kept.value}"\nwriter = "java"\n'


@pytest.mark.parametrize("kind", BY_JAVA, ids=str)
def test_every_message_is_in_the_table_once(kind: Format | str, run: Run, url: str, tmp_path: Path) -> None:
    kept, keys = kept_by(kind)
    name = f"once-{kind}".lower().replace(".", "-")
    text = archive(name, keys)
    fill(url, name, 0, 20)
    assert run(text, name)[name].facts == {"rows": 40}
    # The last batch is in the table and, as far as Spark knows, it is not: it comes again.
    commits = tmp_path / "pipeline-state" / name / "checkpoint" / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    for path in (commits / str(last), commits / f".{last}.crc"):
        path.unlink(missing_ok=True)
    fill(url, name, 20, 10)
    run(text, name)
    rows = rows_of(kept, tmp_path / "table")
    assert bodies(rows) == each(30)
    assert {dict(row["headers"])["id"] for row in rows} == {str(number) for number in range(20)}
    assert {str(row["timestamp"].date()) for row in rows} == {str(row["date"]) for row in rows}
    assert all(row["archived"] >= row["timestamp"] for row in rows)


@pytest.mark.parametrize("kept", FORMATS, ids=lambda kept: kept.value)
def test_a_lost_checkpoint_goes_on_where_the_group_is(
    kept: Format, run: Run, url: str, tmp_path: Path
) -> None:
    name = f"again-{kept.value}"
    text = archive(name, f'format = "{kept.value}"\n')
    fill(url, name, 0, 15)
    run(text, name)
    shutil.rmtree(tmp_path / "pipeline-state")
    fill(url, name, 15, 5)
    assert run(text, name)[name].facts == {"rows": 10}
    assert bodies(rows_of(kept, tmp_path / "table")) == each(20)


@pytest.mark.parametrize("kind", [*FORMATS, "java"], ids=str)
def test_a_lost_checkpoint_doubles_nothing(
    kind: Format | str, run: Run, url: str, spark: Any, tmp_path: Path
) -> None:
    """The new group is behind the table. Three batches make enough small files to be rewritten meanwhile."""
    kept, keys = kept_by(kind)
    name = f"lost-{kind}".lower().replace(".", "-")
    text = archive(name, f"max-rows = 10\n{keys}")
    fill(url, name, 0, 15)
    run(text, name)
    assert len(open_table(kept, tmp_path / "table").files()) == 1, "not rewritten"
    shutil.rmtree(tmp_path / "pipeline-state")
    # which begins with the first message
    again = text.replace(f'name = "{name}"', f'name = "{name}"\ngroup = "another-{name}"')
    fill(url, name, 15, 5)
    assert run(again, name)[name].facts == {"rows": 40}
    assert bodies(rows_of(kept, tmp_path / "table")) == each(20)
    if kept is Format.PARQUET:
        read = spark.read.parquet(str(tmp_path / "table"))  # by the log that Spark knows as its own
        assert (read.count(), read.select("address", "offset").distinct().count()) == (40, 40)


@pytest.mark.parametrize("kept", FORMATS, ids=lambda kept: kept.value)
def test_what_retention_has_taken_is_an_error_or_counted(
    kept: Format, run: Run, url: str, tmp_path: Path
) -> None:
    """The group was deleted by hand and retention has passed the checkpoint."""
    name = f"kept-{kept.value}"
    text = archive(name, f'format = "{kept.value}"\n', "topic")
    fill(url, name, 0, 5, "topic")
    run(text, name)
    with leased(target_of(Given({"url": url}))) as link:
        link.ask(Request("group-delete", {"group": f"lake-{name}"}))
        fill(url, name, 5, 35, "topic")
        first = {
            address: extent.first
            for address, extent in describe(link, f"/topic/{name}.#", create=False).extents.items()
        }
    assert all(5 < offset <= 30 for offset in first.values()), first
    with pytest.raises(
        LocalError,
        match=rf"archive '{name}': offsets 5 to \d+ of '{name}.eu' were deleted .*failOnDataLoss=false",
    ):
        run(text, name)
    assert bodies(rows_of(kept, tmp_path / "table")) == each(5)
    found = run(text + "fail-on-data-loss = false\n", name)[name]
    skipped = sum(offset - 5 for offset in first.values())
    assert found.facts == {"rows": 70 - skipped, "skipped": skipped}
    assert found.text == f"{70 - skipped} rows, {skipped} offsets skipped"
    expected = {
        (address.rpartition(".")[2], number)
        for address, offset in first.items()
        for number in (*range(5), *range(offset, 40))
    }
    assert bodies(rows_of(kept, tmp_path / "table")) == Counter(expected)


def test_bodies_become_columns(run: Run, url: str, tmp_path: Path) -> None:
    text = archive("columns", 'schema = "region STRING, amount DOUBLE"\n')
    send(url, "/queue/columns.a", [b'{"region": "EU", "amount": 1.5}', b"no json"])
    run(text, "columns")
    rows = rows_of(Format.PARQUET, tmp_path / "table")
    assert sorted((row["offset"], row["region"], row["amount"]) for row in rows) == [
        (0, "EU", 1.5),
        (1, None, None),
    ]


def test_tasks_and_java_write_the_same_table_by_turns(run: Run, url: str, spark: Any, tmp_path: Path) -> None:
    """With one checkpoint, values of every kind, and files of both in one compaction: a reader cannot tell who has written what."""
    from pyarrow import parquet

    schema = ", ".join(f"{name} {kind}" for name, kind in TYPES.items())
    keys = f'schema = "{schema}"\ncompact = false\n'
    for writer in ("java", "arrow", "java"):
        send(url, "/queue/turns.a", [json.dumps(VALUES).encode(), b"{}"])
        assert run(archive("turns", f'{keys}writer = "{writer}"\n'), "turns")["turns"].facts == {"rows": 2}
    table = open_table(Format.PARQUET, tmp_path / "table")
    files = table.files()
    assert [file.rows for file in files] == [2, 2, 2]
    assert len({str(parquet.read_schema(file.path).remove_metadata()) for file in files}) == 1
    types = {"\n".join(str(parquet.ParquetFile(file.path).schema).splitlines()[2:]) for file in files}
    assert len(types) == 1, "the types of Parquet, too"
    rows = [
        row.asDict(recursive=True)
        for row in spark.read.parquet(str(tmp_path / "table")).orderBy("offset").collect()
    ]
    assert [row["offset"] for row in rows] == list(range(6))
    for name in TYPES:
        assert rows[0][name] == rows[2][name] == rows[4][name] is not None, name
        assert rows[1][name] is rows[3][name] is rows[5][name] is None, name
    assert compact(table, Policy(files=2)) == 3
    again = [
        row.asDict(recursive=True)
        for row in spark.read.parquet(str(tmp_path / "table")).orderBy("offset").collect()
    ]
    assert again == rows


@pytest.fixture(scope="module")
def large(url: str) -> dict[int, bytes]:
    """Sums of the bodies at /queue/large, by offset."""
    chance, sums = random.Random(17), {}
    with blocking.connect(url) as client, client.publisher(window=8) as publisher:
        for number in range(LARGE):
            body = chance.randbytes(MEGABYTE)
            sums[number] = hashlib.md5(body).digest()
            publisher.send("/queue/large", body)
    return sums


# a minute each: the one whose heap it is, and with SOAK=1 the other
@pytest.mark.parametrize("writer", ["java", "arrow"] if "SOAK" in os.environ else ["java"])
def test_large_bodies_and_a_small_heap(
    writer: str, url: str, large: dict[int, bytes], python: str, tmp_path: Path
) -> None:
    """With the settings as they are, but for Java's 512 MB: what is under way at a time is bounded in bytes, and not in rows alone."""
    from pyarrow import parquet

    heap = '[spark.settings]\n"spark.driver.memory" = "512m"\n'
    step = f'[[archive]]\nname = "large-{writer}"\ndestinations = ["/queue/large"]\ntable = "table"\nwriter = "{writer}"\n'
    (tmp_path / "lake.toml").write_text(f'url = "{url}"\n{step}{heap}')
    command = [sys.executable, "-m", "stompbox", "pipeline", "run", "lake.toml", "--once", "--json"]
    environment = {**os.environ, "PYSPARK_PYTHON": python}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=WITHIN, check=False
    )
    assert done.returncode == 0, done.stderr
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert [event["facts"] for event in said if event["event"] == "finished"] == [{"rows": LARGE}]
    assert sum(event["event"] == "batch" for event in said) > 1, "a batch is bounded in bytes"
    files = open_table(Format.PARQUET, tmp_path / "table").files()
    tables = [parquet.ParquetFile(file.path).read(["offset", "body"]).to_pylist() for file in files]
    assert {row["offset"]: hashlib.md5(row["body"]).digest() for table in tables for row in table} == large
