"""The certificate and key of a listener, from the formats that keyStoreType names.

PEM is what Python's ssl reads. PKCS12 is read by the package `cryptography`, an optional extra, and handed on as PEM, because ssl takes
a key from a file only. That file is in memory where the system has such files, else the owner's alone; and the key in it is encrypted
with a password that nobody else has.
"""

from __future__ import annotations

import os
import secrets
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from stompbox.config import AdminTable, ListenerOptions
from stompbox.config.options import KeyStoreType
from stompbox.errors import ConfigError

EXTRA: Final = "stompbox[pkcs12]"


def load_key_store(context: ssl.SSLContext, options: ListenerOptions) -> None:
    """Raises OSError, ssl.SSLError, ValueError or ConfigError for what cannot be used."""
    if options.key_store_type is KeyStoreType.PEM:
        context.load_cert_chain(options.key_store_path or "", options.key_path, options.key_store_password)
        return
    password = secrets.token_urlsafe(32)
    with _file(_as_pem(Path(options.key_store_path or ""), options.key_store_password, password)) as file:
        context.load_cert_chain(file, None, password)


def _as_pem(path: Path, password: str | None, own: str) -> bytes:
    """The key, encrypted with the password `own`, its certificate, and those up to the root."""
    try:  # not at the head: without PKCS12 nobody needs it
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        text = f"keyStoreType PKCS12 needs the package cryptography: pip install '{EXTRA}', or convert {str(path)!r} to PEM"
        raise ConfigError("config-value", text) from None
    key, certificate, others = pkcs12.load_key_and_certificates(
        path.read_bytes(), password.encode() if password is not None else None
    )
    if key is None or certificate is None:
        raise ValueError(f"there is no {'key' if key is None else 'certificate'} in it")
    encryption = serialization.BestAvailableEncryption(own.encode())
    pem: bytes = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    return pem + b"".join(
        [one.public_bytes(serialization.Encoding.PEM) for one in _chain(certificate, others)]
    )


def _chain(certificate: Any, others: list[Any]) -> Iterator[Any]:
    """The certificate, who issued it, and so on: a key store has them in any order."""
    left = list(others)
    while certificate is not None:
        yield certificate
        issuer = certificate.issuer
        certificate = next((one for one in left if one.subject == issuer), None)
        if certificate is not None:
            left.remove(certificate)


@contextmanager
def _file(data: bytes) -> Iterator[str]:
    """A path under which these bytes can be read, by this process alone where the system can do that."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("stompbox-certificate", os.MFD_CLOEXEC)
        path, is_named = f"/proc/self/fd/{descriptor}", False
    else:
        descriptor, path = tempfile.mkstemp(prefix="stompbox-")  # 0600
        is_named = True
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            yield path
    finally:
        if is_named:
            os.unlink(path)


def admin_context(table: AdminTable) -> ssl.SSLContext | None:
    """The server side of TLS for the admin interface; None: plain HTTP. Raises ConfigError that names the file."""
    if not table.key_store_path:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(table.key_store_path, table.key_path, table.key_store_password)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            "config-value", f"admin.key-store-path {table.key_store_path!r} cannot be used: {error}"
        ) from None
    return context
