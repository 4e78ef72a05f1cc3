"""Two nodes meet: both know the secret, or neither learns more than names."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from stompbox.config import ClusterTable
from stompbox.errors import ConfigError, ConnectionLost, LinkError, StompboxError
from stompbox.server.cluster.members import Member
from stompbox.server.cluster.talk import Challenge, Identity, Talk, Verdict
from tests.certificates import certify, needs_openssl

SECRET = "0123456789abcdef"


def node(name: str, *, cluster: str = "orders", secret: str = SECRET) -> Identity:
    return Identity(ClusterTable(node=name, name=cluster, secret=secret, log="disk:///l"))


async def met(caller: Identity, called: Identity) -> list[Any]:
    """What both sides found: a call and a verdict, or errors."""
    found: list[Any] = [None, None]

    async def answer(talk: Talk) -> None:
        try:
            call, verdict = await called.answer(talk)
            found[0] = call
            talk.say(verdict(Member("b")))
        except StompboxError as error:
            found[0] = error
            talk.say(Verdict(code=error.code, message=error.message))

    loop = asyncio.get_running_loop()
    tasks: list[asyncio.Task[None]] = []
    server = await loop.create_server(
        lambda: Talk(lambda talk: tasks.append(loop.create_task(answer(talk)))),
        "127.0.0.1",
        0,
        ssl=called.server_context,
    )
    talk = Talk()
    await loop.create_connection(
        lambda: talk, *server.sockets[0].getsockname()[:2], ssl=caller.client_context
    )
    try:
        found[1] = await caller.call(talk, "relay", Member("a"))
    except StompboxError as error:
        found[1] = error
    await asyncio.gather(*tasks)
    talk.close()
    server.close()
    return found


def test_nodes_that_know_the_secret() -> None:
    call, verdict = asyncio.run(met(node("a"), node("b")))
    assert (call.node, call.purpose) == ("a", "relay")
    assert b'"node":"a"' in bytes(call.about) and b'"node":"b"' in bytes(verdict.about)
    assert SECRET not in f"{call} {verdict}"


def test_a_node_that_does_not_know_the_secret() -> None:
    called, calling = asyncio.run(met(node("a", secret="another-secret-of-16"), node("b")))
    assert called.code == calling.code == "node-not-known"


def test_a_node_of_another_cluster_is_told_nothing() -> None:
    async def called() -> None:
        talk = Talk()
        talk.data_received(b'{"node":"b","cluster":"others","nonce":"00"}\n')
        with pytest.raises(LinkError) as caught:
            await node("a").call(talk, "relay")
        assert caught.value.code == "node-of-another-cluster"

    asyncio.run(called())


def test_who_was_called_must_know_it_too() -> None:
    async def forged() -> None:
        talk = Talk()
        talk.data_received(b'{"node":"b","cluster":"orders","nonce":"00"}\n{"proof":"00"}\n')
        with pytest.raises(LinkError) as caught:
            await node("a").call(talk, "relay")
        assert caught.value.code == "node-not-known"

    asyncio.run(forged())


@pytest.mark.parametrize("line", [b"\xff\n", b"{}\n", b"[1]\n", b"x" * 300_000])
def test_what_is_no_line_is_refused(line: bytes) -> None:
    async def heard() -> None:
        talk = Talk()
        talk.data_received(line)
        with pytest.raises(LinkError) as caught:
            await talk.hear(Challenge)
        assert caught.value.code == "bad-link"

    asyncio.run(heard())


def test_a_connection_that_is_lost_says_so() -> None:
    async def heard() -> None:
        talk = Talk()
        talk.connection_lost(None)
        with pytest.raises(ConnectionLost):
            await talk.hear(Challenge)
        with pytest.raises(ConnectionLost):
            await talk.give(b"x")

    asyncio.run(heard())


def test_certificates_that_cannot_be_read_are_refused() -> None:
    table = ClusterTable(node="a", log="disk:///l", key_store_path="/none", trust_store_path="/none")
    with pytest.raises(ConfigError, match="key-store-path '/none'"):
        Identity(table)


@needs_openssl
def test_nodes_that_know_each_other_by_certificates(tmp_path: Path) -> None:
    certify(tmp_path, "ours", "a", "b")
    certify(tmp_path, "others", "c")

    def with_certificate(name: str, authority: str) -> Identity:
        files = {"key_store_path": f"{tmp_path}/{name}.pem", "key_path": f"{tmp_path}/{name}.key"}
        return Identity(
            ClusterTable(
                node=name,
                name="orders",
                log="disk:///l",
                trust_store_path=f"{tmp_path}/{authority}.pem",
                **files,
            )
        )

    call, verdict = asyncio.run(met(with_certificate("a", "ours"), with_certificate("b", "ours")))
    assert call.node == "a" and b'"node":"b"' in bytes(verdict.about)
    assert is_refused(with_certificate("c", "ours"), with_certificate("b", "ours"))


def is_refused(caller: Identity, called: Identity) -> bool:
    """While TLS begins, or as soon as something is said."""
    try:
        found = asyncio.run(met(caller, called))
    except OSError:
        return True
    return found[0] is None and isinstance(found[1], ConnectionLost)
