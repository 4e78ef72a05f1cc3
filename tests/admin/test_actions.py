"""What operators do, and what clients notice of it."""

from __future__ import annotations

import resource
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from starlette.requests import Request

from stompbox.admin import actions
from stompbox.admin.apirequest import ApiRequest, Shared
from stompbox.broker.addresses.address import Address
from stompbox.errors import Refused
from stompbox.message import ANYCAST, Run, Shape
from stompbox.store.chunks import encode
from tests.admin.asking import JSON, ask, post, queue, read
from tests.admin.conftest import Start
from tests.admin.test_access import BOB, ROOT, USERS
from tests.admin.test_views import request, send
from tests.conftest import Served
from tests.server.turning import World
from tests.system.plain import Plain
from tests.users import users

LIMIT = 40_000  # bytes: less than the write-ahead log has from the start


def bodies(served: Served, destination: str, count: int) -> list[bytes]:
    """The next messages of a queue."""
    with Plain(served.port) as client:
        client.send("SUBSCRIBE", {"destination": destination, "id": "1"})
        return [client.receive().body for _ in range(count)]


def test_purge(served: Served) -> None:
    with Plain(served.port) as client:
        send(client, "/queue/ops.purge", b"a", b"b", b"c")
        client.send(
            "SUBSCRIBE",
            {"destination": "/queue/ops.purge", "id": "1", "ack": "client-individual", "prefetch-count": "1"},
        )
        client.receive()
        answer = post(served.admin, "queues/purge", {"queue": "ops.purge"})
        assert (answer.status, answer.json) == (
            200,
            {"queue": "ops.purge", "removed": 2, "is_estimate": False},
        )
        found = queue(served.admin, "ops.purge")
        assert (found["ready"], found["delivering"]) == (0, 1)


def test_the_log_says_who_has_done_what(start: Start) -> None:
    """And what was refused is not told as done."""
    served = start(USERS)
    with Plain(served.port, headers={"login": "root", "passcode": "r00t"}) as client:
        send(client, "/queue/ops.told", b"a")
        assert request(client, "pause", address="ops.told") is not None
    assert post(served.admin, "queues/purge", {"queue": "ops.told"}, user=BOB).status == 403
    assert post(served.admin, "queues/purge", {"queue": "ops.told"}, user=ROOT).status == 200
    told = [line for line in served.log.read_text().splitlines() if "stompbox.operators" in line]
    assert len(told) == 2
    assert "operator 'root', connection" in told[0] and told[0].endswith("pause address=ops.told")
    assert "operator 'root' from 127.0.0.1" in told[1] and told[1].endswith(
        '/api/v1/queues/purge {"queue": "ops.told"}'
    )


def test_move_and_how_many(served: Served) -> None:
    with Plain(served.port) as client:
        send(client, "/queue/ops.from", b"a", b"b", b"c")
    assert post(served.admin, "queues/move", {"queue": "ops.from", "to": "ops.to", "count": 2}).json == {
        "queue": "ops.from", "moved": 2, "is_done": True,
    }  # fmt: skip
    assert bodies(served, "/queue/ops.to", 2) == [b"a", b"b"]
    assert bodies(served, "/queue/ops.from", 1) == [b"c"]


@pytest.mark.parametrize("to", ["", "a.*", "a::b", "ops.wrong"])
def test_move_needs_another_address(served: Served, to: str) -> None:
    with Plain(served.port) as client:
        send(client, "/queue/ops.wrong", b"a")
    answer = post(served.admin, "queues/move", {"queue": "ops.wrong", "to": to})
    assert (answer.status, answer.code) == (400, "bad-destination")
    assert queue(served.admin, "ops.wrong")["ready"] >= 1


def test_redrive(start: Start) -> None:
    served = start(
        '[[address-setting]]\nmatch = "#"\nmax-delivery-attempts = 1\ndead-letter-address = "DLQ"\n'
    )
    with Plain(served.port) as client:
        send(client, "/queue/q", b"a")
        client.send("SUBSCRIBE", {"destination": "/queue/q", "id": "1", "ack": "client-individual"})
        client.send("NACK", {"id": client.receive().headers["ack"], "receipt": "dead"})
        assert client.receive().headers["receipt-id"] == "dead"
        assert queue(served.admin, "DLQ")["ready"] == 1
        assert post(served.admin, "queues/redrive", {"queue": "DLQ"}).json == {
            "queue": "DLQ",
            "moved": 1,
            "is_done": True,
        }
        again = client.receive()
        assert (again.body, again.headers["destination"]) == (b"a", "/queue/q")


def test_pause_and_resume_a_queue(served: Served) -> None:
    with Plain(served.port) as client:
        send(client, "/queue/ops.pause", b"a")
        assert post(served.admin, "queues/pause", {"queue": "ops.pause"}).json["is_paused"] is True
        client.send("SUBSCRIBE", {"destination": "/queue/ops.pause", "id": "1"})
        assert client.sync() == []
        assert queue(served.admin, "ops.pause")["is_paused"] is True
        assert post(served.admin, "queues/resume", {"queue": "ops.pause"}).json["is_paused"] is False
        assert client.receive().body == b"a"


def test_pause_and_block_an_address(served: Served) -> None:
    with Plain(served.port, "1.1") as client:
        send(client, "/queue/ops.block", b"a")
        assert post(served.admin, "addresses/block", {"address": "ops.block"}).json["is_blocked"] is True
        client.send("SEND", {"destination": "/queue/ops.block", "receipt": "no"}, b"b")
        assert client.receive().headers["code"] == "address-blocked"
        send(client, "/queue/ops.unblocked", b"x")
        assert (
            post(served.admin, "queues/move", {"queue": "ops.unblocked", "to": "ops.block"}).code
            == "address-blocked"
        )
        assert post(served.admin, "addresses/pause", {"address": "ops.block"}).json["is_paused"] is True
        client.send("SUBSCRIBE", {"destination": "/queue/ops.block", "id": "1", "ack": "client"})
        assert client.sync() == []
        assert post(served.admin, "addresses/resume", {"address": "ops.block"}).json["is_paused"] is False
        client.send(
            "NACK",
            {"message-id": client.receive().headers["message-id"], "subscription": "1", "requeue": "false"},
        )
        assert client.sync() == []
        refused = post(served.admin, "queues/redrive", {"queue": "DLQ"})
        assert (refused.status, refused.code) == (409, "address-blocked")
        assert post(served.admin, "addresses/unblock", {"address": "ops.block"}).json["is_blocked"] is False
        assert post(served.admin, "queues/redrive", {"queue": "DLQ"}).json == {
            "queue": "DLQ",
            "moved": 1,
            "is_done": True,
        }
        assert client.receive().body == b"a"
    with Plain(served.port) as client:
        send(client, "/queue/ops.block", b"b")


def test_a_queue_by_its_whole_name(served: Served) -> None:
    with Plain(served.port) as client:
        for address in ("ops.one", "ops.two"):
            send(client, f"/queue/{address}::ops.shared", b"a")
    answer = post(served.admin, "queues/purge", {"queue": "ops.shared"})
    assert (answer.status, answer.code) == (409, "ambiguous-queue")
    assert "ops.one::ops.shared" in answer.json["error"]["message"]
    assert post(served.admin, "queues/purge", {"queue": "ops.two::ops.shared"}).json["removed"] == 1
    assert bodies(served, "/queue/ops.one::ops.shared", 1) == [b"a"]


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("queues/purge", {"queue": "nowhere"}, 404, "no-such-queue"),
        ("queues/purge", {"queue": "nowhere::q"}, 404, "no-such-queue"),
        ("addresses/pause", {"address": "nowhere"}, 404, "no-such-address"),
        ("queues/purge", {}, 400, "bad-json"),
        ("queues/purge", {"queue": 7}, 400, "bad-json"),
        ("queues/purge", {"queue": "q", "cuont": 7}, 400, "bad-json"),
        ("queues/purge", ["q"], 400, "bad-json"),
        ("queues/purge", b"{", 400, "bad-json"),
        ("queues/purge", b"\xff", 400, "bad-json"),
        ("queues/purge", b'{"queue": "' + b"x" * 70_000 + b'"}', 413, "body-too-large"),
        ("queues/explode", {"queue": "q"}, 404, "no-such-page"),
    ],
)
def test_what_cannot_be_done(served: Served, path: str, body: object, status: int, code: str) -> None:
    answer = post(served.admin, path, body)
    assert (answer.status, answer.code) == (status, code)


def test_wrong_methods(served: Served) -> None:
    for path in ("/api/v1/queues/purge", "/api/v1/addresses/pause"):
        assert ask(served.admin, path).code == "wrong-method"
    assert ask(served.admin, "/api/v1/queues", "POST", {}, JSON).code == "wrong-method"
    assert ask(served.admin, "/api/v1/queues", "DELETE", None, JSON).code == "wrong-method"


def test_what_could_not_be_stored_is_not_moved_and_nothing_is_promised(start: Start, tmp_path: Path) -> None:
    served = start("", "--data", f"{tmp_path}/data")
    with Plain(served.port) as client:
        send(client, "/queue/q", b"a")
    resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE, (LIMIT, resource.RLIM_INFINITY))
    answer = post(served.admin, "queues/move", {"queue": "q", "to": "p"})
    assert (answer.status, answer.code) == (503, "io-error")  # the first to meet it
    answer = post(served.admin, "queues/redrive", {"queue": "p"})
    assert (answer.status, answer.code) == (503, "io-error")  # known by now: nothing was begun
    resource.prlimit(
        served.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    )
    assert bodies(served, "/queue/p", 1) == [b"a"]


def test_what_an_operator_did_is_there_after_a_kill(start: Start, tmp_path: Path) -> None:
    served = start("", "--data", f"{tmp_path}/data")
    with Plain(served.port) as client:
        send(client, "/queue/q", b"a", b"b", b"c")
        send(client, "/queue/r", b"a")
    assert post(served.admin, "queues/move", {"queue": "q", "to": "p", "count": 1}).json["moved"] == 1
    assert post(served.admin, "queues/purge", {"queue": "r"}).json["removed"] == 1
    served.process.kill()
    served.process.wait()
    served = start("", "--data", f"{tmp_path}/data")
    assert (queue(served.admin, "q")["ready"], queue(served.admin, "p")["ready"]) == (2, 1)
    assert ask(served.admin, "/api/v1/queues?match=r::").json["queues"] == []


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_a_closed_connection_is_told_why_and_gives_back_what_it_had(served: Served, version: str) -> None:
    queue_name = f"ops.close.{version[-1]}"
    with Plain(served.port, version, {"client-id": queue_name}) as client:
        send(client, f"/queue/{queue_name}", b"a")
        client.send("SUBSCRIBE", {"destination": f"/queue/{queue_name}", "id": "1", "ack": "client"})
        client.receive()
        [one] = read(served.admin, f"connections?match={queue_name}")["connections"]
        assert post(served.admin, "connections/close", {"connection": one["id"]}).json == {
            "connection": one["id"],
            "is_closed": True,
        }
        error = client.receive()
        assert (error.command, error.headers["code"]) == ("ERROR", "closed-by-operator")
        assert client.is_closed()
    found = queue(served.admin, queue_name)
    assert (found["ready"], found["delivering"], found["consumers"]) == (1, 0, 0)
    assert post(served.admin, "connections/close", {"connection": one["id"]}).status == 404
    assert post(served.admin, "connections/close", {"connection": "1"}).code == "bad-json"


REDRIVING = """
[[address-setting]]
match = "#"
max-delivery-attempts = 1
dead-letter-address = "DLQ"
[[permission]]
match = "#"
send = ["people"]
consume = ["people"]
create-address = ["people"]
create-durable-queue = ["people"]
manage = ["operators"]
[[permission]]
match = "open.#"
send = ["people", "operators"]
consume = ["people"]
create-address = ["people", "operators"]
create-durable-queue = ["people"]
"""
REDRIVERS = users("carol:c@operators", "eve:e@people")
FORGED = {"_AMQ_ORIG_ADDRESS": "open.secret", "_AMQ_ORIG_QUEUE": "open.secret", "original-destination": "/queue/open.secret",
          "dead-letter-reason": "rejected", "_AMQ_ORIG_MESSAGE_ID": "1-1", "_AMQ_ACTUAL_EXPIRY": "1"}  # fmt: skip


def dies(client: Plain, name: str, **headers: str) -> None:
    client.send("SEND", {"destination": f"/queue/{name}", **headers}, name.encode())
    client.send("SUBSCRIBE", {"destination": f"/queue/{name}", "id": name, "ack": "client-individual"})
    client.send("NACK", {"id": client.receive().headers["ack"]})
    client.send("UNSUBSCRIBE", {"id": name, "receipt": "dead"})
    assert client.receive().headers["receipt-id"] == "dead"


def test_redrive_goes_only_where_the_operator_may_send(start: Start) -> None:
    served = start(REDRIVING + REDRIVERS)
    with Plain(served.port, headers={"login": "eve", "passcode": "e"}) as client:
        dies(client, "closed")
        answer = post(served.admin, "queues/redrive", {"queue": "DLQ"}, "carol:c")
        assert (answer.status, answer.code) == (403, "not-permitted")
        dies(client, "open.q")
        dies(client, "closed.too", **FORGED)
        assert post(served.admin, "queues/redrive", {"queue": "DLQ"}, "carol:c").json == {
            "queue": "DLQ", "moved": 1, "not_permitted": 2, "is_done": True,
        }  # fmt: skip
        client.send("SUBSCRIBE", {"destination": "/queue/open.q", "id": "1"})
        assert client.receive().body == b"open.q"
        client.send("SUBSCRIBE", {"destination": "/queue/DLQ", "id": "2"})
        assert [client.receive().body, client.receive().body] == [b"closed", b"closed.too"]


def test_a_redrive_does_not_believe_the_sender(start: Start) -> None:
    """Neither what is sent to the dead letter queue itself, nor what dies later, nor frames that are read in runs."""
    served = start(REDRIVING.partition("[[permission]]")[0])
    with Plain(served.port) as client:
        for number in range(40):  # more than it takes until they are read in runs
            client.send(
                "SEND",
                {"destination": "/queue/DLQ", **FORGED, "dead-letter-reason": str(number), "n": str(number)},
                b"planted",
            )
        dies(client, "q", **FORGED)
        client.sync()
        assert post(served.admin, "queues/redrive", {"queue": "DLQ"}).json == {
            "queue": "DLQ",
            "moved": 1,
            "is_done": True,
        }
        client.send("SUBSCRIBE", {"destination": "/queue/q", "id": "1", "ack": "client-individual"})
        again = client.receive()
        assert (again.body, again.headers.keys() & FORGED.keys()) == (b"q", set())
        client.send("NACK", {"id": again.headers["ack"]})
        client.send("SUBSCRIBE", {"destination": "/queue/DLQ", "id": "2"})
        planted, [dead] = [client.receive() for _ in range(40)], [client.receive()]
        assert [(frame.headers["n"], FORGED.keys() & frame.headers.keys()) for frame in planted] == [
            (str(number), {"original-destination"}) for number in range(40)
        ]
        said = {name: dead.headers.get(name) for name in FORGED}
        assert said == {
            "_AMQ_ORIG_ADDRESS": "q", "_AMQ_ORIG_QUEUE": "q", "original-destination": "/queue/q", "_AMQ_ACTUAL_EXPIRY": None,
            "dead-letter-reason": "max-delivery-attempts", "_AMQ_ORIG_MESSAGE_ID": said["_AMQ_ORIG_MESSAGE_ID"],
        }  # fmt: skip
        assert dead.headers["_AMQ_ORIG_MESSAGE_ID"] != FORGED["_AMQ_ORIG_MESSAGE_ID"]
        assert client.sync() == []
        assert "open.secret" not in {one["name"] for one in read(served.admin, "addresses")["addresses"]}


def test_who_may_not_see_queues_is_not_told_their_addresses(start: Start) -> None:
    """Of several that have the name."""
    served = start(USERS)
    for address in ("secret.a", "secret.b"):
        assert post(served.admin, "queues/create", {"address": address, "queue": "twice"}, ROOT).status == 200
    for user, is_told in ((ROOT, True), (BOB, False)):
        for answer in (
            ask(served.admin, "/api/v1/messages?queue=twice", user=user),
            post(served.admin, "queues/purge", {"queue": "twice"}, user),
        ):
            assert answer.code == "ambiguous-queue"
            assert ("secret.a::twice, secret.b::twice" in answer.json["detail"]) is is_told
            assert ("secret" in answer.json["detail"]) is is_told


def test_a_queue_is_looked_for_in_steps() -> None:
    """There may be thousands of addresses, and who asks need not have any right."""
    steps = 0
    looking = actions._held([cast(Address, SimpleNamespace(anycast={}, named={}))] * 1000, "q")
    for _ in looking:
        steps += 1
    assert steps == 1000


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("addresses/create", {"address": "n" * 1025}),
        ("queues/create", {"address": "n" * 1025}),
        ("queues/create", {"address": "short", "queue": "n" * 1025}),
        ("addresses/pause", {"address": "n." * 15_000}),
        ("addresses/delete", {"address": "n." * 15_000}),
    ],
)
def test_names_are_no_longer_than_those_of_clients(served: Served, path: str, body: object) -> None:
    answer = post(served.admin, path, body)
    assert (answer.status, answer.code) == (400, "name-too-long")


def test_of_a_name_that_is_too_long_no_settings_are_looked_for(served: Served) -> None:
    assert ask(served.admin, f"/api/v1/settings?address={'n.' * 5000}").code == "name-too-long"


def test_an_operation_that_raises_stops_the_broker_and_a_page_does_not(start: Start, tmp_path: Path) -> None:
    """Nobody knows what the operation has left half-done; a page has changed nothing."""
    (tmp_path / "broker").mkdir()
    (tmp_path / "broker" / "breaking.py").write_text(BREAKING)
    served = start(
        '[[divert]]\nname = "d"\naddress = "a"\nforwarding-address = "b"\ntransformer = "breaking:transform"\n'
    )
    answer = ask(served.admin, "/api/v1/status")
    assert (answer.status, answer.json["error"]["code"]) == (503, "internal-fault")
    assert ask(served.admin, "/healthz").status == 200
    assert post(served.admin, "queues/create", {"address": "q"}).status == 200
    with suppress(OSError, HTTPException):  # an answer, or none
        assert post(served.admin, "queues/purge", {"queue": "q"}).status == 503
    assert served.process.wait(30) == 70
    assert "(broker-stopped)" in served.log.read_text()


BREAKING = """
from stompbox.admin import actions, pages

def broken(*given):
    raise IndexError("list index out of range")

pages.status_of = broken
actions.reclaim.purge = broken

def transform(letter):
    pass
"""


def test_a_queue_is_deleted_and_one_in_use_only_by_force(served: Served) -> None:
    with Plain(served.port) as client:
        send(client, "/queue/ops.gone", b"a")
        assert post(served.admin, "queues/delete", {"queue": "ops.gone"}).code == "queue-in-use"
        answer = post(served.admin, "queues/delete", {"queue": "ops.gone", "is_forced": True})
        assert answer.json == {"queue": "ops.gone", "is_deleted": True}
    assert ask(served.admin, "/api/v1/messages?queue=ops.gone").code == "no-such-queue"


def test_an_address_is_deleted_with_its_queues(served: Served) -> None:
    with Plain(served.port) as client:
        send(client, "/queue/ops.away", b"a")
    assert post(served.admin, "addresses/delete", {"address": "ops.away"}).code == "queue-in-use"
    assert post(served.admin, "addresses/delete", {"address": "ops.away", "is_forced": True}).json[
        "is_deleted"
    ]
    assert read(served.admin, "addresses?address=ops.away")["addresses"] == []
    assert post(served.admin, "addresses/delete", {"address": "ops.away"}).code == "no-such-address"


@pytest.mark.parametrize("look", [1, 2])
def test_what_comes_while_an_address_is_asked_whether_it_may_go_is_not_lost(look: int) -> None:
    """All of its queues are asked in turns. What one gets behind the first look keeps the address; in the second one nothing is taken."""
    world = World()
    engine = world.broker.engine
    address = engine.address("a", ANYCAST)
    for number in range(100):
        engine.exact_queue(address, f"q{number}", ANYCAST)
    asked = ApiRequest(world.broker, cast(Request, None), cast(Shared, None))
    asked.order = actions.AddressDeletion("a")

    async def done(begin: Callable[[Callable[[], None]], None]) -> bool:
        begin(lambda: None)
        world.broker.flush()
        world.until_stored()
        return True

    asked.require, asked.done = lambda *_: None, done  # type: ignore[method-assign]
    client, deleting, has_sent = world.client("1.1"), actions.delete_address.do(asked), False
    answer: object = None
    try:
        while True:
            waiter = deleting.send(None)
            if not has_sent and address.is_blocked is (look == 2):
                client.say(("SEND", {"destination": "/queue/a::q0"}))
                has_sent = True
            while not waiter.done():
                world.turn()
    except StopIteration as ended:
        answer = ended.value
    except Refused as refused:
        answer = refused.code
    if look == 1:
        assert (answer, client.errors(), engine.queues[1].count) == ("queue-in-use", [], 1)
        assert not address.is_blocked
    else:
        assert (answer, client.errors()) == ({"address": "a", "is_deleted": True}, ["address-blocked"])
        assert "a" not in engine.addresses


@pytest.mark.parametrize(
    ("path", "order", "destination"),
    [
        ("queues/delete", {"queue": "under.queue.1"}, "/queue/under.queue.1"),
        ("addresses/delete", {"address": "under.topic.1"}, "/topic/under.topic.1"),
    ],
)
def test_who_has_subscribed_to_what_is_deleted_is_told(
    served: Served, path: str, order: dict[str, str], destination: str
) -> None:
    """A wildcard that reaches it goes on, and gets what comes when it is made again."""
    name = destination.rsplit("/", 1)[1]
    with Plain(served.port) as client, Plain(served.port) as wild, Plain(served.port) as sender:
        for subscriber, pattern in ((client, destination), (wild, destination.rsplit(".", 1)[0] + ".*")):
            subscriber.send("SUBSCRIBE", {"destination": pattern, "id": "reader", "receipt": "r"})
            assert subscriber.receive().headers["receipt-id"] == "r"
        assert post(served.admin, path, {**order, "is_forced": True}).json["is_deleted"]
        error = client.receive()
        assert error.headers["code"] == "queue-deleted" and b"'reader'" in error.body, error
        assert name.encode() in error.body and client.is_closed()
        send(sender, destination, b"again")
        assert wild.receive().body == b"again"


def test_deleting_needs_the_rights_to_delete(start: Start) -> None:
    rights = '\n[[permission]]\nmatch = "h.#"\nsend = ["users"]\ncreate-address = ["users"]\ncreate-durable-queue = ["users"]\n'
    delete = 'delete-address = ["admins"]\ndelete-durable-queue = ["admins"]\ndelete-non-durable-queue = ["users"]\n'
    made = '\n[[address]]\nname = "h.light"\n[[address.queue]]\nname = "h.light"\ndurable = false\n'
    served = start(USERS + rights + delete + made)
    with Plain(served.port, headers={"login": "bob", "passcode": "b0b"}) as client:
        send(client, "/queue/h.heavy", b"a")
    for order in ({"queue": "h.heavy", "is_forced": True}, {"queue": "h.light"}):
        who = BOB if order["queue"] == "h.heavy" else ROOT
        assert post(served.admin, "queues/delete", order, user=who).code == "not-permitted"
    assert (
        post(served.admin, "addresses/delete", {"address": "h.heavy", "is_forced": True}, user=BOB).code
        == "not-permitted"
    )
    assert post(served.admin, "queues/delete", {"queue": "h.light"}, user=BOB).json["is_deleted"]
    assert post(served.admin, "addresses/delete", {"address": "h.heavy", "is_forced": True}, user=ROOT).json[
        "is_deleted"
    ]


def test_sinks_are_listed_and_forgotten(served: Served) -> None:
    with Plain(served.port) as client:
        for batch in ("4", "5"):
            chunk = encode([Run(Shape({"destination": "/queue/ops.sink"}), [b"a", b"b"])], 0)
            request(client, "stage", chunk, sink="ops-sink", batch=batch, partition="0", attempt="0")
            if batch == "4":
                request(client, "publish", b'{"attempts": [[0, 0]]}', sink="ops-sink", batch=batch)
    [found] = read(served.admin, "sinks?match=ops-sink")["sinks"]
    assert (
        found["name"],
        found["user"],
        found["batch"],
        found["staged_messages"],
        found["is_publishing"],
    ) == ("ops-sink", "", 4, 2, False)
    assert found["staged_bytes"] > 0 and found["until"] == 0
    assert post(served.admin, "sinks/delete", {"sink": "ops-sink"}).json == {
        "sink": "ops-sink",
        "is_deleted": True,
    }
    assert read(served.admin, "sinks?match=ops-sink")["sinks"] == []
    answer = post(served.admin, "sinks/delete", {"sink": "ops-sink"})
    assert (answer.status, answer.code) == (404, "no-such-sink")


def test_reader_groups_are_put_elsewhere_and_deleted(served: Served) -> None:
    with Plain(served.port) as client:
        send(client, "/queue/ops.group", b"a", b"b", b"c")
        request(client, "group-open", group="ops-lake", destinations="/queue/ops.group", starting="latest")
    given = {"group": "ops-lake", "to": "1", "address": "ops.group"}
    assert post(served.admin, "groups/reset", given).json == {"group": "ops-lake", "moved": 1}
    (found,) = [one for one in read(served.admin, "groups")["groups"] if one["name"] == "ops-lake"]
    assert [(one["address"], one["position"], one["next"]) for one in found["addresses"]] == [
        ("ops.group", 1, 3)
    ]
    for wrong, status, code in (({**given, "to": "soon"}, 400, "bad-starting"), ({**given, "address": "x"}, 404, "no-such-address"),
                                ({**given, "group": "none"}, 404, "no-such-group")):  # fmt: skip
        answer = post(served.admin, "groups/reset", wrong)
        assert (answer.status, answer.code) == (status, code)
    told = post(served.admin, "groups/reset", {**given, "to": "-4"}).json
    assert told["field"] == "to"
    assert told["detail"] == "to is '-4'; allowed are earliest, latest, a number and time:<ms>"
    assert post(served.admin, "groups/delete", {"group": "ops-lake"}).json == {
        "group": "ops-lake",
        "is_deleted": True,
    }
    assert "ops-lake" not in [one["name"] for one in read(served.admin, "groups")["groups"]]


def test_a_durable_subscription_with_colons_in_its_name_is_found(served: Served) -> None:
    order = {"destination": "/topic/ops.colons", "client_id": "shop", "name": "eu::west"}
    assert post(served.admin, "durables/create", order).status == 200
    for name in ("ops.colons::shop.eu::west", "shop.eu::west"):
        assert post(served.admin, "queues/pause", {"queue": name}).json["queue"] == "shop.eu::west"
    assert queue(served.admin, "shop.eu::west")["is_paused"]
    for name in ("ops.colons::eu::west", "ops.colons::", "west"):
        assert post(served.admin, "queues/pause", {"queue": name}).code == "no-such-queue"
