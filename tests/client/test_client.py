"""The client against a scripted broker: opening, sending, errors, requests, closing."""

from __future__ import annotations

import asyncio
import gc
import logging
from typing import Any

import pytest

import stompbox
from stompbox.errors import ConnectionLost, Refused, UsageError
from stompbox.stomp.frames import Frame
from tests.client.fake_broker import FakeSession, run, serving


def test_send_returns_after_the_receipt() -> None:
    async def story() -> None:
        async with serving() as broker:
            held: list[tuple[FakeSession, Frame]] = []
            broker.on["SEND"] = lambda session, frame: held.append((session, frame))
            async with stompbox.connect(broker.url) as client:
                sending = asyncio.create_task(client.send("/queue/a", b"body", headers={"n": 1}))
                await broker.until(lambda: held)
                assert not sending.done()
                session, frame = held[0]
                assert (frame.headers["destination"], frame.headers["n"], frame.body) == (
                    "/queue/a",
                    "1",
                    b"body",
                )
                session.receipt(frame)
                await sending

    run(story())


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_what_opening_and_closing_say(version: str) -> None:
    async def story() -> None:
        async with serving(version) as broker:
            async with stompbox.connect(broker.url.replace("//", "//me:pw@"), client_id="c") as client:
                assert client.is_connected
                assert (client.version.name, client.server) == (version, "fake/1")
            assert not client.is_connected
            assert [frame.command for frame in broker.frames] == ["CONNECT", "DISCONNECT"]
            headers = broker.frames[0].headers
            assert (headers["login"], headers["passcode"], headers["host"], headers["client-id"]) == (
                "me",
                "pw",
                "127.0.0.1",
                "c",
            )

    run(story())


def test_unconfirmed_send_waits_for_nothing_and_arrives() -> None:
    async def story() -> None:
        async with serving() as broker:
            async with stompbox.connect(broker.url) as client:
                for number in range(500):
                    await client.send("/queue/a", b"x" * 1000, headers={"n": number}, confirm=False)
            assert [frame.headers["n"] for frame in broker.seen("SEND")] == [
                str(number) for number in range(500)
            ]
            assert "receipt" not in broker.seen("SEND")[0].headers

    run(story())


def test_many_sends_at_once_share_few_writes() -> None:
    async def story() -> None:
        async with serving() as broker, stompbox.connect(broker.url) as client:
            before = broker.last.writes
            await asyncio.gather(*(client.send("/queue/a", b"x") for _ in range(200)))
            assert len(broker.seen("SEND")) == 200
            assert broker.last.writes - before < 10

    run(story())


def test_error_is_raised_where_it_belongs() -> None:
    async def story() -> None:
        async with serving("1.1") as broker:

            def refuse(session: FakeSession, frame: Frame) -> None:
                if frame.headers["destination"] == "/queue/forbidden":
                    session.error("not for you", frame, code="not-allowed")
                else:
                    session.receipt(frame)

            broker.on["SEND"] = refuse
            async with stompbox.connect(broker.url) as client:
                good = asyncio.create_task(client.send("/queue/a"))
                with pytest.raises(stompbox.BrokerError, match="not for you") as caught:
                    await client.send("/queue/forbidden")
                assert isinstance(caught.value, Refused)
                assert caught.value.code == "not-allowed"
                await good
                await client.send("/queue/a")

    run(story())


def test_error_without_a_call_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with serving("1.1") as broker:
            broker.on["SEND"] = lambda session, frame: session.error("nobody waits for this")
            async with stompbox.connect(broker.url) as client:
                await client.send("/queue/a", confirm=False)
                await broker.until(lambda: broker.seen("SEND"))
            assert client.counters["error"] == 1

    with caplog.at_level(logging.WARNING, "stompbox.client"):
        run(story())
    assert "nobody waits for this" in caplog.text


def test_login_refused() -> None:
    async def story() -> None:
        async with serving() as broker:
            broker.on["CONNECT"] = lambda session, frame: session.error(
                "who are you?", code="login-failed", close=True
            )
            with pytest.raises(stompbox.BrokerError, match="who are you") as caught:
                await stompbox.connect(broker.url).open()
            assert caught.value.code == "login-failed"
            assert len(broker.sessions) == 1

    run(story())


def test_no_receipt_in_time() -> None:
    async def story() -> None:
        async with serving() as broker:
            broker.on["SEND"] = lambda session, frame: None
            async with stompbox.connect(broker.url) as client:
                with pytest.raises(
                    ConnectionLost, match=r"no receipt for SEND to /queue/a within 0\.01 s"
                ) as caught:
                    await client.send("/queue/a", timeout=0.01)
                assert caught.value.code == "receipt-timeout"
                broker.last.receipt(broker.seen("SEND")[0])
                del broker.on["SEND"]
                await client.send("/queue/a")
                assert client.counters["unknown-receipt"] == 1

    run(story())


WRONG: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    ("send", ("",), {}, "destination"),
    ("send", ("/q", 7), {}, "body"),
    ("send", ("/q", b""), {"headers": {"a": None}}, "header 'a'"),
    ("request", ("",), {}, "name of a request"),
    ("request", ("x",), {"headers": {"a": b""}}, "header 'a'"),
]


@pytest.mark.parametrize(("method", "arguments", "keywords", "text"), WRONG)
def test_wrong_arguments_harm_nothing(
    method: str, arguments: tuple[Any, ...], keywords: dict[str, Any], text: str
) -> None:
    async def story() -> None:
        async with serving() as broker, stompbox.connect(broker.url) as client:
            with pytest.raises(UsageError) as caught:
                await getattr(client, method)(*arguments, **keywords)
            assert text in caught.value.message
            await client.send("/queue/a")
            assert len(broker.seen("SEND")) == 1

    run(story())


@pytest.mark.parametrize("url", [None, [], 7, ["stomp://h", 7]])
def test_wrong_urls(url: Any) -> None:
    with pytest.raises(UsageError, match="url"):
        stompbox.connect(url)


def test_wrong_url_option_is_reported_at_once() -> None:
    with pytest.raises(UsageError, match="heart-beat"):
        stompbox.connect(["stomp://h", "stomp://h?heart-beat=often"])


def test_use_before_and_after() -> None:
    async def story() -> None:
        async with serving() as broker:
            client = stompbox.connect(broker.url)
            with pytest.raises(UsageError, match="async with"):
                await client.send("/queue/a")
            assert await client is client
            with pytest.raises(UsageError, match="opened before"):
                await client.open()
            await client.close()
            await client.close()
            with pytest.raises(ConnectionLost, match="was closed") as caught:
                await client.send("/queue/a")
            assert caught.value.code == "closed"

    run(story())


# -- requests --------------------------------------------------------------------------------------------------------


def answering(session: FakeSession, frame: Frame) -> None:
    headers = {
        "subscription": "stompbox.requests",
        "destination": "stompbox.requests",
        "message-id": "1",
        "request-id": frame.headers["request-id"],
    }
    match frame.headers["request"]:
        case "echo":
            session.write(
                Frame("MESSAGE", {**headers, "status": "ok", "next": frame.headers["at"]}, frame.body)
            )
        case "fail":
            session.write(
                Frame(
                    "MESSAGE",
                    {**headers, "status": "error", "code": "no-group", "message": "unknown group 'x'"},
                )
            )
        case "drop":
            session.drop()


def test_request_and_answer() -> None:
    async def story() -> None:
        async with serving() as broker:
            broker.on["SEND"] = answering
            async with stompbox.connect(broker.url) as client:
                answers = await asyncio.gather(
                    *(client.request("echo", f'{{"a": {number}}}', {"at": number}) for number in range(5))
                )
                assert [answer.json() for answer in answers] == [{"a": number} for number in range(5)]
                assert [answer.headers["next"] for answer in answers] == ["0", "1", "2", "3", "4"]
            assert broker.seen("SEND")[0].headers["destination"] == "stompbox.requests"

    run(story())


def test_request_that_is_refused() -> None:
    async def story() -> None:
        async with serving() as broker:
            broker.on["SEND"] = answering
            async with stompbox.connect(broker.url) as client:
                with pytest.raises(stompbox.BrokerError, match="request 'fail': unknown group 'x'") as caught:
                    await client.request("fail")
                assert caught.value.code == "no-group"
                assert (await client.request("echo", b"still there", {"at": 1})).body == b"still there"

    run(story())


def test_request_and_no_answer() -> None:
    async def story() -> None:
        async with serving() as broker, stompbox.connect(broker.url) as client:
            with pytest.raises(ConnectionLost, match=r"no answer to request 'x' within 0\.01 s; .*'fake/1'"):
                await client.request("x", timeout=0.01)

    run(story())


def test_request_over_a_connection_that_is_lost() -> None:
    async def story() -> None:
        async with serving() as broker:
            broker.on["SEND"] = answering
            async with stompbox.connect(broker.url, reconnect=stompbox.Reconnect(first_delay=0)) as client:
                with pytest.raises(ConnectionLost):
                    await client.request("drop")
                assert (await client.request("echo", b"again", {"at": 1})).body == b"again"

    run(story())


# -- closing ---------------------------------------------------------------------------------------------------------


def test_broker_that_does_not_say_goodbye(caplog: pytest.LogCaptureFixture) -> None:
    unseen: list[dict[str, Any]] = []

    async def story() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unseen.append(context))
        async with serving() as broker:
            broker.on["DISCONNECT"] = lambda session, frame: None
            async with stompbox.connect(broker.url, close_timeout=0.01) as client:
                pass
            assert not client.is_connected
        gc.collect()  # asyncio tells then of what nobody has looked at

    with caplog.at_level(logging.WARNING, "stompbox.client"):
        run(story())
    assert "did not confirm DISCONNECT" in caplog.text
    assert unseen == []


def test_calls_that_wait_end_with_the_client() -> None:
    async def story() -> None:
        async with serving() as broker:
            broker.on["SEND"] = lambda session, frame: None
            client = await stompbox.connect(broker.url)
            sending = asyncio.create_task(client.send("/queue/a"))
            await broker.until(lambda: broker.seen("SEND"))
            await client.close()
            with pytest.raises(ConnectionLost):
                await sending

    run(story())


def test_repr_says_where_and_how() -> None:
    client = stompbox.connect("stomp://user:secret@h")
    assert repr(client) == "<Client <Link NEW stomp://h:61613 subscriptions=0 backlog=0>>"
