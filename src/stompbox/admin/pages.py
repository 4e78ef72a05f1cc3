"""What can be read of a running broker. Each is an endpoint (endpoints.py), whose description is its docstring."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from starlette.responses import PlainTextResponse, Response

from stompbox.admin import messages
from stompbox.admin.access import may_see
from stompbox.admin.actions import FARTHEST, find_queue
from stompbox.admin.administration import FrameWishes
from stompbox.admin.endpoints import ON_BROKER, OWN, SEEN, Choice, Number, Text, Truth, naming, reading
from stompbox.admin.health import Reason, notes, of_role
from stompbox.admin.history import SPANS, Activity, Plot
from stompbox.admin.lag import behind
from stompbox.admin.listing import (
    MOST,
    PIECE,
    Field,
    by_field,
    cutting,
    in_order,
    in_pieces,
    listed,
    page_of,
)
from stompbox.admin.messages import MessageView, Wanted
from stompbox.admin.pipelines import BY_PIPELINE, PipelineView, key_of, views_of
from stompbox.admin.responses import json
from stompbox.admin.views import (
    STAY,
    AddressView,
    ClientSubscription,
    ClientTransaction,
    ConnectionView,
    GroupView,
    PositionView,
    QueueView,
    SinkView,
    Status,
    address_view,
    connection_view,
    dead_letter_addresses,
    group_view,
    position_view,
    queue_view,
    sink_view,
    status_of,
    subscription_view,
    transaction_view,
)
from stompbox.broker.addresses.address import Address
from stompbox.broker.queues.depth import depth_of, sums_of
from stompbox.broker.queues.queue import Queue
from stompbox.errors import IllegalFrame, Refused
from stompbox.security import Right
from stompbox.selectors import Selector, compile_selector
from stompbox.selectors.steps import Steps
from stompbox.server.requests.replies import in_turns

if TYPE_CHECKING:
    from stompbox.admin.apirequest import ApiRequest


def _session(connection: Any) -> int:
    return int(connection.session_id)


def _lag(item: tuple[str, Queue | None]) -> int:
    queue = item[1]
    return 0 if queue is None else behind(queue)


CONNECTION: Final = Number(
    "connection", "Only what is of the connection with this id.", None, FARTHEST, least=0
)

# What lists can be sorted by

BY_ADDRESS: Final[Mapping[str, Field]] = MappingProxyType(
    {
        "name": lambda one: one.name, "next": lambda one: one.log.next, "ready": lambda one: sums_of(one).ready,
        "delayed": lambda one: sums_of(one).delayed, "delivering": lambda one: sums_of(one).delivering,
        "consumers": lambda one: sums_of(one).consumers,
    }
)  # fmt: skip
BY_QUEUE: Final[Mapping[str, Field]] = MappingProxyType(
    {
        "name": lambda one: one.name, "ready": lambda one: depth_of(one).ready, "delayed": lambda one: depth_of(one).delayed,
        "delivering": lambda one: depth_of(one).delivering, "consumers": lambda one: one.consumer_count,
    }
)  # fmt: skip
BY_CONNECTION: Final[Mapping[str, Field]] = MappingProxyType(
    {
        "id": _session, "peer": lambda one: one.peer, "user": lambda one: one.user.name, "client_id": lambda one: one.client_id,
        "since": lambda one: one.since, "subscriptions": lambda one: len(one.consumers), "transactions": lambda one: len(one.transactions),
    }
)  # fmt: skip
BY_SUBSCRIPTION: Final[Mapping[str, Field]] = MappingProxyType(
    {
        "connection": lambda item: item[0].session_id, "destination": lambda item: item[2].destination,
        "delivering": lambda item: item[2].messages_out, "queues": lambda item: len(item[2].bindings),
    }
)  # fmt: skip
BY_POSITION: Final[Mapping[str, Field]] = MappingProxyType(
    {
        "group": lambda item: item[0], "address": lambda item: item[1].address.name if item[1] else "", "lag_messages": _lag,
        "moved": lambda item: item[1].moved if item[1] else 0,
    }
)  # fmt: skip


class Health(Struct):
    """The broker's loop answers."""

    status: str


class Readiness(Struct):
    """`reasons` keep the broker from taking messages, `notes` from nothing."""

    status: str
    reasons: list[Reason]
    notes: list[Reason]


class FoundMessages(Struct):
    """Messages of a queue. `next`: the offset to go on from (`start`); None: there are no more."""

    queue: str
    messages: list[MessageView]
    next: int | None


NO_LOGIN: Final = "Needs no credentials."
ROLE: Final = Text(
    "role", "`leader`: of the nodes of a cluster the one that leads is ready, and no other.", ""
)
ADDRESS: Final = Text("address", "Only what belongs to the address of this name.")
QUEUE: Final = Text(
    "queue", "`NAME`, or `ADDRESS::NAME` where several queues have the name.", is_required=True
)
LIMIT: Final = Number(
    "limit", "So many at most; else `management-browse-page-size` of the address.", None, MOST
)
LOOK: Final = (
    Number("start", "From this offset on.", 0, FARTHEST, least=0),
    Number("since", "That arrived then or later, ms since 1970.", 0, FARTHEST, least=0),
    Text("selector", "That this selector takes.", ""),
    Truth("whole", "With whole bodies, up to 1 MiB each; what is no text in `body_base64`."),
)
SPAN: Final = Choice(
    "span",
    "Ten minutes in steps of 2 s, or a day in steps of a minute.",
    SPANS,
    lambda text: IllegalFrame("bad-span", text),
    SPANS[0],
)


@reading("/healthz", Health, NO_LOGIN, is_open=True)
async def healthz(_: ApiRequest) -> object:
    """Whether the broker's loop answers at all."""
    return {"status": "ok"}


@reading("/readyz", Readiness, NO_LOGIN, ROLE, is_open=True, statuses=(503,))
async def readyz(asked: ApiRequest) -> Response:
    """Whether who connects is served, and why not."""
    found = of_role(asked.broker, asked.values["role"])
    answer = {"status": "not ready" if found else "ready", "reasons": found, "notes": notes(asked.broker)}
    return json(answer, 503 if found else 200)


@reading("/metrics", None, ON_BROKER, media="text/plain")
async def metrics(asked: ApiRequest) -> Response:
    """Metrics for Prometheus, as text."""
    asked.require()
    found = asked.shared.metrics
    return PlainTextResponse(await found.text(), media_type=found.content_type)


@reading("status", Status, ON_BROKER)
async def status(asked: ApiRequest) -> object:
    """How the broker is: readiness, counts, memory, disk, dead letters."""
    asked.require()
    return status_of(asked.broker)


@reading(
    "connections",
    page_of("connections", ConnectionView),
    ON_BROKER,
    *cutting(BY_CONNECTION),
    CONNECTION,
)
async def connections(asked: ApiRequest) -> Response:
    """Connections, with their subscriptions and what they wait for."""
    asked.require()
    broker = asked.broker
    return await listed(
        asked, "connections", _connections(asked), lambda one: connection_view(broker, one), key=lambda one: str(one.session_id),
        text=lambda one: f"{one.session_id} {one.peer} {one.user.name} {one.client_id}", fields=BY_CONNECTION,
    )  # fmt: skip


@reading(
    "subscriptions",
    page_of("subscriptions", ClientSubscription),
    ON_BROKER,
    *cutting(BY_SUBSCRIPTION),
    CONNECTION,
)
async def subscriptions(asked: ApiRequest) -> Response:
    """Subscriptions of all connections, with what they have not acknowledged."""
    asked.require()
    found: list[tuple[Any, str, Any]] = asked.keep([])
    async for one in in_turns(asked.broker.turns, _connections(asked)):
        found += [(one, id, consumer) for id, consumer in one.consumers.items()]
    return await listed(
        asked, "subscriptions", found, lambda item: subscription_view(*item), key=lambda item: f"{item[0].session_id:012} {item[1]}",
        text=lambda item: f"{item[0].user.name} {item[0].client_id} {item[2].destination}", fields=BY_SUBSCRIPTION,
    )  # fmt: skip


@reading("transactions", page_of("transactions", ClientTransaction), ON_BROKER, *cutting(), CONNECTION)
async def transactions(asked: ApiRequest) -> Response:
    """Transactions that are open, with what they hold."""
    asked.require()
    found: list[tuple[Any, Any]] = asked.keep([])
    async for one in in_turns(asked.broker.turns, _connections(asked)):
        found += [(one, transaction) for transaction in one.transactions.values()]
    return await listed(
        asked, "transactions", found, lambda item: transaction_view(*item), key=lambda item: f"{item[0].session_id:012} {item[1].name}",
        text=lambda item: f"{item[0].user.name} {item[0].client_id} {item[1].name}",
    )  # fmt: skip


def _connections(asked: ApiRequest) -> list[Any]:
    """The connections that are asked for, the oldest first."""
    only = asked.values["connection"]
    found = [one for one in asked.broker.connections if only in (None, one.session_id)]
    return asked.keep(sorted(found, key=_session))


@reading("addresses", page_of("addresses", AddressView), SEEN, *cutting(BY_ADDRESS), ADDRESS)
async def addresses(asked: ApiRequest) -> Response:
    """Addresses, with what their queues have together."""
    found, dead_letters = await shown(asked, asked.values["address"]), dead_letter_addresses(asked.broker)
    return await listed(
        asked, "addresses", found, lambda one: address_view(one, dead_letters), key=lambda one: one.name, fields=BY_ADDRESS,
    )  # fmt: skip


@reading(
    "queues",
    page_of("queues", QueueView),
    SEEN,
    *cutting(BY_QUEUE),
    ADDRESS,
    Truth("all", "Also those that go with their consumers."),
)
async def queues(asked: ApiRequest) -> Response:
    """Queues that outlive their consumers, or all of them."""
    there = await shown(asked, asked.values["address"])
    found = asked.keep(await asked.broker.turns.taken(_queues(there, is_all=asked.values["all"])))
    return await listed(asked, "queues", found, queue_view, key=_name, fields=BY_QUEUE)


def _queues(addresses: list[Address], *, is_all: bool) -> Steps[list[Queue]]:
    found: list[Queue] = []
    for address in addresses:
        if is_all:
            found += address.queues()
        elif not address.owner:
            found += [queue for queue in address.queues() if queue.kind in STAY]
        yield
    return found


def _name(queue: Queue) -> str:
    return f"{queue.address.name}::{queue.name}"


@reading("groups", page_of("groups", GroupView), SEEN, *cutting())
async def groups(asked: ApiRequest) -> Response:
    """Reader groups with their positions."""
    broker, lags = asked.broker, asked.shared.lags
    seen = await shown(asked)
    lags.forget()

    async def view(name: str) -> object:
        return await group_view(broker, lags, name, seen)

    return await listed(asked, "groups", sorted(broker.engine.group_patterns), view, key=str)


@reading("positions", page_of("positions", PositionView), SEEN, *cutting(BY_POSITION), ADDRESS)
async def positions(asked: ApiRequest) -> Response:
    """Reader groups by address: where they are, and how far behind."""
    broker, lags, only = asked.broker, asked.shared.lags, asked.values["address"]
    lags.forget()
    found: list[tuple[str, Queue | None]] = asked.keep([])
    async for address in in_turns(broker.turns, await shown(asked, only)):
        found += address.groups.items()
    if asked.may() and only is None:
        waiting = broker.engine.group_patterns.keys() - {name for name, _ in found}
        found += [(name, None) for name in waiting]
    found = asked.keep(await broker.turns.taken(by_field(found, _position)))

    async def view(item: tuple[str, Queue | None]) -> object:
        return await position_view(broker, lags, *item)

    return await listed(asked, "positions", found, view, key=_position, fields=BY_POSITION)


def _position(item: tuple[str, Queue | None]) -> str:
    name, queue = item
    return f"{name} {queue.address.name if queue else ''}"


@reading("pipelines", page_of("pipelines", PipelineView), OWN, *cutting(BY_PIPELINE))
async def pipelines(asked: ApiRequest) -> Response:
    """What pipelines have told of their steps."""
    found = await views_of(asked.broker, None if asked.may() else asked.user.name)
    return await listed(
        asked, "pipelines", found, lambda view: view, key=key_of, text=lambda view: f"{view.pipeline}/{view.step} {view.user}",
        fields=BY_PIPELINE,
    )  # fmt: skip


@reading("sinks", page_of("sinks", SinkView), OWN, *cutting())
async def sinks(asked: ApiRequest) -> Response:
    """Sinks that are remembered, such as Spark's queries that write."""
    user, known, is_all = asked.user, asked.broker.sinks, asked.may()
    there = [sink for _, sink in sorted(known.known_sinks().items())]
    found = [sink for sink in there if is_all or user.name in sink.users]
    return await listed(
        asked, "sinks", found, lambda sink: sink_view(known, sink), key=lambda sink: sink.name
    )


@reading("messages", FoundMessages, "Needs `browse` on the address.", QUEUE, LIMIT, *LOOK)
async def browse(asked: ApiRequest) -> object:
    """Messages of a queue that wait or are being delivered, the oldest first. Nothing is taken."""
    with naming("queue"):
        queue = await find_queue(asked, asked.values["queue"])
        asked.require(Right.BROWSE, queue.address.name)
    most = queue.address.settings.management_browse_page_size
    count = most if asked.values["limit"] is None else asked.values["limit"]
    if count > most:
        with naming("limit"):
            raise IllegalFrame("bad-number", f"limit is {count}; allowed is a number from 1 to {most}")
    wanted = Wanted(asked.values["start"], asked.values["since"], await _selector(asked))
    async with asked.shared.making:
        found, following = await messages.first_messages(
            asked.broker, queue, count, wanted, is_whole=asked.values["whole"]
        )
        return await in_pieces(
            asked.broker.turns, {"queue": queue.name}, "messages", found, {"next": following}
        )


async def _selector(asked: ApiRequest) -> Selector | None:
    """The selector that the URL has; compiled in a thread, for a long one takes its time."""
    text: str = asked.values["selector"]
    if not text:
        return None
    with naming("selector"):
        return await asked.broker.loop.run_in_executor(None, compile_selector, text)


@reading("frames", FrameWishes, ON_BROKER)
async def frames(asked: ApiRequest) -> object:
    """Whose frames are logged because an operator asked for it."""
    asked.require()
    return {"frames": asked.broker.frames.listed()}


@reading("history", Plot, SEEN, SPAN, ADDRESS)
async def history(asked: ApiRequest) -> object:
    """What has happened lately, of the whole broker or of one of its busiest addresses."""
    address = asked.values["address"]
    if address is None:
        asked.require()
    elif not await shown(asked, address):
        with naming("address"):
            asked.require(Right.MANAGE, address)
            raise Refused("no-such-address", f"address {address[:200]!r} does not exist")
    return asked.shared.history.plot(address, asked.values["span"])


@reading("activity", Activity, SEEN)
async def activity(asked: ApiRequest) -> object:
    """What was sent to the busiest addresses in the last ten minutes, in outline: for small plots of many."""
    return await asked.shared.history.activity({address.name for address in await shown(asked)})


async def shown(asked: ApiRequest, only: str | None = None) -> list[Address]:
    """Addresses that the user may see, by name; `only`: no other than this."""
    there, turns = asked.broker.engine.addresses, asked.broker.turns
    names = await turns.taken(in_order(list(there))) if only is None else [only]
    return asked.keep(await turns.taken(_seen(asked, there, names)))


def _seen(asked: ApiRequest, there: Mapping[str, Address], names: list[str]) -> Steps[list[Address]]:
    """Looks for the addresses of these names, of which some may have gone."""
    found: list[Address] = []
    is_all = asked.may()
    for at in range(0, len(names), PIECE):
        part = [address for address in map(there.get, names[at : at + PIECE]) if address is not None]
        if is_all:
            found += part
            yield
            continue
        for address in part:
            if may_see(asked.broker, asked.user, address.name):
                found.append(address)
            yield
    return found
