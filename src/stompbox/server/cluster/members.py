"""What nodes know of each other: who is there, how far each has come, and whose configuration is another one.

The leader has the table; each follower tells it of itself once a second, and gets the table back. This file keeps, and asks nobody.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, Final

from msgspec import Struct, to_builtins
from msgspec.json import decode, encode
from msgspec.structs import asdict, astuple, replace

from stompbox.config import Configuration
from stompbox.errors import Refused

PERIOD: Final = 1.0  # seconds between two words of a follower
NEVER: Final = -1.0  # got a table
# keys that may differ from node to node
_OWN: Final = ("data", "listener", "admin", "cluster", "log-level", "log-format", "login-threads")


class Member(Struct, frozen=True):
    """One node, as it says itself."""

    node: str
    role: str = "follower"
    advertise: str = ""
    position: int = 0  # in the log: the last record that is in its store,
    durable: int = 0  # and the last one that a loss of power leaves there
    epoch: int = 0
    connections: int = 0
    program: str = ""
    configuration: str = ""  # a hash
    trouble: str = ""  # why it does not come further
    is_connected: bool = True
    is_other: bool = False  # its configuration is not the leader's
    is_drained: bool = False  # it does not try to lead
    lag: int = 0  # records that the leader had more
    admin: str = ""  # URL of its admin interface, as it knows it


class Table(Struct, frozen=True):
    """The cluster, as its leader knows it."""

    cluster: str
    log: str
    leader: str = ""
    epoch: int = 0
    position: int = 0
    members: tuple[Member, ...] = ()
    takeovers: tuple[Takeover, ...] = ()


class Status(Member, frozen=True):
    """What a follower tells the leader of itself."""

    quiet: float = 0.0  # seconds in which it could hear the log, and heard nothing of a leader
    answers: float = NEVER  # `sent` of the last table that it has got


class Told(Table, frozen=True):
    """What the leader tells a follower."""

    sent: float = 0.0  # seconds, by the leader's clock
    asks: bool = False  # for a Status at once


class Takeover(Struct, frozen=True):
    """Somebody began to lead."""

    node: str
    epoch: int
    position: int
    at: int  # ms since the epoch of time, by the clock of the node that tells it
    why: str = ""  # as the node says that began to lead; empty: it does not say


class Members:
    """The nodes that a leader has heard of."""

    def __init__(self, known: Iterable[Member] = ()) -> None:
        """Begins with those that the leader before has told of, who have not come yet."""
        self.known = {one.node: replace(one, is_connected=False) for one in known}

    def tell(self, member: Member, leader: Member) -> None:
        lag = max(0, leader.position - member.position)
        is_other = member.configuration != leader.configuration
        self.known[member.node] = replace(member, is_connected=True, is_other=is_other, lag=lag)

    def lost(self, node: str) -> None:
        if node in self.known:
            self.known[node] = replace(self.known[node], is_connected=False)

    def remove(self, node: str) -> None:
        """Forgets a node that will not come back. Raises Refused."""
        found = self.get(node)
        if found.is_connected:
            raise Refused("node-in-use", f"node {node!r} is connected; stop it first")
        del self.known[node]

    def get(self, node: str) -> Member:
        """What is known of a node. Raises Refused `no-such-node`."""
        if node not in self.known:
            there = ", ".join(sorted(self.known)) or "none"
            raise Refused("no-such-node", f"the leader knows no other node {node[:80]!r}; there are: {there}")
        return self.known[node]

    def trimmed_to(self, own: int, copies: int) -> int:
        """Before which position the log is needed no more: at least `copies` nodes have it durable, and every one that is connected."""
        durable = sorted([own, *(one.durable for one in self.known.values())], reverse=True)
        if len(durable) < copies:
            return 0
        connected = [one.durable for one in self.known.values() if one.is_connected]
        return min([durable[copies - 1], own, *connected])


def hash_of(configuration: Configuration) -> str:
    """The hash is of what should be the same on all nodes."""
    content: dict[str, Any] = to_builtins(configuration)
    for name in _OWN:
        content.pop(name, None)
    return hashlib.sha256(repr(sorted(content.items())).encode()).hexdigest()[:16]


def packed(told: Struct) -> bytes:
    return encode(told)


def status_in(payload: bytes) -> Status:
    return decode(payload, type=Status)


def told_in(payload: bytes) -> Told:
    return decode(payload, type=Told)


def status_of(member: Member, quiet: float, answers: float) -> Status:
    """The member, with what else its leader wants to know."""
    return Status(**asdict(member), quiet=quiet, answers=answers)


def member_of(status: Status) -> Member:
    """What all nodes are told of it."""
    return Member(*astuple(status)[: len(Member.__struct_fields__)])


def told_of(table: Table, sent: float, *, asks: bool) -> Told:
    """The table, as a follower gets it."""
    return Told(**asdict(table), sent=sent, asks=asks)


def table_of(told: Told) -> Table:
    """The table that a follower was told."""
    return Table(*astuple(told)[: len(Table.__struct_fields__)])
