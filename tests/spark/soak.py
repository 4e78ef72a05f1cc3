"""Messages through Spark to a table and to a queue while driver, executors and broker are killed: `python -m tests.spark.soak`.

    --rows 2000000   messages; half as many batches of `--batch` rows as they need go to each of the two sinks
    --kills 12       SIGKILLs at random times, of each kind as many
    --writer arrow   who writes the table: Spark's own sink (java), or the tasks of a pipeline's archive
    --seed 7         decides kinds and times; printed, so that a run can be said again (times vary with the machine)

Three topics are filled. One Spark application on a local cluster (two executors that are processes of their own) reads them twice, with
a group each, into a Parquet table and into /queue/copy. Before each kill some batches must have come to their end that none before it
had: however slowly everything starts, it comes to an end. What was killed is started again, as is an application that failed because of
it. In the end each message stands exactly once in the table, each row exactly once in the queue, and both groups have read everything.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from stompbox.spark.bounds import EARLIEST
from stompbox.spark.link import SparkLink, leased
from stompbox.spark.offsets import OffsetRange
from stompbox.spark.options import Given, SourceOptions, source_options
from stompbox.spark.reading import View, batches
from stompbox.spark.requests import describe, open_group
from tests.conftest import ROOT, Served, end, start_broker
from tests.spark.archive import CLUSTER

ADDRESSES = 3
FORMS = ("parquet", "stomp")
WRITERS = {"java": FORMS, "arrow": ("arrow", "stomp")}
KINDS = ("executor", "broker", "driver")
WITHIN = 600.0  # seconds without a sign of life: on a busy machine Spark alone takes minutes to start
FRUITLESS = 5  # starts of the application, one after the other, that bring no batch to its end
FRAMES = 1000  # sent at a time
BODY = b"%d" + b"." * 150


@dataclass(frozen=True, slots=True)
class Kill:
    """`kind` is killed `delay` seconds after another `batches` batches were done for the first time; 0: so long after the kill before."""

    kind: str
    batches: int
    delay: float


@dataclass(slots=True)
class Outcome:
    kills: Counter[str] = field(default_factory=Counter)
    starts: int = 0  # of the application
    seconds: float = 0.0


def plan(seed: int, kills: int, most_batches: int) -> list[Kill]:
    """Each kind as often as the others, in random order, at random times."""
    chance = random.Random(seed)
    kinds = [KINDS[index % len(KINDS)] for index in range(kills)]
    chance.shuffle(kinds)
    return [Kill(kind, chance.randint(1, most_batches), chance.uniform(0, 0.5)) for kind in kinds]


class Soak:
    """One broker that comes back on its port, one application that is started again."""

    def __init__(
        self, folder: Path, say: Callable[[str], None] = print, forms: Sequence[str] = FORMS
    ) -> None:
        self.folder = folder
        self.forms = forms
        self.say = say
        self.port = free_port()
        self.url = f"stomp://127.0.0.1:{self.port}"
        self.outcome = Outcome()
        self.done = dict.fromkeys(forms, -1)  # the last batch of each that has come to its end
        self.broker = self._start_broker()

    def _start_broker(self) -> Served:
        return start_broker(self.folder / "broker", "--listen", f"tcp://127.0.0.1:{self.port}", "--no-admin")

    def close(self) -> None:
        end(self.broker)

    def options(self, destination: str) -> SourceOptions:
        return source_options(Given({"url": self.url, "destination": destination}), streaming=False)

    def fill(self, rows: int) -> None:
        """`rows` messages that carry their number, on the topics in turn, stored and held by both groups."""
        with leased(self.options("/topic/soak.#").target) as link:
            for form in self.forms:
                open_group(
                    link,
                    f"lake-{form}",
                    ",".join(f"/topic/soak.{number}" for number in range(ADDRESSES)),
                    EARLIEST,
                )
        with socket.create_connection(("127.0.0.1", self.port), timeout=WITHIN) as sender:
            sender.sendall(b"CONNECT\naccept-version:1.2\nhost:x\nheart-beat:0,0\n\n\0")
            received = sender.recv(65536)
            assert received.startswith(b"CONNECTED"), received
            for first in range(0, rows, FRAMES):
                sender.sendall(
                    b"".join([_frame(number, rows) for number in range(first, min(first + FRAMES, rows))])
                )
            while b"receipt-id:done" not in received:
                octets = sender.recv(65536)
                assert octets, received
                received += octets

    def run(
        self, kills: Sequence[Kill], *, batch: int, master: str = CLUSTER, quick: bool = False
    ) -> Outcome:
        """Until the application has ended by itself, however often it had to be started."""
        begun, waiting = time.monotonic(), list(kills)
        arguments = ["--rows", str(batch), "--master", master, *(["--quick"] if quick else [])]
        fruitless, before = 0, dict(self.done)
        while not self._application(waiting, arguments):
            fruitless, before = 0 if self.done != before else fruitless + 1, dict(self.done)
            assert fruitless <= FRUITLESS, (
                f"the application fails again and again: {self.log().read_text()[-3000:]}"
            )
        self.outcome.seconds = time.monotonic() - begun
        assert not waiting, f"everything was read before {waiting} came; there must be more rows"
        return self.outcome

    def log(self) -> Path:
        return self.folder / "application.log"

    def command(self) -> list[str]:
        """The application, which says which batches it has done."""
        return [sys.executable, "-m", "tests.spark.archive", self.url, str(self.folder), ",".join(self.forms)]

    def _application(self, kills: list[Kill], arguments: Sequence[str]) -> bool:
        """One start of it. True when it has come to its end."""
        self.outcome.starts += 1
        with (
            self.log().open("ab") as log,
            subprocess.Popen(
                [*self.command(), *arguments],
                stdout=subprocess.PIPE, stderr=log, cwd=ROOT, start_new_session=True,
            ) as process,
        ):  # fmt: skip
            try:
                return self._watch(process, kills)
            finally:
                for pid, _ in of_session(process.pid):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)

    def _watch(self, process: subprocess.Popen[bytes], kills: list[Kill]) -> bool:
        done = 0
        for line in lines_of(process):
            if line == "end":
                return True
            if not self._is_progress(line):
                continue
            done += 1
            while kills and done >= kills[0].batches:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(kills[0].delay)
                    if kills[0].kind != "broker":
                        return False  # it has failed over the kill before; this one is the next start's
                kill, done = kills.pop(0), 0
                self._kill(kill.kind, process.pid)
                if kill.kind == "driver":
                    return False
        return False  # it has failed

    def _is_progress(self, line: str) -> bool:
        """Whether a batch has come to its end for the first time. One that is done again after a kill brings nobody further."""
        word, _, rest = line.partition(" ")
        form, _, batch = rest.partition(" ")
        if word != "batch" or int(batch) <= self.done[form]:
            return False
        self.done[form] = int(batch)
        return True

    def _kill(self, kind: str, session: int) -> None:
        if kind == "broker":
            self.broker.process.kill()
            self.broker.process.wait()
            end(self.broker)
            self.broker = self._start_broker()
            found = [self.broker.process.pid]
        else:
            found = [
                pid for pid, command in of_session(session) if is_executor(command) == (kind == "executor")
            ]
            for pid in found[:1] if kind == "executor" else found:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        assert found, f"there was no {kind} to kill"
        self.outcome.kills[kind] += 1
        self.say(
            f"killed {kind} ({sum(self.outcome.kills.values())}), start {self.outcome.starts} of the application"
        )

    # What came out

    def table(self) -> Any:
        """All rows of the table: those of the files that its commits name. What a killed task left does not count."""
        folder = self.folder / "table" / "_spark_metadata"
        logs = sorted(
            [path for path in folder.iterdir() if path.name[0].isdigit()],
            key=lambda path: int(path.name.partition(".")[0]),
        )
        # holds all that came before
        whole = [at for at, path in enumerate(logs) if path.suffix == ".compact"]
        lines = [
            line for path in logs[whole[-1] if whole else 0 :] for line in path.read_text().splitlines()[1:]
        ]
        files = [unquote(urlsplit(json.loads(line)["path"]).path) for line in lines]
        return pa.concat_tables(
            [parquet.ParquetFile(file).read(["address", "offset", "headers", "body"]) for file in files]
        )

    def queue(self, destination: str = "/queue/copy") -> Any:
        """The same of a destination, without Spark."""
        given = self.options(destination)
        with leased(given.target) as link:
            extents = describe(link, destination, create=False).extents
        ranges = [OffsetRange(address, extent.first, extent.next) for address, extent in extents.items()]
        return pa.Table.from_batches(
            list(batches(given, ranges, View(("address", "offset", "headers", "body"))))
        )

    def check(self, rows: int) -> None:
        """Raises AssertionError that says what is missing or doubled."""
        for name, found in (("table", self.table()), ("queue", self.queue())):
            numbers = numbers_of(found)
            once = np.bincount(numbers, minlength=rows)
            wrong = np.flatnonzero(once != 1)
            assert len(once) == rows and not len(wrong), (
                f"{name}: {len(wrong)} rows are not there once: {wrong[:10]} {once[wrong[:10]]}"
            )
            bodies = found.column("body").to_pylist()
            assert all(
                body == BODY % number for body, number in zip(bodies, numbers.tolist(), strict=True)
            ), f"{name}: a body is damaged"
        found = self.table().select(["address", "offset"]).group_by(["address", "offset"]).aggregate([])
        assert len(found) == rows, f"table: {len(found)} places instead of {rows}"
        with leased(self.options("/topic/soak.#").target) as link:
            for form in self.forms:
                self._check_group(link, form, rows)

    def _check_group(self, link: SparkLink, form: str, rows: int) -> None:
        extents = describe(link, "/topic/soak.#", create=False).extents
        positions = open_group(link, f"lake-{form}", "/topic/soak.#", EARLIEST)
        assert positions == {address: extent.next for address, extent in extents.items()}, (
            f"group lake-{form} is at {positions}"
        )
        assert sum(positions.values()) == rows


def _frame(number: int, rows: int) -> bytes:
    receipt = b"\nreceipt:done" if number == rows - 1 else b""
    head = b"SEND\ndestination:/topic/soak.%d\npersistent:true\ncarrier:UA\norigin:EWR\nid:%d%b\n\n" % (
        number % ADDRESSES,
        number,
        receipt,
    )
    return b"%b%b\0" % (head, BODY % number)


def numbers_of(found: Any) -> Any:
    """The header `id` of each row. Headers stand as their sender gave them: it is the last."""
    keys, items = (
        found.column("headers").combine_chunks().keys,
        found.column("headers").combine_chunks().items,
    )
    ids = items.filter(pa.compute.equal(keys, "id"))
    assert len(ids) == len(found), "each row has its header id"
    return ids.cast(pa.int64()).to_numpy()


def lines_of(process: subprocess.Popen[bytes]) -> Iterator[str]:
    """As they come, until its end. Fails when nothing comes for too long."""
    assert process.stdout is not None
    rest = b""
    with selectors.DefaultSelector() as waiting:
        waiting.register(process.stdout, selectors.EVENT_READ)
        while waiting.select(WITHIN):
            octets = os.read(process.stdout.fileno(), 65536)
            if not octets:
                return
            *lines, rest = (rest + octets).split(b"\n")
            yield from [line.decode() for line in lines]
    raise AssertionError(f"the application said nothing for {WITHIN} s")


def of_session(session: int) -> list[tuple[int, str]]:
    """Process ids and command lines of all that the application has started (Linux)."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, _, own = path.read_text().rpartition(")")[2].split()[:4]
            if int(own) == session and state != "Z":
                found.append(
                    (
                        int(path.parent.name),
                        path.with_name("cmdline").read_bytes().replace(b"\0", b" ").decode(),
                    )
                )
    return found


def is_executor(command: str) -> bool:
    """Executors are a Java each; in local mode they are workers of the driver's Python daemon."""
    return (
        "CoarseGrainedExecutorBackend" in command
        or "pyspark.daemon" in command
        or "pyspark/daemon" in command
    )


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--batch", type=int, default=50_000)
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--writer", choices=WRITERS, default="java")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        soak = Soak(Path(folder), lambda text: print(text, flush=True), WRITERS[given.writer])
        try:
            soak.fill(given.rows)
            outcome = soak.run(plan(given.seed, given.kills, 4), batch=given.batch)
            soak.check(given.rows)
        finally:
            soak.close()
    kills = ", ".join(f"{count} x {kind}" for kind, count in sorted(outcome.kills.items()))
    print(
        f"{given.rows} messages once in the table, once in the queue; killed {kills}; {outcome.starts} starts, {outcome.seconds:.0f} s"
    )


if __name__ == "__main__":
    main()
