"""One node of a cluster: it follows the log, leads when nobody else does, and follows again, in one process, for as long as it runs.

    follows    applies what the log has, passes its clients to the leader, and listens for beats
    leads      is the broker (leading.py), until it is fenced, hands over or stops

Who leads is decided by the log alone: a node that tries to lead appends, and is refused where somebody else was faster. Clocks only say
when a node tries: after `takeover-after` without a record or a beat, and some chance on top, so that two do not try at a time.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final

from msgspec import MsgspecError
from msgspec.json import decode
from msgspec.structs import replace

from stompbox import __version__
from stompbox.commitlog.base import CommitLog, Fenced, Record
from stompbox.commitlog.opening import open_log
from stompbox.commitlog.records import Lead
from stompbox.commitlog.replicated import Applier, Local, ReplicatedStore
from stompbox.config import Configuration, joined, parse_endpoint
from stompbox.errors import ConfigError, LinkError, Refused, StompboxError, StoreError, reason_of
from stompbox.server.cluster import snapshots
from stompbox.server.cluster.known import Known
from stompbox.server.cluster.leading import Leadership
from stompbox.server.cluster.members import NEVER, Member, Table, Takeover, hash_of, status_of
from stompbox.server.cluster.passing import NodeLink, Passing, Request, without_keys
from stompbox.server.cluster.sockets import ClientSockets, listening
from stompbox.server.cluster.talk import Call, Identity, Talk, Verdict
from stompbox.server.cluster.view import View
from stompbox.server.fronts.process import Link
from stompbox.store.folder import DRAINED, FILE_MODE, sync_folder
from stompbox.store.folderstore import FolderStore
from stompbox.store.losses import Losses

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from msgspec import Struct

log = logging.getLogger("stompbox.cluster")

LOOK: Final = 0.05  # seconds between two looks of a follower
LATE: Final = 0.5  # seconds that such a look may be late; then it was this process that stood still, and nobody is judged by it
AGAIN: Final = 0.05  # seconds until the leader, or the log, is called again,
LATEST: Final = 2.0  # twice as long each time, up to this
KEPT: Final = 20  # takeovers that are remembered
# problems of the log with which a node cannot go on, and waiting does not help
_LOSES: Final = ("log-trimmed",)
_ENDS: Final = ("log-too-new", "log-went-back")  # and nothing helps


class Node(Known):
    """The node, from its start to its end. Raises ConfigError, StoreError where it cannot start."""

    def __init__(
        self, configuration: Configuration, tell: Callable[[str, str], None], *, accepts_loss: bool
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.configuration = configuration
        self.table = configuration.cluster
        self.name = self.table.node_name
        self.data = Path(configuration.data)
        self.role = "starting"
        listeners = configuration.listening()
        self.client_sockets = ClientSockets([one for one in listeners if not one.options.read_only])
        self.reading = ClientSockets([one for one in listeners if one.options.read_only])
        self.identity = Identity(self.table)
        self.stopped = asyncio.Event()
        self.hurry = asyncio.Event()
        self.seen: Table | None = None  # the cluster, as the leader told it
        self.takeovers: list[Takeover] = []
        self.is_drained = False  # does not try to lead
        self._places: list[str] = []  # where other nodes are, or were
        self.leadership: Leadership | None = None
        self.applier: Applier | None = None
        self.passing: Passing | None = None
        self._losses = Losses(accepts_loss, tell)
        self._handing: NodeLink | None = None
        self._woken = asyncio.Event()
        self._changed = asyncio.Event()  # somebody else leads
        self._is_asked_to_lead = False
        self._since = monotonic()  # it has listened for beats
        self._jitter = 0.0
        self._server: asyncio.Server | None = None
        self._calls: set[asyncio.Task[None]] = set()
        self._copies = 0
        self._is_log_closed = False
        self._said = ""  # the last trouble with a link that the log was told
        self.log: CommitLog
        self.local: Local
        self.store: FolderStore
        self.advertise = ""
        self.admin = ""  # URL of the admin interface
        self._why = ""  # it tries to lead
        self._seen_at = 0.0  # by the monotonic clock: when `seen` was asked for
        self.view = View(self, configuration, self.loop)

    # Start and end

    async def open(self) -> None:
        """Opens the log, the store and all sockets; nothing is left open when it raises ConfigError or StoreError."""
        self.log = await asyncio.to_thread(open_log, self.table.log_url, self.table.name, self.name)
        try:
            self.local = await asyncio.to_thread(self._open_local)
            try:
                await asyncio.to_thread(self._look_into_log)
                self._recall_drained()
                self._places = snapshots.places_in(self.data)
                self.client_sockets.open()
                self.reading.open()
                await self._listen()
            except BaseException:
                self.client_sockets.close()
                self.reading.close()
                self.local.close()
                raise
        except BaseException:
            self.log.close()
            raise

    def _open_local(self) -> Local:
        self.store = store = FolderStore(self.data, self._losses)
        try:
            return Local(store, f"{self.table.name}/{self.log.identity}", where=f"data folder {self.data}")
        except BaseException:
            store.close()
            raise

    def _look_into_log(self) -> None:
        """Reads the first records that this node has not. Raises LogError of a code in `_ENDS`: it would end there in any case."""
        try:
            Applier(self.local, self.log).step()
        except StoreError as error:
            if error.code in _ENDS:
                raise

    def _recall_drained(self) -> None:
        self.is_drained = (self.data / DRAINED).exists()
        if self.is_drained:
            text = "node %s is drained: it does not lead by itself until `stompbox cluster drain %s --undo`"
            log.warning(text, self.name, self.name)

    async def _listen(self) -> None:
        """For the other nodes."""
        host, port = self.table.listening()
        try:
            sockets = listening(host, port)
        except OSError as error:
            raise ConfigError(
                "cannot-listen", f"cluster.listen: cannot listen on {joined(host, port)}: {reason_of(error)}"
            ) from None
        self.advertise = self.table.advertise or joined(host, sockets[0].getsockname()[1])
        for bound in sockets:
            self._server = await self.loop.create_server(
                lambda: Talk(self._called), sock=bound, ssl=self.identity.server_context
            )

    async def close(self) -> None:
        """Frees all that `open` has opened."""
        self.client_sockets.close()
        self.reading.close()
        await self.view.stop()
        if self._server is not None:
            self._server.close()
        for task in list(self._calls):
            task.cancel()
        await asyncio.to_thread(self.log.close)

    def stop(self) -> None:
        """Once to stop, twice to do it now."""
        (self.hurry if self.stopped.is_set() else self.stopped).set()
        self._woken.set()
        if self.leadership is not None:
            self.leadership.ended.set()

    @property
    def lead(self) -> Lead:
        same = hash_of(self.configuration)
        return Lead(
            self.name, self.advertise, __version__, configuration=same, admin=self.admin, why=self._why
        )

    def _led(self, record: Record, lead: Lead) -> None:
        """Somebody leads from here on. In the applier's thread, or ours."""
        now = int(time.time() * 1000)
        self.takeovers.append(Takeover(lead.node, record.epoch, record.position, now, lead.why))
        del self.takeovers[:-KEPT]
        with suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(self._changed.set)

    # Following

    async def follow(self) -> ReplicatedStore | None:
        """Follows until it is time to lead, or to stop (None). Raises StoreError where the log and this store do not go together."""
        self.role = "follower"
        self._since, self._jitter = monotonic(), self._chance()
        self._is_asked_to_lead = False
        passing = asyncio.ensure_future(self._pass_on())
        applier = self._begin_to_apply()
        self.view.follow()
        await self.reading.serve(self.loop, self.view.open(self.reading.listeners))
        due = monotonic()
        try:
            while not self.stopped.is_set():
                if applier.fault is not None:
                    await self._recover(applier)
                    applier = self._begin_to_apply()
                if self._is_due(applier):
                    store = await self._take_over(applier)
                    if store is not None:
                        return store
                    applier = self._begin_to_apply()
                due = await self._wait(due)
                if passing.done():  # a fault of ours, which leaves clients of this node without a leader
                    log.error("clients are not passed on: a fault of the node", exc_info=passing.exception())
                    await asyncio.sleep(LATEST)
                    passing = asyncio.ensure_future(self._pass_on())
            return None
        finally:
            self.reading.rest()
            self.view.rest()
            passing.cancel()
            await asyncio.gather(passing, return_exceptions=True)
            await asyncio.to_thread(applier.stop)

    def _begin_to_apply(self) -> Applier:
        self.applier = Applier(self.local, self.log, self._led)
        self.applier.start()
        return self.applier

    async def _wait(self, due: float) -> float:
        """Waits until the next look; a process that stood still begins to listen anew."""
        self._woken.clear()
        if not (self.stopped.is_set() or self._is_asked_to_lead):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), LOOK)
        now = monotonic()
        if now - due > LOOK + LATE:
            self._since = now
            if self.applier is not None:
                self.applier.hearing.begin()
        return now

    def _chance(self) -> float:
        return random.random() * self.table.takeover_after / 4000

    def _is_due(self, applier: Applier) -> bool:
        if self._is_asked_to_lead:
            self._why = "the leader handed over"
            return True
        if self.is_drained or applier.trouble is not None:
            return False
        if applier.reached == 0 and applier.current:  # nobody has ever led
            self._why = "nobody had led yet"
            return monotonic() - self._since > self._jitter
        quiet = applier.hearing.quiet
        self._why = f"nothing was heard of the leader for {quiet:.1f} s"
        return quiet > self.table.takeover_after / 1000 + self._jitter

    async def _take_over(self, applier: Applier) -> ReplicatedStore | None:
        """Tries to lead; None where somebody else was faster, or the log does not answer."""
        is_asked, self._is_asked_to_lead = self._is_asked_to_lead, False
        await asyncio.to_thread(applier.stop)
        try:
            return await asyncio.to_thread(self._lead, is_asked=is_asked)
        except StoreError as error:
            log.info("does not lead: %s (%s)", error.message, error.code, extra={"code": error.code})
            self._since, self._jitter = monotonic(), self._chance()
            return None

    def _lead(self, *, is_asked: bool) -> ReplicatedStore:
        """In a thread. What memory held for the leader before is let go with the store."""
        self._reopen_local()
        is_compared = self.applier is not None and self.applier.is_compared
        self.applier = Applier(self.local, self.log, self._led, is_compared=is_compared)
        self.applier.catch_up()
        if not is_asked and monotonic() - self.log.heard() < self.table.takeover_after / 2000:
            raise Fenced("fenced", "somebody else leads since")
        return self.applier.lead(self.lead)

    def _reopen_local(self) -> None:
        with self.view.shown.turn:
            self.local.close()
            self.local = self._open_local()

    async def _recover(self, applier: Applier) -> None:
        """The applier has ended: with a copy of another node's store it can go on, or not at all."""
        fault = applier.fault
        assert fault is not None
        await asyncio.to_thread(applier.stop)
        if fault.code == "log-closed" or self.stopped.is_set():
            return
        if fault.code not in _LOSES:
            raise fault
        log.warning(
            "%s; a copy of another node's store is fetched", fault.message, extra={"code": fault.code}
        )
        wait = AGAIN
        while not self.stopped.is_set():
            for place in self._others():
                if await self._fetch(place):
                    return
            await asyncio.sleep(wait)
            wait = min(2 * wait, LATEST)

    def _others(self) -> list[str]:
        known = [one.advertise for one in self._others_known()]
        leader = self.local.leader
        told = [leader.advertise] if leader is not None and leader.node != self.name else []
        return list(dict.fromkeys([*told, *known, *self._places, *self.table.nodes]))

    def _remember(self, members: Iterable[Member]) -> None:
        """Where others are, for the time after a restart: one that led until then has been told by nobody."""
        places = sorted({one.advertise for one in members if one.node != self.name and one.advertise})
        if places and places != self._places:
            self._places = places
            keeping = self.loop.run_in_executor(None, snapshots.keep_places, self.data, places)
            keeping.add_done_callback(_tell_of)

    async def _fetch(self, place: str) -> bool:
        try:
            talk, _ = await self._call(place, "snapshot")
            try:
                folder = await snapshots.take(talk, self.data)
            finally:
                talk.close()
            await asyncio.to_thread(self._replace, folder)
        except (OSError, TimeoutError, StompboxError) as error:
            self._tell(f"no copy of a store from {place}", error)
            return False
        log.info("has the store of the node at %s, up to record %d", place, self.local.position)
        return True

    def _replace(self, folder: Path) -> None:
        with self.view.shown.turn:
            self.local.close()
            try:
                snapshots.put_in_place(folder, self.data)
            finally:
                self.local = self._open_local()

    # Passing clients on

    async def _pass_on(self) -> None:
        """Keeps a link to whoever leads."""
        wait = AGAIN
        while True:
            leader = self.local.leader
            if leader is not None and leader.advertise != self.advertise:
                try:
                    await self._pass_to(leader.advertise)
                    wait, self._said = AGAIN, ""
                except (OSError, TimeoutError, StompboxError) as error:
                    if leader.node != self.name or isinstance(error, LinkError):  # else it was this one
                        self._tell(f"no link to the leader, node {leader.node}", error)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), wait)
                wait = AGAIN
            wait = min(2 * wait, LATEST)
            self._changed.clear()

    def _tell(self, what: str, error: Exception) -> None:
        code = error.code if isinstance(error, StompboxError) else "node-unreachable"
        reason = error.message if isinstance(error, StompboxError) else reason_of(error)
        if (said := f"{what}: {reason}") != self._said:
            self._said = said
            log.warning("%s (%s)", said, code, extra={"code": code})

    async def _call(self, place: str, purpose: str, about: Struct | None = None) -> tuple[Talk, Verdict]:
        """A connection to another node, which takes the purpose. Raises OSError, LinkError, ConnectionLost, TimeoutError."""
        host, port = parse_endpoint(place.rpartition("/")[2], "advertise")
        talk = Talk()
        async with asyncio.timeout(5.0):
            await self.loop.create_connection(lambda: talk, host, port, ssl=self.identity.client_context)
        try:
            return talk, await self.identity.call(talk, purpose, about)
        except BaseException:
            talk.close()
            raise

    async def _pass_to(self, place: str) -> None:
        urls = [
            without_keys(table.url)
            for table in self.configuration.listeners
            if not table.parse().options.read_only
        ]
        request = Request(urls, self.member(), self.configuration.connection_ttl_override)
        talk, _ = await self._call(place, "relay", request)
        passing = Passing(self.loop, self.client_sockets, len(self.configuration.users), self)
        try:
            talk.become(Link(passing))
            await passing.open(self.table.takeover_after / 1000)
            self.passing = passing
            self.view.show(passing.acceptors)
            log.info("follows, and passes clients to %s", place)
            await passing.ended
        finally:
            self.passing = None
            self.view.show(())
            passing.shut()

    @property
    def quiet(self) -> float:
        """Seconds in which this node could hear the log, and heard nothing of a leader."""
        return self.applier.hearing.quiet if self.applier is not None else 0.0

    def heard(self, table: Table, asked_at: float) -> None:
        """How the cluster was, some time after it was asked for (monotonic); 0.0: it was not."""
        self.seen, self._seen_at = table, asked_at or self._seen_at
        self._remember(table.members)

    def asked_to_lead(self) -> None:
        """The leader hands over to this node."""
        self._is_asked_to_lead = True
        self._woken.set()

    # Leading

    async def take_lead(self, store: ReplicatedStore) -> Leadership | None:
        """The broker is there when this returns, and accepts nobody yet; None where it could not begin, and the node goes on following."""
        try:
            leadership = Leadership(
                self.configuration, store, self.client_sockets, self._others_known(), self.takeovers
            )
        except StoreError as error:
            log.warning("does not lead: %s (%s)", error.message, error.code, extra={"code": error.code})
            await asyncio.to_thread(store.close)
            return None
        self.leadership, self.role = leadership, "leader"
        leadership.broker.cluster = self
        self._led(Record(store.last, store.epoch, kind=None, payload=b""), self.local.leader or self.lead)  # type: ignore[arg-type]
        if self.stopped.is_set():
            leadership.ended.set()
        log.warning("leads epoch %d, from record %d on", store.epoch, store.last)
        return leadership

    async def give_up(self, leadership: Leadership) -> None:
        """The broker has ended, or is to end: afterwards this node can follow."""
        self.reading.rest()
        is_deposed = leadership.broker.has_failed
        if is_deposed:
            # ends an append that waits; whether it has landed is for the log to say
            self._is_log_closed = True
            await asyncio.to_thread(self.log.close)
        await leadership.end()
        if is_deposed:
            await asyncio.to_thread(leadership.broker.committer.bury)
            await asyncio.to_thread(leadership.store.close)
        elif self._handing is not None:
            self._handing.lead()
        leadership.close()
        self.leadership, self._handing, self.role = None, None, "follower"

    async def reopen(self) -> None:
        """Opens log and store again, however long the log is away. Raises StoreError for a store that cannot be opened."""
        if self._is_log_closed:
            self.log = await self._until_there(
                partial(asyncio.to_thread, open_log, self.table.log_url, self.table.name, self.name)
            )
            self._is_log_closed = False
        self.local = await asyncio.to_thread(self._open_local)

    async def _until_there(self, opening: Callable[[], Awaitable[CommitLog]]) -> CommitLog:
        wait = AGAIN
        while True:
            try:
                return await opening()
            except StoreError as error:
                if error.code != "log-unavailable" or self.stopped.is_set():
                    raise
                self._tell("the log cannot be opened", error)
            await asyncio.sleep(wait)
            wait = min(2 * wait, LATEST)

    # What operators want

    def hand_over(self, node: str | None = None) -> str:
        """Ends this node's lead in favour of another one, whose name is returned. Raises Refused."""
        leadership = self._require_lead()
        if node == self.name:
            raise Refused("leads-already", f"node {self.name!r} leads already")
        self._handing = leadership.successor(node)
        if self._handing is None:
            raise Refused("no-successor", "no other node could lead: none is connected that applies the log")
        leadership.ended.set()
        return self._handing.node

    def drain(self, node: str, *, is_drained: bool) -> None:
        """A node does not try to lead any more, or does again; where it leads, another one does. Raises Refused."""
        leadership = self._require_lead()
        if node == self.name:
            if is_drained:
                self.hand_over()
            self.drained(is_drained=is_drained)
            return
        leadership.members.get(node)
        if node not in leadership.links:
            raise Refused("node-not-connected", f"node {node!r} is not connected to the leader")
        leadership.links[node].drain(is_drained=is_drained)

    def remove(self, node: str) -> None:
        """Forgets a node that will not come back: the log is not kept for it. Raises Refused."""
        self._require_lead().members.remove(node)
        if self.seen is not None:
            left = tuple(one for one in self.seen.members if one.node != node)
            self.seen = replace(self.seen, members=left)

    def _require_lead(self) -> Leadership:
        if self.leadership is None:
            raise Refused("not-the-leader", f"node {self.name!r} does not lead")
        return self.leadership

    def drained(self, *, is_drained: bool) -> None:
        """The leader says whether this node may try to lead; that outlives a restart."""
        self.is_drained = is_drained
        self.loop.run_in_executor(None, self._keep_drained)

    def _keep_drained(self) -> None:
        mark = self.data / DRAINED
        try:
            if self.is_drained:
                mark.touch(FILE_MODE)
            else:
                mark.unlink(missing_ok=True)
            sync_folder(self.data)
        except OSError as error:
            log.warning("after a restart it is not known whether this node is drained: %s", reason_of(error))

    # Calls of other nodes

    def _called(self, talk: Talk) -> None:
        task = self.loop.create_task(self._answer(talk))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    async def _answer(self, talk: Talk) -> None:
        try:
            call, verdict = await self.identity.answer(talk)
            if call.node == self.name:
                raise LinkError("node-name-taken", f"two nodes are called {self.name!r}")
            if call.purpose == "relay":
                self._take_link(talk, call, verdict)
            elif call.purpose == "snapshot":
                talk.say(verdict(None))
                self._copies += 1
                await snapshots.give(talk, self.data, self._copies)
            else:
                raise LinkError("bad-link", f"a purpose {call.purpose[:80]!r}")
        except TimeoutError:
            talk.close()
        except StompboxError as error:
            if error.code not in ("connection-lost", "not-the-leader"):
                self._tell("another node was refused", error)
            talk.say(Verdict(code=error.code, message=error.message))
            talk.close()

    def _take_link(self, talk: Talk, call: Call, verdict: Callable[[Struct | None], Verdict]) -> None:
        leadership = self.leadership
        if leadership is None or leadership.broker.has_failed or leadership.broker.is_stopping:
            leader, told = self.local.leader, " yet, or any more"
            if leader and leader.node != self.name:
                told = f"; the last one that did was {leader.node!r}"
            raise LinkError("not-the-leader", f"node {self.name!r} does not lead{told}")
        try:
            request = decode(call.about, type=Request)
        except MsgspecError as error:
            raise LinkError("bad-link", f"a Request that is none: {error}") from None
        known = leadership.links.get(call.node)
        if known is not None and leadership.members.known[call.node].advertise != request.member.advertise:
            raise LinkError("node-name-taken", f"two nodes are called {call.node!r}")
        link = NodeLink(
            leadership.broker, call.node, request, lambda _: leadership.left(link), leadership.told_by
        )
        talk.say(verdict(None))
        leadership.told_by(status_of(request.member, 0.0, NEVER))
        leadership.joined(link)
        self._remember(leadership.members.known.values())
        talk.become(link)
        log.info("node %s follows", call.node)

    def __repr__(self) -> str:
        return f"<Node {self.name} {self.role} {self.local!r}>"


def _tell_of(keeping: asyncio.Future[None]) -> None:
    error = None if keeping.cancelled() else keeping.exception()
    if error is not None:
        log.warning("where the other nodes are is not known after a restart: %s", error)
