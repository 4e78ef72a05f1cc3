"""How many sockets a process may have: the system lets it open so many files, and each socket is one of them.

| files                                                   | whose they are                                                       |
|---------------------------------------------------------|----------------------------------------------------------------------|
| as many as are open when a listener is made, and MARGIN | the store, the admin interface and all else: clients never take them |
| the others                                              | sockets; beyond them the oldest that has not logged in is closed     |

A process that could open no file any more could not read a backlog, write a large body or even look how large it is. So clients are refused
before that, each with a word. This file counts; whom it concerns, admission.py and tcp.py decide.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from stompbox.config import Listener


class Accepted(Protocol):
    """A socket of a client."""

    listener: Listener


WANTED: Final = 65536  # files, where the system lets the process have so many: LimitNOFILE of deploy/systemd
MARGIN: Final = 64  # files that sockets leave,
LINGERING: Final = MARGIN // 2  # and how many of those sockets may have that were told to go
# files that are open when nobody can say how many: the store has four, the log and the loop some
OPEN: Final = 32
UNLIMITED: Final = 1 << 30
# clients' sockets that are open in this process, of whatever listener and broker; those that others have for it are not
SOCKETS: Final[set[Accepted]] = set()


def with_tls() -> int:
    """How many of these sockets speak TLS."""
    return sum([one.listener.is_tls for one in SOCKETS])


def limit() -> int:
    """How many files this process may open."""
    try:
        from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit
    except ImportError:  # Windows, which has no such limit
        return UNLIMITED
    soft, _ = getrlimit(RLIMIT_NOFILE)
    return UNLIMITED if soft == RLIM_INFINITY else soft


def reachable() -> int:
    """How many `raise_limit` would let it open."""
    try:
        from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit
    except ImportError:
        return UNLIMITED
    _, hard = getrlimit(RLIMIT_NOFILE)
    return max(limit(), WANTED if hard == RLIM_INFINITY else min(hard, WANTED))


def raise_limit() -> None:
    """Lets this process, and those that it starts, open as many files as it may let itself, up to WANTED. Shells give 1024 of them."""
    wanted = reachable()
    while wanted > limit():
        from resource import RLIMIT_NOFILE, getrlimit, setrlimit

        try:
            setrlimit(RLIMIT_NOFILE, (wanted, getrlimit(RLIMIT_NOFILE)[1]))
        except (
            OSError,
            ValueError,
        ):  # macOS tells of no hard limit, and refuses more than kern.maxfilesperproc
            wanted //= 2


def most_sockets() -> int:
    """How many sockets this process may have besides what is open in it now: always some, and room for other files beside them."""
    most = limit()
    return max(most - _open() - MARGIN, most // 4)


def _open() -> int:
    try:
        return len(os.listdir("/dev/fd"))
    except OSError:
        return OPEN
