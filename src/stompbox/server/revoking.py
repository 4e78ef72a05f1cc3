"""What a reload takes away ends at once, for those who are connected, too, and so does what an operator deletes.

| gone                                             | what becomes of it                                                              |
|--------------------------------------------------|---------------------------------------------------------------------------------|
| the user, or the passcode that it logged in with | ERROR `login-revoked`, and the close, in every version                          |
| its place in the virtual host, or the host       | ERROR `host-not-permitted` or `unknown-host`, and the close                     |
| `consume` (or `browse`) on an address            | each subscription that reaches it ends with ERROR `not-permitted`; what it had  |
|                                                  | and did not acknowledge goes back. 1.2 closes, as after every ERROR             |
| `send` or `consume` within an open transaction   | COMMIT gets ERROR `not-permitted`, and the transaction is aborted whole         |
| any other right                                  | is asked for with each frame and request: nothing to do                         |
| a queue that an operator or a reload deletes     | each subscription to it that has no other one ends with ERROR `queue-deleted`   |

A group that is left or entered counts as the rights that come and go with it. Requests that read are asked again when rights have
changed while they were answered (requests/dispatch.py); the admin interface asks with each request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from stompbox.broker import transactions
from stompbox.broker.queues.consumer import Consumer
from stompbox.broker.transactions import Transaction
from stompbox.errors import Refused, StompboxError
from stompbox.security import Right, User
from stompbox.server.hosts import admit

if TYPE_CHECKING:
    from stompbox.server.seam import ClientConnection, Core

    Lost = tuple[ClientConnection, Consumer | None, StompboxError]
    """A connection, or one of its subscriptions, and why it ends."""

PASSED: Final = 5  # steps that a consumer takes which stays as it is
STEP: Final = 100  # queues of a subscription for which one step asks for the right
FEW: Final = 20  # subscriptions of a connection for which one step does


def revoking(broker: Core) -> Iterator[None]:
    """Users, virtual hosts and permissions are those of the new configuration, which all connections are held to. First whatever has lost
    its rights stops, of one connection after the other: it gets nothing while others end, which takes longer. What a transaction holds by
    now is asked for again at its COMMIT, wherever this has come to."""
    lost: deque[Lost] = deque()
    for connection in [one for one in broker.connections if one.session.is_open]:
        yield
        if not connection.is_ended:
            yield from _stopping(connection, lost)
    while lost:
        yield
        connection, consumer, error = lost.popleft()
        if connection.is_ended:
            continue
        if consumer is None:
            _close(connection, error)
        else:
            yield from _ending(connection, consumer, error)
        connection.write_out()


def _stopping(connection: ClientConnection, lost: deque[Lost]) -> Iterator[None]:
    """Stops what a connection may not have any more, and adds it to what waits for its end."""
    before = connection.user
    try:
        connection.user = _require_known(connection)
    except StompboxError as error:
        connection.reading.hold()
        lost.append((connection, None, error.with_traceback(None)))
        for number, consumer in enumerate(list(connection.consumers.values()), 1):
            consumer.stop()
            if number % STEP == 0:
                yield
        return
    if connection.user != before:
        for transaction in connection.transactions.values():
            transaction.doubt()
    for number, consumer in enumerate(list(connection.consumers.values()), 1):
        refusal = yield from _refusal(connection, consumer)
        if refusal is not None:
            consumer.stop()
            lost.append((connection, consumer, refusal))
        if number % FEW == 0:
            yield


def _require_known(connection: ClientConnection) -> User:
    """The user as it is now. Raises StompboxError where it may not be connected like this any more."""
    user = connection.broker.users.again(connection.user.name, connection.proof)
    host = connection.broker.hosts.find(connection.host)
    if admit(host, user) != connection.names.space:
        raise Refused(
            "host-not-permitted",
            f"the virtual host of this connection is {host.name if host else 'none'!r} now; connect again",
        )
    return user


def _close(connection: ClientConnection, error: StompboxError) -> None:
    connection.refuse(error)
    if not connection.is_ended:
        connection.end(is_failure=False)
    connection.reading.go_on()


def looking_at(connection: ClientConnection, consumer: Consumer) -> Iterator[None]:
    """Ends a subscription that reaches what its user may not have any more, in steps."""
    refusal = yield from _refusal(connection, consumer)
    if refusal is not None:
        yield from _ending(connection, consumer, refusal)


def _refusal(connection: ClientConnection, consumer: Consumer) -> Generator[None, None, Refused | None]:
    """What is said, where a subscription reaches what its user may not have any more. It is found out in steps."""
    for number, binding in enumerate(list(consumer.bindings.values()), 1):
        if consumer.is_closed:
            break
        address = binding.queue.address
        try:
            _require(connection, _right(consumer), address.name, owner=address.owner)
        except Refused as error:
            return Refused(error.code, f"{error.message} any more")
        if number % STEP == 0:
            yield
    return None


def orphaned(consumers: Iterable[Consumer]) -> Iterator[None]:
    """Their queues were deleted: those that have no other one end, each in a step. Who has subscribed to a wildcard waits for more."""
    for number, consumer in enumerate(consumers, 1):
        connection: ClientConnection = consumer.owner
        if consumer.bindings or consumer.is_watching or connection.is_ended:
            if number % STEP == 0:
                connection.broker.engine.work.spend(PASSED * STEP)
                yield
            continue
        error = Refused(
            "queue-deleted", f"there is no {consumer.destination[:80]!r} any more: it was deleted"
        )
        yield from _ending(connection, consumer, error)
        connection.write_out()
        yield


def _ending(connection: ClientConnection, consumer: Consumer, error: StompboxError) -> Iterator[None]:
    """A subscription that its client did not end."""
    name = consumer.name
    if consumer.is_closed or connection.consumers.get(name) is not consumer:
        return
    del connection.consumers[name]
    connection.transacted.pop(consumer, None)
    yield from transactions.closing(connection.broker.engine, consumer, is_failure=False)
    if connection.is_ended:
        return
    which = (
        f"subscription {name[:80]!r}"
        if not name.startswith("\0")
        else f"the subscription to {consumer.destination[:80]!r}"
    )
    connection.refuse(Refused(error.code, f"{which} is ended: {error.message}"))


def requiring_still(connection: ClientConnection, transaction: Transaction) -> Iterator[None]:
    """Raises Refused, in steps, when rights have changed since it began, and one that it needs is gone."""
    asked: set[tuple[Right, str, int]] = set()
    for number, needed in enumerate(_needed(transaction), 1):
        if needed not in asked:
            asked.add(needed)
            right, address, owner = needed
            _require(connection, right, address, owner=owner)
        if number % STEP == 0:
            yield


def _needed(transaction: Transaction) -> Iterator[tuple[Right, str, int]]:
    """A right, the address and its owner for each message and acknowledgement of a transaction."""
    for address, _ in transaction.sends:
        yield Right.SEND, address.name, address.owner
    for consumer, sent in transaction.answered:
        for binding, _ in sent:
            used = binding.queue.address
            yield _right(consumer), used.name, used.owner


def _right(consumer: Consumer) -> Right:
    return Right.BROWSE if consumer.is_browser else Right.CONSUME


def _require(connection: ClientConnection, right: Right, address: str, *, owner: int) -> None:
    """Requires a right to an address; a temporary destination is its owner's, whatever the rights are."""
    if not owner:
        connection.broker.permissions.require(connection.user, right, address)
