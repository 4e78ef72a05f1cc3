"""A message of the blocking client: what it says to the broker changes threads, and only `confirm` waits for it."""

from __future__ import annotations

from functools import partial
from types import TracebackType

from stompbox.client.feed import SubscriptionRoute
from stompbox.client.loopthread import LoopThread
from stompbox.client.message import ACK, Answer, ReceivedMessage, refusal
from stompbox.client.options import require_confirm


class Message(ReceivedMessage):
    """A message that a subscription of the blocking client delivered."""

    __slots__ = ("_thread",)

    def __init__(self, received: ReceivedMessage, thread: LoopThread) -> None:
        super().__init__(received._route, received.body, received._ack_id, received._form, received._head)
        self._headers = received._headers
        self._thread = thread

    def ack(self, *, confirm: bool = False, timeout: float | None = None) -> None:
        """As stompbox.Message.ack; without `confirm` it returns at once, and the frame follows."""
        self._settle(ACK, confirm=confirm, timeout=timeout)

    def nack(
        self,
        *,
        requeue: bool = True,
        delay: float = 0.0,
        confirm: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Refuses the message, as stompbox.Message.nack does."""
        self._settle(refusal(requeue, delay), confirm=confirm, timeout=timeout)

    def _settle(self, answer: Answer, *, confirm: bool, timeout: float | None) -> None:
        require_confirm(confirm, timeout)
        route: SubscriptionRoute = self._route
        if confirm:
            self._thread.call(route.settle(self, answer, timeout))
            return
        route.check(self, answer)
        self.is_settled = True
        self._thread.post(partial(_post, route, self, answer))

    def process(self) -> Processing:
        """`with message.process():` acknowledges when the block ends well, sends NACK when it raises (and lets it raise)."""
        return Processing(self, self._thread)


def _post(route: SubscriptionRoute, message: Message, answer: Answer) -> None:
    if route.is_stale:  # lost between the call and now
        route.subscription.link.counters["stale-message"] += 1
    else:
        route.post(message, answer)


class Processing:
    __slots__ = ("_message", "_thread")

    def __init__(self, message: Message, thread: LoopThread) -> None:
        self._message = message
        self._thread = thread

    def __enter__(self) -> Message:
        return self._message

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        message = self._message
        if error is None or isinstance(error, Exception):
            route: SubscriptionRoute = message._route
            if error is None and not (
                message.is_settled or route.is_stale or route.subscription.ack == "auto"
            ):
                message.ack()
            else:
                self._thread.call(route.settle_processed(message, failed=error is not None))
