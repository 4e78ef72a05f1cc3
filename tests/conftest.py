"""What every test may use: the repository on the path, and a broker that runs as its own process.

`serve` starts brokers as a user would, on free ports, and ends each by its id; `broker` is one in memory, for the session.
Where a copy of a process that has imported them is the same (forked.py), they are that, and start in a tenth of the time.
TESTED_FRONTS=2 in the environment: each of them has two fronts. TESTED_FOLLOWER=1: each of them is a cluster of two nodes on one
log, and clients come to the one that follows, which passes them on.
"""

from __future__ import annotations

import gc
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import Phase, settings

from stompbox.store.folder import DRAINED
from tests import forked, sparkhome

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # `from tests.conformance.cases import CASES` works whoever starts pytest

# Fixed seeds: a red test is red again. No deadline: a busy machine is not a fault of the code. A failure is made small, and not
# explained line by line: before Python 3.12 that traces every line, which for a life of the broker takes longer than the whole run has.
PHASES = tuple(phase for phase in Phase if phase is not Phase.explain)
settings.register_profile("stompbox", derandomize=True, deadline=None, phases=PHASES)
settings.load_profile("stompbox")

# Rooms and files that take minutes each come first, so that no worker is left alone with one of them in the end. The compiled build may
# still be on its way (.ci/run).
LONGEST_FIRST = (
    "broker",
    "demo",
    "pipelines",
    "spark",
    "compiled",
    "crash",
    "cli",
    "test_packaging.py",
    "console",
)

sparkhome.prepare()

START_WITHIN = 30.0  # seconds
STOP_WITHIN = 30.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts what is in `LONGEST_FIRST` before the rest; within a room the order stays."""
    ranks = {room: rank for rank, room in enumerate(LONGEST_FIRST)}
    items.sort(
        key=lambda item: ranks.get(
            item.nodeid.partition("::")[0].removeprefix("tests/").partition("/")[0], len(ranks)
        )
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Of a run in which a file is one worker's."""
    from tests.scheduling import Files

    return Files(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection() -> None:
    """Next to nothing of what is imported and collected is garbage: it is looked through once, in the end."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Tens of thousands of tests that wait for their turn are no garbage: the collector need not look through them again each time."""
    gc.collect()
    gc.freeze()
    gc.enable()


@dataclass(frozen=True, slots=True)
class Served:
    """A broker in its own process. `listeners` are the URLs that it printed, in their order, but for the admin interface's."""

    process: subprocess.Popen[bytes]
    listeners: tuple[str, ...]
    log: Path
    admin: str = ""  # the URL of the admin interface
    leader: Served | None = (
        None  # where this is a node that follows: the one that leads, with the same log file
    )

    @property
    def host(self) -> str:
        return urlsplit(self.listeners[0]).hostname or ""

    @property
    def port(self) -> int:
        return urlsplit(self.listeners[0]).port or 0

    def stop(self) -> int:
        """SIGTERM, and what the process said in the end: its exit code. Of a node that follows, what either of the two said."""
        self.process.terminate()
        try:
            code = self.process.wait(STOP_WITHIN)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            if self.leader is not None:
                end(self.leader)
        return code or (self.leader.process.returncode if self.leader is not None else 0)

    def kill(self) -> None:
        """SIGKILL, to the leader first, where this is a node that follows."""
        if self.leader is not None:
            self.leader.kill()
        self.process.kill()
        self.process.wait()


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


def memory_of(pid: int, key: str = "VmRSS") -> int:
    """Octets: what a process has in memory now, or had at its highest (VmHWM)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{key}:"))


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
    is_graceful: bool = False,
    environment: Mapping[str, str] = MappingProxyType({}),
    through: Sequence[str] = (),
) -> Served:
    """`stompbox serve` with these arguments, its working folder in `folder`; returns once it is ready. `through`: a command that runs
    the one which follows it."""
    if os.environ.get("TESTED_FOLLOWER"):
        return start_follower(folder, *arguments, is_graceful=is_graceful, environment=environment)
    return _start(folder, arguments, _environment(environment, is_graceful=is_graceful), through)


def _environment(given: Mapping[str, str], *, is_graceful: bool) -> dict[str, str]:
    found = {name: value for name, value in os.environ.items() if not name.startswith("STOMPBOX_")} | dict(
        given
    )
    if fronts := os.environ.get("TESTED_FRONTS"):
        found.setdefault("STOMPBOX_FRONTS", fronts)
    if not is_graceful:
        # most tests end with clients that have something in flight, and nobody who would finish it
        found["STOMPBOX_GRACEFUL_SHUTDOWN_TIMEOUT"] = "0"
    return found


def _start(
    folder: Path, arguments: Sequence[str], environment: Mapping[str, str], through: Sequence[str] = ()
) -> Served:
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "broker.log"
    words = ("serve", *arguments, *_without_admin(tuple(arguments)))
    with log.open("ab") as stderr:
        process = (
            subprocess.Popen(
                [*through, sys.executable, "-m", "stompbox", *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                cwd=folder,
                env=dict(environment),
            )
            if through or not forked.is_possible(environment)
            else forked.Forked(words, folder, environment, stderr)
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


def start_follower(
    folder: Path,
    *arguments: str,
    is_graceful: bool = False,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Served:
    """A leader, and a node that follows it and is drained, so that it stays so: both with the same configuration."""
    nodes: dict[str, Served] = {}
    environment = _environment({"STOMPBOX_FRONTS": "0", **environment}, is_graceful=is_graceful)
    for node in ("leader", "follower"):
        data, left = _data_of(folder, arguments, node)
        data.mkdir(parents=True, exist_ok=True, mode=0o700)
        if node == "follower":
            (data / DRAINED).touch(mode=0o600)
        mine = {
            "LOG": f"disk://{data.parent}/log",
            "NODE": node,
            "LISTEN": "127.0.0.1:0",
            "SECRET": "of-the-nodes-of-a-test",
            "TAKEOVER_AFTER": "2000",
            "INSECURE": "true",
        }
        told = {f"STOMPBOX_CLUSTER_{name}": value for name, value in mine.items()}
        try:
            nodes[node] = _start(folder, [*left, "--data", str(data)], {**environment, **told})
        except BaseException:
            for served in nodes.values():
                end(served)
            raise
    served = replace(nodes["follower"], leader=nodes["leader"])
    try:
        _wait_for_link(served)
    except BaseException:
        end(served)
        raise
    return served


def _data_of(folder: Path, arguments: Sequence[str], node: str) -> tuple[Path, list[str]]:
    """The data folder of this node, in place of what was asked for, and the other arguments."""
    left = [argument for argument in arguments if argument != "--memory"]
    if "--data" not in left:
        return folder / "nodes" / node, left
    at = left.index("--data")
    return Path(left[at + 1]) / node, left[:at] + left[at + 2 :]


def _wait_for_link(served: Served) -> None:
    """Until the leader has taken the follower, which it says since it was started last."""
    assert served.leader is not None
    deadline = time.monotonic() + START_WITHIN
    while "node follower follows" not in (said := served.log.read_text()).rpartition(" leads epoch ")[2]:
        if time.monotonic() > deadline or served.leader.process.poll() is not None:
            pytest.fail(f"no follower within {START_WITHIN} s; log:\n{said}")
        with suppress(subprocess.TimeoutExpired):
            pytest.fail(f"the follower ended with {served.process.wait(0.05)}; log:\n{said}")


def end(served: Served) -> None:
    if served.process.poll() is None:
        served.stop()
    elif served.leader is not None:
        end(served.leader)
    for one in (served, served.leader):
        if one is not None and one.process.stdout is not None:
            one.process.stdout.close()


@pytest.fixture
def own_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has each broker be a process of its own, for who measures it: a copy has what all share, and that counts when it is looked at."""
    monkeypatch.setattr(forked, "is_possible", lambda _: False)


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """serve(*arguments) -> Served: any number of brokers, ended with the test."""
    running: list[Served] = []

    def start(
        *arguments: str, is_graceful: bool = False, environment: Mapping[str, str] = MappingProxyType({})
    ) -> Served:
        running.append(
            start_broker(tmp_path / "broker", *arguments, is_graceful=is_graceful, environment=environment)
        )
        return running[-1]

    yield start
    for served in running:
        end(served)


@pytest.fixture(scope="session")
def python() -> Iterator[str]:
    """What Spark is to start its Python processes from, which are copies of one: PYSPARK_PYTHON. Not for tests that look for those
    processes, or kill them."""
    pytest.importorskip("pyspark")
    with forked.interpreter(**sparkhome.PYTHON) as found:
        yield found


@pytest.fixture(scope="session")
def spark(python: str) -> Iterator[Any]:
    """One local Spark for all tests of a process: its start takes six seconds."""
    with sparkhome.started(python) as found:
        yield found


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    """(host, port) of a broker in memory that all tests of the session share: use destinations of your own."""
    served = start_broker(
        tmp_path_factory.mktemp("broker"), "--memory", "--listen", "tcp://127.0.0.1:0", "--no-admin"
    )
    yield served.host, served.port
    end(served)
