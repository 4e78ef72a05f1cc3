"""Frames in the log: each before it is obeyed, or as it goes, with its secrets starred out.

All of them where the logger `stompbox.frames` is enabled for DEBUG, and those that an operator asks for at whatever level: of one
connection, of a user, of a client's address (the peer), or those that name an address of the broker. What is not asked for costs one look
at each read and each write. A connection is followed from a read or write that begins with a frame on.

A frame that is refused before its end is logged as far as it came. Of a body LOGGED octets are kept and of a head MOST_HEAD: what is
larger is counted, not held. This file looks at octets and knows no rules of STOMP but where a frame ends, so that what is malformed is
shown, too.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from stompbox.config.matching import Words, is_match
from stompbox.errors import StompboxError
from stompbox.stomp.frames import STARS, is_secret

if TYPE_CHECKING:
    from stompbox.server.addressing.sender import Sender
    from stompbox.server.session.core import SessionCore

log = logging.getLogger("stompbox.frames")

# octets of a body: with its head they fill a line of the log (cli/logs.py has 2000 characters)
LOGGED: Final = 512
# octets of what has come that are logged and obeyed in one step: fifty frames at the most, each of which is an entry of the log
SHOWN: Final = 512
# octets of a head that has no end yet; more are no frame, and followed no further
MOST_HEAD: Final = 256 << 10
_EOLS: Final = b"\r\n"  # between frames, heart-beats among them
_HEAD_END: Final = re.compile(rb"\n\r?\n|\0")
_LENGTH: Final = re.compile(rb"\ncontent-length[ \t]*:[ \t]*([0-9]{1,18})[ \t]*\r?\n")
_DESTINATION: Final = re.compile(rb"\ndestination[ \t]*:([^\r\n]*)")
_ESCAPES: Final = {b"\\c": b":", b"\\\\": b"\\", b"\\n": b"\n", b"\\r": b"\r"}
_STARS: Final = STARS.encode()
_AROUND: Final = b" \t\r\0"


class By(Enum):
    """By what an operator chooses the frames that are logged."""

    CONNECTION = "connection"
    USER = "user"
    PEER = "peer"
    ADDRESS = "address"


@dataclass(frozen=True, slots=True)
class Wish:
    by: By
    value: str  # of ADDRESS also a pattern

    def is_of(self, connection: Sender) -> bool:
        """Whether frames of this connection may be meant."""
        found = {
            By.CONNECTION: str(connection.session_id),
            By.USER: connection.user.name,
            By.PEER: connection.peer,
        }
        return self.by is By.ADDRESS or found[self.by] == self.value


class FrameLogs:
    """The broker knows here which frames are wished to be logged, and follows connections because of it."""

    def __init__(self, broker: SessionCore) -> None:
        self.broker = broker
        self.wishes: dict[Wish, None] = {}

    def look(self, connection: Sender) -> None:
        """Follows a connection, or no longer. To be called when it comes, when its user is known, and when wishes change."""
        wishes = [wish for wish in self.wishes if wish.is_of(connection)]
        if not wishes and not log.isEnabledFor(logging.DEBUG):
            connection.frames = None
            return
        addresses = None
        if not log.isEnabledFor(logging.DEBUG) and all(wish.by is By.ADDRESS for wish in wishes):
            addresses = [self.broker.engine.wildcards.match_words(wish.value) for wish in wishes]
        if connection.frames is None:
            connection.frames = FrameLog(connection)
        connection.frames.addresses = addresses

    def leave(self, connection: Sender) -> None:
        """A connection is gone, and with it the wish to see its frames: no other will have its number."""
        self.wishes.pop(Wish(By.CONNECTION, str(connection.session_id)), None)

    def look_again(self) -> None:
        for connection in self.broker.connections:
            self.look(connection)

    def add(self, wish: Wish) -> None:
        self.wishes[wish] = None
        self.look_again()

    def remove(self, wish: Wish | None) -> None:
        """Takes a wish back; None: all of them."""
        if wish is None:
            self.wishes.clear()
        else:
            self.wishes.pop(wish, None)
        self.look_again()

    def listed(self) -> list[dict[str, str]]:
        return [{"by": wish.by.value, "value": wish.value} for wish in self.wishes]


class FrameLog:
    """The log of one connection's frames. `addresses`: only frames that name one of these patterns; None: all."""

    def __init__(self, connection: Sender) -> None:
        self.connection = connection
        self.addresses: list[Words] | None = None
        self._in: Frames | None = None  # None: the next read may begin within a frame
        self._out: Frames | None = None

    def came(self, data: bytes) -> None:
        if self._in is None:
            connection = self.connection
            if connection.decoder.pending or connection.upload is not None:
                return
            self._in = Frames()
        for head, body, size in self._in.take(data):
            self._write("IN", head, body, size)

    def goes(self) -> None:
        """What goes out from here on begins with a frame."""
        if self._out is None:
            self._out = Frames()

    def went(self, data: bytes) -> None:
        if self._out is None:
            return
        for head, body, size in self._out.take(data):
            is_refused = head.startswith(b"ERROR") and self.connection.is_ended
            if is_refused and self._in is not None and (begun := self._in.begun()) is not None:
                self._write("IN", *begun)  # for its end nobody waits any more
            self._write("OUT", head, body, size)

    def _write(self, way: str, head: bytes, body: bytes, size: int) -> None:
        if self.addresses is not None and not self._is_meant(head):
            return
        rest = f" ... {size - len(body)} more octets of the body" if size > len(body) else ""
        text = (masked(head) + (_STARS if body and is_login(head) else body)).decode(
            "utf-8", "backslashreplace"
        )
        level = log.getEffectiveLevel()  # what an operator asks for is said whatever the level
        level = logging.DEBUG if level <= logging.DEBUG else max(level, logging.INFO)
        connection = self.connection
        marks = {"connection": connection.session_id, "user": connection.user.name}
        log.log(level, "%s %s: %s%s", connection.name, way, text, rest, extra=marks)

    def _is_meant(self, head: bytes) -> bool:
        found = _DESTINATION.search(head)
        if found is None:
            return False
        text = re.sub(rb"\\[cnr\\]", lambda escape: _ESCAPES[escape[0]], found[1]).decode("utf-8", "replace")
        try:
            destinations = self.connection.names.parse(text, None)
        except StompboxError:
            return False
        assert self.addresses is not None
        split = self.connection.broker.engine.wildcards.split
        return any(
            is_match(pattern, split(one.address)) for pattern in self.addresses for one in destinations
        )


class Frames:
    """Octets of one direction, as they come, and whole frames out of them: head, the beginning of the body, and the body's size."""

    def __init__(self) -> None:
        self._head = b""  # of an unfinished frame
        self._body: bytearray | None = None  # what is kept of it; None: the head has not ended
        self._size = 0
        self._left = -1  # octets of the body to come; -1: up to a NUL
        self._is_lost = False

    def take(self, data: bytes) -> Iterator[tuple[bytes, bytes, int]]:
        at = 0
        while at < len(data) and not self._is_lost:
            if self._body is None:
                at = self._read_head(data, at)
            elif self._left:
                at = self._read_body(data, at)
            if self._body is not None and self._left == 0 and at < len(data):
                # the NUL behind a counted body, or what stands there
                at += 1
                yield self._done()
            elif self._left == -2:
                yield self._done()

    def begun(self) -> tuple[bytes, bytes, int] | None:
        """What has come of a frame whose end has not; what follows is no part of a frame."""
        if self._is_lost or not self._head:
            return None
        self._is_lost = True
        return self._head, bytes(self._body or b""), self._size

    def _read_head(self, data: bytes, at: int) -> int:
        if not self._head:
            while at < len(data) and data[at] in _EOLS:
                at += 1
        kept = len(self._head)
        if kept:  # the end of the head may be cut in two
            data, at = self._head + data[at:], 0
        found = _HEAD_END.search(data, max(at, kept - 2))
        if found is None:
            self._head = data[at : at + MOST_HEAD]
            self._is_lost = len(self._head) == MOST_HEAD
            return len(data) - kept
        self._head = data[at : found.end()]
        self._body = bytearray()
        length = _LENGTH.search(self._head)
        self._left = -2 if found[0] == b"\0" else -1 if length is None else int(length[1])
        return found.end() - kept

    def _read_body(self, data: bytes, at: int) -> int:
        assert self._body is not None
        if self._left > 0:
            stop = end = min(len(data), at + self._left)
            self._left -= stop - at
        else:
            nul = data.find(b"\0", at)
            stop, end = (nul, nul + 1) if nul >= 0 else (len(data), len(data))
            if nul >= 0:
                self._left = -2
        self._size += stop - at
        self._body += data[at : min(stop, at + LOGGED - len(self._body))]
        return end

    def _done(self) -> tuple[bytes, bytes, int]:
        assert self._body is not None
        frame = self._head, bytes(self._body), self._size
        self._head, self._body, self._size, self._left = b"", None, 0, -1
        return frame


def masked(head: bytes) -> bytes:
    """A head without its secrets: the values of headers whose names say that they are some, however they are written, and of a CONNECT
    also of those whose values do, and whatever is no header, because it may be the rest of one."""
    first, *lines = head.split(b"\n")
    shown = first if first.strip(_AROUND).isalpha() else _STARS
    return b"\n".join([shown, *[_masked(line, hides_rest=is_login(head)) for line in lines]])


def is_login(head: bytes) -> bool:
    """Whether it brings a passcode, as far as one can tell of what may be malformed."""
    return head.partition(b"\n")[0].strip(_AROUND).upper() in (b"CONNECT", b"STOMP")


def _masked(line: bytes, *, hides_rest: bool) -> bytes:
    name, colon, _ = line.partition(b":")
    if colon and (name.strip(_AROUND) or not hides_rest):
        return name + colon + _STARS if is_secret(line if hides_rest else name) else line
    is_hidden = bool(line.strip(_AROUND)) and (hides_rest or is_secret(line))
    return _STARS if is_hidden else line
