"""Brokers by name of their configuration, each started when the first case asks for it."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from tests.conftest import start_broker


class Brokers:
    """`shared` is the session's own, under the empty name."""

    def __init__(
        self,
        shared: tuple[str, int],
        configurations: dict[str, str],
        folders: pytest.TempPathFactory,
        stack: ExitStack,
    ) -> None:
        self.known = {"": shared}
        self.configurations = configurations
        self.folders = folders
        self.stack = stack

    def address(self, name: str) -> tuple[str, int]:
        if name not in self.known:
            folder = self.folders.mktemp(name)
            path = folder / "stompbox.toml"
            path.write_text(self.configurations[name], encoding="utf-8")
            served = start_broker(folder, "--config", str(path), "--no-admin")
            if served.process.stdout is not None:
                self.stack.callback(served.process.stdout.close)
            self.stack.callback(served.stop)
            self.known[name] = served.host, served.port
        return self.known[name]
