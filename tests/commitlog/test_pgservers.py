"""Several servers of PostgreSQL, of which one is promoted: where a log goes on, what an old primary is told, and a tail that is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import NamedTuple, TypeVar

import psycopg
import pytest

from stompbox.commitlog.base import CommitLog, Fenced, Kind, LogError
from stompbox.commitlog.opening import open_log
from stompbox.commitlog.pgservers import Servers
from stompbox.commitlog.records import Lead
from stompbox.commitlog.replicated import Applier, Local, ReplicatedStore
from stompbox.errors import ConfigError
from stompbox.store.base import Commit
from stompbox.store.memory import MemoryStore
from tests.commitlog.logs import DEADLINE, commit, fresh_name, in_thread, read_on
from tests.commitlog.pgserver import PgServer, following, running

T = TypeVar("T")
SYNCHRONOUS = "synchronous_standby_names = 'ANY 1 (standby)'"
ALONE = "synchronous_standby_names="  # as one that comes back and waits for nobody


class Pair(NamedTuple):
    """A primary, its standby, and a URL that names both."""

    primary: PgServer
    standby: PgServer

    @property
    def url(self) -> str:
        return f"postgresql://tests@127.0.0.1:{self.primary.port},127.0.0.1:{self.standby.port}/postgres"


@pytest.fixture
def name() -> str:
    return fresh_name()


def pair(settings: str) -> Iterator[Pair]:
    with ExitStack() as stack:
        primary = stack.enter_context(running(settings))
        yield Pair(primary, stack.enter_context(following(primary)))


@pytest.fixture
def synchronous() -> Iterator[Pair]:
    yield from pair(SYNCHRONOUS)


@pytest.fixture
def asynchronous() -> Iterator[Pair]:
    yield from pair("")


def last_on(server: PgServer, name: str) -> int:
    return int(server.execute(f'SELECT max(position) FROM "stompbox_{name}"')[0][0])


def disconnect_all(server: PgServer) -> None:
    server.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'stompbox%'"
    )


def test_a_log_goes_on_where_its_standby_was_promoted(synchronous: Pair, name: str) -> None:
    with closing(open_log(synchronous.url, name)) as log, closing(open_log(synchronous.url, name)) as other:
        lead = log.lead(0, b"a")
        assert commit(log, lead.position, b"before") == 2
        synchronous.primary.end()
        waiting = in_thread(lambda: commit(log, 2, b"meanwhile"))
        synchronous.standby.promote()
        assert waiting.result(DEADLINE) == 3
        assert [record.payload for record in read_on(other, 0, 3)] == [b"a", b"before", b"meanwhile"]


def test_nobody_writes_to_an_old_primary_that_comes_back(synchronous: Pair, name: str) -> None:
    old, new = synchronous
    with closing(open_log(synchronous.url, name)) as log:
        lead = log.lead(0, b"a")
        old.end()
        waiting = in_thread(lambda: commit(log, lead.position))
        new.promote()
        assert waiting.result(DEADLINE) == 2
        old.start(ALONE)
        disconnect_all(new)  # the next connection could be to either
        assert commit(log, 2) == 3
        with closing(open_log(synchronous.url, name)) as late:  # which has seen nothing of it
            assert late.last() == 3
            assert late.lead(3, b"b").position == 4
        with pytest.raises(Fenced):
            commit(log, 3)
    assert (last_on(old, name), last_on(new, name)) == (1, 4)


def test_an_old_primary_alone_is_told_by_name(synchronous: Pair, name: str) -> None:
    old, new = synchronous
    with closing(open_log(synchronous.url, name)) as log:
        new.promote()
        disconnect_all(old)
        assert asked_again(log.last) == 0
        new.end()
        problem = ""
        while "is an old primary" not in problem:
            with pytest.raises(LogError) as error:
                log.last()
            assert error.value.code == "log-unavailable"
            problem = error.value.message
        assert "its timeline is 1, and 2 was seen" in problem


def asked_again(question: Callable[[], T]) -> T:
    """As a node does: where a connection ends with its server, which the first question finds out."""
    while True:
        try:
            return question()
        except LogError as error:
            if error.code != "log-unavailable":
                raise


class Node:
    """A store on a log, which leads or follows."""

    def __init__(self, log: CommitLog) -> None:
        self.log = log
        self.local = Local(MemoryStore(), f"drill/{log.identity}")

    def lead(self, node: str) -> ReplicatedStore:
        return Applier(self.local, self.log).lead(Lead(node))

    def follow(self) -> None:
        asked_again(Applier(self.local, self.log).catch_up)


def said(number: int) -> Commit:
    return Commit(entries={("said", "last"): b"%d" % number})


def without_tail(servers: Pair, leader: ReplicatedStore, name: str) -> None:
    """The standby lacks what was confirmed last, and takes over."""
    servers.standby.end()
    for number in (2, 3):
        leader.apply(said(number))
    assert last_on(servers.primary, name) == 4
    servers.primary.end()
    servers.standby.start()
    servers.standby.promote()


def test_a_tail_that_is_lost_is_told_and_nothing_diverges(asynchronous: Pair, name: str) -> None:
    with ExitStack() as stack:
        first, second = (stack.enter_context(closing(open_log(asynchronous.url, name))) for _ in "ab")
        a, b = Node(first), Node(second)
        old = a.lead("a")
        old.apply(said(1))
        b.follow()
        settled(asynchronous, name, 2)
        without_tail(asynchronous, old, name)
        with pytest.raises(Fenced):
            old.apply(said(4))
        with pytest.raises(
            LogError, match="record 4, which this node has applied, is not there any more: the last one is 2"
        ):
            a.follow()
        b.follow()
        new = b.lead("b")
        new.apply(said(5))
        assert second.last() == 4  # as many as there were
        with pytest.raises(Fenced):
            first.append(4, 1, Kind.COMMIT, b"x")
        with pytest.raises(
            LogError, match="record 4, which this node has applied, is another one now"
        ) as error:
            a.follow()
        assert error.value.code == "log-went-back"
        b.follow()


def settled(servers: Pair, name: str, position: int) -> None:
    """The standby has that record, too."""
    while last_on(servers.standby, name) < position:
        pass


@pytest.mark.parametrize(
    ("parameters", "shown"),
    [
        ({}, "localhost:5432"),
        ({"host": "a,b", "port": "1,2"}, "a:1, b:2"),
        ({"host": "a,b", "port": "7"}, "a:7, b:7"),
        ({"hostaddr": "10.0.0.1,10.0.0.2", "dbname": "x"}, "10.0.0.1:5432, 10.0.0.2:5432"),
    ],
)
def test_which_servers_a_url_names(parameters: dict[str, str], shown: str) -> None:
    assert repr(Servers(parameters)) == f"<Servers {shown} timeline=0>"


def test_ports_that_do_not_go_with_the_servers(name: str) -> None:
    with pytest.raises(ConfigError, match="2 values of port for 3 servers"):
        open_log("postgresql://u@a,b,c/x?port=1,2", name)


def test_all_that_cannot_be_reached_are_named() -> None:
    servers = Servers({"host": "127.0.0.1", "port": "1,2"})
    with pytest.raises(psycopg.OperationalError, match=r"port 1 .*; .*port 2 "):
        servers.connect({}, lambda connection: None)
