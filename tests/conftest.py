"""What every test may use: the repository on the path, and a broker that runs as its own process.

`serve` starts brokers as a user would, on free ports, and ends each by its id; `broker` is one in memory, for the session.
TESTED_FRONTS=2 in the environment: each of them has two fronts.
"""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from urllib.parse import urlsplit

import pytest
from hypothesis import Phase, settings

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # `from tests.conformance.cases import CASES` works whoever starts pytest

# Fixed seeds: a red test is red again. No deadline: a busy machine is not a fault of the code. A failure is made small, and not
# explained line by line: before Python 3.12 that traces every line, which for a life of the broker takes longer than the whole run has.
PHASES = tuple(phase for phase in Phase if phase is not Phase.explain)
settings.register_profile("stompbox", derandomize=True, deadline=None, phases=PHASES)
settings.load_profile("stompbox")

# Rooms whose files take minutes each come first, so that no worker is left alone with one of them in the end.
LONGEST_FIRST = ("broker", "compiled", "demo", "pipelines", "spark", "crash", "cli")

START_WITHIN = 30.0  # seconds
STOP_WITHIN = 30.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the rooms of `LONGEST_FIRST` before the others; within a room the order stays."""
    ranks = {room: rank for rank, room in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: ranks.get(item.nodeid.removeprefix("tests/").partition("/")[0], len(ranks)))


@dataclass(frozen=True, slots=True)
class Served:
    """A broker in its own process. `listeners` are the URLs that it printed, in their order, but for the admin interface's."""

    process: subprocess.Popen[bytes]
    listeners: tuple[str, ...]
    log: Path
    admin: str = ""  # the URL of the admin interface

    @property
    def host(self) -> str:
        return urlsplit(self.listeners[0]).hostname or ""

    @property
    def port(self) -> int:
        return urlsplit(self.listeners[0]).port or 0

    def stop(self) -> int:
        """SIGTERM, and what the process said in the end: its exit code."""
        self.process.terminate()
        try:
            return self.process.wait(STOP_WITHIN)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise


Serve = Callable[..., Served]


def children(pid: int) -> list[int]:
    """The processes that this one has started: the fronts of a broker. Empty where the system does not say (/proc)."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
            if int(parent) == pid and state != "Z":
                found.append(int(stat.parent.name))
    return sorted(found)


def _lines_until_ready(process: subprocess.Popen[bytes], log: Path) -> list[str]:
    """What the broker prints before `ready`, which is left out. Fails with its log when it ends or takes too long."""
    assert process.stdout is not None
    deadline = time.monotonic() + START_WITHIN
    printed = b""
    with selectors.DefaultSelector() as waiting:
        waiting.register(process.stdout, selectors.EVENT_READ)
        while not any(line.strip() == b"ready" for line in printed.splitlines()):
            if not waiting.select(max(0.0, deadline - time.monotonic())):
                pytest.fail(
                    f"no `ready` within {START_WITHIN} s; printed {printed!r}; log:\n{log.read_text()}"
                )
            octets = os.read(process.stdout.fileno(), 65536)
            if not octets:
                pytest.fail(
                    f"the broker ended with {process.wait()}; printed {printed!r}; log:\n{log.read_text()}"
                )
            printed += octets
    return [line.strip() for line in printed.decode().splitlines() if line.strip() != "ready"]


def _without_admin(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """A broker with a file has an admin interface at 8161, which is not ours to take: none, where neither file nor flag speaks of it."""
    if "--config" not in arguments or {"--admin", "--no-admin"} & set(arguments):
        return ()
    file = Path(arguments[arguments.index("--config") + 1])
    return () if not file.is_file() or "[admin]" in file.read_text() else ("--no-admin",)


def start_broker(
    folder: Path,
    *arguments: str,
    is_patient: bool = False,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Served:
    """`stompbox serve` with these arguments, its working folder in `folder`; returns once it is ready."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "broker.log"
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("STOMPBOX_")
    } | dict(environment)
    if fronts := os.environ.get("TESTED_FRONTS"):
        environment.setdefault("STOMPBOX_FRONTS", fronts)
    if not is_patient:
        # most tests end with clients that have something in flight, and nobody who would finish it
        environment["STOMPBOX_GRACEFUL_SHUTDOWN_TIMEOUT"] = "0"
    with log.open("ab") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "stompbox", "serve", *arguments, *_without_admin(arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            cwd=folder,
            env=environment,
        )
    try:
        lines = _lines_until_ready(process, log)
        listeners = tuple(
            [
                word
                for line in lines
                for word in line.split()
                if word.startswith(("tcp://", "ssl://", "unix://"))
            ]
        )
        assert listeners, f"no listener in {lines}"
        admin = next(
            (word for line in lines for word in line.split() if word.startswith(("http://", "https://"))), ""
        )
    except BaseException:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
        raise
    return Served(process, listeners, log, admin)


def end(served: Served) -> None:
    if served.process.poll() is None:
        served.stop()
    if served.process.stdout is not None:
        served.process.stdout.close()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """serve(*arguments) -> Served: any number of brokers, ended with the test."""
    running: list[Served] = []

    def start(
        *arguments: str, is_patient: bool = False, environment: Mapping[str, str] = MappingProxyType({})
    ) -> Served:
        running.append(
            start_broker(tmp_path / "broker", *arguments, is_patient=is_patient, environment=environment)
        )
        return running[-1]

    yield start
    for served in running:
        end(served)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    """(host, port) of a broker in memory that all tests of the session share: use destinations of your own."""
    served = start_broker(
        tmp_path_factory.mktemp("broker"), "--memory", "--listen", "tcp://127.0.0.1:0", "--no-admin"
    )
    yield served.host, served.port
    end(served)
