"""A cluster of processes, a load on it, faults, and an audit over all nodes. `python -m tests.crash.cluster --help`.

The load: senders that wait for each RECEIPT, pairs in transactions, readers that acknowledge with a receipt. The audit, when all nodes
have ended: every message whose RECEIPT came was delivered; none that was acknowledged with a RECEIPT came again; of a transaction both or
none; each sender's messages first come in order; no two nodes led one epoch; the stores of all nodes are equal.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from base64 import b64encode
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import stompbox
from stompbox.commitlog.opening import open_log
from stompbox.commitlog.replicated import Applier, Local
from stompbox.errors import StompboxError
from stompbox.store.folderstore import FolderStore
from tests import forked
from tests.commitlog.nodes import content
from tests.commitlog.proxy import Proxy
from tests.crash.chatter import Chatter
from tests.crash.logservers import ENGINES, LogServers, serving
from tests.crash.networks import Host, Network, enter
from tests.crash.strikes import (
    FAULTS,
    LOG_FAULTS,
    NETWORK_FAULTS,
    READY_WITHIN,
    TAKEOVER,
    epochs_of,
    pause,
    strike,
)

SECRET = "of-all-nodes-of-the-drill"
JUMPING = str(Path(__file__).with_name("jumping.py"))
USER = "drill"  # and its passcode; on other addresses than loopback there has to be one
HEART_BEAT = (2000, 2000)  # ms; by it clients and nodes find out that nothing comes through any more
QUEUES = ("drill/a", "drill/b")


class NodeProcess:
    """One node: its process, now or again, and where it listens, which stays."""

    def __init__(self, folder: Path, name: str, log: str, host: Host | None = None) -> None:
        """`host`: where it runs, else here."""
        self.name = name
        self.host = host
        self.address = host.address if host is not None else "127.0.0.1"
        self.folder = folder / name
        self.folder.mkdir(parents=True)
        self.log = log
        self.listen = f"tcp://{self.address}:0"
        self.admin = f"{self.address}:0"
        self.more = ""  # keys of [cluster], and what follows it
        self.takeover = TAKEOVER  # ms
        self.reading = ""  # where logs are read, if it is to have such a listener
        self.may_jump = False  # its clock
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return self.listen.replace("tcp://", "stomp://" if self.host is None else f"stomp://{USER}:{USER}@")

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def start(self) -> None:
        reading = f'[[listener]]\nurl = "{self.reading}?readOnly=true"\n' if self.reading else ""
        toml = (
            f'data = "{self.data}"\nmin-disk-free = 0\ngraceful-shutdown-timeout = 500\n[[listener]]\nurl = "{self.listen}"\n{reading}'
            f'[admin]\nlisten = "{self.admin}"\n[cluster]\nlog = "{self.log}"\nname = "drill"\nnode = "{self.name}"\n'
            f'listen = "{self.address}:0"\nsecret = "{SECRET}"\ntakeover-after = {self.takeover}\ninsecure = true\n{self.more}'
        )
        if self.host is not None:
            toml += f'[[user]]\nname = "{USER}"\npassword = "{USER}"\n'
        (self.folder / "stompbox.toml").write_text(toml)
        with (self.folder / "log").open("ab") as stderr:
            words = ["serve", "--config", str(self.folder / "stompbox.toml")]
            if self.may_jump or self.host is not None or not forked.is_possible(os.environ):
                program = [JUMPING, str(self.clock)] if self.may_jump else ["-m", "stompbox"]
                self.process = subprocess.Popen(
                    [*self._prefix, sys.executable, *program, *words],
                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr, cwd=self.folder,
                )  # fmt: skip
            else:
                self.process = forked.Forked(words, self.folder, os.environ, stderr)
        assert self.process.stdout is not None
        listening = []
        for line in self.process.stdout:
            word = line.decode().split()[-1]
            if word.startswith("tcp://"):
                listening.append(word)
                self.listen = listening[0]
                if self.reading:
                    self.reading = listening[-1]
            elif word.startswith("http://"):
                self.admin = word.removeprefix("http://")
            elif word == "ready":
                return
        raise AssertionError(f"node {self.name} has ended: {self.said()}")

    @property
    def _prefix(self) -> tuple[str, ...]:
        return self.host.prefix if self.host is not None else ()

    @property
    def clock(self) -> Path:
        """Where it reads by how many seconds its clock differs."""
        return self.folder / "clock"

    def jump(self, seconds: float) -> None:
        """Its clock shows so much more than that of the machine from now on, until it ends."""
        assert self.may_jump
        self.clock.write_text(str(seconds))
        self.signal(signal.SIGUSR1)

    def limit_files(self, most: int) -> None:
        """No file of it may grow beyond so many octets, as on a disk that is full."""
        assert self.process is not None
        resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))

    def said(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)
        if number == signal.SIGKILL:
            self.process.wait()
            if self.process.stdout is not None:
                self.process.stdout.close()
            self.process = None

    def end(self) -> int:
        if self.process is None:
            return 0
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        try:
            return self.process.wait(READY_WITHIN)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            if self.process.stdout is not None:
                self.process.stdout.close()
            self.process = None

    def asked(self, path: str) -> dict[str, Any] | None:
        """What its admin interface answers with 200, None else."""
        if self.process is None:
            return None
        request = urllib.request.Request(f"http://{self.admin}{path}")
        if self.host is not None:
            request.add_header("authorization", f"Basic {b64encode(f'{USER}:{USER}'.encode()).decode()}")
        try:
            with urllib.request.urlopen(request, timeout=0.5) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except (OSError, ValueError):
            return None

    def command(self, *words: str) -> str:
        """What `stompbox cluster` prints, asked of this node."""
        admin = self.admin if self.host is None else f"http://{USER}:{USER}@{self.admin}"
        done = forked.text(forked.run("cluster", *words, "--admin", admin))
        return done.stdout + done.stderr


class Cluster:
    """Three nodes and their log."""

    def __init__(
        self,
        folder: Path,
        log: str = "",
        servers: LogServers | None = None,
        names: str = "abc",
        network: Network | None = None,
    ) -> None:
        """`servers`: those of the log; where it is a single one of NATS, and there is no `network`, each node has a proxy of its own
        to it."""
        self.network = network
        self.nodes = [
            NodeProcess(
                folder,
                name,
                servers.url if servers is not None else log,
                None if network is None else network.host(name),
            )
            for name in names
        ]
        self.log = servers
        self.networks: dict[str, Proxy] = {}
        if servers is not None and len(servers.ports) == 1 and network is None:
            for node in self.nodes:
                self.networks[node.name] = Proxy(servers.ports[0])
                node.log = f"nats://127.0.0.1:{self.networks[node.name].port}"

    def start(self) -> None:
        for node in self.nodes:
            node.start()

    def leader(self, among: Sequence[NodeProcess] = ()) -> NodeProcess | None:
        asked = among or self.nodes
        return next((node for node in asked if node.asked("/readyz?role=leader") is not None), None)

    async def until_led(self, within: float = READY_WITHIN, among: Sequence[NodeProcess] = ()) -> NodeProcess:
        deadline = time.monotonic() + within
        while time.monotonic() < deadline:
            found = await asyncio.to_thread(self.leader, among)
            if found is not None:
                return found
            await pause(0.05)
        raise AssertionError("nobody leads: " + "\n".join(node.said()[-2000:] for node in self.nodes))

    async def until_ready(self, within: float = READY_WITHIN) -> None:
        deadline = time.monotonic() + within
        while not all([await asyncio.to_thread(node.asked, "/readyz") for node in self.nodes]):
            if time.monotonic() > deadline:
                raise AssertionError("not ready: " + "\n".join(node.said()[-3000:] for node in self.nodes))
            await pause(0.05)

    def end(self) -> list[int]:
        return [node.end() for node in self.nodes]

    def close(self) -> None:
        for proxy in self.networks.values():
            proxy.close()


@dataclass
class Book:
    """What clients know: the ground truth of the audit."""

    sent: int = 0
    confirmed: set[str] = field(default_factory=set)
    pairs: set[tuple[str, str]] = field(default_factory=set)  # sent in one transaction, confirmed or not
    delivered: list[str] = field(default_factory=list)
    acknowledged: set[str] = field(default_factory=set)  # with a receipt
    again: list[str] = field(default_factory=list)  # delivered after that
    confirmed_at: list[float] = field(default_factory=list)
    last: dict[int, float] = field(default_factory=dict)  # of each sender
    faults: Counter[str] = field(default_factory=Counter)
    chatter: Chatter | None = None
    pauses: list[float] = field(
        default_factory=list
    )  # of what is not persistent while the log was away, seconds
    found: list[str] = field(default_factory=list)  # what was wrong meanwhile

    @property
    def silence(self) -> float:
        """The longest time in which nothing was confirmed, seconds."""
        times = self.confirmed_at
        return max((b - a for a, b in itertools.pairwise(times)), default=0.0)


class Load:
    """Senders and readers that go on until they are told to stop."""

    def __init__(self, urls: list[str], book: Book, name: str, rest: float = 0.0) -> None:
        """`name`: what begins the names of its messages. `rest`: seconds between a sender's receipt and its next message."""
        self.name = name
        self.urls = urls
        self.book = book
        self.rest = rest
        self.is_over = False
        self.policy = stompbox.Reconnect(attempts=None, first_delay=0.05, max_delay=0.5, initial=True)

    def _connect(self, turn: int) -> Any:
        urls = self.urls[turn % len(self.urls) :] + self.urls[: turn % len(self.urls)]
        return stompbox.connect(
            urls, reconnect=self.policy, connect_timeout=4.0, receipt_timeout=60.0, heart_beat=HEART_BEAT
        )

    async def send(self, number: int) -> None:
        book, queue = self.book, f"/queue/{QUEUES[number % len(QUEUES)]}"
        async with self._connect(number) as client:
            count = 0
            while not self.is_over:
                count += 1
                name = f"{self.name}{number}-{count}"
                if self.rest:
                    await pause(self.rest)
                book.sent += 1
                if count % 10 == 0:
                    await self._send_pair(client, queue, name)
                    continue
                try:
                    # what is sent again because its receipt did not come counts once
                    await client.send(queue, name.encode(), {"persistent": "true", "_AMQ_DUPL_ID": name})
                except StompboxError:
                    continue
                book.confirmed.add(name)
                book.last[number] = time.monotonic()
                book.confirmed_at.append(book.last[number])

    async def _send_pair(self, client: Any, queue: str, name: str) -> None:
        book, other = self.book, f"{name}+"
        book.sent += 1
        book.pairs.add((name, other))
        try:
            async with client.transaction() as transaction:
                await transaction.send(queue, name.encode(), {"persistent": "true"})
                await transaction.send(queue, other.encode(), {"persistent": "true"})
        except StompboxError:
            return
        book.confirmed |= {name, other}

    async def read(self, number: int) -> None:
        book, queue = self.book, f"/queue/{QUEUES[number % len(QUEUES)]}"
        async with (
            self._connect(number + 1) as client,
            client.subscribe(queue, ack="client-individual", prefetch=20) as subscription,
        ):
            async for message in subscription:
                name = bytes(message.body).decode()
                if name == "end":
                    with suppress(StompboxError):
                        await message.ack(confirm=True)
                    return
                if name in book.acknowledged:
                    book.again.append(name)
                book.delivered.append(name)
                try:
                    await message.ack(confirm=True)
                except StompboxError:
                    continue
                book.acknowledged.add(name)


async def drill(
    cluster: Cluster,
    book: Book,
    faults: list[str],
    *,
    between: float,
    senders: int = 4,
    seed: int = 1,
    rest: float = 0.0,
    nodes: list[NodeProcess] | None = None,
) -> None:
    """The load with these faults, one after the other; in the end all is read. `rest`: of the load, seconds."""
    chance = random.Random(seed)
    urls = [node.url for node in nodes or cluster.nodes]
    load = Load(urls, book, f"{len(book.confirmed)}.", rest)
    await cluster.until_led()
    book.chatter = Chatter(urls)
    book.chatter.start()
    sending = [asyncio.create_task(load.send(number)) for number in range(senders)]
    reading = [asyncio.create_task(load.read(number)) for number in range(2)]
    for fault in faults:
        await pause(between)
        await strike(cluster, fault, book, chance)
    await pause(between)
    load.is_over = True
    await asyncio.wait_for(asyncio.gather(*sending), 90)
    async with load._connect(0) as client:
        for queue in QUEUES:
            await client.send(f"/queue/{queue}", b"end", {"persistent": "true"})
    await asyncio.wait_for(asyncio.gather(*reading), 90)
    await book.chatter.end()


def findings(cluster: Cluster, book: Book) -> list[str]:
    """What is wrong, in words. The nodes have ended."""
    found = list(book.found)
    delivered = set(book.delivered)
    positions: dict[str, int] = {}
    for at, name in enumerate(book.delivered):
        positions.setdefault(name, at)
    if lost := sorted(book.confirmed - delivered):
        found.append(f"confirmed and never delivered: {lost[:10]} and {max(0, len(lost) - 10)} more")
    if book.again:
        found.append(f"acknowledged, and delivered again: {book.again[:10]}")
    # what a leader has delivered that was killed before it was stored is gone, and what its reader had not come to with it
    halves = [
        pair
        for pair in book.pairs
        if len(delivered.intersection(pair)) == 1 and not book.acknowledged.isdisjoint(pair)
    ]
    if halves:
        found.append(f"half of a transaction: {halves[:10]}")
    found += _disorder(positions)
    epochs = Counter(epochs_of(cluster))
    if twice := [epoch for epoch, count in epochs.items() if count > 1]:
        found.append(f"led by two: epochs {twice}")
    return found + _differences(cluster)


def _disorder(positions: dict[str, int]) -> list[str]:
    last: dict[str, tuple[int, str]] = {}
    for name, _ in sorted(positions.items(), key=lambda item: item[1]):
        sender, _, count = name.rstrip("+").partition("-")
        before = last.get(sender, (0, ""))
        if int(count) < before[0]:
            return [f"out of order: {name} came first after {before[1]}"]
        last[sender] = int(count), name
    return []


def _differences(cluster: Cluster) -> list[str]:
    """Each store reads on to the end of the log, as its node would; then they are compared by content."""
    held = {}
    for node in cluster.nodes:
        log = open_log(node.log + ("" if node.log.startswith("disk:") else "?insecure=true"), "drill")
        local = Local(FolderStore(node.data), f"drill/{log.identity}")
        Applier(local, log).catch_up()
        held[node.name] = content(local.store) | {"position": local.position}
        local.close()
        log.close()
    first, *others = held
    found = []
    for other in others:
        for part in held[first]:
            if held[first][part] != held[other][part]:
                shown = f"{str(held[first][part])[:300]} / {str(held[other][part])[:300]}"
                found.append(f"the stores of {first} and {other} differ in {part}: {shown}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="a cluster under load, with faults, and what became of it")
    parser.add_argument(
        "--log", default="disk", choices=ENGINES,
        help="a folder, nats (three servers), cut (one, and networks), postgres, or with a synchronous standby",
    )  # fmt: skip
    parser.add_argument("--faults", default="kill leader,kill leader", help=", ".join(FAULTS))
    parser.add_argument("--between", type=float, default=3.0)
    parser.add_argument(
        "--rest", type=float, default=0.0, help="of a sender before its next message, seconds"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--random", type=int, default=0, help="so many faults of all kinds")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument(
        "--network", choices=("namespaces",),
        help="each node, and the log, in a network namespace of its own, so that packets can vanish between them",
    )  # fmt: skip
    chosen = parser.parse_args()
    if chosen.network:
        if chosen.log in ("disk", "standby"):
            parser.error(
                f"--network with --log {chosen.log}: takes one server at a place of its own; nats or postgres"
            )
        enter("tests.crash.cluster", sys.argv[1:])
    chance = random.Random(chosen.seed)
    kinds = FAULTS + (NETWORK_FAULTS if chosen.network else LOG_FAULTS.get(chosen.log, ()))
    faults = [chance.choice(kinds) for _ in range(chosen.random)] or chosen.faults.split(",")
    folder = Path(tempfile.mkdtemp(prefix="stompbox-cluster-"))
    book, begun = Book(), time.monotonic()
    with ExitStack() as stack:
        network = Network() if chosen.network else None
        log_host = network.host("log") if network is not None else None
        servers = stack.enter_context(serving(chosen.log, folder, log_host))
        cluster = Cluster(folder, f"disk://{folder}/log", servers, network=network)
        stack.callback(cluster.close)
        codes = [1]
        try:
            for node in cluster.nodes:
                node.may_jump = True
                if network is not None:
                    node.takeover *= 2  # LOST is long enough for that, and no machine so slow
            cluster.start()
            asyncio.run(
                drill(cluster, book, faults, between=chosen.between, rest=chosen.rest, seed=chosen.seed)
            )
        finally:
            codes = cluster.end()
        found = findings(cluster, book) + [f"ended with {codes}"] * any(codes)
    more = Counter(book.delivered)
    print(
        f"faults       {dict(book.faults)} in {time.monotonic() - begun:.0f} s; load {os.getloadavg()[0]:.1f}"
    )
    print(f"sent         {book.sent}")
    print(f"confirmed    {len(book.confirmed)}")
    print(f"delivered    {len(more)}")
    print(f"lost         {len(book.confirmed - more.keys())}")
    print(f"twice        {sum(more.values()) - len(more)}")
    if book.pauses:
        print(f"log away     what is not persistent stood still for {max(book.pauses):.2f} s at the longest")
    print(f"unanswered   {book.silence:.2f} s at the longest")
    for one in found:
        print(f"FOUND        {one}")
    if not found and not chosen.keep:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        print(f"folder       {folder}")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
