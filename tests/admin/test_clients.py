"""Who is at a queue, who has gone and why, fronts, and where a page can speak STOMP."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from stompbox.admin.clients import socket_urls
from stompbox.config.listener import parse_listener
from tests.admin.asking import ask, post, read
from tests.admin.conftest import Start
from tests.admin.test_views import send
from tests.conftest import Served
from tests.system.plain import Plain
from tests.users import users

RIGHTS = """
[[permission]]
match = "#"
browse = ["users"]
manage = ["admins"]
""" + users("root:r00t@admins", "bob:b0b@users")


def test_the_consumers_of_a_queue_and_what_they_hold(served: Served) -> None:
    names = [Plain(served.port, headers={"client-id": f"holder-{number}"}) for number in (1, 2)]
    with names[0] as one, names[1] as other:
        send(one, "/queue/held.by", *[b"x"] * 5)
        taken = []
        for client, prefetch in ((one, 2), (other, 3)):
            client.send(
                "SUBSCRIBE",
                {
                    "destination": "/queue/held.by",
                    "id": "s",
                    "ack": "client-individual",
                    "prefetch-count": str(prefetch),
                },
            )
            taken += [client.receive() for _ in range(prefetch)]
        one.send("ACK", {"id": taken[0].headers["ack"]})
        one.sync()
        found = read(served.admin, "consumers?queue=held.by&match=holder-")
        sorted_ones = read(served.admin, "consumers?queue=held.by&sort=-delivering")["consumers"]
        port = one.socket.getsockname()[1]
    assert found["total"] == 2
    holders = found["consumers"]
    assert [(each["delivering"], each["oldest"], each["acknowledged"]) for each in holders] == [
        (1, 1, 1),
        (3, 2, 0),
    ]
    assert [(each["client_id"], each["id"], each["ack"]) for each in holders] == [
        ("holder-1", "s", "client-individual"),
        ("holder-2", "s", "client-individual"),
    ]
    assert (holders[0]["peer"], holders[0]["port"]) == ("127.0.0.1", port)
    assert [each["client_id"] for each in sorted_ones] == ["holder-2", "holder-1"]


def test_consumers_need_a_queue_and_the_right(start: Start) -> None:
    served = start(RIGHTS)
    assert ask(served.admin, "/api/v1/consumers", user="root:r00t").code == "missing-parameter"
    answer = ask(served.admin, "/api/v1/consumers?queue=none", user="root:r00t")
    assert (answer.status, answer.code, answer.json["field"]) == (404, "no-such-queue", "queue")
    created = {"address": "seen", "queue": "seen"}
    post(served.admin, "queues/create", created, "root:r00t")
    assert ask(served.admin, "/api/v1/closings", user="bob:b0b").code == "not-permitted"
    assert ask(served.admin, "/api/v1/fronts", user="bob:b0b").code == "not-permitted"
    assert ask(served.admin, "/api/v1/websockets", user="bob:b0b").status == 200


def closing(served: Served, client_id: str) -> dict[str, Any]:
    """The entry of a connection, which comes when its socket is gone."""
    deadline = time.monotonic() + 20
    while not (found := read(served.admin, f"closings?match={client_id}")["closings"]):
        assert time.monotonic() < deadline, f"nothing is said of {client_id}"
    [one] = found
    return dict(one)


def leave(_: Served, client: Plain) -> None:
    client.send("DISCONNECT")


def vanish(_: Served, client: Plain) -> None:
    client.socket.close()


def break_rules(_: Served, client: Plain) -> None:
    client.send("SUBSCRIBE", {"destination": "/queue/x"})
    client.receive()


def be_closed(served: Served, _: Plain) -> None:
    [one] = read(served.admin, "connections?match=goes-be_closed")["connections"]
    assert post(served.admin, "connections/close", {"connection": one["id"]}).status == 200


@pytest.mark.parametrize(
    ("end", "codes"),
    [
        (leave, ["disconnected"]),
        (vanish, ["left", "lost"]),
        (break_rules, ["missing-id"]),
        (be_closed, ["closed-by-operator"]),
    ],
)
def test_why_a_connection_was_closed(
    served: Served, end: Callable[[Served, Plain], None], codes: list[str]
) -> None:
    name = f"goes-{end.__name__}"
    with Plain(served.port, headers={"client-id": name}) as client:
        [one] = read(served.admin, f"connections?match={name}")["connections"]
        end(served, client)
    found = closing(served, name)
    assert found["code"] in codes
    assert (found["id"], found["port"], found["client_id"]) == (one["id"], one["port"], name)
    assert one["since"] == found["since"] <= found["at"]
    assert found["text"]


def test_the_latest_comes_first_and_the_interfaces_own_are_left_out(served: Served) -> None:
    for number in (1, 2):
        with Plain(served.port, headers={"client-id": f"order-{number}"}) as client:
            client.send("DISCONNECT")
        closing(served, f"order-{number}")
    assert post(served.admin, "messages/send", {"destination": "/queue/inside"}).status == 200
    found = read(served.admin, "closings")["closings"]
    assert [one["client_id"] for one in found[:2]] == ["order-2", "order-1"]
    assert {one["listener"] for one in found} == {f"tcp://127.0.0.1:{served.port}"}


def test_fronts_are_listed_where_there_are_some(served: Served, start: Start) -> None:
    fronted = start("fronts = 1\n")
    with Plain(fronted.port) as client:
        client.sync()
        [one] = read(fronted.admin, "connections")["connections"]
        assert one["port"] == client.socket.getsockname()[1]
        [front] = read(fronted.admin, "fronts")["fronts"]
    assert (front["name"], front["connections"], front["restarts"]) == ("front 1", 1, 0)
    assert front["received_bytes"] > 0 < front["sent_bytes"]
    assert front["busy"] >= 0


@pytest.mark.parametrize(
    ("listener", "host", "scheme", "url"),
    [
        ("tcp://127.0.0.1:61613", "localhost:8161", "http", "ws://127.0.0.1:61613/"),
        ("tcp://0.0.0.0:61613", "broker.test:8161", "http", "ws://broker.test:61613/"),
        ("tcp://[::1]:61613", "[::1]:8161", "http", "ws://localhost:61613/"),
        ("tcp://[::]:61613", "[2001:db8::1]:8161", "http", None),
        ("ssl://broker.test:61614?keyStorePath=x.pem", "broker.test", "https", "wss://broker.test:61614/"),
        ("tcp://broker.test:61613", "broker.test", "https", None),
        ("tcp://127.0.0.1:61613?webSocketPath=/stomp,/ws", "x", "http", "ws://127.0.0.1:61613/stomp"),
        ("unix:///run/stompbox.sock", "localhost", "http", None),
    ],
)
def test_where_a_page_can_speak(listener: str, host: str, scheme: str, url: str | None) -> None:
    broker: Any = SimpleNamespace(acceptors=[SimpleNamespace(listener=parse_listener(listener))])
    request: Any = SimpleNamespace(headers={"host": host}, scope={"scheme": scheme})
    found = socket_urls(broker, request)
    assert list(found) == ([] if url is None else [url])
    if url is not None:
        assert url.startswith(found[url]) and found[url].count("/") == 2
