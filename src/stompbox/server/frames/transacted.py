"""Transacted subscriptions, as OpenMQ has them: they get messages only while a transaction is open.

SUBSCRIBE names an open transaction. After its COMMIT or ABORT delivery pauses until the next BEGIN, which starts again with what
was not consumed. Without acknowledgements (ack:auto) a COMMIT consumes all that was sent until then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stompbox.broker.queues.consumer import Consumer
from stompbox.broker.subscriptions.subscribers import start
from stompbox.broker.transactions import Transaction

if TYPE_CHECKING:
    from stompbox.server.frames.speaker import Speaker


def resume(connection: Speaker) -> None:
    """BEGIN."""
    for consumer in _of(connection):
        start(consumer)


def pause(connection: Speaker) -> None:
    """COMMIT or ABORT, before anything else: nothing more is handed out."""
    for consumer in _of(connection):
        consumer.is_started = False


def consume(connection: Speaker, transaction: Transaction) -> None:
    """COMMIT: what was sent without being acknowledged one by one belongs to it."""
    for consumer in _of(connection):
        if connection.transacted[consumer]:
            sent = connection.broker.engine.take_written(consumer)
            if sent:
                transaction.acked.append((consumer, sent))


def give_back(connection: Speaker) -> None:
    """After COMMIT or ABORT: what is not consumed goes back, until the next BEGIN."""
    for consumer in _of(connection):
        connection.broker.engine.take_back(consumer)


def _of(connection: Speaker) -> list[Consumer]:
    for consumer in [consumer for consumer in connection.transacted if consumer.is_closed]:
        del connection.transacted[consumer]
    return list(connection.transacted)
