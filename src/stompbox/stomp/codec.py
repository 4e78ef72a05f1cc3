r"""Bytes to frames and frames to bytes, for both ends, in all three versions.

    stream  = *( EOL / NUL / frame )            NULs between frames are skipped: RabbitMQ does, and clients send them
    frame   = command EOL *( header EOL ) EOL body NUL
    EOL     = [CR] LF                           1.0 and 1.1 say LF only; telnet users get their CR LF (one CR is dropped)
    header  = name ":" value                    the name 1*octet, the value any; more colons belong to the value
    body    = *octet                            content-length octets, or all up to the first NUL

What is accepted beyond the texts: CR LF and an unescaped colon in every version, empty values in 1.0, blanks around the
number of content-length, content-length on every frame (a 1.2 rule; without `counts_control` on SEND alone), NULs between
frames. What is refused, by FrameError and then the close: an unknown command, a line without colon, an empty name, an
undefined escape, octets that are not UTF-8, a NUL in a header, in 1.2 a CR that is not part of a line end, a
content-length that is no number, no NUL after the counted octets, and all that is beyond a limit. Nothing is repaired,
and a fault is the same fault however the bytes were cut into pieces.

CONNECT, STOMP and CONNECTED are never unescaped or escaped (STOMP 1.2, Value Encoding), nor trimmed if they name a version.
What is written can always be read: what a version has no form for is spelled out, a body with a NUL gets content-length.
A SEND whose body has `large_from` octets or more comes in pieces (large.py), however the bytes were cut.
A frame's other rules, required headers and order, are not decided here but in session.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from itertools import chain
from typing import Final, Generic, Never, Protocol, TypeVar

from stompbox.errors import FrameError, UsageError
from stompbox.stomp.frames import (
    CLIENT_COMMANDS,
    CONTROL_COMMANDS,
    RAW_COMMANDS,
    SECRET_HEADERS,
    SERVER_COMMANDS,
    STARS,
    Frame,
    content_length,
    is_secret,
)
from stompbox.stomp.large import Body, Ending, Opening, Piece
from stompbox.stomp.versions import V10, Version

_ESCAPE: Final = re.compile(rb"\\(.?)", re.DOTALL)
_UNSPEAKABLE: Final = re.compile(r"[\0\r\n\ud800-\udfff]")  # in a header that is not escaped
_EMPTY_LINE: Final = re.compile(rb"\n\r?\n")
_EMPTY: Final = re.compile(rb"[\r\n\0]*")  # what is between frames, and CRs that are no EOL's
_RECEIPT: Final = re.compile(rb"\nreceipt:([^\n]*?)\r?(?=\n|\Z)")
_LF, _CR, _NUL = 10, 13, 0
_NO_FORM: Final = "\ufffd"
# octets of a counted body from which on it is put where it stays as it comes: to copy megabytes at its end would hold others up
GATHERED_FROM: Final = 64 * 1024
# octets of such a body for which there is room at first, and from when these have come; beyond that it grows with what comes
FIRST_ROOM: Final = 256 * 1024
LAST_ROOM: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class FrameLimits:
    """STOMP 1.2, Size Limits: a server may limit what a frame allocates. Octets, except `headers`."""

    head: int = 64 * 1024  # command and headers together
    headers: int = 1000
    body: int = 100 * 1024 * 1024
    control: int = 64 * 1024  # the body of a client's frame that is no SEND
    before_login: int = 64 * 1024  # a whole frame, while nobody knows who is talking


Single = Frame | Opening | Piece | Ending
"""What comes one by one: a frame, or a part of one whose body is large."""
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class RunReader(Protocol[R_co]):
    """Reads what comes in runs (runs.py): SEND and ACK frames that look alike."""

    def read(self, buffer: bytes, position: int) -> tuple[R_co, int] | None:
        """The run that begins at `position` and where it ends, or None: then the frame is read the careful way."""

    def learn(self, head: bytes, frame: Frame) -> None:
        """Told of each SEND that was read the careful way."""


@cache
def _by_octets(commands: frozenset[str]) -> Mapping[bytes, str]:
    """The commands by their octets, once for all decoders."""
    return {command.encode(): command for command in commands}


class Gathering:
    """A frame whose counted body comes in many reads: `head` is its command and headers as they came, `frame` the same without the body.
    Who only announces it is given little room."""

    __slots__ = ("_body", "_room", "came", "frame", "head", "length")

    def __init__(self, head: bytes, frame: Frame, length: int) -> None:
        self.head = head
        self.frame = frame
        self.length = length
        self.came = 0
        self._room = 0
        self._body = BytesIO()

    def take(self, data: bytes, position: int) -> int:
        """Takes what `data` has of the body from `position` on, and returns where that ends."""
        end = min(len(data), position + self.length - self.came)
        if self.came + end - position > self._room < LAST_ROOM:
            self._move(self.came + end - position)
        with memoryview(data) as view:
            self._body.write(view[position:end])
        self.came += end - position
        return end

    def _move(self, size: int) -> None:
        self._room = min(self.length, FIRST_ROOM if size <= FIRST_ROOM else LAST_ROOM)
        # nobody else has these octets, so that they are written in place, and handed over in the end
        larger = BytesIO(bytes(self._room))
        with self._body.getbuffer() as view:
            larger.write(view[: self.came])
        self._body = larger

    def whole(self) -> Frame:
        """The frame with its body, which is not copied."""
        return Frame(self.frame.command, self.frame.headers, self._body.getvalue())


class Decoder(Generic[R]):
    """Feed bytes, take frames, and runs of them (R) where there is a reader for those.

    `version` may change between two frames: a CONNECT decides how the next one reads.

    Never rescans, whatever the pieces: time is linear in the bytes fed. What `receive` returns must be taken to its end
    before the next call. After an error it must not be fed again.
    """

    __slots__ = (
        "_body", "_body_at", "_gathering", "_most", "_needed", "_rest", "_seen", "_streams_at", "commands", "counts_control",
        "large_from", "limits", "logged_in", "may_stream", "runs", "version",
    )  # fmt: skip

    def __init__(
        self, commands: frozenset[str] = CLIENT_COMMANDS, limits: FrameLimits = FrameLimits()
    ) -> None:
        self.commands = _by_octets(commands)
        self.limits = limits
        self.version: Version = V10
        self.counts_control = True  # content-length counts on a client's frame that is no SEND, too
        self.runs: RunReader[R] | None = None
        self.large_from = 0  # octets from which on the body of a SEND comes in pieces; 0: never
        # unless its headers say that it is wanted whole
        self.may_stream: Callable[[Mapping[str, str]], bool] = lambda _: True
        self.logged_in = commands == SERVER_COMMANDS  # a client has no stranger in front of it
        self._rest = bytearray()
        # octets of _rest in which the search for the end of the head, or for the NUL, was in vain
        self._seen = 0
        self._needed = 0  # octets that _rest must have before another look is worth while
        # where the body in _rest begins, when the search is for its NUL; 0: the head is not complete
        self._body_at = 0
        self._most = 0  # octets that this body may have
        self._streams_at = 0  # octets of _rest from which on that body is large
        self._body: Body | None = None  # the large body that it is in the middle of
        # the frame whose body it is in the middle of, and which goes on whole
        self._gathering: Gathering | None = None

    def receive(self, data: bytes) -> Iterator[Single | R]:
        """Yields each frame (or run, where `runs` is set; or what large.py has) that `data` completes. Raises FrameError at the
        first fault."""
        if not self._rest:
            if self.runs is None or self._body is not None or self._gathering is not None or not data:
                return self._frames(data)
            found = self.runs.read(data, 0)
            if found is None:
                return self._frames(data, looked_at=0)
            event, position = found
            if position == len(data):  # most reads of who sends one message at a time
                return iter((event,))
            return chain((event,), self._frames(data, position))
        self._rest += data
        if not self._is_worth_a_look():
            return iter(())
        whole = bytes(self._rest)
        self._rest.clear()
        return self._frames(whole)

    @property
    def is_between_frames(self) -> bool:
        """Nothing of a frame has come that is not complete."""
        return not self._rest and self._body is None and self._gathering is None

    @property
    def pending(self) -> int:
        """How many octets of an unfinished frame have come, and are kept here."""
        gathering = self._gathering
        return len(self._rest) + (0 if gathering is None else len(gathering.head) + gathering.came)

    def _is_worth_a_look(self) -> bool:
        rest = self._rest
        if len(rest) < self._needed:
            return False
        if self._needed:
            return True
        found = rest.find(_NUL, self._seen) >= 0 or (
            not self._body_at and _head_end(rest, max(0, self._seen - 2))[0] >= 0
        )
        self._seen = len(rest)
        if found:
            return True
        if self._body_at:
            self._refuse_body(len(rest) - self._body_at, self._most)
            return 0 < self._streams_at <= len(rest)
        self._refuse_head(_least_head(rest, 0, len(rest)))
        return False

    def _refuse_body(self, size: int, limit: int) -> None:
        if size > limit:
            raise FrameError(
                "body-too-large", f"a body without content-length went beyond the limit of {limit} octets"
            )

    def _refuse_head(self, size: int) -> None:
        limit = self.limits.head if self.logged_in else min(self.limits.head, self.limits.before_login)
        if size > limit:
            raise FrameError(
                "header-too-large", f"command and headers of a frame went beyond the limit of {limit} octets"
            )

    def _body_limit(self, command: str, head: int) -> int:
        most = min(self.limits.body, self.limits.control) if command in CONTROL_COMMANDS else self.limits.body
        return most if self.logged_in else min(most, max(0, self.limits.before_login - head))

    def _frames(self, data: bytes, position: int = 0, *, looked_at: int = -1) -> Iterator[Single | R]:
        """What is in `data` from `position` on. `looked_at`: no run begins there."""
        size = len(data)
        if self._body is not None:
            position = yield from self._go_on(self._body, data, 0)
        if self._gathering is not None:
            position = self._gathering.take(data, position)
            if position == size:
                return
            yield self._gathered(self._gathering, data[position])
            position += 1
        while position < size:
            octet = data[position]
            if octet in (_LF, _NUL):
                position = _after_empty(data, position)
                continue
            if octet == _CR and data[position : position + 2] in (b"\r\n", b"\r"):
                if position + 1 == size:
                    self._keep(data, position, needed=2)
                    return
                position = _after_empty(data, position)
                continue
            runs = self.runs if position != looked_at else None
            if runs is not None and (found := runs.read(data, position)) is not None:
                event, position = found
                yield event
                continue
            taken = self._frame(data, position)
            if taken is None:
                return
            frame, position = taken
            yield frame
            if self._body is not None:
                position = yield from self._go_on(self._body, data, position)

    def _gathered(self, gathering: Gathering, last: int) -> Frame:
        """The frame whose body has come, with the octet that follows it."""
        self._gathering = None
        if last != _NUL:
            raise self._of_frame(_missing_nul(gathering.length), gathering.head)
        # nothing is learned of it: beside a body of this size a head costs nothing
        return gathering.whole()

    def _go_on(self, body: Body, data: bytes, position: int) -> Generator[Piece | Ending, None, int]:
        """What `data` has of a large body from `position` on, and where the next frame begins."""
        if body.left is None:
            stop = data.find(_NUL, position)
            end = stop if stop >= 0 else len(data)
            self._refuse_body(body.came + end - position, body.limit)
        else:
            end = min(len(data), position + body.left)
            body.left -= end - position
        body.came += end - position
        if end > position:
            yield Piece(data[position:end])
        if end == len(data):
            return end
        if data[end] != _NUL:
            raise _missing_nul(body.came)
        self._body = None
        yield Ending()
        return end + 1

    def _keep(
        self,
        data: bytes,
        position: int,
        *,
        needed: int = 0,
        body_at: int = 0,
        most: int = 0,
        streams_at: int = 0,
    ) -> None:
        self._rest[:] = memoryview(data)[position:]
        self._seen = len(self._rest)
        self._needed = needed
        self._body_at = body_at
        self._most = most
        self._streams_at = streams_at

    def _frame(self, data: bytes, position: int) -> tuple[Frame | Opening, int] | None:
        """The frame at `position` and where the next begins; None when octets are missing (they are kept). Of a large one the opening,
        and where its body begins."""
        end, body_at = _head_end(data, position)
        nul = data.find(_NUL, position, len(data) if end < 0 else end)
        if nul >= 0:
            self._refuse_head(_least_head(data, position, nul))
            text = f"a NUL octet before the empty line that ends the headers, {nul - position} octets into the frame"
            raise self._of_frame(FrameError("nul-in-header", text), data[position:nul])
        if end < 0:
            self._refuse_head(_least_head(data, position, len(data)))
            self._keep(data, position)
            return None
        self._refuse_head(end - position)
        head = data[position:end]
        try:
            command, headers = parse_head(head, self.version, self.commands, self.limits.headers)
            streams = self.large_from > 0 and command == "SEND" and self.may_stream(headers)
            limit = self._body_limit(command, body_at - position)
            counts = self.counts_control or command not in CONTROL_COMMANDS
            length = content_length(headers) if counts else None
            stop = self._body_end(data, position, body_at, length, limit=limit, streams=streams)
        except FrameError as error:
            raise self._of_frame(error, head) from None
        if stop is None:
            return None if self._body is None else (Opening(Frame(command, headers)), body_at)
        if stop >= len(data):
            self._gathering = Gathering(head, Frame(command, headers), stop - body_at)
            self._gathering.take(data, body_at)
            return None
        frame = Frame(command, headers, data[body_at:stop])
        if self.runs is not None and command == "SEND":
            self.runs.learn(head, frame)
        return frame, stop + 1

    def _of_frame(self, error: FrameError, head: bytes) -> FrameError:
        """The error with the receipt that its frame asks for: the ERROR names it (STOMP 1.2, ERROR: SHOULD)."""
        with suppress(FrameError, UnicodeDecodeError):  # one that cannot be read is not repeated
            for asked in _RECEIPT.findall(head)[:1]:
                error.receipt = (
                    unescape(asked, self.version, "").decode().strip(" \t" if self.version.trims else "")
                )
        return error

    def _body_end(
        self,
        data: bytes,
        position: int,
        body_at: int,
        length: int | None,
        *,
        limit: int,
        streams: bool,
    ) -> int | None:
        """Where the NUL stands that ends the frame, or (of a body that is gathered) will stand, beyond `data`; None when it has not come
        yet, or the body comes in pieces (`_body`)."""
        if length is None:
            stop = data.find(_NUL, body_at)
            size = (stop if stop >= 0 else len(data)) - body_at
            self._refuse_body(size, limit)
            if streams and size >= self.large_from:
                self._body = Body(None, limit)
                return None
            if stop < 0:
                head = body_at - position
                self._keep(
                    data,
                    position,
                    body_at=head,
                    most=limit,
                    streams_at=head + self.large_from if streams else 0,
                )
                return None
            return stop
        if length > limit:  # refused at its announcement, not after reading it
            raise FrameError(
                "body-too-large", f"content-length {length} is above the limit of {limit} octets"
            )
        if streams and length >= self.large_from:
            self._body = Body(length, limit)
            return None
        # STOMP 1.2, Header content-length: that many octets MUST be read, NULs or not
        stop = body_at + length
        if stop >= len(data):
            if length >= GATHERED_FROM:
                return stop
            self._keep(data, position, needed=stop + 1 - position)
            return None
        if data[stop] != _NUL:  # STOMP 1.2: "the frame still needs to be terminated with the NULL octet"
            raise _missing_nul(length)
        return stop


def faulty(error: Exception) -> Iterator[Never]:
    """What a decoder gives that finds a fault, or has one, before anything else."""
    raise error
    yield


def _after_empty(data: bytes, position: int) -> int:
    """Past the EOLs and NULs that are at `position`. A pattern with two ways for each EOL takes a millisecond for 64 KiB of them."""
    found = _EMPTY.match(data, position)
    stop = found.end() if found is not None else position
    if data.find(b"\r", position, stop) >= 0:
        lone = data[position:stop].replace(b"\r\n", b"\n\n").find(b"\r")
        if lone >= 0:
            return position + lone
    return stop


def _missing_nul(length: int) -> FrameError:
    return FrameError("missing-nul", f"no NUL octet after the {length} octets that content-length announced")


def _head_end(data: bytes | bytearray, position: int) -> tuple[int, int]:
    """Where the last header line ends (its EOL excluded) and where the body begins; (-1, -1) when the head is not complete."""
    found = _EMPTY_LINE.search(data, position)
    return found.span() if found else (-1, -1)


def _least_head(data: bytes | bytearray, position: int, stop: int) -> int:
    """Octets that the head has at least, when data[position:stop] has no empty line yet: what may be the end of it does not count."""
    if data.endswith(b"\n", position, stop):
        return stop - position - 1
    return stop - position - (2 if data.endswith(b"\n\r", position, stop) else 0)


def parse_head(
    head: bytes, version: Version, commands: Mapping[bytes, str], most: int
) -> tuple[str, dict[str, str]]:
    """Command and headers of a frame; `head` ends before the EOL of its last line."""
    line, _, rest = head.partition(b"\n")
    word = _without_cr(line)
    command = commands.get(word)
    if command is None:  # case-sensitive, exact
        raise FrameError(
            "unknown-command",
            f"unknown command {_shown(word)}; known are {', '.join(sorted(commands.values()))}",
        )
    count = head.count(b"\n")
    if count > most:
        raise FrameError("too-many-headers", f"{count} headers in a {command} frame; the limit is {most}")
    if not count:
        return command, {}
    raw = command in RAW_COMMANDS
    escaped = not raw and bool(version.escapes) and b"\\" in head
    headers = None if escaped or b"\r" in rest else _plain_headers(rest)
    if headers is None:
        headers = {}
        for line in rest.split(b"\n"):
            name, value = _header(_without_cr(line), command, version, escaped=escaped)
            headers.setdefault(name, value)  # STOMP 1.2, Repeated Header Entries: the first one counts
    if version.trims and not (raw and ("version" if command == "CONNECTED" else "accept-version") in headers):
        # STOMP 1.1: never trim
        headers = {name: value.strip(" \t") for name, value in headers.items()}
    return command, headers


def _plain_headers(text: bytes) -> dict[str, str] | None:
    """The headers of lines without escapes and CR, decoded in one go; None when a line is at fault: _header says which and why."""
    try:
        lines = text.decode().split("\n")
    except UnicodeDecodeError:
        return None
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not (name and colon):
            return None
        if name not in headers:
            headers[name] = value
    return headers


def _header(line: bytes, command: str, version: Version, *, escaped: bool) -> tuple[str, str]:
    name, colon, value = line.partition(b":")
    if not colon:
        raise FrameError(
            "header-without-colon",
            f"header line {_shown_of(command, line)} of a {command} frame has no colon",
        )
    if not name:
        raise FrameError(
            "empty-header-name",
            f"header line {_shown_of(command, line)} of a {command} frame has no name before its colon",
        )
    if not version.bare_cr and b"\r" in line:
        raise FrameError(
            "bare-cr", f"header {_shown(name)} of a {command} frame holds a CR that is not escaped as \\r"
        )
    if escaped:
        name, value = unescape(name, version, command), unescape(value, version, command, name)
    try:
        return name.decode(), value.decode()
    except UnicodeDecodeError:
        raise FrameError("not-utf-8", f"header {_shown(name)} of a {command} frame is not UTF-8") from None


def _without_cr(line: bytes) -> bytes:
    return line[:-1] if line.endswith(b"\r") else line


def _shown_of(command: str, line: bytes) -> str:
    """What stands in a CONNECT and is no header may be the rest of a passcode."""
    return repr(STARS) if command in RAW_COMMANDS else _shown(line)


def _shown(octets: bytes) -> str:
    """For error texts: at most 80 characters, controls made visible; nothing of what tells a secret."""
    if is_secret(octets):
        return repr(STARS)
    return repr(octets[:80].decode("utf-8", "backslashreplace")) + ("…" if len(octets) > 80 else "")


def unescape(text: bytes, version: Version, command: str, name: bytes = b"") -> bytes:
    """STOMP 1.1 and 1.2, Value Encoding: undefined escape sequences MUST be treated as a fatal protocol error. `name`: of whose value."""
    if b"\\" not in text:
        return text
    found = text.replace(b"\\\\", b"\0")  # for a backslash, until the others are found: no head has a NUL
    for after, meant in version.escapes.items():
        found = found.replace(b"\\" + after, meant)
    if version.escapes and b"\\" not in found:
        return found.replace(b"\0", b"\\")
    undefined = next(match[0] for match in _ESCAPE.finditer(text) if match[1] not in version.escapes)
    shown = repr(STARS) if is_secret(name) else _shown(text)
    raise FrameError(
        "undefined-escape",
        f"undefined escape {_shown(undefined)} in {shown} of a {command} frame in STOMP {version.name}",
    )


def escape(text: str, version: Version, *, is_name: bool = False) -> str:
    r"""What stands for `text` in a header of this version; what the version has no form for is spelled out (`\n`), never raw."""
    if not version.escapes:
        if "\n" in text:
            text = text.replace("\n", "\\n")
        if is_name and ":" in text:
            text = text.replace(":", "\\c")
        return text[:-1] + "\\r" if text.endswith("\r") else text
    if "\\" in text:
        text = text.replace("\\", "\\\\")
    if "\r" in text:
        if b"r" in version.escapes:
            text = text.replace("\r", "\\r")
        elif text.endswith("\r"):
            # 1.1 has no escape for CR: raw inside, but at the end it would be taken for a line end
            text = text[:-1] + "\\\\r"
    if "\n" in text:
        text = text.replace("\n", "\\n")
    return text.replace(":", "\\c") if ":" in text else text


def encode_headers(headers: Mapping[str, str], version: Version) -> bytes:
    """`name:value` lines, each with its LF, escaped for `version`. What no header can hold is written as U+FFFD: a NUL, an empty name."""
    lines = "".join(
        [
            f"{escape(name, version, is_name=True) or _NO_FORM}:{escape(value, version)}\n"
            for name, value in headers.items()
        ]
    )
    return (lines.replace("\0", _NO_FORM) if "\0" in lines else lines).encode("utf-8", "replace")


def _raw_headers(frame: Frame) -> bytes:
    """STOMP 1.2, Value Encoding: CONNECT and CONNECTED do not escape, so some texts have no form in them."""
    for name, value in frame.headers.items():
        if not name or ":" in name or _UNSPEAKABLE.search(name + value):
            shown = "" if name in SECRET_HEADERS else f" with the value {value[:80]!r}"
            raise UsageError(
                "unencodable-header",
                f"header {name!r}{shown} has no form in a {frame.command} frame, which cannot escape",
            )
    return "".join([f"{name}:{value}\n" for name, value in frame.headers.items()]).encode()


def encode(frame: Frame, version: Version) -> bytes:
    """The whole frame with its NUL and, as other brokers do, one LF after it. content-length is the caller's to put in.

    Raises UsageError when a header of CONNECT, STOMP or CONNECTED would have to be escaped.
    """
    head = _raw_headers(frame) if frame.command in RAW_COMMANDS else encode_headers(frame.headers, version)
    if frame.body and "content-length" not in frame.headers and b"\0" in frame.body:
        # STOMP 1.2, Header content-length: a body with a NUL MUST have it
        head += b"content-length:%d\n" % len(frame.body)
    return b"%b\n%b\n%b\0\n" % (frame.command.encode(), head, frame.body)
