"""Notifications: what happens in the broker, as messages, in the words of Artemis (`management-notification-address`).

    _AMQ_NotifType, _AMQ_NotifTimestamp   what happened (Event), and when, ms since the epoch
    _AMQ_Address                          ADDRESS_ADDED, ADDRESS_REMOVED
    _AMQ_RoutingName, _AMQ_Binding_ID,    BINDING_ADDED, BINDING_REMOVED: a queue or a subscription of that address, also of a
      _AMQ_FilterString, _AMQ_Address       temporary one

What connections and their subscriptions do is noted in server/notifications.py. A notification is a message of a topic, not persistent,
in the virtual host that it is about. It is made when somebody has that topic, else not at all; and it is published when the turn of the
loop is over, so that nothing changes beneath the code that notes it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Protocol

from stompbox.broker.kinds import ROUTING
from stompbox.config.spaces import local, space_of
from stompbox.errors import LONGEST
from stompbox.message import MULTICAST, Run, Shape

if TYPE_CHECKING:
    from stompbox.broker.logs.log import Log
    from stompbox.broker.queues.queue import Queue

ADDRESS: Final = "_AMQ_Address"
QUEUE: Final = "_AMQ_RoutingName"
FILTER: Final = "_AMQ_FilterString"
_PREFIX: Final = "/topic/"  # what most listeners call a multicast address


class Heard(Protocol):
    """An address, as far as somebody may listen to it."""

    @property
    def name(self) -> str: ...
    @property
    def log(self) -> Log: ...
    @property
    def topics(self) -> Collection[int]: ...
    @property
    def streams(self) -> Collection[int]: ...
    @property
    def diverts(self) -> Collection[object]: ...
    @property
    def is_read(self) -> bool: ...


class Engine(Protocol):
    """What telling of events asks of the engine."""

    now: int

    @property
    def addresses(self) -> Mapping[str, Heard]: ...
    def publish_prepared(self, address: Any, run: Run, /) -> bool: ...


class Event(Enum):
    """Events by the names that Artemis gives them (CoreNotificationType)."""

    ADDRESS_ADDED = "ADDRESS_ADDED"
    ADDRESS_REMOVED = "ADDRESS_REMOVED"
    BINDING_ADDED = "BINDING_ADDED"
    BINDING_REMOVED = "BINDING_REMOVED"
    CONNECTION_CREATED = "CONNECTION_CREATED"
    CONNECTION_DESTROYED = "CONNECTION_DESTROYED"
    CONSUMER_CREATED = "CONSUMER_CREATED"
    CONSUMER_CLOSED = "CONSUMER_CLOSED"
    CONSUMER_SLOW = "CONSUMER_SLOW"
    SECURITY_AUTHENTICATION_VIOLATION = "SECURITY_AUTHENTICATION_VIOLATION"
    SECURITY_PERMISSION_VIOLATION = "SECURITY_PERMISSION_VIOLATION"


@dataclass(frozen=True, slots=True)
class Notification:
    """What one event is told with. `address`: that of the virtual host it is about."""

    address: str
    headers: dict[str, str]
    body: bytes


class Notifications:
    """Tells of events by messages to an address. `address`: where they go, in each virtual host; empty: nowhere. `waiting` are those of
    this turn."""

    __slots__ = ("_engine", "address", "waiting")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.address = ""
        self.waiting: list[Notification] = []

    def note(self, event: Event, space: str, said: Mapping[str, str], body: str = "") -> bool:
        """Whether somebody is to be told. `said`: headers; those without a value are left out, long ones cut: they repeat what clients
        have said. `body`: a text for people."""
        known = self._engine.addresses.get(space + self.address) if self.address else None
        if known is None or not _is_heard(known):
            return False
        headers = {
            "destination": _PREFIX + self.address,
            "_AMQ_NotifType": event.value,
            "_AMQ_NotifTimestamp": str(self._engine.now),
        }
        headers |= {header: value[:LONGEST] for header, value in said.items() if value}
        self.waiting.append(Notification(known.name, headers, body.encode()))
        return True

    def of_address(self, event: Event, address: Heard) -> None:
        if self.address:
            self.note(event, space_of(address.name), {ADDRESS: local(address.name)})

    def of_queue(self, event: Event, queue: Queue) -> None:
        """Readers of a log and browsers have no queue that anybody else knows."""
        if self.address and queue.kind in ROUTING:
            said = {
                ADDRESS: local(queue.address.name),
                QUEUE: local(queue.name),
                "_AMQ_Binding_ID": str(queue.id),
            }
            selector = queue.selector.text if queue.selector is not None else ""
            self.note(event, space_of(queue.address.name), said | {FILTER: selector})

    def publish(self) -> None:
        """Sends those that wait, to whoever is there still."""
        waiting, self.waiting = self.waiting, []
        for one in waiting:
            address = self._engine.addresses.get(one.address)
            if address is not None:
                self._engine.publish_prepared(
                    address, Run(Shape(one.headers, persistent=False), [one.body], routing=MULTICAST)
                )

    def __repr__(self) -> str:
        return f"<Notifications to {self.address or 'nobody'}, {len(self.waiting)} waiting>"


def _is_heard(address: Heard) -> bool:
    """Whether anything becomes of what is sent there as to a topic."""
    return bool(
        address.topics or address.streams or address.diverts or address.is_read or address.log.is_kept
    )
