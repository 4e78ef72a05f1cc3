"""TLS of a listener: its certificates, and a hand-shake that is seen from its first octet on.

asyncio tells a protocol of a TLS connection when the hand-shake is done. Until then nobody could count it, or end it.
"""

from __future__ import annotations

import asyncio
import ssl
from asyncio import sslproto
from collections.abc import Hashable
from functools import cache
from typing import Any, Protocol

from stompbox.config import Listener
from stompbox.errors import ConfigError
from stompbox.server.transport.keystores import load_key_store

# seconds that the hand-shake may take of itself: the visitor has one deadline for all before the login
NEVER = 86_400.0
SHUTDOWN = 1.0  # seconds for the peer to say that it has heard the end


class Accepted(Protocol):
    """What is told of a socket before and after its hand-shake."""

    def accepted(self, transport: asyncio.Transport) -> None: ...
    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...
    def connection_lost(self, error: Exception | None) -> None: ...


def secured(
    visitor: Accepted, context: ssl.SSLContext, loop: asyncio.AbstractEventLoop
) -> asyncio.BaseProtocol:
    """The protocol that does the hand-shake for a visitor: `connection_made` is called when it is done. How long it may take is the
    visitor's to say, who can end it from `accepted` on."""
    base: Hashable = sslproto.SSLProtocol
    if type(loop).__module__.startswith("uvloop"):
        from uvloop.loop import SSLProtocol  # type: ignore[attr-defined]

        base = SSLProtocol
    protocol: asyncio.BaseProtocol = _seen_from_the_start(base)(
        loop,
        visitor,
        context,
        None,
        server_side=True,
        ssl_handshake_timeout=NEVER,
        ssl_shutdown_timeout=SHUTDOWN,
    )
    return protocol


@cache
def _seen_from_the_start(base: Any) -> Any:
    class Handshake(base):  # type: ignore[misc]
        def __init__(
            self, loop: asyncio.AbstractEventLoop, visitor: Accepted, *more: object, **options: object
        ) -> None:
            super().__init__(loop, visitor, *more, **options)
            self.visitor: Accepted | None = visitor

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            if self.visitor is not None:
                self.visitor.accepted(transport)

        def connection_lost(self, error: Exception | None) -> None:
            super().connection_lost(error)
            # it knows its transport, and so this here, which has a quarter of a megabyte to read into
            visitor, self.visitor = self.visitor, None
            if visitor is not None:
                visitor.connection_lost(error)

    return Handshake


def tls_context(listener: Listener) -> ssl.SSLContext:
    """The server side of TLS for a listener. Raises ConfigError that names the file."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_certificates(context, listener)
    return context


def load_certificates(context: ssl.SSLContext, listener: Listener) -> None:
    options = listener.options
    if not options.key_store_path:
        raise ConfigError(
            "config-value", f"{listener}: ssl:// needs keyStorePath, a file with certificate chain and key"
        )
    try:
        load_key_store(context, options)
        if options.trust_store_path:
            context.load_verify_locations(options.trust_store_path)
    except (OSError, ssl.SSLError, ValueError) as error:
        raise ConfigError(
            "config-value", f"{listener}: keyStorePath {options.key_store_path!r} cannot be used: {error}"
        ) from None
    context.verify_mode = ssl.CERT_REQUIRED if options.need_client_auth else ssl.CERT_NONE
