"""One Spark application as a process of its own, to be killed: `python -m tests.spark.archive URL FOLDER FORM`.

Reads /topic/crash.# in batches of 5,000 rows into FOLDER, FORM `parquet`, or back to /queue/copy, FORM `stomp`. Prints the number of
each batch when it is done, and `end` when everything that was there is.
"""

from __future__ import annotations

import sys
from pathlib import Path

from stompbox.spark import session


def main(url: str, folder: Path, form: str) -> None:
    spark = session.local("archive", cores=2)
    spark.sparkContext.setLogLevel("ERROR")
    rows = (
        spark.readStream.format("stomp")
        .options(url=url, destination="/topic/crash.#", group=f"lake-{form}", maxRowsPerTrigger="5000")
        .load()
    )
    if form == "stomp":
        writer = rows.drop("destination").writeStream.format("stomp").options(url=url, destination="/queue/copy")
    else:
        writer = rows.writeStream.format(form).option("path", str(folder / "table"))
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    done = -1
    while not query.awaitTermination(0.05):
        progress = query.lastProgress
        if progress is not None and progress["batchId"] > done:
            done = progress["batchId"]
            print(f"batch {done}", flush=True)
    print("end", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
