"""What an operator has the broker say for him in STOMP, and that it is asked what a client's frames are."""

from __future__ import annotations

import pytest

from tests.admin.asking import ask, post, queue, read
from tests.admin.conftest import Start
from tests.admin.test_access import BOB, ROOT, USERS
from tests.conftest import Served
from tests.system.plain import Plain


def test_a_message_is_sent(served: Served) -> None:
    order = {
        "destination": "/queue/say.plain",
        "body": "grüß",
        "headers": {"mark": "a:b\nc", "content-type": "text/plain"},
    }
    answer = post(served.admin, "messages/send", order)
    assert (answer.status, answer.json) == (200, {"destination": "/queue/say.plain", "is_sent": True})
    with Plain(served.port) as client:
        client.send("SUBSCRIBE", {"destination": "/queue/say.plain", "id": "1"})
        found = client.receive()
    assert (found.body.decode(), found.headers["mark"]) == ("grüß", "a:b\nc")
    assert read(served.admin, "connections?match=interface")["connections"] == [], "its connection is gone"


def test_octets_are_sent_as_they_are(served: Served) -> None:
    assert (
        post(
            served.admin, "messages/send", {"destination": "/queue/say.octets", "body_base64": "AP8K"}
        ).status
        == 200
    )
    [found] = read(served.admin, "messages?queue=say.octets&whole=true")["messages"]
    assert (found["body"], found["body_base64"], found["size"]) == (None, "AP8K", 3)


@pytest.mark.parametrize(
    ("order", "code", "field"),
    [
        ({"destination": "/queue/x", "body_base64": "%"}, "bad-json", "body_base64"),
        ({"destination": "/queue/x", "headers": {"receipt": "1"}}, "bad-header", "headers"),
        ({"destination": "/queue/x", "headers": {"": "1"}}, "bad-header", "headers"),
        ({"destination": ""}, "bad-json", "destination"),
        ({"destination": "/queue/x", "headers": {"expires": "soon"}}, "bad-header-value", None),
        ({"destination": "/queue/a.*"}, "bad-destination", None),
    ],
)
def test_what_cannot_be_sent_is_refused(served: Served, order: object, code: str, field: str | None) -> None:
    answer = post(served.admin, "messages/send", order)
    assert 400 <= answer.status < 500
    if code not in ("bad-header-value", "bad-destination"):
        assert (answer.code, answer.json.get("field")) == (code, field)
    assert read(served.admin, "addresses?address=x")["addresses"] == []


def test_it_takes_the_rights_that_a_send_takes(start: Start) -> None:
    served = start(USERS)
    answer = post(served.admin, "messages/send", {"destination": "/queue/closed"}, user=BOB)
    assert (answer.status, answer.code) == (403, "not-permitted")
    assert post(served.admin, "messages/send", {"destination": "/queue/open.q"}, user=BOB).status == 200
    assert queue(served.admin, "open.q", ROOT)["ready"] == 1


def test_a_virtual_host_is_named(start: Start) -> None:
    served = start('[[virtual-host]]\nname = "green"\n')
    refused = post(served.admin, "messages/send", {"destination": "/queue/q"})
    assert (refused.status, refused.code) == (409, "unknown-host")
    assert (
        post(served.admin, "messages/send", {"destination": "/queue/q", "virtual_host": "green"}).status
        == 200
    )
    [found] = read(served.admin, "addresses")["addresses"]
    assert found["name"] == "vhost/green.q"


def test_one_that_is_not_there_is_not_taken_for_the_default(start: Start) -> None:
    """As it is where a client names it, which may not know better."""
    served = start('[[virtual-host]]\nname = "green"\ndefault = true\n')
    durable = {"client_id": "shop", "name": "orders", "virtual_host": "red"}
    for path, order in (
        ("messages/send", {"destination": "/queue/q", "virtual_host": "red"}),
        ("durables/create", {**durable, "destination": "/topic/t"}),
        ("durables/delete", durable),
    ):
        answer = post(served.admin, path, order)
        assert (answer.status, answer.code, answer.json["field"]) == (
            404,
            "no-such-virtual-host",
            "virtual_host",
        )
        assert "'red'" in answer.json["detail"]
    assert read(served.admin, "addresses")["addresses"] == []


def test_a_durable_subscription_is_made_and_ended(served: Served) -> None:
    order = {"destination": "/topic/say.topic", "client_id": "shop", "name": "orders", "selector": "a = '1'"}
    assert post(served.admin, "durables/create", order).json == {
        "client_id": "shop",
        "name": "orders",
        "is_there": True,
    }
    for number in ("1", "2"):
        post(
            served.admin,
            "messages/send",
            {"destination": "/topic/say.topic", "body": number, "headers": {"a": number}},
        )
    found = queue(served.admin, "shop.orders")
    assert (found["ready"], found["consumers"], found["kind"]) == (1, 0, "durable")
    headers = {
        "destination": "/topic/say.topic",
        "id": "1",
        "durable-subscription-name": "orders",
        "selector": "a = '1'",
    }
    with Plain(served.port, headers={"client-id": "shop"}) as client:
        client.send("SUBSCRIBE", headers)
        assert client.receive().body == b"1"
    gone = post(served.admin, "durables/delete", {"client_id": "shop", "name": "orders"})
    assert gone.json["is_there"] is False
    assert read(served.admin, "queues?match=shop.orders")["queues"] == []
    again = post(served.admin, "durables/delete", {"client_id": "shop", "name": "orders"})
    assert 400 <= again.status < 500


def test_a_durable_subscription_in_use_is_left_alone(served: Served) -> None:
    headers = {"destination": "/topic/say.used", "id": "1", "durable-subscription-name": "used"}
    with Plain(served.port, headers={"client-id": "user"}) as client:
        client.send("SUBSCRIBE", headers)
        client.sync()
        for path, order in (("create", {"destination": "/topic/say.used"}), ("delete", {})):
            answer = post(served.admin, f"durables/{path}", {"client_id": "user", "name": "used", **order})
            assert 400 <= answer.status < 500, path
        post(served.admin, "messages/send", {"destination": "/topic/say.used", "body": "x"})
        assert client.receive().body == b"x"
    assert ask(served.admin, "/readyz").status == 200


TOPIC = {"destination": "/topic/say.wrong", "client_id": "shop", "name": "wrong"}


@pytest.mark.parametrize(
    ("path", "order", "expected"),
    [
        ("messages/send", {"destination": "/queue/*"}, (400, "bad-destination", "destination")),
        ("messages/send", {"destination": "/temp-queue/x"}, (409, "no-such-temporary", "destination")),
        (
            "messages/send",
            {"destination": "/queue/x", "headers": {"priority": "z"}},
            (400, "bad-priority", "headers"),
        ),
        (
            "messages/send",
            {"destination": "/queue/x", "virtual_host": "a\nb"},
            (404, "no-such-virtual-host", "virtual_host"),
        ),
        ("durables/create", {**TOPIC, "destination": "/queue/x"}, (409, "durable-on-queue", "destination")),
        ("durables/create", {**TOPIC, "destination": "/topic/"}, (400, "bad-destination", "destination")),
        ("durables/create", {**TOPIC, "selector": "a ="}, (400, "selector-syntax", "selector")),
        ("durables/create", {**TOPIC, "client_id": "a\nb"}, (400, "unencodable-header", "client_id")),
        ("durables/delete", {"client_id": "shop", "name": "never"}, (404, "no-such-subscription", "name")),
    ],
)
def test_a_refusal_names_the_field_that_is_wrong(
    served: Served, path: str, order: dict[str, object], expected: tuple[int, str, str]
) -> None:
    answer = post(served.admin, path, order)
    assert (answer.status, answer.code, answer.json["field"]) == expected
