"""The options of the data source, as one table: names, who takes them, defaults, what is allowed.

Decides what a user may write and what a refusal says. Option names are read in any case, as Spark does; Spark's own options are let
through, any other unknown name is refused with the nearest known one. Connects to nothing: options are read again in every process
that Spark starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import Enum
from os import cpu_count
from typing import Final
from urllib.parse import unquote, urlsplit

from stompbox.errors import UsageError, redacted
from stompbox.spark.bounds import EARLIEST, LATEST, Bound, parse_bound

DEFAULT_PORT: Final = 61613
DEFAULT_MAX_ROWS: Final = 1_000_000  # a batch of this size spends nine tenths of its time on rows, not on Spark's fixed cost per batch
DEFAULT_MAX_BYTES: Final = 256 << 20  # where neither limit is given: rows may be large
FETCH_BYTES: Final = 4 * 1024 * 1024  # the broker's own limit for one answer
STAGE_BYTES: Final = 4 * 1024 * 1024


class Role(Enum):
    """Who takes an option."""

    BOTH = "reading and writing"
    READ = "reading"
    STREAM = "streaming reads"
    BATCH = "batch reads"
    WRITE = "writing"


FORMATS: Final = ("json", "csv")
MODES: Final = ("PERMISSIVE", "DROPMALFORMED", "FAILFAST")  # as Spark's own readers have them

# name -> (who takes it, default as text, what it means and what is allowed). docs/spark.md shows this table.
OPTIONS: Final[Mapping[str, tuple[Role, str, str]]] = {
    "url": (
        Role.BOTH,
        "",
        "where the broker is: stomp://host:port, with TLS stomps://host:port; user and password may stand before the host",
    ),
    "login": (Role.BOTH, "", "user name"),
    "passcode": (Role.BOTH, "", "password"),
    "virtualHost": (Role.BOTH, "", "the virtual host to connect to; default: the host of the url"),
    "trustStorePath": (Role.BOTH, "", "PEM file of the CAs that may have signed the broker's certificate; default: the system's"),
    "keyStorePath": (Role.BOTH, "", "PEM file of the client's certificate chain, with its key unless keyPath names that"),
    "keyPath": (Role.BOTH, "", "PEM file of the client's key"),
    "keyStorePassword": (Role.BOTH, "", "password of the client's key"),
    "verifyHost": (Role.BOTH, "true", "must the certificate be for the host of the url? true or false"),
    "requestTimeout": (Role.BOTH, "60000", "ms to wait for an answer of the broker before the connection counts as lost"),
    "reconnectTimeout": (Role.BOTH, "30000", "ms to go on trying to reach the broker before the task or query fails"),
    "destination": (
        Role.BOTH,
        "",
        "reading: destinations, several with commas, wildcards * and #; writing: the one for rows without their own",
    ),
    "group": (Role.STREAM, "", "name of a durable cursor on the broker: holds retention back until Spark is past it"),
    "startingOffsets": (Role.READ, "earliest", "where a new query or a batch begins"),
    "endingOffsets": (Role.BATCH, "latest", "where a batch ends, exclusive"),
    "maxRowsPerTrigger": (Role.STREAM, str(DEFAULT_MAX_ROWS), "rows, at most, in one micro-batch"),
    "maxBytesPerTrigger": (
        Role.STREAM,
        "",
        "bytes, about and at most, in one micro-batch, as 64m or a number; default: 256m, none where maxRowsPerTrigger is given",
    ),
    "numPartitions": (Role.READ, "", "tasks, at most, that read at the same time; default: processors of the driver, 4 at most"),
    "failOnDataLoss": (Role.READ, "true", "fail when messages to read are no longer there? true or false: go on with those that are"),
    "selector": (Role.READ, "", "only messages that this selector (SQL-92 on headers) accepts"),
    "schema": (Role.READ, "", "columns to decode from the body, as Spark DDL: carrier STRING, delay INT"),
    "bodyFormat": (Role.READ, "json", "how the body is written that schema decodes: json or csv"),
    "mode": (Role.READ, "PERMISSIVE", "what becomes of rows whose body schema cannot decode: PERMISSIVE, DROPMALFORMED or FAILFAST"),
    "columnNameOfCorruptRecord": (Role.READ, "_corrupt_record", "the column of schema that gets the text of such bodies, if it names one"),
    "sinkId": (
        Role.WRITE,
        "",
        "batch writes: name under which the broker remembers batchId; a streaming query is remembered by its own id",
    ),
    "batchId": (Role.WRITE, "", "number of a batch write with sinkId (inside foreachBatch): an equal or lower one is not published again"),
}

# What Spark itself, its SQL catalogs and its pipelines put among the options of a source or a sink.
SPARK_OPTIONS: Final = frozenset(
    (
        "path", "queryname", "checkpointlocation", "outputmode", "mode", "mergeschema", "triggerinterval",
        "asyncprogresstrackingenabled", "asyncprogresstrackingcheckpointintervalms", "provider", "location", "comment", "owner",
        "external", "is_managed_location", "collation", "serialization.format", "recursivefilelookup", "basepath",
    )
)  # fmt: skip
_SPARK_PREFIXES: Final = ("spark.", "__", "option.", "view.", "pipelines.")

_TLS_SCHEMES: Final = frozenset(("stomps", "stomp+ssl", "stomp+tls", "ssl", "tls"))
_PLAIN_SCHEMES: Final = frozenset(("stomp", "tcp"))
_UNITS: Final = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_BOOLEANS: Final = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Tls:
    """How the connection is encrypted and who vouches for whom. Paths are of PEM files, as the worker sees them."""

    trust_store: str = ""
    key_store: str = ""
    key: str = ""
    password: str = field(default="", repr=False)
    verify_host: bool = True


@dataclass(frozen=True, slots=True)
class Target:
    """The broker and how to log in. Equal targets share connections."""

    host: str
    port: int
    login: str = ""
    passcode: str = field(default="", repr=False)
    virtual_host: str = ""
    tls: Tls | None = None
    request_timeout: float = 60.0  # s
    reconnect_timeout: float = 30.0  # s

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'stomps' if self.tls else 'stomp'}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class SourceOptions:
    target: Target
    destination: str
    group: str = ""
    starting: Bound = EARLIEST
    ending: Bound = LATEST
    max_rows: int = DEFAULT_MAX_ROWS
    max_bytes: int = 0  # 0: no limit
    usual_bytes: int = 0  # the limit where none was given: looked at only when much waits; 0: one was given
    partitions: int = 2
    fail_on_data_loss: bool = True
    selector: str = ""
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

    __slots__ = ("_values",)

    def __init__(self, options: Mapping[str, str]) -> None:
        known = {name.lower(): name for name in OPTIONS}
        self._values: Final[dict[str, str]] = {}
        for name, value in options.items():
            lower = name.lower()
            if lower in known:
                self._values[known[lower]] = value
            elif lower not in SPARK_OPTIONS and not lower.startswith(_SPARK_PREFIXES):
                raise UsageError("unknown-option", f"option {name!r} of format stomp is not known{_nearest(lower, known)}")

    def refuse_others(self, roles: frozenset[Role], doing: str) -> None:
        for name in self._values:
            if OPTIONS[name][0] not in roles and name.lower() not in SPARK_OPTIONS:  # `mode` of a write is Spark's own
                allowed = ", ".join(name for name, (role, *_) in OPTIONS.items() if role in roles)
                raise UsageError(
                    "option-not-here", f"option {name!r} is for {OPTIONS[name][0].value}, not for {doing}; allowed are {allowed}"
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
        if not (given.isascii() and given.isdigit() and len(given) <= 18) or int(given) < least:
            raise _bad(name, given, f"whole numbers from {least} on")
        return int(given)

    def size(self, name: str) -> int:
        """Bytes; 0 when nothing was given."""
        given = self.text(name).lower()
        if not given:
            return 0
        digits = given.rstrip("bkmgi ")
        unit = given[len(digits) :].strip().removesuffix("b").removesuffix("i")
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 15) or unit not in _UNITS or not int(digits):
            raise _bad(name, given, "a number of bytes above 0, or one with the unit k, m or g")
        return int(digits) * _UNITS[unit]

    def choice(self, name: str, allowed: tuple[str, ...]) -> str:
        """One of these, in any case."""
        given = self.text(name)
        found = next((value for value in allowed if value.lower() == given.lower()), None)
        if found is None:
            raise _bad(name, given, f"{', '.join(allowed[:-1])} and {allowed[-1]}")
        return found

    def bound(self, name: str) -> Bound:
        return parse_bound(name, self.text(name))


def _nearest(name: str, known: Mapping[str, str]) -> str:
    found = get_close_matches(name, known, n=1)
    return f"; did you mean {known[found[0]]!r}?" if found else f"; known are {', '.join(known.values())}"


def _bad(name: str, given: str, allowed: str) -> UsageError:
    return UsageError("bad-option", f"option {name!r} is {given[:80]!r}; allowed are {allowed}")


def check_reading(given: Given) -> Given:
    """Raises UsageError naming an option that is wrong for batch reads and streams alike."""
    given.refuse_others(frozenset((Role.BOTH, Role.READ, Role.STREAM, Role.BATCH)), "reading")
    target_of(given)
    _destinations(given)
    for name in ("startingOffsets", "endingOffsets"):
        given.bound(name)
    given.boolean("failOnDataLoss")
    if given.is_given("numPartitions"):
        given.number("numPartitions")
    _body_format(given)
    return given


def source_options(given: Given, *, streaming: bool) -> SourceOptions:
    """The options of a read. Raises UsageError naming the option."""
    roles = frozenset((Role.BOTH, Role.READ, Role.STREAM if streaming else Role.BATCH))
    given.refuse_others(roles, "streaming reads" if streaming else "batch reads")
    found = SourceOptions(
        target_of(given),
        _destinations(given),
        group=given.text("group"),
        starting=given.bound("startingOffsets"),
        ending=given.bound("endingOffsets"),
        max_rows=given.number("maxRowsPerTrigger"),
        max_bytes=given.size("maxBytesPerTrigger"),
        usual_bytes=0 if given.is_given("maxRowsPerTrigger") or given.is_given("maxBytesPerTrigger") else DEFAULT_MAX_BYTES,
        partitions=given.number("numPartitions") if given.is_given("numPartitions") else min(4, cpu_count() or 1),
        fail_on_data_loss=given.boolean("failOnDataLoss"),
        selector=given.text("selector"),
        body_format=_body_format(given),
        mode=given.choice("mode", MODES),
        corrupt=given.required("columnNameOfCorruptRecord"),
    )
    if streaming and found.starting == LATEST and not found.group:
        # Spark asks again where to begin after a crash in its first batch: without a cursor the second answer would skip messages.
        raise UsageError(
            "missing-option", "startingOffsets latest in a streaming read needs the option 'group', a cursor that keeps the place"
        )
    return found


def sink_options(given: Given, *, streaming: bool) -> SinkOptions:
    """The options of a write. Raises UsageError naming the option."""
    given.refuse_others(frozenset((Role.BOTH, Role.WRITE)), "writing")
    sink = given.text("sinkId")
    for name in ("sinkId", "batchId"):
        if streaming and given.is_given(name):
            # With a new checkpoint batches count from 0 again: under an old name they would be taken for replays, and their rows lost.
            raise UsageError(
                "option-not-here", f"option {name!r} is for batch writes; a streaming query has an id and numbers its batches itself"
            )
    if given.is_given("batchId") and not sink:
        raise UsageError("missing-option", "option 'batchId' needs the option 'sinkId': " + OPTIONS["sinkId"][2])
    if sink and not given.is_given("batchId"):
        raise UsageError("missing-option", "option 'sinkId' needs the option 'batchId': " + OPTIONS["batchId"][2])
    if "," in given.text("destination"):
        raise _bad("destination", given.text("destination"), "one destination, without comma")
    batch = given.number("batchId", least=0) if given.is_given("batchId") else -1
    return SinkOptions(target_of(given), given.text("destination"), sink, batch)


def _body_format(given: Given) -> str:
    if given.text("schema"):
        given.choice("mode", MODES)
        return given.choice("bodyFormat", FORMATS)
    for name in ("bodyFormat", "mode", "columnNameOfCorruptRecord"):
        if given.is_given(name):
            raise UsageError("missing-option", f"option {name!r} needs the option 'schema': {OPTIONS['schema'][2]}")
    return ""


def _destinations(given: Given) -> str:
    names = [name.strip() for name in given.required("destination").split(",")]
    if not all(names):
        raise _bad("destination", given.text("destination"), "destinations with one comma between them, none of them empty")
    return ",".join(names)


def target_of(given: Given) -> Target:
    """Where the broker is. Raises UsageError naming the option that is wrong."""
    url = given.required("url")
    try:
        parts = urlsplit(url)
        port = parts.port or DEFAULT_PORT
        (parts.hostname or "").encode("idna")
    except ValueError as fault:  # whose text may show a piece of the passcode
        text = "host and port cannot be read; a passcode has / ? # @ as %2F %3F %23 %40" if "@" in url else str(fault)
        raise UsageError("bad-option", f"option 'url' is not a URL: {redacted(url)!r}: {text}") from None
    if parts.scheme not in _TLS_SCHEMES | _PLAIN_SCHEMES or not parts.hostname:
        raise _bad("url", redacted(url), "stomp://host:port and stomps://host:port")
    return Target(
        parts.hostname,
        port,
        login=given.text("login") or unquote(parts.username or ""),
        passcode=given.secret("passcode") or unquote(parts.password or ""),
        virtual_host=given.text("virtualHost") or parts.hostname,
        tls=_tls(given, encrypted=parts.scheme in _TLS_SCHEMES),
        request_timeout=given.number("requestTimeout") / 1000,
        reconnect_timeout=given.number("reconnectTimeout", least=0) / 1000,
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
            raise UsageError("option-not-here", f"option {name!r} is for TLS; the option 'url' must then begin with stomps://")
    return None
