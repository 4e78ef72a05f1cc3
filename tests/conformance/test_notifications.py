"""Notifications on the wire: what happens in the broker comes as messages, to whoever has asked for them and may manage their address."""

from __future__ import annotations

from dataclasses import replace

from tests.conformance.playing import played
from tests.conformance.script import (
    Case,
    Play,
    Step,
    bye,
    hear,
    keep,
    leave,
    refused,
    say,
    send,
    subscribe,
    sync,
)
from tests.conformance.wire import connected
from tests.users import users

TOP = 'management-notification-address = "told.of"\nfailed-login-delay = 0\n'
LISTENER = '[[listener]]\nurl = "tcp://127.0.0.1:0"\n'
SLOW = """
[[address-setting]]
match = "slow.#"
slow-consumer-threshold = 1000
slow-consumer-check-period = 1
"""
USERS = """
[[permission]]
match = "#"
send = ["*"]
consume = ["*"]
create-address = ["*"]
create-durable-queue = ["*"]
create-non-durable-queue = ["*"]
manage = ["operators"]
[[permission]]
match = "secret.#"
create-address = ["*"]
consume = ["operators"]
""" + users("alice:a", "olga:o@operators")
HOSTS = """
[[virtual-host]]
name = "green"
[[virtual-host]]
name = "localhost"
default = true
"""
OWN = "_AMQ_Address LIKE '{x}%'"
OLGA = {"": "login:olga\npasscode:o", "a": "login:alice\npasscode:a"}
TOLD = "/topic/told.of"


def told(*selector: str, client: str = "o") -> Step:
    """Somebody hears of what the selector takes."""
    return subscribe(client, TOLD, headers=f"selector:{' AND '.join(selector)}")


def heard(
    event: str, client: str = "o", without: tuple[str, ...] = (), body: str = "", **values: str
) -> Step:
    return hear(
        client, "MESSAGE", body or None, _AMQ_NotifType=event, destination=TOLD, without=without, **values
    )


def of(*events: str) -> str:
    return f"_AMQ_NotifType IN ({', '.join(map(repr, events))})"


def wrong_login() -> Step:
    def step(play: Play) -> None:
        with connected(play.address, play.transport) as client:
            client.say(
                f"CONNECT\naccept-version:1.2\nhost:localhost\nlogin:{play.words['x']}\npasscode:guessed\n\n\0".encode()
            )
            assert client.expect("ERROR").value("code") == "login-failed"

    return step


CASES = [
    Case("an address and its queue come and go", [
        told("_AMQ_Address = '{x}'", of("ADDRESS_ADDED", "BINDING_ADDED", "BINDING_REMOVED", "ADDRESS_REMOVED")),
        subscribe("a", "/queue/{x}"), heard("ADDRESS_ADDED", _AMQ_Address="{x}"),
        heard("BINDING_ADDED", _AMQ_Address="{x}", _AMQ_RoutingName="{x}", without=("_AMQ_FilterString",)), bye("a"),
        heard("BINDING_REMOVED", _AMQ_RoutingName="{x}"), heard("ADDRESS_REMOVED", _AMQ_Address="{x}"), sync("o"),
    ]),
    Case("a subscription comes and goes", [
        told("_AMQ_Address = '{x}'", of("CONSUMER_CREATED", "CONSUMER_CLOSED")),
        subscribe("a", "/queue/{x}", id="mine", headers="selector:n > 1"),
        heard("CONSUMER_CREATED", _AMQ_ConsumerName="mine", _AMQ_RoutingName="{x}", _AMQ_ConsumerCount="1", _AMQ_FilterString="n > 1",
              _AMQ_RemoteAddress="127.0.0.1"),
        say("a", "UNSUBSCRIBE", "/queue/{x}", headers="id:mine\nreceipt:u"), hear("a", "RECEIPT"),
        heard("CONSUMER_CLOSED", _AMQ_ConsumerName="mine"), sync("o"),
    ]),
    Case("a topic's subscription is a binding, of a durable one too", [
        told("_AMQ_Address = '{x}'", of("BINDING_ADDED", "BINDING_REMOVED")),
        subscribe("a", "/topic/{x}", headers="selector:n > 1"), heard("BINDING_ADDED", _AMQ_FilterString="n > 1"), bye("a"),
        heard("BINDING_REMOVED", _AMQ_FilterString="n > 1"), sync("o"),
    ]),
    Case("a subscription to several addresses says what it said", [
        told("_AMQ_Address = '/queue/{x},/topic/{x}.#'", of("CONSUMER_CREATED", "CONSUMER_CLOSED")),
        subscribe("a", "/queue/{x},/topic/{x}.#"), heard("CONSUMER_CREATED"), leave("a"), heard("CONSUMER_CLOSED"), sync("o"),
    ]),
    Case("a connection comes and goes, after what it had", [
        told(of("CONNECTION_CREATED")), subscribe("a", "/queue/{x}"),
        keep("o", "MESSAGE", number="_AMQ_ConnectionName", session="_AMQ_SessionName"),
        subscribe("p", TOLD, headers="selector:_AMQ_ConnectionName = '{number}'"), leave("a"),
        heard("CONSUMER_CLOSED", client="p", _AMQ_SessionName="{session}"),
        heard("CONNECTION_DESTROYED", client="p", _AMQ_SessionName="{session}", _AMQ_RemoteAddress="127.0.0.1"), sync("p"),
    ]),
    Case("it is a message like others: not persistent, with a time, for browsers of the log", [
        told("_AMQ_Address = '{x}' AND _AMQ_NotifTimestamp IS NOT NULL AND JMSDeliveryMode = 'NON_PERSISTENT'", of("ADDRESS_ADDED")),
        subscribe("l", "/stream/told.of", headers="selector:_AMQ_Address = '{x}'"),
        send("a", "/queue/{x}"), heard("ADDRESS_ADDED"), heard("ADDRESS_ADDED", client="l"), heard("BINDING_ADDED", client="l"), sync("l"),
    ]),
    Case("a slow consumer", [
        told("_AMQ_Address = 'slow.{x}'", of("CONSUMER_SLOW")),
        subscribe("a", "/queue/slow.{x}", id="s", headers="ack:client-individual\nprefetch-count:1"),
        *[send("b", "/queue/slow.{x}", str(n)) for n in range(2)],
        heard("CONSUMER_SLOW", _AMQ_ConsumerName="s", _AMQ_RoutingName="slow.{x}"),
    ], ("1.2",)),
    Case("a right that is missing", [
        told("_AMQ_Address = 'secret.{x}'", of("SECURITY_PERMISSION_VIOLATION")), say("a", "SEND", "/queue/secret.{x}"),
        refused("a", "not-permitted", "send"),
        heard("SECURITY_PERMISSION_VIOLATION", _AMQ_CheckType="SEND", _AMQ_User="alice",
              body="user 'alice' does not have the right 'send' on address 'secret.{x}'"),
    ], broker="users", login=OLGA),
    Case("a login that is none", [
        told(of("SECURITY_AUTHENTICATION_VIOLATION"), "_AMQ_User = '{x}'"), wrong_login(),
        heard("SECURITY_AUTHENTICATION_VIOLATION", _AMQ_RemoteAddress="127.0.0.1"),
    ], broker="users", login=OLGA),
    *[Case(f"who may not manage it is told nothing: {command} {destination}", [
        say("a", command, destination, headers="id:0"), refused("a", "not-permitted"),
    ], broker="users", login=OLGA) for command, destination in [
        ("SUBSCRIBE", TOLD), ("SUBSCRIBE", "/stream/told.of"), ("SEND", TOLD), ("SUBSCRIBE", f"/queue/{{x}},{TOLD}"),
    ]],
    Case("nor by a wildcard", [
        subscribe("a", "/topic/told.#"), told(of("CONNECTION_CREATED")), send("b", "/queue/{x}"), heard("CONNECTION_CREATED"), sync("a"),
    ], broker="users", login=OLGA),
    Case("each virtual host hears of its own", [
        told(of("ADDRESS_ADDED"), OWN), told(of("ADDRESS_ADDED"), OWN, client="g"),
        send("h", "/queue/{x}"), heard("ADDRESS_ADDED", client="g", _AMQ_Address="{x}"), sync("o"),
        send("p", "/queue/{x}.p"), heard("ADDRESS_ADDED", _AMQ_Address="{x}.p"), sync("g"),
    ], ("1.1", "1.2"), broker="hosts", login={"g": "host:green", "h": "host:green"}),
]  # fmt: skip

CONFIGURATIONS = {
    "told": f"{TOP}{LISTENER}{SLOW}",
    "users": f"{TOP}{LISTENER}{USERS}",
    "hosts": f"{TOP}{LISTENER}{HOSTS}",
}

test_over_tcp, test_over_websocket = played([replace(case, broker=case.broker or "told") for case in CASES])
