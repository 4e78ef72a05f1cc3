"""Is the broker there, and can it be used? What a supervisor asks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from stompbox.server.broker import Broker


class Reason(Struct, frozen=True):
    """Why a broker is not ready, or what else is to be known of one that is: a stable code and a text."""

    code: str
    message: str


def reasons(broker: Broker) -> list[Reason]:
    """What keeps the broker from taking messages now; empty: it is ready."""
    found = []
    disk = broker.disk
    if broker.is_draining or broker.is_stopping:
        found.append(Reason("stopping", "the broker stops"))
    if disk.failure is not None:
        found.append(Reason(disk.failure.code, disk.failure.message))
    if disk.shortage:
        found.append(Reason("disk-full", disk.shortage))
    return found


def notes(broker: Broker) -> list[Reason]:
    """What keeps it from nothing, and a supervisor may want to wait for: much stored data is verified beside the work."""
    unverified = broker.committer.store.unverified
    return [Reason("data-unverified", unverified)] if unverified else []
