"""What a leader knows of the others: who is behind, whose configuration differs, how far the log may be trimmed."""

from __future__ import annotations

import pytest
from msgspec.json import decode

from stompbox.config import load
from stompbox.errors import Refused
from stompbox.server.cluster.members import (
    NEVER,
    Member,
    Members,
    Table,
    hash_of,
    member_of,
    packed,
    status_in,
    status_of,
    table_of,
    told_in,
    told_of,
)

LEADER = Member("a", "leader", position=100, durable=90, configuration="x")


def known(*members: Member) -> Members:
    found = Members()
    for member in members:
        found.tell(member, LEADER)
    return found


def test_a_follower_is_so_far_behind() -> None:
    members = known(Member("b", position=60, configuration="x"), Member("c", position=100, configuration="y"))
    assert (members.get("b").lag, members.get("b").is_other) == (40, False)
    assert (members.get("c").lag, members.get("c").is_other) == (0, True)


@pytest.mark.parametrize(("copies", "trimmed"), [(1, 30), (2, 30), (3, 30), (4, 0)])
def test_the_log_is_kept_for_copies_and_for_who_is_connected(copies: int, trimmed: int) -> None:
    members = known(Member("b", durable=30), Member("c", durable=70))
    assert members.trimmed_to(90, copies) == trimmed


def test_who_is_gone_holds_up_nothing_but_copies() -> None:
    members = known(Member("b", durable=30), Member("c", durable=70))
    members.lost("b")
    assert members.trimmed_to(90, 2) == 70
    assert members.trimmed_to(90, 3) == 30
    members.remove("b")
    assert members.trimmed_to(90, 3) == 0


def test_who_is_there_is_not_forgotten() -> None:
    members = known(Member("b"))
    with pytest.raises(Refused) as caught:
        members.remove("b")
    assert caught.value.code == "node-in-use"
    with pytest.raises(Refused) as caught:
        members.get("d")
    assert caught.value.code == "no-such-node"


def test_what_may_differ_is_not_in_the_hash() -> None:
    plain = load(None, {}, {})
    own = {"data": "other", "log-level": "DEBUG", "listen": ["tcp://127.0.0.1:0"], "admin.listen": "off"}
    assert hash_of(load(None, {}, own)) == hash_of(plain)
    assert hash_of(load(None, {}, {"max-commit-delay": 7})) != hash_of(plain)


def test_what_nodes_tell_each_other_comes_through() -> None:
    table = Table("orders", "log", "a", 3, 100, (LEADER,))
    told = told_in(packed(told_of(table, 7.5, asks=True)))
    assert (table_of(told), told.sent, told.asks) == (table, 7.5, True)
    status = status_in(packed(status_of(LEADER, 0.5, 7.5)))
    assert (member_of(status), status.quiet, status.answers) == (LEADER, 0.5, 7.5)


def test_nodes_of_an_earlier_version_are_understood() -> None:
    table = Table("orders", "log", "a", 3, 100, (LEADER,))
    assert status_in(packed(LEADER)) == status_of(LEADER, 0.0, NEVER)
    assert not told_in(packed(table)).asks and table_of(told_in(packed(table))) == table
    assert decode(packed(told_of(table, 7.5, asks=True)), type=Table) == table


def test_who_was_told_of_and_has_not_come_is_not_connected() -> None:
    members = Members([Member("b", durable=30, is_drained=True)])
    assert not members.get("b").is_connected and members.get("b").is_drained
