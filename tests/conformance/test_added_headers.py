"""What the broker adds to messages or changes of them on their way: users, times, transformers; and who may connect at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.conformance.brokers import Brokers
from tests.conformance.script import (
    Case,
    Play,
    Step,
    gone,
    hear,
    leave,
    play,
    refused,
    say,
    send,
    subscribe,
    sync,
)
from tests.users import users

TRANSFORMER = """
def change(message):
    if message.body == b"bad in" or (message.way.value == "out" and message.user == "picky"):
        raise ValueError("no")
    message.headers["seen"] = message.headers.get("seen", "") + message.way.value + " "
    if message.way.value == "in":
        message.body = message.body.upper()
"""
CONFIGURATION = """
memory = true
populate-validated-user = true
[[listener]]
url = "tcp://127.0.0.1:0?{options}"
[[permission]]
match = "#"
send = ["all", "some"]
consume = ["all"]
create-address = ["all", "some"]
create-durable-queue = ["all"]
create-non-durable-queue = ["all"]
delete-durable-queue = ["all"]
[[permission]]
match = "nobody.listens"
send = ["all", "some"]
create-address = ["all", "some"]
[[permission]]
match = "open.#"
send = ["all", "some"]
consume = ["all", "some"]
create-address = ["all", "some"]
create-durable-queue = ["all", "some"]
create-non-durable-queue = ["all", "some"]
[[permission]]
match = "kept.#"
send = ["all", "some"]
consume = ["all", "some"]
create-address = ["all"]
create-durable-queue = ["all", "some"]
create-non-durable-queue = ["all", "some"]
[[address-setting]]
match = "timed.#"
enable-ingress-timestamp = true
""" + users("alice:a@all", "bob:b@some")
NAMELESS = 'memory = true\nreject-empty-validated-user = true\n[[listener]]\nurl = "tcp://127.0.0.1:0"\n'
USERS = {
    "": "login:alice\npasscode:a",
    "bob": "login:bob\npasscode:b",
    "bob2": "login:bob\npasscode:b",
    "bob3": "login:bob\npasscode:b",
    "bob4": "login:bob\npasscode:b",
}


def is_refused(client: str, code: str) -> Step:
    """At its CONNECT."""

    def step(play: Play) -> None:
        with pytest.raises(AssertionError, match=code):
            play.client(client)

    return step


def sync_open(play: Play) -> None:
    """bob may send to what is open alone; his wildcard hears it."""
    send("bob", "/queue/open.{x}", "3")(play)


def is_timed(play: Play) -> None:
    answer = play.client("a").expect("MESSAGE")
    assert answer.value("ingress-timestamp") == answer.value("timestamp")


CASES = [
    Case("MESSAGE carries the sender's login, and no other", [
        subscribe("a", "/queue/open.{x}"), send("bob", "/queue/open.{x}", "1", "JMSXUserID:root"),
        hear("a", "MESSAGE", "1", JMSXUserID="bob"),
    ], broker="users", login=USERS),
    Case("a right that is not there", [
        say("bob", "SUBSCRIBE", "/queue/{x}", headers="id:1"), refused("bob", "not-permitted", "consume", "bob"),
    ], broker="users", login=USERS),
    Case("a queue that one may not make", [
        say("bob", "SEND", "/queue/{x}"), refused("bob", "not-permitted", "create-durable-queue"),
    ], broker="users", login=USERS),
    Case("a wildcard reaches what one may consume, and nothing else", [
        subscribe("bob", "/topic/#"), subscribe("a", "/topic/#"), send("s", "/topic/open.{x}", "1"), send("s", "/topic/{x}", "2"),
        hear("bob", "MESSAGE", "1"), sync_open, hear("a", "MESSAGE", "1"), hear("a", "MESSAGE", "2"),
    ], broker="users", login=USERS),
    Case("several destinations: all of them, or none", [
        subscribe("a", "/topic/open.{x}"), say("bob", "SEND", "/topic/open.{x},/queue/{x}", "1"), refused("bob", "not-permitted"),
    ], broker="users", login=USERS, versions=("1.2",)),
    Case("who may not make an address gives it no other kind", [
        subscribe("a", "/queue/kept.{x}"), say("bob", "SEND", "/topic/kept.{x}", "1"), refused("bob", "not-permitted", "create-address"),
        say("bob2", "SUBSCRIBE", "/topic/kept.{x}", headers="id:1"), refused("bob2", "not-permitted", "create-address"),
        subscribe("a", "/topic/kept.{x}.t", id="t"), say("bob3", "SEND", "/queue/kept.{x}.t::q", "2"),
        refused("bob3", "not-permitted", "create-address"), send("bob4", "/queue/kept.{x}", "3"), hear("a", "MESSAGE", "3"),
        send("a", "/topic/kept.{x}", "4"), send("bob4", "/topic/kept.{x}", "5"), sync("a"),
    ], broker="users", login=USERS, versions=("1.2",)),
    Case("nor does it by a queue's arguments", [
        subscribe("a", "/topic/kept.{x}"), say("bob", "SEND", "/queue/kept.{x}", "1", "x-max-length:10"),
        refused("bob", "not-permitted", "create-address"), say("bob2", "SUBSCRIBE", "/queue/kept.{x}", headers="id:1\nx-max-length:10"),
        refused("bob2", "not-permitted", "create-address"), say("a", "SEND", "/queue/kept.{x}", "2", "x-max-length:10"), sync("a"),
        subscribe("bob3", "/queue/kept.{x}"), hear("bob3", "MESSAGE", "2"),
    ], broker="users", login=USERS, versions=("1.2",)),
    Case("so many connections of one user", [
        lambda play: play.client("bob"), lambda play: play.client("bob2"), is_refused("bob3", "too-many-connections"), leave("bob2"),
    ], broker="limited", login=USERS, versions=("1.2",)),
    Case("ingress-timestamp where the address has it", [
        subscribe("a", "/topic/timed.{x}"), subscribe("a", "/topic/{x}", id="1"), send("a", "/topic/timed.{x}", "1"), is_timed,
        send("a", "/topic/{x}", "2"), hear("a", "MESSAGE", "2", without=("ingress-timestamp",)),
    ], broker="users", login=USERS),
    Case("a nameless client may listen, not send", [
        subscribe("a", "/queue/{x}"), say("a", "SEND", "/queue/{x}"), hear("a", "ERROR", code="nameless-sender"),
    ], broker="nameless"),
    Case("a transformer sees messages in and out", [
        subscribe("a", "/queue/{x}"), send("s", "/queue/{x}", "one"), hear("a", "MESSAGE", "ONE", seen="in out "),
        send("s", "/queue/{x}", "two", "destination-type:ANYCAST"), hear("a", "MESSAGE", "TWO", seen="in out "),
    ], broker="transformed"),
    Case("what it does not let in", [
        say("s", "SEND", "/queue/{x}", "bad in", "receipt:r"), hear("s", "ERROR", code="transformer-failed", receipt_id="r"),
    ], broker="transformed"),
    Case("what it does not let out stays in its queue", [
        send("s", "/queue/{x}", "1"), say("a", "SUBSCRIBE", "/queue/{x}", headers="id:1"), hear("a", "ERROR", code="transformer-failed"),
        gone("a"), subscribe("b", "/queue/{x}"), hear("b", "MESSAGE", "1", redelivered="true"),
    ], broker="transformed", login={"a": "login:picky"}, versions=("1.2",)),
]  # fmt: skip


@pytest.fixture(scope="module")
def brokers(
    broker: tuple[str, int], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], tuple[str, int]]]:
    folder = tmp_path_factory.mktemp("transformer")
    (folder / "changing.py").write_text(TRANSFORMER, encoding="utf-8")
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
        configurations = {
            "users": CONFIGURATION.format(options="requireLogin=true"),
            "limited": CONFIGURATION.format(options="maxConnectionsPerUser=2"),
            "nameless": NAMELESS,
            "transformed": 'memory = true\n[[listener]]\nurl = "tcp://127.0.0.1:0?messageTransformer=changing:change"\n',
        }
        yield Brokers(broker, configurations, tmp_path_factory, stack).address


ROWS = [(case, version) for case in CASES for version in case.versions]


@pytest.mark.parametrize(("case", "version"), ROWS, ids=str)
def test_over_tcp(brokers: Callable[[str], tuple[str, int]], case: Case, version: str) -> None:
    play(brokers(case.broker), case, version, "tcp")
    assert case.steps
