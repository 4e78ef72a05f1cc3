"""Headers of other brokers on the wire: queues that are made as RabbitMQ's headers say, and what is not known here gets an ERROR."""

from __future__ import annotations

from tests.conformance.playing import played
from tests.conformance.script import Case, Step, bye, hear, refused, say, send, subscribe, sync
from tests.users import users

CONFIGURATION = """
[[listener]]
url = "tcp://127.0.0.1:0"

[[address-setting]]
match = "ring.#"
default-ring-size = 2
[[address-setting]]
match = "ever.#"
no-expiry = true

[[permission]]
match = "#"
send = ["*"]
consume = ["*"]
create-address = ["*"]
create-durable-queue = ["*"]
create-non-durable-queue = ["*"]
delete-durable-queue = ["makers"]
[[permission]]
match = "secret.#"
send = ["makers"]
create-address = ["*"]
create-durable-queue = ["*"]
""" + users("alice:a", "bob:b@makers")
LISTENER = '[[listener]]\nurl = "tcp://127.0.0.1:0"\n'
LOGGING = f'unknown-header-policy = "LOG"\n{LISTENER}'
BOB = {"": "login:bob\npasscode:b"}
ALICE = {"": "login:alice\npasscode:a"}


def made(*headers: str, id: str = "0") -> Step:
    """A queue made by a SUBSCRIBE with these headers, and its subscription."""
    return subscribe("m", "/queue/{x}", id=id, headers="\n".join(headers))


def nacked(client: str, destination: str = "/queue/{x}") -> list[Step]:
    from tests.conformance.test_flow import answer, individual, taken

    return [individual(client, destination), taken(client), answer(client, "NACK", "requeue:false")]


UNKNOWN = [
    "x-max-length-bytes:1000", "x-max-age:7D", "x-queue-leader-locator:balanced", "x-dead-letter-strategy:at-least-once",
    "x-consumer-timeout:1000", "x-delay:1000", "x-stream-max-segment-size-bytes:10", "x-initial-cluster-size:3", "x-ha-policy:all",
    "x-stream-filter:eu", "x-stream-match-unfiltered:true",
    "x-max-in-memory-length:5", "x-max-in-memory-bytes:5", "_AMQ_GROUP_ID:g", "_AMQ_GROUP_SEQUENCE:1",
    "x-deduplication-header:7", "_AMQ_SCHED_DELIVERY:5", "AMQ_SCHEDULER_ACTION:REMOVE", "activemq.retroactive:true",
]  # fmt: skip

WRONG = [
    ("x-max-length:many", "x-max-length"), ("x-max-length:-1", "x-max-length"), ("x-message-ttl:1.5", "x-message-ttl"),
    ("x-expires:0", "x-expires"), ("x-overflow:reject-publish", "drop-head"), ("x-max-priority:11", "x-max-priority"),
    ("x-single-active-consumer:yes", "x-single-active-consumer"), ("x-queue-mode:fast", "x-queue-mode"),
    ("x-dead-letter-exchange:orders", "amq.topic"), ("x-dead-letter-exchange:", "x-dead-letter-routing-key"),
    ("x-dead-letter-routing-key:k", "x-dead-letter-exchange"), ("x-delivery-limit:never", "x-delivery-limit"),
    ("x-dead-letter-exchange:\nx-dead-letter-routing-key:{x}", "x-dead-letter-routing-key"),
    ("x-expires:500\nauto-delete:true", "auto-delete"), ("x-queue-name:another", "x-queue-name"), ("x-queue-name:", "x-queue-name"),
    ("x-queue-type:Stream", "x-queue-type"), ("x-queue-type:", "x-queue-type"),
    ("auto-delete:yes", "auto-delete"), ("auto-delete:", "auto-delete"),
]  # fmt: skip

CODES = {"x-queue-type": "bad-queue-type"}

CASES = [
    *[Case(f"unknown on SUBSCRIBE: {header}", [
        say("a", "SUBSCRIBE", "/queue/{x}", headers=f"id:0\n{header}"), refused("a", "unknown-header", header.split(":")[0]),
    ]) for header in UNKNOWN],
    *[Case(f"unknown on SEND: {header}", [
        say("a", "SEND", "/queue/{x}", headers=header), refused("a", "unknown-header", header.split(":")[0]),
        subscribe("b", "/queue/{x}"), sync("b"),
    ]) for header in UNKNOWN],
    Case("unknown headers pass where the policy is LOG", [
        subscribe("a", "/queue/{x}", headers="x-max-age:7D"), send("s", "/queue/{x}", "1", "x-delay:1000"),
        hear("a", "MESSAGE", "1", x_delay="1000"),
    ], broker="logging"),
    Case("a sender's own headers pass", [
        subscribe("a", "/queue/{x}"), send("s", "/queue/{x}", "1", "x-colour:red\nx-death:2\nx-stream-filter-value:eu"),
        hear("a", "MESSAGE", "1"),
    ]),
    Case("Apache.NMS.STOMP's SUBSCRIBE", [
        subscribe("a", "/queue/{x}", headers="activemq.retroactive:false\nactivemq.dispatchAsync:true\n"
                                             "activemq.maximumPendingMessageLimit:0\ntransformation:jms-xml"),
        send("s", "/queue/{x}", "1"), hear("a", "MESSAGE", "1"),
    ]),
    *[Case(f"no value: {header}", [
        say("a", "SUBSCRIBE", "/queue/{x}", headers=f"id:0\n{header}"), refused("a", CODES.get(word, "bad-queue-argument"), word),
    ]) for header, word in WRONG],
    *[Case(f"no value in a SEND: {header}", [
        say("a", "SEND", "/queue/{x}", headers=header), refused("a", CODES.get(word, "bad-queue-argument"), word),
    ]) for header, word in WRONG],
    Case("x-max-length: the oldest go", [
        send("s", "/queue/{x}", "1", "x-max-length:2"), *[send("s", "/queue/{x}", str(n)) for n in (2, 3, 4)],
        subscribe("a", "/queue/{x}"), hear("a", "MESSAGE", "3"), hear("a", "MESSAGE", "4"), sync("a"),
    ]),
    Case("x-max-length of a topic subscription", [
        subscribe("a", "/topic/{x}", headers="ack:client-individual\nprefetch-count:1\nx-max-length:2"),
        *[send("s", "/topic/{x}", str(n)) for n in range(5)], hear("a", "MESSAGE", "0"), sync("a"),
    ]),
    Case("x-message-ttl: no message lives longer", [
        send("s", "/queue/{x}", "1", "x-message-ttl:60\npersistent:true"), send("s", "/queue/{x}", "2", "expires:99999999999999"),
        subscribe("e", "/queue/expired", headers="selector:_AMQ_ORIG_ADDRESS='{x}'"),
        *[hear("e", "MESSAGE", str(n), dead_letter_reason="expired") for n in (1, 2)],
        subscribe("a", "/queue/{x}"), sync("a"),
    ], broker="expiring"),
    Case("x-message-ttl is the queue's, not its topic's", [
        made("x-message-ttl:1"), subscribe("t", "/topic/{x}"), send("s", "/topic/{x}", "1"), hear("t", "MESSAGE", "1", without=["expires"]),
    ]),
    Case("x-dead-letter-exchange and routing key", [
        made("x-dead-letter-exchange:", "x-dead-letter-routing-key:dead.{x}"), bye("m"), send("s", "/queue/{x}", "1"), *nacked("a"),
        subscribe("d", "/queue/dead.{x}"), hear("d", "MESSAGE", "1", dead_letter_reason="rejected"),
    ], ("1.1", "1.2")),
    Case("x-dead-letter-exchange amq.topic", [
        send("s", "/queue/{x}", "1", "x-dead-letter-exchange:amq.topic\nx-dead-letter-routing-key:dead.{x}"), *nacked("a"),
        subscribe("d", "/queue/dead.{x}"), hear("d", "MESSAGE", "1", dead_letter_reason="rejected"),
    ], ("1.1", "1.2")),
    Case("x-single-active-consumer", [
        made("x-single-active-consumer:true"), subscribe("b", "/queue/{x}"), *[send("s", "/queue/{x}", str(n)) for n in range(3)],
        *[hear("m", "MESSAGE", str(n)) for n in range(3)], sync("b"),
    ]),
    Case("auto-delete: the queue goes with its last consumer, and what waits in it", [
        subscribe("m", "/queue/{x}", headers="auto-delete:true\nack:client-individual\nprefetch-count:1"),
        *[send("s", "/queue/{x}", str(n)) for n in range(3)], hear("m", "MESSAGE", "0"), bye("m"),
        say("a", "SUBSCRIBE", "/amq/queue/{x}", headers="id:0"), refused("a", "no-such-queue"),
    ]),
    Case("x-expires: unused for so long, it goes", [
        send("s", "/queue/{x}", "1", "x-expires:1"), subscribe("e", "/queue/{x}.later"),
        send("s", "/queue/{x}.later", "2", "AMQ_SCHEDULED_DELAY:100"), hear("e", "MESSAGE", "2"),
        say("a", "SUBSCRIBE", "/amq/queue/{x}", headers="id:0"), refused("a", "no-such-queue"),
    ]),
    Case("x-expires: not while it is used", [
        made("x-expires:1"), subscribe("e", "/queue/{x}.later"), send("s", "/queue/{x}.later", "2", "AMQ_SCHEDULED_DELAY:100"),
        hear("e", "MESSAGE", "2"), send("s", "/queue/{x}", "1"), hear("m", "MESSAGE", "1"),
    ]),
    Case("what is there by default may be asked for", [
        made("x-max-priority:10", "x-queue-mode:lazy", "x-overflow:drop-head", "x-queue-type:quorum", "durable:true", "auto-delete:false"),
        send("s", "/queue/{x}", "1"), hear("m", "MESSAGE", "1"),
    ]),
    Case("who comes later says the same, or nothing", [
        made("x-max-length:2", "x-message-ttl:60000"), subscribe("b", "/queue/{x}", headers="x-max-length:2"), subscribe("c", "/queue/{x}"),
        say("d", "SUBSCRIBE", "/queue/{x}", headers="id:0\nx-max-length:3"), refused("d", "queue-arguments-differ", "x-max-length"),
        say("e", "SEND", "/queue/{x}", headers="x-message-ttl:5"), refused("e", "queue-arguments-differ", "max-expiry-delay"),
    ]),
    Case("a queue keeps its arguments while it is empty and nobody is there", [
        made("x-max-length:2"), bye("m"), *[send("s", "/queue/{x}", str(n)) for n in range(4)],
        subscribe("a", "/queue/{x}"), hear("a", "MESSAGE", "2"), hear("a", "MESSAGE", "3"), sync("a"),
    ]),
    Case("a queue that is there without arguments gets none", [
        send("s", "/queue/{x}", "1"), say("a", "SUBSCRIBE", "/queue/{x}", headers="id:0\nx-max-length:3"),
        refused("a", "queue-arguments-differ", "3"),
    ]),
    Case("what the settings say anyway is no difference", [
        send("s", "/queue/ring.{x}", "1"), subscribe("a", "/queue/ring.{x}", headers="x-max-length:2"),
    ], broker="users", login=ALICE),
    Case("when the queue is gone, so are its arguments", [
        made("auto-delete:true", "x-max-length:1"), bye("m"), *[send("s", "/queue/{x}", str(n)) for n in range(3)],
        subscribe("b", "/queue/{x}"), *[hear("b", "MESSAGE", str(n)) for n in range(3)],
    ]),
    *[Case(f"not of {destination}: {header}", [
        say("a", "SUBSCRIBE", destination, headers=f"id:0\n{header}"), refused("a", "argument-not-allowed", header.split(":")[0]),
    ]) for destination, header in [
        ("/topic/{x}", "x-message-ttl:5"), ("/topic/{x}", "x-dead-letter-exchange:\nx-dead-letter-routing-key:k"),
        ("/stream/{x}", "x-max-length:5"), ("/queue/{x}.#", "x-max-length:5"), ("/temp-queue/{x}", "x-expires:5"),
        ("/temp-queue/{x}", "auto-delete:true"), ("/stream/{x}", "x-delivery-limit:1"), ("/stream/{x}", "x-single-active-consumer:true"),
    ]],
    Case("not of a topic's SEND", [
        say("a", "SEND", "/topic/{x}", headers="x-max-length:5"), refused("a", "argument-not-allowed", "x-max-length"),
    ]),
    Case("x-message-ttl where nothing may expire", [
        say("a", "SUBSCRIBE", "/queue/ever.{x}", headers="id:0\nx-message-ttl:5"), refused("a", "argument-not-allowed", "no-expiry"),
    ], broker="users", login=BOB),
    Case("who may not delete a queue makes none that deletes itself", [
        say("a", "SUBSCRIBE", "/queue/{x}", headers="id:0\nx-expires:5"), refused("a", "not-permitted", "delete-durable-queue"),
    ], broker="users", login=ALICE),
    Case("and who may does", [subscribe("a", "/queue/{x}", headers="x-expires:5000")], broker="users", login=BOB),
    Case("dead letters go where their maker may send", [
        say("a", "SEND", "/queue/{x}", headers="x-dead-letter-exchange:\nx-dead-letter-routing-key:secret.{x}"),
        refused("a", "not-permitted", "send"), subscribe("b", "/queue/{x}"), sync("b"),
    ], broker="users", login=ALICE),
    Case("x-queue-name: subscribers of a topic share a queue by name", [
        subscribe("a", "/topic/{x}", headers="x-queue-name:{x}.q"), subscribe("b", "/topic/{x}", headers="x-queue-name:{x}.q"),
        send("s", "/topic/{x}", "1"), send("s", "/topic/{x}", "2"), hear("a", "MESSAGE"), hear("b", "MESSAGE"), sync("a"), sync("b"),
    ]),
    *[Case(f"x-queue-name: {name} is no name", [
        say("a", "SUBSCRIBE", "/topic/{x}", headers=f"id:0\nx-queue-name:{name}"), refused("a", "bad-queue-argument", "x-queue-name"),
    ]) for name in ("{x}::q", "{x},q", "{x}.#")],
    Case("x-queue-name: in a SEND as its destination says", [
        send("s", "/queue/{x}", "1", "x-queue-name:{x}"), subscribe("a", "/queue/{x}"), hear("a", "MESSAGE", "1"),
        say("b", "SEND", "/topic/{x}", headers="x-queue-name:{x}"), refused("b", "bad-queue-argument", "x-queue-name"),
    ]),
    Case("x-queue-name: a queue that keeps what comes while nobody is there", [
        subscribe("a", "/topic/{x}", headers="x-queue-name:{x}.q\ndurable:true\nauto-delete:false\nack:client-individual"),
        send("s", "/topic/{x}", "1"), hear("a", "MESSAGE", "1"), bye("a"), send("s", "/topic/{x}", "2"),
        subscribe("b", "/topic/{x}", headers="x-queue-name:{x}.q"), hear("b", "MESSAGE", "1"), hear("b", "MESSAGE", "2"),
    ]),
]  # fmt: skip

CONFIGURATIONS = {
    "users": CONFIGURATION, "logging": LOGGING, "expiring": f'{LISTENER}[[address-setting]]\nmatch = "#"\nexpiry-address = "expired"\n',
}  # fmt: skip

test_over_tcp, test_over_websocket = played(CASES)
