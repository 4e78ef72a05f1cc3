"""PKCS12 key stores: what is in them serves TLS, and the key is never anywhere that others could read it."""

from __future__ import annotations

import os
import ssl
import stat
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from stompbox.config.listener import parse_listener
from stompbox.errors import ConfigError
from stompbox.server.transport.tls import tls_context

pytest.importorskip("cryptography", reason="the extra stompbox[pkcs12]")

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

NOW = datetime.now(UTC)


@dataclass(frozen=True)
class Issued:
    """A certificate and its key."""

    key: Any
    certificate: Any


def issued(name: str, by: Issued | None, *, is_authority: bool) -> Issued:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = (
        x509.CertificateBuilder(
            subject if by is None else by.certificate.subject,
            subject,
            key.public_key(),
            x509.random_serial_number(),
        )
        .not_valid_before(NOW - timedelta(days=1))
        .not_valid_after(NOW + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    )
    return Issued(key, builder.sign(key if by is None else by.key, hashes.SHA256()))


@dataclass(frozen=True)
class Chain:
    root: Issued
    middle: Issued
    leaf: Issued

    def pkcs12(self, password: bytes | None) -> bytes:
        """As tools write it: the others in any order."""
        encryption = (
            serialization.NoEncryption()
            if password is None
            else serialization.BestAvailableEncryption(password)
        )
        others = [self.root.certificate, self.middle.certificate]
        return pkcs12.serialize_key_and_certificates(
            b"broker", self.leaf.key, self.leaf.certificate, others, encryption
        )


@pytest.fixture(scope="module")
def chain() -> Chain:
    root = issued("root", None, is_authority=True)
    middle = issued("middle", root, is_authority=True)
    return Chain(root, middle, issued("localhost", middle, is_authority=False))


def context_of(path: Path, password: str = "") -> ssl.SSLContext:
    given = f"&keyStorePassword={password}" if password else ""
    return tls_context(parse_listener(f"ssl://127.0.0.1:0?keyStorePath={path}&keyStoreType=PKCS12{given}"))


def shaken(server: ssl.SSLContext, root: Issued) -> str:
    """The name that a client sees who knows the root alone: it needs all that is between."""
    client = ssl.create_default_context(
        cadata=root.certificate.public_bytes(serialization.Encoding.PEM).decode()
    )
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server, server_hostname="localhost"),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    left = list(ends)
    for _ in range(10):
        for end in list(left):
            try:
                end.do_handshake()
                left.remove(end)
            except ssl.SSLWantReadError:
                continue
    assert not left
    found = ends[0].getpeercert()
    assert found is not None
    return str(dict(part for name in found["subject"] for part in name)["commonName"])  # type: ignore[misc, union-attr]


@pytest.mark.parametrize("password", [None, b"s3cret"])
def test_it_serves_with_the_whole_chain(tmp_path: Path, chain: Chain, password: bytes | None) -> None:
    file = tmp_path / "broker.p12"
    file.write_bytes(chain.pkcs12(password))
    assert shaken(context_of(file, (password or b"").decode()), chain.root) == "localhost"


def test_there_is_no_file_that_others_can_read(
    tmp_path: Path, chain: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "broker.p12"
    file.write_bytes(chain.pkcs12(b"s3cret"))
    seen: list[tuple[int, bytes]] = []
    load: Callable[..., None] = ssl.SSLContext.load_cert_chain

    def look(context: ssl.SSLContext, path: str, *rest: Any) -> None:
        seen.append((stat.S_IMODE(os.stat(path).st_mode), Path(path).read_bytes()))
        paths.append(path)
        load(context, path, *rest)

    paths: list[str] = []
    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", look)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    context_of(file, "s3cret")
    monkeypatch.delattr(os, "memfd_create", raising=False)  # as on other systems
    context_of(file, "s3cret")
    assert paths[1].startswith(str(tmp_path))
    assert seen[1][0] == 0o600
    for _, data in seen:
        assert b"BEGIN ENCRYPTED PRIVATE KEY" in data
        assert b"BEGIN PRIVATE KEY" not in data
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broker.p12"], "and nothing stays"


def refusal(path: Path, password: str = "") -> str:
    with pytest.raises(ConfigError) as caught:
        context_of(path, password)
    assert caught.value.code == "config-value"
    assert str(path) in caught.value.message
    return caught.value.message


def test_what_cannot_be_used_is_named(tmp_path: Path, chain: Chain) -> None:
    file = tmp_path / "broker.p12"
    assert "No such file" in refusal(file)
    file.write_bytes(b"no key store")
    assert "cannot be used" in refusal(file)
    file.write_bytes(chain.pkcs12(b"s3cret"))
    assert "password" in refusal(file, "wr0ng").lower()
    assert "password" in refusal(file).lower()
    file.write_bytes(
        pkcs12.serialize_key_and_certificates(
            None, None, None, [chain.root.certificate], serialization.NoEncryption()
        )
    )
    assert "there is no key in it" in refusal(file)


def test_without_the_package_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.serialization", None)
    assert "pip install 'stompbox[pkcs12]'" in refusal(tmp_path / "broker.p12")
