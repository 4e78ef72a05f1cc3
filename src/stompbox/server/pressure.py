"""Senders that are not read any further until what they wait for is there: back-pressure on their sockets.

| a connection that sent …                               | waits until                                   |
|--------------------------------------------------------|-----------------------------------------------|
| what goes to the disk, while UNSAVED bytes, or RUNS, are to | half of that is                          |
| to an address that blocks when the disk is in trouble  | the disk is good again                        |
| more requests than are answered (requests/)           | fewer wait                                    |
| to an address that blocks when it is full              | there is room                                 |
| more than the disk has confirmed, by its receipts      | enough of them have gone out (ledger.py)      |
| pieces of a large body, faster than the disk           | few of all are on their way; UPLOADS at a time |
| or subscribed, and does not read UNREAD bytes it got   | it has read them                              |

Who only consumes never waits, nor does for the disk who sends it nothing; who sends it LITTLE goes on up to MOST, so that who sends much
holds up nobody else. What was read already is taken; so a sender goes beyond by one read at the most. Of those who wait for
room, as many go on at a time as it has reads; the others look again after TURN. What goes on in turns (turns.py; broker/work.py), and
makes more for the disk while it has so much, has no turn until that has done what it was given, whoever it is: what others wait for is
never behind very much. A connection that consumes, too, is still read while
it waits for room (limiting.py). Of a socket that is neither read nor written to the loop does not hear that its peer has reset it: who
waits is looked at for that each LOOK. A peer that has closed says so to who asks its system alone (TCP keep-alive): unread.py does where
there is a time to live, and else it is asked here, each ASK. One that has but ended its side is there, and answers.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, Final

from stompbox.broker.addresses.address import Address
from stompbox.broker.addresses.contracts import Limits
from stompbox.broker.addresses.unitofwork import is_failing
from stompbox.config.settings import AddressFullPolicy
from stompbox.message import Run
from stompbox.server.lines import Lines

if TYPE_CHECKING:
    from stompbox.server.seam import ClientConnection, Core

UNSAVED: Final = 2 << 20  # bytes, of which a commit takes most: so long others wait for theirs
SEVERAL: Final = 8 << 20  # bytes, beyond which nobody makes more of it before a commit has landed
RUNS: Final = 256  # runs of messages, or entries of the catalogue, each of which takes as long as kilobytes
MOST: Final = 80 << 20  # bytes, by those who send little each
LITTLE: Final = 16 << 10  # bytes on their way to the disk that one read has caused,
SOME_RUNS: Final = 16  # and runs
READ: Final = 256 << 10  # bytes of one read of a socket
UNREAD: Final = 1 << 20  # bytes beyond what the systems of both sides hold
TURN: Final = 0.005  # seconds
LOOK: Final = 5.0  # seconds
ASK: Final = 15  # seconds
SOME: Final = 100  # addresses that are looked at in one go
UPLOADS: Final = 8  # connections that go on with a large body at a time: each is read a piece of it at least
FEW: Final = 64  # connections that go on in one step: each is read again, which takes 10 us and more


class Reason(Enum):
    BEHIND = "behind"  # the disk is slower than the senders
    DISK = "disk"
    REQUESTS = "requests"  # it asks more than it is answered
    RECEIPTS = "receipts"  # too many of them wait for the disk
    UNREAD = "unread"  # it does not take what it is told
    PIECES = "pieces"  # of a large body, faster than the disk


RELIEVED: Final = (Reason.BEHIND, Reason.DISK, Reason.PIECES)


class Pressure:
    def __init__(self, broker: Core) -> None:
        self.broker = broker
        text = "%d more addresses were full, or had room again, within a minute (max-refusals-logged): %s"
        self.lines = Lines(broker, logging.getLogger("stompbox.limits"), text)
        # of the addresses that are full each waits for one, and for the next when there is room in that
        self.waiting: dict[ClientConnection, set[Reason | Limits]] = {}
        self._others: dict[ClientConnection, dict[Limits, None]] = {}
        # who waits for room, the first to come first; what was looked at last is the last
        self.full: dict[Limits, dict[ClientConnection, None]] = {}
        # who waits for what no event of its own ends
        self._held: dict[Reason, dict[ClientConnection, None]] = {reason: {} for reason in RELIEVED}
        self._unlooked = 0  # of the full addresses, since something has changed
        self._is_planned = False
        self._is_looking = False  # for who has gone
        self._asked: set[ClientConnection] = set()  # whose systems are asked whether their clients are there
        self._is_relieving = self._is_asked_again = self._is_planned_again = False
        broker.engine.later.heed(self)

    def sent(self, connection: ClientConnection, address: Address, run: Run) -> None:
        """A message was taken while something is in trouble, or by an address with limits."""
        engine = self.broker.engine
        if (
            engine.trouble is not None
            and engine.is_durable
            and not is_failing(address)
            and not address.is_volatile(run)
        ):
            self.hold(connection, Reason.DISK)
        limits = address.limits
        if limits is not None and limits.policy is AddressFullPolicy.BLOCK and limits.look():
            self.hold(connection, limits)

    def has_read(self, connection: ClientConnection, more: int, runs: int = 0) -> None:
        """All of one read was obeyed, and there were messages in it: its connection is held where the disk is behind. `more`: bytes that
        are on their way to the disk because of it, and in so many runs."""
        engine = self.broker.engine
        unsaved = engine.unsaved
        if (unsaved > UNSAVED or engine.unsaved_runs > RUNS) and (
            more > LITTLE or runs > SOME_RUNS or (more > 0 and unsaved > MOST)
        ):
            self.hold(connection, Reason.BEHIND)

    @property
    def made(self) -> int:
        """What was made for the disk since the start: runs of messages, and entries of the catalogue."""
        return self.broker.engine.logged

    @property
    def is_behind(self) -> bool:
        """Whether the disk has so much to do that nobody makes more of it. Not where it does nothing before something else has happened: it
        works again, or a unit is whole."""
        engine = self.broker.engine
        if not (engine.unsaved_runs > RUNS or engine.unsaved > SEVERAL):
            return False
        return not (engine.trouble is not None or engine.commits.is_held or self.broker.is_stopping)

    def holds_up(self, made: int) -> bool:
        """Whether what goes on in turns, and has begun when so much was made for the disk, waits until that is through with what there is
        (turns.py). A commit is wanted then; what a commit waits for goes on."""
        is_held_up = self.broker.engine.logged > made and self.is_behind
        self.broker.is_wanted |= is_held_up
        return is_held_up

    def hold(self, connection: ClientConnection, reason: Reason | Limits) -> None:
        """Stops reading from a connection, until `let_go` or `relieve` takes this reason, and all others, from it."""
        if connection.is_ended or connection.is_lost:
            return
        reasons = self.waiting.setdefault(connection, set())
        if isinstance(reason, Reason):
            reasons.add(reason)
            if reason in self._held:
                self._held[reason][connection] = None
        elif any(not isinstance(each, Reason) for each in reasons):
            if reason not in reasons:
                self._others.setdefault(connection, {})[reason] = None
        else:
            self._wait_for_room(connection, reason)
        self._look_later()
        if not isinstance(reason, Reason) and connection.consumers:
            connection.reading.hold_sends()
        elif not connection.reading.is_paused:
            connection.reading.pause()

    def _wait_for_room(self, connection: ClientConnection, limits: Limits) -> None:
        self.waiting[connection].add(limits)
        self.full.setdefault(limits, {})[connection] = None

    def _look_later(self) -> None:
        if not self._is_looking:
            self._is_looking = True
            self.broker.loop.call_later(LOOK, self._look_for_gone)

    def _look_for_gone(self) -> None:
        if not self.broker.has_failed:
            self.broker.turns.run(self._looking(), self._has_looked)

    def _looking(self) -> Iterator[None]:
        """One after the other: to ask the system costs a microsecond, and there may be thousands."""
        for connection in list(self.waiting):
            if connection not in self.waiting:
                continue
            if connection.transport.is_reset:
                connection.transport.abort()
            elif connection not in self._asked and _may_be_silent(connection):
                self._asked.add(connection)
                connection.transport.probe(ASK)
            yield

    def _has_looked(self) -> None:
        self._is_looking = False
        if self.waiting:
            self._look_later()

    def relieve(self) -> None:
        """The disk is through with a commit: those go on who need not wait any more, some of them in each turn."""
        are_held_up = self.broker.turns.go_on(), self.broker.engine.later.go_on()
        if any(are_held_up):
            self.broker.is_wanted = True
        if not self.waiting:
            return
        if self._is_relieving:
            self._is_asked_again = True
        elif any(self._held.values()):
            self._is_relieving = True
            self.broker.turns.run(self._relieving(), self._has_relieved)
        self.let_in()

    def _relieving(self) -> Iterator[None]:
        uploads = UPLOADS
        for reason, held in self._held.items():
            for number, connection in enumerate(list(held), 1):
                if connection in held and self._is_over(reason, connection):
                    self.let_go(connection, reason)
                    uploads -= reason is Reason.PIECES
                if not uploads:  # PIECES are the last of RELIEVED
                    self._relieve_later()
                    return
                if number % FEW == 0:
                    yield

    def _relieve_later(self) -> None:
        """Looks again soon: who goes on now may have nothing to say, and no commit comes then."""
        if not self._is_planned_again:
            self._is_planned_again = True
            self.broker.loop.call_later(TURN, self._relieve_again)

    def _relieve_again(self) -> None:
        self._is_planned_again = False
        self.relieve()

    def _has_relieved(self) -> None:
        self._is_relieving = False
        if self._is_asked_again:
            self._is_asked_again = False
            self.relieve()

    def _is_over(self, reason: Reason, connection: ClientConnection) -> bool:
        engine = self.broker.engine
        if reason is Reason.DISK:
            return engine.trouble is None
        has_room = engine.unsaved < UNSAVED // 2
        if reason is Reason.BEHIND:
            return has_room and engine.unsaved_runs < RUNS // 2
        return connection.upload is None or (has_room and connection.upload.may_go_on)

    def let_in(self) -> None:
        """There may be room in addresses that were full. SOME of them are looked at, and the others later."""
        self._unlooked = len(self.full)
        self._look_at_some()

    def _look_at_some(self) -> None:
        is_more = False
        for limits in list(islice(self.full, min(SOME, self._unlooked))):
            self._unlooked -= 1
            is_more |= self._admit(limits, self.full.pop(limits))
        if (is_more or (self._unlooked and self.full)) and not self._is_planned:
            self._is_planned = True
            self.broker.loop.call_later(TURN, self._look_again)

    def _admit(self, limits: Limits, connections: dict[ClientConnection, None]) -> bool:
        """Whether more of them may go on soon."""
        address = limits.address
        most = FEW
        if address.limits is limits and self.broker.engine.addresses.get(address.name) is address:
            # else its settings have changed, or it is gone
            most = min(FEW, max(1, limits.room()[0] // READ)) if limits.has_room_again() else 0
        admitted = list(islice(connections, most))
        for connection in admitted:
            del connections[connection]
        if connections:
            self.full[limits] = connections
        for connection in admitted:
            self.let_go(connection, limits)
        return bool(most and connections)

    def _look_again(self) -> None:
        self._is_planned = False
        self._unlooked = self._unlooked or len(self.full)
        self._look_at_some()

    def let_go(self, connection: ClientConnection, reason: Reason | Limits) -> None:
        reasons = self.waiting.get(connection)
        if reasons is None:
            return
        reasons.discard(reason)
        if isinstance(reason, Reason):
            self._forget(connection, reason)
        elif (others := self._others.get(connection)) is not None:
            self._wait_for_room(connection, others.popitem()[0])
            self._unlooked += 1
            if not others:
                del self._others[connection]
        if not reasons:
            del self.waiting[connection]
            connection.reading.resume()

    def leave(self, connection: ClientConnection) -> None:
        self._asked.discard(connection)
        self._others.pop(connection, None)
        for reason in self.waiting.pop(connection, ()):
            self._forget(connection, reason)

    def _forget(self, connection: ClientConnection, reason: Reason | Limits) -> None:
        if isinstance(reason, Reason):
            self._held.get(reason, {}).pop(connection, None)
            return
        connections = self.full.get(reason, {})
        connections.pop(connection, None)
        if not connections:
            self.full.pop(reason, None)

    def __repr__(self) -> str:
        return f"<Pressure {len(self.waiting)} connections wait>"


def _may_be_silent(connection: ClientConnection) -> bool:
    """Whether a client that has logged in has no time to live."""
    return connection.pulse is not None and not connection.pulse.agreement.ttl_ms
