"""What selectors with XPATH are asked about messages, where one answer takes longer than a turn has left.

A question goes on with each turn of the one who asks, as far as the portion of that turn goes (work.py), and he asks again until the
answer is there. Each holds a document, so few are open at once: what one client asks waits for its own questions, and never for those of
others. When these are too many, it is asked in one go. A question that nobody has come back to for a while is let go: its queue, or its
consumer, is not there any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from stompbox.broker.work import Work
    from stompbox.message import Run
    from stompbox.selectors import Budget
    from stompbox.selectors.question import Question

OF_ONE: Final = 4  # questions that are open at once for one client
OPEN: Final = 16  # for all; a document takes up to 3 MiB
LIGHT: Final = 256  # for all, of those without a document
ANSWERS: Final = 8  # that are remembered, with the runs of their messages
FORGOTTEN: Final = 1000  # ms after which a question that nobody has come back to is let go

# selector, run, offset, the queue if its id matters, deliveries, whether it was redelivered
Key = tuple[int, int, int, int, int, bool]
Ask = Callable[["Budget"], bool]
Answer = tuple[bool, "Budget"]
"""And what it has cost."""


class _Open:
    """A question that has begun. `since`: when it was asked last; `client`: on whose behalf."""

    __slots__ = ("client", "question", "run", "since")

    def __init__(self, run: Run, question: Question, client: object) -> None:
        self.run = run  # as long as it lives no other has its number
        self.question = question
        self.client = client
        self.since = 0

    def came_back(self, now: int) -> Question:
        """Somebody asks for the answer."""
        self.since = now
        return self.question


class Questions:
    __slots__ = ("_ahead", "_answers", "_open", "_work")

    def __init__(self, work: Work) -> None:
        self._work = work
        self._ahead = 0
        self._open: dict[Key, _Open] = {}
        self._answers: dict[Key, tuple[Run, bool]] = {}

    def answer(self, key: Key) -> bool | None:
        """What was answered just now, if it was asked."""
        found = self._answers.get(key)
        return None if found is None else found[1]

    def try_once(self, key: Key, run: Run, ask: Ask) -> Answer | None:
        """The answer if this turn's portion is enough for it; else nothing is kept, and the portion is used up."""
        return self._asked(key, run, _question(ask), self._work.left)

    def go_on(
        self, key: Key, run: Run, ask: Ask, *, now: int, client: object, most: int = OPEN
    ) -> Answer | None:
        """The answer, or None: then this turn's work is used up, and the next one goes on. `most` may be open."""
        found = self._open.get(key)
        if found is None:
            own = [known for known, other in self._open.items() if other.client == client]
            if len(own) >= OF_ONE and not self._has_let_go(own, now):
                self._work.spend(self._work.left)
                return None
            question = _question(ask)
            if len(own) >= OF_ONE or len(self._open) >= most:
                # in one go, also where another one was let go for it: its asker may come again after all, and none would ever end
                self._has_let_go(list(self._open), now)
                return self._asked(key, run, question, question.budget.steps)
            found = self._open[key] = _Open(run, question, client)
        answer = self._asked(key, run, found.came_back(now), self._work.left)
        if answer is not None:
            del self._open[key]
        return answer

    @contextmanager
    def ahead(self) -> Iterator[bool]:
        """A question before the message is sent, whose asker goes on with it himself; False: too many are open, so that it is asked in one
        go."""
        self._ahead += 1
        try:
            yield self._ahead <= OPEN
        finally:
            self._ahead -= 1

    def _has_let_go(self, keys: list[Key], now: int) -> bool:
        """Whether there was one of these that nobody comes back to."""
        key = min(keys, key=lambda known: self._open[known].since, default=None)
        if key is None or self._open[key].since > now - FORGOTTEN:
            return False
        del self._open[key]
        return True

    def _asked(self, key: Key, run: Run, question: Question, steps: int) -> Answer | None:
        budget = question.budget
        before = budget.spent
        taken = question.go_on(steps)
        self._work.spend(budget.spent - before)
        if taken is None:
            self._work.spend(self._work.left)
            return None
        self._remember(key, run, taken)
        return taken, budget

    def _remember(self, key: Key, run: Run, taken: bool) -> None:
        if len(self._answers) >= ANSWERS:
            del self._answers[next(iter(self._answers))]
        self._answers[key] = (run, taken)

    def __repr__(self) -> str:
        return f"<Questions {len(self._open)} open>"


def _question(ask: Ask) -> Question:
    from stompbox.selectors.question import Question  # loaded with the first XPATH

    return Question(ask)
