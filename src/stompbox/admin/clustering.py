"""What the leader of a cluster shows of its nodes, and lets an operator do with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, cast

from msgspec import Meta, Struct

from stompbox.admin.apirequest import ApiRequest
from stompbox.admin.endpoints import ON_BROKER, changing, reading
from stompbox.errors import Refused
from stompbox.server.cluster.members import Table

if TYPE_CHECKING:
    from stompbox.server.cluster.node import Node

NodeName = Annotated[str, Meta(description="Name of the node.")]
_NO_CLUSTER: Final = "this broker is alone: its configuration has no [cluster]"


class OfNode(Struct, forbid_unknown_fields=True):
    """An order about a node."""

    node: NodeName


class Promoting(Struct, forbid_unknown_fields=True):
    """Who is to lead."""

    node: Annotated[
        str | None, Meta(description="Name of the node; none: the one that has come furthest.")
    ] = None


class Draining(Struct, forbid_unknown_fields=True):
    """Whether a node may lead."""

    node: NodeName
    is_drained: Annotated[bool, Meta(description="false: it may lead again.")] = True


class Ordered(Struct):
    """The node that it is about."""

    node: str


def _node(asked: ApiRequest) -> Node:
    asked.require()
    if asked.broker.cluster is None:
        raise Refused("no-cluster", _NO_CLUSTER)
    return cast("Node", asked.broker.cluster)


@reading("cluster", Table, ON_BROKER)
async def cluster(asked: ApiRequest) -> object:
    """The nodes of the cluster, how far each has come, and who has led it last."""
    return _node(asked).described()


@changing("cluster/promote", Promoting, Ordered, ON_BROKER)
async def promote(asked: ApiRequest) -> object:
    """Another node leads: commits in flight are finished, and the clients of all nodes connect again."""
    node = _node(asked)
    asked.begin()
    return {"node": node.hand_over(asked.order.node)}


@changing("cluster/drain", Draining, Ordered, ON_BROKER)
async def drain(asked: ApiRequest) -> object:
    """A node does not lead by itself any more, until it is told that it may, or starts again; where it leads, it hands over."""
    node, order = _node(asked), asked.order
    asked.begin()
    node.drain(order.node, is_drained=order.is_drained)
    return {"node": order.node}


@changing("cluster/remove", OfNode, Ordered, ON_BROKER)
async def remove(asked: ApiRequest) -> object:
    """Forgets a node that is not connected: the log is not kept for it any more. One that comes back is there again."""
    node, order = _node(asked), asked.order
    asked.begin()
    node.remove(order.node)
    return {"node": order.node}
