"""`dialect=activemq` and `dialect=rabbitmq`, effect by effect; each is an option of its own, and off without it."""

from __future__ import annotations

import pytest

from stompbox.config import Dialect, parse_listener
from stompbox.config.options import DIALECTS
from tests.conformance.playing import played
from tests.conformance.script import Case, Play, Step, hear, keep, leave, say, send, subscribe, sync

ACTIVEMQ = """
memory = true
[[listener]]
url = "tcp://127.0.0.1:0?dialect=activemq"
"""
RABBITMQ = """
memory = true
[[listener]]
url = "tcp://127.0.0.1:0?dialect=rabbitmq"
[[address-setting]]
match = "#"
max-delivery-attempts = 2
"""
ALONE = """
memory = true
[[listener]]
url = "tcp://127.0.0.1:0?closeAfterOrdinaryErrors=false;requirePrefix=true;nackPolicy=dead-letter;\
countControlBodies=false;browsersMakeQueues=true;requireIds=false;nackInEveryVersion=true;subscribeReplyTo=true"
"""
NACKS = ("1.1", "1.2")


def ack_with_length(client: str) -> Step:
    """ACK of the message that comes next with a content-length and no body: what a client sends that copies the headers of a MESSAGE."""

    def step(play: Play) -> None:
        named = {"1.0": "message-id:{told}", "1.1": "subscription:0\nmessage-id:{told}", "1.2": "id:{told}"}
        keep(client, "MESSAGE", told="ack" if play.version == "1.2" else "message-id")(play)
        say(client, "ACK", headers=f"{named[play.version]}\ncontent-length:8511\nreceipt:acked")(play)

    return step


UNCOUNTED = [
    subscribe("a", "/queue/{x}", headers="ack:client"), send("s", "/queue/{x}", "1"), ack_with_length("a"),
    hear("a", "RECEIPT", receipt_id="acked"), send("s", "/queue/{x}", "2\0", "content-length:2"), hear("a", "MESSAGE", "2\0"), sync("a"),
]  # fmt: skip
LOOKING = [
    say("b", "SUBSCRIBE", "/queue/{x}", headers="id:0\nbrowser:true\nack:client"), hear("b", "MESSAGE", "", browser="end"), sync("b"),
    send("s", "/queue/{x}", "1"), sync("b"), subscribe("a", "/queue/{x}"), hear("a", "MESSAGE", "1"),
]  # fmt: skip


def nack(client: str, headers: str = "") -> Step:
    """NACK of the message that comes next."""

    def step(play: Play) -> None:
        if play.version == "1.2":
            keep(client, "MESSAGE", told="ack")(play)
            say(client, "NACK", headers=f"id:{{told}}\n{headers}")(play)
        else:
            keep(client, "MESSAGE", told="message-id")(play)
            subscription = "subscription:0\n" if play.version == "1.1" else ""
            say(client, "NACK", headers=f"{subscription}message-id:{{told}}\n{headers}")(play)

    return step


def stays_open(client: str, code: str) -> Step:
    """An ERROR, after which the connection goes on in every version."""

    def step(play: Play) -> None:
        hear(client, "ERROR", code=code)(play)
        sync(client)(play)

    return step


def answers_without_ids(client: str, name: str) -> Step:
    """ACK and NACK that name their message alone, or with a subscription that is none."""

    def step(play: Play) -> None:
        header, key = ("ack", "id") if play.version == "1.2" else ("message-id", "message-id")
        for command, more in (("NACK", ""), ("NACK", "subscription:nowhere\n"), ("ACK", "")):
            keep(client, "MESSAGE", told=header)(play)
            say(client, command, headers=f"{key}:{{told}}\n{more}receipt:{name}")(play)
            hear(client, "RECEIPT", receipt_id=name)(play)

    return step


def without_subscribe(broker: str) -> Case:
    """Two questions with one reply-to, and one in a transaction."""
    ask = "reply-to:/temp-queue/q"
    return Case(f"{broker}: an answer comes without a SUBSCRIBE", [
        subscribe("b", "/queue/{x}"), send("a", "/queue/{x}", "1", ask), keep("b", "MESSAGE", to="reply-to"), send("b", "{to}", "1!"),
        hear("a", "MESSAGE", "1!", subscription="/temp-queue/q", without=("ack",)),
        send("a", "/queue/{x}", "2", ask), hear("b", "MESSAGE", "2", reply_to="{to}"), send("b", "{to}", "2!"), hear("a", "MESSAGE", "2!"),
        say("a", "BEGIN", headers="transaction:t"), send("a", "/queue/{x}", "3", "reply-to:/temp-queue/r\ntransaction:t"),
        say("a", "COMMIT", headers="transaction:t"), keep("b", "MESSAGE", to="reply-to"), send("b", "{to}", "3!"),
        hear("a", "MESSAGE", "3!", subscription="/temp-queue/r"), sync("a"),
        say("a", "UNSUBSCRIBE", headers="id:/temp-queue/r\nreceipt:u"), hear("a", "RECEIPT", receipt_id="u"),
        send("b", "{to}", "4!"), sync("a"),
    ], broker=broker)  # fmt: skip


BOTH = [
    Case("an ordinary error leaves the connection open: {broker}", [
        say("a", "SUBSCRIBE", "/queue/{x}", headers="id:0\nack:no"), stays_open("a", "bad-ack"),
        subscribe("a", "/queue/{x}"), send("a", "/queue/{x}", "1"), hear("a", "MESSAGE", "1"),
    ]),
]  # fmt: skip

CASES = [
    Case("activemq: a NACK makes a dead letter at once", [
        subscribe("d", "/queue/DLQ"), subscribe("a", "/queue/{x}", headers="ack:client"), send("s", "/queue/{x}", "1"), nack("a"),
        hear("d", "MESSAGE", "1", dead_letter_reason="rejected"), sync("a"),
    ], versions=NACKS, broker="activemq"),
    Case("activemq: a queue of a virtual topic", [
        subscribe("a", "/queue/Consumer.A.VirtualTopic.{x}"), subscribe("b", "/queue/Consumer.B.VirtualTopic.{x}"),
        send("s", "/topic/VirtualTopic.{x}", "1"), hear("a", "MESSAGE", "1"), hear("b", "MESSAGE", "1"),
    ], broker="activemq"),
    Case("activemq: a bare name is a queue", [
        subscribe("a", "{x}"), send("s", "/queue/{x}", "1"), hear("a", "MESSAGE", "1"),
    ], broker="activemq"),
    Case("activemq: a body where none may be is ignored", [
        say("a", "BEGIN", body="\n", headers="transaction:t\nreceipt:r"), hear("a", "RECEIPT", receipt_id="r"), sync("a"),
    ], broker="activemq"),
    Case("activemq: the content-length of an ACK is not waited for", UNCOUNTED, broker="activemq"),
    Case("activemq: a browser of a queue that is not there is told the end", LOOKING, broker="activemq"),
    Case("rabbitmq: a NACK brings the message again, however often", [
        subscribe("a", "/queue/{x}", headers="ack:client"), send("s", "/queue/{x}", "1"), nack("a"), nack("a"), nack("a"),
        hear("a", "MESSAGE", "1", redelivered="true"),
    ], broker="rabbitmq"),
    *[without_subscribe(broker) for broker in ("rabbitmq", "alone")],
    Case("rabbitmq: who has subscribed to the answers gets them there", [
        subscribe("b", "/queue/{x}"), subscribe("a", "/temp-queue/q"), send("a", "/queue/{x}", "?", "reply-to:/temp-queue/q"),
        keep("b", "MESSAGE", to="reply-to"), send("b", "{to}", "1"), send("b", "{to}", "2"),
        hear("a", "MESSAGE", "1", subscription="0"), hear("a", "MESSAGE", "2", subscription="0"), sync("a"),
    ], broker="rabbitmq"),
    Case("rabbitmq: who passes on the reply-to of another one gets no answers", [
        subscribe("b", "/queue/{x}"), subscribe("c", "/queue/{x}.2"), send("a", "/queue/{x}", "?", "reply-to:/temp-queue/q"),
        keep("b", "MESSAGE", to="reply-to"), send("b", "/queue/{x}.2", "?", "reply-to:{to}"), hear("c", "MESSAGE", "?", reply_to="{to}"),
        send("c", "{to}", "!"), hear("a", "MESSAGE", "!"), sync("b"),
    ], broker="rabbitmq"),
    Case("rabbitmq: no frame must have the ids of 1.1", [
        say("a", "SUBSCRIBE", "/queue/{x}", headers="ack:client-individual\nreceipt:s"), hear("a", "RECEIPT", receipt_id="s"),
        send("s", "/queue/{x}", "1"), answers_without_ids("a", "r"),
        say("a", "UNSUBSCRIBE", "/queue/{x}", headers="receipt:u"), hear("a", "RECEIPT", receipt_id="u"),
        send("s", "/queue/{x}", "2"), sync("a"),
    ], broker="rabbitmq"),
    Case("rabbitmq: a message of a subscription without id says nothing of one", [
        say("a", "SUBSCRIBE", "/queue/{x}"), send("s", "/queue/{x}", "1"), hear("a", "MESSAGE", "1", without=("subscription",)),
    ], broker="rabbitmq"),
    Case("rabbitmq: an ACK that names another subscription of its own is refused", [
        subscribe("a", "/queue/{x}", headers="ack:client"), subscribe("a", "/queue/{x}.2", id="1", headers="ack:client"),
        send("s", "/queue/{x}", "1"), keep("a", "MESSAGE", told="message-id"),
        say("a", "ACK", headers="subscription:1\nmessage-id:{told}"), stays_open("a", "unknown-message"),
    ], versions=("1.1",), broker="rabbitmq"),
    Case("rabbitmq: a NACK with requeue:false makes a dead letter", [
        subscribe("d", "/queue/DLQ"), subscribe("a", "/queue/{x}", headers="ack:client"), send("s", "/queue/{x}", "1"),
        nack("a", "requeue:False"), hear("d", "MESSAGE", "1", dead_letter_reason="rejected"), sync("a"),
    ], broker="rabbitmq"),
    Case("rabbitmq: a destination without a known prefix is refused", [
        say("a", "SEND", "{x}"), stays_open("a", "bad-destination"),
        say("a", "SUBSCRIBE", "/else/{x}", headers="id:0"), stays_open("a", "bad-destination"),
        subscribe("a", "/exchange/amq.topic/{x}"), send("s", "/topic/{x}", "1"), hear("a", "MESSAGE", "1"), leave("a"),
    ], broker="rabbitmq"),
    Case("each effect alone: requirePrefix and closeAfterOrdinaryErrors", [
        say("a", "SEND", "{x}"), stays_open("a", "bad-destination"),
        subscribe("a", "/queue/{x}"), send("s", "/queue/{x}", "1"), hear("a", "MESSAGE", "1"),
    ], broker="alone"),
    Case("each effect alone: requireIds", [
        say("a", "SUBSCRIBE", "/queue/{x}"), send("s", "/queue/{x}", "1"), hear("a", "MESSAGE", "1"),
        say("a", "UNSUBSCRIBE", "/queue/{x}", headers="receipt:u"), hear("a", "RECEIPT", receipt_id="u"),
    ], broker="alone"),
    Case("each effect alone: nackPolicy and nackInEveryVersion", [
        subscribe("d", "/queue/DLQ"), subscribe("a", "/queue/{x}", headers="ack:client"), send("s", "/queue/{x}", "1"), nack("a"),
        hear("d", "MESSAGE", "1", dead_letter_reason="rejected"),
    ], broker="alone"),
    Case("each effect alone: countControlBodies", UNCOUNTED, broker="alone"),
    Case("each effect alone: browsersMakeQueues", LOOKING, broker="alone"),
]  # fmt: skip

CONFIGURATIONS = {"activemq": ACTIVEMQ, "rabbitmq": RABBITMQ, "alone": ALONE}

PLACED = [
    Case(case.name.format(broker=broker), case.steps, broker=broker)
    for case in BOTH
    for broker in ("activemq", "rabbitmq")
]
test_over_tcp, test_over_websocket = played([*PLACED, *CASES], PLACED)


@pytest.mark.parametrize("dialect", [Dialect.ACTIVEMQ, Dialect.RABBITMQ])
def test_silence_ends_no_connection_and_nothing_is_persistent_unasked(dialect: Dialect) -> None:
    """Neither of the two drops a client that has not agreed to heart-beats."""
    assert DIALECTS[dialect]["default_persistent"] is False
    assert DIALECTS[dialect]["connection_ttl"] == -1
    assert (
        parse_listener(f"tcp://h:1?dialect={dialect.value}", connection_ttl=5000).options.connection_ttl
        == 5000
    )
