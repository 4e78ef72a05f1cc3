"""Attacks of a client with an account that uses several features at once: what each bounds by itself may add up."""

from __future__ import annotations

import json
import re
import socket
import time

from bench.attacks.attacker import (
    CLIENTS,
    MESSAGES,
    TAKES_ALL,
    answer,
    attack,
    connected,
    drain,
    opened,
    pour,
    send,
    settle,
    subscribe,
)
from bench.attacks.many import filled, until

_ESCAPES = r"\\\c" * 15_000
_DEEP = b"<a>" * 100 + b"</a>" * 100
_DIVERTED = """
[[divert]]
name = "deep"
address = "diverted"
forwarding-address = "elsewhere"
filter = "XPATH 'count(//a[.//a]) > 100'"
"""


@attack(
    "40 subscriptions with `LIKE '%a_b%'` and 20 messages with a header of 60 KB",
    limits=CLIENTS + MESSAGES,
    stays=MESSAGES,
)
def underscores(port: int) -> list[socket.socket]:
    link = connected(port)
    pour(
        link,
        [
            b"".join(
                [
                    subscribe(n, f"/{kind}/liked", headers=f"selector:text LIKE '%a_b{n}%'\n")
                    for n, kind in enumerate(["topic", "queue"] * 20)
                ]
            )
        ],
    )
    for kind in ("topic", "queue"):
        frames = [send(f"/{kind}/liked", b"x", headers=f"n:{n}\ntext:{'a' * 60_000}\n") for n in range(10)]
        pour(link, [b"".join(frames)])
    settle(link)
    return [link]


@attack(
    "a COMMIT of 1,000 messages that a divert with XPATH looks into",
    is_ours=True,
    toml=_DIVERTED,
    limits=MESSAGES,
    stays=MESSAGES,
)
def committed_by_xpath(port: int) -> list[socket.socket]:
    link = connected(port)
    sends = [send("/queue/diverted", _DEEP, headers="transaction:t\n") for _ in range(1000)]
    pour(link, [b"BEGIN\ntransaction:t\n\n\0", *sends, b"COMMIT\ntransaction:t\n\n\0"])
    settle(link)
    return [link]


@attack("20 browsers of a queue of which a consumer has 100,000 messages", limits=MESSAGES, stays=MESSAGES)
def browsed_unacknowledged(port: int) -> list[socket.socket]:
    link = connected(port)
    pour(link, [subscribe(1, "/queue/taken", headers=TAKES_ALL)])
    filled(connected(port), "/queue/taken")
    drain(link)
    browsers = connected(port)
    pour(
        browsers,
        [b"".join([subscribe(n, "/queue/taken", headers="browser:true\n") for n in range(20)])],
    )
    settle(browsers)
    return [link, browsers]


@attack(
    "2,000 connections that take one durable subscription over from each other",
    is_ours=True,
    limits=MESSAGES,
    stays=MESSAGES,
)
def takeovers(port: int) -> list[socket.socket]:
    sender = connected(port)
    links: list[socket.socket] = []
    for number in range(2000):
        link = opened(port)
        if links:
            links.pop().close()  # who is not about to leave keeps the subscription
        link.sendall(
            b"CONNECT\naccept-version:1.2\nhost:/\nlogin:guest\npasscode:guest\nclient-id:one\n\n\0"
            + subscribe(1, "/topic/over", headers="durable-subscription-name:d\nselector:n % 7 = 3\n")
        )
        links.append(link)
        if number % 20 == 0:
            pour(sender, [b"".join([send("/topic/over", b"x", headers=f"n:{n}\n") for n in range(20)])])
    settle(sender)
    return links


@attack(
    "20,000 requests in one write: describe, groups, and fetch with a selector",
    is_ours=True,
    limits=CLIENTS + MESSAGES,
    stays=MESSAGES,
)
def requests(port: int) -> list[socket.socket]:
    link = connected(port)
    filled(link, "/queue/asked", count=20_000)
    frames = []
    for number in range(20_000):
        name = ("describe", "groups", "fetch")[number % 3]
        body = json.dumps(
            {"address": "asked", "addresses": ["asked"], "from": 0, "to": 20_000, "selector": "n = 5"}
        )
        frames.append(
            send(
                "stompbox.requests",
                body.encode(),
                headers=f"request:{name}\nrequest-id:{number}\naddress:asked\n",
            )
        )
    pour(link, [b"".join(frames)])
    drain(link)
    return [link]


def _request(name: str, wish: object, headers: str = "") -> bytes:
    head = f"request:{name}\nrequest-id:1\n{headers}"
    return send("stompbox.requests", json.dumps(wish).encode(), headers=head)


@attack("describe with 5,000 wildcards over 300 addresses", is_ours=True)
def described_by_wildcards(port: int) -> list[socket.socket]:
    link = connected(port)
    pour(link, [b"".join([send(f"/topic/d.{n}", b"x") for n in range(300)])])
    pour(link, [_request("describe", {"destinations": ",".join([f"*.q{n}" for n in range(5000)])})])
    settle(link)
    return [link]


@attack("14 connections that each name 150,000 addresses in one describe", is_ours=True)
def described_by_name(port: int) -> list[socket.socket]:
    links = [connected(port) for _ in range(14)]
    for link in links:
        pour(link, [_request("describe", {"destinations": ",".join([f"{n:x}" for n in range(150_000)])})])
    for link in links:
        settle(link)
    return links


@attack("group-commit of 75,000 addresses, and publish of 90,000 attempts", is_ours=True)
def committed_by_name(port: int) -> list[socket.socket]:
    link = connected(port)
    opening = _request("group-open", {"destinations": "/topic/one"}, "group:g\nstarting:latest\n")
    offsets = _request("group-commit", {f"a{n:x}": 1 for n in range(75_000)}, "group:g\n")
    attempts = _request("publish", {"attempts": [[n, 1] for n in range(90_000)]}, "sink:s\nbatch:1\n")
    pour(link, [opening, offsets, attempts])
    settle(link)
    return [link]


@attack(
    "12 connections that each fetch 5,000 messages with an XPATH four times",
    is_ours=True,
    limits=CLIENTS + MESSAGES,
    stays=MESSAGES,
)
def fetched_by_xpath(port: int) -> list[socket.socket]:
    link = connected(port)
    pour(link, [b"".join([send("/queue/deep", b"<a>" * 60 + b"</a>" * 60) for _ in range(5000)])])
    settle(link)
    links = [connected(port) for _ in range(12)]
    selector = "address:deep\nstart:0\nstop:5000\nselector:XPATH 'count(//a[.//a]) > 100'\n"
    for one in links:
        pour(one, [_request("fetch", {}, selector) * 4])
    drain(link)
    return [link, *links]


@attack("40 connections with 1,000 temporary queues each, that go at once")
def temporaries(port: int) -> list[socket.socket]:
    links = [connected(port) for _ in range(40)]
    for link in links:
        pour(link, [b"".join([subscribe(n, f"/temp-queue/t{n}") for n in range(1000)])])
        settle(link)
    for link in links:
        link.close()
    return []


@attack("1,000 wildcards with selectors over 25 addresses, which end in one write", is_ours=True)
def ending_wildcards(port: int) -> list[socket.socket]:
    link = connected(port)
    pour(link, [b"".join([send(f"/topic/wide.{n}", b"x", headers="retain:set\n") for n in range(25)])])
    for _ in range(3):
        pour(
            link,
            [
                b"".join(
                    [
                        subscribe(n, "/topic/wide.#", headers=f"selector:n = {n} OR m > {n}\n")
                        for n in range(1000)
                    ]
                )
            ],
        )
        settle(link)
        pour(link, [send(f"/topic/wide.{n}", b"x", headers=f"m:{n}\n") for n in range(25)])
        pour(link, [b"".join([b"UNSUBSCRIBE\nid:%d\n\n\0" % n for n in range(1000)])])
        settle(link)
    return [link]


@attack("1,000 SENDs with a header of 60 KB that is nothing but escapes")
def escapes(port: int) -> list[socket.socket]:
    link = connected(port)
    frames = (send("/topic/escaped", b"x", headers=f"n{n % 50}:{n}\nvalue:{_ESCAPES}\n") for n in range(1000))
    pour(link, [subscribe(1, "/topic/escaped"), *frames])
    settle(link)
    return [link]


@attack(
    "100,000 NACKs of one read each, with a redelivery delay",
    toml='[[address-setting]]\nmatch = "#"\nredelivery-delay = 2000\nmax-delivery-attempts = 3\n',
    limits=MESSAGES + CLIENTS,
    stays=MESSAGES,
)
def nacked(port: int) -> list[socket.socket]:
    link = connected(port)
    pour(link, [subscribe(1, "/queue/nacked", headers=TAKES_ALL)])
    sender = connected(port)
    filled(sender, "/queue/nacked")
    answer(link, b"NACK", 40)
    return [link, sender]


_MIXED = """
[[address-setting]]
match = "#"
default-ring-size = 50000
expiry-address = "expired"
auto-delete-queues = false
auto-delete-addresses = false
"""


@attack(
    "100,000 messages that are scheduled, and expire, in a ring of 50,000",
    is_ours=True,
    toml=_MIXED,
    stays=MESSAGES // 2,  # 50,000 in the queue of what has expired
)
def scheduled_ring(port: int) -> list[socket.socket]:
    link = connected(port)
    when = time.time() + 30
    headers = f"AMQ_SCHEDULED_TIME:{int(when * 1000)}\nexpires:{int(when * 1000) + 1500}\n"
    filled(link, "/queue/mixed", headers=headers)
    until(when + 2)
    settle(link)
    return [link]


_PAGED = '[[address-setting]]\nmatch = "#"\nmax-size-bytes = "1MiB"\naddress-full-policy = "PAGE"\n'


@attack("COMMITs of 300,000 tiny messages to an address that is paged", toml=_PAGED)
def tiny_commit(port: int) -> list[socket.socket]:
    link = connected(port)
    for name in ("one", "two"):
        pour(link, [b"BEGIN\ntransaction:%b\n\n\0" % name.encode()])
        for start in range(0, 150_000, 10_000):
            frames = [
                send("/queue/tiny", b"x", headers=f"transaction:{name}\nn-{n % 7}:1\n")
                for n in range(start, start + 10_000)
            ]
            pour(link, [b"".join(frames)])
        pour(link, [b"COMMIT\ntransaction:%b\n\n\0" % name.encode()])
    settle(link)
    return [link]


@attack("COMMITs of 20,000 persistent messages of seven shapes in turns, to ten queues", stays=MESSAGES)
def varied_commits(port: int) -> list[socket.socket]:
    link = connected(port)
    for _ in range(5):
        frames = [
            send(f"/queue/varied-{n % 10}", b"x", headers=f"transaction:t\nn-{n % 7}:1\n")
            for n in range(20_000)
        ]
        pour(link, [b"BEGIN\ntransaction:t\n\n\0", b"".join(frames), b"COMMIT\ntransaction:t\n\n\0"])
        settle(link)
    return [link]


@attack(
    "100,000 messages with 5,000 keys to a last-value queue",
    limits=MESSAGES,
    stays=MESSAGES,
    toml='[[address-setting]]\nmatch = "#"\ndefault-last-value-key = "k"\n',
)
def last_values(port: int) -> list[socket.socket]:
    link = connected(port)
    frames = [send("/queue/last", b"", headers=f"persistent:false\nk:{n % 5000}\n") for n in range(100_000)]
    pour(link, [b"".join(frames)])
    settle(link)
    return [link]


@attack("one NACK that makes dead letters of 100,000 messages in long runs", limits=MESSAGES, stays=MESSAGES)
def rejected_runs(port: int) -> list[socket.socket]:
    links = [connected(port), connected(port)]
    headers = "ack:client\nconsumer-window-size:-1\n"
    pour(links[0], [subscribe(1, "/queue/rejected", headers=headers)])
    settle(links[0])
    pour(links[1], [send("/queue/rejected", b"x", headers="persistent:false\n") * 1000] * 100)
    settle(links[1])
    heard = b""
    while not (found := re.findall(rb"\nack:(\d+-99999)\n", heard)):
        more = links[0].recv(1 << 20)
        if not more:
            raise ConnectionError("the consumer was closed")
        heard = heard[-2000:] + more
    links[0].sendall(b"NACK\nid:%b\nrequeue:false\n\n\0" % found[-1])
    settle(links[0])
    return links
