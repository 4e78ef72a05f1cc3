"""Reading and writing at a place of a file: the system's own calls, or a step to the place where a system has none (Windows).

Decides nothing but that. Without the system's calls all files share one lock, since a step and what follows it belong together.
"""

from __future__ import annotations

import os
from threading import Lock

_stepping = Lock()


def read_at(descriptor: int, size: int, offset: int) -> bytes:
    """So many octets at most, from the offset on."""
    if hasattr(os, "pread"):
        return os.pread(descriptor, size, offset)
    with _stepping:
        os.lseek(descriptor, offset, os.SEEK_SET)
        return os.read(descriptor, size)


def write_at(descriptor: int, data: bytes | memoryview, offset: int) -> int:
    """How many octets were written from the offset on."""
    if hasattr(os, "pwrite"):
        return os.pwrite(descriptor, data, offset)
    with _stepping:
        os.lseek(descriptor, offset, os.SEEK_SET)
        return os.write(descriptor, data)
