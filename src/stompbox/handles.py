"""What stands for a large body wherever its message is held, while its octets are in the store.

Who keeps the bodies refers to these weakly (broker/logs/bodies.py), which classes that mypyc has compiled cannot be referred to: this file
is never compiled (hatch_build.py).
"""

from __future__ import annotations

from typing import TypeAlias


class Large:
    """The handle of a body in the store. Its length is the body's; octets it has none."""

    __slots__ = ("__weakref__", "id", "size")

    def __init__(self, id: int, size: int) -> None:
        self.id = id
        self.size = size  # octets

    def __len__(self) -> int:
        return self.size

    def __bytes__(self) -> bytes:
        return b""

    def __repr__(self) -> str:
        return f"<Large {self.id} bytes={self.size}>"


Body: TypeAlias = bytes | Large
"""What a message holds: octets, or this in their place."""
