"""Transactions: sends, acknowledgements and their opposites that the broker does all together or not at all.

A transaction lives on one connection: when that is lost, the broker has aborted it, and everything here raises ConnectionLost.
Each frame carries a receipt, for its ERROR must be known before COMMIT: in 1.0 and 1.1, and with brokers that never close, what
is left of a transaction after an ERROR could be committed without the frame that failed.
"""

from __future__ import annotations

import asyncio
import logging
from enum import Enum, auto
from types import TracebackType
from typing import cast

from stompbox.client.connection import BrokerConnection
from stompbox.client.feed import ACK_SIZE, SubscriptionRoute
from stompbox.client.link import Answered, Call, Link
from stompbox.client.message import ACK, Answer, ReceivedMessage, refusal
from stompbox.client.outgoing import Body, Headers, encode_send
from stompbox.errors import ConnectionLost, StompboxError, UsageError

log = logging.getLogger("stompbox.client")


class TransactionState(Enum):
    NEW = auto()
    OPEN = auto()
    COMMITTED = auto()
    ABORTED = auto()


class Transaction:
    """`async with client.transaction() as transaction:` commits when the block ends well and aborts when it raises."""

    def __init__(self, link: Link) -> None:
        self.id = f"tx-{next(link.numbers)}"
        self.state = TransactionState.NEW
        self._link = link
        self._connection: BrokerConnection | None = None
        self._unanswered = 0
        self._answered = asyncio.Event()
        self._error: StompboxError | None = None
        self._settled: list[ReceivedMessage] = []
        self._waiter = Answered(self._confirmed, self._failed)

    # -- what goes in ------------------------------------------------------------------------------------------------

    async def begin(self) -> None:
        if self.state is not TransactionState.NEW:
            raise UsageError("already-opened", f"transaction {self.id} was begun before; make another one")
        connection = self._connection = await self._link.connected()
        self.state = TransactionState.OPEN
        self._unanswered += 1
        connection.protocol.command("BEGIN", {"transaction": self.id}, self._waiter)
        connection.called()

    async def send(self, destination: str, body: Body = b"", headers: Headers | None = None) -> None:
        """Returns when the message is on its way; only COMMIT makes it a message."""
        connection = self._open()
        number = next(self._link.numbers)
        own = f"transaction:{self.id}\nreceipt:{number}\n"
        frame = encode_send(
            connection.version, destination, body, headers, own, text_length=self._link.options.text_length
        )
        self._unanswered += 1
        connection.confirm(number, frame, self._waiter, again=False)
        await self._breathe(connection)

    async def ack(self, message: ReceivedMessage) -> None:
        await self._settle(ACK, message)

    async def nack(self, message: ReceivedMessage, *, requeue: bool = True, delay: float = 0.0) -> None:
        """Refuses a message as Message.nack does; it counts from COMMIT on."""
        await self._settle(refusal(requeue, delay), message)

    async def _settle(self, answer: Answer, message: ReceivedMessage) -> None:
        connection = self._open()
        if not isinstance(message, ReceivedMessage):
            raise UsageError("bad-argument", f"message is {message!r}; allowed is one that was received")
        route = cast(SubscriptionRoute, message._route)
        route.check(message, answer)
        connection.protocol.acknowledge(
            answer, message, route.subscription.id, transaction=self.id, waiter=self._waiter
        )
        self._unanswered += 1
        message.is_settled = True
        self._settled.append(message)
        connection.sent(ACK_SIZE)
        await self._breathe(connection)

    async def _breathe(self, connection: BrokerConnection) -> None:
        if not self._unanswered % 64:
            await asyncio.sleep(0)
        if connection.is_blocked:
            await connection.drain()

    def _open(self) -> BrokerConnection:
        """The connection, when the transaction can go on."""
        if self._connection is None or self.state is not TransactionState.OPEN:
            raise UsageError(
                "no-transaction", f"transaction {self.id} is not open: {self.state.name.lower()}"
            )
        if self._error is not None:
            raise self._error
        if not self._connection.is_open:
            raise ConnectionLost(
                "transaction-lost",
                f"the connection of transaction {self.id} is gone; the broker has aborted it",
            )
        return self._connection

    # -- its end -----------------------------------------------------------------------------------------------------

    async def commit(self) -> None:
        """Returns when all of it is done, durably. Raises what befell any frame of it; then it is aborted.

        ConnectionLost("commit-unknown") when the connection was lost while COMMIT was on its way.
        """
        connection = self._open()
        try:
            await self._answers(connection)
        except StompboxError:
            await self.abort()
            raise
        call = Call()
        number = connection.protocol.command("COMMIT", {"transaction": self.id}, call)
        connection.called()
        self.state = TransactionState.COMMITTED
        try:
            await self._link.settled(call, number, None, f"COMMIT of transaction {self.id}")
        except ConnectionLost as error:
            self._release()
            raise ConnectionLost(
                "commit-unknown", f"whether transaction {self.id} was committed is not known: {error.message}"
            ) from error
        except StompboxError:
            self._release()
            raise

    async def abort(self) -> None:
        """Returns when the broker has confirmed it. Messages acknowledged in the transaction can be acknowledged again.

        Of one that was committed nothing is left to abort: it stays so.
        """
        if self.state is TransactionState.COMMITTED:
            return
        was_open = self.state is TransactionState.OPEN
        self.state = TransactionState.ABORTED
        self._release()
        connection = self._connection
        if was_open and connection is not None and connection.is_open:
            call = Call()
            number = connection.protocol.command("ABORT", {"transaction": self.id}, call)
            connection.called()
            await self._link.settled(call, number, None, f"ABORT of transaction {self.id}")

    def _release(self) -> None:
        for message in self._settled:
            message.is_settled = False
        self._settled.clear()

    async def _answers(self, connection: BrokerConnection) -> None:
        """Waits for the receipts of all frames. RabbitMQ gives those only after COMMIT: there nothing can be waited for."""
        if connection.protocol.server.startswith("RabbitMQ"):
            return
        limit = self._link.options.receipt_timeout
        try:
            async with asyncio.timeout(limit):
                while self._unanswered and self._error is None:
                    self._answered.clear()
                    await self._answered.wait()
        except TimeoutError:
            raise self._link.receipt_timeout(
                f"{self._unanswered} frames of transaction {self.id}", limit
            ) from None
        self._open()

    def _confirmed(self, frame: bytes) -> None:
        self._unanswered -= 1
        if not self._unanswered:
            self._answered.set()

    def _failed(self, frame: bytes, error: StompboxError) -> None:
        self._unanswered -= 1
        self._error = self._error or error
        self._answered.set()

    async def __aenter__(self) -> Transaction:
        await self.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.state is not TransactionState.OPEN:
            return
        if error is None:
            await self.commit()
            return
        try:
            await self.abort()
        except StompboxError as failure:  # the block's own exception is what its caller must see
            log.warning("ABORT of transaction %s failed: %s", self.id, failure.message)

    def __repr__(self) -> str:
        return f"<Transaction {self.id} {self.state.name} unanswered={self._unanswered}>"
