"""What the files of cases share: the brokers that their cases are played on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.conformance.brokers import Brokers


@pytest.fixture(scope="module")
def brokers(
    request: pytest.FixtureRequest, broker: tuple[str, int], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], tuple[str, int]]]:
    """(host, port) by the name of a configuration: one of the file's CONFIGURATIONS, or nothing for the broker of the session."""
    with ExitStack() as stack:
        yield Brokers(broker, getattr(request.module, "CONFIGURATIONS", {}), tmp_path_factory, stack).address
