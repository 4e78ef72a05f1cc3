"""Brokers and commands of tests as copies of one process that has imported what `stompbox serve` imports, which is most of their work.

That process belongs to this one and ends with it. It only ever imports and forks: a copy gets the arguments, the environment, the
folder and the streams that a process of its own would have, and is `stompbox` from its first line on.

Decides where that is the same as a process of its own. Elsewhere than on Linux, where something counts what is run (coverage), or where
the environment has Python begin otherwise than ours did, it is none, and there is a process of its own.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import select
import selectors
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
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
ROOT: Final = Path(__file__).resolve().parent.parent
LENGTH: Final = 8  # octets that say how long a request is
STREAMS: Final = 3  # stdin, stdout, stderr
# how names of the environment begin that count before the first line of a program does
EARLY: Final = ("PYTHON", "LD_", "MALLOC_", "GLIBC_", "LC_", "LANG", "TZ", "HOME")


@dataclass(frozen=True, slots=True)
class Copied:
    """What a copy is to be. `request`: its arguments, folder and environment; `streams`: descriptors of its stdin, stdout and stderr."""

    request: Mapping[str, Any]
    streams: Sequence[int]


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


class First:
    """The process that brokers and commands are copied from."""

    def __init__(self) -> None:
        self.environment: Final = _early(os.environ)
        self._lock: Final = Lock()
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process: Final = subprocess.Popen(
                [sys.executable, "-m", "tests.forked", str(theirs.fileno())],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, cwd=ROOT, pass_fds=(theirs.fileno(),),
            )  # fmt: skip

    def ask(self, request: Mapping[str, object], descriptors: Sequence[int]) -> None:
        octets = json.dumps(request).encode()
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


def main(asked: socket.socket) -> None:
    """Forks what is asked for, and tells how each has ended, until nobody asks any more; and is what was asked for in each copy."""
    for name in (*IMPORTED, *FOR_COMMANDS):
        importlib.import_module(name)
    # what is here for good no copy looks through, and so has for itself, at each collection and at its end
    gc.collect()
    gc.freeze()
    copied = _forked(asked)
    if copied is not None:
        _become(copied)


def _forked(asked: socket.socket) -> Copied | None:
    """Returns in each copy, with what it is to be, and in the first process at its end. Nothing of the first is open in a copy."""
    ends: dict[int, tuple[int, socket.socket]] = {}  # by the descriptor of the process
    with ExitStack() as opened:
        opened.callback(lambda: [(os.close(handle), end.close()) for handle, (_, end) in ends.items()])
        waiting = opened.enter_context(selectors.DefaultSelector())
        waiting.register(opened.enter_context(asked), selectors.EVENT_READ)
        while True:
            for key, _ in waiting.select():
                if key.fd in ends:
                    waiting.unregister(key.fd)
                    _tell(key.fd, *ends.pop(key.fd))
                    continue
                given = _given(asked)
                if given is None:
                    return None
                copied, end = given
                child = os.fork()
                if not child:
                    end.close()
                    return copied
                for stream in copied.streams:
                    os.close(stream)
                end.sendall(child.to_bytes(LENGTH))
                handle = os.pidfd_open(child)
                ends[handle] = child, end
                waiting.register(handle, selectors.EVENT_READ)


def _given(asked: socket.socket) -> tuple[Copied, socket.socket] | None:
    length, descriptors, _, _ = socket.recv_fds(asked, LENGTH, STREAMS + 1)
    if not length:
        return None
    octets = b""
    while len(octets) < int.from_bytes(length):
        octets += asked.recv(int.from_bytes(length) - len(octets))
    return Copied(json.loads(octets), descriptors[:STREAMS]), socket.socket(fileno=descriptors[STREAMS])


def _tell(handle: int, child: int, end: socket.socket) -> None:
    os.close(handle)
    _, status = os.waitpid(child, 0)
    with end, suppress(OSError):  # who started it has ended
        end.sendall(status.to_bytes(LENGTH))


def _become(copied: Copied) -> None:
    """What a process of its own would be, until its end."""
    from stompbox.cli import main as stompbox

    for place, stream in enumerate(copied.streams):
        os.dup2(stream, place)
        os.close(stream)
    os.chdir(copied.request["folder"])
    os.environ.clear()
    os.environ.update(copied.request["environment"])
    sys.path[0] = copied.request["folder"]
    sys.argv[1:] = copied.request["arguments"]
    stompbox()


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
