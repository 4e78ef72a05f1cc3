"""What other nodes say of the log, and that by it no two nodes ever lead at a time: by the clocks of a model, with a log, links and nodes
that come, go and stand still.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from stompbox.commitlog.hearing import Hearing
from stompbox.server.cluster.members import Member
from stompbox.server.cluster.witnesses import Witnesses, Word

LIMIT = 2.0


@pytest.mark.parametrize(
    ("members", "words", "doubt"),
    [
        ([], {}, "no other node can be asked"),
        ([Member("b", is_drained=True)], {}, "no other node can be asked"),
        ([Member("b")], {}, "node b does not answer"),
        ([Member("b")], {"b": Word(-1.0, 0.0)}, "node b does not answer"),
        ([Member("b")], {"b": Word(98.0, 0.0)}, "node b does not answer"),
        ([Member("b")], {"b": Word(98.5, 0.4)}, ""),
        ([Member("b")], {"b": Word(98.5, 0.5)}, "node b hears it"),
        ([Member("b", is_connected=False)], {"b": Word(100.0, 0.0)}, "node b cannot be asked"),
        ([Member("b"), Member("c")], {"b": Word(99.9, 0.0)}, "node c does not answer"),
        ([Member("b"), Member("c", is_drained=True, is_connected=False)], {"b": Word(99.9, 0.0)}, ""),
    ],
)
def test_a_leader_knows_whether_another_node_may_lead(
    members: list[Member], words: dict[str, Word], doubt: str
) -> None:
    witnesses = Witnesses()
    for node, word in words.items():
        witnesses.tell(node, word)
    assert witnesses.doubt(members, 100.0, LIMIT) == doubt


# The clocks of a cluster, in steps of a tenth of a second

TICK = 0.1
TAKEOVER = 3.0
WAIT = 0.25


class Node:
    """A node with its clocks: it hears the log, or does not; it leads, follows, or stands still."""

    def __init__(self, model: Clocks, name: str) -> None:
        self.name = name
        self.reaches_log = True
        self.is_linked = True
        self.is_still = False
        self.leads = self.is_suspended = False
        self.epoch = 0
        self.looked = 0.0
        self.heard = 0.0
        self.answered = 0.0
        self.asked: float | None = None  # since when a read waits
        self.model = model
        self.listen()

    def listen(self) -> None:
        self.hearing = Hearing(lambda: self.heard, lambda: self.model.now)
        self.asked = None

    def read(self) -> None:
        """As an Applier does: the log answers when it has waited, or not before it is there again, or says that it is away."""
        if self.asked is not None:
            waited = self.model.now - self.asked
            if self.reaches_log and self.model.is_log_there:
                if waited < WAIT:
                    return
                self.hearing.answered()
            elif waited > 2.0:
                self.hearing.refused()
            else:
                return
        self.hearing.asks(WAIT)
        self.asked = self.model.now


class Clocks(RuleBasedStateMachine):
    """Three nodes. A node that leads looks every tick, asks where its log is silent, and ends by what it knows."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.is_log_there = True
        self.nodes = [Node(self, name) for name in "abc"]
        self.witnesses: dict[str, Witnesses] = {}
        self.suspended = 0.0
        self.epoch = 0
        self._lead(self.nodes[0])

    def _lead(self, node: Node) -> None:
        self.epoch += 1
        node.leads, node.is_suspended, node.epoch = True, False, self.epoch
        node.answered = node.looked = self.now
        self.witnesses[node.name] = Witnesses()
        for other in self.nodes:  # the record says so to all that hear the log
            if other is not node and other.reaches_log:
                other.heard = self.now

    @rule(ticks=st.integers(1, 40))
    def time_passes(self, ticks: int) -> None:
        for _ in range(ticks):
            self.now += TICK
            for node in self.nodes:
                if not node.is_still:
                    self._look(node)
            self.at_most_one_leads()

    def _look(self, node: Node) -> None:
        if node.leads:
            self._look_as_leader(node)
            if not node.leads:
                node.listen()
            return
        node.read()
        if node.reaches_log and self.is_log_there and node.hearing.quiet > TAKEOVER:
            self._lead(node)

    def _look_as_leader(self, node: Node) -> None:
        if node.reaches_log and self.is_log_there:
            node.answered = self.now
            for other in self.nodes:
                if other is not node and other.reaches_log:
                    other.heard = self.now
        others = [one for one in self.nodes if one is not node]
        for other in others:
            if node.is_linked and other.is_linked and not other.is_still and not other.leads:
                self.witnesses[node.name].tell(other.name, Word(self.now, other.hearing.quiet))
        stood, node.looked = self.now - node.looked > LIMIT, self.now
        if node.is_suspended or stood:  # it goes on with a commit, which the log takes of one alone
            node.is_suspended = node.answered < self.now
            node.leads = node.is_suspended or node.epoch == self.epoch
        if node.leads and self.now - node.answered > LIMIT:
            members = [Member(one.name, is_connected=one.is_linked and node.is_linked) for one in others]
            if self.witnesses[node.name].doubt(members, self.now, LIMIT):
                node.leads = False
            else:
                node.is_suspended = True
                self.suspended += TICK

    @rule(is_there=st.booleans())
    def the_log_comes_and_goes(self, is_there: bool) -> None:
        self.is_log_there = is_there

    @rule(which=st.integers(0, 2), reaches=st.booleans())
    def a_node_loses_the_log(self, which: int, reaches: bool) -> None:
        self.nodes[which].reaches_log = reaches

    @rule(which=st.integers(0, 2), is_linked=st.booleans())
    def a_node_loses_its_link(self, which: int, is_linked: bool) -> None:
        self.nodes[which].is_linked = is_linked

    @rule(which=st.integers(0, 2), is_still=st.booleans())
    def a_node_stands_still(self, which: int, is_still: bool) -> None:
        node = self.nodes[which]
        if node.is_still and not is_still:
            if not node.leads:
                node.listen()  # it has seen by its clock that it stood still
            node.is_still = False
            self._look(node)
        node.is_still = is_still

    @invariant()
    def at_most_one_leads(self) -> None:
        """A node that stands still delivers nothing, and looks before it does again."""
        leading = [node.name for node in self.nodes if node.leads and not node.is_still]
        assert len(leading) <= 1, leading


def test_no_two_nodes_lead_at_a_time() -> None:
    run_state_machine_as_test(
        Clocks,
        settings=settings(
            max_examples=300, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


def test_while_the_log_is_away_for_all_the_leader_stays() -> None:
    clocks = Clocks()
    clocks.time_passes(10)
    clocks.is_log_there = False
    clocks.time_passes(300)
    assert clocks.nodes[0].leads and clocks.suspended > 20
    clocks.is_log_there = True
    clocks.time_passes(50)
    assert [node.leads for node in clocks.nodes] == [True, False, False]


def test_a_leader_that_alone_has_lost_the_log_ends_before_another_one_leads() -> None:
    clocks = Clocks()
    clocks.nodes[0].reaches_log = False
    clocks.time_passes(29)
    assert [node.leads for node in clocks.nodes] == [False, False, False]
    clocks.time_passes(10)
    assert sum(node.leads for node in clocks.nodes) == 1 and not clocks.nodes[0].leads
