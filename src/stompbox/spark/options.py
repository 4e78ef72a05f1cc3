"""The options of the data source, as one table: names, who takes them, defaults, what is allowed.

Decides what a user may write and what a refusal says. Option names are read in any case, as Spark does; Spark's own options are let
through, any other unknown name is refused with the nearest known one. Connects to nothing: options are read again in every process
that Spark starts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from enum import Enum
from os import cpu_count
from typing import Final

from stompbox.errors import UsageError, redacted
from stompbox.numerals import digits
from stompbox.spark.bounds import EARLIEST, LATEST, Bound, BoundKind, parse_bound, parse_time, parse_times
from stompbox.spark.targets import Target, Tls, parse_place

# a batch of this size spends nine tenths of its time on rows, not on Spark's fixed cost per batch
DEFAULT_MAX_ROWS: Final = 1_000_000
DEFAULT_MAX_BYTES: Final = 256 << 20  # where neither limit is given: rows may be large
FETCH_BYTES: Final = 4 * 1024 * 1024  # the broker's own limit for one answer
STAGE_BYTES: Final = 1024 * 1024


class Role(Enum):
    """What an option is for: reading, writing, or a kind of either."""

    BOTH = "reading and writing"
    READ = "reading"
    STREAM = "streaming reads"
    BATCH = "batch reads"
    WRITE = "writing"


CONTROLS: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")  # what no line of text has
FORMATS: Final = ("json", "csv")
STRATEGIES: Final = ("error", "latest")
MODES: Final = ("PERMISSIVE", "DROPMALFORMED", "FAILFAST")  # as Spark's own readers have them

# name -> (who takes it, default as text, what it means and what is allowed). docs/spark.md shows this table.
OPTIONS: Final[Mapping[str, tuple[Role, str, str]]] = {
    "url": (
        Role.BOTH,
        "",
        "where the broker is: stomp://host:port, with TLS stomps://host:port; user and password may stand before the host; "
        "of a cluster all nodes, stomp://a:61613,b:61613",
    ),
    "readUrl": (
        Role.READ,
        "",
        "where tasks fetch messages: `readOnly` listeners of a cluster's nodes, stomp://a:61614,b:61614, each task from one of them; "
        "what these do not have comes from url, as all the rest does; default: url",
    ),
    "login": (Role.BOTH, "", "user name"),
    "passcode": (Role.BOTH, "", "password"),
    "virtualHost": (Role.BOTH, "", "the virtual host to connect to; default: the host of the url"),
    "trustStorePath": (
        Role.BOTH,
        "",
        "PEM file of the CAs that may have signed the broker's certificate; default: the system's",
    ),
    "keyStorePath": (
        Role.BOTH,
        "",
        "PEM file of the client's certificate chain, with its key unless keyPath names that",
    ),
    "keyPath": (Role.BOTH, "", "PEM file of the client's key"),
    "keyStorePassword": (Role.BOTH, "", "password of the client's key"),
    "verifyHost": (Role.BOTH, "true", "must the certificate be for the host of the url? true or false"),
    "requestTimeout": (
        Role.BOTH,
        "60000",
        "ms to wait for an answer of the broker before the connection counts as lost",
    ),
    "reconnectTimeout": (
        Role.BOTH,
        "30000",
        "ms to go on trying to reach the broker before the task or query fails",
    ),
    "destination": (
        Role.BOTH,
        "",
        "reading: destinations, several with commas, wildcards * and #; writing: the one for rows without their own",
    ),
    "group": (
        Role.STREAM,
        "",
        "name of a durable cursor on the broker: holds retention back until Spark is past it",
    ),
    "startingOffsets": (Role.READ, "earliest", "where a new query or a batch begins"),
    "startingTimestamp": (
        Role.READ,
        "",
        "the same as a time, ms since 1970 or a timestamp with zone; wins over the other two",
    ),
    "startingOffsetsByTimestamp": (
        Role.READ,
        "",
        "the same as a time for each address, as JSON; wins over startingOffsets",
    ),
    "startingOffsetsByTimestampStrategy": (
        Role.READ,
        "error",
        "where no message of an address arrived at or after its time: error, or latest: begin at the end of its log",
    ),
    "endingOffsets": (Role.BATCH, "latest", "where a batch ends, exclusive"),
    "endingTimestamp": (Role.BATCH, "", "the same as a time; wins over the other two"),
    "endingOffsetsByTimestamp": (
        Role.BATCH,
        "",
        "the same as a time for each address, as JSON; wins over endingOffsets",
    ),
    "maxRowsPerTrigger": (Role.STREAM, str(DEFAULT_MAX_ROWS), "rows, at most, in one micro-batch"),
    "minRowsPerTrigger": (
        Role.STREAM,
        "",
        "rows that must wait before there is a micro-batch, unless maxTriggerDelay has passed",
    ),
    "maxTriggerDelay": (
        Role.STREAM,
        "15m",
        "time without a micro-batch after which one is made of fewer rows than minRowsPerTrigger",
    ),
    "maxBytesPerTrigger": (
        Role.STREAM,
        "",
        "bytes, about and at most, in one micro-batch, as 64m or a number; default: 256m, none where maxRowsPerTrigger is given",
    ),
    "numPartitions": (
        Role.READ,
        "",
        "tasks, at most, that read at the same time; default: processors of the driver, 4 at most",
    ),
    "minPartitions": (
        Role.READ,
        "",
        "tasks, at least and about, that a read is dealt out to, however few rows each has",
    ),
    "maxRecordsPerPartition": (
        Role.READ,
        "",
        "rows, at most, that one task reads; makes more tasks than numPartitions where it must",
    ),
    "failOnDataLoss": (
        Role.READ,
        "true",
        "fail when messages to read are no longer there? true or false: go on with those that are",
    ),
    "includeHeaders": (
        Role.READ,
        "true",
        "has a row the column headers? true or false: it is left out, and reading is faster",
    ),
    "selector": (Role.READ, "", "only messages that this selector (SQL-92 on headers) accepts"),
    "schema": (Role.READ, "", "columns to decode from the body, as Spark DDL: carrier STRING, delay INT"),
    "bodyFormat": (Role.READ, "json", "how the body is written that schema decodes: json or csv"),
    "mode": (
        Role.READ,
        "PERMISSIVE",
        "what becomes of rows whose body schema cannot decode: PERMISSIVE, DROPMALFORMED or FAILFAST",
    ),
    "columnNameOfCorruptRecord": (
        Role.READ,
        "_corrupt_record",
        "the column of schema that gets the text of such bodies, if it names one",
    ),
    "sinkId": (
        Role.WRITE,
        "",
        "batch writes: name under which the broker remembers batchId; a streaming query is remembered by its own id",
    ),
    "batchId": (
        Role.WRITE,
        "",
        "number of a batch write with sinkId (inside foreachBatch): an equal or lower one is not published again",
    ),
}

ALIASES: Final[Mapping[str, str]] = {
    "minOffsetsPerTrigger": "minRowsPerTrigger",
    "maxOffsetsPerTrigger": "maxRowsPerTrigger",
}
"""Names that Spark's source for Kafka has for the same."""

# What Spark itself, its SQL catalogs and its pipelines put among the options of a source or a sink.
SPARK_OPTIONS: Final = frozenset(
    (
        "path", "queryname", "checkpointlocation", "outputmode", "mode", "mergeschema", "triggerinterval",
        "asyncprogresstrackingenabled", "asyncprogresstrackingcheckpointintervalms", "provider", "location", "comment", "owner",
        "external", "is_managed_location", "collation", "serialization.format", "recursivefilelookup", "basepath",
    )
)  # fmt: skip
_SPARK_PREFIXES: Final = ("spark.", "__", "option.", "view.", "pipelines.")

_UNITS: Final = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
# as Spark reads them
_TIMES: Final = {
    "": 0.001,
    "us": 1e-6,
    "ms": 0.001,
    "s": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}
_BOOLEANS: Final = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class SourceOptions:
    target: Target
    destination: str
    read_target: Target | None = None  # where messages are fetched first; None: from `target`
    group: str = ""
    starting: Bound = EARLIEST
    ending: Bound = LATEST
    max_rows: int = DEFAULT_MAX_ROWS
    max_bytes: int = 0  # 0: no limit
    usual_bytes: int = 0  # the limit where none was given: looked at only when much waits; 0: one was given
    min_rows: int = 0  # 0: whatever there is makes a micro-batch
    max_delay: float = 900.0  # s
    partitions: int = 2
    min_partitions: int = 1
    max_records: int = 0  # of one partition; 0: no limit
    fail_on_data_loss: bool = True
    selector: str = ""
    include_headers: bool = True
    body_format: str = ""  # "": bodies are not decoded
    mode: str = "PERMISSIVE"
    corrupt: str = "_corrupt_record"
    fetch_bytes: int = FETCH_BYTES


@dataclass(frozen=True, slots=True)
class SinkOptions:
    target: Target
    destination: str = ""
    sink: str = ""
    batch: int = -1  # -1: not given
    stage_bytes: int = STAGE_BYTES


class Given:
    """The options that a user gave, by lower-case name. Raises UsageError for a name that nobody knows."""

    __slots__ = ("_aliases", "_values")

    def __init__(self, options: Mapping[str, str]) -> None:
        known = {name.lower(): name for name in (*OPTIONS, *ALIASES)}
        self._values: Final[dict[str, str]] = {}
        self._aliases: Final[dict[str, str]] = {}  # what was written in place of our own name
        for name, value in options.items():
            lower = name.lower()
            if lower in known:
                own = ALIASES.get(known[lower], known[lower])
                if own in self._values:
                    raise UsageError(
                        "bad-option", f"option {own!r} is given twice, once under the name {_alias_of(own)!r}"
                    )
                self._values[own] = value
                if own != known[lower]:
                    self._aliases[own] = known[lower]
            elif lower not in SPARK_OPTIONS and not lower.startswith(_SPARK_PREFIXES):
                raise UsageError(
                    "unknown-option", f"option {name!r} of format stomp is not known{_nearest(lower, known)}"
                )

    def refuse_others(self, roles: frozenset[Role], doing: str) -> None:
        for name in self._values:
            if OPTIONS[name][0] not in roles and name.lower() not in SPARK_OPTIONS:
                # `mode` of a write is Spark's own
                allowed = ", ".join(name for name, (role, *_) in OPTIONS.items() if role in roles)
                raise UsageError(
                    "option-not-here",
                    f"option {self._aliases.get(name, name)!r} is for {OPTIONS[name][0].value}, not for {doing}; allowed are {allowed}",
                )

    def is_given(self, name: str) -> bool:
        return name in self._values

    def text(self, name: str) -> str:
        return self._values.get(name, OPTIONS[name][1]).strip()

    def secret(self, name: str) -> str:
        return self._values.get(name, "")

    def required(self, name: str) -> str:
        found = self.text(name)
        if not found:
            raise UsageError("missing-option", f"option {name!r} is missing: {OPTIONS[name][2]}")
        return found

    def boolean(self, name: str) -> bool:
        given = self.text(name)
        found = _BOOLEANS.get(given.lower())
        if found is None:
            raise _bad(name, given, "true and false")
        return found

    def number(self, name: str, *, least: int = 1) -> int:
        given = self.text(name)
        found = digits(given)
        if found is None or found < least:
            raise _bad(self._aliases.get(name, name), given, f"whole numbers from {least} on")
        return found

    def size(self, name: str) -> int:
        """The value of an option in bytes; 0 when nothing was given."""
        given = self.text(name).lower()
        if not given:
            return 0
        count = given.rstrip("bkmgi ")
        unit = given[len(count) :].strip().removesuffix("b").removesuffix("i")
        found = digits(count, most=15)
        if not found or unit not in _UNITS:
            raise _bad(name, given, "a number of bytes above 0, or one with the unit k, m or g")
        return found * _UNITS[unit]

    def seconds(self, name: str) -> float:
        given = self.text(name).lower()
        count = given.rstrip("abcdefghijklmnopqrstuvwxyz ")
        unit = given[len(count) :].strip()
        found = digits(count, most=15)
        if found is None or unit not in _TIMES:
            raise _bad(name, self.text(name), "a number of ms, or one with the unit us, ms, s, m, h or d")
        return found * _TIMES[unit]

    def choice(self, name: str, allowed: tuple[str, ...]) -> str:
        """The value of an option, which is one of these in any case of letters."""
        given = self.text(name)
        found = next((value for value in allowed if value.lower() == given.lower()), None)
        if found is None:
            raise _bad(name, given, f"{', '.join(allowed[:-1])} and {allowed[-1]}")
        return found

    def bound(self, side: str) -> Bound:
        """Where reading begins or ends (`side`), by the first of three options that is given, as Spark's source for Kafka has it."""
        strategy = self.choice("startingOffsetsByTimestampStrategy", STRATEGIES)
        has_time = self.is_given("startingTimestamp") or self.is_given("startingOffsetsByTimestamp")
        if self.is_given("startingOffsetsByTimestampStrategy") and not has_time:
            needs = "needs the option 'startingTimestamp' or 'startingOffsetsByTimestamp'"
            raise UsageError("missing-option", f"option 'startingOffsetsByTimestampStrategy' {needs}")
        must_match = side == "starting" and strategy == "error"
        at, by_address, offsets = f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets"
        found = [parse_bound(offsets, self.text(offsets))]
        if self.is_given(by_address):
            found.append(parse_times(by_address, self.text(by_address), must_match=must_match))
        if self.is_given(at):
            found.append(parse_time(at, self.text(at), must_match=must_match))
        return found[-1]


def _nearest(name: str, known: Mapping[str, str]) -> str:
    found = get_close_matches(name, known, n=1)
    return f"; did you mean {known[found[0]]!r}?" if found else f"; known are {', '.join(known.values())}"


def _alias_of(name: str) -> str:
    return next(alias for alias, own in ALIASES.items() if own == name)


def _bad(name: str, given: str, allowed: str) -> UsageError:
    return UsageError("bad-option", f"option {name!r} is {given[:80]!r}; allowed are {allowed}")


def check_reading(given: Given) -> Given:
    """Raises UsageError naming an option that is wrong for batch reads and streams alike."""
    given.refuse_others(frozenset((Role.BOTH, Role.READ, Role.STREAM, Role.BATCH)), "reading")
    _read_target(given, target_of(given))
    _destinations(given)
    for side in ("starting", "ending"):
        given.bound(side)
    given.boolean("failOnDataLoss")
    _partitions(given)
    given.boolean("includeHeaders")
    _body_format(given)
    return given


def _group(given: Given) -> str:
    """As the broker takes it: it lists groups, a name each line."""
    found = given.text("group")
    if not found.isprintable():
        raise _bad("group", found, "names without control characters")
    return found


def source_options(given: Given, *, streaming: bool) -> SourceOptions:
    """The options of a read. Raises UsageError naming the option."""
    roles = frozenset((Role.BOTH, Role.READ, Role.STREAM if streaming else Role.BATCH))
    given.refuse_others(roles, "streaming reads" if streaming else "batch reads")
    partitions, min_partitions, max_records = _partitions(given)
    target = target_of(given)
    found = SourceOptions(
        target,
        _destinations(given),
        read_target=_read_target(given, target),
        group=_group(given),
        starting=given.bound("starting"),
        ending=given.bound("ending"),
        max_rows=given.number("maxRowsPerTrigger"),
        max_bytes=given.size("maxBytesPerTrigger"),
        usual_bytes=0
        if given.is_given("maxRowsPerTrigger") or given.is_given("maxBytesPerTrigger")
        else DEFAULT_MAX_BYTES,
        min_rows=_min_rows(given),
        max_delay=given.seconds("maxTriggerDelay"),
        partitions=partitions,
        min_partitions=min_partitions,
        max_records=max_records,
        fail_on_data_loss=given.boolean("failOnDataLoss"),
        selector=given.text("selector"),
        include_headers=given.boolean("includeHeaders"),
        body_format=_body_format(given),
        mode=given.choice("mode", MODES),
        corrupt=given.required("columnNameOfCorruptRecord"),
    )
    if streaming and found.starting.kind is BoundKind.LATEST and not found.group:
        # Spark asks again where to begin after a crash in its first batch: without a cursor the second answer would skip messages.
        raise UsageError(
            "missing-option",
            "startingOffsets latest in a streaming read needs the option 'group', a cursor that keeps the place",
        )
    return found


def _partitions(given: Given) -> tuple[int, int, int]:
    """The options numPartitions, minPartitions and maxRecordsPerPartition as numbers."""
    most = given.number("numPartitions") if given.is_given("numPartitions") else min(4, cpu_count() or 1)
    least = given.number("minPartitions") if given.is_given("minPartitions") else 1
    if least > most and given.is_given("numPartitions"):
        raise UsageError(
            "bad-option",
            f"option 'minPartitions' is {least}, more than the option 'numPartitions' allows, {most}",
        )
    return (
        most,
        least,
        given.number("maxRecordsPerPartition") if given.is_given("maxRecordsPerPartition") else 0,
    )


def _min_rows(given: Given) -> int:
    if not given.is_given("minRowsPerTrigger"):
        if given.is_given("maxTriggerDelay"):
            raise UsageError(
                "missing-option",
                f"option 'maxTriggerDelay' needs the option 'minRowsPerTrigger': {OPTIONS['minRowsPerTrigger'][2]}",
            )
        return 0
    least, most = given.number("minRowsPerTrigger"), given.number("maxRowsPerTrigger")
    if least > most:
        raise UsageError(
            "bad-option",
            f"option 'minRowsPerTrigger' is {least}, more than the option 'maxRowsPerTrigger' allows, {most}",
        )
    return least


def sink_options(given: Given, *, streaming: bool) -> SinkOptions:
    """The options of a write. Raises UsageError naming the option."""
    given.refuse_others(frozenset((Role.BOTH, Role.WRITE)), "writing")
    sink = given.text("sinkId")
    for name in ("sinkId", "batchId"):
        if streaming and given.is_given(name):
            # With a new checkpoint batches count from 0 again: under an old name they would be taken for replays, and their rows lost.
            raise UsageError(
                "option-not-here",
                f"option {name!r} is for batch writes; a streaming query has an id and numbers its batches itself",
            )
    if given.is_given("batchId") and not sink:
        raise UsageError(
            "missing-option", "option 'batchId' needs the option 'sinkId': " + OPTIONS["sinkId"][2]
        )
    if sink and not given.is_given("batchId"):
        raise UsageError(
            "missing-option", "option 'sinkId' needs the option 'batchId': " + OPTIONS["batchId"][2]
        )
    if "," in given.text("destination"):
        raise _bad("destination", given.text("destination"), "one destination, without comma")
    if CONTROLS.search(given.text("destination")):
        raise _bad("destination", given.text("destination"), "one line of text, without control characters")
    batch = given.number("batchId", least=0) if given.is_given("batchId") else -1
    return SinkOptions(target_of(given), given.text("destination"), sink, batch)


def _body_format(given: Given) -> str:
    if given.text("schema"):
        given.choice("mode", MODES)
        return given.choice("bodyFormat", FORMATS)
    for name in ("bodyFormat", "mode", "columnNameOfCorruptRecord"):
        if given.is_given(name):
            raise UsageError(
                "missing-option", f"option {name!r} needs the option 'schema': {OPTIONS['schema'][2]}"
            )
    return ""


def _destinations(given: Given) -> str:
    names = [name.strip() for name in given.required("destination").split(",")]
    if not all(names):
        raise _bad(
            "destination",
            given.text("destination"),
            "destinations with one comma between them, none of them empty",
        )
    return ",".join(names)


def target_of(given: Given, option: str = "url") -> Target:
    """Where the broker is, or all nodes of its cluster. Raises UsageError naming the option that is wrong."""
    found = parse_place(option, given.required(option))
    return Target(
        found.nodes,
        login=given.text("login") or found.login,
        passcode=given.secret("passcode") or found.passcode,
        virtual_host=given.text("virtualHost") or found.nodes[0][0],
        tls=_tls(given, encrypted=found.is_encrypted),
        request_timeout=given.number("requestTimeout") / 1000,
        reconnect_timeout=given.number("reconnectTimeout", least=0) / 1000,
    )


def _read_target(given: Given, target: Target) -> Target | None:
    """Where messages are read, when that is somewhere else: as the same user on the same virtual host, where its URL names no other."""
    if not given.is_given("readUrl"):
        return None
    found = parse_place("readUrl", given.required("readUrl"))
    if found.is_encrypted is not (target.tls is not None):
        other = "stomp://" if found.is_encrypted else "stomps://"
        raise UsageError(
            "bad-option", f"option 'readUrl' is {redacted(given.text('readUrl'))!r} and the option 'url' begins with "
            f"{other}; expected both with TLS, or none",
        )  # fmt: skip
    return replace(
        target,
        nodes=found.nodes,
        login=found.login or target.login,
        passcode=found.passcode or target.passcode,
        is_spread=True,
        reconnect_timeout=0.0,  # the other one is there
    )


def _tls(given: Given, *, encrypted: bool) -> Tls | None:
    if encrypted:
        return Tls(
            given.text("trustStorePath"),
            given.text("keyStorePath"),
            given.text("keyPath"),
            given.secret("keyStorePassword"),
            given.boolean("verifyHost"),
        )
    for name in ("trustStorePath", "keyStorePath", "keyPath", "keyStorePassword", "verifyHost"):
        if given.is_given(name):
            raise UsageError(
                "option-not-here",
                f"option {name!r} is for TLS; the option 'url' must then begin with stomps://",
            )
    return None
