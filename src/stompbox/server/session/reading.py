"""What one client sends, on its way to being obeyed: its octets become frames here, and each frame is obeyed in its order.

A read is obeyed up to the end of its turn (turns.py). While the rest of it waits nothing more is read, and what the transport had read
already waits behind it; nobody holds it against the client that its heart-beats are not read meanwhile. When the socket is gone, what
had come is obeyed all the same, after the login that it waits for: who sends and closes has sent. Where a front or a node that passed
it on is gone, nothing more is obeyed (Connection.cut).

| the connection is …  | because                                          | until           | its frames        |
|----------------------|--------------------------------------------------|-----------------|-------------------|
| held                 | a login, or a time in a log, is being looked at  | `go_on`         | wait              |
| waiting              | it had its turn                                  | its next turn   | wait              |
| paused               | others must keep up with it (pressure.py)        | `resume`        | of a read: obeyed |
| holding its SENDs    | an address that it sends to is full (limiting.py)| `resume`        | but ACKs, wait    |
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import chain
from operator import length_hint
from typing import TYPE_CHECKING, Final

from stompbox.errors import FrameError, IllegalFrame, StompboxError
from stompbox.server.frames import acknowledging, sending, uploads
from stompbox.server.limiting import Holding
from stompbox.server.pressure import LITTLE
from stompbox.server.session.framelog import SHOWN
from stompbox.server.turns import BEGUN, FOREVER, FRESH, INWARD, MODEST, SMALL, Turns
from stompbox.stomp.codec import faulty
from stompbox.stomp.frames import Frame
from stompbox.stomp.runs import Acks, Event, Sends

if TYPE_CHECKING:
    from stompbox.server.session.connection import Connection
    from stompbox.server.session.gathering import Group

# octets beyond the limit of a stranger's frame, by which the decoder says what of it is too long
SLACK: Final = 4
LATER: Final = -1.0  # not in this turn
ONE: Final = 0.0  # so long that an event is obeyed, and no second one


class Reading:
    """Whether one connection is read, and what has come on it and waits to be obeyed."""

    __slots__ = (
        "_before_login", "_obeyed", "connection", "events", "group", "has_last", "has_sent", "holding", "is_gone", "is_held", "is_long",
        "is_modest", "is_much", "is_paused", "is_stepping", "is_waiting", "left", "steps", "turns", "unobeyed",
    )  # fmt: skip

    __deletable__ = ("connection",)  # for mypyc: see leave

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.is_gone = False  # its connection is
        self.turns: Turns = connection.broker.turns
        self.events: Iterator[Event] | None = None  # the rest of a read
        self.steps: Iterator[None] | None = None  # the rest of a frame before it
        self.left: deque[bytes] | None = None  # what came after it
        self.unobeyed = 0  # octets of that, which the decoder has not been given
        self.is_held = False
        self.is_waiting = False
        self.is_modest = False  # it waits among those who have said little (turns.py)
        self.is_much = False  # what has come meanwhile
        self.is_long = False  # what it said last was not obeyed in one go
        self.is_paused = False
        self.is_stepping = False  # a step of a frame is just being taken
        self.holding: Holding | None = None  # what waits for room in an address
        self.has_last = False  # the client has ended its side, and is told what becomes of what it has said
        self.has_sent = False  # messages, in the read that is being obeyed
        self.group: Group | None = None  # in which what has come waits for what others send (gathering.py)
        self._obeyed: Frame | Sends | None = None  # whose steps they are
        self._before_login = 0  # octets that came

    # Whether it is read

    @property
    def is_stuck(self) -> bool:
        """Whether nobody listens to what the client says, for one reason or another."""
        return self.is_held or self.is_waiting or self.is_paused

    @property
    def has_left(self) -> bool:
        """Something has come that is not obeyed yet."""
        return self._has_begun or bool(self.left)

    @property
    def will_go_on(self) -> bool:
        """Something that has come is obeyed later, whatever becomes of the socket."""
        return self.is_waiting or (self.is_held and self.has_left)

    def _look_at_reading(self) -> None:
        if self.is_gone:
            return
        if self.is_stuck:
            self.connection.transport.pause_reading()
        else:
            self.connection.transport.resume_reading()

    def hold(self) -> None:
        """Stops reading and obeying until `go_on`."""
        self.is_held = True
        self._look_at_reading()

    def go_on(self) -> None:
        """What it was held for is done, or nobody wants it any more."""
        if self.is_gone:
            return
        connection = self.connection
        self.is_held = False
        self._obey_left(self.turns.allowance())
        if self._is_over():
            self._wait()
        self._look_at_reading()
        self._look_whether_it_was_the_last()
        connection.broker.flush()

    def pause(self) -> None:
        """Stops reading from the socket until `resume`."""
        self.is_paused = True
        self._look_at_reading()

    def resume(self) -> None:
        self.is_paused = False
        holding, self.holding = self.holding, None
        if holding is not None and not self.connection.is_ended:
            self.events = chain(holding.events, self.events or ())
            if not self.is_held:
                self._wait()
        self._look_at_reading()

    def hold_sends(self) -> None:
        """Reads on, but only for ACK and NACK, until `resume`."""
        if self.holding is None:
            self.holding = Holding(self.connection)

    def clear(self) -> None:
        """Nothing more is obeyed; a frame that is half done is done, and where that is what ends the connection, when its step is over."""
        steps, self.events, self.steps = self.steps, None, None
        self.left, self.unobeyed = None, 0
        if steps is not None and not self.is_stepping:
            self.turns.run(_whole(steps))

    def cut(self) -> None:
        """Nothing more is obeyed, nor what waits for room, of one of very many: a frame that is half done is done when there is time."""
        if self.holding is not None:
            self.connection.broker.pressure.leave(self.connection)
        if not self.has_left:
            return
        steps, self.steps = self.steps, None
        self.clear()
        if steps is not None and not self.is_stepping:
            self.turns.in_time(partial(self.turns.run, _whole(steps)))

    # What comes

    def receive(self, data: bytes) -> None:
        """Takes octets from the client and obeys what of them the turn has time for."""
        if self.is_held or self.is_waiting:
            # what the transport had read already: the next WebSocket message, the next TLS record; or the next read behind a fresh one
            self._put_off(data)
            self.is_much = self.is_much or self.unobeyed > MODEST
            self._look_at_reading()
            self.connection.account.glance(self.connection)
            return
        connection, size = self.connection, len(data)
        turns, is_known, rank = self.turns, connection.decoder.logged_in, BEGUN
        until = FOREVER
        if size > SMALL:
            until = LATER if turns.is_full else turns.allowance()
        elif not is_known:  # strangers wait sooner
            until = LATER if turns.is_over else FOREVER
        elif turns.is_crowded:
            until = LATER if self.is_long else ONE
        if until == LATER:
            self._put_off(data)
            rank = BEGUN if self.is_long else FRESH
        else:
            self.is_long = False
            if is_known:
                self._feed(data, until)
            else:
                self._feed_first(data, until)
        if (self.events is not None or self.steps is not None or self.left) and self._is_over():
            is_modest = is_known and size <= MODEST and self.steps is None
            self._wait(rank if is_modest else INWARD)
            if self.left and size > SMALL:
                connection.account.glance(connection)
        connection.broker.was_read(size)

    def _put_off(self, data: bytes, *, is_next: bool = False) -> None:
        """Keeps octets for later, behind what waits already; `is_next`: before it."""
        if self.left is None:
            self.left = deque()
        if is_next:
            self.left.appendleft(data)
        else:
            self.left.append(data)
        self.unobeyed += len(data)

    def _is_over(self) -> bool:
        """Its turn was over before all was obeyed."""
        return self.has_left and not (self.is_gone or self.is_held or self.connection.is_ended)

    def _wait(self, rank: int = INWARD) -> None:
        if not self.is_waiting:
            self.is_waiting, self.is_modest, self.is_much = True, rank != INWARD, False
            self._stand_in_line(rank)
            # a fresh one has its turn soon: to tell the transport, and to take it back, costs a third of what obeying does
            if rank != FRESH:
                self._look_at_reading()

    def _stand_in_line(self, rank: int) -> None:
        """Its user has a turn as often as any other, however many connections are the user's; a stranger is somebody else."""
        connection = self.connection
        self.turns.later(
            self._have_turn,
            rank,
            by=connection.user.name if connection.decoder.logged_in else connection,
        )

    def _have_turn(self, until: float) -> bool:
        """Obeys in this turn what was left of earlier ones. True when that was not all, and it waits where it did."""
        if self.is_gone:
            return False
        self.is_long = self._has_begun
        self._obey_left(until)
        if self._is_over():
            return self._stays()
        self.is_waiting = False
        connection = self.connection
        if not (connection.is_lost or connection.is_ended):
            self._look_at_reading()
        self._look_whether_it_was_the_last()
        return False

    def _look_whether_it_was_the_last(self) -> None:
        """Whether nothing that comes waits any more, of a client that has ended its side, or whose socket is gone."""
        connection = self.connection
        if self.will_go_on:
            return
        if connection.is_lost:
            connection.gone()
        elif self.has_last and not (self.is_held or connection.is_ended):
            connection.has_said_its_last()

    @property
    def _has_begun(self) -> bool:
        """Something of a read was obeyed, and the rest waits."""
        return self.events is not None or self.steps is not None

    def _stays(self) -> bool:
        """Whether what is left waits where it did before. Else it waits where it belongs from now on."""
        is_fresh = not self._has_begun  # it came behind a read that is done
        self.is_long = self.is_long or not is_fresh
        if not self.is_modest:
            return True
        if self.steps is not None or self.is_much:
            self.is_modest = False  # a frame takes long, or more has come meanwhile
            self._stand_in_line(INWARD)
            return False
        if is_fresh:
            self._stand_in_line(FRESH)
        return not is_fresh

    def _obey_left(self, until: float) -> None:
        """What has come, as far as there is time."""
        while self._is_over():
            if not self._has_begun:
                assert self.left
                data = self.left.popleft()
                self.unobeyed -= len(data)
                self._take(data, until)
            else:
                self._obey_all(self.events or iter(()), until)
            if self._has_begun or (self.unobeyed > SMALL and self.turns.clock() > until):
                return

    def _take(self, data: bytes, until: float) -> None:
        if self.connection.decoder.logged_in:
            self._feed(data, until)
        else:
            self._feed_first(data, until)

    def _feed(self, data: bytes, until: float) -> None:
        """The one place where bytes meet the decoder: whatever it finds at fault, at once or later, is an ERROR and the close."""
        frames = self.connection.frames
        if frames is not None:
            data = self._shown(data)
            frames.came(data)
        try:
            events = self.connection.decoder.receive(data)
        except Exception as error:
            events = faulty(error)
        self._obey_all(events, until)

    def _shown(self, data: bytes) -> bytes:
        """What is logged and obeyed now of a read whose frames are logged. The rest comes before all else that waits."""
        if len(data) > SHOWN:
            self._put_off(data[SHOWN:], is_next=True)
        return data[:SHOWN]

    def _feed_first(self, data: bytes, until: float) -> None:
        """No more of a stranger is looked at than one frame may have, however it comes: as EOLs, in pieces, in many messages."""
        connection = self.connection
        limit = connection.options.max_frame_size_before_login
        most = limit + SLACK
        room = most - self._before_login
        if connection.frames is not None:
            data = self._shown(data)
        self._before_login += len(data)
        if len(data) > room:
            self._put_off(data[room:], is_next=True)
        self._feed(data[:room], until)
        if connection.is_ended or connection.decoder.logged_in or self.is_held or self.events is not None:
            return
        if self._before_login >= most:
            text = f"{self._before_login} octets and no CONNECT among them; the limit is {limit} (maxFrameSizeBeforeLogin)"
            self._obey_all(faulty(FrameError("too-much-before-login", text)), FOREVER)

    # What is obeyed

    def begin(self, steps: Iterator[None], obeyed: Frame | Sends | None) -> None:
        """A frame takes long: its steps are taken before the next one is looked at. What they raise is the frame's ERROR."""
        self.steps, self._obeyed = steps, obeyed

    def _obey_all(self, events: Iterator[Event], until: float) -> None:
        """The frames of a read; when its turn is over the rest is left."""
        connection, clock = self.connection, self.turns.clock
        connection.broker.set_time()
        self.events = None
        engine = connection.broker.engine
        unsaved, logged = engine.unsaved, engine.logged
        is_obeying, frames = self.steps is not None, self.turns.frames
        # a small read may have twenty frames that are long
        end = self.turns.whole() if until == FOREVER else until
        try:
            if is_obeying and not self._take_steps(until):
                self.events = events
                return
            is_obeying = False
            for event in () if connection.is_ended else events:
                frames -= 1
                if self.holding is None or not self.holding.takes(event):
                    if isinstance(event, Sends):
                        connection.session.require_open("SEND")
                        is_obeying = True
                        connection.attempt(sending.sends, event, None)
                    elif isinstance(event, Frame):
                        is_obeying = True
                        connection.obey(event)
                    elif isinstance(event, Acks):
                        connection.session.require_open("ACK")
                        is_obeying = True
                        connection.attempt(acknowledging.acks, event, None)
                    else:
                        connection.session.require_open("SEND")
                        is_obeying = True
                        steps = uploads.obey(connection, event)
                        if steps is not None:
                            self.begin(steps, None)
                    is_done = self.steps is None or self._take_steps(until)
                    if connection.is_ended:
                        break
                    if not is_done or self.is_held:
                        self.events = events
                        break
                    is_obeying = False
                if not frames or clock() > end:
                    self.events = events if length_hint(events, 1) else None
                    break
        except FrameError as error:
            connection.fail(error)
        except IllegalFrame as error:
            connection.refuse(error)
        except Exception as error:
            if is_obeying:
                raise
            connection.contain("octets were parsed", error)  # the decoder is this connection's own
        if self.has_sent:
            self.has_sent = False
            connection.broker.pressure.has_read(connection, engine.unsaved - unsaved, engine.logged - logged)
        if connection.out or connection.is_ended or connection.outgoing is not None:
            connection.write_out()
        connection.account.glance(connection)

    def _take_steps(self, until: float) -> bool:
        """Takes steps of a frame that takes long. True when the frame is done, or nobody waits for it any more."""
        steps = self.steps
        assert steps is not None
        if until == FOREVER:  # a small read: one frame of it is long all the same
            until = self.turns.allowance()
        self.is_stepping = True
        try:
            for _ in steps:
                if (
                    self.steps is None
                ):  # it has ended its connection: the rest of it is as that of somebody who is gone
                    self.turns.run(_whole(steps))
                    break
                if self.turns.clock() > until:
                    return False
        except StompboxError as error:
            if self.steps is not None:
                self._refuse(error)
        finally:
            self.is_stepping = False
        self.steps = self._obeyed = None
        return True

    def _refuse(self, error: StompboxError) -> None:
        """Says what was wrong with the frame whose steps were taken."""
        self.steps = None
        if isinstance(self._obeyed, Sends):
            self.connection.refuse_each(error, self._obeyed)
        else:
            self.connection.refuse(error, self._obeyed)

    @property
    def is_idle(self) -> bool:
        """All that has come was obeyed, and what comes next is obeyed at once."""
        is_free = self.holding is None and not self.is_stuck and not self.has_left
        return is_free and self.connection.decoder.is_between_frames

    def join(self, group: Group | None) -> None:
        """What has come waits in a group, or does not any more."""
        self.group = group

    def has_published(self) -> None:
        """Messages of it were obeyed together with those of others: what is looked at behind each read."""
        connection = self.connection
        connection.broker.pressure.has_read(connection, LITTLE)
        if connection.out:
            connection.write_out()
        connection.account.glance(connection)

    def leave(self) -> None:
        """The connection is gone, and is to be forgotten: nothing of its own may refer to it."""
        self.is_gone = True
        self.holding = None
        del self.connection

    def __repr__(self) -> str:
        name = "a connection that is gone" if self.is_gone else self.connection.name
        return f"<Reading of {name} left={self.has_left} stuck={self.is_stuck}>"


def _whole(steps: Iterator[None]) -> Iterator[None]:
    """The steps of a frame of somebody who is gone: nobody is told what was wrong with it."""
    with suppress(StompboxError):
        yield from steps
