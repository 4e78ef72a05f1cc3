"""Where Spark finds the data source `stomp`: it imports every top-level module named pyspark_* and asks for `DefaultSource`.

A module that fails there takes all other sources with it, so importing this one imports nothing, not even pyspark. Without a pyspark that
knows data sources it is as if it were not there, with the reason in the log; whatever else is missing is told by the query that needs it.
"""

from __future__ import annotations

import logging
from typing import Any

__all__ = ["DefaultSource", "StompSource"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from stompbox.spark.datasource import StompSource
    except ImportError as fault:
        reason = (
            f"the Spark data source 'stomp' is not available: {fault}; it needs pip install 'stompbox[spark]' with pyspark 4.2 or newer"
        )
        logging.getLogger(__name__).warning(reason)
        raise AttributeError(reason) from fault
    return StompSource


def __dir__() -> list[str]:
    return sorted((*globals(), *__all__))
