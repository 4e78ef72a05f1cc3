"""Spaces: the names of a virtual host's addresses and queues inside the broker, where all hosts share one engine and one store.

    vhost/green.orders.new      address orders.new of virtual host green (its name %-encoded, so that it is one word)

The default host, and a broker without hosts, has the empty space: names as they are. No client can say a name with such a first
word, and no wildcard stands for one (matching.py), so nobody reaches beyond his own space.
"""

from __future__ import annotations

from typing import Final

MARK: Final = "vhost/"


def space_of_host(name: str) -> str:
    """What the names of a host begin with."""
    from urllib.parse import quote  # most brokers have no virtual hosts

    return f"{MARK}{quote(name, safe='').replace('.', '%2E')}."


def space_of(name: str) -> str:
    """What the name of an address or queue begins with; empty where it is no virtual host's."""
    return name[: name.find(".") + 1] if name.startswith(MARK) else ""


def joined(*parts: str) -> str:
    """Names of a client's as one, with dots between them; a dot that is in one is escaped, as in Artemis's names of queues, so that no
    other names give the same."""
    return ".".join([part.replace("\\", "\\\\").replace(".", "\\.") for part in parts])


def is_inside(name: str) -> bool:
    """Whether it is a name inside the broker, that of a space and what follows it: nobody outside may say it."""
    return name.startswith(MARK)


def local(name: str) -> str:
    """The name as the clients of its host know it."""
    return name[name.find(".") + 1 :] if name.startswith(MARK) else name
