"""Fixtures for tests of programs that speak STOMP: `stomp_broker`, and `stomp_client` that is connected to it.

pytest loads this file in every run on a machine where Stompbox is installed: nothing of Stompbox is imported until a test asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

TYPE_CHECKING = False  # what type checkers take for true, without the import of typing
if TYPE_CHECKING:
    from stompbox.blocking import Client
    from stompbox.testing import Broker

MARK = "stomp_broker(config={...}, frozen=False, record=100_000): what the fixture `stomp_broker` is made with (stompbox.testing.Broker)"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARK)


@pytest.fixture
def stomp_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A STOMP broker of this test alone: in memory, on a free port of 127.0.0.1, with faults and a clock (stompbox.testing.Broker)."""
    from stompbox.testing import Broker

    mark = request.node.get_closest_marker("stomp_broker")
    with Broker(*mark.args, **mark.kwargs) if mark is not None else Broker() as broker:
        yield broker


@pytest.fixture
def stomp_client(stomp_broker: Broker) -> Iterator[Client]:
    """A client of the fixture `stomp_broker`, without async (stompbox.blocking.Client)."""
    with stomp_broker.client() as client:
        yield client
