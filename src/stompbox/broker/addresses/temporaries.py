"""Temporary destinations: queues and topics of one connection, for the answers to what it asks, gone when it ends.

    /temp-queue/x               the owner's own name for it
    /temp-queue/<token>-<n>     how others see it in `reply-to`, and the owner may call it so, too

Only a SUBSCRIBE or a `reply-to` of its owner makes one, only its owner consumes; a SEND may come from anybody who knows the name,
which cannot be guessed. In the engine it is an address `temp-queue.<token>-<n>` that no wildcard reaches and no disk sees.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from stompbox.broker.addresses.destinations import Destination
from stompbox.broker.queues.queue import Kind
from stompbox.config.spaces import local, space_of
from stompbox.errors import Refused
from stompbox.message import ANYCAST, MULTICAST

if TYPE_CHECKING:
    from stompbox.broker.addresses.address import Address
    from stompbox.broker.engine import Engine

_FIRST_WORD: Final = MappingProxyType({ANYCAST: "temp-queue.", MULTICAST: "temp-topic."})
_SHOWN: Final = MappingProxyType({ANYCAST: "/temp-queue/", MULTICAST: "/temp-topic/"})
_SHOWN_BY_OPENMQ: Final = MappingProxyType(
    {ANYCAST: "/temp-queue/temporary_destination://queue/", MULTICAST: "/temp-topic/temporary_destination://topic/"}
)


class Temporaries:
    """Of one connection. `owner` is its session, `token` a word that is nobody else's, `most` how many it may have."""

    __slots__ = ("_by_name", "_last", "engine", "most", "owner", "space", "token")

    def __init__(self, engine: Engine, owner: int, token: str, most: int) -> None:
        self.engine = engine
        self.owner = owner
        self.token = token
        self.most = most
        self.space = ""  # of the connection's virtual host
        self._by_name: dict[tuple[int, str], Address] = {}
        self._last = 0

    def __len__(self) -> int:
        return len(self._by_name)

    def name_of(self, routing: int) -> str:
        """How the address of the next one begins: what rights are asked for."""
        return f"{self.space}{_FIRST_WORD[routing]}{self.token}"

    def own(self, destination: Destination) -> Address | None:
        """The connection's own one of this name, the short one or the long."""
        found = self._by_name.get((destination.routing, destination.address))
        if found is not None:
            return found
        other = find(self.engine, destination)
        return other if other is not None and other.owner == self.owner else None

    def make(self, destination: Destination) -> Address:
        """The connection's own one of this name, made when it is not there yet. Raises Refused for another's."""
        found = self.own(destination)
        if found is not None:
            return found
        if find(self.engine, destination) is not None:
            raise Refused("temporary-not-owned", f"only the connection that made {destination.text[:200]!r} may consume from it")
        if len(self._by_name) >= self.most:
            raise Refused("too-many-temporaries", f"a connection has no more than {self.most} temporary destinations")
        address = self._create(destination.routing)
        self._by_name[destination.routing, destination.address] = address
        return address

    def _create(self, routing: int) -> Address:
        name = ""
        while not name or name in self.engine.addresses:
            self._last += 1
            name = f"{self.name_of(routing)}-{self._last}"
        address = self.engine.create_address(name, owner=self.owner)
        address.kinds = routing
        if routing == ANYCAST:
            self.engine.new_queue(address, name, Kind.ANYCAST, is_durable=False)
        return address

    def closing(self) -> Iterator[None]:
        """The connection ends: so do they, with what is in them, one in each step."""
        while self._by_name:
            self.engine.drop_address(self._by_name.popitem()[1])
            yield

    def __repr__(self) -> str:
        return f"<Temporaries of {self.owner}: {len(self._by_name)}>"


def find(engine: Engine, destination: Destination) -> Address | None:
    """The temporary address that others mean by this name."""
    name = destination.address
    found = engine.addresses.get(f"{space_of(name)}{_FIRST_WORD[destination.routing]}{local(name)}")
    return found if found is not None and found.owner else None


def shown(address: Address, *, as_openmq: bool = False) -> str:
    """How others than its owner see it."""
    name = local(address.name)
    routing = ANYCAST if name.startswith(_FIRST_WORD[ANYCAST]) else MULTICAST
    prefix = (_SHOWN_BY_OPENMQ if as_openmq else _SHOWN)[routing]
    return prefix + name.removeprefix(_FIRST_WORD[routing])
