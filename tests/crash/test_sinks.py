"""The broker ends while sinks stage and publish: after any of its commits, and with a disk that refuses some of them.

What is published is published whole and once, whatever happened, when the client does what Spark's does: it asks to publish the batch
again, and stages it anew where the broker says that nothing is staged.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from shutil import rmtree

import pytest

from stompbox.errors import Refused, StoreError
from stompbox.message import Run, Shape
from stompbox.server.requests import publishing, sinks
from stompbox.spark.bounds import EARLIEST
from stompbox.spark.link import SparkLink
from stompbox.spark.options import Given, target_of
from stompbox.spark.requests import Staging, open_group, publish, stage
from stompbox.store.base import Commit
from stompbox.store.chunks import encode
from stompbox.store.sqlite import SqliteStore
from tests.crash.disk import Disk, Platter
from tests.crash.requests import World, play
from tests.crash.story import during
from tests.system.plain import Plain

ATTEMPTS = 3
EACH = 40  # messages of a run
EVERY = 1 if os.environ.get("SOAK") else 6  # moments at which power is lost


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch is many portions, and an attempt many pieces."""
    for name, value in {"PORTION": 700, "STEP": 300, "PIECE": 1000, "WINDOW": 2000}.items():
        monkeypatch.setattr(publishing, name, value)
    monkeypatch.setattr(sinks, "LEAST_READY", 1)


@dataclass(frozen=True)
class Case:
    """Where the messages go. `becomes`: what is staged becomes the log's as it lies, and is not written a second time."""

    prefix: str
    names: tuple[str, ...]
    settings: str = ""
    becomes: bool = False

    @property
    def each(self) -> int:
        """Messages of a batch, by attempt."""
        return EACH * len(self.names)


KEPT = """[[address-setting]]
match = "kept"
retention-ms = 1000000000
"""
QUEUES = Case("/queue/", ("a", "b"))
TOPIC = Case("/topic/", ("kept",), KEPT, becomes=True)
BOTH = pytest.mark.parametrize("case", [QUEUES, TOPIC], ids=["queues", "topic"])


class Recording(SqliteStore):
    """Keeps the commits that it has had; refuses those that `refuses` says."""

    def __init__(self, path: Path, refuses: Callable[[int], bool] = lambda _: False) -> None:
        super().__init__(path, synchronous=False)
        self.commits: list[Commit] = []
        self.tried = 0
        self._refuses = refuses

    def apply(self, commit: Commit) -> None:
        self.tried += 1
        if self._refuses(self.tried):
            raise StoreError("disk-full", "refused by the test")
        super().apply(commit)
        self.commits.append(copy(commit))


def bodies(attempt: int, batch: int, name: str) -> list[bytes]:
    return [b"%s%d-%d-%d" % (name.encode(), batch, attempt, number) for number in range(EACH)]


def chunk(case: Case, attempt: int, batch: int) -> bytes:
    """Of all its addresses, in two kinds of messages that take turns."""
    runs = []
    for name in case.names:
        for start in range(0, EACH, 10):
            shape = Shape({"destination": case.prefix + name, "kind": "odd" if start % 20 else "even"})
            runs.append(Run(shape, bodies(attempt, batch, name)[start : start + 10]))
    first = 0
    for run in runs:
        run.first, first = first, first + len(run)
    return encode(runs, 0)


def whole(case: Case, *batches: int) -> dict[str, list[bytes]]:
    return {
        name: [body for batch in batches for at in range(ATTEMPTS) for body in bodies(at, batch, name)]
        for name in case.names
    }


async def write(world: World, case: Case) -> None:
    """As a query does: two batches."""
    for batch in range(2):
        for attempt in range(ATTEMPTS):
            assert await world.stage(chunk(case, attempt, batch), attempt, batch) == ""
        assert await world.publish(ATTEMPTS, batch) == (
            "",
            {"published": case.each * ATTEMPTS, "already": False},
        )
    assert world.there() == whole(case, 0, 1)


@BOTH
def test_a_batch_is_published_once_after_any_commit(tmp_path: Path, case: Case) -> None:
    recording = Recording(tmp_path / "recorded" / "data")
    play(tmp_path / "recorded", recording, lambda world: write(world, case), case.settings)
    stored = [run for commit in recording.commits for runs in commit.runs.values() for run in runs]
    assert {run.is_staged for run in stored} == {case.becomes}
    assert any(
        any(kind == "publishing-done" for kind, _ in commit.entries) for commit in recording.commits
    ), "it was one portion"
    seen = set()

    async def again(world: World) -> None:
        await world.settled()
        there = world.there()
        nothing: dict[str, list[bytes]] = {name: [] for name in case.names}
        assert there in ({}, nothing, whole(case, 0), whole(case, 0, 1)), "half a batch"
        seen.add(sum(map(len, there.values())) // (case.each * ATTEMPTS))
        for batch in range(2):
            code, answer = await world.publish(ATTEMPTS, batch)
            if code == "not-staged":
                for attempt in range(ATTEMPTS):
                    assert await world.stage(chunk(case, attempt, batch), attempt, batch) == ""
                code, answer = await world.publish(ATTEMPTS, batch)
            assert code == "", answer
        await world.settled()
        assert world.there() == whole(case, 0, 1)
        assert (world.broker.sinks.size, world.broker.sinks.batches, world.broker.sinks.publishing) == (
            0,
            {},
            {},
        )

    kinds = set()
    for count, commit in enumerate(recording.commits, 1):
        kinds |= {kind for kind, _ in commit.entries}
        folder = tmp_path / f"after-{count}"
        store = SqliteStore(folder / "data", synchronous=False)
        for one in recording.commits[:count]:
            store.apply(copy(one))
        store.close()
        play(folder, SqliteStore(folder / "data", synchronous=False), again, case.settings)
        assert left_behind(folder) == (2 * ATTEMPTS if case.becomes else 0, [])
    assert kinds >= {"staged", "publishing", "publishing-done", "sink"}
    assert seen == {0, 1, 2}


def left_behind(folder: Path) -> tuple[int, list[str]]:
    """Bodies of what was staged, and entries of the catalogue that tell of them."""
    store = SqliteStore(folder / "data", synchronous=False)
    while store.maintain():
        pass
    (bodies,) = store._db.execute("SELECT count(DISTINCT body) FROM part").fetchone()
    entries = [
        kind for kind, _ in store.recover().entries if kind in ("staged", "publishing", "publishing-done")
    ]
    store.close()
    return bodies, entries


@BOTH
@pytest.mark.parametrize("refused", range(2, 40, 3))
def test_a_disk_that_refuses_a_commit(refused: int, tmp_path: Path, case: Case) -> None:
    """What was refused was not done, what was answered is there; and again, until it is."""

    async def story(world: World) -> None:
        for batch in range(2):
            for attempt in range(ATTEMPTS):
                while await world.stage(chunk(case, attempt, batch), attempt, batch):
                    pass
            while (answer := await world.publish(ATTEMPTS, batch))[0]:
                assert answer[0] in ("disk-full", "not-staged"), answer
        await world.settled()
        assert world.there() == whole(case, 0, 1)

    store = Recording(tmp_path / "data", lambda tried: refused <= tried < refused + 2)
    play(tmp_path, store, story, case.settings)
    assert left_behind(tmp_path) == (2 * ATTEMPTS if case.becomes else 0, [])


@dataclass
class Written:
    """One batch, and after how many operations of the disk it was confirmed."""

    disk: Disk
    case: Case
    staged: list[int] = field(default_factory=list)
    published: int = 0

    def play(self, port: int) -> None:
        link = link_to(port)
        hold(link, self.case)
        for attempt in range(ATTEMPTS):
            link.ask(stage(Staging("lake", 0, attempt), 1, chunk(self.case, attempt, 0)))
            self.staged.append(len(self.disk.operations))
        assert publish(link, "lake", 0, WON) == self.case.each * ATTEMPTS
        self.published = len(self.disk.operations)
        link.close()


WON = [(attempt, 1) for attempt in range(ATTEMPTS)]


def link_to(port: int) -> SparkLink:
    return SparkLink(target_of(Given({"url": f"stomp://127.0.0.1:{port}"})))


def hold(link: SparkLink, case: Case) -> None:
    """A topic that nobody holds keeps nothing."""
    if case.becomes:
        for name in case.names:
            open_group(link, "held", case.prefix + name, EARLIEST)


@BOTH
def test_a_batch_is_published_once_after_power_was_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: Case
) -> None:
    disk = Disk("sinks")
    written = Written(disk, case)
    with monkeypatch.context() as patched:
        disk.take_over(patched)
        asyncio.run(during(tmp_path / "recorded", written.play))
    random, platter = Random(1), Platter()
    outcomes = set()

    def again(port: int) -> None:
        link = link_to(port)
        hold(link, case)
        try:
            outcome = "published" if publish(link, "lake", 0, WON) else "was published"
        except Refused as refusal:
            assert refusal.code == "not-staged"
            outcome = "was not staged"
            for attempt in range(ATTEMPTS):
                link.ask(stage(Staging("lake", 0, attempt), 1, chunk(case, attempt, 0)))
            assert publish(link, "lake", 0, WON) == case.each * ATTEMPTS
        link.close()
        outcomes.add(outcome)
        assert outcome != "was not staged" or cut < written.staged[-1], "what was staged is gone"
        assert outcome == "was published" or cut < written.published, "what was published is gone"
        assert read(port, case) == whole(case, 0)

    for cut, operation in enumerate(disk.operations, 1):
        platter.do(operation)
        if random.randrange(EVERY):
            continue
        data = tmp_path / f"cut-{cut}" / "data"
        data.mkdir(parents=True)
        for name, content in platter.after_power_loss(random, random.choice((0.0, 0.5, 1.0))).items():
            (data / name).write_bytes(content)
        asyncio.run(during(data.parent, again))
        rmtree(data.parent)
    assert outcomes == {"published", "was published", "was not staged"}


def read(port: int, case: Case) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = {}
    with Plain(port, "1.1") as client:
        for name in case.names:
            source = {"destination": case.prefix + name}
            if case.becomes:
                source = {"destination": f"/stream/{name}", "x-stream-offset": "first"}
            client.send("SUBSCRIBE", {**source, "id": name, "ack": "client"})
            client.send("SEND", {"destination": case.prefix + name, "persistent": "false"}, b"end")
            found[name] = []
            while (frame := client.receive()).body != b"end":
                found[name].append(frame.body)
    return found
