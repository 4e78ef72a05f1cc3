"""What stands for a large body, or for a chunk of them, wherever its messages are held, while the octets are in the store.

Who keeps the bodies refers to these weakly (broker/logs/bodies.py), which classes that mypyc has compiled cannot be referred to: this file
is never compiled (hatch_build.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NoReturn, TypeAlias


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


class Staged(Sequence[Body]):
    """The bodies of a run that a sink has staged, and that nobody needs in memory: they lie in the store, with the headers that differ, as
    one chunk in the pieces of `body`. There are `messages` of them, and none can be had from here."""

    __slots__ = ("body", "messages")

    def __init__(self, body: Large, messages: int) -> None:
        self.body = body
        self.messages = messages

    def __len__(self) -> int:
        return self.messages

    def __getitem__(self, _: object) -> NoReturn:
        raise TypeError(f"{self!r} was asked for a body, which the log alone has")

    def __iter__(self) -> Iterator[Body]:
        return self[0]

    def __repr__(self) -> str:
        return f"<Staged {self.messages} messages in {self.body!r}>"
