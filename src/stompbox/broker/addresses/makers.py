"""Who has made the addresses and queues that frames make: how many of them each user has, and how many it may have at once.

An address takes memory and a line in the catalogue for as long as it is there, which may be for ever, and each wildcard subscription has
a queue of its own for it. So a user may have `maxAddressesPerUser` addresses and `maxQueuesPerUser` queues (of the listener that it asks
by) that its frames have made, and its reader groups `maxPositionsPerUser` positions. Those without a name count as one user. It counts

    an address          that a SEND, a SUBSCRIBE or a request made because it was not there
    a queue             the same: anycast, or the one that `address::queue` names
    a durable subscription, and a named reader, with each of their queues
    a reader group      as a queue
    a position          of a group, on each address where it has one, and for each destination that it names

and each counts until it goes, by itself or by an operator; the catalogue says whose it is, so that it counts after a restart. What the
configuration, an operator or the broker itself makes (dead letters, diverts) is nobody's, and so are the queues that a durable wildcard
has for the addresses of others, and the positions that a group gets on addresses that others make later. What belongs to a connection
and goes with it has limits of its own (memory.py, destinations.py).

Whoever obeys a frame says who asks (`Maker`), wherever it makes something; what is part of something larger, and cannot be refused any
more, says it too, with a maker that has no limit (`Maker.counted`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from stompbox.broker.kinds import Kind
from stompbox.errors import TooManyMade
from stompbox.message import ANYCAST

if TYPE_CHECKING:
    from stompbox.broker.queues.queue import Queue
    from stompbox.message import Run

NO_LIMIT: Final = -1


class Made(Protocol):
    """An address, as far as it matters who has made it."""

    @property
    def name(self) -> str: ...
    @property
    def maker(self) -> str | None: ...
    @property
    def owner(self) -> int: ...
    @property
    def anycast(self) -> Container[str]: ...
    @property
    def named(self) -> Container[str]: ...
    def count_for(self, user: str | None, /) -> None: ...


class Engine(Protocol):
    """What counting the makers of addresses and queues asks of the engine."""

    @property
    def addresses(self) -> Mapping[str, Made]: ...
    @property
    def makers(self) -> Makers: ...


class Durable(Protocol):
    """What is asked of a durable subscription here."""

    @property
    def maker(self) -> str | None: ...
    @property
    def counts(self) -> bool: ...

    def count(self, *, is_there: bool) -> None: ...


@dataclass(frozen=True, slots=True)
class Maker:
    """A user that asks, and how many addresses, queues and positions of reader groups it may have; -1: any number."""

    user: str
    most_addresses: int = NO_LIMIT
    most_queues: int = NO_LIMIT
    most_positions: int = NO_LIMIT

    @property
    def counted(self) -> Maker:
        """The maker where it is too late to refuse: what is made counts, and the next frame that makes something meets the limit."""
        return Maker(self.user)


class Makers:
    """Addresses, queues and positions of reader groups that are there, by the name of the user who has made them."""

    __slots__ = ("addresses", "groups", "positions", "queues")

    def __init__(self) -> None:
        self.addresses: Counter[str] = Counter()
        self.queues: Counter[str] = Counter()
        self.positions: Counter[str] = Counter()
        # reader groups: who has made each, and how many destinations it names
        self.groups: dict[str, tuple[str, int]] = {}

    def require(
        self, maker: Maker | None, *, addresses: int = 0, queues: int = 0, positions: int = 0
    ) -> None:
        """Raises Refused where this user may not make so many more. Who has too many queues or positions already makes no address
        either: its durable wildcards and its groups would have one more for each."""
        if maker is None:
            return
        user, whose = maker.user, f"user {maker.user!r}" if maker.user else "clients without a login"
        there = self.addresses[user]
        if addresses and 0 <= maker.most_addresses < there + addresses:
            text = f"{whose} made {there} addresses that are still there; the limit is {maker.most_addresses} (maxAddressesPerUser)"
            raise TooManyMade("too-many-addresses", text)
        there = self.queues[user]
        if (addresses or queues) and 0 <= maker.most_queues < there + queues:
            text = f"{whose} made {there} queues that are still there; the limit is {maker.most_queues} (maxQueuesPerUser)"
            raise TooManyMade("too-many-queues", text)
        there = self.positions[user]
        if (addresses or positions) and 0 <= maker.most_positions < there + positions:
            text = f"reader groups of {whose} have {there} positions; the limit is {maker.most_positions} (maxPositionsPerUser)"
            raise TooManyMade("too-many-positions", text)

    @property
    def most(self) -> dict[str, int]:
        """What the user has who has most, by kind."""
        counts = {"addresses": self.addresses, "queues": self.queues, "positions": self.positions}
        return {kind: max(count.values(), default=0) for kind, count in counts.items()}

    def made_address(self, address: Made, maker: Maker | None) -> None:
        """The address counts for this user from now on; None: for nobody any more."""
        address.count_for(_moved(self.addresses, address.maker, maker))

    def made_queue(self, queue: Queue, maker: Maker | None) -> None:
        queue.count_for(
            _moved(self.positions if queue.kind is Kind.GROUP else self.queues, queue.maker, maker)
        )

    def made_group(self, name: str, maker: Maker | None, count: int) -> None:
        """A reader group names so many destinations from now on, none when it is gone; it counts for who has made it first."""
        user, before = self.groups.pop(name, ("" if maker is None else maker.user, 0))
        _add(self.positions, user, -before)
        _add(self.queues, user, -bool(before))
        if count and (before or maker is not None):
            self.groups[name] = user, count
            _add(self.positions, user, count)
            _add(self.queues, user, 1)

    def of_group(self, name: str, address: Made) -> Maker | None:
        """For whom the position of a group counts on an address that is made after it: who has made both."""
        user, _ = self.groups.get(name, (None, 0))
        return Maker(user) if user is not None and user == address.maker else None

    def made_durable(self, durable: Durable, *, is_there: bool) -> None:
        """A durable subscription counts as long as it is there, whatever queues it has."""
        if durable.maker is not None and durable.counts is not is_there:
            _add(self.queues, durable.maker, 1 if is_there else -1)
        durable.count(is_there=is_there)

    def __repr__(self) -> str:
        return f"<Makers addresses={self.addresses.total()} queues={self.queues.total()} positions={self.positions.total()}>"


def entry(user: str | None) -> dict[str, object]:
    """What the catalogue says of who has made something."""
    return {} if user is None else {"maker": user}


def recalled(known: Mapping[str, Any]) -> Maker | None:
    """Who has made what the catalogue has an entry of; older brokers did not say."""
    return Maker(known["maker"]) if "maker" in known else None


def _moved(counts: Counter[str], before: str | None, maker: Maker | None) -> str | None:
    if before is not None:
        _add(counts, before, -1)
    if maker is None:
        return None
    _add(counts, maker.user, 1)
    return maker.user


def _add(counts: Counter[str], user: str, change: int) -> None:
    counts[user] += change
    if not counts[user]:
        del counts[user]


Wanted = tuple[str, str, int]
"""Where something is to go: an address, the one queue of it that is named (or nothing), the routing."""


def require_all(engine: Engine, maker: Maker | None, wanted: Iterable[Wanted]) -> None:
    """Raises Refused where what is missing of all these is more than the user may make. Nothing is made; so what names several is refused
    as a whole."""
    addresses: set[str] = set()
    queues: set[tuple[str, str]] = set()
    for name, queue, routing in wanted:
        address = engine.addresses.get(name)
        if address is None:
            addresses.add(name)
        if queue:
            if address is None or queue not in (address.anycast if routing & ANYCAST else address.named):
                queues.add((name, queue))
        elif routing & ANYCAST and (address is None or not address.anycast):
            queues.add((name, name))
    if addresses or queues:
        engine.makers.require(maker, addresses=len(addresses), queues=len(queues))


def require_sends(engine: Engine, maker: Maker | None, sends: Iterable[tuple[Made, Run]]) -> None:
    """Refuses as `require_all` does, for messages whose addresses are known, and may have gone since; temporary ones do not come again."""
    require_all(
        engine, maker, [(address.name, run.queue, run.routing) for address, run in sends if not address.owner]
    )
