"""One broker as a process: opens the store, listens, prints `ready`, stops on a signal."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from threading import Thread
from time import perf_counter
from typing import Final, Protocol

from stompbox import selectors
from stompbox.config import Configuration
from stompbox.errors import ConfigError
from stompbox.server import systemd
from stompbox.server.broker import Broker
from stompbox.server.faults import told
from stompbox.server.generations import Collector
from stompbox.server.readings import Readings
from stompbox.server.reloading import reload
from stompbox.server.stopping import drain
from stompbox.server.transport import descriptors
from stompbox.server.transport.tcp import listen
from stompbox.server.trimming import CONNECTION, TLS, trimming
from stompbox.store.base import Store
from stompbox.store.losses import Losses
from stompbox.store.memory import MemoryStore
from stompbox.store.overflow import Overflow

log = logging.getLogger("stompbox")

SWITCH_INTERVAL: Final = 0.0005  # seconds after which the committer's thread gives way to the loop
LAST_WORDS: Final = 2.0  # seconds for the admin interface to close, after a fault


def open_store(configuration: Configuration, *, accepts_loss: bool = False) -> Store:
    """Opens the store that a configuration names. `accepts_loss`: a store that lacks something that was confirmed is opened all the same,
    once, and says so."""
    if configuration.memory:
        return MemoryStore(overflow=Overflow())
    from stompbox.store.folderstore import FolderStore

    return FolderStore(Path(configuration.data), Losses(accepts_loss, tell))


def tell(code: str, text: str) -> None:
    """What the store found out about itself; from any thread."""
    levels = {
        "data-repaired": logging.WARNING,
        "data-unverified": logging.INFO,
        "data-verified": logging.INFO,
    }
    logging.getLogger("stompbox.store").log(levels.get(code, logging.ERROR), "%s (%s)", text, code)


class Server(Protocol):
    """What accepts connections, here or in fronts."""

    def close(self) -> None: ...


class Attached(Protocol):
    """Something beside the broker that lives as long: the admin interface."""

    @property
    def url(self) -> str: ...
    async def close(self) -> None: ...


async def serve(
    configuration: Configuration,
    *,
    on_ready: Callable[[Broker, list[str]], None] | None = None,
    attach: Callable[[Broker], Attached | None] | None = None,
    readings: Readings | None = None,
    accepts_loss: bool = False,
) -> None:
    """Runs until SIGTERM or SIGINT; `readings` read the configuration once more, at each SIGHUP.

    Raises ConfigError or StoreError when it, or what is to be attached, cannot start; BrokerFault `broker-stopped` after a fault of
    its own.
    """
    loop = asyncio.get_running_loop()
    stopped, hurry = asyncio.Event(), asyncio.Event()

    def signalled() -> None:
        """Once to stop, twice to do it now."""
        (hurry if stopped.is_set() else stopped).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        on_signal(loop, number, signalled)
    broker, servers, urls = await start(configuration, accepts_loss=accepts_loss)
    broker.faults.on_stop = stopped.set
    if readings is not None:
        readings.broker = broker
        broker.readings = readings
    attached = await _attached(broker, servers, attach)
    if attached is not None:
        urls.append(attached.url)
    if readings is not None and hasattr(signal, "SIGHUP"):  # not on Windows
        on_signal(loop, signal.SIGHUP, partial(reload, broker, readings.beside))
    collector = Collector()
    collector.begin()
    sys.setswitchinterval(SWITCH_INTERVAL)
    giving_back = trimming(OfBroker(broker), collector)
    watchdog = systemd.Watchdog(loop)
    if on_ready is not None and not broker.has_failed:
        on_ready(broker, urls)
        systemd.ready(f"listening on {' '.join(urls)}")
    # in slices, so that the first SUBSCRIBE with one does not hold up the loop
    Thread(target=partial(collector.load, selectors.load), name="selectors").start()
    try:
        if not broker.has_failed:
            await stopped.wait()
        systemd.stopping()
        _refuse_more(broker, servers)
        if not broker.has_failed:
            await drain(broker, hurry)
    finally:
        watchdog.stop()
        collector.end()
        giving_back.stop()
        await stop(broker, servers)
        if attached is not None:  # until now it has said that the broker stops
            await _close(attached, broker)
    if broker.faults.last is not None:
        raise broker.faults.last


class OfBroker:
    """The broker's own process, as what gives memory back."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.loop = broker.loop

    @property
    def kept(self) -> int:
        counted = sum(self._broker.ledger.by_kind.values())
        return counted + CONNECTION * len(self._broker.sockets) + TLS * descriptors.with_tls()

    @property
    def happened(self) -> int:
        return self._broker.turns.served

    async def let_go(self) -> bool:
        selectors, verdicts = self._broker.selectors, self._broker.engine.verdicts
        is_renewed = self._broker.closings.renew()
        if not (len(selectors) or len(verdicts)):
            return is_renewed
        await self._broker.turns.taken(selectors.letting_go())
        verdicts.forget()
        return True


def _tell_of_files(broker: Broker) -> None:
    """The log says where fewer clients can come than the configuration lets."""
    files, processes = descriptors.limit(), max(1, len(broker.fronts))
    most = descriptors.most_sockets() * processes
    wanted = sum(max(0, acceptor.listener.options.max_connections) for acceptor in broker.acceptors)
    if most < wanted:
        text = "the system lets a process open %d files, which is room for %d connections; maxConnections lets %d come (ulimit -n)"
        log.warning(text, files, most, wanted)


def on_signal(loop: asyncio.AbstractEventLoop, number: signal.Signals, do: Callable[[], object]) -> None:
    """Does something in the loop when the signal comes."""
    try:
        loop.add_signal_handler(number, do)
    except NotImplementedError:  # Windows
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(do))


async def _attached(
    broker: Broker, servers: Sequence[Server], attach: Callable[[Broker], Attached | None] | None
) -> Attached | None:
    """What lives beside the broker; with it all that listens is there, and no socket of a service manager may be left over."""
    attached = None
    try:
        attached = attach(broker) if attach is not None else None
        systemd.inherited().require_none_left()
    except ConfigError:
        await stop(broker, servers)
        if attached is not None:
            await attached.close()
        raise
    return attached


async def _close(attached: Attached, broker: Broker) -> None:
    """After a fault nobody is waited for, and nothing hides why the broker stops."""
    if not broker.has_failed:
        await attached.close()
        return
    try:
        await asyncio.wait_for(attached.close(), LAST_WORDS)
    except Exception as error:
        log.error("the admin interface does not close: %s", told(error))


async def start(
    configuration: Configuration, *, accepts_loss: bool = False
) -> tuple[Broker, list[Server], list[str]]:
    """A broker that accepts, its servers, and the URLs that they have (ports filled in)."""
    store = open_store(configuration, accepts_loss=accepts_loss)
    servers: list[Server] = []
    broker = None
    try:
        loop = asyncio.get_running_loop()
        broker = Broker(configuration, store, loop, is_durable=not configuration.memory)
        broker.engine.work.time_by(perf_counter)
        loop.set_exception_handler(broker.faults.in_loop)
        broker.faults.pause_culprit()
        if configuration.fronts:
            servers.append(await _fronts(broker, configuration))
        else:
            for listener in configuration.listening():
                servers.append(await listen(broker, listener))
    except BaseException:
        if broker is not None:
            _refuse_more(broker, servers)
            broker.committer.close()
        else:
            store.close()
        raise
    _tell_of_files(broker)
    return broker, servers, [str(acceptor.listener) for acceptor in broker.acceptors]


async def _fronts(broker: Broker, configuration: Configuration) -> Server:
    """Processes that accept for the broker. Raises ConfigError."""
    from stompbox.server.fronts.fronts import Fronts  # most brokers are one process

    fronts = Fronts(broker, configuration)
    await fronts.open(configuration.listening())
    return fronts


def _refuse_more(broker: Broker, servers: Sequence[Server]) -> None:
    """Nobody else can connect. Files of sockets go while the sockets are open still: after that another broker may take the name."""
    for acceptor in broker.acceptors:
        acceptor.close()
    for server in servers:
        server.close()


async def stop(broker: Broker, servers: Sequence[Server]) -> None:
    """Accepts no more, lets connections end, stores what is left."""
    _refuse_more(broker, servers)
    await broker.stop()
    for socket in list(broker.sockets):
        socket.abort()
    await asyncio.gather(*[front.end() for front in broker.fronts])
    broker.fronts.clear()
