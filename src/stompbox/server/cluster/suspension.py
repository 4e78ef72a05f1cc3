"""A leader whose log is away: what the log must have, or had, stays with it until the log has answered; all else goes on.

Receipts wait for their commits anyway. What is held back beside them are persistent messages on their way to subscriptions: should another
node lead in the end, it says who gets them. As in counting.py they stay in their consumer's outbox, with all that is behind them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from stompbox.broker.addresses.address import Address
    from stompbox.broker.queues.consumer import Consumer, Output
    from stompbox.server.broker import Broker


class Suspension:
    """Holds messages back, from `begin` to `end`."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._held: dict[Consumer, None] = {}

    def begin(self) -> None:
        self.broker.deliveries.suspension = self

    def end(self) -> None:
        """All that was held back may go."""
        self.broker.deliveries.suspension = None
        held, self._held = self._held, {}
        self.broker.deliver_on(held)

    def hold_back(self, consumer: Consumer) -> list[Output]:
        """Takes what may not go out of its outbox."""
        outbox, counting = consumer.outbox, self.broker.counting
        at = next((at for at, output in enumerate(outbox) if _is_of_the_log(output)), len(outbox))
        held = outbox[at:]
        del outbox[at:]
        if held:
            self._held[consumer] = None
        return (counting.hold_back(consumer) if counting is not None else []) + held

    def __repr__(self) -> str:
        return f"<Suspension held={len(self._held)}>"


def _is_of_the_log(output: Output) -> bool:
    """Whether the log has the message, or is to have it."""
    address = cast("Address", output.binding.queue.address)
    return not address.is_volatile(output.run) and address.stores(output.run)
