"""What a client's connection is to those who find out where its messages go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from stompbox.broker.addresses.address import Address
from stompbox.broker.addresses.destinations import Destination
from stompbox.message import Shape
from stompbox.server.seam import ClientConnection

if TYPE_CHECKING:
    from stompbox.server.addressing.brokerheaders import AddedHeaders
    from stompbox.server.addressing.naming import Names
    from stompbox.server.addressing.transforming import Transform


class Sender(ClientConnection, Protocol):
    added_headers: AddedHeaders | None
    transform: Transform | None
    answered: dict[Shape, Shape]

    @property
    def names(self) -> Names: ...
    def make_temporary(self, destination: Destination) -> Address:
        """The connection's own temporary destination of this name, made when it is not there yet."""
