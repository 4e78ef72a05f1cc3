"""How fast messages become rows and rows messages, end to end: `python bench/spark_pipeline.py [messages]`.

A broker in its own process (durable, fsync), messages of 200 bytes with three headers beside the destination on four topics, and a local
Spark on two cores. Each figure is a whole query, with its start, the best of three; `batch` is what one micro-batch takes at most. Beside
it stand the processor seconds that a million rows cost Spark, its workers and the broker together: they say more on a busy machine.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from stompbox.spark import session
from stompbox.spark.bounds import EARLIEST
from stompbox.spark.link import leased
from stompbox.spark.options import Given, target_of
from stompbox.spark.requests import open_group

BODY = b"x" * 200
TOPICS = 4
FRAMES = 1000  # sent at a time


@contextmanager
def broker(folder: Path) -> Any:
    command = [sys.executable, "-m", "stompbox", "serve", "--no-admin", "--listen", "tcp://127.0.0.1:0", "--data", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            lines = []
            while "ready" not in (line := process.stdout.readline()):
                assert line, "the broker ended"
                lines.append(line)
            yield "stomp://" + next(line for line in lines if "tcp://" in line).split("tcp://")[1].strip()
        finally:
            process.terminate()


def hold(url: str, destinations: str) -> None:
    """A group that keeps what is sent: a topic that nobody holds keeps nothing."""
    with leased(target_of(Given({"url": url}))) as link:
        open_group(link, "bench", destinations, EARLIEST)


def fill(url: str, messages: int) -> float:
    """Sends and returns the messages a second, the receipt for the last one included."""
    host, _, port = url.removeprefix("stomp://").partition(":")
    start = time.perf_counter()
    with socket.create_connection((host, int(port))) as link:
        link.sendall(b"CONNECT\naccept-version:1.2\nhost:x\nheart-beat:0,0\n\n\0")
        assert link.recv(65536).startswith(b"CONNECTED")
        for first in range(0, messages, FRAMES):
            head = b"SEND\ndestination:/topic/bench.%d\npersistent:true\ncarrier:UA\norigin:EWR\nid:" % (first // FRAMES % TOPICS)
            last = b"\nreceipt:done" if first + FRAMES >= messages else b""
            tail = b"\ncontent-length:200\n\n%b\0" % BODY
            link.sendall(b"".join([b"%b%012d%b" % (head, first + index, tail) for index in range(FRAMES - 1)]))
            link.sendall(b"%b%012d%b%b" % (head, first + FRAMES - 1, last, tail))
        received = b""
        while b"receipt-id:done" not in received:
            received += link.recv(65536)
    return messages / (time.perf_counter() - start)


def processor_seconds() -> float:
    """Of this process and all that it started (Linux)."""
    spent: dict[int, tuple[int, int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            spent[int(path.parent.name)] = int(fields[1]), sum(map(int, fields[11:15]))  # parent; ticks, those of children that ended too
    ours = {os.getpid()}
    while more := {process for process, (parent, _) in spent.items() if parent in ours} - ours:
        ours |= more
    return sum(spent[process][1] for process in ours) / os.sysconf("SC_CLK_TCK")


def rate(name: str, messages: int, run: Callable[[Path], object]) -> None:
    best = cost = float("inf")
    for _ in range(3):
        with tempfile.TemporaryDirectory() as folder:
            start, before = time.perf_counter(), processor_seconds()
            run(Path(folder))
            best = min(best, time.perf_counter() - start)
            cost = min(cost, processor_seconds() - before)
    print(f"{name:40} {messages / best:12,.0f} rows/s {cost * 1e6 / messages:8.2f} s per million", flush=True)


def measure(spark: Any, url: str, messages: int) -> None:
    options = {"url": url, "destination": "/topic/bench.#"}

    def batch(folder: Path) -> None:
        spark.read.format("stomp").options(**options).load().write.format("noop").mode("overwrite").save()

    def stream(form: str, size: int, **given: str) -> Callable[[Path], None]:
        def run(folder: Path) -> None:
            rows = spark.readStream.format("stomp").options(**options, maxRowsPerTrigger=str(size)).load()
            writer = rows.writeStream.format(form).options(checkpointLocation=str(folder / "checkpoint"), **given)
            if form == "parquet":
                writer = writer.option("path", str(folder / "table"))
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
            seen = sum(json.loads(progress.json)["numInputRows"] for progress in query.recentProgress)
            assert seen == messages, f"{seen} rows instead of {messages}"

        return run

    def write(folder: Path) -> None:
        rows = spark.range(0, messages, 1, 2)
        rows = rows.selectExpr("repeat('x', 200) AS body", "map('id', CAST(id AS STRING), 'carrier', 'UA', 'origin', 'EWR') AS headers")
        rows.write.format("stomp").mode("append").options(url=url, destination="/topic/sink").save()

    rate("batch read to noop", messages, batch)
    for size in (500_000, 100_000):
        rate(f"stream to noop, batch of {size:,}", messages, stream("noop", size))
    rate("stream to Parquet, batch of 500,000", messages, stream("parquet", 500_000))
    rate("batch write", messages, write)


def main() -> None:
    messages = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory() as folder, broker(Path(folder) / "data") as url, suppress(KeyboardInterrupt):
        hold(url, ",".join(f"/topic/bench.{topic}" for topic in range(TOPICS)))
        print(f"{'sent to the broker':40} {fill(url, messages):12,.0f} messages/s", flush=True)
        spark = session.local("bench", cores=2)
        spark.sparkContext.setLogLevel("ERROR")
        measure(spark, url, messages)
        spark.stop()


if __name__ == "__main__":
    main()
