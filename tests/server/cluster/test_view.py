"""A node that follows answers what it has applied, also while nobody leads, and never more than is confirmed."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
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
KEPT = {"persistent": "true"}


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


# Subscriptions


async def taken(subscription: Any, count: int) -> list[str]:
    """So many messages of it, by their bodies."""
    async with asyncio.timeout(WITHIN):
        return [(await subscription.receive()).body.decode() for _ in range(count)]


def test_a_log_is_replayed_at_a_follower_and_goes_on(cluster: Cluster) -> None:
    leader, follower = told(cluster)
    asyncio.run(send(leader.url, "/topic/replayed", 40))

    async def run() -> None:
        async with stompbox.connect(reading(follower)) as client:
            await until_has(client, "/topic/replayed", 40)
            async with client.subscribe("/stream/replayed", ack="auto", offset=5) as subscription:
                assert await taken(subscription, 35) == [str(number) for number in range(5, 40)]
                for batch in range(3):  # each is a later state of the store
                    async with stompbox.connect(leader.url) as sender:
                        for number in range(10):
                            await sender.send("/topic/replayed", b"%d.%d" % (batch, number), KEPT)
                            await sender.send("/topic/beside", b"", KEPT)
                    assert await taken(subscription, 10) == [f"{batch}.{number}" for number in range(10)]

    asyncio.run(run())


def test_who_reads_at_a_follower_misses_nothing_and_gets_nothing_twice_under_load(cluster: Cluster) -> None:
    leader, follower = told(cluster)
    count = 6000
    asyncio.run(send(leader.url, "/topic/loaded", 1))

    async def load() -> None:
        async with stompbox.connect(leader.url) as client:
            bodies = [b"%d" % number for number in range(1, count)]
            await client.send_many("/topic/loaded", bodies, KEPT, window=10)

    async def run() -> None:
        async with stompbox.connect(reading(follower)) as client:
            await until_has(client, "/topic/loaded", 1)
            loading = asyncio.ensure_future(load())
            async with (
                client.subscribe("/stream/loaded", ack="auto", offset="first") as every,
                client.subscribe(
                    "/stream/loaded", ack="auto", offset="first", headers={"include-seq": "seq"}
                ) as other,
            ):
                found = await asyncio.gather(taken(every, count), taken(other, count))
            await loading
        assert found[0] == found[1] == [str(number) for number in range(count)]

    asyncio.run(run())


def test_a_queue_is_browsed_at_a_follower_and_nothing_is_taken(cluster: Cluster) -> None:
    leader, follower = told(cluster)

    async def browsed(client: Any, **more: Any) -> list[str]:
        found = []
        headers = {"browser": "true"}
        async with (
            asyncio.timeout(WITHIN),
            client.subscribe("/queue/browsed", headers=headers, **more) as subscription,
        ):
            async for message in subscription:
                if message.headers.get("browser") == "end":
                    break
                found.append(message.body.decode())
        return found

    async def until_shown(client: Any, wanted: list[str]) -> None:
        deadline = time.monotonic() + WITHIN
        while (found := await browsed(client)) != wanted:
            assert time.monotonic() < deadline, found

    async def run() -> None:
        async with stompbox.connect(leader.url) as client:
            for number in range(20):
                await client.send("/queue/browsed", b"%d" % number, {**KEPT, "even": str(number % 2 == 0)})
            async with client.subscribe("/queue/browsed", ack="client-individual") as subscription:
                for number in range(20):
                    message = await subscription.receive()
                    if number < 5 or number == 7:
                        await message.ack()
        left = [str(number) for number in range(20) if number >= 5 and number != 7]
        async with stompbox.connect(reading(follower)) as client:
            deadline = time.monotonic() + WITHIN
            while (
                "browsed"
                not in (await client.request("describe", headers={"destinations": "#"})).json()["addresses"]
            ):
                assert time.monotonic() < deadline
            await until_shown(client, left)
            even = [number for number in left if int(number) % 2 == 0]
            assert await browsed(client, selector="even = 'True'") == even
            headers = {"browser": "true", "browser-end": "false", "from-seq": "18"}
            async with client.subscribe("/queue/browsed", headers=headers) as subscription:
                assert await taken(subscription, 2) == ["18", "19"]
                await send(leader.url, "/queue/browsed", 3)
                assert await taken(subscription, 3) == ["0", "1", "2"]
        async with stompbox.connect(leader.url) as client, client.subscribe("/queue/browsed") as subscription:
            assert await taken(subscription, 17) == [*left, "0", "1", "2"]

    asyncio.run(run())


def test_a_follower_does_not_begin_before_an_offset_that_it_has_not(cluster: Cluster) -> None:
    leader, follower = told(cluster)
    asyncio.run(send(leader.url, "/topic/behind", 3))

    async def run() -> None:
        async with stompbox.connect(reading(follower), reconnect=None) as client:
            await until_has(client, "/topic/behind", 3)
            with pytest.raises(StompboxError) as refused:
                async with client.subscribe("/stream/behind", ack="auto", offset=4):
                    pass
            assert refused.value.code == "node-behind"

    asyncio.run(run())


@pytest.mark.parametrize(
    ("destination", "given", "headers", "code"),
    [
        ("/queue/there", {}, {}, "read-only"),
        ("/topic/there", {}, {}, "read-only"),
        ("/stream/there", {"ack": "client"}, {"x-stream-offset": "first"}, "read-only"),
        ("/stream/there", {"durable": "me"}, {"x-stream-offset": "first"}, "read-only"),
        ("/topic/there", {"durable": "me"}, {}, "read-only"),
        ("/queue/there", {}, {"browser": "true", "x-max-length": "5"}, "read-only"),
        ("/stream/nowhere", {}, {"x-stream-offset": "first"}, "no-such-address"),
        ("/queue/nowhere", {}, {"browser": "true"}, "no-such-queue"),
        ("/queue/nowhere", {}, {"browser": "true", "browser-end": "false"}, "no-such-queue"),
    ],
)
def test_who_would_change_something_by_a_subscription_is_refused_by_every_node(
    cluster: Cluster, destination: str, given: dict[str, str], headers: dict[str, str], code: str
) -> None:
    told(cluster)

    async def run(node: NodeProcess) -> None:
        async with stompbox.connect(node.url) as client:
            await client.send("/queue/there", b"", KEPT)
        async with stompbox.connect(reading(node), reconnect=None, client_id="me") as client:
            with pytest.raises(StompboxError) as refused:
                async with client.subscribe(destination, **{"ack": "auto", **given}, headers=headers):
                    pass
            assert refused.value.code == code
        async with stompbox.connect(node.url) as client:
            answer = await client.request("describe", headers={"destinations": "/queue/nowhere"})
            assert answer.json()["missing"] == ["/queue/nowhere"]

    for node in cluster.nodes:
        asyncio.run(run(node))


def test_the_command_line_browses_and_replays_at_a_follower(cluster: Cluster) -> None:
    leader, follower = told(cluster)
    asyncio.run(send(leader.url, "/queue/commanded", 3))

    async def until_there() -> None:
        async with stompbox.connect(reading(follower)) as client:
            await until_has(client, "/queue/commanded", 3)

    asyncio.run(until_there())

    def run(*words: str) -> tuple[int, str, str]:
        line = [sys.executable, "-m", "stompbox", *words]
        done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stdout, done.stderr

    assert run("browse", "/queue/commanded", "--url", reading(follower)) == (0, "0\n1\n2\n", "")
    to = "commanded", "/queue/copied"
    assert run("replay", *to, "--from", "1", "--url", leader.url, "--read-url", reading(follower))[0] == 0
    assert run("browse", "/queue/copied", "--url", leader.url)[1] == "1\n2\n"
    code, _, said = run("replay", *to, "--url", reading(follower))
    assert code == 1 and "this listener has `readOnly`" in said


def test_who_reads_at_a_follower_reads_on_where_that_leads(cluster: Cluster) -> None:
    leader, follower = told(cluster)
    asyncio.run(send(leader.url, "/topic/handed", 5))

    async def run() -> None:
        policy = stompbox.Reconnect(attempts=None, first_delay=0.05, max_delay=0.2, initial=True)
        async with stompbox.connect(reading(follower), reconnect=policy) as client:
            await until_has(client, "/topic/handed", 5)
            async with client.subscribe("/stream/handed", ack="auto", offset="first") as subscription:
                assert await taken(subscription, 5) == ["0", "1", "2", "3", "4"]
                done = await asyncio.to_thread(leader.command, "promote", follower.name)
                assert f"node {follower.name} is to lead" in done, done
                while await cluster.until_led() is not follower:
                    pass
                await send(follower.url, "/topic/handed", 3)
                assert await taken(subscription, 3) == ["0", "1", "2"]

    asyncio.run(run())
