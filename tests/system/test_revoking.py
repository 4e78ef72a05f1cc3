"""SIGHUP takes away what the configuration does not grant any more: users, passcodes, hosts, rights of those who are connected."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

import pytest

from stompbox.security import hash_password
from tests.conftest import Serve, Served
from tests.system.plain import Plain
from tests.system.test_reloading import reload
from tests.users import users

HASHED, OTHER = hash_password("secret"), hash_password("other")
USERS: Mapping[str, tuple[str, list[str]]] = {
    "alice": (HASHED, ["a"]),
    "bob": ("secret", ["b"]),
    "root": ("secret", ["root"]),
}
ALL = {"send": ["a", "b"], "consume": ["a", "b"], "browse": ["a", "b"]}
DONE = "the configuration was read again"
VERSIONS = pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])


def configuration(
    known: Mapping[str, tuple[str, list[str]]] = USERS,
    rights: Mapping[str, list[str]] | None = None,
    extra: str = "",
) -> str:
    """`rights` on q and what begins with it; all else is everybody's."""
    create = 'create-address = ["*"]\ncreate-durable-queue = ["*"]\ncreate-non-durable-queue = ["*"]\nmanage = ["root"]\n'
    text = [users(*[f"{name}:{word}@{','.join(groups)}" for name, (word, groups) in known.items()])]
    granted = "".join(
        [
            f"{right} = {json.dumps([*groups, 'root'])}\n"
            for right, groups in (ALL if rights is None else rights).items()
        ]
    )
    text.append(f'[[permission]]\nmatch = "q.#"\n{create}{granted}')
    text.append(f'[[permission]]\nmatch = "#"\n{create}send = ["*"]\nconsume = ["*"]\nbrowse = ["*"]\n')
    return "".join(text) + extra


def without(right: str) -> dict[str, list[str]]:
    return {name: groups for name, groups in ALL.items() if name != right} | {right: ["b"]}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "broker").mkdir()
    path = tmp_path / "broker" / "stompbox.toml"
    path.write_text(configuration())
    return path


@pytest.fixture
def served(serve: Serve, file: Path) -> Served:
    return serve("--memory", "--no-admin", "--listen", "tcp://127.0.0.1:0")


def logged_in(served: Served, name: str, version: str = "1.2", **headers: str) -> Plain:
    return Plain(served.port, version, {"login": name, "passcode": "secret", **headers})


def subscribe(client: Plain, destination: str, **headers: str) -> None:
    client.send("SUBSCRIBE", {"destination": destination, "id": "s", "receipt": "subscribed", **headers})
    assert client.receive().headers.get("receipt-id") == "subscribed"


def send(client: Plain, destination: str, body: bytes = b"x", **headers: str) -> None:
    client.send("SEND", {"destination": destination, "receipt": "sent", **headers}, body)
    assert client.receive().headers.get("receipt-id") == "sent"


def ended(client: Plain, code: str) -> None:
    error = client.receive()
    assert (error.command, error.headers["code"]) == ("ERROR", code)
    assert client.is_closed()


@VERSIONS
@pytest.mark.parametrize(
    "users",
    [
        {name: one for name, one in USERS.items() if name != "alice"},
        {**USERS, "alice": (OTHER, ["a"])},
        {**USERS, "alice": ("another", ["a"])},
        {**USERS, "alice": (hash_password("secret"), ["a"])},
    ],
    ids=["removed", "another hash", "another in plain text", "the same, hashed again"],
)
def test_who_could_not_log_in_any_more_is_closed(
    served: Served, file: Path, users: dict[str, tuple[str, list[str]]], version: str
) -> None:
    with logged_in(served, "alice", version) as alice, logged_in(served, "bob", version) as bob:
        subscribe(alice, "/queue/q.1", ack="client")
        send(bob, "/queue/q.1")
        assert alice.receive().command == "MESSAGE"
        subscribe(bob, "/queue/q.1", ack="client")
        reload(served, file, configuration(users), said=DONE)
        ended(alice, "login-revoked")
        assert bob.receive().headers["redelivered"] == "true", "what alice had goes back, and bob stays"
        assert bob.sync() == []


def test_users_where_there_were_none(serve: Serve, file: Path) -> None:
    """Whoever was let in without being asked is asked, also under the name of one who is known now."""
    file.write_text("")
    served = serve("--memory", "--no-admin", "--listen", "tcp://127.0.0.1:0")
    with (
        Plain(served.port, "1.1") as nameless,
        Plain(served.port, "1.1", {"login": "alice", "passcode": "guess"}) as named,
    ):
        reload(served, file, configuration(), said=DONE)
        ended(nameless, "login-revoked")
        ended(named, "login-revoked")


def test_a_group_that_is_left_counts_at_once(served: Served, file: Path) -> None:
    with logged_in(served, "alice", "1.1") as alice:
        subscribe(alice, "/queue/q.1")
        reload(served, file, configuration({**USERS, "alice": (HASHED, ["c"])}), said=DONE)
        assert alice.receive().headers["code"] == "not-permitted"
        for command, headers in (("SEND", {}), ("SUBSCRIBE", {"id": "2"})):
            alice.send(command, {"destination": "/queue/q.1", "receipt": "r", **headers})
            assert alice.receive().headers["code"] == "not-permitted"
        reload(served, file, configuration(), said=DONE)
        subscribe(alice, "/queue/q.1")


SUBSCRIPTIONS = {
    "queue": ("/queue/q.1", {}, "consume"),
    "topic": ("/topic/q.1", {}, "consume"),
    "wildcard queue": ("/queue/q.*", {}, "consume"),
    "wildcard topic": ("/topic/q.*", {}, "consume"),
    "several": ("/queue/other,/queue/q.1", {}, "consume"),
    "durable": ("/topic/q.1", {"durable-subscriber-name": "d"}, "consume"),
    "durable wildcard": ("/topic/q.*", {"durable-subscriber-name": "d"}, "consume"),
    "stream": ("/stream/q.1", {"x-stream-offset": "next"}, "consume"),
    "named reader": ("/stream/q.1", {"x-stream-offset": "next", "durable-subscriber-name": "d"}, "consume"),
    "exact queue": ("q.1::q.1", {"subscription-type": "ANYCAST"}, "consume"),
    "browser": ("/queue/q.1", {"browser": "true", "browser-end": "false"}, "browse"),
}


@pytest.mark.parametrize("version", ["1.1", "1.2"])
@pytest.mark.parametrize("kind", SUBSCRIPTIONS)
def test_subscriptions_end_with_their_right(served: Served, file: Path, kind: str, version: str) -> None:
    destination, headers, right = SUBSCRIPTIONS[kind]
    target = "/topic/q.1" if "topic" in destination else "/queue/q.1"
    with logged_in(served, "bob") as bob, logged_in(served, "alice", version, **{"client-id": "c"}) as alice:
        send(bob, target)
        subscribe(alice, destination, **headers)
        alice.send("SUBSCRIBE", {"destination": "/queue/kept", "id": "kept", "receipt": "kept"})
        while alice.receive().headers.get("receipt-id") != "kept":
            pass
        reload(served, file, configuration(rights=without(right)), said=DONE)
        error = alice.receive()
        assert (error.command, error.headers["code"]) == ("ERROR", "not-permitted")
        assert "'s'" in error.body.decode()
        assert right in error.body.decode()
        if version == "1.2":
            assert alice.is_closed(), "1.2 closes after each ERROR"
            return
        for number in range(3):
            send(bob, target, b"%d" % number)
        send(bob, "/queue/kept", b"kept")
        assert alice.receive().body == b"kept", "nothing of the other comes, and this one goes on"
        assert alice.sync() == []


def test_a_subscription_that_is_not_concerned_goes_on(served: Served, file: Path) -> None:
    with logged_in(served, "bob") as bob, logged_in(served, "alice") as alice:
        subscribe(alice, "/queue/other")
        bob.send("SUBSCRIBE", {"destination": "/temp-queue/mine", "id": "t", "receipt": "t"})
        assert bob.receive().headers["receipt-id"] == "t"
        reload(served, file, configuration(rights={}), said=DONE)
        send(bob, "/queue/other", b"1")
        assert alice.receive().body == b"1"
        bob.send("SEND", {"destination": "/temp-queue/mine"}, b"2")
        assert bob.receive().body == b"2"


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_a_commit_asks_again_for_what_it_sends(served: Served, file: Path, version: str) -> None:
    with logged_in(served, "bob") as bob, logged_in(served, "alice", version) as alice:
        subscribe(bob, "/queue/other")
        for transaction in ("gone", "fine"):
            alice.send("BEGIN", {"transaction": transaction})
            alice.send(
                "SEND", {"destination": "/queue/other", "transaction": transaction}, transaction.encode()
            )
        alice.send("SEND", {"destination": "/queue/q.1", "transaction": "gone", "receipt": "in"}, b"gone")
        assert alice.receive().headers["receipt-id"] == "in"
        reload(served, file, configuration(rights=without("send")), said=DONE)
        alice.send("COMMIT", {"transaction": "fine", "receipt": "committed"})
        assert alice.receive().headers["receipt-id"] == "committed"
        assert bob.receive().body == b"fine"
        alice.send("COMMIT", {"transaction": "gone", "receipt": "committed"})
        error = alice.receive()
        assert (error.command, error.headers["code"], error.headers["receipt-id"]) == (
            "ERROR",
            "not-permitted",
            "committed",
        )
        assert bob.sync() == [], "none of it was sent"
        if version == "1.1":
            alice.send("COMMIT", {"transaction": "gone", "receipt": "again"})
            assert alice.receive().headers["code"] == "no-such-transaction"


def test_a_commit_asks_again_for_what_it_acknowledges(served: Served, file: Path) -> None:
    with logged_in(served, "bob") as bob, logged_in(served, "alice", "1.1") as alice:
        send(bob, "/queue/q.1", b"once")
        subscribe(alice, "/queue/q.1", ack="client")
        message = alice.receive()
        alice.send("BEGIN", {"transaction": "t"})
        alice.send("SEND", {"destination": "/queue/other", "transaction": "t"}, b"answer")
        ack = {
            "message-id": message.headers["message-id"],
            "subscription": "s",
            "transaction": "t",
            "receipt": "acked",
        }
        alice.send("ACK", ack)
        assert alice.receive().headers["receipt-id"] == "acked"
        reload(served, file, configuration(rights=without("consume")), said=DONE)
        assert alice.receive().headers["code"] == "not-permitted"
        alice.send("COMMIT", {"transaction": "t", "receipt": "committed"})
        assert alice.receive().headers["code"] == "not-permitted"
        subscribe(bob, "/queue/q.1")
        assert bob.receive().body == b"once"
        bob.send("SUBSCRIBE", {"destination": "/queue/other", "id": "2"})
        assert bob.sync() == []


def test_requests_are_those_of_the_new_rights(served: Served, file: Path) -> None:
    with logged_in(served, "bob") as bob, logged_in(served, "alice", "1.1") as alice:
        send(bob, "/queue/q.1")
        requests = [
            {"request": "fetch", "address": "q.1", "start": "0", "stop": "9"},
            {"request": "describe", "destinations": "/queue/q.1"},
            {"request": "group-open", "group": "g", "destinations": "/queue/q.1", "starting": "earliest"},
        ]
        for reloaded in (False, True):
            for request in requests:
                alice.send("SEND", {"destination": "stompbox.requests", "request-id": "1", **request})
                assert alice.receive().headers.get("code") == ("not-permitted" if reloaded else None), request
            if not reloaded:
                reload(served, file, configuration(rights=without("consume")), said=DONE)
        alice.send(
            "SEND",
            {"destination": "stompbox.requests", "request-id": "1", "request": "group-commit", "group": "g"},
            b'{"q.1":1}',
        )
        assert alice.receive().headers["code"] == "not-permitted"


def test_a_large_body_under_way_is_not_taken(served: Served, file: Path) -> None:
    body = b"x" * 3_000_000
    with logged_in(served, "bob") as bob, logged_in(served, "alice", "1.1") as alice:
        head = f"SEND\ndestination:/queue/q.1\nreceipt:large\ncontent-length:{len(body)}\n\n"
        alice.socket.sendall(head.encode() + body[:-1000])
        reload(served, file, configuration(rights=without("send")), said=DONE)
        alice.socket.sendall(body[-1000:] + b"\0")
        error = alice.receive()
        assert (error.headers["code"], error.headers["receipt-id"]) == ("not-permitted", "large")
        subscribe(bob, "/queue/q.1")
        assert bob.sync() == []


HOSTS = '[[virtual-host]]\nname = "main"\ndefault = true\n[[virtual-host]]\nname = "green"\nusers = {}\n'


def test_a_place_in_a_virtual_host(serve: Serve, file: Path) -> None:
    file.write_text(configuration(extra=HOSTS.format('["alice", "bob"]')))
    served = serve("--memory", "--no-admin", "--listen", "tcp://127.0.0.1:0")
    with (
        logged_in(served, "alice", "1.1", host="green") as alice,
        logged_in(served, "bob", "1.1", host="green") as bob,
        logged_in(served, "root", "1.1", host="main") as root,
    ):
        reload(served, file, configuration(extra=HOSTS.format('["bob"]')), said=DONE)
        ended(alice, "host-not-permitted")
        assert bob.sync() == []
        reload(
            served,
            file,
            configuration(extra=HOSTS.format('["bob"]').partition('[[virtual-host]]\nname = "green"')[0]),
            said=DONE,
        )
        ended(bob, "host-not-permitted")
        assert root.sync() == []


def asked(served: Served, passcode: str) -> int:
    request = urllib.request.Request(f"{served.admin}/api/v1/connections")
    request.add_header("Authorization", "Basic " + base64.b64encode(f"root:{passcode}".encode()).decode())
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_the_admin_interface_asks_with_each_request(serve: Serve, file: Path) -> None:
    served = serve("--memory", "--admin", "127.0.0.1:0", "--listen", "tcp://127.0.0.1:0")
    assert asked(served, "secret") == 200
    reload(served, file, configuration({**USERS, "root": (OTHER, ["root"])}), said=DONE)
    assert (asked(served, "secret"), asked(served, "other")) == (401, 200)
    reload(served, file, configuration({**USERS, "root": (OTHER, ["nobody"])}), said=DONE)
    assert asked(served, "other") == 403


def test_the_limits_of_logins_change_at_once(serve: Serve, file: Path) -> None:
    served = serve("--memory", "--admin", "127.0.0.1:0", "--listen", "tcp://127.0.0.1:0")
    reload(
        served,
        file,
        f"failed-login-delay = 0\nmax-failed-logins = 2\nlogin-threads = 1\n{configuration()}",
        said=DONE,
    )
    assert [asked(served, "wrong") for _ in range(3)] == [401, 401, 429]
    reload(
        served,
        file,
        f"failed-login-delay = 0\nmax-failed-logins = 3\nlogin-threads = 3\n{configuration()}",
        said=DONE,
    )
    assert [asked(served, "wrong") for _ in range(4)] == [401, 401, 401, 429]
