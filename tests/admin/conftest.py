"""A broker with an admin interface, shared by the tests of a module that need nothing special."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import Serve, Served, end, start_broker

PLACES = ("--listen", "tcp://127.0.0.1:0", "--admin", "127.0.0.1:0")

Start = Callable[..., Served]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Durable, and anyone may do anything: use names of your own."""
    folder = tmp_path_factory.mktemp("admin")
    served = start_broker(folder, "--data", str(folder / "data"), *PLACES)
    yield served
    end(served)


@pytest.fixture
def start(serve: Serve, tmp_path: Path) -> Start:
    """start(toml, *arguments) -> a broker in memory with these lines of configuration."""

    def begin(text: str, *arguments: str) -> Served:
        path = tmp_path / "stompbox.toml"
        path.write_text(text)
        return serve("--config", str(path), *(arguments or ("--memory",)), *PLACES)

    return begin
