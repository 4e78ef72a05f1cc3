"""The writers as Spark calls them, without Spark: tasks and commit in different processes, failed attempts, batches that come again."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark import TaskContext
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType

from stompbox.errors import Refused, UsageError
from stompbox.spark import sink
from stompbox.spark.datasource import StompSource
from stompbox.spark.options import STAGE_BYTES
from stompbox.store.chunks import decode
from tests.spark.fake_broker import FakeBroker

SCHEMA = StructType([StructField("destination", StringType()), StructField("body", BinaryType())])


class Task:
    """What a task knows of itself in a worker of Spark."""

    def __init__(self, partition: int, batch: int | None = None) -> None:
        self.partition = partition
        self.properties = {} if batch is None else {sink.QUERY_ID: "q-1", sink.BATCH_ID: str(batch)}

    def partitionId(self) -> int:
        return self.partition

    def getLocalProperty(self, name: str) -> str | None:
        return self.properties.get(name)


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Task]]:
    class Here(Task):
        def __init__(self, partition: int, batch: int | None = None) -> None:
            super().__init__(partition, batch)
            monkeypatch.setattr(TaskContext, "get", staticmethod(lambda: self))

    yield Here


def rows(*bodies: bytes, destination: str = "/queue/out") -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"destination": [destination] * len(bodies), "body": list(bodies)})


def source(fake: FakeBroker, **given: str) -> StompSource:
    return StompSource({"url": fake.url, "reconnectTimeout": "5000", **given})


def stream(fake: FakeBroker, **given: str) -> sink.StreamWriter:
    found: sink.StreamWriter = pickle.loads(
        pickle.dumps(source(fake, **given).streamWriter(schema=SCHEMA, overwrite=False))
    )
    return found


def batch(fake: FakeBroker, **given: str) -> sink.BatchWriter:
    return source(fake, **given).writer(schema=SCHEMA, overwrite=False)


def copied(message: sink.Staged) -> sink.Staged:
    found: sink.Staged = pickle.loads(pickle.dumps(message))
    return found


def test_nothing_is_visible_before_the_commit(fake: FakeBroker, task: type[Task]) -> None:
    task(0, 5)
    first = copied(stream(fake).write(rows(b"a", b"b")))
    task(1, 5)
    second = copied(stream(fake).write(rows(b"c")))
    assert fake.logs == {}
    stream(fake).commit([first, second], 5)
    assert fake.logs["out"].bodies() == [b"a", b"b", b"c"]
    assert fake.published == {"query-q-1": 5}


def test_a_replayed_batch_is_published_once(
    fake: FakeBroker, task: type[Task], caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        task(0, 5)
        message = stream(fake).write(rows(b"a"))
        stream(fake).commit([message], 5)
    assert fake.logs["out"].bodies() == [b"a"]
    assert "batch 5 of sink query-q-1 was published before" in caplog.text
    assert fake.staged == {}


def test_attempts_that_lost_are_not_published(fake: FakeBroker, task: type[Task]) -> None:
    task(0, 5)
    stream(fake).write(rows(b"a"))
    winner = stream(fake).write(rows(b"a"))
    stream(fake).commit([winner, None], 5)
    assert fake.logs["out"].bodies() == [b"a"]


@pytest.mark.parametrize("request_name", ["stage", "publish"])
@pytest.mark.parametrize("fault", ["drop", "lose"])
def test_a_connection_that_breaks(fake: FakeBroker, task: type[Task], request_name: str, fault: str) -> None:
    task(0, 5)
    fake.faults[request_name] = [fault]
    stream(fake).commit([stream(fake).write(rows(b"a", b"b"))], 5)
    assert fake.logs["out"].bodies() == [b"a", b"b"]


def test_many_blobs(fake: FakeBroker, task: type[Task]) -> None:
    task(0, 5)
    bodies = [b"%07d" % index + b"x" * 1000 for index in range(10_000)]
    message = stream(fake).write(
        batch for at in range(0, 10_000, 1000) for batch in rows(*bodies[at : at + 1000])
    )
    assert len(message.attempts) == 5
    stream(fake).commit([message], 5)
    assert fake.logs["out"].bodies() == bodies


def mixed(count: int, destinations: int, size: int) -> Iterator[pa.RecordBatch]:
    """Rows whose destinations take turns, a thousand in a batch."""
    for first in range(0, count, 1000):
        numbers = range(first, first + 1000)
        bodies = [b"%07d" % number + b"x" * size for number in numbers]
        to = [f"/topic/{number % destinations}" for number in numbers]
        yield pa.RecordBatch.from_pydict({"destination": to, "body": bodies})


def blobs(fake: FakeBroker) -> list[tuple[int, set[str]]]:
    """Octets of each that is staged, and its destinations."""
    staged = [frame.body for frame in fake.requests if frame.headers["request"] == "stage"]
    return [(len(blob), {run.shape.destination for run in decode(blob, 0)}) for blob in staged]


def test_few_destinations_have_blobs_of_their_own(fake: FakeBroker, task: type[Task]) -> None:
    task(0, 5)
    message = stream(fake).write(mixed(12_000, 4, 1000))
    found = blobs(fake)
    assert all(len(destinations) == 1 for _, destinations in found)
    assert max(size for size, _ in found) < 2 * STAGE_BYTES + 100_000
    stream(fake).commit([message], 5)
    for at in range(4):
        assert [body[:7] for body in fake.logs[str(at)].bodies()] == [
            b"%07d" % n for n in range(at, 12_000, 4)
        ]


def test_many_destinations_share_blobs_and_do_not_wait_for_ever(fake: FakeBroker, task: type[Task]) -> None:
    task(0, 5)
    message = stream(fake).write(mixed(20_000, 500, 1000))
    found = blobs(fake)
    assert len(found) < 20, "a blob for each destination would be 500"
    assert sum(size for size, _ in found[:-3]) > 10 << 20, "most of it was sent while more was to come"
    stream(fake).commit([message], 5)
    assert [body[:7] for body in fake.logs["77"].bodies()] == [b"%07d" % n for n in range(77, 20_000, 500)]


def test_a_few_rows_of_another_destination_do_not_wait_alone(fake: FakeBroker, task: type[Task]) -> None:
    task(0, 5)
    batches = [
        *mixed(1000, 1, 100),
        *rows(b"a", b"b", destination="/queue/a"),
        *rows(b"c", destination="/queue/b"),
    ]
    stream(fake).write(iter(batches))
    assert [destinations for _, destinations in blobs(fake)] == [{"/topic/0"}, {"/queue/a", "/queue/b"}]


def test_no_rows(fake: FakeBroker, task: type[Task]) -> None:
    task(0, 5)
    message = stream(fake).write(iter(()))
    assert message.attempts == ()
    stream(fake).commit([message], 5)
    assert fake.published == {"query-q-1": 5}
    stream(fake).commit([], 6)
    assert fake.published == {"query-q-1": 5}


def test_an_abort_drops_what_was_staged(fake: FakeBroker, task: type[Task]) -> None:
    task(0, 5)
    message = stream(fake).write(rows(b"a"))
    stream(fake).abort([message, None], 5)
    assert fake.staged == {}
    with pytest.raises(Refused, match="partition 0"):
        stream(fake).commit([message], 5)


def test_an_abort_without_broker_does_not_hide_the_reason(
    fake: FakeBroker, task: type[Task], caplog: pytest.LogCaptureFixture
) -> None:
    task(0, 5)
    message = stream(fake).write(rows(b"a"))
    fake.close()
    stream(fake, reconnectTimeout="0").abort([message], 5)
    assert "what an aborted write has staged was not dropped: no broker at" in caplog.text


def test_a_stream_that_does_not_know_its_batch(fake: FakeBroker, task: type[Task]) -> None:
    task(0)
    with pytest.raises(UsageError, match="did not say which batch"):
        stream(fake).write(rows(b"a"))


def test_a_batch_write_is_a_job_of_its_own(fake: FakeBroker, task: type[Task]) -> None:
    for _ in range(2):
        task(0)
        writer = batch(fake)
        pickle.loads(pickle.dumps(writer)).commit([pickle.loads(pickle.dumps(writer)).write(rows(b"a"))])
    assert fake.logs["out"].bodies() == [b"a", b"a"]
    assert all(name.startswith("job-") for name in fake.published)


def test_a_batch_write_with_a_number_is_published_once(fake: FakeBroker, task: type[Task]) -> None:
    for number in ("0", "0", "1"):
        task(0)
        writer = batch(fake, sinkId="mine", batchId=number)
        writer.commit([writer.write(rows(b"a"))])
    assert fake.logs["out"].bodies() == [b"a", b"a"]


def test_columns_are_checked_before_anything_runs(fake: FakeBroker) -> None:
    schema = StructType([StructField("body", IntegerType())])
    for streaming in (False, True):
        given = source(fake, destination="/queue/out")
        with pytest.raises(UsageError, match="column 'body' is of type int"):
            given.streamWriter(schema=schema, overwrite=False) if streaming else given.writer(
                schema=schema, overwrite=False
            )
    assert fake.logins == []
