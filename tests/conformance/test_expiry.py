"""Expiry and scheduled delivery on the wire. The waiting is done by the broker's own deadlines, some milliseconds long."""

from __future__ import annotations

import time

from tests.conformance.playing import played
from tests.conformance.script import Case, Play, Step, hear, refused, say, send, subscribe, sync

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
    return [subscribe("e", "/queue/expired::EXP.{address}"), hear("e", "MESSAGE", "1", **{"dead-letter-reason": "expired"}, **values)]


def at(address: str, *steps: Step) -> list[Step]:
    def name(play: Play) -> None:
        play.words["address"] = play.fill(address)

    return [name, *steps]


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
    Case("a delay in a transaction counts from the COMMIT", [
        subscribe("a", "/queue/{x}"), say("s", "BEGIN", headers="transaction:t"),
        send("s", "/queue/{x}", "1", "AMQ_SCHEDULED_DELAY:80\ntransaction:t"), send("s", "/queue/{x}", "2", "transaction:t"),
        say("s", "COMMIT", headers="transaction:t"), hear("a", "MESSAGE", "2"), hear("a", "MESSAGE", "1"),
    ]),
]  # fmt: skip

CONFIGURATIONS = {"expiry": CONFIGURATION}

test_over_tcp, test_over_websocket = played(CASES)
