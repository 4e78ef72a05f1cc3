"""Duplicate detection: of the messages of an address with the same _AMQ_DUPL_ID only the first is taken (Artemis).

So many values are remembered per address (`id-cache-size`), the oldest are forgotten. Those of stored messages go into the same
commit as their messages, one entry of the catalogue for all of a commit, so they are there after a restart. A duplicate is
counted and answered like a message: its RECEIPT says that it is stored, which it is. What a transaction sends counts when it
commits. A duplicate needs no room where an address is full, and of a stored message no disk. Copies that the broker makes
(diverts, dead letters) are not looked at.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from stompbox.broker.logs.segments import key_of, values_of
from stompbox.message import DUPLICATE_ID, Run

if TYPE_CHECKING:
    from stompbox.broker.addresses import contracts
    from stompbox.broker.addresses.address import Address
    from stompbox.broker.addresses.contracts import Engine
    from stompbox.broker.addresses.unitofwork import UnitOfWork

NO_BLOCK: Final = -1  # a value that is in memory only
# of what may be remembered goes when there is no room: so that it is not looked for again at once
PART: Final = 16
ENTRY: Final = 160  # octets of memory that a value takes beside its own, at a guess


class Ids:
    """What all addresses remember together. `most` octets of memory; beyond, the one that has most forgets its oldest."""

    __slots__ = ("most", "of", "size")

    def __init__(self) -> None:
        self.most = 1 << 62
        self.size = 0
        self.of: set[Duplicates] = set()

    def limit(self, size: int) -> None:
        """Sets the most octets that are remembered; -1: no limit."""
        self.most = size if size >= 0 else 1 << 62

    def grow(self, size: int) -> None:
        self.size += size

    def relieve(self) -> None:
        while self.size > self.most:
            max(self.of, key=_size).forget_oldest(self.most // PART)

    def __repr__(self) -> str:
        return f"<Ids {self.size} octets of {len(self.of)} addresses>"


class Duplicates:
    """The values of one address. A block is what one commit stored of them."""

    def __init__(self, address: Address, most: int) -> None:
        self.address = address
        self.most = most
        self._blocks: dict[bytes, int] = {}  # value -> block, the oldest first
        self._sizes: Counter[int] = Counter()  # of blocks: values that still count
        self._gone: deque[int] = deque()  # blocks to be deleted
        self._changed: set[int] = set()  # blocks to be stored again: some of their values were taken back
        self._unsaved: dict[bytes, None] = {}
        self._bringing: dict[bytes, UnitOfWork] = {}  # whose messages are not stored yet, and may never be
        self._next = 0  # the block that the next commit stores
        self._stored = 0  # blocks below this one are in the store
        self.size = 0  # octets of memory, about
        address.engine.ids.of.add(self)

    def __contains__(self, value: bytes) -> bool:
        return value in self._blocks

    def __len__(self) -> int:
        return len(self._blocks)

    def add(self, values: list[bytes], *, is_stored: bool) -> None:
        self._remember(values, self._next if is_stored else NO_BLOCK)
        if is_stored:
            self._unsaved |= dict.fromkeys(values)
            self.address.engine.commits.news[self] = None

    def _remember(self, values: list[bytes], block: int) -> None:
        for value in values:
            self._blocks[value] = block
        self._sizes[block] += len(values)
        self._grow(ENTRY * len(values) + sum(map(len, values)))
        while len(self._blocks) > self.most:
            self._forget_one()
        self.address.engine.ids.relieve()

    def _grow(self, size: int) -> None:
        self.size += size
        self.address.engine.ids.grow(size)

    def _forget_one(self) -> None:
        oldest = next(iter(self._blocks))
        gone = self._blocks.pop(oldest)
        self._unsaved.pop(oldest, None)
        self._grow(-ENTRY - len(oldest))
        self._sizes[gone] -= 1
        if not self._sizes[gone] and gone not in (NO_BLOCK, self._next):
            del self._sizes[gone]
            self._gone.append(gone)

    def forget_oldest(self, octets: int) -> None:
        """Forgets the oldest values: as many octets at the least, or all."""
        left = max(0, self.size - octets)
        while self.size > left:
            self._forget_one()
        if self._gone:
            self.address.engine.commits.news[self] = None

    def remove(self, values: list[bytes]) -> None:
        """Messages with these could not be stored: they may come again."""
        blocks = set()
        for value in values:
            block = self._blocks.pop(value, None)
            self._bringing.pop(value, None)
            self._unsaved.pop(value, None)
            if block is not None:
                self._grow(-ENTRY - len(value))
                self._sizes[block] -= 1
                blocks.add(block)
        for block in blocks - {NO_BLOCK, self._next}:
            if self._sizes[block]:
                self._changed.add(block)
            else:
                del self._sizes[block]
                self._gone.append(block)
            self.address.engine.commits.news[self] = None

    def tell(self) -> None:
        """A commit is being taken: what is new goes into it."""
        engine, log = self.address.engine, self.address.log
        engine.commits.add_log(log)
        if self._unsaved:
            self._put(self._next, self._unsaved)
        for block, values in self._values_of(self._changed).items():
            self._put(block, values)
        self._unsaved, self._changed = {}, set()
        self._next += 1
        while self._gone:
            engine.put("duplicates", f"{log.id}.{self._gone.popleft()}", None)

    def _values_of(self, blocks: set[int]) -> dict[int, list[bytes]]:
        """What still counts of each, the oldest first: looked for once, however many blocks there are."""
        found: dict[int, list[bytes]] = {block: [] for block in blocks}
        if found:
            for value, block in self._blocks.items():
                if block in found:
                    found[block].append(value)
        return found

    def _put(self, block: int, values: Iterable[bytes]) -> None:
        stored = [value.decode() for value in values]
        self.address.engine.put("duplicates", f"{self.address.log.id}.{block}", stored or None)

    def landed(self) -> None:
        """The commit with all blocks that were told of is in the store."""
        self._stored = self._next

    def has_stored(self, value: bytes) -> bool:
        """Whether a message with this is in the store, or was, and not merely on its way there."""
        return NO_BLOCK < self._blocks.get(value, NO_BLOCK) < self._stored

    def bring(self, unit: UnitOfWork, values: list[bytes], *, is_stored: bool) -> None:
        """The messages with these are part of a unit, which the disk may refuse."""
        unit.consequences.undo.append(partial(self.remove, values))
        if is_stored:
            self._bringing |= dict.fromkeys(values, unit)
            unit.consequences.numbered.append((self, values))

    def brought(self, unit: UnitOfWork, values: list[bytes]) -> None:
        """The unit is stored, or nothing will refuse it."""
        for value in values:
            if self._bringing.get(value) is unit:
                del self._bringing[value]

    def share(self, value: bytes, unit: UnitOfWork | None) -> None:
        """A duplicate has come, as part of this unit: who sent it is told that the first one is stored. So that one is not taken back."""
        first = self._bringing.get(value)
        if first is not None and first is not unit:
            first.share()

    def recall(self, block: int, values: list[str]) -> None:
        """What an entry of the catalogue holds; the oldest block first."""
        self._next = block
        self._remember([key_of(value.encode()) for value in values], block)
        self._next = self._stored = block + 1

    def forget(self) -> None:
        """The address is gone, and with it all that is remembered of its messages."""
        for block in {*self._sizes, *self._gone} - {NO_BLOCK}:
            self.address.engine.put("duplicates", f"{self.address.log.id}.{block}", None)
        self.address.engine.commits.news.pop(self, None)
        self.address.engine.ids.of.discard(self)
        self._grow(-self.size)

    def __repr__(self) -> str:
        return f"<Duplicates of {self.address.name}: {len(self)} of {self.most}>"


def _size(duplicates: Duplicates) -> int:
    return duplicates.size


def publish(engine: Engine, address: Address, run: Run, known: contracts.Duplicates) -> bool:
    """Routes what of a run is new. True when its receipt must wait for the next commit."""
    fresh = new_ones(address, run, {})
    is_stored = engine.is_durable and not address.is_volatile(run)
    engine.counters["duplicates"] += len(run) - len(fresh)
    if len(fresh) < len(run):
        for value in _values(run):
            known.share(value, engine.commits.unit)
    if not fresh:
        return is_stored and not all(map(known.has_stored, _values(run)))
    chosen = run if len(fresh) == len(run) else _chosen(run, fresh)
    kept = chosen if address.limits is None else address.limits.kept(chosen)
    if kept is None:
        # the duplicates' receipts say that the first ones are stored
        return is_stored and len(fresh) < len(run)
    is_stored = engine.route(address, kept)
    seen = [value for value in _values(kept) if value]
    known.add(seen, is_stored=is_stored and engine.persists_ids)
    if engine.commits.unit is not None:
        known.bring(engine.commits.unit, seen, is_stored=is_stored)
    return is_stored


def new_ones(address: Address, run: Run, seen: dict[bytes, None]) -> list[int]:
    """Indices of what would be routed of a run that is on its way to the address. `seen`: values of those that go before, and then of
    these, too."""
    special, known = run.shape.special, duplicates_of(address)
    if special is None or not special.is_numbered or known is None:
        return list(range(len(run)))
    fresh: list[int] = []
    for index, value in enumerate(_values(run)):
        if value and (value in known or value in seen):
            continue
        if value:
            seen[value] = None
        fresh.append(index)
    return fresh


def stored(address: Address, run: Run) -> list[bool]:
    """Whether each message of a run that is on its way to the address is a duplicate of one that is in the store."""
    special, known = run.shape.special, duplicates_of(address)
    if special is None or not special.is_numbered or known is None:
        return [False] * len(run)
    return [known.has_stored(value) for value in _values(run)]


def refused(address: Address, run: Run) -> list[int]:
    """Indices of the messages for which an address that refuses has no room. A duplicate needs none."""
    if address.limits is None:
        return []
    fresh = new_ones(address, run, {})
    gone = fresh[
        address.limits.fitting(run.shape, [run.bodies[index] for index in fresh], address.limits.room()) :
    ]
    if len(fresh) == len(run) or not gone:
        return gone
    values = _values(run)
    again = {values[index] for index in gone} - {b""}
    return sorted({*gone, *[index for index, value in enumerate(values) if value in again]})


def _values(run: Run) -> Sequence[bytes]:
    """What is remembered of each message of a run."""
    return [
        value and key_of(value) for value in values_of(run, DUPLICATE_ID, run.first, run.first + len(run))
    ]


def duplicates_of(address: Address) -> contracts.Duplicates | None:
    """What an address remembers; None when it is to remember nothing."""
    most = getattr(address.settings, "id_cache_size", 0)
    if not most:
        return None
    if address.duplicates is None:
        return address.remember(Duplicates(address, most))
    return address.duplicates


def _chosen(run: Run, indices: list[int]) -> Run:
    columns = tuple([[column[index] for index in indices] for column in run.columns])
    bodies = [run.bodies[index] for index in indices]
    return Run(run.shape, bodies, columns, routing=run.routing, sender=run.sender, queue=run.queue)
