"""How long the admin API takes to list very many queues, and how long the broker's loop is held up by that.

    python -m bench.listing [--queues 10000] [--times 20] [--json FILE]

A broker of its own with that many queues, a message in each, is asked over HTTP for all of them, and for all addresses, one time after
the other. Said is how long an answer takes, from the request to its last byte, and the longest turn of the loop meanwhile, by the CPU
time of its thread (longsteps.py). The goals are 100 ms for a list of 10,000 queues, and 5 ms for a turn.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Final

from bench.brokers import Stompbox
from bench.stalls import GOAL, Scene, fill, free_port, longest, say

WITHIN: Final = 100.0  # ms
MOST: Final = 10_000  # entries of a list, as the API has it
LISTS: Final = ("queues", "addresses")


def timed(scene: Scene, name: str, times: int) -> tuple[list[float], dict[str, Any]]:
    """How long each answer took, in ms, and what the loop did meanwhile."""
    scene.seen()
    found = []
    for _ in range(times):
        began = perf_counter()
        answer = scene.ask(f"/api/v1/{name}?limit={MOST}")
        found.append(1000 * (perf_counter() - began))
        assert len(json.loads(answer)[name]) == min(MOST, scene.queues)
    return found, scene.seen()


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.listing", description=__doc__.partition("\n")[0])
    parser.add_argument("--queues", type=int, default=MOST)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--json", default="", help="a file for the figures")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = measured(Path(folder), options.queues, options.times)
    if options.json:
        Path(options.json).write_text(json.dumps(figures, indent=1))
    return (
        1
        if figures["queues"]["median"] > WITHIN or any(one["turn"] > GOAL for one in figures.values())
        else 0
    )


def measured(folder: Path, queues: int, times: int) -> dict[str, dict[str, float]]:
    steps, figures = folder / "steps.json", {}
    broker = Stompbox(folder / "log", program=("bench.longsteps", str(steps)), admin=free_port())
    broker.start()
    scene = Scene(broker, steps, queues, 2 * queues, [])
    try:
        fill(scene)
        for name in LISTS:
            took, seen = timed(scene, name, times)
            figures[name] = {"median": median(took), "worst": max(took), "turn": longest(seen)}
            print(f"{name:10} {median(took):6.1f} ms in the middle of {times}, {max(took):6.1f} ms at worst")
            say(name, seen)
    finally:
        broker.stop()
    return figures


if __name__ == "__main__":
    sys.exit(main())
