"""The client library without async: the same names and arguments, calls that return when they are done.

    with stompbox.blocking.connect("stomp://user:pass@host:61613") as client:
        client.send("/queue/orders", b"…", headers={"region": "EU"})
        with client.subscribe("/queue/orders", ack="client-individual") as messages:
            for message in messages.iterate(timeout=5):
                with message.process(): …

Each client has a thread of its own in which the asynchronous client lives: heart-beats, reading and reconnecting go on whatever
the callers' threads do. Everything here may be used from several threads at once. Nothing about STOMP is decided here.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError as FutureCancelled
from types import TracebackType
from typing import Any, Final, TypeVar

from stompbox.client import client as asynchronous
from stompbox.client.link import Link
from stompbox.client.message import ReceivedMessage
from stompbox.client.options import KIB, TLS, Reconnect
from stompbox.client.outgoing import Body, Headers, HeaderValue, encode_send, recode
from stompbox.client.publisher import WINDOW, Window
from stompbox.client.subscription import Subscription as AsyncSubscription
from stompbox.client.subscription import SubscriptionRoute
from stompbox.client.transaction import Transaction as AsyncTransaction
from stompbox.errors import ConnectionLost, StompboxError, UsageError
from stompbox.stomp.codec import FrameLimits
from stompbox.stomp.frames import Frame
from stompbox.stomp.versions import VERSIONS, Version

T = TypeVar("T")
# messages fetched from the loop's thread at once: a change of threads costs more than a message
BATCH: Final = 100


class LoopThread:
    """A thread that runs an event loop, and the ways into it."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._posted: deque[Callable[[], None]] = deque()
        self._is_woken = False
        self._is_stopped = False
        self._lock = threading.Lock()  # nothing enters the loop after its stop: it would never come out
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            left = asyncio.all_tasks(self.loop)
            for task in left:  # calls of other threads, which would wait for ever
                task.cancel()
            self.loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs `work` in the loop and waits for it. An interrupted wait (Ctrl-C) cancels it."""
        with self._lock:
            if self._is_stopped:
                work.close()
                raise ConnectionLost("closed", "this client was closed")
            future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except FutureCancelled:
            raise ConnectionLost("closed", "this client was closed meanwhile") from None
        except BaseException:
            future.cancel()
            raise

    def post(self, work: Callable[[], None]) -> None:
        """Has `work` run in the loop soon, in the order posted. Many posts wake the loop once."""
        self._posted.append(work)
        if not self._is_woken:
            self._is_woken = True
            with self._lock:
                if self._is_stopped:
                    raise ConnectionLost("closed", "this client was closed")
                self.loop.call_soon_threadsafe(self._work_off)

    def _work_off(self) -> None:
        self._is_woken = False
        try:
            while self._posted:
                self._posted.popleft()()
        finally:
            if self._posted:  # one of them raised, which asyncio reports; the others go on
                self.loop.call_soon(self._work_off)

    def stop(self) -> None:
        with self._lock:
            if self._is_stopped:
                return
            self._is_stopped = True
            self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()


class Message(ReceivedMessage):
    """A message that a blocking subscription delivered."""

    __slots__ = ("_thread",)

    def __init__(self, received: ReceivedMessage, thread: LoopThread) -> None:
        super().__init__(received.route, received.body, received.ack_id, received._form, received._head)
        self._headers = received._headers
        self._thread = thread

    def ack(self, *, confirm: bool = False, timeout: float | None = None) -> None:
        """As stompbox.Message.ack; without `confirm` it returns at once, and the frame follows."""
        self._settle("ACK", confirm=confirm, timeout=timeout)

    def nack(self, *, confirm: bool = False, timeout: float | None = None) -> None:
        self._settle("NACK", confirm=confirm, timeout=timeout)

    def _settle(self, command: str, *, confirm: bool, timeout: float | None) -> None:
        route: SubscriptionRoute = self.route
        if confirm:
            self._thread.call(route.settle(self, command, confirm=True, timeout=timeout))
            return
        route.check(self, command)
        self.is_settled = True
        self._thread.post(lambda: self._post(route, command))

    def _post(self, route: SubscriptionRoute, command: str) -> None:
        if route.is_stale:  # lost between the call and now
            route.subscription.link.counters["stale-message"] += 1
        else:
            route.post(self, command)

    def process(self) -> Processing:
        """`with message.process():` acknowledges when the block ends well, sends NACK when it raises (and lets it raise)."""
        return Processing(self, self._thread)


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
            route: SubscriptionRoute = message.route
            if error is None and not (
                message.is_settled or route.is_stale or route.subscription.ack == "auto"
            ):
                message.ack()
            else:
                self._thread.call(route.settle_processed(message, failed=error is not None))


class Subscription:
    """`with client.subscribe(…) as messages: for message in messages: …`; several threads may take from one subscription."""

    def __init__(self, inner: AsyncSubscription, thread: LoopThread) -> None:
        self._inner = inner
        self._thread = thread
        self._fetched: deque[Message] = deque()
        self._changed = threading.Condition()
        self._is_fetching = False

    def open(self) -> None:
        self._thread.call(self._inner.open())

    def unsubscribe(self) -> None:
        self._fetched.clear()
        self._thread.call(self._inner.unsubscribe())

    def delete(self) -> None:
        """Like `unsubscribe`, and the broker forgets the durable subscription with all that is kept for it."""
        self._fetched.clear()
        self._thread.call(self._inner.delete())

    def receive(self, timeout: float | None = None) -> Message | None:
        """The next message; None when none came within `timeout` seconds (None: wait for ever), or none will come."""
        until = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while True:
                while self._fetched:
                    message = self._fetched.popleft()
                    if self._inner.ack == "auto" or not message.route.is_stale:
                        return message
                if not self._is_fetching:
                    self._is_fetching = True
                    break
                if not self._changed.wait(_left(until)):
                    return None
        return self._fetch(_left(until))

    def _fetch(self, timeout: float | None) -> Message | None:
        """One thread fetches for all."""
        found: list[Message] = []
        try:
            found = [
                Message(each, self._thread)
                for each in self._thread.call(self._inner.receive_many(BATCH, timeout))
            ]
        finally:
            with self._changed:
                self._is_fetching = False
                self._fetched.extend(found[1:])
                self._changed.notify_all()
        return found[0] if found else None

    def iterate(self, timeout: float | None = None) -> Iterator[Message]:
        """Messages until none came for `timeout` seconds."""
        while (message := self.receive(timeout)) is not None:
            yield message

    def __iter__(self) -> Iterator[Message]:
        return self.iterate()

    def __enter__(self) -> Subscription:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._fetched.clear()
        self._thread.call(self._inner.__aexit__(kind, error, trace))

    def __repr__(self) -> str:
        return f"<blocking {self._inner!r}>"


def _left(until: float | None) -> float | None:
    return None if until is None else max(0.0, until - time.monotonic())


class Publisher:
    """`with client.publisher(window=1000) as publisher: publisher.send(destination, body, headers)`; as stompbox.Publisher.

    Frames are made in the caller's thread and change threads in bunches.
    """

    def __init__(self, link: Link, thread: LoopThread, window: int) -> None:
        self._link = link
        self._thread = thread
        self._window = Window(window)
        self._changed = threading.Condition()

    @property
    def outstanding(self) -> int:
        return self._window.outstanding

    @property
    def confirmed_count(self) -> int:
        return self._window.confirmed_count

    @property
    def failures(self) -> list[tuple[Frame, StompboxError]]:
        with self._changed:
            return self._window.failures(self._link)

    def send(self, destination: str, body: Body = b"", headers: Headers | None = None) -> None:
        """Returns when the message is on its way and the window has room. Raises what befell an earlier message."""
        version = self._link.version
        number = next(self._link.numbers)
        frame = encode_send(
            version,
            destination,
            body,
            headers,
            f"receipt:{number}\n",
            text_length=self._link.options.text_length,
        )
        with self._changed:
            self._wait_while(lambda: self._window.is_full)
            self._window.add(frame)
        self._thread.post(lambda: self._post(number, frame, version))

    def flush(self) -> None:
        """Returns when everything sent so far is confirmed; raises what befell it."""
        with self._changed:
            self._wait_while(lambda: self._window.outstanding > 0)

    def _wait_while(self, is_so: Callable[[], bool]) -> None:
        self._window.raise_failure()
        limit = self._link.options.receipt_timeout
        while is_so():
            before = self._window.confirmed_count
            is_late = not self._changed.wait(limit) and self._window.confirmed_count == before
            self._window.raise_failure()
            if is_late and self._link.connection is not None:
                raise self._link.receipt_timeout(f"any of {self._window.outstanding} messages", limit)

    def _post(self, number: int, frame: bytes, version: Version) -> None:
        try:
            connection = self._link.open_connection()
        except StompboxError as error:
            self.failed(frame, error)
            return
        if connection is None:
            self._link.backlog[number] = (self, recode(frame, version, self._link.version))
        else:
            connection.confirm(number, recode(frame, version, connection.version), self)

    def confirmed(self, frame: bytes) -> None:
        with self._changed:
            self._window.take(frame)
            if self._window.has_room_again or not self._window.outstanding:
                self._changed.notify_all()

    def failed(self, frame: bytes, error: StompboxError) -> None:
        with self._changed:
            self._window.fail(frame, error)
            self._changed.notify_all()

    def __enter__(self) -> Publisher:
        self._thread.call(self._link.connected())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.flush()


class Transaction:
    """`with client.transaction() as transaction:` commits when the block ends well and aborts when it raises."""

    def __init__(self, inner: AsyncTransaction, thread: LoopThread) -> None:
        self._inner = inner
        self._thread = thread

    @property
    def id(self) -> str:
        return self._inner.id

    def begin(self) -> None:
        self._thread.call(self._inner.begin())

    def send(self, destination: str, body: Body = b"", headers: Headers | None = None) -> None:
        self._thread.call(self._inner.send(destination, body, headers=headers))

    def ack(self, message: ReceivedMessage) -> None:
        self._thread.call(self._inner.ack(message))

    def nack(self, message: ReceivedMessage) -> None:
        self._thread.call(self._inner.nack(message))

    def commit(self) -> None:
        """As stompbox.Transaction.commit."""
        self._thread.call(self._inner.commit())

    def abort(self) -> None:
        self._thread.call(self._inner.abort())

    def __enter__(self) -> Transaction:
        self.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.call(self._inner.__aexit__(kind, error, trace))


class Client:
    """As stompbox.Client, for several threads."""

    def __init__(self, inner: asynchronous.Client) -> None:
        self._inner = inner
        self._thread: LoopThread | None = None
        self._is_closed = False
        self._lock = threading.Lock()

    def open(self) -> Client:
        with self._lock:
            if self._thread is not None:
                raise UsageError(
                    "already-opened", "this client was opened before; connect again for another one"
                )
            self._thread = LoopThread("stompbox-client")
        try:
            self._thread.call(self._inner.open())
        except BaseException:
            self._is_closed = True
            self._thread.stop()
            raise
        return self

    def close(self) -> None:
        """Says goodbye; calls of other threads that still wait raise ConnectionLost."""
        with self._lock:
            if self._thread is not None and not self._is_closed:
                self._is_closed = True
                self._thread.call(self._inner.close())
                self._thread.stop()

    def _running(self) -> LoopThread:
        if self._thread is None:
            raise UsageError(
                "not-opened",
                "this client is not connected yet: use `with stompbox.blocking.connect(…) as client:`",
            )
        return self._thread

    def __enter__(self) -> Client:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def is_connected(self) -> bool:
        return self._inner.is_connected

    @property
    def version(self) -> Version:
        return self._inner.version

    @property
    def server(self) -> str:
        return self._inner.server

    @property
    def counters(self) -> Counter[str]:
        return self._inner.counters

    def send(
        self,
        destination: str,
        body: Body = b"",
        headers: Headers | None = None,
        *,
        confirm: bool = True,
        timeout: float | None = None,
    ) -> None:
        """As stompbox.Client.send: returns when the broker has stored the message."""
        self._running().call(
            self._inner.send(destination, body, headers=headers, confirm=confirm, timeout=timeout)
        )

    def publisher(self, *, window: int = WINDOW) -> Publisher:
        return Publisher(self._inner._link, self._running(), window)

    def transaction(self) -> Transaction:
        return Transaction(self._inner.transaction(), self._running())

    def subscribe(
        self,
        destination: str,
        *,
        ack: str = "auto",
        id: str | None = None,
        selector: str | None = None,
        durable: str | None = None,
        prefetch: int | None = None,
        headers: Headers | None = None,
    ) -> Subscription:
        """As stompbox.Client.subscribe."""
        inner = self._inner.subscribe(
            destination,
            ack=ack,
            id=id,
            selector=selector,
            durable=durable,
            prefetch=prefetch,
            headers=headers,
        )
        return Subscription(inner, self._running())

    def request(
        self, name: str, headers: Headers | None = None, body: Body = b"", *, timeout: float | None = None
    ) -> ReceivedMessage:
        """As stompbox.Client.request."""
        return self._running().call(self._inner.request(name, headers, body, timeout=timeout))

    def __repr__(self) -> str:
        return f"<blocking {self._inner!r}>"


def connect(
    url: str | Sequence[str],
    *,
    login: str | None = None,
    passcode: str | None = None,
    host: str | None = None,
    client_id: str | None = None,
    versions: Sequence[str] = tuple(VERSIONS),
    heart_beat: tuple[int, int] = (10_000, 10_000),
    headers: Mapping[str, HeaderValue] | None = None,
    tls: ssl.SSLContext | TLS | None = None,
    reconnect: Reconnect | None = Reconnect(),  # noqa: B008 (a frozen value)
    connect_timeout: float = 10.0,
    receipt_timeout: float | None = 30.0,
    close_timeout: float = 5.0,
    buffer: int = 4096 * KIB,
    buffer_limit: int = 64 * 1024 * KIB,
    text_length: bool = False,
    limits: FrameLimits = FrameLimits(),  # noqa: B008 (a frozen value)
) -> Client:
    """As stompbox.connect, argument by argument; `with stompbox.blocking.connect("stomp://host:61613") as client:`."""
    inner = asynchronous.connect(
        url,
        login=login,
        passcode=passcode,
        host=host,
        client_id=client_id,
        versions=versions,
        heart_beat=heart_beat,
        headers=headers,
        tls=tls,
        reconnect=reconnect,
        connect_timeout=connect_timeout,
        receipt_timeout=receipt_timeout,
        close_timeout=close_timeout,
        buffer=buffer,
        buffer_limit=buffer_limit,
        text_length=text_length,
        limits=limits,
    )
    return Client(inner)
