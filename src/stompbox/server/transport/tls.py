"""TLS of a listener: its certificates."""

from __future__ import annotations

import ssl

from stompbox.config import Listener
from stompbox.errors import ConfigError
from stompbox.server.transport.keystores import load_key_store


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
