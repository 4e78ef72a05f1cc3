"""Durable subscriptions: their names in all spellings, who may take them up, what changes them, how they end."""

from __future__ import annotations

from tests.conformance.playing import played
from tests.conformance.script import Case, Step, bye, hear, leave, refused, say, send, subscribe, sync

NAMES = (
    "durable-subscriber-name",
    "durable-subscription-name",
    "activemq.subscriptionName",
    "activemq.subcriptionName",
)
CONFIGURATION = """
memory = true
[[listener]]
url = "tcp://127.0.0.1:0"

[[address-setting]]
match = "brief.#"
offline-durable-subscription-timeout = 0

[[address-setting]]
match = "many.#"
default-address-routing-type = "MULTICAST"

[[address]]
name = "waiting"
routing-types = ["MULTICAST"]
[[address.queue]]
name = "known.sub"
"""

NEW, OLD = {"subscription_created": "true"}, {"subscription_created": "false"}
IN_RABBITMQ = "durable:true\nauto-delete:false"
LOGIN = {"a": "client-id:{x}", "b": "client-id:{x}"}


def durable(
    client: str, headers: str = "durable-subscriber-name:d", destination: str = "/topic/{x}", **values: str
) -> Step:
    return subscribe(client, destination, headers=headers, **values)


def delete(client: str, headers: str) -> Step:
    def step(play: object) -> None:
        say(client, "UNSUBSCRIBE", headers=f"{headers}\nreceipt:deleted")(play)  # type: ignore[arg-type]
        hear(client, "RECEIPT", receipt_id="deleted")(play)  # type: ignore[arg-type]

    return step


CASES = [
    *[Case(f"{name} keeps what comes meanwhile", [
        durable("a", f"{name}:d", durable_name="d", **NEW), bye("a"), send("s", "/topic/{x}", "1"),
        durable("a", f"{name}:d", durable_name="d", **OLD), hear("a", "MESSAGE", "1"), sync("a"),
    ], login=LOGIN) for name in NAMES],
    Case("of several names the first in order counts", [
        durable("a", "activemq.subscriptionName:z\ndurable-subscription-name:y\ndurable-subscriber-name:x", durable_name="x", **NEW),
    ], login=LOGIN),
    Case("a name needs a client-id", [
        say("a", "SUBSCRIBE", "/topic/{x}", headers="id:1\ndurable-subscriber-name:d"), refused("a", "missing-client-id"),
        say("b", "UNSUBSCRIBE", headers="durable-subscriber-name:d"), refused("b", "missing-client-id"),
    ]),
    Case("a bare destination is a queue with a durable name, too", [
        say("a", "SUBSCRIBE", "{x}", headers="id:1\ndurable-subscriber-name:d"),
        refused("a", "durable-on-queue", "'{x}' is", "a queue", "/topic/", "default-address-routing-type"),
        send("s", "{x}", "1"), subscribe("b", "/queue/{x}"), hear("b", "MESSAGE", "1"),
    ], login=LOGIN),
    Case("a bare destination that is a topic already has durable subscriptions", [
        subscribe("t", "/topic/{x}"), durable("a", destination="{x}", **NEW), bye("a"), send("s", "/topic/{x}", "1"),
        durable("a", destination="{x}", **OLD), hear("a", "MESSAGE", "1"),
    ], login=LOGIN),
    Case("a bare destination whose settings make it a topic has durable subscriptions", [
        durable("a", destination="many.{x}", **NEW), bye("a"), send("s", "many.{x}", "1"), durable("a", destination="many.{x}", **OLD),
        hear("a", "MESSAGE", "1"),
    ], broker="durable", login=LOGIN),
    Case("queues are durable without a name", [
        say("a", "SUBSCRIBE", "/queue/{x}", headers="id:1\ndurable-subscriber-name:d"), refused("a", "durable-on-queue", "/queue/{x}"),
    ], login=LOGIN),
    Case("an active one is not taken over", [
        durable("a"), say("b", "SUBSCRIBE", "/topic/{x}", headers="id:1\ndurable-subscriber-name:d"), refused("b", "durable-in-use"),
        send("s", "/topic/{x}", "1"), hear("a", "MESSAGE", "1"),
    ], login=LOGIN),
    Case("the same name of another client-id is another one", [
        durable("a", **NEW), durable("b", **NEW), send("s", "/topic/{x}", "1"), hear("a", "MESSAGE", "1"), hear("b", "MESSAGE", "1"),
    ], login={"a": "client-id:{x}-1", "b": "client-id:{x}-2"}),
    *[Case(f"another {what} makes a new one", [
        durable("a", **NEW), bye("a"), send("s", "/topic/{x}", "1", "k:1"),
        durable("a", **NEW, headers=f"durable-subscriber-name:d\n{more}"),
        sync("a"), bye("a"), send("s", "/topic/{x}", "2", "k:1"), durable("a", **OLD, headers=f"durable-subscriber-name:d\n{more}"),
        hear("a", "MESSAGE", "2"),
    ], login=LOGIN) for what, more in (("selector", "selector:k = '1'"), ("no-local", "no-local:true"))],
    Case("another destination makes a new one", [
        durable("a", **NEW), bye("a"), send("s", "/topic/{x}", "1"), durable("a", destination="/topic/{x}.2", **NEW), sync("a"),
        send("s", "/topic/{x}", "2"), sync("a"), send("s", "/topic/{x}.2", "3"), hear("a", "MESSAGE", "3"),
    ], login=LOGIN),
    Case("UNSUBSCRIBE with the name ends it", [
        durable("a"), bye("a"), send("s", "/topic/{x}", "1"), delete("a", "durable-subscriber-name:d"), durable("a", **NEW), sync("a"),
    ], login=LOGIN),
    Case("UNSUBSCRIBE with the name closes an active subscriber first", [
        durable("a"), delete("b", "durable-subscriber-name:d"), send("s", "/topic/{x}", "1"), sync("a"), durable("b", **NEW),
    ], login=LOGIN),
    Case("UNSUBSCRIBE with the id alone keeps it", [
        durable("a"), delete("a", "id:0"), send("s", "/topic/{x}", "1"), durable("a", **OLD), hear("a", "MESSAGE", "1"),
    ], login=LOGIN),
    Case("UNSUBSCRIBE of a name that is not there", [
        say("a", "UNSUBSCRIBE", headers="durable-subscriber-name:d"), refused("a", "no-such-subscription", "'d'"),
    ], login=LOGIN),
    Case("a wildcard joins addresses that come while nobody is there", [
        durable("a", destination="/topic/{x}.#", **NEW), bye("a"), send("s", "/topic/{x}.new", "1"),
        durable("a", destination="/topic/{x}.#", **OLD),
        hear("a", "MESSAGE", "1", destination="/topic/{x}.new"),
    ], login=LOGIN),
    Case("several topics", [
        durable("a", destination="/topic/{x}.1,/topic/{x}.2", **NEW), bye("a"), send("s", "/topic/{x}.2", "2"),
        durable("a", destination="/topic/{x}.1,/topic/{x}.2", **OLD), hear("a", "MESSAGE", "2"),
    ], login=LOGIN),
    *[Case(f"as in RabbitMQ, {word}: the id is the name, of the user", [
        subscribe("a", "/topic/{x}", id="r{x}", headers=f"{word}:true\nauto-delete:false", **NEW), bye("a"), send("s", "/topic/{x}", "1"),
        subscribe("a", "/topic/{x}", id="r{x}", headers=f"{word}:true\nauto-delete:false", durable_name="r{x}", **OLD),
        hear("a", "MESSAGE", "1", subscription="r{x}"), delete("a", f"id:r{{x}}\n{word}:true\nauto-delete:false"),
        subscribe("a", "/topic/{x}", id="r{x}", headers=f"{word}:true\nauto-delete:false", **NEW),
    ]) for word in ("durable", "persistent")],
    Case("as in RabbitMQ: UNSUBSCRIBE without the headers keeps it", [
        subscribe("a", "/topic/{x}", id="r{x}", headers=IN_RABBITMQ), delete("a", "id:r{x}"), send("s", "/topic/{x}", "1"),
        subscribe("a", "/topic/{x}", id="r{x}", headers=IN_RABBITMQ, **OLD), hear("a", "MESSAGE", "1"),
    ]),
    *[Case(f"as in RabbitMQ: UNSUBSCRIBE with {word} alone ends it", [
        subscribe("a", "/topic/{x}", id="r{x}", headers=IN_RABBITMQ), delete("a", f"id:r{{x}}\n{word}:true"), send("s", "/topic/{x}", "1"),
        subscribe("a", "/topic/{x}", id="r{x}", headers=IN_RABBITMQ, **NEW), sync("a"),
    ]) for word in ("durable", "persistent")],
    Case("as in RabbitMQ: UNSUBSCRIBE with durable:true of one that is plain", [
        subscribe("a", "/topic/{x}", headers="durable:true"), delete("a", "id:0\ndurable:true"), send("s", "/topic/{x}", "1"), sync("a"),
    ]),
    Case("as in RabbitMQ: auto-delete alone is no durable one", [
        subscribe("a", "/topic/{x}", headers="durable:true"), bye("a"), send("s", "/topic/{x}", "1"),
        subscribe("a", "/topic/{x}", headers="durable:true"), sync("a"),
    ]),
    Case("as in RabbitMQ: users do not share names", [
        subscribe("a", "/topic/{x}", id="r{x}", headers=IN_RABBITMQ, **NEW),
        subscribe("b", "/topic/{x}", id="r{x}", headers=IN_RABBITMQ, **NEW),
    ], login={"a": "login:alice", "b": "login:bob"}),
    Case("a wrong word is named", [
        say("a", "SUBSCRIBE", "/topic/{x}", headers="id:1\ndurable:maybe\nauto-delete:false"),
        refused("a", "bad-boolean", "durable", "maybe"),
    ]),
    Case("one that nobody comes back to goes", [
        durable("a", destination="/topic/brief.{x}", **NEW), leave("a"), send("s", "/topic/brief.{x}", "1"),
        durable("b", destination="/topic/brief.{x}", **NEW), sync("b"),
    ], broker="durable", login=LOGIN),
    Case("a queue of its name was waiting for it", [
        send("s", "/topic/waiting", "1"), durable("a", "durable-subscriber-name:sub", "/topic/waiting"), hear("a", "MESSAGE", "1"),
    ], versions=("1.2",), broker="durable", login={"a": "client-id:known"}),
]  # fmt: skip

CONFIGURATIONS = {"durable": CONFIGURATION}

test_over_tcp, test_over_websocket = played(CASES, [case for case in CASES if len(case.versions) > 1][::3])
