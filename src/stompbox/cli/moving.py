"""`stompbox purge`, `move` and `redrive`: what an operator does to the messages of a queue. Each ends when it is on disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final

from cyclopts import App, Parameter

from stompbox.cli.connecting import at_least, counted, leaving
from stompbox.cli.examples import examples
from stompbox.cli.operating import Operation, sure
from stompbox.cli.parameters import QueueName, Yes

purge_app = App(name="purge", help_epilogue=examples("purge"))
move_app = App(name="move", help_epilogue=examples("move"))
redrive_app = App(name="redrive", help_epilogue=examples("redrive"))

Count = Annotated[int | None, Parameter(help="So many at most, oldest first; without it all.")]

_AS_IT_IS: Final = Operation()
_STAY: Final = {
    "not_permitted": "you may not send to where they came from",
    "address_blocked": "an operator has blocked the address",
    "address_full": "the address has no room for them",
    "too_many_addresses": "they came from an address that is gone, and the user has made too many",
    "too_much_stays": "those before them stay, and take all the memory that they may",
}


@purge_app.default
def purge(queue: QueueName, /, *, yes: Yes = False, operation: Operation = _AS_IT_IS) -> None:
    """Drop all that waits in a queue; what is being delivered stays."""
    sure("purge", f"remove all that waits in {queue}", yes=yes)

    def told(found: dict[str, int]) -> str:
        about = "about " if found["is_estimate"] else ""
        rest = "" if found.get("is_done", True) else "; the broker goes on with the rest"
        return f"{about}{counted(found['removed'], 'message')} removed from {queue}{rest}"

    operation.do("purge", "queues/purge", {"queue": queue}, told)


@move_app.default
def move(queue: QueueName, to: str, /, *, count: Count = None, operation: Operation = _AS_IT_IS) -> None:
    """Move what waits in a queue to another address, which is made if need be.

    Parameters
    ----------
    to
        Name of the address.
    """
    order = {"queue": queue, "to": to, "count": _checked("move", count)}
    operation.do("move", "queues/move", order, _told(f"moved from {queue} to {to}"))


@redrive_app.default
def redrive(queue: QueueName, /, *, count: Count = None, operation: Operation = _AS_IT_IS) -> None:
    """Send the messages of a dead letter queue back to the queues that could not deliver them."""
    order = {"queue": queue, "count": _checked("redrive", count)}
    operation.do("redrive", "queues/redrive", order, _told(f"sent back from {queue}"))


def _checked(command: str, count: int | None) -> int:
    with leaving(command):
        at_least("count", count, 1, "a number")
    return -1 if count is None else count


def _told(what: str) -> Callable[[dict[str, int]], str]:
    """What is printed of the answer: how many messages were moved, and why others stay."""

    def told(found: dict[str, int]) -> str:
        stay = "".join([f"; {found[name]} stay: {why}" for name, why in _STAY.items() if found.get(name)])
        rest = "" if found["is_done"] else "; the broker goes on with the rest"
        return f"{counted(found['moved'], 'message')} {what}{stay}{rest}"

    return told
