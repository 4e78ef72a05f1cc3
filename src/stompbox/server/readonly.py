"""What a listener with `readOnly` takes: all of it stands here, for whoever leads and for nodes that follow.

    SEND           to stompbox.requests, the requests that read
    SUBSCRIBE      a browser, or a reader of a log without a name, of what is there; ack:auto
    UNSUBSCRIBE    of these

CONNECT and DISCONNECT are of the connection itself. All else changes something, or takes from a queue, and is refused with `read-only`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from stompbox.errors import Refused

# they change nothing, and may be asked again
REQUESTS: Final = frozenset(("describe", "fetch", "offset-at", "groups", "schedules"))
COMMANDS: Final = frozenset(("CONNECT", "STOMP", "DISCONNECT", "SEND", "SUBSCRIBE", "UNSUBSCRIBE"))
ACK: Final = "auto"


def not_taken(what: str) -> Refused:
    """The refusal of what changes something, or takes from a queue."""
    allowed = f"the requests {', '.join(sorted(REQUESTS))}, browsers and readers of logs without a name, with ack:{ACK}"
    return Refused("read-only", f"{what}: this listener has `readOnly`; what it takes are {allowed}")


def require_command(command: str) -> None:
    if command not in COMMANDS:
        raise not_taken(command)


def require_request(name: str, headers: Mapping[str, str]) -> None:
    if name not in REQUESTS:
        raise not_taken(f"request {name[:80]}")
    if headers.get("create") == "true":
        raise not_taken(f"request {name} with create:true")


def require_subscription(
    headers: Mapping[str, str], *, is_browser: bool, is_reader: bool, is_named: bool, has_arguments: bool
) -> None:
    """Raises Refused for a SUBSCRIBE that does more than read.

    `is_reader`      of logs alone
    `is_named`       the broker is to keep its position, or a backlog
    `has_arguments`  for queues to be made
    """
    if not (is_browser or is_reader):
        raise not_taken(
            "SUBSCRIBE that is neither a browser (browser:true) nor reads a log (x-stream-offset)"
        )
    if is_named and not is_browser:
        raise not_taken("SUBSCRIBE with a durable name")
    if has_arguments:
        raise not_taken("SUBSCRIBE with arguments for a queue")
    given = headers.get("ack", ACK)
    if given != ACK:
        raise not_taken(f"SUBSCRIBE with ack:{given[:80]}")
    if "transaction" in headers:
        raise not_taken("SUBSCRIBE in a transaction")
