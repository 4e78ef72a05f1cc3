"""What a hostile client does, a function an attack: each connects by itself, sends its bytes and stays until it is told to go.

A raw socket and bytes, so that nothing is done better than an attacker would. Decides what is sent; hostile.py measures the others.
"""

from __future__ import annotations

import base64
import contextlib
import os
import select
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

WITHIN = 60.0  # seconds that one attack writes, at the most
MEGABYTE = 1 << 20
CLIENTS = 256  # MiB: max-client-memory, which all that is kept for connections has together
MESSAGES = 128  # MiB: global-max-size
REMEMBERED = 32  # MiB: max-retained-memory, and max-id-cache-memory as well


@dataclass(frozen=True, slots=True)
class Attack:
    """`run(port)` returns what must stay open until the end. `is_ours`: needs what other brokers have not. `toml`: settings.
    `is_admin`: the port is that of the admin interface.

    `limits`: MiB that the limits with names allow it at the defaults; `stays`: of that, what is not the client's and stays when it goes."""

    run: Callable[[int], list[socket.socket]]
    what: str
    is_ours: bool = False
    toml: str = ""
    limits: int = CLIENTS
    stays: int = 0
    is_admin: bool = False


ATTACKS: dict[str, Attack] = {}


def attack(
    what: str, *, is_ours: bool = False, toml: str = "", limits: int = CLIENTS, stays: int = 0, is_admin: bool = False
) -> Callable[[Callable[[int], list[socket.socket]]], object]:
    def note(run: Callable[[int], list[socket.socket]]) -> object:
        ATTACKS[run.__name__] = Attack(run, what, is_ours, toml, limits, stays, is_admin)
        return run

    return note


def opened(port: int) -> socket.socket:
    found = socket.create_connection(("127.0.0.1", port), 10)
    found.settimeout(10)
    return found


def connected(port: int, version: str = "1.2", login: str = "guest") -> socket.socket:
    """Logged in; what has come is read up to the end of CONNECTED."""
    link = opened(port)
    link.sendall(f"CONNECT\naccept-version:{version}\nhost:/\nlogin:{login}\npasscode:guest\nheart-beat:0,0\n\n\0".encode())
    got = b""
    while b"\0" not in got:
        more = link.recv(4096)
        if not more:
            raise ConnectionError(f"refused: {got[:200]!r}")
        got += more
    return link


def pour(link: socket.socket, pieces: Iterable[bytes], *, reads: bool = True) -> None:
    """Writes as long as it is taken, for WITHIN seconds; `reads`: throws away what comes back."""
    until = time.monotonic() + WITHIN
    link.setblocking(False)
    with contextlib.suppress(OSError):
        for piece in pieces:
            view = memoryview(piece)
            while view:
                readable, writable, _ = select.select([link] if reads else [], [link], [], until - time.monotonic())
                if not readable and not writable:
                    return
                if readable and not link.recv(MEGABYTE):
                    return
                if writable:
                    with contextlib.suppress(BlockingIOError):
                        view = view[link.send(view) :]
                if time.monotonic() > until:
                    return


def drain(link: socket.socket, seconds: float = 5.0) -> None:
    """Reads what comes until nothing more does for a second."""
    until = time.monotonic() + seconds
    link.settimeout(1)
    with contextlib.suppress(OSError):
        while time.monotonic() < until and link.recv(MEGABYTE):
            pass


def send(destination: str, body: bytes = b"", *, headers: str = "") -> bytes:
    return b"SEND\ndestination:%b\n%bcontent-length:%d\n\n%b\0" % (destination.encode(), headers.encode(), len(body), body)


def subscribe(number: int, destination: str, *, headers: str = "") -> bytes:
    return f"SUBSCRIBE\nid:{number}\ndestination:{destination}\n{headers}\n\0".encode()


def settle(link: socket.socket) -> None:
    """All that was sent before is done: a receipt came."""
    link.setblocking(True)
    link.settimeout(60)
    link.sendall(b"BEGIN\ntransaction:settled\nreceipt:settled\n\n\0ABORT\ntransaction:settled\n\n\0")
    got = b""
    while b"receipt-id:settled" not in got:
        more = link.recv(MEGABYTE)
        if not more:
            return
        got = got[-64:] + more


# Before login


def websocket(port: int) -> socket.socket:
    link = opened(port)
    key = base64.b64encode(os.urandom(16)).decode()
    link.sendall(
        f"GET /stomp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: v12.stomp\r\n\r\n".encode()
    )
    got = b""
    while b"\r\n\r\n" not in got:
        got += link.recv(4096)
    return link


def ws_frame(opcode: int, payload: bytes = b"", *, fin: bool = True) -> bytes:
    """Masked with zeros, as a client may."""
    size = len(payload)
    length = struct.pack("!B", 0x80 | size) if size < 126 else struct.pack("!BQ", 0xFF, size)
    return bytes([opcode | (0x80 if fin else 0)]) + length + b"\0\0\0\0" + payload


def _strangers(port: int, first: bytes, repeated: bytes, *, count: int = 4, octets: int = 4 * MEGABYTE) -> list[socket.socket]:
    links = [websocket(port) for _ in range(count)]
    for link in links:
        pour(link, [first, *[repeated * (MEGABYTE // len(repeated))] * (octets // MEGABYTE)])
    return links


@attack("strangers, WebSocket: messages of one octet")
def ws_tiny_messages(port: int) -> list[socket.socket]:
    return _strangers(port, b"", ws_frame(2, b"\n"))


@attack("strangers, WebSocket: empty continuations")
def ws_continuations(port: int) -> list[socket.socket]:
    return _strangers(port, ws_frame(2, b"", fin=False), ws_frame(0, b"", fin=False))


@attack("strangers, WebSocket: pings")
def ws_pings(port: int) -> list[socket.socket]:
    return _strangers(port, b"", ws_frame(9, b""))


@attack("strangers: bare line feeds")
def line_feeds(port: int) -> list[socket.socket]:
    links = [opened(port) for _ in range(4)]
    for link in links:
        pour(link, [b"\n" * MEGABYTE] * 8)
    return links


@attack("100 strangers, WebSocket, 3 MiB of one message each")
def ws_strangers(port: int) -> list[socket.socket]:
    links = [websocket(port) for _ in range(100)]
    for link in links:
        pour(link, [ws_frame(2, b"CONNECT\nx:" + bytes(b"a" * (3 * MEGABYTE)))[: 3 * MEGABYTE]])
    return links


# Frames that cost


@attack("UNSUBSCRIBE of what is not there, STOMP 1.1, 100,000 in one write")
def unsubscribe_errors(port: int) -> list[socket.socket]:
    link = connected(port, "1.1")
    pour(link, [b"".join([b"UNSUBSCRIBE\nid:%d\n\n\0" % n for n in range(100_000)])])
    drain(link)
    return [link]


@attack("BEGIN and ABORT, 100,000 in one write")
def begin_abort(port: int) -> list[socket.socket]:
    link = connected(port)
    pour(link, [b"".join([b"BEGIN\ntransaction:%d\n\n\0ABORT\ntransaction:%d\n\n\0" % (n, n) for n in range(100_000)])])
    settle(link)
    return [link]


@attack("SUBSCRIBE and UNSUBSCRIBE, 50,000 in one write")
def subscribe_unsubscribe(port: int) -> list[socket.socket]:
    link = connected(port)
    pour(link, [b"".join([subscribe(n, f"/topic/{n % 100}") + b"UNSUBSCRIBE\nid:%d\n\n\0" % n for n in range(50_000)])])
    settle(link)
    return [link]


@attack("300 ACKs of unknown ids, STOMP 1.1, beside 100,000 unacknowledged messages")
def unknown_acks(port: int) -> list[socket.socket]:
    link = connected(port, "1.1")
    for number in (1, 2):  # each has every other message, so that the ids of the other's are in between
        link.sendall(subscribe(number, "/queue/unacknowledged", headers="ack:client\nconsumer-window-size:-1\n"))
    link.sendall(send("/queue/unacknowledged", b"x"))
    queue = link.recv(MEGABYTE).partition(b"message-id:")[2].partition(b"-")[0]
    pour(link, [b"".join([send("/queue/unacknowledged", b"x", headers=f"name-{n % 7}:1\n") for n in range(100_000)])])
    drain(link)
    acks = [b"ACK\nsubscription:%d\nmessage-id:%b-%d\n\n\0" % (1 + n % 2, queue, 99_000 + n // 2) for n in range(300)]
    pour(link, [b"".join(acks)])
    drain(link)
    return [link]


# Matching


@attack("200 selectors of 500 terms, 1,000 messages that differ")
def long_selectors(port: int) -> list[socket.socket]:
    link = connected(port)
    terms = [" OR ".join([f"h{term} = '{number}-{term}'" for term in range(500)]) for number in range(200)]
    pour(link, [subscribe(number, "/topic/selected", headers=f"selector:{text}\n") for number, text in enumerate(terms)])
    settle(link)
    pour(link, [b"".join([send("/topic/selected", b"x", headers=f"h1:{n}\nh{n % 500}:{n}\n") for n in range(1000)])])
    settle(link)
    return [link]


@attack("50 consumers with selectors on a queue of 30,000 messages", limits=MESSAGES, stays=MESSAGES)
def selectors_on_backlog(port: int) -> list[socket.socket]:
    link = connected(port)
    pour(link, [b"".join([send("/queue/backlog", b"x" * 100, headers=f"n:{n}\n") for n in range(30_000)])])
    settle(link)
    pour(link, [b"".join([subscribe(n, "/queue/backlog", headers=f"selector:n % 1000 = {n + 2000}\n") for n in range(50)])])
    settle(link)
    return [link]


@attack("a LIKE selector of 16 KB and 10 messages")
def like_selector(port: int) -> list[socket.socket]:
    link = connected(port)
    pour(link, [subscribe(1, "/topic/liked", headers=f"selector:text LIKE '{'%a' * 8000}b'\n")])
    pour(link, [send("/topic/liked", b"x", headers=f"text:{'a' * 30_000}\n") * 10])
    settle(link)
    return [link]


_PATH = " | ".join(["//*[" * 30 + f"a{number}" + "]" * 30 for number in range(8)])  # 983 tokens, of the 1000 that a selector may have


@attack("an XPATH selector as large as it may be and 10 messages", is_ours=True)
def xpath_selector(port: int) -> list[socket.socket]:
    link = connected(port)
    pour(link, [subscribe(1, "/topic/paths", headers=f"selector:XPATH '{_PATH}'\n")])
    body = b"<a>" * 5000 + b"</a>" * 5000
    pour(link, [send("/topic/paths", body) * 10])
    settle(link)
    return [link]


@attack("100 subscriptions with XPATH and 20 messages", is_ours=True)
def many_xpaths(port: int) -> list[socket.socket]:
    link = connected(port)
    pour(link, [b"".join([subscribe(n, "/topic/paths", headers=f"selector:XPATH '//b[. = {n}]'\n") for n in range(100)])])
    pour(link, [b"".join([send("/topic/paths", b"<a>" + b"<b>x</b>" * 3000 + b"<!--%d--></a>" % n) for n in range(20)])])
    settle(link)
    return [link]


@attack("10,000 consumers with selectors on one queue and 10 messages that none takes")
def selectors_on_queue(port: int) -> list[socket.socket]:
    links = [connected(port) for _ in range(10)]
    for number, link in enumerate(links):
        texts = [f"n = {number * 1000 + n} OR m + n = {n}" for n in range(1000)]
        pour(link, [b"".join([subscribe(n, "/queue/selected", headers=f"selector:{text}\n") for n, text in enumerate(texts)])])
        settle(link)
    pour(links[0], [b"".join([send("/queue/selected", b"x", headers="n:-1\nm:-1\n") for _ in range(10)])])
    settle(links[0])
    return links


@attack("200 subscriptions to /topic/# over 500 addresses", is_ours=True)
def wide_wildcards(port: int) -> list[socket.socket]:
    link = connected(port)
    pour(link, [b"".join([send(f"/topic/wide.{n}", b"x") for n in range(500)])])
    pour(link, [b"".join([subscribe(n, "/topic/#") for n in range(200)])])
    settle(link)
    return [link]


@attack("100 subscriptions to four overlapping wildcards each", is_ours=True)
def overlapping_wildcards(port: int) -> list[socket.socket]:
    link = connected(port)
    pour(link, [b"".join([send(f"/topic/over.{n % 20}.{n}", b"x") for n in range(500)])])
    pour(link, [b"".join([subscribe(n, "/topic/#,/topic/over.#,/topic/over.*.*,/topic/*.*.*") for n in range(100)])])
    settle(link)
    return [link]


# Very many at once

MANY = 100_000


def filled(link: socket.socket, destination: str, *, headers: str = "", count: int = MANY) -> None:
    """So many messages, of seven shapes in turn, so that hardly two of them are a run."""
    for start in range(0, count, 10_000):
        frames = [send(destination, b"x", headers=f"name-{n % 7}:1\npersistent:false\n{headers}") for n in range(start, start + 10_000)]
        pour(link, [b"".join(frames)])
    settle(link)


def until(when: float) -> None:
    time.sleep(max(0.0, when + 2.0 - time.time()))


_STAYING = '[[address-setting]]\nmatch = "#"\nauto-delete-queues = false\nauto-delete-addresses = false\n'


@attack("100,000 messages with one `expires`, and a consumer", toml=_STAYING + 'expiry-address = "expired"\n')
def expiry(port: int) -> list[socket.socket]:
    link = connected(port)
    when = time.time() + 30
    filled(link, "/queue/expiring", headers=f"expires:{int(when * 1000)}\n")
    until(when)
    settle(link)
    return [link]


@attack("100,000 messages scheduled for one time", is_ours=True)
def scheduled(port: int) -> list[socket.socket]:
    link = connected(port)
    when = time.time() + 30
    filled(link, "/queue/scheduled", headers=f"AMQ_SCHEDULED_TIME:{int(when * 1000)}\n")
    until(when)
    settle(link)
    return [link]


@attack("a queue of 100,000 messages, purged when its last consumer leaves", toml=_STAYING + "default-purge-on-no-consumers = true\n")
def purge(port: int) -> list[socket.socket]:
    link = connected(port)
    pour(link, [subscribe(1, "/queue/purged", headers="ack:client\nconsumer-window-size:1\n")])
    filled(link, "/queue/purged")
    pour(link, [b"UNSUBSCRIBE\nid:1\n\n\0"])
    settle(link)
    return [link]


@attack(
    "a queue of 100,000 messages that goes with its last consumer",
    toml='[[address-setting]]\nmatch = "#"\nauto-delete-queues-message-count = -1\n',
)
def dropped_queue(port: int) -> list[socket.socket]:
    link = connected(port)
    pour(link, [subscribe(1, "/queue/dropped", headers="ack:client\nconsumer-window-size:1\n")])
    filled(link, "/queue/dropped")
    pour(link, [b"UNSUBSCRIBE\nid:1\n\n\0"])
    settle(link)
    return [link]


@attack("one ACK for 100,000 messages, and an ABORT that gives them back")
def cumulative_ack(port: int) -> list[socket.socket]:
    link = connected(port, "1.1")
    link.sendall(subscribe(1, "/queue/cumulative", headers="ack:client\nconsumer-window-size:-1\n"))
    got = b""
    link.settimeout(0.5)
    for _ in range(0, MANY, 10_000):
        filled(connected(port), "/queue/cumulative", count=10_000)
        with contextlib.suppress(OSError):
            while more := link.recv(MEGABYTE):
                got = (got + more)[-2000:]
    last = got.rpartition(b"message-id:")[2].partition(b"\n")[0]
    for number in range(5):
        ack = b"ACK\nsubscription:1\nmessage-id:%b\ntransaction:%d\n\n\0" % (last, number)
        pour(link, [b"BEGIN\ntransaction:%d\n\n\0%bABORT\ntransaction:%d\n\n\0" % (number, ack, number)])
        settle(link)
    return [link]


def _addressed(link: socket.socket, prefix: str, count: int, *, headers: str = "") -> None:
    for start in range(0, count, 1000):
        pour(link, [b"".join([send(f"/topic/{prefix}.{n}", b"x", headers=headers) for n in range(start, start + 1000)])])
    settle(link)


@attack("a durable subscription to a wildcard over 15,000 addresses, which is made and dropped", is_ours=True, toml=_STAYING)
def durable_wildcard(port: int) -> list[socket.socket]:
    link = opened(port)
    link.sendall(b"CONNECT\naccept-version:1.2\nhost:/\nlogin:guest\npasscode:guest\nclient-id:wide\n\n\0")
    _addressed(link, "wide", 15_000, headers="retain:set\npersistent:false\n")
    pour(link, [subscribe(1, "/topic/wide.#", headers="durable-subscription-name:wide\n")])
    settle(link)
    pour(link, [b"UNSUBSCRIBE\nid:1\ndurable-subscription-name:wide\n\n\0"])
    settle(link)
    return [link]


@attack("a SUBSCRIBE to a wildcard over 15,000 topics that each retain a message", is_ours=True, toml=_STAYING)
def retained_wildcard(port: int) -> list[socket.socket]:
    link = connected(port)
    _addressed(link, "kept", 15_000, headers="retain:set\npersistent:false\n")
    pour(link, [subscribe(1, "/topic/kept.#")])
    settle(link)
    drain(link)
    return [link]


@attack("SENDs to 100,000 new topics, of which a user may make 28,000", is_ours=True, toml=_STAYING, limits=CLIENTS + 160)
def new_addresses(port: int) -> list[socket.socket]:
    link = connected(port, "1.1")
    _addressed(link, "new", 100_000, headers="persistent:false\n")
    return [link]


@attack("100 messages to a topic of 20,000 subscriptions")
def broad_topic(port: int) -> list[socket.socket]:
    links = [connected(port) for _ in range(40)]
    for link in links:
        pour(link, [b"".join([subscribe(n, "/topic/broad") for n in range(500)])])
        settle(link)
    sender = connected(port)
    for _ in range(100):
        sender.sendall(send("/topic/broad", b"x", headers="persistent:false\n"))
        for link in links:
            link.setblocking(False)
            with contextlib.suppress(OSError):
                link.recv(MEGABYTE)
    settle(sender)
    return [*links, sender]


@attack("120 slow HTTP heads at the admin port, and somebody who asks there meanwhile", is_ours=True, limits=16, is_admin=True)
def slow_heads(port: int) -> list[socket.socket]:
    """Half a head each, an octet more ten times a second. Who asks in earnest is answered within a second."""
    question = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
    links = [opened(port) for _ in range(120)]
    for link in links:
        link.sendall(question[:20])
    for at in range(20, 40):
        begun = time.monotonic()
        with opened(port) as another:
            another.sendall(question + b"Connection: close\r\n\r\n")
            answer = another.recv(4096)
        if not answer.startswith(b"HTTP/1.1 200") or time.monotonic() > begun + 1:
            raise ConnectionError(f"after {time.monotonic() - begun:.1f} s: {answer[:40]!r}")
        for link in links:
            with contextlib.suppress(OSError):  # it has made room
                link.sendall(question[at : at + 1])
        time.sleep(0.1)
    return links


# Memory


@attack("receipts that are never read, 400 MB of them")
def unread_receipts(port: int) -> list[socket.socket]:
    link = connected(port)
    receipt = "r" * 1000
    pour(link, [send("/topic/nobody", b"", headers=f"receipt:{receipt}\n") * 1000] * 400, reads=False)
    return [link]


@attack("errors that are never read, STOMP 1.1, 400 MB of frames")
def unread_errors(port: int) -> list[socket.socket]:
    link = connected(port, "1.1")
    pour(link, [b"UNSUBSCRIBE\nid:%b\n\n\0" % (b"u" * 1000) * 1000] * 400, reads=False)
    return [link]


@attack("pongs that are never read, 100 MB of pings")
def unread_pongs(port: int) -> list[socket.socket]:
    link = websocket(port)
    link.sendall(ws_frame(1, b"CONNECT\naccept-version:1.2\nhost:/\nlogin:guest\npasscode:guest\n\n\0"))
    pour(link, [ws_frame(9, b"p" * 100) * 10_000] * 100, reads=False)
    return [link]


@attack("three open transactions of 90 MB")
def large_transactions(port: int) -> list[socket.socket]:
    links = [connected(port) for _ in range(3)]
    for link in links:
        link.sendall(b"BEGIN\ntransaction:t\n\n\0")
        pour(link, [send("/queue/never", b"x" * 50_000, headers="transaction:t\n")] * 1800)
    return links


@attack("an open transaction of 1,000,000 empty bodies")
def empty_transaction(port: int) -> list[socket.socket]:
    link = connected(port)
    link.sendall(b"BEGIN\ntransaction:t\n\n\0")
    pour(link, [b"".join([send("/queue/never", headers=f"transaction:t\nn:{n}\n") for n in range(start, start + 10_000)])
                for start in range(0, 1_000_000, 10_000)])  # fmt: skip
    return [link]


@attack("five frames that are no SEND, with bodies of 90 MiB")
def bodies_of_others(port: int) -> list[socket.socket]:
    links = [connected(port) for _ in range(5)]
    for link in links:
        pour(link, [b"ACK\nid:1\ncontent-length:%d\n\n" % (90 * MEGABYTE), *[bytes(MEGABYTE)] * 89])
    return links


@attack("five subscriptions with consumer-window-size:-1 that do not read, 500 MB sent to them", limits=MESSAGES)
def unread_messages(port: int) -> list[socket.socket]:
    links = [connected(port) for _ in range(5)]
    for link in links:
        link.sendall(subscribe(1, "/topic/unread", headers="consumer-window-size:-1\n"))
    sender = connected(port)
    pour(sender, [send("/topic/unread", b"x" * 50_000)] * 2000)
    return [*links, sender]


@attack("400 retained messages of 1 MB", is_ours=True, limits=REMEMBERED + MESSAGES, stays=REMEMBERED)
def retained(port: int) -> list[socket.socket]:
    link = connected(port, "1.1")  # in which one that is refused does not end the others
    pour(link, (send(f"/topic/retained.{n}", b"x" * 1_000_000, headers="retain:set\npersistent:false\n") for n in range(400)))
    settle(link)
    return [link]


@attack("4,000 duplicate ids of 60 KB", is_ours=True, limits=REMEMBERED, stays=REMEMBERED)
def duplicate_ids(port: int) -> list[socket.socket]:
    link = connected(port)
    pour(link, [send("/topic/once", b"x", headers=f"_AMQ_DUPL_ID:{n:060000d}\n") for n in range(4000)])
    settle(link)
    return [link]


@attack("200,000 SENDs, each with header names of its own")
def header_names(port: int) -> list[socket.socket]:
    link = connected(port)
    pour(link, [b"".join([send("/topic/names", b"x", headers=f"name-{n}:1\nother-{n}:{n}\n") for n in range(start, start + 1000)])
                for start in range(0, 200_000, 1000)])  # fmt: skip
    settle(link)
    return [link]


@attack(
    "50,000 addresses asked for by a user without rights", is_ours=True,
    toml='[[user]]\nname = "guest"\npassword = "guest"\n[[user]]\nname = "probe"\npassword = "guest"\ngroups = ["probe"]\n'
    '[[permission]]\nmatch = "probe"\nsend = ["probe"]\nconsume = ["probe"]\n'
    'create-address = ["probe"]\ncreate-durable-queue = ["probe"]\n',
)  # fmt: skip
def permission_cache(port: int) -> list[socket.socket]:
    link = connected(port, "1.1")
    pour(link, [send(f"/queue/{n:060000d}", b"x") for n in range(4000)])
    drain(link)
    return [link]


@attack("eight rounds of 5,000 connections that come and go")
def churn(port: int) -> list[socket.socket]:
    for _ in range(8):
        links = [connected(port) for _ in range(5000)]
        for link in links:
            link.close()
    return []


def main() -> None:
    """`python -m bench.attacks NAME PORT`: says `done` when all is sent, and keeps its connections until its stdin ends."""
    name, port = sys.argv[1], int(sys.argv[2])
    kept: list[socket.socket] = []
    try:
        kept = ATTACKS[name].run(port)
        print("done", flush=True)
    except (OSError, ConnectionError) as error:
        print(f"cut off: {error}", flush=True)
    sys.stdin.read()
    for link in kept:
        link.close()


if __name__ == "__main__":
    main()
