"""A node that leads while its log does not answer: who waits is told so, it goes on when the log is back, or leads no more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from stompbox.commitlog.memory import MemoryLog, SharedLog
from stompbox.commitlog.records import Lead
from stompbox.commitlog.replicated import Applier, Local
from stompbox.config import load
from stompbox.server.cluster.leading import Leadership
from stompbox.server.cluster.sockets import ClientSockets
from stompbox.store.memory import MemoryStore

SEND = b"SEND\ndestination:/queue/a\npersistent:true\nreceipt:%d\n\nx\0"


@asynccontextmanager
async def leading(folder: Path, **times: int) -> AsyncIterator[tuple[Leadership, MemoryLog]]:
    shared = SharedLog()
    log = shared.open("a")
    store = Applier(Local(MemoryStore(), "drill"), log).lead(Lead("a"))
    table: dict[str, Any] = {
        "log": "disk:///l",
        "listen": "127.0.0.1:0",
        "secret": "0123456789abcdef",
        "node": "a",
    }
    table |= {name.replace("_", "-"): value for name, value in times.items()}
    whole = {"listen": ["tcp://127.0.0.1:0"], "data": str(folder), "cluster": table, "min-disk-free": 0}
    configuration = load(None, {}, whole)
    client_sockets = ClientSockets(configuration.listening())
    client_sockets.open()
    leadership = Leadership(configuration, store, client_sockets)
    await leadership.begin()
    try:
        yield leadership, log
    finally:
        log.close() if leadership.broker.has_failed else None
        await leadership.end()
        leadership.close()
        client_sockets.close()


@asynccontextmanager
async def connected(
    leadership: Leadership,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", leadership.client_sockets.port(0))
    writer.write(b"CONNECT\naccept-version:1.2\nhost:h\n\n\0")
    try:
        assert (await heard(reader)).startswith(b"CONNECTED")
        yield reader, writer
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def heard(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(20):
        return (await reader.readuntil(b"\0")).lstrip(b"\n")


async def lost(reader: asyncio.StreamReader) -> bool:
    """The socket is gone, and nothing was said before."""
    try:
        return (await reader.read()).strip(b"\n") == b""
    except ConnectionError:
        return True


def test_who_waits_for_the_log_is_told_so_and_the_node_goes_on_when_it_is_back(tmp_path: Path) -> None:
    async def run() -> None:
        times = {"takeover_after": 30_000, "lead_timeout": 29_000, "log_timeout": 100}
        async with leading(tmp_path, **times) as (leadership, log):
            async with connected(leadership) as (reader, writer):
                writer.write(SEND % 1)
                assert b"receipt-id:1\n" in await heard(reader)
                log.is_away = True
                writer.write(SEND % 2)
                refused = await heard(reader)
                assert refused.startswith(b"ERROR") and b"code:log-unavailable\n" in refused
                assert await reader.read() in (b"", b"\n")
            async with connected(leadership) as (reader, writer):
                writer.write(SEND % 3)
                assert b"code:log-unavailable\n" in await heard(reader)
            log.is_away = False
            async with asyncio.timeout(20):
                while leadership.broker.disk.outage is not None:
                    await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.05)
            async with connected(leadership) as (reader, writer):
                writer.write(SEND % 4)
                assert b"receipt-id:4\n" in await heard(reader)
            assert not leadership.broker.has_failed

    asyncio.run(run())


def test_a_log_that_does_not_answer_for_long_ends_the_lead(tmp_path: Path) -> None:
    async def run() -> None:
        async with leading(tmp_path, takeover_after=300, lead_timeout=200) as (leadership, log):
            async with connected(leadership) as (reader, _):
                log.is_away = True
                async with asyncio.timeout(20):
                    await leadership.ended.wait()
                    assert await lost(reader)
            last = leadership.broker.faults.last
            assert last is not None and last.code == "log-unavailable"

    asyncio.run(run())


def test_another_node_that_leads_ends_it_at_once(tmp_path: Path) -> None:
    async def run() -> None:
        async with leading(tmp_path, takeover_after=60_000) as (leadership, log):
            async with connected(leadership) as (reader, writer):
                other = Applier(Local(MemoryStore(), "drill"), log._shared.open("b"))
                other.lead(Lead("b"))
                writer.write(SEND % 1)
                async with asyncio.timeout(20):
                    await leadership.ended.wait()
                    assert await lost(reader)
            last = leadership.broker.faults.last
            assert last is not None and last.code == "fenced"

    asyncio.run(run())
