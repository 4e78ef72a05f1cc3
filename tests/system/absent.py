"""Runs `python -m tests.system.absent WHERE …` as a system without POSIX would have it: what Windows has not is taken away first.

    python -m tests.system.absent -m stompbox serve --memory
    python -m tests.system.absent -c "import stompbox.testing"
    ABSENT=macos python -m tests.system.absent -m stompbox serve

The library's own modules are loaded before that, since they would be others there. It shows gaps, not that Windows or macOS work.
"""

from __future__ import annotations

import asyncio
import builtins
import errno
import importlib
import io
import mmap
import os
import resource
import runpy
import select
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.machinery import ModuleSpec
from typing import Any, Final

# https://docs.python.org/3/library/os.html and the like say "Availability: Unix" of each
MODULES: Final = ("fcntl", "resource", "uvloop", "pwd", "grp", "termios", "tty", "pty")
NAMES: Final = {
    os: (
        "pread", "pwrite", "statvfs", "fstatvfs", "sysconf", "geteuid", "getuid", "getgid", "fchmod", "fchown", "chown", "fdatasync",
        "sched_getaffinity", "posix_fallocate", "posix_fadvise", "killpg", "mkfifo", "uname", "sendfile", "set_blocking",
        "O_CLOEXEC", "O_DIRECTORY", "O_DIRECT", "O_DSYNC", "O_NOFOLLOW", "O_NONBLOCK", "O_SYNC",
    ),
    signal: ("SIGHUP", "SIGUSR1", "SIGUSR2", "SIGKILL", "pthread_sigmask"),
    socket: ("AF_UNIX", "SO_REUSEPORT"),
}  # fmt: skip
NAMES_OF_LINUX: Final = {
    os: (
        "fdatasync", "O_DIRECT", "RWF_DSYNC", "RWF_SYNC", "RWF_HIPRI", "memfd_create", "MFD_CLOEXEC", "sched_getaffinity",
        "sched_setaffinity", "posix_fallocate", "posix_fadvise", "pipe2", "eventfd", "pidfd_open", "copy_file_range", "O_TMPFILE", "O_PATH",
    ),
    select: ("epoll",),
    socket: (
        "SOCK_CLOEXEC", "SOCK_NONBLOCK", "SO_PEERCRED", "TCP_KEEPIDLE", "TCP_USER_TIMEOUT", "TCP_QUICKACK", "TCP_CORK", "TCP_INFO",
    ),
    resource: ("RUSAGE_THREAD", "prlimit"),
    mmap: ("MADV_DONTFORK", "MADV_HUGEPAGE"),
}  # fmt: skip
LOADED: Final = (
    "asyncio", "cyclopts", "http.client", "logging", "multiprocessing", "rich.console", "sqlite3", "ssl", "starlette.applications",
    "starlette.routing", "subprocess", "tempfile", "tracemalloc", "uvicorn", "websockets",
)  # fmt: skip


class Absent:
    """Finds none of the modules that are not there."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: object = None) -> ModuleSpec | None:
        if name.partition(".")[0] in MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


def take_away_what_linux_has() -> None:
    """From now on this process lacks what macOS lacks, /proc too."""
    for name in (*LOADED, "uvloop", "prometheus_client"):
        importlib.import_module(name)
    _remove(NAMES_OF_LINUX)
    sys.platform = "darwin"
    for module, name in ((builtins, "open"), (io, "open"), (os, "open"), (os, "stat")):
        setattr(module, name, partial(_unless_proc, getattr(module, name)))


def _unless_proc(call: Callable[..., Any], path: Any, *arguments: Any, **named: Any) -> Any:
    if isinstance(path, str | os.PathLike) and os.fspath(path).startswith(("/proc/", "/sys/")):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    return call(path, *arguments, **named)


def _remove(names: Mapping[Any, Sequence[str]]) -> None:
    for module, gone in names.items():
        for name in gone:
            if hasattr(module, name):
                delattr(module, name)


def take_away() -> None:
    """From now on this process lacks what Windows lacks."""
    for name in LOADED:
        importlib.import_module(name)
    pair = partial(socket.socketpair, socket.AF_UNIX)  # Windows makes one of TCP
    _remove(NAMES)
    setattr(socket, "socketpair", pair)  # noqa: B010 - its type is of the call with a family
    for name in MODULES:
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, Absent())

    for name in ("add_signal_handler", "create_unix_server", "create_unix_connection"):
        setattr(asyncio.SelectorEventLoop, name, getattr(asyncio.AbstractEventLoop, name))


if __name__ == "__main__":
    how, what = sys.argv[1:3]
    sys.argv[:] = [what, *sys.argv[3:]]
    take_away_what_linux_has() if os.environ.get("ABSENT") == "macos" else take_away()
    if how == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        exec(what)
