"""`stompbox reload`: a running broker reads its configuration again."""

from __future__ import annotations

from cyclopts import App

from stompbox.cli.asking import Admin, AsJson, ask, print_json
from stompbox.cli.connecting import leaving

app = App(name="reload")


@app.default
def reload(*, admin: Admin = None, as_json: AsJson = False) -> None:
    """Have a broker read its configuration again, as SIGHUP does: all of it counts then, or nothing has changed and it says why."""
    with leaving("reload"):
        found = ask(admin, "reload", {})
        if as_json:
            print_json(found)
        else:
            rest = "" if found["is_done"] else "; the broker goes on with addresses that are there"
            print(f"the configuration was read again{rest}")
