"""How fast chunks become Arrow columns: `python bench/spark_columns.py`.

Rows of 200-byte bodies with three headers beside the destination, on one core; best of five. `holes` is how many of the three differ
from message to message, `run` how many messages a run has, `chunk` how many a chunk has.
"""

from __future__ import annotations

import time

from stompbox.message import Run, Shape
from stompbox.spark.columns import batch_of, joined, rows_of, sliced
from stompbox.spark.offsets import OffsetRange
from stompbox.store.chunks import encode

BODY = 200
ROWS = 200_000
CASES = (  # holes, messages of a run, messages of a chunk
    (0, 1000, 1000),
    (0, 1000, 20_000),
    (1, 1000, 1000),
    (3, 1000, 1000),
    (1, 10, 1000),
    (0, 1, 1000),
    (1, 1, 1000),
    (3, 1, 1000),
    (1, 1, 1),
)


def chunks(holes: int, run: int, chunk: int) -> list[bytes]:
    names = ("carrier", "origin", "id")
    found = []
    for first in range(0, ROWS, chunk):
        runs = []
        for at in range(first, first + chunk, run):
            fixed = dict.fromkeys(names[: 3 - holes], "UA")
            shape = Shape(
                {"destination": "/topic/flights.UA" if run > 1 or at % 2 else "/topic/flights.DL", **fixed},
                holes=names[3 - holes :],
            )
            columns = tuple([[b"%012d" % (at + i) for i in range(run)] for _ in range(holes)])
            runs.append(Run(shape, [b"x" * BODY] * run, columns, first=at, arrived=1_700_000_000_000 + at))
        found.append(encode(runs, first))
    return found


def measure(blobs: list[bytes], answer: int) -> float:
    """Rows a second when the chunks come in answers of `answer` bytes."""
    size = sum(map(len, blobs)) // len(blobs)
    step = max(1, answer // size)
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        rows = 0
        for at in range(0, len(blobs), step):
            runs = joined(blobs[at : at + step])
            batch = batch_of(runs, rows_of(runs, OffsetRange("a", 0, ROWS)), "flights.UA")
            rows += sum(len(piece) for piece in sliced(batch))
        assert rows == ROWS
        best = min(best, time.perf_counter() - start)
    return ROWS / best


def main() -> None:
    print("holes   run  chunk   rows/s")
    for holes, run, chunk in CASES:
        print(f"{holes:5} {run:5} {chunk:6} {measure(chunks(holes, run, chunk), 8 << 20):12,.0f}", flush=True)


if __name__ == "__main__":
    main()
