"""The log is away for all nodes: what is not persistent goes on, what is waits, and nothing goes out that the log may not have."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from stompbox.commitlog.records import Lead
from stompbox.commitlog.replicated import Applier, Local
from stompbox.server.cluster.leading import Leadership
from stompbox.server.cluster.members import Member, Told, status_of
from stompbox.store.memory import MemoryStore
from tests.server.cluster.test_leading import connected, heard, leading, lost

SHORT = {"takeover_after": 1800, "lead_timeout": 1200}


class OtherNode:
    """A node that follows, as the leader sees it over the link; `quiet`: seconds for which it says that it heard nothing of a leader."""

    def __init__(self, leadership: Leadership) -> None:
        self.node = "b"
        self.quiet = 0.0
        self.epoch = leadership.store.epoch
        self.answers = True
        self._leadership = leadership
        leadership.joined(self)  # type: ignore[arg-type]
        self.ask(leadership.told())

    def look(self, late: float) -> None:
        """It is there."""

    def ask(self, told: Told) -> None:
        if self.answers:
            member = Member("b", epoch=self.epoch)
            self._leadership.told_by(status_of(member, self.quiet, told.sent))

    def shut(self) -> None:
        """It is gone with the leader."""


def message(queue: str, body: str, *, persistent: bool, receipt: str = "") -> bytes:
    asked = f"receipt:{receipt}\n" if receipt else ""
    return (
        f"SEND\ndestination:/queue/{queue}\npersistent:{str(persistent).lower()}\n{asked}\n{body}\0".encode()
    )


def subscribed(queue: str) -> bytes:
    return f"SUBSCRIBE\nid:{queue}\ndestination:/queue/{queue}\nack:client-individual\nreceipt:s-{queue}\n\n\0".encode()


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.02)


def test_what_is_not_persistent_goes_on_and_what_is_waits_for_the_log(tmp_path: Path) -> None:
    async def run() -> None:
        async with leading(tmp_path, **SHORT) as (leadership, log):
            OtherNode(leadership)
            async with connected(leadership) as (reader, writer), connected(leadership) as (other, others):
                for queue in ("firm", "loose"):
                    writer.write(subscribed(queue))
                    assert f"receipt-id:s-{queue}\n".encode() in await heard(reader)
                log.is_away = True
                await until(lambda: leadership.broker.disk.doubt)
                assert leadership.own().trouble == "log-unavailable"
                others.write(message("firm", "first", persistent=True, receipt="1"))
                for number in range(3):
                    writer.write(message("loose", f"loose {number}", persistent=False, receipt=f"l{number}"))
                said = [await heard(reader) for _ in range(6)]
                assert sorted(one.split(b"\n")[0] for one in said) == [b"MESSAGE"] * 3 + [b"RECEIPT"] * 3
                assert not any(one.endswith(b"first\0") for one in said)
                log.is_away = False
                assert b"receipt-id:1\n" in await heard(other)
                assert (await heard(reader)).endswith(b"first\0")
                await until(lambda: leadership.broker.disk.is_good)
            assert not leadership.broker.has_failed

    asyncio.run(run())


def test_order_is_kept_where_one_subscription_gets_both(tmp_path: Path) -> None:
    async def run() -> None:
        async with leading(tmp_path, **SHORT) as (leadership, log):
            OtherNode(leadership)
            async with connected(leadership) as (reader, writer):
                writer.write(subscribed("both"))
                await heard(reader)
                log.is_away = True
                await until(lambda: leadership.broker.disk.doubt)
                for number, persistent in enumerate((False, True, False)):
                    writer.write(message("both", str(number), persistent=persistent))
                assert (await heard(reader)).endswith(b"\n0\0")
                log.is_away = False
                assert [(await heard(reader))[-2:] for _ in range(2)] == [b"1\0", b"2\0"]

    asyncio.run(run())


def test_who_waits_is_told_so_after_the_log_timeout_and_others_stay(tmp_path: Path) -> None:
    async def run() -> None:
        async with leading(tmp_path, **SHORT, log_timeout=2000) as (leadership, log):
            OtherNode(leadership)
            async with connected(leadership) as (reader, writer), connected(leadership) as (other, others):
                others.write(subscribed("loose"))
                await heard(other)
                log.is_away = True
                writer.write(message("firm", "first", persistent=True, receipt="1"))
                assert b"code:log-unavailable\n" in await heard(reader)
                others.write(message("loose", "still there", persistent=False))
                assert (await heard(other)).endswith(b"still there\0")
                others.write(message("firm", "second", persistent=True, receipt="2"))
                assert b"code:log-unavailable\n" in await heard(other)
            log.is_away = False
            await until(lambda: leadership.broker.disk.is_good)
            async with connected(leadership) as (reader, writer):
                writer.write(message("firm", "third", persistent=True, receipt="3"))
                assert b"receipt-id:3\n" in await heard(reader)

    asyncio.run(run())


def test_a_node_that_hears_the_log_ends_it(tmp_path: Path) -> None:
    async def run() -> None:
        async with leading(tmp_path, **SHORT) as (leadership, log):
            other = OtherNode(leadership)
            async with connected(leadership) as (reader, _):
                log.is_away = True
                await until(lambda: leadership.broker.disk.doubt)
                other.quiet = 1.2
                assert await lost(reader)
            last = leadership.broker.faults.last
            assert last is not None and last.message.endswith("and node b hears it")

    asyncio.run(run())


def test_a_node_that_answers_no_more_ends_it(tmp_path: Path) -> None:
    async def run() -> None:
        async with leading(tmp_path, **SHORT) as (leadership, log):
            other = OtherNode(leadership)
            async with connected(leadership) as (reader, _):
                log.is_away = True
                await until(lambda: leadership.broker.disk.doubt)
                other.answers = False
                assert await lost(reader)
            last = leadership.broker.faults.last
            assert last is not None and last.message.endswith("and node b does not answer")

    asyncio.run(run())


def test_a_later_epoch_ends_it_at_once(tmp_path: Path) -> None:
    async def run() -> None:
        async with leading(tmp_path, takeover_after=60_000) as (leadership, _):
            other = OtherNode(leadership)
            async with connected(leadership) as (reader, _):
                other.epoch += 1
                other.ask(leadership.told())
                assert await lost(reader)
            last = leadership.broker.faults.last
            assert last is not None and last.code == "fenced"

    asyncio.run(run())


def test_it_does_not_go_on_where_another_node_has_led_meanwhile(tmp_path: Path) -> None:
    async def run() -> None:
        async with leading(tmp_path, **SHORT) as (leadership, log):
            OtherNode(leadership)
            async with connected(leadership) as (reader, _):
                log.is_away = True
                await until(lambda: leadership.broker.disk.doubt)
                Applier(Local(MemoryStore(), "drill"), log._shared.open("b")).lead(Lead("b"))
                log.is_away = False
                assert await lost(reader)
            last = leadership.broker.faults.last
            assert last is not None and last.code == "fenced"

    asyncio.run(run())
