"""Fixtures of the Spark tests: fake brokers, and one Spark for all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stompbox.spark.link import forget
from tests.spark.fake_broker import FakeBroker


@pytest.fixture
def make_fake() -> Iterator[Callable[..., FakeBroker]]:
    made: list[FakeBroker] = []

    def make(*, tls: bool = False) -> FakeBroker:
        made.append(FakeBroker(tls=tls))
        return made[-1]

    yield make
    forget()
    for broker in made:
        broker.close()


@pytest.fixture
def fake(make_fake: Callable[..., FakeBroker]) -> FakeBroker:
    return make_fake()


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One local Spark for all tests: its start takes six seconds."""
    from stompbox.spark import session

    settings = {"spark.sql.shuffle.partitions": "2", "spark.sql.streaming.pollingDelay": "20ms"}
    found = session.local("stompbox-tests", cores=2, settings=settings, nice=0)
    found.sparkContext.setLogLevel("ERROR")
    yield found
    found.stop()
