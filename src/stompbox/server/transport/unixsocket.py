"""Sockets that are files: `unix:///path`. Who may write to the file may connect.

The file is there with its permissions before anybody can connect, and goes with the broker. One that a crash has left is removed at the
next start; one at which somebody listens is not.
Where the service manager has made the file (systemd.py) it is the service manager's, and stays.
"""

from __future__ import annotations

import os
import shutil
import socket
import stat
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from stompbox.config.listener import SocketFile
from stompbox.errors import ConfigError
from stompbox.numerals import digits

ANSWER: Final = 1.0  # seconds for the system to say whether somebody listens
# what asyncio is told of a socket that is a file: that it is not asyncio's to remove, which is what it does from Python 3.13 on
KEPT: Final[dict[str, Any]] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}


@dataclass(frozen=True, slots=True)
class BoundFile:
    """The file of a socket, as it was made: another broker may have put its own there since."""

    path: Path
    device: int
    inode: int

    def remove(self) -> None:
        with suppress(OSError):
            found = self.path.lstat()
            if (found.st_dev, found.st_ino) == (self.device, self.inode):
                self.path.unlink()


def listening(path: str, file: SocketFile, backlog: int) -> tuple[socket.socket, BoundFile]:
    """A socket at which nobody could connect before its file had its owner and permissions. Raises OSError, or ConfigError for an owner
    that there is not."""
    if not hasattr(socket, "AF_UNIX"):
        raise OSError("this system has no sockets that are files; 127.0.0.1 is its own machine's, too")
    _remove_left_over(path)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        bound.bind(path)
        found = os.lstat(path)
        made = BoundFile(Path(path), found.st_dev, found.st_ino)
        try:
            _give(path, file)
            bound.listen(backlog)
        except BaseException:
            made.remove()
            raise
        bound.setblocking(False)
    except BaseException:
        bound.close()
        raise
    return bound, made


def _id_or_name(text: str) -> int | str:
    number = digits(text)
    return text if number is None else number


def _give(path: str, file: SocketFile) -> None:
    owner, group = file.socket_owner, file.socket_group
    try:
        if owner:
            shutil.chown(path, user=_id_or_name(owner))
        if group:
            shutil.chown(path, group=_id_or_name(group))
    except LookupError as error:
        raise ConfigError("cannot-listen", f"unix://{path}: {error}") from None
    os.chmod(path, int(file.socket_mode, 8))


def _remove_left_over(path: str) -> None:
    try:
        found = os.lstat(path)
    except OSError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise OSError("a file is there already, and it is no socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asked:
        asked.settimeout(ANSWER)
        try:
            asked.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
        except BlockingIOError:
            pass  # it has as many waiting as it wants
    raise OSError("another program listens there")
