"""Header values that are wrong: an ERROR names header, value and what is allowed; the frame has no effect; the connection goes on.

1.2 closes after each ERROR (STOMP 1.2, ERROR), 1.0 and 1.1 do not.
"""

from __future__ import annotations

from tests.conformance.playing import played
from tests.conformance.script import Case, Play, hear, refused, say, send, subscribe, sync

SENDS = [
    ("priority:x", "bad-priority", "0 to 9"),
    ("priority:10", "bad-priority", "0 to 9"),
    ("priority:-1", "bad-priority", "0 to 9"),
    ("priority:", "bad-priority", "0 to 9"),
    ("expires:soon", "bad-expires", "ms since 1970"),
    ("expires:-1", "bad-expires", "0 for never"),
    ("expires:1.5", "bad-expires", "ms since 1970"),
    ("expiration:x", "bad-expires", "ms from now"),
    ("persistent:perhaps", "bad-persistent", "true and false"),
    ("persistent:1", "bad-persistent", "true and false"),
    ("persistent:", "bad-persistent", "true and false"),
    ("retain:always", "bad-retain", "set and remove"),
    ("destination-type:QUEUE", "bad-destination-type", "ANYCAST and MULTICAST"),
    ("AMQ_SCHEDULED_DELAY:later", "bad-schedule", "a number of ms"),
    ("AMQ_SCHEDULED_TIME:noon", "bad-schedule", "a number of ms"),
    ("transaction:none", "no-such-transaction", "none"),
]
SUBSCRIBES = [
    ("ack:maybe", "bad-ack", "auto, client and client-individual"),
    ("ack:AUTO", "bad-ack", "auto, client and client-individual"),
    ("ack:", "bad-ack", "auto, client and client-individual"),
    ("selector:colour =", "selector-syntax", "position 9"),
    ("selector:", "selector-empty", "position 1"),
    ("prefetch-count:x", "bad-number", "from -1 on"),
    ("prefetch-count:-2", "bad-number", "from -1 on"),
    ("activemq.prefetchSize:x", "bad-number", "from -1 on"),
    ("consumer-window-size:x", "bad-number", "from -1 on"),
    ("credit:x", "bad-number", "COUNT,BYTES"),
    ("x-priority:x", "bad-number", "a number from"),
    ("activemq.priority:-1", "bad-number", "0 to 127"),
    ("browser:maybe", "bad-boolean", "true and false"),
    ("no-local:maybe", "bad-boolean", "true and false"),
    ("activemq.noLocal:maybe", "bad-boolean", "true and false"),
    ("exclusive:maybe", "bad-boolean", "true and false"),
    ("activemq.exclusive:maybe", "bad-boolean", "true and false"),
    ("durable:maybe", "bad-boolean", "true and false"),
    ("subscription-type:QUEUE", "bad-destination-type", "ANYCAST and MULTICAST"),
    ("transaction:t", "transaction-not-allowed", "SEND, ACK and NACK"),
]


def named(header: str) -> tuple[str, str]:
    """What the text must have in it: the header's name, and its value; of a selector the place is told instead."""
    name, _, value = header.partition(":")
    return name, "" if name == "selector" else value


def empty_receipt(play: Play) -> None:
    assert play.client("a").expect("RECEIPT").value("receipt-id") == ""


def only_the_error(play: Play) -> None:
    """No RECEIPT comes as well."""
    if play.version == "1.2":
        assert play.client("a").hear() is None
    else:
        sync("a")(play)


CASES = [
    *[Case(f"SEND with {header}", [
        subscribe("a", "/queue/{x}"), say("s", "SEND", "/queue/{x}", "bad", header),
        refused("s", code, *named(header), allowed), sync("a"), send("t", "/queue/{x}", "good"), hear("a", "MESSAGE", "good"),
    ]) for header, code, allowed in SENDS],
    *[Case(f"SEND with {header} after good ones", [
        subscribe("a", "/queue/{x}"), *[send("s", "/queue/{x}", str(n), good) for n in range(3)],
        say("s", "SEND", "/queue/{x}", "bad", header), refused("s", code, *named(header), allowed),
        *[hear("a", "MESSAGE", str(n)) for n in range(3)], sync("a"),
    ]) for header, good, code, allowed in [
        ("priority:x", "priority:5", "bad-priority", "0 to 9"),
        ("expires:soon", "expires:4000000000000", "bad-expires", "ms since 1970"),
        ("persistent:perhaps", "persistent:true", "bad-persistent", "true and false"),
    ]],
    *[Case(f"SUBSCRIBE with {header}", [
        say("a", "SUBSCRIBE", "/topic/{x}", headers=f"id:1\nreceipt:r\n{header}"), refused("a", code, *named(header), allowed),
        subscribe("a", "/topic/{x}", id="2"), send("s", "/topic/{x}", "1"), hear("a", "MESSAGE", "1", subscription="2"), sync("a"),
    ]) for header, code, allowed in SUBSCRIBES],
    Case("a browser's end that is neither", [
        say("a", "SUBSCRIBE", "/queue/{x}", headers="id:1\nbrowser:true\nbrowser-end:maybe"),
        refused("a", "bad-boolean", "browser-end", "maybe", "true and false"),
    ]),
    Case("ACK of what is no message", [
        say("a", "ACK", headers="message-id:x\nid:x\nsubscription:0"), refused("a", "unknown-message", "x"),
    ], ("1.0", "1.2")),
    Case("an empty receipt", [say("a", "SEND", "/queue/{x}", headers="receipt:"), empty_receipt]),
    Case("a receipt-id stands in the ERROR", [
        say("a", "SEND", "/queue/{x}", headers="priority:x\nreceipt:r 1"),
        hear("a", "ERROR", receipt_id="r 1", code="bad-priority", content_type="text/plain",
             message="header priority is 'x'; allowed are 0 to 9"),
        only_the_error,
    ]),
]  # fmt: skip

test_over_tcp, test_over_websocket = played(CASES)
