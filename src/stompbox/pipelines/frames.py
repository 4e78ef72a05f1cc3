"""Few rows of this process as a frame: Spark has them as they are, and starts no Python process to read them. Where there are none, it
leaves out of a query what would be done with them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from stompbox.spark.versions import arrow_schema


def frame_of(session: Any, columns: str, rows: Iterable[Sequence[Any]] = ()) -> Any:
    """A frame with these columns (DDL), whose values are in each of the rows in their order."""
    import pyarrow as pa
    from pyspark.sql.types import StructType

    kinds = StructType.fromDDL(columns)
    table = pa.Table.from_pylist(
        [dict(zip(kinds.names, row, strict=True)) for row in rows], schema=arrow_schema(kinds)
    )
    return session.createDataFrame(table, kinds)
