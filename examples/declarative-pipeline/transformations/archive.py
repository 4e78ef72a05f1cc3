"""Messages to a table, each exactly once, a view of it by the hour, and that view back to the broker."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, count, date_trunc, length, lit, struct, to_date, to_json
from pyspark.sql.functions import sum as total

URL = os.environ.get("STOMPBOX_URL", "stomp://127.0.0.1:61613")
spark = SparkSession.active()


@dp.table(comment="every message, partitioned by the day (UTC) of its arrival", partition_cols=["date"])
def orders() -> DataFrame:
    messages = (
        spark.readStream.format("stomp")
        .option("url", URL)
        .option("destination", "/queue/orders")
        # what is not archived yet is kept, and the broker shows how much that is
        .option("group", "orders-declarative")
        .load()
    )
    return messages.withColumn("date", to_date("timestamp"))


@dp.materialized_view(comment="messages and bytes per address and hour")
def orders_by_hour() -> DataFrame:
    hours = spark.read.table("orders").groupBy("address", date_trunc("hour", "timestamp").alias("hour"))
    return hours.agg(count(lit(1)).alias("messages"), total(length("body")).alias("bytes"))


dp.create_sink("copies", "stomp", {"url": URL, "destination": "/queue/orders.archived"})


@dp.append_flow(target="copies")
def archived() -> DataFrame:
    """Says to whoever listens what is in the table: address and offset of each message."""
    return spark.readStream.table("orders").select(
        to_json(struct(col("address"), col("offset"))).alias("body")
    )
