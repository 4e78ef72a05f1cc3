"""New address settings while the broker runs: what each address and its queues obey from now on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stompbox.broker import limits, retention
from stompbox.broker.kinds import rules_of
from stompbox.broker.queuearguments import settings_of

if TYPE_CHECKING:
    from stompbox.broker.engine import Engine, SettingsTable


def resettle(engine: Engine, settings: SettingsTable) -> None:
    """What is there stays; what comes, and the next look at what is there, goes by the new settings. Queues that have rules of their
    own are to be told of them again."""
    engine.settings = settings
    for address in list(engine.addresses.values()):
        found = settings.resolve(address.name)
        if found == address.settings:
            continue
        address.obey(found)
        retention.apply(address)
        limits.apply(address)
        for queue in list(address.queues()):
            if queue.kind in limits.METERED:
                queue.obey(rules_of(settings_of(queue)))
            queue.dispatch()
