"""`to_parquet`: what a batch read would give, as Parquet files that the tasks write themselves, without handing a row to Java.

    from stompbox.spark.export import to_parquet
    to_parquet(spark, "flights", url=url, destination="/topic/flights.#")      # then spark.read.parquet("flights"), DuckDB, pyarrow

All or nothing: the files are made beside the folder, which appears with all of them. Driver and executors share the filesystem.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from stompbox.errors import UsageError
from stompbox.spark.faults import plain
from stompbox.spark.options import SourceOptions
from stompbox.syncing import sync


def to_parquet(spark: Any, folder: str | os.PathLike[str], **options: str) -> int:
    """Writes what `spark.read.format("stomp").options(**options)` would read into a new folder; the number of rows.

    Raises UsageError where something has that name already, or an option is wrong. A task's fault is raised as Spark raises it.
    """
    from pyspark.sql.types import StructType

    from stompbox.spark.datasource import StompSource
    from stompbox.spark.files import CODEC, Files, codec_of
    from stompbox.spark.options import Given, source_options
    from stompbox.spark.source import StompReader, view_of

    target = Path(folder).absolute()
    if target.exists():
        raise UsageError("bad-argument", f"{target} is there already; name a folder that is not")
    schema = StructType.fromDDL(StompSource(options).schema())
    given = source_options(Given(options), streaming=False)
    view = view_of(schema, given)
    shares = [part.value for part in StompReader(given, view).partitions()]
    staging = target.with_name(f".{target.name}_staging-{uuid.uuid4().hex[:8]}")
    staging.mkdir(parents=True)
    try:
        work = partial(
            _written, given, view, partial(Files, staging, _arrow(schema), codec_of(spark.conf.get(CODEC)))
        )
        rows = sum(
            spark.sparkContext.parallelize(shares, len(shares)).mapPartitions(work).collect()
            if shares
            else work([()])
        )
        _put(staging, target)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    return rows


def _arrow(schema: Any) -> Any:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")


@plain
def _written(
    options: SourceOptions, view: Any, opened: Callable[[], Any], shares: Iterable[Any]
) -> Iterator[int]:
    """One task: the rows that it has written. Where there are none it writes a file all the same, which has the columns."""
    from pyarrow import RecordBatch

    from stompbox.spark.reading import batches

    with opened() as files:
        files.add(RecordBatch.from_pylist([], schema=files.schema))
        for ranges in shares:
            for batch in batches(options, ranges, view):
                files.add(batch)
    yield sum(file.rows for file in files.written)


def _put(staging: Path, target: Path) -> None:
    """Writes a folder to the disk durably, then gives it its name."""
    for path in (*staging.iterdir(), staging):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            sync(descriptor)
        finally:
            os.close(descriptor)
    staging.rename(target)
