"""Kinds of queues on the wire: ring, last value, non-destructive, exclusive, priority, purged, disabled; message groups; duplicates."""

from __future__ import annotations

from tests.conformance.playing import played
from tests.conformance.script import Case, Step, bye, hear, refused, say, send, subscribe, sync

CONFIGURATION = """
memory = true
[[listener]]
url = "tcp://127.0.0.1:0"

[[address-setting]]
match = "ring.#"
default-ring-size = 2

[[address-setting]]
match = "last.#"
default-last-value-key = "key"

[[address-setting]]
match = "named.#"
default-last-value-queue = true

[[address-setting]]
match = "kept.#"
default-non-destructive = true

[[address-setting]]
match = "keptlast.#"
default-non-destructive = true
default-last-value-key = "key"

[[address-setting]]
match = "alone.#"
default-exclusive-queue = true

[[address-setting]]
match = "purged.#"
default-purge-on-no-consumers = true
auto-delete-queues = false

[[address-setting]]
match = "first.#"
default-group-first-key = "JMSXGroupFirstForConsumer"

[[address-setting]]
match = "anew.#"
default-group-rebalance = true

[[address-setting]]
match = "forgetful.#"
id-cache-size = 2

[[address]]
name = "configured"
routing-types = ["ANYCAST"]
[[address.queue]]
name = "ring"
ring-size = 1
filter = "to = 'ring'"
[[address.queue]]
name = "off"
enabled = false
[[address.queue]]
name = "exclusive"
exclusive = true
filter = "to = 'exclusive'"
"""


def sends(destination: str, *bodies: str, headers: str = "") -> list[Step]:
    return [send("s", destination, body, headers) for body in bodies]


def hears(client: str, *bodies: str, **values: str) -> list[Step]:
    return [hear(client, "MESSAGE", body, **values) for body in bodies]


HALF = "ack:client-individual\nprefetch-count:1"
CASES = [
    Case("a ring keeps the newest", [
        *sends("/queue/ring.{x}", "1", "2", "3"), subscribe("a", "/queue/ring.{x}"), *hears("a", "2", "3"), sync("a"),
    ], broker="kinds"),
    Case("a last-value queue keeps the newest of each key", [
        *[send("s", "/queue/last.{x}", body, f"key:{key}") for body, key in (("1", "a"), ("2", "b"), ("3", "a"))],
        send("s", "/queue/last.{x}", "4"), subscribe("a", "/queue/last.{x}"), *hears("a", "2", "3", "4"), sync("a"),
    ], broker="kinds"),
    Case("Artemis's name for the key", [
        *[send("s", "/queue/named.{x}", body, "_AMQ_LVQ_NAME:a") for body in "12"], subscribe("a", "/queue/named.{x}"),
        *hears("a", "2", _AMQ_LVQ_NAME="a"), sync("a"),
    ], broker="kinds"),
    Case("a last value in delivery is not delivered again when a newer one has come", [
        send("s", "/queue/last.{x}", "1", "key:a"), subscribe("a", "/queue/last.{x}", headers=HALF), *hears("a", "1"),
        send("s", "/queue/last.{x}", "2", "key:a"), bye("a"), subscribe("b", "/queue/last.{x}"), *hears("b", "2"), sync("b"),
    ], broker="kinds"),
    Case("consuming from a non-destructive queue takes nothing", [
        *sends("/queue/kept.{x}", "1", "2"), subscribe("a", "/queue/kept.{x}"), *hears("a", "1", "2"),
        subscribe("b", "/queue/kept.{x}", headers="ack:client"), *hears("b", "1", "2"), *sends("/queue/kept.{x}", "3"),
        *hears("a", "3"), *hears("b", "3"), bye("a"), subscribe("c", "/queue/kept.{x}"), *hears("c", "1", "2", "3"), sync("c"),
    ], broker="kinds"),
    Case("non-destructive and last value: what a newcomer sees is the state", [
        *[send("s", "/queue/keptlast.{x}", body, f"key:{key}") for body, key in (("1", "a"), ("2", "b"), ("3", "a"))],
        subscribe("a", "/queue/keptlast.{x}"), *hears("a", "2", "3"), send("s", "/queue/keptlast.{x}", "4", "key:b"),
        *hears("a", "4"), subscribe("b", "/queue/keptlast.{x}"), *hears("b", "3", "4"), sync("b"),
    ], broker="kinds"),
    Case("an exclusive queue has one consumer at a time", [
        subscribe("a", "/queue/alone.{x}"), subscribe("b", "/queue/alone.{x}"), *sends("/queue/alone.{x}", "1", "2"),
        *hears("a", "1", "2"), sync("b"), bye("a"), *sends("/queue/alone.{x}", "3"), *hears("b", "3"),
    ], broker="kinds"),
    Case("priorities go first, in their order", [
        *[send("s", "/queue/{x}", f"{n}{p}", f"priority:{p}") for n, p in enumerate("0494")],
        send("s", "/queue/{x}", "4"), subscribe("a", "/queue/{x}", headers=""), *hears("a", "29", "14", "34", "4", "00"),
    ]),
    Case("a purged queue is empty when its last consumer leaves", [
        subscribe("a", "/queue/purged.{x}", headers=HALF), *sends("/queue/purged.{x}", "1", "2"), *hears("a", "1"), bye("a"),
        *sends("/queue/purged.{x}", "3"), subscribe("b", "/queue/purged.{x}"), *sends("/queue/purged.{x}", "4"), *hears("b", "4"),
        sync("b"),
    ], broker="kinds"),
    Case("a queue's own table says what it is", [
        *sends("/queue/configured", "1", "2", headers="to:ring"), *sends("/queue/configured", "3", "4", headers="to:exclusive"),
        subscribe("a", "/queue/configured::ring"), *hears("a", "2"), sync("a"), bye("a"), subscribe("b", "/queue/configured::exclusive"),
        subscribe("c", "/queue/configured::exclusive"), *hears("b", "3", "4"), bye("b"),
        *sends("/queue/configured", "5", headers="to:exclusive"), *hears("c", "5"), bye("c"),
        subscribe("d", "/queue/configured::off"), *sends("/queue/configured", "6"), sync("d"),
    ], ("1.2",), broker="kinds"),
    Case("a group stays with its consumer", [
        subscribe("a", "/queue/{x}"), subscribe("b", "/queue/{x}"), *sends("/queue/{x}", "1", headers="JMSXGroupID:g"),
        *sends("/queue/{x}", "2", headers="JMSXGroupID:h"), *sends("/queue/{x}", "3", "4", headers="JMSXGroupID:g"),
        hear("b", "MESSAGE", "1", JMSXGroupID="g"), *hears("b", "3", "4"), *hears("a", "2"), sync("a"), bye("b"),
        *sends("/queue/{x}", "5", headers="JMSXGroupID:g"), *hears("a", "5"),
    ]),
    Case("JMSXGroupSeq -1 ends a group", [
        subscribe("a", "/queue/{x}"), subscribe("b", "/queue/{x}"), *sends("/queue/{x}", "1", headers="JMSXGroupID:g"),
        *sends("/queue/{x}", "2", headers="JMSXGroupID:g\nJMSXGroupSeq:-1"), *sends("/queue/{x}", "3", "4", headers="JMSXGroupID:g"),
        *hears("b", "1", "2"), *hears("a", "3", "4"), sync("b"),
    ]),
    Case("the first message of a group for a consumer says so", [
        subscribe("a", "/queue/first.{x}"), *sends("/queue/first.{x}", "1", "2", headers="JMSXGroupID:g"),
        hear("a", "MESSAGE", "1", JMSXGroupFirstForConsumer="true"), hear("a", "MESSAGE", "2", without=["JMSXGroupFirstForConsumer"]),
    ], broker="kinds"),
    Case("groups are shared out anew when a consumer comes", [
        subscribe("a", "/queue/anew.{x}"), *[step for g in "gh" for step in sends("/queue/anew.{x}", g, headers=f"JMSXGroupID:{g}")],
        *hears("a", "g", "h"), subscribe("b", "/queue/anew.{x}"),
        *[step for g in "gh" for step in sends("/queue/anew.{x}", g, headers=f"JMSXGroupID:{g}")], hear("a", "MESSAGE"),
        hear("b", "MESSAGE"),
    ], broker="kinds"),
    Case("a duplicate is answered and dropped", [
        subscribe("a", "/queue/{x}"), *sends("/queue/{x}", "1", "2", headers="_AMQ_DUPL_ID:7"),
        *sends("/queue/{x}", "3", headers="_AMQ_DUPL_ID:8"), hear("a", "MESSAGE", "1", _AMQ_DUPL_ID="7"), *hears("a", "3"), sync("a"),
    ]),
    Case("many different ids, learned as a column", [
        subscribe("a", "/queue/{x}"), *[send("s", "/queue/{x}", str(n), f"_AMQ_DUPL_ID:{n % 30}") for n in range(60)],
        *hears("a", *map(str, range(30))), sync("a"),
    ], ("1.2",)),
    Case("only so many ids are remembered", [
        subscribe("a", "/queue/forgetful.{x}"), *[send("s", "/queue/forgetful.{x}", n, f"_AMQ_DUPL_ID:{n}") for n in "1231"],
        *hears("a", "1", "2", "3", "1"),
    ], broker="kinds"),
    Case("a duplicate in a transaction leaves the rest of it", [
        subscribe("a", "/queue/{x}"), *sends("/queue/{x}", "1", headers="_AMQ_DUPL_ID:7"), *hears("a", "1"),
        say("s", "BEGIN", headers="transaction:t"),
        *[send("s", "/queue/{x}", body, f"transaction:t\n_AMQ_DUPL_ID:{id}") for body, id in (("2", "7"), ("3", "8"), ("4", "8"))],
        say("s", "COMMIT", headers="transaction:t\nreceipt:c"), hear("s", "RECEIPT", receipt_id="c"), *hears("a", "3"), sync("a"),
    ]),
    Case("what was aborted was never seen", [
        subscribe("a", "/queue/{x}"), say("s", "BEGIN", headers="transaction:t"),
        *sends("/queue/{x}", "1", headers="transaction:t\n_AMQ_DUPL_ID:7"), say("s", "ABORT", headers="transaction:t"),
        *sends("/queue/{x}", "2", headers="_AMQ_DUPL_ID:7"), *hears("a", "2"),
    ]),
    Case("an exclusive header that is no truth", [
        say("a", "SUBSCRIBE", "/queue/{x}", headers="id:1\nexclusive:maybe"), refused("a", "bad-boolean", "exclusive", "maybe"),
    ]),
]  # fmt: skip

CONFIGURATIONS = {"kinds": CONFIGURATION}

test_over_tcp, test_over_websocket = played(CASES)
