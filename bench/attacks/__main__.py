"""`python -m bench.attacks NAME PORT`: one attack, in a process of its own."""

from __future__ import annotations

import socket
import sys

from bench.attacks import ATTACKS


def main() -> None:
    """`python -m bench.attacks NAME PORT`: says `done` when all is sent, and keeps its connections until its stdin ends."""
    name, port = sys.argv[1], int(sys.argv[2])
    kept: list[socket.socket] = []
    try:
        kept = ATTACKS[name].run(port)
        print("done", flush=True)
    except (OSError, ConnectionError) as error:
        print(f"cut off: {error}", flush=True)
    sys.stdin.read()
    for link in kept:
        link.close()


if __name__ == "__main__":
    main()
