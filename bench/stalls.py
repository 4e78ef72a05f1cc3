"""How long the broker's loop is held up by what it does of itself, or for an operator, when it is full.

    python -m bench.stalls [--rows reload,scrape] [--queues 10000] [--waiting 100000] [--connections 5000] [--json FILE]

A broker with that many queues, waiting messages and connections does one thing after the other. Said is the longest turn of its loop, by
the CPU time of its own thread (longsteps.py), so that other processes change little. Nobody else is served meanwhile: the goal is 5 ms.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import resource
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench import longsteps
from bench.attacks.attacker import connected, drain, opened, send, settle, subscribe
from bench.brokers import BenchError, Stompbox

GOAL: Final = 5.0  # ms
WITHIN: Final = 30.0  # seconds for what the broker does of itself
PORTION: Final = 250  # connections that log in at a time
TOLD: Final = 3  # of the longest steps of a row, with what they were at


@dataclass(slots=True)
class Scene:
    """A broker that is full, and who holds it."""

    broker: Stompbox
    steps: Path
    queues: int
    waiting: int
    crowd: list[socket.socket]

    def seen(self) -> dict[str, Any]:
        """What its loop did since the last look, once it has said so."""
        return longsteps.asked(self.broker.pid, self.steps)

    @contextmanager
    def client(self) -> Iterator[socket.socket]:
        link = connected(self.broker.port)
        yield link
        settle(link)
        link.close()

    def ask(self, path: str, method: str = "GET", body: str = "") -> bytes:
        link = http.client.HTTPConnection("127.0.0.1", self.broker.admin, timeout=WITHIN)
        link.request(method, path, body or None, {"Content-Type": "application/json"} if body else {})
        answer = link.getresponse()
        found = answer.read()
        link.close()
        if answer.status >= 300:
            raise BenchError(f"{method} {path}: {answer.status} {found[:200]!r}")
        return found


def fill(scene: Scene) -> None:
    """Its queues, and messages on one and on all of them."""
    with scene.client() as link:
        each = max(1, scene.waiting // 2 // scene.queues)
        for number in range(scene.queues):
            link.sendall(send(f"/queue/q{number}", b"x" * 100) * each)
        for _ in range(scene.waiting // 2 // 1000):
            link.sendall(send("/queue/q0", b"x" * 100) * 1000)


def connect(scene: Scene, count: int) -> None:
    """That many connections, each with a subscription to a queue of its own."""
    login = b"CONNECT\naccept-version:1.2\nhost:/\nlogin:guest\npasscode:guest\n\n\0"
    for first in range(0, count, PORTION):
        links = [opened(scene.broker.port) for _ in range(min(PORTION, count - first))]
        for number, link in enumerate(links, len(scene.crowd)):
            link.sendall(login + subscribe(1, f"/topic/t{number}"))
        for link in links:
            while b"\0" not in link.recv(4096):
                pass
        scene.crowd += links


def persist(scene: Scene) -> None:
    """Enough stored messages that the journal is folded into the database several times."""
    with scene.client() as link:
        for number in range(100):
            link.sendall(
                send(f"/queue/q{number % scene.queues}", b"x" * 10_000, headers="persistent:true\n") * 100
            )
            settle(link)


def expire(scene: Scene) -> None:
    """A message in each queue, all of which expire together."""
    at = int(time.time() * 1000) + 3000
    with scene.client() as link:
        for number in range(scene.queues):
            link.sendall(send(f"/queue/q{number}", headers=f"expires:{at}\n"))
    until = time.monotonic() + WITHIN
    while (at + 1000) / 1000 > time.time() and time.monotonic() < until:
        time.sleep(0.1)
    scene.ask("/api/v1/status")


def scrape(scene: Scene) -> None:
    for _ in range(3):
        scene.ask("/metrics")


def look(scene: Scene) -> None:
    """What the console asks."""
    for name in ("status", "addresses", "queues", "connections", "history", "positions", "groups", "sinks"):
        scene.ask(f"/api/v1/{name}")
    scene.ask("/")


def reload(scene: Scene) -> None:
    os.kill(scene.broker.pid, signal.SIGHUP)
    scene.ask("/api/v1/reload", "POST", "{}")


def idle(scene: Scene) -> None:
    """Nobody does anything for ten seconds: looks at the clock, heart-beats, samples, collections."""
    time.sleep(10)


def work(scene: Scene) -> None:
    """An everyday load, in which collections come: messages that are acknowledged one by one."""
    with scene.client() as link:
        link.sendall(subscribe(1, "/queue/work", headers="ack:client-individual\n"))
        for _ in range(20):
            link.sendall(send("/queue/work", b"x" * 100) * 1000)
            drain(link, 0.5)


def broadcast(scene: Scene) -> None:
    """A message for each of the connections."""
    with scene.client() as link:
        for number in range(len(scene.crowd)):
            link.sendall(send(f"/topic/t{number}", b"x" * 100))


def leave(scene: Scene) -> None:
    """All connections are gone at once."""
    for link in scene.crowd:
        link.close()
    scene.crowd.clear()
    until = time.monotonic() + WITHIN
    while json.loads(scene.ask("/api/v1/status"))["connections"] > 1 and time.monotonic() < until:
        time.sleep(0.1)


def purge(scene: Scene) -> None:
    """An operator purges the queue that holds half of all."""
    scene.ask("/api/v1/queues/purge", "POST", json.dumps({"queue": "q0"}))


ROWS: Final[dict[str, Callable[[Scene], None]]] = {
    "connect": lambda scene: None,  # while it is filled
    "idle": idle,
    "work": work,
    "broadcast": broadcast,
    "persist": persist,
    "expire": expire,
    "scrape": scrape,
    "look": look,
    "reload": reload,
    "purge": purge,
    "leave": leave,
}


def longest(seen: dict[str, Any]) -> float:
    return max((turn["ms"] for turn in seen["turns"]), default=0.0)


def say(name: str, seen: dict[str, Any]) -> None:
    print(f"{name:10} longest turn {longest(seen):7.1f} ms, collections {seen['collections']}", flush=True)
    for step in seen["steps"][:TOLD]:
        if step["ms"] > GOAL:
            print(f"           {step['ms']:7.1f} ms: {step['what'][:140]}")
            for where, count in list(step["looks"].items())[:2]:
                print(f"                      {count} x {where}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.stalls", description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", default=",".join(ROWS), help=f"of {', '.join(ROWS)}; leave comes last")
    parser.add_argument("--queues", type=int, default=10_000)
    parser.add_argument("--waiting", type=int, default=100_000)
    parser.add_argument("--connections", type=int, default=5000)
    parser.add_argument("--json", default="", help="a file for the figures")
    options = parser.parse_args()
    if unknown := set(options.rows.split(",")) - ROWS.keys():
        parser.error(f"no such row: {', '.join(sorted(unknown))}; rows are {', '.join(ROWS)}")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory() as folder:
        found = measured(Path(folder), options)
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=1))
    return 1 if max(found.values()) > GOAL else 0


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def measured(folder: Path, options: argparse.Namespace) -> dict[str, float]:
    steps = folder / "steps.json"
    broker = Stompbox(folder / "log", program=("bench.longsteps", str(steps)), admin=free_port())
    broker.start()
    scene = Scene(broker, steps, options.queues, options.waiting, [])
    found: dict[str, float] = {}
    try:
        fill(scene)
        connect(scene, options.connections)
        for name in options.rows.split(","):
            ROWS[name](scene)
            seen = scene.seen()
            say(name, seen)
            found[name] = longest(seen)
    finally:
        broker.stop()
    return found


if __name__ == "__main__":
    sys.exit(main())
