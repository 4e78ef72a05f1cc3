"""Where WebSocket frames begin and end in what a client sends, found by their heads alone (RFC 6455, 5.2).

    FIN, opcode  MASK, length  [length of 2 or 8 octets]  [mask of 4]  payload

To parse a frame costs the library a hundred times what it takes to count it. So they are counted first, and no more are parsed in one turn
of the loop than others can wait for. What clients send most, short messages of one frame each, is taken out here (`whole_messages`), at a
fifth of the cost; whatever is anything else, or wrong, is the library's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

_LONGEST: Final = 14  # octets of a head
_MASKED: Final = 0x80
_LENGTH: Final = 0x7F
_OF_TWO, _OF_EIGHT = 126, 127  # what stands for a length of 2 or 8 octets
_TEXT, _BINARY = 0x81, 0x82  # FIN and the opcode: a message of one frame, not compressed


def whole_messages(data: bytes, at: int, most: int, limit: int) -> tuple[int, list[bytes], bool]:
    """Takes up to `most` messages from data[at:] that are whole, of one frame with at most `limit` and 65,535 octets, and UTF-8 where
    they are text: where what comes after them begins, their payloads, and whether the last was text. `at` is where a frame begins, and no
    message is in progress (RFC 6455, 5.4). It stops before the first that is anything else."""
    payloads: list[bytes] = []
    size, is_text = len(data), False
    while len(payloads) < most and at + 6 <= size:
        kind, length, start = data[at], data[at + 1] - _MASKED, at + 6
        if kind not in (_TEXT, _BINARY) or length > _OF_TWO or length < 0:
            break
        if length == _OF_TWO:
            length, start = data[at + 2] << 8 | data[at + 3], at + 8
        stop = start + length
        if stop > size or length > limit:
            break
        payload = _apply_mask(data[start:stop], data[start - 4 : start])
        if kind == _TEXT and not payload.isascii() and not is_utf8(payload):
            break
        is_text = kind == _TEXT
        payloads.append(payload)
        at = stop
    return at, payloads, is_text


def _unmasked(payload: bytes, mask: bytes) -> bytes:
    """RFC 6455, 5.3: octet i is masked by octet i mod 4 of the mask."""
    size = len(payload)
    repeated = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(payload) ^ int.from_bytes(repeated)).to_bytes(size)


def _unmasking() -> Callable[[bytes, bytes], bytes]:
    """The library's own in C: six times as fast for 150 octets, and more for more; it has none where it could not be compiled."""
    try:
        from websockets.speedups import apply_mask
    except ImportError:
        return _unmasked
    return apply_mask


_apply_mask: Final = _unmasking()


def is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


class Frames:
    """Reads the frames of one client's octets in order."""

    __slots__ = ("_head", "_left")

    def __init__(self) -> None:
        self._head = b""  # what has come of a head
        self._left = 0  # octets of a payload that are still to come

    @property
    def is_between(self) -> bool:
        """Whether what comes next is the head of a frame."""
        return not self._left and not self._head

    def portion(self, data: bytes, start: int, most: int, limit: int) -> tuple[int, int, int]:
        """Where the first `most` frames that begin in data[start:] end, or what is there of them; how many begin; the longest payload.
        One whose payload is longer than `limit` is left to the next portion: what came before it is obeyed first."""
        at, size, count, longest = start, len(data), 0, 0
        while at < size:
            if self._left:
                step = min(self._left, size - at)
                self._left -= step
                at += step
                continue
            if count == most:
                break
            head = self._head + data[at : at + _LONGEST]
            found = _lengths(head)
            if found is None:
                self._head = head
                return size, count, longest
            if count and found[1] > limit:
                break
            at += found[0] - len(self._head)
            self._head, self._left = b"", found[1]
            count += 1
            longest = max(longest, found[1])
        return at, count, longest


def _lengths(head: bytes) -> tuple[int, int] | None:
    """Octets of the head and of the payload; None when the head is not complete."""
    if len(head) < 2:
        return None
    mask = 4 if head[1] & _MASKED else 0
    length = head[1] & _LENGTH
    more = {_OF_TWO: 2, _OF_EIGHT: 8}.get(length, 0)
    if len(head) < 2 + more + mask:
        return None
    return 2 + more + mask, int.from_bytes(head[2 : 2 + more]) if more else length
