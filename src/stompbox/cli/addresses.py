"""`stompbox addresses`: what addresses there are; holding their messages back, refusing new ones, removing them."""

from __future__ import annotations

from typing import Annotated, Final

from cyclopts import App, Parameter

from stompbox.cli import names
from stompbox.cli.asking import every
from stompbox.cli.examples import examples
from stompbox.cli.listing import Entry, Listing
from stompbox.cli.operating import Operation, sure
from stompbox.cli.parameters import Admin, Forced, Match, Yes

app = App(name="addresses", help_epilogue=examples("addresses"))

AddressName = Annotated[str, Parameter(help="Name of the address.", completer=names.addresses)]
_AS_IT_IS: Final = Operation()


@app.default
def addresses(match: Match = "", *, admin: Admin = None, listing: Listing = Listing()) -> None:  # noqa: B008 - a frozen value
    """List addresses: the next offset of their logs, what waits, who reads."""
    columns = ("address", "routing", "next", "ready", "queues", "subs", "groups", "consumers", "")
    listing.show("addresses", columns, lambda: list(every(admin, "addresses", match=match)), _row)


def _row(one: Entry) -> tuple[object, ...]:
    return (
        one["name"], "+".join(one["routing_types"]).lower(), one["next"],
        f"~{one['ready']:,}" if one["is_estimate"] else one["ready"], one["queues"], one["subscriptions"],
        one["groups"], one["consumers"], _state(one),
    )  # fmt: skip


def _state(one: Entry) -> str:
    return ", ".join([word for word in ("paused", "blocked", "full", "temporary") if one[f"is_{word}"]])


@app.command
def pause(address: AddressName, /, *, operation: Operation = _AS_IT_IS) -> None:
    """Hand out nothing from an address, until `resume`; messages go in, and wait."""
    told = f"address {address} is paused: nothing is handed out until `stompbox addresses resume`"
    operation.do("addresses pause", "addresses/pause", {"address": address}, told)


@app.command
def resume(address: AddressName, /, *, operation: Operation = _AS_IT_IS) -> None:
    """Hand out messages of a paused address again."""
    told = f"address {address} is handed out again"
    operation.do("addresses resume", "addresses/resume", {"address": address}, told)


@app.command
def block(address: AddressName, /, *, operation: Operation = _AS_IT_IS) -> None:
    """Refuse messages to an address (ERROR address-blocked), until `unblock`; what is there goes out."""
    told = f"address {address} takes no messages until `stompbox addresses unblock`"
    operation.do("addresses block", "addresses/block", {"address": address}, told)


@app.command
def unblock(address: AddressName, /, *, operation: Operation = _AS_IT_IS) -> None:
    """Take messages to a blocked address again."""
    told = f"address {address} takes messages again"
    operation.do("addresses unblock", "addresses/unblock", {"address": address}, told)


@app.command
def delete(
    address: AddressName, /, *, force: Forced = False, yes: Yes = False, operation: Operation = _AS_IT_IS
) -> None:
    """Remove an address with its queues and its log. Without --force only where nothing waits in them and nobody reads them."""
    sure("addresses delete", f"remove address {address} with all that its log keeps", yes=yes)

    def told(found: dict[str, object]) -> str:
        rest = "deleted" if found["is_deleted"] else "is being deleted; the broker goes on with it"
        return f"address {address} {rest}"

    operation.do("addresses delete", "addresses/delete", {"address": address, "is_forced": force}, told)
