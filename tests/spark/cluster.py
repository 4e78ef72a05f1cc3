"""A Spark application that a test runs as processes of its own: `python -m tests.spark.cluster URL`.

Two executors read /topic/f.#, one task fails after its rows are staged, and what they sent to /queue/copy is counted.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from stompbox.spark import session
from tests.spark.archive import CLUSTER, QUICK


def fails_once(batches: Iterator[Any]) -> Iterator[Any]:
    """Gives out everything, and fails in the end of the first attempt at the first partition."""
    from pyspark import TaskContext

    yield from batches
    context = TaskContext.get()
    assert context is not None
    if (context.partitionId(), context.attemptNumber()) == (0, 0):
        raise RuntimeError("as the test asked")


def cluster(url: str) -> None:
    settings = {"spark.master": CLUSTER, "spark.task.maxFailures": "4", "spark.speculation": "true", **QUICK}
    spark = session.local("cluster", settings=settings, nice=0)
    spark.sparkContext.setLogLevel("ERROR")
    rows = (
        spark.read.format("stomp")
        .options(url=url, destination="/topic/f.#", numPartitions="2")
        .load()
        .select("body", "headers")
    )
    rows.mapInArrow(fails_once, rows.schema).write.format("stomp").mode("append").options(
        url=url, destination="/queue/copy"
    ).save()
    print(spark.read.format("stomp").options(url=url, destination="/queue/copy").load().count(), flush=True)
    spark.stop()


if __name__ == "__main__":
    cluster(sys.argv[1])
