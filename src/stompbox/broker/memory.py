"""What waits in memory, octets about: of one address, and of all. A run counts once, however many queues hold some of it."""

from __future__ import annotations

from typing import Final

from stompbox.broker.segments import cost_of
from stompbox.message import Run

FAR: Final = 1 << 62  # no limit


class Memory:
    """`whole`: that of the engine, of which this one is a part."""

    __slots__ = ("count", "is_pressed", "looked", "most", "most_messages", "size", "whole")

    def __init__(self, whole: Memory | None = None) -> None:
        self.whole = whole
        self.size = self.count = 0
        self.most = self.most_messages = FAR
        self.is_pressed = False  # as a whole: it was full since windows.py has looked, at `looked`
        self.looked = -FAR

    def limit(self, size: int, messages: int) -> None:
        """-1: no limit."""
        self.most = size if size >= 0 else FAR
        self.most_messages = messages if messages >= 0 else FAR

    def hold(self, run: Run) -> None:
        run.holders += 1
        if run.holders == 1:
            self._add(cost_of(run), len(run.bodies))

    def release(self, run: Run) -> None:
        run.holders -= 1
        if not run.holders:
            self._add(-cost_of(run), -len(run.bodies))

    def _add(self, size: int, count: int) -> None:
        self.size += size
        self.count += count
        if self.whole is not None:
            self.whole._add(size, count)
        elif self.size >= self.most or self.count >= self.most_messages:
            self.is_pressed = True

    def takes(self, size: int, count: int) -> bool:
        """Whether there is room for so much more here; as a whole, whether there is any."""
        if self.size + size > self.most or self.count + count > self.most_messages:
            return False
        return self.whole is None or not self.whole.is_full

    @property
    def is_full(self) -> bool:
        """Here, or as a whole."""
        if self.size >= self.most or self.count >= self.most_messages:
            return True
        return self.whole is not None and self.whole.is_full

    def __repr__(self) -> str:
        return f"<Memory {self.count} messages {self.size} octets{' full' if self.is_full else ''}>"
