"""Expiry and scheduled delivery on the wire. The waiting is done by the broker's own deadlines, some milliseconds long."""

from __future__ import annotations

import json
import time

from tests.conformance.playing import played
from tests.conformance.script import Case, Play, Step, hear, keep, refused, say, send, subscribe, sync

CONFIGURATION = """
memory = true
[[listener]]
url = "tcp://127.0.0.1:0"

[[address-setting]]
match = "#"
expiry-address = "expired"
auto-create-expiry-resources = true

[[address-setting]]
match = "brief.#"
expiry-delay = 50

[[address-setting]]
match = "cut.#"
max-expiry-delay = 50

[[address-setting]]
match = "ever.#"
no-expiry = true
"""
FAR = 4_000_000_000_000


def soon(ms: int) -> Step:
    """Keeps `{soon}`: that many ms from now."""

    def step(play: Play) -> None:
        play.words["soon"] = str(int(time.time() * 1000) + ms)

    return step


def expired(**values: str) -> list[Step]:
    """It comes to the queue that its address has among the expired."""
    return [
        subscribe("e", "/queue/expired::EXP.{address}"),
        hear("e", "MESSAGE", "1", **{"dead-letter-reason": "expired"}, **values),
    ]


def at(address: str, *steps: Step) -> list[Step]:
    def name(play: Play) -> None:
        play.words["address"] = play.fill(address)

    return [name, *steps]


def differs(one: str, other: str) -> Step:
    """Of what `keep` has kept."""

    def step(play: Play) -> None:
        assert play.words[one] != play.words[other]

    return step


def only_job(client: str) -> Step:
    """The answer to `schedules` lists one; keeps its id."""

    def step(play: Play) -> None:
        (found,) = json.loads(play.client(client).expect("MESSAGE").body)["schedules"]
        assert found["cron"] == "0 3 * * MON"
        assert found["next"] > time.time() * 1000
        play.words["job"] = found["id"]

    return step


CASES = [
    Case("expires: past", at("{x}", send("s", "/queue/{address}", "1", "expires:1"), subscribe("a", "/queue/{address}"), sync("a"),
                             *expired(original_destination="/queue/{x}", _AMQ_ORIG_ADDRESS="{x}")), broker="expiry"),
    Case("expires: soon", at("{x}", soon(80), send("s", "/queue/{address}", "1", "expires:{soon}"), *expired()), broker="expiry"),
    Case("expires: 0 is never", at("{x}", send("s", "/queue/{address}", "1", "expires:0"), subscribe("a", "/queue/{address}"),
                                   hear("a", "MESSAGE", "1", expires="0")), broker="expiry"),
    Case("expires: far away", at("{x}", send("s", "/queue/{address}", "1", f"expires:{FAR}"), subscribe("a", "/queue/{address}"),
                                 hear("a", "MESSAGE", "1", expires=str(FAR)))),
    Case("expiration: ms from now", at("{x}", send("s", "/queue/{address}", "1", "expiration:50"), *expired()), broker="expiry"),
    Case("expiration passes on", at("{x}", send("s", "/queue/{address}", "1", "expiration:50000"), subscribe("a", "/queue/{address}"),
                                    hear("a", "MESSAGE", "1", without=["expires"], expiration="50000"))),
    Case("the settings give a time to live", at("brief.{x}", send("s", "/queue/{address}", "1"), *expired()), broker="expiry"),
    Case("settings cut a time to live", at("cut.{x}", send("s", "/queue/{address}", "1", f"expires:{FAR}"), *expired()), broker="expiry"),
    Case("the settings let nothing expire", at("ever.{x}", send("s", "/queue/{address}", "1", "expires:1"),
                                               subscribe("a", "/queue/{address}"), hear("a", "MESSAGE", "1", without=["expires"])),
         broker="expiry"),
    Case("both, and they disagree", [say("s", "SEND", "/queue/{x}", headers=f"expires:{FAR}\nexpiration:50"),
                                     refused("s", "bad-expires", "expiration", "50")]),
    *[Case(f"not a time: {header}", [say("s", "SEND", "/queue/{x}", headers=header), refused("s", code, *header.split(":"))])
      for header, code in [
          ("expires:soon", "bad-expires"), ("expires:-1", "bad-expires"),
          ("expiration:1.5", "bad-expires"), ("expiration:-1", "bad-expires"),
          ("AMQ_SCHEDULED_DELAY:later", "bad-schedule"), ("AMQ_SCHEDULED_TIME:1e3", "bad-schedule"),
          ("AMQ_SCHEDULED_PERIOD:often", "bad-schedule"), ("AMQ_SCHEDULED_PERIOD:-1", "bad-schedule"),
          ("AMQ_SCHEDULED_REPEAT:some", "bad-schedule"), ("AMQ_SCHEDULED_REPEAT:3", "bad-schedule"),
          *[(f"AMQ_SCHEDULED_CRON:{cron}", "bad-schedule") for cron in (
              "daily", "* * * *", "* * * * * *", "60 * * * *", "* * 30 2 *", "* * * * 1#5", "*/0 * * * *", "*  * * * *")],
      ]],
    Case("a delay holds up nobody", [
        subscribe("a", "/queue/{x}"), send("s", "/queue/{x}", "1", "AMQ_SCHEDULED_DELAY:80"), send("s", "/queue/{x}", "2"),
        hear("a", "MESSAGE", "2"), hear("a", "MESSAGE", "1", redelivered="false"), sync("a"),
    ]),
    Case("a time", [
        subscribe("a", "/queue/{x}"), soon(80), send("s", "/queue/{x}", "1", "AMQ_SCHEDULED_TIME:{soon}"), send("s", "/queue/{x}", "2"),
        hear("a", "MESSAGE", "2"), hear("a", "MESSAGE", "1"), sync("a"),
    ]),
    Case("a delay on a topic", [
        subscribe("a", "/topic/{x}"), send("s", "/topic/{x}", "1", "AMQ_SCHEDULED_DELAY:80"), send("s", "/topic/{x}", "2"),
        hear("a", "MESSAGE", "2"), hear("a", "MESSAGE", "1"), sync("a"),
    ]),
    Case("a delay on a topic with a selector", [
        subscribe("a", "/topic/{x}", headers="selector:colour = 'red'"),
        send("s", "/topic/{x}", "1", "AMQ_SCHEDULED_DELAY:80\ncolour:red"), send("s", "/topic/{x}", "2", "colour:red"),
        send("s", "/topic/{x}", "3", "AMQ_SCHEDULED_DELAY:1\ncolour:blue"), hear("a", "MESSAGE", "2"), hear("a", "MESSAGE", "1"),
    ]),
    *[Case(f"{header} is now", [
        subscribe("a", "/queue/{x}"), send("s", "/queue/{x}", "1", header), hear("a", "MESSAGE", "1"),
    ]) for header in ("AMQ_SCHEDULED_DELAY:0", "AMQ_SCHEDULED_DELAY:-5", "AMQ_SCHEDULED_TIME:1000", "AMQ_SCHEDULED_TIME:-1")],
    # the periods are long: of times that went by while the machine was busy one message is sent alone
    Case("AMQ_SCHEDULED_PERIOD and _REPEAT: one, and so many more, each with an id of its own", [
        subscribe("a", "/queue/{x}"), send("s", "/queue/{x}", "1", "AMQ_SCHEDULED_PERIOD:500\nAMQ_SCHEDULED_REPEAT:2\ncolour:red"),
        keep("a", "MESSAGE", first="message-id", job="scheduledJobId"), keep("a", "MESSAGE", second="message-id"),
        differs("first", "second"),
        hear("a", "MESSAGE", "1", without=["AMQ_SCHEDULED_PERIOD", "AMQ_SCHEDULED_REPEAT"], scheduledJobId="{job}", colour="red"),
        send("s", "/queue/{x}", "end", "AMQ_SCHEDULED_DELAY:700"), hear("a", "MESSAGE", "end"),
    ]),
    Case("AMQ_SCHEDULED_PERIOD on a topic comes to each subscriber once a time", [
        subscribe("a", "/topic/{x}"), subscribe("b", "/topic/{x}"),
        send("s", "/topic/{x}", "1", "AMQ_SCHEDULED_PERIOD:500\nAMQ_SCHEDULED_REPEAT:1\nAMQ_SCHEDULED_DELAY:10"),
        hear("a", "MESSAGE", "1"), hear("a", "MESSAGE", "1"), hear("b", "MESSAGE", "1"), hear("b", "MESSAGE", "1"),
        send("s", "/topic/{x}", "end", "AMQ_SCHEDULED_DELAY:700"), hear("a", "MESSAGE", "end"), hear("b", "MESSAGE", "end"),
    ]),
    Case("AMQ_SCHEDULED_PERIOD in a transaction counts from the COMMIT, and not after ABORT", [
        subscribe("a", "/queue/{x}"), say("s", "BEGIN", headers="transaction:t"),
        send("s", "/queue/{x}", "1", "AMQ_SCHEDULED_PERIOD:500\nAMQ_SCHEDULED_REPEAT:1\ntransaction:t"),
        say("s", "COMMIT", headers="transaction:t"), hear("a", "MESSAGE", "1"), hear("a", "MESSAGE", "1"),
        say("s", "BEGIN", headers="transaction:u"),
        send("s", "/queue/{x}", "2", "AMQ_SCHEDULED_PERIOD:30\nAMQ_SCHEDULED_REPEAT:1\ntransaction:u"),
        say("s", "ABORT", headers="transaction:u"), send("s", "/queue/{x}", "end", "AMQ_SCHEDULED_DELAY:120"), hear("a", "MESSAGE", "end"),
    ]),
    Case("AMQ_SCHEDULED_CRON is taken, seen and ended", [
        subscribe("a", "/queue/{x}"), send("s", "/queue/{x}", "1", "AMQ_SCHEDULED_CRON:0 3 * * MON"),
        say("s", "SEND", "stompbox.requests", headers="request:schedules\nrequest-id:1\naddress:{x}"), only_job("s"),
        say("s", "SEND", "stompbox.requests", headers="request:unschedule\nrequest-id:2\nid:{job}"),
        hear("s", "MESSAGE", "{}", status="ok"),
        say("s", "SEND", "stompbox.requests", headers="request:schedules\nrequest-id:3\naddress:{x}"),
        hear("s", "MESSAGE", '{"schedules":[]}'), sync("a"),
        say("s", "SEND", "stompbox.requests", headers="request:unschedule\nrequest-id:4\nid:{job}"),
        hear("s", "MESSAGE", code="no-such-schedule"),
    ]),
    Case("a repetition finds what was subscribed meanwhile, and expires like a message that was sent then", [
        send("s", "/queue/{x}", "1", "AMQ_SCHEDULED_PERIOD:500\nAMQ_SCHEDULED_REPEAT:1\nexpiration:5000"), subscribe("a", "/queue/{x}"),
        hear("a", "MESSAGE", "1"), hear("a", "MESSAGE", "1", expiration="5000"),
    ]),
    Case("what is for a temporary destination does not repeat", [
        subscribe("a", "/temp-queue/{x}"), say("a", "SEND", "/temp-queue/{x}", headers="AMQ_SCHEDULED_PERIOD:60"),
        refused("a", "bad-schedule", "temporary"),
    ]),
    Case("a delay in a transaction counts from the COMMIT", [
        subscribe("a", "/queue/{x}"), say("s", "BEGIN", headers="transaction:t"),
        send("s", "/queue/{x}", "1", "AMQ_SCHEDULED_DELAY:80\ntransaction:t"), send("s", "/queue/{x}", "2", "transaction:t"),
        say("s", "COMMIT", headers="transaction:t"), hear("a", "MESSAGE", "2"), hear("a", "MESSAGE", "1"),
    ]),
]  # fmt: skip

CONFIGURATIONS = {"expiry": CONFIGURATION}

test_over_tcp, test_over_websocket = played(CASES)
