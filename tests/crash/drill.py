"""A drill: a broker is killed again and again under load, then everything is drained and the journals are looked through.

    python -m tests.crash.drill [--kills 40] [--seed 1] [--folder FOLDER] [--fronts 2]

Kills come after a random number of confirmations, so at any moment of the broker's work, and now and then while it starts. Between
them the store is backed up now and then, and each broker has settings of its own: room in memory, and when deliveries are counted.
The seed decides what everybody tries; the machine decides how far they come. Exit status 1 when a promise was broken.
"""

from __future__ import annotations

import argparse
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from random import Random
from typing import ClassVar

from stompbox.stomp.frames import Frame
from stompbox.store.backup import copy
from stompbox.store.check import damage
from stompbox.store.sqlite import SqliteStore
from tests.conftest import ROOT, Served, children, end, start_broker
from tests.crash.actors import QUEUES, RELAYED, RESULTS, SUBSCRIBERS, TOPIC, source_of
from tests.crash.audit import Audit
from tests.crash.events import Acknowledged, Answered, Got, Journal, read
from tests.crash.link import Control, Link

CAST = (
    *(("producer", name) for name in "pq"),
    *(("worker", name) for name in "vw"),
    *(("subscriber", name) for name in SUBSCRIBERS),
    ("relay", "r"),
)
SOURCES = {
    **{queue: (queue,) for queue in (*QUEUES, RELAYED, RESULTS)},
    TOPIC: tuple(source_of(name) for name in SUBSCRIBERS),
}
EXCLUSIVE = (*SOURCES[TOPIC], RESULTS)
# of a broker
SETTINGS = (
    "",
    'global-max-size = "64KiB"\n',
    "persist-delivery-count-before-delivery = true\n",
    "max-commit-delay = 0\n",
)
# nothing dies here, it must all come out
CONFIGURATION = '[[address-setting]]\nmatch = "#"\nmax-delivery-attempts = -1\n'
SENDERS = ("producer", "pricer", "sink", "watcher", "caller")  # roles
MOST = 60  # dots between two kills
WITHIN = 60.0  # seconds for a dot to come, and for an actor to end


@dataclass
class Drill:
    """Its class says who takes part, with which addresses: the plain one, unless another takes its place."""

    folder: Path
    seed: int
    cast: ClassVar[Sequence[tuple[str, str]]] = CAST
    actors_module: ClassVar[str] = "tests.crash.actors"
    most: ClassVar[int] = MOST
    random: Random = field(init=False)
    port: int = field(init=False)
    broker: Served | None = None
    actors: list[subprocess.Popen[bytes]] = field(default_factory=list)
    backups: int = 0
    fronts: int = 0  # that each broker has; most of the kills are theirs
    fronts_killed: int = 0

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.folder.mkdir(parents=True, exist_ok=True)

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def log(self) -> str:
        return (self.folder / "broker.log").read_text()

    def run(self, kills: int, seconds: float = inf) -> Audit:
        """The audit, with all journals in it. So many kills, or fewer, as many as the seconds allow."""
        until = time.monotonic() + seconds
        try:
            self.start()
            self.make_subscriptions()
            for role, name in self.cast:
                self.actors.append(self.actor(role, name))
            for _ in range(kills):
                if time.monotonic() > until:
                    break
                self.wait_for_progress(self.random.randint(1, self.most))
                if self.random.random() < 0.2:
                    self.back_up()
                self.strike()
            self.wait_for_progress(1)
            self.end_actors()
            self.drain()
            assert self.broker is not None
            assert self.broker.stop() == 0, self.log
        finally:
            self.clean_up()
        audit = self.audit()
        for journal in sorted(self.folder.glob("*.journal")):
            audit.add(read(journal))
        return audit

    def audit(self) -> Audit:
        return Audit(SOURCES, EXCLUSIVE)

    def configuration(self) -> str:
        """Of the next broker."""
        return f"fronts = {self.fronts}\n{self.random.choice(SETTINGS)}{CONFIGURATION}"

    def strike(self) -> None:
        """A kill, and what comes after it."""
        fronts = [] if self.broker is None else children(self.broker.process.pid)
        if fronts and self.random.random() < 0.7:
            self.fronts_killed += 1
            with suppress(ProcessLookupError):
                os.kill(self.random.choice(fronts), signal.SIGKILL)
        else:
            self.kill()
            self.start()

    # The broker

    def start(self) -> None:
        (self.folder / "stompbox.toml").write_text(self.configuration())
        if self.random.random() < 0.2:
            self.kill_while_it_starts()
        # through `env`: a process of its own, which starts no sooner than a user's; until then fronts of a killed one have its port
        self.broker = start_broker(self.folder, *self.arguments(), through=("env",))

    def arguments(self) -> list[str]:
        return ["--data", str(self.data), "--no-admin", "--listen", f"tcp://127.0.0.1:{self.port}"]

    def kill(self) -> None:
        assert self.broker is not None
        self.broker.process.kill()
        self.broker.process.wait()
        end(self.broker)

    def back_up(self) -> None:
        """While everybody goes on. The copy is looked through, and a store can be opened on it."""
        self.backups += 1
        target = self.folder / f"backup-{self.backups}"
        copy(self.data, target)
        with closing(SqliteStore(target)) as store:
            assert store.recover().cursors
        shutil.rmtree(target)

    def kill_while_it_starts(self) -> None:
        with (self.folder / "broker.log").open("ab") as log:
            command = [sys.executable, "-m", "stompbox", "serve", *self.arguments()]
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log, cwd=self.folder)
        try:
            code = process.wait(self.random.uniform(0.1, 0.7))
            raise AssertionError(f"the broker ended with {code} while it started:\n{self.log}")
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    # Those who take part

    def actor(self, role: str, name: str) -> subprocess.Popen[bytes]:
        arguments = [role, name, str(self.port), str(self.folder / f"{name}.journal"), str(self.seed)]
        command = [sys.executable, "-m", self.actors_module, *arguments]
        with (self.folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=ROOT
            )

    def wait_for_progress(self, dots: int) -> None:
        """Until so many things were confirmed, by whomever. Fails when nothing is for too long, or an actor ended."""
        with selectors.DefaultSelector() as waiting:
            for actor in self.actors:
                assert actor.stdout is not None
                waiting.register(actor.stdout, selectors.EVENT_READ, actor)
            while dots > 0:
                ready = waiting.select(WITHIN)
                assert ready, f"nothing was confirmed for {WITHIN} s:\n{self.log}"
                for key, _ in ready[:dots]:
                    found = os.read(key.fd, 1)
                    if not found:  # it is told how, once the system knows
                        key.data.wait(WITHIN)
                    assert found, f"an actor ended:\n{self.complaints()}\n{self.log}"
                    dots -= len(found)

    def complaints(self) -> str:
        """How those who ended did, and what they said."""
        told = []
        for (_, name), actor in zip(self.cast, self.actors, strict=False):
            if actor.poll() is not None:
                told.append(
                    f"{name} ended with {actor.returncode}:\n{(self.folder / f'{name}.log').read_text()}"
                )
        return "\n".join(told)

    def end_actors(self) -> None:
        """Those who only send go first: they may wait for room that the others make."""
        roles = [role for role, _ in self.cast]
        senders = [actor for role, actor in zip(roles, self.actors, strict=True) if role in SENDERS]
        codes = []
        for actors in (senders, [actor for actor in self.actors if actor not in senders]):
            for actor in actors:
                assert actor.stdin is not None
                actor.stdin.close()
            codes += [actor.wait(WITHIN) for actor in actors]
        assert not any(codes), self.complaints()

    # What the drill does itself

    @contextmanager
    def link(self, journal: Journal, client_id: str = "") -> Iterator[Link]:
        link = Link(self.port, journal, _Patient(), client_id)
        try:
            yield link
        finally:
            link.close()

    def make_subscriptions(self) -> None:
        with Journal(self.folder / "first.journal") as journal:
            for name in SUBSCRIBERS:
                with self.link(journal, name) as link:
                    headers = {
                        "destination": TOPIC,
                        "id": "1",
                        "durable-subscription-name": "news",
                        "receipt": "1",
                    }
                    link.write(link.frame("SUBSCRIBE", headers))
                    assert link.receive().headers["receipt-id"] == "1"

    def drain(self) -> None:
        """Takes everything that is left, up to a mark that is sent behind it."""
        with Journal(self.folder / "last.journal") as journal:
            with self.link(journal) as link:
                for destination in SOURCES:
                    link.write(
                        link.frame("SEND", {"destination": destination, "receipt": destination}, b"end")
                    )
                    assert link.receive().headers["receipt-id"] == destination
                for queue in (*QUEUES, RELAYED, RESULTS):
                    self._take_all(link, queue, {"destination": queue, "id": queue})
            for name in SUBSCRIBERS:
                with self.link(journal, name) as link:
                    self._take_all(
                        link,
                        source_of(name),
                        {"destination": TOPIC, "id": "1", "durable-subscription-name": "news"},
                    )

    def _take_all(self, link: Link, source: str, headers: dict[str, str]) -> None:
        link.write(link.frame("SUBSCRIBE", headers | {"ack": "client", "consumer-window-size": "-1"}))
        messages: list[str] = []
        while (frame := link.receive()).body != b"end":
            messages.append(self._got(link, source, frame))
            if len(messages) % 50 == 0:
                # a broker with little memory hands out no more than that to one client
                link.write(link.frame("ACK", {"id": frame.headers["ack"]}))
        while True:
            link.journal.note(Answered(link.name, source, messages))
            link.write(link.frame("ACK", {"id": frame.headers["ack"], "receipt": "all"}))
            late: list[str] = []
            # of a producer that left before it was confirmed: on a busy machine the broker may obey it behind the mark
            while (answer := link.receive()).command != "RECEIPT":
                frame = answer
                late.append(self._got(link, source, frame))
            link.journal.note(Acknowledged(time.monotonic_ns(), link.name, source, messages))
            if not late:
                return
            messages = late

    @staticmethod
    def _got(link: Link, source: str, frame: Frame) -> str:
        message = frame.body.split()[0].decode()
        link.journal.note(
            Got(time.monotonic_ns(), link.name, source, message, frame.headers["redelivered"] == "true")
        )
        return message

    def clean_up(self) -> None:
        for actor in self.actors:
            if actor.poll() is None:
                actor.kill()
                actor.wait()
            for stream in (actor.stdin, actor.stdout):
                assert stream is not None
                stream.close()
        if self.broker is not None:
            end(self.broker)


class _Patient(Control):
    """The drill itself is over when it says so."""

    def is_over(self, timeout: float = 0.0) -> bool:
        return False


def faults(drill: Drill, audit: Audit) -> list[str]:
    """All that is wrong after a drill: with promises, with the files, with what the broker said."""
    lines = drill.log.splitlines()
    noise = [
        "\n".join(lines[at : at + 40])  # with what was said around it: nobody can ask again
        for at, line in enumerate(lines)
        if ("Traceback" in line or line.split()[2:3] in (["ERROR"], ["CRITICAL"]))
        and not (drill.fronts_killed and line.endswith("(front-ended)"))
    ]
    return [*audit.problems(), *damage(drill.data), *noise]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="tests.crash.drill", description="Kills a broker under load and looks for what was lost."
    )
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument(
        "--folder", type=Path, help="where journals and data go, and stay; else a temporary folder"
    )
    parser.add_argument("--fronts", type=int, default=0, help="that each broker has; most kills are theirs")
    options = parser.parse_args()
    print(f"seed {options.seed}, {options.kills} kills", flush=True)
    with tempfile.TemporaryDirectory(prefix="stompbox-drill-") as temporary:
        drill = Drill(options.folder or Path(temporary), options.seed, fronts=options.fronts)
        audit = drill.run(options.kills)
        found = faults(drill, audit)
        print(f"{audit} backups={drill.backups}")
        for problem in found[:50]:
            print(problem)
        print(f"{len(found)} faults")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
