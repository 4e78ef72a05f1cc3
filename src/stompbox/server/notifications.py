"""Notifications of what clients do, in the words of Artemis. Those of addresses and queues are in
broker/addresses/notifications.py, which sends them all.

    _AMQ_ConnectionName, _AMQ_SessionName   CONNECTION_CREATED when somebody has logged in, CONNECTION_DESTROYED when it obeys nothing
      _AMQ_RemoteAddress, _AMQ_User           more. The number of the connection is the one that `stompbox connections` shows
    _AMQ_ConsumerName, _AMQ_Address         the same and these: CONSUMER_CREATED, CONSUMER_CLOSED, CONSUMER_SLOW. A subscription to one
      _AMQ_RoutingName, _AMQ_FilterString     queue names its address, one to several names what its SUBSCRIBE did
      _AMQ_ConsumerCount
    _AMQ_CheckType, _AMQ_Address            SECURITY_PERMISSION_VIOLATION, with the right that was missing
    _AMQ_User, _AMQ_RemoteAddress           SECURITY_AUTHENTICATION_VIOLATION, with the login that was tried

No more refusals are told in a minute than `max-refusals-logged`: a client can be refused as often as it likes.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from stompbox.broker.addresses.notifications import ADDRESS, FILTER, QUEUE, Event
from stompbox.config.spaces import local
from stompbox.errors import NotPermitted, StompboxError

if TYPE_CHECKING:
    from stompbox.broker.queues.consumer import Consumer
    from stompbox.server.seam import ClientConnection
    from stompbox.stomp.frames import Frame

LOGINS: Final = frozenset(
    ("login-required", "login-failed", "login-revoked", "too-many-failed-logins", "host-not-permitted")
)
USER: Final = "_AMQ_User"


def tell(
    connection: ClientConnection, event: Event, said: dict[str, str] | None = None, body: str = ""
) -> None:
    """What a connection has done, or what became of it."""
    broker = connection.broker
    notifications = broker.engine.notifications
    if not notifications.address:
        return
    who = {
        "_AMQ_ConnectionName": str(connection.session_id),
        "_AMQ_SessionName": f"{broker.engine.epoch}-{connection.session_id}",
        "_AMQ_RemoteAddress": connection.peer,
        USER: connection.user.name,
    }
    if notifications.note(event, connection.names.space, who | (said or {}), body):
        broker.flush_soon()


def subscribed(connection: ClientConnection, consumer: Consumer) -> None:
    """A subscription is made; when it ends that is told, too."""
    if connection.broker.engine.notifications.address:
        tell(connection, Event.CONSUMER_CREATED, _of_consumer(consumer))
        consumer.on_close.append(partial(_unsubscribed, connection, consumer))


def _unsubscribed(connection: ClientConnection, consumer: Consumer) -> None:
    tell(connection, Event.CONSUMER_CLOSED, _of_consumer(consumer))


def slow(connection: ClientConnection, consumer: Consumer, text: str) -> None:
    tell(connection, Event.CONSUMER_SLOW, _of_consumer(consumer), text)


def _of_consumer(consumer: Consumer) -> dict[str, str]:
    said = {
        "_AMQ_ConsumerName": "" if consumer.name.startswith("\0") else consumer.name,
        ADDRESS: consumer.destination,
        FILTER: consumer.selector.text if consumer.selector is not None else "",
    }
    if len(consumer.bindings) != 1:
        return said
    [binding] = consumer.bindings.values()
    queue = binding.queue
    return said | {
        ADDRESS: local(queue.address.name),
        QUEUE: local(queue.name),
        "_AMQ_ConsumerCount": str(queue.consumer_count),
    }


def refused(connection: ClientConnection, error: StompboxError, frame: Frame | None) -> None:
    """A frame was refused: told where it is about rights, or a login."""
    if isinstance(error, NotPermitted):
        said = {ADDRESS: local(error.address), "_AMQ_CheckType": error.right.upper().replace("-", "_")}
        tell(
            connection,
            Event.SECURITY_PERMISSION_VIOLATION,
            said,
            connection.names.without_space(error.message),
        )
    elif error.code in LOGINS:
        login = "" if frame is None else frame.headers.get("login", "")
        tell(
            connection,
            Event.SECURITY_AUTHENTICATION_VIOLATION,
            {USER: login or connection.user.name},
            error.message,
        )
