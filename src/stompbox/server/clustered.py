"""A node of a cluster as a process: it follows and leads by turns until a signal stops it. What run.py is to a broker that is alone."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Callable
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Protocol

from stompbox import selectors
from stompbox.config import Configuration
from stompbox.errors import ConfigError, Refused
from stompbox.server import systemd
from stompbox.server.cluster.leading import Leadership
from stompbox.server.cluster.node import Node
from stompbox.server.configuring import transition
from stompbox.server.faults import STOPPED
from stompbox.server.generations import Collector
from stompbox.server.readings import Readings
from stompbox.server.reloading import fault_of, reload
from stompbox.server.run import SWITCH_INTERVAL, Attached, OfBroker, on_signal, tell
from stompbox.server.stopping import drain
from stompbox.server.transport.tcp import Acceptor
from stompbox.server.trimming import trimming

if TYPE_CHECKING:
    from stompbox.server.broker import Broker

log = logging.getLogger("stompbox.cluster")


class Beside(Protocol):
    """What lives beside the node: the admin interface of a broker, or of a node that follows."""

    def follower(self, node: Node) -> Attached | None: ...
    def leader(self, node: Node, broker: Broker) -> Attached | None: ...
    def close(self) -> None: ...


async def serve(
    configuration: Configuration,
    *,
    beside: Beside,
    on_ready: Callable[[list[str]], None] | None = None,
    readings: Readings | None = None,
    accepts_loss: bool = False,
) -> None:
    """Runs until SIGTERM or SIGINT. Raises ConfigError or StoreError when it cannot start or go on, BrokerFault `broker-stopped` after a
    fault of its own."""
    loop = asyncio.get_running_loop()
    node = Node(configuration, tell, accepts_loss=accepts_loss)
    for number in (signal.SIGTERM, signal.SIGINT):
        on_signal(loop, number, node.stop)
    await node.open()
    process = Process(node, beside, readings)
    if readings is not None and hasattr(signal, "SIGHUP"):
        on_signal(loop, signal.SIGHUP, process.reload)
    process.collector.begin()
    sys.setswitchinterval(SWITCH_INTERVAL)
    watchdog = systemd.Watchdog(loop)
    Thread(target=partial(process.collector.load, selectors.load), name="selectors").start()
    try:
        await process.run(on_ready)
    finally:
        watchdog.stop()
        process.collector.end()
        beside.close()
        await node.close()


class Process:
    """The turns of a node."""

    def __init__(self, node: Node, beside: Beside, readings: Readings | None) -> None:
        self.node = node
        self.beside = beside
        self.readings = readings
        self.collector = Collector()
        self._reading = asyncio.Lock()
        self._attached: Attached | None = None

    async def run(self, on_ready: Callable[[list[str]], None] | None) -> None:
        node = self.node
        try:
            self._follow()
            systemd.inherited().require_none_left()
            if on_ready is not None:
                on_ready(self._urls())
                systemd.ready(f"node {node.name} of cluster {node.table.name}")
            while (store := await node.follow()) is not None:
                leadership = await node.take_lead(store)
                if leadership is not None:
                    await self._leave()
                    await self._lead(leadership)
                if node.stopped.is_set():
                    return
                await node.reopen()
                self._follow()
            await asyncio.to_thread(node.local.close)
        finally:
            systemd.stopping()
            await self._leave()

    def _follow(self) -> None:
        """The admin interface is that of a node that follows."""
        if self._attached is None:
            self._attached = self.beside.follower(self.node)
        if self._attached is not None:
            self.node.answers_at(self._attached.url)

    def _urls(self) -> list[str]:
        urls = []
        for sockets in (self.node.client_sockets, self.node.reading):
            for at, listener in enumerate(sockets.listeners):
                place = str(listener)
                urls.append(
                    place
                    if listener.port or listener.is_unix
                    else f"{place.rpartition(':')[0]}:{sockets.port(at)}"
                )
        if self._attached is not None:
            urls.append(self._attached.url)
        return urls

    async def _leave(self) -> None:
        attached, self._attached = self._attached, None
        if attached is not None:
            await attached.close()

    async def _lead(self, leadership: Leadership) -> None:
        """The broker, until it is fenced, hands over or is told to stop. Raises BrokerFault after a fault of its own."""
        node, broker = self.node, leadership.broker
        await leadership.begin()
        acceptors = [Acceptor(broker, listener) for listener in node.reading.listeners]
        broker.acceptors.extend(acceptors)
        await node.reading.serve(node.loop, acceptors)
        if self.readings is not None:
            self.readings.broker = broker
            broker.readings = self.readings
        self._attached = self.beside.leader(node, broker)
        giving_back = trimming(OfBroker(broker), self.collector)
        try:
            await leadership.ended.wait()
            if node.stopped.is_set() and not broker.has_failed:
                await self._stop(leadership)
        finally:
            giving_back.stop()
            node.obey(broker)
            await node.give_up(leadership)
            await self._leave()
        last = broker.faults.last
        if last is not None and last.code == STOPPED:
            raise last

    async def _stop(self, leadership: Leadership) -> None:
        """Told to stop: clients may finish, and another node leads at once."""
        leadership.rest()
        self.node.reading.rest()
        try:
            self.node.hand_over()
        except Refused as error:
            log.info(
                "stops without a successor: %s (%s)", error.message, error.code, extra={"code": error.code}
            )
        await drain(leadership.broker, self.node.hurry)

    def reload(self) -> None:
        """Reads the configuration again, at SIGHUP."""
        node, readings = self.node, self.readings
        if readings is None:
            return
        if node.leadership is not None:
            reload(node.leadership.broker, readings.beside)
        else:
            node.view.spawn(self._read(readings))

    async def _read(self, readings: Readings) -> None:
        """A node that follows reads in a thread what is there when its turn has come; one that leads by then has its broker read it."""
        node = self.node
        async with self._reading:
            try:
                made = await asyncio.to_thread(transition, node.configuration, await readings.beside())
            except ConfigError as error:
                log.error("%s. Everything stays as it was", error.message, extra={"code": error.code})
                return
            except Exception as error:
                fault_of(error)
                return
            if node.leadership is not None:
                reload(node.leadership.broker, readings.beside)
                return
            node.obey(made)
            log.info("the configuration was read again; it counts when this node leads")

    def __repr__(self) -> str:
        return f"<Process {self.node!r}>"
