"""The one ledger of memory: what is kept for each connection, each user and all clients together, in octets, by kind.

| kind            | what is counted                                                                                        |
|-----------------|--------------------------------------------------------------------------------------------------------|
| `input`         | frames that are not complete, and those that wait for a login or for room in an address                 |
| `output`        | what the client was told and has not taken                                                              |
| `receipts`      | what it is told when the disk has it (receipts.py)                                                      |
| `transactions`  | open ones: bodies, heads and varying headers of their SENDs, and the messages that their ACKs hold      |
| `subscriptions` | themselves, with their selectors and the queues that they are bound to, and temporary destinations       |
| `requests`      | those that are not answered yet                                                                         |
| `session`       | names that the client gave: login, host, client-id                                                      |
| `unacknowledged`| messages that it has and did not acknowledge (broker/queues/memory.py): they pause delivery, and close nothing  |

What comes and goes with each read, input, output and receipts, counts from 4 KiB on: below, it is part of what a connection costs.
An account is looked at when a read was obeyed, when the socket does not take what is written, and when a commit has answered: then
all that is kept is asked for, and nothing can be forgotten to be given back. Subscriptions alone count as they change, and an account
that they make too large is looked at in the next turn: addresses that others make are bound to the wildcards of who says nothing.
So a connection goes beyond its limit by one read at the most. Beyond `maxConnectionMemory` it gets ERROR `too-much-memory` and is
closed. Beyond `max-client-memory` the largest connection of the user that has most is; so who keeps little is never closed for what
others keep.

Messages that wait in queues are not the client's any more: they have limits of their own (broker/addresses/limits.py and
broker/queues/memory.py).
"""

from __future__ import annotations

from collections import Counter
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from stompbox.errors import Refused
from stompbox.server.pressure import Reason

if TYPE_CHECKING:
    from stompbox.server.seam import ClientConnection, Core

WAITING: Final = 4 << 20  # octets of receipts that wait for the disk; a client with more is read no further
TEMPORARY: Final = 4 << 10  # octets that a temporary destination takes, at a guess
# octets of input, output and receipts together, up to which they are part of a connection's own price
PASSING: Final = 4 << 10


class Use(Enum):
    INPUT = "input"
    OUTPUT = "output"
    RECEIPTS = "receipts"
    TRANSACTIONS = "transactions"
    SUBSCRIPTIONS = "subscriptions"
    REQUESTS = "requests"
    SESSION = "session"


KINDS: Final = tuple(Use)
_SUBSCRIBED: Final = KINDS.index(Use.SUBSCRIPTIONS)
UNACKNOWLEDGED: Final = "unacknowledged"
Sizes = tuple[int, int, int, int, int, int, int]
_NOTHING: Final[Sizes] = (0, 0, 0, 0, 0, 0, 0)


class Account:
    """What is kept for one connection, as it was when it was counted last; its subscriptions, which grow with addresses that others make,
    too, as they change."""

    __slots__ = ("is_stale", "ledger", "most", "passing", "size", "sizes", "user")

    def __init__(self, ledger: Ledger, most: int) -> None:
        self.ledger: Ledger | None = ledger  # None: the connection is gone
        self.most = most  # octets of one connection
        self.sizes = _NOTHING
        self.size = 0
        self.passing = 0  # of that, what comes and goes with each read
        self.user = ""  # to whose account it goes
        self.is_stale = False  # something has come that may be too much

    def subscribe(self, octets: int) -> None:
        """The subscriptions take so many octets more, or less. What is too much for the connection is looked at in the next turn: it may
        say nothing any more."""
        if self.ledger is None:
            return
        self.is_stale = self.is_stale or octets > 0
        self.size += octets
        coming, going, waiting, kept, subscribed, asked, names = self.sizes
        self.sizes = coming, going, waiting, kept, subscribed + octets, asked, names
        self.ledger.subscribe(self, octets)

    def glance(self, connection: ClientConnection) -> None:
        """Looks, where something that counts may have come or gone."""
        is_kept = self.passing or self.is_stale or connection.transactions or connection.upload is not None
        passing = connection.pending.size + connection.decoder.pending + connection.reading.unobeyed
        if is_kept or passing > PASSING:
            self.look(connection)

    def look(self, connection: ClientConnection) -> None:
        """What is kept now; it may be too much."""
        has_grown, self.is_stale = self.is_stale, False
        if connection.is_lost:
            return
        sizes = _sizes_of(connection)
        if sizes == self.sizes and not has_grown:
            return
        ledger = connection.broker.ledger
        before, self.size = self.size, sum(sizes)
        self.passing = self.size - sizes[4] - sizes[6]
        ledger.note(self, sizes)
        beyond = self.size - connection.decoder.pending
        if connection.pending.size <= WAITING // 2:
            connection.broker.pressure.let_go(connection, Reason.RECEIPTS)
        if (self.size <= before and not has_grown) or connection.is_ended:
            return
        if beyond > self.most:
            _close(
                connection,
                f"{self.told} are kept for this connection; the limit is {self.most} (maxConnectionMemory)",
            )
        elif connection.pending.size > WAITING:
            connection.broker.pressure.hold(connection, Reason.RECEIPTS)
        ledger.relieve()

    @property
    def told(self) -> str:
        largest = max(range(len(KINDS)), key=self.sizes.__getitem__)
        return f"{self.size} octets, most of them {KINDS[largest].value},"

    def enter(self, connection: ClientConnection) -> None:
        """Counts the memory of a connection for its user from now on."""
        connection.broker.ledger.move(self, connection.user.name)
        self.look(connection)

    def close(self) -> None:
        """The connection is gone, and all that was kept for it."""
        self.size = self.passing = 0
        if self.ledger is not None:
            self.ledger.note(self, _NOTHING)
            self.ledger = None

    def __repr__(self) -> str:
        return f"<Account {self.size} octets of {self.user!r}>"


def by_kind(connection: ClientConnection) -> dict[str, int]:
    """What is kept for a connection, in octets by kind."""
    found = {kind.value: size for kind, size in zip(KINDS, connection.account.sizes, strict=True)}
    return found | {UNACKNOWLEDGED: connection.allowance.size}


def _close(connection: ClientConnection, text: str) -> None:
    connection.refuse(Refused("too-much-memory", text, closes=True))
    connection.write_out()
    connection.broker.flush_soon()  # what it had goes to others
    if connection.transport.is_clogged:  # it would not read it
        connection.transport.abort()


def _sizes_of(connection: ClientConnection) -> Sizes:
    decoder, upload, holding, outgoing = (
        connection.decoder,
        connection.upload,
        connection.reading.holding,
        connection.outgoing,
    )
    coming = decoder.pending + connection.transport.unread + connection.reading.unobeyed
    if upload is not None:
        coming += upload.size
    if holding is not None:
        coming += holding.size
    going = connection.transport.unsent + (outgoing.size if outgoing is not None else 0)
    open_ones = connection.transactions
    kept = sum([transaction.size for transaction in open_ones.values()]) if open_ones else 0
    if connection.timed_out:
        kept += sum(map(len, connection.timed_out))
    subscribed = connection.allowance.subscribed + TEMPORARY * len(connection.temporaries)
    asked = connection.requests.size if connection.requests is not None else 0
    names = len(connection.client_id) + len(connection.host or "") + len(connection.user.name)
    waiting = connection.pending.size
    if coming + going + waiting <= PASSING:
        return _named(names) if not kept + subscribed + asked else (0, 0, 0, kept, subscribed, asked, names)
    return coming, going, waiting, kept, subscribed, asked, names


@lru_cache(256)
def _named(size: int) -> Sizes:
    """What most connections have, as one object."""
    return 0, 0, 0, 0, 0, 0, size


class Ledger:
    """What one broker keeps for all its clients. `most`: octets that they may have together; -1: any."""

    def __init__(self, broker: Core, most: int) -> None:
        self.broker = broker
        self.most = most
        self.sizes = list(_NOTHING)
        self.size = 0
        self.of_user: Counter[str] = Counter()
        self._grown: set[Account] = set()  # whose subscriptions came to be too much, and who said nothing
        self._is_planned = False

    def note(self, account: Account, sizes: Sizes) -> None:
        """An account has changed: what all have changes with it."""
        change = sum(sizes) - sum(account.sizes)
        self.sizes = [now + new - old for now, new, old in zip(self.sizes, sizes, account.sizes, strict=True)]
        account.sizes = sizes
        self._change(account.user, change)

    def subscribe(self, account: Account, octets: int) -> None:
        """Subscriptions have come to take so many octets more, or less; whose they are may have too much, or who has most."""
        self.sizes[_SUBSCRIBED] += octets
        self._change(account.user, octets)
        if octets > 0 and account.size > account.most:
            self._grown.add(account)
        self.relieve()

    def _change(self, user: str, octets: int) -> None:
        self.size += octets
        self._add(user, octets)
        self.broker.engine.memory.kept = self.size

    def _add(self, user: str, change: int) -> None:
        self.of_user[user] += change
        if not self.of_user[user]:
            del self.of_user[user]

    def move(self, account: Account, user: str) -> None:
        size = sum(account.sizes)
        self._add(account.user, -size)
        account.user = user
        self._add(user, size)

    def relieve(self) -> None:
        """Plans to end a connection, where it has too much, or all of them together."""
        if (self._grown or 0 <= self.most < self.size) and not self._is_planned:
            self._is_planned = True
            self.broker.loop.call_soon(self._evict)

    def _evict(self) -> None:
        self._is_planned = False
        grown, self._grown = self._grown, set()
        if grown:
            for connection in [one for one in self.broker.connections if one.account in grown]:
                connection.account.look(connection)
        if not 0 <= self.most < self.size:
            return
        user = max(self.of_user, key=self.of_user.__getitem__)
        found = [
            connection
            for connection in self.broker.connections
            if connection.account.user == user and not connection.is_ended
        ]
        if found:
            largest = max(found, key=_size)
            text = f"{largest.account.told} are kept for this connection, more than for the others of its user, who has most"
            _close(
                largest,
                f"{text}; all clients together have {self.size}, the limit is {self.most} (max-client-memory)",
            )

    @property
    def by_kind(self) -> dict[str, int]:
        """What is kept for clients, and what the broker remembers because of them, in octets by kind."""
        engine, broker = self.broker.engine, self.broker
        return {kind.value: size for kind, size in zip(KINDS, self.sizes, strict=True)} | {
            UNACKNOWLEDGED: engine.unacknowledged.size,
            "messages": engine.memory.size,
            "retained": engine.retained.size,
            "duplicate-ids": engine.ids.size,
            "heads": sum([reader.size for reader in broker.readers.values()]),
            "permissions": broker.permissions.size,
            "selectors": broker.selectors.size,
            "staged": broker.sinks.memory,
        }

    def __repr__(self) -> str:
        return f"<Ledger {self.size} octets of {len(self.of_user)} users>"


def _size(connection: ClientConnection) -> int:
    return connection.account.size
