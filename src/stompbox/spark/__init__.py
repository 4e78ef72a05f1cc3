"""The Spark data source `stomp`: messages as rows, rows as messages.

What users import is here; it is loaded when it is first asked for, as it needs pyspark.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

_PUBLIC: Final = {"ProgressListener": "listener", "QueryProgress": "listener", "observed": "listener"}

__all__ = ["ProgressListener", "QueryProgress", "observed"]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{_PUBLIC[name]}"), name)
    except ImportError as fault:
        raise ImportError(f"{fault}: pip install 'stompbox[spark]'", name=fault.name) from None
