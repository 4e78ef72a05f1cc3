"""/healthz and /readyz: whether the broker is there, and what keeps it from taking messages."""

from __future__ import annotations

import asyncio
import resource
import threading
from pathlib import Path

import pytest

from stompbox.admin.listening import AdminListener
from stompbox.config import AdminTable, Configuration, ListenerTable
from stompbox.server.run import start as start_here
from stompbox.server.run import stop
from stompbox.store import check
from tests.admin.asking import Answer, ask
from tests.admin.conftest import Start
from tests.conftest import Served
from tests.system.plain import Plain
from tests.system.test_disk import LIMIT, wait_until_good


def ready(served: Served) -> Answer:
    assert ask(served.admin, "/healthz").status == 200
    return ask(served.admin, "/readyz")


def test_ready(served: Served) -> None:
    assert (ready(served).status, ready(served).json) == (
        200,
        {"status": "ready", "reasons": [], "notes": []},
    )


def test_a_large_store_is_ready_and_says_that_it_is_not_verified_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "SMALL", 0)
    may_go_on = threading.Event()
    portion = check.Verifying.portion

    def one_portion(self: check.Verifying) -> list[str]:
        assert may_go_on.wait(20)
        return list(portion(self))

    monkeypatch.setattr(check.Verifying, "portion", one_portion)

    async def play() -> tuple[Answer, Answer]:
        broker, servers, _ = await start_here(
            Configuration(data=str(tmp_path / "data"), listeners=(ListenerTable(url="tcp://127.0.0.1:0"),))
        )
        listener = AdminListener(broker, AdminTable(listen="127.0.0.1:0"))
        before = await asyncio.to_thread(ask, listener.url, "/readyz")
        may_go_on.set()
        async with asyncio.timeout(20):
            while broker.committer.store.unverified:
                await asyncio.to_thread(ask, listener.url, "/healthz")
        after = await asyncio.to_thread(ask, listener.url, "/readyz")
        await stop(broker, servers)
        await listener.close()
        return before, after

    before, after = asyncio.run(play())
    assert (before.status, before.json["status"], before.json["notes"][0]["code"]) == (
        200,
        "ready",
        "data-unverified",
    )
    assert "stompbox.db" in before.json["notes"][0]["message"]
    assert after.json == {"status": "ready", "reasons": [], "notes": []}


def test_too_little_space(start: Start, tmp_path: Path) -> None:
    answer = ready(start('min-disk-free = "1000TiB"\n', "--data", str(tmp_path / "data")))
    assert answer.status == 503
    [reason] = answer.json["reasons"]
    assert reason["code"] == "disk-full"
    assert "min-disk-free" in reason["message"]


def test_a_disk_that_refuses_and_works_again(start: Start, tmp_path: Path) -> None:
    served = start("", "--data", str(tmp_path / "data"))
    resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE, (LIMIT, resource.RLIM_INFINITY))
    with Plain(served.port) as client:
        client.send("SEND", {"destination": "/queue/q", "receipt": "1"}, b"x")
        assert client.receive().command == "ERROR"
    assert (ready(served).status, ready(served).json["reasons"][0]["code"]) == (503, "io-error")
    resource.prlimit(
        served.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    )
    wait_until_good(served)
    assert ready(served).status == 200


def test_a_broker_that_stops_says_so_until_it_is_gone() -> None:
    async def play() -> tuple[Answer, Answer]:
        configuration = Configuration(memory=True, listeners=(ListenerTable(url="tcp://127.0.0.1:0"),))
        broker, servers, _ = await start_here(configuration)
        listener = AdminListener(broker, AdminTable(listen="127.0.0.1:0"))
        before = await asyncio.to_thread(ask, listener.url, "/readyz")
        await stop(broker, servers)
        after = await asyncio.to_thread(ask, listener.url, "/readyz")
        await listener.close()
        return before, after

    before, after = asyncio.run(play())
    assert before.status == 200
    assert (after.status, after.json["reasons"][0]["code"]) == (503, "stopping")
