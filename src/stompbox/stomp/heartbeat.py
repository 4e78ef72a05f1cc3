"""Heart-beats and the time to live of connections: what is agreed at CONNECT, and what is due when.

    CONNECT    heart-beat:cx,cy     what the client can send, and what it wants to get (ms; 0: nothing)
    CONNECTED  heart-beat:sx,sy     the same from the broker
    client to broker every max(cx, sy), broker to client every max(sx, cy), unless one of the two is 0

This file decides numbers and deadlines. It reads no clock (the caller says what time it is) and sends nothing.

With heartBeat=auto the broker sends what is wanted, and wants what leads to the time to live (as in Artemis's acceptor):

    time to live = cx * modifier, but within connectionTtlMin .. connectionTtlMax
    sy           = time to live / modifier

No number of an answer is below 500 ms, and so no time to live below 500 ms * modifier. A client without heart-beats has
connectionTtl itself: a client that is silent for so long is cut off too, though STOMP has no name for it. Numbers that are
fixed (heartBeat=x,y) have no minimum, but connectionTtlMax counts for them, too.

The cut-off is at the time to live, which is `modifier` times the interval, and not later by a polling period. Where
connectionTtlMax has left less margin than that to a client which beats as it said it can, the cut-off is a tolerance of a
quarter later: so it is never at the interval itself that the maximum allows, and never later than 2.5 intervals.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Final, Protocol

from stompbox.errors import IllegalFrame
from stompbox.numerals import digits
from stompbox.stomp.frames import quoted

LEAST_INTERVAL: Final = 500  # ms; what the broker offers and asks for: shorter beats are load without use
# of an interval, after which a beat goes out: early enough for a strict receiver, late enough to be rare
_SILENCE: Final = 0.75
# of the time to live, after which a time-out that the caller did not act on is due once more
_AGAIN: Final = 0.25
_TOLERANCE: Final = 0.25  # of the time to live, before a client with little margin is cut off
_DIGITS: Final = 18


class Options(Protocol):
    """The listener's settings, in ms where not said otherwise; 0 or -1: no limit."""

    @property
    def heart_beat(self) -> tuple[int, int] | None:
        """The (sx, sy) that every client is told, in ms; None: what its own offer makes of it."""

    @property
    def connection_ttl(self) -> int:
        """How long a client without heart-beats may be silent."""

    @property
    def connection_ttl_min(self) -> int:
        """The least that a client's heart-beats make of it."""

    @property
    def connection_ttl_max(self) -> int:
        """The most that a client's heart-beats make of the time to live, in ms."""

    @property
    def heart_beat_to_connection_ttl_modifier(self) -> float:
        """Factor, from 1.0 on: STOMP 1.2 wants an error margin."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """Milliseconds, 0 for none. The first two are the answer's heart-beat header; what comes of it for both sides, the rest."""

    server_sends_ms: int
    client_sends_ms: int
    ttl_ms: int  # how long a client may be silent
    beat_ms: int = 0  # a broker's silence is never longer
    expected_ms: int = 0  # nor a client's
    tolerance_ms: int = 0  # the cut-off comes so much after the time to live

    @property
    def cut_ms(self) -> int:
        """A silence after which the client is cut off."""
        return self.ttl_ms + self.tolerance_ms

    @property
    def header(self) -> str:
        return f"{self.server_sends_ms},{self.client_sends_ms}"


def parse(header: str) -> tuple[int, int]:
    """The two numbers of a heart-beat header (blanks around them are accepted). Raises IllegalFrame `bad-heart-beat`, which closes."""
    found = [digits(part.strip(" "), _DIGITS) for part in header.split(",")]
    numbers = [number for number in found if number is not None]
    if len(found) != 2 or len(numbers) != 2:
        text = f"heart-beat is {quoted(header)}; allowed are two numbers of milliseconds with a comma between them, such as 10000,10000"
        raise IllegalFrame("bad-heart-beat", text, closes=True)
    return numbers[0], numbers[1]


def agree(header: str | None, options: Options) -> Agreement:
    """The answer to a CONNECT with this heart-beat header. None: there is none, or the client speaks 1.0, which has none."""
    return answer(None if header is None else parse(header), options)


def answer(requested: tuple[int, int] | None, options: Options) -> Agreement:
    """What the broker answers to `cx,cy`, and what follows from it."""
    cx, cy = requested or (0, 0)  # STOMP 1.2, Heart-beating: a missing header MUST be treated as 0,0
    fixed = options.heart_beat
    sx, sy = fixed or (_offered(cy), _wanted(cx, options))
    beat = max(sx, cy) if sx and cy else 0
    expected = max(cx, sy) if cx and sy else 0
    if not expected:
        return _shared(sx, sy, max(0, options.connection_ttl), beat)  # not clamped
    modifier = options.heart_beat_to_connection_ttl_modifier
    ttl = round(sy * modifier)
    if fixed:
        ttl = round(expected * modifier)
        if options.connection_ttl_max > 0:
            ttl = min(ttl, options.connection_ttl_max)
    tolerance = round(ttl * _TOLERANCE) if ttl < round(expected * modifier) else 0
    return _shared(sx, sy, ttl, beat, expected, tolerance)


@lru_cache(256)
def _shared(*numbers: int) -> Agreement:
    """Gives one object to all that agree on the same: there may be thousands of them."""
    return Agreement(*numbers)


def _offered(wanted: int) -> int:
    return max(wanted, LEAST_INTERVAL) if wanted else 0


def _wanted(can: int, options: Options) -> int:
    if not can:
        return 0
    modifier = options.heart_beat_to_connection_ttl_modifier
    ttl = max(can * modifier, options.connection_ttl_min)
    if options.connection_ttl_max > 0:
        ttl = min(ttl, options.connection_ttl_max)
    return max(round(ttl / modifier), LEAST_INTERVAL)


class Action(Enum):
    """What is due on a connection."""

    SEND = "an end of line, the other side should not think that we are gone"
    TIME_OUT = "an ERROR and the close: nothing came for too long"


class Pulse:
    """One connection's heart-beats, from its CONNECTED on. All times are seconds of one clock, given by the caller.

    Ask `due` at `next_deadline`; what it answers it says once, so a caller that cannot act just now is not asked in a circle.
    """

    __slots__ = ("_expires", "_received", "_sent", "agreement")

    def __init__(self, agreement: Agreement, now: float) -> None:
        self.agreement = agreement
        self._sent = now
        self._received = now
        self._expires = 0.0  # not before this, when a time-out was due already

    def sent(self, now: float) -> None:
        """Notes that octets went out."""
        self._sent = now

    def received(self, now: float) -> None:
        """Octets came in: any data is an indication that the other side is alive (STOMP 1.2, Heart-beating)."""
        self._received = now

    def next_deadline(self) -> float | None:
        """When to ask `due` again, at the latest. None: never."""
        deadlines = [deadline for deadline in (self._next_beat(), self._end()) if deadline is not None]
        return min(deadlines, default=None)

    def due(self, now: float) -> Action | None:
        end, beat = self._end(), self._next_beat()
        if end is not None and now >= end:
            self._expires = now + self.agreement.ttl_ms / 1000 * _AGAIN
            return Action.TIME_OUT
        if beat is not None and now >= beat:
            self._sent = now
            return Action.SEND
        return None

    def timed_out(self) -> IllegalFrame:
        """The error for a client that was cut off; says what it could have done."""
        agreement = self.agreement
        if agreement.expected_ms:
            text = f"nothing came for {agreement.cut_ms} ms; a heart-beat was agreed every {agreement.expected_ms} ms"
            if agreement.tolerance_ms:
                text += f", and no client may be silent for more than {agreement.ttl_ms} ms here (connectionTtlMax)"
            return IllegalFrame("heart-beat-timeout", text, closes=True)
        text = (
            f"nothing came for {agreement.ttl_ms} ms, which is how long a connection without heart-beats may be silent (connectionTtl); "
            "send an end of line now and then, or CONNECT in STOMP 1.1 or 1.2 with a heart-beat header such as 10000,10000"
        )
        return IllegalFrame("connection-ttl", text, closes=True)

    def _next_beat(self) -> float | None:
        return self._sent + self.agreement.beat_ms / 1000 * _SILENCE if self.agreement.beat_ms else None

    def _end(self) -> float | None:
        return (
            max(self._received + self.agreement.cut_ms / 1000, self._expires)
            if self.agreement.ttl_ms
            else None
        )

    def __repr__(self) -> str:
        agreed = self.agreement
        return f"<Pulse sends every {agreed.beat_ms} ms, expects every {agreed.expected_ms} ms, ends after {agreed.cut_ms} ms of silence>"
