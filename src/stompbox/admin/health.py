"""Is the broker there, and can it be used? What a supervisor asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from msgspec import Struct

if TYPE_CHECKING:
    from stompbox.server.broker import Broker
    from stompbox.server.cluster.node import Node


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
    away = disk.outage or disk.doubt
    if away is not None:
        found.append(Reason(away.code, away.text))
    if disk.shortage:
        found.append(Reason("disk-full", disk.shortage))
    return found


def of_role(broker: Broker, role: str) -> list[Reason]:
    """What keeps the broker, or the node that it is the view of, from serving who connects; with the role `leader`: here."""
    if not broker.is_view:
        return reasons(broker)
    node = cast("Node", broker.cluster)
    found = of_node(node)
    if role == "leader":
        return [Reason("not-the-leader", f"node {node.leader[0]!r} leads"), *found]
    return found


def of_node(node: Node) -> list[Reason]:
    """What keeps a node that follows from passing clients on; empty: whoever connects here is served."""
    member = node.member()
    if node.passing is not None:
        return []
    if member.trouble:
        return [Reason(member.trouble, "what the log says cannot be read or stored here")]
    return [Reason("no-leader", f"node {node.name!r} has no link to a node that leads")]


def notes(broker: Broker) -> list[Reason]:
    """What keeps it from nothing, and a supervisor may want to wait for: much stored data is verified beside the work."""
    unverified = broker.committer.store.unverified
    return [Reason("data-unverified", unverified)] if unverified else []
