"""Who is connected to a broker: connections by listener and by user, and what those of one listener share.

That is what the names of destinations mean, message transformers, and what was learned of the frames of a version of STOMP.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection
from itertools import count
from typing import TYPE_CHECKING

from mypy_extensions import mypyc_attr

from stompbox.broker.addresses.makers import Maker
from stompbox.broker.engine import Engine
from stompbox.config import Configuration, ListenerOptions
from stompbox.errors import Refused
from stompbox.security import User, Users
from stompbox.selectors import SelectorCache
from stompbox.server.addressing.naming import Names
from stompbox.server.addressing.transforming import Transform, load_transform
from stompbox.server.closings import Closings
from stompbox.server.configuring import permissions_of
from stompbox.server.hosts import Hosts
from stompbox.server.logins import Login
from stompbox.server.session.framelog import FrameLogs
from stompbox.stomp.runs import Reader
from stompbox.stomp.versions import VERSIONS

if TYPE_CHECKING:
    from stompbox.server.frames.speaker import Speaker
    from stompbox.server.seam import Acceptor, Front, Peer
    from stompbox.server.session.connection import Connection


@mypyc_attr(allow_interpreted_subclasses=True)  # as Broker
class Clients:
    """Who is connected to one broker."""

    engine: Engine
    frames: FrameLogs

    def __init__(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self.hosts = Hosts(configuration.virtual_hosts)
        self.users = Users(configuration.users, configuration.authentication_cache_size)
        self.permissions = permissions_of(configuration)
        self.by_session: dict[int, Connection] = {}  # by their ids
        self.sockets: set[Peer] = set()
        self.acceptors: list[Acceptor] = []
        self.fronts: list[Front] = []  # processes that have the sockets, if there are any (fronts/)
        self.of_listener: Counter[str] = Counter()  # connections, logged in or not, by what it listens on
        self.of_user: Counter[str] = Counter()  # connections that are logged in
        self.closings = Closings()  # why connections ended that are gone
        self.errors: Counter[str] = Counter()  # refused frames and closed connections, by code
        self.readers: dict[tuple[str, int, int], Reader] = {}
        self.selectors = SelectorCache(configuration.max_selector_cache_memory)
        # of messages, where a listener asks for them (brokerheaders.py); no start gives one again
        self.numbers = count(time.time_ns())
        self._entered: dict[str, tuple[User, Maker]] = {}  # of those of of_user
        self._names: dict[tuple[ListenerOptions, str], Names] = {}
        self._transforms: dict[str, Transform] = {}
        self._next_session = 1

    @property
    def connections(self) -> Collection[Connection]:
        return self.by_session.values()

    def sessions(self) -> set[int]:
        """Ids of the connections that go on: not of those whose last word is said, however long their sockets linger."""
        return {connection.session_id for connection in self.connections if not connection.is_ended}

    @property
    def all_acceptors(self) -> list[Acceptor]:
        """All at which clients of this process come in."""
        return self.acceptors

    def new_session(self) -> int:
        self._next_session += 1
        return self._next_session

    def enter(self, connection: Speaker, login: Login) -> None:
        """A connection is logged in. Raises Refused where the user has enough of them, or is gone since its passcode was verified."""
        user = self.users.again(login.user.name, login.proof)
        most = connection.options.max_connections_per_user
        if user.name and 0 <= most <= self.of_user[user.name]:
            raise Refused(
                "too-many-connections", f"user {user.name!r} has {most} connections, which is the limit"
            )
        connection.transport.enter(user.name)
        options = connection.options
        limits = options.max_addresses_per_user, options.max_queues_per_user, options.max_positions_per_user
        connection.user, maker = self._shared(user, Maker(user.name, *limits))
        connection.allowance.enter(maker)
        connection.account.enter(connection)
        connection.proof = login.proof
        connection.is_entered = True
        self.of_user[user.name] += 1
        self.frames.look(connection)

    def _shared(self, user: User, maker: Maker) -> tuple[User, Maker]:
        """Gives all connections of a user the same objects: there may be thousands of them."""
        found = user, maker
        known = self._entered.get(user.name)
        if known != found:
            self._entered[user.name] = known = found
        return known

    def arrive(self, connection: Connection) -> None:
        self.by_session[connection.session_id] = connection
        self.of_listener[str(connection.listener)] += 1
        self.frames.look(connection)

    def leave(self, connection: Connection) -> None:
        """Forgets a connection that is gone."""
        self.by_session.pop(connection.session_id, None)
        self.of_listener[str(connection.listener)] -= 1
        self.frames.leave(connection)
        self.leave_user(connection)

    def leave_user(self, connection: Connection) -> None:
        """A connection obeys nothing more: its user may have another one in its place, however long its socket lingers."""
        if connection.is_entered:
            connection.is_entered = False
            self.of_user[connection.user.name] -= 1
            if not self.of_user[connection.user.name]:
                del self.of_user[connection.user.name]
                del self._entered[connection.user.name]

    def names_of(self, options: ListenerOptions, space: str = "") -> Names:
        """What destinations mean on a listener and in a virtual host's space; one object for all of its connections."""
        found = self._names.get((options, space))
        if found is None:
            found = Names(
                options,
                space,
                lambda: self.configuration.unknown_header_policy,
                self.engine.wildcards,
                self.configuration.management_address or "",
            )
            self._names[options, space] = found
        return found

    def transform_of(self, options: ListenerOptions) -> Transform | None:
        """The listener's message transformer. Raises ConfigError where it cannot be loaded."""
        name = options.message_transformer
        if name is not None and name not in self._transforms:
            self._transforms[name] = load_transform(name)
        return None if name is None else self._transforms[name]

    def reader(self, version: str, options: ListenerOptions) -> Reader:
        """What was learned of frames, shared by the connections of a version."""
        least = options.stomp_min_large_message_size
        # what is large comes in pieces
        most = min(options.max_body_size, max(0, least - 1)) if least >= 0 else options.max_body_size
        key = (version, most, options.max_header_size)
        if key not in self.readers:
            self.readers[key] = Reader(VERSIONS[version], max_body=most, max_head=options.max_header_size)
        return self.readers[key]
