"""Archives with a real broker and a real Spark: every message once in each format, whatever was lost in between."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from stompbox.pipelines.settings import Format
from stompbox.pipelines.tables import open_table
from tests.pipelines.conftest import Run, send
from tests.pipelines.lake import rows_of

FORMATS = [
    Format.PARQUET,
    pytest.param(Format.DELTA, marks=pytest.mark.filterwarnings("default")),
    pytest.param(Format.ICEBERG, marks=pytest.mark.filterwarnings("default")),
]


def archive(name: str, more: str = "") -> str:
    return f'[[archive]]\nname = "{name}"\ndestinations = ["/queue/{name}.#"]\ntable = "table"\ncompact-files = 3\n{more}'


def fill(url: str, name: str, first: int, count: int) -> None:
    for region in ("eu", "us"):
        send(url, f"/queue/{name}.{region}", [b"%d" % number for number in range(first, first + count)])


def bodies(rows: list[dict[str, Any]]) -> Counter[tuple[str, int]]:
    return Counter((row["address"].rpartition(".")[2], int(row["body"])) for row in rows)


def each(count: int) -> Counter[tuple[str, int]]:
    return Counter((region, number) for region in ("eu", "us") for number in range(count))


@pytest.mark.parametrize("kept", FORMATS, ids=lambda kept: kept.value)
def test_every_message_is_in_the_table_once(kept: Format, run: Run, url: str, tmp_path: Path) -> None:
    name = f"once-{kept.value}"
    text = archive(name, f'format = "{kept.value}"\n')
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


def test_a_lost_checkpoint_doubles_nothing(run: Run, url: str, spark: Any, tmp_path: Path) -> None:
    """The new group is behind the table. Three batches make enough small files to be rewritten meanwhile."""
    text = archive("lost", "max-rows = 10\n")
    fill(url, "lost", 0, 15)
    run(text, "lost")
    table = open_table(Format.PARQUET, tmp_path / "table")
    assert len(table.files()) == 1, "not rewritten"
    shutil.rmtree(tmp_path / "pipeline-state")
    again = text.replace('name = "lost"', 'name = "lost"\ngroup = "another"')  # which begins with the first message
    fill(url, "lost", 15, 5)
    run(again, "lost")
    assert bodies(rows_of(Format.PARQUET, tmp_path / "table")) == each(20)
    read = spark.read.parquet(str(tmp_path / "table"))  # by the log that Spark knows as its own
    assert (read.count(), read.select("address", "offset").distinct().count()) == (40, 40)


def test_bodies_become_columns(run: Run, url: str, tmp_path: Path) -> None:
    text = archive("columns", 'schema = "region STRING, amount DOUBLE"\n')
    send(url, "/queue/columns.a", [b'{"region": "EU", "amount": 1.5}', b"no json"])
    run(text, "columns")
    rows = rows_of(Format.PARQUET, tmp_path / "table")
    assert sorted((row["offset"], row["region"], row["amount"]) for row in rows) == [(0, "EU", 1.5), (1, None, None)]
