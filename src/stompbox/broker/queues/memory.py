"""What waits in memory, octets about: of one address, and of all. A run counts once, however many queues hold some of it.

As a whole it has `global-max-size` together with what consumers have and did not acknowledge, and what else is kept for
clients (`kept`: server/ledger.py): what these take is not there for messages, which stay in the log instead. Neither may take all of it.
"""

from __future__ import annotations

from typing import Final

from stompbox.broker.logs.segments import cost_of
from stompbox.broker.queues.allowance import NO_LIMIT, Unacknowledged
from stompbox.message import Run

FAR: Final = 1 << 62  # no limit


class Memory:
    """`whole`: that of the engine, of which this one is a part. `unacknowledged`: the engine's, of the whole."""

    __slots__ = ("count", "is_pressed", "kept", "looked", "most", "most_messages", "size", "unacknowledged", "whole")

    def __init__(self, whole: Memory | None = None, unacknowledged: Unacknowledged | None = None) -> None:
        self.whole = whole
        self.unacknowledged = unacknowledged
        self.kept = 0
        self.size = self.count = 0
        self.most = self.most_messages = FAR
        self.is_pressed = False  # as a whole: it was full since windows.py has looked, at `looked`
        self.looked = -FAR

    def limit(self, size: int, messages: int) -> None:
        """-1: no limit."""
        self.most = size if size >= 0 else FAR
        if self.unacknowledged is not None:
            self.unacknowledged.most = size // 2 if size >= 0 else NO_LIMIT
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
        elif self.taken >= self.most or self.count >= self.most_messages:
            self.is_pressed = True

    def takes(self, size: int, count: int) -> bool:
        """Whether there is room for so much more here; as a whole, whether there is any."""
        if self.taken + size > self.most or self.count + count > self.most_messages:
            return False
        return self.whole is None or not self.whole.is_full

    @property
    def taken(self) -> int:
        """Octets that are not there for what comes."""
        if self.unacknowledged is None:
            return self.size
        return self.size + min(self.kept, self.most // 4) + self.unacknowledged.size

    @property
    def is_full(self) -> bool:
        """Here, or as a whole."""
        if self.taken >= self.most or self.count >= self.most_messages:
            return True
        return self.whole is not None and self.whole.is_full

    def __repr__(self) -> str:
        return f"<Memory {self.count} messages {self.size} octets{' full' if self.is_full else ''}>"
