"""Where WebSocket frames begin and end in what a client sends, found by their heads alone (RFC 6455, 5.2); and into which messages goes
what it is sent.

    FIN, opcode  MASK, length  [length of 2 or 8 octets]  [mask of 4]  payload

To parse a frame costs the library a hundred times what it takes to count it. So they are counted first, and no more are parsed in one turn
of the loop than others can wait for. What clients send most, short messages of one frame each, is taken out here (`whole_messages`), at a
fifth of the cost; whatever is anything else, or wrong, is the library's.

What goes out is cut between the frames of STOMP (`messages`), whose ends are found by the lengths that they say: a body may hold anything.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

# octets of a message with several frames: what the strictest clients take (Tomcat; Jetty 64 KiB, Python 1 MiB)
MESSAGE: Final = 8192
_CONTENT_LENGTH: Final = b"\ncontent-length:"
_LONGEST: Final = 14  # octets of a head
_MASKED: Final = 0x80
_LENGTH: Final = 0x7F
_OF_TWO, _OF_EIGHT = 126, 127  # what stands for a length of 2 or 8 octets
_TEXT, _BINARY = 0x81, 0x82  # FIN and the opcode: a message of one frame, not compressed
_SIMPLE: Final = frozenset((_TEXT, _BINARY))
_WHOLE: Final = struct.Struct(">BBH4s")  # a head whose length has two octets
_HEAD: Final = 6  # octets of a masked head whose length has seven bits
_LONG_HEAD: Final = 8  # and of one where two octets more have it
_MASK: Final = 4  # octets of each, the last ones
_SOME: Final = 16  # messages that are looked at for whether they begin alike
_LONG: Final = _MASKED | _OF_TWO  # the second octet of such a head


class Whole(NamedTuple):
    """Messages that were taken out: where what comes after them begins, how many `messages`, their payloads joined, and whether the last
    was text."""

    stop: int
    messages: int
    payload: bytes
    is_text: bool


def whole_messages(data: bytes, at: int, most: int, limit: int) -> Whole:
    """Takes up to `most` messages from data[at:] that are whole, of one frame with at most `limit` and 65,535 octets, and UTF-8 where
    they are text. `at` is where a frame begins, and no message is in progress (RFC 6455, 5.4). It stops before the first that is anything
    else."""
    begin, size = at, len(data)
    payloads: list[bytes] = []
    is_text = has_text = False
    step = 0  # octets of the message before, with its head
    unpack, unmasked = _WHOLE.unpack_from, _apply_mask
    while len(payloads) < most and at + _HEAD <= size:
        if at + _LONG_HEAD <= size:
            kind, mark, length, mask = unpack(data, at)
            start = at + _LONG_HEAD
        else:  # a last one of one octet or none, as a heart-beat; a longer one is not whole
            kind, mark, length, mask, start = data[at], data[at + 1], size, b"", at + 1
        if mark != _LONG:
            length, start = mark - _MASKED, at + _HEAD
            mask = data[at + 2 : start]
        stop = start + length
        if kind not in _SIMPLE or not _MASKED <= mark <= _LONG or stop > size or length > limit:
            break
        payloads.append(unmasked(data[start:stop], mask))
        is_text = kind == _TEXT
        has_text = has_text or is_text
        is_again, step, at = stop - at == step, stop - at, stop
        if is_again:
            stop += step * _alike(data, at, step, most - len(payloads))
            form = f"{step - _MASK - length}x{_MASK}s{length}s"
            payloads += [unmasked(payload, mask) for mask, payload in struct.iter_unpack(form, data[at:stop])]
            at = stop
    payload = b"".join(payloads)
    if has_text and not payload.isascii():
        return _valid(data, begin, payloads)
    return Whole(at, len(payloads), payload, is_text)


def _alike(data: bytes, at: int, step: int, most: int) -> int:
    """How many messages from data[at:] on, of `most`, are as long as the one before, which has `step` octets, and begin alike but for their
    masks. Each octet of the heads is looked at in all of them at once, in portions that grow: where few are alike little was looked at."""
    first = data[at - step : at]
    head = first[: (_LONG_HEAD if first[1] == _LONG else _HEAD) - _MASK]
    most = min(most, (len(data) - at) // step)
    count, some = 0, _SOME
    while count < most:
        some = min(some, most - count)
        stop = at + some * step
        same = some
        for column, octet in enumerate(head):
            same = min(same, some - len(data[at + column : stop : step].lstrip(bytes((octet,)))))
        count += same
        if same < some:
            break
        at, some = stop, some * 8
    return count


def _valid(data: bytes, at: int, payloads: list[bytes]) -> Whole:
    """As many of these messages, which begin at data[at], as stand before the first text that is not UTF-8."""
    count, is_text = 0, False
    for payload in payloads:
        is_next_text = data[at] == _TEXT
        if is_next_text and not is_utf8(payload):
            break
        is_text = is_next_text
        at += len(payload) + (_LONG_HEAD if data[at + 1] == _LONG else _HEAD)
        count += 1
    return Whole(at, count, b"".join(payloads[:count]), is_text)


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


def messages(data: bytes) -> Iterator[bytes]:
    """`data` cut between frames, so that none has several frames in more than MESSAGE octets. A frame is not cut."""
    start = at = 0
    size = len(data)
    while size - start > MESSAGE and at < size:
        head = data.find(b"\n\n", at)
        last, length = _last_line(data, at, head)
        stop = head + 2 + length if length >= 0 else data.find(b"\0", head + 2)
        # NUL and LF; or all: a piece of a large frame
        end = stop + 2 if head >= 0 and 0 <= stop < size - 2 else size
        if end - start > MESSAGE and at > start:
            yield data[start:at]
            start = at
        at = end
        if last:
            at = _behind_alike(data, at, min(start + MESSAGE, size), last, length)
    yield data[start:]


def _behind_alike(data: bytes, at: int, until: int, last: bytes, length: int) -> int:
    """Where the frames end that begin at data[at:], are whole before `until`, and whose heads end with the line `last`: most of a stream
    are as long as the one before, and no more is looked at of them than that."""
    find, startswith = data.find, data.startswith
    before, behind = len(last), 2 + length + 2  # LF and LF, the body, NUL and LF
    head = find(b"\n\n", at)
    while head - before > at and startswith(last, head - before) and head + behind <= until:
        at = head + behind
        head = find(b"\n\n", at)
    return at


def _last_line(data: bytes, at: int, head: int) -> tuple[bytes, int]:
    """The last header line of the frame at `at`, whose head ends at `head`, if it says the length of the body; and that length, which
    another line may say; -1: none does."""
    line = data.rfind(b"\n", at, head)
    is_last = data.startswith(_CONTENT_LENGTH, line)
    if not is_last:  # which it is but for what a transformer made
        line = data.find(_CONTENT_LENGTH, at, head)
    counted = data[line + 16 : data.find(b"\n", line + 1)] if line >= 0 else b""
    if not counted.isdigit():
        return b"", -1
    return data[line:head] if is_last else b"", int(counted)


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

    @property
    def is_within(self) -> bool:
        """Whether what comes next is the rest of a payload."""
        return self._left > 0

    def portion(self, data: bytes, start: int, most: int, limit: int) -> tuple[int, int, int]:
        """Where the frame that has begun before data[start:] ends, and the first `most` that begin there, or what is there of them; how
        many begin; the longest payload. One whose payload is longer than `limit` is left to the next portion: what came before it is
        obeyed first."""
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
