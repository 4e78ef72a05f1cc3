"""A node that leads: the broker on the replicated store, beats, and what happens while the log does not answer.

| the log                                    | then                                                                                    |
|--------------------------------------------|-----------------------------------------------------------------------------------------|
| refuses: another node has appended         | `fenced`: the broker ends where it stands, and the node follows                          |
| does not answer for `lead-timeout`         | the other nodes are asked. Where one of them may lead by now, this one does no more      |
| answers none of them                       | persistent messages are held back (suspension.py) until it has taken a commit            |
| does not answer for `log-timeout`          | who waits gets ERROR `log-unavailable`, and what must be stored is refused               |

Beats are due in the broker's loop, so that a loop that hangs does not beat, and sent by a thread, so that they wait for no commit.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING, Final

from stompbox.broker.commits import Trouble
from stompbox.commitlog.base import Fenced
from stompbox.commitlog.replicated import ReplicatedStore
from stompbox.errors import Refused, StoreError
from stompbox.server.broker import Broker
from stompbox.server.cluster.members import Member, Members, Status, Table, Takeover, Told, member_of, told_of
from stompbox.server.cluster.passing import NodeLink
from stompbox.server.cluster.suspension import Suspension
from stompbox.server.cluster.witnesses import Witnesses, Word
from stompbox.server.transport.tcp import Acceptor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from stompbox.commitlog.base import CommitLog
    from stompbox.config import Configuration
    from stompbox.server.cluster.sockets import ClientSockets

log = logging.getLogger("stompbox.cluster")

BEATS: Final = 6  # in `takeover-after`,
MOST: Final = 0.5  # and no less often than after so many seconds
ASKED: Final = 3  # in `lead-timeout`: how often the other nodes are asked while the log does not answer
TRIM: Final = 5.0  # seconds between two trims of the log,
LEAST: Final = 1000  # and records that one is worth
UNAVAILABLE: Final = "log-unavailable"


class Beats:
    """Tells the log that this node lives. `fenced` is called in the thread when somebody else leads."""

    def __init__(self, found: CommitLog, epoch: int, fenced: Callable[[StoreError], object]) -> None:
        self.answered = monotonic()
        self._log = found
        self._epoch = epoch
        self._fenced = fenced
        self._due = Event()
        self._is_ended = False
        self._thread = Thread(target=self._work, name="stompbox-beats", daemon=True)
        self._thread.start()

    def beat(self) -> None:
        self._due.set()

    def end(self) -> None:
        self._is_ended = True
        self._due.set()

    def _work(self) -> None:
        while True:
            self._due.wait()
            self._due.clear()
            if self._is_ended:
                return
            try:
                self._log.beat(self._epoch)
                self.answered = monotonic()
            except StoreError as error:
                if error.code == "fenced":
                    self._fenced(error)
                    return


class Leadership:
    """One epoch of this node, from its LEAD record on until it is fenced, hands over or stops."""

    def __init__(
        self,
        configuration: Configuration,
        store: ReplicatedStore,
        client_sockets: ClientSockets,
        known: Iterable[Member] = (),
        takeovers: Sequence[Takeover] = (),
    ) -> None:
        """Makes the broker. `known`: the other nodes, as the leader before has told of them; `takeovers`: who has led, which may grow."""
        self.loop = asyncio.get_running_loop()
        self.configuration = configuration
        self.table = configuration.cluster
        self.store = store
        self.client_sockets = client_sockets
        self.members = Members(known)
        self.witnesses = Witnesses()
        self._takeovers = takeovers
        self.links: dict[str, NodeLink] = {}
        self.ended = asyncio.Event()  # somebody wants it to end, or it has
        self.broker = Broker(configuration, store, self.loop, is_durable=True, owes_first=True)
        self.broker.engine.work.time_by(monotonic)
        self.broker.faults.on_stop = self.ended.set
        self._suspension = Suspension(self.broker)
        self._suspended = 0.0  # since when; 0: it is not
        self._looked = 0.0
        self._beats = Beats(store.log, store.epoch, self._fenced)
        self._timer: asyncio.TimerHandle | None = None
        self._trimmed = 0
        self._trim_at = self.loop.time() + TRIM
        self._trimming: asyncio.Future[None] | None = None

    async def begin(self) -> list[str]:
        """Accepts clients, once the log has the broker's first commit; the URLs at which it does. None: it ended before. Raises
        ConfigError."""
        self.loop.set_exception_handler(self.broker.faults.in_loop)
        self.broker.faults.pause_culprit()
        self._look()
        if not await self._is_begun():
            return []
        acceptors = [Acceptor(self.broker, listener) for listener in self.client_sockets.listeners]
        self.broker.acceptors.extend(acceptors)
        await self.client_sockets.serve(self.loop, acceptors)
        return [str(acceptor.listener) for acceptor in acceptors]

    async def _is_begun(self) -> bool:
        """Waits for the first commit, or the end. A disk that refuses is tried again while clients are served, as at any time."""
        begun, ended = (self.loop.create_task(one) for one in (self.broker.begun(), self.ended.wait()))
        await asyncio.wait((begun, ended), return_when=asyncio.FIRST_COMPLETED)
        for one in (begun, ended):
            one.cancel()
        await asyncio.gather(begun, ended, return_exceptions=True)
        return not self.ended.is_set()

    # The log

    @property
    def silence(self) -> float:
        """Seconds since the log has answered."""
        return monotonic() - max(self.store.answered, self._beats.answered)

    def _look(self) -> None:
        if self.broker.has_failed:
            return
        self._beats.beat()
        before, self._looked = self._looked, monotonic()
        if before and self._looked - before > self.table.lead_time and not self._suspended:
            self._suspend()  # this process stood still, and another node may lead
        often = self.table.lead_time / ASKED
        is_silent = self.silence > often or bool(self._suspended)
        if self.silence > self.table.lead_time and not self._may_stay():
            return
        if self._suspended and self.silence <= self.table.lead_time:
            self._go_on()
        self._tell_who_waits()
        for link in list(self.links.values()):
            link.look(self.table.takeover_after / 1000)
            # also while the log answers: so their last word is young when it does not
            link.ask(self.told(asks=True))
        if self.loop.time() > self._trim_at:
            self._trim()
        period = min(MOST, self.table.takeover_after / 1000 / BEATS)
        self._timer = self.loop.call_later(min(period, often) if is_silent else period, self._look)

    def _may_stay(self) -> bool:
        """Whether nobody else can lead yet, while the log does not answer; else this is the end."""
        limit = self.table.lead_time
        text = f"the log has not answered for {self.silence:.1f} s"
        doubt = self.witnesses.doubt(self.members.known.values(), monotonic(), limit)
        if doubt:
            self.broker.faults.depose(StoreError(UNAVAILABLE, f"{text} (lead-timeout), and {doubt}"))
            return False
        if not self._suspended:
            self._suspend()
            said = "%s, and no other node hears it. Clients stay, and what is persistent waits for it (%s)"
            log.error(said, text, UNAVAILABLE, extra={"code": UNAVAILABLE})
        return True

    def _suspend(self) -> None:
        self._suspended = monotonic()
        self._suspension.begin()
        self.broker.disk.doubt = Trouble(UNAVAILABLE, "the log of the cluster does not answer")

    def _go_on(self) -> None:
        """The log answers again. Once it has taken a commit nobody else has led."""
        broker = self.broker
        if self.store.answered > self._suspended:
            log.warning("the log has taken a commit again, after %.1f s", monotonic() - self._suspended)
            self._suspended = 0.0
            broker.disk.doubt = None
            self._suspension.end()
        elif not broker.engine.commits.is_held:
            broker.try_commit()

    def _tell_who_waits(self) -> None:
        """What waits for a commit that the log does not answer is told so, once it has waited for `log-timeout`."""
        broker, committer = self.broker, self.broker.committer
        waited = self.loop.time() - committer.since if committer.is_busy else 0.0
        if self._suspended:
            waited = max(waited, self.silence)
        if waited <= self.table.log_timeout / 1000:
            broker.disk.suspend(None)
            return
        text = f"the log of the cluster has not answered for {waited:.1f} s; nothing can be stored"
        if broker.disk.outage is None:
            log.error("%s (%s)", text, UNAVAILABLE, extra={"code": UNAVAILABLE})
        broker.disk.suspend(Trouble(UNAVAILABLE, text))
        for connection in [one for one in broker.connections if one in broker.waiting]:
            broker.waiting.pop(connection, None)
            if not connection.is_ended:
                connection.pending.clear()  # what else it waits for it will not learn
                connection.refuse(Refused(UNAVAILABLE, text, closes=True))
                connection.write_out()

    def _fenced(self, error: StoreError) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(self.broker.faults.depose, error)

    def _trim(self) -> None:
        self._trim_at = self.loop.time() + TRIM
        wanted = self.members.trimmed_to(self.store.local.durable, self.table.copies)
        if wanted < self._trimmed + LEAST or (self._trimming is not None and not self._trimming.done()):
            return
        self._trimmed = wanted
        self._trimming = self.loop.run_in_executor(None, _trim, self.store.log, wanted)

    # The other nodes

    def own(self) -> Member:
        local = self.store.local
        found = self.store.local.leader
        away = self.broker.disk.outage or self.broker.disk.doubt
        trouble = away.code if away is not None else ""
        return Member(
            self.table.node_name, "leader", found.advertise if found else "", local.position, local.durable,
            self.store.epoch, len(self.broker.connections), found.program if found else "",
            found.configuration if found else "", trouble,
        )  # fmt: skip

    def described(self) -> Table:
        own = self.own()
        return Table(
            self.table.name, self.store.log.name, own.node, own.epoch, own.position,
            (own, *(self.members.known[name] for name in sorted(self.members.known))), tuple(self._takeovers),
        )  # fmt: skip

    def told(self, *, asks: bool = False) -> Told:
        """What a follower is told."""
        return told_of(self.described(), monotonic(), asks=asks)

    def told_by(self, status: Status) -> Told:
        """What a follower has told, and what it is answered."""
        self.members.tell(member_of(status), self.own())
        self.witnesses.tell(status.node, Word(status.answers, status.quiet))
        if status.epoch > self.store.epoch:
            text = (
                f"node {status.node} has heard of epoch {status.epoch}, this one has led {self.store.epoch}"
            )
            self.broker.faults.depose(Fenced("fenced", text))
        return self.told()

    def joined(self, link: NodeLink) -> None:
        """Another node follows, and passes its clients on."""
        old = self.links.pop(link.node, None)
        if old is not None:
            old.shut()
        self.links[link.node] = link

    def left(self, link: NodeLink) -> None:
        if self.links.get(link.node) is link:
            del self.links[link.node]
            self.members.lost(link.node)

    def successor(self, node: str | None = None) -> NodeLink | None:
        """The node to hand over to: the one that is asked for, or that has come furthest. Raises Refused."""
        ready = {name: self.members.known[name] for name in self.links if name in self.members.known}
        if node is not None:
            found = self.members.get(node)
            if node not in ready:
                raise Refused("node-not-connected", f"node {node!r} is not connected to the leader")
            if found.trouble:
                raise Refused("node-behind", f"node {node!r} does not come further: {found.trouble}")
            return self.links[node]
        able = [one for one in ready.values() if not one.trouble and not one.is_drained]
        best = max(able, key=lambda one: (one.position, one.node), default=None)
        return self.links[best.node] if best is not None else None

    # The end

    def rest(self) -> None:
        """Accepts nobody any more, here."""
        self.client_sockets.rest()

    async def end(self) -> None:
        """Ends the broker: with all stored, or, after it was fenced, where it stands."""
        self.rest()
        await self.broker.stop()
        for one in list(self.broker.sockets):
            one.abort()
        if self._timer is not None:  # until now: what is stored in the end may have to wait for the log
            self._timer.cancel()

    def close(self) -> None:
        """No beats, no links."""
        self._beats.end()
        for link in list(self.links.values()):
            link.shut()


def _trim(found: CommitLog, position: int) -> None:
    with suppress(StoreError):
        found.trim(position)
