"""Runs to MESSAGE frames, many at a time.

    MESSAGE
    subscription:s0            absent for a 1.0 subscription that gave no id
    message-id:7-1042          <queue>-<offset>: the same message of one queue keeps it, also when it is delivered again
    ack:7-1042                 1.2 only, and not for auto subscriptions (STOMP 1.2, MESSAGE)
    destination:/queue/x       as it was sent
    …                          the sender's headers, then what the broker adds
    redelivered:false
    timestamp:1763775000000    unless the sender gave one
    content-length:100         to 1.0 only when the sender gave one, as it decides between text and bytes there; or the body has a NUL
                               octet, which would end the frame for it

All that a run has in common is made once; what is left for a message is five list slots and one join. Offsets are written
with a table of three digits, so a run is cut where its offsets pass a thousand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from stompbox.message import MEMO, REDELIVERED, Run
from stompbox.recent import Recent
from stompbox.stomp.codec import encode_headers, escape
from stompbox.stomp.versions import V10, Version

_DIGITS: Final = [b"%03d" % i for i in range(1000)]
_LENGTHS: Final = [b"%d\n\n" % i for i in range(4096)]
_END: Final = b"\0\n"
LONG: Final = 2 << 20  # octets of long header lines that are kept for the next message of their shape


def _octets(known: tuple[bytes, bool]) -> int:
    return len(known[0])


_long: Final[Recent[tuple[int, Version, bool], tuple[bytes, bool]]] = Recent(LONG, _octets)


class Head:
    """How MESSAGE frames begin for one subscription on one queue: `subscription` is its id, or None.

    `lines` gives header lines for a message (run, index) that the broker adds on this way, each with its LF.
    """

    __slots__ = ("ack", "lines", "says_length", "start", "version")

    def __init__(
        self,
        version: Version,
        subscription: str | None,
        queue: int,
        *,
        acks: bool,
        always_length: bool = False,
        lines: Callable[[Run, int], bytes] | None = None,
    ) -> None:
        named = "" if subscription is None else f"subscription:{escape(subscription, version)}\n"
        self.version = version
        self.lines = lines
        # to 1.0 only what came as bytes, as for Artemis
        self.says_length = always_length or version is not V10
        self.start = f"MESSAGE\n{named}message-id:{queue}-".encode()
        self.ack = b"\nack:%d-" % queue if acks and version.sends_ack_id else b""


def messages(
    head: Head, run: Run, start: int, stop: int, *, redelivered: bool = False, extra: bytes = b""
) -> bytes:
    """MESSAGE frames for the messages start .. stop-1 of a run (indices). `extra` is header lines that the broker adds."""
    mid = _middle(run, head.version, redelivered=redelivered)
    if extra:
        mid += extra
    if stop - start == 1:
        return _one(head, run, start, mid)
    pieces = []
    while start < stop:
        offset = run.first + start
        cut = min(stop, start + 1000 - offset % 1000)
        pieces.append(_thousand(head, run, start, cut, mid))
        start = cut
    return b"".join(pieces)


def opening(head: Head, run: Run, index: int, *, redelivered: bool = False, extra: bytes = b"") -> bytes:
    """The frame of a message whose body is in the store, up to where the body begins."""
    # a handle has no octets
    return _one(head, run, index, _middle(run, head.version, redelivered=redelivered) + extra)[: -len(_END)]


def _one(head: Head, run: Run, index: int, mid: bytes) -> bytes:
    body = run.bodies[index]
    number = b"%d" % (run.first + index)
    if run.columns:
        mid += b"".join(
            [
                b"%b:%b\n" % (name.encode(), column[index])
                for name, column in zip(run.shape.holes, run.columns, strict=True)
            ]
        )
    if head.lines is not None:  # before the sender's: of two headers of one name the first one counts
        mid = head.lines(run, index) + mid
    octets = bytes(body)
    is_told = head.says_length or run.shape.has_length or 0 in octets
    length = b"content-length:%d\n\n" % len(body) if is_told else b"\n"
    ack = head.ack and head.ack + number
    return b"%b%b%b\n%b%b%b\0\n" % (head.start, number, ack, mid, length, octets)


def _thousand(head: Head, run: Run, start: int, stop: int, mid: bytes) -> bytes:
    """Messages whose offsets differ in their last three digits only."""
    count = stop - start
    first = run.first + start
    digits = (
        _DIGITS[first % 1000 : first % 1000 + count]
        if first >= 1000
        else [b"%d" % i for i in range(first, first + count)]
    )
    thousands = b"%d" % (first // 1000) if first >= 1000 else b""
    bodies = run.bodies[start:stop]
    all_octets: list[Any] = list(bodies)  # a handle never comes here
    # what follows the opening, one entry a piece: one value for all, or one each
    columns: list[bytes | list[bytes]] = [digits]
    if head.ack:
        columns += [head.ack + thousands, digits]
    fixed = b"\n" + mid
    if head.lines is not None:
        columns += [b"\n", [head.lines(run, index) for index in range(start, stop)]]
        fixed = mid
    for name, values in zip(run.shape.holes, run.columns, strict=True):
        columns += [fixed + name.encode() + b":", list(values[start:stop])]
        fixed = b"\n"
    if not (head.says_length or run.shape.has_length or 0 in b"".join(all_octets)):
        columns.append(fixed + b"\n")
    else:
        lengths = list(map(len, bodies))
        if lengths.count(lengths[0]) == count:
            columns.append(b"%bcontent-length:%d\n\n" % (fixed, lengths[0]))
        else:
            columns += [
                fixed + b"content-length:",
                [_LENGTHS[n] if n < 4096 else b"%d\n\n" % n for n in lengths],
            ]
    columns.append(all_octets)
    opening = head.start + thousands
    columns.append(_END + opening)
    width = len(columns)
    pieces: list[bytes] = [b""] * (width * count)
    for at, column in enumerate(columns):
        pieces[at::width] = column if isinstance(column, list) else [column] * count
    pieces[-1] = _END
    return opening + b"".join(pieces)


def _middle(run: Run, version: Version, *, redelivered: bool) -> bytes:
    """The header lines between message-id (or ack) and the holes: the shape's, then redelivered and timestamp."""
    shape = run.shape
    key = (version, redelivered)
    known: tuple[bytes, bool] | None = shape.cache.get(key) or _long.of((shape.number, version, redelivered))
    if known is None:
        headers = (
            {name: value for name, value in shape.headers.items() if name != REDELIVERED}
            if shape.is_suspect
            else shape.headers
        )
        lines = encode_headers(headers, version) + (
            b"redelivered:true\n" if redelivered else b"redelivered:false\n"
        )
        known = lines, "timestamp" in shape.headers or "timestamp" in shape.holes
        if not shape.was_sent:
            shape.was_sent = True  # many shapes are met once
        elif len(lines) <= MEMO:
            shape.cache[key] = known
        else:
            _long.note((shape.number, version, redelivered), known)
    lines, is_timed = known
    return lines if is_timed else b"%btimestamp:%d\n" % (lines, run.arrived)


def receipts(ids: list[bytes]) -> bytes:
    """RECEIPT frames for ids that are already as the wire wants them."""
    return b"RECEIPT\nreceipt-id:" + b"\n\n\0\nRECEIPT\nreceipt-id:".join(ids) + b"\n\n\0\n"
