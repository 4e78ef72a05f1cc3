"""Fixtures of the Spark tests: fake brokers, and one with users."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest

from stompbox import blocking
from stompbox.spark.bounds import EARLIEST
from stompbox.spark.link import forget, leased
from stompbox.spark.options import Given, target_of
from stompbox.spark.requests import describe, open_group
from tests.conftest import end, start_broker
from tests.spark.bad_input import USER, USERS
from tests.spark.fake_broker import PEM, FakeBroker


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


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A broker with users, without and with TLS; with three messages at open.a. And one that is not there."""
    from tests.spark.soak import free_port  # which needs Arrow

    folder = tmp_path_factory.mktemp("broker")
    (folder / "users.toml").write_text(USERS)
    listeners = ("--listen", "tcp://127.0.0.1:0", "--listen", f"ssl://127.0.0.1:0?keyStorePath={PEM}")
    served = start_broker(folder, "--memory", *listeners, "--no-admin", "--config", "users.toml")
    plain, tls = (f"127.0.0.1:{urlsplit(listener).port}" for listener in served.listeners)
    with leased(target_of(Given({"url": f"stomp://{plain}", **USER}))) as link:
        describe(link, "/topic/open.a", create=True)
        open_group(link, "hold", "/topic/open.a", EARLIEST)
    with blocking.connect(f"stomp://{USER['login']}:{USER['passcode']}@{plain}") as client:
        for _ in range(3):
            client.send("/topic/open.a", b"x")
    yield {"plain": f"stomp://{plain}", "tls": f"stomps://{tls}", "away": f"stomp://127.0.0.1:{free_port()}"}
    end(served)
