"""The Python that docs/spark.md prints, run against a broker. The README's runs in an environment of its own: tests/test_packaging.py."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from stompbox import blocking
from stompbox.spark.bounds import EARLIEST
from stompbox.spark.link import leased
from stompbox.spark.options import Given, target_of
from stompbox.spark.requests import describe, open_group
from tests.test_snippets import SNIPPETS, Snippet

PRINTED = [
    each
    for each in SNIPPETS
    if each.page == "docs/spark.md" and each.language == "python" and not each.is_marked
]


def run(snippet: Snippet, spark: Any, broker: tuple[str, int], folder: Path, **around: Any) -> dict[str, Any]:
    """With this broker in place of the printed one, and its files below `folder`: Java's own folder is not the test's."""
    text = re.sub(r"stomps?://[^\"]*", f"stomp://{broker[0]}:{broker[1]}", snippet.text)
    text = re.sub(r'"((?:lake|out)/[a-z]+)"', rf'"{folder}/\1"', text)
    names = {"url": f"stomp://{broker[0]}:{broker[1]}", "spark": spark, **around}
    exec(compile(text, str(snippet), "exec"), names)
    return names


def test_five_are_printed() -> None:
    """The last one, a listener, is the one that tests/spark/test_listener.py is about."""
    known = ["readStream", "to_parquet", "writeStream", "def both"]
    assert [re.findall("|".join(known), each.text)[0] for each in PRINTED] == [*known, "readStream"]
    assert "ProgressListener" in PRINTED[-1].text


def read_to(place: str) -> dict[str, int]:
    with leased(target_of(Given({"url": place}))) as link:
        return {
            name: extent.next
            for name, extent in describe(link, "/queue/copied.flights", create=False).extents.items()
        }


def test_a_batch_read_becomes_files(spark: Any, broker: tuple[str, int], tmp_path: Path) -> None:
    place = f"stomp://{broker[0]}:{broker[1]}"
    with leased(target_of(Given({"url": place}))) as link:  # in memory a broker keeps what a group reads
        describe(link, "/queue/copied.flights", create=True)
        open_group(link, "copied", "/queue/copied.flights", EARLIEST)
    with blocking.connect(place) as client:
        client.send("/queue/copied.flights", b"1")
    deadline = time.monotonic() + 60
    while next(iter(read_to(place).values())) < 1 and time.monotonic() < deadline:
        # a broker in memory confirms before its log has it
        pass
    snippet = replace(PRINTED[1], text=PRINTED[1].text.replace("/topic/flights.#", "/queue/copied.flights"))
    assert run(snippet, spark, broker, tmp_path)["rows"] == 1
    assert [bytes(row.body) for row in spark.read.parquet(str(tmp_path / "lake/copy")).collect()] == [b"1"]


def test_a_topic_becomes_a_table(spark: Any, broker: tuple[str, int], tmp_path: Path) -> None:
    run(PRINTED[0], spark, broker, tmp_path)
    [query] = spark.streams.active
    try:
        query.processAllAvailable()  # its group is there now
        with blocking.connect(f"stomp://{broker[0]}:{broker[1]}") as client:
            client.send("/topic/flights.UA", b"1")
        found: list[bytes] = []
        deadline = time.monotonic() + 60
        while not found and time.monotonic() < deadline:
            query.processAllAvailable()  # which believes a look that was under way before the message came
            table = spark.read.schema("body BINARY").parquet(str(tmp_path / "lake/flights"))
            found = [bytes(row.body) for row in table.collect()]
        assert found == [b"1"]
    finally:
        query.stop()


def test_rows_become_messages(spark: Any, broker: tuple[str, int], tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"hour": 5, "flights": 7}\n')
    results = spark.readStream.schema("hour INT, flights INT").json(str(tmp_path / "in"))
    snippet = replace(PRINTED[2], text=PRINTED[2].text.replace("/queue/results", "/queue/printed.results"))
    run(snippet, spark, broker, tmp_path, results=results)
    [query] = spark.streams.active
    with (
        blocking.connect(f"stomp://{broker[0]}:{broker[1]}") as client,
        client.subscribe("/queue/printed.results") as messages,
    ):
        try:
            query.processAllAvailable()
            found = messages.receive(60)
        finally:
            query.stop()
    assert found is not None
    assert (found.json(), found.headers["kind"]) == ({"hour": 5, "flights": 7}, "hourly")


def test_a_replayed_batch_is_published_once(spark: Any, broker: tuple[str, int], tmp_path: Path) -> None:
    both = run(PRINTED[3], spark, broker, tmp_path)["both"]
    rows = spark.createDataFrame([("x",)], "body STRING")
    with (
        blocking.connect(f"stomp://{broker[0]}:{broker[1]}") as client,
        client.subscribe("/queue/a") as messages,
    ):
        for batch in (0, 0, 1):
            both(rows, batch)
        found = [messages.receive(60) for _ in range(2)]
        assert [each.body if each else None for each in found] == [b"x", b"x"]
        client.send("/queue/a", b"last")
        last = messages.receive(60)
        assert last is not None and last.body == b"last"
