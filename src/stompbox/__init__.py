"""Stompbox: a STOMP message broker, client library and Spark data pipeline.

The client library's names are here too (`stompbox.connect`, `stompbox.Message` …), loaded when they are first used: importing
the package costs nothing, and using the client never imports the broker.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # what type checkers take for true, without the import of typing
if TYPE_CHECKING:
    from stompbox import blocking as blocking
    from stompbox.client import (
        TLS,
        BrokerError,
        Client,
        ClientState,
        Message,
        Publisher,
        ReceivedMessage,
        Reconnect,
        Subscription,
        Transaction,
        connect,
    )
    from stompbox.errors import ConnectionLost, Refused, StompboxError, UsageError

__version__ = "0.1.0"

__all__ = [
    "TLS",
    "BrokerError",
    "Client",
    "ClientState",
    "ConnectionLost",
    "Message",
    "Publisher",
    "ReceivedMessage",
    "Reconnect",
    "Refused",
    "StompboxError",
    "Subscription",
    "Transaction",
    "UsageError",
    "__version__",
    "blocking",
    "connect",
]
_ERRORS = frozenset(("ConnectionLost", "Refused", "StompboxError", "UsageError"))


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "blocking":
        return import_module(f"{__name__}.{name}")
    found: object = getattr(
        import_module(f"{__name__}.errors" if name in _ERRORS else f"{__name__}.client"), name
    )
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
