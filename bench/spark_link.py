"""Spark's own link to a broker beside the client library, asked the same: `python -m bench.spark_link [--rounds 5]`.

    fetch      80 MB of a log, in answers of 8 MiB     stage    80 MB, in requests of 4 MiB
    ask        2,000 small requests, one by one        start    a new process: imports, login and the first answer, 10 of them

Each is a process of its own, in turns, with one broker (`--memory`) on the same machine. Printed are the medians: time on the wall, the
processor time of the process that asks, and the most memory that it had. Of `start`, for one. The figures stand in
docs/decisions/spark-has-its-own-link.md.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter, process_time

TOPIC = "/topic/bench"
MESSAGES = 400_000  # of 200 bytes
ANSWER = 8 << 20  # bytes that a fetch asks for at most
ASKED = 2000
STARTS = 10
WAYS = ("link", "blocking", "asyncio")
ROWS = ("fetch", "stage", "ask", "start")

# -> headers of the answer, bytes of its body
Ask = Callable[[str, Mapping[str, str], bytes], tuple[Mapping[str, str], int]]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="bench.spark_link", description="Spark's own link beside the client library."
    )
    parser.add_argument("--rounds", type=int, default=5, help="of which the medians are printed (default 5)")
    parser.add_argument(
        "--one", nargs=3, metavar=("WAY", "ROW", "URL"), help="measure this, in this process, and print JSON"
    )
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measured(*options.one)))
        return
    from bench.spark_pipeline import fill, hold

    command = [
        sys.executable,
        "-m",
        "stompbox",
        "serve",
        "--memory",
        "--no-admin",
        "--listen",
        "tcp://127.0.0.1:0",
        "--log-level",
        "error",
    ]
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder) as broker,
    ):
        assert broker.stdout is not None
        try:
            url = (
                "stomp://"
                + next(line for line in broker.stdout if "tcp://" in line).split("tcp://")[1].split()[0]
            )
            hold(url, TOPIC)
            fill(url, MESSAGES, TOPIC)
            table(url, options.rounds)
        finally:
            broker.terminate()


def table(url: str, rounds: int) -> None:
    print("| | link: ms, CPU ms, MiB | blocking client | asyncio client |\n|---|---:|---:|---:|")
    for row in ROWS:
        found: dict[str, list[list[float]]] = {way: [] for way in WAYS}
        for _ in range(rounds):
            for way in WAYS:
                found[way].append(started(way, url) if row == "start" else one(way, row, url))
        cells = [
            ", ".join(f"{statistics.median(figures):.0f}" for figures in zip(*found[way], strict=True))
            for way in WAYS
        ]
        print(f"| {row} | " + " | ".join(cells) + " |", flush=True)


def one(way: str, row: str, url: str) -> list[float]:
    command = [sys.executable, "-m", "bench.spark_link", "--one", way, row, url]
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, cwd=Path(__file__).parent.parent
    )
    found: list[float] = json.loads(done.stdout)
    return found


def started(way: str, url: str) -> list[float]:
    """Milliseconds and processor milliseconds of one process, from its launch to its end; its memory."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), perf_counter()
    found = [one(way, "start", url) for _ in range(STARTS)]
    elapsed, after = perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return [elapsed / STARTS * 1e3, cpu / STARTS * 1e3, statistics.median([figures[2] for figures in found])]


def measured(way: str, row: str, url: str) -> list[float]:
    """Of this process: milliseconds, processor milliseconds, MiB at most."""
    took = {"link": by_link, "blocking": by_blocking, "asyncio": by_asyncio}[way](
        url, {"start": first}.get(row) or WORK[row]
    )
    return [took[0] * 1e3, took[1] * 1e3, most_memory()]


def most_memory() -> float:
    """MiB that this program had at most (Linux); what getrusage says is also of the process that it was started from."""
    found = re.search(r"^VmHWM:\s*(\d+) kB$", Path("/proc/self/status").read_text(), re.M)
    return int(found[1]) / 1024 if found else 0


Work = Callable[[Ask], None]


def clocked(work: Work, ask: Ask) -> tuple[float, float]:
    ask("describe", {"create": "false"}, b'{"destinations":"/topic/bench"}')  # which logs in
    begun, cpu = perf_counter(), process_time()
    work(ask)
    return perf_counter() - begun, process_time() - cpu


def by_link(url: str, work: Work) -> tuple[float, float]:
    from stompbox.spark.link import Request, leased
    from stompbox.spark.options import Given, target_of

    with leased(target_of(Given({"url": url}))) as link:

        def ask(name: str, headers: Mapping[str, str], body: bytes) -> tuple[Mapping[str, str], int]:
            answer = link.ask(Request(name, headers, body))
            return answer.headers, len(answer.body)

        return clocked(work, ask)


def by_blocking(url: str, work: Work) -> tuple[float, float]:
    from stompbox import blocking

    with blocking.connect(url) as client:

        def ask(name: str, headers: Mapping[str, str], body: bytes) -> tuple[Mapping[str, str], int]:
            answer = client.request(name, body, headers, timeout=60)
            return answer.headers, len(answer.body)

        return clocked(work, ask)


def by_asyncio(url: str, work: Work) -> tuple[float, float]:
    """The loop runs for each request, as it would in a caller that has none of its own."""
    import stompbox

    with asyncio.Runner() as runner:
        client = stompbox.connect(url)
        runner.run(client.__aenter__())

        def ask(name: str, headers: Mapping[str, str], body: bytes) -> tuple[Mapping[str, str], int]:
            answer = runner.run(client.request(name, body, headers, timeout=60))
            return answer.headers, len(answer.body)

        try:
            return clocked(work, ask)
        finally:
            runner.run(client.__aexit__(None, None, None))


def fetch(ask: Ask) -> None:
    at = taken = 0
    while at < MESSAGES:
        headers, length = ask(
            "fetch",
            {
                "address": TOPIC.removeprefix("/topic/"),
                "start": str(at),
                "stop": str(MESSAGES),
                "max-bytes": str(ANSWER),
            },
            b"",
        )
        at = int(headers["next"])
        taken += length
    assert taken > MESSAGES * 200


def stage(ask: Ask) -> None:
    from stompbox.message import Run, Shape
    from stompbox.store.chunks import encode

    blob = encode(
        [Run(Shape({"destination": "/queue/staged"}), [b"x" * 200] * 20_000, first=0, arrived=0)], 0
    )
    for _ in range(20):  # the same attempt again: it takes the place of the one before
        ask("stage", {"sink": "bench", "batch": "0", "partition": "0", "attempt": "0"}, blob)
    ask("discard", {"sink": "bench", "batch": "0"}, b"")


def small(ask: Ask) -> None:
    for _ in range(ASKED):
        ask("describe", {"create": "false"}, b'{"destinations":"/topic/bench"}')


def first(ask: Ask) -> None:
    """Nothing more: the login has had its answer."""


WORK: dict[str, Work] = {"fetch": fetch, "stage": stage, "ask": small}


if __name__ == "__main__":
    main()
