"""SENDs of many clients that come on one link: those that are alike are one run.

A client that sends one message at a time costs what a run costs. What fronts pass on in one read has messages of many such clients, and
those for one queue differ in their bodies and receipts alone. So what can be such a SEND waits until the read is looked through, and is
then read, published and stored with the others of its group, as one; each is confirmed to who asked.

Nobody's frames change their order: of a client that waits in a group nothing else is obeyed before it. Between clients there is no order
but what they can see, and what came in one read was sent before any of it was answered. Whatever is not plain, of the client or of what it
sends, takes the way that it takes alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stompbox.server.frames.sending import sends_together
from stompbox.server.turns import SMALL
from stompbox.stomp.runs import Reader

if TYPE_CHECKING:
    from stompbox.server.session.connection import Connection
    from stompbox.server.session.core import SessionCore

MOST: Final = 64 << 10  # octets that wait at the most
_SEND: Final = b"SEND\ndestination:"


class Group:
    """What may be messages of one shape, and whose they are. All senders have the same rights, and mean the same by the same names."""

    __slots__ = ("connections", "frames", "reader")

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.connections: list[Connection] = []
        self.frames: list[bytes] = []

    def suits(self, connection: Connection) -> bool:
        first = self.connections[0]
        return (
            connection.decoder.runs is self.reader
            and connection.names is first.names
            and (connection.user is first.user or connection.user == first.user)
        )

    def add(self, connection: Connection, data: bytes) -> None:
        self.connections.append(connection)
        self.frames.append(data)
        connection.reading.join(self)

    def obey(self) -> None:
        for connection in self.connections:
            connection.reading.join(None)
        if not self._is_obeyed_together():
            for connection, data in zip(self.connections, self.frames, strict=True):
                connection.receive(data)

    def _is_obeyed_together(self) -> bool:
        for connection in self.connections:
            # it was ended meanwhile, or what it said before waits: for room, or for its turn
            if connection.is_ended or not connection.reading.is_idle:
                return False
        event = self.reader.read_each(self.frames)
        if event is None or not sends_together(self.connections, event):
            return False
        now = self.connections[0].broker.loop.time()
        for connection in self.connections:
            if connection.pulse is not None:
                connection.pulse.received(now)
            connection.reading.has_published()
        return True

    def __repr__(self) -> str:
        return f"<Group of {len(self.connections)}>"


class Gathering:
    """What waits of one read of a link. `is_off`: each is obeyed by itself, because something is noted of whose message it is."""

    def __init__(self, broker: SessionCore, *, is_off: bool = False) -> None:
        self.broker = broker
        self.is_off = is_off
        self._groups: dict[bytes, Group] = {}  # by how they begin, up to their destination
        self._octets = 0

    def takes(self, connection: Connection, data: bytes) -> bool:
        """Whether what has come waits; False: it is to be obeyed now, and what came before it was."""
        group = self._group_for(connection, data)
        if group is None:
            if connection.reading.group is not None:
                self.obey()
            return False
        group.add(connection, data)
        self._octets += len(data)
        if self._octets > MOST:
            self.obey()
        return True

    def _group_for(self, connection: Connection, data: bytes) -> Group | None:
        if self.is_off or len(data) > SMALL or not data.startswith(_SEND) or not is_plain(connection):
            return None
        line = data[: data.find(b"\n", len(_SEND))]
        group = self._groups.get(line)
        before = connection.reading.group
        if before is not None and before is not group:
            self.obey()
            group = None
        if group is not None:
            return group if group.suits(connection) else None
        reader = connection.decoder.runs
        if not isinstance(reader, Reader):
            return None
        group = self._groups[line] = Group(reader)
        return group

    def obey(self) -> None:
        """What waits, in groups: each of them is one run where it can be."""
        if not self._groups:
            return
        groups, self._groups = self._groups, {}
        octets, self._octets = self._octets, 0
        self.broker.set_time()
        for group in groups.values():
            group.obey()
        self.broker.was_read(octets)

    def clear(self) -> None:
        """Who has passed it on is gone: nothing of it is obeyed any more."""
        self._groups, self._octets = {}, 0

    def __repr__(self) -> str:
        return f"<Gathering {len(self._groups)} groups of {self._octets} octets>"


def is_plain(connection: Connection) -> bool:
    """Whether a SEND of it needs nothing that is done for this client alone."""
    return (
        not connection.is_ended
        and connection.frames is None
        and connection.added_headers is None
        and connection.upload is None
        and connection.session.is_open
        and not connection.options.read_only
        and connection.reading.is_idle
    )
