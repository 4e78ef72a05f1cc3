"""What TLS and WebSocket cost beside plain TCP, how fast connections come and go, and what an idle one takes of memory.

    python -m bench.transports [--rows tcp,tls,ws,wss,tcp-1,tls-1,ws-1,wss-1,storm,idle] [--messages 300000] [--rounds 3] [--json FILE]

One broker has a plain and a TLS listener. A sender streams messages of 100 octets to a queue, a consumer (ack:auto) reads them: as
frames in a stream, or as a browser does, one frame in each WebSocket message, with a mask of its own. `-1`: 50 senders send 5,000 a second
between them, one frame in one write. All are counted to the last. Loads take turns, so that the machine's ups and downs meet all of them;
told is the median. CPU is that of the broker's process, for a delivery or a connection. `idle` has a broker of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import secrets
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Final

from bench.attacks.attacker import opened
from bench.attacks.secured import trusting_all
from bench.brokers import BenchError, Stompbox, cpu_seconds, memory_mib, with_tls

BODY: Final = b"stompbox" + b"x" * 92
MARK: Final = b"stompbox"  # once in each body, and nowhere else in what comes back
DESTINATION: Final = "/queue/transports"
WITHIN: Final = 120.0  # seconds for one load
ATONCE: Final = 1 << 18  # octets of a write
STORM: Final = 5000  # connections
TOGETHER: Final = 100  # of them that log in at a time
SENDERS: Final = 50  # of messages that come one at a time,
EVERY: Final = 0.01  # seconds, one of each
PART: Final = 30  # of so many messages of a stream they have one
LOADS: Final = {"tcp": (False, False), "tls": (True, False), "ws": (False, True), "wss": (True, True)}
SINGLE: Final = "-1"
SEND: Final = f"SEND\ndestination:{DESTINATION}\ncontent-length:{len(BODY)}\n\n".encode() + BODY + b"\0"
LOGIN: Final = b"CONNECT\naccept-version:1.2\nhost:/\nheart-beat:0,0\n\n\0"


class Link:
    """A client's connection; `send` and `recv` are of octets on the wire after TLS."""

    def __init__(self, port: int, *, is_secret: bool, is_web: bool) -> None:
        plain = opened(port)
        plain.settimeout(WITHIN)
        self.stream: socket.socket = trusting_all().wrap_socket(plain) if is_secret else plain
        self.is_web = is_web
        if is_web:
            self._upgrade()
        self.say(LOGIN)
        self.until(b"CONNECTED")

    def _upgrade(self) -> None:
        self.stream.sendall(
            b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Protocol: v12.stomp\r\n\r\n"
        )
        self.until(b"\r\n\r\n")

    def packed(self, frame: bytes) -> bytes:
        """As it goes over the wire: in a WebSocket message of its own, with a mask that nobody foresees (RFC 6455, 5.3), or as it is."""
        if not self.is_web:
            return frame
        size, mask = len(frame), secrets.token_bytes(4)
        length = bytes((0x80 | size,)) if size < 126 else b"\xfe" + size.to_bytes(2, "big")
        masks = (mask * (size // 4 + 1))[:size]
        masked = (int.from_bytes(frame, "big") ^ int.from_bytes(masks, "big")).to_bytes(size, "big")
        return b"\x81" + length + mask + masked

    def say(self, *frames: bytes) -> None:
        self.stream.sendall(b"".join(map(self.packed, frames)))

    def until(self, mark: bytes) -> None:
        got = b""
        while mark not in got:
            more = self.stream.recv(65536)
            if not more:
                raise BenchError(f"the broker closed a connection after {got[-200:]!r}")
            got = got[-len(mark) :] + more

    def count(self, wanted: int) -> None:
        """Returns once that many messages have come."""
        found, rest = 0, b""
        while found < wanted:
            more = self.stream.recv(1 << 20)
            if not more:
                raise BenchError(f"the broker closed a connection after {found} of {wanted} messages")
            octets = rest + more
            found += octets.count(MARK)
            at = octets.rfind(MARK) + len(MARK)
            rest = octets[max(at, len(octets) - len(MARK) + 1) :]


class Scene:
    """The broker, and the ports of its two listeners."""

    def __init__(self, folder: Path) -> None:
        options, self.secret = with_tls(folder)
        self.broker = Stompbox(folder / "log", options=options)
        self.broker.start()

    def stream(self, name: str, messages: int) -> dict[str, float]:
        """Messages a second, and us of the broker's CPU for each."""
        sender, consumer = self._link(name), self._consumer(name)
        size = len(sender.packed(SEND))
        load = b"".join(sender.packed(SEND) for _ in range(max(1, min(messages, ATONCE // size))))
        sending = threading.Thread(target=_pour, args=(sender, load, messages * size))
        took, spent = self._counted(sending, consumer, messages)
        sender.stream.close()
        return {"messages/s": messages / took, "us": spent / messages * 1e6}

    def single(self, name: str, messages: int) -> dict[str, float]:
        """us of the broker's CPU for a delivery of messages that come one at a time."""
        name = name.removesuffix(SINGLE)
        rounds = max(1, messages // PART // SENDERS)
        senders, consumer = [self._link(name) for _ in range(SENDERS)], self._consumer(name)
        sending = threading.Thread(target=_drip, args=(senders, rounds))
        _, spent = self._counted(sending, consumer, rounds * SENDERS)
        for sender in senders:
            sender.stream.close()
        return {"us": spent / (rounds * SENDERS) * 1e6}

    def _link(self, name: str) -> Link:
        is_secret, is_web = LOADS[name]
        return Link(self.secret if is_secret else self.broker.port, is_secret=is_secret, is_web=is_web)

    def _consumer(self, name: str) -> Link:
        consumer = self._link(name)
        consumer.say(b"SUBSCRIBE\nid:1\ndestination:%b\nreceipt:1\n\n\0" % DESTINATION.encode())
        consumer.until(b"RECEIPT")
        return consumer

    def _counted(self, sending: threading.Thread, consumer: Link, messages: int) -> tuple[float, float]:
        """Seconds until all have come, and of the broker's CPU."""
        before, begun = cpu_seconds(self.broker.pid), time.perf_counter()
        sending.start()
        consumer.count(messages)
        took = time.perf_counter() - begun
        sending.join()
        consumer.stream.close()
        return took, cpu_seconds(self.broker.pid) - before

    def storm(self, _: str, __: int) -> dict[str, float]:
        """From connect to CONNECTED, and gone again."""
        before, begun = cpu_seconds(self.broker.pid), time.perf_counter()
        for _first in range(0, STORM, TOGETHER):
            links = [opened(self.broker.port) for _ in range(TOGETHER)]
            _log_in(links)
            for link in links:
                link.close()
        took, spent = time.perf_counter() - begun, cpu_seconds(self.broker.pid) - before
        return {"connections/s": STORM / took, "us": spent / STORM * 1e6}

    def idle(self, _: str, __: int) -> dict[str, float]:
        """KiB of resident memory that a connection takes which has logged in and says nothing: of a broker that had none before."""
        self.broker.stop()
        self.broker.start()
        before = memory_mib(self.broker.pid, "VmRSS")
        links: list[socket.socket] = []
        for _first in range(0, STORM, TOGETHER):
            more = [opened(self.broker.port) for _ in range(TOGETHER)]
            _log_in(more)
            links += more
        more_memory = memory_mib(self.broker.pid, "VmRSS") - before
        for link in links:
            link.close()
        return {"KiB": more_memory * 1024 / STORM}


def _log_in(links: Sequence[socket.socket]) -> None:
    for link in links:
        link.sendall(LOGIN)
    for link in links:
        got = b""
        while b"\0" not in got:
            more = link.recv(4096)
            if not more:
                raise BenchError(f"a login was refused: {got!r}")
            got += more


def _pour(link: Link, load: bytes, left: int) -> None:
    view = memoryview(load)
    while left > 0:
        link.stream.sendall(view[: min(left, len(load))])
        left -= len(load)


def _drip(senders: Sequence[Link], rounds: int) -> None:
    """One message of each sender, again and again, at a rate of its own: who is late does not make up for it."""
    for _ in range(rounds):
        due = time.perf_counter() + EVERY
        for sender in senders:
            sender.say(SEND)
        time.sleep(max(0.0, due - time.perf_counter()))


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.transports", description=__doc__.partition("\n")[0])
    names = (*LOADS, *(name + SINGLE for name in LOADS), "storm", "idle")
    parser.add_argument("--rows", default=",".join(names), help=f"of {', '.join(names)}")
    parser.add_argument("--messages", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", default="", help="a file for the figures")
    options = parser.parse_args()
    rows: list[str] = options.rows.split(",")
    if unknown := set(rows) - set(names):
        parser.error(f"no such row: {', '.join(sorted(unknown))}; rows are {', '.join(names)}")
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        with tempfile.TemporaryDirectory() as folder:
            found = measured(Scene(Path(folder)), rows, options.rounds, options.messages)
    except BenchError as error:
        print(f"bench.transports: {error}", file=sys.stderr)
        return 2
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=1))
    return 0


def measured(scene: Scene, rows: Sequence[str], rounds: int, messages: int) -> dict[str, dict[str, float]]:
    """The median of each figure of each row, which is printed; the first round of streams warms up."""
    loads: dict[str, Callable[[str, int], dict[str, float]]] = {
        **dict.fromkeys(LOADS, scene.stream),
        **{name + SINGLE: scene.single for name in LOADS},
        "storm": scene.storm,
        "idle": scene.idle,
    }
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in rows}
    try:
        for name in rows:
            if name in LOADS:
                scene.stream(name, messages // 4)
        for _ in range(rounds):
            for name in rows:
                taken[name].append(loads[name](name, messages))
    finally:
        scene.broker.stop()
    found = {
        name: {figure: median([one[figure] for one in each]) for figure in each[0]}
        for name, each in taken.items()
    }
    for name, figures in found.items():
        print(f"{name:6}", ", ".join(f"{value:,.2f} {figure}" for figure, value in figures.items()))
    print(f"on {os.cpu_count()} cores, medians of {rounds}")
    return found


if __name__ == "__main__":
    sys.exit(main())
