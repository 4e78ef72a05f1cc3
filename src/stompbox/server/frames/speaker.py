"""What a client's connection is to those who obey its frames, and what the broker is to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Protocol

from stompbox.broker.addresses.unitofwork import UnitOfWork
from stompbox.broker.queues.consumer import Consumer
from stompbox.broker.transactions import Transaction
from stompbox.config import ListenerOptions
from stompbox.server.logins import Login, Logins
from stompbox.server.requests.asker import Asker, RequestsCore
from stompbox.server.seam import ClientConnection, Incoming
from stompbox.stomp.frames import Frame
from stompbox.stomp.heartbeat import Agreement
from stompbox.stomp.runs import Reader


class Timeouts(Protocol):
    """Open transactions that end after `timeout` ms (transactions.py)."""

    timeout: int

    def begun(self, connection: Speaker, transaction: Transaction) -> None: ...
    def ended(self, transaction: Transaction) -> None: ...


class Upload(Incoming, Protocol):
    """A SEND whose large body is coming in (uploads.py)."""

    frame: Frame

    @property
    def is_refusable(self) -> bool: ...
    def take(self, data: bytes) -> None: ...
    def finish(self) -> Iterator[None]: ...


class FramesCore(RequestsCore, Protocol):
    logins: Logins

    @property
    def timeouts(self) -> Timeouts: ...
    @property
    def by_session(self) -> Mapping[int, ClientConnection]: ...

    def enter(self, connection: Speaker, login: Login) -> None:
        """The connection is logged in. Raises Refused where the user has enough of them."""

    def reader(self, version: str, options: ListenerOptions) -> Reader:
        """What was learned of frames, shared by the connections of a version."""


class Speaker(Asker, Protocol):
    upload: Upload | None
    is_entered: bool

    @property
    def broker(self) -> FramesCore: ...
    def enter_host(self, host: str | None, space: str, client_id: str) -> None: ...
    def agree(self, agreement: Agreement) -> None: ...
    def obey_again(self, frame: Frame) -> None:
        """A frame that had to wait for something, without what was checked before."""

    def confirm(
        self,
        receipts: list[bytes],
        *,
        waits: bool,
        consumer: Consumer | None = None,
        unit: UnitOfWork | None = None,
    ) -> None:
        """RECEIPT frames for ids as they stand on the wire, in frame order; a subscription starts behind its own."""

    def answer(
        self,
        frame: Frame,
        *,
        waits: bool,
        consumer: Consumer | None = None,
        extra: Mapping[str, str] = MappingProxyType({}),
        unit: UnitOfWork | None = None,
    ) -> None:
        """RECEIPT where the frame asks for one; `consumer`: the subscription that it makes; `extra`: more headers of the RECEIPT."""
