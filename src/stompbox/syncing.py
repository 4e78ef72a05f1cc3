"""What was written to a file is on its disk when this returns, and not only in a cache: the one place that knows how each system does it.

| system  | all of a file, a folder             | what is in a file                  |
|---------|-------------------------------------|------------------------------------|
| Linux   | fsync                               | fdatasync                          |
| macOS   | fcntl F_FULLFSYNC: fsync there leaves it in the cache of the disk, which a loss of power empties | the same |
| Windows | fsync (_commit)                     | the same                           |
"""

from __future__ import annotations

import errno
import os
from typing import Final

try:
    import fcntl
except ImportError:  # Windows
    FULL: int | None = None
else:
    FULL = getattr(fcntl, "F_FULLFSYNC", None)

# of file systems that know no such thing, as those of a network: what fsync does is all there is
_UNKNOWN: Final = frozenset((errno.ENOTSUP, errno.EINVAL, errno.ENOTTY))


def sync(descriptor: int) -> None:
    """Returns when the disk has all of a file, or the names in a folder. Raises OSError."""
    if FULL is not None:
        try:
            fcntl.fcntl(descriptor, FULL)
            return
        except OSError as error:
            if error.errno not in _UNKNOWN:
                raise
    os.fsync(descriptor)


def sync_content(descriptor: int) -> None:
    """Returns when the disk has what is in a file, and its size; when it was written need not be there. Raises OSError."""
    if FULL is None and hasattr(os, "fdatasync"):
        os.fdatasync(descriptor)
    else:
        sync(descriptor)
