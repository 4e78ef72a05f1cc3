"""What the log is to say of messages that nobody got: how many, of which queue, why, and what became of them.

Gathered here, and told now and then (server/summaries.py): a burst becomes one line for each queue and reason. What goes by design is
not told of, only counted: a ring pushes out, a last value replaces, an operator purges, a topic has no subscriber.
"""

from __future__ import annotations

from collections import Counter
from enum import Enum
from typing import Final, NamedTuple

EXPIRED: Final = "expired"
TOO_OFTEN: Final = "max-delivery-attempts"
REJECTED: Final = "rejected"
NO_ROUTE: Final = "no-route"
TOO_EXPENSIVE: Final = "selector-too-expensive"
TOO_MANY_WAYS: Final = "too-many-diverts"

MOST: Final = 1000  # lines that are gathered; what else there is becomes one line for each reason and fate
OTHERS: Final = ""  # the queue of those lines


class Fate(Enum):
    """What became of them; the value is how the log says it."""

    DROPPED = "dropped"
    DEAD_LETTER = "sent to the dead letter address"
    EXPIRED = "sent to the expiry address"
    KEPT = "kept: there is nowhere to go from a dead letter address"
    NOT_MATCHED = "not matched: a selector took more steps for one of them than it may"
    STAYED = "not sent on: a message goes along no more than 1000 diverts, and over 64 addresses"
    PASSED_OVER = "passed over by a reader of the log, where they stay"


class Loss(NamedTuple):
    """Messages of a queue that were not delivered, and why. `queue`: its name, or that of the address where there was no queue."""

    queue: str
    reason: str
    fate: Fate


class Undelivered:
    """`counts` of messages since they were taken last; `totals` since the start, by reason and fate."""

    __slots__ = ("counts", "totals")

    def __init__(self) -> None:
        self.counts: Counter[Loss] = Counter()
        self.totals: Counter[tuple[str, Fate]] = Counter()

    def note(self, queue: str, reason: str, fate: Fate, count: int) -> None:
        loss = Loss(queue, reason, fate)
        if loss not in self.counts and len(self.counts) >= MOST:
            loss = Loss(OTHERS, reason, fate)
        self.counts[loss] += count
        self.totals[reason, fate] += count

    def take(self) -> list[tuple[Loss, int]]:
        """Takes all losses that were counted, the most frequent first."""
        found, self.counts = self.counts.most_common(), Counter()
        return found

    def __repr__(self) -> str:
        return f"<Undelivered {self.counts.total()} messages>"
