"""One who takes part in the drill with all features, as a process.

    python -m tests.crash.cast ROLE NAME PORT JOURNAL SEED

What the roles do is at the head of players.py, askers.py and readers.py.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

from tests.crash.askers import Caller, Sink
from tests.crash.events import Journal
from tests.crash.players import Player, Pricer, Producer, Subscriber, Worker
from tests.crash.readers import Follower, Grouper, Replayer, Watcher

ROLES: dict[str, Callable[[str, int, Journal, Random], Player]] = {
    "producer": Producer,
    "worker": Worker,
    "subscriber": Subscriber,
    "pricer": Pricer,
    "sink": Sink,
    "caller": Caller,
    "watcher": Watcher,
    "grouper": Grouper,
    "follower": Follower,
    "replayer": Replayer,
}


def main(role: str, name: str, port: int, path: Path, seed: int) -> None:
    with Journal(path) as journal:
        ROLES[role](name, port, journal, Random(f"{seed} {name}")).live()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]), int(sys.argv[5]))
