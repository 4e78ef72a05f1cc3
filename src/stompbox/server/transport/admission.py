"""Who is let in at a listener, counted from the moment in which a socket is accepted until it is told to go.

| limit                       | counts                                         | beyond it                                               |
|-----------------------------|------------------------------------------------|---------------------------------------------------------|
| `maxConnectionsBeforeLogin` | sockets that have not logged in                | the one that has waited for the longest time is closed  |
| `maxConnectionsPerAddress`  | sockets of one client address, logged in or not| the newcomer is refused                                 |
| `maxConnections`            | connections that are logged in                 | CONNECT is refused                                      |
| LEAVING                     | sockets that were refused, or ended, and linger| the one that has lingered for the longest time is cut   |
| files (descriptors.py)      | sockets of the process, of whatever listener   | as with `maxConnectionsBeforeLogin`                     |

So strangers never take the places of those who log in, nor can they keep others from logging in: each newcomer takes the place of the
oldest of them. Who was refused gives its place back at once.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from sys import intern
from typing import TYPE_CHECKING, Final, Protocol

from stompbox.errors import Refused
from stompbox.server.transport import descriptors

if TYPE_CHECKING:
    from stompbox.config import Listener, ListenerOptions
    from stompbox.errors import StompboxError

LEAVING: Final = 1000  # sockets that linger; a second of it is a courtesy
# connections, of an address that is not this machine's, where nothing is configured
PER_ADDRESS: Final = 1000
_NETWORK: Final = 64  # bits of an IPv6 address that one customer has; the others are his to choose


class Visitor(Protocol):
    """A socket that a listener has accepted. `place`: the process whose file it takes, this one or a front. `network`: the address by
    which it is counted; none: it is not."""

    network: str

    @property
    def place(self) -> object: ...
    def dismiss(self, error: StompboxError) -> None:
        """Closes, and says why where it can."""

    def abort(self) -> None: ...


class Admission:
    """What is counted of the sockets of one listener."""

    def __init__(self) -> None:
        self.most_sockets = descriptors.most_sockets()
        self.strangers: dict[Visitor, None] = {}  # the oldest first
        self.entered: dict[Visitor, None] = {}
        self.leaving: dict[Visitor, None] = {}
        self.of_address: Counter[str] = Counter()

    def arrive(self, visitor: Visitor, options: ListenerOptions, *, is_crowded: bool) -> None:
        """Counts a socket that was accepted. `is_crowded`: its process has more of them than the system lets it have."""
        self.strangers[visitor] = None
        if is_crowded:
            oldest = next(one for one in self.strangers if one.place is visitor.place)
            self.leave(oldest)
            oldest.dismiss(no_files())
            return
        if 0 <= options.max_connections_before_login < len(self.strangers):
            oldest = next(iter(self.strangers))
            self.leave(oldest)
            text = f"the oldest of more than {options.max_connections_before_login} connections without a login (maxConnectionsBeforeLogin)"
            oldest.dismiss(Refused("too-many-connections", text, closes=True))

    def locate(self, visitor: Visitor, peer: str, options: ListenerOptions) -> None:
        """Counts a socket by the address that it comes from. Raises Refused where that address has enough of them."""
        address, is_here = _network_of(peer)
        most = options.max_connections_per_address
        if most is None:
            most = -1 if is_here else PER_ADDRESS
        if 0 <= most <= self.of_address[address]:
            text = f"{address} has {self.of_address[address]} connections; the limit is {most} (maxConnectionsPerAddress)"
            raise Refused("too-many-connections", text, closes=True)
        visitor.network = address
        self.of_address[address] += 1

    def enter(self, visitor: Visitor, options: ListenerOptions) -> None:
        """Counts a socket whose client logs in. Raises Refused where the listener has enough of them."""
        if 0 <= options.max_connections <= len(self.entered):
            text = f"this listener takes no more than {options.max_connections} connections (maxConnections)"
            raise Refused("too-many-connections", text, closes=True)
        self.strangers.pop(visitor, None)
        self.entered[visitor] = None

    def leave(self, visitor: Visitor) -> None:
        """Counts off a socket that is to go: it gives back what it took, however long it lingers."""
        self.strangers.pop(visitor, None)
        self.entered.pop(visitor, None)
        address, visitor.network = visitor.network, ""
        if address:
            self.of_address[address] -= 1
            if not self.of_address[address]:
                del self.of_address[address]

    def linger(self, visitor: Visitor) -> None:
        """Gives a socket that has been told all the time to read it."""
        self.leave(visitor)
        self.leaving[visitor] = None
        if len(self.leaving) > LEAVING:
            oldest = next(iter(self.leaving))
            del self.leaving[oldest]
            oldest.abort()

    def gone(self, visitor: Visitor) -> None:
        self.leave(visitor)
        self.leaving.pop(visitor, None)

    def __repr__(self) -> str:
        return f"<Admission strangers={len(self.strangers)} entered={len(self.entered)} leaving={len(self.leaving)}>"


class Listening(Protocol):
    """A listener of this process, or of another node, as far as who comes there is received."""

    listener: Listener

    @property
    def admission(self) -> Admission: ...


def no_files() -> Refused:
    """What somebody is told for whom the process has no file."""
    text = f"the system lets this process open {descriptors.limit()} files, and each connection is one (ulimit -n)"
    return Refused("too-many-connections", text, closes=True)


@lru_cache(1024)
def _network_of(peer: str) -> tuple[str, bool]:
    """What counts as one client address, and whether it is this machine."""
    try:
        address = ip_address(peer)
    except ValueError:
        return peer, True  # a socket of this machine that has none
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is None:
            network = IPv6Address(int(address) >> _NETWORK << _NETWORK)
            return f"{network}/{_NETWORK}", address.is_loopback
        address = address.ipv4_mapped
    return intern(str(address)), address.is_loopback
