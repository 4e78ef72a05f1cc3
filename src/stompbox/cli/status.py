"""`stompbox status`: how a running broker is. Exit code 0 when it is ready, 1 when it is not."""

from __future__ import annotations

import sys
from typing import Any

from cyclopts import App

from stompbox.cli.asking import ask, plain, print_json, print_table, span
from stompbox.cli.connecting import FAILED, leaving
from stompbox.cli.examples import examples
from stompbox.cli.parameters import Admin, AsJson

app = App(name="status", help_epilogue=examples("status"))


@app.default
def status(*, admin: Admin = None, as_json: AsJson = False) -> None:
    """Show version, uptime, what is there and what was counted; exit code 1 when the broker is not ready."""
    with leaving("status"):
        found = ask(admin, "status")
        if as_json:
            print_json(found)
        else:
            _print(found)
    if not found["is_ready"]:
        sys.exit(FAILED)


def _print(found: dict[str, Any]) -> None:
    reasons = [f"{reason['message']} ({reason['code']})" for reason in found["reasons"]]
    print(f"Stompbox {plain(found['version'])}, process {found['process']}, up for {span(found['uptime'])}")
    print("ready" if found["is_ready"] else plain("not ready: " + "; ".join(reasons)))
    print(
        plain(
            "listening on "
            + ", ".join(found["listeners"])
            + ("" if found["is_durable"] else ", everything in memory")
        )
    )
    rows: list[tuple[str, int]] = [
        ("connections", found["connections"]), ("of them waiting", found["waiting"]), ("addresses", found["addresses"]),
        ("queues", found["queues"]), *[(f"messages {name}", count) for name, count in found["messages"].items()],
        ("commits", found["commits"]), ("commits failed", found["commits_failed"]), ("unsaved bytes", found["unsaved_bytes"]),
        *[(f"errors {code}", count) for code, count in found["errors"].items()],
    ]  # fmt: skip
    print_table(("what", "count"), rows)
