"""Streams: readers of an address's log, from where they say, and positions that the broker keeps by name."""

from __future__ import annotations

import time
from pathlib import Path

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
from tests.conftest import end, start_broker
from tests.system.plain import Plain

CONFIGURATION = """
memory = true
[[listener]]
url = "tcp://127.0.0.1:0"

[[address-setting]]
match = "log.#"
retention-messages = 1000
"""


def log(*bodies: str) -> list[Step]:
    return [send("s", "/topic/log.{x}", body) for body in bodies]


def read(client: str, headers: str = "", **values: str) -> Step:
    return subscribe(client, "/stream/log.{x}", headers=headers, **values)


def numbered(client: str, *bodies: str) -> list[Step]:
    """Messages whose bodies are their offsets."""
    return [
        hear(client, "MESSAGE", body, destination="/topic/log.{x}", **{"x-stream-offset": body})
        for body in bodies
    ]


def acknowledge(client: str) -> Step:
    def step(play: Play) -> None:
        lines = (
            "id:{last}"
            if play.version == "1.2"
            else "message-id:{last}" + ("\nsubscription:0" if play.version == "1.1" else "")
        )
        say(client, "ACK", headers=f"{lines}\nreceipt:a")(play)
        hear(client, "RECEIPT", receipt_id="a")(play)

    return step


def second(word: str) -> Step:
    """Keeps seconds since 1970 once a new one has begun, so that what is sent next arrives in it or later."""

    def step(play: Play) -> None:
        now = int(time.time())
        while int(time.time()) == now:
            sync("clock")(play)
        play.words[word] = str(now + 1)

    return step


def lines(asked: str) -> str:
    return asked.replace(" and ", "\n")


VALUES = ("eu", "us", "eu", "", "o'hara")  # of x-stream-filter-value


CASES = [
    Case("first", [*log("0", "1"), read("a", "x-stream-offset:first"), *numbered("a", "0", "1"), *log("2"), *numbered("a", "2"), sync("a")],
         broker="streams"),
    Case("last", [*log("0", "1"), read("a", "x-stream-offset:last"), *numbered("a", "1"), sync("a")], broker="streams"),
    Case("next", [*log("0"), read("a", "x-stream-offset:next"), sync("a"), *log("1"), *numbered("a", "1")], broker="streams"),
    Case("without a word", [*log("0"), read("a"), sync("a"), *log("1"), *numbered("a", "1")], broker="streams"),
    Case("an offset", [*log("0", "1", "2"), read("a", "x-stream-offset:offset=1"), *numbered("a", "1", "2"), sync("a")], broker="streams"),
    Case("an offset, Apollo's way", [*log("0", "1", "2"), read("a", "from-seq:2"), *numbered("a", "2"), sync("a")], broker="streams"),
    Case("a time", [
        *log("0", "1"), second("then"), *log("2"), read("a", "x-stream-offset:timestamp={then}"), *numbered("a", "2"), sync("a"), *log("3"),
        *numbered("a", "3"),
    ], ("1.2",), broker="streams"),
    Case("a time before all", [*log("0"), read("a", "x-stream-offset:timestamp=1000"), *numbered("a", "0")], broker="streams"),
    Case("a time after all", [*log("0"), read("a", "x-stream-offset:timestamp=99999999999"), sync("a"), *log("1"), *numbered("a", "1")],
         broker="streams"),
    Case("a time of a stream that is not there", [read("a", "x-stream-offset:timestamp=1000"), *log("0"), *numbered("a", "0")],
         broker="streams"),
    Case("frames behind a search for a time wait for it", [
        *log("0"), say("a", "SUBSCRIBE", "/stream/log.{x}", headers="id:0\nx-stream-offset:timestamp=99999999999\nreceipt:r"),
        say("a", "UNSUBSCRIBE", headers="id:0\nreceipt:u"), hear("a", "RECEIPT", receipt_id="r"), hear("a", "RECEIPT", receipt_id="u"),
        sync("a"),
    ], ("1.1",), broker="streams"),
    *[Case(f"not an offset: {text}", [say("a", "SUBSCRIBE", "/stream/{x}", headers=f"id:1\nx-stream-offset:{text}"),
                                      refused("a", "bad-offset", "x-stream-offset", text)])
      for text in ("soon", "offset=-1", "timestamp=now", "timestamp=", "")],
    *[Case(f"nothing looks at it: {header} on {destination}", [
        say("a", "SUBSCRIBE", destination, headers=f"id:1\n{header}"), refused("a", "bad-offset", *header.split(":"), "only streams"),
    ]) for header, destination in (("x-stream-offset:first", "/topic/{x}"), ("from-seq:3", "/queue/{x}"), ("from-seq:3", "/topic/{x}.#"))],
    Case("from-seq is a number", [
        say("a", "SUBSCRIBE", "/stream/{x}", headers="id:1\nfrom-seq:timestamp=5"), refused("a", "bad-offset", "from-seq", "timestamp=5"),
    ]),
    Case("an offset beyond the end is the next one", [
        *log("0"), read("a", "x-stream-offset:offset=1000"), sync("a"), *log("1"), *numbered("a", "1"),
    ], broker="streams"),
    Case("as RabbitMQ asks for it", [
        *log("0", "1"),
        subscribe("a", "/topic/log.{x}", headers="x-queue-type:stream\nx-stream-offset:first\nack:client\nprefetch-count:9"),
        *numbered("a", "0", "1"), *log("2"), *numbered("a", "2"), sync("a"),
    ], broker="streams"),
    Case("a queue of another type is a queue", [
        send("s", "/queue/{x}", "1"), subscribe("a", "/queue/{x}", headers="x-queue-type:quorum"), hear("a", "MESSAGE", "1"),
    ]),
    Case("a type that is none", [
        say("a", "SUBSCRIBE", "/queue/{x}", headers="id:1\nx-queue-type:fast"), refused("a", "bad-queue-type", "x-queue-type", "fast"),
    ]),
    Case("one queue of an address is no stream", [
        say("a", "SUBSCRIBE", "/queue/{x}::q", headers="id:1\nx-queue-type:stream"), refused("a", "bad-destination", "::q"),
    ]),
    Case("a sender's header does not hide the offset", [
        send("s", "/topic/log.{x}", "0", "x-stream-offset:77\nplace:88"),
        read("a", "x-stream-offset:first\ninclude-seq:place"), hear("a", "MESSAGE", "0", place="0", **{"x-stream-offset": "0"}),
    ], broker="streams"),
    Case("a reader holds up nothing and takes nothing", [
        send("s", "/queue/log.{x}", "0"), read("a", "x-stream-offset:first\nack:client\nprefetch-count:1"),
        hear("a", "MESSAGE", "0"), send("s", "/queue/log.{x}", "1"), sync("a"), subscribe("c", "/queue/log.{x}"), hear("c", "MESSAGE", "0"),
        hear("c", "MESSAGE", "1"), leave("a"), read("b", "x-stream-offset:first"), hear("b", "MESSAGE", "0"), hear("b", "MESSAGE", "1"),
    ], broker="streams"),
    Case("two readers have one log", [
        *log("0"), read("a", "x-stream-offset:first"), read("b", "x-stream-offset:first"), *numbered("a", "0"), *numbered("b", "0"),
    ], broker="streams"),
    Case("a selector", [
        *[send("s", "/topic/log.{x}", str(n), f"odd:{n % 2}") for n in range(4)],
        read("a", "x-stream-offset:first\nselector:odd = 1"), *numbered("a", "1", "3"), sync("a"),
    ], broker="streams"),
    *[Case(f"x-stream-filter: {asked}", [
        *[send("s", "/topic/log.{x}", str(n), f"x-stream-filter-value:{value}" if value else "") for n, value in enumerate(VALUES)],
        read("a", f"x-stream-offset:first\nack:client\nprefetch-count:9\n{lines(asked)}"), *numbered("a", *taken), sync("a"),
        send("s", "/topic/log.{x}", "5", "x-stream-filter-value:eu"), *numbered("a", "5"),
    ], broker="streams") for asked, taken in (
        ("x-stream-filter:eu", "02"), ("x-stream-filter:eu, o'hara", "024"),
        ("x-stream-filter:eu and x-stream-match-unfiltered:true", "023"),
        ("x-stream-filter:eu and x-stream-match-unfiltered:false", "02"), ("x-stream-match-unfiltered:true", "01234"),
    )],
    *[Case(f"no filter: {asked}", [
        say("a", "SUBSCRIBE", "/stream/{x}", headers=f"id:1\n{lines(asked)}"), refused("a", code, asked.split(":")[0]),
    ]) for asked, code in (
        ("x-stream-filter:", "bad-stream-filter"), ("x-stream-filter:eu,,us", "bad-stream-filter"),
        ("x-stream-filter:eu and selector:n > 1", "bad-stream-filter"), ("x-stream-match-unfiltered:yes", "bad-boolean"),
    )],
    Case("x-stream-filter of what is a stream by its type", [
        send("s", "/topic/log.{x}", "0"), send("s", "/topic/log.{x}", "1", "x-stream-filter-value:eu"),
        subscribe("a", "/topic/log.{x}", headers="x-queue-type:stream\nx-stream-offset:first\nx-stream-filter:eu"),
        *numbered("a", "1"), sync("a"),
    ], broker="streams"),
    Case("a stream of a queue", [
        send("s", "/queue/log.{x}", "0"), subscribe("c", "/queue/log.{x}"), hear("c", "MESSAGE", "0"), read("a", "x-stream-offset:first"),
        hear("a", "MESSAGE", "0", destination="/queue/log.{x}"),
    ], broker="streams"),
    Case("a name: the position moves with each ACK and waits", [
        *log("0", "1", "2"), read("a", "ack:client\ndurable-subscription-name:n\nx-stream-offset:first",
                                  durable_name="n", subscription_created="true"),
        *numbered("a", "0"), keep("a", "MESSAGE", last="message-id"), hear("a", "MESSAGE", "2"), acknowledge("a"), bye("a"), *log("3"),
        read("b", "durable-subscription-name:n\nx-stream-offset:first", subscription_created="false"), *numbered("b", "2", "3"), bye("b"),
        read("c", "durable-subscription-name:n", subscription_created="false"), sync("c"), *log("4"), *numbered("c", "4"),
    ], broker="streams"),
    Case("what was acknowledged out of order does not come again", [
        *log("0", "1", "2"), read("a", "ack:client-individual\ndurable-subscription-name:n\nx-stream-offset:first"), *numbered("a", "0"),
        keep("a", "MESSAGE", last="message-id"), hear("a", "MESSAGE", "2"), acknowledge("a"), bye("a"),
        read("b", "durable-subscription-name:n"),
        *numbered("b", "0", "2"), sync("b"),
    ], broker="streams"),
    Case("a name has one subscriber", [
        read("a", "durable-subscription-name:n"),
        say("b", "SUBSCRIBE", "/stream/log.{x}", headers="id:1\ndurable-subscription-name:n"), refused("b", "durable-in-use", "n"),
    ], broker="streams"),
    Case("a name belongs to a client-id", [
        *log("0"), read("a", "durable-subscription-name:n\nx-stream-offset:first"), read("b", "durable-subscription-name:n"), sync("b"),
        *numbered("a", "0"),
    ], broker="streams", login={"a": "client-id:one", "b": "client-id:two"}),
    Case("UNSUBSCRIBE with the name forgets the position", [
        *log("0"), read("a", "durable-subscription-name:n"), sync("a"),
        say("a", "UNSUBSCRIBE", headers="durable-subscription-name:n\nreceipt:u"), hear("a", "RECEIPT", receipt_id="u"), bye("a"),
        read("b", "durable-subscription-name:n\nx-stream-offset:first", subscription_created="true"), *numbered("b", "0"),
    ], broker="streams"),
]  # fmt: skip

CONFIGURATIONS = {"streams": CONFIGURATION}

test_over_tcp, test_over_websocket = played(CASES)


def test_position_scheduled_and_duplicates_outlive_the_broker(tmp_path: Path) -> None:
    """One life of a broker, then the next on the same data."""
    arguments = ("--data", str(tmp_path / "data"), "--listen", "tcp://127.0.0.1:0", "--no-admin")
    served = start_broker(tmp_path / "broker", *arguments)
    reading = {
        "id": "r",
        "destination": "/stream/s",
        "durable-subscription-name": "n",
        "ack": "client",
        "x-stream-offset": "first",
    }
    with Plain(served.port) as client:
        client.send("SUBSCRIBE", reading)
        for body in (b"0", b"1"):
            client.send("SEND", {"destination": "/topic/s"}, body)
        client.send("ACK", {"id": client.receive().headers["ack"]})
        assert client.receive().body == b"1"
        client.send("SEND", {"destination": "/queue/q", "AMQ_SCHEDULED_DELAY": "1500"}, b"later")
        client.send("SEND", {"destination": "/queue/q", "_AMQ_DUPL_ID": "7"}, b"once")
        client.send("DISCONNECT", {"receipt": "bye"})
        assert client.receive().headers["receipt-id"] == "bye"
    end(served)
    served = start_broker(tmp_path / "broker", *arguments)
    with Plain(served.port) as client:
        client.send("SUBSCRIBE", reading)
        assert client.receive().body == b"1"
        client.send("SEND", {"destination": "/queue/q", "_AMQ_DUPL_ID": "7"}, b"twice")
        client.send("SUBSCRIBE", {"id": "q", "destination": "/queue/q"})
        found = [client.receive() for _ in range(2)]
        assert {frame.body for frame in found} == {b"once", b"later"}, (
            "in this order, unless the start took longer than the delay"
        )
    end(served)
