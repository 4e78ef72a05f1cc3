"""What the broker is to one client's connection, beyond what its frames and requests ask of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from stompbox.server.frames.speaker import FramesCore

if TYPE_CHECKING:
    from stompbox.broker.queues.consumer import Consumer
    from stompbox.config import ListenerOptions
    from stompbox.server.addressing.naming import Names
    from stompbox.server.addressing.sender import Sender
    from stompbox.server.addressing.transforming import Transform
    from stompbox.server.beats import Beats
    from stompbox.server.closings import Closings
    from stompbox.server.summaries import Refusals


class SessionCore(FramesCore, Protocol):
    """What the broker is to a connection; `connection` is one everywhere."""

    beats: Beats
    refusals: Refusals
    closings: Closings

    @property
    def connections(self) -> Collection[Sender]: ...
    def arrive(self, connection: Any, /) -> None: ...
    def leave(self, connection: Any, /) -> None: ...
    def leave_user(self, connection: Any, /) -> None: ...
    def names_of(self, options: ListenerOptions, space: str = "") -> Names: ...
    def transform_of(self, options: ListenerOptions) -> Transform | None: ...
    def was_read(self, octets: int) -> None: ...
    def deliver_on(self, consumers: Iterable[Consumer]) -> None: ...
    def want_commit(self, connection: Any, /) -> int: ...
