"""How two nodes meet: who they are, that both know the secret, and what the one who calls wants of the other.

    who is called      {"node", "cluster", "nonce"}
    who calls          {"node", "cluster", "nonce", "purpose", "about", "proof"}
    who is called      {"proof", "about"}  or  {"code", "message"}

Lines of JSON. A proof is an HMAC with SHA-256 of both nonces, the cluster, both names, the purpose and the side, so that neither an old
one nor one's own can be said again. What follows is up to the purpose. With TLS on top, nobody reads along; without, the network must be
trusted not to change what passes. This file decides nothing about what nodes say to each other later.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import ssl
from typing import TYPE_CHECKING, Final, TypeVar, cast

from msgspec import MsgspecError, Raw, Struct
from msgspec.json import decode, encode

from stompbox.errors import ConfigError, ConnectionLost, LinkError, reason_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from stompbox.config import ClusterTable

LONGEST: Final = 256 << 10  # octets of a line
WAITING: Final = 1 << 20  # octets that wait to be read, beyond which no more are taken
TOGETHER: Final = 5.0  # seconds for two nodes to know each other
NONCE: Final = 16

T = TypeVar("T", bound=Struct)


class Challenge(Struct, frozen=True):
    node: str
    cluster: str
    nonce: str


class Call(Struct, frozen=True):
    node: str
    cluster: str
    nonce: str
    purpose: str
    proof: str
    about: Raw = Raw(b"{}")


class Verdict(Struct, frozen=True):
    proof: str = ""
    code: str = ""
    message: str = ""
    about: Raw = Raw(b"{}")


class Talk(asyncio.Protocol):
    """A connection of two nodes, as long as they speak in lines. `made` is called with it when it is there."""

    def __init__(self, made: Callable[[Talk], object] = lambda talk: None) -> None:
        self._made = made
        self._data = bytearray()
        self._woken: asyncio.Event = asyncio.Event()
        self._room: asyncio.Event = asyncio.Event()
        self._room.set()
        self.is_lost = False
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._made(self)

    def data_received(self, data: bytes) -> None:
        self._data += data
        if len(self._data) > WAITING and self.transport is not None:
            self.transport.pause_reading()
        self._woken.set()

    def pause_writing(self) -> None:
        self._room.clear()

    def resume_writing(self) -> None:
        self._room.set()

    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost = True
        self._woken.set()
        self._room.set()

    async def _more(self) -> None:
        if self.is_lost:
            raise ConnectionLost("connection-lost", "the other node has closed the connection")
        self._woken.clear()
        if self.transport is not None:
            self.transport.resume_reading()
        await self._woken.wait()

    async def hear(self, kind: type[T]) -> T:
        """The next line. Raises LinkError for what is none, ConnectionLost."""
        while (end := self._data.find(b"\n")) < 0:
            if len(self._data) > LONGEST:
                raise LinkError("bad-link", f"a line of more than {LONGEST} octets")
            await self._more()
        line = bytes(self._data[:end])
        del self._data[: end + 1]
        try:
            return decode(line, type=kind)
        except (MsgspecError, UnicodeDecodeError) as error:
            raise LinkError("bad-link", f"a {kind.__name__} that is none: {error}") from None

    async def some(self) -> bytes:
        """Whatever comes, as it is. Raises ConnectionLost."""
        while not self._data:
            await self._more()
        data = bytes(self._data)
        self._data.clear()
        return data

    def say(self, said: Struct) -> None:
        if self.transport is not None:
            self.transport.write(encode(said) + b"\n")

    async def give(self, data: bytes) -> None:
        """Writes when there is room. Raises ConnectionLost."""
        await self._room.wait()
        if self.is_lost or self.transport is None:
            raise ConnectionLost("connection-lost", "the other node has closed the connection")
        self.transport.write(data)

    def become(self, protocol: asyncio.Protocol) -> None:
        """From here on another protocol has the connection, and what came already. Raises ConnectionLost."""
        if self.is_lost or self.transport is None:
            raise ConnectionLost("connection-lost", "the other node has closed the connection")
        transport = self.transport
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        transport.resume_reading()
        if self._data:
            protocol.data_received(bytes(self._data))

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()


class Identity:
    """What a node says of itself when it meets others, and how it knows that they are of its cluster."""

    def __init__(self, table: ClusterTable) -> None:
        """Raises ConfigError for certificates that cannot be used."""
        self.node = table.node_name
        self.cluster = table.name
        self._secret = (table.secret or "").encode()
        self.server_context = _context(table, ssl.PROTOCOL_TLS_SERVER)
        self.client_context = _context(table, ssl.PROTOCOL_TLS_CLIENT)

    def _proof(self, side: str, called: Challenge, node: str, nonce: str, purpose: str) -> str:
        told = (side, self.cluster, called.node, called.nonce, node, nonce, purpose)
        return hmac.new(self._secret, "\n".join(told).encode(), "sha256").hexdigest()

    async def call(self, talk: Talk, purpose: str, about: Struct | None = None) -> Verdict:
        """Meets the node that was called. Raises LinkError where it refuses, or is another one; ConnectionLost, TimeoutError."""
        async with asyncio.timeout(TOGETHER):
            called = await talk.hear(Challenge)
            if called.cluster != self.cluster:
                raise LinkError(
                    "node-of-another-cluster", f"node {called.node!r} is of cluster {called.cluster!r}"
                )
            nonce = os.urandom(NONCE).hex()
            proof = self._proof("call", called, self.node, nonce, purpose)
            told = Raw(encode(about)) if about is not None else Raw(b"{}")
            talk.say(Call(self.node, self.cluster, nonce, purpose, proof, told))
            verdict = await talk.hear(Verdict)
        if verdict.code:
            raise LinkError(verdict.code, f"node {called.node!r}: {verdict.message}")
        if not hmac.compare_digest(
            verdict.proof.encode(), self._proof("answer", called, self.node, nonce, purpose).encode()
        ):
            raise LinkError("node-not-known", f"node {called.node!r} does not know the secret")
        return verdict

    async def answer(self, talk: Talk) -> tuple[Call, Callable[[Struct | None], Verdict]]:
        """Meets the node that calls: what it wants, and what makes our answer. Raises LinkError, ConnectionLost, TimeoutError."""
        async with asyncio.timeout(TOGETHER):
            called = Challenge(self.node, self.cluster, os.urandom(NONCE).hex())
            talk.say(called)
            call = await talk.hear(Call)
        if call.cluster != self.cluster:
            raise LinkError("node-of-another-cluster", f"this is a node of cluster {self.cluster!r}")
        proof = self._proof("call", called, call.node, call.nonce, call.purpose)
        if not hmac.compare_digest(call.proof.encode(), proof.encode()):
            raise LinkError("node-not-known", "the secret is another one")

        def verdict(about: Struct | None = None) -> Verdict:
            told = Raw(encode(about)) if about is not None else Raw(b"{}")
            return Verdict(self._proof("answer", called, call.node, call.nonce, call.purpose), about=told)

        return call, verdict


def _context(table: ClusterTable, protocol: int) -> ssl.SSLContext | None:
    if table.key_store_path is None or table.trust_store_path is None:
        return None
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False  # who may sign is what is known; nodes have any address
    try:
        context.load_cert_chain(table.key_store_path, table.key_path, table.key_store_password)
        context.load_verify_locations(table.trust_store_path)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            "config-value",
            f"cluster.key-store-path {table.key_store_path!r} or its trust store: {reason_of(error)}",
        ) from None
    context.verify_mode = ssl.CERT_REQUIRED
    return context
