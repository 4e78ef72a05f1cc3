"""What the source does on the Spark that is installed, be it 4.0, 4.1 or newer: it works, or says which version would.

Run by itself with an older pyspark: everything here holds there, too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql.functions import spark_partition_id
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from stompbox.errors import UsageError
from stompbox.spark import versions
from stompbox.spark.datasource import StompSource
from tests.spark.fake_broker import FakeBroker

# An older pyspark leaves the socket of collect() to the collector of garbage.
pytestmark = pytest.mark.filterwarnings(
    "ignore:unclosed <socket:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)

WITHIN = 120  # s, for one query
READ = r"a streaming read of format stomp needs Spark 4\.2 or newer"
WRITE = r"a streaming write of format stomp needs Spark 4\.1 or newer"
OPTIONS = {"url": "stomp://127.0.0.1:1", "destination": "/queue/a"}
BODY = StructType([StructField("body", BinaryType())])
OFFSET = StructType([StructField("offset", LongType())])


def fill(fake: FakeBroker) -> None:
    fake.send(
        "/topic/flights.UA",
        [b'{"n": %d}' % number for number in range(100)],
        id=[b"%d" % number for number in range(100)],
    )


@pytest.mark.parametrize(("text", "found"), [("4.2.0", (4, 2)), ("4.3.0.dev1", (4, 3)), ("10.11", (10, 11))])
def test_what_a_version_says(text: str, found: tuple[int, int]) -> None:
    assert versions.installed(text) == found


def test_what_a_spark_cannot_do_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "version", "4.0.9")
    source = StompSource(OPTIONS)
    with pytest.raises(UsageError, match=rf"{READ}, and this is Spark 4\.0\.9") as caught:
        source.streamReader(schema=OFFSET).latestOffset()
    assert caught.value.code == "old-spark"
    with pytest.raises(UsageError, match=rf"{WRITE}, and this is Spark 4\.0\.9"):
        source.streamWriter(schema=BODY, overwrite=False)
    assert source.reader(schema=OFFSET) is not None
    assert source.writer(schema=BODY, overwrite=False) is not None


def test_a_batch_read(spark: Any, fake: FakeBroker) -> None:
    fill(fake)
    options = {
        "url": fake.url,
        "destination": "/topic/flights.#",
        "startingOffsets": "90",
        "minPartitions": "2",
    }
    rows = spark.read.format("stomp").options(**options, schema="n INT, at TIMESTAMP").load()
    assert rows.select(spark_partition_id()).distinct().count() == 2
    found = rows.orderBy("offset").collect()
    assert [(row.address, row.offset, row.n, row.at, row.headers["id"]) for row in found] == [
        ("flights.UA", number, number, None, str(number)) for number in range(90, 100)
    ]
    assert found[0].timestamp.timestamp() == 1_700_000_000


def test_a_batch_write(spark: Any, fake: FakeBroker) -> None:
    frame = spark.range(50).selectExpr(
        "CAST(id AS STRING) AS body", "map('id', CAST(id AS STRING)) AS headers", "now() AS expires"
    )
    frame.write.format("stomp").mode("append").options(url=fake.url, destination="/queue/copy").save()
    assert sorted(map(int, fake.logs["copy"].bodies())) == list(range(50))


def test_a_streaming_write(spark: Any, fake: FakeBroker, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    spark.range(10).selectExpr("CAST(id AS STRING) AS body").write.parquet(str(tmp_path / "in" / "part"))
    rows = spark.readStream.schema("body STRING").parquet(str(tmp_path / "in" / "part"))
    writer = (
        rows.writeStream.format("stomp")
        .options(url=fake.url, destination="/queue/copy")
        .trigger(availableNow=True)
    )
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    if versions.installed() >= versions.STREAMING_WRITES:
        assert writer.start().awaitTermination(WITHIN)
        assert sorted(map(int, fake.logs["copy"].bodies())) == list(range(10))
    else:
        with pytest.raises((AnalysisException, StreamingQueryException), match=WRITE):
            writer.start().awaitTermination(WITHIN)


def test_a_streaming_read(spark: Any, fake: FakeBroker, tmp_path: Path) -> None:
    fill(fake)
    rows = spark.readStream.format("stomp").options(url=fake.url, destination="/topic/flights.#").load()
    writer = (
        rows.writeStream.format("parquet").option("path", str(tmp_path / "table")).trigger(availableNow=True)
    )
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    if versions.installed() >= versions.STREAMING_READS:
        assert writer.start().awaitTermination(WITHIN)
        assert spark.read.parquet(str(tmp_path / "table")).count() == 100
    else:
        with pytest.raises((AnalysisException, StreamingQueryException), match=READ):
            writer.start().awaitTermination(WITHIN)
