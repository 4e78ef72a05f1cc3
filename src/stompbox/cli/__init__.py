"""The command line: `stompbox`, also `python -m stompbox`. Each command is a module of its own, loaded when it is called."""

from __future__ import annotations

from cyclopts import App

import stompbox

app = App(name="stompbox", version=stompbox.__version__, help="A fast STOMP message broker, its client and its Spark pipeline.")
_NAMES = (
    "serve", "send", "subscribe", "browse", "replay", "pipeline", "status", "queues", "connections", "config", "user", "store",
)  # fmt: skip
for _name in _NAMES:
    app.command(f"stompbox.cli.{_name}:app", name=_name)
app.command("stompbox.cli.queues:groups_app", name="groups")
for _name in ("purge", "move", "redrive"):
    app.command(f"stompbox.cli.operations:{_name}_app", name=_name)


def main() -> None:
    app()
