"""Whose is it: durable subscriptions, named readers and reader groups of one user, and another one who knows their names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.conftest import Serve, Served
from tests.system.plain import Plain
from tests.users import users

USERS = """
memory = true
[[listener]]
url = "tcp://127.0.0.1:0"
""" + users("alice:a@people", "bob:b@people", "carol:c@people,operators")
PERMISSIONS = """
[[permission]]
match = "#"
send = ["people"]
consume = ["people"]
browse = ["people"]
create-address = ["people"]
create-durable-queue = ["people"]
delete-durable-queue = ["people"]
create-non-durable-queue = ["people"]
manage = ["operators"]
"""
DURABLE = {"durable-subscriber-name": "inbox"}
AS_IN_RABBITMQ = {"durable": "true", "auto-delete": "false"}
READER = {"durable-subscriber-name": "reader"}


class Users:
    """Clients of one broker, each with its own login."""

    def __init__(self, served: Served, closing: ExitStack) -> None:
        self.served = served
        self.closing = closing

    def __call__(self, user: str, client_id: str = "", **headers: str) -> Plain:
        login = {
            "login": user,
            "passcode": user[:1],
            **({"client-id": client_id} if client_id else {}),
            **headers,
        }
        return self.closing.enter_context(Plain(self.served.port, headers=login))


def asked(client: Plain, command: str, headers: dict[str, str], body: bytes = b"") -> str:
    """`RECEIPT`, or the code of the ERROR."""
    client.send(command, {**headers, "receipt": "asked"}, body)
    while (frame := client.receive()).command == "MESSAGE":
        pass
    return frame.headers.get("code", frame.command)


def subscribed(client: Plain, destination: str, **headers: str) -> str:
    return asked(
        client, "SUBSCRIBE", {"destination": destination, "id": "0", "ack": "client-individual"} | headers
    )


def requested(client: Plain, name: str, body: object = None, **headers: str) -> dict[str, str]:
    given = {key.replace("_", "-"): value for key, value in headers.items()}
    content = b"" if body is None else json.dumps(body).encode()
    client.send(
        "SEND", {"destination": "stompbox.requests", "request": name, "request-id": "1"} | given, content
    )
    frame = client.receive()
    return {**frame.headers, "body": frame.body.decode()}


@pytest.fixture(params=["with permissions", "without"])
def users(request: pytest.FixtureRequest, serve: Serve, tmp_path: Path) -> Iterator[Users]:
    path = tmp_path / "users.toml"
    path.write_text(USERS + (PERMISSIONS if request.param == "with permissions" else ""))
    with ExitStack() as closing:
        yield Users(serve("--config", str(path), "--no-admin"), closing)


def test_a_durable_subscription_is_its_users(users: Users) -> None:
    with users("alice", "A") as alice:
        assert subscribed(alice, "/topic/news", **DURABLE) == "RECEIPT"
    assert asked(users("alice"), "SEND", {"destination": "/topic/news"}, b"private") == "RECEIPT"
    for attempt in (
        lambda bob: subscribed(bob, "/topic/news", **DURABLE),
        lambda bob: subscribed(bob, "/topic/other", **DURABLE),
        lambda bob: subscribed(bob, "/topic/other", browser="true", **DURABLE),
        lambda bob: subscribed(bob, "/topic/news", selector="a = 1", **DURABLE),
        lambda bob: asked(bob, "UNSUBSCRIBE", {"id": "0", **DURABLE}),
    ):
        assert attempt(users("bob", "A")) == "not-permitted"
    again = users("alice", "A")
    again.send("SUBSCRIBE", {"destination": "/topic/news", "id": "0", **DURABLE})
    assert again.receive().body == b"private"
    assert asked(again, "UNSUBSCRIBE", {"id": "0", **DURABLE}) == "RECEIPT"
    assert subscribed(users("bob", "A"), "/topic/news", **DURABLE) == "RECEIPT"  # the identity is free again


def test_a_group_is_its_users(users: Users) -> None:
    alice, bob = users("alice"), users("bob")
    wanted = {"group": "lake", "destinations": "/queue/g", "starting": "earliest"}
    assert requested(alice, "group-open", **wanted)["status"] == "ok"
    for _ in range(3):
        assert asked(alice, "SEND", {"destination": "/queue/g"}, b"x") == "RECEIPT"
    for answer in (
        requested(bob, "group-open", **wanted),
        requested(bob, "group-open", **{**wanted, "destinations": "/queue/h"}),
        requested(bob, "group-commit", {"g": 3}, group="lake"),
        requested(bob, "group-reset", group="lake", starting="latest"),
        requested(bob, "group-delete", group="lake"),
    ):
        assert (answer["status"], answer.get("code")) == ("error", "not-permitted")
    assert json.loads(requested(alice, "group-open", **wanted)["body"])["positions"] == {"g": 0}
    assert requested(alice, "group-commit", {"g": 2}, group="lake")["status"] == "ok"
    assert requested(alice, "group-delete", group="lake")["status"] == "ok"
    assert requested(bob, "group-open", **wanted)["status"] == "ok"


def test_a_named_reader_is_its_users(users: Users) -> None:
    with users("alice", "A") as alice:
        assert subscribed(alice, "/stream/s", **READER) == "RECEIPT"
    assert subscribed(users("bob", "A"), "/stream/s", **READER) == "not-permitted"
    assert asked(users("bob", "A"), "UNSUBSCRIBE", {"id": "0", **READER}) == "not-permitted"
    assert asked(users("alice", "A"), "UNSUBSCRIBE", {"id": "0", **READER}) == "RECEIPT"


def test_anothers_reader_does_not_stand_in_the_way_of_a_durable_subscription(users: Users) -> None:
    with users("bob", "A") as bob:
        assert subscribed(bob, "/stream/s", **DURABLE) == "RECEIPT"
    alice = users("alice", "A")
    assert subscribed(alice, "/topic/news", **DURABLE) == "RECEIPT"
    assert asked(alice, "UNSUBSCRIBE", {"id": "0", **DURABLE}) == "RECEIPT"
    assert subscribed(users("bob", "A"), "/stream/s", **READER | DURABLE) == "RECEIPT"


@pytest.mark.parametrize("users", ["with permissions"], indirect=True)
def test_who_may_manage_may_do_it_and_does_not_become_the_owner(users: Users) -> None:
    with users("alice", "A") as alice:
        assert subscribed(alice, "/topic/news", **DURABLE) == "RECEIPT"
        assert (
            requested(alice, "group-open", group="lake", destinations="/queue/g", starting="earliest")[
                "status"
            ]
            == "ok"
        )
    with users("carol", "A") as carol:
        assert subscribed(carol, "/topic/other", **DURABLE) == "RECEIPT"
        assert (
            requested(carol, "group-open", group="lake", destinations="/queue/h", starting="earliest")[
                "status"
            ]
            == "ok"
        )
    assert subscribed(users("bob", "A"), "/topic/other", **DURABLE) == "not-permitted"
    assert requested(users("alice"), "group-delete", group="lake")["status"] == "ok"
    assert subscribed(users("alice", "A"), "/topic/other", **DURABLE) == "RECEIPT"


def test_those_of_a_user_and_of_a_client_id_that_sound_alike_are_two(users: Users) -> None:
    """RabbitMQ's belong to a user, the others to a client-id; and dots in names do not make two of them one."""
    clients = []
    for client_id, destination, headers in (
        ("alice", "/topic/t", {"durable-subscriber-name": "x.y"}),
        ("alice.x", "/topic/t", {"durable-subscriber-name": "y"}),
        ("", "/topic/t", {"id": "x.y", **AS_IN_RABBITMQ}),
        ("alice", "/stream/t", {"durable-subscriber-name": "x.y"}),
        ("alice.x", "/stream/t", {"durable-subscriber-name": "y"}),
    ):
        clients.append(users("alice", client_id))
        assert subscribed(clients[-1], destination, **headers) == "RECEIPT"
    users("bob").send("SEND", {"destination": "/topic/t"}, b"to each")
    assert [client.receive().body for client in clients] == [b"to each"] * 5


def test_owners_are_known_after_a_restart(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "users.toml"
    path.write_text(USERS.replace("memory = true", f'data = "{tmp_path / "data"}"') + PERMISSIONS)
    for is_new in (True, False):
        served = serve("--config", str(path), "--no-admin")
        with ExitStack() as closing:
            users = Users(served, closing)
            if is_new:
                alice = users("alice", "A")
                assert subscribed(alice, "/topic/news", **DURABLE) == "RECEIPT"
                assert subscribed(alice, "/stream/s", **{**READER, "id": "1"}) == "RECEIPT"
                assert (
                    requested(
                        alice, "group-open", group="lake", destinations="/queue/g", starting="earliest"
                    )["status"]
                    == "ok"
                )
            else:
                assert subscribed(users("bob", "A"), "/topic/other", **DURABLE) == "not-permitted"
                assert subscribed(users("bob", "A"), "/stream/s", **READER) == "not-permitted"
                assert requested(users("bob"), "group-delete", group="lake")["code"] == "not-permitted"
        assert served.stop() == 0


def test_what_was_made_without_users_is_the_first_users_who_takes_it_up(serve: Serve, tmp_path: Path) -> None:
    path, data = tmp_path / "users.toml", f'data = "{tmp_path / "data"}"'
    path.write_text(data + '\n[[listener]]\nurl = "tcp://127.0.0.1:0"\n')
    served = serve("--config", str(path), "--no-admin")
    with ExitStack() as closing:
        users = Users(served, closing)
        nobody = users("mallory", "A")
        assert subscribed(nobody, "/topic/news", **DURABLE) == "RECEIPT"
        assert (
            requested(nobody, "group-open", group="lake", destinations="/queue/g", starting="earliest")[
                "status"
            ]
            == "ok"
        )
        nobody.send("DISCONNECT")
        # all are one
        assert subscribed(users("eve", "A"), "/topic/changed", **DURABLE) in ("RECEIPT", "durable-in-use")
    assert served.stop() == 0
    path.write_text(USERS.replace("memory = true", data) + PERMISSIONS)
    with ExitStack() as closing:
        users = Users(serve("--config", str(path), "--no-admin"), closing)
        with users("alice", "A") as alice:
            assert subscribed(alice, "/topic/mine", **DURABLE) == "RECEIPT"
            assert (
                requested(alice, "group-open", group="lake", destinations="/queue/g", starting="latest")[
                    "status"
                ]
                == "ok"
            )
        assert subscribed(users("bob", "A"), "/topic/mine", **DURABLE) == "not-permitted"
        assert requested(users("bob"), "group-commit", {"g": 0}, group="lake")["code"] == "not-permitted"


HOSTS = """
memory = true
[[listener]]
url = "tcp://127.0.0.1:0?virtualTopicConsumerWildcards=Consumer.*.%3E%3B2,*.%3E%3B1"
[[virtual-host]]
name = "main"
default = true
[[virtual-host]]
name = "blue"
"""


def test_no_name_of_a_client_is_one_of_another_virtual_host(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "hosts.toml"
    path.write_text(HOSTS)
    with ExitStack() as closing:
        users = Users(serve("--config", str(path), "--no-admin"), closing)
        blue = closing.enter_context(
            Plain(users.served.port, headers={"host": "blue", "client-id": "C", "login": "b"})
        )
        assert subscribed(blue, "/topic/t", **DURABLE) == "RECEIPT"
        assert subscribed(blue, "/stream/t", **{**READER, "id": "1"}) == "RECEIPT"
        for header in ("client-id", "login"):
            stranger = closing.enter_context(Plain(users.served.port, version=None))
            stranger.send("CONNECT", {"accept-version": "1.2", "host": "main", header: "vhost/blue.C"})
            assert stranger.receive().headers["code"] == "reserved-name"
            assert stranger.is_closed()
        main = users("m", host="main")
        for destination in (
            "/queue/Consumer.a.vhost/blue.t",
            "/queue/x.vhost/blue.t",
            "/topic/vhost/blue.t",
            "/queue/t::vhost/blue.t",
        ):
            assert subscribed(users("m", host="main"), destination) == "bad-destination"
            assert asked(users("m", host="main"), "SEND", {"destination": destination}) == "bad-destination"
        for name in ("vhost/blue.C.reader", "C.reader", "reader"):
            assert (
                asked(users("m", host="main"), "UNSUBSCRIBE", {"id": "9", "durable-subscriber-name": name})
                != "RECEIPT"
            )
        for request, headers in (
            ("group-open", {"group": "vhost/blue.g", "destinations": "/queue/t", "starting": "earliest"}),
            ("group-open", {"group": "g", "destinations": "/queue/vhost/blue.t", "starting": "earliest"}),
            ("pause", {"address": "vhost/blue.t"}),
            ("fetch", {"address": "vhost/blue.t", "start": "0", "stop": "1"}),
        ):
            assert requested(main, request, **headers)["status"] == "error", (request, headers)
        blue.send("SEND", {"destination": "/topic/t"}, b"still there")
        assert {blue.receive().body, blue.receive().body} == {b"still there"}
