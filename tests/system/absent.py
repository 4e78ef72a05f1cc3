"""Runs `python -m tests.system.absent WHERE …` as a system without POSIX would have it: what Windows has not is taken away first.

    python -m tests.system.absent -m stompbox serve --memory
    python -m tests.system.absent -c "import stompbox.testing"

The library's own modules are loaded before that, since they would be others there. It shows gaps, not that Windows works.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import runpy
import signal
import socket
import sys
from collections.abc import Sequence
from functools import partial
from importlib.machinery import ModuleSpec
from typing import Final

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


def take_away() -> None:
    """From now on this process lacks what Windows lacks."""
    for name in LOADED:
        importlib.import_module(name)
    pair = partial(socket.socketpair, socket.AF_UNIX)  # Windows makes one of TCP
    for module, names in NAMES.items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    setattr(socket, "socketpair", pair)  # noqa: B010 - its type is of the call with a family
    for name in MODULES:
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, Absent())

    for name in ("add_signal_handler", "create_unix_server", "create_unix_connection"):
        setattr(asyncio.SelectorEventLoop, name, getattr(asyncio.AbstractEventLoop, name))


if __name__ == "__main__":
    how, what = sys.argv[1:3]
    sys.argv[:] = [what, *sys.argv[3:]]
    take_away()
    if how == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        exec(what)
