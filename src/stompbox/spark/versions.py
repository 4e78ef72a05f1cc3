"""What the Spark that is there can do: the only place that asks for its version.

    4.0   batch reads and batch writes
    4.1   streams to us: its Python sinks take Arrow (DataSourceStreamArrowWriter)
    4.2   streams from us: a reader says how much of what waits it takes (admission control); pipelines

Without admission control a micro-batch is whatever there is, and a reader is not told where it begins: no limit could be kept.
"""

from __future__ import annotations

from inspect import signature
from typing import Any, Final

from pyspark import __version__

from stompbox.errors import UsageError

Version = tuple[int, int]

version: str = __version__
STREAMING_WRITES: Final[Version] = (4, 1)
STREAMING_READS: Final[Version] = (4, 2)


def installed(text: str = version) -> Version:
    """The version as numbers: 4.2.0.dev1 is (4, 2)."""
    major, minor, *_ = text.split(".")
    return int(major), int(minor)


def require(least: Version, what: str) -> None:
    """Raises UsageError `old-spark` naming what is asked of a Spark that cannot do it."""
    if installed(version) < least:
        raise UsageError(
            "old-spark", f"{what} needs Spark {least[0]}.{least[1]} or newer, and this is Spark {version}"
        )


def arrow_schema(schema: Any) -> Any:
    """The Arrow schema of Spark's, with times in UTC."""
    from pyspark.sql.pandas.types import to_arrow_schema

    if "timezone" in signature(to_arrow_schema).parameters:
        return to_arrow_schema(schema, timezone="UTC")
    return to_arrow_schema(schema)  # before 4.2, where UTC goes without saying
