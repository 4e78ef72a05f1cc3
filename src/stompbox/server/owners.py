"""Whose a durable subscription, a named reader or a reader group is: the user's who made it.

Another user neither reads, moves nor ends it, whatever its client-id says, unless a [[permission]] gives the right `manage` on all that
it reads. What was made while no users were configured, or by a version that did not note it, is nobody's: the first who takes it up and
has the rights for it makes it his own. Without users all clients are one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from stompbox.errors import Refused

if TYPE_CHECKING:
    from stompbox.server.seam import ClientConnection


def owner_of(connection: ClientConnection) -> str:
    """Whose what this connection makes is; empty where nobody is known by name: a login that nobody has looked at says nothing."""
    return connection.user.name if len(connection.broker.users) else ""


def require(connection: ClientConnection, owner: str, what: str, addresses: Iterable[str]) -> None:
    """Raises Refused when `what`, which reads these addresses, is another user's. `owner` empty: nobody's."""
    if not is_own(connection, owner, addresses):
        who = connection.user.name
        raise Refused(
            "not-permitted",
            f"{what} is not user {who!r}'s; whose it is, or who may manage what it reads, may do this",
        )


def is_own(connection: ClientConnection, owner: str, addresses: Iterable[str]) -> bool:
    """Whether the connection's user may do with it what its owner may."""
    broker, user = connection.broker, connection.user
    if not owner or not len(broker.users) or owner == user.name:
        return True
    return all(broker.permissions.is_granted_manage(user, address) for address in addresses)
