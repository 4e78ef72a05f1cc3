"""Top-level settings that have no other place among the tests: what each of them changes on the wire."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from stompbox.config import Configuration, ListenerTable
from stompbox.server.run import start as start_in_process
from stompbox.server.run import stop
from tests.conftest import Served
from tests.system.conftest import Start
from tests.system.plain import WITHIN, Plain


def sent(served: Served, **headers: str) -> str:
    """RECEIPT, or the code of the ERROR."""
    with Plain(served.port) as client:
        client.send("SEND", {"destination": "/queue/q", "receipt": "1", **headers}, b"x")
        found = client.receive()
        return found.command if found.command == "RECEIPT" else found.headers["code"]


def waiting(served: Served) -> int:
    with Plain(served.port) as client:
        client.send("SUBSCRIBE", {"destination": "/queue/q", "id": "0", "browser": "true"})
        count = 0
        while "browser" not in client.receive().headers:
            count += 1
        return count


def test_reject_empty_validated_user(start: Start) -> None:
    assert sent(start("reject-empty-validated-user = true\n")) == "nameless-sender"


@pytest.mark.parametrize(("text", "count"), [("", 1), ("persist-id-cache = false\n", 2)])
def test_persist_id_cache(start: Start, text: str, count: int) -> None:
    for _ in range(2):
        served = start(text)
        assert sent(served, _AMQ_DUPL_ID="one") == "RECEIPT"
        served.stop()
    assert waiting(start(text)) == count


def test_global_max_messages(start: Start) -> None:
    served = start(
        'global-max-messages = 2\n[[address-setting]]\nmatch = "#"\naddress-full-policy = "FAIL"\n'
    )
    assert [sent(served) for _ in range(3)] == ["RECEIPT", "RECEIPT", "address-full"]


def test_disk_scan_period(start: Start, tmp_path: Path) -> None:
    """Free space is looked at again after it, and what has changed meanwhile counts."""
    text = 'disk-scan-period = 100\nmin-disk-free = "{}"\n'
    served = start(text.format("4000TiB"))
    assert sent(served) == "disk-full"
    (tmp_path / "broker" / "stompbox.toml").write_text(text.format("1"))
    served.process.send_signal(1)
    deadline = time.monotonic() + WITHIN / 2
    while sent(served) != "RECEIPT":
        assert time.monotonic() < deadline


def test_limits_that_the_broker_hands_on() -> None:
    async def look() -> tuple[int, ...]:
        configuration = Configuration(
            memory=True, max_staged_bytes=7, authentication_cache_size=8, authorization_cache_size=9,
            max_staged_bytes_per_user=6, max_sinks_per_user=5, staged_timeout=4,
            listeners=(ListenerTable(url="tcp://127.0.0.1:0"),),
        )  # fmt: skip
        broker, servers, _ = await start_in_process(configuration)
        sinks = broker.sinks
        found = (
            sinks.most,
            broker.users._cache_size,
            broker.permissions._cache_size,
            sinks.most_of_user,
            sinks.most_sinks,
            sinks.timeout,
        )
        await stop(broker, servers)
        return found

    assert asyncio.run(look()) == (7, 8, 9, 6, 5, 4)
