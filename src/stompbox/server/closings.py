"""Why connections ended: the last KEPT of them, for who asks when they are gone.

A client that was refused knows why from its ERROR; its operator, who sees only that it is gone, asks here. Decides what is kept, and not
what ends a connection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from stompbox.config import Listener
    from stompbox.security import User

KEPT: Final = 200
LONGEST: Final = 300  # characters of a text
INSIDE: Final = (
    "admin"  # scheme of what the broker's own connections show as their listener: theirs are not kept
)

Why = tuple[str, str]
"""A code, and the text that goes with it."""

DISCONNECTED: Final[Why] = ("disconnected", "the client has said DISCONNECT")
LEFT: Final[Why] = ("left", "the client has closed its side without DISCONNECT")
LOST: Final[Why] = ("lost", "the socket is gone without DISCONNECT")
STOPPED: Final[Why] = ("shutting-down", "the broker stops")


@dataclass(frozen=True, slots=True)
class Closing:
    """A connection that is gone: whose it was, when it began (`since`) and ended (`at`, ms since the epoch), and why. `code`: of the error
    that ended it, or `disconnected`, `left` (it has closed its side without DISCONNECT), `lost` (its socket is gone). The API shows it as
    it is."""

    id: int
    peer: str
    port: int
    user: str
    client_id: str
    listener: str
    since: int
    at: int
    code: str
    text: str


class Socket(Protocol):
    """What is told of a connection's socket."""

    @property
    def port(self) -> int: ...


class Ended(Protocol):
    """What is told of a connection."""

    session_id: int
    peer: str
    user: User
    client_id: str
    listener: Listener
    since: int

    @property
    def transport(self) -> Socket: ...


class Closings:
    """The last connections that have ended, the newest last."""

    def __init__(self) -> None:
        self._kept: deque[Closing] = deque(maxlen=KEPT)
        self._has_news = False  # since all was made anew

    def __iter__(self) -> Iterator[Closing]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)

    def tell(self, gone: Ended, why: Why, now: int) -> None:
        """Keeps that a connection is gone."""
        if gone.listener.scheme == INSIDE:
            return
        code, text = why
        self._has_news = True
        self._kept.append(
            Closing(
                gone.session_id, gone.peer, gone.transport.port, gone.user.name, gone.client_id, str(gone.listener), gone.since, now,
                code, text[:LONGEST],
            )
        )  # fmt: skip

    def renew(self) -> bool:
        """Makes all that is kept anew, where something has come; whether it has. Thousands that end at once leave one here for each arena
        of Python's that they had, which cannot go back to the system as long as anything in it is alive; what is new comes where most is in
        use."""
        if not self._has_news:
            return False
        self._has_news = False
        self._kept = deque([Closing(*map(_anew, astuple(one))) for one in self._kept], KEPT)
        return True

    def __repr__(self) -> str:
        return f"<Closings {len(self)}>"


def _anew(value: Any) -> Any:
    """An equal value that is another object."""
    return int(str(value)) if isinstance(value, int) else f"{value} "[:-1]
