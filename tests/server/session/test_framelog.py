"""Whole frames out of octets however they come, and heads without secrets however they are written."""

from __future__ import annotations

import random
from typing import Any, cast

import pytest

from stompbox.server.session.framelog import LOGGED, SHOWN, By, FrameLog, Frames, Wish, masked
from stompbox.server.transport.tcp import Socket
from tests.server.turning import Recorded, World

STREAM = (
    b"\n\r\nCONNECT\nlogin:a\npasscode:b\n\n\0\n\n"
    b"SEND\r\ndestination:/queue/a\r\ncontent-length:5\r\n\r\na\0b\0c\0"
    b"SEND\ndestination:/queue/a\n\nup to here\0\n"
    b"SEND\ncontent-length:0\n\n\0"
    b"BROKEN\nno end\0"
    b"SEND\ncontent-length:5\ncontent-length:7\n\n12345\0" + b"SEND\n\n" + b"x" * 5000 + b"\0DISCONNECT\n\n\0"
)
WHOLE = [
    (b"CONNECT\nlogin:a\npasscode:b\n\n", b"", 0),
    (b"SEND\r\ndestination:/queue/a\r\ncontent-length:5\r\n\r\n", b"a\0b\0c", 5),
    (b"SEND\ndestination:/queue/a\n\n", b"up to here", 10),
    (b"SEND\ncontent-length:0\n\n", b"", 0),
    (b"BROKEN\nno end\0", b"", 0),
    (b"SEND\ncontent-length:5\ncontent-length:7\n\n", b"12345", 5),
    (b"SEND\n\n", b"x" * LOGGED, 5000),
    (b"DISCONNECT\n\n", b"", 0),
]


def test_frames_are_whole_however_they_come() -> None:
    chance = random.Random(12)
    cuts = [
        [len(STREAM)],
        [1] * len(STREAM),
        *[[chance.randrange(1, 60) for _ in STREAM] for _ in range(200)],
    ]
    for sizes in cuts:
        frames, at, found = Frames(), 0, []
        for size in sizes:
            found += frames.take(STREAM[at : at + size])
            at += size
        assert found == WHOLE


def test_a_head_without_end_is_held_only_so_far() -> None:
    frames = Frames()
    for _ in range(1000):
        assert list(frames.take(b"x" * 1000)) == []
    assert len(frames._head) <= 300_000


@pytest.mark.parametrize(
    ("head", "shown"),
    [
        (b"CONNECT\nlogin:alice\npasscode:secret\nhost:h\n\n", b"CONNECT\nlogin:alice\npasscode:***\nhost:h\n\n"),
        (b"STOMP\r\npasscode:secret\r\n\r\n", b"STOMP\r\npasscode:***\n\r\n"),
        (b"CONNECT\n passcode : secret\n\n", b"CONNECT\n passcode :***\n\n"),
        (b"CONNECT\nPASSCODE:se\\c\\ncret\n\n", b"CONNECT\nPASSCODE:***\n\n"),
        (b"CONNECT\npasscode:sec:ret\npasscode:twice\n\n", b"CONNECT\npasscode:***\npasscode:***\n\n"),
        (b"CONNECT\npasscode secret\n\n", b"CONNECT\n***\n\n"),
        (b"CONNECT\npasscode:with\nsecret\n\n", b"CONNECT\npasscode:***\n***\n\n"),
        (b"CONNECT\npasscode:secret\0", b"CONNECT\npasscode:***"),
        (b"connect \npasscode:secret\n\n", b"connect \npasscode:***\n\n"),
        (b"passcode:secret\n\n", b"***\n\n"),
        (b"SEND\ndestination:/queue/a\nAuthorization:Bearer secret\nx-api-token:secret\n\n",
         b"SEND\ndestination:/queue/a\nAuthorization:***\nx-api-token:***\n\n"),
        (b"SEND\nmy-password=secret\n\n", b"SEND\n***\n\n"),
        (b"SEND\napi-key:secret\nAPIKEY:secret\n\n", b"SEND\napi-key:***\nAPIKEY:***\n\n"),
        (b"CONNECT\naccept-version:1.2 passcode:secret\n\n", b"CONNECT\naccept-version:***\n\n"),
        (b"CONNECT\nlogin:alice\rpasscode:secret\n\n", b"CONNECT\nlogin:***\n\n"),
    ],
)  # fmt: skip
def test_secrets_are_starred_out(head: bytes, shown: bytes) -> None:
    assert masked(head) == shown
    assert b"secret" not in masked(head)


def test_what_one_read_has_brought_is_logged_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[str] = []
    monkeypatch.setattr(FrameLog, "_write", lambda _, way, *__: logged.append(way))
    world = World()
    client = world.client("1.2")
    world.broker.frames.add(Wish(By.CONNECTION, str(client.connection.session_id)))
    client.socket.data_received(b"SEND\ndestination:q\n\n\0" * 2000)
    most = before = len(logged)
    while world.broker.turns.waiting:
        world.turn()
        most, before = max(most, len(logged) - before), len(logged)
    assert logged.count("IN") == 2000
    assert most < 500


@pytest.mark.parametrize("is_known", [False, True])
def test_very_small_frames_are_logged_in_turns_before_a_login_too(
    monkeypatch: pytest.MonkeyPatch, *, is_known: bool
) -> None:
    """All of them are no frames that anybody may send: the first ends the connection, and what came behind it is not logged."""
    logged: list[str] = []
    monkeypatch.setattr(FrameLog, "_write", lambda _, way, *__: logged.append(way))
    world = World()
    frames = b"A\n\n\0" * 15_000
    if is_known:
        client = world.client("1.2")
        world.broker.frames.add(Wish(By.CONNECTION, str(client.connection.session_id)))
        client.socket.data_received(frames)
    else:
        socket = Socket(world.broker, world.acceptor)
        socket.connection_made(Recorded())
        socket.data_received(b"\n")
        world.broker.frames.add(Wish(By.PEER, cast(Any, socket._receiver).peer))
        socket.data_received(frames)
    world.until_idle()
    assert 0 < logged.count("IN") <= SHOWN // 4


def test_what_very_much_is_said_to_a_client_is_logged_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each entry takes as long as twenty messages do that nobody looks at."""
    logged: list[str] = []
    monkeypatch.setattr(FrameLog, "_write", lambda _, way, *given: logged.append(way))
    world = World()
    client, sender = world.client(), world.client()
    client.say(("SUBSCRIBE", {"id": "1", "destination": "/queue/q", "consumer-window-size": "-1"}))
    world.broker.frames.add(Wish(By.CONNECTION, str(client.connection.session_id)))
    sent = [b"%d" % number for number in range(2000)]
    sender.socket.data_received(b"".join([b"SEND\ndestination:/queue/q\n\n%b\0" % body for body in sent]))
    most = len(logged)
    for _ in range(1000):
        before = len(logged)
        world.turn()
        world.broker.flush()
        most = max(most, len(logged) - before)
    assert client.bodies() == sent
    assert logged == ["OUT"] * len(sent)
    assert most < 100
