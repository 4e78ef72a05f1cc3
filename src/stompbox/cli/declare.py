"""`stompbox declare` and `stompbox durables`: what is to be there before anybody comes: addresses, queues, durable subscriptions."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from cyclopts import App, Parameter

from stompbox.cli.asking import every
from stompbox.cli.definitions import Host
from stompbox.cli.examples import examples
from stompbox.cli.listing import Entry, Listing
from stompbox.cli.operating import Operation, sure
from stompbox.cli.parameters import Admin, Flag, Match, SelectorText, Yes

app = App(name="declare", help_epilogue=examples("declare"))
durables_app = App(name="durables", help_epilogue=examples("durables"))

ClientId = Annotated[str, Parameter(help="Of the client that comes for it.")]
SubscriptionName = Annotated[str, Parameter(help="Of the subscription, as durable-subscription-name has it.")]
_AS_IT_IS: Final = Operation()


@app.command
def address(
    name: Annotated[str, Parameter(help="Name of the address.")],
    /,
    *,
    routing: Annotated[
        Literal["anycast", "multicast"] | None, Parameter(help="anycast: queues; multicast: topics.")
    ] = None,
    operation: Operation = _AS_IT_IS,
) -> None:
    """Make an address, which stays until it is deleted. One that is there is left as it is."""
    order = {"address": name, "routing_type": routing.upper() if routing else None}

    def told(found: dict[str, object]) -> str:
        return f"address {name} {'made' if found['is_new'] else 'was there'}"

    operation.do("declare address", "addresses/create", order, told)


@app.command
def queue(
    name: Annotated[str, Parameter(help="Name of the queue.")],
    /,
    *,
    address: Annotated[str, Parameter(help="Its address; else one of the same name.")] = "",
    filter_: Annotated[
        str, Parameter(name="--filter", help="Only messages whose headers match come into it.")
    ] = "",
    topic: Annotated[Flag, Parameter(help="It gets what is sent to the topic.")] = False,
    not_durable: Annotated[Flag, Parameter(help="It does not outlive a restart.")] = False,
    operation: Operation = _AS_IT_IS,
) -> None:
    """Make a queue, and its address where need be. It stays until it is deleted."""
    order = {
        "address": address or name, "queue": name, "filter": filter_, "durable": not not_durable,
        "routing_type": "MULTICAST" if topic else "ANYCAST",
    }  # fmt: skip

    def told(found: dict[str, object]) -> str:
        return f"queue {name} {'made' if found['is_new'] else 'was there'}"

    operation.do("declare queue", "queues/create", order, told)


@app.command
def durable(
    destination: Annotated[str, Parameter(help="What it subscribes to, such as /topic/prices.")],
    client_id: ClientId,
    name: SubscriptionName,
    /,
    *,
    selector: SelectorText = None,
    virtual_host: Host = None,
    operation: Operation = _AS_IT_IS,
) -> None:
    """Make a durable subscription, which keeps messages until its client comes for them."""
    order = {
        "destination": destination, "client_id": client_id, "name": name, "selector": selector or "",
        "virtual_host": virtual_host or "",
    }  # fmt: skip
    told = f"durable subscription {name} of {client_id} waits for its client"
    operation.do("declare durable", "durables/create", order, told)


@durables_app.command(name="list", show=False)
@durables_app.default
def durables(match: Match = "", *, admin: Admin = None, listing: Listing = Listing()) -> None:  # noqa: B008 - a frozen value
    """List durable subscriptions, and what waits for them."""
    columns = ("client-id", "name", "destination", "user", "ready", "delivering", "")
    listing.show("durables", columns, lambda: list(every(admin, "durables", match=match)), _row)


def _row(one: Entry) -> tuple[object, ...]:
    return (
        one["client_id"], one["name"], one["destination"], one["user"],
        f"~{one['ready']:,}" if one["is_estimate"] else one["ready"], one["delivering"],
        "connected" if one["is_connected"] else "",
    )  # fmt: skip


@durables_app.command
def delete(
    client_id: ClientId,
    name: SubscriptionName,
    /,
    *,
    virtual_host: Host = None,
    yes: Yes = False,
    operation: Operation = _AS_IT_IS,
) -> None:
    """End a durable subscription of the user who asks: what it holds goes."""
    sure("durables delete", f"end durable subscription {name} of {client_id} with all that it holds", yes=yes)
    order = {"client_id": client_id, "name": name, "virtual_host": virtual_host or ""}
    told = f"durable subscription {name} of {client_id} ended"
    operation.do("durables delete", "durables/delete", order, told)
