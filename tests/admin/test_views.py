"""What the API shows, against what clients did."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import stompbox
from stompbox.admin import listing
from stompbox.admin.listing import JOINED, Pieces, _behind, _pieces, by_field, in_pieces
from stompbox.admin.pages import shown
from stompbox.admin.views import group_view
from tests.admin.asking import ask, queue, read
from tests.admin.conftest import Start
from tests.conftest import Served
from tests.server.turning import LOOKS, World
from tests.system.plain import Plain


def send(client: Plain, destination: str, *bodies: bytes, **headers: str) -> None:
    for number, body in enumerate(bodies):
        client.send("SEND", {"destination": destination, "receipt": str(number), **headers}, body)
        assert client.receive().headers["receipt-id"] == str(number)


def request(client: Plain, name: str, body: bytes = b"", **headers: str) -> object:
    """A request as Spark makes it."""
    client.send(
        "SEND", {"destination": "stompbox.requests", "request": name, "request-id": name} | headers, body
    )
    answer = client.receive()
    assert answer.headers["status"] == "ok", answer
    return json.loads(answer.body)


def test_status(served: Served) -> None:
    before = int(time.time() * 1000)
    with Plain(served.port) as client:
        send(client, "/queue/status", b"x")
        status = read(served.admin, "status")
    assert status["version"] == stompbox.__version__
    assert status["process"] == served.process.pid != os.getpid()
    assert status["is_ready"] and status["is_durable"]
    assert status["started"] <= before <= status["started"] + status["uptime"]
    assert status["connections"] >= 1
    assert status["messages"]["received"] >= 1
    assert status["commits"] >= 1
    assert status["listeners"] == list(served.listeners) == [f"tcp://127.0.0.1:{served.port}"], (
        "the port that it has got"
    )
    assert 0 < status["disk_free"] < status["disk_size"]
    assert status["resident_bytes"] > 1 << 20
    assert status["memory_limit"] > 0


def test_status_counts_subscriptions_transactions_and_memory(start: Start) -> None:
    served = start("")
    with Plain(served.port) as client:
        send(client, "/queue/q", b"x" * 1000)
        client.send("SUBSCRIBE", {"destination": "/queue/other", "id": "1"})
        client.send("BEGIN", {"transaction": "t"})
        client.sync()
        status = read(served.admin, "status")
    assert (status["subscriptions"], status["transactions"]) == (1, 1)
    assert status["memory_bytes"] >= 1000
    assert (status["disk_free"], status["disk_size"]) == (None, None), "everything is in memory"


def test_dead_letters_are_counted_where_the_settings_send_them(start: Start) -> None:
    served = start(
        '[[address-setting]]\nmatch = "#"\nmax-delivery-attempts = 1\ndead-letter-address = "DLQ"\nexpiry-address = "late"\n'
    )
    with Plain(served.port) as client:
        send(client, "/queue/q", b"a", b"b")
        client.send("SUBSCRIBE", {"destination": "/queue/q", "id": "1", "ack": "client-individual"})
        for _ in range(2):
            client.send("NACK", {"id": client.receive().headers["ack"]})
        client.sync()
    assert read(served.admin, "status")["dead_letters"] == [{"address": "DLQ", "messages": 2}]
    found = {one["name"]: one["is_dead_letters"] for one in read(served.admin, "addresses")["addresses"]}
    assert (found["DLQ"], found["plain.sync"]) == (True, False)


def test_what_plain_subscriptions_are_done_with_is_counted(served: Served) -> None:
    with Plain(served.port) as one, Plain(served.port) as other:
        for client in (one, other):
            client.send("SUBSCRIBE", {"destination": "/topic/live", "id": "1"})
            client.sync()
        with Plain(served.port) as sender:
            send(sender, "/topic/live", b"a", b"b", b"c")
        for client in (one, other):
            assert [client.receive().body for _ in range(3)] == [b"a", b"b", b"c"]
            client.sync()
        [found] = read(served.admin, "addresses?address=live")["addresses"]
        queues = [
            queue for queue in read(served.admin, "queues?all=true")["queues"] if queue["address"] == "live"
        ]
    assert found["settled"] == 6
    assert [queue["settled"] for queue in queues] == [3, 3]


def test_what_the_queues_of_an_address_hold_together(served: Served) -> None:
    with Plain(served.port, headers={"client-id": "sums"}) as client:
        for number in ("1", "2"):
            client.send(
                "SUBSCRIBE",
                {
                    "destination": "/topic/sums",
                    "id": number,
                    "durable-subscription-name": number,
                    "ack": "client",
                },
            )
        client.sync()
        with Plain(served.port) as sender:
            send(sender, "/topic/sums", b"a", b"b")
        [found] = read(served.admin, "addresses?address=sums")["addresses"]
    assert (found["ready"] + found["delivering"], found["consumers"], found["settled"], found["next"]) == (
        4,
        2,
        0,
        2,
    )


def test_a_queue_from_full_to_empty(served: Served) -> None:
    with Plain(served.port) as client:
        send(client, "/queue/views.q", b"a", b"b", b"c")
        assert queue(served.admin, "views.q") == {
            "address": "views.q", "name": "views.q", "kind": "anycast", "is_durable": True, "is_auto": True, "is_paused": False,
            "selector": None, "ready": 3, "delayed": 0, "delivering": 0, "paged": 0, "is_estimate": False, "consumers": 0,
            "max_consumers": -1, "position": 0, "settled": 0,
        }  # fmt: skip
        client.send(
            "SUBSCRIBE",
            {"destination": "/queue/views.q", "id": "1", "ack": "client-individual", "prefetch-count": "2"},
        )
        got = [client.receive() for _ in range(2)]
        found = queue(served.admin, "views.q")
        assert (found["ready"], found["delivering"], found["consumers"]) == (1, 2, 1)
        client.send("ACK", {"id": got[0].headers["ack"], "receipt": "acked"})
        assert {client.receive().command for _ in range(2)} == {"RECEIPT", "MESSAGE"}
        found = queue(served.admin, "views.q")
        assert (found["ready"], found["delivering"], found["position"]) == (0, 2, 1)


def test_what_waits_for_its_time_is_delayed(served: Served) -> None:
    with Plain(served.port) as client:
        send(client, "/queue/views.late", b"a", AMQ_SCHEDULED_DELAY="3600000")
    found = queue(served.admin, "views.late")
    assert (found["ready"], found["delayed"]) == (0, 1)


def test_durable_subscriptions_are_queues_and_plain_ones_only_on_request(served: Served) -> None:
    with Plain(served.port, headers={"client-id": "views"}) as client:
        client.send(
            "SUBSCRIBE",
            {
                "destination": "/topic/views.t",
                "id": "1",
                "durable-subscription-name": "kept",
                "selector": "a > 1",
            },
        )
        client.send("SUBSCRIBE", {"destination": "/topic/views.t", "id": "2"})
        client.sync()
        few = read(served.admin, "queues?address=views.t")["queues"]
        every = read(served.admin, "queues?address=views.t&all=true")["queues"]
        [address] = read(served.admin, "addresses?match=views.t")["addresses"]
    assert [(one["kind"], one["selector"], one["consumers"]) for one in few] == [("durable", "a > 1", 1)]
    assert sorted(one["kind"] for one in every) == ["durable", "topic"]
    assert (address["routing_types"], address["queues"], address["subscriptions"]) == (["MULTICAST"], 1, 1)


def test_connections_and_their_subscriptions(served: Served) -> None:
    with Plain(served.port, "1.1", {"client-id": "views-c", "login": "somebody"}) as client:
        send(client, "/queue/views.c", b"a")
        client.send(
            "SUBSCRIBE",
            {"destination": "/queue/views.c", "id": "s1", "ack": "client", "selector": "b IS NULL"},
        )
        client.receive()
        client.send("BEGIN", {"transaction": "t"})
        client.sync()
        [found] = [
            one for one in read(served.admin, "connections")["connections"] if one["client_id"] == "views-c"
        ]
    assert (found["peer"], found["user"], found["version"], found["transactions"]) == (
        "127.0.0.1",
        "somebody",
        "1.1",
        1,
    )
    assert found["since"] <= time.time() * 1000
    assert found["listener"] == served.listeners[0]
    assert found["waits_for"] == []
    assert found["subscriptions"] == [
        {
            "id": "s1",
            "destination": "/queue/views.c",
            "ack": "client",
            "selector": "b IS NULL",
            "delivering": 1,
        }
    ]
    assert not [
        one
        for one in read(served.admin, "connections")["connections"]
        if one["client_id"] == "views-c" and one["subscriptions"]
    ]


def test_the_lag_of_a_reader_group(served: Served) -> None:
    with Plain(served.port) as client:
        send(client, "/queue/views.g", b"a", b"b", b"c")
        sent = int(time.time() * 1000)
        request(client, "group-open", group="lake", destinations="/queue/views.g", starting="earliest")
        [group] = read(served.admin, "groups?match=lake")["groups"]
        [position] = group["addresses"]
        assert (group["name"], group["patterns"]) == ("lake", ["views.g"])
        assert (position["address"], position["position"], position["next"], position["lag_messages"]) == (
            "views.g",
            0,
            3,
            3,
        )
        assert 0 <= position["lag_ms"] <= int(time.time() * 1000) - sent + 60_000
        assert position["moved"] is None
        request(client, "group-commit", b'{"views.g": 3}', group="lake")
        [position] = read(served.admin, "groups?match=lake")["groups"][0]["addresses"]
        assert (position["position"], position["lag_messages"], position["lag_ms"]) == (3, 0, 0)


def test_the_age_of_the_first_unread_message_is_its_own(start: Start, tmp_path: Path) -> None:
    """Also after a restart, when only the store knows it, and in a log with more than the first chunk."""
    served = start("", "--data", f"{tmp_path}/data")
    with Plain(served.port) as client:
        request(client, "group-open", group="lake", destinations="/queue/q", starting="earliest")
        send(client, "/queue/q", b"a", b"b")
    assert served.stop() == 0
    served = start("", "--data", f"{tmp_path}/data")
    with Plain(served.port) as client:
        first = read(served.admin, "groups")["groups"][0]["addresses"][0]
        request(client, "group-commit", b'{"q": 1}', group="lake")
        second = read(served.admin, "groups")["groups"][0]["addresses"][0]
        asked = int(time.time() * 1000)
    started = read(served.admin, "status")["started"]
    assert first["lag_messages"] == 2
    assert second["lag_messages"] == 1
    assert asked - second["lag_ms"] < started, "it arrived before the broker was started again"
    assert first["lag_ms"] > 0


def test_positions_are_the_groups_by_address(served: Served) -> None:
    with Plain(served.port) as client:
        send(client, "/queue/spots.a", b"a")
        send(client, "/queue/spots.b", b"a", b"b", b"c")
        request(
            client,
            "group-open",
            group="spots",
            destinations="/queue/spots.a,/queue/spots.b",
            starting="earliest",
        )
        request(
            client,
            "group-open",
            group="spots-none",
            destinations="/queue/nothing.here.#",
            starting="earliest",
        )
        before = int(time.time() * 1000)
        request(client, "group-commit", b'{"spots.b": 1}', group="spots")
        found = read(served.admin, "positions?match=spots&sort=-lag_messages")
    assert [(one["group"], one["address"], one["lag_messages"]) for one in found["positions"]] == [
        ("spots", "spots.b", 2), ("spots", "spots.a", 1), ("spots-none", None, 0),
    ]  # fmt: skip
    first, second, third = found["positions"]
    assert (first["position"], first["next"], second["moved"]) == (1, 3, None)
    assert before <= first["moved"] <= found["now"]
    assert third["patterns"] == ["nothing.here.#"]
    assert [one["address"] for one in read(served.admin, "positions?address=spots.a")["positions"]] == [
        "spots.a"
    ]


def test_a_list_can_be_sorted_and_cut(served: Served) -> None:
    with Plain(served.port) as client:
        for number, depth in enumerate((2, 0, 3, 1)):
            send(client, f"/queue/sorted.{number}", *[b"x"] * (depth + 1))
    found = read(served.admin, "addresses?match=sorted.&sort=-ready&limit=2&offset=1")
    assert [(one["name"], one["ready"]) for one in found["addresses"]] == [("sorted.0", 3), ("sorted.3", 2)]
    assert (found["total"], found["next"]) == (4, "sorted.3")
    following = read(served.admin, "addresses?match=sorted.&sort=-ready&after=sorted.3")
    assert [one["name"] for one in following["addresses"]] == ["sorted.1"]
    assert [
        one["name"] for one in read(served.admin, "queues?match=sorted.&sort=ready&limit=1")["queues"]
    ] == ["sorted.1"]


def test_connections_are_found_by_what_is_known_of_them(served: Served) -> None:
    with Plain(served.port, headers={"client-id": "found-by-this", "login": "finder"}):
        for text in ("found-by-this", "finder"):
            [found] = read(served.admin, f"connections?match={text}&sort=-since")["connections"]
            assert found["client_id"] == "found-by-this"
        assert read(served.admin, f"connections?connection={found['id']}")["connections"] == [found]
    assert read(served.admin, "connections?connection=0")["connections"] == []
    for name in ("connections", "subscriptions", "transactions"):
        answer = ask(served.admin, f"/api/v1/{name}?connection=first")
        assert (answer.status, answer.json["field"], answer.code) == (400, "connection", "bad-number")


def test_pages_of_a_list(served: Served) -> None:
    with Plain(served.port) as client:
        for number in range(5):
            send(client, f"/queue/paged.{number}", b"x")
    first = read(served.admin, "queues?match=paged.&limit=2")
    assert [one["name"] for one in first["queues"]] == ["paged.0", "paged.1"]
    assert (first["total"], first["next"]) == (5, "paged.1::paged.1")
    second = read(served.admin, f"queues?match=paged.&limit=3&after={first['next']}")
    assert [one["name"] for one in second["queues"]] == ["paged.2", "paged.3", "paged.4"]
    assert second["next"] is None


def test_wrong_questions(served: Served) -> None:
    for path in ("queues?limit=0", "queues?limit=many", "queues?limit=99999999999"):
        assert ask(served.admin, f"/api/v1/{path}").code == "bad-number"
    assert ask(served.admin, "/api/v1/queues?offset=-1").code == "bad-number"
    assert ask(served.admin, "/api/v1/queues?sort=colour").code == "bad-sort"
    assert ask(served.admin, "/api/v1/queues?all=1").code == "bad-boolean"
    assert ask(served.admin, "/api/v1/nothing").status == 404
    assert ask(served.admin, "/metrics", "POST", {}).code == "wrong-method"
    assert "/api/v1/status" in ask(served.admin, "/api/v1").json["pages"]


class Name(str):
    """Is compared in Python, so that it is counted."""

    def __lt__(self, other: str) -> bool:
        return str.__lt__(self, other)


def test_ten_thousand_addresses_are_put_in_order_in_turns() -> None:
    world = World()
    names = [Name(f"q{number * 7919 % 10_000}") for number in range(10_000)]
    broker = SimpleNamespace(
        engine=SimpleNamespace(addresses={name: name for name in names}), turns=world.broker.turns
    )
    asked: Any = SimpleNamespace(broker=broker, keep=lambda items: items, may=lambda: True)
    with world.steps() as steps:
        found: Any = world.driven(shown(asked))
    assert found == [f"{name}" for name in sorted(map(str, names))]
    assert steps.longest < 3 * JOINED, "lines of Python: as many comparisons as it takes to join two pieces"


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("count", [0, 1, 999, 1001, 30_000])
def test_and_by_any_field_of_theirs(count: int, *, reverse: bool) -> None:
    """What is equal stays in the order in which it is, also where the largest come first."""
    world = World()
    items = [(Name(f"{number * 7919 % 100}"), number) for number in range(count)]

    def field(item: tuple[Name, int]) -> Name:
        return item[0]

    with world.steps() as steps:
        found: Any = world.driven(world.broker.turns.taken(by_field(items, field, reverse=reverse)))
    assert found == sorted(items, key=lambda item: str(item[0]), reverse=reverse)
    assert steps.longest < 3 * JOINED


def test_a_long_answer_is_handed_over_in_turns() -> None:
    world, sent = World(), []

    async def send(message: Any) -> None:
        sent.append((world.loop.turns, message.get("body", b"")))

    async def receive() -> Any:
        raise AssertionError("nothing is asked")

    pieces = [b"%03d" % number for number in range(100)]
    world.driven(Pieces(world.broker.turns, pieces)({"type": "http"}, receive, send))
    assert [body for _, body in sent if body] == pieces
    turns = [turn for turn, _ in sent]
    assert max(turns.count(turn) for turn in turns) <= LOOKS + 2, "its beginning and its end have no piece"


def test_positions_of_a_group_are_looked_for_in_turns() -> None:
    """It may have one on each address."""
    world = World()
    addresses: Any = [SimpleNamespace(groups={})] * 10_000
    lags: Any = None
    with world.steps() as steps:
        found: Any = world.driven(group_view(world.broker, lags, "g", addresses))
    assert found.addresses == []
    assert steps.longest < 1000, "lines of Python"


def test_each_entry_of_a_list_is_made_json_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """One may be long: a group with thousands of positions."""
    made: list[object] = []

    def encode(value: object) -> bytes:
        made.append(value)
        return str(value).encode()

    monkeypatch.setattr(listing, "_ENCODER", SimpleNamespace(encode=encode))
    monkeypatch.setattr(listing, "PIECE", 3)
    steps, counts = _pieces(range(7), lambda one: one), []
    while True:
        before = len(made)
        try:
            next(steps)
        except StopIteration as done:
            assert done.value == [b"0,1,2", b",3,4,5", b",6"]
            break
        counts.append(len(made) - before)
    assert max(counts) == 1


def test_long_entries_are_made_json_in_turns() -> None:
    world = World()
    found: Any = world.driven(
        in_pieces(world.broker.turns, {"a": 1}, "b", ["x" * 9, "y"] * 50, {"c": None, "d": 2})
    )
    assert json.loads(b"".join(found.pieces)) == {"a": 1, "b": ["x" * 9, "y"] * 50, "c": None, "d": 2}
    assert len(found.pieces) == 102
    assert world.loop.turns >= 100 / (LOOKS + 2)
    empty: Any = world.driven(in_pieces(world.broker.turns, {"a": 1}, "b", [], {"c": None}))
    assert json.loads(b"".join(empty.pieces)) == {"a": 1, "b": [], "c": None}


def test_a_page_behind_one_that_has_gone() -> None:
    items = ["a", "b", "d", "c"]  # in an order of their own, as queues of one address are
    world = World()

    def behind(after: str) -> Any:
        return world.driven(world.broker.turns.taken(_behind(items, after, str)))

    assert behind("b") == ["d", "c"]
    assert behind("bb") == ["d", "c"]
    assert behind("cc") == ["d"]
    assert behind("d") == ["c"]
    assert behind("e") == []
