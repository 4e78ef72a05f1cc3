"""What selectors with XPATH are asked about messages, where one answer takes longer than a turn has left.

A question goes on with each turn of the one who asks, as far as the portion of that turn goes (work.py), and he asks again until the
answer is there. Each holds a document, so few are open at once: what one client asks waits for its own questions, of which it has OF_ONE
at the most, and where those of all are too many, clients stand in line, and who came first is next. None is asked in one go: that takes
25 ms. A question whose queue goes is let go, and so is one that nobody has come back to for a while: its consumer is not there any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Final

from stompbox.broker.work import QUESTION

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
    """A question that has begun. `since`: when it was asked last; `client`: on whose behalf; `queue`: whose messages it is about; `most`:
    so many of its kind may be open."""

    __slots__ = ("client", "most", "question", "queue", "run", "since")

    def __init__(self, run: Run, question: Question, client: object, queue: int, most: int) -> None:
        self.run = run  # as long as it lives no other has its number
        self.question = question
        self.client = client
        self.queue = queue
        self.most = most
        self.since = 0

    def came_back(self, now: int) -> Question:
        """Somebody asks for the answer."""
        self.since = now
        return self.question


class Place:
    """In the line of those who ask before their message is sent."""

    __slots__ = ("_line",)

    def __init__(self, line: dict[Place, None]) -> None:
        self._line = line

    @property
    def may_ask(self) -> bool:
        """Few enough came before."""
        return self in islice(self._line, OPEN)


class Questions:
    __slots__ = ("_ahead", "_answers", "_lines", "_open", "_work")

    def __init__(self, work: Work) -> None:
        self._work = work
        self._ahead: dict[Place, None] = {}
        self._open: dict[Key, _Open] = {}
        # clients for whose questions there is no room, in the order in which they came, with when they asked last; by `most`
        self._lines: dict[int, dict[object, int]] = {OPEN: {}, LIGHT: {}}
        self._answers: dict[Key, tuple[Run, bool]] = {}

    def answer(self, key: Key) -> bool | None:
        """What was answered just now, if it was asked."""
        found = self._answers.get(key)
        return None if found is None else found[1]

    def try_once(self, key: Key, run: Run, ask: Ask) -> Answer | None:
        """The answer if this turn's portion is enough for it; else nothing is kept, and the portion is used up."""
        return self._asked(key, run, _question(ask), self._work.left)

    def go_on(
        self, key: Key, run: Run, ask: Ask, *, now: int, client: object, queue: int, most: int = OPEN
    ) -> Answer | None:
        """The answer, or None: then this turn's work is used up, and the next one goes on. `most` may be open."""
        found = self._open.get(key)
        if found is None:
            if not self._may_open(client, now, most):
                self._work.spend(self._work.left)
                return None
            found = self._open[key] = _Open(run, _question(ask), client, queue, most)
        answer = self._asked(key, run, found.came_back(now), self._work.left)
        if answer is not None:
            del self._open[key]
        return answer

    def _may_open(self, client: object, now: int, most: int) -> bool:
        """Whether there is room for one more of the client, who else stands in line for it."""
        own = [key for key, found in self._open.items() if found.client == client]
        if len(own) >= OF_ONE and not self._has_let_go(own, now):
            return False
        line = self._lines[most]
        line[client] = now
        while line[first := next(iter(line))] <= now - FORGOTTEN:
            del line[first]
        same = [key for key, found in self._open.items() if found.most == most]
        free = most - len(same) + (len(same) >= most and self._has_let_go(same, now))
        if client not in islice(line, free):
            return False
        del line[client]
        return True

    @contextmanager
    def ahead(self) -> Iterator[Place]:
        """A question before the message is sent, whose asker goes on with it himself, once he may."""
        place = Place(self._ahead)
        self._ahead[place] = None
        try:
            yield place
        finally:
            del self._ahead[place]

    def leave(self, queue: int) -> None:
        """The queue is gone: nobody comes back to what was asked about its messages."""
        for key in [key for key, found in self._open.items() if found.queue == queue]:
            del self._open[key]

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
        taken = question.go_on(max(1, steps // QUESTION))
        self._work.spend(QUESTION * (budget.spent - before))
        if taken is None:
            self._work.spend(self._work.left)
            return None
        self._remember(key, run, taken)
        return taken, budget

    def _remember(self, key: Key, run: Run, taken: bool) -> None:
        if len(self._answers) >= ANSWERS:
            del self._answers[next(iter(self._answers))]
        self._answers[key] = (run, taken)

    def __len__(self) -> int:
        """How many are open."""
        return len(self._open)

    def __repr__(self) -> str:
        return f"<Questions {len(self)} open>"


def _question(ask: Ask) -> Question:
    from stompbox.selectors.question import Question  # loaded with the first XPATH

    return Question(ask)
