"""What readers were shown that take nothing from anybody: of a non-destructive queue, of a log from an offset on; and reader groups.

| code      | what was broken                                                                                                 |
|-----------|------------------------------------------------------------------------------------------------------------------|
| unshown   | it was there before a reader came, and he was not shown it; or the queue has lost it                              |
| repeated  | a reader was shown it twice                                                                                       |
| disorder  | a reader was shown what was sent later first                                                                      |
| moved     | another message stands at its offset than before, or it at another one                                            |
| behind    | a group is before a position that was confirmed                                                                   |
| ahead     | a group is where nobody has told it to go                                                                         |
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tests.crash.events import Event, Got, Moved, Moving, Sent, Shown, Stood
from tests.crash.features import LOG, sources_of

if TYPE_CHECKING:
    from tests.crash.fates import Fates


class Readings:
    """Beside the audit of what is taken."""

    def __init__(self, fates: Fates) -> None:
        self.fates = fates
        self.shown: list[Shown] = []
        self.moving: dict[str, list[Moving]] = defaultdict(list)  # by group
        self.moved: dict[str, list[Moved]] = defaultdict(list)
        self.stood: list[Stood] = []

    def add(self, event: Event) -> None:
        match event:
            case Shown():
                self.shown.append(event)
            case Moving():
                self.moving[event.group].append(event)
            case Moved():
                self.moved[event.group].append(event)
            case Stood():
                self.stood.append(event)

    def problems(self) -> list[str]:
        return [*self._offsets(), *self._sights(), *self._groups()]

    # Queues and logs

    def _sights(self) -> Iterator[str]:
        must = {source: sorted(self._kept(source)) for source in {event.source for event in self.shown}}
        for event in self.shown:
            yield from (
                f"repeated: {message} of {event.source} to {event.link}"
                for message, n in Counter(event.messages).items()
                if n > 1
            )
            there, until = set(event.messages), event.offsets[-1] if event.offsets else -1
            for at, message in must[event.source]:
                if at >= event.asked:
                    break
                is_within = event.source != LOG.name or event.start <= self.offsets.get(message, -1) <= until
                if is_within and message not in there:
                    yield f"unshown: {message} of {event.source} to {event.link}"
            yield from self._order(event)

    def _kept(self, source: str) -> Iterator[tuple[int, str]]:
        """(when it was confirmed or due, message) of all that stay there."""
        for message, sent in self.fates.sent.items():
            at = self.fates.confirmed_at.get(sent.transaction or message, 0)
            unit = self.fates.unit_of.get(message)
            if (
                at > 0
                and sent.persistent
                and not sent.traits.expires
                and unit is not None
                and unit.ends
                and source in sources_of(sent)
            ):
                yield max(at, self._due(sent)), message

    def _due(self, sent: Sent) -> int:
        """When it must have come for certain: the delay began when the broker got it, and its timers may be late."""
        traits = sent.traits
        latest = self.fates.confirmed_at.get(sent.transaction or sent.message, 0)
        return latest + traits.delay * 1_000_000 + 3_000_000_000 if traits.delay else 0

    def _order(self, event: Shown) -> Iterator[str]:
        """As for consumers, but that nothing comes back."""
        received = [Got(event.asked, event.link, event.source, message, False) for message in event.messages]
        yield from self.fates.order_of((got, self._lane(got)) for got in received)

    def _lane(self, got: Got) -> tuple[str, ...] | None:
        sent = self.fates.sent.get(got.message)
        producer = got.message.rpartition(".")[0]
        if sent is None or self.fates.may_be_late(sent):
            return None
        return (producer,) if got.source == LOG.name else (producer, str(sent.traits.priority))

    def _offsets(self) -> Iterator[str]:
        """An offset that was shown has one message for ever, whatever has become of its broker since; and a message that was sent once has
        one offset."""
        self.offsets: dict[str, int] = {}
        at: dict[int, str] = {}
        pairs = [
            pair
            for event in self.shown
            for pair in zip(event.offsets, event.messages, strict=event.source == LOG.name)
        ]
        pairs += [
            (got.offset, got.message)
            for deliveries in self.fates.got.values()
            for got in deliveries
            if got.offset >= 0
        ]
        for offset, message in pairs:
            if at.setdefault(offset, message) != message:
                yield f"moved: {message} stands at {offset}, where {at[offset]} stood"
            elif message not in self.fates.repeated and self.offsets.setdefault(message, offset) != offset:
                yield f"moved: {message} stands at {offset}, and stood at {self.offsets[message]}"
        for event in self.shown:
            wrong = [offset for offset in event.offsets if offset < event.start]
            yield from (
                f"moved: {event.link} was shown {offset} and began at {event.start}" for offset in wrong
            )

    # Groups

    def _groups(self) -> Iterator[str]:
        for event in self.stood:
            least = max(
                [moved.position for moved in self.moved[event.group] if moved.time < event.asked], default=0
            )
            if event.position < least:
                yield f"behind: group {event.group} is at {event.position} for {event.link}, {least} was confirmed before"
            if event.position > 0 and event.position not in {
                moving.position for moving in self.moving[event.group]
            }:
                yield f"ahead: group {event.group} is at {event.position} for {event.link}, where nobody has put it"
