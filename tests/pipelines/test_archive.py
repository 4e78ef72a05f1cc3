"""Archives with a real broker and a real Spark: every message once in each format, whatever was lost in between."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from stompbox.errors import LocalError
from stompbox.pipelines.settings import Format
from stompbox.pipelines.tables import open_table
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


def archive(name: str, more: str = "", kind: str = "queue") -> str:
    return f'[[archive]]\nname = "{name}"\ndestinations = ["/{kind}/{name}.#"]\ntable = "table"\ncompact-files = 3\n{more}'


def fill(url: str, name: str, first: int, count: int, kind: str = "queue") -> None:
    for region in ("eu", "us"):
        send(url, f"/{kind}/{name}.{region}", [b"%d" % number for number in range(first, first + count)])


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


@pytest.mark.parametrize("kept", FORMATS, ids=lambda kept: kept.value)
def test_a_lost_checkpoint_goes_on_where_the_group_is(kept: Format, run: Run, url: str, tmp_path: Path) -> None:
    name = f"again-{kept.value}"
    text = archive(name, f'format = "{kept.value}"\n')
    fill(url, name, 0, 15)
    run(text, name)
    shutil.rmtree(tmp_path / "pipeline-state")
    fill(url, name, 15, 5)
    assert run(text, name)[name].facts == {"rows": 10}
    assert bodies(rows_of(kept, tmp_path / "table")) == each(20)


@pytest.mark.parametrize("kept", FORMATS, ids=lambda kept: kept.value)
def test_a_lost_checkpoint_doubles_nothing(kept: Format, run: Run, url: str, spark: Any, tmp_path: Path) -> None:
    """The new group is behind the table. Three batches make enough small files to be rewritten meanwhile."""
    name = f"lost-{kept.value}"
    text = archive(name, f'max-rows = 10\nformat = "{kept.value}"\n')
    fill(url, name, 0, 15)
    run(text, name)
    assert len(open_table(kept, tmp_path / "table").files()) == 1, "not rewritten"
    shutil.rmtree(tmp_path / "pipeline-state")
    again = text.replace(f'name = "{name}"', f'name = "{name}"\ngroup = "another-{kept.value}"')  # which begins with the first message
    fill(url, name, 15, 5)
    assert run(again, name)[name].facts == {"rows": 40}
    assert bodies(rows_of(kept, tmp_path / "table")) == each(20)
    if kept is Format.PARQUET:
        read = spark.read.parquet(str(tmp_path / "table"))  # by the log that Spark knows as its own
        assert (read.count(), read.select("address", "offset").distinct().count()) == (40, 40)


@pytest.mark.parametrize("kept", FORMATS, ids=lambda kept: kept.value)
def test_what_retention_has_taken_is_an_error_or_counted(kept: Format, run: Run, url: str, tmp_path: Path) -> None:
    """The group was deleted by hand and retention has passed the checkpoint."""
    name = f"kept-{kept.value}"
    text = archive(name, f'format = "{kept.value}"\n', "topic")
    fill(url, name, 0, 5, "topic")
    run(text, name)
    with leased(target_of(Given({"url": url}))) as link:
        link.ask(Request("group-delete", {"group": f"lake-{name}"}))
        fill(url, name, 5, 35, "topic")
        first = {address: extent.first for address, extent in describe(link, f"/topic/{name}.#", create=False).extents.items()}
    assert all(5 < offset <= 30 for offset in first.values()), first
    with pytest.raises(LocalError, match=rf"archive '{name}': offsets 5 to \d+ of '{name}.eu' were deleted .*failOnDataLoss=false"):
        run(text, name)
    assert bodies(rows_of(kept, tmp_path / "table")) == each(5)
    found = run(text + "fail-on-data-loss = false\n", name)[name]
    skipped = sum(offset - 5 for offset in first.values())
    assert found.facts == {"rows": 70 - skipped, "skipped": skipped}
    assert found.text == f"{70 - skipped} rows, {skipped} offsets skipped"
    expected = {(address.rpartition(".")[2], number) for address, offset in first.items() for number in (*range(5), *range(offset, 40))}
    assert bodies(rows_of(kept, tmp_path / "table")) == Counter(expected)


def test_bodies_become_columns(run: Run, url: str, tmp_path: Path) -> None:
    text = archive("columns", 'schema = "region STRING, amount DOUBLE"\n')
    send(url, "/queue/columns.a", [b'{"region": "EU", "amount": 1.5}', b"no json"])
    run(text, "columns")
    rows = rows_of(Format.PARQUET, tmp_path / "table")
    assert sorted((row["offset"], row["region"], row["amount"]) for row in rows) == [(0, "EU", 1.5), (1, None, None)]
