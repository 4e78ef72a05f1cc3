"""Configurations of other brokers as Stompbox's: Artemis's broker.xml, ActiveMQ Classic's activemq.xml, RabbitMQ's definitions.json,
OpenMQ's config.properties.

    convert(kind, source)            a draft of the TOML; raises ConfigError that names file and line of what cannot be read
    settled(draft, judge)            its text, once `judge` takes it; what it refuses has become a comment

What could not be carried over stands as a comment beside its place. This package reads texts and writes a text: it opens no file.
"""

from __future__ import annotations

from stompbox.conversion import activemq, artemis, openmq, rabbitmq
from stompbox.conversion.accounts import Accounts, Properties
from stompbox.conversion.draft import Draft, settled

__all__ = ["Accounts", "Draft", "Properties", "convert", "settled"]


def convert(
    kind: str, name: str, text: bytes, accounts: Accounts, listed: tuple[str, bytes] | None = None
) -> Draft:
    """The draft of a file's content. `kind` is `artemis`, `activemq`, `rabbitmq` or `openmq`, `name` the file's name in what is said of
    it, `listed` name and content of a list of destinations, for OpenMQ."""
    if kind == "artemis":
        return artemis.convert(name, text, accounts)
    if kind == "activemq":
        return activemq.convert(name, text, accounts)
    if kind == "openmq":
        return openmq.convert(name, text, accounts, listed)
    return rabbitmq.convert(name, text)
