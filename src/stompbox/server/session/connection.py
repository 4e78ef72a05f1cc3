"""One client's connection: bytes in, frames obeyed, errors, heart-beats, the end. What it says goes out in writing.py.

Knows nothing of sockets: a transport (tcp.py, websocket.py) feeds it and writes for it. What a command does is found in commands.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from secrets import token_hex
from typing import TYPE_CHECKING, Any, Final, TypeVar

from stompbox.broker import transactions
from stompbox.broker.addresses.address import Address
from stompbox.broker.addresses.destinations import Destination, Temporaries
from stompbox.broker.addresses.notifications import Event
from stompbox.broker.queues.consumer import MOST_OUT, Consumer
from stompbox.broker.queues.memory import Allowance
from stompbox.broker.transactions import Transaction
from stompbox.config import Listener, ListenerOptions
from stompbox.errors import BrokerFault, FrameError, IllegalFrame, Refused, StompboxError
from stompbox.message import Shape
from stompbox.security import Right, User
from stompbox.server import notifications
from stompbox.server.addressing.brokerheaders import AddedHeaders
from stompbox.server.closings import LEFT, LOST, STOPPED, Why
from stompbox.server.frames.commands import CHANGE_NOTHING, obey
from stompbox.server.frames.speaker import Upload
from stompbox.server.outgoing import GRACE
from stompbox.server.session.reading import Reading
from stompbox.server.session.writing import Writing
from stompbox.server.stopping import last_word
from stompbox.stomp.codec import Decoder, FrameLimits, unescape
from stompbox.stomp.codec import encode as encode_frame
from stompbox.stomp.frames import Frame
from stompbox.stomp.heartbeat import Action, Agreement, Pulse
from stompbox.stomp.runs import Acks, Sends
from stompbox.stomp.session import SessionState
from stompbox.stomp.versions import SUPPORTED

if TYPE_CHECKING:
    from stompbox.server.seam import Transport
    from stompbox.server.session.core import SessionCore

log = logging.getLogger("stompbox.connection")

_TOKEN: Final = partial(token_hex, 8)  # in the names of temporary destinations
# What most connections never have: whoever puts something in makes one of their own
_NOTHING: Final[dict[Any, Any]] = {}

E = TypeVar("E")  # a frame or a run


class Connection(Writing):
    """`peer` is the client's address for logs and limits."""

    __slots__ = (
        "_afterwards", "_fault", "added_headers", "allowance", "answered", "client_id", "consumers", "decoder",
        "ending", "host", "is_entered", "is_gone", "listener", "proof", "reading", "since", "slot", "temporaries", "timed_out",
        "transacted", "transactions", "transform", "upload", "user",
    )  # fmt: skip

    def __init__(self, broker: SessionCore, listener: Listener, transport: Transport, peer: str) -> None:
        options = listener.options
        super().__init__(broker, options, transport, peer)
        self.listener = listener
        self.since = broker.now()
        self.decoder: Decoder[Sends | Acks] = Decoder(limits=limits_of(options))
        self.decoder.counts_control = options.count_control_bodies
        self.user = User("")
        self.proof: str | None = None  # what its passcode was verified against (Users.again)
        self.host: str | None = None  # as its CONNECT said
        self.client_id = ""  # with the space of its host before it
        self.is_entered = False  # logged in, and counted
        self.transform = broker.transform_of(options)
        self.added_headers: AddedHeaders | None = None  # None: what it sends is routed as it is
        self.temporaries = Temporaries(broker.engine, self.session_id, _TOKEN, options.max_subscriptions)
        self.answered: dict[Shape, Shape] = (
            _NOTHING  # shapes by those whose reply-to is one of these temporaries
        )
        self.upload: Upload | None = None  # a large body that is coming in
        self.consumers: dict[str, Consumer] = {}
        self.transactions: dict[str, Transaction] = _NOTHING
        # transactions that the broker has aborted, and the client does not know
        self.timed_out: dict[str, None] = _NOTHING
        self.transacted: dict[Consumer, bool] = (
            _NOTHING  # subscriptions that wait for BEGIN; True: with ack:auto
        )
        self.reading = Reading(self)
        self.allowance = Allowance(
            broker.engine.unacknowledged,
            max(MOST_OUT, options.max_connection_memory),
            _pair(options.max_bindings, options.max_bindings_per_user),
            self.account,
        )
        self._afterwards: Callable[[], None] | None = None  # when what it held has gone back
        self.ending: Why | None = None  # why it has ended
        self._fault: Why | None = None  # what it was refused for last
        self.is_gone = False  # the socket is, and all that came is obeyed
        self.slot: dict[Any, None] | None = (
            None  # when its heart-beats and its time to live are looked at (beats.py)
        )
        broker.arrive(self)

    # In

    def receive(self, data: bytes) -> None:
        """Takes bytes from the peer and obeys them."""
        if self.pulse is not None:
            self.pulse.received(self.broker.loop.time())
        if self.is_ended:
            return
        self.reading.receive(data)

    def enter_host(self, host: str | None, space: str, client_id: str) -> None:
        """Logged in: the names that it says are those of its virtual host."""
        self.host = host
        self.names = self.broker.names_of(self.options, space)
        self.temporaries.space = space
        self.client_id = space + client_id if client_id else ""

    def obey(self, frame: Frame) -> None:
        try:
            self.session.receive(frame)
        except IllegalFrame as error:
            self.refuse(error, frame)
            return
        except Exception as error:
            self.contain(f"{frame.command} was looked up in the table of what may come", error, frame)
            return
        self.attempt(obey, frame, frame)

    def obey_again(self, frame: Frame) -> None:
        """A frame that had to wait for something, without what was checked before."""
        self.attempt(obey, frame, frame)

    def attempt(
        self, command: Callable[[Connection, E], Iterator[None] | None], event: E, frame: Frame | None
    ) -> None:
        """Obeys an event, or says why not; `frame`: the one that it is, if it is no run. What takes long goes on in steps (reading.py)."""
        try:
            steps = command(self, event)
            if steps is not None:
                self.reading.begin(steps, event if isinstance(event, Sends) else frame)
        except StompboxError as error:
            if isinstance(event, Sends):
                self.refuse_each(error, event)
            else:
                self.refuse(error, frame)
        except Exception as error:
            if frame is None or frame.command not in CHANGE_NOTHING:
                raise
            self.contain(f"{frame.command} was obeyed", error, frame)

    @contextmanager
    def changing_nothing(self, doing: str) -> Iterator[None]:
        """What is done in here changes nothing: a fault in it ends this connection alone."""
        try:
            yield
        except StompboxError:
            raise
        except Exception as error:
            raise self.broker.faults.contain(self, doing, error) from error

    def contain(self, doing: str, error: Exception, frame: Frame | None = None) -> None:
        """A fault of ours that has changed nothing but this connection."""
        if not self.is_ended:
            self.refuse(self.broker.faults.contain(self, doing, error), frame)
            self.write_out()

    def make_temporary(self, destination: Destination) -> Address:
        """The connection's own temporary destination of this name, made when it is not there yet."""
        found = self.temporaries.own(destination)
        if found is None:
            name = self.temporaries.name_of(destination.routing)
            self.broker.permissions.require(self.user, Right.CREATE_NON_DURABLE_QUEUE, name)
            found = self.temporaries.make(destination)
            self.account.is_stale = True
        return found

    # Errors and the end

    def refuse(self, error: StompboxError, frame: Frame | None = None) -> None:
        """ERROR for a frame, which had no effect; then the close, where the version or the fault asks for it."""
        closes = (
            # STOMP 1.2, ERROR: MUST close
            (self.session.version.closes_on_error and self.options.close_after_ordinary_errors)
            # whoever is refused before CONNECTED is refused for good, in every version
            or not self.session.is_open
            or isinstance(error, FrameError | BrokerFault)
            or (isinstance(error, IllegalFrame | Refused) and error.closes)
        )
        text = self.names.without_space(error.message)
        headers = {"message": text.replace("\n", " ")[:200], "code": error.code}
        if frame is not None and "receipt" in frame.headers:
            headers["receipt-id"] = frame.headers["receipt"]  # STOMP 1.2, ERROR: SHOULD
        if error.code == "no-common-version":
            headers["version"] = SUPPORTED
        body = f"{text}\n".encode()
        headers |= {"content-type": "text/plain", "content-length": str(len(body))}
        if self.broker.refusals.tell(self.name, error, closes=closes, about=self.marks):
            notifications.refused(self, error, frame)
        self.say(encode_frame(Frame("ERROR", headers, body), self.session.version))
        self._fault = error.code, text
        if closes:
            self.end(is_failure=True)

    @property
    def marks(self) -> dict[str, object]:
        """Whose an entry of the log is, for logs in JSON."""
        return {"connection": self.session_id, "user": self.user.name}

    def refuse_each(self, error: StompboxError, event: Sends) -> None:
        """Refuses the SENDs of a run, none of which had an effect, each with its own ERROR."""
        receipts = event.receipts or [b""] * len(event.bodies)
        for receipt in receipts:
            if self.is_ended:
                return
            headers = {"receipt": unescape(receipt, self.session.version, "SEND").decode()} if receipt else {}
            self.refuse(error, Frame("SEND", headers, b""))

    def fail(self, error: FrameError) -> None:
        frame = None if error.receipt is None else Frame("", {"receipt": error.receipt})
        self.refuse(error, self.upload.frame if frame is None and self.upload is not None else frame)

    def end(
        self, *, is_failure: bool, then: Callable[[], None] | None = None, why: Why | None = None
    ) -> None:
        """Nothing more is obeyed; what it held goes back, and `then` is called. The socket closes when all is said."""
        self.is_ended = True
        self.ending = self.ending or why or self._fault or LOST
        self.session.state = SessionState.ENDING
        self.reading.clear()
        self.broker.leave_user(self)
        self._leave(is_failure=is_failure, then=then)
        self.account.look(self)
        if self.outgoing is not None:
            self.broker.loop.call_later(GRACE, self._cut)

    def shut(self) -> None:
        """Says a last word, because the broker stops."""
        self.pending.clear()
        if not self.is_ended:
            self.out.append(last_word(self))
            self.end(is_failure=False, why=STOPPED)
        self.broker.waiting.pop(self, None)
        if self.outgoing is not None:  # nothing more can be said within a frame
            self.outgoing = None
            self.out.clear()
        self.write_out()

    @property
    def is_logged_in(self) -> bool:
        return self.decoder.logged_in

    @property
    def takes_more(self) -> bool:
        return not (self.reading.is_held or self.reading.is_waiting)

    def look_unread(self) -> None:
        self.unread.look(self)

    def look_kept(self) -> None:
        self.account.look(self)

    def says_its_last(self) -> bool:
        """The client has ended its side; whether there are answers that it waits for, or what it has said waits, which may have some. The
        socket closes when they are said."""
        if self.reading.will_go_on and not self.is_ended:
            self.reading.has_last = True
            return True
        if not self.pending.size and not self.is_leaving:
            return False
        if not self.is_ended:
            self.end(is_failure=True, why=LEFT)
            self.broker.flush()
        return True

    def has_said_its_last(self) -> None:
        """All is obeyed that had come before the client ended its side."""
        if not self.says_its_last():
            self.end(is_failure=True, why=LEFT)
        self.write_out()

    def lost(self) -> None:
        """The socket is gone. What has come and waits for its turn, or for its login, is obeyed first."""
        if not self.is_lost:
            self.is_lost = True
            self.part()

    def cut(self) -> None:
        """What has passed its octets on is gone, and `part` follows. Its client may be there again by another way: what waits for its turn
        here is not obeyed, so that it comes not behind what the client sends there. Very many are cut at once."""
        self.is_lost = True
        self.reading.cut()

    def part(self) -> None:
        """Nobody looks after it any more."""
        self.broker.beats.leave(self)
        self.broker.pressure.leave(self)
        if not self.reading.will_go_on:
            self.broker.turns.in_time(self._all_gone)

    def _all_gone(self) -> None:
        self.gone()
        self.broker.flush_soon()

    def gone(self) -> None:
        """The socket is gone, and nothing is left to be obeyed. More than one may find that out: who waits for its turn to say so, and the
        login that was verified meanwhile."""
        if self.is_gone:
            return
        self.is_gone = True
        broker = self.broker
        holding = self.reading.holding
        if holding is not None and holding.messages:
            broker.engine.counters["not-taken"] += holding.messages
            log.info(
                "%s: gone while %d messages waited for room; they were not taken",
                self.name,
                holding.messages,
                extra=self.marks,
            )
        broker.set_time()
        if not self.is_ended:
            self.end(is_failure=True, why=LOST)
        self.outgoing = None
        self.out.clear()
        self.pending.clear()
        broker.waiting.pop(self, None)
        if self.requests is not None:
            self.requests.drained()
            self.requests = None
        broker.leave(self)
        broker.closings.tell(self, self.ending or LOST, broker.now())
        self.account.close()
        self.reading.leave()

    def _leave(self, *, is_failure: bool, then: Callable[[], None] | None) -> None:
        """What it held goes back, in as many turns as that takes."""
        self.upload = None
        self.unflushed.clear()
        self.is_leaving, self._afterwards = True, then
        self.broker.turns.run(self._leaving(is_failure=is_failure), self._has_left)
        if self.is_leaving:
            self._afterwards = partial(self._say_last, then)

    def _leaving(self, *, is_failure: bool) -> Iterator[None]:
        engine = self.broker.engine
        open_ones, self.transactions = self.transactions, _NOTHING
        consumers, self.consumers = self.consumers, {}
        for consumer in consumers.values():
            consumer.is_started = False
        for transaction in open_ones.values():
            self.broker.timeouts.ended(transaction)
        for name in list(open_ones):  # STOMP 1.2, ABORT: implicitly aborted; what it acknowledged is not
            yield from transactions.aborting(engine, open_ones.pop(name), is_failure=is_failure)
        for id in list(consumers):  # each is let go by itself: a long selector alone takes a millisecond
            yield from transactions.closing(engine, consumers.pop(id), is_failure=is_failure)
        yield from self.temporaries.closing()

    def _has_left(self) -> None:
        self.is_leaving = False
        self.unread.waiting.clear()  # not before: until it is closed a consumer may be put off once more
        if self.pulse is not None:
            notifications.tell(self, Event.CONNECTION_DESTROYED)
        then, self._afterwards = self._afterwards, None
        if then is not None:
            then()

    def _say_last(self, then: Callable[[], None] | None) -> None:
        """Ends an answer that took some turns."""
        if then is not None:
            then()
        self.write_out()

    # Time

    def agree(self, agreement: Agreement) -> None:
        """Logged in: from now on heart-beats and the time to live count."""
        self.pulse = Pulse(agreement, self.broker.loop.time())
        if not self.is_lost:
            self._plan_beat()

    def _plan_beat(self) -> None:
        assert self.pulse is not None
        deadline = self.pulse.next_deadline()
        if deadline is not None:
            self.broker.beats.plan(self, deadline)

    def beat(self) -> None:
        if self.is_lost or self.pulse is None:
            return
        now = self.broker.loop.time()
        if self.reading.is_stuck:  # nobody listens to what it says
            self.pulse.received(self.unread.last_sign(self, now))
        due = self.pulse.due(now)
        if due is Action.TIME_OUT and not self.is_ended:
            self.refuse(self.pulse.timed_out())
            if not self.is_ended:
                self.end(is_failure=True)
            self.write_out()
            if self.transport.is_clogged:  # it would not read it
                self.transport.abort()
            self.broker.flush()
            return
        if due is Action.SEND and not self.is_ended:
            self.out.append(b"\n")
            self.write_out()
        self._plan_beat()

    def dismiss(self, error: StompboxError) -> bool:
        """Its listener has something against it, before its login: an ERROR, and the close. False: it is too late for that."""
        if self.is_lost or self.is_ended:
            return False
        self.refuse(error)
        if not self.is_ended:
            self.end(is_failure=True)
        self.write_out()
        self.broker.flush()
        return True

    def __repr__(self) -> str:
        return (
            f"<Connection {self.session_id} {self.peer} {self.session!r} user={self.user.name!r} "
            f"subscriptions={len(self.consumers)} transactions={len(self.transactions)}>"
        )


def limits_of(options: ListenerOptions) -> FrameLimits:
    return _limits(
        options.max_header_size, options.max_headers, options.max_body_size,
        options.max_control_body_size, options.max_frame_size_before_login,
    )  # fmt: skip


@lru_cache(64)
def _pair(most: int, most_of_user: int) -> tuple[int, int]:
    """Gives one object to all connections of a listener."""
    return most, most_of_user


@lru_cache(64)
def _limits(head: int, headers: int, body: int, control: int, before_login: int) -> FrameLimits:
    """Gives one object to all of them, too."""
    return FrameLimits(head, headers, body, control, before_login)
