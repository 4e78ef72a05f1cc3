"""`dialect=openmq`: the rules of the GlassFish Message Queue's STOMP bridge, row by row; and `dialect=artemis` where it reads otherwise."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.conformance.playing import played
from tests.conformance.script import Case, Play, Step, hear, keep, leave, refused, say, send, subscribe, sync
from tests.conformance.wire import Client

OPENMQ = """
memory = true
[[listener]]
url = "tcp://127.0.0.1:0?dialect=openmq"
"""
ARTEMIS = """
memory = true
[[listener]]
url = "tcp://127.0.0.1:0?dialect=artemis;stompEnableMessageId=true"
"""
LOGIN = {"": "login:guest\npasscode:guest"}
IN_TRANSACTION = "transaction:t\nack:client"


def begin(client: str, name: str = "t") -> Step:
    return say(client, "BEGIN", headers=f"transaction:{name}")


def commit(client: str, name: str = "t") -> Step:
    return say(client, "COMMIT", headers=f"transaction:{name}")


def ack(client: str, word: str, headers: str = "") -> Step:
    """The message whose ids `keep_ids` has kept, as each version says it."""

    def step(play: Play) -> None:
        name = f"id:{{{word}-ack}}" if play.version == "1.2" else f"subscription:0\nmessage-id:{{{word}}}"
        say(client, "ACK", headers=f"{name}\n{headers}")(play)

    return step


def keep_ids(client: str, word: str) -> Step:
    def step(play: Play) -> None:
        names = {word: "message-id"} | ({f"{word}-ack": "ack"} if play.version == "1.2" else {})
        keep(client, "MESSAGE", **names)(play)

    return step


def no_login(play: Play) -> None:
    play.case.login["nobody"] = ""
    with pytest.raises(AssertionError, match="login-required"):
        play.client("nobody")


def is_named_as_in_openmq(play: Play) -> None:
    assert play.words["to"].startswith("/temp-queue/temporary_destination://queue/")


def are_ids(play: Play) -> None:
    one, two = play.words["one"], play.words["two"]
    assert one != two
    assert all(id.startswith("STOMP") and id[5:].isdigit() for id in (one, two))


def has_length(client: Client) -> None:
    error = client.expect("ERROR")
    assert int(error.value("content-length") or -1) == len(error.body) > 0


CASES = [
    Case("row 1: login and passcode are required", [no_login], login=LOGIN),
    Case("row 2: each form of a destination", [
        subscribe("a", "/queue/{x}", id="q"), subscribe("a", "/topic/{x}", id="t"), subscribe("a", "/temp-queue/{x}", id="tq"),
        subscribe("a", "/temp-topic/{x}", id="tt"), send("a", "/queue/{x}", "1"), hear("a", "MESSAGE", "1", destination="/queue/{x}"),
        send("a", "/topic/{x}", "2"), hear("a", "MESSAGE", "2", destination="/topic/{x}"),
        send("a", "/temp-queue/{x}", "3"), hear("a", "MESSAGE", "3", subscription="tq"),
        send("a", "/temp-topic/{x}", "4"), hear("a", "MESSAGE", "4", subscription="tt"),
    ], login=LOGIN),
    Case("row 3: a message is persistent of priority 4 and never expires unless it says otherwise", [
        subscribe("a", "/queue/{x}"), send("s", "/queue/{x}", "1"), hear("a", "MESSAGE", "1", without=("expires",)),
    ], login=LOGIN),
    Case("row 3: expires is a time to live", [
        subscribe("a", "/queue/{x}"), send("s", "/queue/{x}", "1", "expires:600000"), hear("a", "MESSAGE", "1"),
    ], login=LOGIN),
    Case("row 4: a name that JMS forbids", [
        say("a", "SEND", "/queue/{x}", headers="not-a-name:1"), refused("a", "bad-property-name", "not-a-name"),
        say("b", "SEND", "/queue/{x}", headers="Between:1"), refused("b", "bad-property-name", "Between"),
    ], login=LOGIN),
    Case("row 4: names that it allows", [
        subscribe("a", "/queue/{x}"), send("s", "/queue/{x}", "1", "colour:red\nJMSXGroupID:g\ncorrelation-id:7"),
        hear("a", "MESSAGE", "1", colour="red", JMSXGroupID="g", correlation_id="7"),
    ], login=LOGIN),
    Case("row 5: a selector", [
        subscribe("a", "/topic/{x}", headers="selector:colour = 'red' AND JMSPriority > 4"), send("s", "/topic/{x}", "1", "colour:red"),
        send("s", "/topic/{x}", "2", "colour:red\npriority:9"), hear("a", "MESSAGE", "2"), sync("a"),
        say("b", "SUBSCRIBE", "/topic/{x}", headers="id:1\nselector:colour ="), refused("b", "selector-syntax", "position 9"),
    ], login=LOGIN),
    Case("row 6: a default id, shown, that is taken once", [
        say("a", "SUBSCRIBE", "/queue/{x}", headers="receipt:r"), hear("a", "RECEIPT"), send("s", "/queue/{x}", "1"),
        hear("a", "MESSAGE", "1", subscription="/subscription-to//queue/{x}"),
        say("a", "SUBSCRIBE", "/queue/{x}"), refused("a", "subscription-exists", "/subscription-to//queue/{x}"),
    ], login=LOGIN),
    Case("row 6: UNSUBSCRIBE by the destination", [
        say("a", "SUBSCRIBE", "/topic/{x}", headers="receipt:r"), hear("a", "RECEIPT"),
        say("a", "UNSUBSCRIBE", "/topic/{x}", headers="receipt:u"), hear("a", "RECEIPT"), send("s", "/topic/{x}", "1"), sync("a"),
    ], login=LOGIN),
    Case("row 7: a transacted subscription needs an open transaction", [
        say("a", "SUBSCRIBE", "/queue/{x}", headers="id:0\ntransaction:t"), refused("a", "no-such-transaction"),
    ], login=LOGIN),
    Case("row 7: delivery pauses after COMMIT until the next BEGIN", [
        begin("a"), subscribe("a", "/queue/{x}", headers=IN_TRANSACTION), send("s", "/queue/{x}", "1"), keep_ids("a", "m"), ack("a", "m"),
        commit("a"), sync("a"), send("s", "/queue/{x}", "2"), sync("a"), begin("a", "u"), hear("a", "MESSAGE", "2"),
    ], login=LOGIN),
    Case("row 7: what was not acknowledged comes again", [
        begin("a"), subscribe("a", "/queue/{x}", headers=IN_TRANSACTION), send("s", "/queue/{x}", "1"), send("s", "/queue/{x}", "2"),
        keep_ids("a", "m"), hear("a", "MESSAGE", "2", redelivered="false"), ack("a", "m"), commit("a"), sync("a"), begin("a"),
        hear("a", "MESSAGE", "2", redelivered="true"), sync("a"),
    ], login=LOGIN),
    Case("row 8: ABORT, and the next BEGIN starts from the unconsumed", [
        begin("a"), subscribe("a", "/queue/{x}", headers=IN_TRANSACTION), send("s", "/queue/{x}", "1"), keep_ids("a", "m"), ack("a", "m"),
        say("a", "ABORT", headers="transaction:t"), sync("a"), begin("a"), hear("a", "MESSAGE", "1", redelivered="true"),
    ], login=LOGIN),
    Case("row 9: without acknowledgements COMMIT consumes what was sent", [
        begin("a"), subscribe("a", "/queue/{x}", headers="transaction:t"), send("s", "/queue/{x}", "1"),
        hear("a", "MESSAGE", "1", without=("ack",)), commit("a"), sync("a"), begin("a"), sync("a"), leave("a"),
        subscribe("b", "/queue/{x}"), sync("b"),
    ], login=LOGIN),
    Case("row 9: without acknowledgements ABORT consumes nothing", [
        begin("a"), subscribe("a", "/queue/{x}", headers="transaction:t"), send("s", "/queue/{x}", "1"), hear("a", "MESSAGE", "1"),
        say("a", "ABORT", headers="transaction:t"), sync("a"), begin("a"), hear("a", "MESSAGE", "1", redelivered="true"),
    ], login=LOGIN),
    Case("row 9: ack is auto where nothing is said", [
        subscribe("a", "/queue/{x}"), send("s", "/queue/{x}", "1"), hear("a", "MESSAGE", "1", without=("ack",)), sync("a"), leave("a"),
        subscribe("b", "/queue/{x}"), sync("b"),
    ], login=LOGIN),
    Case("row 10: UNSUBSCRIBE with the name alone removes a durable subscription and closes its subscriber", [
        subscribe("a", "/topic/{x}", headers="durable-subscriber-name:d", subscription_created="true"),
        say("b", "UNSUBSCRIBE", "/topic/other", headers="durable-subscriber-name:d\nid:other\nreceipt:u"), hear("b", "RECEIPT"),
        send("s", "/topic/{x}", "1"), sync("a"),
        subscribe("b", "/topic/{x}", headers="durable-subscriber-name:d", subscription_created="true"), sync("b"),
    ], login={"": "login:guest\npasscode:guest\nclient-id:{x}"}),
    Case("row 10: it needs a client-id", [
        say("a", "UNSUBSCRIBE", headers="durable-subscriber-name:d"), refused("a", "missing-client-id"),
    ], login=LOGIN),
    Case("row 11: one transaction at a time", [
        begin("a"), begin("a", "u"), refused("a", "transaction-exists", "one at a time"),
    ], login=LOGIN),
    Case("row 12: a transaction on a subscription that is not transacted", [
        subscribe("a", "/queue/{x}", headers="ack:client"), begin("a"), send("s", "/queue/{x}", "1"), keep_ids("a", "m"),
        ack("a", "m", "transaction:t"), refused("a", "transaction-not-allowed"),
    ], login=LOGIN),
    Case("row 12: a subscription that is not transacted acknowledges at once", [
        subscribe("a", "/queue/{x}", headers="ack:client"), begin("a"), send("s", "/queue/{x}", "1"), keep_ids("a", "m"), ack("a", "m"),
        say("a", "ABORT", headers="transaction:t"), sync("a"), leave("a"), subscribe("b", "/queue/{x}"), sync("b"),
    ], login=LOGIN),
    Case("row 12: the subscription of an ACK may be left out", [
        begin("a"), say("a", "SUBSCRIBE", "/queue/{x}", headers="transaction:t\nack:client\nreceipt:r"), hear("a", "RECEIPT"),
        *[send("s", "/queue/{x}", str(n)) for n in range(2)], hear("a", "MESSAGE", "0"), keep_ids("a", "m"),
        lambda play: say("a", "ACK", headers="id:{m-ack}" if play.version == "1.2" else "message-id:{m}")(play), commit("a"), sync("a"),
        leave("a"), subscribe("b", "/queue/{x}"), sync("b"),
    ], login=LOGIN),
    Case("row 12: an ACK without subscription is none for one that has an id of its own", [
        begin("a"), subscribe("a", "/queue/{x}", headers=IN_TRANSACTION), send("s", "/queue/{x}", "1"), keep_ids("a", "m"),
        say("a", "ACK", headers="message-id:{m}\nreceipt:no"), refused("a", "missing-subscription", "/subscription-to/"), leave("a"),
        subscribe("b", "/queue/{x}"), hear("b", "MESSAGE", "1"),
    ], versions=("1.0", "1.1"), login=LOGIN),
    Case("row 12: an ACK without subscription is for the first one with a default id, and for no other", [
        say("a", "SUBSCRIBE", "/queue/{x}.1", headers="id:own\nack:client\nreceipt:r"), hear("a", "RECEIPT"),
        say("a", "SUBSCRIBE", "/queue/{x}.2", headers="ack:client\nreceipt:r"), hear("a", "RECEIPT"),
        say("a", "SUBSCRIBE", "/queue/{x}.3", headers="ack:client\nreceipt:r"), hear("a", "RECEIPT"),
        *[step for n in (1, 2, 3) for step in (send("s", f"/queue/{{x}}.{n}", str(n)), keep_ids("a", f"m{n}"))],
        *[step for n in (1, 3) for step in (
            say("a", "ACK", headers=f"message-id:{{m{n}}}\nreceipt:no"), refused("a", "unknown-message", f"{{m{n}}}"))],
        say("a", "ACK", headers="message-id:{m2}\nreceipt:yes"), hear("a", "RECEIPT", receipt_id="yes"), leave("a"),
        *[step for n in (1, 3) for step in (subscribe("b", f"/queue/{{x}}.{n}", id=str(n)), hear("b", "MESSAGE", str(n)))],
        subscribe("b", "/queue/{x}.2", id="2"), sync("b"),
    ], versions=("1.0", "1.1"), login=LOGIN),
    Case("row 12: an ACK that names a subscription which is not there", [
        say("a", "SUBSCRIBE", "/queue/{x}", headers="ack:client\nreceipt:r"), hear("a", "RECEIPT"), send("s", "/queue/{x}", "1"),
        keep_ids("a", "m"), say("a", "ACK", headers="subscription:9\nmessage-id:{m}"), refused("a", "no-such-subscription", "'9'"),
    ], versions=("1.0", "1.1"), login=LOGIN),
    Case("row 13: an ACK of a transacted subscription is cumulative, and of the current transaction", [
        begin("a"), subscribe("a", "/queue/{x}", headers=IN_TRANSACTION), *[send("s", "/queue/{x}", str(n)) for n in range(3)],
        hear("a", "MESSAGE", "0"), keep_ids("a", "m"), hear("a", "MESSAGE", "2"), ack("a", "m"), sync("a"), commit("a"), sync("a"),
        begin("a", "u"), hear("a", "MESSAGE", "2", redelivered="true"), sync("a"),
    ], login=LOGIN),
    Case("row 13: no transaction is open", [
        begin("a"), subscribe("a", "/queue/{x}", headers=IN_TRANSACTION), send("s", "/queue/{x}", "1"), keep_ids("a", "m"), commit("a"),
        sync("a"), ack("a", "m"), hear("a", "ERROR"), leave("a"), subscribe("b", "/queue/{x}"), hear("b", "MESSAGE", "1"),
    ], login=LOGIN),
    Case("row 14: content-length always", [
        subscribe("a", "/queue/{x}"), send("s", "/queue/{x}", "12"), hear("a", "MESSAGE", "12", content_length="2"),
    ], login=LOGIN),
    Case("row 14: content-length of an ERROR", [
        say("a", "BEGIN"), lambda play: has_length(play.client("a")),
    ], login=LOGIN),
    Case("row 15: others see a temporary queue by OpenMQ's name, and reply to it", [
        subscribe("b", "/queue/{x}"), subscribe("a", "/temp-queue/q"), send("a", "/queue/{x}", "?", "reply-to:/temp-queue/q"),
        keep("b", "MESSAGE", to="reply-to"), is_named_as_in_openmq, send("b", "{to}", "!"),
        hear("a", "MESSAGE", "!"),
    ], login=LOGIN),
    Case("a body where none may be is ignored", [
        say("a", "BEGIN", body="\n", headers="transaction:t\nreceipt:r"), hear("a", "RECEIPT", receipt_id="r"), sync("a"),
    ], login=LOGIN),
]  # fmt: skip


ARTEMIS_CASES = [
    Case("an ACK takes effect at once although it names a transaction", [
        subscribe("a", "/queue/{x}", headers="ack:client"), begin("a"), send("s", "/queue/{x}", "1"), keep_ids("a", "m"),
        ack("a", "m", "transaction:t"), say("a", "ABORT", headers="transaction:t"), sync("a"), leave("a"),
        subscribe("b", "/queue/{x}"), sync("b"),
    ], broker="artemis"),
    Case("selectors compare texts as texts", [
        subscribe("a", "/topic/{x}", headers="selector:age > 18"), subscribe("b", "/topic/{x}", headers="selector:age = '20'"),
        send("s", "/topic/{x}", "1", "age:20"), hear("b", "MESSAGE", "1"), sync("a"),
    ], broker="artemis"),
    Case("a SUBSCRIBE without an id gets one, and is ended by its destination", [
        say("a", "SUBSCRIBE", "/queue/{x}", headers="ack:client\nreceipt:r"), hear("a", "RECEIPT"), send("s", "/queue/{x}", "1"),
        hear("a", "MESSAGE", "1", subscription="subscription//queue/{x}"), subscribe("b", "/queue/{x}"),
        say("a", "UNSUBSCRIBE", "/queue/{x}", headers="receipt:u"), hear("a", "RECEIPT", receipt_id="u"), hear("b", "MESSAGE", "1"),
        say("a", "SUBSCRIBE", "/queue/{x}"), say("a", "SUBSCRIBE", "/queue/{x}"), refused("a", "subscription-exists"),
    ], versions=("1.1", "1.2"), broker="artemis"),
    Case("an ACK of 1.1 says whose message it is, also with such an id", [
        say("a", "SUBSCRIBE", "/queue/{x}", headers="ack:client\nreceipt:r"), hear("a", "RECEIPT"), send("s", "/queue/{x}", "1"),
        keep("a", "MESSAGE", m="message-id"), say("a", "ACK", headers="message-id:{m}"), refused("a", "missing-subscription"),
        say("a", "ACK", headers="message-id:{m}\nsubscription:subscription//queue/{x}"), sync("a"), leave("a"),
        subscribe("b", "/queue/{x}"), sync("b"),
    ], versions=("1.1",), broker="artemis"),
    Case("1.0 has no subscription header where it gave no id", [
        say("a", "SUBSCRIBE", "/queue/{x}", headers="receipt:r"), hear("a", "RECEIPT"), send("s", "/queue/{x}", "1"),
        hear("a", "MESSAGE", "1", without=["subscription"]),
    ], versions=("1.0",), broker="artemis"),
    Case("a body where none may be is ignored by this dialect, too", [
        say("a", "SUBSCRIBE", "/queue/{x}", body="x", headers="id:0\nreceipt:r"), hear("a", "RECEIPT", receipt_id="r"), sync("a"),
    ], broker="artemis"),
    Case("amqMessageId is another for each message", [
        subscribe("a", "/queue/{x}"), send("s", "/queue/{x}", "1"), send("s", "/queue/{x}", "2"), keep("a", "MESSAGE", one="amqMessageId"),
        keep("a", "MESSAGE", two="amqMessageId"), are_ids,
    ], broker="artemis"),
]  # fmt: skip

CONFIGURATIONS = {"openmq": OPENMQ, "artemis": ARTEMIS}

PLACED = [replace(case, broker=case.broker or "openmq") for case in CASES]
test_over_tcp, test_over_websocket = played([*PLACED, *ARTEMIS_CASES], PLACED[8:12])
