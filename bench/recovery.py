"""How long a broker that was killed takes until it is ready again, and until the first message of its backlog comes.

    python -m bench.recovery [--counts 100000,1000000,10000000] [--size 1024] [--per-chunk 1000] [--folder DIR]

The store is filled directly, three messages a ms, with the catalogue that a broker would have written: one queue, of which a tenth
was acknowledged, in part here and there. A broker is started on it, sent SIGKILL, and started again: that one is measured, from the
launch of the process. `--per-chunk 1` is what a sender leaves who waits for each receipt, and `--keep-small` what he would leave if the
store did not make large chunks of small ones. `--drain` consumes all of it, ack:auto. The folder should lie on the disk that is meant.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from stompbox.message import Run, Shape
from stompbox.store import merging
from stompbox.store.base import Commit
from stompbox.store.sqlite import SqliteStore

ARRIVED = 1_700_000_000_000
SHAPE = Shape({"destination": "/queue/bench", "content-type": "application/json"}, persistent=True)
QUEUE = {"name": "bench", "kind": "anycast", "owner": "", "auto": False, "selector": None}
FRAMES = (
    b"CONNECT\naccept-version:1.2\nhost:localhost\n\n\0"
    b"SUBSCRIBE\nid:1\ndestination:/queue/bench\nack:client-individual\nprefetch-count:1\n\n\0"
)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="bench.recovery", description="How long a broker takes to be ready with a full store."
    )
    parser.add_argument(
        "--counts", default="100000,1000000,10000000", help="messages stored (default 0.1, 1 and 10 million)"
    )
    parser.add_argument("--size", type=int, default=1024, help="bytes of a body (default 1024)")
    parser.add_argument("--per-chunk", type=int, default=1000, help="messages of a commit (default 1000)")
    parser.add_argument("--keep-small", action="store_true", help="small chunks stay as they are")
    parser.add_argument("--drain", action="store_true", help="consume the backlog, and say how fast")
    parser.add_argument("--folder", type=Path, default=Path.cwd(), help="where the data goes (default here)")
    options = parser.parse_args()
    if options.keep_small:
        merging.WAITING = options.per_chunk << 40  # type: ignore[misc]
    print(
        "| messages | in chunks of | bytes | file | start to ready | first message | resident then | drained |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for count in map(int, options.counts.split(",")):
        with tempfile.TemporaryDirectory(dir=options.folder, prefix="stompbox-bench-") as folder:
            data = Path(folder) / "data"
            fill(data, count, options.size, options.per_chunk)
            file = (data / "stompbox.db").stat().st_size >> 20
            kill_one(data)
            ready, first, resident = measure(data)
            drained = f"{messages_left(count) / drain(data, count):,.0f}/s" if options.drain else ""
            sizes = f"{count:,} | {options.per_chunk:,} | {options.size} | {file:,} MiB"
            print(
                f"| {sizes} | {ready:.2f} s | {first:.2f} s | {resident >> 10} MiB | {drained} |", flush=True
            )


def fill(data: Path, count: int, size: int, per_chunk: int) -> None:
    """Without fsync: only what comes after is measured."""
    with closing(SqliteStore(data, synchronous=False)) as store:
        entries = {("address", "1"): {"kinds": 1, "auto": False}, ("queue", "1"): QUEUE}
        packed: dict[tuple[str, str], bytes | None] = {
            place: json.dumps(value).encode() for place, value in entries.items()
        }
        store.apply(Commit(logs={1: "bench"}, cursors={1: (1, 0)}, entries=packed))
        bodies = [b"%0*d" % (size, n) for n in range(per_chunk)]
        for first in range(0, count, per_chunk):
            store.apply(Commit(runs={1: [Run(SHAPE, bodies, first=first, arrived=ARRIVED + first // 3)]}))
        store.apply(Commit(acknowledged={1: done(count)}))


def done(count: int) -> list[tuple[int, int]]:
    """What was acknowledged: here and there one message, and a tenth of all in the middle."""
    return [
        *((at, at + 1) for at in range(10, min(100_000, count // 2), 10)),
        (count // 2, count // 2 + count // 10),
    ]


def messages_left(count: int) -> int:
    return count - sum(stop - start for start, stop in done(count))


def launch(data: Path) -> tuple[subprocess.Popen[bytes], int]:
    """Returns when it is ready."""
    command = [
        sys.executable,
        "-m",
        "stompbox",
        "serve",
        "--data",
        str(data),
        "--no-admin",
        "--listen",
        "tcp://127.0.0.1:0",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=data.parent)
    assert process.stdout is not None
    port = 0
    for line in process.stdout:
        if line.startswith(b"listening on "):
            port = int(line.rsplit(b":", 1)[1].partition(b"?")[0])
        if line.strip() == b"ready":
            return process, port
    raise SystemExit(f"bench: the broker ended with {process.wait()} instead of being ready")


def kill_one(data: Path) -> None:
    process, _ = launch(data)
    end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def measure(data: Path) -> tuple[float, float, int]:
    """Seconds until ready and until the first message is there, and KiB resident then."""
    begun = time.perf_counter()
    process, port = launch(data)
    ready = time.perf_counter() - begun
    try:
        with socket.create_connection(("127.0.0.1", port), 60) as link:
            link.sendall(FRAMES)
            came = b""
            while b"MESSAGE\n" not in came:
                came += link.recv(65536)
        first = time.perf_counter() - begun
        assert b"redelivered:true" in came, came
        pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
        return ready, first, pages * os.sysconf("SC_PAGE_SIZE") >> 10
    finally:
        end(process)


def drain(data: Path, count: int) -> float:
    """Seconds until all that was not acknowledged has come."""
    left = messages_left(count)
    process, port = launch(data)
    try:
        begun = time.perf_counter()
        with socket.create_connection(("127.0.0.1", port), 60) as link:
            link.sendall(FRAMES.replace(b"client-individual\nprefetch-count:1", b"auto"))
            came = -1  # CONNECTED
            while came < left:
                came += link.recv(1 << 20).count(b"\0")
        return time.perf_counter() - begun
    finally:
        end(process)


if __name__ == "__main__":
    main()
