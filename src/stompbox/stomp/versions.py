"""What differs between STOMP 1.0, 1.1 and 1.2, as data: no code branches on a version but by looking at this table."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Version:
    """One row. The escapes map the octet after a backslash to what it stands for."""

    name: str
    escapes: MappingProxyType[bytes, bytes]  # STOMP 1.1 / 1.2, Value Encoding
    trims: bool  # 1.0's own examples pad values with blanks; 1.1 and 1.2 forbid trimming
    bare_cr: bool  # may a header line hold a CR that is not its line end?
    closes_on_error: bool  # STOMP 1.2, ERROR: the server MUST close the connection just after sending it
    may_nack: bool  # STOMP 1.1 brought NACK
    needs_subscription_id: bool  # STOMP 1.1, SUBSCRIBE: the id header MUST be there
    ack_header: str  # STOMP 1.2, ACK: the id header; before that message-id
    ack_needs_subscription: bool  # STOMP 1.1, ACK: MUST have a subscription header
    sends_ack_id: bool  # STOMP 1.2, MESSAGE: the ack header, unless the subscription is auto
    heart_beats: bool  # STOMP 1.1 brought them
    may_ignore_bodies: bool  # STOMP 1.0: the body of a SUBSCRIBE is ignored; later frames MUST NOT have one

    def __repr__(self) -> str:
        return f"<STOMP {self.name}>"


_NONE: Final[MappingProxyType[bytes, bytes]] = MappingProxyType({})
_V11: Final = MappingProxyType({b"n": b"\n", b"c": b":", b"\\": b"\\"})
_V12: Final = MappingProxyType({**_V11, b"r": b"\r"})

V10: Final = Version(
    name="1.0",
    escapes=_NONE,
    trims=True,
    bare_cr=True,
    closes_on_error=False,
    may_nack=False,
    needs_subscription_id=False,
    ack_header="message-id",
    ack_needs_subscription=False,
    sends_ack_id=False,
    heart_beats=False,
    may_ignore_bodies=True,
)
V11: Final = Version(
    name="1.1",
    escapes=_V11,
    trims=False,
    bare_cr=True,
    closes_on_error=False,
    may_nack=True,
    needs_subscription_id=True,
    ack_header="message-id",
    ack_needs_subscription=True,
    sends_ack_id=False,
    heart_beats=True,
    may_ignore_bodies=False,
)
V12: Final = Version(
    name="1.2",
    escapes=_V12,
    trims=False,
    bare_cr=False,
    closes_on_error=True,
    may_nack=True,
    needs_subscription_id=True,
    ack_header="id",
    ack_needs_subscription=False,
    sends_ack_id=True,
    heart_beats=True,
    may_ignore_bodies=False,
)

VERSIONS: Final = MappingProxyType({"1.0": V10, "1.1": V11, "1.2": V12})
SUPPORTED: Final = ",".join(VERSIONS)
