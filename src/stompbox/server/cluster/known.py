"""What a node knows of its cluster, and says of itself. The node (node.py) has more to do than to know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stompbox import __version__
from stompbox.server.cluster.members import Member, Table, Takeover, hash_of

if TYPE_CHECKING:
    from stompbox.commitlog.base import CommitLog
    from stompbox.commitlog.replicated import Applier, Local
    from stompbox.config import ClusterTable, Configuration
    from stompbox.server.broker import Broker
    from stompbox.server.cluster.leading import Leadership
    from stompbox.server.cluster.passing import Passing
    from stompbox.server.cluster.view import View
    from stompbox.server.configuring import Transition


class Known:
    """The part of a node that is asked by others."""

    name: str
    role: str
    admin: str
    advertise: str
    table: ClusterTable
    configuration: Configuration
    seen: Table | None
    takeovers: list[Takeover]
    is_drained: bool
    leadership: Leadership | None
    applier: Applier | None
    passing: Passing | None
    log: CommitLog
    local: Local
    view: View
    _seen_at: float

    def answers_at(self, admin: str) -> None:
        """Its admin interface has this URL."""
        self.admin = admin

    @property
    def as_of(self) -> float:
        """By the monotonic clock: all that was confirmed until then is in the store; 0.0: not known."""
        told = self._seen_at if self.seen and self.seen.position <= self.local.position else 0.0
        # a log of whose leader nothing is heard may have more than can be read
        return max(told, min(self.applier.current, self.log.heard()) if self.applier else 0.0)

    @property
    def leader(self) -> tuple[str, str]:
        """Who leads, as far as this node knows, and the URL of its admin interface; empty: nobody is known."""
        found = self.local.leader
        return (found.node, found.admin) if found is not None else ("", "")

    def obey(self, found: Transition | Broker) -> None:
        """The configuration was read again, by this node or by the broker that it was."""
        self.configuration = found.configuration
        self.view.take(found)

    def described(self) -> Table:
        """The cluster, as far as this node knows."""
        if self.leadership is not None:
            return self.leadership.described()
        own = self.member()
        others = self._others_known()
        leader = self.local.leader
        return Table(
            self.table.name, self.log.name, leader.node if leader is not None else "", own.epoch,
            self.seen.position if self.seen is not None else own.position,
            tuple(sorted([own, *others], key=lambda one: one.node)), tuple(self.takeovers),
        )  # fmt: skip

    def _others_known(self) -> list[Member]:
        return [one for one in self.seen.members if one.node != self.name] if self.seen is not None else []

    def member(self) -> Member:
        """This node, as it tells others of itself."""
        applier, local = self.applier, self.local
        trouble = applier.fault or applier.trouble if applier is not None else None
        return Member(
            self.name, self.role, self.advertise, local.position, local.durable, local.epoch,
            len(self.passing.relays) if self.passing is not None else 0, __version__, hash_of(self.configuration),
            trouble.code if trouble is not None else "", is_drained=self.is_drained, admin=self.admin,
        )  # fmt: skip
