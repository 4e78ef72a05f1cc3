"""What `stompbox serve` says on a terminal before `ready`: what a person who starts a broker wants to know. A script gets the lines
`listening on` and `ready` alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from stompbox.cli import DEFAULT_URL

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stompbox.config import Configuration

_SCHEMES = {"tcp": "stomp", "ssl": "stomp+ssl", "unix": "unix"}


def greeting(configuration: Configuration, urls: Sequence[str]) -> Iterator[str]:
    """The lines of the greeting. `urls`: what is listened on, with the ports that were given."""
    for url in urls:
        if url.startswith(("http://", "https://")):
            yield f"console on {url}"
    if configuration.memory:
        yield "everything is in memory: nothing outlives this process"
    else:
        yield f"data in {Path(configuration.data).resolve()}"
    yield _who(len(configuration.users))
    first = next((url for url in urls if url.partition("://")[0] in _SCHEMES), None)
    if first is not None:
        yield f"to try it: stompbox send /queue/hello 'it works'{_where(first, has_users=bool(configuration.users))}"


def _who(users: int) -> str:
    if not users:
        return "who is on this machine may connect, without login: no [[user]] is configured"
    return f"{users} {'user' if users == 1 else 'users'} may connect, each with a passcode"


def _where(listener: str, *, has_users: bool) -> str:
    """What follows in the command line; nothing where the command would find the broker by itself."""
    scheme, _, place = listener.partition("://")
    place = place.replace("0.0.0.0", "127.0.0.1").replace("[::]", "[::1]")
    url = f"{_SCHEMES[scheme]}://{place}"
    if has_users:
        url = url.replace("://", "://LOGIN:PASSCODE@")
    return "" if url == DEFAULT_URL else f" --url {url}"
