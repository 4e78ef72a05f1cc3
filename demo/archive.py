"""The archive: a Spark Structured Streaming query that appends every flight message to a Parquet table. It may be killed at any time.

The checkpoint says which offsets a batch has; Parquet's commit log says which files of a batch count. Both together with a source that
reads the same offsets again make every (address, offset) stand in the table once.
"""

from __future__ import annotations

import argparse
import json
from typing import Any, Final

from demo.lines import order_given, say
from stompbox.spark import session
from stompbox.spark.offsets import numbers_of

DESTINATION: Final = "/topic/flights.#"
GROUP: Final = "lake"
POLL: Final = 0.1  # s


def start(spark: Any, url: str, table: str, checkpoint: str, rows: int) -> Any:
    flights = (
        spark.readStream.format("stomp")
        .option("url", url)
        .option("destination", DESTINATION)
        .option("group", GROUP)  # the broker keeps what this has not read
        .option("maxRowsPerTrigger", rows)
        .load()
    )
    return (
        flights.writeStream.format("parquet")
        .option("path", table)
        .option("checkpointLocation", checkpoint)
        .start()
    )


def facts(progress: Any) -> dict[str, Any]:
    """Of one batch that is done. `archived` counts all rows of the table, also those of earlier runs: offsets begin at 0, without gaps."""
    ends = json.loads(progress.sources[0].endOffset or "{}")
    return {
        "batch": progress.batchId,
        "rows": progress.numInputRows,
        "seconds": progress.durationMs.get("triggerExecution", 0) / 1000,
        "archived": sum(numbers_of(ends).values()),
    }


def report(query: Any, last: int) -> int:
    """Says each batch that was done after batch `last`."""
    for progress in query.recentProgress:
        if progress.batchId > last and progress.numInputRows:
            last = progress.batchId
            say(**facts(progress))
    return last


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("table")
    parser.add_argument("checkpoint")
    parser.add_argument("rows", type=int, help="of one micro-batch, at most")
    given = parser.parse_args()
    told = order_given("finish")
    spark = session.local("departures archive")
    query = start(spark, given.url, given.table, given.checkpoint, given.rows)
    say(running=True)
    last = -1
    while query.isActive and not told.wait(POLL):
        last = report(query, last)
    if not query.isActive:
        query.awaitTermination()  # raises what ended it
    query.processAllAvailable()
    report(query, last)
    query.stop()
    spark.stop()
    say(finished=True)


if __name__ == "__main__":
    main()
