"""The source `stomp-ranges`: what a micro-batch of `stomp` would read, a row for each range of offsets, and none of the messages.

For queries whose tasks read the messages themselves: an archive's write them to files, without handing them to Java. Offsets, limits,
groups and checkpoints are those of `stomp`, so a checkpoint of the one goes on with the other. It is no source for users: a session knows
it only where a pipeline has registered it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from stompbox.errors import StompboxError
from stompbox.spark.datasource import StompSource
from stompbox.spark.faults import plain
from stompbox.spark.offsets import OffsetRange
from stompbox.spark.options import SourceOptions, source_options
from stompbox.spark.reading import View, batches
from stompbox.spark.source import RefusedStreamReader, StompStreamReader

FORMAT: Final = "stomp-ranges"


class RangeSource(StompSource):
    """The options of `stomp`; those of columns are for whoever reads the ranges."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return "address STRING, start BIGINT, stop BIGINT, incarnation STRING"

    @plain
    def streamReader(self, schema: StructType) -> StompStreamReader | RefusedStreamReader:
        try:
            return RangeReader(source_options(self._given, streaming=True), View(()))
        except StompboxError as fault:
            return RefusedStreamReader(fault)


class RangeReader(StompStreamReader):
    def read(self, partition: InputPartition) -> Iterator[Any]:
        for each in partition.value or ():
            yield each.address, each.start, each.stop, each.incarnation


@plain
def read_ranges(options: SourceOptions, view: View, schema: Any, rows: Iterable[Any]) -> Iterator[Any]:
    """One task: the messages of its ranges, which come as RecordBatches, with the columns of this schema (Arrow's)."""
    for batch in rows:
        ranges = [OffsetRange(**each) for each in batch.to_pylist()]
        yield from (found.cast(schema) for found in batches(options, ranges, view))


def ranges_of(rows: Iterable[Any]) -> list[OffsetRange]:
    """The ranges of one task, of its rows."""
    return [OffsetRange(row.address, row.start, row.stop, row.incarnation) for row in rows]
