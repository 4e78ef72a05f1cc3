"""config.properties of OpenMQ as TOML, with what lies beside it: what each property becomes, and what is left out with its line."""

from __future__ import annotations

from typing import Any

import pytest

from stompbox.cli.importing import judge
from stompbox.conversion import Accounts, Properties, convert, settled
from stompbox.errors import ConfigError
from tests.conversion.conftest import FILES, Converted


def file(name: str) -> Properties:
    return Properties.read(name, (FILES / name).read_bytes())


def converted(
    text: str = "", users: Properties | None = None, rules: Properties | None = None, listed: bytes = b""
) -> Converted:
    """What becomes of a config.properties; without a text it is the whole one with all that is beside it."""
    accounts = Accounts(lambda password: f"hash of {password}", users, rules)
    name, content, beside = "it", text.encode(), ("list", listed) if listed else None
    if not text:
        name, content = "config.properties", (FILES / "config.properties").read_bytes()
        accounts = Accounts(accounts.hashed, file("passwd"), file("accesscontrol.properties"))
        beside = ("destinations.txt", (FILES / "destinations.txt").read_bytes())
    draft = convert("openmq", name, content, accounts, beside)
    return Converted(settled(draft, judge), draft.left)


def test_a_whole_file() -> None:
    found = converted()
    content = found.content
    assert content["global-max-size"] == 2048 << 20
    common = "dialect=openmq;consumerFlowLimit=500;maxBodySize=5242880"
    assert [table["url"] for table in content["listener"]] == [f"tcp://mq.example:7672?{common}"]
    url = f"ssl://mq.example:7673?{common};keyStorePath=server.pem;needClientAuth=true;trustStorePath=clients.pem"
    assert f'# url = "{url}"' in found.text  # there is no such file
    assert content["user"] == [
        {"name": "admin", "groups": ["admin", "user=*", "user=admin"]},
        {"name": "alice", "groups": ["user", "user=*", "user=alice"]},
    ]
    assert found.named("address-setting", "match", "#") == {
        "match": "#", "dead-letter-address": "mq.sys.dmq", "expiry-address": "mq.sys.dmq", "auto-delete-queues-delay": 60_000,
        "max-size-messages": 1000, "max-size-bytes": 10 << 20, "address-full-policy": "BLOCK", "default-max-consumers": 3,
    }  # fmt: skip
    assert [
        (one["name"], one["routing-types"], [queue["name"] for queue in one.get("queue", [])])
        for one in content["address"]
    ] == [
        ("orders", ["ANYCAST", "MULTICAST"], ["orders"]),
        ("prices.eu", ["MULTICAST"], []),
    ]


def test_rights() -> None:
    found = converted()
    everybody = found.named("permission", "match", "#")
    assert everybody["send"] == everybody["consume"] == everybody["create-address"] == ["user=*"]
    orders = found.named("permission", "match", "orders")
    assert (orders["send"], orders["consume"], orders["browse"]) == (["user=*"], ["user=alice"], ["user=*"])
    assert orders["create-durable-queue"] == ["user=*", "user=alice"]
    assert found.named("permission", "match", "stompbox.admin") == {
        "match": "stompbox.admin",
        "manage": ["admin"],
    }


@pytest.mark.parametrize(
    "words",
    [
        ("config.properties:3", "imq.bridge.enabled", "nothing to set"),
        ("config.properties:6", "imq.bridge.admin.password", "[admin]"),
        ("config.properties:11", "com.example.Transformer", "Python"),
        ("config.properties:12", "imq.autocreate.topic", "both are made, or none"),
        ("config.properties:21", "imq.persist.store = 'jdbc'", "SQLite"),
        ("config.properties:22", "imq.colour = 'red'", "no such setting"),
        ("config.properties:8", "keyStorePath must name"),
        ("passwd:3", "'bob'", "not active"),
        ("password of 'alice'", "passwd:2", "cannot log in"),
        ("accesscontrol.properties:13", "queue.orders.own.allow.user", "no rule"),
    ],
    ids=str,
)
def test_what_is_left_out_is_a_comment_with_its_line(words: tuple[str, ...]) -> None:
    assert converted().says(*words)


def test_no_secret_is_repeated() -> None:
    text = converted().text
    assert "s3cret" not in text and "5455c8583c24" not in text


def settings(*lines: str) -> dict[str, Any]:
    found = converted("\n".join(("imq.bridge.enabled=true", *lines)))
    return found.named("address-setting", "match", "#")


@pytest.mark.parametrize(
    ("lines", "keys"),
    [
        (("imq.autocreate.destination.useDMQ=false",), {"dead-letter-address": "", "expiry-address": ""}),
        (("imq.autocreate.queue=false", "imq.autocreate.topic=false"), {"auto-create-addresses": False, "auto-create-queues": False}),
        (("imq.autocreate.destination.maxNumMsgs=7",), {"max-size-messages": 7, "address-full-policy": "FAIL"}),
        (
            ("imq.autocreate.destination.maxNumMsgs=7", "imq.autocreate.destination.limitBehavior=REMOVE_OLDEST"),
            {"default-ring-size": 7},
        ),
        (("imq.autocreate.destination.maxNumMsgs=-1", "imq.autocreate.queue.maxNumActiveConsumers=-1"), {}),
    ],
    ids=str,
)  # fmt: skip
def test_settings(lines: tuple[str, ...], keys: dict[str, Any]) -> None:
    plain = {"match": "#", "dead-letter-address": "mq.sys.dmq", "expiry-address": "mq.sys.dmq"}
    assert settings(*lines) == plain | keys


def test_without_users_only_this_machine_may_connect() -> None:
    found = converted("imq.bridge.stomp.tcp.port=7000\nimq.hostname=10.0.0.1\n")
    assert [table["url"] for table in found.content["listener"]] == ["tcp://127.0.0.1:7000?dialect=openmq"]
    assert found.says("it:1", "was 10.0.0.1:7000") and found.says("no accesscontrol.properties")


def test_access_control_that_is_off() -> None:
    found = converted("imq.accesscontrol.enabled=false\n", file("passwd"), file("accesscontrol.properties"))
    assert "permission" not in found.content and found.says("it:1", "access control is off")


RULES = "queue.*.consume.allow.user=*\nqueue.*.produce.allow.group=user\n"


@pytest.mark.parametrize(
    ("rules", "match", "who"),
    [
        ("", "#", ["user=*"]),
        ("queue.q.consume.allow.user=alice", "q", ["user=*"]),  # who is not named there may by the rule for all
        ("queue.q.consume.deny.user=alice", "q", ["user=admin"]),
        ("queue.q.consume.deny.group=user", "q", ["user=admin"]),
        ("queue.q.consume.deny.user=*\nqueue.q.consume.allow.user=alice", "q", ["user=alice"]),
        ("queue.q.consume.deny.user=alice\nqueue.q.consume.allow.group=user", "q", ["user=admin"]),
        ("queue.q.consume.allow.user=alice\nqueue.q.consume.deny.group=user", "q", ["user=admin", "user=alice"]),
        ("topic.*.consume.allow.group=admin", "#", ["admin"]),
        ("topic.*.produce.allow.user=*", "#", []),  # nobody has topics
    ],
)  # fmt: skip
def test_who_may_consume(rules: str, match: str, who: list[str]) -> None:
    found = converted("imq.x=1\n", file("passwd"), Properties.read("rules", (RULES + rules).encode()))
    assert found.named("permission", "match", match)["consume"] == who


def test_denials_without_users_let_nobody() -> None:
    rules = Properties.read("rules", (RULES + "queue.*.consume.deny.user=alice\n").encode())
    found = converted("imq.x=1\n", None, rules)
    assert found.named("permission", "match", "#")["consume"] == []
    assert found.says("rules", "--users")


def test_no_rule_for_all_names() -> None:
    found = converted(
        "imq.x=1\n", file("passwd"), Properties.read("rules", b"queue.q.consume.allow.user=alice")
    )
    assert found.named("permission", "match", "#") == {"match": "#"}
    assert found.named("permission", "match", "q")["consume"] == ["user=alice"]


@pytest.mark.parametrize(
    "key",
    ["queue.a*.consume", "queue.#.consume", "queue.a.create", "queue.consume", "house.a.consume", "queue"],
)
def test_what_is_no_rule_lets_nobody(key: str) -> None:
    found = converted(
        "imq.x=1\n", file("passwd"), Properties.read("rules", f"{key}.allow.user=alice".encode())
    )
    assert found.says("rules:1", key) and "user=alice" not in str(found.content["permission"])


def test_a_name_with_dots_and_one_that_is_an_operation() -> None:
    rules = b"queue.a.b.consume.allow.user=alice\nqueue.create.consume.allow.user=alice"
    found = converted("imq.x=1\n", file("passwd"), Properties.read("rules", rules))
    assert {one["match"] for one in found.content["permission"]} == {"#", "a.b", "create", "stompbox.admin"}


@pytest.mark.parametrize(
    ("text", "listed", "problem"),
    [
        ("a=1\n", b"", "it:1: no property begins with `imq.`: it is no config.properties"),
        ("imq.a\n", b"", "it:1: expected `name = value`"),
        (
            "imq.a=1\n",
            b"hello\n",
            "list:1: no row such as `orders  Queue  RUNNING`: print it with `imqcmd list dst`",
        ),
    ],
)
def test_bad_input(text: str, listed: bytes, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        converted(text, listed=listed)
    assert caught.value.message == problem


def test_a_row_that_is_none_is_named() -> None:
    rows = b"-----\nHost\n-----\nx 7676\n\n-----\nName  Type\n-----\na  Queue  RUNNING\nwhat is this\n\nSuccessfully listed destinations.\n"
    assert converted("imq.x=1\n", listed=rows).says("list:10: 'what is this'")
