"""What may be given to `run`, and what counts as its failure."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Coroutine, Iterator
from functools import partial
from typing import Any

import pytest

import stompbox
from stompbox import blocking
from stompbox.errors import UsageError
from stompbox.testing import Broker
from tests.client.fake_broker import run


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as found:
        yield found


async def awaited(message: stompbox.Message) -> None:
    raise AssertionError("never called")


def returning(message: object) -> object:
    return Called()(message)


class Called:
    async def __call__(self, message: object) -> None:
        raise AssertionError("never called")


@pytest.mark.parametrize("handler", [awaited, partial(awaited), Called()])
def test_without_async_a_coroutine_function_is_none(broker: Broker, handler: Any) -> None:
    """Its messages would be acknowledged, and nobody would have seen them."""
    with broker.client() as client:
        client.send("/queue/a", b"1")
        with (
            client.subscribe("/queue/a", ack="client-individual") as messages,
            pytest.raises(UsageError, match=r"^handler .* is a coroutine function, which nobody awaits here"),
        ):
            messages.run(handler)
    assert len(broker.messages("/queue/a")) == 1


@pytest.mark.parametrize("concurrency", [1, 2])
def test_without_async_a_coroutine_is_no_result(broker: Broker, concurrency: int) -> None:
    with broker.client() as client:
        client.send_many("/queue/a", [b"1"] * 4)
        with (
            client.subscribe("/queue/a", ack="client-individual") as messages,
            pytest.raises(UsageError, match="returned a coroutine, which nobody awaits here"),
        ):
            messages.run(returning, concurrency=concurrency)  # type: ignore[arg-type]
    assert len(broker.messages("/queue/a")) == 4


@pytest.mark.parametrize("handler", [None, "handle"])
def test_what_cannot_be_called_handles_nothing(broker: Broker, handler: Any) -> None:
    async def story() -> None:
        async with broker.connect() as client, client.subscribe("/queue/a") as messages:
            with pytest.raises(UsageError, match=r"^handler is .*; allowed is a coroutine function"):
                await messages.run(handler)

    run(story())
    with (
        broker.client() as client,
        client.subscribe("/queue/a") as messages,
        pytest.raises(UsageError, match=r"^handler is .*; allowed is a function"),
    ):
        messages.run(handler)


def test_a_plain_function_ends_run_and_not_its_messages(broker: Broker) -> None:
    async def story() -> None:
        seen: list[bytes] = []

        async with broker.connect() as client:
            await client.send_many("/queue/a", [b"1", b"2"])
            async with client.subscribe("/queue/a", ack="client-individual") as messages:
                with pytest.raises(UsageError, match=r"^handler .* returned None; allowed is a coroutine"):
                    await messages.run(lambda message: seen.append(message.body))  # type: ignore[arg-type, return-value, func-returns-value]
        assert seen == [b"1"]

    run(story())
    assert len(broker.messages("/queue/a")) == 2


async def cancelled_after(event: asyncio.Event, running: Coroutine[Any, Any, None]) -> None:
    work = asyncio.create_task(running)
    await asyncio.wait_for(event.wait(), 10)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work


def test_a_handler_whose_own_work_was_cancelled_has_failed(broker: Broker) -> None:
    """It does not end those who work beside it, and its message comes again."""

    async def story() -> None:
        done = asyncio.Event()

        async def handle(message: stompbox.Message) -> None:
            if message.delivery_count == 1:
                work = asyncio.ensure_future(asyncio.Event().wait())
                work.cancel()
                await work
            done.set()

        async with broker.connect() as client:
            await client.send("/queue/a", b"1")
            async with client.subscribe("/queue/a", ack="client-individual") as messages:
                await cancelled_after(done, messages.run(handle))

    run(story())


def test_a_run_that_is_cancelled_answers_nothing(broker: Broker) -> None:
    async def story() -> None:
        begun = asyncio.Event()

        async def handle(message: stompbox.Message) -> None:
            begun.set()
            await asyncio.Event().wait()

        async with broker.connect() as client:
            await client.send("/queue/a", b"1")
            async with client.subscribe("/queue/a", ack="client-individual") as messages:
                await cancelled_after(begun, messages.run(handle))

    run(story())
    assert len(broker.messages("/queue/a")) == 1
    assert not broker.frames("received", "NACK")


INTERRUPTED = """
import os, signal, sys, threading
from stompbox import blocking

with blocking.connect(sys.argv[1]) as client, client.subscribe("/queue/a", ack="client-individual") as messages:
    def handle(message):
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        messages.run(handle, concurrency=int(sys.argv[2]))
    except KeyboardInterrupt:
        print("interrupted")
"""


@pytest.mark.parametrize("concurrency", ["1", "3"])
def test_ctrl_c_ends_handlers_in_threads(broker: Broker, concurrency: str) -> None:
    broker_url = broker.url
    with broker.client() as client:
        client.send("/queue/a", b"1")
    found = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, broker_url, concurrency],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (found.stdout, found.returncode) == ("interrupted\n", 0), found.stderr
    assert broker.messages("/queue/a") == []  # what was handled is acknowledged


def test_a_handler_that_ends_its_thread_ends_run(broker: Broker) -> None:
    def handle(message: blocking.Message) -> None:
        raise SystemExit(3)

    with broker.client() as client:
        client.send_many("/queue/a", [b"1", b"2", b"3"])
        for concurrency in (1, 2):
            with (
                client.subscribe("/queue/a", ack="client-individual") as messages,
                pytest.raises(SystemExit),
            ):
                messages.run(handle, concurrency=concurrency)
    assert len(broker.messages("/queue/a")) == 3


def test_more_messages_are_taken_only_when_a_thread_is_free(broker: Broker) -> None:
    begun, go_on, taken = threading.Semaphore(0), threading.Event(), list[bytes]()

    def handle(message: blocking.Message) -> None:
        taken.append(message.body)
        begun.release()
        assert go_on.wait(10)

    with broker.client() as client:
        client.send_many("/queue/a", map(str, range(5)))
        with client.subscribe("/queue/a", ack="client-individual") as messages:
            worker = threading.Thread(target=messages.run, args=(handle,), kwargs={"concurrency": 2})
            worker.start()
            assert begun.acquire(timeout=10) and begun.acquire(timeout=10)
            assert sorted(taken) == [b"0", b"1"]
            go_on.set()
            broker.wait_until(lambda: not broker.messages("/queue/a"))
            messages.unsubscribe()
            worker.join(10)
            assert not worker.is_alive()
    assert len(taken) == 5
