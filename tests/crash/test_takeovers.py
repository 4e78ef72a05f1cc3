"""What is under way when another node leads: delayed and failed messages, transactions, half a large message, durable subscriptions."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import stompbox
from stompbox import BrokerError
from stompbox.errors import StompboxError
from tests.crash.cluster import Cluster, NodeProcess
from tests.system.test_staging import chunk, run_to

SETTINGS = '[[address-setting]]\nmatch = "#"\nredelivery-delay = 1500\nmax-delivery-attempts = 5\n'
PERSISTENT = {"persistent": "true"}
LARGE = 3_000_000  # octets: in pieces, which are in the log before the commit
WITHIN = 60.0
POLICY = stompbox.Reconnect(attempts=None, first_delay=0.05, max_delay=0.5, initial=True)


def kill(cluster: Cluster, leader: NodeProcess, other: NodeProcess) -> None:
    leader.signal(signal.SIGKILL)


def promote(cluster: Cluster, leader: NodeProcess, other: NodeProcess) -> None:
    assert f"node {other.name} is to lead" in leader.command("promote", other.name)


TAKEOVERS = pytest.mark.parametrize("take_over", [kill, promote])
Taking = Callable[[Cluster, NodeProcess, NodeProcess], None]


def played(folder: Path, play: Callable[[Cluster], Coroutine[Any, Any, None]]) -> None:
    cluster = Cluster(folder, f"disk://{folder}/log", names="ab")
    for node in cluster.nodes:
        node.more = SETTINGS
    try:
        cluster.start()
        asyncio.run(asyncio.wait_for(play(cluster), 2 * WITHIN))
    finally:
        codes = cluster.end()
    assert codes == [0, 0]


async def roles(cluster: Cluster) -> tuple[NodeProcess, NodeProcess]:
    """Who leads and who follows, both ready."""
    leader = await cluster.until_led()
    await cluster.until_ready()
    return leader, next(node for node in cluster.nodes if node is not leader)


async def taken_over(cluster: Cluster, take_over: Taking) -> NodeProcess:
    leader, other = await roles(cluster)
    await asyncio.to_thread(take_over, cluster, leader, other)
    assert await cluster.until_led(among=[other]) is other
    return other


@asynccontextmanager
async def at(node: NodeProcess, client_id: str | None = None) -> AsyncIterator[Any]:
    """A client of that node alone, whose connection is lost for good with the node's link or lead."""
    async with stompbox.connect(node.url, client_id=client_id, reconnect=None) as client:
        yield client


async def all_in(node: NodeProcess, destination: str) -> list[bytes]:
    """The bodies that are there, before a last one that is sent now."""
    found: list[bytes] = []
    async with stompbox.connect(node.url, reconnect=POLICY) as client:
        await client.send(destination, b"last", PERSISTENT)
        async with client.subscribe(destination, ack="client-individual") as messages:
            async for message in messages:
                await message.ack(confirm=True)
                if message.body == b"last":
                    return found
                found.append(bytes(message.body))
    raise AssertionError("the connection ended")


@TAKEOVERS
def test_delayed_and_failed_messages_come_when_they_are_due(tmp_path: Path, take_over: Taking) -> None:
    async def play(cluster: Cluster) -> None:
        _, follower = await roles(cluster)
        async with at(follower) as client:
            await client.send("/queue/later", b"later", {**PERSISTENT, "AMQ_SCHEDULED_DELAY": "4000"})
            await client.send("/queue/failed", b"failed", PERSISTENT)
            async with client.subscribe("/queue/failed", ack="client-individual") as messages:
                message = await anext(aiter(messages))
                await message.nack(confirm=True)
        new = await taken_over(cluster, take_over)
        async with stompbox.connect(new.url, reconnect=POLICY) as client:
            for queue in ("failed", "later"):
                async with client.subscribe(f"/queue/{queue}", ack="client-individual") as messages:
                    message = await asyncio.wait_for(anext(aiter(messages)), WITHIN)
                    assert bytes(message.body) == queue.encode()
                    # after a kill nobody knows what else was delivered
                    assert queue == "later" or message.headers["redelivered"] == "true"
                    await message.ack(confirm=True)

    played(tmp_path, play)


@TAKEOVERS
def test_of_an_open_transaction_nothing_is_left(tmp_path: Path, take_over: Taking) -> None:
    """Its client is passed on by the node that leads then."""

    async def play(cluster: Cluster) -> None:
        _, follower = await roles(cluster)
        async with at(follower) as client:
            await client.send("/queue/t", b"taken", PERSISTENT)
            with pytest.raises(StompboxError):
                async with (
                    client.subscribe("/queue/t", ack="client-individual") as messages,
                    client.transaction() as transaction,
                ):
                    message = await anext(aiter(messages))
                    await transaction.ack(message)
                    await transaction.send("/queue/t", b"never", PERSISTENT)
                    await taken_over(cluster, take_over)
        assert await all_in(follower, "/queue/t") == [b"taken"]

    played(tmp_path, play)


@TAKEOVERS
def test_half_of_a_large_message_is_none_and_sent_again_it_is_one(tmp_path: Path, take_over: Taking) -> None:
    async def play(cluster: Cluster) -> None:
        _, follower = await roles(cluster)
        body = b"0123456789" * (LARGE // 10)
        head = f"SEND\ndestination:/queue/large\npersistent:true\nreceipt:1\n_AMQ_DUPL_ID:1\ncontent-length:{LARGE}\n\n".encode()
        host, port = follower.listen.removeprefix("tcp://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"CONNECT\naccept-version:1.2\nhost:/\n\n\0")
        assert (await reader.readuntil(b"\0")).startswith(b"CONNECTED")
        writer.write(head + body[: LARGE // 2])
        await writer.drain()
        new = await taken_over(cluster, take_over)
        with suppress(OSError):
            await asyncio.wait_for(reader.read(), WITHIN)  # the connection ends
        writer.close()
        async with stompbox.connect(new.url, reconnect=POLICY) as client:
            for _ in range(2):
                await client.send("/queue/large", body, {**PERSISTENT, "_AMQ_DUPL_ID": "1"})
        assert await all_in(new, "/queue/large") == [body]

    played(tmp_path, play)


@TAKEOVERS
def test_a_durable_subscription_has_one_subscriber_in_the_cluster(tmp_path: Path, take_over: Taking) -> None:
    async def play(cluster: Cluster) -> None:
        leader, follower = await roles(cluster)
        async with (
            at(leader, "x") as one,
            at(follower, "x") as other,
            one.subscribe("/topic/news", durable="d", ack="client-individual"),
        ):
            with pytest.raises(BrokerError) as error:
                async with other.subscribe("/topic/news", durable="d", ack="client-individual"):
                    raise AssertionError("both have it")
            assert error.value.code == "durable-in-use"
        async with at(follower) as client:
            await client.send("/topic/news", b"while away", PERSISTENT)
        new = await taken_over(cluster, take_over)
        async with (
            stompbox.connect(new.url, client_id="x", reconnect=POLICY) as client,
            client.subscribe("/topic/news", durable="d", ack="client-individual") as messages,
        ):
            message = await asyncio.wait_for(anext(aiter(messages)), WITHIN)
            assert bytes(message.body) == b"while away"
            await message.ack(confirm=True)

    played(tmp_path, play)


@TAKEOVERS
def test_what_a_sink_has_staged_is_published_by_the_next_leader_once(
    tmp_path: Path, take_over: Taking
) -> None:
    async def play(cluster: Cluster) -> None:
        _, follower = await roles(cluster)
        staged = chunk(run_to("/queue/staged", b"1", b"2", persistent="true"))
        where = {"sink": "s", "batch": "0"}
        async with at(follower) as client:
            await client.request("stage", staged, {**where, "partition": "0", "attempt": "1"})
        new = await taken_over(cluster, take_over)
        async with stompbox.connect(new.url, reconnect=POLICY) as client:
            for _ in range(2):
                await client.request("publish", b'{"attempts":[[0,1]]}', where)
        assert await all_in(new, "/queue/staged") == [b"1", b"2"]

    played(tmp_path, play)
