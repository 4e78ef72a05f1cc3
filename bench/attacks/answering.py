"""Attacks by how what one client has lies in the log: apart, in another order, and for many readers of the same."""

from __future__ import annotations

import socket
import time

from bench.attacks.attacker import (
    CLIENTS,
    MESSAGES,
    TAKES_ALL,
    answers,
    attack,
    connected,
    drain,
    ids_of_next,
    pour,
    send,
    settle,
    subscribe,
)
from bench.attacks.many import filled

_KEPT = """
[[address-setting]]
match = "kept"
retention-messages = 200000
"""


@attack(
    "every other one of 60,000 messages acknowledged in a transaction that aborts, three times, and commits",
    limits=CLIENTS + MESSAGES,
    stays=MESSAGES,
)
def acked_apart(port: int) -> list[socket.socket]:
    sender, link = connected(port), connected(port)
    filled(sender, "/queue/apart", count=60_000)
    link.sendall(subscribe(1, "/queue/apart", headers=TAKES_ALL))
    said = answers(b"ACK", ids_of_next(link, 60_000, silence=1.0)[::2], b"transaction:t\n")
    for end in (b"ABORT", b"ABORT", b"ABORT", b"COMMIT"):
        pour(link, [b"BEGIN\ntransaction:t\n\n\0", said, end + b"\ntransaction:t\n\n\0"])
        settle(link)
    return [sender, link]


@attack(
    "100,000 messages of ten priorities in turns, which 20 consumers take, and give back as they go, four times",
    limits=CLIENTS + MESSAGES,
    stays=MESSAGES,
)
def priorities(port: int) -> list[socket.socket]:
    sender = connected(port)
    frames = [send("/queue/ranked", b"x", headers=f"persistent:false\npriority:{n}\n") for n in range(10)]
    pour(sender, [1000 * b"".join(frames)] * 10)
    settle(sender)
    for _ in range(4):
        links = [connected(port) for _ in range(20)]
        for link in links:
            link.sendall(subscribe(1, "/queue/ranked", headers=TAKES_ALL))
        for link in links:
            drain(link, 1.0)
            link.close()
    return [sender]


@attack(
    "300 streams from the first of 100,000 messages with a selector each, begun and ended for 15 s",
    is_ours=True,
    toml=_KEPT,
    limits=CLIENTS + MESSAGES,
    stays=MESSAGES,
)
def streams_again(port: int) -> list[socket.socket]:
    sender, links = connected(port), [connected(port) for _ in range(10)]
    for part in range(10):
        pour(sender, [b"".join([send("/topic/kept", b"x", headers=f"n:{part}{n}\n") for n in range(10_000)])])
    settle(sender)
    head = "x-stream-offset:first\nack:client\n"
    begun = [subscribe(n, "/stream/kept", headers=f"{head}selector:n % 77777 = {n}\n") for n in range(30)]
    ended = [b"UNSUBSCRIBE\nid:%d\n\n\0" % n for n in range(30)]
    until = time.monotonic() + 15
    while time.monotonic() < until:
        for said in (begun, ended):
            for link in links:
                pour(link, [b"".join(said)])
            for link in links:
                settle(link)
    return [sender, *links]
