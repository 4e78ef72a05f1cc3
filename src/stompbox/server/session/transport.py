"""What a connection writes on."""

from __future__ import annotations

from typing import Protocol


class Transport(Protocol):
    """What a connection needs of its socket."""

    @property
    def is_clogged(self) -> bool:
        """The operating system has not yet taken all that was written."""

    @property
    def certificate_name(self) -> str:
        """The CN of the client's verified certificate; empty without one."""

    def write(self, data: bytes) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def close(self) -> None:
        """Writes what is left, lets the peer read it, closes (STOMP 1.2, Connection Lingering)."""

    def abort(self) -> None: ...
    def enter(self) -> None:
        """It logs in: no longer has it to hurry. Raises Refused where the listener has enough connections."""

    @property
    def unread(self) -> int:
        """Octets that came and that the connection has not been given yet."""

    @property
    def unsent(self) -> int:
        """Octets that were written and that the operating system has not taken."""

    @property
    def silence(self) -> float | None:
        """Seconds since the operating system got something from the peer, read or not; None where it does not say."""

    @property
    def absence(self) -> float | None:
        """Seconds since the peer's system said anything, if only that it got something of ours; None where ours does not say."""

    def probe(self, seconds: int) -> None:
        """The peer's system is asked for an answer whenever it has said nothing for so long."""
