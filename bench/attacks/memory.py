"""Attacks on memory: what is kept for a client that does not read, does not end, or has names without end."""

from __future__ import annotations

import select
import socket
import time

from bench.attacks.attacker import (
    MEGABYTE,
    MESSAGES,
    REMEMBERED,
    TAKES_ALL,
    attack,
    connected,
    drain,
    pour,
    send,
    settle,
    subscribe,
    websocket_client,
    ws_frame,
)


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


@attack("pongs that are never read, 100 MB of pings", is_websocket=True)
def unread_pongs(port: int) -> list[socket.socket]:
    link = websocket_client(port)
    pour(link, [ws_frame(9, b"p" * 100) * 10_000] * 100, reads=False)
    return [link]


@attack("three open transactions of 90 MB")
def large_transactions(port: int) -> list[socket.socket]:
    links = [connected(port) for _ in range(3)]
    for link in links:
        link.sendall(b"BEGIN\ntransaction:t\n\n\0")
        pour(link, [send("/queue/never", b"x" * 50_000, headers="transaction:t\n")] * 1800)
    return links


@attack("20 uploads of 100 MiB at once that end after ten, four times")
def uploads(port: int) -> list[socket.socket]:
    for _ in range(4):
        links = [connected(port) for _ in range(20)]
        for link in links:
            link.sendall(b"SEND\ndestination:/queue/large\ncontent-length:%d\n\n" % (100 * MEGABYTE))
        for _ in range(10):
            for link in links:
                link.sendall(bytes(MEGABYTE))
        for link in links:
            link.close()
    return [connected(port)]


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


@attack(
    "five subscriptions with consumer-window-size:-1 that do not read, 500 MB sent to them", limits=MESSAGES
)
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
    pour(
        link,
        (
            send(f"/topic/retained.{n}", b"x" * 1_000_000, headers="retain:set\npersistent:false\n")
            for n in range(400)
        ),
    )
    settle(link)
    return [link]


@attack("4,000 duplicate ids of 60 KB", is_ours=True, limits=REMEMBERED, stays=REMEMBERED)
def duplicate_ids(port: int) -> list[socket.socket]:
    link = connected(port)
    pour(link, [send("/topic/once", b"x", headers=f"_AMQ_DUPL_ID:{n:060000d}\n") for n in range(4000)])
    settle(link)
    return [link]


@attack(
    "2,000 persistent messages with headers of 60 KB, which five clients have and do not acknowledge",
    limits=MESSAGES,
    stays=MESSAGES,
)
def long_headers(port: int) -> list[socket.socket]:
    links, sender = [connected(port) for _ in range(5)], connected(port)
    for number, link in enumerate(links):
        link.sendall(
            b"".join([subscribe(n, f"/queue/long.{number}.{n}", headers=TAKES_ALL) for n in range(4)])
        )
    for start in range(0, 2000, 20):
        frames = [
            send(f"/queue/long.{n % 5}.{n // 5 % 4}", headers=f"persistent:true\nh:{n:060000d}\n")
            for n in range(start, start + 20)
        ]
        pour(sender, frames)
        while readable := select.select(links, [], [], 0)[0]:
            if not all(link.recv(MEGABYTE) for link in readable):
                return [*links, sender]
    settle(sender)
    return [*links, sender]


@attack("60 queues of 10 MB in the log, and a consumer of each, all at once", limits=MESSAGES, stays=MESSAGES)
def read_at_once(port: int) -> list[socket.socket]:
    sender, links = connected(port), [connected(port) for _ in range(4)]
    for number in range(60):
        whole = b"".join([send(f"/queue/read.{number}", b"x" * 16_000, headers="persistent:true\n")] * 40)
        pour(sender, [whole] * 16)
    settle(sender)
    for number, link in enumerate(links):
        link.sendall(b"".join([subscribe(n, f"/queue/read.{n}", headers="ack:client-individual\nconsumer-window-size:1000\n")
                               for n in range(number, 60, 4)]))  # fmt: skip
    settle(links[-1])
    return [*links, sender]


@attack("5,000 addresses with names of 60 KB")
def long_names(port: int) -> list[socket.socket]:
    link = connected(port, "1.1")  # in which one that is refused does not end the others
    pour(link, (send(f"/queue/{n:060000d}", b"x", headers="persistent:false\n") for n in range(5000)))
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


@attack("10,000 subscriptions that are made and dropped, and made again seconds later, for 30 s")
def made_and_dropped(port: int) -> list[socket.socket]:
    """What they leave is given back as often as that."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        links = [connected(port) for _ in range(10)]
        for link in links:
            selected = [
                subscribe(n, f"/topic/dropped.{n}", headers=f"selector:a = {n}\n") for n in range(1000)
            ]
            pour(link, [b"".join(selected)])
            settle(link)
        for link in links:
            link.close()
        time.sleep(3)
    return []
