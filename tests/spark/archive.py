"""One Spark application as a process of its own, to be killed: `python -m tests.spark.archive URL FOLDER FORMS`.

Reads /topic/soak.# in batches of `--rows` into FOLDER, form `parquet` (Spark's own sink) or `arrow` (a pipeline's archive), or back to
/queue/copy, form `stomp`, or two at once. Prints the
form and number of each batch when it is done, and `end` when everything that was there is. A query that fails ends it.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from stompbox.spark import session
from tests import sparkhome

CLUSTER = "local-cluster[2,1,1024]"  # two worker processes with a core each
SETTINGS = {
    "spark.deploy.maxExecutorRetries": "-1",
    "spark.sql.shuffle.partitions": "2",
}
QUICK = {  # for a Java that does not live long: starts sooner, and takes less of a processor that others want
    "spark.driver.extraJavaOptions": sparkhome.options(),
    "spark.executor.extraJavaOptions": sparkhome.options(),
}


def started(spark: Any, url: str, folder: Path, form: str, rows: int) -> Any:
    """One query with its own checkpoint and group."""
    if form == "arrow":
        return pipeline(spark, url, folder, rows)
    given = {
        "url": url,
        "destination": "/topic/soak.#",
        "group": f"lake-{form}",
        "maxRowsPerTrigger": str(rows),
        "numPartitions": "2",
    }
    source = spark.readStream.format("stomp").options(**given).load()
    if form == "stomp":
        writer = (
            source.drop("destination").writeStream.format("stomp").options(url=url, destination="/queue/copy")
        )
    else:
        writer = source.writeStream.format(form).option("path", str(folder / "table"))
    return (
        writer.queryName(form)
        .option("checkpointLocation", str(folder / f"checkpoint-{form}"))
        .trigger(availableNow=True)
        .start()
    )


PIPELINE = """
url = "{url}"
folder = "state"
[[archive]]
name = "arrow"
group = "lake-arrow"
destinations = ["/topic/soak.#"]
table = "table"
max-rows = {rows}
num-partitions = 2
writer = "arrow"
"""


def pipeline(spark: Any, url: str, folder: Path, rows: int) -> Any:
    """The archive of a pipeline, whose tasks write the files themselves, and which compacts them."""
    from stompbox.pipelines import archive
    from stompbox.pipelines.plan import read_plan

    file = folder / "lake.toml"
    file.write_text(PIPELINE.format(url=url, rows=rows))
    plan = read_plan(file, {})
    return archive.start(spark, plan, plan.pipeline.archives[0], lambda _: None, {}, once=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("folder", type=Path)
    parser.add_argument("forms")
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--master", default="")
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    settings = {
        **SETTINGS,
        **({"spark.master": given.master} if given.master else {}),
        **(QUICK if given.quick else {}),
    }
    spark = session.local("archive", cores=2, settings=settings, nice=0)
    spark.sparkContext.setLogLevel("ERROR")
    queries = {
        form: started(spark, given.url, given.folder, form, given.rows) for form in given.forms.split(",")
    }
    done = dict.fromkeys(queries, -1)
    while any(query.isActive for query in queries.values()):
        for form, query in queries.items():
            query.awaitTermination(0.05)  # raises what it failed with
            progress = query.lastProgress
            if progress is not None and progress["batchId"] > done[form]:
                done[form] = progress["batchId"]
                print(f"batch {form} {done[form]}", flush=True)
    for query in queries.values():
        query.awaitTermination()
    print("end", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
