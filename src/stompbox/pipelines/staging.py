"""Rows as files, before they count: Spark's tasks write a batch into the staging folder of its table.

Decides how files are written: Parquet with timestamps in microseconds, one folder per value of the column that the table is partitioned by.
"""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path
from typing import Any, Final

from stompbox.pipelines.settings import Format
from stompbox.pipelines.tables import Staged, file_of, staging_of

TIMESTAMPS: Final = ("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
PAGES: Final = {  # by default Parquet first looks at the size of a page after 100 rows: bodies of 1 MB, and copies of them, end Java's heap
    "parquet.page.size.row.check.min": "1",
    "parquet.page.size.row.check.max": "10",
    "parquet.block.size.row.check.min": "1",
    "parquet.block.size.row.check.max": "10",
}
_COPY: Final = "__partition"


def stage(frame: Any, folder: Path, kept: Format, batch: str, partition_by: str = "") -> Staged:
    """The rows of a batch as files; none when it has no rows."""
    from pyspark.sql.functions import col
    from pyspark.sql.pandas.types import to_arrow_schema

    staging = attempt(folder, batch)
    frame.sparkSession.conf.set(*TIMESTAMPS)  # INT96, Spark's default, is nothing that Delta or Iceberg know
    schema = to_arrow_schema(frame.schema, timezone="UTC")
    if not partition_by:
        write(frame, staging)
    elif kept is Format.ICEBERG:  # whose files hold all columns
        write(frame.withColumn(_COPY, col(partition_by)), staging, _COPY)
    else:
        write(frame, staging, partition_by)
    files = []
    for path in sorted(staging.rglob("*.parquet")):
        partition = "" if path.parent == staging else f"{partition_by}={path.parent.name.partition('=')[2]}"
        file = file_of(path, partition)
        if file.rows:
            files.append(file)
    return Staged(staging, tuple(files), schema, partition_by)


def attempt(folder: Path, batch: str) -> Path:
    """A staging folder of this attempt alone: after a kill of the driver Java, or a task, may still write what an earlier one began."""
    return staging_of(folder) / f"{batch}-{uuid.uuid4().hex[:8]}"


def write(frame: Any, folder: Path, *partition_by: str) -> None:
    """Rows with bodies, which may be large, as Parquet."""
    frame.write.options(**PAGES).partitionBy(*partition_by).parquet(str(folder))


def forget(staged: Staged) -> None:
    """Removes what the commit left of the folder."""
    shutil.rmtree(staged.folder, ignore_errors=True)


def read(spark: Any, table: Any, *, merge: bool = False) -> Any:
    """The rows of the live files; None when there are none. `merge`: all columns that any of the files has."""
    paths = [str(file.path) for file in table.files()]
    if not paths:
        return None
    base = table.folder / "data" if paths[0].startswith(str(table.folder / "data") + "/") else table.folder
    reader = spark.read.option("basePath", str(base))
    if merge:
        reader = reader.option("mergeSchema", "true")
    return reader.parquet(*paths)
