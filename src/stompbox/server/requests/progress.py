"""What pipelines say of themselves, for the console: kept in memory alone, bounded, and forgotten when nothing more was said for long.

A pipeline tells of all its steps at once, again and again; what it says takes the place of what it said before. What is kept belongs to
the user who said it: nobody writes over another's. A step that was not over when its connection went is lost, until somebody tells of it.

Decides what may be said and by whom, and how much of it is kept. Not what pipelines are: it believes what it is told.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Container
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec import Meta, Struct

from stompbox.errors import IllegalFrame, Refused
from stompbox.security import Right
from stompbox.server.requests.replies import Reply, each, json_reply
from stompbox.stomp.frames import Frame

if TYPE_CHECKING:
    from stompbox.server.requests.asker import Asker

MOST: Final = 1000  # steps that are kept
MOST_OF_USER: Final = 200  # of one user
MOST_SIZE: Final = 64 << 10  # bytes of one report
# ms from the last word of a step until it is forgotten: a nightly run is still there the next day
KEPT: Final = 86_400_000


class StepState(Enum):
    WAITING = "waiting"  # its turn has not come, or it has read all there is
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"  # before its end; it goes on at the next start


_GOING: Final = frozenset((StepState.WAITING, StepState.RUNNING))
LOST: Final = "lost"  # what a step is that was going when its connection went

Name = Annotated[str, Meta(min_length=1, max_length=200)]
Count = Annotated[int, Meta(ge=0, lt=1 << 62)]
Amount = Annotated[float, Meta(ge=0)]


class Step(Struct, frozen=True, forbid_unknown_fields=True):
    """What is said of one step. `groups`: reader groups that it reads by; `of`: rows that it will have, 0: nobody knows; `rate`: rows/s;
    `lag`: messages that wait, as the pipeline sees it; `batch_ago`: ms since the last batch ended, which took `batch_seconds`."""

    step: Name
    kind: Name
    state: StepState
    reason: Annotated[str, Meta(max_length=1000)] = ""
    groups: Annotated[tuple[Name, ...], Meta(max_length=50)] = ()
    rows: Count = 0
    of: Count = 0
    rate: Amount = 0.0
    lag: Count | None = None
    batch: Count | None = None
    batch_ago: Count | None = None
    batch_seconds: Amount = 0.0


class Report(Struct, frozen=True, forbid_unknown_fields=True):
    pipeline: Name
    steps: Annotated[tuple[Step, ...], Meta(max_length=MOST_OF_USER)]


class Told(Struct, frozen=True):
    """The last word of a step: by which user and connection (its session), and when (ms since the epoch). Names are as the broker has
    them, with the space of a virtual host."""

    user: str
    pipeline: str
    step: Step
    groups: tuple[str, ...]
    session: int
    at: int

    def state(self, sessions: Container[int]) -> str:
        """The state of the step in a word. `sessions`: those whose connections go on."""
        return LOST if self.step.state in _GOING and self.session not in sessions else self.step.state.value

    @property
    def batch_at(self) -> int | None:
        return None if self.step.batch_ago is None else max(0, self.at - self.step.batch_ago)


Key = tuple[str, str, str]  # user, pipeline as the broker has it, step


class Progress:
    """What the pipelines have told of their steps."""

    def __init__(self, *, most: int = MOST, most_of_user: int = MOST_OF_USER) -> None:
        self.told: dict[Key, Told] = {}  # in the order in which they were last told of
        self.most = most
        self.most_of_user = most_of_user

    def tell(self, pipeline: str, found: list[Told], sessions: Container[int]) -> None:
        """Raises Refused, and keeps nothing of it, when there is no room even without steps that are over."""
        now = found[0].at if found else 0
        self.forget(now)
        kept = dict(self.told)
        room = _Room(self, kept, sessions)
        for told in found:
            key = (told.user, pipeline, told.step.step)
            if kept.pop(key, None) is None:
                room.make(told.user)
            kept[key] = told
            room.look(key, told)
        self.told = kept

    def forget(self, now: int) -> None:
        """Forgets the steps of which nobody has spoken for long."""
        for key, told in list(self.told.items()):
            if told.at >= now - KEPT:
                break
            del self.told[key]

    def __repr__(self) -> str:
        return f"<Progress of {len(self.told)} steps>"


class _Room:
    """What makes room in what is kept for what is told of now: each step is looked at once, however many are told of."""

    def __init__(self, progress: Progress, kept: dict[Key, Told], sessions: Container[int]) -> None:
        self._progress = progress
        self._kept = kept
        self._sessions = sessions
        self._count = Counter([user for user, _, _ in kept])
        # steps that are over, the oldest first; what was told of again since is not what stands here
        self._over: deque[tuple[Key, Told]] = deque()
        self._over_of: dict[str, deque[tuple[Key, Told]]] = {}
        for key, told in kept.items():
            self.look(key, told)

    def look(self, key: Key, told: Told) -> None:
        """Takes note of a step that is kept."""
        if told.step.state not in _GOING or told.session not in self._sessions:
            self._over.append((key, told))
            self._over_of.setdefault(key[0], deque()).append((key, told))

    def make(self, user: str) -> None:
        """Makes room for one step more. Raises Refused."""
        progress = self._progress
        if self._count[user] >= progress.most_of_user:
            over, limit = self._over_of.get(user), f"{progress.most_of_user} of user {user!r}"
        elif len(self._kept) >= progress.most:
            over, limit = self._over, f"{progress.most} in all"
        else:
            self._count[user] += 1
            return
        while over:
            key, told = over.popleft()
            if self._kept.get(key) is told:
                del self._kept[key]
                self._count[key[0]] -= 1
                self._count[user] += 1
                return
        raise Refused(
            "too-many-steps",
            f"the broker keeps the progress of {limit} steps of pipelines, and these are all under way",
        )


async def progress(connection: Asker, frame: Frame) -> Reply:
    """Obeys the request `progress`: keeps what a pipeline tells of its steps."""
    report = _report(frame)
    broker, names = connection.broker, connection.names
    pipeline, user = names.qualified(report.pipeline), connection.user.name
    kept = broker.progress = broker.progress or Progress()
    found, unasked = [], set[str]()
    async for step in each(connection, report.steps):
        qualified = tuple([names.qualified(group) for group in step.groups])
        before = kept.told.get((user, pipeline, step.step))
        if before is None or before.groups != qualified:
            unasked.update(qualified)
        found.append(Told(user, pipeline, step, qualified, connection.session_id, broker.now()))
    await _require(connection, unasked)
    kept.tell(pipeline, found, broker.sessions())
    return json_reply({})


def _report(frame: Frame) -> Report:
    if len(frame.body) > MOST_SIZE:
        raise IllegalFrame(
            "bad-json",
            f"the body of request progress is {len(frame.body)} bytes long; allowed are {MOST_SIZE}",
        )
    try:
        return msgspec.json.decode(frame.body, type=Report)
    except (msgspec.DecodeError, RecursionError) as error:  # a wrong type, or nested too deep
        raise IllegalFrame(
            "bad-json", f"the body of request progress is not what it should be: {error}"
        ) from None


async def _require(connection: Asker, groups: set[str]) -> None:
    """Who tells of groups may consume what they read. All addresses are gone through once, in turns, however many groups there are."""
    broker = connection.broker
    known = groups & broker.engine.group_patterns.keys()
    async for address in each(connection, list(broker.engine.addresses.values()) if known else ()):
        if not address.groups.keys().isdisjoint(known):
            broker.permissions.require(connection.user, Right.CONSUME, address.name)
