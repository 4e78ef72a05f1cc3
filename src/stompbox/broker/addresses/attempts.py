"""Messages that come back unacknowledged: what counts as an attempt, how long they wait, and when it is enough.

| they come back by             | JMSXDeliveryCount | an attempt                                   | and then                          |
|-------------------------------|-------------------|----------------------------------------------|-----------------------------------|
| NACK                          | +1                | yes, each of them                            | wait for `redelivery-delay`       |
| the loss of their connection  | of the oldest +1  | of the oldest of each subscription           | the oldest waits, the rest at once |
| UNSUBSCRIBE, DISCONNECT, stop | +1                | no                                           | at once                           |

The oldest one is taken for the message that its client was at when it went: what was sent ahead has done nothing, and is not to die of
it. Where a client works on several at a time, the one that brings it down becomes the oldest in its turn.

After `max-delivery-attempts` a message is a dead letter. Where dead letters go already it stays: there is nowhere to go from there. It
is then delivered again at most once in PAUSE, so that two who cannot agree do not keep the broker busy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final

from stompbox.broker.addresses import deadletters
from stompbox.broker.addresses.queuearguments import settings_of
from stompbox.broker.logs.segments import Segment
from stompbox.broker.queues import counts, dispatching
from stompbox.broker.queues.consumer import Sent, order
from stompbox.broker.undelivered import REJECTED, TOO_OFTEN, Fate

if TYPE_CHECKING:
    from stompbox.broker.engine import Engine
    from stompbox.broker.queues.queue import Queue
    from stompbox.config.settings import AddressSettings

PAUSE: Final = 1000  # ms
STEP: Final = 100  # segments that come back in one step: less than a millisecond


class Outcome(Enum):
    """Why messages that a consumer had come back unacknowledged, and what each of them is counted for it."""

    RETURNED = "returned"  # an orderly end, ABORT: a delivery, but no attempt
    LOST = "lost"  # the connection was lost: an attempt of the oldest; the others were waiting for their turn, and nothing is counted
    FAILED = "failed"  # NACK: an attempt
    REJECTED = "rejected"  # NACK with requeue:false: a dead letter at once


def redelivery_delay(settings: AddressSettings, failures: int, chance: Callable[[], float]) -> int:
    """How long a message waits that has failed so often, in ms (Artemis: redelivery-delay and its companions). `chance`: Engine.chance."""
    first = settings.redelivery_delay
    most = settings.max_redelivery_delay if settings.max_redelivery_delay >= 0 else 10 * first
    try:
        delay = min(float(most), first * settings.redelivery_delay_multiplier ** (failures - 1))
    except OverflowError:
        delay = float(most)
    spread = settings.redelivery_collision_avoidance_factor
    if spread:
        delay += delay * spread * (2 * chance() - 1)
    return max(0, int(min(delay, most)))


def give_back(engine: Engine, sent: Sequence[Sent], outcome: Outcome, written: int) -> None:
    """The same at once."""
    for _ in giving_back(engine, sent, outcome, written):
        pass


def giving_back(engine: Engine, sent: Sequence[Sent], outcome: Outcome, written: int) -> Iterator[None]:
    """What one subscription had and did not acknowledge, in steps; what was handed out after `written` never left. Dispatch follows
    when all are back."""
    if len(sent) <= STEP:
        queues: Iterable[Queue] = _give_back(engine, sent, outcome, written, _oldest(sent, outcome))
        for queue in queues:
            queue.dispatch()
        return
    found: dict[Queue, None] = {}
    eldest = []
    for part in _parts(sent):
        found.update(dict.fromkeys([binding.queue for binding, _ in part]))
        first = _oldest(part, outcome)
        eldest += [one for one in part if one[1] is first]
        yield
    queues = [queue for queue in found if queue.id in engine.queues]
    dispatching.withhold(engine, queues)
    oldest = _oldest(eldest, outcome)
    for part in _parts(sent):
        _give_back(engine, part, outcome, written, oldest)
        yield
    dispatching.release(engine, queues)
    for queue in queues:
        if queue.id in engine.queues:
            queue.dispatch()
            yield


def _parts(sent: Sequence[Sent]) -> Iterator[Sequence[Sent]]:
    for at in range(0, len(sent), STEP):
        yield sent[at : at + STEP]


def _oldest(sent: Sequence[Sent], outcome: Outcome) -> Segment | None:
    return min(sent, key=order)[1] if sent and outcome is Outcome.LOST else None


def _give_back(engine: Engine, sent: Sequence[Sent], outcome: Outcome, written: int, oldest: Segment | None) -> dict[Queue, None]:
    """The queues that have them now."""
    queues: dict[Queue, None] = {}
    for binding, segment in sent:
        queue = binding.queue
        if queue.id not in engine.queues:
            continue
        queues[queue] = None
        if segment.turn > written:
            segment.is_suspect |= engine.counts_first
            queue.take_back(segment)
        elif segment is oldest and len(segment) > 1:
            _come_back(queue, segment.cut(segment.first + 1), Outcome.FAILED)
            _come_back(queue, segment, outcome)
        else:
            _come_back(queue, segment, Outcome.FAILED if segment is oldest else outcome)
    return queues


def _come_back(queue: Queue, segment: Segment, outcome: Outcome) -> None:
    segment.deliveries += outcome is not Outcome.LOST
    segment.failures += outcome is Outcome.FAILED
    segment.is_suspect = True
    counts.tell(queue, segment)
    if segment.run.is_withdrawn or (queue.reads_the_log and not queue.bindings):
        queue.take_back(segment)
    elif outcome is Outcome.REJECTED:
        queue.die(segment, REJECTED)
    elif outcome is not Outcome.FAILED:
        queue.take_back(segment)
    elif _has_failed_enough(queue, segment):
        _fail_for_good(queue, segment)
    elif settings_of(queue).redelivery_delay > 0:
        _delay(queue, segment)
    else:
        queue.take_back(segment)


def _has_failed_enough(queue: Queue, segment: Segment) -> bool:
    return segment.failures > 0 and 0 <= settings_of(queue).max_delivery_attempts <= segment.failures


def is_spent(queue: Queue, segment: Segment) -> bool:
    """Messages that were found in the log had all their attempts before a restart."""
    return _has_failed_enough(queue, segment) and not deadletters.is_last_stop(queue)


def _fail_for_good(queue: Queue, segment: Segment) -> None:
    engine, settings = queue.engine, settings_of(queue)
    if not deadletters.is_last_stop(queue):
        queue.die(segment, TOO_OFTEN)
        return
    if segment.failures == settings.max_delivery_attempts:
        engine.undelivered.note(queue.name, TOO_OFTEN, Fate.KEPT, len(segment))
    queue.set_aside(segment, max(PAUSE, redelivery_delay(settings, segment.failures, engine.chance)))


def _delay(queue: Queue, segment: Segment) -> None:
    """Each message for itself where they are to be spread: those that failed together would come together again."""
    settings, chance = settings_of(queue), queue.engine.chance
    each = 1 if settings.redelivery_collision_avoidance_factor else len(segment)
    while len(segment) > each:
        queue.set_aside(segment.cut(segment.first + each), redelivery_delay(settings, segment.failures, chance))
    queue.set_aside(segment, redelivery_delay(settings, segment.failures, chance))
