"""Tables without Spark: batches of rows as the staging would leave them, and what a table holds."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

from stompbox.pipelines.locations import staging_of
from stompbox.pipelines.settings import Format
from stompbox.pipelines.tables import Staged, Table, file_of

DAYS = (date(2026, 3, 1), date(2026, 3, 2))


def staged(table: Table, kept: Format, batch: int, rows: int = 4) -> Staged:
    """One file a day, offsets of the batch from 100 * batch on."""
    folder = staging_of(table.folder) / f"batch-{batch}"
    files = []
    for place, day in enumerate(DAYS):
        offsets = list(range(100 * batch + place * rows, 100 * batch + (place + 1) * rows))
        times = [datetime(day.year, day.month, day.day, 12, tzinfo=UTC)] * rows
        columns = {
            "address": pa.array(["orders"] * rows),
            "offset": pa.array(offsets, pa.int64()),
            "timestamp": pa.array(times, pa.timestamp("us", "UTC")),
            "headers": pa.array(
                [[("id", str(offset))] for offset in offsets], pa.map_(pa.string(), pa.string())
            ),
            "body": pa.array([b"%d" % offset for offset in offsets]),
        }
        if kept is Format.ICEBERG:
            columns["date"] = pa.array([day] * rows)
        path = folder / f"date={day}" / f"part-{place}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(pa.table(columns), path)
        files.append(file_of(path, f"date={day}"))
    schema = parquet.read_schema(files[0].path)
    whole = schema if kept is Format.ICEBERG else schema.append(pa.field("date", pa.date32()))
    return Staged(folder, tuple(files), whole, "date")


def offsets(table: Table) -> Counter[int]:
    """How often each offset stands in the live files; each in the folder of its day."""
    found: Counter[int] = Counter()
    for file in table.files():
        content = parquet.ParquetFile(file.path).read(["offset", "timestamp"]).to_pylist()
        assert len(content) == file.rows
        assert {f"date={row['timestamp'].date()}" for row in content} == {file.partition}
        found.update(row["offset"] for row in content)
    return found


def listed(folder: Path) -> Counter[int]:
    """The same for a reader who only lists the folder."""
    paths = folder.glob("date=*/*.parquet")
    return Counter(
        offset
        for path in paths
        for offset in parquet.ParquetFile(path).read(["offset"]).column("offset").to_pylist()
    )


def expected(*batches: int, rows: int = 4) -> Counter[int]:
    return Counter(100 * batch + number for batch in batches for number in range(len(DAYS) * rows))


def rows_of(kept: Format, folder: Path) -> list[dict[str, Any]]:
    """All rows, by readers of each format that know nothing of Spark or of us; of Parquet by one that lists the folder."""
    if kept is Format.DELTA:
        from deltalake import DeltaTable

        return list(DeltaTable(str(folder)).to_pyarrow_table().to_pylist())
    if kept is Format.ICEBERG:
        from pyiceberg.catalog.sql import SqlCatalog

        catalog = SqlCatalog("stompbox", uri=f"sqlite:///{folder / 'catalog.db'}", warehouse=folder.as_uri())
        return list(catalog.load_table(f"stompbox.{folder.name}").scan().to_arrow().to_pylist())
    import duckdb

    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        files = f"read_parquet('{folder}/*=*/*.parquet', hive_partitioning=true, union_by_name=true)"
        return list(connection.sql(f"SELECT * FROM {files}").to_arrow_table().to_pylist())
