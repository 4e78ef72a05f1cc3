"""A node that follows answers what it has applied, also while nobody leads, and never more than is confirmed."""

from __future__ import annotations

import asyncio
import json
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

import stompbox
from stompbox.errors import StompboxError
from tests.crash.cluster import Cluster, NodeProcess

RETAINED = '\n[[address-setting]]\nmatch = "#"\nretention-messages = 100000\n'
WITHIN = 20.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("following")
    found = Cluster(folder, f"disk://{folder}/log", names="ab")
    for node in found.nodes:
        node.reading = "tcp://127.0.0.1:0"
        node.takeover = 15_000  # the leader is stopped for a while, and is to lead still
        node.more = RETAINED
    found.start()
    yield found
    found.end()


def told(cluster: Cluster) -> tuple[NodeProcess, NodeProcess]:
    """(who leads, who follows), when both are ready."""
    leader = asyncio.run(cluster.until_led())
    asyncio.run(cluster.until_ready())
    [follower] = [node for node in cluster.nodes if node is not leader]
    return leader, follower


def reading(node: NodeProcess) -> str:
    return node.reading.replace("tcp://", "stomp://").partition("?")[0]


async def send(url: str, address: str, count: int) -> None:
    async with stompbox.connect(url) as client:
        for number in range(count):
            await client.send(address, b"%d" % number, {"persistent": "true"})


async def described(client: Any, address: str) -> tuple[dict[str, Any], dict[str, str]]:
    answer = await client.request("describe", headers={"destinations": address})
    return answer.json()["addresses"].get(address.rpartition("/")[2], {"first": 0, "next": 0}), answer.headers


async def until_has(client: Any, address: str, offset: int) -> dict[str, Any]:
    """What is said of the address, once it is there up to the offset."""
    deadline = time.monotonic() + WITHIN
    while (found := (await described(client, address))[0])["next"] < offset:
        assert time.monotonic() < deadline, found
    return found


def test_a_log_is_read_at_a_follower_while_the_leader_stands_still(cluster: Cluster) -> None:
    leader, follower = told(cluster)
    asyncio.run(send(leader.url, "/topic/kept", 50))

    async def read() -> None:
        async with stompbox.connect(reading(follower)) as client:
            found = await until_has(client, "/topic/kept", 50)
            assert found["next"] == 50
            leader.signal(signal.SIGSTOP)
            try:
                _, headers = await described(client, "/topic/kept")
                assert headers["node"] == follower.name
                assert int(headers["lag"]) >= 0
                before = int(headers["stale-ms"])
                given = {"address": "kept", "start": 10, "stop": 50}
                answer = await client.request("fetch", headers=given)
                assert answer.headers["next"] == answer.headers["end"] == "50"
                assert all(b"%d" % number in bytes(answer.body) for number in range(10, 50))
                assert int(answer.headers["stale-ms"]) >= before  # nothing was heard of the leader since
                with pytest.raises(StompboxError) as refused:
                    await client.request("fetch", headers=given | {"stop": 51})
                assert refused.value.code == "node-behind"
            finally:
                leader.signal(signal.SIGCONT)

    asyncio.run(read())
    told(cluster)


def test_what_a_follower_serves_is_never_beyond_what_is_confirmed(cluster: Cluster) -> None:
    """The log's folder is the judge: before each answer is looked at, the leader has confirmed at least as much."""
    leader, follower = told(cluster)

    async def both() -> list[tuple[int, int]]:
        sent, seen, is_over = 0, [], False

        async def read() -> None:
            async with stompbox.connect(reading(follower)) as client:
                while not is_over:
                    found, headers = await described(client, "/topic/raced")
                    seen.append((found["next"], sent))
                    assert {"node", "lag"} <= headers.keys()

        reader = asyncio.ensure_future(read())
        async with stompbox.connect(leader.url) as client:
            for number in range(300):
                sent = number + 1  # what is on its way may be confirmed
                await client.send("/topic/raced", b"x", {"persistent": "true"})
        async with stompbox.connect(reading(follower)) as client:
            await until_has(client, "/topic/raced", 300)
        is_over = True
        await reader
        return seen

    seen = asyncio.run(both())
    assert all(next <= sent for next, sent in seen), seen
    assert max(next for next, _ in seen) == 300
    assert [next for next, _ in seen] == sorted(next for next, _ in seen)


def test_offsets_that_are_stored_ahead_of_use_are_not_shown(cluster: Cluster) -> None:
    """What is not persistent makes the broker reserve offsets by the million; none of them was given out."""
    leader, follower = told(cluster)

    async def run() -> None:
        async with stompbox.connect(leader.url) as client:
            await client.send("/topic/ahead", b"kept", {"persistent": "true"})
            await client.send("/topic/ahead", b"not kept", {"persistent": "false"})
            at_leader = (await described(client, "/topic/ahead"))[0]
        async with stompbox.connect(reading(follower)) as client:
            found = await until_has(client, "/topic/ahead", 1)
        assert found["first"] == at_leader["first"] == 0
        assert 1 <= found["next"] <= at_leader["next"] == 2
        assert found["incarnations"] == at_leader["incarnations"]

    asyncio.run(run())


def test_the_lag_of_a_group_is_told_and_moved_by_the_leader_alone(cluster: Cluster) -> None:
    leader, follower = told(cluster)
    asyncio.run(send(leader.url, "/topic/grouped", 10))

    async def run() -> None:
        async with stompbox.connect(leader.url) as client:
            opening = {"group": "lake", "destinations": "/topic/grouped", "starting": "earliest"}
            await client.request("group-open", headers=opening)
            await client.request("group-commit", headers={"group": "lake"}, body=b'{"grouped": 4}')
        async with stompbox.connect(reading(follower)) as client:
            deadline = time.monotonic() + WITHIN
            while True:
                groups = (await client.request("groups")).json()["groups"]
                if groups.get("lake", {}).get("addresses", {}).get("grouped", {}).get("position") == 4:
                    break
                assert time.monotonic() < deadline, groups
            assert groups["lake"]["addresses"]["grouped"]["next"] == 10
            for request, given in (("group-commit", {"group": "lake"}), ("group-open", opening)):
                with pytest.raises(StompboxError) as refused:
                    await client.request(request, headers=given, body=b"{}")
                assert refused.value.code == "read-only"

    asyncio.run(run())


@pytest.mark.parametrize("which", ["leader", "follower"])
def test_where_logs_are_read_nothing_else_is_taken(cluster: Cluster, which: str) -> None:
    leader, follower = told(cluster)
    node = leader if which == "leader" else follower

    async def run() -> None:
        for body in (b"x", b"x" * 200_000):
            async with stompbox.connect(reading(node), reconnect=None) as client:
                with pytest.raises(StompboxError) as refused:
                    await client.send("/queue/refused", body)
                assert refused.value.code == "read-only"
        async with stompbox.connect(reading(node), reconnect=None) as client:
            with pytest.raises(StompboxError) as refused:
                async with client.subscribe("/queue/refused"):
                    pass
            assert refused.value.code == "read-only"
        async with stompbox.connect(reading(node), reconnect=None) as client:
            with pytest.raises(StompboxError) as refused:
                given = {"destinations": "/queue/refused", "create": "true"}
                await client.request("describe", headers=given)
            assert refused.value.code == "read-only"

    asyncio.run(run())


def asked(node: NodeProcess, path: str, body: bytes | None = None) -> tuple[int, dict[str, str], bytes]:
    request = urllib.request.Request(f"http://{node.admin}{path}", body, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=WITHIN) as answer:
            return answer.status, dict(answer.headers.items()), answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers), error.read()


def test_the_admin_interface_of_a_follower(cluster: Cluster) -> None:
    leader, follower = told(cluster)
    asyncio.run(send(leader.url, "/topic/shown", 7))
    for path in ("cluster", "listeners", "configuration", "status", "addresses", "groups", "session"):
        status, headers, body = asked(follower, f"/api/v1/{path}")
        assert status == 200, (path, body)
        assert ("stompbox-lag" in headers) is (path in ("addresses", "groups"))
    place = json.loads(asked(follower, "/api/v1/status")[2])["cluster"]
    assert (place["node"], place["role"], place["leader"]) == (follower.name, "follower", leader.name)
    assert place["leader_admin"] == f"http://{leader.admin}"
    found = {one["url"] for one in json.loads(asked(follower, "/api/v1/listeners")[2])["listeners"]}
    assert found == {follower.listen, follower.reading}
    deadline = time.monotonic() + WITHIN
    while True:
        listed = json.loads(asked(follower, "/api/v1/addresses?match=shown")[2])["addresses"]
        if listed and listed[0]["committed"] == 7:
            break
        assert time.monotonic() < deadline, listed


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/v1/queues", None),
        ("/api/v1/messages?queue=x", None),
        ("/api/v1/queues/purge", b'{"queue": "x"}'),
        ("/api/v1/cluster/drain", b'{"node": "x"}'),
        ("/api/v1/users/create", b"{}"),
    ],
)
def test_what_a_follower_does_not_answer_it_says_who_does(
    cluster: Cluster, path: str, body: bytes | None
) -> None:
    leader, follower = told(cluster)
    status, headers, answer = asked(follower, path, body)
    problem = json.loads(answer)
    assert (status, problem["code"]) == (503, "not-the-leader")
    assert headers["content-type"] == "application/problem+json"
    assert (
        f"node {leader.name!r} leads" in problem["detail"] and f"http://{leader.admin}" in problem["detail"]
    )


def test_health_and_metrics_of_a_follower(cluster: Cluster) -> None:
    leader, follower = told(cluster)
    assert asked(follower, "/healthz")[0] == asked(follower, "/readyz")[0] == 200
    status, _, body = asked(follower, "/readyz?role=leader")
    assert status == 503
    assert json.loads(body)["reasons"][0]["code"] == "not-the-leader"
    assert asked(leader, "/readyz?role=leader")[0] == 200
    of_follower = asked(follower, "/metrics")[2].decode()
    assert "stompbox_cluster_leads 0.0" in of_follower and "stompbox_ready 1.0" in of_follower
    assert "stompbox_cluster_stale_seconds" in of_follower
    assert "stompbox_messages_received" not in of_follower  # counted once for the cluster: by its leader
    assert "stompbox_cluster_leads 1.0" in asked(leader, "/metrics")[2].decode()
