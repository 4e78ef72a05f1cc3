"""Attacks by what one message is made into: very many readers who take all of it, and acknowledge it, at once."""

from __future__ import annotations

import contextlib
import select
import socket
import time

from bench.attacks.attacker import (
    CLIENTS,
    MESSAGES,
    TAKES_ALL,
    answer_all,
    attack,
    connected,
    pour,
    read,
    send,
    settle,
    subscribe,
)
from bench.attacks.many import filled

VOLATILE = "persistent:false\n"


def readers(port: int, count: int) -> list[socket.socket]:
    links = [connected(port) for _ in range(count)]
    for link in links:
        link.sendall(subscribe(1, "/topic/wide"))
        link.setblocking(False)
    return links


def read_by_all(
    sender: socket.socket, links: list[socket.socket], said: bytes, seconds: float = 15.0
) -> None:
    """Says it again and again, as soon as nobody has anything to read any more."""
    poller, by_number = select.epoll(), {link.fileno(): link for link in links}
    for number in by_number:
        poller.register(number, select.EPOLLIN)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pour(sender, [said])
        settle(sender)
        while found := poller.poll(0.2):
            for number, _ in found:
                with contextlib.suppress(BlockingIOError):
                    read(by_number[number])


@attack("60 messages of three shapes to 3,000 connections, again and again", limits=CLIENTS + MESSAGES)
def wide_runs(port: int) -> list[socket.socket]:
    sender, links = connected(port), readers(port, 3000)
    frames = [send("/topic/wide", b"x" * 300, headers=f"{VOLATILE}h:{n % 3}\n") for n in range(60)]
    read_by_all(sender, links, b"".join(frames))
    return [*links, sender]


@attack("two messages of 40 KB to 3,000 connections, again and again", limits=CLIENTS + MESSAGES)
def wide_bodies(port: int) -> list[socket.socket]:
    sender, links = connected(port), readers(port, 3000)
    read_by_all(sender, links, 2 * send("/topic/wide", b"x" * 40_000, headers=VOLATILE))
    return [*links, sender]


@attack("a message of 1.5 MB to 500 connections, again and again", limits=CLIENTS + MESSAGES)
def wide_large(port: int) -> list[socket.socket]:
    sender, links = connected(port), readers(port, 500)
    read_by_all(sender, links, send("/topic/wide", b"x" * 1_500_000, headers=VOLATILE))
    return [*links, sender]


@attack(
    "300 queues whose consumers have all that they may, and give it back at once: every other message by NACK",
    is_ours=True,
    limits=CLIENTS + MESSAGES,
    stays=MESSAGES,
)
def denied(port: int) -> list[socket.socket]:
    sender, links = connected(port), [connected(port) for _ in range(300)]
    for number, link in enumerate(links):
        link.sendall(subscribe(1, f"/queue/denied.{number}", headers=TAKES_ALL))
    until = time.monotonic() + 20
    while time.monotonic() < until:
        for number in range(len(links)):
            pour(sender, [200 * send(f"/queue/denied.{number}", b"x", headers=VOLATILE)])
        settle(sender)
        answer_all(links, 200, b"NACK")
    return [*links, sender]


@attack(
    "3,000 subscriptions of ten connections to one queue, each with one message at a time, and 50,000 messages",
    limits=CLIENTS + MESSAGES,
    stays=MESSAGES,
)
def one_each(port: int) -> list[socket.socket]:
    sender, links = connected(port), [connected(port) for _ in range(10)]
    headers = "ack:client-individual\nprefetch-count:1\n"
    for link in links:
        pour(link, [b"".join([subscribe(n, "/queue/one", headers=headers) for n in range(300)])])
        settle(link)
    filled(sender, "/queue/one", count=50_000)
    until = time.monotonic() + 10
    while time.monotonic() < until:
        answer_all(links, 300, b"ACK")
    return [*links, sender]
