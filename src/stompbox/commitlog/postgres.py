"""A log in PostgreSQL: a table whose primary key is the position.

    stompbox_CLUSTER          position, epoch, kind, writer, number, payload. Positions have no gaps
    stompbox_CLUSTER_about    one row: which cluster, which log, the format, and `confirmed` (below)

| verb     | is                                                                                                                   |
|----------|----------------------------------------------------------------------------------------------------------------------|
| `append` | one INSERT of `expected + 1` where `expected` is the largest position; who comes second has the key against him       |
| `read`   | a SELECT, after a NOTIFY or a look every half second                                                                  |
| `beat`   | a NOTIFY in a transaction of its own, which neither waits for the disk nor for standbys, on another connection        |
| `trim`   | a DELETE                                                                                                              |

When an answer is lost, the server process that had the INSERT is ended, and the row is looked for by who wrote it and his number. If it
is there, `confirmed` is written before anything is said: a row that can be seen may still lack the standbys' word for it, and what is
committed after it has both. If it is not there, it is inserted again: a copy that is still under way holds the same key. Where the record
before it is not the last either, another server has taken over that lacked it: fenced.

What the server must be: 15 or later, not a standby, fsync on, synchronous_commit on or remote_apply. That standbys are synchronous is for
who runs it to set (docs/cluster-log.md).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import Condition, Event, Thread
from time import monotonic
from typing import Any, Final, TypeVar
from urllib.parse import urlencode
from uuid import uuid4

import psycopg
from psycopg import Connection, sql
from psycopg.conninfo import conninfo_to_dict

from stompbox.commitlog.base import Fenced, Kind, LogError, Record
from stompbox.commitlog.opening import PAGE, LogUrl
from stompbox.commitlog.pgconnection import Line, Watch, is_taken, is_unknown, meaning
from stompbox.commitlog.pgservers import Servers
from stompbox.errors import ConfigError, redacted

T = TypeVar("T")

LARGEST: Final = 4 << 20
FORMAT: Final = 1
OLDEST: Final = 150000
ANSWER: Final = 3.0  # seconds after which an answer counts as lost
APPENDING: Final = 5.0  # the same of an append, whose commit may wait for standbys
PAUSE: Final = 0.1  # seconds between two attempts
TELLING: Final = 0.01  # seconds between two times that readers are told of what was appended
LOOK: Final = 0.5  # seconds between two looks of a reader that nobody tells
ROWS: Final = 512  # of one read, at most

_KINDS: Final = (Kind.COMMIT, Kind.PIECE, Kind.LEAD)
_SAFE_COMMITS: Final = ("on", "remote_apply")

_TABLES: Final = """
CREATE TABLE {log} (
  position bigint PRIMARY KEY, epoch bigint NOT NULL, kind smallint NOT NULL,
  writer bytea NOT NULL, number bigint NOT NULL, payload bytea NOT NULL
);
ALTER TABLE {log} ALTER COLUMN payload SET STORAGE EXTERNAL;
CREATE TABLE {about} (
  cluster text PRIMARY KEY, identity text NOT NULL, format integer NOT NULL, confirmed bigint NOT NULL
);
INSERT INTO {about} VALUES ({cluster}, {identity}, {format}, 0)
"""
_APPEND: Final = """
INSERT INTO {log} SELECT %s + 1, %s, %s, %b, %s, %b
WHERE %s = (SELECT coalesce(max(position), 0) FROM {log}) AND (%s OR %b = (SELECT writer FROM {log} WHERE position = %s))
RETURNING position
"""
_LAST: Final = "SELECT coalesce(max(position), 0) FROM {log}"
# in one statement, so that both are of one moment: a commit may come to be seen between two
_FOUND: Final = """
SELECT latest, writer, number FROM (SELECT coalesce(max(position), 0) AS latest FROM {log}) AS whole
LEFT JOIN {log} ON position = %s
"""
_READ: Final = """
SELECT position, epoch, kind, payload FROM (
  SELECT *, sum(octet_length(payload)) OVER (ORDER BY position) AS size FROM (
    SELECT position, epoch, kind, payload FROM {log} WHERE position > %s ORDER BY position LIMIT %s
  ) AS following
) AS sized WHERE size <= %s OR position = %s ORDER BY position
"""


class PostgresLog:
    """A node's connections to the tables of its cluster. Raises LogError when they cannot be used."""

    def __init__(self, url: LogUrl, cluster: str, node: str) -> None:
        self._url = url
        self._cluster = cluster
        self._table = f"stompbox_{cluster}"
        self._channel = self._table
        self._writer = os.urandom(16)
        self._number = 0
        self._has_led = False
        self._mine = 0  # epoch of the last record that was appended
        self._known = 0  # the latest epoch that is known
        self._heard = 0.0
        self._told = 0  # others were told of records up to here
        self._news = Condition()  # of the next two
        self._noticed = 0  # a record at this position was told of
        self._looks = 0  # times that readers should look, told or not
        self._closed = Event()
        self._appended = Event()
        self._statements: dict[str, bytes] = {}
        parameters = self._parameters()
        self._where = f"{parameters.get('host', 'localhost')}/{parameters.get('dbname', '')}"
        servers = self._servers_of(parameters)
        self._watch = Watch()
        called = str(parameters.get("application_name", f"stompbox {cluster} {node}".strip()))
        self._appending = Line(servers, f"stompbox-{self._writer.hex()}-append", self.name, self._watch)
        self._reading = Line(servers, called, self.name, self._watch)
        self._beating = Line(servers, called, self.name, self._watch)
        self._listening = Line(servers, called, self.name, self._watch, self._listen)
        self._threads: list[Thread] = []
        try:
            self.identity = self._ask(self._reading, self._prepare)
            for work in (self._hear, self._tell):
                thread = Thread(target=work, name="stompbox-log", daemon=True)
                self._threads.append(thread)
                thread.start()
        except BaseException:
            self.close()
            raise

    def _parameters(self) -> dict[str, Any]:
        """What libpq is connected with. Raises ConfigError for what it does not know."""
        options = {name: value for name, value in self._url.options.items() if name != "insecure"}
        query = f"?{urlencode(options)}" if options else ""
        try:
            found = conninfo_to_dict(f"{self._url.scheme}://{self._url.rest}{query}")
        except psycopg.Error as error:
            where = redacted(self._url.whole)
            raise ConfigError(
                "config-value", f"log {where!r}: {str(error).strip()}; {PAGE} has examples"
            ) from None
        return {
            "target_session_attrs": "read-write",
            "keepalives_idle": 5,
            "keepalives_interval": 2,
            "keepalives_count": 3,
        } | {name: value for name, value in found.items() if value is not None}

    largest: Final = LARGEST

    def _servers_of(self, parameters: dict[str, Any]) -> Servers:
        try:
            return Servers(parameters)
        except ValueError as error:
            where = redacted(self._url.whole)
            raise ConfigError("config-value", f"log {where!r}: {error}; {PAGE} has examples") from None

    @property
    def name(self) -> str:
        return f"PostgreSQL table {self._table} at {self._where}"

    def _sql(self, text: str) -> bytes:
        """The statement, of this cluster's tables."""
        found = self._statements.get(text)
        if found is None:
            names = {"log": sql.Identifier(self._table), "about": sql.Identifier(f"{self._table}_about")}
            found = self._statements[text] = sql.SQL(text).format(**names).as_bytes(None)
        return found

    def _ask(self, line: Line, work: Callable[[Connection[Any]], T]) -> T:
        try:
            return line.call(work, ANSWER)
        except psycopg.Error as error:
            raise meaning(error, self.name) from error

    # What the server and the tables must be

    def _prepare(self, connection: Connection[Any]) -> str:
        """The identity of the log, made where there is none."""
        if not self._url.is_insecure:
            self._check_server(connection)
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (self._table,))
            about = self._one(connection, "SELECT to_regclass(%s)", self._quoted(f"{self._table}_about"))
            log = self._one(connection, "SELECT to_regclass(%s)", self._quoted(self._table))
            if about is None and log is None:
                self._make(connection)
            elif about is None or log is None:
                raise LogError("log-of-another", f"{self.name}: a table of this name is there, and not ours")
            return self._check_owner(connection)

    def _quoted(self, name: str) -> str:
        return '"' + name + '"'

    def _make(self, connection: Connection[Any]) -> None:
        """Only what is literal may be in a statement that makes tables."""
        connection.execute(
            sql.SQL(_TABLES).format(
                log=sql.Identifier(self._table),
                about=sql.Identifier(f"{self._table}_about"),
                cluster=sql.Literal(self._cluster),
                identity=sql.Literal(uuid4().hex),
                format=sql.Literal(FORMAT),
            )
        )

    def _one(self, connection: Connection[Any], query: str | bytes, *values: object) -> Any:
        row = connection.execute(query, values).fetchone()
        return row[0] if row else None

    def _check_owner(self, connection: Connection[Any]) -> str:
        try:
            with connection.transaction():
                rows = connection.execute(
                    self._sql("SELECT cluster, identity, format FROM {about}")
                ).fetchall()
        except (psycopg.errors.UndefinedColumn, psycopg.errors.WrongObjectType):
            rows = []
        if len(rows) != 1 or rows[0][0] != self._cluster:
            raise LogError(
                "log-of-another", f"{self.name}: the tables are not of the cluster {self._cluster!r}"
            )
        if rows[0][2] > FORMAT:
            raise LogError(
                "log-too-new",
                f"{self.name}: the tables have format {rows[0][2]}, this program reads {FORMAT}",
            )
        return str(rows[0][1])

    def _check_server(self, connection: Connection[Any]) -> None:
        version = connection.info.server_version
        if version < OLDEST:
            raise LogError(
                "log-not-safe", f"{self.name}: PostgreSQL {version // 10000} is older than {OLDEST // 10000}"
            )
        settings: dict[str, str] = dict(
            connection.execute(
                "SELECT name, setting FROM pg_settings WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit')"
            ).fetchall()
        )
        for name in ("fsync", "full_page_writes"):
            if settings.get(name) != "on":
                raise LogError("log-not-safe", f"{self.name}: {name} is {settings.get(name)}, and not on")
        if settings.get("synchronous_commit") not in _SAFE_COMMITS:
            raise LogError(
                "log-not-safe",
                f"{self.name}: synchronous_commit is {settings.get('synchronous_commit')}, and not on or remote_apply",
            )

    # Appending

    def append(self, expected: int, epoch: int, kind: Kind, payload: bytes) -> int:
        if len(payload) > LARGEST:
            raise ValueError(f"a record of {len(payload)} bytes; the most is {LARGEST}")
        return self._append(expected, epoch, kind, payload)

    def lead(self, expected: int, node: bytes) -> Record:
        epoch = self._epoch_at(expected) + 1
        return Record(self._append(expected, epoch, Kind.LEAD, node), epoch, Kind.LEAD, node)

    def _epoch_at(self, position: int) -> int:
        """The epoch of that record, however long the server is away. Raises Fenced when it is not there."""
        if position == 0:
            return 0
        query = self._sql("SELECT epoch FROM {log} WHERE position = %s")
        while True:
            try:
                row = self._ask(
                    self._appending, lambda connection: connection.execute(query, (position,)).fetchone()
                )
            except LogError as error:
                if error.code != "log-unavailable":
                    raise
                self._pause()
                continue
            if row is None:
                raise Fenced("fenced", f"{self.name}: record {position} is not the last")
            return int(row[0])

    def _pause(self) -> None:
        if self._closed.wait(PAUSE):
            self._appending.refuse_closed()

    def _append(self, expected: int, epoch: int, kind: Kind, payload: bytes) -> int:
        self._number += 1
        # whoever leads has appended the last record, too
        values = (
            expected, epoch, _KINDS.index(kind), self._writer, self._number, payload,
            expected, kind is Kind.LEAD or not self._has_led, self._writer, expected,
        )  # fmt: skip
        is_lost = False  # a copy may be in the log, or get there yet
        while True:
            try:
                position = self._appending.call(
                    lambda connection: self._insert(connection, values), APPENDING
                )
                if position is None:
                    if not is_lost:
                        raise Fenced("fenced", f"{self.name}: record {expected} is not the last")
                    position = self._found(expected)
            except psycopg.Error as error:
                if not is_unknown(error) and not is_lost and not is_taken(error):
                    raise meaning(error, self.name) from error
                if is_taken(error) and not is_lost:
                    raise Fenced("fenced", f"{self.name}: record {expected} is not the last") from error
                is_lost = True
                position = self._sought(expected)
            if position is not None:
                break
            self._pause()
        self._mine = self._known = epoch
        self._has_led = self._has_led or kind is Kind.LEAD
        self._told = position
        self._appended.set()
        return position

    def _insert(self, connection: Connection[Any], values: tuple[object, ...]) -> int | None:
        row = connection.execute(self._sql(_APPEND), values, prepare=True).fetchone()
        return int(row[0]) if row else None

    def _sought(self, expected: int) -> int | None:
        """As `_found`; None as well when the server does not answer."""
        try:
            return self._found(expected)
        except psycopg.Error:
            return None

    def _found(self, expected: int) -> int | None:
        """After a lost answer: the position of our record, with the standbys' word for it; None when it is not there. Raises Fenced."""

        def look(connection: Connection[Any]) -> int | None:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name = %s AND pid <> pg_backend_pid()",
                (f"stompbox-{self._writer.hex()}-append"[:63],),
            )
            [(last, writer, number)] = connection.execute(self._sql(_FOUND), (expected + 1,)).fetchall()
            if writer is None and last == expected:
                return None
            if writer is None or (bytes(writer), number) != (self._writer, self._number):
                raise Fenced("fenced", f"{self.name}: record {expected} is not the last")
            connection.execute(self._sql("UPDATE {about} SET confirmed = %s"), (expected + 1,))
            return expected + 1

        return self._appending.call(look, APPENDING)

    # Reading

    def last(self) -> int:
        return int(self._number_of(_LAST))

    def first(self) -> int:
        return int(self._number_of("SELECT coalesce(min(position), 1) FROM {log}"))

    def _number_of(self, query: str) -> Any:
        row = self._ask(self._reading, lambda connection: connection.execute(self._sql(query)).fetchone())
        assert row is not None
        return row[0]

    def read(self, after: int, most: int, wait: float) -> list[Record]:
        deadline = monotonic() + wait
        while True:
            with self._news:
                looks = self._looks
            found = self._ask(self._reading, lambda connection: self._select(connection, after, most))
            if found or monotonic() >= deadline:
                break
            with self._news:
                self._news.wait_for(
                    partial(self._is_news, after, looks), max(0.0, min(LOOK, deadline - monotonic()))
                )
        if found:
            self._note(found, after)
        return found

    def _is_news(self, after: int, looks: int) -> bool:
        return self._noticed > after or self._looks != looks or self._closed.is_set()

    def _select(self, connection: Connection[Any], after: int, most: int) -> list[Record]:
        with connection.cursor(binary=True) as cursor:
            cursor.execute(self._sql(_READ), (after, ROWS, most, after + 1), prepare=True)
            rows = cursor.fetchall()
            if not rows and after >= 0:  # trimmed, or none yet
                cursor.execute(self._sql("SELECT coalesce(min(position), 0) FROM {log}"))
                first = (cursor.fetchone() or (0,))[0]
                if first > after + 1:
                    raise LogError(
                        "log-trimmed", f"{self.name}: record {after + 1} is gone, {first} is the first"
                    )
        return [Record(position, epoch, _KINDS[kind], payload) for position, epoch, kind, payload in rows]

    def _note(self, found: list[Record], after: int) -> None:
        for position, record in enumerate(found, after + 1):
            if record.position != position:
                code = "log-trimmed" if position == after + 1 else "log-corrupt"
                raise LogError(code, f"{self.name}: record {record.position} follows {position - 1}")
        self._known = max(self._known, found[-1].epoch)
        if found[-1].epoch != self._mine:
            self._heard = monotonic()

    def trim(self, position: int) -> None:
        query = self._sql(
            "DELETE FROM {log} WHERE position < least(%s::bigint, (SELECT max(position) FROM {log}))"
        )
        self._ask(self._reading, lambda connection: connection.execute(query, (position,)))

    # Telling and hearing

    def beat(self, epoch: int) -> None:
        if self._known > epoch:
            raise Fenced("fenced", f"{self.name}: epoch {self._known} leads, not {epoch}")
        self._notify(f"beat {self._writer.hex()}")

    def _notify(self, text: str) -> None:
        self._ask(
            self._beating,
            lambda connection: connection.execute("SELECT pg_notify(%s, %s)", (self._channel, text)),
        )

    def _tell(self) -> None:
        """A thread: tells of what was appended, as often as it gets to it."""
        told = 0
        while not self._closed.is_set():
            self._appended.wait()
            self._appended.clear()
            if self._told > told:
                told = self._told
                with suppress(LogError):  # readers look by themselves, too
                    self._notify(f"record {self._writer.hex()} {told}")
                self._closed.wait(TELLING)

    def _listen(self, connection: Connection[Any]) -> None:
        connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._channel)))

    def _hear(self) -> None:
        """A thread: hears of others' beats and records."""
        while not self._closed.is_set():
            try:
                self._listening.call(self._take_news, ANSWER)
            except (psycopg.Error, LogError):
                self._closed.wait(PAUSE)
            with self._news:
                self._looks += 1
                self._news.notify_all()

    def _take_news(self, connection: Connection[Any]) -> None:
        """What comes within a while, so that a server that stands still is found out at the end of it."""
        for notice in connection.notifies(timeout=ANSWER / 3):
            what, writer, *position = notice.payload.split(" ")
            if writer == self._writer.hex():
                continue
            self._heard = monotonic()
            if what == "record":
                with self._news:
                    self._noticed = max(self._noticed, int(position[0]))
                    self._news.notify_all()
        connection.execute("SELECT 1")

    def heard(self) -> float:
        return self._heard

    def close(self) -> None:
        self._closed.set()
        self._appended.set()
        with self._news:
            self._news.notify_all()
        for line in (self._appending, self._reading, self._beating, self._listening):
            line.close()
        for thread in self._threads:
            thread.join()
        self._watch.close()

    def __repr__(self) -> str:
        return f"<PostgresLog {self._table} known epoch={self._known} {redacted(self._url.whole)}>"
