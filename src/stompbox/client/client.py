"""The client as the application holds it: `stompbox.connect` and what it returns.

Decided here: the public interface and its defaults. How it is kept up is link.py's, what each part does subscription.py's,
publisher.py's and transaction.py's.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterable, Generator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import ClassVar

from stompbox.client.feed import Feed
from stompbox.client.link import Call, ClientState, Link, StateListener
from stompbox.client.message import ReceivedMessage
from stompbox.client.options import KIB, TLS, Options, Reconnect, require_confirm
from stompbox.client.outgoing import Body, Headers, HeaderValue, encode_send, header_texts
from stompbox.client.protocol import REQUESTS
from stompbox.client.publisher import WINDOW, Publisher
from stompbox.client.refusal import BrokerError
from stompbox.client.replies import Replies, reply_headers
from stompbox.client.subscribing import Offset, wanted
from stompbox.client.subscription import Subscription
from stompbox.client.transaction import Transaction
from stompbox.client.url import Target, each_of, parse_url
from stompbox.errors import ConnectionLost, StompboxError, UsageError
from stompbox.stomp.codec import FrameLimits
from stompbox.stomp.versions import VERSIONS, Version


class Request:
    """A request that waits for its answer."""

    def __init__(self) -> None:
        self.future: asyncio.Future[ReceivedMessage] = asyncio.get_running_loop().create_future()

    def answered(self, message: ReceivedMessage) -> None:
        if not self.future.done():
            self.future.set_result(message)

    def failed(self, error: StompboxError) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class Client:
    """A connection to a broker that heals itself. Made by `connect`; `async with` opens and closes it, as do `open` and `close`."""

    _subscription: ClassVar[type[Subscription]] = Subscription  # what its subscriptions are (tracing.py)

    def __init__(self, link: Link) -> None:
        self._link = link
        self._replies: Replies | None = None

    # -- open and close ----------------------------------------------------------------------------------------------

    async def open(self) -> Client:
        """Raises BrokerError when the broker refuses (login, version), ConnectionLost when none of the URLs answers."""
        await self._link.open()
        return self

    async def close(self) -> None:
        """Says goodbye: everything sent before is with the broker when this returns, or a warning is in the log."""
        await self._link.close()

    async def __aenter__(self) -> Client:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __await__(self) -> Generator[object, None, Client]:
        """`client = await stompbox.connect(…)`, for those who close it themselves."""
        return self.open().__await__()

    # -- what it is --------------------------------------------------------------------------------------------------

    @property
    def is_connected(self) -> bool:
        """False while the connection is being replaced, before it is opened and after it is closed."""
        return self._link.connection is not None and self._link.connection.is_open

    @property
    def state(self) -> ClientState:
        """How far it is; `connect(on_state=…)` tells each change."""
        return self._link.state

    async def wait_connected(self, timeout: float | None = None) -> None:
        """Returns when there is a connection. `timeout`: seconds, default the `receipt_timeout` of `connect`.

        Raises ConnectionLost when none came by then, or none will come any more.
        """
        await self._link.connected(timeout)

    @property
    def version(self) -> Version:
        """The STOMP version that was negotiated with the broker last."""
        return self._link.version

    @property
    def server(self) -> str:
        """The header `server` of CONNECTED; empty where the broker keeps it to itself."""
        return "" if self._link.connection is None else self._link.connection.protocol.server

    @property
    def counters(self) -> Counter[str]:
        """What happened beside the ordinary: connections-lost, resent, stale-message, unknown-receipt, error …"""
        return self._link.counters

    # -- sending -----------------------------------------------------------------------------------------------------

    async def send(
        self,
        destination: str,
        body: Body = b"",
        headers: Headers | None = None,
        *,
        confirm: bool = True,
        timeout: float | None = None,
    ) -> None:
        """Sends one message and returns when the broker has stored it (its RECEIPT came).

        `body`     bytes; str: UTF-8 with content-type text/plain, without content-length, which brokers take for text; dict, list: JSON
        `headers`  names to str, int, float or bool
        `confirm`  False: returns when the message is on its way and the socket has room; an ERROR is then only logged
        `timeout`  seconds for the receipt; default the `receipt_timeout` of `connect`

        Raises BrokerError when the broker refuses it, ConnectionLost when it is not known whether it was stored, UsageError for a
        wrong argument. At least once: with Reconnect(resend=True) a connection lost before the receipt means a second sending.
        """
        require_confirm(confirm, timeout)
        link = self._link
        connection = link.open_connection() or await link.connected(timeout)
        if connection.is_blocked:
            await connection.drain()
            connection = await link.connected(timeout)
        number = next(link.numbers) if confirm else 0
        own = f"receipt:{number}\n" if confirm else ""
        frame = encode_send(
            connection.version, destination, body, headers, own, text_length=link.options.text_length
        )
        if confirm:
            call = Call()
            connection.confirm(number, frame, call)
            await link.settled(call, number, timeout, f"SEND to {destination}")
            return
        if connection.post(frame):
            await asyncio.sleep(0)
        if connection.is_blocked:
            await connection.drain()

    async def send_many(
        self,
        destination: str,
        bodies: Iterable[Body] | AsyncIterable[Body],
        headers: Headers | None = None,
        *,
        window: int = WINDOW,
    ) -> int:
        """Sends each body as a message with the same headers, and returns how many when all of them are confirmed.

        Up to `window` are on their way at a time. Raises what befell the first that failed; those before it, and some behind it, may
        be stored. For other headers each time, or to learn which failed: `publisher`.
        """
        async with self.publisher(window=window) as publisher:
            return await publisher.send_many(destination, bodies, headers)

    def publisher(self, *, window: int = WINDOW) -> Publisher:
        """Confirmed sends without waiting for each: at most `window` messages are unconfirmed at any time."""
        return Publisher(self._link, window)

    def transaction(self) -> Transaction:
        """Sends and acknowledgements that happen together or not at all."""
        return Transaction(self._link)

    # -- receiving ---------------------------------------------------------------------------------------------------

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
        """A subscription, to be opened by `async with`.

        `ack`       auto: delivered is done with; client: an ACK is for all messages before it too; client-individual
        `id`        the subscription's id; default the durable name, or a fresh one
        `selector`  only messages for which this SQL-92 condition is true
        `durable`   the name of a durable subscription: messages are kept while nobody subscribes (needs `client_id`)
        `prefetch`  messages that the broker sends ahead of their acknowledgement
        `offset`    reads the address's log from there, and takes nothing from it: a number, "first", "last", "next" or a datetime
                    (Stompbox; RabbitMQ's streams). After a lost connection it goes on behind what was taken and acknowledged
        `headers`   more headers of the SUBSCRIBE, as the broker knows them
        """
        request = wanted(
            destination,
            ack,
            id=id,
            selector=selector,
            durable=durable,
            prefetch=prefetch,
            offset=offset,
            headers=headers,
        )
        return self._subscription(Feed(self._link, request))

    # -- requests and replies between clients ------------------------------------------------------------------------

    async def rpc(
        self,
        destination: str,
        body: Body = b"",
        headers: Headers | None = None,
        *,
        timeout: float | None = None,
    ) -> ReceivedMessage:
        """Sends a request to whoever serves `destination`, and returns the reply, which comes over a temporary queue of this client.

        `timeout`: seconds, default the `receipt_timeout` of `connect`; the request expires with it. Raises BrokerError when the
        broker refuses the request, ConnectionLost("reply-timeout") or ("reply-lost") when no reply came: it may have been done.
        """
        replies = self._replies = self._replies or Replies(self._link)
        limit = self._link.limit(timeout)
        texts = replies.headers(headers)
        if limit is not None:
            texts.setdefault("expires", str(int((time.time() + limit) * 1000)))
        future = None
        try:
            async with asyncio.timeout(limit):
                await replies.open(limit)
                future = replies.expect(texts["correlation-id"])
                await self.send(destination, body, texts, timeout=limit)
                return await future
        except TimeoutError:
            text = f"no reply from {destination} within {limit or 0:g} s"
            raise ConnectionLost("reply-timeout", text) from None
        finally:
            replies.forget(texts["correlation-id"])
            if future is not None and future.done() and not future.cancelled():
                future.exception()  # seen, also where the SEND failed first

    async def reply(
        self,
        message: ReceivedMessage,
        body: Body = b"",
        headers: Headers | None = None,
        *,
        confirm: bool = True,
    ) -> None:
        """Sends the reply that the sender of `message` waits for: to its reply-to, with its correlation-id. As `send` otherwise, but that
        Stompbox drops (and counts) the reply where who asked is gone, and its temporary queue with it."""
        destination, texts = reply_headers(message, headers, self.server)
        await self.send(destination, body, texts, confirm=confirm)

    # -- requests to the broker ----------------------------------------------------------------------------------------------------

    async def request(
        self, name: str, body: Body = b"", headers: Headers | None = None, *, timeout: float | None = None
    ) -> ReceivedMessage:
        """Asks a Stompbox broker something that is no message, and returns its answer: `.headers`, `.body`, `.json()`.

        Raises BrokerError with the broker's code for status:error, ConnectionLost when the connection is lost meanwhile: whether
        to ask again is the caller's to know.
        """
        link = self._link
        if not isinstance(name, str) or not name:
            raise UsageError(
                "bad-argument", f"name of a request is {name!r}; allowed is a str that is not empty"
            )
        limit = link.limit(timeout)
        connection = await link.connected(timeout)
        id = str(next(link.numbers))
        texts = {**header_texts(headers), "request": name, "request-id": id}
        frame = encode_send(connection.version, REQUESTS, body, texts, text_length=True)
        request = Request()
        connection.protocol.requests[id] = request
        connection.post(frame)
        connection.called()
        try:
            async with asyncio.timeout(limit):
                answer = await request.future
        except TimeoutError:
            text = (
                f"no answer to request {name!r} within {limit:g} s; the broker calls itself {self.server!r}"
            )
            raise ConnectionLost("answer-timeout", text) from None
        finally:
            connection.protocol.requests.pop(id, None)
        if answer.headers.get("status") == "ok":
            return answer
        text = answer.headers.get("message", "") or "no reason given"
        raise BrokerError(
            answer.headers.get("code", "broker-error"),
            f"request {name!r}: {text}",
            dict(answer.headers),
            answer.body,
        )

    def __repr__(self) -> str:
        return f"<Client {self._link!r}>"


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
    """A client for a STOMP broker, to be opened: `async with stompbox.connect("stomp://user:pass@host:61613") as client:`.

    `url`              stomp://, stomp+ssl://, ws:// or wss://; several (also: stomp://a,b,c) are tried in turn, at first and after a loss
    `login`, `passcode`, `host`, `client_id`   win over the URL's; `host` is the virtual host, by default the URL's host name
    `versions`         those to offer
    `heart_beat`       milliseconds: (what we can send, what we want to get); 0 for none
    `headers`          more headers of the CONNECT
    `tls`              an SSLContext, or paths (TLS); default: the system's CAs
    `reconnect`        what happens when the connection is lost; None: everything raises ConnectionLost from then on
    `connect_timeout`  seconds for socket, TLS, WebSocket and CONNECTED together, for each URL
    `receipt_timeout`  seconds for each answer of the broker, None: no limit; `close_timeout` for that to DISCONNECT
    `buffer`           octets of messages that wait for the application before reading stops; `buffer_limit`: while a call waits
    `text_length`      True: str bodies get a content-length too
    `limits`           of a frame from the broker; beyond, the connection is closed
    `on_state`         called with each new ClientState and with the error that led to it (or None), in the client's loop

    Raises UsageError that names the argument and what is allowed.
    """
    options = Options(
        login=login,
        passcode=passcode,
        host=host,
        client_id=client_id,
        versions=(versions,) if isinstance(versions, str) else _tuple(versions),
        heart_beat=heart_beat,
        headers={} if headers is None else headers,
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
    if on_state is not None and not callable(on_state):
        raise UsageError("bad-argument", f"on_state is {on_state!r}; allowed is a function of (state, error)")
    return Client(Link(_targets(url, options), options, on_state))


def _tuple(versions: Sequence[str]) -> tuple[str, ...]:
    """A sequence as a tuple; what is none is left for Options to refuse."""
    return tuple(versions) if isinstance(versions, Sequence) else versions


def _targets(url: str | Sequence[str], options: Options) -> tuple[Target, ...]:
    urls = [url] if isinstance(url, str) else url
    if not isinstance(urls, Sequence) or not urls:
        raise UsageError("bad-url", f"url must be a str or a sequence of str that is not empty, not {url!r}")
    targets = tuple([parse_url(each) for one in urls for each in each_of(one)])
    for target in targets:
        options.merged(target)  # a wrong option in a URL is reported here, not at the first failover
    return targets
