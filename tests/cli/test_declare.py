"""Addresses, queues and durable subscriptions that are made before anybody comes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from cyclopts import App

from stompbox.cli import declare
from tests.admin.asking import queue, read
from tests.admin.conftest import PLACES
from tests.admin.test_views import send
from tests.cli.conftest import Run
from tests.conftest import Served, end, start_broker
from tests.system.plain import Plain


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = start_broker(tmp_path_factory.mktemp("declare"), "--memory", *PLACES)
    yield served
    end(served)


@pytest.fixture
def run(served: Served, running: Callable[[App], Run], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("STOMPBOX_ADMIN_URL", served.admin)
    return running(declare.app)


def test_addresses_and_queues(run: Run, served: Served) -> None:
    assert run("address", "a", "--routing", "multicast") == (0, "address a made\n", "")
    assert run("address", "a")[1] == "address a was there\n"
    assert (
        run("queue", "eu", "--address", "a", "--filter", "region = 'EU'", "--topic")[1] == "queue eu made\n"
    )
    found = queue(served.admin, "eu")
    assert (found["address"], found["selector"], found["is_durable"]) == ("a", "region = 'EU'", True)
    assert run("queue", "b", "--not-durable")[0] == 0
    assert queue(served.admin, "b")["is_durable"] is False
    code, _, err = run("queue", "a.*")
    assert (code, "bad-name" in err) == (1, True)
    code, _, err = run("queue", "c", "--filter", "=")
    assert (code, "selector-syntax" in err) == (1, True)


def test_durable_subscriptions(run: Run, served: Served, running: Callable[[App], Run]) -> None:
    assert run("durable", "/topic/prices.*", "shop", "eu", "--selector", "a = 1")[0] == 0
    with Plain(served.port) as client:
        send(client, "/topic/prices.x", b"x", a="1")
    listed = running(declare.durables_app)
    lines = listed()[1].splitlines()
    assert [line.split() for line in lines if "shop" in line] == [["shop", "eu", "prices.*", "1", "0"]]
    [found] = json.loads(listed("eu", "--json")[1])
    assert found["selector"] == "a = 1" and found["is_connected"] is False
    assert read(served.admin, "durables?match=nobody")["total"] == 0
    assert listed("delete", "shop", "eu", "--yes") == (0, "durable subscription eu of shop ended\n", "")
    assert listed("delete", "shop", "eu", "--yes")[0] == 1
