"""JetStream: three servers of which one is killed or stopped, streams that are not safe, users, TLS, what a stream is full of."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from random import Random
from threading import Event
from time import monotonic
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.js.api import DiscardPolicy, PersistMode, StorageType, StreamConfig, StreamSource
from nats.js.client import JetStreamContext

from stompbox.commitlog import jetstream
from stompbox.commitlog.base import CommitLog, Kind, LogError
from stompbox.commitlog.jetstream import JetStreamLog
from stompbox.commitlog.natsfeed import Entry, packed, unpacked
from stompbox.commitlog.natsstream import stream_of, subject_of, wanted
from stompbox.commitlog.opening import open_log
from tests.certificates import certify, needs_openssl
from tests.commitlog.candidates import Candidate, check, read_on_to
from tests.commitlog.logs import DEADLINE, commit, fresh_name, in_thread, read_on
from tests.commitlog.natsservers import NatsServer, running, url_of, wait_healthy
from tests.commitlog.proxy import Proxy

# nats-py leaves the writer of a connection that was closed before it was made to the garbage collector
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <StreamWriter:ResourceWarning")


@pytest.fixture
def name() -> Iterator[str]:
    yield fresh_name()
    gc.collect()


def on(server: NatsServer, work: Callable[[JetStreamContext], Awaitable[Any]]) -> Any:
    """What an operator does."""

    async def act() -> Any:
        client = await nats.connect(server.url)
        try:
            return await work(client.jetstream())
        finally:
            await client.close()

    return asyncio.run(act())


def insecure(server: NatsServer, name: str) -> CommitLog:
    return open_log(f"{server.url}?insecure=true", name)


def refusal(url: str, name: str) -> LogError:
    with pytest.raises(LogError) as error:
        open_log(url, name)
    return error.value


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer counts as lost sooner."""
    monkeypatch.setattr(jetstream, "ANSWER", 0.5)


# --- three servers ------------------------------------------------------------------------------------------------------


def leader_of(servers: list[NatsServer], name: str) -> NatsServer:
    info = on(servers[0], lambda stream: stream.stream_info(stream_of(name)))
    return next(server for server in servers if server.name == info.cluster.leader)


def open_safe(servers: list[NatsServer], name: str) -> CommitLog:
    """The cluster's first leader is elected after it says that it is healthy: the first stream may have to wait."""
    deadline = monotonic() + DEADLINE
    while True:
        try:
            return open_log(f"{url_of(servers)}?sync=always", name)
        except LogError as error:
            assert error.code == "log-unavailable" and monotonic() < deadline, error


@pytest.mark.usefixtures("quick")
def test_the_leader_of_the_stream_is_killed(three_nats: list[NatsServer], name: str) -> None:
    with closing(open_safe(three_nats, name)) as log, closing(open_safe(three_nats, name)) as other:
        written = [log.lead(0, b"a").position]
        for _ in range(30):
            written.append(commit(log, written[-1]))
        leader = leader_of(three_nats, name)
        leader.kill()
        waiting = in_thread(lambda: commit(log, written[-1], b"while nobody led"))
        written.append(waiting.result(DEADLINE))
        try:
            for _ in range(10):
                written.append(commit(log, written[-1]))
            found = read_on(other, 0, len(written))
        finally:
            leader.start()
            wait_healthy(three_nats)
        assert [record.position for record in found] == written
        assert [record.position for record in read_on(log, 0, len(written))] == written


@pytest.mark.usefixtures("quick")
def test_the_leader_of_the_stream_stands_still(three_nats: list[NatsServer], name: str) -> None:
    with closing(open_safe(three_nats, name)) as log, closing(open_safe(three_nats, name)) as other:
        lead = log.lead(0, b"a")
        leader = leader_of(three_nats, name)
        leader.send(signal.SIGSTOP)
        try:
            position = in_thread(lambda: commit(log, lead.position, b"x")).result(DEADLINE)
            assert read_on(other, lead.position, 1)[0].payload == b"x"
            other.lead(position, b"b")
        finally:
            leader.send(signal.SIGCONT)
            wait_healthy(three_nats)
        assert [record.payload for record in read_on(log, 0, 3)] == [b"a", b"x", b"b"]


@pytest.mark.usefixtures("quick")
def test_without_a_quorum_nothing_is_confirmed_and_beats_go_on(
    three_nats: list[NatsServer], name: str
) -> None:
    with closing(open_safe(three_nats, name)) as log, closing(open_safe(three_nats, name)) as other:
        lead = log.lead(0, b"a")
        read_on(other, 0, 1)
        for server in three_nats[1:]:
            server.kill()
        try:
            waiting = in_thread(lambda: commit(log, lead.position))
            heard, deadline = other.heard(), monotonic() + DEADLINE
            while other.heard() == heard:  # both find the server that is left
                assert monotonic() < deadline
                try_beat(log, lead.epoch)
            assert not waiting.done()
        finally:
            for server in three_nats[1:]:
                server.start()
            wait_healthy(three_nats)
        assert waiting.result(DEADLINE) == read_on(other, lead.position, 1)[0].position


@pytest.mark.usefixtures("quick")
@pytest.mark.skipif(not os.environ.get("SOAK"), reason="takes minutes: SOAK=1")
@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_to_its_servers(tmp_path: Path, name: str, seed: int) -> None:
    """Two nodes fight for the lead while servers are killed and stopped, also two of three at once."""
    random, is_over = Random(seed), Event()
    with running(tmp_path, 3) as servers:
        nodes = [Candidate(node, open_safe(servers, name)) for node in "ab"]
        fighting = [in_thread(partial(node.run, is_over)) for node in nodes]
        for _ in range(6):
            chosen = random.sample(servers, random.choice([1, 1, 2]))
            landed = sum(len(node.landed) for node in nodes)
            fault = random.choice([signal.SIGKILL, signal.SIGSTOP])
            for server in chosen:
                server.send(fault)
            is_over.wait(2 + 4 * random.random())
            for server in chosen:
                if fault is signal.SIGKILL:
                    server.kill()
                    server.start()
                else:
                    server.send(signal.SIGCONT)
            wait_healthy(servers)
            deadline = monotonic() + DEADLINE
            while sum(len(node.landed) for node in nodes) < landed + 50:
                assert monotonic() < deadline
        is_over.set()
        for one in fighting:
            one.result(DEADLINE)
        with closing(open_safe(servers, name)) as log:
            found = read_on_to(log, log.last())
        for node in nodes:
            node.log.close()
    check(nodes, found)


def try_beat(log: CommitLog, epoch: int) -> None:
    try:
        log.beat(epoch)
    except LogError as error:
        assert error.code == "log-unavailable"


def test_servers_are_asked_whether_they_sync(three_nats: list[NatsServer], name: str) -> None:
    url = url_of(three_nats)
    open_safe(three_nats, name).close()
    assert "cannot be seen from here" in refusal(url, name).message
    monitors = [server.monitor_url for server in three_nats]
    open_log(f"{url}?monitor={','.join(monitors)}", name).close()
    error = refusal(f"{url}?monitor={','.join(monitors[:2])}", name)
    assert (error.code, "no monitor is of the stream's servers n2" in error.message) == ("log-not-safe", True)
    assert refusal(f"{url}?monitor=file:///etc/passwd", name).code == "log-not-safe"


def test_a_server_that_does_not_sync_is_refused(
    tmp_path: Path, three_nats: list[NatsServer], name: str
) -> None:
    open_safe(three_nats, name).close()
    with running(tmp_path, 1, sync="2m") as servers:
        error = refusal(f"{url_of(three_nats)}?monitor={servers[0].monitor_url}", name)
    assert (error.code, "has not sync_interval: always" in error.message) == ("log-not-safe", True)
    error = refusal(f"{url_of(three_nats)}?monitor={servers[0].monitor_url}", name)
    assert error.code == "log-unavailable"  # it has ended


# --- what a stream must be ------------------------------------------------------------------------------------------------


def test_one_server_alone_is_not_safe(one_nats: NatsServer, name: str) -> None:
    error = refusal(f"{one_nats.url}?sync=always", name)
    assert (error.code, "three servers in a cluster" in error.message) == ("log-not-safe", True)
    insecure(one_nats, name).close()
    error = refusal(f"{one_nats.url}?sync=always", name)
    assert (error.code, "has 1 replicas" in error.message) == ("log-not-safe", True)


def changed(name: str, **changes: Any) -> StreamConfig:
    return wanted(name, 1).evolve(**changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"max_msgs": 1000, "discard": DiscardPolicy.OLD}, "discards old records at its max_msgs"),
        ({"max_bytes": 10**6, "discard": DiscardPolicy.OLD}, "discards old records at its max_bytes"),
        ({"max_age": 3600}, "drops records after max_age"),
        ({"max_msgs_per_subject": 5}, "keeps 5 messages of a subject"),
        ({"no_ack": True}, "confirms nothing"),
        ({"allow_rollup_hdrs": True}, "allow_rollup_hdrs"),
        ({"storage": StorageType.MEMORY}, "has storage memory"),
        ({"persist_mode": PersistMode.ASYNC}, "persist_mode async"),
        ({"subjects": ["stompbox.more.*"]}, "has the subjects"),
        ({"subjects": [], "sources": [StreamSource(name="other")]}, "is filled from another one"),
    ],
    ids=lambda value: "" if isinstance(value, str) else ",".join(value),
)
def test_a_stream_that_may_lose_records_is_refused(
    one_nats: NatsServer, name: str, changes: dict[str, Any], words: str
) -> None:
    config = changed(name, **changes)
    config.subjects = [subject.replace("more", name) for subject in config.subjects or ()]
    on(one_nats, lambda stream: stream.add_stream(config))
    error = refusal(f"{one_nats.url}?insecure=true", name)
    on(one_nats, lambda stream: stream.delete_stream(stream_of(name)))
    assert error.code == "log-not-safe"
    assert words in error.message


@pytest.mark.parametrize(
    ("metadata", "code"),
    [
        ({}, "log-of-another"),
        ({"stompbox.cluster": "flights", "stompbox.identity": "a", "stompbox.format": "1"}, "log-of-another"),
        ({"stompbox.cluster": "", "stompbox.identity": "a", "stompbox.format": "2"}, "log-too-new"),
    ],
)
def test_a_stream_that_is_not_ours_is_refused(
    one_nats: NatsServer, name: str, metadata: dict[str, str], code: str
) -> None:
    marks = {mark: value or name for mark, value in metadata.items()}
    on(one_nats, lambda stream: stream.add_stream(changed(name, metadata=marks)))
    assert refusal(f"{one_nats.url}?insecure=true", name).code == code


def test_a_stream_with_a_limit_that_refuses_is_safe(one_nats: NatsServer, name: str) -> None:
    on(one_nats, lambda stream: stream.add_stream(changed(name, max_bytes=10**6)))
    insecure(one_nats, name).close()
    assert on(one_nats, lambda stream: stream.stream_info(stream_of(name))).config.max_bytes == 10**6


def test_a_stream_that_was_made_anew_is_another_log(one_nats: NatsServer, name: str) -> None:
    with closing(insecure(one_nats, name)) as log:
        first = log.identity
    on(one_nats, lambda stream: stream.delete_stream(stream_of(name)))
    with closing(insecure(one_nats, name)) as log:
        assert log.identity != first


def test_a_full_stream_refuses_and_keeps_nothing(one_nats: NatsServer, name: str) -> None:
    with closing(insecure(one_nats, name)) as log:
        lead = log.lead(0, b"a")
        config = on(one_nats, lambda stream: stream.stream_info(stream_of(name))).config
        on(one_nats, lambda stream: stream.update_stream(config.evolve(max_msgs=2)))
        position = commit(log, lead.position)
        with pytest.raises(LogError) as error:
            commit(log, position)
        assert (error.value.code, log.last()) == ("log-full", position)
        log.trim(position)
        assert commit(log, position) > position


def test_what_no_node_has_appended_is_damage(one_nats: NatsServer, name: str) -> None:
    with closing(insecure(one_nats, name)) as log:
        lead = log.lead(0, b"a")
        on(one_nats, lambda stream: stream.publish(subject_of(name), b"hello"))
        assert log.read(0, 1, DEADLINE)[0] == lead
        with pytest.raises(LogError) as error:
            log.read(lead.position, 1000, DEADLINE)
        assert error.value.code == "log-corrupt"


def test_a_record_that_does_not_follow_is_damage(one_nats: NatsServer, name: str) -> None:
    with closing(insecure(one_nats, name)) as log:
        lead = log.lead(0, b"a")
        entry = Entry(lead._replace(kind=Kind.COMMIT), lead.position + 7, b"w" * 16, 1)
        on(one_nats, lambda stream: stream.publish(subject_of(name), packed(entry)))
        with pytest.raises(LogError, match="follows") as error:
            log.read(lead.position, 1000, DEADLINE)
        assert error.value.code == "log-corrupt"


def test_a_newer_layout_is_named() -> None:
    with pytest.raises(LogError) as error:
        unpacked(7, b"SB\x02" + bytes(80))
    assert error.value.code == "log-too-new"


# --- who may --------------------------------------------------------------------------------------------------------------


NODE = """
    {user: dora, password: dora, permissions: {
      publish: ["stompbox.NAME.log", "stompbox.NAME.beat", "$JS.API.STREAM.*.stompbox-NAME",
        "$JS.API.STREAM.MSG.GET.stompbox-NAME", "$JS.API.CONSUMER.>"],
      subscribe: ["stompbox.NAME.beat", "_INBOX.>"]}},
"""  # what docs/cluster-log.md says
USERS = """
authorization {
  users: [ NODE
    {user: alice, password: "p@ss"},
    {user: bob, password: bob, permissions: {publish: ["$JS.API.>"], subscribe: [">"]}},
    {user: carl, password: carl, permissions: {publish: ["nothing"], subscribe: [">"]}}
  ]
}
"""


@pytest.mark.usefixtures("quick")
def test_users_and_what_they_may(tmp_path: Path, name: str) -> None:
    with running(tmp_path, 1, USERS.replace("NODE", NODE).replace("NAME", name)) as (server,):
        address = f"127.0.0.1:{server.port}?insecure=true"
        for wrong in ("", "alice:wrong@"):
            error = refusal(f"nats://{wrong}{address}", name)
            assert error.code == "log-not-allowed"
            assert "wrong" not in error.message
        assert refusal(f"nats://carl:carl@{address}", name).code == "log-not-allowed"
        with closing(open_log(f"nats://dora:dora@{address}", name)) as log:
            lead = log.lead(0, b"d")
            assert log.read(0, 100, DEADLINE) == [lead]
            log.beat(1)
            log.trim(lead.position)
            again = log.lead(lead.position, b"d")
        with closing(open_log(f"nats://alice:p%40ss@{address}", name)) as log:
            assert isinstance(log, JetStreamLog)
            assert "p%40ss" not in repr(log) + log.name
            lead = log.lead(again.position, b"a")
            with closing(open_log(f"nats://bob:bob@{address}", name)) as reads_only:
                assert reads_only.read(again.position, 100, DEADLINE) == [lead]
                with pytest.raises(LogError, match=r"(?i)permissions violation") as refused:
                    commit(reads_only, lead.position)
                assert refused.value.code == "log-not-allowed"
            assert log.last() == lead.position


@needs_openssl
def test_tls(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jetstream, "OPENING", 1.5)  # what is refused takes that long
    certify(tmp_path, "ca", "server", "node")
    files = (
        f'cert_file: "{tmp_path}/server.pem", key_file: "{tmp_path}/server.key", ca_file: "{tmp_path}/ca.pem"'
    )
    with running(tmp_path, 1, f"tls {{ {files}, verify: true }}") as (server,):
        url = f"tls://localhost:{server.port}?insecure=true"
        own = f"cert={tmp_path}/node.pem&key={tmp_path}/node.key"
        with closing(open_log(f"{url}&ca={tmp_path}/ca.pem&{own}", name)) as log:
            assert log.lead(0, b"a").epoch == 1
        error = refusal(f"{url}&{own}", name)  # its authority is not ours
        assert (error.code, "CERTIFICATE_VERIFY_FAILED" in error.message) == ("log-unavailable", True)
        assert refusal(f"{url}&ca={tmp_path}/none.pem", name).code == "log-not-allowed"


def test_where_nobody_is(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jetstream, "OPENING", 0.3)
    error = refusal("nats://127.0.0.1:1?insecure=true", name)
    assert (error.code, "127.0.0.1:1" in error.message) == ("log-unavailable", True)


@pytest.mark.usefixtures("quick")
def test_who_is_let_in_no_more_while_an_answer_is_lost_does_not_say_that_nothing_landed(
    one_nats: NatsServer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = Proxy(one_nats.port)
    with (
        closing(proxy),
        closing(insecure(one_nats, name)) as other,
        closing(open_log(f"nats://127.0.0.1:{proxy.port}?insecure=true", name)) as log,
    ):
        assert isinstance(log, JetStreamLog)
        lead = log.lead(0, b"a")
        proxy.down.hold()
        waiting = in_thread(lambda: commit(log, lead.position))
        position = read_on(other, lead.position, 1)[0].position
        connected, refusals = log._connected, [LogError("log-not-allowed", "let in no more")] * 3

        async def connected_later() -> Client:
            if refusals:
                raise refusals.pop()
            return await connected()

        monkeypatch.setattr(log, "_connected", connected_later)
        proxy.cut()
        proxy.restore()
        assert waiting.result(DEADLINE) == position
        assert refusals == []
