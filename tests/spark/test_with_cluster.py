"""Spark and a cluster of brokers: a query goes on when another node leads, and reads from nodes that follow."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import stompbox
from stompbox.spark.link import SparkLink, forget, leased
from stompbox.spark.offsets import OffsetRange
from stompbox.spark.options import Given, source_options, target_of
from stompbox.spark.reading import View, batches
from stompbox.spark.requests import describe
from tests.crash.cluster import Cluster

COUNT = 300  # messages before the fault, and as many after it
WITHIN = 90.0  # seconds


def joined(urls: list[str]) -> str:
    return "stomp://" + ",".join(url.rpartition("/")[2] for url in urls)


async def send(url: str, first: int) -> None:
    policy = stompbox.Reconnect(attempts=None, first_delay=0.05, max_delay=0.5, initial=True)
    async with stompbox.connect(url, reconnect=policy) as client:
        for number in range(first, first + COUNT):
            name = str(number)
            # what is sent again because its receipt did not come counts once
            await client.send("/queue/rows", name.encode(), {"persistent": "true", "_AMQ_DUPL_ID": name})


def has(query: Any, count: int, url: str) -> Counter[str]:
    """What has come to /queue/copy, once so many messages have."""
    target = target_of(Given({"url": url}))
    options = source_options(Given({"url": url, "destination": "/queue/copy"}), streaming=False)
    deadline = time.monotonic() + WITHIN
    while time.monotonic() < deadline:
        query.awaitTermination(0.2)  # raises what it failed with
        with leased(target) as link:
            extents = describe(link, "/queue/copy", create=True).extents
        if extents["copy"].next >= count:
            break
    else:
        pytest.fail(f"{extents['copy'].next} of {count} messages have come within {WITHIN} s")
    wanted = [OffsetRange("copy", extents["copy"].first, extents["copy"].next)]
    return Counter(
        bytes(body.as_py()).decode()
        for batch in batches(options, wanted, View(("body",)))
        for body in batch.column("body")
    )


def test_a_query_goes_on_when_another_node_leads(spark: Any, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, f"disk://{tmp_path}/log")
    for node in cluster.nodes:
        node.reading = "tcp://127.0.0.1:0"
    query = None
    try:
        cluster.start()
        leader = asyncio.run(cluster.until_led())
        asyncio.run(cluster.until_ready())
        url = joined([node.url for node in cluster.nodes])
        reading = joined([node.reading for node in cluster.nodes])
        rows = spark.readStream.format("stomp").options(
            url=url, readUrl=reading, destination="/queue/rows", group="g", maxRowsPerTrigger="100"
        )
        written = rows.load().select("body").writeStream.format("stomp")
        query = written.options(
            url=url, destination="/queue/copy", checkpointLocation=str(tmp_path / "checkpoint")
        ).start()
        asyncio.run(send(url, 0))
        assert has(query, COUNT, url) == Counter(map(str, range(COUNT)))
        leader.signal(signal.SIGKILL)
        asyncio.run(send(url, COUNT))
        assert has(query, 2 * COUNT, url) == Counter(map(str, range(2 * COUNT)))
    finally:
        if query is not None:
            query.stop()
        forget()
        cluster.end()


def test_followers_answer_who_fetches(tmp_path: Path) -> None:
    """Also while nobody leads; the broker itself is not asked for messages."""
    cluster = Cluster(tmp_path, f"disk://{tmp_path}/log")
    for node in cluster.nodes:
        node.reading = "tcp://127.0.0.1:0"
    try:
        cluster.start()
        leader = asyncio.run(cluster.until_led())
        asyncio.run(cluster.until_ready())
        asyncio.run(send(joined([node.url for node in cluster.nodes]), 0))
        followers = [node for node in cluster.nodes if node is not leader]
        reading = joined([node.reading for node in followers])
        end, deadline = 0, time.monotonic() + WITHIN
        with SparkLinkAt(reading) as link:
            while end < COUNT and time.monotonic() < deadline:  # a follower has what it has applied
                end = describe(link, "/queue/rows", create=False).extents["rows"].next
        given = {"url": "stomp://127.0.0.1:1", "reconnectTimeout": "0", "readUrl": reading}
        options = source_options(Given({**given, "destination": "/queue/rows"}), streaming=False)
        read = batches(options, [OffsetRange("rows", 0, end)], View(("body",)))
        assert sum(batch.num_rows for batch in read) == COUNT == end
    finally:
        forget()
        cluster.end()


class SparkLinkAt(SparkLink):
    """A connection that is closed in the end."""

    def __init__(self, url: str) -> None:
        super().__init__(target_of(Given({"url": url})))

    def __enter__(self) -> SparkLink:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
