"""The processes of the demo: started, listened to, killed on purpose, and ended whatever happens.

Each is the leader of a session of its own, so a Ctrl-C in the terminal reaches the parent alone, and all that a process starts (Spark:
a JVM, which starts Python) is found by that session and ended with it. Only processes that were started here are ever signalled.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import IO, Any, Final

LINE: Final = 16 << 20  # octets; the longest that an actor may say
END_WITHIN: Final = 10.0  # s, from SIGTERM to SIGKILL
POLL: Final = 0.5  # s
GONE: Final = 0.02  # s; so long takes a killed process, about, until it is gone


class StepFailed(Exception):
    """A step of the demo did not do what it should: which one, what was expected, what came instead, and whose log to read."""

    def __init__(self, step: int, expected: str, found: str, log: Path | None = None) -> None:
        super().__init__(f"step {step}: expected {expected}; {found}")
        self.step = step
        self.expected = expected
        self.found = found
        self.log = log


@dataclass(slots=True, eq=False)
class Child:
    """One process. `said` has the latest value of each fact that it reported, `lines` what it printed that is no fact."""

    name: str
    step: int
    process: Process
    log: Path
    said: dict[str, Any] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    may_end: bool = False
    reading: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        return self.process.pid

    def tell(self, order: str) -> None:
        assert self.process.stdin is not None
        with suppress(ConnectionError, RuntimeError):  # it is gone, which whoever waits for its answer sees
            self.process.stdin.write(f"{order}\n".encode())

    def failed(self, expected: str, found: str) -> StepFailed:
        return StepFailed(self.step, expected, f"{self.name} (process {self.pid}) {found}", self.log)


class Stage:
    """The processes that run now. `on_said` is called with a child and what it reported just now."""

    def __init__(self, logs: Path, on_said: Callable[[Child, dict[str, Any]], None]) -> None:
        self.logs: Final = logs
        self.children: Final[list[Child]] = []
        self._on_said: Final = on_said
        self._changed: Final = asyncio.Event()

    async def start(self, name: str, step: int, *arguments: object) -> Child:
        """`python -m …` with these arguments; stderr and what else it prints goes to logs/<name>.log."""
        log = self.logs / f"{name}.log"
        words = [sys.executable, "-m", *map(str, arguments)]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("STOMPBOX_")}
        with log.open("ab") as stderr:
            process = await asyncio.create_subprocess_exec(
                *words,
                stdin=PIPE,
                stdout=PIPE,
                stderr=stderr,
                env=environment,
                limit=LINE,
                start_new_session=True,
            )
        child = Child(name, step, process, log)
        child.reading = asyncio.create_task(self._read(child))
        self.children.append(child)
        return child

    async def _read(self, child: Child) -> None:
        assert child.process.stdout is not None
        with child.log.open("ab", buffering=0) as log:
            while line := await child.process.stdout.readline():
                self._hear(child, line, log)
        await child.process.wait()
        self._changed.set()

    def _hear(self, child: Child, line: bytes, log: IO[bytes]) -> None:
        facts = fact_of(line)
        if facts is None:
            child.lines.append(line.decode(errors="replace").rstrip())
            log.write(line)
        else:
            child.said.update(facts)
            self._on_said(child, facts)
        self._changed.set()

    async def until(
        self,
        what: Callable[[], bool],
        step: int,
        expected: str,
        *,
        measure: Callable[[], object],
        within: float,
    ) -> None:
        """Returns when `what` is true. Raises StepFailed when `measure` did not change for `within` seconds, or a process died."""
        since, value = monotonic(), measure()
        while not what():
            self.check()
            if (now := measure()) != value:
                since, value = monotonic(), now
            if monotonic() - since > within:
                raise StepFailed(step, expected, f"nothing happened for {within:g} s; last seen: {value}")
            self._changed.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), POLL)

    def check(self) -> None:
        """Raises StepFailed when a process ended that should not have."""
        for child in self.children:
            code = child.process.returncode
            if code is not None and not (child.may_end and code == 0):
                raise child.failed(
                    "it to run on" if not child.may_end else "exit code 0", f"ended with {_exit(code)}"
                )

    async def ended(self, child: Child, expected: str, *, within: float) -> None:
        """Waits until a process ends by itself, with exit code 0."""
        child.may_end = True
        await self.until(
            lambda: child.process.returncode is not None,
            child.step,
            expected,
            measure=child.said.copy,
            within=within,
        )
        await self._clear(child)

    async def kill(self, child: Child) -> list[int]:
        """kill -9, with all that it started. Returns the ids of the processes that this ended."""
        self.children.remove(child)
        return await self._clear(child)

    async def _clear(self, child: Child) -> list[int]:
        killed: set[int] = set()
        while living := kill_session(child.pid):  # more than once: one may have started another meanwhile
            killed.update(living)
            await asyncio.sleep(GONE)
        await child.process.wait()
        if child in self.children:
            self.children.remove(child)
        return sorted(killed)

    async def end_all(self) -> None:
        """Ends every process, the broker, which was started first, last. SIGTERM, then SIGKILL."""
        for child in reversed(self.children.copy()):
            if child.process.returncode is None:
                child.process.terminate()
                with suppress(TimeoutError):
                    await asyncio.wait_for(child.process.wait(), END_WITHIN)
            await self._clear(child)


def fact_of(line: bytes) -> dict[str, Any] | None:
    if not line.startswith(b"{"):
        return None
    try:
        facts = json.loads(line)
    except ValueError:
        return None
    return facts if isinstance(facts, dict) else None


def _exit(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"


def kill_session(session: int) -> list[int]:
    """SIGKILL to every process of a session that one of ours leads; their ids."""
    killed = []
    for pid in members(session):
        with suppress(ProcessLookupError):  # it ended by itself just now
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)
    return killed


def members(session: int) -> list[int]:
    """The processes of a session that still run. Where there is no /proc: those of the group, and their children."""
    if not Path("/proc/self/stat").exists():
        return _descendants(session)
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):  # it ended by itself just now
                state, _, _, its_session = _stat(entry)
                if its_session == session and state != "Z":
                    found.append(int(entry.name))
    return found


def _stat(entry: Path) -> tuple[str, int, int, int]:
    """State, parent, group and session of a process (proc(5)); the name before them may hold blanks and brackets."""
    fields = (entry / "stat").read_text().rpartition(")")[2].split()
    return fields[0], int(fields[1]), int(fields[2]), int(fields[3])


def _descendants(session: int) -> list[int]:
    listing = subprocess.run(
        ["ps", "-A", "-o", "pid=,ppid=,pgid=,stat="], capture_output=True, text=True, check=True
    ).stdout
    rows = [line.split()[:4] for line in listing.splitlines()]
    living = {
        int(pid): (int(parent), int(group)) for pid, parent, group, state in rows if not state.startswith("Z")
    }
    found = {pid for pid, (_, group) in living.items() if group == session}
    while more := {pid for pid, (parent, _) in living.items() if parent in found} - found:
        found |= more
    return sorted(found)
