"""Rows as files, before they count: Spark's tasks write a batch into the staging folder of its table.

Decides how files are written: Parquet with timestamps in microseconds, one folder per value of the column that the table is partitioned by.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from stompbox.errors import UsageError
from stompbox.pipelines.frames import frame_of
from stompbox.pipelines.locations import Attempt, attempt
from stompbox.pipelines.settings import Format
from stompbox.pipelines.tables import Staged, Table, file_of, partition_of, partition_value
from stompbox.pipelines.tasks import staged_in
from stompbox.spark.faults import plain
from stompbox.spark.files import CODEC, Files, WrittenFile, codec_of

TIMESTAMPS: Final = ("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
# by default Parquet first looks at the size of a page after 100 rows: bodies of 1 MB, and copies of them, end Java's heap
PAGES: Final = {
    "parquet.page.size.row.check.min": "1",
    "parquet.page.size.row.check.max": "10",
    "parquet.block.size.row.check.min": "1",
    "parquet.block.size.row.check.max": "10",
}
TASKS: Final = 4  # for each processor, at most, that read a table from an object store
READ_ROWS: Final = 8_192  # given to Java at once; bodies may be large
# whose texts mean one value everywhere
PARTITIONED: Final = ("string", "date", "byte", "short", "integer", "long", "boolean")
_COPY: Final = "__partition"


def stage(frame: Any, folder: Path, kept: Format, batch: str, partition_by: str = "") -> Staged:
    """The rows of a batch as files; none when it has no rows."""
    from pyspark.sql.functions import col
    from pyspark.sql.pandas.types import to_arrow_schema

    staging = Path(attempt(folder, batch).folder)
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


def stage_by_arrow(frame: Any, table: Table, kept: Format, batch: str, partition_by: str = "") -> Staged:
    """Stages rows where Java cannot write: they go to Python's tasks, which write them to an object store."""
    from pyspark.sql.functions import col, lit
    from pyspark.sql.pandas.types import to_arrow_schema

    if partition_by and frame.schema[partition_by].dataType.typeName() not in PARTITIONED:
        kind = frame.schema[partition_by].dataType.simpleString().upper()
        allowed = f"in an object store allowed are {', '.join(PARTITIONED)}"
        raise UsageError("bad-argument", f"partition-by {partition_by!r} is {kind}; {allowed}")
    whole = to_arrow_schema(frame.schema, timezone="UTC")
    schema = (
        whole
        if kept is Format.ICEBERG or not partition_by
        else whole.remove(whole.get_field_index(partition_by))
    )
    place = table.attempt(batch, whole, partition_by)
    marked = frame.withColumn(_COPY, col(partition_by).cast("string") if partition_by else lit(""))
    work = partial(_write_rows, place, schema, partition_by, codec_of(frame.sparkSession.conf.get(CODEC)))
    rows = marked.mapInArrow(work, "path STRING, partition STRING, rows BIGINT").collect()
    return staged_in(
        place, [WrittenFile(row["path"], row["partition"], row["rows"]) for row in rows], whole, partition_by
    )


@plain
def _write_rows(
    place: Attempt, schema: Any, partition_by: str, codec: str, batches: Iterable[Any]
) -> Iterator[Any]:
    """One task: the files that it has written."""
    import pyarrow as pa
    import pyarrow.compute as pc

    with Files(place.folder, schema, codec, place.filesystem(), place.prefix) as files:
        for batch in batches:
            rows = pa.Table.from_batches([batch])
            for value in pc.unique(batch.column(_COPY)).to_pylist():
                own = rows.filter(
                    pc.equal(rows[_COPY], value) if value is not None else pc.is_null(rows[_COPY])
                )
                for part in own.select(schema.names).cast(schema).to_batches():
                    files.add(part, partition_of(partition_by, value) if partition_by else "")
    names = ("path", "partition", "rows")
    yield pa.RecordBatch.from_pylist(
        [{name: getattr(file, name) for name in names} for file in files.written], schema=_written_schema()
    )


def _written_schema() -> Any:
    import pyarrow as pa

    return pa.schema([("path", pa.string()), ("partition", pa.string()), ("rows", pa.int64())])


def write(frame: Any, folder: Path, *partition_by: str) -> None:
    """Rows with bodies, which may be large, as Parquet."""
    frame.write.options(**PAGES).partitionBy(*partition_by).parquet(str(folder))


def forget(staged: Staged) -> None:
    """Removes what the commit left of the folder."""
    if staged.folder is not None:
        shutil.rmtree(staged.folder, ignore_errors=True)


def read(spark: Any, table: Table, *, merge: bool = False, columns: Sequence[str] = ()) -> Any:
    """The rows of the live files; None when there are none. `merge`: all columns that any of the files has. `columns`: those that are
    needed, all if none; there may be more, where reading them costs nothing."""
    files = table.files()
    if not files:
        return None
    if table.folder is None:
        return _read_by_arrow(spark, table, files, columns)
    paths = [str(file.path) for file in files]
    base = table.folder / "data" if paths[0].startswith(str(table.folder / "data") + "/") else table.folder
    reader = spark.read.option("basePath", str(base))
    if merge:
        reader = reader.option("mergeSchema", "true")
    return reader.parquet(*paths)


def _read_by_arrow(spark: Any, table: Table, files: Sequence[Any], columns: Sequence[str]) -> Any:
    """Reads files where Java cannot: Python's tasks read them, some of them each."""
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
    from pyspark.sql.types import StructType

    there = from_arrow_schema(table.schema())
    schema = StructType([field for field in there.fields if not columns or field.name in columns])
    tasks = min(len(files), TASKS * spark.sparkContext.defaultParallelism)
    paths = frame_of(
        spark, "path STRING, partition STRING", [(str(file.path), file.partition) for file in files]
    ).repartition(tasks)
    return paths.mapInArrow(
        partial(_read_rows, table.filesystem(), to_arrow_schema(schema, timezone="UTC")), schema
    )


@plain
def _read_rows(filesystem: Any, schema: Any, batches: Iterable[Any]) -> Iterator[Any]:
    """One task: the rows of its files, with the columns of the table as it is now."""
    from pyarrow import parquet

    for batch in batches:
        for named in batch.to_pylist():
            file = parquet.ParquetFile(named["path"], filesystem=filesystem)
            wanted = [name for name in schema.names if name in file.schema_arrow.names]
            for rows in file.iter_batches(READ_ROWS, columns=wanted):
                yield _as_in(rows, schema, named["partition"])


def _as_in(rows: Any, schema: Any, partition: str) -> Any:
    """With the columns of this schema: that of the partition from its folder, others that the file does not have NULL."""
    import pyarrow as pa

    arrays = []
    for field in schema:
        if field.name in rows.schema.names:
            arrays.append(rows.column(field.name).cast(field.type))
        elif field.name == partition.partition("=")[0]:
            arrays.append(pa.repeat(pa.scalar(partition_value(partition)).cast(field.type), len(rows)))
        else:
            arrays.append(pa.nulls(len(rows), field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
