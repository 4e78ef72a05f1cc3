"""Logs whose engine is behind a network: what a node finds out when the connection to it is lost, held up or slow."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from random import Random
from threading import Event
from time import monotonic

import pytest

from stompbox.commitlog import jetstream, postgres
from stompbox.commitlog.base import CommitLog, Fenced, LogError, Record
from stompbox.commitlog.opening import open_log
from tests.commitlog.candidates import PAYLOAD, Candidate, check, read_on_to
from tests.commitlog.logs import DEADLINE, commit, fresh_name, in_thread, read_on, read_to
from tests.commitlog.natsservers import NatsServer
from tests.commitlog.proxy import Proxy

# nats-py leaves the writer of a connection that was closed before it was made to the garbage collector
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <StreamWriter:ResourceWarning")


@dataclass
class Net:
    """A node behind the proxy, which leads, and another one that is not behind it."""

    proxy: Proxy
    log: CommitLog
    other: CommitLog
    lead: Record


def urls(kind: str, request: pytest.FixtureRequest) -> tuple[str, int]:
    """Of a server, with {} for the port; and its port."""
    if kind == "postgres":
        port: int = request.getfixturevalue("postgres").port
        return "postgresql://tests@127.0.0.1:{}/postgres?sslmode=disable&gssencmode=disable", port
    server: NatsServer = request.getfixturevalue("one_nats")
    return "nats://127.0.0.1:{}?insecure=true", server.port


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer counts as lost sooner."""
    monkeypatch.setattr(jetstream, "ANSWER", 0.4)
    monkeypatch.setattr(postgres, "ANSWER", 0.4)
    monkeypatch.setattr(postgres, "APPENDING", 0.4)


engines = pytest.mark.parametrize("engine", ["jetstream", "postgres"])


@pytest.fixture(params=["jetstream", "postgres"])
def net(request: pytest.FixtureRequest, quick: None) -> Iterator[Net]:
    url, port = urls(request.param, request)
    proxy, cluster = Proxy(port), fresh_name()
    log, other = (open_log(url.format(port), cluster) for port in (proxy.port, port))
    lead = log.lead(0, b"a")
    try:
        yield Net(proxy, log, other, lead)
    finally:
        proxy.restore()
        log.close()
        other.close()
        proxy.close()
        gc.collect()


def landed(net: Net) -> int:
    """Waits until the record behind the lead is there."""
    return read_to(net.other, net.lead.position, net.lead.position + 1)[0].position


def test_the_answer_is_lost_and_it_landed(net: Net) -> None:
    net.proxy.down.hold()
    waiting = in_thread(lambda: commit(net.log, net.lead.position, PAYLOAD))
    position = landed(net)
    net.proxy.cut()
    net.proxy.restore()
    assert waiting.result(DEADLINE) == position
    assert [record.payload for record in net.other.read(net.lead.position, 1 << 20, 0)] == [PAYLOAD]
    assert commit(net.log, position) == net.other.last()


def test_the_answer_is_lost_and_another_one_leads_behind_it(net: Net) -> None:
    net.proxy.down.hold()
    waiting = in_thread(lambda: commit(net.log, net.lead.position, PAYLOAD))
    position = landed(net)
    again = net.other.lead(position, b"b")
    net.proxy.cut()
    net.proxy.restore()
    assert waiting.result(DEADLINE) == position
    with pytest.raises(Fenced):
        commit(net.log, position)
    assert net.other.last() == again.position


def test_an_answer_that_comes_when_it_was_asked_for_again(net: Net) -> None:
    """The engine is slow: its answers come, and too late."""
    net.proxy.down.hold()
    waiting = in_thread(lambda: commit(net.log, net.lead.position, PAYLOAD))
    position = landed(net)
    passed, deadline = net.proxy.up.passed, monotonic() + DEADLINE
    while net.proxy.up.passed == passed:  # the node asks again
        assert monotonic() < deadline
    net.proxy.restore()
    assert waiting.result(DEADLINE) == position
    assert [record.payload for record in net.other.read(net.lead.position, 1 << 20, 0)] == [PAYLOAD]


def test_it_never_got_there_and_does_now(net: Net) -> None:
    net.proxy.up.hold(len(PAYLOAD))
    waiting = in_thread(lambda: commit(net.log, net.lead.position, PAYLOAD))
    net.proxy.wait_held(net.proxy.up)
    assert net.other.last() == net.lead.position
    net.proxy.cut()
    net.proxy.restore()
    assert waiting.result(DEADLINE) == net.other.last()
    assert [record.payload for record in net.other.read(net.lead.position, 1 << 20, 0)] == [PAYLOAD]


@pytest.mark.parametrize("is_cut", [True, False])
def test_it_never_got_there_and_another_one_leads(net: Net, is_cut: bool) -> None:
    net.proxy.up.hold(len(PAYLOAD))
    waiting = in_thread(lambda: commit(net.log, net.lead.position, PAYLOAD))
    net.proxy.wait_held(net.proxy.up)
    again = net.other.lead(net.lead.position, b"b")
    if is_cut:
        net.proxy.cut()
    net.proxy.restore()  # without a cut it arrives now, and late
    assert isinstance(waiting.exception(DEADLINE), Fenced)
    assert net.other.last() == again.position
    assert [record.payload for record in read_to(net.other, 0, again.position)] == [b"a", b"b"]


def test_an_append_waits_for_as_long_as_nobody_answers(net: Net) -> None:
    net.proxy.refuse()
    waiting = in_thread(lambda: commit(net.log, net.lead.position, PAYLOAD))
    calls: tuple[Callable[[], object], ...] = (
        lambda: net.log.beat(1),
        lambda: net.log.read(net.lead.position, 100, 0),
        net.log.last,
    )
    for call in calls:
        with pytest.raises(LogError) as error:
            call()
        assert error.value.code == "log-unavailable"
    assert not waiting.done()
    net.proxy.restore()
    assert waiting.result(DEADLINE) == net.other.last()


def test_close_ends_an_append_that_nobody_answers(net: Net) -> None:
    net.proxy.up.hold()
    waiting = in_thread(lambda: commit(net.log, net.lead.position, PAYLOAD))
    net.proxy.wait_held(net.proxy.up)
    net.log.close()
    assert isinstance(error := waiting.exception(DEADLINE), LogError)
    assert error.code == "log-closed"
    with pytest.raises(LogError):
        net.log.last()


def test_a_reader_misses_nothing_when_its_connection_is_cut(net: Net) -> None:
    after = net.lead.position
    sent = []
    for round in range(3):
        for number in range(20):
            sent.append(b"%d %d" % (round, number))
            after = commit(net.other, after, sent[-1])
        net.proxy.cut()
    found = read_on(net.log, net.lead.position, len(sent))
    assert [record.payload for record in found] == sent


def test_a_reader_is_woken_after_its_connection_was_lost(net: Net) -> None:
    waiting = in_thread(lambda: read_on(net.log, net.lead.position, 1))
    net.proxy.refuse()
    position = commit(net.other, net.lead.position)
    net.proxy.restore()
    assert [record.position for record in waiting.result(DEADLINE)] == [position]


def test_beats_are_heard_again_after_the_connection_was_lost(net: Net) -> None:
    net.proxy.cut()
    heard = net.log.heard()
    deadline = monotonic() + DEADLINE
    while net.log.heard() == heard:
        assert monotonic() < deadline
        net.other.beat(1)


# --- whatever comes ---------------------------------------------------------------------------------------------------------


def upset(proxies: list[Proxy], faults: int, seed: int) -> None:
    """One fault after another, each over when some more has passed the other way, or nothing does."""
    random, way_out = Random(seed), Event()
    for _ in range(faults):
        proxy = random.choice(proxies)
        fault = random.choice(["cut", "up", "down", "refuse"])
        if fault == "cut":
            proxy.cut()
        elif fault == "refuse":
            proxy.refuse()
        else:
            way = proxy.up if fault == "up" else proxy.down
            way.hold(random.choice([1, len(PAYLOAD)]))
            way.held.wait(1)
            if random.random() < 0.5:
                proxy.cut()
        passed, until = sum(one.up.passed for one in proxies), monotonic() + random.random()
        while monotonic() < until and sum(one.up.passed for one in proxies) < passed + 50 * len(PAYLOAD):
            way_out.wait(0.005)
        proxy.restore()


@engines
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("seed", range(20 if os.environ.get("SOAK") else 1))
def test_whatever_comes_a_node_is_told_what_is_so(
    engine: str, seed: int, request: pytest.FixtureRequest
) -> None:
    """Two nodes fight for the lead over a network that fails: what was said to have landed is there once, what was fenced is not."""
    url, port = urls(engine, request)
    cluster, is_over = fresh_name(), Event()
    proxies = [Proxy(port), Proxy(port)]
    nodes = [
        Candidate(name, open_log(url.format(proxy.port), cluster))
        for name, proxy in zip("ab", proxies, strict=True)
    ]
    running = [in_thread(partial(node.run, is_over)) for node in nodes]
    upset(proxies, 10, seed)
    is_over.set()
    for proxy in proxies:
        proxy.restore()
    for one in running:
        one.result(DEADLINE)
    with closing(open_log(url.format(port), cluster)) as log:
        found = read_on_to(log, log.last())
    for node in nodes:
        node.log.close()
    for proxy in proxies:
        proxy.close()
    gc.collect()
    check(nodes, found)
    assert sum(len(node.landed) for node in nodes) > 100
