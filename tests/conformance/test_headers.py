"""Headers of a SEND and of its MESSAGE: what passes and what does not, the JMS bindings, text or bytes, wrong values."""

from __future__ import annotations

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

ESCAPING = ("1.1", "1.2")


def passes(headers: str, without: tuple[str, ...] = (), **values: str) -> list[Step]:
    """A SEND with these headers, as a consumer of its queue sees it."""
    return [
        send("s", "/queue/{x}", "1", headers),
        subscribe("a", "/queue/{x}"),
        hear("a", "MESSAGE", "1", without, **values),
        sync("a"),
    ]


def refuses(headers: str, code: str, *words: str) -> list[Step]:
    """A SEND with these headers, which has no effect; a wrong value within a run of good ones has none, either."""
    run = [say("b", "SEND", "/queue/{x}", str(n), "k:v") for n in range(3)]
    return [
        say("a", "SEND", "/queue/{x}", "bad", f"{headers}\nreceipt:r"), refused("a", code, *words), leave("a"), *run,
        say("b", "SEND", "/queue/{x}", "bad", f"k:v\n{headers}"), refused("b", code, *words), leave("b"), subscribe("c", "/queue/{x}"),
        *[hear("c", "MESSAGE", str(n)) for n in range(3)], sync("c"),
    ]  # fmt: skip


def says(client: str, frame: str) -> Step:
    """A frame of many lines; the receipt of the next `sync` comes behind it."""

    def step(play: Play) -> None:
        play.client(client).say(play.fill(frame).encode())

    return step


def is_arrival(play: Play) -> None:
    """The timestamp of a message is between two others that were sent before and after it."""
    assert int(play.words["before"]) <= int(play.words["at"]) <= int(play.words["after"])


BINDINGS = "correlation-id:c-1\ntype:order\nreply-to:/queue/back\npriority:7\npersistent:true\nexpires:4000000000000\ntimestamp:17"
CASES = [
    Case("the JMS bindings pass", passes(
        BINDINGS, correlation_id="c-1", type="order", reply_to="/queue/back", priority="7", persistent="true", expires="4000000000000",
        timestamp="17", redelivered="false",
    )),
    Case("what the sender leaves out stays out", passes("", without=("priority", "persistent", "expires", "correlation-id", "type"))),
    Case("a timestamp of the broker's where the sender gives none", [
        subscribe("a", "/queue/{x}"), *[send("s", "/queue/{x}", str(n)) for n in range(3)], keep("a", "MESSAGE", before="timestamp"),
        keep("a", "MESSAGE", at="timestamp"), keep("a", "MESSAGE", after="timestamp"), is_arrival,
    ]),
    Case("headers that are the broker's are written by the broker", passes(
        "subscription:mine\nmessage-id:mine\nredelivered:true\nJMSXDeliveryCount:9", subscription="0", redelivered="false",
        without=("JMSXDeliveryCount", "receipt", "transaction"),
    )),
    Case("a sender's ack header is not passed on", passes("ack:mine", without=("ack",))),
    Case("headers of users pass, whatever they are called", passes(
        "Colour:red\nx-thing:1\nJMSXState:2\n_own:3\nempty:\n.:dot", Colour="red", x_thing="1", JMSXState="2", _own="3", empty="",
        **{".": "dot"},
    )),
    Case("of a header given twice the first passes", passes("k:1\nk:2\nk:3", k="1")),
    Case("what other brokers call a property of AMQP passes as it is", passes(
        "content-type:text/plain\ncontent-encoding:gzip\namqp-message-id:7\nuser-id:me\napp-id:app\ndelivery-mode:2\ncluster-id:c",
        content_type="text/plain", content_encoding="gzip", amqp_message_id="7", user_id="me", app_id="app", cluster_id="c",
        **{"delivery-mode": "2"},
    )),
    Case("what other brokers transform passes as it is", passes("transformation:jms-xml\namq-msg-type:text", transformation="jms-xml")),
    Case("colon, line end and backslash pass", [
        subscribe("a", "/queue/{x}"), send("s", "/queue/{x}", "1", "k:a\\cb\\nc\\\\d"), hear("a", "MESSAGE", "1", k="a:b\nc\\d"),
    ], ESCAPING),
    Case("letters of any script pass", passes("straße:größe\n名:前", straße="größe", 名="前")),
    Case("a header of another version's escapes is text in 1.0", passes("k:a\\nb", k="a\nb"), ("1.0",)),
    Case("content-length goes to 1.1 and 1.2 always", passes("", content_length="1"), ESCAPING),
    Case("1.0: a text stays a text", passes("", without=("content-length",)), ("1.0",)),
    Case("1.0: bytes stay bytes", passes("content-length:1", content_length="1"), ("1.0",)),
    Case("a body with NULs, by its length", [
        subscribe("a", "/queue/{x}"), says("s", "SEND\ndestination:/queue/{x}\ncontent-length:3\n\na\0b\0"), hear("a", "MESSAGE", "a\0b"),
    ]),
    Case("redelivered is always there, the count from the second time on", [
        send("s", "/queue/{x}", "1"), subscribe("a", "/queue/{x}", headers="ack:client"),
        hear("a", "MESSAGE", "1", ("JMSXDeliveryCount",), redelivered="false"), leave("a"),
        subscribe("b", "/queue/{x}", headers="ack:client"),
        hear("b", "MESSAGE", "1", redelivered="true", JMSXDeliveryCount="2"), bye("b"), subscribe("c", "/queue/{x}"),
        hear("c", "MESSAGE", "1", redelivered="true", JMSXDeliveryCount="3"),
    ]),
    Case("a message-id is one message's alone", [
        subscribe("a", "/queue/{x}"), *[send("s", "/queue/{x}", str(n)) for n in range(2)], keep("a", "MESSAGE", before="message-id"),
        keep("a", "MESSAGE", at="message-id"), lambda play: differ(play, "before", "at"),
    ]),
    *[Case(f"not a value: {header}", refuses(header, code, *words)) for header, code, *words in [
        ("priority:10", "bad-priority", "priority", "'10'", "0 to 9"), ("priority:high", "bad-priority", "priority", "'high'", "0 to 9"),
        ("priority:", "bad-priority", "priority", "''"), ("persistent:maybe", "bad-persistent", "persistent", "'maybe'", "true and false"),
        ("expires:soon", "bad-expires", "expires", "'soon'", "ms since 1970"), ("expires:-5", "bad-expires", "expires", "'-5'"),
        ("expiration:soon", "bad-expires", "expiration", "'soon'", "ms from now"),
        ("AMQ_SCHEDULED_DELAY:x", "bad-schedule", "AMQ_SCHEDULED_DELAY", "'x'", "ms"),
        ("AMQ_SCHEDULED_TIME:x", "bad-schedule", "AMQ_SCHEDULED_TIME", "'x'", "ms"),
        ("JMSXGroupID:g\nJMSXGroupSeq:x", "bad-number", "JMSXGroupSeq", "'x'", "whole number"),
        ("JMSXGroupSeq:1.5", "bad-number", "JMSXGroupSeq", "'1.5'"), ("retain:yes", "bad-retain", "retain", "'yes'", "set and remove"),
        ("destination-type:QUEUE", "bad-destination-type", "destination-type", "'QUEUE'", "ANYCAST and MULTICAST"),
    ]],
    *[Case(f"not a value of a SUBSCRIBE: {header}", [
        say("a", "SUBSCRIBE", "/queue/{x}", headers=f"id:1\n{header}\nreceipt:r"), refused("a", code, *words), leave("a"),
        send("s", "/queue/{x}", "1"), subscribe("b", "/queue/{x}", headers="ack:client-individual"), hear("b", "MESSAGE", "1"), sync("b"),
    ]) for header, code, *words in [
        ("ack:maybe", "bad-ack", "ack", "'maybe'", "auto, client and client-individual"),
        ("no-local:maybe", "bad-boolean", "no-local", "'maybe'", "true and false"),
        ("browser:true\nbrowser-end:x", "bad-boolean", "browser-end", "'x'"), ("include-seq:", "bad-include-seq", "include-seq", "''"),
        ("include-seq:message-id", "bad-include-seq", "include-seq", "'message-id'"),
        ("browser:true\nfrom-seq:x", "bad-offset", "from-seq", "'x'"), ("x-stream-offset:soon", "bad-offset", "x-stream-offset", "'soon'"),
        ("credit:x", "bad-number", "credit", "'x'", "COUNT,BYTES"), ("exclusive:7", "bad-boolean", "exclusive", "'7'"),
        ("x-queue-type:fast", "bad-queue-type", "x-queue-type", "'fast'", "classic, quorum, stream"),
        ("selector:colour == 1", "selector-syntax", "selector", "position 9"),
    ]],
    Case("a run of group sequences with a wrong one in its midst", [
        subscribe("c", "/queue/{x}"), lambda play: sequences(play, "s"), *[hear("c", "MESSAGE", str(n)) for n in range(40)],
        lambda play: first_error(play, "s"), sync("c"),
    ], ("1.2",)),
]  # fmt: skip


def differ(play: Play, one: str, two: str) -> None:
    assert play.words[one] != play.words[two]


def sequences(play: Play, client: str) -> None:
    """Enough frames of one form for the broker to learn it, then one that is wrong."""
    frames = [
        f"SEND\ndestination:/queue/{play.words['x']}\nJMSXGroupID:g\nJMSXGroupSeq:{n}\n\n{n}\0"
        for n in range(40)
    ]
    wrong = f"SEND\ndestination:/queue/{play.words['x']}\nJMSXGroupID:g\nJMSXGroupSeq:forty\n\n40\0"
    play.client(client).say("".join([*frames, wrong]).encode())


def first_error(play: Play, client: str) -> None:
    assert play.client(client).expect("ERROR").value("code") == "bad-number"


test_over_tcp, test_over_websocket = played(CASES)
