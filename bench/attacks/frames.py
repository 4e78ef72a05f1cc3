"""Attacks with octets and frames that cost more than they are: of strangers, who have not logged in, and of clients."""

from __future__ import annotations

import socket
import struct
import time

from bench.attacks.attacker import (
    CLIENTS,
    MEGABYTE,
    MESSAGES,
    again,
    attack,
    connected,
    drain,
    opened,
    pour,
    send,
    settle,
    subscribe,
    websocket,
    websocket_client,
    ws_frame,
)

RESETS = struct.pack("ii", 1, 0)  # SO_LINGER: what is not sent and read goes with the close


def _strangers(
    port: int, first: bytes, repeated: bytes, *, count: int = 4, octets: int = 4 * MEGABYTE
) -> list[socket.socket]:
    links = [websocket(port) for _ in range(count)]
    for link in links:
        pour(link, [first, *[repeated * (MEGABYTE // len(repeated))] * (octets // MEGABYTE)])
    return links


@attack("nobody: a process that computes for 5 s and says nothing to the broker")
def only_computes(port: int) -> list[socket.socket]:
    until = time.monotonic() + 5
    while time.monotonic() < until:
        pass
    return []


@attack("nobody: a client sends 1 KiB a message as fast as it can, and takes them")
def streams(port: int) -> list[socket.socket]:
    link = connected(port)
    frames = send("/queue/ordinary", b"x" * 1024, headers="persistent:false\n") * 64
    pour(link, [subscribe(1, "/queue/ordinary"), *[frames] * 2000])
    return [link]


@attack("strangers, WebSocket: messages of one octet", is_websocket=True)
def ws_tiny_messages(port: int) -> list[socket.socket]:
    return _strangers(port, b"", ws_frame(2, b"\n"))


@attack("strangers, WebSocket: empty continuations", is_websocket=True)
def ws_continuations(port: int) -> list[socket.socket]:
    return _strangers(port, ws_frame(2, b"", fin=False), ws_frame(0, b"", fin=False))


@attack("strangers, WebSocket: pings", is_websocket=True)
def ws_pings(port: int) -> list[socket.socket]:
    return _strangers(port, b"", ws_frame(9, b""))


@attack("strangers: bare line feeds")
def line_feeds(port: int) -> list[socket.socket]:
    links = [opened(port) for _ in range(4)]
    for link in links:
        pour(link, [b"\n" * MEGABYTE] * 8)
    return links


@attack("100 strangers, WebSocket, 3 MiB of one message each", is_websocket=True)
def ws_strangers(port: int) -> list[socket.socket]:
    links = [websocket(port) for _ in range(100)]
    for link in links:
        pour(link, [ws_frame(2, b"CONNECT\nx:" + bytes(b"a" * (3 * MEGABYTE)))[: 3 * MEGABYTE]])
    return links


@attack(
    "500 connections, WebSocket: sixty pings in one small write, and the next when they are answered",
    is_websocket=True,
)
def ws_small_reads(port: int) -> list[socket.socket]:
    links = [websocket_client(port) for _ in range(500)]
    for link in links:
        link.recv(4096)
    pings = ws_frame(9, b"p") * 60
    again(links, lambda _: pings)
    return links


@attack(
    "20 connections, WebSocket, again and again: 4,000 SENDs with receipts in one write, and a reset",
    is_websocket=True,
)
def ws_resets(port: int) -> list[socket.socket]:
    said = b"".join(
        [
            ws_frame(2, send("/queue/resets", b"x", headers=f"persistent:false\nreceipt:{n}\n"))
            for n in range(4_000)
        ]
    )
    until = time.monotonic() + 5
    while time.monotonic() < until:
        for _ in range(20):
            link = websocket_client(port)
            link.recv(4096)
            link.sendall(said)
            link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESETS)
            link.close()
    return []


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
    pour(
        link,
        [
            b"".join(
                [b"BEGIN\ntransaction:%d\n\n\0ABORT\ntransaction:%d\n\n\0" % (n, n) for n in range(100_000)]
            )
        ],
    )
    settle(link)
    return [link]


@attack("SUBSCRIBE and UNSUBSCRIBE, 50,000 in one write")
def subscribe_unsubscribe(port: int) -> list[socket.socket]:
    link = connected(port)
    pour(
        link,
        [
            b"".join(
                [subscribe(n, f"/topic/{n % 100}") + b"UNSUBSCRIBE\nid:%d\n\n\0" % n for n in range(50_000)]
            )
        ],
    )
    settle(link)
    return [link]


@attack(
    "300 ACKs of unknown ids, STOMP 1.1, beside 100,000 unacknowledged messages",
    limits=CLIENTS + MESSAGES,
    stays=MESSAGES,
)
def unknown_acks(port: int) -> list[socket.socket]:
    link = connected(port, "1.1")
    for number in (1, 2):  # each has every other message, so that the ids of the other's are in between
        link.sendall(
            subscribe(number, "/queue/unacknowledged", headers="ack:client\nconsumer-window-size:-1\n")
        )
    link.sendall(send("/queue/unacknowledged", b"x"))
    queue = link.recv(MEGABYTE).partition(b"message-id:")[2].partition(b"-")[0]
    pour(
        link,
        [
            b"".join(
                [send("/queue/unacknowledged", b"x", headers=f"name-{n % 7}:1\n") for n in range(100_000)]
            )
        ],
    )
    drain(link)
    acks = [
        b"ACK\nsubscription:%d\nmessage-id:%b-%d\n\n\0" % (1 + n % 2, queue, 99_000 + n // 2)
        for n in range(300)
    ]
    pour(link, [b"".join(acks)])
    drain(link)
    return [link]
