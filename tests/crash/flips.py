"""One bit of a data folder flips, anywhere: nothing that was confirmed is lost or changed without a word.

    python -m tests.crash.flips --flips 1000 --seed 1

Folders are made by a store that is killed (with a write-ahead log, a journal, large bodies) at several moments, and by one that is stopped.
Then one bit of one file flips: files that are short are chosen as often as long ones, and in long ones mostly what is in use. The
store is opened as a broker does it. It refuses, or says what it did, or has everything, or says so when what is damaged is read.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from stompbox.errors import StoreError
from stompbox.store.base import Commit
from stompbox.store.folder import JOURNAL
from stompbox.store.folderstore import FolderStore
from stompbox.store.journal import FIRST, SECTOR
from stompbox.store.journaled import JournaledStore
from stompbox.store.losses import Losses
from stompbox.store.sqlite import SqliteStore
from tests.crash.commits import Commits, contents
from tests.store.runs import run

CODES = frozenset(("data-corrupt", "data-missing"))  # of a store that does not open
TOLD = frozenset(("data-repaired", "data-corrupt", "data-missing"))
IN_USE = 0.9  # of the flips in a long file
EMPTY = 4096  # bytes of zeros in a row that nobody uses


@dataclass(frozen=True, slots=True)
class Folder:
    """A data folder as it was left, and what had been confirmed by then."""

    path: Path
    confirmed: dict[str, Any]
    what: str


def made(base: Path, seed: int) -> list[Folder]:
    """Killed with all in the write-ahead log, killed after a checkpoint with more behind it, killed and opened again, and stopped."""
    found = []
    for number, what in enumerate(
        ("killed", "killed after a checkpoint", "killed when all was copied", "stopped")
    ):
        running, path = base / f"running-{number}", base / f"made-{number}"
        store = JournaledStore(SqliteStore(running, chunk_bytes=4000))
        commits = Commits(seed + number)
        for at in range(12):
            store.apply(next(commits))
            if at == 7 and "checkpoint" in what:
                store._database._house.checkpoint()
        _small(store, commits)
        if "copied" in what:
            store._settle()
            store._database._house.checkpoint()
        if what == "stopped":
            store.close()
        shutil.copytree(running, path)
        store.close()
        whole = base / f"whole-{number}"
        shutil.copytree(path, whole)
        with closing(FolderStore(whole)) as again:
            found.append(Folder(path, contents(again), what))
    return found


def _small(store: JournaledStore, commits: Commits) -> None:
    """Commits that go into the journal, one message each; the last is acknowledged as well."""
    for number in range(20):
        log = 1 + number % 3
        first = commits.next[log]
        commits.next[log] += 1
        store.apply(
            Commit(
                runs={log: [run(first, body=commits.random.randbytes(200))]},
                acknowledged={log: [(first, first + 1)]},
            )
        )


def flip(path: Path, random: Random) -> tuple[str, int, int]:
    """Turns a bit of a file over; which."""
    file = random.choice(sorted(one for one in path.iterdir() if one.stat().st_size))
    data = bytearray(file.read_bytes())
    at = random.randrange(_used(file.name, data)) if random.random() < IN_USE else random.randrange(len(data))
    bit = random.randrange(8)
    data[at] ^= 1 << bit
    file.write_bytes(data)
    return file.name, at, bit


def _used(name: str, data: bytearray) -> int:
    """Where what is used of a file ends."""
    if name == JOURNAL:
        last = max(
            (at for at in range(FIRST, len(data), SECTOR) if data.startswith(b"SBjr", at)), default=FIRST
        )
        return last + SECTOR
    return len(bytes(data).rstrip(b"\0")) or len(data)


def outcome(folder: Path, confirmed: dict[str, Any]) -> str:
    """How a store with a flipped bit is opened. Raises AssertionError for a loss that nobody is told of."""
    told: list[tuple[str, str]] = []
    try:
        store = FolderStore(folder, Losses(tell=lambda code, text: told.append((code, text))))
    except StoreError as error:
        assert error.code in CODES, error
        return f"refused, {error.code}"
    assert {code for code, _ in told} <= TOLD
    with closing(store):
        try:
            found = contents(store)
        except StoreError as error:
            assert error.code in CODES, error
            return f"read, {error.code}"
    if found == confirmed:
        return "repaired" if told else "whole"
    assert told, f"differs, and nobody is told: {_difference(found, confirmed)}"
    return f"told, {told[0][0]}"


def _difference(found: dict[str, Any], confirmed: dict[str, Any]) -> str:
    different = [key for key in confirmed if found[key] != confirmed[key]]
    return "; ".join(
        f"{key}: {str(found[key])[:200]} instead of {str(confirmed[key])[:200]}" for key in different
    )


def drilled(base: Path, flips: int, seed: int) -> Iterator[tuple[str, str]]:
    """(where, outcome) of each flip; where a loss is silent the outcome begins with `SILENT`."""
    random = Random(seed)
    folders = made(base, seed)
    for number in range(flips):
        folder = folders[number % len(folders)]
        copy = base / "flipped"
        shutil.copytree(folder.path, copy)
        name, at, bit = flip(copy, random)
        where = f"flip {number}, {folder.what}: {name}, byte {at}, bit {bit}"
        try:
            yield where, f"{name}: {outcome(copy, folder.confirmed)}"
        except AssertionError as error:
            yield where, f"SILENT: {error}"
        shutil.rmtree(copy)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.flips")
    parser.add_argument("--flips", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    seen, silent = Counter[str](), 0
    with TemporaryDirectory(prefix="flips-") as base:
        for where, result in drilled(Path(base), options.flips, options.seed):
            if result.startswith("SILENT"):
                silent += 1
                print(f"{where}: {result}", flush=True)
            else:
                seen[result] += 1
    for result, count in sorted(seen.items()):
        print(f"{count:6} {result}")
    print(f"seed {options.seed}: {options.flips} flips, {silent} silent losses")
    return 1 if silent else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
