"""The report: a Spark batch job over the table that says how late flights were, and what is in the table and on the broker.

Every result is a row, and every row becomes a message to /queue/report: header `report` names what it belongs to, the body is JSON.

    all, carrier, origin, hour, carrier_hour    flights and their delays, by what the name says
    archived                                    per address: rows of the table, distinct offsets among them, lowest, highest, checksum
    stored                                      the same of the broker's log, read again from its beginning
"""

from __future__ import annotations

import sys
from typing import Any, Final

from demo.lines import order_given, say
from stompbox.spark import session

DESTINATION: Final = "/topic/flights.#"
REPORT: Final = "/queue/report"

BODY: Final = "carrier STRING, origin STRING, hour INT, dep_delay INT"  # null: cancelled

DELAYS: Final = """
SELECT
  coalesce(nullif(concat_ws('_', if(grouping(carrier) = 0, 'carrier', NULL), if(grouping(origin) = 0, 'origin', NULL),
                            if(grouping(hour) = 0, 'hour', NULL)), ''), 'all') AS report,
  to_json(struct(
    carrier, origin, hour,
    count(*) AS flights,
    count_if(dep_delay IS NULL) AS cancelled,
    count_if(dep_delay > 60) AS late,
    count_if(dep_delay <= 15) AS punctual,
    round(avg(dep_delay), 2) AS mean_delay,
    percentile_approx(dep_delay, 0.9) AS ninth_decile
  )) AS body
FROM flights
GROUP BY GROUPING SETS ((), (carrier), (origin), (hour), (carrier, hour))
"""

COUNTS: Final = """
SELECT
  '{report}' AS report,
  to_json(struct(
    address, count(*) AS rows, count(DISTINCT offset) AS distinct, min(offset) AS lowest, max(offset) AS highest,
    sum(crc32(body)) AS checksum
  )) AS body
FROM {table}
GROUP BY address
"""

COLUMNS: Final = "report STRING, body STRING"
AS_MESSAGES: Final = "map('report', report) AS headers", "body", "'application/json' AS content_type"


def views(spark: Any, url: str, table: str) -> None:
    """The tables that the queries name: archived, stored, and flights, which is what the bodies of the archived ones say."""
    # by the query's commit log: files of a batch that was cut off do not count
    archived = spark.read.parquet(table)
    archived.createOrReplaceTempView("archived")
    archived.selectExpr(f"from_json(CAST(body AS STRING), '{BODY}') AS flight").select(
        "flight.*"
    ).createOrReplaceTempView("flights")
    spark.read.format("stomp").option("url", url).option(
        "destination", DESTINATION
    ).load().createOrReplaceTempView("stored")


def results(spark: Any) -> list[Any]:
    """Rows of (report, body)."""
    found: list[Any] = []
    for query in (
        DELAYS,
        COUNTS.format(report="archived", table="archived"),
        COUNTS.format(report="stored", table="stored"),
    ):
        found += spark.sql(query).collect()
        say(rows=len(found))
    return found


def main(url: str, table: str) -> None:
    order_given("nothing")  # gone when the parent is
    spark = session.local("departures report", settings={"spark.sql.shuffle.partitions": "2"})
    say(running=True)
    views(spark, url, table)
    rows = spark.createDataFrame(results(spark), COLUMNS).coalesce(1).selectExpr(*AS_MESSAGES)
    rows.write.format("stomp").option("url", url).option("destination", REPORT).mode("append").save()
    spark.stop()
    say(finished=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
