"""The catalogue of a broker: which addresses and queues there are. They are made, kept in the store's catalogue, and dropped here.

Whether a user may make one is decided before (server/addressing), how many they may have in makers.py, and when one goes by itself in
lifetimes.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from stompbox.broker.addresses import lifetimes, limits, makers, retained
from stompbox.broker.addresses.address import Address
from stompbox.broker.addresses.configuration import apply_retention
from stompbox.broker.addresses.contracts import Ended, address_of
from stompbox.broker.addresses.makers import Maker, Makers
from stompbox.broker.addresses.watching import Watchers
from stompbox.broker.commits import Commits
from stompbox.broker.kinds import Kind
from stompbox.broker.logs.cursor import Cursor
from stompbox.broker.logs.log import Log
from stompbox.broker.queues import reclaim
from stompbox.broker.queues.matching import selector_entry
from stompbox.broker.queues.queue import Queue
from stompbox.config import RoutingType
from stompbox.config.matching import Wildcards, Words, is_match
from stompbox.config.settings import AddressSettingsTable
from stompbox.errors import IllegalFrame, TooManyBindings
from stompbox.incarnations import NewId, numbered
from stompbox.message import ANYCAST, MULTICAST
from stompbox.selectors import Selector

if TYPE_CHECKING:
    from stompbox.broker.addresses.contracts import Divert

SETTLED: Final = "settled"  # the kind of entries that say how many messages a queue is done with
EPOCH_IDS: Final = 1_000_000  # ids of queues in memory: epoch * this + n, so that they differ from run to run


class Catalogue:
    """The addresses and queues of an engine, by name and by id; and of those that are gone, where their offsets ended.

    `epoch` is another number at each start. `new_id` gives ids of incarnations: no two are ever the same, whoever asks. Without it they
    are numbered, as tests like it."""

    def __init__(
        self, settings: AddressSettingsTable, wildcards: Wildcards, *, epoch: int, new_id: NewId | None
    ) -> None:
        self.settings = settings
        self.wildcards = wildcards
        self.epoch = epoch
        self.new_id = new_id or numbered(epoch)
        self.addresses: dict[str, Address] = {}
        self.logs: dict[int, Address] = {}
        self.queues: dict[int, Queue] = {}
        self.diverts: list[tuple[Words, Divert]] = []
        # wildcard subscriptions, which join addresses and queues as they are made
        self.watchers = Watchers(wildcards)
        self.named_readers: dict[str, dict[Address, None]] = {}  # where each name has one
        self.group_patterns: dict[str, list[str]] = {}  # reader groups, by name
        self.group_owners: dict[str, str] = {}  # the users whose they are
        self.ended: dict[str, Ended] = {}  # addresses that are gone: where their offsets ended
        self.beyond = 0  # where the offsets of all that is forgotten ended
        self.overbound: list[TooManyBindings] = []  # consumers that miss a queue which was made just now
        self.makers = Makers()
        self.commits = Commits(self._engine)
        self._next_log = self._next_cursor = 1
        self._next_volatile = epoch * EPOCH_IDS

    @property
    def _engine(self) -> Any:
        """This object as the Engine that it is, for those who want one."""
        return self

    def address(self, name: str, kind: int = 0, maker: Maker | None = None) -> Address:
        """The address of this name and kind; made, or given the kind, as its settings allow. `maker`: the user whose frame asks."""
        found = self.addresses.get(name)
        if found is None:
            settings = self.settings.resolve(name)
            if not settings.auto_create_addresses:
                raise IllegalFrame(
                    "no-such-address",
                    f"address {name!r} does not exist, and its settings do not let a frame make it",
                )
            self.makers.require(maker, addresses=1)
            found = self.create_address(name, is_auto=True, maker=maker)
        if kind & ~found.kinds:
            found.require(kind)
            found.add_kind(kind)
        return found

    def create_address(
        self,
        name: str,
        log: Log | None = None,
        *,
        is_auto: bool = False,
        owner: int = 0,
        maker: Maker | None = None,
    ) -> Address:
        """Makes an address. `is_auto`: it goes when nobody needs it. `owner`: the session whose temporary destination it is; wildcards do
        not reach it. `maker`: the user for whom it counts."""
        if log is None:
            log = lifetimes.new_log(self._engine, self._next_log, name, is_temporary=bool(owner))
            self._next_log += 1
        settings = self.settings.resolve(name)
        address = Address(self._engine, name, log, settings, is_auto=is_auto, owner=owner)
        self.makers.made_address(address, maker)
        self.addresses[name] = address
        self.logs[log.id] = address
        apply_retention(address)
        limits.apply(address)
        if self.diverts:
            words = self.wildcards.split(name)
            address.divert([divert for match, divert in self.diverts if is_match(match, words)])
        if not owner:
            lifetimes.tell_of(self._engine, address)
            lifetimes.address_made(self._engine, address)
        return address

    def drop_address(self, address: Address) -> None:
        """The address, its queues and its messages go."""
        address.stay()
        limits.end(address)
        retained.keep(address, None)
        for queue in list(address.queues()):
            self.drop_queue(queue)
        del self.addresses[address.name]
        self.settings.forget(address.name)
        del self.logs[address.log.id]
        self.makers.made_address(address, None)
        if not address.owner:
            lifetimes.remember(self._engine, address)
        self.commits.drop_log(address)

    def note_address(self, address: Address) -> None:
        """Its entry in the catalogue, where anything of it is stored, or it was made on purpose."""
        if address.owner or (address.is_auto and not address.log.is_known):
            return
        self.commits.add_log(address.log)
        self.put(
            "address",
            str(address.log.id),
            {"kinds": address.kinds, "auto": address.is_auto, **makers.entry(address.maker)},
        )

    def default_routing(self, name: str, *, of_queue: bool = False) -> int:
        """The kind of an address, or of a queue of it, of which nothing says the kind."""
        settings = self.settings.resolve(name)
        kind = settings.default_queue_routing_type if of_queue else settings.default_address_routing_type
        return ANYCAST if kind is RoutingType.ANYCAST else MULTICAST

    def add_divert(self, match: str, divert: Divert) -> None:
        """Makes messages of the addresses that the match covers go along a divert from now on."""
        words = self.wildcards.match_words(match)
        self.diverts.append((words, divert))
        for address in self.addresses.values():
            if is_match(words, self.wildcards.split(address.name)):
                address.divert([*address.diverts, divert])

    def recall_ended(self, ended: dict[str, Ended], beyond: int) -> None:
        """Addresses that are gone, and where the offsets ended of those that are forgotten."""
        self.ended, self.beyond = ended, beyond

    def forget_ended(self, name: str) -> None:
        """Offsets of new addresses begin beyond where those of this one ended."""
        self.beyond = max(self.beyond, self.ended.pop(name).next)

    def next_log(self, used: int) -> None:
        """Ids up to `used` are taken; they are never given to another log."""
        self._next_log = max(self._next_log, used + 1)

    def next_cursor(self, used: int) -> None:
        self._next_cursor = max(self._next_cursor, used + 1)

    def new_queue(
        self, address: Address, name: str, kind: Kind, selector: Selector | None = None, *, position: int = -1, owner: str = "",
        is_auto: bool = False, is_durable: bool | None = None, maker: Maker | None = None,
    ) -> Queue:  # fmt: skip
        """A queue from `position` of the log on (-1: from the next message). The stored ones go into the next commit.

        `owner`: the durable subscription that it belongs to; of a named reader, whose it is. `is_auto`: it goes when nobody needs it.
        `maker`: the user for whom it counts.
        """
        if is_durable is None:
            is_durable = kind in (Kind.ANYCAST, Kind.DURABLE, Kind.GROUP, Kind.READER)
        start = address.log.next if position < 0 else position
        if is_durable:
            id = self._next_cursor
            self._next_cursor += 1
            cursor = Cursor(id, start, is_durable=True)
        else:
            cursor = self.volatile_cursor(start)
        queue = Queue(
            self._engine,
            address,
            name,
            kind=kind,
            cursor=cursor,
            selector=selector,
            owner=owner,
            is_auto=is_auto,
        )
        self.makers.made_queue(queue, maker)
        self.add_queue(queue)
        if is_durable:
            self.commits.add_cursor(queue)
            self.note_queue(queue)
        if kind in (Kind.GROUP, Kind.READER):
            cursor.reach_all()
        elif start < queue.log_end:
            queue.leave_in_log(start)
        if kind is Kind.ANYCAST and not address.owner:
            lifetimes.tell_of_queue(self._engine, queue)
        lifetimes.queue_made(self._engine, queue)
        return queue

    def volatile_cursor(self, position: int) -> Cursor:
        """A new cursor that lives in memory only."""
        self._next_volatile += 1
        return Cursor(self._next_volatile - 1, position, is_durable=False)

    def add_queue(self, queue: Queue) -> None:
        self.queues[queue.id] = queue
        limits.meter(queue)
        address_of(queue).add(queue)

    def note_queue(self, queue: Queue) -> None:
        """Its entry in the catalogue; what is not stored has none."""
        if not queue.is_durable:
            return
        address = address_of(queue)
        self.note_address(address)
        entry: dict[str, object] = {
            "name": queue.name,
            "kind": queue.kind.value,
            "owner": queue.owner,
            "auto": queue.is_auto,
            "began": queue.cursor.began,
        }
        entry |= makers.entry(queue.maker)
        if queue.kind is Kind.ANYCAST and queue.name in address.arguments:
            entry["arguments"] = dict(address.arguments[queue.name])
        self.put("queue", str(queue.id), {**entry, **selector_entry(queue.selector)})

    def note_settled(self, queue: Queue) -> None:
        """How many messages it is done with goes into the next commit, and how many offsets are behind it then: what a restart finds
        behind it has come since. Where nothing is said of it, it has been done with all that is behind it since it was made."""
        if queue.is_durable:
            queue.told_settled()
            self.put(SETTLED, str(queue.id), [queue.settled, queue.cursor.behind])

    def drop_queue(self, queue: Queue) -> None:
        """The queue and its position go; messages that no other reader holds go with it."""
        for binding in list(queue.bindings):
            queue.unbind(binding)
        del self.queues[queue.id]
        self._engine.questions.leave(queue.id)
        self.makers.made_queue(queue, None)
        address = address_of(queue)
        if queue.id in address.log.cursors:
            self.commits.dirty[address] = None
        address.remove(queue)
        limits.leave(queue)
        if queue.redrive is not None:
            queue.redrive.give_up()
        reclaim.drop(queue)
        self.commits.drop_cursor(queue)
        if queue.is_durable:
            self.put("queue", str(queue.id), None)
            self.put(SETTLED, str(queue.id), None)
        lifetimes.queue_gone(self._engine, queue)

    def put(self, kind: str, key: str, value: object | None) -> None:
        """Writes an entry of the catalogue with the next commit; None deletes it."""
        self.commits.put(kind, key, value)

    def anycast_queue(self, address: Address, name: str = "", maker: Maker | None = None) -> Queue:
        """The anycast queue of this name (default: the address's own), made when it is not there yet."""
        found = address.anycast.get(name or address.name)
        return (
            self._auto_queue(address, name or address.name, Kind.ANYCAST, maker) if found is None else found
        )

    def exact_queue(self, address: Address, name: str, kind: int, maker: Maker | None = None) -> Queue:
        """The one queue that `address::queue` names, made when it is not there yet."""
        if kind == ANYCAST:
            return self.anycast_queue(address, name, maker)
        found = address.named.get(name)
        return self._auto_queue(address, name, Kind.DURABLE, maker) if found is None else found

    def _auto_queue(self, address: Address, name: str, kind: Kind, maker: Maker | None) -> Queue:
        if not address.settings.auto_create_queues:
            raise IllegalFrame(
                "no-such-queue", f"queue {name!r} does not exist, and its settings do not let a frame make it"
            )
        self.makers.require(maker, queues=1)
        return self.new_queue(address, name, kind, is_auto=True, maker=maker)
