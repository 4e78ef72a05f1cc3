"""SUBSCRIBE and UNSUBSCRIBE: from headers to a consumer, and what it is bound to.

RECEIPT of a durable SUBSCRIBE    durable-name:<name>, subscription-created:true | false (it was there, with its backlog)
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from stompbox.broker import transactions
from stompbox.broker.addresses import lifetimes, makers
from stompbox.broker.addresses.destinations import Destination, require_short
from stompbox.broker.engine import Engine
from stompbox.broker.kinds import TYPES, Kind
from stompbox.broker.queues.consumer import AckMode, Consumer
from stompbox.broker.queues.queue import Queue
from stompbox.broker.subscriptions import durables, subscribers
from stompbox.broker.subscriptions.durables import DurableSubscription
from stompbox.config.spaces import local
from stompbox.errors import IllegalFrame, Refused, StompboxError
from stompbox.message import ANYCAST, BROKER_HEADERS, MULTICAST, Run
from stompbox.security import Right
from stompbox.selectors import Selector
from stompbox.server import notifications, readonly, revoking
from stompbox.server.addressing import arguments
from stompbox.server.addressing.arguments import QUEUE_NAME
from stompbox.server.addressing.selecting import compiling, is_long, selector_of
from stompbox.server.addressing.values import truth
from stompbox.server.frames import browsers, streams
from stompbox.server.frames.acknowledging import OPENMQ_ID
from stompbox.server.frames.flow import flow_of, most_waiting
from stompbox.server.frames.transactions import transaction_of
from stompbox.server.owners import owner_of, require
from stompbox.server.stopping import refusal
from stompbox.stomp.codec import escape
from stompbox.stomp.encode import Head
from stompbox.stomp.frames import Frame
from stompbox.stomp.session import DURABLE_NAMES

if TYPE_CHECKING:
    from stompbox.server.frames.speaker import Speaker


ARTEMIS_ID: Final = "subscription/"  # how the id begins that a SUBSCRIBE without one gets (Artemis)
_Binding = Generator[None, None, dict[str, str]]


def subscribe(connection: Speaker, frame: Frame) -> Iterator[None] | None:
    """Makes a consumer and binds it, in steps; its RECEIPT goes before its first MESSAGE."""
    headers, options = frame.headers, connection.options
    name = _name(connection, frame)
    if connection.broker.is_draining:
        raise refusal()
    if name in connection.consumers:
        raise IllegalFrame(
            "subscription-exists", f"subscription id {name[:80]!r} is in use on this connection"
        )
    if len(connection.consumers) >= options.max_subscriptions:
        raise Refused(
            "too-many-subscriptions",
            f"a connection has no more than {options.max_subscriptions} subscriptions",
        )
    with connection.changing_nothing("the headers of a SUBSCRIBE were looked at"):
        destinations = streams.as_asked(
            frame, connection.names.parse(headers["destination"], headers.get("subscription-type"))
        )
        destinations = arguments.named(connection, headers, destinations)
        asked = connection.names.keys_of(streams.without_filter(headers, destinations))
    if options.read_only:
        _require_reading(connection, frame, destinations, asked)
        if streams.looks_first(connection, frame, destinations):
            return None  # it comes again, when there is all that there was
        _require_there(connection, frame, destinations)
    with connection.changing_nothing("the selector of a SUBSCRIBE was looked at"):
        text = streams.filter_of(frame, destinations)
        text = headers.get("selector") if text is None else text
        if is_long(connection, text):
            return _compiled_first(connection, frame, text or "")
        selector = selector_of(connection, text)
    if streams.looks_for_time(connection, frame, destinations):
        return None  # it comes again, with an offset
    wish = _durable_wish(connection, frame, destinations)
    if _comes_again(connection, frame, _holder(connection, frame, destinations, wish)):
        return None
    if "transaction" in headers:
        transaction_of(connection, headers["transaction"])  # OpenMQ: it must have been started
    consumer = _consumer(connection, frame, name, selector)
    for destination in destinations:
        _may_subscribe(connection, destination, frame)
    asked = arguments.of_queues(connection, asked, destinations, is_durable=wish is not None)
    arguments.require(connection, asked, destinations)
    if wish is None:
        _require_room(connection, destinations)
    binding = _bind(connection, frame, consumer, destinations, wish)
    return _subscribing(
        connection,
        frame,
        consumer,
        arguments.making(connection, asked, destinations),
        binding,
        wish=wish,
    )


def _require_reading(
    connection: Speaker, frame: Frame, destinations: tuple[Destination, ...], asked: arguments.Keys
) -> None:
    """Raises for what a listener with `readOnly` does not take."""
    is_named = _durable_name(frame) is not None or _is_durable_as_in_rabbitmq(frame)
    readonly.require_subscription(
        frame.headers,
        is_browser=browsers.is_browser(frame),
        is_reader=all(destination.is_stream for destination in destinations),
        is_named=is_named,
        has_arguments=bool(asked),
    )


def _require_there(connection: Speaker, frame: Frame, destinations: tuple[Destination, ...]) -> None:
    """Raises where a listener with `readOnly` would have to make what is read."""
    for destination in destinations:
        if browsers.is_browser(frame):
            browsers.require_one(connection, frame, destination)
        elif destination.address not in connection.broker.engine.addresses and not destination.is_wild:
            text = f"address {local(destination.address)!r} does not exist, and who only reads makes none"
            raise IllegalFrame("no-such-address", text)


def _compiled_first(connection: Speaker, frame: Frame, text: str) -> Iterator[None]:
    with connection.changing_nothing("the selector of a SUBSCRIBE was compiled"):
        selector = yield from compiling(connection, text)
    yield
    steps = None if connection.is_ended else subscribe(connection, frame)
    if steps is not None:
        yield from steps
    del selector  # it was kept for the frame to find it


def _subscribing(
    connection: Speaker,
    frame: Frame,
    consumer: Consumer,
    making_queues: Iterator[None],
    binding: _Binding,
    *,
    wish: DurableSubscription | None,
) -> Iterator[None]:
    broker, headers = connection.broker, frame.headers
    engine, permissions = broker.engine, broker.permissions
    before = engine.commits.changes
    try:
        yield from making_queues
        granted = yield from binding
    except StompboxError:
        yield from transactions.closing(engine, consumer, is_failure=False)
        raise
    if connection.is_ended:  # meanwhile: nobody else would close it
        yield from transactions.closing(engine, consumer, is_failure=False)
        return
    connection.consumers[consumer.name] = consumer
    notifications.subscribed(connection, consumer)
    if "transaction" in headers:
        connection.transacted = connection.transacted or {}
        connection.transacted[consumer] = headers.get("ack", "auto") == AckMode.AUTO.value
    is_new = engine.commits.changes > before or (
        wish is not None and engine.commits.is_unsaved("durable", wish.key)  # of an earlier frame
    )
    waits = engine.is_durable and is_new and "receipt" in headers
    connection.answer(frame, waits=waits, consumer=consumer, extra=granted)
    if broker.permissions is not permissions:
        yield from revoking.looking_at(connection, consumer)


def _name(connection: Speaker, frame: Frame) -> str:
    given = frame.headers.get("id")
    if given is not None:
        return given
    if connection.options.openmq_subscription_ids:
        return OPENMQ_ID + frame.headers["destination"]
    if connection.options.default_subscription_ids and connection.session.version.needs_subscription_id:
        return ARTEMIS_ID + frame.headers["destination"]
    return f"\0{connection.broker.new_session()}"  # 1.0 may leave it out: a hidden name


def _consumer(connection: Speaker, frame: Frame, name: str, selector: Selector | None) -> Consumer:
    headers, options = frame.headers, connection.options
    given = headers.get("ack", "auto")
    if given not in [mode.value for mode in AckMode]:
        raise IllegalFrame(
            "bad-ack", f"header ack is {given[:80]!r}; allowed are auto, client and client-individual"
        )
    flow = flow_of(frame, options)
    shows_ack = mode = AckMode(given)
    if "transaction" in headers and mode is AckMode.AUTO:  # the transaction acknowledges, at COMMIT
        mode = AckMode.CLIENT
    # STOMP 1.0, MESSAGE: subscription only if an id was given
    shown = None if name.startswith("\0") else name
    consumer = Consumer(
        name,
        mode,
        session=connection.session_id,
        destination=headers["destination"],
        selector=selector,
        window=flow.window,
        prefetch=flow.prefetch,
        is_either=flow.is_either,
        priority=flow.priority,
        is_exclusive=flow.is_exclusive,
        owner=connection,
        allowance=connection.allowance,
        head_of=partial(_head, connection, shown, shows_ack, _sequence(frame)),
    )
    consumer.is_started = False
    return consumer


def _sequence(frame: Frame) -> str:
    """Apollo's include-seq: the header that is to carry the offset; empty when it is not asked for."""
    given = frame.headers.get("include-seq")
    if given is not None and (not given or given in BROKER_HEADERS or given == "destination"):
        raise IllegalFrame(
            "bad-include-seq",
            f"header include-seq is {given[:80]!r}; allowed is a name that MESSAGE does not use itself",
        )
    return given or ""


def _head(connection: Speaker, shown: str | None, mode: AckMode, sequence: str, queue: Queue) -> Head:
    """How MESSAGE frames of a queue begin for a subscription, and what the broker adds to each."""
    options, version = connection.options, connection.session.version
    numbered = [escape(sequence, version)] if sequence else []
    if queue.kind in (Kind.STREAM, Kind.READER):
        numbered.append("x-stream-offset")  # RabbitMQ, streams
    is_timed = queue.address.settings.enable_ingress_timestamp
    lines = partial(_lines, numbered, is_timed) if numbered or is_timed else None
    acks = mode is not AckMode.AUTO
    return Head(version, shown, queue.id, acks=acks, always_length=options.always_content_length, lines=lines)


def _lines(numbered: list[str], is_timed: bool, run: Run, index: int) -> bytes:
    offset = run.first + index
    lines = [f"{name}:{offset}\n" for name in numbered]
    if is_timed:
        lines.append(f"ingress-timestamp:{run.arrived}\n")
    return "".join(lines).encode()


# Rights


def _may_subscribe(connection: Speaker, destination: Destination, frame: Frame) -> None:
    """Each address that a wildcard reaches is asked for by itself (`_may_reach`)."""
    if destination.is_wild or destination.is_temporary:
        return
    permissions, engine, name = connection.broker.permissions, connection.broker.engine, destination.address
    permissions.require(connection.user, Right.BROWSE if browsers.is_browser(frame) else Right.CONSUME, name)
    if destination.must_exist:
        subscribers.require_queue(engine, destination)
    known = engine.addresses.get(name)
    if known is not None and known.owner:
        raise Refused(
            "temporary-not-owned",
            f"only the connection that made {destination.text[:200]!r} may consume from it",
        )
    if browsers.only_looks(frame) and not connection.options.browsers_make_queues:
        browsers.require_one(connection, frame, destination)
    if known is None:
        permissions.require(connection.user, Right.CREATE_ADDRESS, name)
    if destination.is_stream:
        return
    routing = subscribers.routing_of(engine, destination)
    if known is not None and routing & ~known.kinds:  # another kind of the address is made
        permissions.require(connection.user, Right.CREATE_ADDRESS, name)
    if routing == MULTICAST and not destination.queue:
        permissions.require(connection.user, Right.CREATE_NON_DURABLE_QUEUE, name)
    elif known is None or not ({destination.queue or name} & (known.anycast.keys() | known.named.keys())):
        permissions.require(connection.user, Right.CREATE_DURABLE_QUEUE, name)


def _require_room(connection: Speaker, destinations: tuple[Destination, ...]) -> None:
    """Raises Refused where what it names and is not there is more than its user may make; nothing has been made then."""
    engine = connection.broker.engine
    wanted = [
        (one.address, one.queue, 0 if one.is_stream else subscribers.routing_of(engine, one))
        for one in destinations
        if not (one.is_wild or one.is_temporary)
    ]
    makers.require_all(engine, connection.allowance.maker, wanted)


def _may_reach_later(connection: Speaker) -> subscribers.MayReach:
    """What `_may_reach` says, of who may be gone when it is asked: by the rights that its user has then, as far as they are known."""
    broker, user, session = connection.broker, connection.user, connection.session_id

    def may_reach(name: str) -> bool:
        known = broker.by_session.get(session)
        return broker.permissions.may(user if known is None else known.user, Right.CONSUME, name)

    return may_reach


def _may_reach(connection: Speaker, right: Right | None, name: str) -> bool:
    permissions, user = connection.broker.permissions, connection.user
    return permissions.may(user, Right.CONSUME, name) and (
        right is None or permissions.may(user, right, name)
    )


# Binding


def _bind(
    connection: Speaker,
    frame: Frame,
    consumer: Consumer,
    destinations: tuple[Destination, ...],
    wish: DurableSubscription | None,
) -> _Binding:
    """Binds the consumer to all that it asks for; what is to be said of it in the RECEIPT."""
    engine = connection.broker.engine
    if browsers.is_browser(frame):
        yield from _looking_for(engine, destinations[0])
        known = None if wish is None else _browsed(connection, wish)
        browsers.to_browser(connection, frame, consumer, destinations, known)
        return {}
    if wish is not None:
        is_new = yield from durables.joining(engine, consumer, wish)
        return {"durable-name": wish.name, "subscription-created": "true" if is_new else "false"}
    plain = subscribers.Plain(consumer.selector, _no_local(frame), most_waiting(frame))
    said: dict[str, str] = {}
    joined = subscribers.Joined() if len(destinations) > 1 else None
    for number, destination in enumerate(destinations):
        if number:
            yield
        if destination.is_stream:
            yield from _looking_for(engine, destination)
            position = streams.position(connection, frame, destination, is_alone=len(destinations) == 1)
            name = _durable_name(frame)
            if name is not None:
                return streams.to_named(connection, consumer, destinations, name, position, frame=frame)
            streams.require_same(connection, frame, destination, position)
            subscribers.to_stream(engine, consumer, destination, position)
            said = streams.told(connection, destination) if len(destinations) == 1 else {}
        elif destination.is_temporary:
            _bind_temporary(connection, consumer, destination)
        elif destination.queue or subscribers.routing_of(engine, destination) == ANYCAST:
            yield from subscribers.joining_queues(
                engine, consumer, destination, partial(_may_reach, connection, None)
            )
        else:
            may_reach = partial(_may_reach, connection, Right.CREATE_NON_DURABLE_QUEUE)
            yield from subscribers.joining_topics(
                engine, consumer, destination, plain, may_reach=may_reach, joined=joined
            )
    return said


def _looking_for(engine: Engine, destination: Destination) -> Iterator[None]:
    """What comes next may make the address."""
    if not (destination.is_wild or destination.is_temporary):
        yield from lifetimes.looking(engine, destination.address)


def _no_local(frame: Frame) -> bool:
    return truth(frame, "no-local") or truth(frame, "activemq.noLocal")


def _bind_temporary(connection: Speaker, consumer: Consumer, destination: Destination) -> None:
    address = connection.make_temporary(destination)
    if destination.routing == MULTICAST:
        subscribers.join_topic(
            connection.broker.engine, consumer, address, subscribers.Plain(consumer.selector)
        )
    else:
        subscribers.bind(next(iter(address.anycast.values())), consumer)


# Durable subscriptions


def _holder(
    connection: Speaker,
    frame: Frame,
    destinations: tuple[Destination, ...],
    wish: DurableSubscription | None,
) -> Consumer | None:
    """Who has the durable subscription, or the reader, that a SUBSCRIBE is to take up."""
    if browsers.is_browser(frame):
        return None
    if wish is not None:
        known = connection.broker.engine.durables.get(wish.identity)
        return None if known is None else known.consumer
    name = _durable_name(frame)
    return None if name is None else streams.holder_of(connection, destinations[0], name)


def _comes_again(connection: Speaker, frame: Frame, holder: Consumer | None) -> bool:
    """Whether the SUBSCRIBE waits for the end of a connection whose socket is gone, or that was told its last word: who comes back at once
    is no second subscriber."""
    if holder is None or not (holder.owner.is_lost or holder.owner.is_ended):
        return False
    connection.reading.hold()
    holder.on_close.append(partial(_plan, connection, frame))
    return True


def _plan(connection: Speaker, frame: Frame) -> None:
    connection.broker.loop.call_soon(_again, connection, frame)  # when the one who held it has let go


def _again(connection: Speaker, frame: Frame) -> None:
    if not connection.is_ended:
        connection.broker.set_time()
        connection.obey_again(frame)
    connection.reading.go_on()


def _durable_name(frame: Frame) -> str | None:
    name = next((frame.headers[key] for key in DURABLE_NAMES if key in frame.headers), None)
    require_short(name or "")
    return name


def _is_durable_as_in_rabbitmq(frame: Frame) -> bool:
    """`durable:true` (or persistent:true) with `auto-delete:false`: the id is the name, and the user whose it is."""
    return _says_durable(frame) and "auto-delete" in frame.headers and not truth(frame, "auto-delete")


def _says_durable(frame: Frame) -> bool:
    return truth(frame, "durable") or truth(frame, "persistent")


def _durable_wish(
    connection: Speaker, frame: Frame, destinations: tuple[Destination, ...]
) -> DurableSubscription | None:
    """The durable subscription that a SUBSCRIBE asks for, None for a plain one."""
    name, engine = _durable_name(frame), connection.broker.engine
    is_of_user = name is None and QUEUE_NAME not in frame.headers and _is_durable_as_in_rabbitmq(frame)
    if (name is None and not is_of_user) or all(destination.is_stream for destination in destinations):
        return None
    if is_of_user and all(
        subscribers.routing_of(engine, destination) == ANYCAST for destination in destinations
    ):
        return None  # RabbitMQ: queues are durable anyway
    if is_of_user:
        name = frame.headers.get("id")
        require_short(name or "")
    if not name:
        names = ", ".join(DURABLE_NAMES[:3])
        raise IllegalFrame(
            "missing-id", f"a durable subscription needs a name that is not empty ({names}), or an id"
        )
    for destination in destinations:
        _check_durable(connection, destination)
    wish = DurableSubscription(
        _user_id(connection) if is_of_user else _client_id(connection),
        name,
        ",".join([destination.address for destination in destinations]),
        selector_of(connection, frame.headers.get("selector")),
        _no_local(frame),
        owner_of(connection),
        may_reach=_may_reach_later(connection),
    )
    if not browsers.is_browser(frame):
        _may_make(connection, wish)
    return wish


def _may_make(connection: Speaker, wish: DurableSubscription) -> None:
    """Whether it may be taken up as it is or, which is more, made anew: what was there of its name goes then."""
    known, permissions = connection.broker.engine.durables.get(wish.identity), connection.broker.permissions
    if known is not None:
        _require_own(connection, known)
        if known.is_same(wish):
            return
        for pattern in known.patterns:
            permissions.require(connection.user, Right.DELETE_DURABLE_QUEUE, pattern)
    for pattern in wish.patterns:
        if not connection.broker.engine.wildcards.is_wild(pattern):
            permissions.require(connection.user, Right.CREATE_DURABLE_QUEUE, pattern)


def _browsed(connection: Speaker, wish: DurableSubscription) -> DurableSubscription:
    """The durable subscription that is browsed, wherever it has come to be since: rights are asked on what it reads."""
    known = durables.find_durable(connection.broker.engine, *wish.identity)
    _require_own(connection, known)
    for queue in known.queues:
        connection.broker.permissions.require(connection.user, Right.BROWSE, queue.address.name)
    return known


def _require_own(connection: Speaker, durable: DurableSubscription) -> None:
    what = f"durable subscription {durable.name!r} of {local(durables.shown(durable.client_id))!r}"
    require(connection, durable.owner, what, durable.patterns)


def _check_durable(connection: Speaker, destination: Destination) -> None:
    routing = _routing_of_durable(connection, destination)
    if destination.is_stream or destination.is_temporary or destination.queue or routing != MULTICAST:
        kind = (
            "temporary"
            if destination.is_temporary
            else "a log"
            if destination.is_stream
            else f"{TYPES[routing]}, a queue"
        )
        hint = (
            "; write /topic/…, or give it default-address-routing-type MULTICAST"
            if not destination.routing
            else ""
        )
        text = f"a durable subscription needs a topic; {destination.text[:200]!r} is {kind}{hint}"
        raise IllegalFrame("durable-on-queue", text)


def _routing_of_durable(connection: Speaker, destination: Destination) -> int:
    """What the destination is, as every SUBSCRIBE reads it: that it asks for a durable subscription makes no topic of it. Where an
    address is both it is the topic that is meant."""
    engine = connection.broker.engine
    known = engine.addresses.get(destination.address)
    is_both = not destination.routing and known is not None and known.kinds == ANYCAST | MULTICAST
    return MULTICAST if is_both else subscribers.routing_of(engine, destination)


def _client_id(connection: Speaker) -> str:
    if not connection.client_id:
        raise IllegalFrame(
            "missing-client-id", "a durable subscription needs the header client-id on CONNECT"
        )
    return connection.client_id


def _user_id(connection: Speaker) -> str:
    """What stands for the client-id where a durable subscription is a user's."""
    return durables.USER + connection.names.qualified(connection.user.name)


# UNSUBSCRIBE


def unsubscribe(connection: Speaker, frame: Frame) -> Iterator[None]:
    """Ends a subscription, or for ever a durable one."""
    broker, headers = connection.broker, frame.headers
    durable = _durable_name(frame)
    # as in RabbitMQ, where `durable:true` is enough to end what was made with `auto-delete:false`, too
    of_user = (_user_id(connection), headers.get("id", ""))
    ends_of_user = durable is None and _says_durable(frame) and of_user in broker.engine.durables
    if connection.options.read_only and (durable is not None or ends_of_user):
        raise readonly.not_taken("UNSUBSCRIBE with a durable name")
    if durable is not None and streams.drop_named(connection, durable):
        pass
    elif durable is not None:
        yield from _drop_durable(
            connection, durables.find_durable(broker.engine, _client_id(connection), durable)
        )
    elif ends_of_user:
        yield from _drop_durable(connection, durables.find_durable(broker.engine, *of_user))
    else:
        yield from _end(connection, frame)
    connection.answer(frame, waits="receipt" in headers and broker.is_unsaved)


def _end(connection: Speaker, frame: Frame) -> Iterator[None]:
    headers = frame.headers
    name = headers.get("id")
    if name is None:
        name = next(
            (n for n, c in connection.consumers.items() if c.destination == headers["destination"]), ""
        )
    consumer = connection.consumers.pop(name, None)
    if consumer is None:
        wanted = headers.get("id", headers.get("destination", ""))
        raise IllegalFrame("no-such-subscription", f"this connection has no subscription {wanted[:80]!r}")
    return transactions.closing(connection.broker.engine, consumer, is_failure=False)


def _drop_durable(connection: Speaker, durable: DurableSubscription) -> Iterator[None]:
    """The backlog goes with it; an active subscriber, here or elsewhere, is closed first."""
    engine = connection.broker.engine
    _require_own(connection, durable)
    for pattern in durable.patterns:
        connection.broker.permissions.require(connection.user, Right.DELETE_DURABLE_QUEUE, pattern)
    active = durable.consumer
    if active is not None:
        active.owner.consumers.pop(active.name, None)
    yield from durables.ending(engine, durable)
