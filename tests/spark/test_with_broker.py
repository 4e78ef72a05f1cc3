"""A real Spark and the real broker, each in a process of its own: killed in the middle, every message arrives exactly once."""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from pyarrow import parquet

pytest.importorskip("pyspark")

from stompbox.spark.bounds import EARLIEST
from stompbox.spark.link import forget, leased
from stompbox.spark.offsets import OffsetRange
from stompbox.spark.options import Given, SourceOptions, source_options
from stompbox.spark.reading import View, batches
from stompbox.spark.requests import describe, open_group
from tests.conftest import ROOT, Serve

MESSAGES = 30_000
ADDRESSES = 3
WITHIN = 240.0  # seconds, for one run of the application on a busy machine


@pytest.fixture
def url(serve: Serve) -> Iterator[str]:
    """A durable broker with messages on three topics that two groups hold."""
    served = serve("--listen", "tcp://127.0.0.1:0", "--no-admin")
    found = f"stomp://{served.host}:{served.port}"
    with leased(options(found).target) as link:
        for group in ("lake-parquet", "lake-stomp"):
            open_group(link, group, ",".join(f"/topic/crash.{number}" for number in range(ADDRESSES)), EARLIEST)
    fill(served.host, served.port)
    yield found
    forget()


def options(url: str, destination: str = "/topic/crash.#") -> SourceOptions:
    return source_options(Given({"url": url, "destination": destination}), streaming=False)


def fill(host: str, port: int) -> None:
    with socket.create_connection((host, port), timeout=WITHIN) as link:
        link.sendall(b"CONNECT\naccept-version:1.2\nhost:x\nheart-beat:0,0\n\n\0")
        received = link.recv(65536)
        assert received.startswith(b"CONNECTED"), received
        for number in range(MESSAGES):
            receipt = b"\nreceipt:done" if number == MESSAGES - 1 else b""
            head = b"SEND\ndestination:/topic/crash.%d\npersistent:true\nid:%d%b\n\n" % (number % ADDRESSES, number, receipt)
            link.sendall(b"%b%d\0" % (head, number))
        while b"receipt-id:done" not in received:
            octets = link.recv(65536)
            assert octets, received
            received += octets


def run(url: str, folder: Path, form: str, *, kill_after: int = -1) -> list[str]:
    """What the application printed; it is killed, with its Java, once it has done batch `kill_after`."""
    command = [sys.executable, "-m", "tests.spark.archive", url, str(folder), form]
    with (
        (folder / "application.log").open("ab") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, cwd=ROOT, start_new_session=True) as process,
    ):
        assert process.stdout is not None
        printed = b""
        try:
            for octets in arriving(process.stdout.fileno()):
                printed += octets
                if f"batch {kill_after}\n".encode() in printed:
                    break
        finally:
            if kill_after >= 0 or process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    lines = printed.decode().splitlines()
    assert lines, (folder / "application.log").read_text()
    return lines


def arriving(descriptor: int) -> Iterator[bytes]:
    deadline = time.monotonic() + WITHIN
    with selectors.DefaultSelector() as waiting:
        waiting.register(descriptor, selectors.EVENT_READ)
        while waiting.select(max(0.0, deadline - time.monotonic())):
            octets = os.read(descriptor, 65536)
            if not octets:
                return
            yield octets
    pytest.fail(f"the application did not end within {WITHIN} s")


def read(url: str, destination: str) -> list[dict[str, Any]]:
    """All rows of a destination, without Spark."""
    given = options(url, destination)
    with leased(given.target) as link:
        extents = describe(link, destination, create=False).extents
    ranges = [OffsetRange(address, extent.first, extent.next) for address, extent in extents.items()]
    return [row for batch in batches(given, ranges, View(("address", "offset", "headers", "body"))) for row in batch.to_pylist()]


def table(folder: Path) -> list[dict[str, Any]]:
    """All rows of a table that Spark streamed into: those of the files that its commits name. What a killed task left does not count."""
    logs = sorted((folder / "_spark_metadata").glob("[0-9]*"), key=lambda path: int(path.name.partition(".")[0]))
    whole = [at for at, path in enumerate(logs) if path.suffix == ".compact"]  # holds all that came before
    lines = [line for path in logs[whole[-1] if whole else 0 :] for line in path.read_text().splitlines()[1:]]
    files = [unquote(urlsplit(json.loads(line)["path"]).path) for line in lines]
    return [row for file in files for row in parquet.ParquetFile(file).read(["address", "offset", "body"]).to_pylist()]


@pytest.mark.skipif("SOAK" not in os.environ, reason="takes minutes: make soak")
def test_a_table_has_every_message_once(url: str, tmp_path: Path) -> None:
    assert "end" not in run(url, tmp_path, "parquet", kill_after=1)
    assert "end" not in run(url, tmp_path, "parquet", kill_after=3)
    assert run(url, tmp_path, "parquet")[-1] == "end"
    rows = table(tmp_path / "table")
    places = Counter((row["address"], row["offset"]) for row in rows)
    assert set(places.values()) == {1}
    assert set(places) == {(f"crash.{address}", offset) for address in range(ADDRESSES) for offset in range(MESSAGES // ADDRESSES)}
    assert sorted(int(row["body"]) for row in rows) == list(range(MESSAGES))
    with leased(options(url).target) as link:
        positions = open_group(link, "lake-parquet", "/topic/crash.#", EARLIEST)
    assert positions == {f"crash.{address}": MESSAGES // ADDRESSES for address in range(ADDRESSES)}


@pytest.mark.skipif("SOAK" not in os.environ, reason="takes minutes: make soak")
def test_a_queue_has_every_row_once(url: str, tmp_path: Path) -> None:
    assert "end" not in run(url, tmp_path, "stomp", kill_after=1)
    assert run(url, tmp_path, "stomp")[-1] == "end"
    rows = read(url, "/queue/copy")
    assert Counter(int(row["body"]) for row in rows) == Counter(range(MESSAGES))
    assert all(dict(row["headers"])["id"].encode() == row["body"] for row in rows)
    # The last batch was published and then, as far as Spark knows, it was not: it comes again.
    commits = tmp_path / "checkpoint" / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)
    assert run(url, tmp_path, "stomp")[-1] == "end"
    assert len(read(url, "/queue/copy")) == MESSAGES
