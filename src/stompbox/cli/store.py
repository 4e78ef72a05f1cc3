"""`stompbox store`: check, compact, backup, restore of a data folder.

Decides what these print and their exit codes: 0 when all is well, 1 when a check found damage, 2 when it could not be done, with
one line on stderr that says why. Progress goes to stderr, and only to a terminal. What they do is in store/.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from cyclopts import App

from stompbox.cli.asking import plain, print_json
from stompbox.cli.examples import examples
from stompbox.cli.parameters import AsJson, ConfigFile, Data
from stompbox.errors import StompboxError, StoreError, UsageError

if TYPE_CHECKING:
    from stompbox.store.check import Identity, Size

    Report = Callable[[int, int], None]  # of (done, in all)

DAMAGED = 1
NOT_DONE = 2
INTERRUPTED = 130
LISTED = 20  # addresses that are printed
STEPS = 500  # that a bar takes at most

app = App(name="store", help_epilogue=examples("store"))


@app.command
def check(*, data: Data = None, config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Read the whole store and name everything that is damaged. A broker may be running on it.

    Exit status 0: nothing is wrong, 1: something is, 2: there is no store, or it cannot be read.
    """
    from stompbox.store.check import damage, identities, size
    from stompbox.store.inspection import inspecting
    from stompbox.store.journaled import journal_damage

    with _ending("check"):
        folder = _folder(data, config)
        with _bars() as begin:
            problems = [*damage(folder, begin("checking chunks")), *journal_damage(folder)] or list(
                _refusals(folder)
            )
        try:
            with inspecting(folder) as connection:
                found, logs = size(connection), identities(connection, folder)
        except StoreError:
            found, logs = None, []  # it is among the problems why
        if as_json:
            print_json(
                {"folder": str(folder), "problems": problems}
                | (_as_json(found, logs) if found is not None else {})
            )
        else:
            for problem in problems:
                print(problem)
            for line in _identities([log for log in logs if log.incarnations.entries]):
                print(line)
            print(_told(folder, found, len(problems)))
    if problems:
        sys.exit(DAMAGED)


@app.command
def compact(*, data: Data = None, config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Make the store as small and as fast to read as it can be. Only while no broker runs on it: that does it by itself, bit by bit.

    What was consumed is deleted, small chunks become large ones, and file space is given back.
    """
    from stompbox.store.folder import DATABASE
    from stompbox.store.inspection import database_of
    from stompbox.store.journaled import JournaledStore
    from stompbox.store.sqlite import SqliteStore

    with _ending("compact"):
        folder = _folder(data, config)
        database_of(folder)
        store = SqliteStore(folder)
        with closing(JournaledStore(store)), _bars() as begin:
            before = (folder / DATABASE).stat().st_size
            store.compact(begin("compacting chunks"))
        after = (folder / DATABASE).stat().st_size
        if as_json:
            print_json({"folder": str(folder), "bytes-before": before, "bytes-after": after})
        else:
            print(f"{folder}: {_octets(before)} before, {_octets(after)} now")


@app.command
def backup(target: Path, /, *, data: Data = None, config: ConfigFile = None, as_json: AsJson = False) -> None:
    """Copy the store into a new folder, as of now, and read the copy through. A broker may be running on the store.

    Parameters
    ----------
    target
        The folder that the copy goes to; it must be new or empty. A broker can be started on it.
    """
    with _ending("backup"):
        _copy(_folder(data, config), target, "backed up", as_json=as_json)


@app.command
def restore(
    source: Path, /, *, data: Data = None, config: ConfigFile = None, as_json: AsJson = False
) -> None:
    """Copy a backup into the data folder, which must be new or empty, and read the copy through.

    Parameters
    ----------
    source
        The folder of the backup.
    """
    with _ending("restore"):
        _copy(source, _folder(data, config, is_new=True), "restored", as_json=as_json)


def _copy(source: Path, target: Path, done: str, *, as_json: bool) -> None:
    from stompbox.store.backup import copy

    with _bars() as begin:
        octets = copy(source, target, begin("copying pages"), begin("checking chunks"))
    if as_json:
        print_json({"source": str(source), "target": str(target), "bytes": octets})
    else:
        print(f"{source} {done} to {target}: {_octets(octets)}, checked")


def _folder(data: Path | None, config: Path | None, *, is_new: bool = False) -> Path:
    """The folder of the store that is meant, as `stompbox serve` would find it. `is_new`: it need not be there."""
    from stompbox.config import load

    if data is not None:
        return data
    configuration = load(config, os.environ, {})
    if configuration.memory:
        raise UsageError(
            "bad-argument",
            "the configuration says memory = true: there is no store; --data names another one",
        )
    folder = Path(configuration.data)
    if not is_new and not folder.exists():
        raise StoreError(
            "data-not-found", f"data folder {folder}: there is no such folder; --data names another one"
        )
    return folder


def _refusals(folder: Path) -> Iterator[str]:
    """What a broker would say that starts on it, of a catalogue without a damaged row."""
    from stompbox.broker.engine import Engine
    from stompbox.broker.recovery import recover
    from stompbox.config.settings import AddressSettings, AddressSettingsTable
    from stompbox.store.base import CLUSTER
    from stompbox.store.inspection import inspecting
    from stompbox.store.journaled import hide_journal
    from stompbox.store.rows import Rows

    with inspecting(folder) as connection:
        found = Rows(connection, folder).recovered()
    found.entries.pop(("broker", "epoch"), None)
    for entry in [entry for entry in found.entries if entry[0] == CLUSTER]:
        del found.entries[entry]
    hide_journal(found)
    try:
        recover(Engine(AddressSettingsTable((), AddressSettings())), found)
    except StompboxError as error:
        yield f"{folder}: {error.message}"


# What is printed


def _as_json(found: Size, logs: list[Identity]) -> dict[str, object]:
    return {
        "schema-version": found.version, "addresses": found.logs, "chunks": found.chunks, "messages": found.messages,
        "message-bytes": found.octets, "free-bytes": found.free,
        "logs": {log.name: {"next": log.next, "incarnations": log.incarnations.wire()} for log in logs},
    }  # fmt: skip


def _identities(logs: list[Identity]) -> Iterator[str]:
    """Which log each is, and which it was before it was copied."""
    for log in logs[:LISTED]:
        told = ", ".join(
            [f"{id} from offset {first:,} on" for id, first in reversed(log.incarnations.entries)]
        )
        yield plain(f"{log.name}: {log.next:,} is the next offset; incarnation {told}")
    if len(logs) > LISTED:
        yield f"and {len(logs) - LISTED:,} more addresses; --json lists them all"


def _told(folder: Path, found: Size | None, problems: int) -> str:
    verdict = f"{problems} {'problem' if problems == 1 else 'problems'}" if problems else "good"
    if found is None:
        return f"{folder}: {verdict}"
    return (
        f"{folder}: {verdict}; messages {found.messages:,}, chunks {found.chunks:,}, addresses {found.logs:,}; "
        f"{_octets(found.octets)}, of the file {_octets(found.free)} are free; schema version {found.version}"
    )


def _octets(count: int) -> str:
    return f"{count / 2**20:,.1f} MiB"


@contextmanager
def _bars() -> Iterator[Callable[[str], Report | None]]:
    """A function that begins a bar on stderr and returns what moves it; None where nobody would see it."""
    if not sys.stderr.isatty():
        yield lambda what: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:

        def begin(what: str) -> Report:
            task = bars.add_task(what, total=None)
            shown = 0

            def report(done: int, total: int) -> None:
                nonlocal shown
                if done == total or (done - shown) * STEPS >= total:
                    shown = done
                    bars.update(task, completed=done, total=total)

            return report

        yield begin


@contextmanager
def _ending(command: str) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:  # nobody reads our output any more: cli/__init__.py
        raise
    except (StompboxError, OSError) as error:
        _leave(command, error)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _leave(command: str, error: Exception) -> NoReturn:
    print(f"stompbox store {command}: {error}", file=sys.stderr)
    raise SystemExit(NOT_DONE)
