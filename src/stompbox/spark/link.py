"""One blocking connection to the broker: STOMP 1.2 over TCP or TLS, one request under way at a time.

    begin(request)   sends it and returns        the broker works while the caller does
    finish()         waits for the answer
    ask(request)     both

A connection that is lost is made anew with growing pauses, and the request is sent again: every request of the protocol may be. What
the broker refuses is raised at once, but for what says that this node leaves or the cluster's log is away: that is tried again, too.
Where the target names several nodes the next attempt goes to the next one. A large body is received into the buffer that the caller
gets, with no copy in between.

Links are cached per process, and closed with it: Spark uses its Python workers again for the next micro-batch. Decides nothing about
what is asked.
"""

from __future__ import annotations

import atexit
import os
import random
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from stompbox.errors import ConnectionLost, FrameError, Refused, UsageError, reason_of
from stompbox.spark.targets import Target, Tls
from stompbox.stomp.codec import FrameLimits, encode, encode_headers, parse_head
from stompbox.stomp.frames import SERVER_COMMANDS, Frame, content_length
from stompbox.stomp.versions import V12

REQUESTS: Final = "stompbox.requests"
FIRST_PAUSE: Final = 0.1  # s, doubled after each attempt
LONGEST_PAUSE: Final = 3.0
CONNECT_TIMEOUT: Final = 10.0  # s, for one attempt
RECEIVE_SIZE: Final = 64 * 1024
JOINED_SIZE: Final = 64 * 1024  # a body up to this size goes out with its head in one write
MOST_IDLE: Final = 4  # links kept per target
MOST_HEADERS: Final = 1000
# what a broker says that stops, or a node whose cluster is between two leaders: another attempt may find one
LEAVES: Final = frozenset(("shutting-down", "log-unavailable", "not-the-leader"))

_COMMANDS: Final = {name.encode(): name for name in SERVER_COMMANDS}
_LIMITS: Final = FrameLimits()


@dataclass(frozen=True, slots=True)
class Request:
    """`name` as in the broker's list of requests; its headers and body."""

    name: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class Answer:
    headers: Mapping[str, str]
    body: memoryview = field(repr=False)


class SparkLink:
    """A connection that is made when it is first needed, and again when it is lost. For one thread at a time."""

    def __init__(self, target: Target, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self.target: Final = target
        self._sleep: Final = sleep
        self._socket: socket.socket | None = None
        self._rest = b""  # octets received after the last frame
        self._request: Request | None = None
        self._serial = 0
        self._at = random.randrange(len(target.nodes)) if target.is_spread else 0  # the node to connect to

    def __repr__(self) -> str:
        return f"<Link {self.target} {'open' if self._socket else 'closed'}{' waiting for ' + self._request.name if self._request else ''}>"

    @property
    def is_waiting(self) -> bool:
        return self._request is not None

    def ask(self, request: Request) -> Answer:
        """Raises Refused with the broker's code and text, ConnectionLost when the broker stays away for `reconnect_timeout`."""
        self.begin(request)
        return self.finish()

    def begin(self, request: Request) -> None:
        """Sends a request; `finish` must come before the next one."""
        if self._request is not None:
            raise UsageError(
                "request-under-way", f"{self._request.name} is not answered yet; {request.name} has to wait"
            )
        self._request = request
        self._serial += 1
        if self._socket is not None:
            try:
                self._send(request)
            except OSError:
                self.close()  # finish() connects and sends again

    def finish(self) -> Answer:
        request = self._request
        if request is None:
            raise UsageError("no-request", "there is no request whose answer could be waited for")
        try:
            headers, body = self._received(request)
        except BaseException:  # an interrupt too: the rest of an answer must not be taken for the next one
            self.close()
            raise
        finally:
            self._request = None
        if headers.get("status") != "ok":
            raise _error(headers, body)
        return Answer(headers, body)

    def _received(self, request: Request) -> tuple[Mapping[str, str], memoryview]:
        deadline, pause, tried = 0.0, 0.0, 0
        while True:
            was_open = self._socket is not None
            try:
                if not was_open:
                    self._connect()
                    self._send(request)
                headers, body = self._answer()
                if headers.get("code") not in LEAVES:
                    return headers, body
                fault: Exception = _error(headers, body)
                was_open = False  # it has answered: no second attempt at once
            except (OSError, ConnectionLost) as caught:
                fault = caught
            except Refused as caught:
                if not was_open and caught.code not in LEAVES:
                    raise
                # an ERROR frame: the broker may have ended an idle connection long before this request
                fault = caught
            self.close()
            if refusal := _refusal_of(fault):
                raise refusal from fault
            if was_open:
                continue
            deadline = deadline or time.monotonic() + self.target.reconnect_timeout
            tried += 1
            self._at = (self._at + 1) % len(self.target.nodes)
            if tried % len(self.target.nodes):
                continue  # the others are asked at once
            pause = min(LONGEST_PAUSE, 2 * pause or FIRST_PAUSE)
            if time.monotonic() + pause > deadline:
                if isinstance(fault, Refused):
                    raise fault
                waited = f"{self.target.reconnect_timeout:g} s (option reconnectTimeout)"
                raise ConnectionLost(
                    "broker-away", f"no broker at {self.target} for {waited}: {reason_of(fault)}"
                )
            self._sleep(pause)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket, self._rest = None, b""

    def _connect(self) -> None:
        timeout = min(CONNECT_TIMEOUT, self.target.request_timeout)
        host, port = self.target.nodes[self._at]
        plain = socket.create_connection((host, port), timeout=timeout)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            secured = (
                _context(self.target.tls).wrap_socket(plain, server_hostname=host)
                if self.target.tls
                else plain
            )
        except BaseException:
            plain.close()
            raise
        self._socket = secured
        secured.sendall(encode(Frame("CONNECT", _login(self.target)), V12))
        command, headers, body = self._frame()
        if command != "CONNECTED":
            raise _error(headers, body)
        secured.settimeout(self.target.request_timeout)

    def _send(self, request: Request) -> None:
        assert self._socket is not None
        headers = {
            "destination": REQUESTS,
            "request": request.name,
            "request-id": str(self._serial),
            **request.headers,
        }
        head = b"SEND\n%bcontent-length:%d\n\n" % (encode_headers(headers, V12), len(request.body))
        if len(request.body) <= JOINED_SIZE:
            self._socket.sendall(b"%b%b\0" % (head, request.body))
            return
        self._socket.sendall(head)
        self._socket.sendall(request.body)
        self._socket.sendall(b"\0")

    def _answer(self) -> tuple[Mapping[str, str], memoryview]:
        while True:
            command, headers, body = self._frame()
            if command == "ERROR":  # STOMP 1.2, ERROR: the server closes just after it
                raise _error(headers, body)
            if command == "MESSAGE" and headers.get("request-id") == str(self._serial):
                return headers, body

    def _frame(self) -> tuple[str, dict[str, str], memoryview]:
        data = self._rest.lstrip(b"\r\n\0")
        while (end := data.find(b"\n\n")) < 0:
            if len(data) > _LIMITS.head:
                raise FrameError(
                    "header-too-large", f"the broker sent a head of more than {_LIMITS.head} octets"
                )
            data = (data + self._receive()).lstrip(b"\r\n\0")
        command, headers = parse_head(data[:end], V12, _COMMANDS, MOST_HEADERS)
        length = content_length(headers)
        if length is not None:
            return command, headers, self._counted_body(data, end + 2, length)
        while (nul := data.find(b"\0", end)) < 0:
            data += self._receive()
        self._rest = data[nul + 1 :]
        return command, headers, memoryview(data)[end + 2 : nul]

    def _counted_body(self, data: bytes, at: int, length: int) -> memoryview:
        """The body that begins at `at` of what was received so far; its NUL is taken off the stream with it."""
        assert self._socket is not None
        stop = at + length
        if len(data) > stop:
            self._rest = data[stop + 1 :]
            return memoryview(data)[at:stop]
        whole = memoryview(bytearray(length + 1))
        filled = len(data) - at
        whole[:filled] = data[at:]
        while filled <= length:
            received = self._socket.recv_into(whole[filled:])
            if not received:
                raise ConnectionLost(
                    "connection-closed", "the broker closed the connection in the middle of an answer"
                )
            filled += received
        self._rest = b""
        return whole[:length]

    def _receive(self) -> bytes:
        assert self._socket is not None
        received = self._socket.recv(RECEIVE_SIZE)
        if not received:
            raise ConnectionLost("connection-closed", "the broker closed the connection")
        return received


def _login(target: Target) -> dict[str, str]:
    headers = {
        "accept-version": "1.2",
        "host": target.virtual_host or target.nodes[0][0],
        "heart-beat": "0,0",
    }
    if target.login:
        headers["login"] = target.login
    if target.passcode:
        headers["passcode"] = target.passcode
    return headers


def _error(headers: Mapping[str, str], body: memoryview) -> Refused:
    text = (
        headers.get("message") or bytes(body[:500]).decode("utf-8", "replace") or "the broker gave no reason"
    )
    return Refused(headers.get("code", "refused"), text)


def _refusal_of(fault: Exception) -> Refused | None:
    """The error behind a fault that no second attempt would change; None for others."""
    if isinstance(fault, ssl.SSLCertVerificationError):
        return Refused(
            "tls-refused",
            f"the broker's certificate was not accepted (options trustStorePath, verifyHost): {fault.verify_message}",
        )
    return None


def _context(tls: Tls) -> ssl.SSLContext:
    """Raises Refused and UsageError that name the option whose file it is."""
    for name, path in (
        ("trustStorePath", tls.trust_store),
        ("keyStorePath", tls.key_store),
        ("keyPath", tls.key),
    ):
        try:
            if path:
                Path(path).read_bytes()
        except OSError as fault:
            raise Refused("tls-file", f"option {name!r}: {path} cannot be read: {fault.strerror}") from None
    try:
        context = ssl.create_default_context(cafile=tls.trust_store or None)
    except ssl.SSLError:
        raise UsageError(
            "bad-option",
            f"option 'trustStorePath': {tls.trust_store} holds no certificate; allowed is a PEM file",
        ) from None
    context.check_hostname = tls.verify_host
    try:
        if tls.key_store:
            context.load_cert_chain(tls.key_store, tls.key or None, tls.password)
    except ssl.SSLError as fault:
        raise UsageError(
            "bad-option", f"options keyStorePath, keyPath, keyStorePassword: {fault.reason or fault}"
        ) from None
    return context


# by process: a forked worker must not use its parent's connections
_idle: Final[dict[tuple[int, Target], list[SparkLink]]] = {}


@atexit.register
def forget() -> None:
    """Closes the idle links of this process."""
    for (process, _), links in list(_idle.items()):
        while process == os.getpid() and links:
            links.pop().close()


@contextmanager
def leased(target: Target) -> Iterator[SparkLink]:
    """A link that nobody else uses meanwhile. It goes back to the cache, unless an answer is still under way on it."""
    idle = _idle.setdefault((os.getpid(), target), [])
    try:
        link = idle.pop()
    except IndexError:
        link = SparkLink(target)
    try:
        yield link
    finally:
        if link.is_waiting or len(idle) >= MOST_IDLE:
            link.close()
        else:
            idle.append(link)
