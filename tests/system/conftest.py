"""What tests of the real process share: a broker with a configuration of the test's own, and what is closed with the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.conftest import Serve, Served

Start = Callable[..., Served]


@pytest.fixture
def start(serve: Serve, tmp_path: Path) -> Start:
    """start(toml) -> a broker with these lines of configuration, on the same data each time. `is_graceful`: as of `serve`."""

    def begin(text: str = "", *, is_graceful: bool = False) -> Served:
        (tmp_path / "broker").mkdir(exist_ok=True)
        (tmp_path / "broker" / "stompbox.toml").write_text(text)
        data = str(tmp_path / "data")
        return serve("--data", data, "--no-admin", "--listen", "tcp://127.0.0.1:0", is_graceful=is_graceful)

    return begin


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    """Closes what is entered, clients above all, before the brokers end."""
    with ExitStack() as found:
        yield found
