"""PostgreSQL: a server that is killed, or stands still, settings and tables that are not safe, users, a full disk."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from time import monotonic
from typing import Any

import psycopg
import pytest

from stompbox.commitlog import pgconnection, postgres
from stompbox.commitlog.base import CommitLog, Fenced, LogError
from stompbox.commitlog.opening import open_log, parse
from stompbox.commitlog.postgres import PostgresLog
from stompbox.errors import ConfigError
from tests.commitlog.logs import DEADLINE, commit, fresh_name, in_thread, read_to
from tests.commitlog.pgserver import PgServer


@pytest.fixture
def name() -> str:
    return fresh_name()


@pytest.fixture
def server(request: pytest.FixtureRequest) -> PgServer:
    found: PgServer = request.getfixturevalue("postgres")
    return found


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer counts as lost sooner."""
    monkeypatch.setattr(postgres, "ANSWER", 0.5)
    monkeypatch.setattr(postgres, "APPENDING", 0.5)


def refusal(url: str, name: str) -> LogError:
    with pytest.raises(LogError) as error:
        open_log(url, name)
    return error.value


def test_the_server_is_killed_and_comes_back(server: PgServer, name: str) -> None:
    with closing(open_log(server.url, name)) as log, closing(open_log(server.url, name)) as other:
        lead = log.lead(0, b"a")
        server.end()
        waiting = in_thread(lambda: commit(log, lead.position, b"while it was away"))
        with pytest.raises(LogError) as error:
            other.last()
        assert error.value.code == "log-unavailable"
        server.start()
        assert waiting.result(DEADLINE) == 2
        assert [record.payload for record in read_to(other, 0, 2)] == [b"a", b"while it was away"]


@pytest.mark.usefixtures("quick")
def test_its_process_stands_still_in_the_middle(server: PgServer, name: str) -> None:
    """The process that has the INSERT is stopped: it is ended, and the record inserted again, once."""
    with closing(open_log(server.url, name)) as log, closing(open_log(server.url, name)) as other:
        lead = log.lead(0, b"a")
        with locked(server, name):
            waiting = in_thread(lambda: commit(log, lead.position, b"x"))
            wait_for(
                server,
                f"SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = '\"stompbox_{name}\"'::regclass",
            )
            heard, deadline = other.heard(), monotonic() + DEADLINE
            while other.heard() == heard:  # beats pass it
                assert monotonic() < deadline
                log.beat(lead.epoch)
        assert waiting.result(DEADLINE) == 2
        assert [record.payload for record in read_to(other, 0, 2)] == [b"a", b"x"]


@contextmanager
def locked(server: PgServer, name: str) -> Iterator[None]:
    """Nobody can append."""
    with psycopg.connect(server.url) as connection:
        connection.execute(f'LOCK TABLE "stompbox_{name}" IN SHARE MODE')
        yield
        connection.rollback()


def wait_for(server: PgServer, query: str) -> None:
    deadline = monotonic() + DEADLINE
    while not server.execute(query)[0][0]:
        assert monotonic() < deadline


def test_another_one_leads_while_an_append_waits(server: PgServer, name: str) -> None:
    with closing(open_log(server.url, name)) as log, closing(open_log(server.url, name)) as other:
        lead = log.lead(0, b"a")
        with locked(server, name):
            attempts = [in_thread(partial(node.lead, lead.position, b"b")) for node in (log, other)]
        errors = [attempt.exception(DEADLINE) for attempt in attempts]
        assert [type(error) for error in errors if error] == [Fenced]
        assert log.last() == 2


def test_a_record_that_lands_while_it_is_looked_for_is_not_fenced(
    server: PgServer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer is lost, and its commit is seen right after the first look at its position."""
    late: list[tuple[object, ...]] = []
    execute = psycopg.Connection.execute

    def lost(connection: object, values: tuple[object, ...]) -> int:
        late.append(values)
        monkeypatch.delattr(log, "_insert")
        raise psycopg.OperationalError("the connection is lost")

    def looked(self: psycopg.Connection[Any], query: Any, *more: Any, **options: Any) -> Any:
        found = execute(self, query, *more, **options)
        if late and b"writer, number" in (query if isinstance(query, bytes) else b""):
            values = late.pop()
            with psycopg.connect(server.url, autocommit=True) as other:
                other.execute(log._sql(postgres._APPEND), values)
        return found

    with closing(PostgresLog(parse(server.url), name, "")) as log:
        lead = log.lead(0, b"a")
        monkeypatch.setattr(log, "_insert", lost, raising=False)
        monkeypatch.setattr(psycopg.Connection, "execute", looked)
        assert commit(log, lead.position, b"late") == 2
        assert not late
        assert [record.payload for record in read_to(log, 0, 2)] == [b"a", b"late"]


@pytest.mark.parametrize(
    ("setting", "value", "default"),
    [("fsync", "off", "on"), ("full_page_writes", "off", "on"), ("synchronous_commit", "off", "on"),
     ("synchronous_commit", "local", "on"), ("synchronous_commit", "remote_write", "on")],
)  # fmt: skip
def test_a_server_that_may_lose_what_it_confirms_is_refused(
    server: PgServer, name: str, setting: str, value: str, default: str
) -> None:
    try:
        set_to(server, setting, value)
        error = refusal(server.url, name)
        assert (error.code, f"{setting} is {value}" in error.message) == ("log-not-safe", True)
        assert server.execute(f"SELECT to_regclass('stompbox_{name}')") == [(None,)]
        open_log(f"{server.url}?insecure=true", name).close()
    finally:
        set_to(server, setting, default)
    open_log(server.url, name).close()


def set_to(server: PgServer, setting: str, value: str) -> None:
    server.execute(f"ALTER SYSTEM SET {setting} = {value}")
    server.reload()
    wait_for(server, f"SELECT current_setting('{setting}') = '{value}'")


def test_an_older_server_is_refused(server: PgServer, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "OLDEST", 990000)
    error = refusal(server.url, name)
    assert (error.code, "is older than 99" in error.message) == ("log-not-safe", True)


@pytest.mark.parametrize(
    "table",
    [
        'CREATE TABLE "stompbox_{}" (position bigint)',
        'CREATE TABLE "stompbox_{0}" (position bigint); CREATE TABLE "stompbox_{0}_about" (x text)',
        'CREATE TABLE "stompbox_{0}" (position bigint); CREATE TABLE "stompbox_{0}_about" AS '
        "SELECT 'flights' AS cluster, 'a' AS identity, 1 AS format",
    ],
)
def test_tables_that_are_not_ours_are_refused(server: PgServer, name: str, table: str) -> None:
    server.execute(table.format(name))
    assert refusal(server.url, name).code == "log-of-another"


def test_a_newer_format_is_refused(server: PgServer, name: str) -> None:
    open_log(server.url, name).close()
    server.execute(f'UPDATE "stompbox_{name}_about" SET format = 2')
    assert refusal(server.url, name).code == "log-too-new"


def test_tables_that_were_made_anew_are_another_log(server: PgServer, name: str) -> None:
    with closing(open_log(server.url, name)) as log:
        first = log.identity
    server.execute(f'DROP TABLE "stompbox_{name}"; DROP TABLE "stompbox_{name}_about"')
    with closing(open_log(server.url, name)) as log:
        assert log.identity != first


def test_nodes_that_start_at_once_make_one_log(server: PgServer, name: str) -> None:
    opening = [in_thread(lambda: open_log(server.url, name)) for _ in range(4)]
    logs = [one.result(DEADLINE) for one in opening]
    assert len({log.identity for log in logs}) == 1
    for log in logs:
        log.close()


@pytest.mark.parametrize("state", ["53100", "53000", "54000"])
def test_a_full_disk_refuses_and_keeps_nothing(server: PgServer, name: str, state: str) -> None:
    with closing(open_log(server.url, name)) as log:
        lead = log.lead(0, b"a")
        server.execute(
            f'CREATE FUNCTION "full_{name}"() RETURNS trigger LANGUAGE plpgsql AS '
            f"$$BEGIN RAISE EXCEPTION 'no room' USING ERRCODE = '{state}'; END$$; "
            f'CREATE TRIGGER full_disk BEFORE INSERT ON "stompbox_{name}" EXECUTE FUNCTION "full_{name}"()'
        )
        with pytest.raises(LogError, match="no room") as error:
            commit(log, lead.position)
        assert (error.value.code, log.last()) == ("log-full", 1)
        server.execute(f'DROP TRIGGER full_disk ON "stompbox_{name}"')
        assert commit(log, lead.position) == 2


def test_users_and_what_they_may(server: PgServer, name: str) -> None:
    server.execute(f'CREATE ROLE "r{name}" LOGIN')
    url = server.url.replace("tests@", f"r{name}:geheim@")
    error = refusal(url, name)  # since 15 not everybody may make tables
    assert (error.code, "geheim" in error.message) == ("log-not-allowed", False)
    with closing(open_log(server.url, name)) as log:
        lead = log.lead(0, b"a")
        server.execute(f'GRANT SELECT ON "stompbox_{name}", "stompbox_{name}_about" TO "r{name}"')
        with closing(open_log(url, name)) as reads_only:
            assert reads_only.read(0, 100, 0) == [lead]
            assert "geheim" not in repr(reads_only) + reads_only.name
            with pytest.raises(LogError) as refused:
                commit(reads_only, lead.position)
            assert refused.value.code == "log-not-allowed"
        assert log.last() == lead.position


def test_a_user_or_database_that_is_not_there(server: PgServer, name: str) -> None:
    for url in (server.url.replace("tests@", "nobody@"), server.url.replace("/postgres", "/nowhere")):
        assert refusal(url, name).code == "log-not-allowed"


def test_a_server_without_tls_is_not_talked_to_when_the_url_wants_it(server: PgServer, name: str) -> None:
    error = refusal(f"{server.url}?sslmode=require", name)
    assert (error.code, "SSL" in error.message) == ("log-unavailable", True)


def test_an_option_that_libpq_does_not_know(server: PgServer, name: str) -> None:
    with pytest.raises(ConfigError, match="sslmood"):
        open_log(f"{server.url}?sslmood=require", name)
    with pytest.raises(LogError, match="Connection refused"):
        open_log("postgresql://127.0.0.1:1/postgres", name)


def test_a_standby_is_not_written_to(server: PgServer, name: str) -> None:
    try:
        set_to(server, "default_transaction_read_only", "on")
        assert refusal(server.url, name).code == "log-unavailable"
    finally:
        set_read_write(server)


def set_read_write(server: PgServer) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("SET default_transaction_read_only = off")
        connection.execute("ALTER SYSTEM RESET default_transaction_read_only")
    server.reload()
    wait_for(server, "SELECT current_setting('default_transaction_read_only') = 'off'")


@pytest.mark.usefixtures("quick")
def test_a_server_that_stands_still_is_found_out(server: PgServer, name: str) -> None:
    with closing(open_log(server.url, name)) as log:
        assert isinstance(log, PostgresLog)
        lead = log.lead(0, b"a")
        processes = [
            row[0]
            for row in server.execute(
                f"SELECT pid FROM pg_stat_activity WHERE application_name = 'stompbox {name}'"
            )
        ]
        assert processes
        assert pgconnection.LOOKS < DEADLINE
        stop(processes, signal.SIGSTOP)
        try:
            with pytest.raises(LogError) as error:
                log.last()
            assert error.value.code == "log-unavailable"
        finally:
            stop(processes, signal.SIGCONT)
        assert reached(log) == lead.position


def stop(processes: list[int], number: signal.Signals) -> None:
    for process in processes:
        try:
            os.kill(process, number)
        except ProcessLookupError:  # it was ended meanwhile
            continue


def reached(log: CommitLog) -> int:
    deadline = monotonic() + DEADLINE
    while True:
        try:
            return log.last()
        except LogError:
            assert monotonic() < deadline
