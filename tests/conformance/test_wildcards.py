"""Patterns in another syntax than `a.#`: destinations, address settings, permissions and diverts of one broker agree on it."""

from __future__ import annotations

import json

from tests.conformance.playing import played
from tests.conformance.script import Case, Play, Step, bye, hear, refused, say, send, subscribe, sync

RIGHTS = """
consume = ["*"]
create-address = ["*"]
create-durable-queue = ["*"]
create-non-durable-queue = ["*"]
delete-durable-queue = ["*"]
manage = ["*"]
"""

SLASH = f"""
memory = true
literal-match-markers = "()"
[wildcard-addresses]
delimiter = "/"

[[listener]]
url = "tcp://127.0.0.1:0"

[[permission]]
match = "#"
send = ["*"]
{RIGHTS}
[[permission]]
match = "told/*/secret/#"
send = []
{RIGHTS}
[[address-setting]]
match = "many/#"
default-address-routing-type = "MULTICAST"
[[address-setting]]
match = "many/*/one"
default-address-routing-type = "ANYCAST"
[[address-setting]]
match = "(literal/(x))"
auto-create-addresses = false

[[divert]]
name = "copy"
address = "from/#"
forwarding-address = "copies"
[[divert]]
name = "literal"
address = "(exactly)"
forwarding-address = "copies"

[[virtual-host]]
name = "main"
default = true
[[virtual-host]]
name = "green"
[[virtual-host.address-setting]]
match = "closed/#"
auto-create-addresses = false
"""

PLUS = """
memory = true
[wildcard-addresses]
delimiter = "."
any-words = ">"
single-word = "+"
[[listener]]
url = "tcp://127.0.0.1:0"
"""

OFF = """
memory = true
literal-match-markers = "()"
[wildcard-addresses]
enabled = false
[[listener]]
url = "tcp://127.0.0.1:0"
[[address-setting]]
match = "many.#"
default-address-routing-type = "MULTICAST"
[[address-setting]]
match = "(many.#)"
default-address-routing-type = "ANYCAST"
[[address]]
name = "made.*"
routing-types = ["ANYCAST"]
"""


def described(destinations: str, *names: str) -> list[Step]:
    """A request finds these addresses and no others."""

    def step(play: Play) -> None:
        answer = json.loads(play.client("o").expect("MESSAGE").body)
        assert (list(answer["addresses"]), answer["missing"]) == ([play.fill(name) for name in names], []), (
            answer
        )

    return [
        say(
            "o",
            "SEND",
            "stompbox.requests",
            headers=f"request:describe\nrequest-id:1\ndestinations:{destinations}",
        ),
        step,
    ]


GREEN = {"g": "host:green", "g2": "host:green"}

CASES = [
    Case("words are divided by the delimiter that is configured, now and later", [
        send("s", "/topic/{x}/early", "0"), subscribe("a", "/topic/{x}/#"), subscribe("b", "/topic/{x}/*"),
        send("s", "/topic/{x}/b/c", "1"), hear("a", "MESSAGE", "1", destination="/topic/{x}/b/c"), sync("b"),
        send("s", "/topic/{x}/early", "2"), hear("a", "MESSAGE", "2"), hear("b", "MESSAGE", "2"),
        send("s", "/topic/{x}", "3"), hear("a", "MESSAGE", "3"), sync("b"), send("s", "/topic/{x}.b", "4"), sync("a"), sync("b"),
    ], broker="slash"),
    Case("wildcards with another delimiter reach queues, too", [
        subscribe("a", "/queue/{x}/*/new"), send("s", "/queue/{x}/eu/new", "1"), hear("a", "MESSAGE", "1"), send("s", "/queue/{x}/eu/old"),
        sync("a"),
    ], broker="slash"),
    Case("a name without prefix begins with the delimiter", [
        subscribe("a", "/{x}/#", headers="subscription-type:MULTICAST"), send("s", "/{x}/b", "1", "destination-type:MULTICAST"),
        hear("a", "MESSAGE", "1"), send("s", "{x}/b", "2", "destination-type:MULTICAST"), sync("a"),
    ], broker="slash"),
    Case("a dot is a character like others where it divides no words", [
        subscribe("a", "/topic/{x}.1/*"), send("s", "/topic/{x}.1/v.2", "1"), hear("a", "MESSAGE", "1"),
        say("b", "SUBSCRIBE", "/topic/{x}.#", headers="id:1"), refused("b", "bad-destination", "words are divided by /", "{x}/#"),
    ], broker="slash"),
    Case("the spellings of brokers with dots are words like others elsewhere", [
        subscribe("a", "/topic/{x}/>"), send("s", "/topic/{x}/b", "1"), sync("a"),
        send("s", "/topic/{x}/>", "2"), hear("a", "MESSAGE", "2"),
    ], broker="slash"),
    Case("a wildcard with another delimiter cannot be sent to", [
        say("a", "SEND", "/topic/{x}/#"), refused("a", "bad-destination", "not sent to"),
    ], broker="slash"),
    Case("a durable subscription to a wildcard with another delimiter", [
        subscribe("a", "/topic/{x}/#", headers="activemq.subscriptionName:s"), bye("a"), send("s", "/topic/{x}/b/c", "1"),
        send("s", "/topic/{x}.b", "2"), subscribe("a", "/topic/{x}/#", headers="activemq.subscriptionName:s"),
        hear("a", "MESSAGE", "1"), sync("a"),
    ], broker="slash", login={"a": "client-id:{x}"}),
    Case("address settings match by it, the most specific first", [
        subscribe("a", "many/{x}"), subscribe("b", "many/{x}"), send("s", "many/{x}", "1"),
        hear("a", "MESSAGE", "1"), hear("b", "MESSAGE", "1"),
        send("s", "many/{x}/one", "2"), subscribe("c", "/queue/many/{x}/one"), hear("c", "MESSAGE", "2"),
        send("s", "many.{x}", "3"), subscribe("d", "/queue/many.{x}"), hear("d", "MESSAGE", "3"),
    ], broker="slash"),
    Case("permissions match by it", [
        say("a", "SEND", "/topic/told/{x}/secret/1"), refused("a", "not-permitted"),
        send("b", "/topic/told/{x}/open", "1"), sync("b"), send("b", "/topic/told.{x}.secret", "1"), sync("b"),
    ], broker="slash"),
    Case("diverts match by it, and one between the markers by its name alone", [
        subscribe("a", "/queue/copies"), send("s", "/queue/from/{x}/b", "1"), hear("a", "MESSAGE", "1"),
        send("s", "/queue/exactly", "2"), hear("a", "MESSAGE", "2"), send("s", "/queue/from.{x}", "3"), sync("a"),
    ], broker="slash"),
    Case("what is between the markers is a name, whatever is in it", [
        say("a", "SEND", "/queue/literal/(x)"), refused("a", "no-such-address"), send("b", "/queue/literal/x", "1"), sync("b"),
    ], broker="slash"),
    Case("no wildcard with another delimiter reaches another virtual host", [
        subscribe("a", "/topic/#/{x}/#"), subscribe("g2", "/topic/{x}/*"), send("g", "/topic/{x}/1", "green"),
        hear("g2", "MESSAGE", "green", destination="/topic/{x}/1"), sync("a"),
        say("g2", "SEND", "/topic/closed/{x}"), refused("g2", "no-such-address", "closed/{x}"),
        send("s", "/topic/closed/{x}", "main"), hear("a", "MESSAGE", "main"),
    ], broker="slash", login=GREEN),
    Case("requests take it as SUBSCRIBE does", [
        subscribe("a", "/topic/{x}/1"), subscribe("a", "/topic/{x}.2", "2"), sync("a"), *described("/topic/{x}/#", "{x}/1"),
    ], broker="slash"),
    Case("other characters stand for words", [
        subscribe("a", "/topic/{x}.>"), subscribe("b", "/topic/{x}.+"), send("s", "/topic/{x}.b.c", "1"), hear("a", "MESSAGE", "1"),
        send("s", "/topic/{x}.b", "2"), hear("a", "MESSAGE", "2"), hear("b", "MESSAGE", "2"),
        subscribe("c", "/topic/{x}.*"), send("s", "/topic/{x}.*", "3"), hear("c", "MESSAGE", "3"), hear("b", "MESSAGE", "3"),
        send("s", "/topic/{x}.z", "4"), sync("c"),
    ], broker="plus"),
    Case("switched off, a destination is a name", [
        subscribe("a", "/topic/{x}.#"), send("s", "/topic/{x}.b", "1"), sync("a"),
        send("s", "/topic/{x}.#", "2"), hear("a", "MESSAGE", "2"),
        subscribe("b", "/topic/{x}.>"), send("s", "/topic/{x}.>", "3"), hear("b", "MESSAGE", "3"), sync("a"),
        send("s", "/queue/made.*", "4"), subscribe("c", "/queue/made.*"), hear("c", "MESSAGE", "4"),
    ], broker="off"),
    Case("switched off, matches are patterns all the same, and literal ones names of what can be sent to", [
        subscribe("a", "many.{x}"), subscribe("b", "many.{x}"), send("s", "many.{x}", "1"), hear("a", "MESSAGE", "1"),
        hear("b", "MESSAGE", "1"), send("s", "many.#", "2"), subscribe("c", "/queue/many.#"), hear("c", "MESSAGE", "2"),
    ], broker="off"),
]  # fmt: skip

CONFIGURATIONS = {"slash": SLASH, "plus": PLUS, "off": OFF}

test_over_tcp, test_over_websocket = played(CASES)
