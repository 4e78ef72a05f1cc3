"""SIGHUP: the configuration is read again, and taken whole or not at all.

What is wrong in it, and what only a restart can do, is named in the log, and nothing changes: a broker that took the half of a file (its
users are gone, and its sockets are still open to everybody) would be what nobody has configured.

What can be made of it before it counts is made in a thread. Users, permissions, virtual hosts and limits change at once, for connections
that are there as well: what is no longer allowed ends (revoking.py), one connection after the other. Then the addresses that are there
obey the new settings and diverts, one after the other (broker/addresses/configuration.py), and those of the file are made; the log says so
when all is done. A SIGHUP that comes meanwhile has its turn then, and so has what an operator changes at run time (definitions.py), which
is prepared when its turn has come.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from stompbox.config import Configuration, needs_restart
from stompbox.errors import BrokerFault, ConfigError, Refused, StompboxError
from stompbox.server import configuring, systemd
from stompbox.server.configuring import Transition, transition
from stompbox.server.faults import told
from stompbox.server.revoking import revoking

if TYPE_CHECKING:
    from ssl import SSLContext

    from stompbox.config import Listener
    from stompbox.server.broker import Broker
    from stompbox.server.seam import Acceptor

    Change = tuple[Acceptor, Listener, SSLContext | None]
    """Where clients come in, and what it listens on from now on."""

log = logging.getLogger("stompbox")

CHANGES: Final = 100  # that wait for their turn
STAYING: Final = 100  # lines about what stays although the file has it no more

Prepare = Callable[[], Coroutine[object, object, Configuration]]
"""Reads the configuration again, and raises ConfigError where that cannot be, or it is wrong; or makes another one of the one that counts,
keeps what has to be kept of it, and raises StompboxError where it cannot be."""


Teller = Callable[[StompboxError | None], object]
"""Is told how it ended: None, or why nothing has changed."""


class Reload:
    """One that is going on, or waits for its turn."""

    def __init__(self, prepare: Prepare, *, is_change: bool) -> None:
        self.prepare = prepare
        self.is_change = is_change
        self.tellers: list[Teller] = []


def reload(broker: Broker, read: Prepare, tell: Teller | None = None) -> None:
    """Reads and takes it; where another one is going on still, when that is done. One that waits will read what is there then."""
    systemd.reloading()
    waits = len(broker.reloads) > 1 and not broker.reloads[-1].is_change
    _enter(broker, broker.reloads[-1] if waits else Reload(read, is_change=False), tell)


def change(broker: Broker, prepare: Prepare, tell: Teller) -> None:
    """Takes a change, when its turn has come. Raises Refused where too many wait."""
    if sum([one.is_change for one in broker.reloads]) >= CHANGES:
        raise Refused("too-many-changes", f"{CHANGES} changes of the configuration wait already")
    _enter(broker, Reload(prepare, is_change=True), tell)


def _enter(broker: Broker, one: Reload, tell: Teller | None) -> None:
    if tell is not None:
        one.tellers.append(tell)
    if one in broker.reloads:
        return
    broker.reloads.append(one)
    if len(broker.reloads) == 1:
        _begin(broker)


def _begin(broker: Broker) -> None:
    """The first one that waits."""
    first: Reload = broker.reloads[0]
    broker.spawn(_obeying(broker, first))


async def _obeying(broker: Broker, first: Reload) -> None:
    changes: list[Change] = []
    try:
        if first.is_change:
            found = await first.prepare()
        else:
            found, changes = await _read(broker, first.prepare)
        made = await broker.loop.run_in_executor(None, transition, broker.configuration, found)
    except StompboxError as error:
        if not first.is_change:  # who has asked for a change says it
            log.error("%s. Everything stays as it was", error.message, extra={"code": error.code})
        _ended(broker, error)
    except Exception as error:
        _ended(broker, fault_of(error))
    else:
        for acceptor, listener, context in changes:
            acceptor.change(listener, context)
        _take(broker, made)


def fault_of(error: Exception) -> BrokerFault:
    """What is told of a fault of ours while another configuration was made, which has changed nothing: who waits has his turn."""
    doing = "another configuration was made"
    code = "internal-fault"
    log.error("a fault of the broker while %s: %s", doing, told(error), exc_info=error, extra={"code": code})
    return BrokerFault(code, f"a fault of the broker while {doing}; its log says more")


def _take(broker: Broker, found: Transition) -> None:
    broker.turns.run(taking(broker, found), partial(_taken, broker, found.said))
    broker.flush()


def _ended(broker: Broker, error: StompboxError | None) -> None:
    """The first one is done. Who waits has his turn."""
    for tell in broker.reloads.popleft().tellers:
        tell(error)
    if broker.reloads:
        broker.loop.call_soon(_begin, broker)
    elif error is None:
        systemd.ready("the configuration was read again")
    else:
        systemd.ready("the configuration was not read again; the log says why")


async def _read(broker: Broker, read: Prepare) -> tuple[Configuration, list[Change]]:
    """The configuration, and what changes of what is listened on. Raises ConfigError that says why it is refused."""
    refused = "the configuration is not read again"
    try:
        found = await read()
    except ConfigError as error:
        raise ConfigError(error.code, f"{refused}: {error.message} ({error.code})") from None
    later = needs_restart(broker.configuration, found)
    if later:
        raise ConfigError("needs-restart", f"{refused}: only a restart can change {', '.join(later)}")
    try:
        changes = _prepared(broker, found)
    except ConfigError as error:
        text = f"the listeners stay as they were, and so does all else: {error.message} ({error.code})"
        raise ConfigError(error.code, text) from None
    return found, changes


def _taken(broker: Broker, stays: list[str]) -> None:
    if broker.fronts:
        broker.spawn(_by_fronts(broker, stays))
    else:
        _done(broker, stays)


async def _by_fronts(broker: Broker, stays: list[str]) -> None:
    """Who connects after this finds the new settings at each front."""
    await asyncio.gather(*[front.obeyed() for front in broker.fronts])
    _done(broker, stays)


def _done(broker: Broker, stays: list[str]) -> None:
    for line in stays[:STAYING]:
        log.warning("%s", line)
    if broker.reloads[0].is_change:
        log.info("what is defined at run time has changed")
    else:
        log.warning("the configuration was read again")
    _ended(broker, None)


def taking(broker: Broker, found: Transition) -> Iterator[None]:
    """Makes a configuration the one that counts, in steps."""
    broker.configuration = configuration = found.configuration
    broker.hosts, broker.users, broker.permissions = found.hosts, found.users, found.permissions
    engine = broker.engine
    broker.set_time()
    broker.ledger.most = configuration.max_client_memory
    broker.selectors.limit(configuration.max_selector_cache_memory)
    configuring.limit_memory(engine, configuration)
    broker.timeouts.change(configuration.transaction_timeout)
    configuring.limit_sinks(broker.sinks, configuration)
    engine.schedules.limit(configuration.max_scheduled_bytes)
    engine.notifications.address = configuration.management_notification_address or ""
    broker.logins.obey(configuration)
    broker.turns.obey(configuration)
    logging.getLogger().setLevel(configuration.log_level.value.upper())
    for front in broker.fronts:
        front.configure()
    for connection in list(broker.connections):  # the log's level may have changed
        broker.frames.look(connection)
        yield
    yield from revoking(broker)
    yield from configuring.reconfiguring(engine, found, broker.committer.store.sizes)
    broker.pressure.relieve()


def _prepared(broker: Broker, configuration: Configuration) -> list[Change]:
    """Options and certificates of what is listened on. Raises ConfigError for the first one that cannot be so."""
    found: dict[str, deque[Listener]] = {}
    for listener in configuration.listening():
        found.setdefault(str(listener), deque()).append(listener)
    # of several with one name, which port 0 alone allows, the file's first is the one that was opened first
    return [
        (acceptor, *acceptor.prepare(found[acceptor.configured].popleft())) for acceptor in broker.acceptors
    ]
