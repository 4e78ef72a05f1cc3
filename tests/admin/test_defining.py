"""Addresses and queues that an operator makes: as the file's, and still there after a restart."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.admin.asking import ask, post, queue, read
from tests.admin.conftest import PLACES, Start
from tests.admin.test_access import BOB, ROOT, USERS
from tests.admin.test_views import send
from tests.conftest import Serve, Served, end
from tests.system.plain import Plain


def test_an_address_is_made_once(served: Served) -> None:
    order = {"address": "made.address", "routing_type": "MULTICAST"}
    assert post(served.admin, "addresses/create", order).json == {"address": "made.address", "is_new": True}
    assert post(served.admin, "addresses/create", order).json["is_new"] is False
    [found] = read(served.admin, "addresses?address=made.address")["addresses"]
    assert (found["routing_types"], found["is_auto"]) == (["MULTICAST"], False)


def test_a_queue_is_made_with_its_filter_and_outlives_a_restart(serve: Serve, tmp_path: Path) -> None:
    data = ("--data", str(tmp_path / "data"))
    served = serve(*data, *PLACES)
    order = {"address": "made.q", "queue": "made.eu", "filter": "region = 'EU'", "routing_type": "MULTICAST"}
    assert post(served.admin, "queues/create", order).json == {
        "address": "made.q",
        "queue": "made.eu",
        "is_new": True,
    }
    assert post(served.admin, "queues/create", order).json["is_new"] is False
    topic = {"address": "made.t", "queue": "copies", "routing_type": "MULTICAST"}
    assert post(served.admin, "queues/create", topic).json["is_new"]
    with Plain(served.port) as client:
        send(client, "/topic/made.t", b"x")
        send(client, "/topic/made.q", b"x", region="US")
        send(client, "/topic/made.q", b"y", region="EU")
    assert (queue(served.admin, "made.eu")["ready"], queue(served.admin, "copies")["ready"]) == (1, 1)
    end(served)
    served = serve(*data, *PLACES)
    found = queue(served.admin, "made.eu")
    assert (found["selector"], found["is_auto"], found["is_durable"], found["ready"]) == (
        "region = 'EU'",
        False,
        True,
        1,
    )


def made(served: Served) -> list[int]:
    """Addresses and queues that the user has made who has made most."""
    text = ask(served.admin, "/metrics", user=ROOT).body.decode()
    return [
        int(float(re.search(rf'^stompbox_user_made{{kind="{kind}"}} (.*)$', text, re.M)[1]))  # type: ignore[index]
        for kind in ("addresses", "queues")
    ]


LIMITED = """
from msgspec.structs import replace
from stompbox.admin import apirequest
apirequest.LIMITS = replace(apirequest.LIMITS, max_addresses_per_user=3, max_queues_per_user=5)
"""


def test_what_a_user_makes_counts_for_it_and_what_an_operator_makes_for_nobody(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who had made an address by a SEND had it made once more here: it counted for nobody then."""
    (tmp_path / "sitecustomize.py").write_text(LIMITED)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    served = start(USERS)

    def created(name: str, user: str = BOB, path: str = "addresses/create", **more: str) -> int | str:
        answer = post(served.admin, path, {"address": f"open.{name}", **more}, user)
        return answer.status if answer.status == 200 else answer.code

    for number in range(5):
        assert created(f"root.{number}", ROOT) == 200
    assert made(served) == [0, 0]
    with Plain(served.port, headers={"login": "bob", "passcode": "b0b"}) as client:
        send(client, "/queue/open.sent", b"x")
    assert made(served) == [1, 1]
    assert created("sent") == 200
    assert made(served) == [1, 1]
    assert created("a") == 200
    assert created("b", path="queues/create") == 200
    assert made(served) == [3, 2]
    assert [created("c"), created("c", path="queues/create")] == ["too-many-addresses"] * 2
    for number in range(3):
        assert created("root.0", path="queues/create", queue=f"q{number}") == 200
    assert created("root.0", path="queues/create", queue="q3") == "too-many-queues"
    assert created("b") == created("root.0", path="queues/create", queue="q2") == 200
    assert made(served) == [3, 5]
    order = {"queue": "open.sent", "to": "open.moved"}
    assert post(served.admin, "queues/move", order, BOB).code == "too-many-addresses"
    assert created("sent", ROOT) == created("b", ROOT) == 200
    assert made(served)[0] == 1, "an operator has taken them over"


@pytest.mark.parametrize(
    ("order", "code", "field"),
    [
        ({"address": "a.*"}, "bad-name", "address"),
        ({"address": ""}, "bad-name", "address"),
        ({"address": "vhost/green.x"}, "bad-name", "address"),
        ({"address": "made.x", "filter": "region ="}, "selector-syntax", "filter"),
        ({"address": "made.x", "routing_type": "ANY"}, "bad-json", "routing_type"),
    ],
)
def test_what_cannot_be_made_names_its_field(served: Served, order: object, code: str, field: str) -> None:
    answer = post(served.admin, "queues/create", order)
    assert (answer.status, answer.code, answer.json["field"]) == (400, code, field)
    assert read(served.admin, "addresses?address=made.x")["addresses"] == []


def test_a_word_that_is_none_of_an_enumeration_names_those_that_are(served: Served) -> None:
    for path, order, field, words in (
        ("queues/create", {"address": "made.x", "routing_type": "ANY"}, "routing_type", "ANYCAST, MULTICAST"),
        (
            "addresses/create",
            {"address": "made.x", "routing_type": "ANY"},
            "routing_type",
            "ANYCAST, MULTICAST",
        ),
        ("frames/log", {"by": "name", "value": "x"}, "by", "connection, user, peer, address"),
        ("frames/log", {"value": "x"}, "by", "connection, user, peer, address"),
    ):
        answer = post(served.admin, path, order)
        assert (answer.status, answer.json["field"]) == (400, field)
        assert words in answer.json["detail"]


def test_a_queue_that_is_there_otherwise_is_left_as_it_is(served: Served) -> None:
    assert post(served.admin, "queues/create", {"address": "made.other"}).json["is_new"]
    answer = post(served.admin, "queues/create", {"address": "made.other", "filter": "a = 1"})
    assert (answer.status, answer.code, answer.json["field"]) == (409, "queue-exists", "queue")
    assert queue(served.admin, "made.other")["selector"] is None


def test_it_takes_the_rights_to_make_them(start: Start) -> None:
    served = start(USERS)
    for path in ("addresses/create", "queues/create"):
        assert post(served.admin, path, {"address": "closed.x"}, user=BOB).code == "not-permitted"
        assert post(served.admin, path, {"address": "open.x"}, user=BOB).status == 200
        assert post(served.admin, path, {"address": "closed.x"}, user=ROOT).status == 200
