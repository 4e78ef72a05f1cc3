"""What an operator has the broker do in STOMP: sending a message, making and ending a durable subscription.

The frames go the way of a client's, over a connection of the broker's own for the user who asks. So rights, limits, names and whatever
else a frame is asked are those of clients, and no other way leads into a queue.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Final

from msgspec import Meta, Struct
from starlette.responses import Response

from stompbox.admin.apirequest import ANSWER_WITHIN, ApiRequest
from stompbox.admin.endpoints import OWN, changing, naming, reading
from stompbox.admin.listing import Field, by_field, cutting, listed, page_of
from stompbox.broker.queues.depth import depth_of
from stompbox.config import Listener
from stompbox.config.spaces import local, space_of
from stompbox.errors import IllegalFrame, Refused, StompboxError
from stompbox.server.closings import INSIDE
from stompbox.server.session.connection import Connection
from stompbox.stomp.codec import Decoder, encode
from stompbox.stomp.frames import SERVER_COMMANDS, Frame
from stompbox.stomp.versions import V12

if TYPE_CHECKING:
    from stompbox.broker.subscriptions.durables import DurableSubscription
    from stompbox.stomp.runs import Acks, Sends

LISTENER: Final = Listener(INSIDE, "interface", 0)  # what such a connection shows as its own
RECEIPT: Final = "done"
TAKEN: Final = frozenset(
    ("destination", "receipt", "transaction", "content-length")
)  # headers that the order has fields for, or none
# Codes of ERRORs, and the fields of an order that they are about
_ABOUT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "bad-destination": "destination", "durable-on-queue": "destination", "no-such-temporary": "destination",
        "no-such-address": "destination", "not-permitted": "destination", "address-full": "destination",
        "address-blocked": "destination", "no-such-subscription": "name", "durable-in-use": "name", "unknown-host": "virtual_host",
    }
)  # fmt: skip
_OF_HEADERS: Final = (
    "bad-",
    "too-many-headers",
    "header-",
)  # how the codes begin of what a header of a SEND says
_OF_SELECTORS: Final = "selector-"

Host = Annotated[str, Meta(description="The virtual host, where there are some; else the default one.")]
Destination = Annotated[
    str, Meta(description="As in a frame: `/queue/NAME`, `/topic/NAME` and so on.", min_length=1)
]


class Sending(Struct, forbid_unknown_fields=True):
    """A message. `body` or `body_base64`, which may hold any octets."""

    destination: Destination
    body: str = ""
    body_base64: str | None = None
    headers: Annotated[dict[str, str], Meta(description="Headers of the SEND beyond its destination.")] = {}
    virtual_host: Host = ""


class Subscribing(Struct, forbid_unknown_fields=True):
    """A durable subscription to be made: that of a client-id and a name."""

    destination: Destination
    client_id: Annotated[str, Meta(description="Of the client that will come for it.", min_length=1)]
    name: Annotated[str, Meta(description="Of the subscription.", min_length=1)]
    selector: Annotated[str, Meta(description="Only messages that it takes.")] = ""
    virtual_host: Host = ""


class Ending(Struct, forbid_unknown_fields=True):
    """A durable subscription that ends."""

    client_id: Annotated[str, Meta(description="Of the client that made it.", min_length=1)]
    name: Annotated[str, Meta(description="Of the subscription.", min_length=1)]
    virtual_host: Host = ""


class Sent(Struct):
    """The message is stored, or where it goes to keeps none."""

    destination: str
    is_sent: bool


class Durable(Struct):
    """A durable subscription, and whether it is there now."""

    client_id: str
    name: str
    is_there: bool


class DurableView(Struct, frozen=True):
    """A durable subscription. `destination`: the addresses, or patterns, that it covers; `user`: whose it is; `is_connected`: its client is
    there. Messages are those of all its queues, as in QueueView."""

    client_id: str
    name: str
    virtual_host: str | None
    destination: str
    selector: str | None
    user: str
    is_connected: bool
    queues: int
    ready: int
    delayed: int
    delivering: int
    is_estimate: bool


BY: Final[Mapping[str, Field]] = MappingProxyType(
    {"client_id": lambda one: one.client_id, "name": lambda one: one.name}
)


@reading("durables", page_of("durables", DurableView), OWN, *cutting(BY))
async def durables(asked: ApiRequest) -> Response:
    """Durable subscriptions, with the messages that wait for them."""
    is_all, name = asked.may(), asked.user.name
    hosts = {host.space: host.name for host in asked.broker.configuration.virtual_hosts}
    there = asked.broker.engine.durables.values()
    mine = [durable for durable in there if is_all or durable.owner == name]
    found = await asked.broker.turns.taken(by_field(mine, _durable))
    return await listed(
        asked, "durables", found, lambda durable: _view(durable, hosts), key=_durable,
        text=lambda durable: f"{local(durable.client_id)} {durable.name}", fields=BY,
    )  # fmt: skip


def _durable(durable: DurableSubscription) -> str:
    return f"{durable.client_id} {durable.name}"


def _view(durable: DurableSubscription, hosts: Mapping[str, str]) -> DurableView:
    depths = [depth_of(queue) for queue in durable.queues]
    return DurableView(
        local(durable.client_id), durable.name, hosts.get(space_of(durable.client_id)), durable.pattern,
        durable.selector.text if durable.selector is not None else None, durable.owner, durable.consumer is not None,
        len(depths), sum([one.ready for one in depths]), sum([one.delayed for one in depths]),
        sum([one.delivering for one in depths]), any(one.is_estimate for one in depths),
    )  # fmt: skip


@changing("messages/send", Sending, Sent, "Needs the rights that a SEND needs.")
async def send(asked: ApiRequest) -> object:
    """Sends a message, as a client with the same user would."""
    order: Sending = asked.order
    body = _octets(order)
    for name in order.headers:
        if name in TAKEN or not name:
            with naming("headers"):
                raise IllegalFrame("bad-header", f"header {name!r} cannot be given here")
    await speak(asked, Frame("SEND", {"destination": order.destination, **order.headers}, body))
    return Sent(order.destination, is_sent=True)


@changing("durables/create", Subscribing, Durable, "Needs the rights that a SUBSCRIBE needs.")
async def create_durable(asked: ApiRequest) -> object:
    """Makes a durable subscription that waits for its client. Where it is there with another destination or selector, it is a new
    one then."""
    order: Subscribing = asked.order
    headers = {
        "destination": order.destination, "id": RECEIPT, "ack": "client-individual", "durable-subscription-name": order.name,
        "prefetch-count": "1",
    }  # fmt: skip
    if order.selector:
        headers["selector"] = order.selector
    await speak(asked, Frame("SUBSCRIBE", headers), client_id=order.client_id)
    return Durable(order.client_id, order.name, is_there=True)


@changing("durables/delete", Ending, Durable, "Only for who made it, as an UNSUBSCRIBE.")
async def delete_durable(asked: ApiRequest) -> object:
    """Ends a durable subscription: what it holds goes."""
    order: Ending = asked.order
    _require_unused(asked, order)
    headers = {"id": RECEIPT, "durable-subscription-name": order.name}
    await speak(asked, Frame("UNSUBSCRIBE", headers), client_id=order.client_id)
    return Durable(order.client_id, order.name, is_there=False)


def _require_unused(asked: ApiRequest, order: Ending) -> None:
    """Raises Refused where its client is there: an UNSUBSCRIBE would end the subscription from under it."""
    _require_host(asked)
    with naming("virtual_host"):
        host = asked.broker.hosts.find(order.virtual_host)
    client_id = order.client_id if host is None else host.space + order.client_id
    found = asked.broker.engine.durables.get((client_id, order.name))
    if found is not None and found.consumer is not None and found.owner in ("", asked.user.name):
        with naming("name"):
            raise Refused("durable-in-use", f"durable subscription {order.name[:200]!r} has a subscriber")


def _octets(order: Sending) -> bytes:
    if order.body_base64 is None:
        return order.body.encode()
    with naming("body_base64"):
        try:
            return b64decode(order.body_base64, validate=True)
        except (Base64Error, ValueError) as error:
            raise IllegalFrame("bad-json", f"body_base64 is no base64: {error}") from None


async def speak(asked: ApiRequest, frame: Frame, *, client_id: str = "") -> None:
    """Has the broker obey one frame of the user's, and waits until that is done. Raises Refused for what an ERROR would say."""
    broker, peer = asked.broker, asked.request.client
    _require_host(asked)
    inside = Inside(asked.user.name, broker.loop.create_future())
    if frame.body:
        frame.headers["content-length"] = str(len(frame.body))
    connect = Frame("CONNECT", _connecting(asked.order.virtual_host, client_id))
    frame.headers["receipt"] = RECEIPT
    said = [encode(connect, V12), encode(frame, V12)]
    asked.begin()
    connection = Connection(broker, LISTENER, inside, peer.host if peer else "local")
    try:
        for octets in said:
            if not connection.is_ended:
                connection.receive(octets)
        broker.flush()
        await asyncio.wait([inside.answer], timeout=ANSWER_WITHIN)
    finally:
        connection.lost()
        broker.flush()
    if not inside.answer.done():
        raise Refused("no-answer", f"what was asked is not done within {ANSWER_WITHIN:.0f} s; it may be yet")
    found = inside.answer.result()
    if found.command == "ERROR":
        text = bytes(found.body).decode("utf-8", "replace").rstrip("\n") or found.headers.get("message", "")
        raise _refusal(found.headers.get("code", "refused"), text, asked.order)


def _require_host(asked: ApiRequest) -> None:
    """Raises Refused for a virtual host that is not there: a client that names one is let into the default one."""
    name = asked.order.virtual_host
    if name and name not in asked.broker.hosts.by_name:
        with naming("virtual_host"):
            raise Refused("no-such-virtual-host", f"there is no [[virtual-host]] {name[:80]!r}")


def _connecting(host: str, client_id: str) -> dict[str, str]:
    """Headers of the CONNECT. Raises what names the field that no CONNECT can hold."""
    headers = {"accept-version": "1.2", "host": host, "heart-beat": "0,0"}
    if client_id:
        headers["client-id"] = client_id
    for field, name in (("virtual_host", "host"), ("client_id", "client-id")):
        with naming(field):
            encode(Frame("CONNECT", {name: headers.get(name, "")}), V12)
    return headers


def _refusal(code: str, text: str, order: Struct) -> StompboxError:
    """What an ERROR says, with the field of the order that it is about."""
    field = _ABOUT.get(code)
    if code.startswith(_OF_SELECTORS):
        field = "selector"
    elif field is None and code.startswith(_OF_HEADERS):
        field = "headers"
    is_wrong = code.startswith((_OF_SELECTORS, *_OF_HEADERS))
    kind: type[StompboxError] = IllegalFrame if is_wrong else Refused
    error = kind(code, text)
    if field in order.__struct_fields__:
        error.field = field
    return error


class Inside:
    """What stands in for a socket: it reads what the broker says, and keeps the answer, a RECEIPT or an ERROR."""

    is_clogged = is_reset = False
    port = 0
    unread = 0
    unsent = 0
    silence: float | None = None
    absence: float | None = None

    def __init__(self, user: str, answer: asyncio.Future[Frame]) -> None:
        self.certificate_name = user  # who has logged in to the admin interface is known
        self.answer = answer
        self._decoder: Decoder[Sends | Acks] = Decoder(SERVER_COMMANDS)
        self._decoder.version = V12

    def write(self, data: bytes) -> None:
        for event in self._decoder.receive(data):
            found: Any = event
            if isinstance(found, Frame) and found.command in ("RECEIPT", "ERROR") and not self.answer.done():
                self.answer.set_result(found)

    def pause_reading(self) -> None:
        """There is no socket: what is said here is handed over."""

    def resume_reading(self) -> None:
        """Nothing was paused before."""

    def close(self) -> None:
        """The answer was handed over when it was written."""

    def abort(self) -> None:
        """Nothing is left to be cut off: see `close`."""

    def enter(self, user: str) -> None:
        """No listener counts it."""

    def probe(self, seconds: int) -> None:
        """Nobody can go silent."""
