"""Selectors on the wire: the table of tests/selectors/test_cases.py played against a broker, special names, refusals with positions."""

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
from tests.conformance.wire import Client, connected
from tests.selectors.test_cases import CASES as TABLE
from tests.selectors.test_cases import REFUSED, TRUE

CONFIGURATION = """
memory = true
[[listener]]
url = "tcp://127.0.0.1:0?{options}"

[[address-setting]]
match = "log.#"
retention-messages = 100

[[divert]]
name = "the last ones"
address = "diverted.*"
forwarding-address = "copies"
filter = "n = 2"

[[address]]
name = "sorted"
routing-types = ["MULTICAST"]
[[address.queue]]
name = "reds"
routing-type = "MULTICAST"
filter = "colour = 'red'"
"""
NACKING = ("1.1", "1.2")
FAR = 4_000_000_000_000


def matches(selector: str, *headers: str, body: str = "", other: str = "") -> list[Step]:
    """Of a message with these headers and one with `other` (or with none of them) the first alone comes."""
    return [
        subscribe("a", "/topic/{x}", headers=f"selector:{selector}"), send("s", "/topic/{x}", "no" if not body else "", other),
        send("s", "/topic/{x}", body or "yes", "\n".join(headers)), hear("a", "MESSAGE", body or "yes"), sync("a"),
    ]  # fmt: skip


def keep_queue(client: str, address: str) -> Step:
    """The number that this subscription's message-ids begin with, as `q`: its first message has offset 0, and it takes the second."""

    def step(play: Play) -> None:
        send("s", f"/topic/{address}", "0")(play)
        send("s", f"/topic/{address}", "1")(play)
        keep(client, "MESSAGE", m="message-id")(play)
        play.words["q"], _, offset = play.words["m"].partition("-")
        assert offset == "1"

    return step


def refuses(selector: str, code: str, position: int, *words: str) -> list[Step]:
    return [
        say("a", "SUBSCRIBE", "/topic/{x}", headers=f"id:1\nselector:{selector}\nreceipt:r"),
        refused("a", code, "selector", f"position {position}:", *words), send("s", "/topic/{x}", "1"), leave("a"),
    ]  # fmt: skip


def answer(client: str, command: str, word: str = "m") -> Step:
    def step(play: object) -> None:
        version = play.version  # type: ignore[attr-defined]
        lines = f"id:{{{word}}}" if version == "1.2" else f"message-id:{{{word}}}\nsubscription:0"
        say(client, command, headers=lines)(play)  # type: ignore[arg-type]

    return step


CASES = [
    Case("a topic", matches("colour = 'red'", "colour:red", other="colour:blue")),
    Case("a queue keeps what its consumer's selector does not take", [
        send("s", "/queue/{x}", "1", "colour:blue"), send("s", "/queue/{x}", "2", "colour:red"),
        subscribe("a", "/queue/{x}", headers="selector:colour = 'red'"), hear("a", "MESSAGE", "2"), sync("a"),
        subscribe("b", "/queue/{x}"), hear("b", "MESSAGE", "1"), sync("b"),
    ]),
    Case("a queue's own filter", [
        subscribe("a", "/topic/sorted::reds"), send("s", "/topic/sorted", "1", "colour:blue"),
        send("s", "/topic/sorted", "2", "colour:red"), hear("a", "MESSAGE", "2"),
        sync("a"), bye("a"),
    ], broker="selectors"),
    *[Case(f"special name: {selector}", matches(selector, *headers, other=other)) for selector, headers, other in [
        ("AMQPriority > 6 AND JMSPriority = 7", ("priority:7",), ""),
        ("JMSPriority = 4 AND colour = 'red'", ("colour:red",), "priority:5\ncolour:red"),
        ("JMSCorrelationID = 'c-1'", ("correlation-id:c-1",), "correlation-id:c-2"),
        ("JMSType = 'order'", ("type:order",), "type:bill"),
        ("JMSReplyTo = '/queue/back'", ("reply-to:/queue/back",), ""),
        ("AMQGroupID = 'g' AND JMSXGroupID = 'g'", ("JMSXGroupID:g",), "JMSXGroupID:h"),
        ("AMQTimestamp = 1700000000000 AND JMSTimestamp > 5", ("timestamp:1700000000000",), "timestamp:1600000000000"),
        (f"AMQExpiration = {FAR} AND JMSExpiration > 0", (f"expires:{FAR}",), ""),
        ("AMQDurable = 'DURABLE' AND JMSDeliveryMode = 'PERSISTENT'", ("persistent:true",), "persistent:false"),
        ("AMQDurable = 'NON_DURABLE' AND JMSDeliveryMode = 'NON_PERSISTENT'", ("persistent:false",), "persistent:true"),
        ("hyphenated_props:foo-bar > 1 AND content-type = 'text/plain'", ("foo-bar:2", "content-type:text/plain"), "foo-bar:1"),
        ("convert_string_expressions:hyphenated_props:foo-bar = 2", ("foo-bar:2",), "foo-bar:1"),
        ("age > 18", ("age:21.7",), "age:abc"),
        ("age BETWEEN 18 AND 65 AND name LIKE 'J!_%' ESCAPE '!'", ("age:21", "name:J_m"), "age:21\nname:Jim"),
    ]],
    Case("no_convert_string_expressions: texts are texts", matches("no_convert_string_expressions:age = '21'", "age:21", other="age:021")),
    Case("AMQSize is octets of the body at least", matches("AMQSize > 1000", body="x" * 1001)),
    Case("AMQAddress is the address without its prefix", [
        subscribe("a", "/topic/{x}.*", headers="selector:AMQAddress = '{x}.1'"), send("s", "/topic/{x}.2", "2"),
        send("s", "/topic/{x}.1", "1"), hear("a", "MESSAGE", "1"), sync("a"),
    ]),
    Case("JMSRedelivered and JMSXDeliveryCount: a consumer for second attempts", [
        send("s", "/queue/{x}", "1"), send("s", "/queue/{x}", "2"),
        subscribe("b", "/queue/{x}", headers="selector:JMSRedelivered AND JMSXDeliveryCount > 1"), sync("b"),
        subscribe("a", "/queue/{x}", headers="ack:client-individual\nselector:NOT JMSRedelivered"), keep("a", "MESSAGE", m="message-id"),
        hear("a", "MESSAGE", "2"), answer("a", "NACK"), hear("b", "MESSAGE", "1", redelivered="true", JMSXDeliveryCount="2"), sync("a"),
    ], NACKING),
    Case("JMSMessageID is the message-id of a queue's MESSAGE", [
        *[send("s", "/queue/{x}", str(n)) for n in range(3)], subscribe("a", "/queue/{x}", headers="ack:client-individual"),
        hear("a", "MESSAGE", "0"), keep("a", "MESSAGE", m="message-id"), hear("a", "MESSAGE", "2"), leave("a"),
        subscribe("b", "/queue/{x}", headers="selector:JMSMessageID = '{m}' AND AMQUserID LIKE '%-1'"), hear("b", "MESSAGE", "1"),
        sync("b"),
    ]),
    *[Case(f"JMSMessageID and AMQUserID are the message-id of a topic's MESSAGE, for each subscription its own: {kind}", [
        subscribe("a", "/topic/{x}", headers=more + "selector:JMSMessageID LIKE '%-1'"), keep_queue("a", "{x}"),
        subscribe("b", "/topic/{x}", headers=more + "selector:AMQUserID = '{q}-3' OR AMQUserID LIKE '%-4'"),
        *[send("s", "/topic/{x}", str(n)) for n in range(2, 5)], hear("b", "MESSAGE", "4"), sync("b"), sync("a"),
    ], login={"a": "client-id:a{x}", "b": "client-id:b{x}"}) for kind, more in (("plain", ""), ("durable", "durable-subscriber-name:d\n"))],
    Case("JMSMessageID in the selector of a stream's reader and of a browser", [
        subscribe("a", "/stream/{x}", headers="x-stream-offset:first\nselector:JMSMessageID LIKE '%-1'"),
        *[send("s", "/queue/{x}", str(n)) for n in range(3)], hear("a", "MESSAGE", "1"), sync("a"),
        subscribe("b", "/queue/{x}", headers="browser:true\nselector:AMQUserID LIKE '%-2'"), hear("b", "MESSAGE", "2"),
    ]),
    *[Case(f"functions of ActiveMQ Classic: {text.partition('(')[0]}", matches(text, taken, other=other)) for text, taken, other in [
        ("REGEX('^r.d$', colour)", "colour:red", "colour:reed"),
        ("INLIST(SPLIT(list, '[,;] *'), 'b')", "list:a, b;c", "list:a, ab"),
        ("REPLACE(n, '[.]', '') = '1234'", "n:1.234", "n:1.23"),
    ]],
    Case("a pattern that RE2 does not take", refuses("REGEX('a(?=b)', colour)", "selector-function", 1, "RE2")),
    Case("XPATH looks into the body", [
        subscribe("a", "/topic/{x}", headers="selector:XPATH '//book[@lang=\"en\"]' AND colour = 'red'"),
        send("s", "/topic/{x}", "<r><book lang='de'/></r>", "colour:red"), send("s", "/topic/{x}", "no xml", "colour:red"),
        send("s", "/topic/{x}", "<!DOCTYPE r [<!ENTITY e 'x'>]><r><book lang='en'/></r>", "colour:red"),
        send("s", "/topic/{x}", "<r><book lang='en'/></r>", "colour:red"), hear("a", "MESSAGE", "<r><book lang='en'/></r>"), sync("a"),
    ]),
    Case("XQUERY takes nothing", [
        subscribe("a", "/topic/{x}", headers="selector:XQUERY '//r' OR colour = 'red'"), send("s", "/topic/{x}", "<r/>"),
        send("s", "/topic/{x}", "1", "colour:red"), hear("a", "MESSAGE", "1"), sync("a"),
    ]),
    Case("a selector that is wrong at column 7", refuses("colour == 'red'", "selector-syntax", 9, "'='")),
    Case("the position counts characters", refuses("é = = 1", "selector-syntax", 5)),
    Case("a type that never fits", refuses("colour < 'red'", "selector-type", 10)),
    Case("a number that is too large", refuses("a = 9223372036854775808", "selector-number", 5)),
    Case("a function that is not there", refuses("FIND('^r', colour)", "selector-function", 1, "REGEX")),
    Case("an XPATH that is wrong", refuses("XPATH '//book['", "selector-xpath", 15)),
    Case("an empty selector", [
        say("a", "SUBSCRIBE", "/topic/{x}", headers="id:1\nselector:"), refused("a", "selector-empty", "position 1"),
    ]),
    Case("a selector that is too long", [
        say("a", "SUBSCRIBE", "/topic/{x}", headers=f"id:1\nselector:colour = '{'r' * 100}'"), refused("a", "selector-limit", "100"),
    ], broker="small"),
    Case("a selector of too many terms", [
        say("a", "SUBSCRIBE", "/topic/{x}", headers="id:1\nselector:a = 1 OR b = 2 OR c = 3"), refused("a", "selector-limit", "5"),
    ], broker="small"),
    Case("a selector that is nested too deep", [
        say("a", "SUBSCRIBE", "/topic/{x}", headers="id:1\nselector:((((a = 1))))"), refused("a", "selector-limit", "3"),
    ], broker="small"),
    Case("a refused selector makes no subscription", [
        say("a", "SUBSCRIBE", "/topic/{x}", headers="id:1\nselector:a ="), refused("a", "selector-syntax"),
        say("a", "UNSUBSCRIBE", headers="id:1"), refused("a", "no-such-subscription"),
    ]),
    Case("a divert, a stream and a browser have selectors too", [
        *[send("s", "/queue/log.{x}", str(n), f"n:{n}") for n in range(3)],
        subscribe("b", "/queue/log.{x}", headers="browser:true\nselector:n > 1"), hear("b", "MESSAGE", "2"),
        hear("b", "MESSAGE", browser="end"),
        subscribe("a", "/stream/log.{x}", headers="x-stream-offset:first\nselector:n BETWEEN 1 AND 1"), hear("a", "MESSAGE", "1"),
        subscribe("d", "/queue/copies"), *[send("s", "/queue/diverted.{x}", str(n), f"n:{n}") for n in range(3)], hear("d", "MESSAGE", "2"),
        sync("d"), bye("d"),
    ], broker="selectors"),
]  # fmt: skip

CONFIGURATIONS = {
    "selectors": CONFIGURATION.format(options=""),
    "small": CONFIGURATION.format(options="maxSelectorLength=100;maxSelectorTerms=5;maxSelectorDepth=3"),
}

test_over_tcp, test_over_websocket = played(CASES)


ON_THE_WIRE = [
    case for case in TABLE if ":int=" not in case[2] and ":long=" not in case[2] and ":bool=" not in case[2]
]


def escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace(":", "\\c")


def until(client: Client, receipt: str) -> list[str]:
    """What comes before this receipt."""
    client.say(f"SEND\ndestination:/topic/nobody\nreceipt:{receipt}\n\n\0".encode())
    came = []
    while (answer := client.hear()) is not None and answer.command != "RECEIPT":
        came.append(answer.command)
    return came


@pytest.mark.parametrize("transport", ["tcp", "websocket"])
@pytest.mark.parametrize("row", ON_THE_WIRE, ids=[str(row[0]) for row in ON_THE_WIRE])
def test_each_case_of_the_table(
    broker: tuple[str, int], row: tuple[int, str, str, str, str], transport: str
) -> None:
    """All whose headers are texts, as they are in STOMP; the others are about what the broker itself sets."""
    number, selector, headers, body, expected = row
    topic = f"/topic/table.{number}"
    with connected(broker, transport) as client:
        client.log_in("1.1")
        client.say(
            f"SUBSCRIBE\nid:0\ndestination:{topic}\nselector:{escaped(selector)}\nreceipt:s\n\n\0".encode()
        )
        if expected == REFUSED:
            refusal = client.expect("ERROR")
            assert (refusal.value("code") or "").startswith("selector-")
            assert "position" in refusal.body.decode()
            return
        assert client.expect("RECEIPT").value("receipt-id") == "s"
        pairs = [entry.partition("=") for entry in headers.split(";") if entry]
        lines = "".join([f"{name}:{escaped(value)}\n" for name, _, value in pairs])
        client.say(f"SEND\ndestination:{topic}\n{lines}\n{body}\0".encode())
        came = [*until(client, "1"), *until(client, "2")]
        assert came == (["MESSAGE"] if expected == TRUE else []), f"{selector} on {headers}"
