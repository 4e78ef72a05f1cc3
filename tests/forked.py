"""Brokers and commands of tests as copies of one process that has imported what `stompbox serve` imports, which is most of their work;
and the Python processes of Spark in tests as copies of one that has imported what those import.

Such a process belongs to this one and ends with it. It only ever imports and forks: a copy gets the arguments, the environment, the
folder and the streams that a process of its own would have, and is `stompbox`, or the module that was asked for, from its first line on.

Java starts its processes itself, from a file: one that asks for a copy, tells it the signals that it is told, and ends as it ends
(standin.py). Who kills that kills the copy.

Decides where that is the same as a process of its own. Elsewhere than on Linux, where something counts what is run (coverage), or where
the environment has Python begin otherwise than ours did, it is none, and there is a process of its own.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import marshal
import os
import runpy
import select
import selectors
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import IO, Any, Final

# What `stompbox serve` imports before it looks at its configuration, or whatever that says.
IMPORTED: Final = (
    "uvloop",
    "stompbox.cli.usual",
    "stompbox.server.readings",
    "stompbox.server.run",
    "stompbox.server.transport.descriptors",
    "stompbox.server.verifying",
)
# And what each other command imports, which a broker of its own process does not (tests/cli/test_usual.py).
FOR_COMMANDS: Final = ("stompbox.cli.application",)
# What Spark's Python processes import, whatever they do. What is run as a module itself is not among it.
OF_SPARK: Final = (
    "numpy",
    "pyarrow.parquet",
    "pyspark.worker",
    "pyspark.sql.worker.analyze_udtf",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.data_source_pushdown_filters",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.write_into_data_source",
)
ROOT: Final = Path(__file__).resolve().parent.parent
LENGTH: Final = 8  # octets that say how long a request is
STREAMS: Final = 3  # stdin, stdout, stderr
# how names of the environment begin that count before the first line of a program does
EARLY: Final = ("PYTHON", "LD_", "MALLOC_", "GLIBC_", "LC_", "LANG", "TZ", "HOME")


@dataclass(frozen=True, slots=True)
class Copied:
    """What a copy is to be. `request`: its arguments, folder and environment, and the module that it is where it is not `stompbox`;
    `streams`: descriptors of its stdin, stdout and stderr; `end`: whom its end is told."""

    request: Mapping[str, Any]
    streams: Sequence[int]
    end: socket.socket


@dataclass(frozen=True, slots=True)
class Copy:
    """One that runs. `end`: whom its end is told."""

    pid: int
    end: socket.socket


def is_possible(environment: Mapping[str, str]) -> bool:
    """Whether a copy is what a process of its own with this environment would be."""
    if sys.platform != "linux" or not hasattr(os, "pidfd_open"):
        return False
    if any(name.startswith(("COV_", "COVERAGE_")) for name in environment):
        return False
    return _early(environment) == _first().environment


def _early(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(EARLY)}


class Forked(subprocess.Popen[bytes]):
    """`python -m stompbox` with these arguments. What is asked of a process that one has started can be asked of it."""

    def __init__(
        self,
        arguments: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        stderr: IO[bytes],
        stdin: IO[bytes] | None = None,
    ) -> None:
        """Without `stdin` there is nothing to read."""
        self.args = [sys.executable, "-m", "stompbox", *arguments]
        self.stdin = self.stderr = None
        self.returncode: int | None = None
        request = {"arguments": list(arguments), "folder": str(folder), "environment": dict(environment)}
        self._ends, theirs = socket.socketpair()
        reading, writing = os.pipe()
        self.stdout = os.fdopen(reading, "rb")
        with theirs, open(os.devnull, "rb") as nothing:
            try:
                given = nothing if stdin is None else stdin
                _first().ask(request, (given.fileno(), writing, stderr.fileno(), theirs.fileno()))
            finally:
                os.close(writing)
        told = self._ends.recv(LENGTH)
        assert told, "the process that brokers are copied from has ended"
        self.pid = int.from_bytes(told)

    def __del__(self, *_: object) -> None:
        """There is nothing to collect: its end is told."""
        if hasattr(self, "_ends"):
            self._ends.close()

    def poll(self) -> int | None:
        return self._looked(0.0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._looked(timeout)
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return code

    def _looked(self, timeout: float | None) -> int | None:
        """Its exit code, where it ends within so many seconds."""
        if self.returncode is None:
            told_of = select.poll()
            told_of.register(self._ends, select.POLLIN)
            if not told_of.poll(None if timeout is None else max(0.0, timeout * 1000)):
                return None
            told = self._ends.recv(LENGTH, socket.MSG_PEEK)  # others may wait for it, too
            assert told, "the process that brokers are copied from has ended"
            self.returncode = os.waitstatus_to_exitcode(int.from_bytes(told))
        return self.returncode

    def communicate(self, *_: object, **__: object) -> tuple[bytes, bytes]:
        raise AssertionError("brokers are talked to over their sockets, and commands are run")


def run(
    *arguments: str,
    given: bytes | IO[bytes] = b"",
    environment: Mapping[str, str] | None = None,
    within: float = 60.0,
) -> subprocess.CompletedProcess[bytes]:
    """What `stompbox` with these arguments says and ends with, given this on its stdin, or this as its stdin, in the environment of this
    process where there is no other. A copy where that is possible, else a process of its own. Raises subprocess.TimeoutExpired after so
    many seconds."""
    environment = os.environ if environment is None else environment
    octets, file = (given, None) if isinstance(given, bytes) else (None, given)
    if not is_possible(environment):
        command = [sys.executable, "-m", "stompbox", *arguments]
        return subprocess.run(
            command,
            input=octets,
            stdin=file,
            capture_output=True,
            timeout=within,
            check=False,
            env=environment,
        )
    with ThreadPoolExecutor(2) as threads, tempfile.TemporaryFile() as said:
        if file is not None:
            process = Forked(arguments, Path.cwd(), environment, said, file)
        else:
            process = _fed(threads, octets or b"", arguments, environment, said)
        assert process.stdout is not None
        with process.stdout:
            printed = threads.submit(process.stdout.read)
            try:
                code = process.wait(within)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
            finally:
                printed.exception()  # closed once all is read
        said.seek(0)
        return subprocess.CompletedProcess(process.args, code, printed.result(), said.read())


def _fed(
    threads: ThreadPoolExecutor,
    octets: bytes,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    stderr: IO[bytes],
) -> Forked:
    """A copy that is given these octets."""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stdin:
        try:
            process = Forked(arguments, Path.cwd(), environment, stderr, stdin)
        except BaseException:
            os.close(writing)
            raise
    threads.submit(_fill, writing, octets)
    return process


def text(done: subprocess.CompletedProcess[bytes]) -> subprocess.CompletedProcess[str]:
    """The same, with what it said as text."""
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def _fill(pipe: int, octets: bytes) -> None:
    with suppress(BrokenPipeError), os.fdopen(pipe, "wb") as given:  # nobody need read it
        given.write(octets)


@contextmanager
def interpreter(**environment: str) -> Iterator[str]:
    """The path of a Python for Spark, with the modules OF_SPARK imported in this environment: `python -m` is a copy, else it is this
    interpreter. Nothing is left of it when it is closed."""
    if not is_possible(os.environ):
        yield sys.executable
        return
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{folder}/asked")
        listening.listen()
        file = Path(folder, "python")
        words = [
            sys.executable,
            "-ISs",
            str(ROOT / "tests" / "standin.py"),
            f"{folder}/asked",
            sys.executable,
        ]
        file.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        file.chmod(0o700)
        first = First(OF_SPARK, listening, environment)
        try:
            yield str(file)
        finally:
            first.close()


class First:
    """The process that is copied: of those who ask through this one or, where it is to listen, come to it themselves."""

    def __init__(
        self,
        modules: Sequence[str] = (*IMPORTED, *FOR_COMMANDS),
        listening: socket.socket | None = None,
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.environment: Final = _early(os.environ)
        self._lock: Final = Lock()
        self._socket, theirs = socket.socketpair()
        with theirs:
            given = [theirs.fileno(), *([] if listening is None else [listening.fileno()])]
            self._process: Final = subprocess.Popen(
                [sys.executable, "-m", "tests.forked", ",".join(map(str, given)), *modules], env={**os.environ, **environment},
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, cwd=ROOT, pass_fds=given,
            )  # fmt: skip

    def ask(self, request: Mapping[str, object], descriptors: Sequence[int]) -> None:
        octets = marshal.dumps(dict(request))
        with self._lock:
            socket.send_fds(self._socket, [len(octets).to_bytes(LENGTH)], descriptors)
            self._socket.sendall(octets)

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


_running: list[First] = []


def _first() -> First:
    if not _running:
        _running.append(First())
        atexit.register(end)
    return _running[0]


def end() -> None:
    """No more are made. Those that run go on."""
    while _running:
        _running.pop().close()


# --- the process that they are copied from ------------------------------------------------------------------------------------


def main(modules: Sequence[str], asked: socket.socket, listening: socket.socket | None = None) -> None:
    """Forks what is asked for, and tells how each has ended, until nobody asks any more; and is what was asked for in each copy."""
    own = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    for name in modules:
        importlib.import_module(name)
    # what is here for good no copy looks through, and so has for itself, at each collection and at its end
    gc.collect()
    gc.freeze()
    copied = _forked(asked, listening)
    if copied is not None:
        _become(copied, [path for path in sys.path[1:] if path not in own])


def _forked(asked: socket.socket, listening: socket.socket | None) -> Copied | None:
    """Returns in each copy, with what it is to be, and in the first process at its end. Nothing of the first is open in a copy."""
    copies: dict[int, Copy] = {}  # by the descriptor of the process
    coming: dict[int, int] = {}  # those of who came themselves, by the descriptor of their connection
    with ExitStack() as opened:
        opened.callback(lambda: [(os.close(handle), copy.end.close()) for handle, copy in copies.items()])
        waiting = opened.enter_context(selectors.DefaultSelector())
        for source in (asked, listening):
            if source is not None:
                waiting.register(opened.enter_context(source), selectors.EVENT_READ)
        while True:
            for key, _ in waiting.select():
                if waiting.get_map().get(key.fd) is not key:  # gone with one before it
                    continue
                if key.fd in copies:
                    waiting.unregister(key.fd)
                    copy = copies.pop(key.fd)
                    if coming.pop(copy.end.fileno(), None) is not None:
                        waiting.unregister(copy.end)
                    _tell(key.fd, copy)
                    continue
                if key.fd in coming:  # who has started it was killed
                    waiting.unregister(key.fd)
                    signal.pidfd_send_signal(coming.pop(key.fd), signal.SIGKILL)
                    continue
                copied = _given(asked) if key.fileobj is asked else _who_came(listening)
                if copied is None:
                    return None
                child = os.fork()
                if not child:
                    copied.end.close()
                    return copied
                for stream in copied.streams:
                    os.close(stream)
                handle = os.pidfd_open(child)
                copies[handle] = Copy(child, copied.end)
                waiting.register(handle, selectors.EVENT_READ)
                if key.fileobj is listening:
                    coming[copied.end.fileno()] = handle
                    waiting.register(copied.end, selectors.EVENT_READ)
                with suppress(OSError):  # who asked is killed already
                    copied.end.sendall(child.to_bytes(LENGTH))


def _given(asked: socket.socket, end: socket.socket | None = None) -> Copied | None:
    """What is asked for, in a request that brings whom its end is told where that is not who asks. None where nobody does any more."""
    length, descriptors, _, _ = socket.recv_fds(asked, LENGTH, STREAMS + 1)
    if not length:
        return None
    octets = b""
    while len(octets) < int.from_bytes(length):
        octets += asked.recv(int.from_bytes(length) - len(octets))
    end = socket.socket(fileno=descriptors[STREAMS]) if end is None else end
    return Copied(marshal.loads(octets), descriptors[:STREAMS], end)


def _who_came(listening: socket.socket) -> Copied | None:
    connection, _ = listening.accept()
    return _given(connection, connection)


def _tell(handle: int, copy: Copy) -> None:
    os.close(handle)
    _, status = os.waitpid(copy.pid, 0)
    with copy.end, suppress(OSError):  # who started it has ended
        copy.end.sendall(status.to_bytes(LENGTH))


def _become(copied: Copied, path: Sequence[str]) -> None:
    """What a process of its own would be, until its end. `path`: of modules, without what the environment says of it."""
    for place, stream in enumerate(copied.streams):
        os.dup2(stream, place)
        os.close(stream)
    os.chdir(copied.request["folder"])
    os.environ.clear()
    os.environ.update(copied.request["environment"])
    sys.path[0] = copied.request["folder"]
    sys.argv[1:] = copied.request["arguments"]
    if module := copied.request.get("module"):
        told = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        sys.path[1:] = [*[each for each in told if each], *path]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        return
    from stompbox.cli import main as stompbox

    stompbox()


if __name__ == "__main__":
    main(sys.argv[2:], *[socket.socket(fileno=int(each)) for each in sys.argv[1].split(",")])
