"""When messages expire: what their sender says, within what the settings of their address allow.

    expires          ms since the epoch, 0 never (JMSExpiration)          expiration       ms from now (RabbitMQ)
    expiry-delay     time to live of those that have none; where it is set the next two do not count
    min-, max-expiry-delay   shorter and longer times to live are moved to these; none counts as longer than any, and becomes the
                     maximum, or the minimum where there is no maximum
    no-expiry        never, whatever their sender says                    (Artemis manual, message expiry)

Decided once, as a message arrives: from then on its shape has an absolute time.

What waits in a queue and will expire is found by its time (`Expiring`), so that nobody looks through a backlog for it. Messages of one
shape share their time, so what is kept is a segment, not a message.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import islice
from typing import Final

from stompbox.broker import sweeping
from stompbox.broker.logs.segments import Segment
from stompbox.broker.timers import Alarm, Timers
from stompbox.config.settings import AddressSettings
from stompbox.errors import IllegalFrame
from stompbox.message import EXPIRATION, Shape

# ms between `expires` and `expiration` that are not worth an ERROR: a frame has been on its way
TOLERANCE: Final = 1000
LATEST: Final = 10**18 - 1  # ms since the epoch: no header says a later time, and the store has this one
_WITH_EXPIRY: Final = "with-expiry"  # of Shape.cache


def is_ruled(settings: AddressSettings) -> bool:
    """Whether the settings of an address change when messages expire."""
    return (
        settings.no_expiry
        or max(settings.expiry_delay, settings.min_expiry_delay, settings.max_expiry_delay) >= 0
    )


def check(shape: Shape, now: int) -> None:
    """Refuses a SEND that says two different times."""
    special = shape.special
    if special is None or special.time_to_live < 0 or "expires" not in shape.headers:
        return
    if not shape.expires or abs(now + special.time_to_live - shape.expires) > TOLERANCE:
        text = f"header expires is {shape.headers['expires']} and expiration {shape.headers[EXPIRATION]}; give one of the two"
        raise IllegalFrame("bad-expires", text)


def with_expiry(shape: Shape, settings: AddressSettings, now: int) -> Shape:
    """The shape of messages that arrive now at an address with these settings."""
    asked = _asked(shape, now)
    expires = min(_ruled(asked, settings, now), LATEST) if is_ruled(settings) else asked
    if expires == shape.expires:
        return shape
    key = (expires, expires == asked)
    known: tuple[tuple[int, bool], Shape] | None = shape.cache.get(_WITH_EXPIRY)
    if known is not None and known[0] == key:
        return known[1]
    headers = shape.headers
    if expires != asked:
        headers = {name: value for name, value in headers.items() if name not in ("expires", EXPIRATION)}
        if expires:
            headers["expires"] = str(expires)
    changed = shape.with_headers(headers, expires=expires)
    shape.cache[_WITH_EXPIRY] = key, changed
    return changed


def _asked(shape: Shape, now: int) -> int:
    special = shape.special
    if shape.expires or special is None or special.time_to_live < 0:
        return shape.expires
    return max(1, now + special.time_to_live)


def _ruled(expires: int, settings: AddressSettings, now: int) -> int:
    if settings.no_expiry:
        return 0
    if settings.expiry_delay >= 0:
        # at least 1: addresses that expire to each other must not do it in no time
        return expires or now + max(1, settings.expiry_delay)
    low, high = settings.min_expiry_delay, settings.max_expiry_delay
    if not expires:
        return now + max(1, high if high >= 0 else low)
    if high >= 0 and expires > now + high:
        return now + max(1, high)
    return now + low if low >= 0 and expires < now + low else expires


class Expiring:
    """`on_due` is called when something may have expired; it takes out what `due` gives, and asks to be called again (`go_on`)."""

    __slots__ = ("_alarm", "_by_time", "_empty", "_swept", "_times")

    def __init__(self, timers: Timers, on_due: Callable[[], None]) -> None:
        self._alarm = Alarm(timers, on_due)
        self._by_time: dict[int, dict[Segment, None]] = {}
        self._times: list[int] = []  # a heap
        self._empty = 0  # of these: nothing expires then any more
        self._swept = 0  # where they are swept next

    def add(self, segment: Segment) -> None:
        expires = segment.run.shape.expires
        same = self._by_time.get(expires)
        if same is not None:
            self._empty -= not same
            same[segment] = None
            return
        self._by_time[expires] = {segment: None}
        heappush(self._times, expires)
        self._alarm.by(expires)

    def discard(self, segment: Segment) -> None:
        expires = segment.run.shape.expires
        same = self._by_time[expires]
        del same[segment]
        if same:
            return
        self._empty += 1
        if self._times[0] == expires:  # the oldest often goes first
            self._next()
        elif sweeping.is_due(self._empty, len(self._times)):
            self._swept = sweeping.sweep_heap(self._times, self._swept, self._forgets)
            if self._swept >= len(self._times):
                self._swept = 0

    def _forgets(self, time: int) -> bool:
        """Whether nothing expires then any more; the time is forgotten, and is to go from the heap."""
        if self._by_time[time]:
            return False
        del self._by_time[time]
        self._empty -= 1
        return True

    def _next(self) -> int | None:
        while self._times and self._forgets(self._times[0]):
            heappop(self._times)
        return self._times[0] if self._times else None

    def go_on(self) -> None:
        """`on_due` is called when the next of what waits expires."""
        next = self._next()
        if next is not None:
            self._alarm.by(next)

    def due(self, now: int, most: int) -> list[Segment]:
        """The earliest of what has expired and waits, `most` segments; nothing when there is no more. It stays."""
        next = self._next()
        return list(islice(self._by_time[next], most)) if next is not None and next <= now else []

    def __len__(self) -> int:
        """How many segments there are."""
        return sum(map(len, self._by_time.values()))

    def __repr__(self) -> str:
        return f"<Expiring {len(self)} segments next={self._alarm.at}>"
