"""`stompbox purge`, `move` and `redrive`: what an operator does to the messages of a queue. Each ends when it is on disk."""

from __future__ import annotations

from typing import Annotated, Final

from cyclopts import App, Parameter

from stompbox.cli.asking import Admin, AsJson, ask, plain, print_json
from stompbox.cli.connecting import leaving
from stompbox.cli.operating import Operation, QueueName, Yes, sure
from stompbox.errors import UsageError

purge_app = App(name="purge")
move_app = App(name="move")
redrive_app = App(name="redrive")

Count = Annotated[int | None, Parameter(help="So many at most, oldest first; without it all.")]

_STAY: Final = {
    "not_permitted": "you may not send to where they came from",
    "address_blocked": "an operator has blocked the address",
    "address_full": "the address has no room for them",
}


@purge_app.default
def purge(queue: QueueName, /, *, yes: Yes = False, operation: Operation = Operation()) -> None:  # noqa: B008 - a frozen value
    """Drop all that waits in a queue; what is being delivered stays."""
    sure("purge", f"remove all that waits in {queue}", yes=yes)

    def told(found: dict[str, object]) -> str:
        about = "about " if found["is_estimate"] else ""
        rest = "" if found.get("is_done", True) else "; the broker goes on with the rest"
        return f"{about}{found['removed']} messages removed from {queue}{rest}"

    operation.do("purge", "queues/purge", {"queue": queue}, told)


@move_app.default
def move(
    queue: QueueName, to: str, /, *, count: Count = None, admin: Admin = None, as_json: AsJson = False
) -> None:
    """Move what waits in a queue to another address, which is made if need be.

    Parameters
    ----------
    to
        Name of the address.
    """
    with leaving("move"):
        found = ask(admin, "queues/move", {"queue": queue, "to": to, "count": _checked(count)})
        _tell(found, f"moved from {queue} to {to}", as_json=as_json)


@redrive_app.default
def redrive(
    queue: QueueName, /, *, count: Count = None, admin: Admin = None, as_json: AsJson = False
) -> None:
    """Send the messages of a dead letter queue back to the queues that could not deliver them."""
    with leaving("redrive"):
        found = ask(admin, "queues/redrive", {"queue": queue, "count": _checked(count)})
        _tell(found, f"sent back from {queue}", as_json=as_json)


def _checked(count: int | None) -> int:
    if count is not None and count < 1:
        raise UsageError("bad-argument", f"--count is {count}; allowed is a number from 1")
    return -1 if count is None else count


def _tell(found: dict[str, int], what: str, *, as_json: bool) -> None:
    if as_json:
        print_json(found)
    else:
        stay = "".join([f"; {found[name]} stay: {why}" for name, why in _STAY.items() if found.get(name)])
        print(
            plain(
                f"{found['moved']} messages {what}{stay}"
                + ("" if found["is_done"] else "; the broker goes on with the rest")
            )
        )
