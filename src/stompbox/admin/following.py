"""What the admin interface of a node that follows answers: what the node can say truly, and of the rest who leads and where.

| of the node itself                                  | answered                                                              |
|-----------------------------------------------------|-----------------------------------------------------------------------|
| health, metrics, listeners, configuration, users    | as by any broker                                                      |
| the cluster                                         | as the leader told it last, with its own row as it is now             |
| addresses and reader groups                         | as far as it has applied the log; headers of the answer say how far   |
| all else, and whatever changes something            | 503 `not-the-leader`: who leads, and where                            |

The same table of endpoints is the leader's; this file decides which of them a follower answers.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Final, cast

from msgspec import Struct

from stompbox.admin.endpoints import API, Endpoint
from stompbox.errors import Refused

if TYPE_CHECKING:
    from stompbox.server.broker import Broker
    from stompbox.server.cluster.node import Node

_OF_LOGS: Final = frozenset((f"{API}/addresses", f"{API}/groups"))
_ITS_OWN: Final = frozenset(
    (
        "/healthz", "/readyz", "/metrics", API,
        *[
            f"{API}/{path}"
            for path in (
                "openapi.json", "docs", "status", "cluster", "session", "session/start", "session/end", "listeners", "users",
                "permissions", "settings", "configuration", "connections", "closings", "websockets", "history",
            )
        ],
    )
)  # fmt: skip
FOLLOWED: Final = _ITS_OWN | _OF_LOGS


class NodeView(Struct, frozen=True):
    """Which node of a cluster answers. `leader`: who leads, as far as it knows, and `leader_admin`: the URL of its admin interface; `lag`:
    records that the log is known to have beyond what this node has, `stale_ms`: all that was confirmed before is here, null: not known."""

    cluster: str
    node: str
    role: str
    leader: str
    leader_admin: str
    lag: int = 0
    stale_ms: int | None = None


def node_view(broker: Broker) -> NodeView | None:
    """Which node of its cluster the broker is; None: it is alone."""
    if broker.cluster is None:
        return None
    node = cast("Node", broker.cluster)
    leader, admin = node.leader
    if not broker.is_view:
        return NodeView(node.table.name, node.name, "leader", node.name, node.admin, stale_ms=0)
    lag = max(0, node.described().position - node.local.position)
    stale = int((monotonic() - node.as_of) * 1000) + 1 if node.as_of else None
    return NodeView(node.table.name, node.name, node.role, leader, admin, lag, stale)


async def attend(broker: Broker, endpoint: Endpoint) -> dict[str, str]:
    """Before a follower answers: the headers that say how old that is. Raises Refused `not-the-leader` where it does not."""
    if not broker.is_view:
        return {}
    if endpoint.path not in FOLLOWED:
        raise elsewhere(cast("Node", broker.cluster))
    if endpoint.path not in _OF_LOGS:
        return {}
    await broker.catch_up()
    return {f"stompbox-{name}": value for name, value in broker.standing().items()}


def elsewhere(node: Node) -> Refused:
    """The answer of a node that follows, where the leader has to be asked."""
    leader, admin = node.leader
    if not leader:
        return Refused(
            "not-the-leader", f"node {node.name!r} follows, and does not know of a node that leads"
        )
    where = f" at {admin}" if admin else ""
    return Refused(
        "not-the-leader", f"node {node.name!r} follows; node {leader!r} leads, and answers this{where}"
    )
