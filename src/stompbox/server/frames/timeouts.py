"""Transactions that are open for too long: after `transaction-timeout` they are aborted, as Artemis does.

The client learns of it when it names the transaction again, by an ERROR of its own code; then the name is free.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from stompbox.broker.timers import Alarm
from stompbox.broker.transactions import Transaction
from stompbox.server.frames.transactions import time_out

if TYPE_CHECKING:
    from stompbox.server.frames.speaker import FramesCore, Speaker

log = logging.getLogger("stompbox.connection")


class Timeouts:
    """The open transactions of all connections, the oldest first. `timeout` in ms; -1: none."""

    def __init__(self, broker: FramesCore, timeout: int) -> None:
        self.engine = broker.engine
        self.timeout = timeout
        self._open: dict[Transaction, tuple[Speaker, int]] = {}
        self._alarm = Alarm(broker.engine.timers, self._look)

    def begun(self, connection: Speaker, transaction: Transaction) -> None:
        if self.timeout >= 0:
            until = self.engine.now + self.timeout
            self._open[transaction] = connection, until
            self._alarm.by(until)

    def change(self, timeout: int) -> None:
        """For transactions that begin from now on."""
        self.timeout = timeout

    def ended(self, transaction: Transaction) -> None:
        self._open.pop(transaction, None)

    def _look(self) -> None:
        """What is due ends; then it is the turn of the oldest that is left."""
        while self._open:
            transaction, (connection, until) = next(iter(self._open.items()))
            if until > self.engine.now:
                self._alarm.by(until)
                return
            text = "%s: transaction %r was open for %d ms and is aborted (transaction-timeout)"
            log.warning(text, connection.name, transaction.name, self.timeout, extra={"code": "transaction-timeout"})
            time_out(connection, transaction)

    def __repr__(self) -> str:
        return f"<Timeouts {len(self._open)} open, {self.timeout} ms>"
