"""What a client's connection is to those who answer its requests, and what the broker is to them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from stompbox.server.addressing.sender import Sender
from stompbox.server.outgoing import Stream
from stompbox.server.requests.jsontext import Container
from stompbox.server.seam import Core, Kept
from stompbox.stomp.frames import Frame

if TYPE_CHECKING:
    from stompbox.server.requests.progress import Progress
    from stompbox.server.requests.publishing import Publications


class RequestsCore(Core, Protocol):
    publications: Publications
    progress: Progress | None
    started: int

    def sessions(self) -> set[int]:
        """Ids of the connections that go on."""

    async def catch_up(self, address: str = "", offset: int = 0) -> None:
        """Returns when this broker has what is there; of an address, what is below the offset. Raises Refused `node-behind`."""

    def has_looked(self, connection: Any, frame: Frame, /) -> bool:
        """Whether what there was when this frame came is here: on a node that follows, whether `catch_up_for` has returned for it."""

    async def catch_up_for(self, connection: Any, frame: Frame, address: str, offset: int, /) -> None:
        """Returns as `catch_up` does, for a frame that comes again then."""

    def standing(self) -> dict[str, str]:
        """What an answer says of how old it may be: nothing, where it is of now."""


class Asked(Kept, Protocol):
    """The requests of a connection that wait for their answers. `kept`: what the one that is being answered has, and what is to be emptied
    in steps when it is done."""

    kept: list[Container]

    def take(self, frame: Frame, serve: Callable[[Any, Frame], Awaitable[None]]) -> None: ...
    def count(self, size: int, /) -> None:
        """So many octets more are kept for the request that is being answered."""

    def drained(self) -> None:
        """The system has taken all that was written, or the connection is gone."""


class Asker(Sender, Protocol):
    requests: Asked | None

    @property
    def broker(self) -> RequestsCore: ...
    def stream(self, stream: Stream) -> None: ...
    def changing_nothing(self, doing: str) -> AbstractContextManager[None]:
        """What is done in here changes nothing: a fault in it ends this connection alone."""
