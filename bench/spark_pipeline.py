"""How fast messages become rows and rows messages, end to end: `python bench/spark_pipeline.py [--rows source,sink] [--messages 2000000]`.

    source      batch and stream, to nothing (noop) and to Parquet, by Java and by the tasks (arrow), with headers and without
    sink        a batch of rows, and a stream copied to another address    neighbour   what another client notices of archives and writes
    trigger     what a micro-batch costs that has one row                  peer        the same archive by stomp.py and pyarrow
    lake        `stompbox pipeline run --once` of an archive, a report and an audit of all of `--lake-messages` (10 million)

Without arguments all of them, by one command. Beside each figure that has a goal (GOALS) stands whether it is reached, and all of these
once more at the end. With `--messages 4000 --lake-messages 4000 --runs 1` it shows in a few minutes that everything works.

A broker in its own process (durable, fsync), messages of 200 bytes with three headers beside the destination on four topics, and a local
Spark on two cores; `lake` has a broker of its own. `cold` is the first run of this query, `warm` the best of those after it (Spark's code
is compiled while it runs), each whole, with its start; `steady` counts the rows and the time of micro-batches without the first. Of
`trigger`, cold is the first micro-batch of a query, and warm the middle one of those after its fifth. Of `lake`, cold is the whole command,
with the start of its Java, and warm the same step in a session that has done it once. `neighbour` is warm: its work has been done once
before it is looked at. Beside the rates stand the processor seconds that a million rows cost Spark, its workers and the broker together:
they say more on a busy machine.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.run import OUT, build_stompload
from stompbox.pipelines import running
from stompbox.pipelines.plan import read_plan
from stompbox.pipelines.progress import Batch, Event
from stompbox.spark import session
from stompbox.spark.bounds import EARLIEST
from stompbox.spark.export import to_parquet
from stompbox.spark.link import leased
from stompbox.spark.options import Given, target_of
from stompbox.spark.requests import open_group

BODY = b"x" * 200
TOPICS = 4
FRAMES = 1000  # sent at a time
ROWS = ("source", "sink", "trigger", "neighbour", "peer", "lake")
RATE = 2000  # messages/s of the neighbour
NEIGHBOUR_MESSAGES = 4000
NEIGHBOUR_LOOKS = 5  # one stall of the machine should not be the figure
PEER_ROWS = 10_000  # of a Parquet file's row group
TRIGGERS = 40  # micro-batches of one row
LAKE_MESSAGES = 10_000_000


@dataclass(frozen=True, slots=True)
class Goal:
    """What a row is to reach: at least so much, or (`is_most`) at most. `messages`: of so many; 0: of any number."""

    limit: float
    unit: str
    is_most: bool = False
    messages: int = 0

    def __str__(self) -> str:
        return f"{'<=' if self.is_most else '>='} {self.limit:,.0f} {self.unit}"

    def is_reached(self, figure: float) -> bool:
        return figure <= self.limit if self.is_most else figure >= self.limit


BATCH, STREAM, WRITTEN = Goal(900_000, "rows/s"), Goal(700_000, "rows/s"), Goal(350_000, "rows/s")
CALM = Goal(5, "times the p99 alone", is_most=True)
GOALS = {
    "batch to Parquet, arrow": BATCH, "batch to Parquet, arrow, no headers": BATCH,
    "stream to Parquet, arrow": STREAM, "stream to Parquet, arrow, no headers": STREAM,
    "batch write": WRITTEN, "stream copied": WRITTEN, "trigger, one row to noop": Goal(250, "ms", is_most=True),
    "neighbour, beside an archive, arrow": CALM, "neighbour, beside a batch write": CALM,
    "archive": Goal(30, "s", is_most=True, messages=LAKE_MESSAGES), "report": Goal(20, "s", is_most=True, messages=LAKE_MESSAGES),
    "audit": Goal(30, "s", is_most=True, messages=LAKE_MESSAGES),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Bench:
    spark: Any
    url: str
    messages: int
    runs: int
    summary: list[str] = field(default_factory=list)  # a line for each row that has a goal

    def beside(self, name: str, **figures: float) -> str:
        """What is said of the goal of this row, if it has one. `figures`: by what they are, cold and warm."""
        goal = GOALS.get(name)
        if goal is None:
            return ""
        if goal.messages not in (0, self.messages):
            said = f"goal {goal} (of {goal.messages:,} messages)"
        else:
            found = {
                kind: "reached" if goal.is_reached(figure) else "missed" for kind, figure in figures.items()
            }
            said = f"goal {goal}: " + ", ".join(f"{kind} {word}" for kind, word in found.items())
        values = ", ".join(
            f"{figure:,.{0 if figure >= 100 else 2}f} {kind}" for kind, figure in figures.items()
        )
        self.summary.append(f"{name:40} {values:32} {said}")
        return f"  {said}"


@contextmanager
def broker(folder: Path) -> Any:
    command = [
        sys.executable,
        "-m",
        "stompbox",
        "serve",
        "--no-admin",
        "--listen",
        "tcp://127.0.0.1:0",
        "--data",
        str(folder),
    ]
    with subprocess.Popen([*command, "--log-level", "error"], stdout=subprocess.PIPE, text=True) as process:
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


def fill(url: str, messages: int, destination: str = "/topic/bench.%d") -> float:
    """Sends and returns the messages a second, the receipt for the last one included."""
    host, _, port = url.removeprefix("stomp://").partition(":")
    start = time.perf_counter()
    with socket.create_connection((host, int(port))) as link:
        link.sendall(b"CONNECT\naccept-version:1.2\nhost:x\nheart-beat:0,0\n\n\0")
        assert link.recv(65536).startswith(b"CONNECTED")
        for first in range(0, messages, FRAMES):
            to = (destination % (first // FRAMES % TOPICS) if "%" in destination else destination).encode()
            head = b"SEND\ndestination:%b\npersistent:true\ncarrier:UA\norigin:EWR\nid:" % to
            last = b"\nreceipt:done" if first + FRAMES >= messages else b""
            tail = b"\ncontent-length:200\n\n%b\0" % BODY
            link.sendall(
                b"".join([b"%b%012d%b" % (head, first + index, tail) for index in range(FRAMES - 1)])
            )
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
            # parent; ticks, those of children that ended too
            spent[int(path.parent.name)] = int(fields[1]), sum(map(int, fields[11:15]))
    ours = {os.getpid()}
    while more := {process for process, (parent, _) in spent.items() if parent in ours} - ours:
        ours |= more
    return sum(spent[process][1] for process in ours) / os.sysconf("SC_CLK_TCK")


def rate(name: str, bench: Bench, run: Callable[[Path], float | None]) -> None:
    """Prints the first run, and the best of those after it, with the goal. `run` returns its steady rate, if it has one."""
    took, costs = [], []
    steady = 0.0
    for _ in range(1 + bench.runs):
        with tempfile.TemporaryDirectory() as folder:
            start, before = time.perf_counter(), processor_seconds()
            steady = max(steady, run(Path(folder)) or 0.0)
            took.append(time.perf_counter() - start)
            costs.append(processor_seconds() - before)
    cold, warm = bench.messages / took[0], bench.messages / min(took[1:])
    beside = f"{steady:10,.0f} steady" if steady else " " * 17
    cost, goal = min(costs) * 1e6 / bench.messages, bench.beside(name, cold=cold, warm=warm)
    print(
        f"{name:36} {cold:10,.0f} cold {warm:10,.0f} warm {beside} rows/s {cost:6.2f} s per million{goal}",
        flush=True,
    )


def archive(bench: Bench, form: str, **more: str) -> Callable[[Path], float]:
    """A stream of all that is there into a table of this form, which Java writes; the steady rate."""

    def run(folder: Path) -> float:
        given = {"url": bench.url, "destination": "/topic/bench.#", "numPartitions": "2", **more}
        rows = bench.spark.readStream.format("stomp").options(**given).load()
        writer = rows.writeStream.format(form).option("checkpointLocation", str(folder / "checkpoint"))
        query = writer.option("path", str(folder / "table")).trigger(availableNow=True).start()
        query.awaitTermination()
        seen = sum(json.loads(progress.json)["numInputRows"] for progress in query.recentProgress)
        assert seen == bench.messages, f"{seen} rows instead of {bench.messages}"
        return steady(query)

    return run


def steady(query: Any) -> float:
    """Rows a second of a query's micro-batches, without the first."""
    later = [json.loads(progress.json) for progress in query.recentProgress[1:]]
    return float(
        sum(one["numInputRows"] for one in later) * 1000 / max(1, sum(one["batchDuration"] for one in later))
    )


def by_tasks(bench: Bench, more: str = "") -> Callable[[Path], float]:
    """The same stream as an archive of a pipeline, whose tasks write the files."""

    def run(folder: Path) -> float:
        said = steps_of(bench, lake(bench, folder, f"name = 'bench-{uuid4().hex}'", more), "archive")
        batches = [event for event in said if isinstance(event, Batch)]
        seen = sum(batch.rows for batch in batches)
        assert seen == bench.messages, f"{seen} rows instead of {bench.messages}"
        return sum(batch.rows for batch in batches[1:]) / max(
            0.001, sum(batch.seconds for batch in batches[1:])
        )

    return run


def source(bench: Bench) -> None:
    def batch(form: str, **more: str) -> Callable[[Path], None]:
        def run(folder: Path) -> None:
            rows = (
                bench.spark.read.format("stomp")
                .options(url=bench.url, destination="/topic/bench.#", **more)
                .load()
            )
            rows.write.format(form).mode("overwrite").save(
                *([str(folder / "table")] if form == "parquet" else [])
            )

        return run

    def export(**more: str) -> Callable[[Path], None]:
        def run(folder: Path) -> None:
            written = to_parquet(
                bench.spark, folder / "table", url=bench.url, destination="/topic/bench.#", **more
            )
            assert written == bench.messages, f"{written} rows instead of {bench.messages}"

        return run

    without = {"includeHeaders": "false"}
    rate("batch to noop", bench, batch("noop"))
    rate("batch to noop, no headers", bench, batch("noop", **without))
    rate("batch to Parquet, java", bench, batch("parquet"))
    rate("batch to Parquet, java, no headers", bench, batch("parquet", **without))
    rate("batch to Parquet, arrow", bench, export())
    rate("batch to Parquet, arrow, no headers", bench, export(**without))
    rate("stream to noop", bench, archive(bench, "noop"))
    rate("stream to noop, no headers", bench, archive(bench, "noop", **without))
    rate("stream to noop, 100,000 per batch", bench, archive(bench, "noop", maxRowsPerTrigger="100000"))
    rate("stream to Parquet, java", bench, archive(bench, "parquet"))
    rate("stream to Parquet, java, no headers", bench, archive(bench, "parquet", **without))
    rate("stream to Parquet, arrow", bench, by_tasks(bench))
    rate("stream to Parquet, arrow, no headers", bench, by_tasks(bench, "include-headers = false"))


def write(bench: Bench) -> Callable[[Path], None]:
    def run(folder: Path) -> None:
        rows = bench.spark.range(0, bench.messages, 1, 2)
        rows = rows.selectExpr(
            "repeat('x', 200) AS body",
            "map('id', CAST(id AS STRING), 'carrier', 'UA', 'origin', 'EWR') AS headers",
        )
        rows.write.format("stomp").mode("append").options(url=bench.url, destination="/topic/sink").save()

    return run


def sink(bench: Bench) -> None:
    def copy(folder: Path) -> float:
        rows = (
            bench.spark.readStream.format("stomp")
            .options(url=bench.url, destination="/topic/bench.#")
            .load()
            .drop("destination")
        )
        writer = rows.writeStream.format("stomp").options(url=bench.url, destination="/topic/sink")
        query = writer.option("checkpointLocation", str(folder)).trigger(availableNow=True).start()
        query.awaitTermination()
        return steady(query)

    hold(bench.url, "/topic/sink")
    rate("batch write", bench, write(bench))
    rate("stream copied", bench, copy)


def trigger(bench: Bench) -> None:
    """Micro-batches of one row, as fast as Spark begins the next."""
    hold(bench.url, "/topic/trickle")
    for form in ("noop", "parquet", "stomp"):
        with tempfile.TemporaryDirectory() as folder:
            rows = (
                bench.spark.readStream.format("stomp")
                .options(url=bench.url, destination="/topic/trickle", maxRowsPerTrigger="1")
                .load()
            )
            rows = rows.drop("destination")
            writer = (
                rows.writeStream.format(form)
                .option("checkpointLocation", f"{folder}/checkpoint")
                .option("path", f"{folder}/table")
            )
            fill(bench.url, 30, "/topic/trickle")  # by the thousand: more than enough
            query = writer.options(
                **({"url": bench.url, "destination": "/topic/sink"} if form == "stomp" else {})
            ).start()
            while not query.lastProgress or query.lastProgress["batchId"] < TRIGGERS:
                assert query.isActive, query.exception()
                time.sleep(0.05)
            query.stop()
            cold, *later = [json.loads(one.json)["batchDuration"] for one in query.recentProgress]
            took = sorted(later[4:])
        name, warm = f"trigger, one row to {form}", statistics.median(took)
        said = f"{cold:6.0f} ms cold {warm:6.0f} ms warm (median) {took[len(took) * 9 // 10]:6.0f} ms p90"
        print(f"{name:36} {said}{bench.beside(name, cold=cold, warm=warm)}", flush=True)


def neighbour(bench: Bench) -> None:
    """Latencies of another client at RATE messages/s, alone and beside work at full speed."""
    OUT.mkdir(exist_ok=True)
    load, port = str(build_stompload()), bench.url.rpartition(":")[2]

    alone = 0.0

    def latencies(name: str) -> float:
        command = [
            load,
            "--port",
            port,
            "--dest",
            f"/queue/n-{uuid4().hex}",
            "--msgs",
            str(NEIGHBOUR_MESSAGES),
            "--rate",
            str(RATE),
        ]
        looks = []
        for _ in range(NEIGHBOUR_LOOKS):
            done = subprocess.run([*command, "--batch", "1"], capture_output=True, text=True, check=True)
            found = json.loads(done.stdout)
            looks.append((found["lat_ms_p99"], found["lat_ms_p50"]))
        p99, p50 = sorted(looks)[NEIGHBOUR_LOOKS // 2]
        goal = bench.beside(f"neighbour, {name}", warm=p99 / alone) if alone else ""
        said = f"{p50:8.2f} ms p50 {p99:8.2f} ms p99 ({min(looks)[0]:.2f} to {max(looks)[0]:.2f})"
        print(
            f"neighbour, {name:25} {said}{f' {p99 / alone:6.1f} times alone' if alone else ''}{goal}",
            flush=True,
        )
        return float(p99)

    def beside(name: str, work: Callable[[Path], object]) -> None:
        warm, over = threading.Event(), threading.Event()

        def again() -> None:
            # makes the session that of this thread: Spark looks for the sink there
            bench.spark.createDataFrame([], "n INT")
            while not over.is_set():
                with tempfile.TemporaryDirectory() as folder:
                    work(Path(folder))
                warm.set()

        busy = threading.Thread(target=again)
        busy.start()
        try:
            while not warm.wait(1):  # Spark's code is compiled while it runs
                assert busy.is_alive(), f"{name}: failed"
            latencies(f"beside {name}")
        finally:
            over.set()
            busy.join()

    alone = latencies("alone")
    beside("an archive, arrow", by_tasks(bench))
    beside("a stream to Parquet, java", archive(bench, "parquet"))
    hold(bench.url, "/topic/sink")
    beside("a batch write", write(bench))


LAKE = """
url = "{url}"
{head}
[spark]
cores = 2
[[archive]]
name = "archive"
destinations = ["/topic/bench.#"]
table = "table"
{more}
[[report]]
name = "report"
archives = ["archive"]
[[audit]]
name = "audit"
archive = "archive"
"""


def lake(bench: Bench, folder: Path, head: str = "", more: str = "") -> Path:
    """A pipeline of an archive, its report and its audit."""
    file = folder / "lake.toml"
    file.write_text(LAKE.format(url=bench.url, head=head, more=more))
    return file


def steps_of(bench: Bench, file: Path, *names: str) -> list[Event]:
    """Runs these steps in this session, and returns what they said."""
    plan = read_plan(file, {})
    said: list[Event] = []
    running.run(
        bench.spark,
        plan,
        running.chosen(plan, names, once=True)[0],
        said.append,
        threading.Event(),
        once=True,
    )
    return said


def pipeline(bench: Bench) -> None:
    """Each step once as a command, and once in a session that has done it before."""
    cold: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        file = lake(bench, Path(folder), "name = 'cold'")
        for name in ("archive", "report", "audit"):
            start = time.perf_counter()
            command = [
                sys.executable,
                "-m",
                "stompbox",
                "pipeline",
                "run",
                str(file),
                "--once",
                "--step",
                name,
            ]
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
            cold[name] = time.perf_counter() - start
    warm: dict[str, float] = {}
    for number in range(2):
        with tempfile.TemporaryDirectory() as folder:
            file = lake(bench, Path(folder), f"name = 'warm-{number}'")
            for name in cold:
                start = time.perf_counter()
                steps_of(bench, file, name)
                warm[name] = time.perf_counter() - start
    for name, seconds in cold.items():
        goal = bench.beside(name, cold=seconds, warm=warm[name])
        print(
            f"{name} of {bench.messages:,} messages {seconds:10.1f} s cold, as a command {warm[name]:10.1f} s warm{goal}",
            flush=True,
        )


def peer(bench: Bench) -> None:
    """stomp.py receives, acknowledges what it has written, and pyarrow makes the file."""
    import pyarrow as pa
    import stomp
    from pyarrow import parquet

    fields = [
        ("destination", pa.string()),
        ("headers", pa.map_(pa.string(), pa.string())),
        ("body", pa.binary()),
    ]
    host, _, port = bench.url.removeprefix("stomp://").partition(":")
    messages = min(bench.messages, 100_000)
    fill(bench.url, messages, "/queue/peer")
    whole = threading.Event()
    rows: list[tuple[str, list[tuple[str, str]], bytes]] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        parquet.ParquetWriter(f"{folder}/table.parquet", pa.schema(fields)) as table,
    ):

        class Listener(stomp.ConnectionListener):  # type: ignore[misc]
            seen = 0

            def on_message(self, frame: Any) -> None:
                rows.append((frame.headers["destination"], [*frame.headers.items()], frame.body.encode()))
                self.seen += 1
                if len(rows) >= PEER_ROWS or self.seen == messages:
                    table.write_table(
                        pa.table(
                            [list(column) for column in zip(*rows, strict=True)], schema=pa.schema(fields)
                        )
                    )
                    link.ack(frame.headers["ack"])
                    rows.clear()
                if self.seen == messages:
                    whole.set()

        link = stomp.Connection12([(host, int(port))], heartbeats=(0, 0))
        link.set_listener("", Listener())
        link.connect(wait=True)
        start = time.perf_counter()
        link.subscribe("/queue/peer", "1", ack="client", headers={"consumer-window-size": "-1"})
        whole.wait()
        took = time.perf_counter() - start
        link.disconnect()
    print(f"{'peer: stomp.py and pyarrow, one file':36} {messages / took:10,.0f} rows/s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--lake-messages", type=int, default=LAKE_MESSAGES)
    parser.add_argument("--runs", type=int, default=2, help="warm ones, after the first")
    parser.add_argument(
        "--nice", type=int, default=session.NICE, help="how much Spark gives way to the broker, 0 to 20"
    )
    given = parser.parse_args()
    wanted = given.rows.split(",")
    if unknown := set(wanted) - set(ROWS):
        parser.error(f"no row {unknown.pop()!r}; there are {', '.join(ROWS)}")
    if (
        min(given.messages, given.lake_messages) < FRAMES
        or given.messages % FRAMES
        or given.lake_messages % FRAMES
    ):
        parser.error(f"messages are sent {FRAMES} at a time: take a multiple of it")
    if given.runs < 1:
        parser.error("--runs: at least one run is warm")
    spark = (
        None
        if wanted == ["peer"]
        else session.local("bench", cores=2, nice=given.nice, settings=running.SETTINGS)
    )
    if spark is not None:
        spark.sparkContext.setLogLevel("ERROR")
    summary: list[str] = []
    with suppress(KeyboardInterrupt):
        if others := [name for name in wanted if name != "lake"]:
            measure(others, spark, given.messages, given.runs, summary)
        if "lake" in wanted:
            measure(["lake"], spark, given.lake_messages, given.runs, summary)
    if spark is not None:
        spark.stop()
    print("\n".join(["", "goals", *summary]))


def measure(wanted: list[str], spark: Any, messages: int, runs: int, summary: list[str]) -> None:
    """These rows, with a broker that has so many messages."""
    measures = {
        "source": source,
        "sink": sink,
        "trigger": trigger,
        "neighbour": neighbour,
        "peer": peer,
        "lake": pipeline,
    }
    with tempfile.TemporaryDirectory() as folder, broker(Path(folder) / "data") as url:
        hold(url, ",".join(f"/topic/bench.{topic}" for topic in range(TOPICS)))
        print(f"{f'{messages:,} sent to the broker':36} {fill(url, messages):10,.0f} messages/s", flush=True)
        for name in wanted:
            measures[name](Bench(spark, url, messages, runs, summary))


if __name__ == "__main__":
    main()
