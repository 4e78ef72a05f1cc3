"""Whether another node could lead by now, as far as the leader can know while the log does not answer it.

Each other node says for how long it could hear the log without a sign of a leader (commitlog/hearing.py), in answer to a table that the
leader has sent at a time of its own clock. A node tries to lead when that has been `takeover-after`; so as long as none of them can have
come to `lead-timeout`, which is less, nobody else leads. A node that does not answer is one of which nothing is known.

What this says only decides whether clients stay: that nothing is confirmed by two is the log's to see to (fencing).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from stompbox.server.cluster.members import Member


class Word(NamedTuple):
    """What a node has said: `asked` when the leader has sent what it answers (seconds of the leader's clock), and for how long it has heard
    nothing of a leader then (seconds)."""

    asked: float
    quiet: float


class Witnesses:
    """What the other nodes have said, the last of each."""

    def __init__(self) -> None:
        self._words: dict[str, Word] = {}

    def tell(self, node: str, word: Word) -> None:
        self._words[node] = word

    def doubt(self, members: Iterable[Member], now: float, limit: float) -> str:
        """Why another node may lead by now, or soon; empty: none can. `limit`: seconds that each may have heard nothing."""
        others = [one for one in members if not one.is_drained]
        if not others:
            return "no other node can be asked"
        for one in others:
            if not one.is_connected:
                return f"node {one.node} cannot be asked"
            word = self._words.get(one.node)
            if word is None or now - word.asked >= limit:
                return f"node {one.node} does not answer"
            if now - word.asked + word.quiet >= limit:
                return f"node {one.node} hears it"
        return ""

    def __repr__(self) -> str:
        return f"<Witnesses {self._words}>"
