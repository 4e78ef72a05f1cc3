"""SUBSCRIBE, ACK, NACK, UNSUBSCRIBE: what each must carry, what an acknowledgement covers, what comes again."""

from __future__ import annotations

import pytest

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

NUMBERED = ("1.1", "1.2")  # subscriptions must have an id


def answered(client: str, word: str, command: str = "ACK", id: str = "0") -> Step:
    """ACK or NACK of the message whose message-id was kept as `word`, in the words of the version."""

    def step(play: Play) -> None:
        lines = f"id:{{{word}}}" if play.version == "1.2" else f"message-id:{{{word}}}"
        say(client, command, headers=f"{lines}\nsubscription:{id}" if play.version == "1.1" else lines)(play)

    return step


def three(client: str, ack: str, destination: str = "/queue/{x}") -> list[Step]:
    """A subscription, and three messages that it was sent: their ids are kept as m0, m1 and m2."""
    return [
        subscribe(client, destination, headers=f"ack:{ack}"), *[send("s", destination, str(n)) for n in range(3)],
        *[keep(client, "MESSAGE", **{f"m{n}": "message-id"}) for n in range(3)],
    ]  # fmt: skip


def respelled(word: str, form: str) -> Step:
    """Another way to write the id that `word` has, as `odd`."""

    def step(play: Play) -> None:
        queue, _, offset = play.words[word].partition("-")
        play.words["odd"] = form.replace("{q}", queue).replace("{o}", offset)

    return step


def in_order(play: Play) -> None:
    """Messages may come in between."""
    found = []
    while (answer := play.client("a").hear()) is not None:
        if answer.command == "RECEIPT":
            found.append(answer.value("receipt-id"))
    assert found == list("12345678")


CASES = [
    # What SUBSCRIBE and UNSUBSCRIBE must carry
    *[Case(f"{command} without destination: {header or 'none'}", [
        say("a", command, headers=f"id:1\nreceipt:r\n{header}"), refused("a", "missing-destination", command, "destination"),
    ]) for command in ("SEND", "SUBSCRIBE") for header in ("", "destination:")],
    Case("SUBSCRIBE needs an id", [say("a", "SUBSCRIBE", "/queue/{x}"), refused("a", "missing-id", "SUBSCRIBE")], NUMBERED),
    Case("UNSUBSCRIBE needs an id", [
        subscribe("a", "/queue/{x}"), say("a", "UNSUBSCRIBE", "/queue/{x}"), refused("a", "missing-id", "UNSUBSCRIBE"),
    ], NUMBERED),
    Case("1.0 needs no id, twice on one destination", [
        *[say("a", "SUBSCRIBE", "/topic/{x}", headers=f"receipt:{n}") for n in range(2)], *[hear("a", "RECEIPT") for _ in range(2)],
        send("s", "/topic/{x}", "1"), *[hear("a", "MESSAGE", "1", without=["subscription"]) for _ in range(2)],
        say("a", "UNSUBSCRIBE", "/topic/{x}", headers="receipt:u"), hear("a", "RECEIPT"), send("s", "/topic/{x}", "2"),
        hear("a", "MESSAGE", "2"), sync("a"), say("a", "UNSUBSCRIBE", "/topic/{x}", headers="receipt:u"), hear("a", "RECEIPT"),
        send("s", "/topic/{x}", "3"), sync("a"),
    ], ("1.0",)),
    Case("an id is taken once", [
        subscribe("a", "/queue/{x}.1"), say("a", "SUBSCRIBE", "/queue/{x}.2", headers="id:0\nreceipt:r"),
        refused("a", "subscription-exists", "'0'"),
    ]),
    Case("an id may be used again after UNSUBSCRIBE", [
        subscribe("a", "/queue/{x}.1"), say("a", "UNSUBSCRIBE", headers="id:0\nreceipt:u"), hear("a", "RECEIPT"),
        subscribe("a", "/queue/{x}.2"), send("s", "/queue/{x}.2", "1"), hear("a", "MESSAGE", "1", subscription="0"),
    ]),
    Case("UNSUBSCRIBE of what is not there", [
        say("a", "UNSUBSCRIBE", headers="id:none\nreceipt:u"), refused("a", "no-such-subscription", "none"),
    ]),
    Case("nothing comes after the RECEIPT of an UNSUBSCRIBE", [
        subscribe("a", "/topic/{x}"), say("a", "UNSUBSCRIBE", headers="id:0\nreceipt:u"), hear("a", "RECEIPT"),
        send("s", "/topic/{x}", "1"), sync("a"),
    ]),
    Case("the RECEIPT of a SUBSCRIBE comes before its messages", [
        *[send("s", "/queue/{x}", str(n)) for n in range(2)], subscribe("a", "/queue/{x}"), hear("a", "MESSAGE", "0"),
        hear("a", "MESSAGE", "1"),
    ]),
    Case("each MESSAGE says which subscription it is for", [
        subscribe("a", "/topic/{x}", id="one"), subscribe("a", "/topic/{x}", id="t:w o"), send("s", "/topic/{x}", "1"),
        hear("a", "MESSAGE", subscription="one"), hear("a", "MESSAGE", subscription="t:w o"),
    ]),
    Case("no-local", [
        *[subscribe("a", "/topic/{x}", id=word, headers=f"{word}:true") for word in ("no-local", "activemq.noLocal")],
        send("a", "/topic/{x}", "own"), sync("a"), send("b", "/topic/{x}", "other"), hear("a", "MESSAGE", "other"),
        hear("a", "MESSAGE", "other"),
    ]),
    Case("a selector takes what it matches", [
        subscribe("a", "/topic/{x}", headers="selector:colour = 'red' AND size > 2"),
        send("s", "/topic/{x}", "1", "colour:red\nsize:3"), send("s", "/topic/{x}", "2", "colour:red\nsize:1"),
        send("s", "/topic/{x}", "3", "size:3"), hear("a", "MESSAGE", "1"), sync("a"),
    ]),
    Case("a body on SUBSCRIBE is ignored in 1.0", [
        say("a", "SUBSCRIBE", "/topic/{x}", "a body", "id:0\nreceipt:r"), hear("a", "RECEIPT"), send("s", "/topic/{x}", "1"),
        hear("a", "MESSAGE", "1"),
    ], ("1.0",)),
    Case("only SEND may have a body", [
        say("a", "SUBSCRIBE", "/topic/{x}", "a body", "id:0\nreceipt:r"), refused("a", "body-not-allowed", "SUBSCRIBE", "6 octets"),
    ], NUMBERED),
    # What an acknowledgement covers
    Case("auto: there is nothing to acknowledge, and no ack header", [
        subscribe("a", "/queue/{x}"), send("s", "/queue/{x}", "1"),
        hear("a", "MESSAGE", "1", without=["ack"], redelivered="false"), bye("a"),
        subscribe("b", "/queue/{x}"), sync("b"),
    ]),
    Case("ACK on an auto subscription", [
        subscribe("a", "/queue/{x}"), send("s", "/queue/{x}", "1"), keep("a", "MESSAGE", m="message-id"), answered("a", "m"),
        refused("a", "unknown-message"),
    ]),
    Case("1.2 has an ack header where one is wanted", [
        subscribe("a", "/queue/{x}", headers="ack:client"), send("s", "/queue/{x}", "1"), keep("a", "MESSAGE", m="ack"),
        say("a", "ACK", headers="id:{m}\nreceipt:r"), hear("a", "RECEIPT", receipt_id="r"),
    ], ("1.2",)),
    Case("1.0 and 1.1 have no ack header", [
        subscribe("a", "/queue/{x}", headers="ack:client"), send("s", "/queue/{x}", "1"), hear("a", "MESSAGE", without=["ack"]),
    ], ("1.0", "1.1")),
    Case("client: the message and all before it", [
        *three("a", "client"), answered("a", "m1"), sync("a"), bye("a"), subscribe("b", "/queue/{x}"),
        hear("b", "MESSAGE", "2", redelivered="true"), sync("b"),
    ]),
    Case("client: of its own subscription only", [
        *three("a", "client"), subscribe("a", "/queue/{x}.2", id="other", headers="ack:client"), send("s", "/queue/{x}.2", "4"),
        keep("a", "MESSAGE", m4="message-id"), answered("a", "m4", id="other"), sync("a"), bye("a"), subscribe("b", "/queue/{x}"),
        *[hear("b", "MESSAGE", str(n), redelivered="true") for n in range(3)], sync("b"), subscribe("b", "/queue/{x}.2", id="2"), sync("b"),
    ]),
    Case("client-individual: that message alone, in any order", [
        *three("a", "client-individual"), answered("a", "m2"), answered("a", "m1"), sync("a"), bye("a"), subscribe("b", "/queue/{x}"),
        hear("b", "MESSAGE", "0", redelivered="true"), sync("b"),
    ]),
    Case("an ACK with a receipt", [
        *three("a", "client"), say("a", "ACK", headers="id:{m2}\nmessage-id:{m2}\nsubscription:0\nreceipt:r"),
        hear("a", "RECEIPT", receipt_id="r"), leave("a"), subscribe("b", "/queue/{x}"), sync("b"),
    ]),
    Case("an ACK is good once", [*three("a", "client"), answered("a", "m2"), answered("a", "m2"), refused("a", "unknown-message", "{m2}")]),
    Case("an ACK of what was covered by another", [*three("a", "client"), answered("a", "m2"), answered("a", "m0"),
                                                    refused("a", "unknown-message", "{m0}")]),
    *[Case(f"{command} of a message that is not there: {name}", [
        subscribe("a", "/queue/{x}", headers="ack:client"),
        say("a", command, headers=f"id:{name}\nmessage-id:{name}\nsubscription:0\nreceipt:r"), refused("a", "unknown-message", name),
    ], NUMBERED) for command in ("ACK", "NACK") for name in ("999999-1", "nothing", "1-", "-")],
    *[Case(f"{command} of an id that is only like a message's, {mode}: {form}", [
        *three("a", mode), respelled("m1", form), say("a", command, headers="id:{odd}\nmessage-id:{odd}\nsubscription:0" + more),
        refused("a", "unknown-message"), leave("a"), subscribe("b", "/queue/{x}"),
        *[hear("b", "MESSAGE", str(n)) for n in range(3)],
    ], NUMBERED) for command in ("ACK", "NACK") for mode, more in (("client", ""), ("client-individual", "\nreceipt:r"))
      for form in ("0{q}-{o}", "{q}-0{o}", "{q}-+{o}", "+{q}-{o}", "{q}-{o} ", "{q}-{o}-", "{q}--{o}", "{q}-{o}\u0660")],
    Case("an ACK after UNSUBSCRIBE comes too late", [
        *three("a", "client"), say("a", "UNSUBSCRIBE", headers="id:0\nreceipt:u"), hear("a", "RECEIPT"), answered("a", "m0"),
        refused("a", "unknown-message", "{m0}"), subscribe("b", "/queue/{x}"),
        *[hear("b", "MESSAGE", str(n), redelivered="true") for n in range(3)],
    ], ("1.0", "1.2")),
    Case("an ACK after UNSUBSCRIBE names a subscription that is gone", [
        *three("a", "client"), say("a", "UNSUBSCRIBE", headers="id:0\nreceipt:u"), hear("a", "RECEIPT"), answered("a", "m0"),
        refused("a", "no-such-subscription", "'0'"),
    ], ("1.1",)),
    Case("1.1: the subscription of an ACK must be the message's", [
        *three("a", "client"), subscribe("a", "/queue/{x}.2", id="other", headers="ack:client"), answered("a", "m0", id="other"),
        refused("a", "unknown-message", "{m0}"), answered("a", "m0", id="none"), refused("a", "no-such-subscription", "none"),
    ], ("1.1",)),
    *[Case(f"{command} in the words of another version: {headers}", [
        *three("a", "client"), say("a", command, headers=headers), refused("a", code, command),
    ], (version,)) for command in ("ACK", "NACK") for version, headers, code in [
        ("1.1", "id:{m0}\nsubscription:0", "missing-message-id"), ("1.1", "message-id:{m0}", "missing-subscription"),
        ("1.2", "message-id:{m0}\nsubscription:0", "missing-id"), ("1.2", "id:", "missing-id"),
    ]],
    # What comes again
    Case("UNSUBSCRIBE gives back what was not acknowledged, in order", [
        *three("a", "client-individual"), answered("a", "m1"), say("a", "UNSUBSCRIBE", headers="id:0\nreceipt:u"), hear("a", "RECEIPT"),
        subscribe("b", "/queue/{x}"), hear("b", "MESSAGE", "0", redelivered="true"), hear("b", "MESSAGE", "2", redelivered="true"),
        sync("b"),
    ]),
    Case("a NACK of one leaves the others", [
        *three("a", "client-individual"), answered("a", "m1", "NACK"), hear("a", "MESSAGE", "1", redelivered="true", JMSXDeliveryCount="2"),
        answered("a", "m0"), answered("a", "m2"), sync("a"),
    ], NUMBERED),
    Case("message-ids are unique", [
        *three("a", "client"), lambda play: None if len({play.words[f"m{n}"] for n in range(3)}) == 3 else pytest.fail("the same id twice"),
    ]),
    Case("receipts come in the order of their frames", [
        say("a", "SEND", "/queue/{x}", "1", "receipt:1"), say("a", "SUBSCRIBE", "/queue/{x}", headers="id:0\nack:client\nreceipt:2"),
        say("a", "BEGIN", headers="transaction:t\nreceipt:3"), say("a", "SEND", "/queue/{x}", "2", "transaction:t\nreceipt:4"),
        say("a", "COMMIT", headers="transaction:t\nreceipt:5"), say("a", "SEND", "/topic/{x}", "3", "persistent:false\nreceipt:6"),
        say("a", "UNSUBSCRIBE", headers="id:0\nreceipt:7"), say("a", "DISCONNECT", headers="receipt:8"),
        in_order,
    ]),
]  # fmt: skip

test_over_tcp, test_over_websocket = played(CASES)
