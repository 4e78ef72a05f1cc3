"""Attacks by number: very many messages, addresses or subscriptions that one event is about."""

from __future__ import annotations

import contextlib
import socket
import time

from bench.attacks.attacker import (
    CLIENTS,
    MEGABYTE,
    MESSAGES,
    SCHEDULED,
    TAKES_ALL,
    again,
    attack,
    connected,
    drain,
    opened,
    pour,
    send,
    settle,
    subscribe,
)

MANY = 100_000
WIDE = 15_000  # addresses
WIDE_MIB = 65  # that these have, with a retained message each, and keep by _STAYING
MADE_MIB = 160  # of as many addresses as a user may make


def filled(link: socket.socket, destination: str, *, headers: str = "", count: int = MANY) -> None:
    """So many messages, of seven shapes in turn, so that hardly two of them are a run."""
    for start in range(0, count, 10_000):
        frames = [
            send(destination, b"x", headers=f"name-{n % 7}:1\npersistent:false\n{headers}")
            for n in range(start, start + 10_000)
        ]
        pour(link, [b"".join(frames)])
    settle(link)


def until(when: float) -> None:
    time.sleep(max(0.0, when + 2.0 - time.time()))


_STAYING = '[[address-setting]]\nmatch = "#"\nauto-delete-queues = false\nauto-delete-addresses = false\n'


@attack(
    "100,000 messages with one `expires`, and a consumer",
    toml=_STAYING + 'expiry-address = "expired"\n',
    stays=MESSAGES,
)
def expiry(port: int) -> list[socket.socket]:
    link = connected(port)
    when = time.time() + 30
    filled(link, "/queue/expiring", headers=f"expires:{int(when * 1000)}\n")
    until(when)
    settle(link)
    return [link]


@attack("100,000 messages scheduled for one time", is_ours=True, limits=CLIENTS + MESSAGES, stays=MESSAGES)
def scheduled(port: int) -> list[socket.socket]:
    link = connected(port)
    when = time.time() + 30
    filled(link, "/queue/scheduled", headers=f"AMQ_SCHEDULED_TIME:{int(when * 1000)}\n")
    until(when)
    settle(link)
    return [link]


@attack(
    "5,000 messages in one write that repeat on a leap day which is a Sunday",
    is_ours=True,
    limits=CLIENTS + SCHEDULED,
    stays=SCHEDULED,
)
def leap_days(port: int) -> list[socket.socket]:
    link = connected(port)
    headers = "AMQ_SCHEDULED_CRON:59 23 29 2 */7\npersistent:false\n"
    pour(link, [send("/queue/leap", b"x", headers=headers) * 5000])
    settle(link)
    return [link]


@attack("100,000 messages in one write with 15,000 values of _AMQ_DUPL_ID", is_ours=True, stays=MESSAGES)
def numbered(port: int) -> list[socket.socket]:
    link = connected(port)
    frames = [send("/queue/numbered", b"x", headers=f"_AMQ_DUPL_ID:{n % 15_000}\n") for n in range(MANY)]
    pour(link, [b"".join(frames)])
    settle(link)
    return [link]


@attack(
    "a subscription that goes with 100,000 messages, which it has not read",
    limits=CLIENTS + MESSAGES,
    stays=MESSAGES,
)
def unread_gone(port: int) -> list[socket.socket]:
    link, reader = connected(port), connected(port)
    filled(link, "/queue/unread")
    pour(reader, [subscribe(1, "/queue/unread", headers=TAKES_ALL)], reads=False)
    settle(link)
    reader.close()
    settle(link)
    return [link]


@attack(
    "a queue of 100,000 messages, purged when its last consumer leaves",
    toml=_STAYING + "default-purge-on-no-consumers = true\n",
)
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


@attack(
    "one ACK for 100,000 messages, and an ABORT that gives them back",
    limits=CLIENTS + MESSAGES,
    stays=MESSAGES,
)
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
        pour(
            link,
            [
                b"".join(
                    [send(f"/topic/{prefix}.{n}", b"x", headers=headers) for n in range(start, start + 1000)]
                )
            ],
        )
    settle(link)


@attack(
    "a durable subscription to a wildcard over 15,000 addresses, which is made and dropped",
    is_ours=True,
    toml=_STAYING,
    stays=WIDE_MIB,
)
def durable_wildcard(port: int) -> list[socket.socket]:
    link = opened(port)
    link.sendall(b"CONNECT\naccept-version:1.2\nhost:/\nlogin:guest\npasscode:guest\nclient-id:wide\n\n\0")
    _addressed(link, "wide", WIDE, headers="retain:set\npersistent:false\n")
    pour(link, [subscribe(1, "/topic/wide.#", headers="durable-subscription-name:wide\n")])
    settle(link)
    pour(link, [b"UNSUBSCRIBE\nid:1\ndurable-subscription-name:wide\n\n\0"])
    settle(link)
    return [link]


@attack(
    "a SUBSCRIBE to a wildcard over 15,000 topics that each retain a message",
    is_ours=True,
    toml=_STAYING,
    stays=WIDE_MIB,
)
def retained_wildcard(port: int) -> list[socket.socket]:
    link = connected(port)
    _addressed(link, "kept", WIDE, headers="retain:set\npersistent:false\n")
    pour(link, [subscribe(1, "/topic/kept.#")])
    settle(link)
    drain(link)
    return [link]


@attack(
    "SENDs to 100,000 new topics, of which a user may make 28,000",
    is_ours=True,
    toml=_STAYING,
    limits=CLIENTS + MADE_MIB,
    stays=MADE_MIB,
)
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


@attack("4,500 connections that are silent, and then say their first octet at once, ten times")
def first_octets(port: int) -> list[socket.socket]:
    for first in (b"C", b"\n") * 5:
        links = [opened(port) for _ in range(4500)]
        for link in links:
            link.send(first)
        time.sleep(0.5)
        for link in links:
            link.close()
    return []


@attack(
    "500 connections that say forty short frames each in one small write, and the next when they are answered"
)
def small_reads(port: int) -> list[socket.socket]:
    links = [connected(port) for _ in range(500)]
    pairs = b"BEGIN\ntransaction:1\n\n\0ABORT\ntransaction:1\n\n\0" * 19
    said = pairs + b"BEGIN\ntransaction:1\n\n\0ABORT\ntransaction:1\nreceipt:1\n\n\0"
    again(links, lambda _: said)
    return links


@attack(
    "120 slow HTTP heads at the admin port, and somebody who asks there meanwhile",
    is_ours=True,
    limits=16,
    is_admin=True,
)
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


@attack(
    "40 connections that ask the API for one thing after the other, for 15 s",
    is_ours=True,
    limits=16,
    is_admin=True,
)
def api_calls(port: int) -> list[socket.socket]:
    links = [opened(port) for _ in range(40)]
    names = ("overview", "queues", "connections", "addresses", "permissions", "nothing-of-this-name")
    questions = [f"GET /api/v1/{name} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() for name in names]
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline:
        for number, link in enumerate(links):
            link.sendall(questions[number % len(questions)])
        for link in links:
            link.recv(MEGABYTE)
    return links
