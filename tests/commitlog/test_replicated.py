"""The rules of a store that several nodes have: the log first, then the store; fenced is fenced; a lost tail is read again."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from stompbox.commitlog import replicated
from stompbox.commitlog.base import Fenced, Kind, LogError
from stompbox.commitlog.memory import Loss, MemoryLog, SharedLog
from stompbox.commitlog.records import Lead
from stompbox.commitlog.replicated import FEW, GATHER, Applier, Local, Position, ReplicatedStore
from stompbox.errors import StoreError
from stompbox.store.base import Commit
from stompbox.store.folderstore import FolderStore
from stompbox.store.memory import MemoryStore
from tests.commitlog.nodes import FragileStore, content
from tests.store.runs import told
from tests.store.test_staged import parts, published, read, staged_run

CLUSTER = "orders/1"
LEAD = Lead("a")


def said(number: int) -> Commit:
    return Commit(entries={("said", str(number)): b"x" * (number % 7 * 40), ("said", "last"): b"%d" % number})


def led(store: MemoryStore, log: MemoryLog) -> ReplicatedStore:
    return Applier(Local(store, CLUSTER), log).lead(LEAD)


def test_a_commit_is_in_the_log_before_it_is_in_the_store() -> None:
    shared, store = SharedLog(), FragileStore()
    leader = led(store, shared.open("a"))
    leader.apply(said(1))
    assert [record.kind for record in shared.records] == [Kind.LEAD, Kind.COMMIT]
    assert store.commits[-1].is_loose
    follower = FragileStore()
    applier = Applier(Local(follower, CLUSTER), shared.open("b"))
    while applier.step():
        pass
    assert content(follower) == content(store)
    assert applier.local.position == shared.last and applier.local.epoch == 1


def test_what_a_sink_has_staged_is_told_as_messages() -> None:
    """A node that follows may be of a version that knows no chunk but those of messages."""
    shared, store = SharedLog(), FragileStore()
    leader = led(store, shared.open("a"))
    leader.apply(Commit(logs={1: "kept"}, parts=parts()))
    leader.apply(Commit(runs={1: [staged_run(0)]}, holds={7: False}))
    follower = FragileStore()
    applier = Applier(Local(follower, CLUSTER), shared.open("b"))
    while applier.step():
        pass
    for one in (store, follower):
        assert told(read(one)) == told(published(0))
        with pytest.raises(StoreError, match="not there"):
            one.read_part(7, 1)
        assert not any(
            run.is_staged for commit in one.commits for runs in commit.runs.values() for run in runs
        )


def test_who_was_fenced_applies_nothing_and_stays_fenced() -> None:
    shared, store = SharedLog(), FragileStore()
    old = led(store, shared.open("a"))
    new = led(FragileStore(), shared.open("b"))
    before = content(store)
    for _ in range(2):
        with pytest.raises(Fenced):
            old.apply(said(1))
    assert content(store) == before
    new.apply(said(2))


def test_what_a_full_log_refuses_may_be_tried_again() -> None:
    shared, store = SharedLog(capacity=1), FragileStore()
    leader = led(store, shared.open("a"))
    with pytest.raises(LogError, match="room"):
        leader.apply(said(1))
    shared.capacity = None
    leader.apply(said(1))
    assert ("said", "1") in content(store)["entries"]


def test_a_store_that_lacks_what_is_in_the_log_leads_no_more() -> None:
    class Full(FragileStore):
        is_full = False

        def apply(self, commit: Commit) -> None:
            if self.is_full:
                raise StoreError("disk-full", "no room")
            super().apply(commit)

    shared, store = SharedLog(), Full()
    leader = led(store, shared.open("a"))
    store.is_full = True
    for _ in range(2):
        with pytest.raises(StoreError) as raised:
            leader.apply(said(1))
        assert raised.value.code == "store-behind"
    store.is_full = False
    applier = Applier(leader.local, shared.open("a"))
    while applier.step():
        pass
    assert ("said", "1") in content(store)["entries"]


def test_pieces_whose_last_one_never_came_are_void() -> None:
    shared, store = SharedLog(capacity=3), FragileStore()
    leader = led(store, shared.open("a", largest=60))
    with pytest.raises(LogError, match="room"):
        leader.apply(said(6))
    shared.capacity = None
    new = led(FragileStore(), shared.open("b"))
    new.apply(said(2))
    assert list(content(new.local.store)["entries"]) == [("said", "2"), ("said", "last")]


@pytest.mark.parametrize(
    ("before", "problem"),
    [
        (Commit(entries={("broker", "epoch"): b"\1"}), "in no cluster"),
        (None, "belongs to 'others/2', not to 'orders/1'"),
    ],
)
def test_a_store_of_another_cluster_is_refused(before: Commit | None, problem: str) -> None:
    store = MemoryStore()
    if before is None:
        Local(store, "others/2")
    else:
        store.apply(before)
    with pytest.raises(StoreError, match=problem) as raised:
        Local(store, CLUSTER)
    assert raised.value.code == "data-of-another-cluster"


def test_the_position_is_durable_now_and_then() -> None:
    shared, store, now = SharedLog(), FragileStore(), [0.0]
    local = Local(store, CLUSTER, lambda: now[0])
    leader = Applier(local, shared.open("a")).lead(LEAD)
    leader.apply(said(1))
    assert local.durable < local.position
    now[0] = 3.0
    leader.apply(said(2))
    assert local.durable == local.position == shared.last
    leader.apply(said(3))
    assert leader.maintain() and local.is_settled
    assert not leader.maintain()


def test_a_folder_keeps_its_position(tmp_path: Path) -> None:
    shared = SharedLog()
    leader = led(FolderStore(tmp_path), shared.open("a"))  # type: ignore[arg-type]
    for number in range(300):
        leader.apply(said(number))
    leader.close()
    again = Local(FolderStore(tmp_path), CLUSTER)
    assert again.position == shared.last
    again.close()


def test_the_thread_follows_and_says_what_ended_it() -> None:
    shared = SharedLog()
    leader = led(FragileStore(), shared.open("a"))
    heard: list[str] = []
    log = shared.open("b")
    applier = Applier(Local(FragileStore(), CLUSTER), log, lambda record, lead: heard.append(lead.node))
    applier.start()
    leader.apply(said(1))
    until(lambda: applier.local.position == shared.last)
    assert heard == ["a"]
    log.is_away = True
    until(lambda: applier.trouble is not None)
    leader.apply(said(2))
    log.is_away = False
    until(lambda: applier.local.position == shared.last)
    applier.stop()
    late = Applier(Local(FragileStore(), CLUSTER), shared.open("c"))
    shared.open("d").trim(shared.last)
    late.start()
    until(lambda: late.fault is not None)
    assert late.fault is not None and late.fault.code == "log-trimmed"


@pytest.mark.parametrize(
    ("others", "problem"),
    [(0, "is not there any more: the last one is 2"), (1, "is another one now"), (2, "is another one now")],
)
def test_a_log_that_was_put_back_is_told_and_nothing_diverges(others: int, problem: str) -> None:
    """By a backup, or by a server that took over without the tail; `others`: commits of whoever led then."""
    shared = SharedLog()
    leader = led(FragileStore(), shared.open("a"))
    leader.apply(said(1))
    follower = Applier(Local(FragileStore(), CLUSTER), shared.open("b"))
    follower.catch_up()
    leader.apply(said(2))
    leader.apply(said(3))
    before = content(leader.local.store)
    del shared.records[2:]
    for log in (leader.log, shared.open("c")):
        with pytest.raises(
            LogError, match="record 4, which this node has applied, is not there any more: the last one is 2"
        ):
            Applier(leader.local, log).catch_up()
    new = follower.lead(Lead("b")) if others else None
    for number in range(others):
        assert new is not None
        new.apply(said(7 + number))
    thread = Applier(leader.local, leader.log)
    thread.start()
    until(lambda: thread.fault is not None)
    thread.stop()
    assert thread.fault is not None
    assert (thread.fault.code, problem in thread.fault.message) == ("log-went-back", True), thread.fault
    assert content(leader.local.store) == before


def test_a_log_that_was_put_back_while_it_was_away_is_found_out_when_it_answers() -> None:
    shared = SharedLog()
    leader = led(FragileStore(), shared.open("a"))
    log = shared.open("b")
    applier = Applier(Local(FragileStore(), CLUSTER), log)
    leader.apply(said(1))
    while applier.step():
        pass
    log.is_away = True
    with pytest.raises(LogError):
        applier.step()
    del shared.records[1:]
    log.is_away = False
    with pytest.raises(LogError, match="record 2, which this node has applied") as error:
        applier.step()
    assert error.value.code == "log-went-back"


def test_a_position_without_a_mark_is_taken_as_it_is() -> None:
    """As a version that noted none has left it."""
    shared, store = SharedLog(), FragileStore()
    leader = led(FragileStore(), shared.open("a"))
    leader.apply(said(1))
    local = Local(store, CLUSTER)
    local.apply(said(1), Position(2, 1))
    Applier(Local(store, CLUSTER), shared.open("b")).catch_up()
    leader.apply(said(2))
    Applier(Local(store, CLUSTER), shared.open("b")).catch_up()
    assert Local(store, CLUSTER).position == 3


@pytest.mark.parametrize(("count", "pauses"), [(0, []), (1, [GATHER]), (FEW - 1, [GATHER]), (FEW, [])])
def test_few_records_are_waited_for_until_more_can_be_read_at_once(
    count: int, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = SharedLog()
    leader = led(FragileStore(), shared.open("a"))
    applier = Applier(Local(FragileStore(), CLUSTER), shared.open("b"))
    applier.catch_up()
    for number in range(count):
        leader.apply(said(number))
    waited: list[float] = []
    monkeypatch.setattr(applier._stopped, "wait", waited.append)
    monkeypatch.setattr(replicated, "WAIT", 0.0)
    applier._go_on()
    assert waited == pauses
    assert applier.local.position == shared.last


def until(holds: object) -> None:
    deadline = time.monotonic() + 10
    while not holds():  # type: ignore[operator]
        assert time.monotonic() < deadline


# The protocol, in virtual time


class Killed(Exception):
    """The process of a node ends where it stands."""


class Node:
    """One node: follows, leads, is killed, comes back."""

    def __init__(self, machine: Protocol, name: str) -> None:
        self.machine = machine
        self.name = name
        self.store = FragileStore()
        self.begin()

    def begin(self) -> None:
        self.log = self.machine.shared.open(self.name, largest=100)
        self.log.blocked = lambda: self.machine.blocked(self)
        self.applier = Applier(Local(self.store, CLUSTER), self.log)
        self.leader: ReplicatedStore | None = None

    def step_down(self) -> None:
        self.leader = None
        self.applier = Applier(Local(self.store, CLUSTER), self.log)

    def kill(self, keeps: int) -> None:
        self.log.close()
        self.store = self.store.crashed(keeps)
        self.begin()


class Protocol(RuleBasedStateMachine):
    """Three nodes and a log, one step at a time. What is confirmed is never lost, and stores are equal."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = SharedLog(clock=lambda: 0.0)
        self.nodes = [Node(self, name) for name in "abc"]
        self.confirmed: list[int] = []
        self.number = 0
        self.meanwhile: list[tuple[int, bool]] = []

    @rule(which=st.integers(0, 2))
    def follow(self, which: int) -> None:
        node = self.nodes[which]
        if node.leader is None:
            while node.applier.step():
                pass

    @rule(which=st.integers(0, 2))
    def take_over(self, which: int) -> None:
        node = self.nodes[which]
        if node.leader is not None:
            return
        try:
            node.leader = node.applier.lead(Lead(node.name))
        except Fenced:
            pass
        except Killed:
            node.kill(0)

    @rule(which=st.integers(0, 2), large=st.booleans())
    def send(self, which: int, large: bool) -> None:
        node = self.nodes[which]
        if node.leader is None:
            return
        self.number = number = self.number + 1
        value = b"%d " % number * (60 if large else 1)
        try:
            node.leader.apply(Commit(entries={("said", str(number)): value, ("said", "last"): value}))
        except Fenced:
            node.step_down()
        except Killed:
            node.kill(0)
        else:
            self.confirmed.append(number)

    @rule(which=st.integers(0, 2), loss=st.sampled_from(Loss), other=st.integers(0, 2), dies=st.booleans())
    def lose_an_answer(self, which: int, loss: Loss, other: int, dies: bool) -> None:
        self.nodes[which].log.loses = loss
        self.meanwhile = [(other, dies)]

    def blocked(self, node: Node) -> None:
        """The log is away for this node. Meanwhile somebody else leads, perhaps; then it is back, or the node is killed."""
        which, dies = self.meanwhile.pop() if self.meanwhile else (0, False)
        other = self.nodes[which]
        if other is not node and not other.log.is_away:
            self.take_over(which)
            self.send(which, large=True)
        if dies:
            raise Killed
        node.log.is_away = False

    @rule(which=st.integers(0, 2), keeps=st.integers(0, 3))
    def kill(self, which: int, keeps: int) -> None:
        self.nodes[which].kill(keeps)

    @precondition(lambda self: self.nodes)
    @invariant()
    def one_writer_for_each_epoch(self) -> None:
        epochs = [record.epoch for record in self.shared.records]
        assert epochs == sorted(epochs)
        leads = [record.epoch for record in self.shared.records if record.kind is Kind.LEAD]
        assert leads == list(range(1, len(leads) + 1))
        for node in self.nodes:
            assert node.applier.local.position <= self.shared.last

    def teardown(self) -> None:
        for node in self.nodes:
            node.log.is_away, node.log.loses = False, None
            node.step_down()
            while node.applier.step():
                pass
        first, *others = [content(node.store) for node in self.nodes]
        assert all(other == first for other in others)
        lost = [number for number in self.confirmed if ("said", str(number)) not in first["entries"]]
        assert not lost
        assert self.confirmed == sorted(self.confirmed) or not lost


def test_the_protocol_loses_nothing_and_stores_stay_equal() -> None:
    run_state_machine_as_test(
        Protocol,
        settings=settings(
            max_examples=200, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
