"""`stompbox addresses`: what addresses there are; holding their messages back, refusing new ones, removing them."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from stompbox.cli.asking import Admin, AsJson, Yes, ask, every, plain, print_json, sure
from stompbox.cli.connecting import leaving
from stompbox.cli.listing import Entry, Listing
from stompbox.cli.queues import Match

app = App(name="addresses")

AddressName = Annotated[str, Parameter(help="Name of the address.")]
Forced = Annotated[
    bool,
    Parameter(
        name="--force", negative="", show_default=False, help="Also with messages, and from under consumers."
    ),
]


@app.default
def addresses(match: Match = "", *, admin: Admin = None, listing: Listing = Listing()) -> None:  # noqa: B008 - a frozen value
    """List addresses: the next offset of their logs, what waits, who reads."""
    columns = ("address", "routing", "next", "ready", "queues", "subscriptions", "groups", "consumers", "")
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
def pause(address: AddressName, /, *, admin: Admin = None, as_json: AsJson = False) -> None:
    """Hand out nothing from an address, until `resume`; messages go in, and wait."""
    _change(
        "pause", address, "is paused: nothing is handed out until `stompbox addresses resume`", admin, as_json
    )


@app.command
def resume(address: AddressName, /, *, admin: Admin = None, as_json: AsJson = False) -> None:
    """Hand out messages of a paused address again."""
    _change("resume", address, "is handed out again", admin, as_json)


@app.command
def block(address: AddressName, /, *, admin: Admin = None, as_json: AsJson = False) -> None:
    """Refuse messages to an address (ERROR address-blocked), until `unblock`; what is there goes out."""
    _change("block", address, "takes no messages until `stompbox addresses unblock`", admin, as_json)


@app.command
def unblock(address: AddressName, /, *, admin: Admin = None, as_json: AsJson = False) -> None:
    """Take messages to a blocked address again."""
    _change("unblock", address, "takes messages again", admin, as_json)


def _change(verb: str, address: str, told: str, admin: str | None, as_json: bool) -> None:
    with leaving(f"addresses {verb}"):
        found = ask(admin, f"addresses/{verb}", {"address": address})
        if as_json:
            print_json(found)
        else:
            print(plain(f"address {address} {told}"))


@app.command
def delete(
    address: AddressName,
    /,
    *,
    force: Forced = False,
    yes: Yes = False,
    admin: Admin = None,
    as_json: AsJson = False,
) -> None:
    """Remove an address with its queues and its log. Without --force only where nothing waits in them and nobody reads them."""
    with leaving("addresses delete"):
        sure(f"remove address {address} with all that its log keeps", yes=yes)
        found = ask(admin, "addresses/delete", {"address": address, "is_forced": force})
        if as_json:
            print_json(found)
        else:
            rest = "deleted" if found["is_deleted"] else "is being deleted; the broker goes on with it"
            print(plain(f"address {address} {rest}"))
