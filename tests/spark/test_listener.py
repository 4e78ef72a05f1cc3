"""What a session's queries are said to be at: from Spark's own words, and as the broker's console shows it."""

from __future__ import annotations

import time
import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import StreamingQueryException
from pyspark.sql import Row
from pyspark.sql.streaming.listener import StreamingQueryProgress

from stompbox import blocking
from stompbox.errors import UsageError
from stompbox.spark import ProgressListener, QueryProgress, observed
from stompbox.spark.listener import MOST_OVER, reason_of
from stompbox.spark.telling import MOST_TEXT
from tests.admin.asking import read
from tests.conftest import Serve

WITHIN = 120.0  # s, for one query
PYTHON = "org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStream@1"
RUN = uuid.uuid4()


def source(start: str | None, end: str, latest: str, rows: int, description: str = PYTHON) -> Any:
    return SimpleNamespace(
        description=description, startOffset=start, endOffset=end, latestOffset=latest, numInputRows=rows
    )


def progress(
    *sources: Any, run: uuid.UUID = RUN, name: str | None = "mine", batch: int = 3, **observed: int
) -> Any:
    found = StreamingQueryProgress(
        id=uuid.UUID(int=1), runId=run, name=name, timestamp="", batchId=batch, batchDuration=500,
        durationMs={"triggerExecution": 500}, eventTime={}, stateOperators=[], sources=list(sources), sink=None,
        numInputRows=sum(each.numInputRows for each in sources), inputRowsPerSecond=0.0, processedRowsPerSecond=0.0,
        observedMetrics={"stompbox": Row(**observed)} if observed else {},
    )  # fmt: skip
    return SimpleNamespace(progress=found)


def heard(*events: Any) -> tuple[ProgressListener, list[QueryProgress]]:
    found: list[QueryProgress] = []
    listener = ProgressListener(report=found.append)
    for event in events:
        listener.onQueryProgress(event)
    return listener, found


def test_what_spark_says_of_a_micro_batch() -> None:
    ours = source('{"a": 10, "b": 5}', '{"a": 40, "b": 5}', '{"a": 100, "b": 5, "c": 7}', 28)
    listener, [found] = heard(progress(ours, rows=28, bytes=280, malformed=2))
    assert found == QueryProgress("mine", 3, 28, 0.5, {"a": 60, "c": 7}, 2, 280, 2)
    assert (found.lag, found.rate) == (67, 56.0)
    assert (
        str(found)
        == "query 'mine', batch 3: 28 rows in 0.5 s, lag 67, 2 offsets without a row, 280 bytes, 2 malformed"
    )
    assert listener.latest == {"mine": found}


def test_offsets_that_name_their_log() -> None:
    ours = source(
        '{"a": [10, "x"]}', '{"a": [40, "x"], "b": [3, "y", 1]}', '{"a": [41, "x"], "b": [3, "y"]}', 32
    )
    _, [found] = heard(progress(ours))
    assert (dict(found.lags), found.skipped, found.size, found.malformed) == ({"a": 1}, 0, -1, -1)


def test_the_first_batch_does_not_say_where_it_begins() -> None:
    _, [found] = heard(progress(source(None, '{"a": 40}', '{"a": 40}', 10)))
    assert found.skipped == 0


@pytest.mark.parametrize(
    "other",
    [
        source('{"t":{"0":1}}', '{"t":{"0":9}}', '{"t":{"0":9}}', 8, "KafkaV2[Subscribe[t]]"),
        source("1", "9", "9", 8, "RateStreamV2[rowsPerSecond=1]"),
        source('{"t":{"0":1}}', '{"t":{"0":9}}', '{"t":{"0":9}}', 8),
        source("{", "{", "{", 8),
        source(None, '{"partition": true}', "", 8),
        source(None, '{"t": [1]}', "", 8),
    ],
)
def test_other_sources_are_passed_over(other: Any) -> None:
    assert heard(progress(other))[1] == []
    _, [found] = heard(progress(other, source('{"a": 0}', '{"a": 5}', '{"a": 9}', 5)))
    assert (found.rows, dict(found.lags), found.skipped) == (13, {"a": 4}, 0)


def test_what_the_broker_is_told() -> None:
    clock = SimpleNamespace(now=100.0)
    listener = ProgressListener(clock=lambda: clock.now)
    ours = source('{"a": 0}', '{"a": 5}', '{"a": 9}', 5)
    listener.onQueryProgress(progress(ours))
    listener.onQueryProgress(progress(ours, batch=4))
    listener.onQueryProgress(progress(ours, run=uuid.uuid4(), name=None))
    clock.now = 101.5
    told = {said["step"]: said for said in listener._told()}
    assert set(told) == {"mine", str(uuid.UUID(int=1))}
    expected = {
        "kind": "query",
        "state": "running",
        "rows": 10,
        "rate": 10.0,
        "lag": 4,
        "batch": 4,
        "batch_ago": 1500,
    }
    assert {name: told["mine"][name] for name in expected} == expected
    listener.onQueryIdle(SimpleNamespace(runId=RUN))
    assert (listener._told()[0]["state"], listener._told()[0]["rate"]) == ("waiting", 0.0)
    listener.onQueryTerminated(SimpleNamespace(runId=RUN, exception=None))
    assert listener._told()[0]["state"] == "done"
    listener.onQueryTerminated(
        SimpleNamespace(runId=uuid.uuid4(), exception="of a query that reads nothing of ours")
    )
    assert len(listener._told()) == 2


def test_queries_that_have_ended_are_not_told_of_for_ever() -> None:
    listener = ProgressListener()
    for number in range(MOST_OVER + 5):
        run = uuid.uuid4()
        listener.onQueryProgress(
            progress(source('{"a": 0}', '{"a": 5}', '{"a": 9}', 5), run=run, name=f"q{number}")
        )
        listener.onQueryTerminated(SimpleNamespace(runId=run, exception=None))
    assert len(listener._told()) == MOST_OVER


def test_reasons() -> None:
    ours = "[STREAM_FAILED] Query [id = …] terminated: …\n  at java\nstompbox.errors.Refused: offsets 0 to 3 were deleted\n  more"
    assert reason_of(ours) == "offsets 0 to 3 were deleted"
    assert reason_of("[DIVIDE_BY_ZERO] Division by zero.\nat java") == "[DIVIDE_BY_ZERO] Division by zero."
    assert reason_of("x" * 5000) == "x" * MOST_TEXT


def test_options_that_are_wrong_are_named() -> None:
    with pytest.raises(UsageError, match="'url'"):
        ProgressListener("http://broker")
    with pytest.raises(UsageError, match="'url' is missing"):
        ProgressListener(login="lake")
    with pytest.raises(UsageError, match="did you mean 'passcode'"):
        ProgressListener("stomp://broker", passcod="x")


def test_a_query_of_ones_own_stands_in_the_console(spark: Any, serve: Serve, tmp_path: Path) -> None:
    served = serve("--listen", "tcp://127.0.0.1:0", "--admin", "127.0.0.1:0")
    url = f"stomp://{served.host}:{served.port}"
    with blocking.connect(url) as client:
        for number in range(20):
            client.send("/queue/orders", b'{"n": %d}' % number if number % 5 else b"{")
    reported: list[QueryProgress] = []
    listener = ProgressListener(url, pipeline="shop", report=reported.append)
    spark.streams.addListener(listener)
    try:
        options = {
            "url": url,
            "destination": "/queue/orders",
            "schema": "n INT, _corrupt_record STRING",
            "maxRowsPerTrigger": "12",
        }
        rows = observed(spark.readStream.format("stomp").options(**options).load())
        writer = rows.writeStream.format("noop").queryName("nightly").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        assert query.awaitTermination(WITHIN)
        shown = told_of(served.admin, "done")
    finally:
        spark.streams.removeListener(listener)
        listener.close()
    assert (shown["pipeline"], shown["step"], shown["kind"], shown["rows"], shown["lag_messages"]) == (
        "shop",
        "nightly",
        "query",
        20,
        0,
    )
    assert [(found.batch, found.rows, found.lag, found.malformed) for found in reported] == [
        (0, 12, 8, 3),
        (1, 8, 0, 1),
    ]
    assert sum(found.size for found in reported) == sum(
        len(b'{"n": %d}' % n) if n % 5 else 1 for n in range(20)
    )
    assert listener.latest["nightly"] == reported[-1]


def test_a_query_that_fails_says_why(spark: Any, serve: Serve, tmp_path: Path) -> None:
    served = serve("--listen", "tcp://127.0.0.1:0", "--admin", "127.0.0.1:0")
    url = f"stomp://{served.host}:{served.port}"
    with blocking.connect(url) as client:
        for body in (b'{"n": 1}', b'{"n": 2}', b"{"):
            client.send("/queue/orders", body)
    listener = ProgressListener(url)
    spark.streams.addListener(listener)
    try:
        options = {
            "url": url,
            "destination": "/queue/orders",
            "schema": "n INT",
            "mode": "FAILFAST",
            "maxRowsPerTrigger": "2",
        }
        writer = (
            spark.readStream.format("stomp")
            .options(**options)
            .load()
            .writeStream.format("noop")
            .trigger(availableNow=True)
        )
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).queryName("strict").start()
        with pytest.raises(StreamingQueryException, match="a body is malformed"):
            query.awaitTermination(WITHIN)
        shown = told_of(served.admin, "failed")
    finally:
        spark.streams.removeListener(listener)
        listener.close()
    assert (shown["pipeline"], shown["step"], shown["rows"]) == ("spark", "strict", 2)
    assert shown["reason"].startswith(
        "option 'mode' is FAILFAST, and a body is malformed: the first at offset 2 of 'orders'"
    )


def told_of(admin: str, state: str) -> dict[str, Any]:
    deadline = time.monotonic() + WITHIN
    while True:
        found: list[dict[str, Any]] = read(admin, "pipelines")["pipelines"]
        if found and found[0]["state"] == state:
            return found[0]
        assert time.monotonic() < deadline, found
