"""Where messages of a client go, by whatever frame or request they come: rights, addresses that are made for them, queues that are meant,
temporary destinations and those of their answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from stompbox.broker.addresses import destinations, lifetimes, makers
from stompbox.broker.addresses.address import Address
from stompbox.broker.addresses.destinations import Destination
from stompbox.broker.addresses.makers import Maker
from stompbox.broker.engine import Engine
from stompbox.broker.subscriptions import subscribers
from stompbox.broker.undelivered import NO_ROUTE, Fate
from stompbox.errors import IllegalFrame, Refused
from stompbox.handles import Body
from stompbox.message import ANYCAST, MANDATORY, Run, Shape
from stompbox.security import Right
from stompbox.server.addressing import arguments
from stompbox.server.addressing.brokerheaders import REMEMBERED
from stompbox.server.addressing.naming import Asks, Route

if TYPE_CHECKING:
    from stompbox.server.addressing.sender import Sender


def require_all(connection: Sender, route: Route) -> None:
    """Raises Refused where the connection may not send, and IllegalFrame where that would be no message."""
    if route.asks is not Asks.NOTHING:
        raise route.asks.refusal()
    for destination in route.destinations:
        if not destination.is_temporary:
            connection.broker.permissions.require(connection.user, Right.SEND, destination.address)
    arguments.require(connection, route.arguments, route.destinations)


def addressed(
    connection: Sender,
    shape: Shape,
    route: Route,
    bodies: Sequence[Body],
    columns: tuple[Sequence[bytes], ...],
) -> list[tuple[Address, Run]]:
    """Messages of one shape for each address that they go to, which is made when it may be; and their answers' temporary destination."""
    if not route.is_plain:
        require_room(connection, route.destinations)
    arguments.make(connection, route.arguments, route.destinations)
    targets = [reach(connection, destination) for destination in route.destinations]
    if route.reply is not None:
        shape = answered(connection, shape, route.reply)
    if connection.added_headers is not None:
        shape, columns = connection.added_headers.with_ids(shape, columns, len(bodies))
    return [
        (address, Run(shape, bodies, columns, routing=routing, sender=connection.session_id, queue=queue))
        for address, routing, queue in targets
    ]


def is_all_there(engine: Engine, destinations: Sequence[Destination]) -> bool:
    """Whether a SEND to these finds all that it needs; else it is made in steps (`making`), where that may be much."""
    for destination in destinations:
        if destination.is_temporary:
            continue
        address = engine.addresses.get(destination.address)
        if address is None or address.unjoined is not None:
            return False
        if destination.queue:
            if not subscribers.kind_of_queue(address, destination):
                return False
        elif not address.anycast and (destination.routing or address.kinds) & ANYCAST:
            return False
    return True


def making(connection: Sender, route: Route) -> Iterator[None]:
    """Makes in steps what a SEND needs and what is not there, and lets those join it who wait for it. Raises as `addressed` does."""
    engine = connection.broker.engine
    if not route.is_plain:
        require_room(connection, route.destinations)
    for number, destination in enumerate(route.destinations):
        if number:
            yield
        if not destination.is_temporary:
            yield from lifetimes.looking(engine, destination.address)
        arguments.make(connection, route.arguments, (destination,))
        address, _, _ = reach(connection, destination)
        yield from lifetimes.joining(address)


def require_room(connection: Sender, destinations: Sequence[Destination]) -> None:
    """Raises Refused where what a frame names and is not there is more than its user may make; nothing has been made then."""
    engine = connection.broker.engine
    wanted = []
    for destination in destinations:
        if not (destination.is_temporary or destination.is_wild):
            address = engine.addresses.get(destination.address)
            kinds = 0 if address is None else address.kinds
            if destination.queue:
                found = 0 if address is None else subscribers.kind_of_queue(address, destination)
                routing = (
                    found or destination.routing or engine.default_routing(destination.address, of_queue=True)
                )
            else:
                routing = destination.routing or kinds or engine.default_routing(destination.address)
            wanted.append((destination.address, destination.queue, routing))
    makers.require_all(engine, connection.allowance.maker, wanted)


def reach(connection: Sender, destination: Destination) -> tuple[Address, int, str]:
    """The address that a SEND goes to, made when it may be; how; and the one queue of it that is meant, or nothing."""
    if destination.is_temporary:
        return _temporary(connection, destination), destination.routing, ""
    broker = connection.broker
    engine, permissions, name = broker.engine, broker.permissions, destination.address
    permissions.require(connection.user, Right.SEND, name)
    address = engine.addresses.get(name)
    if destination.must_exist:
        subscribers.require_queue(engine, destination)
    if address is None:
        permissions.require(connection.user, Right.CREATE_ADDRESS, name)
        routing = destination.routing or engine.default_routing(name)
        if routing & ANYCAST:
            permissions.require(connection.user, Right.CREATE_DURABLE_QUEUE, name)
        require_room(connection, [destination])
        address = engine.address(name, routing, connection.allowance.maker)
    found = subscribers.kind_of_queue(address, destination) if destination.queue else 0
    routing = found or destination.routing or address.kinds or engine.default_routing(name)
    if routing & ~address.kinds:
        require_kind(connection, address, routing, destination.queue)
        address = engine.address(name, routing, connection.allowance.maker)
    if address.is_blocked:
        raise Refused(
            "address-blocked", f"address {name!r} takes no messages now: an operator has blocked it"
        )
    if destination.queue:
        return address, _exactly(connection, address, destination), destination.queue
    if routing & ANYCAST and not address.anycast:
        permissions.require(connection.user, Right.CREATE_DURABLE_QUEUE, name)
        engine.anycast_queue(address, maker=connection.allowance.maker)
    return address, routing, ""


def require_kind(connection: Sender, address: Address, routing: int, queue: str) -> None:
    """Raises Refused where the user of a connection may not give an address another kind: who does makes a part of it, and perhaps the
    queue, as who makes the whole."""
    permissions, user = connection.broker.permissions, connection.user
    permissions.require(user, Right.CREATE_ADDRESS, address.name)
    if routing & ANYCAST and not address.anycast and not queue:
        permissions.require(user, Right.CREATE_DURABLE_QUEUE, address.name)


def _exactly(connection: Sender, address: Address, destination: Destination) -> int:
    """The kind of the one queue that `address::queue` names, which is made when it is not there."""
    if not subscribers.kind_of_queue(address, destination):
        connection.broker.permissions.require(connection.user, Right.CREATE_DURABLE_QUEUE, address.name)
    return made_queue(address, destination, connection.allowance.maker)


def made_queue(address: Address, destination: Destination, maker: Maker | None) -> int:
    """The kind of queue that is meant, of a queue that is made when it is not there."""
    kind = subscribers.kind_of_queue(address, destination)
    if not kind:
        kind = destination.routing or address.engine.default_routing(address.name, of_queue=True)
        address.engine.exact_queue(address, destination.queue, kind, maker)
    return kind


def without_gone(connection: Sender, shape: Shape, route: Route, count: int) -> Route:
    """The route without the temporary destinations that are gone, where the sender of these messages has said that it does not mind; they
    are dropped, and counted."""
    if shape.headers.get(MANDATORY) != "false":
        return route
    engine, left = connection.broker.engine, list[Destination]()
    for destination in route.destinations:
        if not destination.is_temporary or _found(connection, destination) is not None:
            left.append(destination)
        else:
            engine.counters["dropped"] += count
            engine.undelivered.note(destination.text, NO_ROUTE, Fate.DROPPED, count)
    return replace(route, destinations=tuple(left))


def _found(connection: Sender, destination: Destination) -> Address | None:
    return connection.temporaries.own(destination) or destinations.find(connection.broker.engine, destination)


def _temporary(connection: Sender, destination: Destination) -> Address:
    """A temporary destination that is there: of this connection, or of another one that has told its name."""
    found = _found(connection, destination)
    if found is None:
        text = f"there is no temporary destination {destination.text[:200]!r} (any more); its owner's SUBSCRIBE or reply-to makes one"
        raise IllegalFrame("no-such-temporary", text)
    return found


def answered(connection: Sender, shape: Shape, reply: Destination) -> Shape:
    """The shape with the name in reply-to by which others reach this connection's temporary destination."""
    found = destinations.find(connection.broker.engine, reply)
    if found is not None and found.owner != connection.session_id:
        # somebody else's, by the name that others know it by
        return shape
    known = connection.answered.get(shape)
    if known is not None:
        return known
    shown = destinations.shown(
        connection.make_temporary(reply), as_openmq=connection.options.openmq_temporary_names
    )
    changed = shape.with_headers({**shape.headers, "reply-to": shown})
    if not connection.answered or len(connection.answered) >= REMEMBERED:
        connection.answered = {}
    connection.answered[shape] = changed
    return changed
