"""A session of Spark Connect, in a process of its own: `python -m tests.spark.connect URL URLS NUMBERS`.

It reads, writes and streams what the broker at URL has at /topic/f.#, by nothing but Spark's own API, and plays these rows of the table of
what may be wrong (bad_input.py) with the brokers at URLS. What it prints is JSON: the rows at /queue/copy in the end, and what was said.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from typing import Any

from stompbox.spark import session
from tests.spark.archive import QUICK
from tests.spark.bad_input import CASES, provoke


def connected() -> Any:
    os.environ["JAVA_HOME"] = str(session.java_home(os.environ))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_TESTING"] = "1"  # a free port for the server
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("connect").remote("local[2]")
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.sql.connect.serverStacktrace.enabled": "false",
    }
    settings["spark.sql.pyspark.jvmStacktrace.enabled"] = "false"  # the default, but for tests
    for name, value in {**session.SETTINGS, **QUICK, **settings}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    assert "connect" in type(spark).__module__
    return spark


def copy(spark: Any, url: str) -> int:
    """Twice, as a batch and as a stream."""
    rows = spark.read.format("stomp").options(url=url, destination="/topic/f.#").load()
    rows.select("body", "headers").write.format("stomp").mode("append").options(
        url=url, destination="/queue/copy"
    ).save()
    with tempfile.TemporaryDirectory() as folder:
        stream = (
            spark.readStream.format("stomp")
            .options(url=url, destination="/topic/f.#")
            .load()
            .select("body", "headers")
        )
        writer = (
            stream.writeStream.format("stomp")
            .options(url=url, destination="/queue/copy")
            .option("checkpointLocation", folder)
        )
        writer.trigger(availableNow=True).start().awaitTermination()
    return int(spark.read.format("stomp").options(url=url, destination="/queue/copy").load().count())


def main(url: str, urls: str, numbers: str) -> None:
    spark = connected()
    found = {
        "rows": copy(spark, url),
        "said": [provoke(spark, CASES[number], json.loads(urls)) for number in json.loads(numbers)],
    }
    print(json.dumps(found), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
