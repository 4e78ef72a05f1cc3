"""Arguments of the client's methods, with async and without: each that cannot be meant is named, and nothing was done."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

import stompbox
from stompbox.client.options import Reconnect
from stompbox.errors import UsageError
from stompbox.testing import Broker
from tests.client.fake_broker import run


@pytest.fixture
def broker() -> Iterator[Broker]:
    """Queues of it stay when their consumer has gone."""
    settings = {"match": "#", "auto-delete-queues": False, "auto-delete-addresses": False}
    with Broker({"address-setting": [settings]}) as found:
        yield found


def connected(broker: Broker) -> stompbox.Client:
    return stompbox.connect(broker.url, reconnect=Reconnect(first_delay=0, max_delay=0.01))


@pytest.mark.parametrize("timeout", ["5", True, float("nan"), float("inf"), -0.1, timedelta(seconds=1)])
def test_a_timeout_that_is_none(broker: Broker, timeout: Any) -> None:
    async def story() -> None:
        async with connected(broker) as client, client.subscribe("/queue/a", ack="client") as messages:
            await client.send("/queue/a", b"1")
            message = await messages.receive()
            assert message is not None
            for work in (
                client.send("/queue/a", b"2", timeout=timeout),
                client.rpc("/queue/a", timeout=timeout),
                client.request("describe", timeout=timeout),
                client.wait_connected(timeout),
                messages.receive(timeout),
                messages.receive_many(2, timeout),
                message.ack(confirm=True, timeout=timeout),
                message.nack(confirm=True, timeout=timeout),
                message.ack(timeout=timeout),
                message.nack(timeout=timeout),
            ):
                with pytest.raises(UsageError, match=r"^timeout is .*; allowed are seconds as a number"):
                    await work

    run(story())
    assert [len(broker.sent("/queue/a")), len(broker.messages("/queue/a"))] == [1, 1]
    with (
        broker.client() as client,
        client.subscribe("/queue/a", ack="client") as messages,
    ):
        message = messages.receive()
        assert message is not None
        for call in (
            lambda: client.send("/queue/a", b"2", timeout=timeout),
            lambda: client.rpc("/queue/a", timeout=timeout),
            lambda: client.request("describe", timeout=timeout),
            lambda: client.wait_connected(timeout),
            lambda: messages.receive(timeout),
            lambda: next(messages.iterate(timeout)),
            lambda: message.ack(timeout=timeout),
            lambda: message.nack(confirm=True, timeout=timeout),
        ):
            with pytest.raises(UsageError, match=r"^timeout is .*; allowed are seconds as a number"):
                call()
        assert not message.is_settled
    assert len(broker.messages("/queue/a")) == 1


@pytest.mark.parametrize("confirm", ["no", 0, None])
def test_a_confirm_that_is_no_truth(broker: Broker, confirm: Any) -> None:
    async def story() -> None:
        async with connected(broker) as client, client.subscribe("/queue/a", ack="client") as messages:
            await client.send("/queue/a", b"1", {"reply-to": "/queue/b"})
            message = await messages.receive()
            assert message is not None
            for work in (
                client.send("/queue/b", confirm=confirm),
                client.reply(message, confirm=confirm),
                message.ack(confirm=confirm),
                message.nack(confirm=confirm),
            ):
                with pytest.raises(UsageError, match=r"^confirm is .*; allowed are True and False"):
                    await work
            assert not message.is_settled

    run(story())
    with broker.client() as client, client.subscribe("/queue/a", ack="client") as messages:
        message = messages.receive()
        assert message is not None
        for call in (
            lambda: client.send("/queue/b", confirm=confirm),
            lambda: client.reply(message, confirm=confirm),
            lambda: message.ack(confirm=confirm),
            lambda: message.nack(confirm=confirm),
        ):
            with pytest.raises(UsageError, match=r"^confirm is .*; allowed are True and False"):
                call()
        assert not message.is_settled
    assert [len(broker.sent("/queue/b")), len(broker.messages("/queue/a"))] == [0, 1]


NOTHING_SENT: list[tuple[Any, Any, Any, str]] = [
    ("", [], None, "destination must be a str"),
    (7, [], None, "destination must be a str"),
    ("/queue/a", [], {"receipt": "1"}, "header 'receipt' is written by the client"),
    ("/queue/a", [], {"a": None}, "header 'a'"),
    ("/queue/a", [], [], "headers must be a mapping"),
    ("/queue/a", [], "", "headers must be a mapping"),
    ("/queue/a", b"", None, "bodies must be an iterable of bodies, not one bytes"),
    ("/queue/a", None, None, "bodies must be an iterable of bodies, not one NoneType"),
]


@pytest.mark.parametrize(("destination", "bodies", "headers", "text"), NOTHING_SENT)
def test_many_of_nothing_have_their_arguments_looked_at(
    broker: Broker, destination: Any, bodies: Any, headers: Any, text: str
) -> None:
    async def story() -> None:
        async with connected(broker) as client:
            with pytest.raises(UsageError) as caught:
                await client.send_many(destination, bodies, headers)
            assert text in caught.value.message
            assert await client.send_many("/queue/a", []) == 0

    run(story())
    with broker.client() as client:
        with pytest.raises(UsageError) as caught:
            client.send_many(destination, bodies, headers)
        assert text in caught.value.message
        assert client.send_many("/queue/a", iter(())) == 0


@pytest.mark.parametrize("headers", [0, "", [], False])
def test_headers_that_are_none_and_count_as_nothing(broker: Broker, headers: Any) -> None:
    async def story() -> None:
        async with connected(broker) as client, client.subscribe("/queue/a") as messages:
            await client.send("/queue/a", b"1", {"reply-to": "/queue/b"})
            message = await messages.receive()
            assert message is not None
            for work in (
                client.send("/queue/b", b"", headers),
                client.rpc("/queue/b", b"", headers),
                client.request("describe", b"", headers),
                client.reply(message, b"", headers),
            ):
                with pytest.raises(UsageError, match="headers must be a mapping"):
                    await work
            with pytest.raises(UsageError, match="headers must be a mapping"):
                client.subscribe("/queue/b", headers=headers)

    run(story())
    with pytest.raises(UsageError, match="headers must be a mapping"):
        stompbox.connect("stomp://h", headers=headers)


def test_what_is_no_message_and_no_number_of_them(broker: Broker) -> None:
    async def story() -> None:
        async with connected(broker) as client, client.subscribe("/queue/a") as messages:
            with pytest.raises(UsageError, match="message is None; allowed is one that was received"):
                await client.reply(None, b"")  # type: ignore[arg-type]
            with pytest.raises(UsageError, match="message is b'1'; allowed is one that was received"):
                async with client.transaction() as transaction:
                    await transaction.ack(b"1")  # type: ignore[arg-type]
            for most in (0, -1, True, "2"):
                with pytest.raises(UsageError, match=r"most is .*; allowed is a number of messages from 1"):
                    await messages.receive_many(most)  # type: ignore[arg-type]

    run(story())
