"""`stompbox frames`: frames of a running broker in its log, for as long as an operator wants them."""

from __future__ import annotations

from cyclopts import App

from stompbox.cli.connecting import leaving
from stompbox.cli.examples import examples
from stompbox.cli.operating import Operation
from stompbox.cli.parameters import Flag
from stompbox.errors import UsageError

app = App(
    name="frames",
    help="Log the frames of a connection, a user or an address of a running broker.",
    help_epilogue=examples("frames"),
)


@app.default
def frames(
    *,
    connection: int | None = None,
    user: str | None = None,
    peer: str | None = None,
    address: str | None = None,
    off: Flag = False,
    operation: Operation = Operation(),  # noqa: B008 - a frozen value
) -> None:
    """Log frames as they come and go, with passcodes starred out, in the broker's own log; and say which are logged.

    Parameters
    ----------
    connection
        Those of the connection with this id (`stompbox connections` lists them).
    user
        Those of a user's connections, from CONNECTED on.
    peer
        Those of connections from this IP address.
    address
        SEND, SUBSCRIBE, UNSUBSCRIBE and MESSAGE that name this address; `*` one word, `#` any number of words.
    off
        No longer; without any of the others: none any more.
    """
    with leaving("frames"):
        given = {"connection": connection, "user": user, "peer": peer, "address": address}
        chosen = [(by, str(value)) for by, value in given.items() if value is not None]
        if len(chosen) > 1:
            raise UsageError(
                "bad-argument",
                f"--{chosen[0][0]} and --{chosen[1][0]} are two wishes; give them one after the other",
            )
    order = {"by": chosen[0][0], "value": chosen[0][1]} if chosen else {} if off else None
    path = "frames/stop" if off else "frames/log" if chosen else "frames"
    operation.do("frames", path, order, _told)


def _told(found: dict[str, list[dict[str, str]]]) -> list[str]:
    return [f"{one['by']} {one['value']}" for one in found["frames"]] or ["no frames are logged"]
