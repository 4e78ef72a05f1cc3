"""What options are taken, and what a refusal says."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from stompbox.errors import UsageError
from stompbox.spark.bounds import Bound, BoundKind
from stompbox.spark.options import OPTIONS, Given, SinkOptions, SourceOptions, sink_options, source_options

URL = {"url": "stomp://broker:1234"}
READ = {**URL, "destination": "/topic/a"}


def source(*, streaming: bool = False, **given: str) -> SourceOptions:
    return source_options(Given({**READ, **given}), streaming=streaming)


def sink(*, streaming: bool = False, **given: str) -> SinkOptions:
    return sink_options(Given({**URL, **given}), streaming=streaming)


def test_defaults_of_a_read() -> None:
    found = source()
    assert (*found.target.nodes[0], found.target.tls, found.target.virtual_host) == (
        "broker",
        1234,
        None,
        "broker",
    )
    assert (found.starting.kind, found.ending.kind, found.fail_on_data_loss) == (
        BoundKind.EARLIEST,
        BoundKind.LATEST,
        True,
    )
    assert (found.max_rows, found.max_bytes, found.usual_bytes) == (1_000_000, 0, 256 << 20)
    assert 1 <= found.partitions <= 4


def test_names_are_read_in_any_case() -> None:
    found = source_options(
        Given({"URL": "stomp://b", "Destination": "/queue/x", "MAXROWSPERTRIGGER": "7"}), streaming=True
    )
    assert (found.destination, found.max_rows, found.target.nodes[0][1]) == ("/queue/x", 7, 61613)
    assert found.usual_bytes == 0, "who says one limit has no other"


@pytest.mark.parametrize(
    "name",
    ["queryName", "checkpointLocation", "path", "spark.sql.shuffle.partitions", "__internal", "outputMode"],
)
def test_sparks_own_options_are_let_through(name: str) -> None:
    assert source(**{name: "x"}).destination == "/topic/a"


REFUSED = [  # options of a batch read, code, words of the text
    ({"destinations": "/topic/a"}, "unknown-option", ["'destinations'", "did you mean 'destination'?"]),
    ({"frobnicate": "1"}, "unknown-option", ["'frobnicate'", "known are url, "]),
    ({"group": "lake"}, "option-not-here", ["'group'", "streaming reads", "not for batch reads"]),
    ({"sinkId": "x"}, "option-not-here", ["'sinkId'", "writing"]),
    (
        {"maxOffsetsPerTrigger": "5"},
        "option-not-here",
        ["option 'maxOffsetsPerTrigger' is", "streaming reads"],
    ),
    ({"url": "http://broker"}, "bad-option", ["'url'", "'http://broker'", "stomps://host:port"]),
    ({"url": "stomp://u:secret@"}, "bad-option", ["'url'"]),
    ({"url": "stomp://broker:99999"}, "bad-option", ["'url'"]),
    (
        {"url": "unix:///run/s"},
        "bad-option",
        ["'url'", "'unix:///run/s' is a file of one machine", "stomp://host:port"],
    ),
    ({"url": ""}, "missing-option", ["'url'"]),
    ({"url": "stomp://a,,b"}, "bad-option", ["'url'", "'stomp://a,,b'", "host:port,host:port"]),
    ({"url": "stomp://a,b:x"}, "bad-option", ["'url'", "'stomp://a,b:x'"]),
    ({"url": "stomp://a,b,a:61613"}, "bad-option", ["'url' names a:61613 twice"]),
    ({"readUrl": "http://a"}, "bad-option", ["'readUrl'", "'http://a'"]),
    ({"readUrl": "stomps://a"}, "bad-option", ["'readUrl'", "'stomps://a'", "both with TLS, or none"]),
    ({"destination": ""}, "missing-option", ["'destination'"]),
    ({"destination": "/topic/a,,/topic/b"}, "bad-option", ["'destination'"]),
    ({"numPartitions": "0"}, "bad-option", ["'numPartitions'", "from 1 on"]),
    ({"numPartitions": "-1"}, "bad-option", ["'numPartitions'"]),
    ({"numPartitions": "٣"}, "bad-option", ["'numPartitions'"]),
    ({"failOnDataLoss": "yes"}, "bad-option", ["'failOnDataLoss'", "'yes'", "true and false"]),
    ({"includeHeaders": "no"}, "bad-option", ["'includeHeaders'", "'no'", "true and false"]),
    ({"bodyFormat": "json"}, "missing-option", ["'bodyFormat'", "'schema'"]),
    ({"bodyFormat": "xml", "schema": "a INT"}, "bad-option", ["'bodyFormat'", "'xml'", "json and csv"]),
    ({"startingOffsets": "newest"}, "bad-option", ["'startingOffsets'", "earliest, latest"]),
    ({"startingTimestamp": "soon"}, "bad-option", ["'startingTimestamp'", "'soon'", "ms since 1970"]),
    ({"endingTimestamp": "soon"}, "bad-option", ["'endingTimestamp'", "'soon'"]),
    (
        {"startingOffsetsByTimestamp": "7"},
        "bad-option",
        ["'startingOffsetsByTimestamp'", "'7'", "JSON object"],
    ),
    ({"endingOffsetsByTimestamp": "7"}, "bad-option", ["'endingOffsetsByTimestamp'"]),
    (
        {"startingTimestamp": "7", "startingOffsets": "newest"},
        "bad-option",
        ["'startingOffsets'", "'newest'"],
    ),
    (
        {"startingTimestamp": "7", "startingOffsetsByTimestampStrategy": "old"},
        "bad-option",
        ["Strategy'", "'old'", "error and latest"],
    ),
    (
        {"startingOffsetsByTimestampStrategy": "latest"},
        "missing-option",
        ["Strategy'", "'startingTimestamp'"],
    ),
    ({"minPartitions": "0"}, "bad-option", ["'minPartitions'", "'0'", "from 1 on"]),
    (
        {"minPartitions": "5", "numPartitions": "4"},
        "bad-option",
        ["'minPartitions' is 5", "'numPartitions' allows, 4"],
    ),
    ({"maxRecordsPerPartition": "many"}, "bad-option", ["'maxRecordsPerPartition'", "'many'"]),
    ({"trustStorePath": "ca.pem"}, "option-not-here", ["'trustStorePath'", "stomps://"]),
]


@pytest.mark.parametrize(("given", "code", "words"), REFUSED)
def test_what_is_refused_is_named(given: dict[str, str], code: str, words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        source(**given)
    assert caught.value.code == code
    for word in words:
        assert word in caught.value.message
    assert "secret" not in caught.value.message


def test_endings_are_for_batches() -> None:
    with pytest.raises(UsageError, match=r"'endingOffsets' is for batch reads, not for streaming reads"):
        source(streaming=True, endingOffsets="latest")


def test_latest_in_a_stream_needs_a_group() -> None:
    with pytest.raises(UsageError, match=r"needs the option 'group'"):
        source(streaming=True, startingOffsets="latest")
    assert source(streaming=True, startingOffsets="latest", group="lake").starting.kind is BoundKind.LATEST
    assert source(startingOffsets="latest").starting.kind is BoundKind.LATEST


@pytest.mark.parametrize(
    ("text", "size"),
    [("", 0), ("5", 5), ("64k", 65536), ("2m", 2 << 20), ("1 GiB", 1 << 30), ("3mb", 3 << 20)],
)
def test_sizes(text: str, size: int) -> None:
    assert source(streaming=True, maxBytesPerTrigger=text).max_bytes == size


@pytest.mark.parametrize("text", ["0", "m", "-5", "5x", "5.5m"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="maxBytesPerTrigger"):
        source(streaming=True, maxBytesPerTrigger=text)


def test_login_of_the_url_and_of_the_options() -> None:
    target = source(url="stomp://ann:p%40ss@broker").target
    assert (target.login, target.passcode) == ("ann", "p@ss")
    target = source(url="stomp://ann:x@broker", login="bob", passcode=" y ").target
    assert (target.login, target.passcode) == ("bob", " y ")
    assert " y " not in repr(target)
    assert str(target) == "stomp://broker:61613"


def test_tls(tmp_path: Path) -> None:
    target = source(
        url="stomps://[::1]:7",
        trustStorePath="ca.pem",
        keyStorePath="me.pem",
        keyStorePassword="x",
        verifyHost="false",
    ).target
    assert target.tls is not None
    assert (target.tls.trust_store, target.tls.key_store, target.tls.password, target.tls.verify_host) == (
        "ca.pem",
        "me.pem",
        "x",
        False,
    )
    assert str(target) == "stomps://[::1]:7"


def test_targets_are_keys_of_the_cache() -> None:
    assert {source().target: 1}[source(numPartitions="9").target] == 1


def test_sinks() -> None:
    assert sink(streaming=True, destination="/queue/x").batch == -1
    found = sink(sinkId="s", batchId="0", destination="/queue/x")
    assert (found.sink, found.batch, found.destination) == ("s", 0, "/queue/x")


@pytest.mark.parametrize(
    ("streaming", "given", "words"),
    [
        (True, {"batchId": "1"}, "'batchId' is for batch writes"),
        (True, {"sinkId": "x"}, "'sinkId' is for batch writes"),
        (False, {"batchId": "1"}, "'batchId' needs the option 'sinkId'"),
        (False, {"sinkId": "x"}, "'sinkId' needs the option 'batchId'"),
        (False, {"destination": "/queue/a,/queue/b"}, "without comma"),
        (False, {"startingOffsets": "0"}, "'startingOffsets' is for reading, not for writing"),
    ],
)
def test_sinks_refuse(streaming: bool, given: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        sink(streaming=streaming, **given)


def test_options_are_pickled_into_tasks() -> None:
    found = source(streaming=True, startingOffsets='{"a": 3}', url="stomps://b")
    assert pickle.loads(pickle.dumps(found)) == found
    assert found.starting == Bound(BoundKind.EACH, each=(("a", 3),))


def test_every_option_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
    assert [name for name in OPTIONS if f"`{name}`" not in page] == []


REFUSED_STREAMS = [
    ({"minRowsPerTrigger": "0"}, "bad-option", ["'minRowsPerTrigger'", "'0'", "from 1 on"]),
    (
        {"minRowsPerTrigger": "11", "maxRowsPerTrigger": "10"},
        "bad-option",
        ["'minRowsPerTrigger' is 11", "'maxRowsPerTrigger' allows, 10"],
    ),
    ({"minRowsPerTrigger": "2000000"}, "bad-option", ["'maxRowsPerTrigger' allows, 1000000"]),
    (
        {"minRowsPerTrigger": "5", "maxTriggerDelay": "soon"},
        "bad-option",
        ["'maxTriggerDelay'", "'soon'", "ms, s, m, h or d"],
    ),
    ({"minRowsPerTrigger": "5", "maxTriggerDelay": "1.5s"}, "bad-option", ["'maxTriggerDelay'", "'1.5s'"]),
    ({"group": "a\nb"}, "bad-option", ["'group'", "control characters"]),
    ({"maxoffsetspertrigger": "x"}, "bad-option", ["option 'maxOffsetsPerTrigger' is 'x'"]),
    ({"maxTriggerDelay": "1s"}, "missing-option", ["'maxTriggerDelay'", "'minRowsPerTrigger'"]),
    (
        {"minRowsPerTrigger": "5", "minOffsetsPerTrigger": "6"},
        "bad-option",
        ["'minRowsPerTrigger'", "'minOffsetsPerTrigger'", "twice"],
    ),
    ({"endingTimestamp": "7"}, "option-not-here", ["'endingTimestamp'", "batch reads"]),
    ({"endingOffsetsByTimestamp": "{}"}, "option-not-here", ["'endingOffsetsByTimestamp'", "batch reads"]),
]


@pytest.mark.parametrize(("given", "code", "words"), REFUSED_STREAMS)
def test_what_is_refused_in_a_stream_is_named(given: dict[str, str], code: str, words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        source(streaming=True, **given)
    assert caught.value.code == code
    for word in words:
        assert word in caught.value.message


def test_names_of_sparks_source_for_kafka() -> None:
    found = source(streaming=True, minOffsetsPerTrigger="5", maxoffsetspertrigger="10", maxTriggerDelay="2m")
    assert (found.min_rows, found.max_rows, found.max_delay, found.usual_bytes) == (5, 10, 120.0, 0)
    assert source(streaming=True, minRowsPerTrigger="5").max_delay == 900


DURATIONS = [
    ("1500", 1.5),
    ("1500ms", 1.5),
    ("2s", 2),
    ("15 min", 900),
    ("1h", 3600),
    ("1D", 86400),
    ("5us", 5e-6),
]


@pytest.mark.parametrize(("text", "seconds"), DURATIONS)
def test_durations(text: str, seconds: float) -> None:
    assert source(streaming=True, minRowsPerTrigger="5", maxTriggerDelay=text).max_delay == pytest.approx(
        seconds
    )


def test_which_of_three_says_where_to_begin() -> None:
    given = {"startingOffsets": "latest"}
    assert source(**given).starting.kind is BoundKind.LATEST
    given["startingOffsetsByTimestamp"] = '{"a": 5}'
    assert source(**given).starting == Bound(BoundKind.TIMES, each=(("a", 5),), must_match=True)
    given["startingTimestamp"] = "7"
    assert source(**given).starting == Bound(BoundKind.TIME, 7, must_match=True)
    assert source(**given, startingOffsetsByTimestampStrategy="Latest").starting == Bound(BoundKind.TIME, 7)
    assert source(endingOffsetsByTimestamp='{"a": 5}', endingTimestamp="7").ending == Bound(BoundKind.TIME, 7)
