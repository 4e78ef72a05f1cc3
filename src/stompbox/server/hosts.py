"""Virtual hosts: which `host` of a CONNECT is accepted, and whose users.

Each host has addresses of its own, with its own settings and permissions where the configuration gives it some; config/spaces.py
says how their names are kept apart. The default host has the addresses that a broker without hosts would have.
"""

from __future__ import annotations

from collections.abc import Sequence

from stompbox.config import VirtualHostTable
from stompbox.errors import IllegalFrame, Refused
from stompbox.security import User


class Hosts:
    """The virtual hosts of one broker. Where there are none, `host` means nothing."""

    def __init__(self, tables: Sequence[VirtualHostTable]) -> None:
        self.by_name = {table.name: table for table in tables}
        self.default = next((table for table in tables if table.default), None)

    def find(self, name: str | None) -> VirtualHostTable | None:
        """The host that a CONNECT names; None where there are none. Raises IllegalFrame for one that is not there."""
        if not self.by_name:
            return None
        found = self.by_name.get(name or "") or self.default
        if found is None:
            said = "CONNECT names no host" if name is None else f"host is {name[:80]!r}, which is not here"
            raise IllegalFrame(
                "unknown-host", f"{said}; CONNECT must name a virtual host of this broker", closes=True
            )
        return found

    def __repr__(self) -> str:
        return f"<Hosts {', '.join(self.by_name) or 'none'}>"


def admit(host: VirtualHostTable | None, user: User) -> str:
    """The space of the host's names. Raises Refused for a user whom the host does not let in."""
    if host is not None and host.users is not None and user.name not in host.users:
        raise Refused("host-not-permitted", f"user {user.name!r} may not use virtual host {host.name!r}")
    return "" if host is None else host.space
