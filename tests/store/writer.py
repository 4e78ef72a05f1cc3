"""A process that stores messages until it is killed, and says after each commit what is durable.

    python -m tests.store.writer FOLDER FIRST

Prints `open`, then after each commit the next offset, on a line of its own.
"""

from __future__ import annotations

import sys
from pathlib import Path

from stompbox.store.base import Commit
from stompbox.store.sqlite import SqliteStore
from tests.store.runs import run

COUNT = 50  # messages in a commit
BEHIND = 500  # messages kept


def main(folder: Path, first: int) -> None:
    store = SqliteStore(folder)
    print("open", flush=True)
    if not first:
        store.apply(Commit(logs={1: "orders"}, cursors={1: (1, 0)}))
    while True:
        stop = first + COUNT
        store.apply(
            Commit(
                runs={1: [run(first, COUNT, body=b"x" * 300)]},
                acknowledged={1: [(first, stop - 5)]},
                trims={1: max(0, first - BEHIND)},
                entries={("queue", "orders"): b"%d" % stop},
            )
        )
        first = stop
        print(first, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
