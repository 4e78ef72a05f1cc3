"""persist-delivery-count-before-delivery: an attempt is in the store before its message goes out.

Then a message that brings a broker or its consumers down has used up an attempt, also where nobody could say so afterwards. As where a
connection is lost (broker/addresses/redelivery.py) it is the oldest message of a subscription that is counted: what goes to a consumer
that has nothing else. It costs a commit for each such delivery. While the disk refuses commits these wait, and what is behind them;
ack:auto and what is not stored need no counting and go out at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stompbox.broker.logs.segments import Segment
from stompbox.broker.queues.consumer import AckMode, Consumer, Output

if TYPE_CHECKING:
    from stompbox.server.seam import Core


class Counting:
    """Consumers whose messages wait for the commit that counts them."""

    def __init__(self, broker: Core) -> None:
        self.broker = broker
        broker.engine.counts_first = True
        # the commit's sequence, and the last turn that it has
        self._waiting: dict[Consumer, tuple[int, int]] = {}
        self._counted: dict[Consumer, int] = {}  # up to this turn

    def hold_back(self, consumer: Consumer) -> list[Output]:
        """Takes what may not go yet out of its outbox; what is not on its way to the store goes into the next commit."""
        if consumer.ack is AckMode.AUTO or not consumer.outbox:
            return []
        counted = self._counted.get(consumer, 0)
        held = [output for output in consumer.outbox if output.turn > counted]
        if held and consumer not in self._waiting:
            if not self._tell(consumer, held):
                return []
            self.broker.is_wanted = True
            if consumer not in self._counted:
                self._counted[consumer] = 0
                consumer.on_close.append(lambda: self._forget(consumer))
            self._waiting[consumer] = self.broker.sequence, held[-1].turn
        if held:
            del consumer.outbox[-len(held) :]
        return held

    def _tell(self, consumer: Consumer, held: list[Output]) -> bool:
        """The attempt of the oldest goes into the next commit. False: it is with the consumer already, or nothing of it is stored."""
        if consumer.messages_out > sum([output.stop - output.first for output in held]):
            return False
        oldest = held[0]
        segment = Segment(
            oldest.run, oldest.first, oldest.first + 1, oldest.deliveries + 1, oldest.failures + 1
        )
        return oldest.binding.queue.tell_counts(segment)

    def _forget(self, consumer: Consumer) -> None:
        self._counted.pop(consumer, None)
        self._waiting.pop(consumer, None)

    def landed(self, sequence: int) -> None:
        """The commit of this sequence is durable: what it counted may go."""
        for consumer, (at, turn) in list(self._waiting.items()):
            if at <= sequence:
                del self._waiting[consumer]
                self._counted[consumer] = turn
                self.broker.engine.touch(consumer)

    def failed(self) -> None:
        """The commit was refused: the counts go in again with the next one."""
        for consumer, (_, turn) in self._waiting.items():
            self._waiting[consumer] = self.broker.sequence, turn

    def __repr__(self) -> str:
        return f"<Counting waiting={len(self._waiting)}>"
