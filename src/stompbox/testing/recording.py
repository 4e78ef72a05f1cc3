"""What clients and the broker have said to each other, frame by frame, as values that a test compares.

Frames are read here a second time, by decoders that belong to nobody: the broker obeys what it obeys, whatever is recorded. A frame that
is malformed ends the record of what its connection says; the ERROR that it gets is in the record.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal

from stompbox.errors import FrameError, IllegalFrame
from stompbox.stomp.codec import Decoder, FrameLimits
from stompbox.stomp.frames import SERVER_COMMANDS, Frame
from stompbox.stomp.session import negotiate
from stompbox.stomp.versions import VERSIONS

if TYPE_CHECKING:
    from stompbox.server.session.connection import Connection

_EVERY: Final = 1 << 40  # octets: the broker judges sizes, a record does not
_LIMITS: Final = FrameLimits(_EVERY, 1 << 30, _EVERY, _EVERY, _EVERY)

Way = Literal["received", "sent"]


@dataclass(frozen=True, slots=True)
class Exchanged:
    """One frame. `way` is the broker's: it `received` what a client said, and `sent` what a client got. `at`: ms since the epoch, by
    the broker's clock; `connection`: the number of `Broker.connections`."""

    way: Way
    connection: int
    user: str
    command: str
    headers: Mapping[str, str]
    body: bytes = field(repr=False)
    at: int

    @property
    def destination(self) -> str:
        return self.headers.get("destination", "")

    @property
    def text(self) -> str:
        return self.body.decode()


class Record:
    """The last frames of all connections, `most` of them. `changed` is called behind each."""

    def __init__(self, most: int, changed: Callable[[], None]) -> None:
        self.frames: deque[Exchanged] = deque(maxlen=most)
        self.changed = changed

    def look(self, connection: Connection) -> None:
        """The broker asks whether the frames of a connection are wished for: always."""
        if connection.frames is None:
            connection.frames = Follower(self, connection)

    def leave(self, connection: Connection) -> None:
        """A connection is gone, which changes nothing here."""

    def look_again(self) -> None:
        """The configuration was read again, which changes nothing here."""

    def all(self, way: Way | None = None, command: str | None = None) -> list[Exchanged]:
        return [
            frame
            for frame in self.frames
            if (way is None or frame.way == way) and (command is None or frame.command == command)
        ]

    def delivered(self, destination: str | None) -> list[Exchanged]:
        """The messages that went out to clients."""
        return _to(destination, self.all("sent", "MESSAGE"))

    def sent(self, destination: str | None) -> list[Exchanged]:
        """The messages that came in, those of a transaction when it was committed. What was refused is among them."""
        return _to(destination, _committed(self.frames))


def _to(destination: str | None, frames: Iterable[Exchanged]) -> list[Exchanged]:
    return [frame for frame in frames if destination is None or frame.destination == destination]


def _committed(frames: Iterable[Exchanged]) -> Iterator[Exchanged]:
    held: dict[tuple[int, str], list[Exchanged]] = {}
    for frame in frames:
        transaction = frame.connection, frame.headers.get("transaction", "")
        if frame.way == "sent":
            continue
        if frame.command == "SEND" and transaction[1]:
            held.setdefault(transaction, []).append(frame)
        elif frame.command == "SEND":
            yield frame
        elif frame.command in ("COMMIT", "ABORT"):
            done = held.pop(transaction, [])
            yield from done if frame.command == "COMMIT" else ()


class Follower:
    """Reads along with one connection (server/session/framelog.py is what stands here otherwise)."""

    addresses: Any = None

    def __init__(self, record: Record, connection: Connection) -> None:
        self.record = record
        self.connection = connection
        self._came: Decoder[Any] | None = _decoder(Decoder(limits=_LIMITS))
        self._went: Decoder[Any] | None = _decoder(Decoder(SERVER_COMMANDS, _LIMITS))

    def came(self, data: bytes) -> None:
        self._came = self._take("received", self._came, data)

    def goes(self) -> None:
        """Tells that a frame begins, which whoever follows from the first octet on knows."""

    def went(self, data: bytes) -> None:
        self._went = self._take("sent", self._went, data)

    def _take(self, way: Way, decoder: Decoder[Any] | None, data: bytes) -> Decoder[Any] | None:
        """None once it can be followed no further."""
        if decoder is None:
            return None
        try:
            for frame in decoder.receive(data):
                assert isinstance(
                    frame, Frame
                )  # neither runs nor streams: it has no reader, and `large_from` is 0
                self._read(way, decoder, frame)
        except (FrameError, IllegalFrame):
            return None
        finally:
            self.record.changed()
        return decoder

    def _read(self, way: Way, decoder: Decoder[Any], frame: Frame) -> None:
        connection = self.connection
        found = dict(frame.headers)
        found.pop("passcode", None)
        who = connection.session_id, connection.user.name
        self.record.frames.append(
            Exchanged(way, *who, frame.command, found, frame.body, connection.broker.now())
        )
        if frame.command in (
            "CONNECT",
            "STOMP",
        ):  # decides how the next one reads (STOMP 1.2, Protocol Negotiation)
            decoder.version = negotiate(frame)
        elif frame.command == "CONNECTED":
            decoder.version = VERSIONS[frame.headers.get("version", "1.0")]


def _decoder(decoder: Decoder[Any]) -> Decoder[Any]:
    decoder.logged_in = True
    return decoder


def outline(frames: Iterable[Exchanged], most: int = 10) -> str:
    """The last frames in a line, for a test that has waited in vain."""
    last = [f"{frame.way} {frame.command} {frame.destination}".strip() for frame in frames][-most:]
    return "; ".join(islice(last, most)) or "no frames"
