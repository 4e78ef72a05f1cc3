"""definitions.json of RabbitMQ as TOML: what each part becomes, and what is left out with its line."""

from __future__ import annotations

import json

import pytest

from stompbox.errors import ConfigError
from tests.conversion.conftest import Conversion


def test_a_whole_file(converted: Conversion) -> None:
    found = converted("rabbitmq", "definitions.json")
    content = found.content
    assert content["listener"] == [{"url": "tcp://0.0.0.0:61613?dialect=rabbitmq"}]
    assert found.named("user", "name", "admin") == {"name": "admin", "groups": ["admin", "administrator"]}
    orders = found.named("permission", "match", "orders.#")
    assert (orders["send"], orders["consume"], orders["manage"]) == (
        ["admin", "orders"],
        ["admin"],
        ["admin"],
    )
    assert found.named("permission", "match", "audit")["send"] == ["admin", "orders"]
    assert found.named("address-setting", "match", "orders.#") == {
        "match": "orders.#",
        "max-size-messages": 1000,
        "address-full-policy": "FAIL",
        "max-expiry-delay": 60_000,
    }
    assert found.named("address-setting", "match", "orders.new") == {
        "match": "orders.new",
        "max-delivery-attempts": 4,
        "dead-letter-address": "orders.dead",
        "expiry-address": "orders.dead",
    }
    assert found.named("address", "name", "one")["queue"] == [
        {"name": "one", "durable": True, "exclusive": True}
    ]
    assert found.named("address-setting", "match", "log") == {
        "match": "log",
        "retention-ms": 7 * 86_400_000,
        "retention-bytes": 1_000_000,
    }
    assert [(divert["address"], divert["forwarding-address"]) for divert in content["divert"]] == [
        ("news", "one"),
        ("order.#", "orders.new"),
    ]
    assert [host["name"] for host in content["virtual-host"]] == ["/", "green"]
    assert content["virtual-host"][1]["address"][0]["name"] == "tasks"


@pytest.mark.parametrize(
    "words",
    [
        ("definitions.json:4", "password_hash", "sha256", "stompbox user hash"),
        ("definitions.json:10", "read of 'orders'", "^orders-[0-9]+$"),
        ("definitions.json:13", "topic_permissions"),
        ("definitions.json:14", "'s1'"),
        ("definitions.json:18", "'odd'"),
        ("definitions.json:23", "consumer-timeout"),
        ("definitions.json:25", "'bad#name'"),
        ("definitions.json:30", "exchange 'shop'"),
        ("definitions.json:35", "binding of 'one' to 'shop'"),
    ],
)
def test_what_is_left_out_is_named_with_its_line(converted: Conversion, words: tuple[str, ...]) -> None:
    assert converted("rabbitmq", "definitions.json").says("not carried over", *words)


@pytest.mark.parametrize(
    ("expression", "matches"),
    [
        (".*", ["#"]), ("^.*$", ["#"]), ("", []), ("^$", []), ("^a$", ["a"]), ("^a\\.b$", ["a.b"]), ("^a\\..*", ["a.#"]),
        ("^(a|b\\..*)$", ["a", "b.#"]), ("a", None), ("^a", None), ("^a.*", None), ("^(a|b[0-9])$", None), ("^a|b$", None),
    ],
)  # fmt: skip
def test_regular_expressions(converted: Conversion, expression: str, matches: list[str] | None) -> None:
    text = json.dumps({"users": [], "permissions": [{"user": "u", "vhost": "/", "write": expression}]})
    found = converted("rabbitmq", text)
    assert [table["match"] for table in found.content.get("permission", [])] == (matches or [])
    assert (found.left > 0) == (matches is None)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"x-max-length": 5}, {"default-ring-size": 5}),
        ({"x-max-length-bytes": 5, "x-overflow": "reject-publish"}, {"max-size-bytes": 5, "address-full-policy": "FAIL"}),
        ({"x-delivery-limit": -1}, {"max-delivery-attempts": -1}),
        ({"x-expires": 9}, {"auto-delete-created-queues": True, "auto-delete-queues-delay": 9, "auto-delete-queues-message-count": -1}),
        ({"x-max-length-bytes": 5}, {}),
    ],
)  # fmt: skip
def test_arguments_of_a_queue(
    converted: Conversion, arguments: dict[str, object], expected: dict[str, object]
) -> None:
    found = converted(
        "rabbitmq", json.dumps({"queues": [{"name": "q", "vhost": "/", "arguments": arguments}]})
    )
    assert found.named("address-setting", "match", "q") == {"match": "q"} | expected
    assert found.left == (0 if expected else 1)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{\n"users": [{"nme": "a"}]}', "^it:2: 'name' is missing"),
        ('{"users":\n 7}', "^it:2: users: expected an array, not 7"),
        ('{"queues": [\n7]}', r"^it:1: queues: queues\[0\]: expected an object, not 7"),
        ('{"queues": [\n\n{"name": 5}]}', "^it:3: name: expected a text, not 5"),
        ("{}", "^it:1: no users, vhosts, queues or exchanges"),
    ],
)
def test_bad_input_is_named_with_its_line(converted: Conversion, text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        converted("rabbitmq", text)


def test_a_policy_that_is_no_pattern_counts_for_the_queues_of_the_file(converted: Conversion) -> None:
    """What a queue says itself comes first, and of two policies the one of the higher priority."""
    queues = [
        {"name": "orders", "vhost": "/", "arguments": {"x-message-ttl": 5}},
        {"name": "orders-eu", "vhost": "/", "arguments": {}},
        {"name": "bills", "vhost": "/", "arguments": {}},
    ]
    policies = [
        {"vhost": "/", "name": "low", "pattern": "^ord", "priority": 1, "definition": {"message-ttl": 7}},
        {
            "vhost": "/", "name": "high", "pattern": "^orders", "priority": 2,
            "definition": {"message-ttl": 9, "delivery-limit": 2},
        },
        {"vhost": "/", "name": "none", "pattern": "((", "priority": 3, "definition": {"message-ttl": 9}},
    ]  # fmt: skip
    found = converted("rabbitmq", json.dumps({"queues": queues, "policies": policies}, indent=1))
    assert found.content["address-setting"] == [
        {"match": "orders", "max-expiry-delay": 5, "max-delivery-attempts": 3},
        {"match": "orders-eu", "max-expiry-delay": 9, "max-delivery-attempts": 3},
    ]
    assert found.says("not carried over", "policy 'high' on ^orders", "2 queues of this file")
    assert found.says("not carried over", "policy 'none' on ((")


def test_rights_on_exchanges_and_limits_of_users_are_named(converted: Conversion) -> None:
    user = {"name": "app", "limits": {"max-connections": 3}}
    right = {"user": "app", "vhost": "/", "configure": "^$", "write": "^(orders|amq\\.topic)$", "read": "^$"}
    found = converted("rabbitmq", json.dumps({"users": [user], "permissions": [right]}, indent=1))
    assert [table["match"] for table in found.content["permission"]] == ["orders"]
    assert found.says("not carried over", "write of 'app': amq.topic")
    assert found.says("not carried over", "limits of 'app'", "maxConnections")
