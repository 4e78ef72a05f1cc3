"""What sinks have staged and published: messages staged by many, published by one, each batch once.

What is staged lies in the store, in pieces as a large body does (bodies.py); memory has a handle of it. So a restart loses nothing of it,
and a batch may be larger than memory. A batch is published in portions that fit into a commit each (server/requests/publishing.py), and the
first of them decides: from then on the catalogue says that the batch is published, and where that stands, so that a broker which is
started anew goes on there. Entries of the catalogue:

| kind            | key     | says                                                                                            |
|-----------------|---------|-------------------------------------------------------------------------------------------------|
| staged          | a body  | an attempt at a partition; the store keeps the body as long as this is there |
| publishing      | a sink  | a batch of which some is published: its bodies in their order, whose it is, how its destinations are read |
| publishing-done | a sink  | how many of these bodies are published, and how many messages of the next                       |
| sink            | a sink  | the last batch that was published whole, and to which addresses where that matters              |

Each of the last three is in one commit with the messages that it speaks of. What is staged goes when

    its batch, or a later one of the sink, is published or discarded
    the sink is run anew       each start of a query has a name; a task that outlived the one before is refused
    nobody touched the batch for `staged-timeout`

A sink that was published to is remembered until it is deleted, or its only batch is old enough (`is_single`): one that was forgotten
before would publish a batch twice. So there are no more than `max-sinks-per-user` of them.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections import Counter, deque
from collections.abc import Collection, Generator, Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, Final

from stompbox.broker.engine import Engine
from stompbox.errors import Refused
from stompbox.handles import Large
from stompbox.store.base import STAGED

PartitionAttempt = tuple[int, int]  # partition, attempt

STEP: Final = 100  # attempts that are looked for in one step
MEMORY: Final = 600  # octets of memory that an attempt takes, at a guess
# octets that an attempt counts for at least: it has rows and an entry in the store, and some memory
LEAST: Final = 64 << 10
MOST_NAMED: Final = 100  # addresses of a batch that are remembered by name
MOST_ENDED: Final = 1000  # sinks whose earlier runs are remembered
PUBLISHING: Final = "publishing"
DONE: Final = "publishing-done"
SINK: Final = "sink"


@dataclass(frozen=True, slots=True, eq=False)
class Attempt:
    """What one attempt at a partition has staged. `is_given`: its chunk is the client's own, which has been looked at. `ready`: the chunk
    may be a log's as it lies; the shape of its first message, as bytes, like which all others of it are routed. Empty: it may not."""

    sink: str
    batch: int
    part: PartitionAttempt
    run: str  # which start of the query; empty: not said
    user: str
    body: Large
    count: int  # messages
    is_given: bool
    ready: bytes = b""

    @property
    def size(self) -> int:
        return max(LEAST, self.body.size)

    def entry(self) -> dict[str, object]:
        entry: dict[str, object] = {
            "sink": self.sink, "batch": self.batch, "part": self.part, "run": self.run, "user": self.user,
            "size": self.body.size, "count": self.count, "given": self.is_given,
        }  # fmt: skip
        return entry | ({"ready": b64encode(self.ready).decode()} if self.ready else {})


@dataclass(slots=True)
class Batch:
    """What was staged for one batch of a sink."""

    run: str
    attempts: dict[PartitionAttempt, Attempt] = field(default_factory=dict)
    touched: int = 0  # ms since the epoch

    def touch(self, now: int) -> None:
        """Notes that somebody still wants the batch."""
        self.touched = now


@dataclass(frozen=True, slots=True)
class Prefixes:
    """How the destinations of what was staged are read: as on the listener on which it was published."""

    anycast: list[str]
    multicast: list[str]
    virtual: list[str]
    space: str

    def entry(self) -> dict[str, object]:
        return {
            "anycast": self.anycast,
            "multicast": self.multicast,
            "virtual": self.virtual,
            "space": self.space,
        }


@dataclass(frozen=True, slots=True)
class Published:
    """The last batch of a sink. `addresses`: where it went, by name or all of them as one digest; None: it is one write, wherever it went.
    `until`: when it may be forgotten, ms since the epoch; 0 never."""

    batch: int
    user: str = ""
    addresses: frozenset[str] | None = None
    digest: str = ""
    until: int = 0

    def entry(self) -> dict[str, object]:
        entry: dict[str, object] = {"batch": self.batch, "user": self.user}
        if self.addresses is not None:
            entry |= {"addresses": sorted(self.addresses), "digest": self.digest}
        return entry | ({"until": self.until} if self.until else {})

    def has(self, addresses: frozenset[str]) -> bool:
        """Whether a write of the same batch to these was published before. Raises Refused where nobody can say."""
        if self.addresses is None or not addresses:
            return True
        if self.digest:
            if digest_of(addresses) == self.digest:
                return True
        elif addresses <= self.addresses:
            return True
        elif addresses.isdisjoint(self.addresses):
            return False
        known = next(iter(sorted(addresses & self.addresses)), "some of its addresses")
        text = f"batch {self.batch} of this sink was published to {known!r} already, and this write goes there and elsewhere"
        raise Refused(
            "batch-overlaps",
            f"{text}; two writes of one batch need a sink each, or addresses that they do not share",
        )

    def with_more(self, addresses: frozenset[str] | None) -> Published:
        """What is told after another write of the same batch."""
        if addresses is None or self.addresses is None:
            return self
        both = addresses | self.addresses
        if len(both) > MOST_NAMED:
            return replace(self, addresses=frozenset(), digest=digest_of(both))
        return replace(self, addresses=both)


def _not_staged(sink: str, batch: int, first: PartitionAttempt, missing: int, count: int) -> Refused:
    text = f"sink {sink!r} batch {batch}: nothing is staged for {missing} of {count} attempts"
    return Refused(
        "not-staged",
        f"{text}, the first (partition, attempt) {first}; it was discarded, or is too old (staged-timeout)",
    )


def digest_of(addresses: Iterable[str]) -> str:
    return sha256(json.dumps(sorted(addresses)).encode()).hexdigest()


@dataclass(slots=True, eq=False)
class Publication:
    """A batch on its way: of its attempts so many are `published`, and `done` messages of the next one; `stored` of them are in the log for
    certain and lie with the others no longer, and `attempts` are those that still do."""

    sink: str
    batch: int
    user: str
    attempts: deque[Attempt]
    reading: Prefixes
    after: Published  # what is remembered when it is done
    published: int = 0
    done: int = 0
    stored: int = 0
    is_decided: bool = False
    is_withdrawn: bool = False
    is_whole: bool = False

    @property
    def total(self) -> int:
        return self.stored + len(self.attempts)

    def decide(self) -> None:
        """From the next commit on it is published."""
        self.is_decided = True

    def take_stored(self) -> Attempt:
        """The next attempt, all of which is in the log for certain."""
        self.stored += 1
        return self.attempts.popleft()

    def withdraw(self) -> None:
        """The commit that decided the publication was refused."""
        self.is_withdrawn = True

    def complete(self) -> None:
        """All that was to be published is published."""
        self.is_whole = True

    def entry(self) -> dict[str, object]:
        bodies = [attempt.body.id for attempt in self.attempts]
        return {
            "batch": self.batch,
            "user": self.user,
            "bodies": bodies,
            "reading": self.reading.entry(),
            "after": self.after.entry(),
        }


@dataclass(slots=True)
class KnownSink:
    """What there is of one sink: its last batch, if it has published one, and what it has staged."""

    name: str
    published: Published | None = None
    staged: list[Attempt] = field(default_factory=list)

    @property
    def users(self) -> set[str]:
        return (
            {self.published.user} if self.published is not None else {attempt.user for attempt in self.staged}
        )


class Sinks:
    """All sinks of one engine. `entries`: what the store holds of them."""

    def __init__(self, engine: Engine, entries: Mapping[tuple[str, str], bytes] | None = None) -> None:
        self.engine = engine
        self.most = self.most_of_user = 1 << 62
        self.most_sinks = 1 << 62
        self.timeout = 3_600_000  # ms
        self.size = 0  # octets, staged or on their way there
        self.of_user: Counter[str] = Counter()  # the same, by user
        self.batches: dict[tuple[str, int], Batch] = {}
        self.published: dict[str, Published] = {}
        self.known: Counter[str] = Counter()  # sinks that are remembered, by user
        self.publishing: dict[str, Publication] = {}
        self.ended: dict[str, list[str]] = {}  # runs of a sink that another one has followed
        self._is_watched = False
        if entries:
            self._recall(entries)

    @property
    def memory(self) -> int:
        """How many octets of memory batches take, about."""
        return sum(
            [MEMORY + len(one.ready) for batch in self.batches.values() for one in batch.attempts.values()]
        )

    def limit(self, most: int, most_of_user: int, most_sinks: int, timeout: int) -> None:
        """What is staged stays, and what is remembered."""
        self.most, self.most_of_user, self.most_sinks, self.timeout = most, most_of_user, most_sinks, timeout
        if self.batches:
            self._look()

    # Staging

    def known_sinks(self) -> dict[str, KnownSink]:
        """By name, each that is remembered or has something staged."""
        found = {name: KnownSink(name, published) for name, published in self.published.items()}
        for (name, _), batch in self.batches.items():
            found.setdefault(name, KnownSink(name)).staged.extend(batch.attempts.values())
        return found

    def is_published(self, sink: str, batch: int, *, by_destination: bool = False) -> bool:
        """Whether nothing more is staged for this batch. With `by_destination` another write of the last batch may follow."""
        if sink in self.publishing and batch <= self.publishing[sink].batch:
            return not by_destination or batch < self.publishing[sink].batch
        last = self.published.get(sink)
        return last is not None and (
            batch < last.batch or (batch == last.batch and (not by_destination or last.addresses is None))
        )

    def reserve(self, attempt: Attempt) -> None:
        """Before it is brought to the store. Raises Refused where there is no room; `stage` or `release` must follow."""
        before = self._at(attempt)
        more = attempt.size - (before.size if before is not None else 0)
        if self.size + more > self.most:
            text = f"sinks have staged {self.size} bytes; with {more} more the limit of {self.most} is passed (max-staged-bytes)"
            raise Refused("staging-full", text)
        mine = self.of_user[attempt.user]
        if mine + more > self.most_of_user:
            text = f"sinks of this user have staged {mine} bytes; with {more} more the limit of {self.most_of_user} is passed"
            raise Refused("staging-full", f"{text} (max-staged-bytes-per-user)")
        self._count(attempt, 1)

    def _at(self, attempt: Attempt) -> Attempt | None:
        """The attempt that counts now for this partition."""
        batch = self.batches.get((attempt.sink, attempt.batch))
        return None if batch is None else batch.attempts.get(attempt.part)

    def _count(self, attempt: Attempt, sign: int) -> None:
        self.size += sign * attempt.size
        self.of_user[attempt.user] += sign * attempt.size
        if not self.of_user[attempt.user]:
            del self.of_user[attempt.user]

    def stage(self, attempt: Attempt) -> int:
        """Puts it in the place of the one that was there: how many messages it has."""
        try:
            self.begin_run(attempt.sink, attempt.run)
        except Refused:
            self.release(attempt)
            raise
        before = self._at(attempt)
        if before is not None:
            self._drop(before)
        batch = self.batches.setdefault((attempt.sink, attempt.batch), Batch(attempt.run))
        batch.attempts[attempt.part] = attempt
        batch.touch(self.engine.now)
        self.engine.put(STAGED, str(attempt.body.id), attempt.entry())
        self._watch()
        return attempt.count

    def begin_run(self, sink: str, run: str) -> None:
        """Forgets what other runs of the sink have staged. Raises Refused for one that another has followed."""
        if not run:
            return
        ended = self.ended.get(sink, [])
        if run in ended:
            raise Refused(
                "sink-run-anew",
                f"sink {sink!r} was started again; what its run {run!r} stages is not published any more",
            )
        for key in [
            key for key, batch in self.batches.items() if key[0] == sink and batch.run not in ("", run)
        ]:
            gone = self._drop_batch(key)
            if gone.run not in ended:
                self.ended.pop(sink, None)
                self.ended[sink] = ended = [*ended, gone.run][-8:]
                if len(self.ended) > MOST_ENDED:
                    del self.ended[next(iter(self.ended))]

    def release(self, attempt: Attempt) -> None:
        """Gives up what was reserved and is not staged."""
        self._count(attempt, -1)

    def take_back(self, attempt: Attempt) -> None:
        """Takes back an attempt that could not be stored."""
        if self._at(attempt) is attempt:
            del self.batches[attempt.sink, attempt.batch].attempts[attempt.part]
            self._drop(attempt)

    def _drop(self, attempt: Attempt) -> None:
        """The store lets its body go when the handle is gone."""
        self._count(attempt, -1)
        self.engine.put(STAGED, str(attempt.body.id), None)

    def _drop_batch(self, key: tuple[str, int]) -> Batch:
        gone = self.batches.pop(key)
        for attempt in gone.attempts.values():
            self._drop(attempt)
        return gone

    # Publishing

    def chosen(self, sink: str, batch: int, parts: Iterable[PartitionAttempt]) -> list[Attempt]:
        """What the winning attempts have staged. Raises Refused where it is gone."""
        parts = list(dict.fromkeys(parts))
        found = self.batches.get((sink, batch))
        staged = {} if found is None else found.attempts
        missing = [part for part in parts if part not in staged]
        if missing:
            raise _not_staged(sink, batch, missing[0], len(missing), len(parts))
        if found is not None:
            found.touch(self.engine.now)
        return [staged[part] for part in parts]

    def choosing(
        self, sink: str, batch: int, parts: Collection[PartitionAttempt]
    ) -> Generator[None, None, list[Attempt]]:
        """What `chosen` says, in steps: a client may name many more than there are."""
        first, missing = None, 0
        for at, part in enumerate(parts, 1):
            found = self.batches.get((sink, batch))
            if found is None or part not in found.attempts:
                first, missing = part if first is None else first, missing + 1
            if at % STEP == 0:
                yield
        if first is not None:
            raise _not_staged(sink, batch, first, missing, len(parts))
        return self.chosen(sink, batch, parts)

    def require_known(self, sink: str, user: str) -> None:
        """Raises Refused where no more sinks can be remembered: to forget one could publish a batch of it twice."""
        if sink not in self.published and self.known[user] >= self.most_sinks:
            text = f"{self.known[user]} sinks of this user are remembered, which is the limit (max-sinks-per-user)"
            raise Refused(
                "too-many-sinks", f"{text}; request sink-delete forgets one that will write no more"
            )

    def decide(self, publication: Publication) -> None:
        """From the next commit on it is published, and nothing takes it back. Raises Refused when it is not staged any more."""
        parts = [attempt.part for attempt in publication.attempts]
        if self.chosen(publication.sink, publication.batch, parts) != list(publication.attempts):
            text = f"sink {publication.sink!r} batch {publication.batch}: an attempt was staged anew while the batch was to be published"
            raise Refused("not-staged", text)
        batch = self.batches[publication.sink, publication.batch] if publication.attempts else Batch("")
        for attempt in publication.attempts:
            del batch.attempts[attempt.part]
        publication.decide()
        self.publishing[publication.sink] = publication
        self.engine.put(PUBLISHING, publication.sink, publication.entry())

    def reached(self, publication: Publication) -> None:
        """So much of it is published: with the commit that has it."""
        if publication.published < publication.total:
            self.engine.put(DONE, publication.sink, [publication.published, publication.done])
            return
        publication.complete()
        del self.publishing[publication.sink]
        for kind in (PUBLISHING, DONE):
            self.engine.put(kind, publication.sink, None)
        self._remember(publication.sink, publication.after)
        # writes of the same batch, which may be staged already
        others_may_follow = publication.after.addresses is not None
        self.discard(publication.sink, publication.batch - others_may_follow)

    def stored(self, publication: Publication, published: int) -> None:
        """So many of its attempts are in the log for certain: what was staged of them goes."""
        while publication.stored < published:
            self._drop(publication.take_stored())

    def withdraw(self, publication: Publication, before: Published | None) -> None:
        """The commit that decided it was refused: it is staged as it was."""
        publication.withdraw()
        self.publishing.pop(publication.sink, None)
        for kind in (PUBLISHING, DONE):
            self.engine.put(kind, publication.sink, None)
        self._remember(publication.sink, before)
        for attempt in publication.attempts:
            batch = self.batches.setdefault(
                (attempt.sink, attempt.batch), Batch(attempt.run, touched=self.engine.now)
            )
            batch.attempts.setdefault(attempt.part, attempt)
        self._watch()

    def _remember(self, sink: str, published: Published | None) -> None:
        before = self.published.pop(sink, None)
        if before is not None:
            self._known(before, -1)
        if published is not None:
            self.published[sink] = published
            self._known(published, 1)
            if published.until:
                self._watch()
        self.engine.put(SINK, sink, None if published is None else published.entry())

    def _known(self, published: Published, sign: int) -> None:
        self.known[published.user] += sign
        if not self.known[published.user]:
            del self.known[published.user]

    def discard(self, sink: str, batch: int) -> None:
        """Forgets what is staged of this batch and of older ones."""
        for key in [key for key in self.batches if key[0] == sink and key[1] <= batch]:
            self._drop_batch(key)

    def discard_parts(self, sink: str, batch: int, parts: Collection[PartitionAttempt]) -> None:
        """Forgets these attempts of a batch alone."""
        found = self.batches.get((sink, batch), Batch("")).attempts
        for part in [part for part in found if part in parts]:
            self._drop(found.pop(part))

    def forget(self, sink: str) -> None:
        """The sink is done with: what it has staged goes, and which batch it published last."""
        for key in [key for key in self.batches if key[0] == sink]:
            self._drop_batch(key)
        self.ended.pop(sink, None)
        if sink in self.published:
            self._remember(sink, None)

    # Time

    def _watch(self) -> None:
        if not self._is_watched:
            self._is_watched = True
            self.engine.timers.at(self.engine.now + self.timeout, self._due)

    def _due(self) -> None:
        self._is_watched = False
        self._look()
        if self.batches or any(one.until for one in self.published.values()):
            self._watch()

    def _look(self) -> None:
        """Drops batches and sinks that nobody touched for long."""
        now = self.engine.now
        for key in [key for key, batch in self.batches.items() if batch.touched + self.timeout <= now]:
            self._drop_batch(key)
        for sink in [sink for sink, one in self.published.items() if 0 < one.until <= now]:
            self._remember(sink, None)

    # After a restart

    def _recall(self, entries: Mapping[tuple[str, str], bytes]) -> None:
        values: dict[str, dict[str, Any]] = {kind: {} for kind in (SINK, STAGED, PUBLISHING, DONE)}
        for (kind, key), stored in entries.items():
            if kind in values:
                values[kind][key] = json.loads(stored)
        for sink, value in values[SINK].items():
            self.published[sink] = _published(value)
            self._known(self.published[sink], 1)
        attempts = {int(id): self._attempt(int(id), value) for id, value in values[STAGED].items()}
        for attempt in attempts.values():
            self._count(attempt, 1)
        for sink, value in values[PUBLISHING].items():
            index, done = values[DONE].get(sink, (0, 0))
            self.publishing[sink] = self._publication(sink, value, attempts, index, done)
        for attempt in attempts.values():
            if self.is_published(attempt.sink, attempt.batch, by_destination=True):
                self._drop(attempt)
            else:
                batch = self.batches.setdefault(
                    (attempt.sink, attempt.batch), Batch(attempt.run, touched=self.engine.now)
                )
                batch.attempts[attempt.part] = attempt
        if self.batches or self.published:
            self._watch()

    def _attempt(self, id: int, value: Mapping[str, Any]) -> Attempt:
        partition, attempt = value["part"]
        body = self.engine.bodies.recall(id, value["size"])
        return Attempt(
            value["sink"],
            value["batch"],
            (partition, attempt),
            value["run"],
            value["user"],
            body,
            value["count"],
            value["given"],
            b64decode(value.get("ready", "")),
        )

    def _publication(
        self, sink: str, value: Mapping[str, Any], attempts: dict[int, Attempt], index: int, done: int
    ) -> Publication:
        """What is left of it; those that are published may lie in the store still."""
        for id in value["bodies"][:index]:
            if id in attempts:
                self._drop(attempts.pop(id))
        batch, user = value["batch"], value["user"]
        gone = [
            Attempt(sink, batch, (0, 0), "", user, Large(id, 0), 0, is_given=False) for id in value["bodies"]
        ]  # whoever reads it is told
        left = deque([attempts.pop(none.body.id, none) for none in gone[index:]])
        reading, after = Prefixes(**value["reading"]), _published(value["after"])
        found = Publication(sink, batch, user, left, reading, after, done=done, is_decided=True)
        self.engine.put(PUBLISHING, sink, found.entry())
        self.engine.put(DONE, sink, [0, done])
        return found

    def __repr__(self) -> str:
        return f"<Sinks batches={len(self.batches)} publishing={len(self.publishing)} {self.size} of {self.most} bytes>"


def _published(value: Mapping[str, Any]) -> Published:
    addresses = value.get("addresses")
    known = None if addresses is None else frozenset(addresses)
    return Published(
        value["batch"], value.get("user", ""), known, value.get("digest", ""), value.get("until", 0)
    )
