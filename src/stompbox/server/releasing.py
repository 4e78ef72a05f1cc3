"""What a commit lets out: RECEIPTs of the connections that have waited for it, and requests that wait for the disk.

Of five thousand connections each is told in its turn (turns.py), and one that waits for much is told a portion of it; on one connection
everything is said in order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from stompbox.server.turns import FOREVER, OUTWARD

if TYPE_CHECKING:
    from stompbox.errors import StoreError
    from stompbox.server.seam import ClientConnection, Core


class Releases:
    """Lets RECEIPTs go whose commits are stored, in turns. `sequence`: commits up to this one are answered."""

    def __init__(self, broker: Core) -> None:
        self.broker = broker
        self.sequence = 0
        self.due: deque[ClientConnection] = deque()  # have something to say, and there was no time for it
        self._is_planned = False
        self._on_durable: list[tuple[int, asyncio.Future[None]]] = []  # by the sequence of their commit

    def when_durable(self, sequence: int, waiter: asyncio.Future[None]) -> None:
        """Resolves `waiter` when this commit is on disk, or fails it with the StoreError."""
        self._on_durable.append((sequence, waiter))

    def release(self, sequence: int, error: StoreError | None) -> None:
        """Says what waited for the commit of this sequence, which is stored, or refused with this error."""
        self.sequence = sequence
        waiting = self.broker.waiting
        if self.due or len(waiting) > 1 or (waiting and next(iter(waiting)).release(sequence)):
            self._say_in_turns()
        if self._on_durable:
            self._resolve(error)

    def _say_in_turns(self) -> None:
        self.due = deque(dict.fromkeys([*self.due, *self.broker.waiting]))
        turns = self.broker.turns
        # as long as a turn: who is told in another one sends its next message in another one, and each of them is a commit
        if self._say(turns.clock() + turns.budget) and not self._is_planned:
            self._is_planned = True
            turns.later(self._say, OUTWARD)

    def say_all(self) -> None:
        """Says whatever is due, at once."""
        self._say(FOREVER)

    def _say(self, until: float) -> bool:
        """True when there was no time for all of them."""
        while self.due:
            connection = self.due.popleft()
            if connection.release(self.sequence):
                self.due.append(connection)
            if self.due and self.broker.turns.clock() > until:
                return True
        self._is_planned = False
        return False

    def _resolve(self, error: StoreError | None) -> None:
        """The first goes on at once, each of the others when it is its turn."""
        due = [waiter for at, waiter in self._on_durable if at <= self.sequence and not waiter.done()]
        self._on_durable = [(at, waiter) for at, waiter in self._on_durable if at > self.sequence]
        for waiter in due[1:]:
            self.broker.turns.resolve_later(waiter, error)
        for waiter in due[:1]:
            if error is not None:
                waiter.set_exception(error)
            else:
                waiter.set_result(None)

    def __repr__(self) -> str:
        return f"<Releases up to {self.sequence} due={len(self.due)}>"
