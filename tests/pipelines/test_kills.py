"""`stompbox pipeline run` and the broker killed with SIGKILL, at each step of a batch in turn and at random: every message is in each of
four tables once, by readers that know nothing of Spark or of us.

One pipeline archives the same addresses into a Parquet, a Delta and an Iceberg table, and into a Parquet table that Java writes. What is
killed is started again, and more is sent before each start, so that there is always a batch to be cut off. In short here; with SOAK=1
(`make soak`) at each step for each table.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

from stompbox import blocking
from stompbox.spark.bounds import EARLIEST
from stompbox.spark.link import leased
from stompbox.spark.options import Given, target_of
from stompbox.spark.requests import describe, open_group
from tests.conftest import ROOT, Served, end, start_broker
from tests.pipelines.killing import POINTS, STEPS, format_of, writer_of
from tests.pipelines.lake import rows_of
from tests.spark.archive import QUICK
from tests.spark.soak import free_port, lines_of, of_session

SEED = 20
ADDRESSES = 2
BATCH = 50  # messages
WITHIN = 120.0  # s
EXITS = {  # a worker that had nothing to do is missed by nobody
    "itself": (-signal.SIGKILL,), "driver": (-signal.SIGKILL,), "java": (1,), "workers": (0, 1), "broker": (0,),
}  # fmt: skip
STEP = """
[[archive]]
name = "{step}"
destinations = ["/queue/killed.#"]
table = "{step}-table"
format = "{kept}"
writer = "{writer}"
trigger = 0
max-rows = {batch}
compact-files = 3
"""


@dataclass(frozen=True, slots=True)
class Kill:
    """`who` is killed: itself at a point of a step; or at any time `delay` s after so many `batches`."""

    who: str  # itself, driver, java, workers (of Spark, which write the files), broker
    step: str = ""
    point: str = ""
    number: int = 0  # how often the step comes before
    batches: int = 0
    delay: float = 0.0


def by_chance(chance: random.Random, who: str) -> Kill:
    return Kill(who, batches=chance.randint(1, 5), delay=chance.uniform(0, 0.5))


Rounds = list[tuple[Kill, ...]]
"""What is killed in one start of the pipeline after another."""


def short(seed: int) -> Rounds:
    """One start: first the broker, then the driver between the commit of a table and that of the checkpoint."""
    chance = random.Random(seed)
    return [(by_chance(chance, "broker"), Kill("itself", chance.choice(STEPS), "committed", 1))]


def long(seed: int) -> Rounds:
    """Each point of each step, some with a kill of the broker before; and each kind at random."""
    chance = random.Random(seed)
    rounds: Rounds = [
        (Kill("itself", step, point, chance.randint(0, 1)),) for step in STEPS for point in POINTS
    ]
    rounds += [(by_chance(chance, who),) for who in ("driver", "java", "workers", "broker") for _ in range(5)]
    chance.shuffle(rounds)
    return [
        (by_chance(chance, "broker"), *kills) if number % 5 == 0 else kills
        for number, kills in enumerate(rounds)
    ]


class Run:
    """A broker that comes back on its port, a pipeline that is started again, and what was sent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"stomp://127.0.0.1:{self.port}"
        self.broker = self._start_broker()
        self.sent = 0
        self.starts = 0
        self.killed: Counter[str] = Counter()
        self.file = folder / "lake.toml"
        settings = "".join(
            [
                f'"{name}" = "{value}"\n'
                for name, value in {**QUICK, "spark.sql.shuffle.partitions": "1"}.items()
            ]
        )
        steps = [
            STEP.format(step=step, kept=format_of(step).value, writer=writer_of(step), batch=BATCH)
            for step in STEPS
        ]
        self.file.write_text(
            "\n".join(
                [f'url = "{self.url}"\n[spark]\ncores = 2\nnice = 0\n[spark.settings]\n{settings}', *steps]
            )
        )
        with leased(target_of(Given({"url": self.url}))) as link:
            for number in range(ADDRESSES):
                for step in STEPS:
                    describe(link, f"/queue/killed.{number}", create=True)
                    open_group(link, f"lake-{step}", "/queue/killed.#", EARLIEST)

    def _start_broker(self) -> Served:
        return start_broker(self.folder / "broker", "--listen", f"tcp://127.0.0.1:{self.port}", "--no-admin")

    def send(self, messages: int) -> None:
        with blocking.connect(self.url) as client, client.publisher() as publisher:
            for number in range(self.sent, self.sent + messages):
                publisher.send(f"/queue/killed.{number % ADDRESSES}", b"%d" % number)
        self.sent += messages

    def start(self, kills: tuple[Kill, ...]) -> int:
        """One start of the pipeline, with these kills one after another. Its exit code; fails if one of them did not come."""
        self.starts += 1
        arguments, waiting = [str(self.file)], [kill for kill in kills if kill.who != "itself"]
        for kill in kills:
            if kill.who == "itself":
                arguments += [kill.step, kill.point, str(kill.number)]
        with (self.folder / "errors.log").open("ab") as errors, subprocess.Popen(
            [sys.executable, "-m", "tests.pipelines.killing", *arguments], stdout=subprocess.PIPE, stderr=errors, cwd=ROOT,
        ) as process:  # fmt: skip
            done = 0
            for line in lines_of(process):
                done += json.loads(line)["event"] == "batch"
                if waiting and done >= waiting[0].batches:
                    self._kill(waiting.pop(0), process)
                    done = 0
            code = process.wait(WITHIN)
        assert waiting in ([], [kill for kill in kills if kill.who == "broker"]), f"not killed: {waiting}"
        assert code in (EXITS[kills[-1].who] if kills else (0,)), (
            f"{kills}: exit code {code}; {self.errors()[-3000:]}"
        )
        if kills and kills[-1].who == "java":
            said = self.errors().splitlines()[-1]
            assert (
                said.startswith("stompbox pipeline: Java has ended, killed or out of memory; ")
                and "spark.log" in said
            )
        if kills and kills[-1].who == "itself":
            self.killed[f"{kills[-1].point} of {kills[-1].step}"] += 1
        return code

    def _kill(self, kill: Kill, process: subprocess.Popen[bytes]) -> None:
        with suppress(subprocess.TimeoutExpired):
            process.wait(kill.delay)
        if kill.who == "broker":
            self.broker.process.kill()
            self.broker.process.wait()
            end(self.broker)
            self.broker = self._start_broker()
        elif kill.who == "driver":
            process.kill()
        else:
            for pid in (java_of if kill.who == "java" else workers_of)(process.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.killed[kill.who] += 1

    def errors(self) -> str:
        return (self.folder / "errors.log").read_text()

    def check(self) -> None:
        """Every message once in each table, by a reader of its format; and every group at the end."""
        for step in STEPS:
            found = Counter(
                int(row["body"]) for row in rows_of(format_of(step), self.folder / f"{step}-table")
            )
            wrong = {number: found[number] for number in {*found, *range(self.sent)} if found[number] != 1}
            assert not wrong, f"{step}: how often each message is there that is not there once: {wrong}"
        with leased(target_of(Given({"url": self.url}))) as link:
            ends = {
                address: extent.next
                for address, extent in describe(link, "/queue/killed.#", create=False).extents.items()
            }
            for step in STEPS:
                assert open_group(link, f"lake-{step}", "/queue/killed.#", EARLIEST) == ends, step

    def close(self) -> None:
        end(self.broker)


def java_of(pid: int) -> list[int]:
    """The Java that this process has started: the first of the sessions of its children (Linux)."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [
        each for child in children for each, command in of_session(int(child)) if "SparkSubmit" in command
    ]


def workers_of(pid: int) -> list[int]:
    """The Python processes of this Java: they plan batches, read messages and write files."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    found = [
        (each, command)
        for child in children
        for each, command in of_session(int(child))
        if "pyspark" in command
    ]
    return [each for each, command in found if "SparkSubmit" not in command]


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Run]:
    with closing(Run(tmp_path)) as run:
        yield run


@pytest.mark.filterwarnings("default")
def test_every_message_once_over_kills(pipeline: Run) -> None:
    is_long = "SOAK" in os.environ
    rounds = (long if is_long else short)(SEED)
    print(f"seed {SEED}")
    for kills in [*rounds, ()]:
        pipeline.send(3 * BATCH if is_long else 2 * BATCH)
        begun = time.monotonic()
        code = pipeline.start(kills)
        killed = ", ".join(f"{kill.who} {kill.step} {kill.point}" for kill in kills)
        print(
            f"start {pipeline.starts} of {len(rounds) + 1}, {time.monotonic() - begun:.1f} s, exit code {code}: {killed}",
            flush=True,
        )
    pipeline.check()
    assert "Traceback" not in pipeline.errors()
