"""The client's side of one STOMP connection, without I/O and without a clock: octets in, events out.

    CONNECTING --CONNECTED--> OPEN --disconnect()--> LEAVING --RECEIPT--> CLOSED
         \\----------ERROR----------------- any violation -----------------^

Decided here: the version, what each frame from the broker means, which call a RECEIPT or an ERROR belongs to, when a
heart-beat is due and when the broker counts as gone. Not decided here: bytes on a socket (connection.py), what a lost
connection means to the application (client.py), how SEND frames look (outgoing.py).

Numbers of receipts come from outside (`numbers`), one sequence for all connections of a client, so that a frame sent
again on another connection keeps its receipt. Times are seconds of any monotonic clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Protocol, TypeAlias

from stompbox.client.message import ACK, Answer, ReceivedMessage, message_from_headers
from stompbox.client.options import Options
from stompbox.client.outgoing import header_texts
from stompbox.client.refusal import BrokerError, broker_error
from stompbox.client.runs import MessageRun, Reader, ReceiptRun, ack_header
from stompbox.errors import ConnectionLost, IllegalFrame, PeerError, StompboxError, UsageError
from stompbox.numerals import digits
from stompbox.stomp.codec import Decoder, encode, escape
from stompbox.stomp.frames import SERVER_COMMANDS, Frame
from stompbox.stomp.versions import V10, V12, VERSIONS, Version

# destination of requests to the broker, and the subscription of their answers
REQUESTS: Final = "stompbox.requests"
# STOMP 1.2, Heart-beating: be tolerant and allow an error margin; intervals of silence until the end
TOLERANCE: Final = 2.0
BEAT_AFTER: Final = 0.5  # intervals of own silence after which a heart-beat goes out
# ended subscriptions and given up receipts remembered: nothing is on its way for long
MOST_RETIRED: Final = 1000
_HTTP: Final = b"HTTP/"  # how its answers begin (RFC 9112, 4)
# seconds in which an ERROR without receipt-id may still turn out to concern none of the open calls
# codes with which a broker says that it goes, or that another node of its cluster leads
LEAVES: Final = frozenset(("shutting-down", "log-unavailable", "not-the-leader"))
DOUBT: Final = 2.0


class Waiter(Protocol):
    """Whoever waits for a receipt: `frame` is what was sent (empty: not to be sent again)."""

    def confirmed(self, frame: bytes) -> None: ...

    def failed(self, frame: bytes, error: StompboxError) -> None: ...


class Answerable(Protocol):
    """Whoever waits for the answer to a request."""

    def answered(self, message: ReceivedMessage) -> None: ...

    def failed(self, error: StompboxError) -> None: ...


Claim: TypeAlias = tuple[Waiter, bytes]


class ProtocolState(Enum):
    CONNECTING = auto()
    OPEN = auto()
    LEAVING = auto()
    CLOSED = auto()


@dataclass(frozen=True, slots=True)
class Connected:
    """The broker has accepted the connection."""

    version: Version
    server: str


@dataclass(frozen=True, slots=True)
class Confirmed:
    """RECEIPTs have come for these claims."""

    claims: list[Claim]


@dataclass(frozen=True, slots=True)
class Failed:
    """An ERROR came for these calls; for none of them where the broker does not say (or nothing waits)."""

    claims: list[Claim]
    error: StompboxError


@dataclass(frozen=True, slots=True)
class Answered:
    waiter: Answerable
    message: ReceivedMessage


@dataclass(frozen=True, slots=True)
class Unexpected:
    """A frame nobody asked for, the first of its kind; the others are only counted."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Broken:
    """The connection is of no more use. What came before it in the same octets was reported before it."""

    error: StompboxError


Event: TypeAlias = Connected | MessageRun | Confirmed | Failed | Answered | Unexpected | Broken


class ClientProtocol:
    """One connection. Call `connect`, write what `take_output` gives, feed what is read to `receive`, call `tick` at `deadline`."""

    def __init__(
        self, options: Options, numbers: Iterator[int], unexpected: Counter[str] | None = None
    ) -> None:
        self.options = options
        self.numbers = numbers
        self.state = ProtocolState.CONNECTING
        self.version: Version = V10
        self.server = ""
        self.output: list[bytes] = []  # whole frames, not yet taken
        self.receipts: dict[int, Claim] = {}
        self.requests: dict[str, Answerable] = {}
        self.routes: dict[bytes, object] = {}  # by the subscription header as it comes
        self.unexpected: Counter[str] = Counter() if unexpected is None else unexpected  # by kind
        self.refusal: BrokerError | None = None  # the last ERROR that named no call of ours
        self.was_refused = False  # an ERROR came
        self.has_confirmed = False
        # subscriptions that ended: what is still on its way for them is no surprise
        self._retired: dict[bytes, None] = {}
        self._given_up: dict[int, None] = {}  # receipts that nobody waits for any more: no surprise, either
        self._decoder: Decoder[ReceiptRun | MessageRun] = Decoder(SERVER_COMMANDS, options.limits)
        self._reader: Reader | None = None
        self._goodbye = -1  # the receipt of our DISCONNECT
        self._send_every = self._expect_every = 0.0  # seconds, 0: no heart-beats that way
        self._sent_at = self._heard_at = 0.0
        self._is_held = False
        self._is_graced = False
        # until when, and the last receipt that the unexplained ERROR may concern
        self._doubt: tuple[float, int] | None = None

    # -- out ---------------------------------------------------------------------------------------------------------

    def connect(self) -> None:
        """Queues the CONNECT. STOMP 1.2, CONNECT: `STOMP` would lock out 1.0 servers."""
        options = self.options
        headers = {"accept-version": ",".join(options.versions), "host": options.host or ""}
        for name, value in (
            ("login", options.login),
            ("passcode", options.passcode),
            ("client-id", options.client_id),
        ):
            if value is not None:
                headers[name] = value
        can, want = options.heart_beat
        headers["heart-beat"] = f"{can},{want}"
        headers.update(header_texts(options.headers))
        self.output.append(encode(Frame("CONNECT", headers), V10))

    def take_output(self, now: float) -> list[bytes]:
        """Takes what is to be written now, frame by frame."""
        frames, self.output = self.output, []
        if frames:
            self._sent_at = now
        return frames

    def confirm(self, number: int, frame: bytes, waiter: Waiter, *, again: bool = True) -> None:
        """Queues a frame that carries `receipt:<number>`; with `again` it may be sent again on another connection."""
        self.receipts[number] = (waiter, frame if again else b"")
        self.output.append(frame)

    def confirm_all(self, frames: Sequence[tuple[int, bytes]], waiter: Waiter) -> None:
        """Sends many frames of one sender, each with the number of its receipt."""
        receipts = self.receipts
        for number, frame in frames:
            receipts[number] = (waiter, frame)
        self.output += [frame for _, frame in frames]

    def give_up(self, number: int) -> None:
        """Nobody waits for this receipt any more; it may still come."""
        if self.receipts.pop(number, None) is not None:
            self._given_up[number] = None
            if len(self._given_up) > MOST_RETIRED:
                del self._given_up[next(iter(self._given_up))]

    def command(self, command: str, headers: dict[str, str], waiter: Waiter | None = None) -> int:
        """Queues a frame without body; with a receipt where somebody waits for it, whose number is returned (else -1)."""
        number = -1
        if waiter is not None:
            number = next(self.numbers)
            headers = {**headers, "receipt": str(number)}
            self.receipts[number] = (waiter, b"")
        self.output.append(encode(Frame(command, headers), self.version))
        return number

    def subscribe(self, id: str, route: object, headers: dict[str, str], waiter: Waiter) -> int:
        raw = self._raw(id)
        self.routes[raw] = route
        self._retired.pop(raw, None)
        return self.command("SUBSCRIBE", {"id": id, **headers}, waiter)

    def unsubscribe(self, id: str, headers: dict[str, str], waiter: Waiter | None) -> int:
        """Messages that are on their way are dropped from now on."""
        self.retire(id)
        # 1.0 knows destination or id, later versions id
        return self.command("UNSUBSCRIBE", {"id": id, **headers}, waiter)

    def retire(self, id: str) -> None:
        raw = self._raw(id)
        self.routes.pop(raw, None)
        self._retired[raw] = None
        if len(self._retired) > MOST_RETIRED:
            del self._retired[next(iter(self._retired))]

    def acknowledge(
        self,
        answer: Answer,
        message: ReceivedMessage,
        id: str,
        *,
        transaction: str = "",
        waiter: Waiter | None = None,
    ) -> int:
        """Queues the ACK or NACK, to be checked before, of a message that came for subscription `id`."""
        version = self.version
        if answer is ACK and waiter is None and not transaction and version is V12:
            self.output.append(b"ACK\nid:%b\n\n\0\n" % (message._ack_id or b""))  # what most messages get
            return -1
        number = -1
        own = b""
        if waiter is not None:
            number = next(self.numbers)
            own = b"receipt:%d\n" % number
            self.receipts[number] = (waiter, b"")
        if transaction:
            own += b"transaction:%b\n" % transaction.encode()
        if version.ack_needs_subscription or version is V10:
            # optional in 1.0, where some brokers want it all the same
            own += b"subscription:%b\n" % self._raw(id)
        own += answer.lines.encode()
        self.output.append(
            b"%b\n%b:%b\n%b\n\0\n"
            % (answer.command.encode(), version.ack_header.encode(), message._ack_id or b"", own)
        )
        return number

    def check_acknowledge(self, answer: Answer, message: ReceivedMessage) -> None:
        """Raises where there is no such frame for `message`."""
        if message._ack_id is None:
            header = ack_header(self.version)
            raise IllegalFrame(
                "missing-header",
                f"the broker sent message {message.id!r} without the header {header!r} that {answer.command} needs",
            )
        if answer.delay and self.server and not self.server.startswith("Stompbox"):
            raise UsageError(
                "no-delay",
                f"nack(delay={answer.delay:g}): {self.server} has no delay for one delivery; leave it out",
            )
        if answer.command == "NACK" and not self.version.may_nack:
            raise UsageError(
                "no-nack",
                "STOMP 1.0, which was negotiated, has no NACK; leave the message unacknowledged or acknowledge it",
            )

    def disconnect(self, waiter: Waiter) -> None:
        """STOMP 1.2, DISCONNECT: with a receipt, and nothing after it."""
        self._goodbye = self.command("DISCONNECT", {}, waiter)
        self.state = ProtocolState.LEAVING

    def _raw(self, id: str) -> bytes:
        return escape(id, self.version).encode()

    # -- in ----------------------------------------------------------------------------------------------------------

    def receive(self, data: bytes, now: float) -> list[Event]:
        """What `data` means. After a Broken event the connection must be closed and nothing more be fed."""
        self._heard_at = now
        self._is_graced = False
        events: list[Event] = []
        try:
            for item in self._decoder.receive(data):
                if isinstance(item, MessageRun):
                    events.append(item)
                elif isinstance(item, ReceiptRun):
                    self._receipts(item.numbers, events)
                elif isinstance(item, Frame):
                    self._frame(item, events)
                else:
                    raise TypeError(f"{item!r}: large bodies of the broker's come whole")
        except PeerError as error:
            if self.state is ProtocolState.CONNECTING and data.startswith(_HTTP):
                error = PeerError(error.code, "what answers there is a server of HTTP, and no STOMP broker")
            self.state = ProtocolState.CLOSED
            events.append(Broken(error))
        return events

    def _frame(self, frame: Frame, events: list[Event]) -> None:
        if frame.command == "ERROR":
            self._error(frame, events)
        elif self.state is ProtocolState.CONNECTING:
            if frame.command != "CONNECTED":
                raise IllegalFrame(
                    "unexpected-frame", f"the broker sent {frame.command} before CONNECTED", closes=True
                )
            self._connected(frame, events)
        elif frame.command == "MESSAGE":
            self._message(frame, events)
        elif frame.command == "RECEIPT":
            self._receipt(frame, events)
        else:
            self._surprise("second-connected", "the broker sent CONNECTED a second time", events)

    def _connected(self, frame: Frame, events: list[Event]) -> None:
        # STOMP 1.2, Protocol Negotiation: no version header means 1.0
        name = frame.headers.get("version", "1.0").strip()
        if name not in self.options.versions:
            offered = ", ".join(self.options.versions)
            raise IllegalFrame(
                "version-not-offered", f"the broker chose STOMP {name!r}; offered were {offered}", closes=True
            )
        self.version = self._decoder.version = VERSIONS[name]
        self.server = frame.headers.get("server", "")
        if self.version.heart_beats:
            self._agree(frame.headers.get("heart-beat", "0,0"))
        if self.version is not V10:  # 1.0 trims values: nothing a form can tell
            self._decoder.runs = self._reader = Reader(self.version, self.routes, self.options.limits)
        self.state = ProtocolState.OPEN
        events.append(Connected(self.version, self.server))

    def _agree(self, theirs: str) -> None:
        """STOMP 1.2, Heart-beating: <sx,sy> from the server, <cx,cy> ours; each way the larger number, unless one is 0."""
        can, comma, want = theirs.partition(",")
        sx, sy = digits(can.strip()), digits(want.strip())
        if not comma or sx is None or sy is None:
            raise IllegalFrame(
                "bad-heart-beat",
                f"the broker's heart-beat header is {theirs!r}, not two numbers",
                closes=True,
            )
        cx, cy = self.options.heart_beat
        self._send_every = max(cx, sy) / 1000 if cx and sy else 0.0
        self._expect_every = max(sx, cy) / 1000 if sx and cy else 0.0

    def _message(self, frame: Frame, events: list[Event]) -> None:
        headers = frame.headers
        subscription = headers.get("subscription")
        if (
            subscription == REQUESTS
            and (waiter := self.requests.pop(headers.get("request-id", ""), None)) is not None
        ):
            events.append(Answered(waiter, message_from_headers(None, headers, frame.body, None)))
            return
        raw = b"" if subscription is None else self._raw(subscription)
        route = self.routes.get(raw)
        if route is None:
            self._stray(raw, subscription, events)
            return
        if self._reader is not None:
            self._reader.count(headers)
        ack_id = headers.get(ack_header(self.version))
        message = message_from_headers(
            route, headers, frame.body, None if ack_id is None else self._raw(ack_id)
        )
        last = events[-1] if events else None
        if isinstance(last, MessageRun) and last.route is route:
            last.messages.append(message)
            last.size += len(frame.body)
        else:
            events.append(MessageRun(route, [message], len(frame.body)))

    def _stray(self, raw: bytes, subscription: str | None, events: list[Event]) -> None:
        if raw in self._retired:
            # STOMP 1.2, UNSUBSCRIBE: what was sent before it is still on its way
            self.unexpected["late-message"] += 1
        elif subscription == REQUESTS:
            self._surprise(
                "late-answer", "an answer came for a request that nobody waits for any more", events
            )
        else:
            text = f"a MESSAGE came for subscription {subscription!r}, which this client does not have"
            self._surprise("unknown-subscription", text, events)

    def _receipt(self, frame: Frame, events: list[Event]) -> None:
        text = frame.headers.get("receipt-id", "")
        number = digits(text)
        if number is not None:
            self._receipts([number], events)
        else:
            self._surprise(
                "unknown-receipt", f"a RECEIPT came for {text!r}, which this client did not ask for", events
            )

    def _receipts(self, numbers: list[int], events: list[Event]) -> None:
        claims = []
        pop = self.receipts.pop
        for number in numbers:
            claim = pop(number, None)
            if claim is None and number in self._given_up:
                self.unexpected["unknown-receipt"] += 1
            elif claim is None:
                self._surprise(
                    "unknown-receipt",
                    f"a RECEIPT came for {number}, which nobody waits for (any more)",
                    events,
                )
            else:
                claims.append(claim)
                if number == self._goodbye:
                    self.state = ProtocolState.CLOSED
        if claims:
            self.has_confirmed = True
            events.append(Confirmed(claims))

    def _error(self, frame: Frame, events: list[Event]) -> None:
        """STOMP 1.2, ERROR: the receipt-id of the frame at fault, where the broker gives it."""
        error = broker_error(frame)
        self.was_refused = True
        if self.state is ProtocolState.CONNECTING:
            self.state = ProtocolState.CLOSED
            events.append(Broken(error))
            return
        if error.code in LEAVES:  # it means no call of ours: another broker, or the next one, takes them
            self.state = ProtocolState.CLOSED
            events.append(Broken(ConnectionLost(error.code, error.message)))
            return
        number = digits(frame.headers.get("receipt-id", ""))
        if number is not None and number in self.receipts:
            events.append(Failed([self.receipts.pop(number)], error))
            return
        self.unexpected["error"] += 1
        self.refusal = error
        events.append(Failed([], error))
        if self.receipts:
            self._doubt = (self._heard_at + DOUBT, max(self.receipts))

    def _surprise(self, kind: str, text: str, events: list[Event]) -> None:
        self.unexpected[kind] += 1
        if self.unexpected[kind] == 1:
            events.append(Unexpected(kind, text))

    def eof(self) -> ConnectionLost:
        """What the end of the stream means to those who wait, as an error."""
        was, self.state = self.state, ProtocolState.CLOSED
        if self._decoder.pending:
            text = f"the broker closed the connection in the middle of a frame ({self._decoder.pending} octets of it came)"
        elif was is ProtocolState.CONNECTING:
            text = "the broker closed the connection before it answered CONNECT; is it a STOMP port, with or without TLS?"
        else:
            text = "the broker closed the connection"
        return ConnectionLost("connection-lost", text)

    # -- time --------------------------------------------------------------------------------------------------------

    def hold(self) -> None:
        """Nothing is read for a while, by our own choice: the broker's silence proves nothing."""
        self._is_held = True

    def release(self, now: float) -> None:
        self._is_held = False
        self._heard_at = now

    def started(self, now: float) -> None:
        """Begins to count the time of the heart-beats."""
        self._sent_at = self._heard_at = now

    def deadline(self) -> float | None:
        """When to call `tick` next, whatever happens until then; it may turn out that nothing was due."""
        times = []
        if self._send_every:
            times.append(self._sent_at + self._send_every * BEAT_AFTER)
        if self._expect_every and not self._is_held:
            times.append(self._silence_ends())
        if self._doubt is not None:
            times.append(self._doubt[0])
        return min(times, default=None)

    def _silence_ends(self) -> float:
        return self._heard_at + self._expect_every * TOLERANCE

    def tick(self, now: float) -> list[Event]:
        """Queues a heart-beat that is due, ends doubts, and finds out that the broker is gone."""
        events: list[Event] = []
        if self._send_every and now >= self._sent_at + self._send_every * BEAT_AFTER and not self.output:
            self.output.append(b"\n")  # STOMP 1.2, Heart-beating: an end-of-line
        if self._doubt is not None and now >= self._doubt[0]:
            self._settle_doubt(self._doubt[1], events)
        if self._expect_every and not self._is_held and now >= self._silence_ends():
            self._judge_silence(now, events)
        return events

    def _judge_silence(self, now: float, events: list[Event]) -> None:
        """A look that comes late proves nothing either: our own process was held up, and what came meanwhile is not read yet."""
        if not self._is_graced and now - self._silence_ends() > self._expect_every / 2:
            self._is_graced = True
            self._heard_at = now - self._expect_every * (TOLERANCE - 1)
            return
        self.state = ProtocolState.CLOSED
        silence = self._expect_every * TOLERANCE
        text = f"nothing came from the broker for {silence:g} s; a heart-beat was due every {self._expect_every:g} s"
        events.append(Broken(ConnectionLost("heart-beat-lost", text)))

    def _settle_doubt(self, last: int, events: list[Event]) -> None:
        """The connection is still there, the calls still unanswered: the ERROR must have meant one of them."""
        self._doubt = None
        numbers = [number for number in self.receipts if number <= last]
        if numbers and self.refusal is not None:
            events.append(Failed([self.receipts.pop(number) for number in numbers], self.refusal))

    @property
    def awaits(self) -> bool:
        """Must something be read for a call to go on?"""
        return bool(self.receipts or self.requests)

    def __repr__(self) -> str:
        return (
            f"<ClientProtocol {self.state.name} STOMP {self.version.name} subscriptions={len(self.routes)}"
            f" receipts={len(self.receipts)} requests={len(self.requests)}>"
        )
