"""The readers as Spark calls them, without Spark: which offsets, when what is acknowledged, and what survives a crash."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import BinaryType, IntegerType, LongType, MapType, StringType, StructField, StructType

from stompbox.errors import Refused, SelectorError, UsageError
from stompbox.spark.datasource import StompSource
from stompbox.spark.ddl import TYPES
from stompbox.spark.offsets import Extent
from stompbox.spark.source import Ranges, StompReader, StompStreamReader
from tests.spark.fake_broker import ARRIVED, FakeBroker

ALL = ReadAllAvailable()
OFFSET_ONLY = StructType([StructField("offset", LongType())])


def source(fake: FakeBroker, **given: str) -> StompSource:
    """As it arrives in another process."""
    options = {"url": fake.url, "destination": "/topic/flights.#", "reconnectTimeout": "5000", **given}
    found: StompSource = pickle.loads(pickle.dumps(StompSource(options)))
    return found


def reader(fake: FakeBroker, **given: str) -> StompReader:
    return source(fake, **given).reader(schema=OFFSET_ONLY)


def stream(fake: FakeBroker, **given: str) -> StompStreamReader:
    found: StompStreamReader = pickle.loads(
        pickle.dumps(source(fake, **given).streamReader(schema=OFFSET_ONLY))
    )
    return found


def rows(found: StompReader | StompStreamReader, partitions: list[Ranges]) -> list[int]:
    copy = pickle.loads(pickle.dumps(found))
    return [
        row["offset"]
        for part in partitions
        for batch in copy.read(pickle.loads(pickle.dumps(part)))
        for row in batch.to_pylist()
    ]


def fill(fake: FakeBroker, count: int = 10, *, carrier: str = "UA") -> None:
    fake.send(f"/topic/flights.{carrier}", [b"x"] * count)


def committed(fake: FakeBroker) -> list[dict[str, int]]:
    return [json.loads(frame.body) for frame in fake.named("group-commit")]


# The source


def test_the_schema() -> None:
    options = {"url": "stomp://b", "destination": "/topic/a"}
    own = "address string, offset bigint, timestamp timestamp, destination string, headers map<string,string>, body binary"
    assert StompSource(options).schema() == own
    assert (
        StompSource({**options, "schema": "carrier STRING"}).schema().endswith("body binary, carrier STRING")
    )
    assert StompSource.name() == "stomp"
    assert ", ".join(f"{name} {kind}" for name, kind in TYPES.items()) == StompSource(options).schema()


def test_headers_are_left_out_where_nobody_wants_them(fake: FakeBroker) -> None:
    """The column is not there, as in Spark's source for Kafka; who names it all the same is told so."""
    fake.send("/topic/a", [b"x", b"y"], id="1")
    without = source(fake, destination="/topic/a", includeHeaders="FALSE")
    assert without.schema() == source(fake).schema().replace("headers map<string,string>, ", "")
    columns = StructType([StructField("offset", LongType()), StructField("body", BinaryType())])
    reader = without.reader(schema=columns)
    assert [
        row
        for part in reader.partitions()
        for batch in reader.read(part)
        for row in batch.column("body").to_pylist()
    ] == [b"x", b"y"]
    with pytest.raises(UsageError, match="'headers', which the option includeHeaders=false leaves out"):
        without.reader(schema=StructType([StructField("headers", MapType(StringType(), StringType()))]))


@pytest.mark.parametrize(
    ("field", "words"),
    [
        (
            StructField("ofset", LongType()),
            "no column 'ofset' of type bigint; its columns are address string, offset bigint",
        ),
        (StructField("offset", IntegerType()), "no column 'offset' of type int"),
        (StructField("timestamp", StringType()), "no column 'timestamp' of type string"),
    ],
)
def test_schemas_that_are_refused(fake: FakeBroker, field: StructField, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        source(fake).reader(schema=StructType([field]))


def test_bodies_have_types_too(fake: FakeBroker) -> None:
    schema = StructType([StructField("m", MapType(IntegerType(), StringType()))])
    with pytest.raises(UsageError, match="'schema': column 'm'"):
        source(fake, schema="m MAP<INT,STRING>").reader(schema=schema)


def test_wrong_selectors_and_options_are_refused_at_once(fake: FakeBroker) -> None:
    with pytest.raises(SelectorError):
        source(fake, selector="a = ").reader(schema=OFFSET_ONLY)
    with pytest.raises(UsageError, match="did you mean 'group'"):
        source(fake, grup="x")
    assert fake.logins == []


def test_overwriting_is_refused(fake: FakeBroker) -> None:
    with pytest.raises(UsageError, match="mode append"):
        source(fake).writer(schema=OFFSET_ONLY, overwrite=True)


# Batch reads


def test_a_batch(fake: FakeBroker) -> None:
    fill(fake)
    fill(fake, 3, carrier="DL")
    found = reader(fake)
    assert rows(found, found.partitions()) == [0, 1, 2, *range(10)]


def test_a_batch_between_bounds(fake: FakeBroker) -> None:
    fill(fake)
    found = reader(fake, startingOffsets="4", endingOffsets='{"flights.UA": 7}')
    assert rows(found, found.partitions()) == [4, 5, 6]
    found = reader(fake, startingOffsets="7", endingOffsets="4")
    assert found.partitions() == []


def test_a_batch_is_split(fake: FakeBroker) -> None:
    fill(fake, 40_000)
    found = reader(fake, numPartitions="4")
    parts = found.partitions()
    assert [len(part.value[0]) for part in parts] == [10_000] * 4
    assert rows(found, parts) == list(range(40_000))
    assert isinstance(parts, list)


def test_sparks_stand_in_for_no_partitions(fake: FakeBroker) -> None:
    assert list(reader(fake).read(InputPartition(None))) == []


def test_a_batch_of_an_address_that_is_not_there(fake: FakeBroker) -> None:
    with pytest.raises(UsageError, match=r"'destination': /topic/x, /queue/y does not exist") as caught:
        reader(fake, destination="/topic/x,/queue/y,/topic/#").partitions()
    assert caught.value.code == "no-such-address"
    assert fake.logs == {}
    assert reader(fake, destination="/topic/none.#").partitions() == []


# Streams


def test_a_stream_makes_its_address(fake: FakeBroker) -> None:
    assert stream(fake, destination="/topic/new").initialOffset() == {"new": 0}
    assert "new" in fake.logs


def test_a_stream_from_beginning_to_end(fake: FakeBroker) -> None:
    fill(fake)
    found = stream(fake)
    start = found.initialOffset()
    end = found.latestOffset(start, ALL)
    assert (start, end) == ({"flights.UA": 0}, {"flights.UA": 10})
    assert rows(found, found.partitions(start, end)) == list(range(10))
    assert found.latestOffset(end, ALL) == end
    assert found.partitions(end, end) == []


def test_new_addresses_join_from_zero(fake: FakeBroker) -> None:
    fill(fake)
    found = stream(fake, startingOffsets="4")
    start = found.initialOffset()
    fill(fake, 2, carrier="DL")
    end = found.latestOffset(start, ALL)
    assert rows(found, found.partitions(start, end)) == [0, 1, 4, 5, 6, 7, 8, 9]


def test_a_new_address_is_read_from_where_its_log_begins(fake: FakeBroker) -> None:
    """It was there before the query knew of it, and has gone and come back."""
    fill(fake)
    found = stream(fake, group="lake")
    start = found.latestOffset(found.initialOffset(), ALL)
    fill(fake, 4, carrier="DL")
    fake.logs["flights.DL"].trim(4)
    fill(fake, 3, carrier="DL")
    seen = []
    while (end := found.latestOffset(start, ALL)) != start:
        seen += rows(found, found.partitions(start, end))
        start = end
    assert seen == [4, 5, 6]
    assert start == {"flights.DL": 7, "flights.UA": 10}
    assert all(
        offset >= 0 for frame in fake.named("group-commit") for offset in json.loads(frame.body).values()
    )


@pytest.mark.parametrize(
    ("limit", "given", "end"),
    [
        (ReadMaxRows(4), {}, 4),
        (ReadMaxRows(4), {"maxBytesPerTrigger": "1"}, 1),
        (ReadMaxBytes(1), {}, 1),
        (ALL, {"maxBytesPerTrigger": "1"}, 10),
    ],
)
def test_limits(fake: FakeBroker, limit: ReadLimit, given: dict[str, str], end: int) -> None:
    fill(fake)
    assert stream(fake, **given).latestOffset({"flights.UA": 0}, limit) == {"flights.UA": end}


def test_the_limit_is_an_option(fake: FakeBroker) -> None:
    assert stream(fake, maxRowsPerTrigger="7").getDefaultReadLimit() == ReadMaxRows(7)
    assert stream(fake).getDefaultReadLimit() == ReadMaxRows(1_000_000)


@pytest.mark.parametrize(
    ("given", "end", "asked"),
    [
        ({}, 1, 1),
        ({"maxRowsPerTrigger": "7"}, 7, 0),
        ({"maxRowsPerTrigger": "7", "maxBytesPerTrigger": "1"}, 1, 1),
        ({"maxBytesPerTrigger": "1g"}, 10, 1),
    ],
)
def test_where_no_limit_is_given_bytes_are_one(
    fake: FakeBroker, monkeypatch: pytest.MonkeyPatch, given: dict[str, str], end: int, asked: int
) -> None:
    monkeypatch.setattr("stompbox.spark.options.DEFAULT_MAX_BYTES", 1)
    monkeypatch.setattr("stompbox.spark.source.SIZED_ROWS", 9)
    fill(fake)
    found = stream(fake, **given)
    assert found.latestOffset({"flights.UA": 0}, found.getDefaultReadLimit()) == {"flights.UA": end}
    assert sum(b"sizes-from" in frame.body for frame in fake.named("describe")) == asked
    assert stream(fake, **given).latestOffset({"flights.UA": 0}, ALL) == {"flights.UA": 10}


def test_a_small_batch_is_not_measured(fake: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stompbox.spark.options.DEFAULT_MAX_BYTES", 1)
    fill(fake)
    found = stream(fake)
    assert found.latestOffset({"flights.UA": 0}, found.getDefaultReadLimit()) == {"flights.UA": 10}
    assert not [frame for frame in fake.named("describe") if b"sizes-from" in frame.body]


def test_an_address_that_goes_while_a_batch_is_measured_stays_in_it(
    fake: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of it is passed over: its tasks find that it is gone, and the next look says so."""
    fill(fake)
    found = stream(fake)
    monkeypatch.setattr("stompbox.spark.source.SIZED_ROWS", 9)
    looked = found._look

    def look(start: dict[str, int]) -> tuple[dict[str, Extent], dict[str, Extent]]:
        extents, ended = looked(start)
        return {**extents, "flights.gone": Extent(0, 10)}, ended

    monkeypatch.setattr(found, "_look", look)
    assert found.latestOffset({"flights.UA": 0}, found.getDefaultReadLimit()) == {
        "flights.UA": 10,
        "flights.gone": 10,
    }


def test_available_now_ends_where_the_log_ended(fake: FakeBroker) -> None:
    fill(fake)
    found = stream(fake)
    assert isinstance(found, SupportsTriggerAvailableNow)
    found.prepareForTriggerAvailableNow()
    fill(fake)
    fill(fake, carrier="DL")
    end = found.latestOffset({"flights.UA": 0}, ReadMaxRows(6))
    assert end == {"flights.UA": 6}
    assert found.latestOffset(end, ReadMaxRows(6)) == {"flights.UA": 10}
    assert found.latestOffset({"flights.UA": 10}, ReadMaxRows(6)) == {"flights.UA": 10}
    assert found.reportLatestOffset() == {"flights.DL": 10, "flights.UA": 20}


def test_the_group_is_told_what_is_done(fake: FakeBroker) -> None:
    fill(fake)
    found = stream(fake, group="lake")
    start = found.initialOffset()
    assert fake.groups["lake"] == ("/topic/flights.#", {"flights.UA": 0})
    found.latestOffset(start, ReadMaxRows(4))
    # batch 0 is done: Spark may never call commit for it
    found.latestOffset({"flights.UA": 4}, ReadMaxRows(4))
    assert fake.groups["lake"][1] == {"flights.UA": 4}
    found.commit({"flights.UA": 4})
    found.commit({"flights.UA": 8})
    assert committed(fake) == [{"flights.UA": 0}, {"flights.UA": 4}, {"flights.UA": 8}]


def test_without_a_group_nothing_is_told(fake: FakeBroker) -> None:
    fill(fake)
    found = stream(fake)
    found.latestOffset(found.initialOffset(), ALL)
    found.commit({"flights.UA": 10})
    assert fake.named("group-open") == fake.named("group-commit") == []


def test_latest_stays_where_it_was_after_a_crash_in_batch_0(fake: FakeBroker) -> None:
    fill(fake)
    given = {"group": "lake", "startingOffsets": "latest"}
    assert stream(fake, **given).initialOffset() == {"flights.UA": 10}
    fill(fake)
    assert stream(fake, **given).initialOffset() == {"flights.UA": 10}


def test_a_lost_checkpoint_goes_on_from_the_group(fake: FakeBroker) -> None:
    fill(fake)
    stream(fake, group="lake").initialOffset()
    stream(fake, group="lake").commit({"flights.UA": 6})
    assert stream(fake, group="lake").initialOffset() == {"flights.UA": 6}
    fake.groups["lake"][1]["other"] = 3  # a group may have had other destinations
    assert stream(fake, group="lake").initialOffset() == {"flights.UA": 6}


def test_a_lost_group_is_made_where_the_checkpoint_is(fake: FakeBroker) -> None:
    fill(fake)
    found = stream(fake, group="lake")
    end = {"flights.UA": 8}
    assert rows(found, found.partitions({"flights.UA": 6}, end)) == [6, 7]  # after a restart this comes first
    found.latestOffset(end, ALL)
    assert fake.groups["lake"][1] == end


def test_a_time_to_come_needs_a_group(fake: FakeBroker) -> None:
    with pytest.raises(UsageError, match="needs the option 'group'"):
        stream(fake, startingOffsets="2999-01-01T00:00:00Z").initialOffset()


LOSSES: list[tuple[str, dict[str, int], Any]] = [
    ("gone", {"flights.XX": 5, "flights.UA": 0}, {"flights.UA": 10}),
    ("shorter", {"flights.UA": 50}, {"flights.UA": 10}),
    ("trimmed", {"flights.UA": 1}, {"flights.UA": 10}),
]


@pytest.mark.parametrize(("kind", "start", "end"), LOSSES)
def test_losses(fake: FakeBroker, kind: str, start: dict[str, int], end: dict[str, int]) -> None:
    fill(fake, 5)
    fill(fake, 5)
    if kind == "trimmed":
        fake.logs["flights.UA"].trim(5)
    with pytest.raises(Refused, match="failOnDataLoss=false") as caught:
        stream(fake).latestOffset(start, ALL)
    assert caught.value.code == "data-lost"
    found = stream(fake, failOnDataLoss="false")
    assert found.latestOffset(start, ALL) == end
    assert rows(found, found.partitions(start, end)) == (
        list(range(5, 10)) if kind == "trimmed" else list(range(10))
    )


def test_a_log_made_anew_after_planning(fake: FakeBroker) -> None:
    with pytest.raises(Refused, match="was made anew and is shorter than offset 50"):
        stream(fake).partitions({"flights.UA": 50}, {"flights.UA": 10})


def test_partitions_follow_from_the_offsets_alone(fake: FakeBroker) -> None:
    start, end = {"a": 0, "b": 7}, {"a": 30_000, "b": 30_007, "c": 1}
    one, two = stream(fake).partitions(start, end), stream(fake).partitions(start, end)
    assert [part.value for part in one] == [part.value for part in two]
    assert fake.logins == []


def test_stopping_closes_the_connections(fake: FakeBroker) -> None:
    found = stream(fake)
    found.initialOffset()
    found.stop()
    found.initialOffset()
    assert len(fake.logins) == 2


# Where a stream begins, and how much is waited for


def at_seconds(fake: FakeBroker, carrier: str = "UA", seconds: int = 3) -> None:
    for second in range(seconds):
        fake.send(f"/topic/flights.{carrier}", [b"x"] * 2, arrived=ARRIVED + 1000 * second)


def test_a_stream_from_a_time_of_each_address(fake: FakeBroker) -> None:
    for carrier in ("UA", "DL", "AA"):
        at_seconds(fake, carrier)
    given = {
        "startingOffsetsByTimestamp": json.dumps({"flights.UA": ARRIVED + 1, "flights.DL": ARRIVED + 2000})
    }
    expected = {"flights.AA": 0, "flights.DL": 4, "flights.UA": 2}
    assert stream(fake, **given).initialOffset() == expected
    assert stream(fake, **given, group="lake").initialOffset() == expected
    assert fake.groups["lake"][1] == expected


def test_a_stream_from_a_time_that_nothing_came_after(fake: FakeBroker) -> None:
    at_seconds(fake)
    for given in (
        {"startingTimestamp": str(ARRIVED + 9000)},
        {"startingOffsetsByTimestamp": json.dumps({"flights.UA": ARRIVED + 9000})},
    ):
        for group in ({}, {"group": "lake"}):
            with pytest.raises(
                Refused, match=r"no message of 'flights\.UA' arrived at or after 2023-11-14T22:13:29"
            ) as caught:
                stream(fake, **given, **group).initialOffset()
            assert caught.value.code == "no-message-since"
            assert fake.groups == {}, "nothing is left of a start that was refused"
        latest = {**given, "startingOffsetsByTimestampStrategy": "latest"}
        assert stream(fake, **latest).initialOffset() == {"flights.UA": 6}


def test_a_group_that_is_there_wins_over_times(fake: FakeBroker) -> None:
    at_seconds(fake)
    fake.groups["lake"] = ("/topic/flights.#", {"flights.UA": 1})
    at_seconds(fake, "DL")
    given = {"startingTimestamp": str(ARRIVED + 2000), "group": "lake"}
    assert stream(fake, **given).initialOffset() == {"flights.DL": 4, "flights.UA": 1}
    beyond = {
        "startingOffsetsByTimestamp": json.dumps(
            {"flights.UA": ARRIVED + 9000, "flights.DL": ARRIVED + 9000}
        ),
        "group": "lake",
    }
    assert stream(fake, **beyond).initialOffset() == {"flights.DL": 4, "flights.UA": 1}


def test_a_time_in_the_future_needs_a_group(fake: FakeBroker) -> None:
    at_seconds(fake)
    for given in (
        {"startingTimestamp": "9" * 15},
        {"startingOffsetsByTimestamp": '{"flights.UA": %s}' % ("9" * 15)},
    ):
        with pytest.raises(UsageError, match=f"{next(iter(given))} in the future needs the option 'group'"):
            stream(fake, **given, startingOffsetsByTimestampStrategy="latest").initialOffset()


def test_a_batch_between_times(fake: FakeBroker) -> None:
    at_seconds(fake)
    given = {
        "startingTimestamp": str(ARRIVED + 1000),
        "endingTimestamp": str(ARRIVED + 2000),
        "endingOffsetsByTimestamp": "{}",
    }
    found = reader(fake, **given)
    assert rows(found, found.partitions()) == [2, 3]
    found = reader(fake, endingOffsetsByTimestamp=json.dumps({"flights.UA": ARRIVED + 9000}))
    assert rows(found, found.partitions()) == list(range(6)), "where nothing came after, the end"


def test_partitions_as_users_of_kafkas_source_name_them(fake: FakeBroker) -> None:
    fill(fake, 100)
    assert len(reader(fake).partitions()) == 1
    assert [len(part.value[0]) for part in reader(fake, minPartitions="4").partitions()] == [25] * 4
    found = stream(fake, maxRecordsPerPartition="30", numPartitions="1")
    assert [
        sum(map(len, part.value)) for part in found.partitions({"flights.UA": 0}, {"flights.UA": 100})
    ] == [25] * 4


def test_a_micro_batch_waits_until_there_is_enough(fake: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("stompbox.spark.source.time.monotonic", lambda: now)
    found = stream(fake, minRowsPerTrigger="10", maxTriggerDelay="60s")
    limit = found.getDefaultReadLimit()
    fill(fake, 3)
    start = found.latestOffset({"flights.UA": 0}, limit)
    assert start == {"flights.UA": 3}, "the first one comes at once"
    fill(fake, 9)
    now += 59
    assert found.latestOffset(start, limit) == start
    assert found.latestOffset(start, ALL) == {"flights.UA": 12}, "trigger(once=True) takes what there is"
    fill(fake, 1, carrier="DL")
    start = found.latestOffset(start, limit)
    assert start == {"flights.DL": 1, "flights.UA": 12}, "ten rows, of all addresses together"
    fill(fake, 1)
    now += 59
    assert found.latestOffset(start, limit) == start
    now += 1
    assert found.latestOffset(start, limit) == {"flights.DL": 1, "flights.UA": 13}, "the delay has passed"


def test_a_query_of_what_is_there_now_waits_for_nothing(fake: FakeBroker) -> None:
    fill(fake, 25)
    found = stream(fake, minRowsPerTrigger="10", maxRowsPerTrigger="10", group="lake")
    found.prepareForTriggerAvailableNow()
    ends, offset = [], {"flights.UA": 0}
    while (following := found.latestOffset(offset, found.getDefaultReadLimit())) != offset:
        ends.append(following["flights.UA"])
        offset = following
    assert ends == [10, 20, 25]
