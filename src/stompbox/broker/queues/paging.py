"""Queues whose backlog does not fit in memory: from some offset on the log alone has their messages, and they are loaded in order.

A queue keeps the next of its messages in memory, up to `Engine.page_size`, or until its address or all queues together have what they
may (memory.py). From then on what comes stays in the log. The next part is asked for while consumers get the last one, as long as what
was read and is not acknowledged is below `max-read-page-bytes`. When memory is full a queue reads only for a consumer that waits,
and keeps only a SHARE of what was read.

A queue with a stored cursor holds them in the log by that; one without, by a mark of its own among the log's cursors.

A consumer with a selector may find its next message further back in the log than memory reaches. When memory is full of messages that
others are to take, or nobody takes, a consumer with credit must not wait for them. What is for it is looked for in the log, from where
the search for those with its selector ended last (`Alike.searched`), and handed out at once; the rest stays where it is. The queue's
`taken_ahead` remembers what was taken in this way, so that it is not loaded again. Each consumer's messages come in order: a search that
met one for which none of them had credit goes on with that one. However many they are, one message costs a look at each selector.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from stompbox.broker.logs.cursor import FAR
from stompbox.broker.logs.segments import Segment, cost_of
from stompbox.broker.queues.consumer import with_credit
from stompbox.broker.queues.contracts import Load, Then
from stompbox.broker.queues.room import Room, Unread
from stompbox.broker.work import ASKED, HANDED, LOOK, MESSAGE

if TYPE_CHECKING:
    from stompbox.broker.queues.consumer import Binding
    from stompbox.broker.queues.contracts import Engine
    from stompbox.broker.queues.logged import LoggedQueue
    from stompbox.broker.queues.roundrobin import RoundRobin
    from stompbox.broker.queues.sharing import Alike
    from stompbox.broker.queues.state import QueueState
    from stompbox.config.settings import AddressSettings
    from stompbox.message import Run
    from stompbox.selectors import Selector

SHARE: Final = 256 << 10  # octets that a queue may have in memory although memory is full,
LITTLE: Final = 16 << 10  # and where these are so many that it is crowded
_SEARCHED: Final = attrgetter("searched")
KEYED: Final = 50  # messages of a last-value queue that are looked through in one go: half a millisecond


def portions(
    queue: LoggedQueue, run: Run, start: int, stop: int, looks: int = 0
) -> Iterator[tuple[int, int]]:
    """What a run has of start .. stop-1, in portions whose messages one turn may ask selectors about, or look for the keys of. `looks`:
    steps that it takes to find out who gets one of them, beside that."""
    first, stop = max(run.first, start), 0 if run.is_withdrawn else min(run.stop, stop)
    steps = looks + queue.backlog.selectors.steps
    steps += sum([selector.most_steps for selector in queue.sifting if selector is not None])
    most = max(1, queue.engine.work.portion // steps) if steps else len(run.bodies)
    most = min(most, KEYED) if queue.rules.last_value_key else most
    while first < stop:
        end = min(first + most, stop)
        yield first, end
        first = end


def fits(queue: LoggedQueue, size: int, segment: Segment) -> bool:
    """Whether a queue that has `size` octets in memory takes a segment there."""
    cost = segment.cost
    return size + cost <= queue.engine.page_size and queue.address.memory.takes(cost, len(segment))


def wants_more(queue: LoggedQueue) -> bool:
    """Whether the next part of the log is to be read now. Who has no credit makes it look again when he is fed, and where consumers have
    too much, what they give back does."""
    settings = queue.address.settings
    if queue.count and not _reads_ahead(queue, settings):
        return False
    if queue.address.memory.is_full and not _has_hungry(queue):
        return False
    return not queue.delivering or _may_read(queue, settings)


def _has_hungry(queue: LoggedQueue) -> bool:
    """Whether a consumer has credit. Who has none is left out until he is fed, so that nobody is asked twice."""
    ready = queue.ready
    if not ready.is_lasting:  # one at the most
        return bool(with_credit(ready))
    while ready:
        if ready[-1].consumer.has_credit:
            return True
        ready[-1].leave_out(ready)
    return False


def reads_for_itself(queue: LoggedQueue) -> bool:
    """A non-destructive queue has no consumers for whom it reads the log, but what expires or is replaced there must go.

    It does so as long as half of the memory is free: what it read would be the first to be given back.
    """
    memory = queue.address.memory
    return queue.rules.is_non_destructive and all(
        2 * known.size <= known.most for known in (memory, memory.whole or memory)
    )


def _reads_ahead(queue: LoggedQueue, settings: AddressSettings) -> bool:
    """Although something waits: as long as that is at most half of what may be read ahead."""
    if queue.address.memory.is_full or 0 <= settings.prefetch_page_messages <= queue.count:
        return False
    most = settings.prefetch_page_bytes if settings.prefetch_page_bytes >= 0 else _most_read(settings)
    return 2 * queue.size <= min(most, queue.engine.page_size)


def _most_read(settings: AddressSettings) -> int:
    return settings.max_read_page_bytes if settings.max_read_page_bytes >= 0 else 2 * settings.page_size_bytes


def _may_read(queue: LoggedQueue, settings: AddressSettings) -> bool:
    """Consumers have not too much that they did not acknowledge; who has nothing gets something."""
    count = queue.count + queue.delivering
    if queue.size + queue.out < _most_read(settings) and not 0 <= settings.max_read_page_messages <= count:
        return True
    if queue.room is None:
        queue.begin_room(Room(queue))
    return queue.room is not None and queue.room.has_idle_or_waits(queue)


def put_off(queue: LoggedQueue, run: Run) -> bool:
    """Its selector is asked later whether it takes a run that the log is about to get. False where the queue's rules must know now."""
    if queue.admission is not None:
        return False
    if queue.paged_from < 0:
        queue.leave_in_log(run.first)
    if queue.tally is not None:
        queue.unasked.add(run.first, run.stop)
    queue.engine.dispatch_later(queue)
    return True


def count_out(queue: LoggedQueue, segment: Segment) -> None:
    """Its selector does not take them: where it was not asked when they came (address.py), they have counted until now."""
    if queue.tally is not None:
        for first, stop in queue.unasked.within(segment.first, segment.stop):
            part = segment.part(first, stop)
            queue.tally.gone(part.size, len(part), part.run.shape)


def is_enough(queue: LoggedQueue) -> bool:
    """Whether enough was read for a queue, which keeps what it has by now; the rest stays in the log."""
    return queue.size > SHARE and queue.address.memory.is_full


def load(engine: Engine, queue: LoggedQueue) -> None:
    """Fetches what a paged queue has next: from memory where it is not on disk yet, else by a Load."""
    log = queue.address.log
    if queue.is_loading or queue.paged_from < 0:
        return
    if queue.id not in engine.queues:  # it has gone since this was put off
        return
    if engine.work.is_over:  # what is next may be in memory, and its messages are asked about at once
        engine.later.add((load, queue), partial(load, engine, queue), by=queue.client)
        return
    start = max(queue.paged_from, queue.cursor.position)
    if start < log.oldest and queue.moves_by_itself:
        engine.counters["retention"] += log.count([(start, log.oldest)])  # gone before this reader came
        start = log.oldest
    unread = queue.begin_loading(start)
    if unread is not None and unread.start == start:
        queue.loaded(unread.runs, start, unread.stop)
        return
    found = read(engine, queue, start, _found)
    if found is not None:
        queue.loaded(found[0], start, found[1])


def _found(queue: LoggedQueue, runs: list[Run], start: int, stop: int) -> None:
    """What the disk has, complete up to `stop`. Where memory is full the queue has no more of it than it may: runs are cut, so that no
    message keeps its neighbours in memory."""
    if queue.address.memory.is_full:
        runs, stop = _some(runs, start, stop, LITTLE if queue.address.memory.is_crowded else SHARE)
    queue.loaded(runs, start, stop)


def _some(runs: list[Run], start: int, stop: int, room: int) -> tuple[list[Run], int]:
    """Messages from `start` on that go into so many octets, one at the least, and up to where that is all."""
    found: list[Run] = []
    for run in runs:
        low = max(run.first, start)
        if low >= run.stop:
            continue
        each = cost_of(run) // len(run.bodies) + 1
        high = min(run.stop, low + max(room // each, 0 if found else 1))
        if high > low:
            is_whole = (low, high) == (run.first, run.stop)
            found.append(run if is_whole else run.part(low - run.first, high - run.first))
        if high < run.stop:
            return found, min(high, stop)
        room -= each * (high - low)
    return found, stop


def forgo(queue: LoggedQueue) -> None:
    """Nothing is to be read now: where memory is full, what was read and is not looked through is not kept until then."""
    if queue.unread is not None and queue.address.memory.is_full and not queue.is_halfway:
        queue.keep_unread(None)


def read(
    engine: Engine, queue: LoggedQueue, start: int, then: Then, most: int = FAR
) -> tuple[list[Run], int] | None:
    """What memory has of the log from `start` on, and up to where that is all; None: the disk is asked, up to `most`, and tells `then`."""
    log, end = queue.address.log, max(start, queue.log_end)
    on_disk = log.on_disk(start)
    if on_disk <= start:
        runs, stop = log.in_memory(start)
        return [run for run in runs if run.first < end], min(stop, end)
    engine.loads.append(Load(queue, start, min(most, on_disk, end), then))
    return None


def drop_withdrawn(queue: LoggedQueue, runs: Sequence[Run]) -> None:
    """What waits and could not be stored goes, also what of these the log alone was to have; what is out goes when it comes back."""
    if queue.count:
        for segment in queue.backlog.since(min([run.first for run in runs])):
            if segment.run.is_withdrawn:
                queue.drop(queue.backlog.remove(segment), "withdrawn")
    if queue.paged_from >= 0 and (queue.tally is not None or queue.admission is not None):
        for run in runs:
            _drop_from_log(queue, run)


def _drop_from_log(queue: LoggedQueue, run: Run) -> None:
    """The log alone was to have it: it counts no more."""
    for low, high in queue.still_in_log(max(run.first, queue.paged_from), run.stop):
        for segment, is_wanted in sifted(queue, run, low, high):
            if is_wanted:
                if queue.admission is not None:
                    queue.admission.loaded(segment)
                queue.drop(segment, "withdrawn")


def is_gone(queue: LoggedQueue, run: Run, first: int) -> bool:
    """Whether a restart has ended its messages, although the log still has them: they are not persistent."""
    return first < queue.suspect_below and queue.address.is_volatile(run)


def is_doubtful(queue: QueueState, segment: Segment) -> bool:
    """What becomes of these messages now may have become of them before a crash, and nobody knows."""
    return segment.run.shape.is_suspect or segment.first < queue.doubted_below


def is_sifted_at_once(queue: LoggedQueue, run: Run, first: int, stop: int) -> bool:
    """Whether the queue's selectors have been asked; else the turn's work is used up, and the next turn goes on with it."""
    asked = [selector for selector in queue.sifting if selector is not None]
    return (
        not asked
        or not queue.wants(run)
        or is_gone(queue, run, first)
        or all(
            queue.address.is_answered(selector, Segment(run, low, high), queue.id, waits=False)
            for low, high in queue.still_in_log(first, stop)
            for selector in asked
        )
    )


def sifted(queue: LoggedQueue, run: Run, first: int, stop: int) -> Iterator[tuple[Segment, bool]]:
    """What was found in the log, and whether it is for this queue."""
    is_old = first < queue.suspect_below
    if not queue.wants(run) or is_gone(queue, run, first):
        yield Segment(run, first, stop), False
        return
    for low, high, is_wanted in queue.address.verdicts(queue, run, first, stop):
        segment = Segment(run, low, high, is_suspect=first < queue.doubted_below)
        if is_old and queue.counts is not None:
            for part in queue.counts.parted(segment):
                yield part, is_wanted
        else:
            yield segment, is_wanted


def look_ahead(engine: Engine, queue: LoggedQueue) -> None:
    """For those who have credit, now that memory has nothing for them."""
    if queue.is_loading or queue.is_halfway or queue.admission is not None or queue.groups is not None:
        return
    if queue.backlog.unsorted:  # memory may have something for them
        return
    start, unsearched = _wanted_from(queue), queue.keep_unsearched(None)
    if start >= queue.log_end:
        return
    if unsearched is not None and unsearched.start <= start < unsearched.stop:
        _go_on(queue, unsearched.runs, start, unsearched.stop)
        return
    there = read(engine, queue, start, _looked_ahead)
    if there is None:
        queue.wait_for_log(is_waiting=True)
    else:
        _go_on(queue, there[0], start, there[1])


def _wanted_from(queue: LoggedQueue) -> int:
    """From where on the log is looked through for those who have credit: those of them who are furthest back."""
    hungry = [alike.searched for alike in queue.alikes if _is_hungry(queue, alike)]
    return max(min(hungry), queue.paged_from) if hungry else FAR


def _is_hungry(queue: LoggedQueue, alike: Alike) -> bool:
    """Whether one of them has credit, and memory has nothing for it. Who has credit again and was not fed yet is fed first: what is in
    memory comes before what is further back."""
    if queue.takers is not queue.bindings:  # one or none
        return any(_is_fed(queue, binding) for binding in with_credit(queue.takers))
    awake = alike.awake
    if not awake or alike.is_starving(queue.engine.work):
        return False
    return _is_fed(queue, awake[-1]) or any(_is_fed(queue, binding) for binding in awake)


def _is_fed(queue: LoggedQueue, binding: Binding) -> bool:
    return queue not in binding.consumer.starved


def _go_on(queue: LoggedQueue, runs: list[Run], start: int, stop: int) -> None:
    """With what was read; the rest of the log comes later, and so do those who were not asked."""
    if _hand_out(queue, runs, start, stop) < queue.log_end or queue.backlog.selectors.is_heavy:
        queue.engine.dispatch_later(queue)


def _looked_ahead(queue: LoggedQueue, runs: list[Run], start: int, stop: int) -> None:
    """What was read for a search; complete up to `stop`. Who has got credit meanwhile may be further back: he comes before."""
    queue.wait_for_log(is_waiting=False)
    is_sorted = not queue.is_halfway and not queue.backlog.unsorted
    if 0 <= queue.paged_from <= start and is_sorted and _wanted_from(queue) >= start:
        _hand_out(queue, runs, start, stop)
    queue.dispatch()


def _hand_out(queue: LoggedQueue, runs: list[Run], start: int, stop: int) -> int:
    """Up to where the runs were looked through, before the turn's work was used up."""
    search = _Search(queue, start)
    reached = _search(queue, runs, (start, stop), search)
    search.end(reached)
    return reached


class _Search:
    """A look through the log from `start` on. `active`: those to whose places it has come, by their selectors; who has none is
    `unselective`. Who met a message for which nobody had credit waits there, and is neither."""

    __slots__ = ("_behind", "_coming", "active", "unselective")

    def __init__(self, queue: LoggedQueue, start: int) -> None:
        self._behind = queue.paged_from
        self.active: dict[Selector, Alike] = {}
        self.unselective: Alike | None = None
        # those whose places are further on, the nearest last
        self._coming = sorted(
            [alike for alike in _searching(queue) if self.searched(alike) >= start],
            key=_SEARCHED,
            reverse=True,
        )

    def searched(self, alike: Alike) -> int:
        """Up to where all has been looked through for them."""
        return max(alike.searched, self._behind)

    def come_to(self, stop: int) -> None:
        """The search goes on to this offset."""
        while self._coming and self.searched(self._coming[-1]) < stop:
            alike = self._coming.pop()
            if alike.selector is None:
                self.unselective = alike
            else:
                self.active[alike.selector] = alike

    def takers(self, lane: frozenset[Selector], first: int, *, is_shared: bool) -> list[Alike]:
        """Who takes what lies there in the log and belongs to a lane."""
        asked = [selector for selector in lane if selector in self.active] if is_shared else list(self.active)
        found = [self.active[selector] for selector in asked]
        if self.unselective is not None:
            found.append(self.unselective)
        return [alike for alike in found if self.searched(alike) <= first]

    def wait(self, alike: Alike, offset: int) -> None:
        """Nobody of them has credit for what lies there."""
        alike.search_from(offset)
        if alike.selector is None:
            self.unselective = None
        else:
            del self.active[alike.selector]

    def end(self, reached: int) -> None:
        """For those who are here the next search begins there."""
        self.come_to(reached)
        for alike in [*self.active.values(), *([] if self.unselective is None else [self.unselective])]:
            if self.searched(alike) < reached:
                alike.search_from(reached)


def _searching(queue: LoggedQueue) -> list[Alike]:
    """For whom the log is looked through: all, or where that were too much for one turn, those who take everything, and who are furthest
    back."""
    alikes = queue.alikes
    queue.engine.work.spend(len(alikes))
    if not queue.backlog.selectors.is_heavy:
        return alikes
    found: list[Alike] = []
    steps, most = 0, queue.engine.work.portion
    for alike in sorted(alikes, key=_rank):
        more = 0 if alike.selector is None else alike.selector.most_steps
        if steps and steps + more > most:
            break
        steps += more
        found.append(alike)
    return found


def _rank(alike: Alike) -> tuple[bool, bool, int]:
    """Who takes everything is offered whatever is found."""
    return alike.selector is not None, not alike.awake, alike.searched


def _search(
    queue: LoggedQueue,
    runs: list[Run],
    part: tuple[int, int],
    search: _Search,
) -> int:
    start, stop = part
    work = queue.engine.work
    for number, run in enumerate(runs):
        for first, end in portions(queue, run, start, stop, HANDED):
            work.spend(MESSAGE)
            if not is_sifted_at_once(queue, run, first, end):
                queue.keep_unsearched(Unread(runs[number:], first, stop))
                return first
            for low, high in queue.still_in_log(first, end):
                for segment, is_wanted in sifted(queue, run, low, high):
                    if not (is_wanted and _is_plain(queue, run)) or queue.engine.is_spent(queue, segment):
                        continue
                    if not _offer_found(queue, segment, search):
                        queue.keep_unsearched(Unread(runs[number:], segment.first, stop))
                        return segment.first
            if end < stop and work.is_late:
                queue.keep_unsearched(Unread(runs[number:], end, stop))
                return end
    return stop


def _offer_found(queue: LoggedQueue, segment: Segment, search: _Search) -> bool:
    """To those whose search has come here; only their selectors are asked. False: they are to be asked again in another turn."""
    search.come_to(segment.stop)
    work, asked, is_long = queue.engine.work, search.active, queue.backlog.selectors.is_long
    if is_long and not all(queue.address.is_answered(selector, segment, queue.id) for selector in asked):
        return False
    for lane, part in queue.backlog.parted(segment, asked):
        takers = search.takers(lane, part.first, is_shared=queue.is_shared)
        work.spend(LOOK * (1 + len(takers)))
        if not takers:
            continue
        first, stop = part.first, part.stop
        is_left = _hand_out_found(queue, lane, part)
        reached = stop if is_left is False else part.first
        queue.taken_ahead.add(first, reached)
        if is_left is None:
            return False
        if is_left:
            for alike in takers:
                search.wait(alike, reached)
    return True


def _hand_out_found(queue: LoggedQueue, lane: frozenset[Selector], part: Segment) -> bool | None:
    """Gives what was found to those who take it and have credit, some at a time. Whether something is left, for which nobody has any; None:
    not all of very many were asked."""
    while found := _some_of(queue, queue.takers_of(lane), len(part)):
        queue.engine.work.spend(HANDED)
        if not queue.share_among(part, found):
            return False
    return True if found is not None else None


def _some_of(queue: LoggedQueue, takers: RoundRobin[Binding], most: int) -> list[Binding] | None:
    """The next of these that have credit, `most` of them; those without are left out. None: not all of very many were asked."""
    count, most = len(takers), min(most, ASKED)
    first = 0 if queue.has_tiers else takers.turn + 1
    found: list[Binding] = []
    gone: list[Binding] = []
    for asked in range(count):
        binding = takers[(first + asked) % count]
        if not binding.consumer.has_credit:
            gone.append(binding)
        elif _is_fed(queue, binding):
            found.append(binding)
        if len(found) == most or len(gone) == ASKED:
            takers.going_on((first + asked) % count)
            break
    queue.engine.work.spend(LOOK * (len(found) + len(gone)))
    for binding in gone:
        binding.leave_out(takers)
    return found if found or len(gone) < ASKED else None


def _is_plain(queue: LoggedQueue, run: Run) -> bool:
    """Scheduled messages and groups are found in the ordinary way, also those whose time is over while others wait that come before."""
    special = run.shape.special
    if special is None:
        return True
    due = special.delivery_time(run.arrived)
    return not special.is_grouped and due <= queue.engine.now and not (due and queue.is_behind)
