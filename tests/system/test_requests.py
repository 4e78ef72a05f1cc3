"""Requests against a running broker, as Spark's own link sends them: logs, groups, sinks, rights, and what a greedy asker gets."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from stompbox import blocking
from stompbox.errors import Refused
from stompbox.message import Run, Shape
from stompbox.spark.link import Request, SparkLink
from stompbox.spark.options import Given, target_of
from stompbox.spark.requests import fetched
from stompbox.stomp.shapes import shape_of
from stompbox.store.chunks import decode, encode, verify
from tests.conftest import Serve, Served, memory_of
from tests.spark.fake_broker import PEM
from tests.system.plain import Plain
from tests.users import users

WITHIN = 30.0  # seconds
USERS = """
[[permission]]
match = "#"
send = ["alice"]
consume = ["alice"]
create-address = ["alice"]
create-durable-queue = ["alice"]
delete-durable-queue = ["alice"]
[[permission]]
match = "open.#"
send = ["alice", "bob"]
consume = ["alice", "bob"]
create-address = ["alice"]
create-durable-queue = ["alice"]
""" + users("alice:a@alice", "bob:b@bob")


def link_to(served: Served, user: str = "") -> SparkLink:
    login = {"login": user, "passcode": user[:1]} if user else {}
    return SparkLink(
        target_of(Given({"url": f"stomp://{served.host}:{served.port}", "reconnectTimeout": "2000", **login}))
    )


def ask(link: SparkLink, name: str, body: object = None, **headers: str) -> Any:
    given = {key.replace("_", "-"): value for key, value in headers.items()}
    answer = link.ask(
        Request(
            name,
            given,
            b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode(),
        )
    )
    return json.loads(bytes(answer.body)) if "content-type" in answer.headers else answer


@pytest.fixture
def served(serve: Serve) -> Served:
    return serve("--listen", "tcp://127.0.0.1:0", "--no-admin")


@pytest.fixture
def link(served: Served) -> Iterator[SparkLink]:
    found = link_to(served)
    yield found
    found.close()


def blob(destination: str, *bodies: bytes) -> bytes:
    return encode([Run(shape_of({"destination": destination, "content-length": ""}), list(bodies))], 0)


def send(link: SparkLink, destination: str, *bodies: bytes, batch: int = 0) -> None:
    ask(link, "stage", blob(destination, *bodies), sink="test", batch=str(batch), partition="0", attempt="1")
    ask(link, "publish", {"attempts": [[0, 1]]}, sink="test", batch=str(batch))


def test_logs_are_described(link: SparkLink) -> None:
    assert ask(link, "describe", destinations="/queue/a,/queue/b,/topic/c.#") == {
        "addresses": {},
        "missing": ["/queue/a", "/queue/b"],
    }
    ask(link, "describe", destinations="/queue/a", create="true")
    send(link, "/queue/a", b"x" * 1000, b"y" * 1000)
    found = ask(link, "describe", destinations="/queue/a,/queue/b", sizes_from='{"a": 0}')
    log = found["addresses"]["a"]
    assert (log["first"], log["next"], log["messages"], found["missing"]) == (0, 2, 2, ["/queue/b"])
    assert log["bytes"] > 2000
    beyond = ask(link, "describe", destinations="/queue/a", sizes_from='{"a": 2}')["addresses"]["a"]
    assert (beyond["messages"], beyond["bytes"]) == (0, 0)


def test_logs_are_described_with_what_their_queues_hold(link: SparkLink, served: Served) -> None:
    """Only where it is asked for, and of an address that is named twice once."""
    send(link, "/queue/a", b"x", b"y", b"z")
    with Plain(served.port) as client:
        client.send(
            "SEND", {"destination": "/queue/a", "AMQ_SCHEDULED_DELAY": "3600000", "receipt": "1"}, b"later"
        )
        client.receive()
        client.send(
            "SUBSCRIBE",
            {"destination": "/queue/a", "id": "0", "ack": "client-individual", "prefetch-count": "1"},
        )
        client.receive()
        client.send("SUBSCRIBE", {"destination": "/topic/a", "id": "1", "receipt": "2"})
        client.receive()
        found = ask(link, "describe", destinations="/queue/a,a,/topic/a", counts="true")["addresses"]["a"]
        counts = {
            name: found[name]
            for name in ("ready", "delayed", "delivering", "settled", "consumers", "is-estimate")
        }
        assert counts == {
            "ready": 2,
            "delayed": 1,
            "delivering": 1,
            "settled": 0,
            "consumers": 2,
            "is-estimate": False,
        }
    assert "ready" not in ask(link, "describe", destinations="/queue/a")["addresses"]["a"]
    named = ask(link, "describe", {"addresses": {"a": 0}}, counts="true")["addresses"]["a"]
    assert named["messages"] == 4 and "delivering" in named
    with pytest.raises(Refused) as caught:
        ask(link, "describe", destinations="/queue/a", counts="yes")
    assert caught.value.code == "bad-boolean"


def test_a_fetch_says_where_the_log_ends(link: SparkLink) -> None:
    send(link, "/queue/a", b"x", b"y")
    answer = ask(link, "fetch", address="a", start="0", stop="9")
    assert (answer.headers["next"], answer.headers["first"], answer.headers["end"]) == ("2", "0", "2")
    with pytest.raises(Refused) as caught:
        ask(link, "fetch", address="nowhere", start="0", stop="9")
    assert caught.value.code == "no-such-address"


MANY = 1000
CHOSEN = [
    ("kind = 'even'", range(0, 2 * MANY, 2)),
    ("kind = 'other'", range(0)),
    ("kind IS NOT NULL", range(2 * MANY)),
    ("n >= 990 AND n < 1010", range(990, 1010)),
    ("AMQSize > 0 AND n = 7", range(7, 8)),
    ("XPATH 'm[@n=\"12\"]'", range(12, 13)),
    ("AMQAddress = 'a' AND AMQDurable = 'DURABLE' AND JMSRedelivered = FALSE AND n < 3", range(3)),
]


def send_two_kinds(link: SparkLink) -> None:
    """Offsets 0 .. 2 * MANY - 1 in two chunks: a shape in which n varies for the even ones, and another for the odd ones."""
    shapes = [Shape({"destination": "/queue/a", "kind": kind}, holes=("n",)) for kind in ("even", "odd")]
    for batch in range(2):
        numbers = range(batch * MANY, (batch + 1) * MANY)
        runs = [
            Run(shapes[n % 2], [b'<m n="%d"/>' % n], ([b"%d" % n],), first=n - batch * MANY) for n in numbers
        ]
        ask(link, "stage", encode(runs, 0), sink="test", batch=str(batch), partition="0", attempt="1")
        ask(link, "publish", {"attempts": [[0, 1]]}, sink="test", batch=str(batch))


@pytest.mark.parametrize(("selector", "offsets"), CHOSEN, ids=[text for text, _ in CHOSEN])
def test_a_fetch_with_a_selector(link: SparkLink, selector: str, offsets: range) -> None:
    send_two_kinds(link)
    whole = ask(link, "fetch", address="a", start="0", stop=str(2 * MANY))
    answer = ask(link, "fetch", address="a", start="0", stop=str(2 * MANY), selector=selector)
    assert "selected" not in whole.headers
    assert {name: answer.headers[name] for name in ("next", "first", "end", "selected")} == {
        "next": str(2 * MANY), "first": "0", "end": str(2 * MANY), "selected": "true"
    }  # fmt: skip
    blobs = fetched(answer).blobs
    runs = [run for one in blobs for run in decode(bytes(one), verify(one).first)]
    assert [offset for run in runs for offset in range(run.first, run.stop)] == list(offsets)
    assert [body for run in runs for body in run.bodies] == [b'<m n="%d"/>' % offset for offset in offsets]
    assert [column for run in runs for column in run.columns[0]] == [b"%d" % offset for offset in offsets]
    if len(offsets) < MANY:
        assert len(answer.body) < len(whole.body) / 10
    if len(offsets) == 2 * MANY:
        assert bytes(answer.body) == bytes(whole.body)


def test_a_fetch_with_a_selector_goes_on_where_nothing_is_taken(link: SparkLink) -> None:
    send_two_kinds(link)
    seen, start = [], 0
    while start < 2 * MANY:
        answer = ask(
            link,
            "fetch",
            address="a",
            start=str(start),
            stop=str(2 * MANY),
            max_bytes="1",
            selector="n = 1500",
        )
        following = int(answer.headers["next"])
        seen.append((range(start, following), len(answer.body) > 0))
        start = following
    assert start == 2 * MANY
    assert len(seen) > 1  # by chunks, of which a batch may become several
    assert [1500 in offsets for offsets, _ in seen] == [is_found for _, is_found in seen]


@pytest.mark.parametrize(
    ("selector", "code", "position"),
    [
        ("kind = ", "selector-syntax", 8),
        ("kind = 'a' AND (", "selector-syntax", 17),
        ("SQRT(2) = 1", "selector-function", 1),
        (" ", "selector-empty", 2),
    ],
)
def test_a_fetch_with_a_wrong_selector(link: SparkLink, selector: str, code: str, position: int) -> None:
    send(link, "/queue/a", b"x")
    with pytest.raises(Refused, match=rf"selector, position {position}: found .*, expected ") as caught:
        ask(link, "fetch", address="a", start="0", stop="1", selector=selector)
    assert caught.value.code == code
    assert ask(link, "fetch", address="a", start="0", stop="1").headers["next"] == "1"


def test_large_bodies_that_a_selector_takes_are_in_place(served: Served, link: SparkLink) -> None:
    bodies = {kind: kind.encode() * 100_000 for kind in ("left", "taken")}
    with blocking.connect(f"stomp://{served.host}:{served.port}") as client:
        for kind, body in bodies.items():
            client.send("/queue/large", body, headers={"kind": kind})
    answer = ask(link, "fetch", address="large", start="0", stop="2", selector="kind = 'taken'")
    found = [run for one in fetched(answer).blobs for run in decode(bytes(one), verify(one).first)]
    assert [(run.first, list(run.bodies)) for run in found] == [(1, [bodies["taken"]])]
    assert len(answer.body) < len(bodies["taken"]) + 1000


def test_groups_and_how_far_behind_they_are(link: SparkLink) -> None:
    ask(link, "group-open", group="lake", destinations="/topic/f.#", starting="earliest")
    send(link, "/topic/f.one", b"1", b"2", b"3")
    ask(link, "group-commit", {"f.one": 1}, group="lake")
    id = ask(link, "describe", destinations="/topic/f.#")["addresses"]["f.one"]["incarnations"][0][0]
    known = {
        "destinations": ["f.#"],
        "addresses": {"f.one": {"position": 1, "next": 3, "lag": 2, "incarnation": id}},
    }
    assert ask(link, "groups") == {"groups": {"lake": known}}
    assert ask(link, "groups", group="other") == {"groups": {}}
    ask(link, "group-delete", group="lake")
    assert ask(link, "groups") == {"groups": {}}


def test_a_group_outlives_a_kill(serve: Serve, tmp_path: Path) -> None:
    first = serve("--listen", "tcp://127.0.0.1:0", "--no-admin", "--data", str(tmp_path / "data"))
    link = link_to(first)
    ask(link, "group-open", group="lake", destinations="/topic/f.#", starting="earliest")
    send(link, "/topic/f.one", b"1", b"2", b"3")
    ask(link, "group-commit", {"f.one": 2}, group="lake")
    id = ask(link, "groups")["groups"]["lake"]["addresses"]["f.one"]["incarnation"]
    link.close()
    first.process.kill()
    first.process.wait()
    link = link_to(serve("--listen", "tcp://127.0.0.1:0", "--no-admin", "--data", str(tmp_path / "data")))
    assert ask(link, "groups")["groups"]["lake"]["addresses"] == {
        "f.one": {"position": 2, "next": 3, "lag": 1, "incarnation": id}
    }
    assert ask(link, "publish", {"attempts": []}, sink="test", batch="0") == {"published": 0, "already": True}
    ask(link, "sink-delete", sink="test")
    assert ask(link, "publish", {"attempts": []}, sink="test", batch="0") == {
        "published": 0,
        "already": False,
    }
    link.close()


def test_an_attempt_sent_twice_is_published_once(link: SparkLink) -> None:
    for _ in range(2):
        ask(link, "stage", blob("/queue/a", b"once"), sink="s", batch="0", partition="0", attempt="1")
    assert ask(link, "publish", {"attempts": [[0, 1]]}, sink="s", batch="0") == {
        "published": 1,
        "already": False,
    }


@pytest.mark.parametrize(
    ("name", "headers", "body", "code"),
    [
        ("describ", {}, None, "unknown-request"),
        ("fetch", {"start": "0", "stop": "1"}, None, "missing-header"),
        ("fetch", {"address": "a", "start": "-1", "stop": "1"}, None, "bad-number"),
        ("describe", {"destinations": "/queue/a", "sizes-from": "[]"}, None, "bad-json"),
        ("describe", {"destinations": "/queue/a", "sizes-from": '{"a": -1}'}, None, "bad-json"),
        ("group-open", {"group": "g", "destinations": "/queue/a", "starting": "json:{"}, None, "bad-json"),
        ("group-open", {"group": "g", "destinations": "/queue/a", "starting": "soon"}, None, "bad-starting"),
        ("group-commit", {"group": "g"}, {"a": True}, "bad-json"),
        ("group-commit", {"group": "g"}, {}, "no-such-group"),
        ("group-open", {"group": "a\nb", "destinations": "/queue/a"}, None, "bad-name"),
        ("group-open", {"group": "a\x1b[2Jb", "destinations": "/queue/a"}, None, "bad-name"),
        ("publish", {"sink": "s", "batch": "0"}, {"attempts": [["0", "1"]]}, "bad-json"),
        ("stage", {"sink": "s", "batch": "0", "partition": "0", "attempt": "0"}, b"no chunk", "data-corrupt"),
    ],
)
def test_bad_requests_are_answered(
    link: SparkLink, name: str, headers: dict[str, str], body: object, code: str
) -> None:
    send(link, "/queue/a", b"x")
    with pytest.raises(Refused) as caught:
        ask(link, name, body, **headers)
    assert caught.value.code == code
    assert ask(link, "groups", group="none") == {"groups": {}}


def test_rights(serve: Serve, tmp_path: Path, closing: ExitStack) -> None:
    (tmp_path / "users.toml").write_text(USERS)
    served = serve("--listen", "tcp://127.0.0.1:0", "--no-admin", "--config", str(tmp_path / "users.toml"))
    alice, bob = link_to(served, "alice"), link_to(served, "bob")
    closing.callback(alice.close)
    closing.callback(bob.close)
    send(alice, "/queue/secret", b"1")
    send(alice, "/queue/open.a", b"1", batch=1)
    ask(alice, "group-open", group="all", destinations="#", starting="earliest")
    assert list(ask(bob, "describe", destinations="#")["addresses"]) == ["open.a"]
    assert list(ask(bob, "groups")["groups"]["all"]["addresses"]) == ["open.a"]
    for name, headers in (
        ("describe", {"destinations": "/queue/secret"}),
        ("describe", {"destinations": "/queue/open.#,/queue/secret.#"}),
        ("fetch", {"address": "secret", "start": "0", "stop": "1"}),
        ("group-open", {"group": "mine", "destinations": "/queue/open.a", "starting": "latest"}),
        ("group-open", {"group": "mine", "destinations": "#", "starting": "latest"}),
        ("group-delete", {"group": "all"}),
    ):
        with pytest.raises(Refused) as caught:
            ask(bob, name, **headers)
        assert caught.value.code == "not-permitted", name
    ask(alice, "stage", blob("/queue/open.a", b"2"), sink="s", batch="0", partition="0", attempt="1")
    ask(bob, "discard", sink="s", batch="0")
    with pytest.raises(Refused, match="nothing is staged"):
        ask(bob, "publish", {"attempts": [[0, 1]]}, sink="s", batch="0")
    assert ask(alice, "publish", {"attempts": [[0, 1]]}, sink="s", batch="0")["published"] == 1
    with pytest.raises(Refused) as caught:
        ask(bob, "stage", blob("/queue/secret", b"x"), sink="s", batch="0", partition="0", attempt="1")
    assert caught.value.code == "not-permitted"


def test_large_requests_and_answers_over_tls(serve: Serve, closing: ExitStack) -> None:
    served = serve("--listen", f"ssl://127.0.0.1:0?keyStorePath={PEM}", "--no-admin")
    given = {
        "url": f"stomps://127.0.0.1:{served.port}",
        "trustStorePath": str(PEM),
        "requestTimeout": "10000",
    }
    link = SparkLink(target_of(Given(given)))
    closing.callback(link.close)
    send(link, "/queue/a", b"first")
    connection = link._socket
    for batch in range(1, 20):
        send(link, "/queue/a", b"x" * 20_000 * batch, batch=batch)
        assert (
            len(ask(link, "fetch", address="a", start=str(batch), stop=str(batch + 1)).body) > 20_000 * batch
        )
    assert link._socket is connection, "no answer was so late that it was asked for again"


@pytest.mark.usefixtures("own_process")
def test_who_asks_and_does_not_read_is_not_read_either(served: Served, link: SparkLink) -> None:
    """The answers to all of it would be 400 MB; the broker makes a few, and others are served meanwhile."""
    send(link, "/queue/large", *[b"x" * 100_000] * 20)
    request = b"SEND\ndestination:stompbox.requests\nrequest:fetch\nrequest-id:1\naddress:large\nstart:0\nstop:20\n\n\0"
    with socket.create_connection((served.host, served.port), timeout=WITHIN) as greedy:
        greedy.sendall(b"CONNECT\naccept-version:1.2\nhost:x\nheart-beat:0,0\n\n\0")
        assert greedy.recv(65536).startswith(b"CONNECTED")
        greedy.sendall(request * 200)
        before = memory_of(served.process.pid)
        for _ in range(50):
            assert "large" in ask(link, "describe", destinations="/queue/large")["addresses"]
        assert memory_of(served.process.pid) - before < 64 << 20
        received, wanted = 0, 200 * 2_000_000
        while received < wanted:
            octets = greedy.recv(1 << 20)
            assert octets
            received += len(octets)


@pytest.mark.parametrize(
    "deep",
    [b"[" * 200_000, b'{"a":' * 200_000, b"[" * 200_000 + b"]" * 200_000],
    ids=["lists", "objects", "closed"],
)
@pytest.mark.parametrize(
    "headers",
    [
        {"request": "group-commit", "group": "g"},
        {"request": "publish", "sink": "s", "batch": "1"},
        {"request": "progress"},
    ],
    ids=lambda headers: headers["request"],
)
def test_deep_json_is_refused_by_name(broker: tuple[str, int], headers: dict[str, str], deep: bytes) -> None:
    with Plain(broker[1]) as client:
        client.send("SEND", {"destination": "stompbox.requests", "request-id": "1", **headers}, deep)
        answer = client.receive()
        assert (answer.headers["status"], answer.headers["code"]) == ("error", "bad-json")
        assert client.sync() == [], "the connection stays open"


@pytest.mark.parametrize("deep", ["[" * 15_000, '{"a":' * 9_000], ids=["lists", "objects"])
def test_deep_json_in_a_header_is_refused_by_name(broker: tuple[str, int], deep: str) -> None:
    with Plain(broker[1]) as client:
        for headers in (
            {
                "request": "group-open",
                "group": "deep",
                "destinations": "/queue/deep.json",
                "starting": f"json:{deep}",
            },
            {"request": "describe", "destinations": "/queue/deep.#", "sizes-from": deep},
        ):
            client.send("SEND", {"destination": "stompbox.requests", "request-id": "1", **headers})
            answer = client.receive()
            assert (answer.headers["status"], answer.headers["code"]) == ("error", "bad-json")


@pytest.mark.parametrize(("octets", "is_taken"), [(1 << 20, True), ((1 << 20) + 1, False)])
def test_the_json_of_a_request_may_have_a_mebibyte(serve: Serve, octets: int, is_taken: bool) -> None:
    served = serve("--memory", "--no-admin", "--listen", "tcp://127.0.0.1:0")
    with Plain(served.port) as plain:
        plain.send("SEND", {"destination": "/queue/there", "receipt": "r"})
        assert plain.receive().command == "RECEIPT"
        wish = json.dumps({"destinations": "/queue/there"}).encode()
        plain.send(
            "SEND",
            {"destination": "stompbox.requests", "request": "describe", "request-id": "1"},
            wish.ljust(octets),
        )
        answer = plain.receive()
        if is_taken:
            assert list(json.loads(answer.body)["addresses"]) == ["there"]
        else:
            said = (answer.headers.get("code"), answer.headers["message"])
            assert said == (
                "bad-json",
                f"the body of request describe is {octets} bytes long; allowed are {1 << 20}",
            )
