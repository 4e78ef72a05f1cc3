"""A real local Spark against the fake broker: what the API promises only holds if Spark calls it so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import AnalysisException, PythonException, StreamingQueryException

from tests.spark.fake_broker import FakeBroker
from tests.spark.test_values import VALUES

WITHIN = 120  # seconds, for one query


def options(fake: FakeBroker, **given: str) -> dict[str, str]:
    return {"url": fake.url, "destination": "/topic/flights.#", "reconnectTimeout": "5000", **given}


def fill(fake: FakeBroker, count: int = 100, *, carrier: str = "UA") -> None:
    fake.send(
        f"/topic/flights.{carrier}",
        [b'{"n": %d}' % index for index in range(count)],
        carrier=carrier,
        id=[b"%d" % i for i in range(count)],
    )


def to_table(spark: Any, fake: FakeBroker, folder: Path, **given: str) -> None:
    """Archives what is there, in batches of 40 rows, from where the checkpoint is."""
    rows = spark.readStream.format("stomp").options(**options(fake, maxRowsPerTrigger="40", **given)).load()
    query = (
        rows.writeStream.format("parquet")
        .option("path", str(folder / "table"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(WITHIN)


def places(spark: Any, folder: Path) -> list[tuple[str, int]]:
    return sorted(
        (row.address, row.offset)
        for row in spark.read.parquet(str(folder / "table")).select("address", "offset").collect()
    )


def test_a_batch_read_is_found_without_registering(spark: Any, fake: FakeBroker) -> None:
    fill(fake, 3)
    rows = spark.read.format("stomp").options(**options(fake)).load().orderBy("offset").collect()
    assert [(row.address, row.offset, row.destination, row.headers, bytes(row.body)) for row in rows] == [
        ("flights.UA", n, "/topic/flights.UA", {"carrier": "UA", "id": str(n)}, b'{"n": %d}' % n)
        for n in range(3)
    ]
    assert rows[0].timestamp.timestamp() == 1_700_000_000


def test_sql_a_narrow_schema_and_columns_of_the_body(spark: Any, fake: FakeBroker) -> None:
    fill(fake)
    fill(fake, carrier="DL")
    settings = ", ".join(
        f"{name} '{value}'"
        for name, value in options(fake, schema="n INT", selector="carrier = ''DL''").items()
    )
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW flights USING stomp OPTIONS ({settings})")
    assert spark.sql("SELECT address, count(*), sum(n) FROM flights GROUP BY 1").collect() == [
        ("flights.DL", 100, 4950)
    ]
    narrow = spark.read.format("stomp").schema("offset BIGINT").options(**options(fake)).load()
    assert narrow.columns == ["offset"]
    assert narrow.count() == 200


@pytest.mark.parametrize("kind", ["json", "csv"])
def test_bodies_are_decoded_as_spark_decodes_them(spark: Any, fake: FakeBroker, kind: str) -> None:
    """Each value of test_values.py, by the source and by Spark's own function."""
    from pyspark.sql import functions
    from pyspark.sql.pandas.types import from_arrow_type

    bodies: dict[str, list[bytes]] = {}
    for format_, type_, value, _ in VALUES:
        if format_ == kind:
            body = b'{"v": %b, "w": "k"}' % value if kind == "json" else value + b",k"
            bodies.setdefault(from_arrow_type(type_, prefer_timestamp_ntz=True).simpleString(), []).append(
                body
            )
    for number, (type_, each) in enumerate(bodies.items()):
        fake.send(f"/topic/own.{number}", each)
        schema = f"v {type_}, w STRING, _corrupt_record STRING"
        given = {"destination": f"/topic/own.{number}", "schema": schema, "bodyFormat": kind}
        rows = spark.read.format("stomp").options(**{**options(fake), **given}).load()
        decode = functions.from_json if kind == "json" else functions.from_csv
        both = rows.select(
            "v", "w", "_corrupt_record", decode(functions.col("body").cast("string"), schema).alias("spark")
        ).collect()
        for row, body in zip(both, each, strict=True):
            assert repr((row.v, row.w, row._corrupt_record)) == repr(tuple(row.spark)), (type_, body)


def test_a_column_that_is_not_null_is_so_where_a_body_lacks_it(spark: Any, fake: FakeBroker) -> None:
    """As in Spark's from_json: else Spark would believe it, and fail in Java or read what is not there."""
    fake.send(
        "/topic/flights.UA", [b'{"n": 1, "s": {"a": 2}, "l": [3]}', b'{"s": {}, "l": [null]}', b"no object"]
    )
    schema = "n INT NOT NULL, s STRUCT<a: INT NOT NULL> NOT NULL, l ARRAY<INT>"
    rows = (
        spark.read.format("stomp")
        .options(**options(fake, schema=schema))
        .load()
        .orderBy("offset")
        .selectExpr("n", "s.a", "l")
    )
    assert [tuple(row) for row in rows.collect()] == [(1, 2, [3]), (None, None, [None]), (None, None, None)]
    with pytest.raises(AnalysisException, match="column 's' is decoded from bodies"):
        spark.read.format("stomp").options(**options(fake, schema=schema)).schema(
            "s STRUCT<a: INT NOT NULL>"
        ).load().collect()


def test_an_empty_batch(spark: Any, fake: FakeBroker) -> None:
    assert spark.read.format("stomp").options(**options(fake)).load().collect() == []


def test_a_stream_goes_on_from_its_checkpoint(spark: Any, fake: FakeBroker, tmp_path: Path) -> None:
    fill(fake)
    to_table(spark, fake, tmp_path, group="lake")
    assert fake.groups["lake"][1] == {"flights.UA": 100}  # the last batch too, which Spark never commits
    fill(fake, 50)
    fill(fake, 50, carrier="DL")
    to_table(spark, fake, tmp_path, group="lake")
    assert places(spark, tmp_path) == [
        *(("flights.DL", n) for n in range(50)),
        *(("flights.UA", n) for n in range(150)),
    ]
    assert fake.groups["lake"][1] == {"flights.DL": 50, "flights.UA": 150}


def test_a_batch_that_fails_is_read_again(spark: Any, fake: FakeBroker, tmp_path: Path) -> None:
    fill(fake)
    fake.faults["fetch"] = ["", "refuse"]
    with pytest.raises(StreamingQueryException, match="as the test asked"):
        to_table(spark, fake, tmp_path)
    to_table(spark, fake, tmp_path)
    assert places(spark, tmp_path) == [("flights.UA", n) for n in range(100)]


def test_a_batch_write(spark: Any, fake: FakeBroker) -> None:
    frame = spark.range(100).selectExpr(
        "CAST(id AS STRING) AS body", "concat('/queue/', id % 2) AS destination", "map('id', CAST(id AS STRING)) AS headers",
        "'text/plain' AS content_type", "5 AS priority", "true AS persistent", "timestamp_millis(4000000000000) AS expires",
    )  # fmt: skip
    frame.write.format("stomp").mode("append").options(url=fake.url).save()
    assert sorted(map(int, fake.logs["0"].bodies())) == list(range(0, 100, 2))
    run = fake.logs["1"].runs()[0]
    assert run.headers(0) == {
        "destination": "/queue/1", "content-type": "text/plain", "priority": "5", "persistent": "true", "expires": "4000000000000",
        "id": run.bodies[0].decode(),
    }  # fmt: skip


def test_from_source_to_sink_and_a_replay_of_the_last_batch(
    spark: Any, fake: FakeBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(fake)

    def run() -> None:
        rows = spark.readStream.format("stomp").options(**options(fake, maxRowsPerTrigger="40")).load()
        sink = (
            rows.drop("destination")
            .writeStream.format("stomp")
            .queryName("copy")
            .options(url=fake.url, destination="/queue/copy")
        )
        assert (
            sink.option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
            .awaitTermination(WITHIN)
        )

    run()
    assert sorted(fake.logs["copy"].bodies()) == sorted(fake.logs["flights.UA"].bodies())
    (tmp_path / "commits" / "2").unlink()
    (tmp_path / "commits" / ".2.crc").unlink(missing_ok=True)
    published = len(fake.named("publish"))
    run()
    assert len(fake.named("publish")) == published + 1
    assert len(fake.logs["copy"].bodies()) == 100
    assert {name.partition("-")[0] for name in fake.published} == {"query"}
    assert list(fake.published.values()) == [2]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"destnation": "/topic/a"},
            "option 'destnation' of format stomp is not known; did you mean 'destination'?",
        ),
        ({"url": "broker:61613"}, "option 'url' is 'broker:61613'; allowed are stomp://host:port"),
        (
            {"destination": "/topic/nowhere"},
            "option 'destination': /topic/nowhere does not exist on the broker",
        ),
    ],
)
def test_users_see_one_clear_sentence(
    spark: Any, fake: FakeBroker, given: dict[str, str], words: str
) -> None:
    with pytest.raises(AnalysisException) as caught:
        spark.read.format("stomp").options(**options(fake, **given)).load().collect()
    assert words in str(caught.value)


def test_no_plan_shows_a_passcode(spark: Any, fake: FakeBroker) -> None:
    settings = f"url '{fake.url}', login 'lake', passcode 'geheim', destination '/topic/a'"
    plan = spark.sql(
        f"EXPLAIN EXTENDED CREATE TEMPORARY VIEW hidden USING stomp OPTIONS ({settings})"
    ).collect()[0][0]
    assert "geheim" not in plan
    assert "lake" in plan, "it shows the other options"


def test_a_task_that_fails_says_why(spark: Any, fake: FakeBroker) -> None:
    frame = spark.range(1).selectExpr("'x' AS body", "12 AS priority")
    with pytest.raises(PythonException, match="column 'priority' holds 12"):
        frame.write.format("stomp").mode("append").options(url=fake.url, destination="/queue/a").save()
    assert "a" not in fake.logs
