"""What reaches whom, and when: NACK and dead letters, windows, exclusive consumers, priorities, browsers, slow consumers."""

from __future__ import annotations

from tests.conformance.playing import played
from tests.conformance.script import (
    Case,
    Step,
    bye,
    gone,
    hear,
    keep,
    leave,
    refused,
    say,
    send,
    subscribe,
    sync,
)

CONFIGURATION = """
memory = true
[[listener]]
url = "tcp://127.0.0.1:0?stompConsumerWindowSize=3"

[[address-setting]]
match = "#"
max-delivery-attempts = 2
dead-letter-address = "dead"
auto-create-dead-letter-resources = true

[[address-setting]]
match = "slow.#"
slow-consumer-threshold = 1000
slow-consumer-check-period = 1
slow-consumer-policy = "KILL"

[[address-setting]]
match = "late.#"
redelivery-delay = 300

[[address-setting]]
match = "one.#"
default-max-consumers = 1

[[address-setting]]
match = "two.#"
default-consumers-before-dispatch = 2
"""

NACKING = ("1.1", "1.2")  # 1.0 has no NACK


def individual(client: str, destination: str = "/queue/{x}", headers: str = "", id: str = "0") -> Step:
    return subscribe(client, destination, id=id, headers=f"ack:client-individual\n{headers}")


def answer(client: str, command: str, headers: str = "", id: str = "0") -> Step:
    """ACK or NACK of the message that `taken` has kept last."""

    def step(play: object) -> None:
        version = play.version  # type: ignore[attr-defined]
        lines = (
            "id:{ack}"
            if version == "1.2"
            else "message-id:{ack}" + (f"\nsubscription:{id}" if version == "1.1" else "")
        )
        say(client, command, headers=f"{lines}\n{headers}")(play)  # type: ignore[arg-type]

    return step


def taken(client: str) -> Step:
    return keep(client, "MESSAGE", ack="message-id")  # our ack header has the same value


CASES = [
    Case("a NACK brings the message again, counted", [
        send("s", "/queue/{x}", "1"), individual("a"), taken("a"), answer("a", "NACK"),
        hear("a", "MESSAGE", "1", redelivered="true", JMSXDeliveryCount="2"),
    ], NACKING),
    Case("too many NACKs make a dead letter", [
        send("s", "/queue/{x}", "1", "colour:red"), individual("a"), taken("a"), answer("a", "NACK"), taken("a"), answer("a", "NACK"),
        sync("a"), subscribe("d", "/queue/dead::DLQ.{x}"),
        hear("d", "MESSAGE", "1", colour="red", original_destination="/queue/{x}", _AMQ_ORIG_ADDRESS="{x}", _AMQ_ORIG_QUEUE="{x}",
             **{"dead-letter-reason": "max-delivery-attempts"}),
    ], NACKING, broker="flow"),
    Case("a NACK that wants no redelivery", [
        *[send("s", "/queue/{x}", str(n)) for n in range(2)], individual("a"), taken("a"), answer("a", "NACK", "requeue:false"),
        taken("a"), answer("a", "NACK", "requeue:True"), hear("a", "MESSAGE", "1", redelivered="true"), sync("a"),
        subscribe("d", "/queue/dead::DLQ.{x}"), hear("d", "MESSAGE", "0", **{"dead-letter-reason": "rejected"}), sync("d"),
    ], NACKING, broker="flow"),
    Case("a NACK in a transaction that wants no redelivery", [
        send("s", "/queue/{x}", "1"), individual("a"), taken("a"), say("a", "BEGIN", headers="transaction:t"),
        answer("a", "NACK", "transaction:t\nrequeue:false"), say("a", "ABORT", headers="transaction:t"), sync("a"),
        say("a", "BEGIN", headers="transaction:t"), answer("a", "NACK", "transaction:t\nrequeue:false"), sync("a"),
        say("a", "COMMIT", headers="transaction:t"), sync("a"),
        subscribe("d", "/queue/dead::DLQ.{x}"), hear("d", "MESSAGE", "1", **{"dead-letter-reason": "rejected"}), sync("d"),
    ], NACKING, broker="flow"),
    Case("a NACK that says how long to wait", [
        *[send("s", "/queue/{x}", str(n)) for n in range(2)], individual("a"), taken("a"), answer("a", "NACK", "redelivery-delay:300"),
        taken("a"), answer("a", "ACK"), sync("a"), hear("a", "MESSAGE", "0", redelivered="true", JMSXDeliveryCount="2"),
    ], NACKING),
    Case("a NACK in a transaction that says how long to wait, after which the message is there at once again", [
        send("s", "/queue/{x}", "1"), individual("a"), taken("a"), say("a", "BEGIN", headers="transaction:t"),
        answer("a", "NACK", "transaction:t\nredelivery-delay:300"), say("a", "COMMIT", headers="transaction:t\nreceipt:c"),
        hear("a", "RECEIPT", receipt_id="c"), sync("a"), hear("a", "MESSAGE", "1", redelivered="true"),
    ], NACKING),
    Case("a NACK that waits for nothing where the settings would let it wait", [
        send("s", "/queue/late.{x}", "1"), individual("a", "/queue/late.{x}"), taken("a"), answer("a", "NACK", "redelivery-delay:0"),
        hear("a", "MESSAGE", "1", redelivered="true"),
    ], NACKING, broker="flow"),
    *[Case(f"a redelivery-delay that is no time: {delay}", [
        send("s", "/queue/{x}", "1"), individual("a"), taken("a"), answer("a", "NACK", f"redelivery-delay:{delay}"),
        refused("a", "bad-number", "redelivery-delay", delay),
    ], NACKING) for delay in ("soon", "-1", "1.5", "9" * 20)],
    Case("a requeue that is no truth", [
        send("s", "/queue/{x}", "1"), individual("a"), taken("a"), answer("a", "NACK", "requeue:perhaps"),
        refused("a", "bad-boolean", "requeue", "perhaps"),
    ], NACKING),
    Case("a NACK of a subscription with ack:client is cumulative", [
        *[send("s", "/queue/{x}", str(n)) for n in range(3)], subscribe("a", "/queue/{x}", headers="ack:client\nprefetch-count:2"),
        hear("a", "MESSAGE", "0"), taken("a"), answer("a", "NACK"), hear("a", "MESSAGE", "0", redelivered="true"),
        hear("a", "MESSAGE", "1", redelivered="true"), sync("a"),
    ], NACKING),
    Case("a message that waits for its redelivery holds up nobody", [
        *[send("s", "/queue/late.{x}", str(n)) for n in range(2)], individual("a", "/queue/late.{x}", "prefetch-count:1"), taken("a"),
        answer("a", "NACK"), hear("a", "MESSAGE", "1", redelivered="false"), leave("a"),
    ], NACKING, broker="flow"),
    Case("a lost connection gives back in order, before what is new", [
        *[send("s", "/queue/{x}", str(n)) for n in range(4)], individual("a", headers="prefetch-count:2"), hear("a", "MESSAGE", "0"),
        hear("a", "MESSAGE", "1"), say("a", "DISCONNECT", headers="receipt:r"), hear("a", "RECEIPT"), subscribe("b", "/queue/{x}"),
        hear("b", "MESSAGE", "0", redelivered="true"), hear("b", "MESSAGE", "1", redelivered="true"),
        hear("b", "MESSAGE", "2", redelivered="false"), hear("b", "MESSAGE", "3"),
    ]),
    *[Case(f"window: {header}", [
        *[send("s", "/queue/{x}", "ab") for _ in range(5)], individual("a", headers=header),
        *[hear("a", "MESSAGE", "ab") for _ in range(most)], *([sync("a")] if most < 5 else []),
    ]) for header, most in [
        ("prefetch-count:2", 2), ("activemq.prefetchSize:3", 3), ("prefetch-count:0", 1), ("activemq.prefetchSize:-1", 5),
        ("consumer-window-size:3", 2), ("consumer-window-size:0", 1), ("consumer-window-size:-1", 5), ("credit:2", 2), ("credit:1,5", 3),
        ("credit:4,1", 4), ("credit:0", 1), ("consumer-window-size:3\nprefetch-count:1", 1),
    ]],
    Case("the listener's window counts where no header says otherwise", [
        *[send("s", "/queue/{x}", "ab") for _ in range(5)], individual("a"), hear("a", "MESSAGE"), hear("a", "MESSAGE"), sync("a"),
        individual("b", headers="prefetch-count:3"), *[hear("b", "MESSAGE") for _ in range(3)], sync("b"),
    ], broker="flow"),
    Case("so many wait for a slow subscriber to a topic, the oldest go", [
        individual("a", "/topic/{x}", "prefetch-count:1\nactivemq.maximumPendingMessageLimit:2"),
        *[send("s", "/topic/{x}", str(n)) for n in range(5)], taken("a"), answer("a", "ACK"), hear("a", "MESSAGE", "3"),
        individual("b", "/topic/{x}"), send("s", "/topic/{x}", "5"), hear("b", "MESSAGE", "5"),
    ]),
    *[Case(f"any number may wait: activemq.maximumPendingMessageLimit:{limit}", [
        individual("a", "/topic/{x}", f"prefetch-count:5\nactivemq.maximumPendingMessageLimit:{limit}"),
        *[send("s", "/topic/{x}", str(n)) for n in range(20)],
        *[step for _ in range(19) for step in (taken("a"), answer("a", "ACK"))], hear("a", "MESSAGE", "19"), sync("a"),
    ]) for limit in ("0", "-1", "-7")],
    Case("an ACK frees credit, in a transaction too", [
        *[send("s", "/queue/{x}", str(n)) for n in range(3)], individual("a", headers="prefetch-count:1"), taken("a"), answer("a", "ACK"),
        hear("a", "MESSAGE", "1"), sync("a"),
    ]),
    *[Case(f"not a window: {header}", [say("a", "SUBSCRIBE", "/queue/{x}", headers=f"id:1\n{header}"), refused("a", "bad-number", *words)])
      for header, words in [
          ("activemq.maximumPendingMessageLimit:x", ("maximumPendingMessageLimit",)), ("prefetch-count:many", ("prefetch-count", "many")),
          ("consumer-window-size:-2", ("-2",)), ("credit:1,2,3", ("credit",)),
          ("credit:-1", ("COUNT,BYTES",)), ("activemq.priority:128", ("0 to 127",)), ("x-priority:high", ("x-priority", "high")),
          ("activemq.prefetchSize:", ("activemq.prefetchSize",)),
      ]],
    *[Case(f"exclusive consumer: {header}", [
        individual("b"), individual("a", headers=header), *[send("s", "/queue/{x}", str(n)) for n in range(2)], hear("a", "MESSAGE", "0"),
        hear("a", "MESSAGE", "1"), sync("b"), bye("a"), hear("b", "MESSAGE", "0"), hear("b", "MESSAGE", "1"),
    ]) for header in ("activemq.exclusive:true", "exclusive:true")],
    *[Case(f"consumer priority: {header}", [
        individual("b"), individual("a", headers=f"prefetch-count:2\n{header}"),
        *[send("s", "/queue/{x}", str(n)) for n in range(3)], hear("a", "MESSAGE", "0"), hear("a", "MESSAGE", "1"),
        hear("b", "MESSAGE", "2"),
    ]) for header in ("activemq.priority:5", "x-priority:1")],
    Case("lowest priority", [
        individual("b", headers="x-priority:-1"), individual("a", headers="prefetch-count:1"),
        *[send("s", "/queue/{x}", str(n)) for n in range(2)], hear("a", "MESSAGE", "0"), hear("b", "MESSAGE", "1"),
    ]),
    Case("no more consumers than the settings say", [
        subscribe("a", "/queue/one.{x}"), say("b", "SUBSCRIBE", "/queue/one.{x}", headers="id:1"), refused("b", "too-many-consumers"),
        bye("a"), subscribe("c", "/queue/one.{x}"), send("s", "/queue/one.{x}", "1"), hear("c", "MESSAGE", "1"),
    ], broker="flow"),
    Case("delivery begins when enough consumers are there", [
        subscribe("a", "/queue/two.{x}"), send("s", "/queue/two.{x}", "1"), sync("a"), send("s", "/queue/two.{x}", "2"),
        subscribe("b", "/queue/two.{x}"), hear("a", "MESSAGE"), hear("b", "MESSAGE"),
    ], broker="flow"),
    Case("a browser sees what waits and what is out, takes nothing, and is told the end", [
        *[send("s", "/queue/{x}", str(n), "colour:red") for n in range(3)], individual("a", headers="prefetch-count:1"),
        hear("a", "MESSAGE", "0"), subscribe("b", "/queue/{x}", headers="browser:true"),
        *[hear("b", "MESSAGE", str(n), colour="red", without=["browser"]) for n in range(3)],
        hear("b", "MESSAGE", "", browser="end", destination="/queue/{x}", subscription="0"), send("s", "/queue/{x}", "3"), sync("b"),
        bye("b"), bye("a"), subscribe("c", "/queue/{x}"), *[hear("c", "MESSAGE", str(n)) for n in range(4)],
    ]),
    Case("a browser of an empty queue is told the end at once", [
        subscribe("a", "/queue/{x}"), send("s", "/queue/{x}", "0"), hear("a", "MESSAGE"),
        subscribe("b", "/queue/{x}", headers="browser:true"), hear("b", "MESSAGE", browser="end"), sync("b"),
    ]),
    *[Case(f"who looks makes no queue: {text}", [
        say("a", "SUBSCRIBE", text, headers="id:1\nbrowser:true"), refused("a", "no-such-queue", "{x}"),
        say("b", "SUBSCRIBE", text, headers="id:1\nbrowser:true"), refused("b", "no-such-queue", "{x}"),
    ]) for text in ("/queue/{x}", "/queue/{x}::q", "{x}")],
    Case("a browser with a selector, from an offset", [
        *[send("s", "/queue/{x}", str(n), f"odd:{n % 2}") for n in range(6)],
        subscribe("b", "/queue/{x}", headers="browser:true\nselector:odd = 1\nfrom-seq:2"), hear("b", "MESSAGE", "3"),
        hear("b", "MESSAGE", "5"), hear("b", "MESSAGE", browser="end"),
    ], ("1.1", "1.2")),
    Case("a browser without an end goes on", [
        send("s", "/queue/{x}", "1"), subscribe("b", "/queue/{x}", headers="browser:true\nbrowser-end:false"), hear("b", "MESSAGE", "1"),
        sync("b"), subscribe("a", "/queue/{x}"), hear("a", "MESSAGE", "1"), send("s", "/queue/{x}", "2"), hear("a", "MESSAGE", "2"),
        hear("b", "MESSAGE", "2"), sync("b"),
    ]),
    Case("a browser from -1 sees only what is new", [
        send("s", "/queue/{x}", "1"), subscribe("b", "/queue/{x}", headers="browser:true\nbrowser-end:false\nfrom-seq:-1"),
        send("s", "/queue/{x}", "2"), hear("b", "MESSAGE", "2"), sync("b"),
    ]),
    Case("a browser has windows and acknowledges for credit", [
        *[send("s", "/queue/{x}", str(n)) for n in range(2)], individual("b", headers="browser:true\nprefetch-count:1"), taken("b"),
        sync("b"), answer("b", "ACK"), hear("b", "MESSAGE", "1"), sync("b"),
    ]),
    Case("a browser refuses nothing", [
        send("s", "/queue/{x}", "1"), individual("b", headers="browser:true\nprefetch-count:1"), taken("b"), answer("b", "NACK"),
        refused("b", "nack-on-browser"),
    ], NACKING),
    Case("a browser of a durable subscription", [
        subscribe("a", "/topic/{x}", headers="durable-subscription-name:d"), bye("a"), send("s", "/topic/{x}", "1"),
        subscribe("a", "/topic/{x}", headers="durable-subscription-name:d\nbrowser:true"), hear("a", "MESSAGE", "1"),
        hear("a", "MESSAGE", browser="end"), bye("a"), subscribe("a", "/topic/{x}", headers="durable-subscription-name:d"),
        hear("a", "MESSAGE", "1"),
    ], login={"a": "client-id:c-{x}"}),
    *[Case(f"not to be browsed: {text}", [
        say("a", "SUBSCRIBE", text, headers="id:1\nbrowser:true"), refused("a", "bad-browser"),
    ]) for text in ("/topic/{x}", "/queue/{x}.*", "/queue/{x},/queue/{x}.2", "/stream/{x}")],
    Case("browser is true or false", [
        say("a", "SUBSCRIBE", "/queue/{x}", headers="id:1\nbrowser:yes"), refused("a", "bad-boolean", "browser", "yes"),
    ]),
    Case("a slow consumer is cut off where the settings say so, and its messages go to others", [
        *[send("s", "/queue/slow.{x}", str(n)) for n in range(3)], individual("a", "/queue/slow.{x}", "prefetch-count:1"),
        hear("a", "MESSAGE", "0"), hear("a", "ERROR", code="slow-consumer"), gone("a"), subscribe("b", "/queue/slow.{x}"),
        hear("b", "MESSAGE", "0", redelivered="true"), hear("b", "MESSAGE", "1"),
    ], broker="flow"),
]  # fmt: skip

CONFIGURATIONS = {"flow": CONFIGURATION}

test_over_tcp, test_over_websocket = played(CASES)
