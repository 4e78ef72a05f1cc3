"""`stompbox reload`: a running broker reads its configuration again."""

from __future__ import annotations

from cyclopts import App

from stompbox.cli.examples import examples
from stompbox.cli.operating import Operation

app = App(name="reload", help_epilogue=examples("reload"))


@app.default
def reload(*, operation: Operation = Operation()) -> None:  # noqa: B008 - a frozen value
    """Have a broker read its configuration again, as SIGHUP does: all of it counts then, or nothing has changed and it says why."""

    def told(found: dict[str, object]) -> str:
        rest = "" if found["is_done"] else "; the broker goes on with addresses that are there"
        return f"the configuration was read again{rest}"

    operation.do("reload", "reload", {}, told)
