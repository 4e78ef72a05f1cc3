"""Certificates for tests: one for localhost that lies here with its key, and others that openssl makes."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Final

import pytest

_FILES: Final = ("tls-certificate.pem", "tls-key.pem")

needs_openssl = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="needs openssl to make certificates"
)


def of_localhost() -> str:
    """The certificate that lies here, and its key, as one text in PEM."""
    return "".join((Path(__file__).parent / "client" / name).read_text() for name in _FILES)


def certify(folder: Path, authority: str, *names: str) -> None:
    """Makes NAME.key and NAME.pem for an authority, which signs itself, and for the names, which it signs."""
    for name in (authority, *names):
        signing = [] if name == authority else ["-CA", f"{authority}.pem", "-CAkey", f"{authority}.key"]
        command = [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "2",
        ]
        command += ["-subj", f"/CN={name}", "-addext", "subjectAltName=DNS:localhost"]
        command += ["-keyout", f"{name}.key", "-out", f"{name}.pem", *signing]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)


def wanting_certificates(folder: Path, name: str, authority: str) -> str:
    """Options of a listener that shows the certificate of `name` and wants one of a client that the authority has signed."""
    own = f"keyStorePath={folder}/{name}.pem;keyPath={folder}/{name}.key"
    return f"{own};trustStorePath={folder}/{authority}.pem;needClientAuth=true"


def showing(folder: Path, name: str, authority: str) -> ssl.SSLContext:
    """The context of a client that shows the certificate of `name` and trusts the authority."""
    context = ssl.create_default_context(cafile=f"{folder}/{authority}.pem")
    context.load_cert_chain(f"{folder}/{name}.pem", f"{folder}/{name}.key")
    return context
