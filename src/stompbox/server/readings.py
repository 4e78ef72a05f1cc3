"""What was read of the configuration: at the start, with each SIGHUP, and with each change at run time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stompbox.config import Configuration, Loaded, read
from stompbox.config.origins import NONE, Layer
from stompbox.config.sources import kept_of
from stompbox.errors import Refused
from stompbox.server.verifying import verify

if TYPE_CHECKING:
    from stompbox.server.broker import Broker

log = logging.getLogger("stompbox")


class Readings:
    """Reads the configuration, and remembers what was read. The last one may have been refused."""

    def __init__(self, config: Path | None, environ: Mapping[str, str], overrides: Mapping[str, Any]) -> None:
        """Nothing is read before `first` is called."""
        self.config = config
        self.environ = environ
        self.overrides = overrides
        self.broker: Broker | None = None
        self._known: list[Loaded] = []

    def first(self) -> Loaded:
        """What a broker is to start with. Raises ConfigError."""
        loaded = read(self.config, self.environ, self.overrides, kept_of)
        self._known = [loaded]
        return loaded

    def again(self) -> Configuration:
        """The configuration, read again at SIGHUP. Raises ConfigError."""
        loaded = read(self.config, self.environ, self.overrides, self._kept)
        for warning in verify(loaded):
            log.warning("%s", warning)
        self.take(loaded)
        return loaded.configuration

    async def beside(self) -> Configuration:
        """What `again` says, read in a thread: a file of ten thousand addresses takes seconds."""
        return await asyncio.to_thread(self.again)

    def _kept(self, content: Mapping[str, Any]) -> Layer:
        """A broker in memory keeps what was defined as long as it lives."""
        if content.get("memory") is not True:
            return kept_of(content)
        counting = self.counting()
        return NONE if counting is None else counting.layer

    def take(self, loaded: Loaded) -> None:
        """Another one may count soon."""
        counting = self.counting()
        self._known = [loaded] if counting is None else [counting, loaded]

    def counting(self) -> Loaded | None:
        """What the broker obeys now, with where each key comes from."""
        obeyed = None if self.broker is None else self.broker.configuration
        return next((one for one in self._known if one.configuration is obeyed), None)

    def require(self) -> Loaded:
        """Says what `counting` says, and raises Refused where nobody has read it."""
        counting = self.counting()
        if counting is None:
            raise Refused(
                "no-configuration", "this broker was started with a configuration that nobody has read"
            )
        return counting
