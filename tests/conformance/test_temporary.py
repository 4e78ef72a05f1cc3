"""Temporary destinations: made by their owner, known to others by another name, gone with the connection."""

from __future__ import annotations

from tests.conformance.playing import played
from tests.conformance.script import Case, Play, bye, hear, keep, refused, say, send, subscribe, sync


def bare_name(play: Play) -> None:
    """Keeps `{name}`: the reply-to without its prefix."""
    play.words["name"] = play.words["reply"].removeprefix("/temp-queue/")


CASES = [
    Case("request and reply", [
        subscribe("b", "/queue/{x}"), subscribe("a", "/temp-queue/answers"), send("a", "/queue/{x}", "?", "reply-to:/temp-queue/answers"),
        keep("b", "MESSAGE", to="reply-to"), send("b", "{to}", "!"),
        hear("a", "MESSAGE", "!", destination="{to}", subscription="0"), sync("a"),
    ]),
    Case("reply-to alone makes one", [
        subscribe("b", "/queue/{x}"), send("a", "/queue/{x}", "?", "reply-to:/temp-queue/late"), keep("b", "MESSAGE", to="reply-to"),
        send("b", "{to}", "!"), subscribe("a", "/temp-queue/late"), hear("a", "MESSAGE", "!"),
    ]),
    Case("a temporary topic", [
        subscribe("b", "/queue/{x}"), subscribe("a", "/temp-topic/news"), subscribe("a", "/temp-topic/news", id="1"),
        send("a", "/queue/{x}", "?", "reply-to:/temp-topic/news"), keep("b", "MESSAGE", to="reply-to"), send("b", "{to}", "!"),
        hear("a", "MESSAGE", "!"), hear("a", "MESSAGE", "!"), sync("a"),
    ]),
    Case("the owner may use both names", [
        subscribe("b", "/queue/{x}"), subscribe("a", "/temp-queue/mine"), send("a", "/queue/{x}", "?", "reply-to:/temp-queue/mine"),
        keep("b", "MESSAGE", to="reply-to"), send("a", "/temp-queue/mine", "1"), hear("a", "MESSAGE", "1", destination="/temp-queue/mine"),
        send("a", "{to}", "2"), hear("a", "MESSAGE", "2", destination="{to}"),
    ]),
    *[Case(f"a reply by the name that others give it: {prefix}", [
        subscribe("a", "/temp-queue/own"), send("a", "/queue/{x}", "ask", "reply-to:/temp-queue/own"), subscribe("b", "/queue/{x}"),
        keep("b", "MESSAGE", reply="reply-to"), bare_name, send("b", prefix + "{name}", "answer"), hear("a", "MESSAGE", "answer"),
    ]) for prefix in ("/remote-temp-queue/", "/reply-queue/", "/temp-queue/temporary_destination://queue/")],
    Case("one name, two connections: two queues", [
        subscribe("a", "/temp-queue/same"), subscribe("b", "/temp-queue/same"), send("a", "/temp-queue/same", "1"),
        hear("a", "MESSAGE", "1"), sync("b"),
    ]),
    Case("only the owner consumes", [
        subscribe("b", "/queue/{x}"), send("a", "/queue/{x}", "?", "reply-to:/temp-queue/mine"), keep("b", "MESSAGE", to="reply-to"),
        say("b", "SUBSCRIBE", "{to}", headers="id:9"), refused("b", "temporary-not-owned", "{to}"),
    ]),
    Case("nobody sends to what is not there", [
        say("a", "SEND", "/temp-queue/nothing"), refused("a", "no-such-temporary", "/temp-queue/nothing"),
    ]),
    Case("it goes with the connection", [
        subscribe("b", "/queue/{x}"), send("a", "/queue/{x}", "?", "reply-to:/temp-queue/mine"),
        keep("b", "MESSAGE", to="reply-to"), bye("a"),
        say("b", "SEND", "{to}", "!"), refused("b", "no-such-temporary"),
    ]),
    Case("who does not mind has it dropped", [
        subscribe("b", "/queue/{x}"), send("a", "/queue/{x}", "?", "reply-to:/temp-queue/mine"),
        keep("b", "MESSAGE", to="reply-to"),
        say("b", "SEND", "{to}", "1", headers="mandatory:false\nreceipt:1"), hear("b", "RECEIPT", receipt_id="1"),
        say("b", "SEND", "{to},/queue/{x}.2", "2", headers="mandatory:false"), bye("a"),
        say("b", "SEND", "{to}", "3", headers="mandatory:false\nreceipt:3"), hear("b", "RECEIPT", receipt_id="3"),
        say("b", "SEND", "{to},/queue/{x}.2", "4", headers="mandatory:false"),
        say("b", "BEGIN", headers="transaction:t"), say("b", "SEND", "{to}", "5", headers="mandatory:false\ntransaction:t"),
        say("b", "COMMIT", headers="transaction:t\nreceipt:t"), hear("b", "RECEIPT", receipt_id="t"),
        subscribe("c", "/queue/{x}.2"), hear("c", "MESSAGE", "2"), hear("c", "MESSAGE", "4"), sync("c"),
        say("b", "SEND", "{to}", "6", headers="mandatory:true"), refused("b", "no-such-temporary"),
    ]),
    Case("a transaction that is none is one also for what is dropped", [
        say("a", "SEND", "/temp-queue/nothing", headers="mandatory:false\ntransaction:none"), refused("a", "no-such-transaction"),
    ]),
    Case("it stays over UNSUBSCRIBE", [
        subscribe("a", "/temp-queue/q"), say("a", "UNSUBSCRIBE", headers="id:0\nreceipt:r"), hear("a", "RECEIPT"),
        send("a", "/temp-queue/q", "1"), subscribe("a", "/temp-queue/q"), hear("a", "MESSAGE", "1"),
    ]),
    Case("no wildcard reaches it", [
        subscribe("b", "/queue/temp-queue.#,/queue/#.{x}"), subscribe("c", "/topic/#", id="c"), subscribe("a", "/temp-queue/q"),
        send("a", "/temp-queue/q", "1"), hear("a", "MESSAGE", "1"), sync("b"),
    ]),
    Case("a reply in a transaction", [
        subscribe("b", "/queue/{x}"), subscribe("a", "/temp-queue/q"), send("a", "/queue/{x}", "?", "reply-to:/temp-queue/q"),
        keep("b", "MESSAGE", to="reply-to"), say("b", "BEGIN", headers="transaction:t"), send("b", "{to}", "!", "transaction:t"), sync("a"),
        say("b", "COMMIT", headers="transaction:t"), hear("a", "MESSAGE", "!"),
    ]),
    Case("a reply-to that is no temporary destination is the clients' own affair", [
        subscribe("b", "/queue/{x}"), send("a", "/queue/{x}", "?", "reply-to:/queue/{x}.back"),
        hear("b", "MESSAGE", "?", reply_to="/queue/{x}.back"),
    ]),
    Case("who passes a reply-to on does not change it", [
        subscribe("b", "/queue/{x}"), subscribe("c", "/queue/{x}.2"), send("a", "/queue/{x}", "?", "reply-to:/temp-queue/q"),
        keep("b", "MESSAGE", to="reply-to"), send("b", "/queue/{x}.2", "?", "reply-to:{to}"), hear("c", "MESSAGE", "?", reply_to="{to}"),
    ]),
    Case("a temporary queue has no queues of its own", [
        say("a", "SUBSCRIBE", "/temp-queue/a::b", headers="id:1"), refused("a", "bad-destination"),
    ]),
    Case("a temporary queue is no topic", [
        say("a", "SUBSCRIBE", "/temp-queue/a", headers="id:1\nsubscription-type:MULTICAST"), refused("a", "bad-destination-type"),
    ]),
    Case("no durable subscription on a temporary topic", [
        say("a", "SUBSCRIBE", "/temp-topic/a", headers="id:1\ndurable-subscriber-name:d"), refused("a", "durable-on-queue"),
    ], login={"": "client-id:{x}"}),
]  # fmt: skip

test_over_tcp, test_over_websocket = played(CASES, CASES[:4])
