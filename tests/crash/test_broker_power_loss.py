"""Power lost at any moment of a broker's life: what was confirmed by then is there, and of what was not, transactions are whole.

One story is played on a disk that remembers each write. Then, for many of its moments, the files are put together as a loss of
power may have left them, and another broker is started on them. `make soak` tries every moment.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from random import Random
from shutil import rmtree

import pytest

from stompbox.server import run
from stompbox.store import housekeeping, journal, sqlite
from tests.crash.disk import Disk, Platter
from tests.crash.story import MESSAGES, OTHER, QUEUE, TOPIC, Story, during, found

IS_LONG = bool(os.environ.get("SOAK"))
EVERY = 1 if IS_LONG else 5  # moments that are tried
SHARES = (0.0, 0.5, 1.0)  # of the sectors on their way that arrive
SEEDS = range(3 if IS_LONG else 1)


@pytest.fixture(autouse=True)
def busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes are folded in and the log is checkpointed often."""
    monkeypatch.setattr(sqlite, "FOLD_ROWS", 5)
    monkeypatch.setattr(sqlite, "WAL_MOST", 200_000)
    monkeypatch.setattr(housekeeping, "WAL_IDLE", 50_000)
    monkeypatch.setattr(journal, "SIZE", 64 << 10)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_broker_has_what_it_confirmed_after_power_was_lost(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(f"recorded-{seed}")
    story = Story(disk)
    with monkeypatch.context() as patched:
        disk.take_over(patched)
        asyncio.run(during(tmp_path / "recorded", story.play))
    random, platter = Random(seed), Platter()
    tried = kept = 0
    for cut, operation in enumerate(disk.operations, 1):
        platter.do(operation)
        if random.randrange(EVERY):
            continue
        data = tmp_path / f"cut-{cut}" / "data"
        data.mkdir(parents=True)
        for name, content in platter.after_power_loss(random, random.choice(SHARES)).items():
            (data / name).write_bytes(content)
        there = opened(data.parent)
        problems = list(broken(story, cut, there))
        assert not problems, (
            f"seed {seed}, power lost after operation {cut} of {len(disk.operations)}: {problems}"
        )
        tried, kept = tried + 1, kept + sum(map(len, there.values()))
        rmtree(data.parent)
    assert tried > 20
    assert kept > tried


def test_a_broker_that_never_syncs_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That the test above can fail."""
    disk = Disk("careless-broker")
    story, platter = Story(disk), Platter()
    with monkeypatch.context() as patched:
        disk.take_over(patched)
        patched.setattr(
            run,
            "open_store",
            lambda configuration, **_: sqlite.SqliteStore(Path(configuration.data), synchronous=False),
        )
        asyncio.run(during(tmp_path / "recorded", story.play))
    for operation in disk.operations:
        platter.do(operation)
    (tmp_path / "cut" / "data").mkdir(parents=True)
    for name, content in platter.after_power_loss(Random(1), 0.0).items():
        (tmp_path / "cut" / "data" / name).write_bytes(content)
    assert any("lost" in problem for problem in broken(story, len(disk.operations), opened(tmp_path / "cut")))


def opened(folder: Path) -> dict[str, list[bytes]]:
    """What a broker finds there."""
    there: dict[str, list[bytes]] = {}
    asyncio.run(during(folder, lambda port: there.update(found(port))))
    return there


def broken(story: Story, cut: int, there: dict[str, list[bytes]]) -> list[str]:
    """What is wrong with what is there, if power was lost after so many operations."""
    problems = []
    for destination, bodies in there.items():
        confirmed = {body for body, at in story.confirmed[destination].items() if at <= cut}
        if destination == QUEUE:
            problems += [f"returned: {body!r}" for body in bodies if story.done.get(body, cut + 1) <= cut]
            confirmed -= story.done.keys()
        problems += [f"lost: {body!r} of {destination}" for body in sorted(confirmed.difference(bodies))]
        if len(set(bodies)) < len(bodies) or [body for body in bodies if body != b"y"] != sorted(
            set(bodies) - {b"y"}
        ):
            problems.append(f"twice or out of order: {bodies} in {destination}")
    took_place = b"x" in there[OTHER]
    was_there = story.confirmed[QUEUE][story.exchanged] <= cut
    if took_place != (b"y" in there[TOPIC]) or (
        was_there and took_place == (story.exchanged in there[QUEUE])
    ):
        problems.append(f"half a transaction: {there}")
    assert len(there[TOPIC]) <= MESSAGES + 1
    return problems
