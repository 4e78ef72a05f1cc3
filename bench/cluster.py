"""What a cluster of three nodes carries, and for how long nobody answers when its leader dies or hands over.

    python -m bench.cluster [--engine nats|postgres|disk] [--peer rabbitmq] [--rows stored,follower,waiting,kill,promote] [--kills 5]

    stored     persistent, a receipt and an ACK for each of 100 octets, 1000 receipts outstanding, at the leader
    follower   the same through a node that follows and passes its clients on
    waiting    one client that waits for each receipt; beside it the log's own append of a record of that size
    kill       the leader is killed (-9): until a client that tries all nodes in turn has its next SEND confirmed
    promote    the lead is handed over: for how long that client had no confirmation

The log is three nats-servers (R3, each write synced), one PostgreSQL server (synchronous_commit on), or a folder. All of it, and the load,
shares this machine: the load average stands above the figures. CPU is that of one node's process for a delivery. `--peer rabbitmq` has
three nodes of RabbitMQ with a quorum queue (peers.sh) under the same loads; which of its nodes leads a queue is where it was declared.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from json import loads
from pathlib import Path
from statistics import median
from typing import Final
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from bench.brokers import HERE, PEERS_FOLDER, BenchError, cpu_seconds, descendants, peers_sh
from bench.commitlog import retried, waits
from bench.run import OUT, build_stompload
from tests.commitlog import natsservers, pgserver

ROWS: Final = ("stored", "follower", "waiting", "kill", "promote")
ENGINES: Final = ("nats", "postgres", "disk")
NODES: Final = ("a", "b", "c")
QUORUM: Final = "x-queue-type:quorum;durable:true;auto-delete:false"
STORED: Final = 200_000  # messages
PEER_STORED: Final = 30_000
WAITING: Final = 2_000  # messages of one client that waits for each
ALONE: Final = 3.0  # seconds in which the log's own appends are counted
BEFORE: Final = 20  # confirmed messages before a leader is killed
WITHIN: Final = 60.0  # seconds for a cluster to have a leader
ATTEMPT: Final = 0.5  # seconds for one answer before the client tries another node
PAUSE: Final = 0.02  # seconds between two attempts that were refused at once


@dataclass(slots=True)
class Node:
    """One broker of a cluster, which may be killed and started again."""

    name: str
    port: int
    start: Callable[[], subprocess.Popen[bytes] | int]
    admin: int = 0
    pid: int = 0
    process: subprocess.Popen[bytes] | None = None
    log: Path | None = None

    def said(self) -> str:
        return "" if self.log is None else self.log.read_text()[-500:]

    def begin(self) -> None:
        found = self.start()
        self.process = found if isinstance(found, subprocess.Popen) else None
        self.pid = found.pid if isinstance(found, subprocess.Popen) else found

    def kill(self) -> None:
        for process in reversed(descendants(self.pid)):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        if self.process is not None:
            self.process.wait()

    def end(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(20)
            self.kill()

    @property
    def leads(self) -> bool:
        with (
            suppress(HTTPError, URLError, OSError),
            urlopen(f"http://127.0.0.1:{self.admin}/readyz?role=leader", timeout=1) as answer,
        ):
            return bool(answer.status == 200)
        return False


@dataclass(slots=True)
class Cluster:
    """Three nodes. `headers`: what each SEND and SUBSCRIBE says beside the rest."""

    name: str
    nodes: list[Node]
    headers: str = ""
    stored: int = STORED
    find_leader: Callable[[], Node | None] | None = None
    hands_over: bool = False  # whether it can be told which node is to lead
    append: Callable[[], float] | None = None  # seconds, the median of the log's own small append
    load: str = field(init=False)

    def __post_init__(self) -> None:
        self.load = str(build_stompload())

    def leader(self) -> Node:
        until = time.monotonic() + WITHIN
        while time.monotonic() < until:
            found = (self.find_leader or self._find)()
            if found is not None:
                return found
            ended = [one for one in self.nodes if one.process is not None and one.process.poll() is not None]
            if ended:
                raise BenchError(f"{self.name}: node {ended[0].name} has ended: {ended[0].said()}")
            time.sleep(PAUSE)
        raise BenchError(f"{self.name}: nobody leads after {WITHIN:.0f} s")

    def _find(self) -> Node | None:
        return next((node for node in self.nodes if node.leads), None)

    def run(self, node: Node, *options: str) -> dict[str, float]:
        """One load at a node; Raises BenchError where not each message came."""
        headers = [text for text in ("persistent:true", self.headers) if text]
        command = [self.load, "--port", str(node.port), "--sendhdrs", ";".join(headers), *options]
        if self.headers:
            command += ["--subhdrs", self.headers]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise BenchError(f"{self.name}: {done.stdout} {done.stderr[-500:]}")
        return dict(loads(done.stdout))


# The rows


def stored(cluster: Cluster, *, through: str = "leader") -> str:
    leader = cluster.leader()
    node = leader if through == "leader" else next(one for one in cluster.nodes if one is not leader)
    before = {one.name: cpu_seconds(one.pid) for one in cluster.nodes}
    options = ("--msgs", str(cluster.stored), "--window", "1000", "--ack", "client-individual")
    found = cluster.run(node, "--dest", f"/queue/bench.{through}", *options)
    spent = {one.name: cpu_seconds(one.pid) - before[one.name] for one in cluster.nodes}
    others = [spent[one.name] for one in cluster.nodes if one is not leader]
    own = spent[leader.name]
    cpu = f"CPU {own * 1e6 / cluster.stored:.1f} us at the leader, {100 * max(others) / own:.0f} % of it at a follower"
    return f"{found['msgs_per_s']:>9,.0f}/s   p50 {found['lat_ms_p50']:.1f} ms   {cpu}"


def follower(cluster: Cluster) -> str:
    return stored(cluster, through="follower")


def waiting(cluster: Cluster) -> str:
    options = ("--msgs", str(WAITING), "--window", "1", "--batch", "1", "--send-only")
    found = cluster.run(cluster.leader(), "--dest", "/queue/bench.waiting", *options)
    each = found["seconds"] / WAITING if found["seconds"] else 1 / found["send_per_s"]
    told = f"{1 / each:>9,.0f}/s   {each * 1e3:.2f} ms each"
    if cluster.append is not None:
        own = cluster.append()
        told += f"   the log's own append {own * 1e3:.2f} ms: {each / own:.1f} times"
    return told


def kill(cluster: Cluster, kills: int) -> str:
    """Kills the leader so often, and starts it again."""
    pauses = []
    for _ in range(kills):
        client = Client(cluster, "/queue/bench.kill")
        for _ in range(BEFORE):
            client.send()
        leader = cluster.leader()
        begun = time.monotonic()
        leader.kill()
        client.send()
        pauses.append(time.monotonic() - begun)
        client.close()
        leader.begin()
        cluster.leader()
    return _pauses(pauses)


def promote(cluster: Cluster, times: int) -> str:
    """Hands the lead over so often."""
    if not cluster.hands_over:
        return "        -"
    pauses: list[float] = []
    while len(pauses) < times:
        leader = cluster.leader()
        other = next(node for node in cluster.nodes if node is not leader)
        client = Client(cluster, "/queue/bench.promote")
        for _ in range(BEFORE):
            client.send()
        handing = subprocess.Popen(
            _promotion(leader, other), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        longest = 0.0
        while handing.poll() is None or (not handing.returncode and cluster.leader() is not other):
            begun = time.monotonic()
            client.send()
            longest = max(longest, time.monotonic() - begun)
        client.close()
        if not handing.returncode:  # else the other one, just started, was not connected yet
            pauses.append(longest)
    return _pauses(pauses)


def _promotion(leader: Node, other: Node) -> list[str]:
    command = [sys.executable, "-m", "stompbox", "cluster", "promote", other.name]
    return [*command, "--admin", f"http://127.0.0.1:{leader.admin}"]


def _pauses(pauses: Sequence[float]) -> str:
    each = " ".join(f"{pause:.2f}" for pause in pauses)
    return f"{median(pauses):9.2f} s median   {max(pauses):.2f} s at most   ({each})"


class Client:
    """Has one SEND after the other confirmed, at whichever node takes it."""

    def __init__(self, cluster: Cluster, destination: str) -> None:
        self.cluster = cluster
        headers = "".join(f"{line}\n" for line in cluster.headers.split(";") if line)
        self.head = f"SEND\ndestination:{destination}\npersistent:true\n{headers}receipt:"
        self.number = 0
        self.at = 0
        self.link: socket.socket | None = None

    def send(self) -> None:
        """Returns when the next message is confirmed. Raises BenchError when it is not after a minute."""
        self.number += 1
        frame = f"{self.head}{self.number}\n\n{self.number}\0".encode()
        until = time.monotonic() + WITHIN
        while time.monotonic() < until:
            try:
                if self.link is None:
                    self.link = self._dial()
                self.link.sendall(frame)
                if self._answer(self.link).startswith(b"RECEIPT"):
                    return
            except OSError:
                pass
            self.close()
            self.at += 1
            time.sleep(PAUSE)
        raise BenchError(f"{self.cluster.name}: no confirmation for {WITHIN:.0f} s")

    def _dial(self) -> socket.socket:
        node = self.cluster.nodes[self.at % len(self.cluster.nodes)]
        link = socket.create_connection(("127.0.0.1", node.port), timeout=ATTEMPT)
        link.settimeout(ATTEMPT)
        link.sendall(b"CONNECT\naccept-version:1.2\nhost:/\nlogin:guest\npasscode:guest\n\n\0")
        if not self._answer(link).startswith(b"CONNECTED"):
            link.close()
            raise OSError("not connected")
        link.settimeout(WITHIN)  # a confirmation may take long; a dead node closes
        return link

    @staticmethod
    def _answer(link: socket.socket) -> bytes:
        found = b""
        while not found.endswith((b"\0", b"\0\n")):
            data = link.recv(1 << 16)
            if not data:
                raise ConnectionResetError("the node closed")
            found += data
        return found.lstrip(b"\n")

    def close(self) -> None:
        if self.link is not None:
            self.link.close()
            self.link = None


# The clusters


@contextmanager
def stompboxes(engine: str) -> Iterator[Cluster]:
    """Three nodes of this checkout on a log of this machine."""
    with ExitStack() as stack, tempfile.TemporaryDirectory(prefix="stompbox-cluster-") as name:
        folder = Path(name)
        url = stack.enter_context(_log(engine, folder))
        ports = natsservers.free_ports(3 * len(NODES))
        nodes = []
        for at, one in enumerate(NODES):
            port, admin, link = ports[3 * at : 3 * at + 3]
            nodes.append(
                Node(
                    one,
                    port,
                    _starting(folder, one, url, (port, admin, link)),
                    admin,
                    log=folder / one / "broker.log",
                )
            )
        try:
            for node in nodes:
                node.begin()
            yield Cluster(f"stompbox on {engine}", nodes, hands_over=True, append=_append_of(url))
        finally:
            for node in nodes:
                node.end()


def _starting(
    folder: Path, name: str, url: str, ports: tuple[int, int, int]
) -> Callable[[], subprocess.Popen[bytes]]:
    port, admin, link = ports
    home = folder / name
    home.mkdir()
    (home / "stompbox.toml").write_text(
        f'[cluster]\nname = "nodes"\nnode = "{name}"\nlog = "{url}"\nlisten = "127.0.0.1:{link}"\nsecret = "{"s" * 32}"\n'
    )

    def start() -> subprocess.Popen[bytes]:
        with (home / "broker.log").open("ab") as log:
            command = [sys.executable, "-m", "stompbox", "serve", "--data", "data", "--listen"]
            command += [f"tcp://127.0.0.1:{port}", "--admin", f"127.0.0.1:{admin}"]
            return subprocess.Popen(command, cwd=home, stdout=log, stderr=log)

    return start


@contextmanager
def _log(engine: str, folder: Path) -> Iterator[str]:
    """The URL of a log that nothing was written to."""
    if engine == "disk":
        yield f"disk://{folder / 'log'}"
    elif engine == "nats":
        with natsservers.running(folder, 3) as servers:
            yield f"{natsservers.url_of(servers)}?sync=always"  # as they are started here
    else:
        with pgserver.running() as server:
            yield server.url


def _append_of(url: str) -> Callable[[], float]:
    """How long a small append takes by itself, in a log of another name."""

    def measure() -> float:
        with closing(retried(url)) as log:
            return median(waits(log, 1, 100, ALONE))

    return measure


@contextmanager
def rabbits() -> Iterator[Cluster]:
    peers_sh("install", "rabbitmq")
    peers_sh("start", "rabbitmqs")
    try:
        nodes = []
        for at in (1, 2, 3):
            pid = int((PEERS_FOLDER / f"rabbitmqs-{at}.pid").read_text())
            node = Node(f"peer{at}", 60612 + at, _again(at), pid=pid)
            nodes.append(node)
        yield Cluster("rabbitmq", nodes, QUORUM, PEER_STORED, find_leader=lambda: _owner_of_the_queue(nodes))
    finally:
        peers_sh("stop", "rabbitmqs")


def _again(at: int) -> Callable[[], int]:
    def start() -> int:
        return int(peers_sh("start", f"rabbitmqs-{at}").split()[1])

    return start


def _owner_of_the_queue(nodes: Sequence[Node]) -> Node | None:
    """The node with the leader of the queue that was declared last, as one that runs says."""
    for at, node in enumerate(nodes, 1):
        command = ["/usr/lib/rabbitmq/bin/rabbitmqctl", "-q", "-n", f"{node.name}@localhost", "-t", "10"]
        home = {"HOME": str(PEERS_FOLDER / "rabbitmqs" / str(at))}
        done = subprocess.run(
            [*command, "list_queues", "leader"],
            capture_output=True, text=True, check=False, env={**os.environ, **home},
        )  # fmt: skip
        names = [line.partition("@")[0] for line in done.stdout.splitlines() if "@" in line]
        if not done.returncode:
            return next((one for one in nodes if names and one.name == names[-1]), nodes[0])
    return None


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.cluster", description=__doc__.partition("\n")[0])
    parser.add_argument("--engine", choices=ENGINES, default="nats")
    parser.add_argument("--peer", choices=("rabbitmq",))
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--kills", type=int, default=5, help="and hand-overs")
    options = parser.parse_args()
    rows = options.rows.split(",")
    if unknown := set(rows) - set(ROWS):
        parser.error(f"no such row: {', '.join(sorted(unknown))}; there are {', '.join(ROWS)}")
    OUT.mkdir(parents=True, exist_ok=True)
    print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores; {HERE.parent.name}", flush=True)
    try:
        with stompboxes(options.engine) as own:
            measured(own, rows, options.kills)
        if options.peer:
            with rabbits() as peer:
                measured(peer, rows, options.kills)
    except BenchError as error:
        print(f"bench.cluster: {error}", file=sys.stderr)
        return 1
    return 0


def measured(cluster: Cluster, rows: Sequence[str], kills: int) -> None:
    plain = {"stored": stored, "follower": follower, "waiting": waiting}
    repeated = {"kill": kill, "promote": promote}
    for row in rows:
        told = plain[row](cluster) if row in plain else repeated[row](cluster, kills)
        print(f"{cluster.name:<20} {row:<9} {told}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
