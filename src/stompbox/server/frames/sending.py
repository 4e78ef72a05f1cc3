"""SEND: messages of a client, to where routing.py says.

A run of equal frames to one destination is one call of the engine. What needs more care (several destinations, temporary ones,
answers to temporary ones, retained messages, headers to be added) takes the longer way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Final

from stompbox.broker.addresses import duplicates, retained
from stompbox.broker.addresses.address import Address
from stompbox.broker.addresses.destinations import Destination
from stompbox.broker.addresses.fanout import finishing
from stompbox.broker.addresses.routing import at_once
from stompbox.broker.logs.segments import RUN, cost_of
from stompbox.broker.queues import expiry
from stompbox.broker.transactions import Transaction, committing, letting_go
from stompbox.errors import Refused, StompboxError, TooManyMade
from stompbox.handles import Large
from stompbox.message import ANYCAST, Run
from stompbox.server import limiting, readonly
from stompbox.server.addressing.naming import REQUESTS_AT, Asks, Route
from stompbox.server.addressing.routing import (
    addressed,
    is_all_there,
    making,
    reach,
    require_all,
    without_gone,
)
from stompbox.server.addressing.transforming import inward
from stompbox.server.frames.subscribing import subscribe
from stompbox.server.frames.transactions import press, transaction_of
from stompbox.server.requests import dispatch, management
from stompbox.stomp.codec import escape
from stompbox.stomp.frames import Frame
from stompbox.stomp.runs import Sends
from stompbox.stomp.shapes import shape_of

if TYPE_CHECKING:
    from stompbox.server.frames.speaker import Speaker

ASKED: Final = 32  # requests that are taken up in one step: 150 us
MANY: Final = 16  # destinations of one SEND; to more it goes in steps: a hundred take 4 ms


def send(connection: Speaker, frame: Frame) -> Iterator[None] | None:
    """A SEND that was read the careful way."""
    if connection.transform is not None and frame.headers["destination"] != REQUESTS_AT:
        frame = inward(
            connection.transform,
            frame,
            connection.user.name,
            checks_names=connection.options.check_property_names,
        )
    receipt = frame.headers.get("receipt")
    receipts = [] if receipt is None else [escape(receipt, connection.session.version).encode()]
    with connection.changing_nothing("the headers of a SEND were looked at"):
        shape = shape_of(frame.headers)
    return sends(connection, Sends(shape, [frame.body], (), receipts, frame.headers.get("transaction")))


def send_large(connection: Speaker, frame: Frame, large: Large) -> Iterator[None] | None:
    """A SEND whose body is in the store."""
    receipt = frame.headers.get("receipt")
    receipts = [] if receipt is None else [escape(receipt, connection.session.version).encode()]
    return sends(
        connection, Sends(shape_of(frame.headers), [large], (), receipts, frame.headers.get("transaction"))
    )


def sends(connection: Speaker, event: Sends) -> Iterator[None] | None:
    """A run of SENDs to one destination. Where very many get it that takes steps, for which the sender's next frame waits."""
    shape = event.shape
    if connection.options.read_only and shape.destination != REQUESTS_AT:
        raise readonly.not_taken("SEND")
    known = route = shape.routes.get(connection.names)
    if route is None or shape.special is not None:
        with connection.changing_nothing("the headers of a SEND were looked at"):
            if shape.special is not None:
                expiry.check(shape, connection.broker.engine.now)
            if route is None:
                route = connection.names.route(shape)
    if not route.is_plain or connection.added_headers is not None:
        if known is None and len(route.destinations) > MANY:
            return _read_first(connection, event, route)
        return _send_with_care(connection, event, route)
    engine = connection.broker.engine
    if route.destinations[0].address not in engine.addresses and engine.watchers.are_there:
        return _made_first(connection, event, route)
    try:
        address, routing, queue = reach(connection, route.destinations[0])
    except TooManyMade as error:
        raise _of(event, error) from None
    only = address.only
    if only is None and address.unjoined is not None:
        return _made_first(connection, event, route)
    is_simple = only is not None and only.is_simple and shape.special is None
    if not is_simple and (most := _most(event, (address,))):
        return _in_parts(connection, event, most)
    if (
        address.limits is not None
        and event.transaction is None
        and _is_too_much(connection, event, (address,))
    ):
        return None
    if (
        engine.trouble is not None
        and event.transaction is None
        and _is_divided(connection, event, (address,))
    ):
        return None
    run = Run(shape, event.bodies, event.columns, routing=routing, sender=connection.session_id, queue=queue)
    if event.transaction is not None:
        _hold(connection, event.transaction, [(address, run)])
        if event.receipts:  # "received into the transaction": only COMMIT's RECEIPT means durable
            connection.confirm(event.receipts, waits=False)
        return None
    waits = engine.publish(address, run, is_answered=bool(event.receipts))
    connection.reading.has_sent = True
    if engine.trouble is not None or address.limits is not None:
        connection.broker.pressure.sent(connection, address, run)
    if event.receipts:
        connection.confirm(event.receipts, waits=waits, unit=engine.commits.last if waits else None)
    return None if address.fanout is None else finishing([(address, run)])


def sends_together(senders: Sequence[Speaker], event: Sends) -> bool:
    """SENDs of several clients with the same rights, one of each in this order, as one run. False: nothing was done; it is more than
    that one queue gets them, and each is to be obeyed by itself."""
    shape, broker = event.shape, senders[0].broker
    engine, route = broker.engine, shape.routes.get(senders[0].names)
    if route is None or not route.is_plain or shape.special is not None or event.transaction is not None:
        return False
    destination = route.destinations[0]
    address = engine.addresses.get(destination.address)
    if address is None or address.only is None or destination.is_temporary or destination.queue:
        return False
    if address.limits is not None or address.fanout is not None or engine.trouble is not None:
        return False
    if address.only.admission is not None:  # it asks something of each: so many together are more than a step
        return False
    if (destination.routing or address.kinds) != ANYCAST:
        return False
    try:
        _, routing, _ = reach(senders[0], destination)
    except StompboxError:  # each is told
        return False
    sender = senders[0].session_id if len(senders) == 1 else 0
    run = Run(shape, event.bodies, event.columns, routing=routing, sender=sender)
    waits = engine.publish(address, run, is_answered=bool(event.receipts))
    unit = engine.commits.last if waits else None
    if event.receipts:
        for connection, receipt in zip(senders, event.receipts, strict=True):
            connection.confirm([receipt], waits=waits, unit=unit)
    return True


def _ask(connection: Speaker, event: Sends, asks: Asks) -> Iterator[None] | None:
    """Sent to the broker itself, which takes each of a run up by itself."""
    if event.transaction is not None:
        raise asks.refusal()
    run = Run(event.shape, event.bodies, event.columns)
    _take_up(connection, event, run, 0, asks)
    return _taking_up(connection, event, run, asks) if len(run) > 1 else None


def _taking_up(connection: Speaker, event: Sends, run: Run, asks: Asks) -> Iterator[None]:
    """The others, some in each step."""
    for index in range(1, len(run)):
        if connection.is_ended:  # STOMP 1.2, ERROR: nothing behind it is obeyed
            return
        try:
            _take_up(connection, event, run, index, asks)
        except StompboxError as error:
            connection.refuse_each(error, event.part(index, index + 1))
        if index % ASKED == 0:
            yield


def _take_up(connection: Speaker, event: Sends, run: Run, index: int, asks: Asks) -> None:
    frame = Frame("SEND", run.headers(index), run.octets(index))
    if asks is Asks.REQUEST:
        dispatch.receive(connection, frame)
    else:
        receipts = event.receipts[index : index + 1]
        management.receive(connection, frame, partial(connection.confirm, receipts, waits=False))


def _send_with_care(connection: Speaker, event: Sends, route: Route) -> Iterator[None] | None:
    """Obeys SENDs that are not plain. What can be refused is found out before anything is sent."""
    engine = connection.broker.engine
    if route.asks is not Asks.NOTHING:
        return _ask(connection, event, route.asks)
    with connection.changing_nothing("the headers of a SEND were looked at"):
        shape = (
            event.shape
            if connection.added_headers is None
            else connection.added_headers.on(event.shape, engine.now)
        )
        route = without_gone(connection, shape, route, len(event.bodies))
        require_all(connection, route)
    if not route.destinations:
        if event.transaction is not None:
            transaction_of(connection, event.transaction)
        connection.confirm(event.receipts, waits=False)
        return None
    is_much = len(route.destinations) > 1 or engine.watchers.are_there
    if is_much and not is_all_there(engine, route.destinations):
        return _made_first(connection, event, route)
    try:
        runs = addressed(connection, shape, route, event.bodies, event.columns)
    except TooManyMade as error:
        raise _of(event, error) from None
    if connection.options.subscribe_reply_to and route.reply is not None:
        _subscribe(connection, route.reply)
    if most := _most(event, [address for address, _ in runs]):
        return _in_parts(connection, event, most)
    if event.transaction is None and _is_too_much(connection, event, [address for address, _ in runs]):
        return None
    if (
        engine.trouble is not None
        and event.transaction is None
        and _is_divided(connection, event, [address for address, _ in runs])
    ):
        return None
    retained.check(runs)
    if event.transaction is not None:
        _hold(connection, event.transaction, runs)
        if event.receipts:
            connection.confirm(event.receipts, waits=False)
        return None
    if len(runs) > MANY:
        return _as_unit(connection, event, runs)
    engine.prepare(runs, connection.allowance.maker)
    waits = engine.publish_all(runs, is_answered=bool(event.receipts))
    connection.reading.has_sent = True
    press(connection, runs)
    if event.receipts:
        connection.confirm(event.receipts, waits=waits, unit=engine.commits.last if waits else None)
    return finishing(runs) if any(address.fanout is not None for address, _ in runs) else None


def _read_first(connection: Speaker, event: Sends, route: Route) -> Iterator[None]:
    """To find out what very many destinations are is a step of its own."""
    yield
    yield from _send_with_care(connection, event, route) or ()


def _as_unit(connection: Speaker, event: Sends, runs: list[tuple[Address, Run]]) -> Iterator[None]:
    """To very many destinations: in steps, as a transaction that sends all of it. So it comes to all of them or, where it is refused or the
    broker dies, to none."""
    unit = Transaction("", connection.allowance.maker)
    unit.replace_sends(runs)
    yield
    waits = yield from committing(connection.broker.engine, unit, is_answered=bool(event.receipts))
    connection.reading.has_sent = True
    press(connection, unit.sends)
    if event.receipts:
        connection.confirm(event.receipts, waits=waits, unit=unit.unit)
    yield from letting_go(unit.sends)


def _made_first(connection: Speaker, event: Sends, route: Route) -> Iterator[None]:
    """What it needs is made in steps; then it is obeyed as any other."""
    try:
        yield from making(connection, route)
    except TooManyMade as error:
        raise _of(event, error) from None
    if not connection.is_ended:
        yield from sends(connection, event) or ()


def _subscribe(connection: Speaker, reply: Destination) -> None:
    """RabbitMQ: who asks for an answer to a temporary queue of its own gets it without a SUBSCRIBE."""
    is_own = connection.temporaries.own(reply) is not None
    if not is_own or any(consumer.destination == reply.text for consumer in connection.consumers.values()):
        return
    for _ in subscribe(connection, Frame("SUBSCRIBE", {"destination": reply.text, "id": reply.text})) or ():
        pass


def _most(event: Sends, addresses: Sequence[Address]) -> int:
    """Messages of a run that go in one step, as each of them may take long; 0: all do."""
    if len(event.bodies) == 1 or event.transaction is not None:
        return 0
    most = min([at_once(address, event.shape) for address in addresses])
    return most if most < len(event.bodies) else 0


def _in_parts(connection: Speaker, event: Sends, most: int) -> Iterator[None]:
    """So many messages of the run in each step, as what is done for each may take long."""
    for at in range(0, len(event.bodies), most):
        if connection.is_ended:  # STOMP 1.2, ERROR: nothing behind it is obeyed
            return
        part = event.part(at, at + most)
        try:
            yield from sends(connection, part) or ()
        except StompboxError as error:
            connection.refuse_each(error, part)
        yield


def _of(event: Sends, error: TooManyMade) -> TooManyMade:
    """A transaction that went on would commit without what was refused."""
    return error if event.transaction is None else TooManyMade(error.code, error.message, closes=True)


def _is_too_much(connection: Speaker, event: Sends, addresses: Sequence[Address]) -> bool:
    """Whether not all of a run fit. Then all is done: what fits was sent, the others got their ERROR."""
    stretches = limiting.judged(event, addresses)
    if all(is_taken for _, _, is_taken in stretches):
        return False
    for first, stop, is_taken in stretches:
        part = event.part(first, stop)
        if connection.is_ended:  # STOMP 1.2, ERROR: nothing behind it is obeyed
            break
        if is_taken:
            sends(connection, part)
        else:
            limiting.refuse(connection, part, addresses)
    return True


def _is_divided(connection: Speaker, event: Sends, addresses: Sequence[Address]) -> bool:
    """Whether the disk refuses, and has some of a run and not the others. Then all is done: those were confirmed, these got their ERROR."""
    of_each = [
        duplicates.stored(address, Run(event.shape, event.bodies, event.columns)) for address in addresses
    ]
    is_stored = [all(found) for found in zip(*of_each, strict=True)]
    if len(set(is_stored)) < 2:
        return False
    for _, same in groupby(range(len(is_stored)), is_stored.__getitem__):
        indices = list(same)
        part = event.part(indices[0], indices[-1] + 1)
        if connection.is_ended:  # STOMP 1.2, ERROR: nothing behind it is obeyed
            break
        try:
            sends(connection, part)
        except Refused as refusal:
            connection.refuse_each(refusal, part)
    return True


def _hold(connection: Speaker, name: str, runs: list[tuple[Address, Run]]) -> None:
    transaction = transaction_of(connection, name)
    run = runs[0][1]
    written = transaction.written + (0 if run.is_large else run.size)
    if written > connection.options.max_transaction_size:
        limit = connection.options.max_transaction_size
        text = (
            f"transaction {name[:80]!r} would hold {written} bytes; the limit is {limit} (maxTransactionSize)"
        )
        # went on, it would commit without what was refused
        raise Refused("transaction-too-large", text, closes=True)
    transaction.written = written
    transaction.size += cost_of(run) + RUN * (len(runs) - 1)
    transaction.sends += runs
