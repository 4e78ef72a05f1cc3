"""Where Spark finds the data source `stomp`: it imports every top-level module named pyspark_* and asks for `DefaultSource`.

A module that fails there takes all other sources with it, so importing this one imports nothing, not even pyspark. Without a pyspark that
knows data sources `DefaultSource` is as if it were not there, with the reason in the log, and who imports another name is told it with the
ImportError. Whatever else is missing is told by the query that needs it.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import Any

_PUBLIC = {
    "DefaultSource": ("datasource", "StompSource"),
    "StompSource": ("datasource", "StompSource"),
    "ProgressListener": ("listener", "ProgressListener"),
    "observed": ("listener", "observed"),
}

__all__ = ["DefaultSource", "ProgressListener", "StompSource", "observed"]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, wanted = _PUBLIC[name]
    try:
        return getattr(import_module(f"stompbox.spark.{module}"), wanted)
    except ImportError as fault:
        reason = (
            f"the Spark data source 'stomp' is not available: {fault}; it needs pyspark 4.0 or newer, {_found()}: "
            "pip install 'stompbox[spark]' brings one"
        )
        if name != "DefaultSource":
            raise ImportError(reason, name=fault.name) from None
        # Spark asks with hasattr(), which lets no other exception pass
        logging.getLogger(__name__).warning(reason)
        raise AttributeError(reason) from fault


def _found() -> str:
    try:
        import pyspark
    except ImportError:
        return "and there is none"
    return f"and this is {getattr(pyspark, '__version__', 'none that says its version')}"


def __dir__() -> list[str]:
    return sorted((*globals(), *__all__))
