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

import ssl
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Final

from stompbox.client import client as asynchronous
from stompbox.client.feed import Feed
from stompbox.client.handlers import NoHandler, Pool, called, failed, require_concurrency, require_handler
from stompbox.client.link import Answered, ClientState, Link, StateListener
from stompbox.client.loopthread import LoopThread
from stompbox.client.message import ReceivedMessage
from stompbox.client.options import KIB, TLS, Reconnect, require_timeout
from stompbox.client.outgoing import Body, Headers, HeaderValue, encode_send, encode_sends, recode
from stompbox.client.publisher import WINDOW, Window, parts, require_common
from stompbox.client.subscribing import Offset
from stompbox.client.threaded import Message
from stompbox.client.transaction import Transaction as AsyncTransaction
from stompbox.errors import StompboxError, UsageError
from stompbox.stomp.codec import FrameLimits
from stompbox.stomp.frames import Frame
from stompbox.stomp.versions import VERSIONS, Version

__all__ = ["Client", "Message", "Publisher", "Subscription", "Transaction", "connect"]

# messages fetched from the loop's thread at once: a change of threads costs more than a message
BATCH: Final = 500


class Subscription:
    """`with client.subscribe(…) as messages: for message in messages: …`; several threads may take from one subscription."""

    def __init__(self, feed: Feed, thread: LoopThread) -> None:
        self._feed = feed
        self._thread = thread
        self._fetched: deque[Message] = deque()
        self._changed = threading.Condition()
        self._is_fetching = False

    @property
    def destination(self) -> str:
        return self._feed.destination

    @property
    def id(self) -> str:
        """The id that the SUBSCRIBE carries."""
        return self._feed.id

    @property
    def ack(self) -> str:
        return self._feed.ack

    def open(self) -> None:
        self._thread.call(self._feed.open())

    def unsubscribe(self) -> None:
        self._fetched.clear()
        self._thread.end(self._feed.unsubscribe())

    def delete(self) -> None:
        """Like `unsubscribe`, and the broker forgets the durable subscription with all that is kept for it."""
        self._fetched.clear()
        self._thread.call(self._feed.delete())

    def receive(self, timeout: float | None = None) -> Message | None:
        """The next message; None when none came within `timeout` seconds (None: wait for ever), or none will come."""
        require_timeout(timeout)
        return self._fetched_one() or self._wait(timeout)

    def _fetched_one(self) -> Message | None:
        fetched, is_auto = self._fetched, self._feed.ack == "auto"
        try:
            while True:
                message = fetched.popleft()
                if is_auto or not message._route.is_stale:
                    return message
        except IndexError:
            return None

    def _wait(self, timeout: float | None) -> Message | None:
        until = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while True:
                if (message := self._fetched_one()) is not None:
                    return message
                if not self._is_fetching:
                    self._is_fetching = True
                    break
                if not self._changed.wait(_left(until)):
                    return None
        return self._fetch(_left(until))

    def _fetch(self, timeout: float | None) -> Message | None:
        """Fetches messages for all threads that wait; one does it for the others."""
        found: list[Message] = []
        try:
            found = [
                Message(each, self._thread)
                for each in self._thread.call(self._feed.receive_many(BATCH, timeout))
            ]
        finally:
            with self._changed:
                self._is_fetching = False
                self._fetched.extend(found[1:])
                self._changed.notify_all()
        return found[0] if found else None

    def iterate(self, timeout: float | None = None) -> Iterator[Message]:
        """Yields messages until none came for `timeout` seconds."""
        require_timeout(timeout)
        while (message := self._fetched_one() or self._wait(timeout)) is not None:
            yield message

    def __iter__(self) -> Iterator[Message]:
        return self.iterate()

    def run(self, handler: Callable[[Message], object], *, concurrency: int = 1) -> None:
        """As stompbox.Subscription.run, in this thread, or with `concurrency` threads; returns when the subscription has ended:
        `unsubscribe` in another thread, or the client's `close`. Ctrl-C ends it when the handlers that are at it have ended."""
        require_handler(handler, is_async=False)
        require_concurrency(concurrency, self._feed.ack)
        if concurrency == 1:
            for message in self:
                self._work(handler, message)
            return
        with Pool(concurrency) as pool:
            pool.wait()
            for message in self:
                pool.give(partial(self._work, handler), message)
                pool.wait()

    def _work(self, handler: Callable[[Message], object], message: Message) -> None:
        try:
            with message.process():
                called(handler, message)
        except NoHandler:
            raise
        except Exception:
            failed(message)

    def __enter__(self) -> Subscription:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._fetched.clear()
        self._thread.end(self._feed.leave(is_failing=error is not None))

    def __repr__(self) -> str:
        return f"<blocking Subscription of {self._feed!r}>"


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
        self._answered = Answered(self._confirmed, self._failed)

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

    def send_many(self, destination: str, bodies: Iterable[Body], headers: Headers | None = None) -> int:
        """Sends messages of one destination, as stompbox.Publisher.send_many does, and returns how many."""
        require_common(self._link.version, destination, headers)
        count = 0
        for part in parts(bodies):
            at = 0
            while at < len(part):
                at += self._send_part(destination, part[at:], headers)
            count += len(part)
        return count

    def _send_part(self, destination: str, bodies: Sequence[Body], headers: Headers | None) -> int:
        version, link = self._link.version, self._link
        with self._changed:
            self._wait_while(lambda: self._window.is_full)
            frames = encode_sends(
                version,
                destination,
                bodies[: self._window.room],
                headers,
                link.numbers,
                text_length=link.options.text_length,
            )
            self._window.add_all(frames)
        self._thread.post(lambda: self._post_all(frames, version))
        return len(frames)

    def _post_all(self, frames: list[tuple[int, bytes]], version: Version) -> None:
        connection = self._link.connection
        if connection is not None and connection.is_open and connection.version is version:
            connection.confirm_all(frames, self._answered)
        else:
            for number, frame in frames:
                self._post(number, frame, version)

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
            self._failed(frame, error)
            return
        if connection is None:
            self._link.backlog[number] = (self._answered, recode(frame, version, self._link.version))
        else:
            connection.confirm(number, recode(frame, version, connection.version), self._answered)

    def _confirmed(self, frame: bytes) -> None:
        with self._changed:
            self._window.take(frame)
            if self._window.has_room_again or not self._window.outstanding:
                self._changed.notify_all()

    def _failed(self, frame: bytes, error: StompboxError) -> None:
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

    def nack(self, message: ReceivedMessage, *, requeue: bool = True, delay: float = 0.0) -> None:
        self._thread.call(self._inner.nack(message, requeue=requeue, delay=delay))

    def commit(self) -> None:
        """Ends the transaction with a COMMIT, as stompbox.Transaction.commit does."""
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
    """A client as stompbox.Client is one, for programs with several threads."""

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
    def state(self) -> ClientState:
        return self._inner.state

    def wait_connected(self, timeout: float | None = None) -> None:
        """Waits until there is a connection, as stompbox.Client.wait_connected does."""
        self._running().call(self._inner.wait_connected(timeout))

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

    def send_many(
        self,
        destination: str,
        bodies: Iterable[Body],
        headers: Headers | None = None,
        *,
        window: int = WINDOW,
    ) -> int:
        """Sends messages of one destination, as stompbox.Client.send_many does, and returns how many."""
        with self.publisher(window=window) as publisher:
            return publisher.send_many(destination, bodies, headers)

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
        offset: Offset | None = None,
        headers: Headers | None = None,
    ) -> Subscription:
        """Makes a subscription whose arguments are those of stompbox.Client.subscribe."""
        inner = self._inner.subscribe(
            destination,
            ack=ack,
            id=id,
            selector=selector,
            durable=durable,
            prefetch=prefetch,
            offset=offset,
            headers=headers,
        )
        return Subscription(inner._feed, self._running())

    def rpc(
        self,
        destination: str,
        body: Body = b"",
        headers: Headers | None = None,
        *,
        timeout: float | None = None,
    ) -> ReceivedMessage:
        """Sends a request and returns its reply, as stompbox.Client.rpc does."""
        return self._running().call(self._inner.rpc(destination, body, headers, timeout=timeout))

    def reply(
        self,
        message: ReceivedMessage,
        body: Body = b"",
        headers: Headers | None = None,
        *,
        confirm: bool = True,
    ) -> None:
        """Answers a request, as stompbox.Client.reply does."""
        self._running().call(self._inner.reply(message, body, headers, confirm=confirm))

    def request(
        self, name: str, body: Body = b"", headers: Headers | None = None, *, timeout: float | None = None
    ) -> ReceivedMessage:
        """Asks the broker itself, as stompbox.Client.request does."""
        return self._running().call(self._inner.request(name, body, headers, timeout=timeout))

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
    on_state: StateListener | None = None,
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
        on_state=on_state,
    )
    return Client(inner)
