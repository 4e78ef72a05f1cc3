"""A login from anywhere, STOMP or HTTP: slowed after failures from the same client address, its passcode verified off the loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from stompbox.errors import Refused
from stompbox.security import User

if TYPE_CHECKING:
    from stompbox.server.broker import Broker


async def log_in(broker: Broker, peer: str, login: str | None, passcode: str | None) -> User:
    """The user of this login and passcode. `peer`: the client's address. Raises Refused, and remembers the failure."""
    logins, loop = broker.failed_logins, broker.loop
    try:
        await asyncio.sleep(logins.wait(peer, loop.time()))
        return await loop.run_in_executor(None, broker.users.authenticate, login, passcode)
    except Refused:
        logins.failed(peer, loop.time())
        raise
