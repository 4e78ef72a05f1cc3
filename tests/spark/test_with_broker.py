"""A real Spark and the real broker in a process of its own: restarts, what is lost and what is not, rights, other readers of the tables."""

from __future__ import annotations

import dataclasses
import json
import pickle
import random
import shutil
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import duckdb
from pyarrow import dataset
from pyspark.errors import AnalysisException, PythonException, StreamingQueryException
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from stompbox import blocking
from stompbox.errors import Refused
from stompbox.spark import reading
from stompbox.spark.bounds import EARLIEST
from stompbox.spark.datasource import StompSource
from stompbox.spark.link import Answer, forget, leased
from stompbox.spark.offsets import OffsetRange, number_of
from stompbox.spark.options import Given, source_options, target_of
from stompbox.spark.reading import View, batches
from stompbox.spark.requests import Fetched, describe, fetched, open_group
from stompbox.spark.targets import Target
from stompbox.store.chunks import verify
from tests.admin.asking import post
from tests.conftest import Serve, Served
from tests.spark.fake_broker import PEM
from tests.users import users

WITHIN = 120  # seconds, for one query
USERS = """
[[permission]]
match = "open.#"
consume = ["readers"]
send = ["readers"]
create-address = ["readers"]
create-durable-queue = ["readers"]
""" + users("lake:secret@readers")


@pytest.fixture
def served(serve: Serve) -> Iterator[Served]:
    yield serve("--listen", "tcp://127.0.0.1:0", "--no-admin")
    forget()


@pytest.fixture
def url(served: Served) -> str:
    return f"stomp://{served.host}:{served.port}"


def target(url: str, **given: str) -> Target:
    return target_of(Given({"url": url, **given}))


def hold(url: str, group: str, destinations: str) -> dict[str, int]:
    """A group, made where it is not there: its positions."""
    with leased(target(url)) as link:
        return open_group(link, group, destinations, EARLIEST)


def send(url: str, destination: str, numbers: range) -> None:
    with blocking.connect(url) as client:
        for number in numbers:
            client.send(
                destination,
                b'{"n": %d}' % number,
                headers={"id": str(number), "parity": ("even", "odd")[number % 2]},
            )


def consume(url: str, destination: str, count: int) -> None:
    with blocking.connect(url) as client, client.subscribe(destination, ack="client-individual") as messages:
        for _, message in zip(range(count), messages.iterate(timeout=WITHIN), strict=False):
            message.ack()


def archived(spark: Any, folder: Path, url: str, destination: str, **given: str) -> None:
    """All that is there, in batches of 10 rows, from where the checkpoint is."""
    options = {"url": url, "destination": destination, "maxRowsPerTrigger": "10", **given}
    writer = spark.readStream.format("stomp").options(**options).load().writeStream.format("parquet")
    writer = writer.option("path", str(folder / "table")).option(
        "checkpointLocation", str(folder / "checkpoint")
    )
    assert writer.trigger(availableNow=True).start().awaitTermination(WITHIN)


def offsets(spark: Any, folder: Path) -> list[int]:
    return sorted(row.offset for row in spark.read.parquet(str(folder / "table")).select("offset").collect())


def test_from_its_checkpoint_and_from_a_lost_one(spark: Any, url: str, tmp_path: Path) -> None:
    hold(url, "lake", "/topic/f.#")
    send(url, "/topic/f.a", range(25))
    archived(spark, tmp_path, url, "/topic/f.#", group="lake")
    assert hold(url, "lake", "/topic/f.#") == {"f.a": 25}
    send(url, "/topic/f.a", range(25, 30))
    archived(spark, tmp_path, url, "/topic/f.#", group="lake")
    assert offsets(spark, tmp_path) == list(range(30))
    send(url, "/topic/f.a", range(30, 40))
    shutil.rmtree(tmp_path / "checkpoint")
    shutil.rmtree(tmp_path / "table")
    archived(spark, tmp_path, url, "/topic/f.#", group="lake")
    assert offsets(spark, tmp_path) == list(range(30, 40))


def test_messages_that_went_before_they_were_read(
    spark: Any, url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with blocking.connect(url) as client:  # somebody holds the queue before Spark comes
        client.send("/queue/q", b"first")
    archived(spark, tmp_path, url, "/queue/q")
    send(url, "/queue/q", range(30))
    consume(url, "/queue/q", 21)
    with pytest.raises(
        StreamingQueryException, match=r"offsets 1 to 20 of 'q' were deleted.*failOnDataLoss=false.*'group'"
    ):
        archived(spark, tmp_path, url, "/queue/q")
    archived(spark, tmp_path, url, "/queue/q", failOnDataLoss="false")
    assert offsets(spark, tmp_path) == [0, *range(21, 31)]
    options = source_options(
        Given({"url": url, "destination": "/queue/q", "failOnDataLoss": "false"}), streaming=True
    )
    found = [
        row
        for batch in batches(options, [OffsetRange("q", 1, 31)], View(("offset",)))
        for row in batch.to_pylist()
    ]
    assert [row["offset"] for row in found] == list(range(21, 31))
    assert caplog.messages == [
        "offsets 1 to 20 of 'q' were deleted before they were read; skipped 20 offsets (failOnDataLoss=false)"
    ]


def test_retention_passes_a_reader_without_a_group(spark: Any, serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "kept.toml").write_text('[[address-setting]]\nmatch = "kept.#"\nretention-messages = 10\n')
    served = serve("--listen", "tcp://127.0.0.1:0", "--no-admin", "--config", str(tmp_path / "kept.toml"))
    url = f"stomp://{served.host}:{served.port}"
    hold(url, "lake", "/topic/kept.held")
    for destination in ("/topic/kept.a", "/topic/kept.held"):
        send(url, destination, range(5))
    archived(spark, tmp_path / "a", url, "/topic/kept.a")
    for destination in ("/topic/kept.a", "/topic/kept.held"):
        send(url, destination, range(5, 40))
    with leased(target(url)) as link:
        first = describe(link, "/topic/kept.a", create=False).extents["kept.a"].first
    assert 5 < first <= 30
    with pytest.raises(StreamingQueryException, match=f"offsets 5 to {first - 1} of 'kept.a' were deleted"):
        archived(spark, tmp_path / "a", url, "/topic/kept.a")
    archived(spark, tmp_path / "a", url, "/topic/kept.a", failOnDataLoss="false")
    assert offsets(spark, tmp_path / "a") == [*range(5), *range(first, 40)]
    archived(spark, tmp_path / "held", url, "/topic/kept.held", group="lake")
    assert offsets(spark, tmp_path / "held") == list(range(40))


def test_another_log_that_is_longer_than_the_checkpoint(
    spark: Any, serve: Serve, url: str, tmp_path: Path
) -> None:
    """The broker's data folder was lost."""
    hold(url, "lake", "/topic/f.a")
    send(url, "/topic/f.a", range(15))
    archived(spark, tmp_path, url, "/topic/f.a", group="lake")
    other = serve("--listen", "tcp://127.0.0.1:0", "--no-admin", "--data", str(tmp_path / "empty"))
    anew = f"stomp://{other.host}:{other.port}"
    send(anew, "/queue/f.a", range(40))
    words = r"the log of 'f\.a' is another one: offset 15 of incarnation \w+ was expected, there is incarnation \w+ with offsets 0 to 40"
    with pytest.raises(StreamingQueryException, match=words):
        archived(spark, tmp_path, anew, "/queue/f.a")
    archived(spark, tmp_path, anew, "/queue/f.a", failOnDataLoss="false")
    assert offsets(spark, tmp_path) == sorted([*range(15), *range(40)])


def numbers_of(spark: Any, folder: Path) -> list[tuple[str, int]]:
    return sorted(
        (row.address, row.offset)
        for row in spark.read.parquet(str(folder / "table")).select("address", "offset").collect()
    )


@pytest.mark.parametrize("given", [{"group": "lake"}, {}], ids=["with a group", "without"])
def test_an_address_that_was_deleted_ends_no_query_for_good(
    spark: Any, serve: Serve, tmp_path: Path, given: dict[str, str]
) -> None:
    """With messages that nobody has read: an error, or what is there."""
    served = serve("--listen", "tcp://127.0.0.1:0", "--admin", "127.0.0.1:0")
    url = f"stomp://{served.host}:{served.port}"
    for name in ("a", "b"):
        send(url, f"/queue/gone.{name}", range(5))
    archived(spark, tmp_path, url, "/queue/gone.#", **given)
    for name in ("a", "b"):
        send(url, f"/queue/gone.{name}", range(5, 8))
    assert post(served.admin, "addresses/delete", {"address": "gone.a", "is_forced": True}).json["is_deleted"]
    with pytest.raises(
        StreamingQueryException,
        match=r"address 'gone\.a' is gone from the broker.* had ended at 8.*failOnDataLoss=false",
    ):
        archived(spark, tmp_path, url, "/queue/gone.#", **given)
    archived(spark, tmp_path, url, "/queue/gone.#", failOnDataLoss="false", **given)
    send(url, "/queue/gone.b", range(8, 10))
    archived(spark, tmp_path, url, "/queue/gone.#", **given)
    assert numbers_of(spark, tmp_path) == [
        *(("gone.a", at) for at in range(5)),
        *(("gone.b", at) for at in range(10)),
    ]


def test_a_queue_that_went_when_all_was_read_is_no_loss(spark: Any, serve: Serve, tmp_path: Path) -> None:
    """A wildcard without a group; another address goes on."""
    (tmp_path / "going.toml").write_text(
        '[[address-setting]]\nmatch = "#"\nauto-delete-queues = true\nauto-delete-addresses = true\n'
    )
    served = serve("--listen", "tcp://127.0.0.1:0", "--no-admin", "--config", str(tmp_path / "going.toml"))
    url = f"stomp://{served.host}:{served.port}"
    for name in ("a", "b"):
        send(url, f"/queue/went.{name}", range(5))
    archived(spark, tmp_path, url, "/queue/went.#")
    consume(url, "/queue/went.a", 5)
    deadline = time.monotonic() + WITHIN
    with leased(target(url)) as link:
        while "went.a" in describe(link, "/queue/went.#", create=False).extents:
            assert time.monotonic() < deadline, "it does not go"
    send(url, "/queue/went.b", range(5, 7))
    archived(spark, tmp_path, url, "/queue/went.#")
    assert numbers_of(spark, tmp_path) == [
        *(("went.a", at) for at in range(5)),
        *(("went.b", at) for at in range(7)),
    ]


def test_where_a_batch_begins_and_ends(spark: Any, url: str) -> None:
    hold(url, "lake", "/topic/f.#,/queue/g")
    send(url, "/topic/f.a", range(10))
    send(url, "/queue/g", range(5))
    halfway = datetime.now(UTC)
    send(url, "/topic/f.a", range(10, 20))

    def found(**given: str) -> list[tuple[str, int]]:
        rows = spark.read.format("stomp").options(url=url, destination="/topic/f.#,/queue/g", **given).load()
        return sorted((row.address, row.offset) for row in rows.select("address", "offset").collect())

    everything = [*(("f.a", n) for n in range(20)), *(("g", n) for n in range(5))]
    assert found() == everything
    assert found(startingOffsets="3", endingOffsets="5") == [("f.a", 3), ("f.a", 4), ("g", 3), ("g", 4)]
    assert found(startingOffsets=halfway.isoformat()) == [("f.a", n) for n in range(10, 20)]
    assert found(endingOffsets=halfway.isoformat()) == [
        place for place in everything if place not in {("f.a", n) for n in range(10, 20)}
    ]
    assert found(startingOffsets='{"f.a": 18}') == [("f.a", 18), ("f.a", 19), *(("g", n) for n in range(5))]
    assert found(selector="parity = 'odd' AND n IS NULL", startingOffsets="16", failOnDataLoss="false") == [
        ("f.a", 17),
        ("f.a", 19),
    ]


SELECTORS = [
    "carrier = 'UA'",
    "delay > 60",
    "carrier LIKE '_A' AND (delay BETWEEN 10 AND 90 OR gate IS NULL)",
    "JMSPriority > 4 OR JMSType = 'late'",
    "gate IN ('1', '2') AND NOT delay = carrier",
    "hyphenated_props:x-y = 'z'",
    "nothing = 1",
]
UNPUSHED = ["XPATH '/a'", "JMSTimestamp > 0", "AMQSize > 4", "JMSMessageID IS NULL AND carrier = 'UA'"]


def headers_by_chance(chance: random.Random) -> dict[str, str]:
    values = {
        "carrier": chance.choice(("UA", "AA", "DL")), "delay": str(chance.randrange(-20, 200)), "gate": str(chance.randrange(4)),
        "priority": str(chance.randrange(10)), "type": chance.choice(("late", "early")), "x-y": chance.choice("yz"),
    }  # fmt: skip
    return {name: value for name, value in values.items() if chance.random() < 0.8}


def test_what_the_broker_chooses_is_what_the_reader_would(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hold(url, "lake", "/topic/f.a")
    chance = random.Random(20)
    with blocking.connect(url) as client:
        for number in range(600):
            if number % 200 < 100:  # many of one shape, then one by one of many
                shared = (
                    {"carrier": "UA", "delay": str(number)} if number % 200 else headers_by_chance(chance)
                )
            client.send(
                "/topic/f.a",
                b"%d" % number,
                headers=shared if number % 200 < 100 else headers_by_chance(chance),
            )
    travelled: list[int] = []

    def counted(answer: Answer) -> Fetched:
        found = fetched(answer)
        travelled.extend([verify(blob).messages for blob in found.blobs])
        return found

    monkeypatch.setattr(reading, "fetched", counted)

    def read(selector: str) -> tuple[list[dict[str, Any]], int]:
        options = source_options(
            Given({"url": url, "destination": "/topic/f.a", "selector": selector}), streaming=False
        )
        travelled.clear()
        view = View(("offset", "headers", "body"), selector)
        found = batches(dataclasses.replace(options, fetch_bytes=10_000), [OffsetRange("f.a", 0, 600)], view)
        return [row for batch in found for row in batch.to_pylist()], sum(travelled)

    pushed = {text: read(text) for text in SELECTORS + UNPUSHED}
    monkeypatch.setattr(reading, "pushed_of", lambda text: "")
    for text, (rows, messages) in pushed.items():
        assert read(text) == (rows, 600), text
        assert messages == (len(rows) if text in SELECTORS else 600), text
    assert [len(pushed[text][0]) > 0 for text in SELECTORS] == [True] * (len(SELECTORS) - 1) + [False]


def test_a_wrong_selector_is_named_in_one_message(spark: Any, url: str) -> None:
    hold(url, "lake", "/topic/f.a")
    with pytest.raises(AnalysisException, match=r"selector, position 10: found .*, expected "):
        spark.read.format("stomp").options(
            url=url, destination="/topic/f.a", selector="carrier = "
        ).load().collect()


def test_a_selector_beyond_the_limits_of_the_broker(serve: Serve) -> None:
    served = serve("--listen", "tcp://127.0.0.1:0?maxSelectorTerms=3", "--no-admin")
    url = f"stomp://{served.host}:{served.port}"
    hold(url, "lake", "/topic/f.a")
    send(url, "/topic/f.a", range(3))
    options = source_options(Given({"url": url, "destination": "/topic/f.a"}), streaming=False)
    with pytest.raises(Refused, match=r"selector, position \d+: ") as caught:
        list(batches(options, [OffsetRange("f.a", 0, 3)], View(("offset",), "parity = 'odd' AND id = 1")))
    assert caught.value.code == "selector-limit"


def test_bytes_limit_a_batch(spark: Any, url: str, tmp_path: Path) -> None:
    hold(url, "lake", "/queue/large")
    with blocking.connect(url) as client:
        for _ in range(20):
            client.send("/queue/large", b"x" * 50_000)
    sizes: list[int] = []
    rows = (
        spark.readStream.format("stomp")
        .options(url=url, destination="/queue/large", maxBytesPerTrigger="256k")
        .load()
    )
    writer = rows.writeStream.foreachBatch(lambda frame, _: sizes.append(frame.count())).option(
        "checkpointLocation", str(tmp_path)
    )
    assert writer.trigger(availableNow=True).start().awaitTermination(WITHIN)
    assert sizes == [5, 5, 5, 5]


def test_each_batch_is_written_once_from_foreach_batch(spark: Any, url: str, tmp_path: Path) -> None:
    hold(url, "lake", "/topic/f.a,/queue/copy,/queue/other")
    send(url, "/topic/f.a", range(20))

    def copy(frame: Any, batch: int) -> None:
        writer = frame.select("body", "headers").write.format("stomp").mode("append")
        for name in ("copy", "other") * 2:  # the second time is a replay
            writer.options(url=url, destination=f"/queue/{name}", sinkId="copy", batchId=str(batch)).save()

    rows = (
        spark.readStream.format("stomp")
        .options(url=url, destination="/topic/f.a", group="lake", maxRowsPerTrigger="10")
        .load()
    )
    writer = rows.writeStream.foreachBatch(copy).option("checkpointLocation", str(tmp_path))
    assert writer.trigger(availableNow=True).start().awaitTermination(WITHIN)
    for name in ("copy", "other"):
        rows = (
            spark.read.format("stomp").options(url=url, destination=f"/queue/{name}", schema="n INT").load()
        )
        assert sorted(row.n for row in rows.collect()) == list(range(20))


def test_other_readers_see_the_same_table(spark: Any, url: str, tmp_path: Path) -> None:
    hold(url, "lake", "/topic/f.#")
    send(url, "/topic/f.a", range(15))
    archived(spark, tmp_path, url, "/topic/f.#", schema="n INT")
    table = str(tmp_path / "table")
    ours = [row.asDict() for row in spark.read.parquet(table).orderBy("offset").collect()]
    theirs = (
        dataset.dataset(table, exclude_invalid_files=True)
        .to_table()
        .sort_by("offset")
        .to_pylist(maps_as_pydicts="strict")
    )
    for one in (*ours, *theirs):
        one["body"], one["timestamp"] = bytes(one["body"]), one["timestamp"].replace(tzinfo=UTC)
    assert ours == theirs
    assert [(one["offset"], one["n"], one["headers"]["id"], one["body"]) for one in theirs] == [
        (n, n, str(n), b'{"n": %d}' % n) for n in range(15)
    ]
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        columns = "address, \"offset\", epoch_us(timestamp), destination, headers['id'], body, n"
        found = connection.execute(
            f"SELECT {columns} FROM read_parquet('{table}/*.parquet') ORDER BY \"offset\""
        ).fetchall()
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    assert found == [
        (one["address"], one["offset"], round((one["timestamp"] - epoch).total_seconds() * 1e6), one["destination"], one["headers"]["id"],
         one["body"], one["n"])
        for one in ours
    ]  # fmt: skip


def test_tls_and_rights(spark: Any, serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "users.toml").write_text(USERS)
    served = serve(
        "--listen",
        f"ssl://127.0.0.1:0?keyStorePath={PEM}",
        "--no-admin",
        "--config",
        str(tmp_path / "users.toml"),
    )
    given = {
        "url": f"stomps://127.0.0.1:{served.port}",
        "trustStorePath": str(PEM),
        "login": "lake",
        "passcode": "secret",
    }
    rows = spark.range(10).selectExpr("CAST(id AS STRING) AS body")
    rows.write.format("stomp").mode("append").options(**given, destination="/queue/open.a").save()
    assert spark.read.format("stomp").options(**given, destination="/queue/open.a").load().count() == 10
    refusals: list[tuple[Callable[[], object], str]] = [
        (lambda: spark.read.format("stomp").options(**given, destination="/queue/closed").load().collect(),
         "user 'lake' does not have the right 'consume' on address 'closed'"),
        (lambda: rows.write.format("stomp").mode("append").options(**given, destination="/queue/closed").save(),
         "user 'lake' does not have the right 'send' on address 'closed'"),
        (lambda: spark.read.format("stomp").options(**{**given, "passcode": "no"}, destination="/queue/open.a").load().collect(),
         "login or passcode is wrong"),
    ]  # fmt: skip
    for refused, words in refusals:
        with pytest.raises((AnalysisException, PythonException)) as caught:
            refused()
        assert words in str(caught.value)


def test_a_broker_that_is_away(spark: Any, served: Served, url: str, tmp_path: Path) -> None:
    hold(url, "lake", "/topic/f.a")
    send(url, "/topic/f.a", range(10))
    rows = (
        spark.readStream.format("stomp")
        .options(url=url, destination="/topic/f.a", group="lake", reconnectTimeout="700")
        .load()
    )
    query = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    query.processAllAvailable()
    served.process.kill()
    served.process.wait()
    with pytest.raises(
        StreamingQueryException,
        match=r"no broker at stomp://127.0.0.1:\d+ for 0.7 s \(option reconnectTimeout\)",
    ):
        query.awaitTermination(WITHIN)
    with pytest.raises(AnalysisException, match=r"no broker at .* for 0.2 s \(option reconnectTimeout\)"):
        spark.read.format("stomp").options(
            url=url, destination="/topic/f.a", reconnectTimeout="200"
        ).load().collect()


def later() -> int:
    """A millisecond in which nothing has arrived, as text of an option may have it."""
    begun = time.time_ns() // 1_000_000
    while time.time_ns() // 1_000_000 < begun + 2:
        pass
    return begun + 1


def test_a_group_begins_by_the_time_of_each_address(url: str) -> None:
    def begin(**given: str) -> dict[str, int]:
        options = {"url": url, "destination": "/queue/times.#", **given}
        found = (
            StompSource(options).streamReader(StructType([StructField("offset", LongType())])).initialOffset()
        )
        return {address: number_of(offset) for address, offset in found.items()}

    for name in ("a", "b"):
        send(url, f"/queue/times.{name}", range(3))
    between = later()
    send(url, "/queue/times.a", range(2))
    after = later()
    with pytest.raises(Refused, match=r"no message of 'times\.b' arrived at or after"):
        begin(startingTimestamp=str(between), group="lake")
    by_address = json.dumps({"times.a": between})
    for group in ({"group": "lake"}, {}):
        assert begin(startingOffsetsByTimestamp=by_address, **group) == {"times.a": 3, "times.b": 0}
    assert begin(startingTimestamp=str(after), group="lake") == {"times.a": 3, "times.b": 0}, (
        "the group is there: its position wins"
    )
    latest = {"startingTimestamp": str(between), "startingOffsetsByTimestampStrategy": "latest"}
    assert begin(**latest, group="other") == begin(**latest) == {"times.a": 3, "times.b": 3}


class Churned:
    """A wildcard read in micro-batches, of addresses that come, grow and are deleted, by readers that are replaced at any moment."""

    def __init__(self, served: Served, seed: int, **given: str) -> None:
        self.admin, self.chance = served.admin, random.Random(seed)
        self.given = {"url": f"stomp://{served.host}:{served.port}", "destination": "/queue/w.#", **given}
        self.sent: dict[str, set[int]] = {}  # what is wanted of it, by address
        self.deleted: set[int] = set()
        self.read: list[int] = []
        self.number = 0
        self.reader = self.new_reader()
        self.start = self.reader.initialOffset()

    def new_reader(self) -> Any:
        columns = StructType([StructField("body", BinaryType())])
        return pickle.loads(pickle.dumps(StompSource(self.given).streamReader(schema=columns)))

    def send(self, client: blocking.Client) -> None:
        name = f"w.{self.chance.choice('abcd')}"
        for _ in range(self.chance.choice((1, 5, 30))):
            parity = ("even", "odd")[self.number % 2]
            client.send(f"/queue/{name}", b"%d" % self.number, headers={"parity": parity})
            self.sent.setdefault(name, set()).update({self.number} if parity == "even" else ())
            self.number += 1

    def delete(self) -> None:
        if self.sent:
            name = self.chance.choice(sorted(self.sent))
            post(self.admin, "addresses/delete", {"address": name, "is_forced": True})
            self.deleted |= self.sent.pop(name)

    def batch(self) -> bool:
        """One micro-batch; False when there was nothing to read."""
        end = self.reader.latestOffset(self.start, self.reader.getDefaultReadLimit())
        if end == self.start:
            return False
        if self.chance.random() < 0.3:  # it was planned and read, and is done again after a crash
            list(self._rows(end))
            self.reader = self.new_reader()
        self.read += self._rows(end)
        self.start = end
        if self.chance.random() < 0.5:
            self.reader.commit(end)
        return True

    def _rows(self, end: Any) -> Iterator[int]:
        for part in self.reader.partitions(self.start, end):
            for batch in self.reader.read(part):
                yield from map(int, batch.column("body").to_pylist())


@pytest.mark.parametrize("given", [{"group": "lake"}, {}], ids=["with a group", "without"])
def test_addresses_that_come_and_go_below_a_wildcard_a_selector_and_a_limit(
    serve: Serve, given: dict[str, str]
) -> None:
    """Each message that is wanted is read once, unless it was deleted first."""
    served = serve("--listen", "tcp://127.0.0.1:0", "--admin", "127.0.0.1:0")
    limits = {"maxBytesPerTrigger": "100", "maxRecordsPerPartition": "7", "numPartitions": "3"}
    found = Churned(
        served, 17, failOnDataLoss="false", selector="parity = 'even' AND JMSTimestamp > 0", **limits, **given
    )
    with blocking.connect(found.given["url"]) as client:
        for _ in range(40):
            what = found.chance.random()
            if what < 0.5:
                found.send(client)
            elif what < 0.6:
                found.delete()
            else:
                found.batch()
    while found.batch():
        pass
    forget()
    assert len(found.read) == len(set(found.read)), "something was read twice"
    assert found.deleted
    assert {number for numbers in found.sent.values() for number in numbers} <= set(found.read)
    assert set(found.read) <= set(range(0, found.number, 2))
