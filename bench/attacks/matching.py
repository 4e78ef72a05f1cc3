"""Attacks with selectors and wildcards: many, long, and over very much."""

from __future__ import annotations

import socket
import time

from bench.attacks.attacker import (
    CLIENTS,
    MESSAGES,
    SCHEDULED,
    answer,
    attack,
    connected,
    pour,
    send,
    settle,
    subscribe,
)


@attack("200 selectors of 500 terms, 1,000 messages that differ")
def long_selectors(port: int) -> list[socket.socket]:
    link = connected(port)
    terms = [" OR ".join([f"h{term} = '{number}-{term}'" for term in range(500)]) for number in range(200)]
    pour(
        link,
        [
            subscribe(number, "/topic/selected", headers=f"selector:{text}\n")
            for number, text in enumerate(terms)
        ],
    )
    settle(link)
    pour(
        link,
        [b"".join([send("/topic/selected", b"x", headers=f"h1:{n}\nh{n % 500}:{n}\n") for n in range(1000)])],
    )
    settle(link)
    return [link]


@attack("50 consumers with selectors on a queue of 30,000 messages", limits=MESSAGES, stays=MESSAGES)
def selectors_on_backlog(port: int) -> list[socket.socket]:
    link = connected(port)
    pour(link, [b"".join([send("/queue/backlog", b"x" * 100, headers=f"n:{n}\n") for n in range(30_000)])])
    settle(link)
    pour(
        link,
        [
            b"".join(
                [
                    subscribe(n, "/queue/backlog", headers=f"selector:n % 1000 = {n + 2000}\n")
                    for n in range(50)
                ]
            )
        ],
    )
    settle(link)
    return [link]


@attack("5,000 messages of groups to a queue whose 1,000 consumers have selectors")
def groups_by_selector(port: int) -> list[socket.socket]:
    links = [connected(port), connected(port)]
    headers = "selector:n = {0} OR m = {0}\nconsumer-window-size:-1\nack:client-individual\n"
    for first in (0, 500):
        frames = [subscribe(n, "/queue/groups", headers=headers.format(n)) for n in range(first, first + 500)]
        pour(links[0], [b"".join(frames)])
        settle(links[0])
    of_group = "JMSXGroupID:g{}\npersistent:false\nn:{}\n"
    pour(
        links[1],
        [
            b"".join(
                [send("/queue/groups", b"x", headers=of_group.format(n % 7, n % 1000)) for n in range(5000)]
            )
        ],
    )
    settle(links[1])
    return links


@attack("a LIKE selector of 16 KB and 10 messages")
def like_selector(port: int) -> list[socket.socket]:
    link = connected(port)
    pour(link, [subscribe(1, "/topic/liked", headers=f"selector:text LIKE '{'%a' * 8000}b'\n")])
    pour(link, [send("/topic/liked", b"x", headers=f"text:{'a' * 30_000}\n") * 10])
    settle(link)
    return [link]


# 983 tokens, of the 1000 that a selector may have
_PATH = " | ".join(["//*[" * 30 + f"a{number}" + "]" * 30 for number in range(8)])


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
    pour(
        link,
        [
            b"".join(
                [subscribe(n, "/topic/paths", headers=f"selector:XPATH '//b[. = {n}]'\n") for n in range(100)]
            )
        ],
    )
    pour(
        link,
        [
            b"".join(
                [send("/topic/paths", b"<a>" + b"<b>x</b>" * 3000 + b"<!--%d--></a>" % n) for n in range(20)]
            )
        ],
    )
    settle(link)
    return [link]


@attack(
    "500 subscriptions with selectors that are dense: XPATHs of 1,000 tokens in 1,000 characters",
    is_ours=True,
)
def dense_selectors(port: int) -> list[socket.socket]:
    link = connected(port)
    texts = ["+".join([str(number), *["1"] * 490]) for number in range(500)]
    pour(
        link, [b"".join([subscribe(n, f"/topic/dense.{n}", headers=f"selector:XPATH '{text}'\n") for n, text in enumerate(texts)])]
    )  # fmt: skip
    settle(link)
    return [link]


_DEEP = b"<a>" * 100 + b"</a>" * 100


@attack("20 browsers with XPATH of a queue of 2,000 messages", is_ours=True, limits=MESSAGES, stays=MESSAGES)
def browsed_by_xpath(port: int) -> list[socket.socket]:
    link = connected(port)
    pour(link, [b"".join([send("/queue/browsed", _DEEP) for _ in range(2000)])])
    settle(link)
    text = "selector:XPATH 'count(//a[.//a]) > {}'\nbrowser:true\n"
    pour(link, [b"".join([subscribe(n, "/queue/browsed", headers=text.format(100 + n)) for n in range(20)])])
    settle(link)
    return [link]


@attack("a wildcard with XPATH over 500 topics with retained messages", is_ours=True, limits=10, stays=10)
def retained_by_xpath(port: int) -> list[socket.socket]:
    link = connected(port)
    pour(link, [b"".join([send(f"/topic/kept.{n}", _DEEP, headers="retain:set\n") for n in range(500)])])
    settle(link)
    pour(link, [subscribe(1, "/topic/kept.#", headers="selector:XPATH 'count(//a[.//a]) > 100'\n")])
    settle(link)
    return [link]


_DIVERTED = """
[[divert]]
name = "deep"
address = "diverted"
forwarding-address = "elsewhere"
filter = "XPATH 'count(//a[.//a]) > 100'"
"""


@attack(
    "2,000 messages that a divert with XPATH looks into",
    is_ours=True,
    toml=_DIVERTED,
    limits=MESSAGES,
    stays=MESSAGES,
)
def diverted_by_xpath(port: int) -> list[socket.socket]:
    link = connected(port)
    pour(link, [b"".join([send("/queue/diverted", _DEEP) for _ in range(2000)])])
    settle(link)
    return [link]


@attack("10,000 consumers with selectors on one queue and 10 messages that none takes")
def selectors_on_queue(port: int) -> list[socket.socket]:
    links = [connected(port) for _ in range(10)]
    for number, link in enumerate(links):
        texts = [f"n = {number * 1000 + n} OR m + n = {n}" for n in range(1000)]
        pour(
            link,
            [
                b"".join(
                    [
                        subscribe(n, "/queue/selected", headers=f"selector:{text}\n")
                        for n, text in enumerate(texts)
                    ]
                )
            ],
        )
        settle(link)
    pour(links[0], [b"".join([send("/queue/selected", b"x", headers="n:-1\nm:-1\n") for _ in range(10)])])
    settle(links[0])
    return links


@attack(
    "1,000 consumers with a selector each, which have one message each and others that wait, and acknowledge one after the other",
    is_ours=True,
)
def selectors_waiting(port: int) -> list[socket.socket]:
    link, sender = connected(port), connected(port)
    headers = "ack:client-individual\nprefetch-count:1\nselector:n = '%d'\n"
    pour(link, [b"".join([subscribe(n, "/queue/waiting", headers=headers % n) for n in range(1000)])])
    settle(link)
    for _ in range(20):
        pour(sender, [b"".join([send("/queue/waiting", b"x", headers=f"n:{n}\n") for n in range(1000)])])
    settle(sender)
    answer(link, b"ACK", 15)
    return [link, sender]


def _waiting(port: int, queue: str, selectors: list[str], headers: str) -> list[socket.socket]:
    """Five thousand consumers of a queue, on five connections, each with the next of these selectors."""
    links = [connected(port) for _ in range(5)]
    for link, first in zip(links, range(0, 5000, 1000), strict=True):
        asked = [
            subscribe(n, queue, headers=f"selector:{selectors[n % len(selectors)]}\n{headers}")
            for n in range(first, first + 1000)
        ]
        pour(link, [b"".join(asked)])
        settle(link)
    return links


@attack(
    "5,000 consumers of a queue that wait for an answer of their own, and 20,000 answers",
    is_ours=True,
    limits=CLIENTS,
)
def answers(port: int) -> list[socket.socket]:
    own = [f"JMSCorrelationID = 'id-{n}'" for n in range(5000)]
    links, sender = _waiting(port, "/queue/answers", own, "ack:auto\n"), connected(port)
    for first in range(0, 20_000, 1000):
        said = [
            send("/queue/answers", b"x", headers=f"correlation-id:id-{n % 5000}\n")
            for n in range(first, first + 1000)
        ]
        pour(sender, [b"".join(said)])
    settle(sender)
    return [*links, sender]


@attack(
    "5,000 consumers with 20 selectors of a queue that is full of what nobody takes, and 2,000 messages more",
    is_ours=True,
    limits=CLIENTS + MESSAGES,
    stays=MESSAGES,
)
def paged_selectors(port: int) -> list[socket.socket]:
    sender = connected(port)
    pour(sender, [send("/queue/full", bytes(1 << 20), headers="n:none\n") for _ in range(140)])
    settle(sender)
    some = [f"n % 20 = {n}" for n in range(20)]
    links = _waiting(port, "/queue/full", some, "ack:client-individual\nprefetch-count:5\n")
    pour(sender, [b"".join([send("/queue/full", b"x", headers=f"n:{n}\n") for n in range(2000)])])
    settle(sender)
    return [*links, sender]


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
    pour(
        link,
        [b"".join([subscribe(n, "/topic/#,/topic/over.#,/topic/over.*.*,/topic/*.*.*") for n in range(100)])],
    )
    settle(link)
    return [link]


@attack("1,200 subscriptions to 100 wildcards each, and 20 new addresses", is_ours=True)
def many_wildcards(port: int) -> list[socket.socket]:
    links = [connected(port) for _ in range(4)]
    for link in links:
        texts = [",".join([f"/topic/w{n}.{at}.*" for at in range(100)]) for n in range(300)]
        pour(link, [b"".join([subscribe(n, text) for n, text in enumerate(texts)])])
        settle(link)
    pour(links[0], [b"".join([send(f"/topic/new.{n}", b"x") for n in range(20)])])
    settle(links[0])
    return links


@attack("200 wildcards of 247 words, and an address of 500", is_ours=True)
def long_wildcards(port: int) -> list[socket.socket]:
    link = connected(port)
    pour(link, [b"".join([subscribe(n, f"/topic/#.{n % 9}{'.a' * 245}.b") for n in range(200)])])
    pour(link, [b"".join([subscribe(n, f"/topic/#{'.a' * 245}.b{n}") for n in range(200, 400)])])
    pour(link, [send("/topic/" + ".".join(["a"] * 500), b"x")])
    settle(link)
    return [link]


@attack("1,000 wildcards that each of 20 new addresses is joined by", is_ours=True)
def joined_at_once(port: int) -> list[socket.socket]:
    link = connected(port)
    pour(link, [b"".join([subscribe(n, "/topic/joined.*") for n in range(1000)])])
    pour(link, [b"".join([send(f"/topic/joined.{n}", b"x") for n in range(20)])])
    settle(link)
    return [link]


@attack("90,000 patterns of three reader groups, and 20 new addresses", is_ours=True)
def group_patterns(port: int) -> list[socket.socket]:
    link = connected(port)
    for at in range(3):
        body = b'{"destinations":"%s"}' % b",".join(
            [b"*.%x" % n for n in range(at * 30_000, (at + 1) * 30_000)]
        )
        asked = f"request:group-open\nrequest-id:{at}\ngroup:g{at}\nstarting:latest\ncontent-type:application/json\n"
        pour(link, [send("stompbox.requests", body, headers=asked)])
        settle(link)
    pour(link, [b"".join([send(f"/topic/n.new{n}", b"x") for n in range(20)])])
    settle(link)
    return [link]


@attack("SUBSCRIBE to 99 wildcards and /topic/# over 5,000 topics", is_ours=True)
def covering_wildcards(port: int) -> list[socket.socket]:
    link = connected(port)
    pour(link, [b"".join([send(f"/topic/a.b.c.{n}", b"x") for n in range(5000)])])
    pour(link, [subscribe(1, ",".join([*[f"/topic/#.a.#.z{n}" for n in range(99)], "/topic/#"]))])
    settle(link)
    return [link]


@attack("20 SENDs to 100 new queues each", is_ours=True, limits=MESSAGES, stays=MESSAGES)
def composites(port: int) -> list[socket.socket]:
    link = connected(port)
    frames = [send(",".join([f"/queue/k{at}.{n}" for n in range(100)]), b"x") for at in range(20)]
    pour(link, frames)
    settle(link)
    return [link]


@attack(
    "400 messages that repeat each second, to a topic with 400 subscriptions with XPATH",
    is_ours=True,
    limits=CLIENTS + SCHEDULED,
    stays=SCHEDULED,
)
def due_together(port: int) -> list[socket.socket]:
    link = connected(port)
    for first in range(0, 400, 100):
        pour(
            link,
            [
                subscribe(n, "/topic/due", headers=f"selector:XPATH 'count(//a[.//a]) > {n}'\n")
                for n in range(first, first + 100)
            ],
        )
        settle(link)
    headers = "AMQ_SCHEDULED_PERIOD:1000\nAMQ_SCHEDULED_REPEAT:-1\npersistent:false\n"
    body = b"<a>" * 300 + b"</a>" * 300
    pour(link, [send("/topic/due", body, headers=f"{headers}n:{n}\n") for n in range(400)])
    settle(link)
    time.sleep(6)
    return [link]
