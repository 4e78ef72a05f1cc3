"""Spark applications that tests run as processes of their own: `python -m tests.spark.cluster cluster|connect URL`.

    cluster   two executors read /topic/f.#, one task fails after its rows are staged, and what they sent to /queue/copy is counted
    connect   a session of Spark Connect reads, writes and streams; nothing but Spark's own API is used
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

from stompbox.spark import session
from tests.spark.archive import CLUSTER


def fails_once(batches: Iterator[Any]) -> Iterator[Any]:
    """Gives out everything, and fails in the end of the first attempt at the first partition."""
    from pyspark import TaskContext

    yield from batches
    context = TaskContext.get()
    assert context is not None
    if (context.partitionId(), context.attemptNumber()) == (0, 0):
        raise RuntimeError("as the test asked")


def cluster(url: str) -> None:
    settings = {"spark.master": CLUSTER, "spark.task.maxFailures": "4", "spark.speculation": "true"}
    spark = session.local("cluster", settings=settings, nice=0)
    spark.sparkContext.setLogLevel("ERROR")
    rows = spark.read.format("stomp").options(url=url, destination="/topic/f.#", numPartitions="2").load().select("body", "headers")
    rows.mapInArrow(fails_once, rows.schema).write.format("stomp").mode("append").options(url=url, destination="/queue/copy").save()
    print(spark.read.format("stomp").options(url=url, destination="/queue/copy").load().count(), flush=True)
    spark.stop()


def connect(url: str) -> None:
    os.environ["JAVA_HOME"] = str(session.java_home(os.environ))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_TESTING"] = "1"  # a free port for the server
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("connect").remote("local[2]")
    for name, value in {**session.SETTINGS, "spark.connect.grpc.binding.address": "127.0.0.1"}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    assert "connect" in type(spark).__module__
    rows = spark.read.format("stomp").options(url=url, destination="/topic/f.#").load()
    rows.select("body", "headers").write.format("stomp").mode("append").options(url=url, destination="/queue/copy").save()
    with tempfile.TemporaryDirectory() as folder:
        stream = spark.readStream.format("stomp").options(url=url, destination="/topic/f.#").load().select("body", "headers")
        writer = stream.writeStream.format("stomp").options(url=url, destination="/queue/copy").option("checkpointLocation", folder)
        writer.trigger(availableNow=True).start().awaitTermination()
    print(spark.read.format("stomp").options(url=url, destination="/queue/copy").load().count(), flush=True)
    spark.stop()


if __name__ == "__main__":
    {"cluster": cluster, "connect": connect}[sys.argv[1]](sys.argv[2])
