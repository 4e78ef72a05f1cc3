"""What a connection writes on, and what it has to say but may not say yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from stompbox.broker.consumer import Consumer


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
    def unsent(self) -> int:
        """Octets that were written and that the operating system has not taken."""


class Pending:
    """Something to say when a commit is durable: bytes, then subscriptions that may start.

    `is_refusable`: becomes an ERROR when the disk refuses the commit; else it waits for one that works.
    """

    __slots__ = ("consumer", "data", "is_refusable", "receipts", "sequence")

    def __init__(
        self,
        sequence: int,
        data: bytes = b"",
        receipts: list[bytes] | None = None,
        consumer: Consumer | None = None,
        *,
        is_refusable: bool = False,
    ) -> None:
        self.sequence = sequence
        self.is_refusable = is_refusable
        self.data = data
        self.receipts = receipts or []
        self.consumer = consumer
