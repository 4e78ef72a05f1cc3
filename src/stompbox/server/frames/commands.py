"""What each command does: one table. Each function takes (connection, frame), obeys the frame or raises.

A refused frame has no effect: whatever can be wrong is found out before anything is changed. Runs of SEND and ACK frames do not
come through here: `sending.sends` and `acknowledging.acks` take them as one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from stompbox.server import readonly
from stompbox.server.frames import acknowledging, connecting, sending, subscribing, transactions
from stompbox.stomp.frames import Frame

if TYPE_CHECKING:
    from stompbox.server.frames.speaker import Speaker

Handler = Callable[["Speaker", Frame], Iterator[None] | None]
"""What a command does; what takes long, in steps that are left to take."""

COMMANDS: Final[Mapping[str, Handler]] = MappingProxyType(
    {
        "CONNECT": connecting.connect, "STOMP": connecting.connect, "DISCONNECT": connecting.disconnect,
        "SEND": sending.send,
        "SUBSCRIBE": subscribing.subscribe, "UNSUBSCRIBE": subscribing.unsubscribe,
        "ACK": acknowledging.ack, "NACK": acknowledging.nack,
        "BEGIN": transactions.begin, "COMMIT": transactions.commit, "ABORT": transactions.abort,
    }
)  # fmt: skip
# but the connection that sent them, if a fault of ours ends them half-way
CHANGE_NOTHING: Final = frozenset(("CONNECT", "STOMP"))


def obey(connection: Speaker, frame: Frame) -> Iterator[None] | None:
    """Does what the frame's command does, where its listener takes it at all."""
    if connection.options.read_only:
        readonly.require_command(frame.command)
    return COMMANDS[frame.command](connection, frame)
