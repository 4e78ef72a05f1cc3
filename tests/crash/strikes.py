"""The faults of a cluster's drill: what is done to nodes and to their log under load, and what must not come of it meanwhile.

kill, stop, restart    a node's process, or servers of the log
cut                    a node's connections to the log
fail over              the log's server dies and its standby is promoted; then the old one comes back for a while
lose                   what is sent vanishes: between a node and the log, the other nodes or the clients; one way alone where it says so
promote                an operator hands the lead over
full                   no file of a follower may grow: its disk is full
clock                  a node's wall clock jumps by an hour, ahead or back
"""

from __future__ import annotations

import asyncio
import random
import re
import resource
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.crash.cluster import Book, Cluster, NodeProcess

TAKEOVER = 1500  # ms
READY_WITHIN = 30.0
PAUSED = 1.0  # seconds for which what is not persistent may stand still while the log is away
FULL = 40_000  # octets that a file has where the disk is full: less than a store's, more than a node says on stderr
REFUSED = ("disk-full", "io-error")  # what a node calls that
APART = 3600.0  # seconds by which a clock jumps
AWAY = ("stop logs 5", "kill logs 5")  # of a log's servers, all for so many seconds
LOG_FAULTS = {
    "nats": ("kill log", *AWAY),  # one of three, or the standby
    "cut": ("cut leader", "cut follower", *AWAY),  # each node reaches it by a network of its own
    "postgres": AWAY,
    "standby": ("kill log", "fail over", *AWAY),
}
NETWORK_FAULTS = (
    "lose log leader", "lose log follower", "lose log one way leader", "lose nodes leader", "lose nodes one way leader",
    "lose clients leader",
)  # fmt: skip
LOST = (
    15.0  # seconds for which what is sent vanishes: longer than anybody waits before he tries another node,
)
AGAIN = 5.0  # and in the last ones of them each sender has messages confirmed
FAULTS = (
    "kill leader", "kill follower", "stop leader", "stop follower", "restart leader", "promote follower",
    "full follower", "clock leader", "clock follower",
)  # fmt: skip


async def strike(cluster: Cluster, fault: str, book: Book, chance: random.Random) -> None:
    """One fault, and what it takes until all nodes are there again."""
    leader = await cluster.until_led()
    followers = [node for node in cluster.nodes if node is not leader]
    node = leader if "leader" in fault else chance.choice(followers)
    book.faults[fault] += 1
    if fault.startswith(("stop logs", "kill logs")):
        await without_log(cluster, fault, leader, book)
    elif fault == "kill log":
        assert cluster.log is not None
        cluster.log.kill_one(chance.randrange(3))
        await pause(TAKEOVER / 1000)
        await asyncio.to_thread(cluster.log.start)
    elif fault == "fail over":
        assert cluster.log is not None
        if problem := await asyncio.to_thread(cluster.log.fail_over):
            book.found.append(f"{fault}: {problem}")
    elif fault.startswith("lose"):
        await lose(cluster, fault, node, book, chance)
    elif fault.startswith("full"):
        await full(cluster, node, book)
    elif fault.startswith("clock"):
        await apart(cluster, node, chance.choice((-APART, APART)), book)
    elif fault.startswith("kill"):
        node.signal(signal.SIGKILL)
        await cluster.until_led()
        await asyncio.to_thread(node.start)
    elif fault.startswith("promote"):
        # it may still look for the log after the last fault, and is refused then
        if not await until(lambda: not _trouble_of(node)):
            book.found.append(f"{fault}: node {node.name} does not go on: {_trouble_of(node)}")
        done = await asyncio.to_thread(leader.command, "promote", node.name)
        assert f"node {node.name} is to lead" in done, done
    elif fault.startswith("cut"):
        proxy = cluster.networks[node.name]
        proxy.is_refusing = True
        proxy.cut()
        await pause(TAKEOVER / 1000 * 2)
        proxy.is_refusing = False
    elif fault.startswith("stop"):
        node.signal(signal.SIGSTOP)
        await pause(TAKEOVER / 1000 * 2)
        node.signal(signal.SIGCONT)
    else:
        await asyncio.to_thread(node.end)
        await cluster.until_led()
        await asyncio.to_thread(node.start)
    await cluster.until_led()
    await cluster.until_ready()


async def without_log(cluster: Cluster, fault: str, leader: NodeProcess, book: Book) -> None:
    """The log is away for all nodes, for as long as the fault says: the leader stays, and what is not persistent goes on."""
    seconds, begun, epochs = float(fault.rsplit(maxsplit=1)[-1]), time.monotonic(), epochs_of(cluster)
    log = cluster.log
    assert log is not None
    await asyncio.to_thread(log.stop if fault.startswith("stop") else log.kill)
    await pause(seconds)
    paused = book.chatter.longest(begun) if book.chatter is not None else 0.0
    await asyncio.to_thread(log.go_on if fault.startswith("stop") else log.start)
    await cluster.until_led()
    book.pauses.append(paused)
    if paused > PAUSED:
        book.found.append(f"{fault}: nothing that is not persistent came for {paused:.1f} s")
    if (led := epochs_of(cluster)) != epochs:
        book.found.append(f"{fault}: the lead has moved, from {leader.name}: {epochs} to {led}")


async def lose(cluster: Cluster, fault: str, node: NodeProcess, book: Book, chance: random.Random) -> None:
    """Packets vanish, and nobody is told: who waits for an answer has to give up by himself. In the end of it nobody waits any more."""
    network, others = cluster.network, [one for one in cluster.nodes if one is not node]
    assert network is not None and node.host is not None
    ends = (
        [one.host for one in others if one.host is not None] if "nodes" in fault else [network.hosts["log"]]
    )
    if "clients" in fault:
        ends = [network.drill]
    epochs, turned = epochs_of(cluster), chance.random() < 0.5
    for end in ends:
        if "one way" in fault:
            network.lose(*((end, node.host) if turned else (node.host, end)))
        else:
            network.part(end, node.host)
    begun = time.monotonic()
    is_moved = "log" in fault and "leader" in fault
    if is_moved:
        await cluster.until_led(among=others)
    await pause(LOST - (time.monotonic() - begun))
    silent = [number for number, at in book.last.items() if at < time.monotonic() - AGAIN]
    network.restore()
    if silent:
        book.found.append(f"{fault} ({turned=}): nothing was confirmed to senders {silent} for {AGAIN:g} s")
    if not is_moved and (led := epochs_of(cluster)) != epochs:
        book.found.append(f"{fault} ({turned=}): the lead has moved: {epochs} to {led}")


async def full(cluster: Cluster, node: NodeProcess, book: Book) -> None:
    """The disk of a follower is full: it says so and stays behind, the others go on without it, and it reads on when there is room."""
    epochs, confirmed = epochs_of(cluster), len(book.confirmed)
    node.limit_files(FULL)
    said = await until(lambda: _trouble_of(node) in REFUSED)
    await pause(TAKEOVER / 1000 * 2)
    if not said:
        book.found.append(f"full follower: node {node.name} does not say that its disk is full")
    elif _trouble_of(node) not in REFUSED:
        book.found.append(f"full follower: node {node.name} has applied what it had no room for")
    if len(book.confirmed) == confirmed:
        book.found.append(f"full follower: nothing was confirmed while the disk of {node.name} was full")
    if (led := epochs_of(cluster)) != epochs:
        book.found.append(f"full follower: the lead has moved: {epochs} to {led}")
    node.limit_files(resource.RLIM_INFINITY)
    if not await until(lambda: not _trouble_of(node)):
        book.found.append(f"full follower: node {node.name} does not go on, although there is room")


async def apart(cluster: Cluster, node: NodeProcess, seconds: float, book: Book) -> None:
    """The clock of a node jumps, and stays so until it ends: clocks decide nothing of who leads."""
    epochs, confirmed = epochs_of(cluster), len(book.confirmed)
    await asyncio.to_thread(node.jump, seconds)
    if not await until(lambda: abs(_clock_of(node) - time.time() - seconds) < APART / 2):
        book.found.append(f"clock of {node.name} by {seconds:g} s: the node does not show it")
    await pause(TAKEOVER / 1000 * 2)
    if (led := epochs_of(cluster)) != epochs:
        book.found.append(f"clock of {node.name} by {seconds:g} s: the lead has moved: {epochs} to {led}")
    if len(book.confirmed) == confirmed:
        book.found.append(f"clock of {node.name} by {seconds:g} s: nothing was confirmed since")


async def until(is_so: Callable[[], bool], within: float = READY_WITHIN) -> bool:
    """Whether it comes to be so in time; it is asked in a thread."""
    deadline = time.monotonic() + within
    while not await asyncio.to_thread(is_so):
        if time.monotonic() > deadline:
            return False
        await pause(0.05)
    return True


def _clock_of(node: NodeProcess) -> float:
    """What a node takes for the time, seconds; 0.0: it does not answer."""
    found = node.asked("/api/v1/status")
    return 0.0 if found is None else (found["started"] + found["uptime"]) / 1000


def _trouble_of(node: NodeProcess) -> str:
    """What a node says that keeps it from applying what is in the log; empty: nothing does."""
    found = node.asked("/api/v1/cluster")
    members = [] if found is None else found["members"]
    return next((str(one["trouble"]) for one in members if one["node"] == node.name), "")


def epochs_of(cluster: Cluster) -> list[int]:
    """The epochs that nodes say they lead, each as often as one says so."""
    return sorted(
        int(epoch) for node in cluster.nodes for epoch in re.findall(r"leads epoch (\d+),", node.said())
    )


async def pause(seconds: float) -> None:
    """The load goes on, and so do the nodes: nothing is waited for but time."""
    with suppress(TimeoutError):
        await asyncio.wait_for(asyncio.get_running_loop().create_future(), seconds)
