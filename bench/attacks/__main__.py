"""`python -m bench.attacks NAME PORT SECONDS`: one attack, in a process of its own."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable

from bench.attacks import ATTACKS

AGAIN = 0.02  # seconds until who was cut off begins anew


def main() -> None:
    """Says what became of it when it has gone on for so many seconds, and keeps its connections until its stdin ends."""
    name, port, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    kept = _sustained(ATTACKS[name].run, port, seconds)
    sys.stdin.read()
    for link in kept:
        link.close()


def _sustained(run: Callable[[int], list[socket.socket]], port: int, seconds: float) -> list[socket.socket]:
    """One attack after the other; what each has kept goes when the next one begins."""
    kept: list[socket.socket] = []
    until, rounds, refusals = time.monotonic() + seconds, 0, []
    while not rounds or time.monotonic() < until:
        for link in kept:
            link.close()
        kept = []
        rounds += 1
        try:
            kept = run(port)
        except (OSError, ConnectionError) as error:
            refusals.append(str(error))
            time.sleep(AGAIN)
    cut = f", {len(refusals)} of them cut off: {refusals[0]}" if refusals else ""
    print(f"done {rounds} times{cut}" if rounds > 1 or cut else "done", flush=True)
    return kept


if __name__ == "__main__":
    main()
