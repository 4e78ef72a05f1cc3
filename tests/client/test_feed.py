"""The end of a subscription, where something of it is still under way."""

from __future__ import annotations

import asyncio

import pytest

import stompbox
from stompbox.errors import ConnectionLost
from tests.client.fake_broker import run, serving
from tests.client.test_subscription import delivering


@pytest.mark.parametrize("is_cancelled", [True, False])
def test_a_subscription_that_is_given_up_before_it_is_confirmed_takes_no_messages(is_cancelled: bool) -> None:
    """The broker may have made it: with ack="auto" what it sends would be lost."""

    async def story() -> None:
        limit = 30.0 if is_cancelled else 0.05
        async with (
            serving() as broker,
            stompbox.connect(broker.url, receipt_timeout=limit) as client,
        ):
            broker.on["SUBSCRIBE"] = lambda session, frame: None
            opened = asyncio.create_task(client.subscribe("/queue/a", id="one").open())
            await broker.until(lambda: broker.seen("SUBSCRIBE"))
            if is_cancelled:
                opened.cancel()
            with pytest.raises(asyncio.CancelledError if is_cancelled else ConnectionLost):
                await opened
            await broker.until(lambda: broker.seen("UNSUBSCRIBE"))
            assert broker.seen("UNSUBSCRIBE")[0].headers == {"id": "one"}
            assert client.is_connected

    run(story())


def test_what_is_processed_after_the_end_of_its_subscription_is_told_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> None:
        async with serving() as broker, stompbox.connect(broker.url) as client:
            delivering(broker, b"one")
            async with client.subscribe("/queue/a", ack="client-individual") as messages:
                message = await anext(messages)
            async with message.process():
                pass
            assert client.counters["stale-message"] == 1
            with pytest.raises(ConnectionLost, match="ACK of 'm0': its subscription has ended; the broker"):
                await message.ack()

    run(story())
    assert (
        "message 'm0' of /queue/a was processed, but its subscription has ended: it will come" in caplog.text
    )
