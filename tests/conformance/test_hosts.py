"""Virtual hosts: each with addresses of its own, which no name, wildcard, dead letter or request of another host reaches."""

from __future__ import annotations

import json
from pathlib import Path

from tests.conformance.playing import played
from tests.conformance.script import (
    Case,
    Play,
    Step,
    bye,
    hear,
    keep,
    play,
    refused,
    say,
    send,
    subscribe,
    sync,
)
from tests.conftest import Serve

CONFIGURATION = """
memory = true
[[listener]]
url = "tcp://127.0.0.1:0"

[[address-setting]]
match = "#"
max-delivery-attempts = 1
dead-letter-address = "dead"
auto-create-dead-letter-resources = true
[[address-setting]]
match = "one.#"
default-max-consumers = 1

[[virtual-host]]
name = "main"
default = true

[[virtual-host]]
name = "blue.example"

[[virtual-host]]
name = "green"
[[virtual-host.address-setting]]
match = "many.#"
default-address-routing-type = "MULTICAST"
[[virtual-host.permission]]
match = "#"
send = ["*"]
consume = ["*"]
create-address = ["*"]
create-durable-queue = ["*"]
create-non-durable-queue = ["*"]
delete-durable-queue = ["*"]
manage = ["*"]
[[virtual-host.permission]]
match = "closed.#"
send = ["*"]
create-address = ["*"]
create-durable-queue = ["*"]
[[virtual-host.address]]
name = "made"
routing-types = ["ANYCAST"]
[[virtual-host.address.queue]]
name = "red"
filter = "colour = 'red'"
[[virtual-host.divert]]
name = "copy"
address = "diverted"
forwarding-address = "copies"
"""
GREEN, BLUE, MAIN = "host:green", "host:blue.example", "host:main"
LOGIN = {"g": GREEN, "g2": GREEN, "b": BLUE, "b2": BLUE, "": MAIN}
DESCRIBED = '{"addresses":{"{x}.1":{"first":0,"next":0}},"missing":[]}'
INSIDE = (
    "/queue/vhost/green.{x}",
    "/topic/vhost/green.#",
    "/queue/a::vhost/green.{x}",
    "/stream/vhost/green.{x}",
)
NACKING = ("1.1", "1.2")


def tells(client: str, body: str) -> Step:
    """The next frame is an answer with this JSON, but for which log it is: that is another one in each run."""

    def without_incarnations(value: object) -> object:
        if isinstance(value, dict):
            return {
                name: without_incarnations(found)
                for name, found in value.items()
                if not name.startswith("incarnation")
            }
        return value

    def step(play: Play) -> None:
        answer = play.client(client).expect("MESSAGE")
        assert answer.value("status") == "ok", str(answer)
        assert without_incarnations(json.loads(answer.body)) == json.loads(play.fill(body)), str(answer)

    return step


def request(client: str, name: str, headers: str, **values: str) -> list[Step]:
    return [
        say(client, "SEND", "stompbox.requests", headers=f"request:{name}\nrequest-id:1\n{headers}"),
        hear(client, "MESSAGE", **values),
    ]


def nack(client: str) -> Step:
    def step(play: Play) -> None:
        say(client, "NACK", headers="id:{m}" if play.version == "1.2" else "message-id:{m}\nsubscription:0")(
            play
        )

    return step


CASES = [
    *[Case(f"one name, three hosts: /{kind}/", [
        subscribe("g", f"/{kind}/{{x}}"), subscribe("b", f"/{kind}/{{x}}"), subscribe("m", f"/{kind}/{{x}}"),
        send("g2", f"/{kind}/{{x}}", "1"), hear("g", "MESSAGE", "1", destination=f"/{kind}/{{x}}"), sync("b"), sync("m"),
        send("b2", f"/{kind}/{{x}}", "2"), hear("b", "MESSAGE", "2"), sync("g"), sync("m"),
        send("m2", f"/{kind}/{{x}}", "3"), hear("m", "MESSAGE", "3"), sync("g"), sync("b"),
    ]) for kind in ("queue", "topic")],
    Case("the default host takes who names no host that is there", [
        subscribe("m", "/queue/{x}"), send("other", "/queue/{x}", "1"), hear("m", "MESSAGE", "1"),
    ], login={**LOGIN, "other": "host:elsewhere"}),
    *[Case(f"no wildcard reaches another host: {pattern}", [
        *[subscribe(client, f"/topic/{pattern}") for client in ("g", "b", "m")], send("g2", "/topic/{x}", "1"),
        sync("b"), sync("m"), *([hear("g", "MESSAGE", "1")] if pattern in ("{x}.#", "#.{x}") else []), sync("g"),
    ]) for pattern in ("{x}.#", "*.{x}", "#.{x}", "*.*.{x}")],
    *[Case(f"nobody says a name inside the broker: {text}", [
        send("g", "/queue/{x}", "1"), say(client, "SUBSCRIBE", text, headers="id:1"), refused(client, "bad-destination", "vhost/"),
    ]) for client in ("m", "b") for text in INSIDE],
    Case("settings of its own in place of the top-level ones", [
        subscribe("g", "/queue/one.{x}"), subscribe("g2", "/queue/one.{x}"), subscribe("b", "/queue/one.{x}"),
        say("b2", "SUBSCRIBE", "/queue/one.{x}", headers="id:1"), refused("b2", "too-many-consumers", "queue 'one.{x}'"),
        subscribe("g", "many.{x}", id="1"), subscribe("g2", "many.{x}", id="1"), send("g", "many.{x}", "1"),
        hear("g", "MESSAGE", "1"), hear("g2", "MESSAGE", "1"),
    ]),
    Case("permissions of its own", [
        send("g", "/queue/closed.{x}", "1"), say("g", "SUBSCRIBE", "/queue/closed.{x}", headers="id:1"),
        refused("g", "not-permitted", "'consume' on address 'closed.{x}'"), send("b", "/queue/closed.{x}", "2"),
        subscribe("b", "/queue/closed.{x}"), hear("b", "MESSAGE", "2"),
    ]),
    Case("addresses and queues of its own", [
        subscribe("g", "/queue/made::red"), send("g", "/queue/made", "1", "colour:blue"), send("g", "/queue/made", "2", "colour:red"),
        hear("g", "MESSAGE", "2"), subscribe("b", "/queue/made"), send("b", "/queue/made", "3"), hear("b", "MESSAGE", "3"),
    ]),
    Case("a divert of its own", [
        subscribe("g", "/queue/copies"), subscribe("b", "/queue/copies"), send("g", "/queue/diverted", "1"), hear("g", "MESSAGE", "1"),
        send("b", "/queue/diverted", "2"), sync("b"), sync("g"),
    ]),
    Case("the queue of an address has its name", [
        send("g", "/queue/{x}", "1"), subscribe("g", "/queue/{x}::{x}"), hear("g", "MESSAGE", "1"),
    ]),
    Case("dead letters stay in their host", [
        send("b", "/queue/{x}", "1"), subscribe("b", "/queue/{x}", headers="ack:client"), keep("b", "MESSAGE", m="message-id"), nack("b"),
        sync("b"), subscribe("m", "/queue/dead::DLQ.{x}"), sync("m"), subscribe("b2", "/queue/dead::DLQ.{x}"),
        hear("b2", "MESSAGE", "1", original_destination="/queue/{x}", _AMQ_ORIG_ADDRESS="{x}", _AMQ_ORIG_QUEUE="{x}"),
    ], NACKING),
    Case("a durable subscription belongs to its host", [
        *[subscribe(client, "/topic/{x}", headers="durable-subscription-name:d") for client in ("g", "b")],
        bye("g"), bye("b"), send("g2", "/topic/{x}", "1"), subscribe("g", "/topic/{x}", headers="durable-subscription-name:d"),
        hear("g", "MESSAGE", "1"), subscribe("b", "/topic/{x}", headers="durable-subscription-name:d"), sync("b"),
        bye("b"), say("b", "UNSUBSCRIBE", headers="id:0\ndurable-subscription-name:d\nreceipt:u"), hear("b", "RECEIPT"),
        send("g2", "/topic/{x}", "2"), hear("g", "MESSAGE", "2"),
    ], login={**LOGIN, "g": f"{GREEN}\nclient-id:c{{x}}", "b": f"{BLUE}\nclient-id:c{{x}}"}),
    Case("a temporary queue belongs to its host", [
        subscribe("g", "/queue/{x}"), subscribe("g2", "/temp-queue/t"), send("g2", "/queue/{x}", "?", "reply-to:/temp-queue/t"),
        keep("g", "MESSAGE", reply="reply-to"), say("b", "SEND", "{reply}", "no"), refused("b", "no-such-temporary"),
        send("g", "{reply}", "yes"), hear("g2", "MESSAGE", "yes"), sync("g2"),
    ]),
    Case("a selector sees the address as clients do", [
        subscribe("g", "/topic/{x}", headers="selector:AMQAddress = '{x}'"), send("g2", "/topic/{x}", "1"), hear("g", "MESSAGE", "1"),
    ]),
    Case("a stream, and a reader with a name", [
        subscribe("g", "/stream/{x}", headers="durable-subscription-name:r\nack:client"), send("g2", "/topic/{x}", "1"),
        send("b", "/topic/{x}", "2"),
        hear("g", "MESSAGE", "1"), say("b", "UNSUBSCRIBE", headers="id:0\ndurable-subscription-name:r"), hear("b", "ERROR"),
        send("g2", "/topic/{x}", "3"), hear("g", "MESSAGE", "3"),
    ]),
    Case("requests see their own host", [
        subscribe("g2", "/queue/{x}.1"), subscribe("b2", "/queue/{x}.2"), subscribe("m", "/queue/{x}.3"),
        sync("g2"), sync("b2"), sync("m"), request("g", "describe", "destinations:{x}.#")[0], tells("g", DESCRIBED),
        *request("b", "fetch", "address:{x}.1\nstart:0\nstop:1", status="error", code="no-such-address",
                 message="address '{x}.1' does not exist"),
        *request("m", "fetch", "address:vhost/green.{x}.1\nstart:0\nstop:1", status="error", code="bad-destination"),
        request("g", "group-open", "group:{x}\ndestinations:{x}.#\nstarting:earliest")[0], tells("g", '{"positions":{"{x}.1":0}}'),
        request("b", "group-open", "group:{x}\ndestinations:{x}.#\nstarting:earliest")[0], tells("b", '{"positions":{"{x}.2":0}}'),
        *request("m", "groups", "group:{x}", body='{"groups":{}}', status="ok"),
    ]),
    Case("an operator's requests", [
        subscribe("g", "/queue/{x}"), subscribe("b", "/queue/{x}"), *request("g", "pause", "address:{x}", status="ok"),
        send("g2", "/queue/{x}", "1"), sync("g"), send("b2", "/queue/{x}", "2"), hear("b", "MESSAGE", "2"),
        *request("g", "resume", "address:{x}", status="ok"), hear("g", "MESSAGE", "1"),
    ]),
]  # fmt: skip


def test_hosts_stay_apart_over_a_restart(tmp_path: Path, serve: Serve) -> None:
    path = tmp_path / "stompbox.toml"
    path.write_text(CONFIGURATION.replace("memory = true", f'data = "{tmp_path}/data"'), encoding="utf-8")
    served = serve("--config", str(path), "--no-admin")
    keep_them = Case("", [
        *[subscribe(client, "/topic/t", headers="durable-subscription-name:d") for client in ("g", "b")], bye("g"), bye("b"),
        send("g2", "/queue/a", "green"), send("m", "/queue/a", "main"), send("g2", "/topic/t", "green"), send("b2", "/topic/t", "blue"),
    ], login={**LOGIN, "g": f"{GREEN}\nclient-id:c", "b": f"{BLUE}\nclient-id:c"})  # fmt: skip
    play((served.host, served.port), keep_them, "1.2", "tcp")
    assert served.stop() == 0
    served = serve("--config", str(path), "--no-admin")
    find_them = Case("", [
        subscribe("b", "/queue/a", id="1"), sync("b"), subscribe("g", "/queue/a", id="1"), hear("g", "MESSAGE", "green"),
        subscribe("m", "/queue/#", id="1"), hear("m", "MESSAGE", "main"), sync("m"), sync("g"),
        subscribe("g", "/topic/t", headers="durable-subscription-name:d"), hear("g", "MESSAGE", "green"), sync("g"),
        subscribe("b", "/topic/t", headers="durable-subscription-name:d"), hear("b", "MESSAGE", "blue"), sync("b"),
    ], login=keep_them.login)  # fmt: skip
    play((served.host, served.port), find_them, "1.2", "tcp")


CONFIGURATIONS = {"hosts": CONFIGURATION}


def placed(case: Case) -> Case:
    return Case(case.name, case.steps, case.versions, "hosts", case.login or LOGIN)


test_over_tcp, test_over_websocket = played([placed(case) for case in CASES])
