"""A cluster under load whose nodes are killed, stopped and restarted: nothing confirmed is lost, and all stores are equal."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from stompbox.commitlog.base import Kind
from stompbox.commitlog.opening import open_log
from stompbox.commitlog.records import HEAD, VERSION
from stompbox.config import Configuration
from stompbox.errors import ConfigError
from stompbox.server import clustered
from stompbox.server.cluster.node import Node
from stompbox.server.readings import Readings
from stompbox.store.folder import DRAINED
from tests.commitlog import natsservers
from tests.crash.cluster import Book, Cluster, NodeProcess, drill, findings
from tests.crash.logservers import serving
from tests.crash.networks import NOT_HERE, refusal
from tests.crash.strikes import until

PATIENT = (
    4500  # ms; a third of its lead-timeout is what a node has to answer another one, on a busy machine, too
)
# seconds between a sender's receipt and its next message, which is about as long as it waits for one: other tests have the processors
# meanwhile. `make soak` has senders that do not rest
REST = 0.005
SHORT = (
    ("kill leader", "kill follower"),
    ("stop leader", "restart leader", "promote follower"),
    ("full follower", "clock leader", "clock follower", "kill leader"),
)


@pytest.mark.parametrize("faults", SHORT, ids=", ".join)
def test_nothing_that_was_confirmed_is_lost(tmp_path: Path, faults: tuple[str, ...]) -> None:
    cluster, book = Cluster(tmp_path, f"disk://{tmp_path}/log"), Book()
    for node in cluster.nodes:
        node.may_jump = any(fault.startswith("clock") for fault in faults)
    try:
        cluster.start()
        asyncio.run(drill(cluster, book, list(faults), between=1.0, senders=2, rest=REST))
    finally:
        codes = cluster.end()
    assert codes == [0, 0, 0]
    assert findings(cluster, book) == []
    assert len(book.confirmed) > 20


@pytest.mark.parametrize(
    ("engine", "faults"),
    [("cut", ["stop logs 7"]), ("cut", ["kill logs 7"]), ("postgres", ["stop logs 7", "kill leader"])],
)
def test_a_log_that_is_away_for_all_ends_no_lead(tmp_path: Path, engine: str, faults: list[str]) -> None:
    book = Book()
    with serving(engine, tmp_path) as servers:
        cluster = Cluster(tmp_path, servers=servers)
        for node in cluster.nodes:
            node.takeover = PATIENT
        try:
            cluster.start()
            asyncio.run(drill(cluster, book, faults, between=1.0, senders=2, rest=REST))
        finally:
            codes = cluster.end()
        assert codes == [0, 0, 0]
        found = findings(cluster, book)
        cluster.close()
    assert found == []
    assert len(book.confirmed) > 20 and book.silence > 3


def test_a_log_that_fails_over_loses_nothing(tmp_path: Path) -> None:
    book = Book()
    with serving("standby", tmp_path) as servers:
        cluster = Cluster(tmp_path, servers=servers)
        try:
            cluster.start()
            asyncio.run(drill(cluster, book, ["fail over", "kill leader"], between=1.0, senders=2, rest=REST))
        finally:
            codes = cluster.end()
        assert codes == [0, 0, 0]
        assert findings(cluster, book) == []
    assert len(book.confirmed) > 20


def test_packets_that_vanish_are_found_out_by_time_alone() -> None:
    natsservers.needs_nats()
    if why := refusal():
        pytest.skip(why)
    command = [sys.executable, "-m", "tests.crash.cluster", "--log", "cut", "--network", "namespaces"]
    command += ["--between", "1", "--rest", str(REST), "--faults", "lose log leader,lose nodes leader"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "lost         0" in done.stdout and "FOUND" not in done.stdout


def test_a_network_that_is_not_allowed_is_told_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "unshare").write_text(
        "#!/bin/sh\necho 'unshare failed: Operation not permitted' >&2\nexit 1\n"
    )
    for name in ("nsenter", "ip"):
        (tmp_path / name).write_text("")
    for file in tmp_path.iterdir():
        file.chmod(0o755)
    command = [sys.executable, "-m", "tests.crash.cluster", "--log", "nats", "--network", "namespaces"]
    places = {"PATH": str(tmp_path)} | {name: os.environ[name] for name in ("HOME",) if name in os.environ}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=places)
    assert done.returncode == NOT_HERE
    assert done.stderr.splitlines() == [
        "tests.crash.cluster: network namespaces are not allowed here: unshare failed: Operation not permitted"
    ]


def test_what_operators_see_and_do(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, f"disk://{tmp_path}/log")
    try:
        cluster.start()
        leader = asyncio.run(cluster.until_led())
        asyncio.run(cluster.until_ready())
        follower, other = [node for node in cluster.nodes if node is not leader]
        for node in cluster.nodes:
            table = node.command("status")
            assert "cluster drill" in table and f"{leader.name} leads" in table, table
            assert all(each.name in table for each in cluster.nodes)
        assert "not-the-leader" in follower.command("promote", other.name)
        assert "no other node 'x'" in leader.command("promote", "x")
        assert "is connected; stop it first" in leader.command("remove", other.name)
        assert "does not lead by itself" in leader.command("drain", other.name)
        other.end()
        assert f"node {follower.name} is to lead" in leader.command("promote", follower.name)
        assert asyncio.run(until_leads(cluster, follower))
        other.start()
        assert f"node {other.name} is drained" in other.said()
        asyncio.run(cluster.until_ready())
        assert "does not lead by itself" in follower.command("status")
        assert "may lead again" in follower.command("drain", other.name, "--undo")
        other.end()
        assert not (other.data / DRAINED).exists()
        other.start()
    finally:
        codes = cluster.end()
    assert codes == [0, 0, 0]


def test_two_nodes_with_one_name_are_told_by_the_second_one(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, f"disk://{tmp_path}/log", names="ab")
    for node in cluster.nodes:
        node.takeover = PATIENT
    try:
        cluster.start()
        leader = asyncio.run(cluster.until_led())
        asyncio.run(cluster.until_ready())
        for one in cluster.nodes:
            second = NodeProcess(tmp_path / "second", one.name, one.log)
            second.takeover = PATIENT
            second.start()
            problem = f"no link to the leader, node {leader.name}: .*two nodes are called '{one.name}'"
            said = asyncio.run(
                until(lambda second=second, problem=problem: re.search(problem, second.said()))
            )
            ready = second.asked("/readyz")
            assert second.end() == 0
            assert said and ready is None, second.said()
        asyncio.run(cluster.until_ready())
    finally:
        codes = cluster.end()
    assert codes == [0, 0]


async def until_leads(cluster: Cluster, node: NodeProcess) -> bool:
    return await cluster.until_led() is node or await until_leads(cluster, node)


def test_a_log_with_records_of_a_newer_version_is_refused_before_anything_is_started(tmp_path: Path) -> None:
    cluster, book = Cluster(tmp_path, f"disk://{tmp_path}/log"), Book()
    old = cluster.nodes[0]
    try:
        cluster.start()
        asyncio.run(drill(cluster, book, [], between=0.5, senders=1, rest=REST))
        codes = cluster.end()
        log = open_log(old.log, "drill")
        last = log.read(0, 1 << 30, 0.0)[-1]
        newer = HEAD.pack(VERSION + 1, 0, 0) + b"what is to come"
        log.append(last.position, last.epoch, Kind.COMMIT, newer)
        log.close()
        with pytest.raises(AssertionError, match="has ended"):
            old.start()
    finally:
        cluster.end()
    assert codes == [0, 0, 0]
    said = old.said().partition("stompbox serve: ")[2].splitlines()
    assert len(said) == 1 and said[0].startswith(f"record {last.position + 1} has format "), old.said()
    assert said[0].endswith("a newer Stompbox has written it")


def test_a_leader_that_was_away_for_long_gets_a_copy_of_a_node_that_it_knew(tmp_path: Path) -> None:
    cluster, book = Cluster(tmp_path, f"disk://{tmp_path}/log"), Book()
    try:
        cluster.start()
        leader = asyncio.run(cluster.until_led())
        asyncio.run(cluster.until_ready())
        others = [node for node in cluster.nodes if node is not leader]
        assert leader.end() == 0
        asyncio.run(drill(cluster, book, [], between=1.0, senders=2, rest=REST, nodes=others))
        log = open_log(leader.log, "drill")
        log.trim(log.last())
        log.close()
        leader.start()
        asyncio.run(cluster.until_ready())
    finally:
        codes = cluster.end()
    assert codes == [0, 0, 0]
    assert "has the store of the node at" in leader.said()
    assert findings(cluster, book) == []


def test_a_new_node_gets_a_copy_where_the_log_begins_too_late(tmp_path: Path) -> None:
    cluster, book = Cluster(tmp_path, f"disk://{tmp_path}/log"), Book()
    *others, new = cluster.nodes
    try:
        for node in others:
            node.start()
        asyncio.run(drill(cluster, book, [], between=1.0, senders=2, rest=REST, nodes=others))
        log = open_log(new.log, "drill")
        log.trim(log.last())
        log.close()
        reached = json.loads(others[0].command("status", "--json"))["members"]
        new.more = f"nodes = {[one['advertise'] for one in reached]}\n"
        new.start()
        asyncio.run(cluster.until_ready())
        asyncio.run(drill(cluster, book, ["kill leader"], between=1.0, senders=1, rest=REST))
    finally:
        codes = cluster.end()
    assert codes == [0, 0, 0]
    assert (
        "a copy of another node's store is fetched" in new.said()
        and "has the store of the node at" in new.said()
    )
    assert findings(cluster, book) == []
    assert not list(tmp_path.glob("*/data.*"))


def test_a_node_that_follows_reads_its_configuration_beside_what_it_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One reading after the other; a node that leads when it was read leaves it to its broker, and a fault changes nothing."""
    obeyed: list[Configuration] = []
    led: list[object] = []
    monkeypatch.setattr(clustered, "reload", lambda broker, read: led.append(broker))

    async def story() -> None:
        tasks, readings, settings = [], asyncio.Queue[Any](), Configuration(memory=True)

        async def beside() -> Configuration:
            found = await readings.get()
            if isinstance(found, Exception):
                raise found
            return cast(Configuration, found)

        node = SimpleNamespace(configuration=settings, leadership=None)
        node.view = SimpleNamespace(spawn=lambda work: tasks.append(asyncio.create_task(work)))
        node.obey = lambda made: obeyed.append(made.configuration)
        reader = cast(Readings, SimpleNamespace(beside=beside))
        process = clustered.Process(cast(Node, node), cast(clustered.Beside, None), reader)
        new = Configuration(memory=True, max_turn_time=7)
        for found in (ConfigError("config-value", "no"), RecursionError("a fault of ours"), new, settings):
            process.reload()
            readings.put_nowait(found)
        assert obeyed == [], "it is read in a thread"
        await asyncio.gather(*tasks)
        assert [one.max_turn_time for one in obeyed] == [7, settings.max_turn_time]
        process.reload()
        node.leadership = SimpleNamespace(broker="the broker")
        readings.put_nowait(new)
        await asyncio.gather(*tasks)
        assert (len(obeyed), led) == (2, ["the broker"])

    asyncio.run(story())
