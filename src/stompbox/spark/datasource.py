"""The data source `stomp` as Spark finds it: what it is called, its schema, and which reader or writer a query gets.

Spark looks for sources when a session first needs one, so what a query alone needs (numpy, pyarrow) is imported by the methods.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from stompbox.errors import StompboxError, UsageError
from stompbox.spark.ddl import TYPES, check_columns
from stompbox.spark.faults import plain
from stompbox.spark.options import Given, check_reading, sink_options, source_options
from stompbox.spark.versions import STREAMING_READS, STREAMING_WRITES, require, version

if TYPE_CHECKING:
    from stompbox.spark.sink import BatchWriter, StreamWriter
    from stompbox.spark.source import RefusedStreamReader, StompReader, StompStreamReader

FORMAT: Final = "stomp"
NEEDED: Final = ("numpy", "pyarrow")  # by any query


@contextmanager
def _installed() -> Iterator[None]:
    """Raises UsageError naming the package that is missing or too old: nobody reads the log of the process that looks for sources."""
    try:
        yield
    except ImportError as fault:
        raise _missing(str(fault)) from None


def _missing(what: str) -> UsageError:
    need = (
        "pip install 'stompbox[spark]', or where there is a Spark already pip install 'pyspark-stomp[arrow]'"
    )
    text = f"{what}; the data source 'stomp' needs {need} (this is pyspark {version})"
    return UsageError("missing-package", text)


def _require_packages() -> None:
    """Raises UsageError naming the package that is not there. Spark's own workers, which import them to plan a read, only say that they
    have crashed. Nothing is imported here."""
    for name in NEEDED:
        if find_spec(name) is None:
            raise _missing(f"No module named {name!r}")


class StompSource(DataSource):  # type: ignore[misc]
    """The data source behind `spark.read.format("stomp")` and its three sisters. Options: stompbox.spark.options.OPTIONS."""

    @plain
    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        _require_packages()
        self._given: Final = Given(options)

    @classmethod
    def name(cls) -> str:
        return FORMAT

    @plain
    def schema(self) -> str:
        """Asked for by load(): what is wrong for any read is refused there, before a query is started."""
        given = check_columns(check_reading(self._given).text("schema"))
        left_out = () if self._given.boolean("includeHeaders") else ("headers",)
        own = ", ".join(f"{name} {kind}" for name, kind in TYPES.items() if name not in left_out)
        return f"{own}, {given}" if given else own

    @plain
    def reader(self, schema: StructType) -> StompReader:
        with _installed():
            from stompbox.spark.source import StompReader, view_of
        options = source_options(self._given, streaming=False)
        return StompReader(options, view_of(schema, options))

    @plain
    def streamReader(self, schema: StructType) -> StompStreamReader | RefusedStreamReader:
        with _installed():
            from stompbox.spark.source import RefusedStreamReader, StompStreamReader, view_of
        try:
            require(STREAMING_READS, "a streaming read of format stomp")
            options = source_options(self._given, streaming=True)
            return StompStreamReader(options, view_of(schema, options))
        except StompboxError as fault:
            return RefusedStreamReader(fault)

    @plain
    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:  # Spark's signature
        with _installed():
            from stompbox.spark.sink import BatchWriter
        if overwrite:
            raise UsageError(
                "bad-mode", "mode overwrite is not possible: messages are only added; use mode append"
            )
        return BatchWriter(sink_options(self._given, streaming=False), _types(schema))

    @plain
    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # Spark's signature
        require(STREAMING_WRITES, "a streaming write of format stomp")
        with _installed():
            from stompbox.spark.sink import StreamWriter
        return StreamWriter(sink_options(self._given, streaming=True), _types(schema))


def _types(schema: StructType) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in schema.fields}
