"""Everything that may be wrong with a read or a write, as one table, and what a user sees of it; also in a session of Spark Connect
(connect.py).

What the driver finds stands in the first line. What only a task can find has Spark's words about the failed task before it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tests.spark.fake_broker import PEM
from tests.users import users

WITHIN: Final = 120  # s, for one query
USER: Final = {"login": "lake", "passcode": "open-sesame"}
USERS: Final = """
[[permission]]
match = "open.#"
consume = ["readers"]
send = ["readers"]
create-address = ["readers"]
create-durable-queue = ["readers"]
[[permission]]
match = "readable"
consume = ["readers"]
create-address = ["readers"]
""" + users("lake:open-sesame@readers")
ROWS: Final = "'x' AS body"


@dataclass(frozen=True, slots=True)
class Case:
    """`given` are options beside url and user (None takes one away), `rows` what is written, as SQL."""

    how: str  # read, stream, write, sink
    words: str
    given: Mapping[str, str | None] = field(default_factory=dict)
    rows: str = ROWS
    schema: str = ""
    mode: str = "append"
    broker: str = "plain"  # plain, tls, away
    in_task: bool = False
    # one of the few that say for every way through Spark what the others say with all options
    short: bool = False

    def __str__(self) -> str:
        return f"{self.how}: {self.words[:60]}"


def read(
    words: str, *, schema: str = "", broker: str = "plain", short: bool = False, **given: str | None
) -> list[Case]:
    """Wrong for batch and for streams."""
    return [Case(how, words, given, schema=schema, broker=broker, short=short) for how in ("read", "stream")]


def write(
    words: str,
    rows: str = ROWS,
    *,
    broker: str = "plain",
    in_task: bool = False,
    short: bool = False,
    **given: str | None,
) -> list[Case]:
    return [
        Case(how, words, given, rows=rows, broker=broker, in_task=in_task, short=short)
        for how in ("write", "sink")
    ]


_AWAY: Final = {"reconnectTimeout": "200"}
CASES: Final = [
    # options
    *read("option 'destnation' of format stomp is not known; did you mean 'destination'?", destnation="/topic/a", short=True),
    *read("option 'url' is missing: where the broker is: stomp://host:port", url=None),
    *read("option 'url' is 'broker:61613'; allowed are stomp://host:port and stomps://host:port", url="broker:61613", short=True),
    *read("option 'url' is not a URL: Port out of range 0-65535", url="stomp://127.0.0.1:70000"),
    *read("option 'url' is not a URL: encoding with 'idna' codec failed", url="stomp://a..b:1"),
    *read("option 'destination' is missing: reading: destinations", destination=None),
    *read("option 'destination' is '/queue/a,,/queue/b'; allowed are destinations with one comma", destination="/queue/a,,/queue/b"),
    *read("option 'numPartitions' is 'many'; allowed are whole numbers from 1 on", numPartitions="many"),
    *read("option 'failOnDataLoss' is 'maybe'; allowed are true and false", failOnDataLoss="maybe"),
    *read("option 'bodyFormat' is 'xml'; allowed are json and csv", bodyFormat="xml", schema_="n INT"),
    *read("option 'bodyFormat' needs the option 'schema'", bodyFormat="csv"),
    *read("option 'mode' is 'LENIENT'; allowed are PERMISSIVE, DROPMALFORMED and FAILFAST", mode="LENIENT", schema_="n INT"),
    *read("option 'mode' needs the option 'schema'", mode="FAILFAST"),
    *read("column '_corrupt_record' takes the text of malformed bodies and must be STRING", schema_="_corrupt_record INT"),
    *read("option 'schema', position 13, field 's.v': found 'VARIANT'; expected a type; allowed are", schema_="s STRUCT<v: VARIANT>"),
    *read("position 18, field 'd': found '99'; the precision of DECIMAL is a number from 1 to 38", schema_="n INT, d DECIMAL(99,2)"),
    *read("position 12, field 'l': found its end; expected > at the end of ARRAY<type>", schema_="l ARRAY<INT"),
    *read("position 10, field 'm': found '>'; expected a comma and the type of the values", schema_="m MAP<INT>"),
    *read("position 3, field 'v': found 'VARCHAR'; expected a type", schema_="v VARCHAR(0)"),
    *read("position 2, field 'n': found ':'; between a column and its type stands a blank: n STRING", schema_="n: INT"),
    *read("column 'm' of type map<int, string> cannot be read from json", schema_="m MAP<INT, STRING>"),
    *read("column 'l' of type list<element: string", schema_="l ARRAY<STRING>", bodyFormat="csv"),
    *read("option 'schema', position 3, field 'n': found 'INTEGRAL'; expected a type; allowed are", schema_="n INTEGRAL"),
    *read("option 'schema' names the column 'offset', which is there already", schema_="offset INT"),
    *read("selector, position 10: found", selector="carrier = ", short=True),
    *read("format stomp has no column 'offset' of type int; its columns are address string, offset bigint", schema="offset INT"),
    *read("column 'n' is decoded from bodies, any of which may lack a value; the schema must let it be NULL", schema="n INT NOT NULL",
          schema_="n INT"),
    *read("option 'trustStorePath' is for TLS; the option 'url' must then begin with stomps://", trustStorePath=str(PEM)),
    *read("option 'sinkId' is for writing", sinkId="a"),
    Case("read", "option 'group' is for streaming reads, not for batch reads", {"group": "a"}),
    Case("stream", "option 'endingOffsets' is for batch reads, not for streaming reads", {"endingOffsets": "1"}),
    Case("stream", "option 'maxRowsPerTrigger' is '0'; allowed are whole numbers from 1 on", {"maxRowsPerTrigger": "0"}),
    Case("stream", "option 'maxBytesPerTrigger' is 'lots'; allowed are a number of bytes", {"maxBytesPerTrigger": "lots"}),
    Case("stream", "startingOffsets latest in a streaming read needs the option 'group'", {"startingOffsets": "latest"}),
    Case("stream", "startingOffsets in the future needs the option 'group'", {"startingOffsets": "2999-01-01T00:00:00Z"}),
    # offsets and timestamps
    *read("option 'startingOffsets' is 'yesterday'; allowed are earliest, latest, a number", startingOffsets="yesterday"),
    *read("'2026-03-01T00:00:00', a timestamp without zone; write", startingOffsets="2026-03-01T00:00:00"),
    *read("option 'startingOffsets' is no valid JSON", startingOffsets='{"open.a": '),
    *read("the offset of 'open.a' is -1; allowed are whole numbers from 0 on", startingOffsets='{"open.a": -1}'),
    *read("option 'startingOffsets' names 'open.b'; the addresses to read are open.a", startingOffsets='{"open.b": 1}', short=True),
    *read("option 'startingOffsets': offset 99 is outside the log of 'open.a', which holds 0 to 3", startingOffsets="99"),
    # addresses, rights, login
    Case("read", "option 'destination': /topic/open.none does not exist on the broker", {"destination": "/topic/open.none"}),
    *read("user 'lake' does not have the right 'consume' on address 'closed'", destination="/topic/closed"),
    Case("stream", "user 'lake' does not have the right 'create-durable-queue' on address 'readable'",
         {"destination": "/topic/readable", "group": "lake"}, short=True),
    *write("user 'lake' does not have the right 'send' on address 'readable'", destination="/topic/readable", in_task=True),
    # connections
    *read("for 0.2 s (option reconnectTimeout)", broker="away", short=True, **_AWAY),
    *write("for 0.2 s (option reconnectTimeout)", broker="away", in_task=True, **_AWAY),
    *read("the broker's certificate was not accepted (options trustStorePath, verifyHost)", broker="tls"),
    *read("option 'trustStorePath': /nowhere.pem cannot be read: No such file", broker="tls", trustStorePath="/nowhere.pem"),
    *read("option 'trustStorePath': /etc/passwd holds no certificate", broker="tls", trustStorePath="/etc/passwd"),
    # columns
    *write("format stomp cannot write column 'boddy'; did you mean 'body'?", "'x' AS boddy", short=True),
    *write("column 'priority' is of type string; format stomp writes it from tinyint or smallint or int or bigint",
           "'x' AS body, 'high' AS priority"),
    *write("column 'body' is missing: binary or string, what the messages hold", "5 AS priority"),
    *write("where to? Neither a column 'destination' (string) nor the option 'destination' is there", destination=None),
    *write("option 'destination' is '/queue/a,/queue/b'; allowed are one destination, without comma", destination="/queue/a,/queue/b"),
    *write("option 'destination' is '/queue/a\\n/queue/b'; allowed are one line of text", destination="/queue/a\n/queue/b"),
    *write("option 'startingOffsets' is for reading, not for writing", startingOffsets="1"),
    *write("column 'priority' holds 12 to 12; allowed are 0 to 9", "'x' AS body, 12 AS priority", in_task=True, short=True),
    *write("column 'destination' is NULL or empty in a row", "'x' AS body, CAST(NULL AS STRING) AS destination",
           destination=None, in_task=True),
    Case("write", "mode overwrite is not possible", mode="overwrite", short=True),
    Case("write", "option 'sinkId' needs the option 'batchId'", {"sinkId": "a"}),
    Case("sink", "option 'sinkId' is for batch writes", {"sinkId": "a", "batchId": "1"}),
    # last, because the broker slows down whoever has failed to log in
    *read("login or passcode is wrong", passcode="open-barley"),
    *write("login or passcode is wrong", passcode="open-barley", in_task=True),
]  # fmt: skip


def check(case: Case, said: str) -> None:
    """The shape that docs/spark.md promises."""
    lines = said.strip().splitlines()
    assert case.words in said, said
    assert case.in_task or case.words in lines[0], said
    assert "Traceback" not in said
    assert "at org.apache" not in said
    assert USER["passcode"] not in said


def provoke(spark: Any, case: Case, urls: Mapping[str, str]) -> str:
    """What the exception says that the user gets; empty when there was none."""
    given: dict[str, str | None] = {
        "url": urls[case.broker],
        "destination": "/topic/open.a",
        **USER,
        **case.given,
    }
    if "schema_" in given:  # the option has the name of an argument of ours
        given["schema"] = given.pop("schema_")
    options = {name: value for name, value in given.items() if value is not None}
    with tempfile.TemporaryDirectory() as folder:
        try:
            _do(spark, case, options, folder)
        except Exception as fault:
            return str(fault)
    return ""


def _do(spark: Any, case: Case, options: Mapping[str, str], folder: str) -> None:
    if case.how == "read":
        reader = spark.read.format("stomp").options(**options)
        (reader.schema(case.schema) if case.schema else reader).load().collect()
    elif case.how == "stream":
        reader = spark.readStream.format("stomp").options(**options)
        rows = (reader.schema(case.schema) if case.schema else reader).load()
        _stream(rows.writeStream.format("noop"), folder)
    elif case.how == "write":
        spark.range(1).selectExpr(*_columns(case)).write.format("stomp").mode(case.mode).options(
            **options
        ).save()
    else:
        rows = (
            spark.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", "1")
            .load()
            .selectExpr(*_columns(case))
        )
        _stream(rows.writeStream.format("stomp").options(**options), folder)


def _columns(case: Case) -> list[str]:
    return case.rows.split(", ")


def _stream(writer: Any, folder: str) -> None:
    query = writer.option("checkpointLocation", folder).trigger(once=True).start()
    try:
        query.awaitTermination(WITHIN)
    finally:
        query.stop()
