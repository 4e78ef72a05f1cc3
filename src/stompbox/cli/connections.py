"""`stompbox connections`: who is there."""

from __future__ import annotations

import time

from cyclopts import App

from stompbox.cli.asking import Admin, AsJson, every, print_json, print_table, span
from stompbox.cli.connecting import leaving

app = App(name="connections")


@app.default
def connections(match: str = "", *, admin: Admin = None, as_json: AsJson = False) -> None:
    """List connections, and what those wait for that are not read any further.

    Parameters
    ----------
    match
        Only those whose peer, user or client-id holds this text.
    """
    with leaving("connections"):
        everybody = every(admin, "connections")
        found = [one for one in everybody if any(match in one[key] for key in ("peer", "user", "client_id"))]
        if as_json:
            print_json(found)
            return
        now = int(time.time() * 1000)
        rows = [
            (
                str(one["id"]), one["peer"], one["user"], one["client_id"], one["version"], span(max(0, now - one["since"])),
                len(one["subscriptions"]), one["transactions"], ", ".join(one["waits_for"]),
            )
            for one in found
        ]  # fmt: skip
        print_table(
            (
                "id",
                "peer",
                "user",
                "client-id",
                "version",
                "since",
                "subscriptions",
                "transactions",
                "waits for",
            ),
            rows,
        )
