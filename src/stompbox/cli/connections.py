"""`stompbox connections`: who is there; ending a connection."""

from __future__ import annotations

import time
from typing import Annotated

from cyclopts import App, Parameter

from stompbox.cli.asking import every, span
from stompbox.cli.examples import examples
from stompbox.cli.listing import Entry, Listing
from stompbox.cli.operating import Operation, sure
from stompbox.cli.parameters import Admin, Yes

app = App(name="connections", help_epilogue=examples("connections"))


@app.default
def connections(match: str = "", *, admin: Admin = None, listing: Listing = Listing()) -> None:  # noqa: B008 - a frozen value
    """List connections, and what those wait for that are not read any further.

    Parameters
    ----------
    match
        Only those whose peer, user or client-id holds this text.
    """
    columns = (
        "id",
        "peer",
        "user",
        "client-id",
        "version",
        "since",
        "subscriptions",
        "transactions",
        "waits for",
    )

    def fetch() -> list[Entry]:
        everybody = every(admin, "connections")
        return [one for one in everybody if any(match in one[key] for key in ("peer", "user", "client_id"))]

    listing.show("connections", columns, fetch, _row)


def _row(one: Entry) -> tuple[object, ...]:
    now = int(time.time() * 1000)
    return (
        str(one["id"]), one["peer"], one["user"], one["client_id"], one["version"], span(max(0, now - one["since"])),
        len(one["subscriptions"]), one["transactions"], ", ".join(one["waits_for"]),
    )  # fmt: skip


@app.command
def close(
    connection: Annotated[int, Parameter(help="Its id, as the list has it.")],
    /,
    *,
    yes: Yes = False,
    operation: Operation = Operation(),  # noqa: B008 - a frozen value
) -> None:
    """End a connection: its client gets ERROR closed-by-operator, and what it had and did not acknowledge goes back."""
    sure("connections close", f"close connection {connection}", yes=yes)
    told = f"connection {connection} closed"
    operation.do("connections close", "connections/close", {"connection": connection}, told)
