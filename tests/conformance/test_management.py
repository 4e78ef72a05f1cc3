"""Management by messages on the wire: questions to the management address, and their answers, as users of Artemis send and read them."""

from __future__ import annotations

from dataclasses import replace

from tests.conformance.playing import played
from tests.conformance.script import Case, Step, bye, hear, refused, say, send, subscribe, sync
from tests.users import users

TOP = 'management-address = "activemq.management"\n'
LISTENER = '[[listener]]\nurl = "tcp://127.0.0.1:0"\n'
USERS = """
[[permission]]
match = "#"
send = ["*"]
consume = ["*"]
create-address = ["*"]
create-durable-queue = ["*"]
manage = ["operators"]
[[permission]]
match = "secret.#"
send = ["*"]
create-address = ["*"]
create-durable-queue = ["*"]
""" + users("alice:a", "olga:o@operators")
HOSTS = """
[[virtual-host]]
name = "green"
[[virtual-host]]
name = "localhost"
default = true
"""
ADDRESS = "activemq.management"
ANSWERS = "/queue/{x}.answers"


def asks(
    resource: str,
    attribute: str = "",
    *,
    do: str = "",
    headers: str = "",
    to: str = ADDRESS,
    client: str = "o",
) -> Step:
    """Asks for an attribute of a resource, or has an operation done."""
    what = f"_AMQ_OperationName:{do}" if do else f"_AMQ_Attribute:{attribute}"
    lines = f"_AMQ_ResourceName:{resource}\n{what}\nreply-to:{ANSWERS}\n{headers}"
    return say(client, "SEND", to, headers=lines)


def told(body: str | None, client: str = "o", **values: str) -> Step:
    return hear(client, "MESSAGE", body, _AMQ_OperationSucceeded="true", destination=ANSWERS, **values)


def fails(body: str | None, client: str = "o") -> Step:
    return hear(client, "MESSAGE", body, _AMQ_OperationSucceeded="false", destination=ANSWERS)


HEARS = subscribe("o", ANSWERS, id="answers")
FILLED = [send("a", "/queue/{x}", str(n)) for n in range(3)]

CASES = [
    Case("attributes of a queue", [
        HEARS, *FILLED,
        *[step for name, value in [
            ("messageCount", "3"), ("deliveringCount", "0"), ("scheduledCount", "0"), ("consumerCount", "0"), ("messagesAdded", "3"),
            ("messagesAcknowledged", "0"), ("name", '"{x}"'), ("address", '"{x}"'), ("routingType", '"ANYCAST"'), ("durable", "true"),
            ("paused", "false"), ("filter", "null"), ("maxConsumers", "-1"), ("enabled", "true"), ("autoCreated", "true"),
        ] for step in (asks("queue.{x}", name), told(f"[{value}]"))], sync("o"),
    ]),
    Case("attributes as JMX spells them", [
        HEARS, *FILLED, *[step for name, value in [("MessageCount", "3"), ("Address", '"{x}"'), ("ID", None)]
                          for step in (asks("queue.{x}", name), told(f"[{value}]") if value else told(None))],
        asks("address.{x}", "RoutingTypes"), told('[["ANYCAST"]]'), asks("broker", "Started"), told("[true]"),
        asks("queue.{x}", "NoSuchThing"), fails(None), sync("o"),
    ]),
    Case("what consumers have counts as there", [
        HEARS, *FILLED, subscribe("c", "/queue/{x}", id="c", headers="ack:client-individual\nprefetch-count:2"),
        hear("c", "MESSAGE"), hear("c", "MESSAGE"),
        asks("queue.{x}", "deliveringCount"), told("[2]"), asks("queue.{x}", "messageCount"), told("[3]"),
    ], ("1.1", "1.2")),
    Case("attributes of an address", [
        HEARS, *FILLED, asks("address.{x}", "queueNames"), told('[["{x}"]]'), asks("address.{x}", "routingTypes"), told('[["ANYCAST"]]'),
        asks("address.{x}", "messageCount"), told("[3]"), asks("address.{x}", "paging"), told("[false]"),
    ]),
    Case("attributes of the broker", [
        HEARS, asks("broker", "started"), told("[true]"),
        asks("broker", "addressNames"), hear("o", "MESSAGE", _AMQ_OperationSucceeded="true"),
        asks("broker", "nodeID"),
        fails("""["'broker' has no attribute 'nodeID'; there are addressCount, addressNames, connectionCount, queueCount, queueNames, """
              """started, totalConsumerCount, totalMessageCount, uptimeMillis, version"]"""),
    ]),
    Case("the answer repeats the correlation-id", [
        HEARS, asks("broker", "started", headers="correlation-id:one"), told("[true]", correlation_id="one"),
    ]),
    Case("questions are answered in their order, however the address is written", [
        HEARS, send("a", "/queue/{x}"),
        *[asks("queue.{x}", "messageCount", to=to) for to in (ADDRESS, f"/queue/{ADDRESS}", f"/topic/{ADDRESS}")],
        told("[1]"), told("[1]"), told("[1]"), sync("o"),
    ]),
    Case("nothing of a question is stored: the address is not made", [
        HEARS, asks("broker", "started"), told("[true]"), asks(f"address.{ADDRESS}", "messageCount"),
        fails(f"""["address '{ADDRESS}' does not exist"]"""),
    ]),
    Case("a queue is paused and goes on", [
        HEARS, subscribe("c", "/queue/{x}", id="c"), asks("queue.{x}", do="pause"), told(""), asks("queue.{x}", "paused"), told("[true]"),
        send("a", "/queue/{x}", "late"), sync("c"), asks("queue.{x}", do="resume"), told(""), hear("c", "MESSAGE", "late"),
    ]),
    Case("an address is blocked", [
        HEARS, send("a", "/queue/{x}"), asks("address.{x}", do="block"), told(""),
        say("a", "SEND", "/queue/{x}"), refused("a", "address-blocked"),
        asks("address.{x}", do="unblock"), told(""), send("b", "/queue/{x}"),
    ]),
    Case("a queue is emptied", [
        HEARS, *FILLED, asks("queue.{x}", do="removeAllMessages"), told("[3]"), send("a", "/queue/{x}"),
        asks("queue.{x}", "messageCount"), told("[1]"),
    ]),
    Case("a receipt is said when it is done", [
        *FILLED, say("o", "SEND", ADDRESS, headers="_AMQ_ResourceName:queue.{x}\n_AMQ_OperationName:removeAllMessages\nreceipt:done"),
        hear("o", "RECEIPT", receipt_id="done"), subscribe("c", "/queue/{x}", id="c"), sync("c"),
    ]),
    Case("an answer goes to a temporary destination that the question makes", [
        say("o", "SEND", ADDRESS, headers="_AMQ_ResourceName:broker\n_AMQ_Attribute:started\nreply-to:/temp-queue/answers"),
        subscribe("o", "/temp-queue/answers"), hear("o", "MESSAGE", "[true]", _AMQ_OperationSucceeded="true"),
    ]),
    *[Case(f"what is not there is said in the answer: {resource} {what}", [
        HEARS, send("a", "/queue/{x}"), asks(resource, **what), fails(text),
    ]) for resource, what, text in [
        ("queue.{x}.none", {"attribute": "messageCount"}, """["queue '{x}.none' does not exist"]"""),
        ("address.{x}.none", {"attribute": "messageCount"}, """["address '{x}.none' does not exist"]"""),
        ("acceptor.stomp", {"attribute": "started"},
         """["there is no resource 'acceptor.stomp'; there are broker, address.NAME and queue.NAME"]"""),
        ("queue.", {"attribute": "name"}, """["there is no resource 'queue.'; there are broker, address.NAME and queue.NAME"]"""),
        ("queue.{x}", {"do": "moveMessages"},
         """["'queue.{x}' has no operation 'moveMessages'; there are disable, enable, pause, removeAllMessages, resume"]"""),
        ("broker", {"do": "forceFailover"}, """["'broker' has no operation 'forceFailover'; there are none; the API has more"]"""),
    ]],
    *[Case(f"a question that is none is refused: {headers!r}", [
        say("o", "SEND", ADDRESS, headers=headers, body=body), refused("o", "bad-management"),
    ]) for headers, body in [
        ("", ""), ("_AMQ_ResourceName:broker", ""), ("_AMQ_Attribute:version", ""),
        ("_AMQ_ResourceName:broker\n_AMQ_Attribute:version\n_AMQ_OperationName:pause", ""),
        ("_AMQ_ResourceName:broker\n_AMQ_Attribute:version", "x" * 5000),
        ("_AMQ_ResourceName:broker\n_AMQ_Attribute:version", "x" * 200_000),
    ]],
    Case("without reply-to a failure is an ERROR", [
        say("o", "SEND", ADDRESS, headers="_AMQ_ResourceName:queue.{x}\n_AMQ_Attribute:messageCount\nreceipt:r"),
        refused("o", "no-such-queue", "does not exist"),
    ]),
    Case("a transaction has no questions", [
        say("o", "BEGIN", headers="transaction:t"),
        say("o", "SEND", ADDRESS, headers="transaction:t\n_AMQ_ResourceName:broker\n_AMQ_Attribute:version"),
        refused("o", "bad-management"),
    ]),
    Case("nor has a SEND to several destinations", [
        say("o", "SEND", f"/queue/{{x}},{ADDRESS}", headers="_AMQ_ResourceName:broker\n_AMQ_Attribute:version"),
        refused("o", "bad-management"),
    ]),
    Case("it needs the right to manage", [
        subscribe("a", ANSWERS), asks("broker", "version", client="a"),
        fails(f"""["user 'alice' does not have the right 'manage' on address '{ADDRESS}'"]""", client="a"),
        send("a", "/queue/{x}"), asks("queue.{x}", do="removeAllMessages", client="a"),
        hear("a", "MESSAGE", _AMQ_OperationSucceeded="false"), bye("a"), HEARS, asks("queue.{x}", "messageCount"), told("[1]"),
    ], broker="users", login={"o": "login:olga\npasscode:o", "a": "login:alice\npasscode:a"}),
    Case("and that on the address that it is about", [
        HEARS, send("a", "/queue/secret.{x}"),
        asks("queue.secret.{x}", do="removeAllMessages"),
        fails("""["user 'olga' does not have the right 'manage' on address 'secret.{x}'"]"""),
    ], broker="users", login={"o": "login:olga\npasscode:o", "a": "login:alice\npasscode:a"}),
    Case("each virtual host has its own", [
        HEARS, send("g", "/queue/{x}"), asks("queue.{x}", "messageCount"), fails("""["queue '{x}' does not exist"]"""),
        subscribe("h", ANSWERS), asks("queue.{x}", "messageCount", client="h"), told("[1]", client="h"),
        asks("broker", "connectionCount", client="h"), hear("h", "MESSAGE", _AMQ_OperationSucceeded="true"),
    ], ("1.1", "1.2"), broker="hosts", login={"g": "host:green", "h": "host:green"}),
]  # fmt: skip

CONFIGURATIONS = {
    "managed": f"{TOP}{LISTENER}",
    "users": f"{TOP}{LISTENER}{USERS}",
    "hosts": f"{TOP}{LISTENER}{HOSTS}",
}

test_over_tcp, test_over_websocket = played(
    [replace(case, broker=case.broker or "managed") for case in CASES]
)
