"""Starts and stops the brokers that are measured, and reads what they take of the machine.

Stompbox runs from this checkout as its own process with an empty data folder; the peers come through peers.sh.
Decides nothing about load.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from bench.rows import NOT_PERSISTENT

HERE = Path(__file__).parent
READY_SECONDS = 60
STOP_SECONDS = 20
PEERS = ("artemis", "classic", "rabbitmq")
# where peers.sh has what it installs and starts
PEERS_FOLDER = Path(os.environ.get("PEERS") or Path.home() / ".cache" / "stompbox-peers")


class BenchError(Exception):
    """The benchmark itself could not go on; the text says at what."""


class Broker(Protocol):
    """A broker under measurement; port, pid and start_seconds are known once it runs."""

    name: str
    port: int
    pid: int
    start_seconds: float

    @property
    def not_persistent(self) -> str:
        """The header of a SEND that is not to be stored."""
        ...

    def start(self) -> None:
        """Returns once it answers."""
        ...

    def stop(self) -> None:
        """Ends the process and what belongs to it."""
        ...


@dataclass(slots=True)
class Stompbox:
    """`stompbox serve` from this checkout, durable, in a folder that goes with it."""

    log: Path
    name: str = "stompbox"
    port: int = 0
    pid: int = 0
    start_seconds: float = 0.0
    not_persistent: str = NOT_PERSISTENT
    options: tuple[str, ...] = ()  # more of `serve`
    source: Path | None = None  # of another checkout: the folder that has its packages
    admin: int = 0  # the port of its admin interface; 0: it has none
    secret: int = 0  # the port of its listener with TLS, where its options give it one
    # the module that is run and its arguments, of which others than Stompbox itself run it: longsteps.py, turncosts.py, cProfile
    program: tuple[str, ...] = ("stompbox",)
    _data: str = ""
    _process: subprocess.Popen[str] | None = field(default=None, repr=False)

    @property
    def folder(self) -> str:
        """Where its data are while it runs."""
        return self._data

    def start(self) -> None:
        """Returns once it said `ready`; `start_seconds` is the time from the launch to that line."""
        self._data = tempfile.mkdtemp(prefix="stompbox-bench-")
        serve = [
            sys.executable,
            "-m",
            *self.program,
            "serve",
            "--listen",
            "tcp://127.0.0.1:0",
            "--data",
            self._data,
        ]
        command = [
            *serve,
            *(("--admin", f"127.0.0.1:{self.admin}") if self.admin else ("--no-admin",)),
            *self.options,
        ]
        environment = None if self.source is None else {**os.environ, "PYTHONPATH": str(self.source)}
        launched = time.monotonic()
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment
            )
        self.pid = self._process.pid
        try:
            self.port = self._wait_ready(self._process)
        except BenchError:
            self.stop()
            raise
        self.start_seconds = time.monotonic() - launched

    def _wait_ready(self, process: subprocess.Popen[str]) -> int:
        port = 0
        assert process.stdout is not None
        for line in process.stdout:
            listener = re.search(r"127\.0\.0\.1:(\d+)", line)
            port = int(listener[1]) if listener and not port else port
            if line.strip() == "ready" and port:
                return port
        raise BenchError(
            f"stompbox serve ended with status {process.wait()} before `ready`; its log is {self.log}"
        )

    def stop(self) -> None:
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired as e:
            self._process.kill()
            raise BenchError(f"stompbox did not stop within {STOP_SECONDS} s of SIGTERM") from e
        finally:
            self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()
            shutil.rmtree(self._data, ignore_errors=True)
        self._process = None


def with_tls(folder: Path) -> tuple[tuple[str, ...], int]:
    """Options for one more listener, of TLS with a certificate of its own, and its port."""
    store = folder / "server.pem"
    made = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-keyout")
    chain = subprocess.run([*made, str(store)], check=True, capture_output=True, text=True).stdout
    store.write_text(store.read_text() + chain)
    port = free_port()
    return ("--listen", f"ssl://127.0.0.1:{port}?keyStorePath={store}"), port


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def with_fronts(count: int) -> tuple[str, ...]:
    """The options of a broker with so many fronts; 0: none."""
    return ("--fronts", str(count)) if count else ()


@dataclass(slots=True)
class Peer:
    """Another broker, installed and started by peers.sh with its own defaults."""

    name: str
    port: int = 0
    pid: int = 0
    start_seconds: float = 0.0

    @property
    def not_persistent(self) -> str:
        """RabbitMQ does not store unless asked, and takes `persistent:false` for a property of the queue that others share."""
        return "" if self.name == "rabbitmq" else NOT_PERSISTENT

    def start(self) -> None:
        """Installs it where it is not there yet. `start_seconds` is the time from the launch until its port answers."""
        peers_sh("install", self.name)
        _, pid, port, milliseconds = peers_sh("start", self.name).split()
        self.pid, self.port, self.start_seconds = int(pid), int(port), int(milliseconds) / 1000

    def stop(self) -> None:
        peers_sh("stop", self.name)


def peers_sh(verb: str, name: str) -> str:
    """One call of peers.sh; its last line. A failure is told with what the script said."""
    done = subprocess.run([str(HERE / "peers.sh"), verb, name], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(
            f"peers.sh {verb} {name} ended with status {done.returncode}: {done.stderr.strip()[-600:]}"
        )
    return done.stdout.strip().rpartition("\n")[2]


def descendants(pid: int) -> list[int]:
    """The process and all that it started, as far as they still run."""
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [pid, *(p for thread in threads for child in _started_by(thread) for p in descendants(child))]


def _started_by(thread: Path) -> list[int]:
    """Each thread has those that it started; one that has ended has none."""
    try:
        return [int(child) for child in (thread / "children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def cpu_seconds(pid: int, *, is_alone: bool = False) -> float:
    """What a broker's processes have had of the processors so far, user and system, in steps of a clock tick; `is_alone`: that process
    without those that it has started, such as its fronts."""
    ticks = 0
    for process in [pid] if is_alone else descendants(pid):
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        # utime and stime; proc_pid_stat(5) counts from 1, and two come before the bracket
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def memory_mib(pid: int, key: str) -> float:
    """`VmRSS` (now) or `VmHWM` (highest so far) of a broker's processes together, in MiB."""
    total = 0
    for process in descendants(pid):
        try:
            status = Path(f"/proc/{process}/status").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        found = re.search(rf"^{key}:\s+(\d+) kB", status, re.MULTILINE)
        total += int(found[1]) if found else 0
    return total / 1024
