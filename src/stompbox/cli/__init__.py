"""The command line: `stompbox`, also `python -m stompbox`. Each command is a module of its own, loaded when it is called."""

from __future__ import annotations

from cyclopts import App

import stompbox

app = App(name="stompbox", version=stompbox.__version__, help="A fast STOMP message broker, its client and its Spark pipeline.")
for _name in ("serve", "send", "subscribe", "pipeline", "config", "user", "store"):
    app.command(f"stompbox.cli.{_name}:app", name=_name)


def main() -> None:
    app()
