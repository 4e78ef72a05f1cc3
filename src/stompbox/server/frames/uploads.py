"""SENDs with large bodies, on their way in: pieces go to the store as they come, the message follows when all have.

What can be refused before the body is there is refused at once, and the body is passed over. A sender is read no further while more
than WINDOW octets of its pieces wait for the disk, or more than UNSAVED of all that there is (pressure.py): a commit has the pieces of a
few, however many send. When it vanishes, or breaks a rule half-way, nothing stays of what it sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from stompbox.broker.queues import expiry
from stompbox.config.settings import DiskFullPolicy
from stompbox.errors import Refused, StompboxError
from stompbox.server import readonly
from stompbox.server.addressing.naming import REQUESTS_AT
from stompbox.server.addressing.routing import require_all
from stompbox.server.frames import sending
from stompbox.server.frames.transactions import transaction_of
from stompbox.server.pressure import UNSAVED, Reason
from stompbox.stomp.frames import Frame
from stompbox.stomp.large import Ending, Opening, Piece
from stompbox.stomp.shapes import shape_of
from stompbox.store.base import PIECE

if TYPE_CHECKING:
    from stompbox.server.frames.speaker import Speaker

WINDOW: Final = 1 << 20  # octets of one sender


def prepare(connection: Speaker) -> None:
    """Logged in: from now on large bodies of this connection come in pieces."""
    least = connection.options.stomp_min_large_message_size
    if least >= 0 and connection.transform is None:  # which wants to see bodies whole
        connection.decoder.large_from = max(1, least)
        connection.decoder.may_stream = _may_stream


def _may_stream(headers: Mapping[str, str]) -> bool:
    """Requests and retained messages have limits of their own, and are wanted whole."""
    return headers.get("destination") != REQUESTS_AT and headers.get("retain") != "set"


class Upload:
    """One body that is coming in. `frame` is its SEND."""

    def __init__(self, connection: Speaker, frame: Frame) -> None:
        self.connection = connection
        self.frame = frame
        self.bodies = connection.broker.engine.bodies
        self.large = self.bodies.new()
        self._number = 0
        self._rest = bytearray()  # less than a piece

    def take(self, data: bytes) -> None:
        self.large.size += len(data)
        self._rest += data
        at = 0
        while len(self._rest) - at >= PIECE:
            self._put(bytes(memoryview(self._rest)[at : at + PIECE]))
            at += PIECE
        if not at:
            return
        del self._rest[:at]
        broker = self.connection.broker
        broker.is_wanted = True  # the sender may be waiting for it
        if self.bodies.unsaved(self.large) > WINDOW or broker.engine.unsaved > UNSAVED:
            broker.pressure.hold(self.connection, Reason.PIECES)

    def finish(self) -> Iterator[None]:
        """Makes a message of a body that is there whole. Where its address is to be made that may take steps."""
        if self._rest:
            self._put(bytes(self._rest))
        try:
            yield from sending.send_large(self.connection, self.frame, self.large) or ()
        except StompboxError as error:
            self.connection.refuse(error, self.frame)

    def _put(self, piece: bytes) -> None:
        self.bodies.put(self.large, self._number, piece)
        self._number += 1
        self.connection.broker.engine.unsaved += len(piece)

    @property
    def size(self) -> int:
        """Octets that are in memory, on their way to the disk or not."""
        return len(self._rest) + self.bodies.unsaved(self.large)

    @property
    def may_go_on(self) -> bool:
        """Whether so much of the body is on the disk that more may come."""
        return self.bodies.unsaved(self.large) <= WINDOW // 2

    @property
    def is_refusable(self) -> bool:
        """Whether its sender gets an ERROR when the disk is in trouble (disk-full-policy); else it waits."""
        engine, names = self.connection.broker.engine, self.connection.names
        addresses = [
            destination.address for destination in names.route(shape_of(self.frame.headers)).destinations
        ]
        return any(
            engine.settings.resolve(name).disk_full_policy is DiskFullPolicy.FAIL for name in addresses
        )

    def __repr__(self) -> str:
        return f"<Upload {self.large!r} pieces={self._number}>"


def obey(connection: Speaker, event: Opening | Piece | Ending) -> Iterator[None] | None:
    """One event of a large SEND. Raises as SEND does; the last one is obeyed in steps."""
    if isinstance(event, Opening):
        connection.upload = _begun(connection, event.frame)
    elif connection.upload is None:
        return None  # it was refused
    elif isinstance(event, Piece):
        connection.upload.take(event.data)
    else:
        upload, connection.upload = connection.upload, None
        connection.broker.pressure.let_go(connection, Reason.PIECES)
        return upload.finish()
    return None


def _begun(connection: Speaker, frame: Frame) -> Upload | None:
    try:
        connection.session.receive(frame)
        if connection.options.read_only:
            raise readonly.not_taken("SEND")
        _check(connection, frame)
        upload = Upload(connection, frame)
        trouble = connection.broker.engine.trouble
        if trouble is not None and upload.is_refusable:
            raise Refused(trouble.code, trouble.text)
    except StompboxError as error:
        connection.refuse(error, frame)
        return None
    return upload


def _check(connection: Speaker, frame: Frame) -> None:
    """What is refused without having seen the body. All of it is looked at again when the message is there."""
    shape, now = shape_of(frame.headers), connection.broker.engine.now
    if shape.special is not None:
        expiry.check(shape, now)
    if connection.added_headers is not None:
        connection.added_headers.on(shape, now)
    require_all(connection, connection.names.route(shape))
    if "transaction" in frame.headers:
        transaction_of(connection, frame.headers["transaction"])


def disk_failed(connection: Speaker) -> None:
    """Pieces could not be stored: ERROR, unless the sender is to wait until they can."""
    upload, trouble = connection.upload, connection.broker.engine.trouble
    if upload is None or trouble is None or not upload.is_refusable:
        return
    connection.upload = None
    connection.broker.pressure.let_go(connection, Reason.PIECES)
    connection.refuse(Refused(trouble.code, trouble.text), upload.frame)
    connection.write_out()
