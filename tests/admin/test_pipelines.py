"""What pipelines tell the broker, as the API and the metrics show it."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace
from typing import Any

import pytest

from stompbox.admin import pipelines
from stompbox.server.requests.progress import MOST_SIZE
from tests.admin.asking import ask, read
from tests.admin.conftest import Start
from tests.admin.test_views import request, send
from tests.conftest import Served
from tests.server.turning import World
from tests.system.plain import Plain
from tests.users import users

USERS = """
[[permission]]
match = "#"
manage = ["admins"]
send = ["admins", "users"]
consume = ["admins"]
create-address = ["admins"]
create-durable-queue = ["admins"]
""" + users("root:r@admins", "ann:a@users", "bob:b@users")


def step(name: str, state: str = "running", **more: object) -> dict[str, object]:
    return {"step": name, "kind": "archive", "state": state, **more}


def tell(client: Plain, pipeline: str, *steps: dict[str, object]) -> Any:
    """The headers of the answer."""
    body = json.dumps({"pipeline": pipeline, "steps": steps}).encode()
    client.send("SEND", {"destination": "stompbox.requests", "request": "progress", "request-id": "1"}, body)
    return client.receive().headers


def shown(served: Served, pipeline: str, user: str = "") -> dict[str, Any]:
    """By step."""
    found = read(served.admin, f"pipelines?match={pipeline}/", user)["pipelines"]
    return {one["step"]: one for one in found}


def test_what_was_told_is_shown(served: Served) -> None:
    before = int(time.time() * 1000)
    with Plain(served.port) as client:
        first = step("orders", rows=1200, rate=600.5, lag=7, batch=3, batch_ago=1000, batch_seconds=0.25)
        assert tell(client, "told", first, step("audit", "waiting"))["status"] == "ok"
        found = shown(served, "told")
        assert set(found) == {"orders", "audit"}
        one = found["orders"]
        assert (one["state"], one["kind"], one["rows"], one["rate"]) == ("running", "archive", 1200, 600.5)
        assert (one["batch"], one["lag_messages"]) == (3, 7)
        assert before <= one["told"] <= int(time.time() * 1000)
        assert (one["batch_at"], one["batch_seconds"]) == (one["told"] - 1000, 0.25)
        assert (found["audit"]["state"], found["audit"]["batch_at"]) == ("waiting", None)
        tell(client, "told", step("orders", "failed", reason="no room"))
        one = shown(served, "told")["orders"]
        assert (one["state"], one["reason"], one["rows"]) == ("failed", "no room", 0)


def test_the_lag_is_that_of_the_groups_as_it_is_now(served: Served) -> None:
    with Plain(served.port) as client:
        send(client, "/queue/lags.a", b"1", b"2")
        send(client, "/queue/lags.b", b"1")
        request(client, "group-open", group="lags", destinations="/queue/lags.#", starting="earliest")
        tell(client, "lags", step("s", groups=["lags"], lag=99), step("unknown", groups=["not-there"], lag=5))
        assert [shown(served, "lags")[name]["lag_messages"] for name in ("s", "unknown")] == [3, 5]
        send(client, "/queue/lags.a", b"3")
        assert shown(served, "lags")["s"]["lag_messages"] == 4
        request(client, "group-commit", b'{"lags.a": 3, "lags.b": 1}', group="lags")
        assert shown(served, "lags")["s"]["lag_messages"] == 0


def test_a_step_whose_connection_went_is_lost_until_it_is_told_of_again(served: Served) -> None:
    with Plain(served.port) as client:
        tell(client, "lost", step("a"), step("b", "done"))
        client.send("DISCONNECT", {"receipt": "bye"})
        client.receive()
        found = shown(served, "lost")
        assert client.is_closed()
    assert {name: one["state"] for name, one in found.items()} == {"a": "lost", "b": "done"}, (
        "it goes on no more, though its socket is there"
    )
    with Plain(served.port) as client:
        tell(client, "lost", step("a"))
        assert shown(served, "lost")["a"]["state"] == "running"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"[]", "Expected `object`"),
        (b"no json", "malformed"),
        (b'{"pipeline": "p", "steps": [{"step": "s", "kind": "k", "state": "flying"}]}', "flying"),
        (b'{"pipeline": "p", "steps": [{"step": "s", "kind": "k", "state": "done", "colour": 1}]}', "colour"),
        (b'{"pipeline": "p", "steps": [{"step": "s", "kind": "k", "state": "done", "rows": -1}]}', ">= 0"),
        (
            b'{"pipeline": "p", "steps": [{"step": "%b", "kind": "k", "state": "done"}]}' % (b"s" * 201),
            "length <= 200",
        ),
        (b" " * (MOST_SIZE + 1), "bytes long"),
    ],
)
def test_what_is_wrong_is_refused_and_named(served: Served, body: bytes, said: str) -> None:
    with Plain(served.port) as client:
        client.send(
            "SEND", {"destination": "stompbox.requests", "request": "progress", "request-id": "1"}, body
        )
        answer = client.receive().headers
    assert (answer["status"], answer["code"]) == ("error", "bad-json")
    assert said in answer["message"]


def test_who_tells_of_a_group_may_consume_what_it_reads_and_sees_his_own(start: Start) -> None:
    served = start(USERS)
    root, ann, bob = [
        Plain(served.port, headers={"login": name, "passcode": name[0]}) for name in ("root", "ann", "bob")
    ]
    with root, ann, bob:
        send(root, "/queue/q", b"1")
        request(root, "group-open", group="g", destinations="/queue/q", starting="earliest")
        answer = tell(ann, "p", step("s", groups=["g"]))
        assert (answer["status"], answer["code"]) == ("error", "not-permitted")
        assert tell(root, "p", step("s", groups=["g"]))["status"] == "ok"
        assert tell(ann, "p", step("s", rows=1))["status"] == "ok"
        assert tell(bob, "p", step("s", rows=2))["status"] == "ok"
        assert [one["rows"] for one in read(served.admin, "pipelines", "bob:b")["pipelines"]] == [2]
        everything = read(served.admin, "pipelines?sort=-rows", "root:r")["pipelines"]
    assert [(one["user"], one["rows"], one["lag_messages"]) for one in everything] == [
        ("bob", 2, None),
        ("ann", 1, None),
        ("root", 0, 1),
    ]


def test_metrics_of_pipelines(start: Start) -> None:
    served = start("")
    with Plain(served.port) as client:
        tell(client, 'p"1', step("a", rows=5), step("b", "failed"), step("c", "failed"))
        text = ask(served.admin, "/metrics").body.decode()
    assert 'stompbox_pipeline_steps{state="running"} 1.0' in text
    assert 'stompbox_pipeline_steps{state="failed"} 2.0' in text
    assert 'stompbox_pipeline_steps{state="lost"} 0.0' in text
    assert 'stompbox_pipeline_rows_total{pipeline="p\\"1",step="a",user=""} 5.0' in text


def test_what_groups_have_not_read_is_added_up_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """One address may have thousands of them."""
    monkeypatch.setattr(pipelines, "behind", lambda queue: 2)
    world = World()
    address = SimpleNamespace(groups={f"g{number}": None for number in range(5000)})
    broker: Any = SimpleNamespace(
        engine=SimpleNamespace(addresses={"a": address, "b": address}), turns=world.broker.turns
    )
    with world.steps() as steps:
        found: Any = world.driven(pipelines._lags(broker))
    assert set(found.values()) == {4}
    assert steps.longest < 1000, "lines of Python"
