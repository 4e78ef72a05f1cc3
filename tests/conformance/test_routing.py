"""Where messages go: prefixes, kinds, exact queues, wildcards, several destinations, diverts, what is made and goes by itself."""

from __future__ import annotations

from tests.conformance.playing import played
from tests.conformance.script import Case, Step, bye, hear, leave, refused, say, send, subscribe, sync

CONFIGURATION = """
memory = true
[[listener]]
url = "tcp://127.0.0.1:0?anycastPrefix=/queue/,jms.queue.;multicastPrefix=/topic/,jms.topic."

[[address-setting]]
match = "closed.#"
auto-create-addresses = false
auto-create-queues = false

[[address-setting]]
match = "broadcast.#"
default-address-routing-type = "MULTICAST"

[[address-setting]]
match = "history.#"
retroactive-message-count = 2

[[address]]
name = "closed.queue"
routing-types = ["ANYCAST"]
[[address.queue]]
name = "closed.queue"

[[address]]
name = "closed.topic"
routing-types = ["MULTICAST"]

[[address.queue]]
name = "q"
routing-type = "MULTICAST"

[[address]]
name = "both"
routing-types = ["ANYCAST", "MULTICAST"]
[[address.queue]]
name = "both"
routing-type = "ANYCAST"

[[address]]
name = "filtered"
routing-types = ["ANYCAST"]
[[address.queue]]
name = "red"
filter = "colour = 'red'"
[[address.queue]]
name = "blue"
filter = "colour = 'blue'"

[[divert]]
name = "copy"
address = "diverted.copy"
forwarding-address = "copies"

[[divert]]
name = "red only"
address = "diverted.exclusive"
forwarding-address = "reds"
filter = "colour = 'red'"
exclusive = true

[[divert]]
name = "as a topic"
address = "diverted.kind"
forwarding-address = "told.to.all"
routing-type = "MULTICAST"
"""

PLAIN = """
memory = true
[[listener]]
url = "tcp://127.0.0.1:0?anycastPrefix=;multicastPrefix="

[[address-setting]]
match = "#"
default-address-routing-type = "MULTICAST"
default-queue-routing-type = "MULTICAST"

[[address]]
name = "/queue/orders"
routing-types = ["ANYCAST"]
[[address.queue]]
name = "/queue/orders"
"""

VIRTUAL = """
memory = true
[[listener]]
url = "tcp://127.0.0.1:0?virtualTopicConsumerWildcards=Consumer.*.>%3B2"
[[address-setting]]
match = "VirtualTopic.#"
auto-delete-queues = false
"""


def asked(request: str, headers: str) -> list[Step]:
    """An operator's request, done."""
    return [
        say("o", "SEND", "stompbox.requests", headers=f"request:{request}\nrequest-id:1\n{headers}"),
        hear("o", "MESSAGE", status="ok"),
    ]


ENDED = [say("a", "UNSUBSCRIBE", headers="id:0\nreceipt:r"), hear("a", "RECEIPT")]

CASES = [
    Case("a queue's message goes to one consumer, a topic's to each", [
        subscribe("a", "/queue/{x}"), subscribe("b", "/topic/{x}"), subscribe("c", "/topic/{x}"),
        send("s", "/queue/{x}", "one"), send("s", "/topic/{x}", "all"),
        hear("a", "MESSAGE", "one", destination="/queue/{x}"), sync("a"),
        hear("b", "MESSAGE", "all", destination="/topic/{x}"), sync("b"), hear("c", "MESSAGE", "all"), sync("c"),
    ]),
    Case("each prefix of several means the same", [
        subscribe("a", "jms.queue.{x}"), send("s", "/queue/{x}", "1"), hear("a", "MESSAGE", "1", destination="/queue/{x}"),
        subscribe("b", "/topic/{x}"), send("s", "jms.topic.{x}", "2"), hear("b", "MESSAGE", "2", destination="jms.topic.{x}"),
    ], broker="routing"),
    Case("destination-type decides before the prefix", [
        subscribe("a", "/topic/{x}"), send("s", "/queue/{x}", "1", "destination-type:MULTICAST"),
        hear("a", "MESSAGE", "1", destination="/queue/{x}"),
    ]),
    Case("subscription-type decides before the prefix", [
        subscribe("a", "/queue/{x}", headers="subscription-type:MULTICAST"), send("s", "/topic/{x}", "1"), hear("a", "MESSAGE", "1"),
    ]),
    Case("destination-type must be one of two", [
        say("a", "SEND", "/queue/{x}", headers="destination-type:anycast"), refused("a", "bad-destination-type", "ANYCAST and MULTICAST"),
    ]),
    Case("a bare name is a queue where nothing says otherwise", [
        send("s", "{x}", "1"), subscribe("a", "/queue/{x}"), hear("a", "MESSAGE", "1", destination="{x}"),
    ]),
    Case("a prefix that nobody knows is part of a bare name", [
        send("s", "/bogus/{x}", "1"), subscribe("a", "/bogus/{x}"), hear("a", "MESSAGE", "1", destination="/bogus/{x}"),
        send("s", "/queue//bogus/{x}", "2"), hear("a", "MESSAGE", "2"),
    ]),
    Case("a bare name is what its address settings say", [
        subscribe("a", "broadcast.{x}"), subscribe("b", "broadcast.{x}"), send("s", "broadcast.{x}", "1"),
        hear("a", "MESSAGE", "1"), hear("b", "MESSAGE", "1"),
    ], broker="routing"),
    Case("a bare name goes to both kinds of an address that has both", [
        subscribe("a", "/queue/both"), subscribe("b", "/topic/both"), send("s", "both", "1"), hear("a", "MESSAGE", "1"),
        hear("b", "MESSAGE", "1"),
    ], broker="routing"),
    Case("one name as queue and topic: each keeps its own", [
        subscribe("a", "/queue/{x}"), subscribe("b", "/topic/{x}"), send("s", "/queue/{x}", "1"), hear("a", "MESSAGE", "1"), sync("b"),
        say("b", "UNSUBSCRIBE", headers="id:0\nreceipt:r"), hear("b", "RECEIPT"), send("s", "/queue/{x}", "2"), hear("a", "MESSAGE", "2"),
    ]),
    Case("without prefixes a name is as it stands", [
        subscribe("a", "/queue/{x}"), subscribe("b", "/queue/{x}"), subscribe("c", "{x}"), send("s", "/queue/{x}", "1"),
        hear("a", "MESSAGE", "1", destination="/queue/{x}"), hear("b", "MESSAGE", "1"), sync("c"),
        send("s", "/queue/orders", "2"), subscribe("d", "/queue/orders"), hear("d", "MESSAGE", "2", destination="/queue/orders"),
    ], broker="plain"),
    Case("address::queue is one exact queue of an address", [
        subscribe("a", "/queue/{x}::one"), subscribe("b", "/queue/{x}::two"), send("s", "/queue/{x}::two", "1"),
        hear("b", "MESSAGE", "1", destination="/queue/{x}::two"), sync("a"),
    ]),
    Case("a multicast queue is shared by those who name it", [
        subscribe("a", "/topic/{x}::shared"), leave("a"), send("s", "/topic/{x}", "1"), sync("s"),
        subscribe("c", "/topic/{x}::shared2"), subscribe("d", "/topic/{x}"), send("s", "/topic/{x}", "2"),
        hear("c", "MESSAGE", "2"), hear("d", "MESSAGE", "2"),
    ]),
    Case("an exact multicast queue alone gets what is sent to it", [
        subscribe("a", "/topic/{x}::q"), subscribe("b", "/topic/{x}"), send("s", "/topic/{x}::q", "1"),
        hear("a", "MESSAGE", "1"), sync("b"),
    ]),
    *[Case(f"address::queue is the queue that is there, whatever kind is asked for: {asked}", [
        send("s", there + "::q", "1"), subscribe("a", asked + "::q"), hear("a", "MESSAGE", "1", destination=there + "::q"),
        send("s", there, "2"), hear("a", "MESSAGE", "2"), send("s", asked + "::q", "3"), hear("a", "MESSAGE", "3"), sync("a"),
        subscribe("b", asked + "::q", headers=f"subscription-type:{kind}"), *ENDED,
        say("s", "SEND", there + "::q", "4", headers=f"destination-type:{kind}"), hear("b", "MESSAGE", "4"),
    ]) for there, asked, kind in (("/topic/{x}", "/queue/{x}", "ANYCAST"), ("/queue/{x}", "/topic/{x}", "MULTICAST"))],
    Case("of two queues of one name the kind that is asked for decides", [
        subscribe("a", "/queue/{x}::{x}.d"), subscribe("d", "/topic/{x}", headers="durable-subscription-name:d"),
        send("s", "/topic/{x}::{x}.d", "1"), hear("d", "MESSAGE", "1"), sync("a"),
        send("s", "/queue/{x}::{x}.d", "2"), hear("a", "MESSAGE", "2"), sync("d"),
    ], login={"d": "client-id:{x}"}),
    Case("a queue that is there gives its address no other kind", [
        subscribe("a", "/topic/closed.topic::q"), subscribe("b", "/queue/closed.topic::q"), *ENDED,
        send("s", "/queue/closed.topic::q", "1"), hear("b", "MESSAGE", "1"),
        say("s", "SEND", "/queue/closed.topic", "2"), refused("s", "kind-not-allowed"),
    ], broker="routing"),
    Case("of several anycast queues that take it one gets each message", [
        subscribe("r", "/queue/filtered::red"), subscribe("b", "/queue/filtered::blue"), send("s", "/queue/filtered", "1", "colour:blue"),
        hear("b", "MESSAGE", "1"), sync("r"), send("s", "/queue/filtered", "2", "colour:red"), hear("r", "MESSAGE", "2"), sync("b"),
    ], broker="routing"),
    *[Case(f"not a destination: {text!r}", [say("a", "SUBSCRIBE", text, headers="id:1"), refused("a", "bad-destination")])
      for text in ("/queue/", "/queue/a::", "/queue/a.*::b", "/queue/a..#", "/queue/a,,/queue/b", "/topic/a*")],
    Case("nothing is sent to a wildcard", [say("a", "SEND", "/topic/a.*"), refused("a", "bad-destination")]),
    Case("nothing is sent to a stream", [say("a", "SEND", "/stream/a"), refused("a", "bad-destination")]),
    Case("wildcards reach one word or any number, now and later", [
        subscribe("a", "/topic/{x}.*"), subscribe("b", "/topic/{x}.#"), send("s", "/topic/{x}.1", "1"), send("s", "/topic/{x}.1.2", "2"),
        hear("a", "MESSAGE", "1", destination="/topic/{x}.1"), sync("a"), hear("b", "MESSAGE", "1"), hear("b", "MESSAGE", "2"), sync("b"),
    ]),
    Case("wildcards reach queues, too", [
        send("s", "/queue/{x}.1", "1"), subscribe("a", "/queue/{x}.*"), hear("a", "MESSAGE", "1"), send("s", "/queue/{x}.2", "2"),
        hear("a", "MESSAGE", "2", destination="/queue/{x}.2"),
    ]),
    *[Case(f"the rest of a name, as others spell it: {rest}", [
        subscribe("a", "/topic/{x}." + rest), send("s", "/topic/{x}.1", "1"), hear("a", "MESSAGE", "1", destination="/topic/{x}.1"),
        send("s", "/topic/{x}.1.2", "2"), hear("a", "MESSAGE", "2"), send("s", "/topic/other.{x}", "3"), sync("a"),
    ]) for rest in (">", "**")],
    *[Case(f"RabbitMQ's exchange {name}: each subscriber of the key gets it", [
        subscribe("a", f"/exchange/{name}/{{x}}.k"), subscribe("b", f"/exchange/{name}/{{x}}.k"),
        subscribe("c", f"/exchange/{name}/{{x}}.other"), send("s", f"/exchange/{name}/{{x}}.k", "1"),
        hear("a", "MESSAGE", "1", destination=f"/exchange/{name}/{{x}}.k"), hear("b", "MESSAGE", "1"), sync("c"),
    ]) for name in ("amq.topic", "amq.direct")],
    Case("RabbitMQ's exchange amq.topic is what /topic/ is, with wildcards", [
        subscribe("a", "/exchange/amq.topic/{x}.*"), subscribe("b", "/exchange/amq.topic/{x}.#"), send("s", "/topic/{x}.k", "1"),
        hear("a", "MESSAGE", "1"), hear("b", "MESSAGE", "1"), send("s", "/exchange/amq.topic/{x}.k.l", "2"), hear("b", "MESSAGE", "2"),
        sync("a"),
    ]),
    *[Case(f"no such exchange: {name}", [say("a", command, name, headers="id:1"), refused("a", "bad-destination", "amq.topic")])
      for command, name in [
          ("SEND", "/exchange/orders/{x}"), ("SUBSCRIBE", "/exchange/orders"), ("SEND", "/exchange/amq.topic"),
          ("SUBSCRIBE", "/exchange/amq.headers/{x}"), ("SUBSCRIBE", "/exchange//{x}"),
      ]],
    Case("RabbitMQ's exchange amq.fanout: each subscriber gets it, whatever the key", [
        subscribe("a", "/exchange/amq.fanout"), subscribe("b", "/exchange/amq.fanout/{x}.*"), subscribe("c", "/topic/{x}.k"),
        send("s", "/exchange/amq.fanout/{x}.k", "1"), hear("a", "MESSAGE", "1", destination="/exchange/amq.fanout/{x}.k"),
        hear("b", "MESSAGE", "1"), sync("c"), send("s", "/exchange/amq.fanout", "2"), hear("a", "MESSAGE", "2"), hear("b", "MESSAGE", "2"),
    ]),
    Case("amq.direct has no wildcards", [
        say("a", "SUBSCRIBE", "/exchange/amq.direct/{x}.*", headers="id:1"), refused("a", "bad-destination", "wildcards"),
    ]),
    Case("a queue that must be there, as RabbitMQ names it", [
        say("a", "SEND", "/amq/queue/{x}"), refused("a", "no-such-queue", "/amq/queue/{x}"),
        say("a", "SUBSCRIBE", "/amq/queue/{x}", headers="id:1"), refused("a", "no-such-queue"),
        send("s", "/queue/{x}", "1"), subscribe("b", "/amq/queue/{x}"), hear("b", "MESSAGE", "1", destination="/queue/{x}"),
        send("s", "/amq/queue/{x}", "2"), hear("b", "MESSAGE", "2", destination="/amq/queue/{x}"),
    ]),
    Case("a queue of a virtual topic", [
        subscribe("a", "/queue/Consumer.A.VirtualTopic.{x}"), subscribe("b", "/queue/Consumer.A.VirtualTopic.{x}"),
        subscribe("c", "/queue/Consumer.B.VirtualTopic.{x}"), subscribe("d", "/topic/VirtualTopic.{x}"),
        *[send("s", "/topic/VirtualTopic.{x}", "1") for _ in range(2)],
        *[step for name, count in {"a": 1, "b": 1, "c": 2, "d": 2}.items() for step in (*[hear(name, "MESSAGE", "1")] * count, sync(name))],
        bye("a"), bye("b"), send("s", "/topic/VirtualTopic.{x}", "2"), subscribe("b", "/queue/Consumer.A.VirtualTopic.{x}"),
        hear("b", "MESSAGE", "2"),
    ], broker="virtual"),
    Case("an operator pauses an address", [
        subscribe("a", "/queue/{x}"), *asked("pause", "address:{x}"), send("s", "/queue/{x}", "1"), sync("a"),
        *asked("resume", "address:{x}"), hear("a", "MESSAGE", "1"),
    ]),
    Case("an operator pauses one queue", [
        subscribe("a", "/queue/{x}::1"), subscribe("b", "/queue/{x}::2"), *asked("pause", "address:{x}\nqueue:1"),
        send("s", "/queue/{x}::1", "1"), sync("a"), send("s", "/queue/{x}::2", "2"), hear("b", "MESSAGE", "2"),
        *asked("resume", "address:{x}\nqueue:1"), hear("a", "MESSAGE", "1"),
    ]),
    Case("an operator blocks an address", [
        send("s", "/queue/{x}", "1"), *asked("block", "address:{x}"), say("s", "SEND", "/queue/{x}", "2"),
        refused("s", "address-blocked", "{x}"), *asked("unblock", "address:{x}"), send("t", "/queue/{x}", "3"),
        subscribe("a", "/queue/{x}"), hear("a", "MESSAGE", "1"), hear("a", "MESSAGE", "3"), sync("a"),
    ]),
    Case("an operator disables a queue", [
        subscribe("a", "/queue/{x}"), *asked("disable", "address:{x}"), send("s", "/queue/{x}", "1"), sync("a"),
        *asked("enable", "address:{x}"), send("s", "/queue/{x}", "2"), hear("a", "MESSAGE", "2"),
    ]),
    *[Case(f"an operator names what is not there: {headers.partition(chr(10))[2] or 'address'}", [
        subscribe("a", "/queue/{x}"), say("o", "SEND", "stompbox.requests", headers=f"request:pause\nrequest-id:1\n{headers}"),
        hear("o", "MESSAGE", status="error", code=code),
    ]) for headers, code in (("address:no.{x}", "no-such-address"), ("address:{x}\nqueue:no", "no-such-queue"))],
    Case("several destinations in one SEND", [
        subscribe("a", "/queue/{x}"), subscribe("b", "/topic/{x}"), send("s", "/queue/{x},/topic/{x}", "1"),
        hear("a", "MESSAGE", "1", destination="/queue/{x},/topic/{x}"), sync("a"), hear("b", "MESSAGE", "1"), sync("b"),
    ]),
    Case("several destinations in one SUBSCRIBE, each once", [
        subscribe("a", "/queue/{x}.1,/topic/{x}.2, /queue/{x}.1"), send("s", "/queue/{x}.1", "1"),
        hear("a", "MESSAGE", "1", subscription="0"),
        send("s", "/topic/{x}.2", "2"), hear("a", "MESSAGE", "2", subscription="0"), sync("a"),
    ]),
    Case("several destinations in a transaction", [
        subscribe("a", "/queue/{x},/topic/{x}"), say("s", "BEGIN", headers="transaction:t"),
        send("s", "/queue/{x},/topic/{x}", "1", "transaction:t"), sync("a"), say("s", "COMMIT", headers="transaction:t"),
        hear("a", "MESSAGE", "1"), hear("a", "MESSAGE", "1"), sync("a"),
    ]),
    Case("an address that may not be made", [
        say("a", "SEND", "/queue/closed.{x}"), refused("a", "no-such-address", "closed.{x}"),
        say("b", "SUBSCRIBE", "/topic/closed.{x}", headers="id:1"), refused("b", "no-such-address"),
    ], broker="routing"),
    Case("a queue that may not be made", [
        say("a", "SUBSCRIBE", "/queue/closed.queue::{x}", headers="id:1"), refused("a", "no-such-queue", "{x}"),
    ], broker="routing"),
    Case("a kind that an address does not have", [
        say("a", "SEND", "/queue/closed.topic"), refused("a", "kind-not-allowed", "MULTICAST", "ANYCAST"),
        say("b", "SUBSCRIBE", "/topic/closed.queue", headers="id:1"), refused("b", "kind-not-allowed"),
    ], broker="routing"),
    Case("a divert copies", [
        subscribe("a", "/queue/copies"), subscribe("b", "/queue/diverted.copy"), send("s", "/queue/diverted.copy", "1"),
        hear("a", "MESSAGE", "1", destination="/queue/diverted.copy"), hear("b", "MESSAGE", "1"),
    ], broker="routing"),
    Case("an exclusive divert takes what its filter takes", [
        subscribe("a", "/queue/reds"), subscribe("b", "/queue/diverted.exclusive"),
        send("s", "/queue/diverted.exclusive", "1", "colour:red"),
        send("s", "/queue/diverted.exclusive", "2", "colour:blue"), hear("a", "MESSAGE", "1"), sync("a"),
        hear("b", "MESSAGE", "2"), sync("b"),
    ], broker="routing"),
    Case("a divert changes the kind", [
        subscribe("a", "/topic/told.to.all"), subscribe("b", "/topic/told.to.all"), send("s", "/queue/diverted.kind", "1"),
        hear("a", "MESSAGE", "1"), hear("b", "MESSAGE", "1"),
    ], broker="routing"),
    Case("a retroactive address gives newcomers its latest messages", [
        *[send("s", "/topic/history.{x}", str(n)) for n in range(4)], subscribe("a", "/topic/history.{x}"),
        hear("a", "MESSAGE", "2"), hear("a", "MESSAGE", "3"), sync("a"), send("s", "/topic/history.{x}", "4"), hear("a", "MESSAGE", "4"),
    ], broker="routing"),
    Case("a retained message comes first", [
        send("s", "/topic/{x}", "1", "retain:set"), send("s", "/topic/{x}", "2"), subscribe("a", "/topic/{x}"), hear("a", "MESSAGE", "1"),
        send("s", "/topic/{x}", "3"), hear("a", "MESSAGE", "3"), sync("a"),
    ]),
    Case("the latest retained message counts, one for each address of a wildcard", [
        send("s", "/topic/{x}.a", "1", "retain:set"), send("s", "/topic/{x}.a", "2", "retain:set"),
        send("s", "/topic/{x}.b", "3", "retain:set"),
        subscribe("a", "/topic/{x}.*"), hear("a", "MESSAGE", "2"), hear("a", "MESSAGE", "3"), sync("a"),
    ]),
    Case("retain:remove forgets", [
        send("s", "/topic/{x}", "1", "retain:set"), send("s", "/topic/{x}", "2", "retain:remove"), subscribe("a", "/topic/{x}"), sync("a"),
    ]),
    Case("retain is one of two", [say("a", "SEND", "/topic/{x}", headers="retain:yes"), refused("a", "bad-retain", "set and remove")]),
    Case("a retained message can be acknowledged", [
        send("s", "/topic/{x}", "1", "retain:set"), subscribe("a", "/topic/{x}", headers="ack:client-individual"),
        hear("a", "MESSAGE", "1"), bye("a"), subscribe("b", "/topic/{x}"), hear("b", "MESSAGE", "1"),
    ]),
    Case("include-seq is the offset in the log", [
        subscribe("a", "/topic/{x}", headers="include-seq:place"), *[send("s", "/topic/{x}", str(n)) for n in range(2)],
        hear("a", "MESSAGE", "0", place="0"), hear("a", "MESSAGE", "1", place="1"),
    ]),
    Case("an offset begins one log", [
        say("a", "SUBSCRIBE", "/stream/{x},/stream/{x}.2", headers="id:1\nfrom-seq:0"), refused("a", "bad-offset", "from-seq"),
    ]),
    Case("a wrong offset is named", [
        say("a", "SUBSCRIBE", "/stream/{x}", headers="id:1\nx-stream-offset:soon"), refused("a", "bad-offset", "x-stream-offset", "soon"),
    ]),
    Case("a queue that a frame made goes with its last consumer and comes again", [
        subscribe("a", "/queue/{x}"), bye("a"), send("s", "/queue/{x}", "1"), subscribe("b", "/queue/{x}"), hear("b", "MESSAGE", "1"),
    ]),
]  # fmt: skip

CONFIGURATIONS = {"routing": CONFIGURATION, "plain": PLAIN, "virtual": VIRTUAL}

test_over_tcp, test_over_websocket = played(CASES)
