"""Who is let in: hosts, credentials, rights, other sites; and what browsers are told."""

from __future__ import annotations

import asyncio
import contextlib
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import Request

from stompbox.admin import access
from stompbox.admin.access import Guard, Rate, credentials
from stompbox.config import AdminTable
from stompbox.errors import Refused
from tests.admin.asking import JSON, ask, post, read
from tests.admin.conftest import Start
from tests.conftest import Serve, Served
from tests.server.turning import LOOKS, World
from tests.system.plain import Plain
from tests.users import users

USERS = """
[[permission]]
match = "#"
manage = ["admins"]
send = ["admins"]
create-address = ["admins"]
create-durable-queue = ["admins"]

[[permission]]
match = "open.#"
manage = ["admins", "users"]
send = ["admins", "users"]
create-address = ["admins", "users"]
create-durable-queue = ["admins", "users"]
""" + users("root:r00t@admins", "bob:b0b@users")
ROOT, BOB = "root:r00t", "bob:b0b"
PAGES = [
    "/",
    "/console.js",
    "/api/v1/session",
    "/metrics",
    "/api/v1/status",
    "/api/v1/queues",
    "/api/v1/connections",
    "/nowhere",
]


def test_every_answer_tells_browsers_to_keep_off(served: Served) -> None:
    answers = [ask(served.admin, path) for path in ("/healthz", "/metrics", "/nowhere", "/api/v1/queues")]
    answers.append(ask(served.admin, "/healthz", headers={"host": "evil.example"}))
    for answer in answers:
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in answer.headers
        assert answer.headers["date"].endswith("GMT")


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8161", "127.0.0.1:1", "[::1]:8161", "LOCALHOST", "127.1.2.3"]
)
def test_this_machine_is_known(served: Served, host: str) -> None:
    assert ask(served.admin, "/healthz", headers={"host": host}).status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example:80", "localhost.evil.example", "", "10.0.0.1"]
)
def test_other_hosts_are_refused(served: Served, host: str) -> None:
    answer = ask(served.admin, "/healthz", headers={"host": host})
    assert (answer.status, answer.code) == (421, "host-not-allowed")


def test_hosts_can_be_allowed(start: Start) -> None:
    served = start('[admin]\nallowed-hosts = ["Broker.example"]\n')
    assert ask(served.admin, "/healthz", headers={"host": "broker.example:80"}).status == 200
    assert ask(served.admin, "/healthz", headers={"host": "other.example"}).status == 421


def test_listening_everywhere_answers_to_numbers_but_not_to_names(serve: Serve, tmp_path: Path) -> None:
    served = serve_with_users(serve, tmp_path, "0.0.0.0:0")
    place = served.admin.replace("0.0.0.0", "127.0.0.1")
    assert ask(place, "/healthz", headers={"host": "10.1.2.3:8161"}).status == 200
    assert ask(place, "/healthz", headers={"host": "evil.example"}).status == 421


def serve_with_users(serve: Serve, folder: Path, place: str) -> Served:
    path = folder / "users.toml"
    path.write_text(USERS)
    return serve("--config", str(path), "--memory", "--listen", "tcp://127.0.0.1:0", "--admin", place)


def test_with_users_nothing_but_health_is_open(start: Start) -> None:
    served = start(USERS)
    assert [ask(served.admin, path).status for path in ("/healthz", "/readyz")] == [200, 200]
    for path in PAGES:
        answer = ask(served.admin, path)
        assert (answer.status, answer.code) == (401, "login-required"), path
        assert answer.headers["www-authenticate"].startswith("Basic ")
    assert post(served.admin, "queues/purge", {"queue": "q"}).status == 401
    assert ask(served.admin, "/api/v1/status", user=ROOT).status == 200


@pytest.mark.parametrize("user", ["root:wrong", "nobody:r00t", "root:"])
def test_wrong_credentials_are_refused(start: Start, user: str) -> None:
    answer = ask(start(USERS).admin, "/api/v1/status", user=user)
    assert (answer.status, answer.code) == (401, "login-failed")
    assert "r00t" not in answer.body.decode()


def test_failures_are_counted_with_those_of_stomp_and_end_in_a_refusal(start: Start) -> None:
    served = start(f"failed-login-delay = 0\nmax-failed-logins = 2\n{USERS}")
    with Plain(served.port, None) as client:
        client.send(
            "CONNECT", {"accept-version": "1.2", "host": "localhost", "login": "root", "passcode": "wrong"}
        )
        assert client.receive().headers["code"] == "login-failed"
    assert ask(served.admin, "/api/v1/status", user="root:wrong").code == "login-failed"
    answer = ask(served.admin, "/api/v1/status", user=ROOT)
    assert (answer.status, answer.code) == (429, "too-many-failed-logins")
    assert ask(served.admin, "/readyz").status == 200
    said = [
        line
        for line in served.log.read_text().splitlines()
        if "admin interface, login from 127.0.0.1" in line
    ]
    assert ["(login-failed)" in line for line in said] == [True, False]
    assert "(too-many-failed-logins)" in said[1]


def test_rights_decide_what_is_shown_and_done(start: Start) -> None:
    served = start(USERS)
    with Plain(served.port, headers={"login": "root", "passcode": "r00t"}) as client:
        for name in ("open.q", "closed.q"):
            client.send("SEND", {"destination": f"/queue/{name}", "receipt": name}, b"x")
            assert client.receive().headers["receipt-id"] == name
    assert [one["name"] for one in read(served.admin, "queues", ROOT)["queues"]] == ["closed.q", "open.q"]
    assert [one["name"] for one in read(served.admin, "queues", BOB)["queues"]] == ["open.q"]
    assert [one["name"] for one in read(served.admin, "addresses", BOB)["addresses"]] == ["open.q"]
    for path in ("/metrics", "/api/v1/status", "/api/v1/connections"):
        answer = ask(served.admin, path, user=BOB)
        assert (answer.status, answer.code) == (403, "not-permitted"), path
    for body in ({"queue": "closed.q"}, {"queue": "closed.q::closed.q"}):
        assert post(served.admin, "queues/purge", body, BOB).code == "not-permitted"
    assert post(served.admin, "addresses/block", {"address": "closed.q"}, BOB).code == "not-permitted"
    assert post(served.admin, "connections/close", {"connection": 1}, BOB).code == "not-permitted"
    assert (
        post(served.admin, "queues/move", {"queue": "open.q", "to": "closed.q"}, BOB).code == "not-permitted"
    )
    assert post(served.admin, "queues/purge", {"queue": "open.q"}, BOB).json["removed"] == 1


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({}, 415, "not-json"),
        ({"content-type": "application/x-www-form-urlencoded"}, 415, "not-json"),
        ({"content-type": "text/plain"}, 415, "not-json"),
        (JSON | {"origin": "http://evil.example"}, 403, "cross-site"),
        (JSON | {"origin": "null"}, 403, "cross-site"),
        (JSON | {"sec-fetch-site": "cross-site"}, 403, "cross-site"),
        (JSON | {"sec-fetch-site": "same-origin"}, 404, "no-such-queue"),
        ({"content-type": "application/json; charset=utf-8"}, 404, "no-such-queue"),
    ],
)
def test_a_post_must_be_json_and_of_this_site(
    served: Served, headers: dict[str, str], status: int, code: str
) -> None:
    answer = ask(served.admin, "/api/v1/queues/purge", "POST", {"queue": "not-there"}, headers)
    assert (answer.status, answer.code) == (status, code)


def test_an_origin_of_its_own_is_good(served: Served) -> None:
    answer = ask(
        served.admin, "/api/v1/queues/purge", "POST", {"queue": "not-there"}, JSON | {"origin": served.admin}
    )
    assert answer.code == "no-such-queue"


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ("Basic cm9vdDpyOjB0", ("root", "r:0t")),
        ("basic cm9vdDo=", ("root", "")),
        ("Bearer cm9vdDpyOjB0", (None, None)),
        ("Basic cm9vd", (None, None)),
        ("Basic cm9vdA==", (None, None)),
        ("Basic /w==", (None, None)),
        ("Basic \xff", (None, None)),
        ("", (None, None)),
    ],
)
def test_credentials(header: str, found: tuple[str | None, str | None]) -> None:
    assert credentials(header) == found


HALF_HOSTS = [
    *(
        "[::1]/healthz?",
        "[::1]/healthz?:80",
        "127.0.0.1/healthz?",
        "localhost/readyz#",
        "localhost:80/healthz?",
        "localhost?",
    ),
    *("[::1]x", "a@localhost"),
]


def test_no_host_header_stands_for_a_path_or_passes_by_the_login(start: Start) -> None:
    served = start(USERS)
    for path in ("/api/v1/status", "/metrics", "/api/v1/connections"):
        for header in HALF_HOSTS:
            answer = ask(served.admin, path, headers={"host": header})
            assert (answer.status, answer.code) == (421, "host-not-allowed"), header
        assert ask(served.admin, path, headers={"host": "localhost"}).status == 401


def test_nothing_is_read_from_the_url_that_the_host_header_is_part_of() -> None:
    """request.url is put together from what the client says of the host; the path that was routed is scope["path"]."""
    for source in Path(access.__file__).parent.rglob("*.py"):
        assert not re.search(r"request\.(url|base_url)\b", source.read_text()), source


def test_a_request_that_the_end_of_the_broker_cuts_short_is_told_so() -> None:
    said: list[Any] = []

    async def cut_short(*_: object) -> None:
        raise asyncio.CancelledError

    async def send(message: Any) -> None:
        said.append(message)

    async def receive() -> Any:
        raise AssertionError("nobody reads its body")

    guard = Guard(
        cut_short, SimpleNamespace(users=(), errors={}, turns=SimpleNamespace(is_over=False)), AdminTable()
    )  # type: ignore[arg-type]
    scope = {"type": "http", "method": "GET", "path": "/api/v1/status", "headers": [(b"host", b"localhost")]}
    asyncio.run(guard(scope, receive, send))
    assert said[0]["status"] == 503
    assert b'"shutting-down"' in said[1]["body"]


def test_who_asks_without_end_is_slowed(start: Start) -> None:
    served = start("[admin]\nmax-requests-per-second = 1\n")
    answers = [ask(served.admin, "/api/v1/session") for _ in range(12)]
    assert [answer.status for answer in answers[:10]] == [200] * 10
    refused = answers[-1]
    assert (refused.status, refused.code, refused.headers["retry-after"]) == (429, "too-many-requests", "1")
    assert ask(served.admin, "/healthz").status == 200


def test_each_client_address_has_a_rate_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "ADDRESSES", 2)
    rate = Rate(2)
    for _ in range(20):
        rate.count("10.0.0.1", 5.0)
    with pytest.raises(Refused, match="more than 2"):
        rate.count("10.0.0.1", 5.0)
    rate.count("10.0.0.2", 5.0)
    rate.count("10.0.0.1", 5.5)
    with pytest.raises(Refused):
        rate.count("10.0.0.1", 5.5)
    for number in range(9):
        rate.count(f"10.0.1.{number}", 6.0)
    Rate(-1).count("10.0.0.1", 0.0)


def test_of_requests_that_come_at_once_some_wait_for_the_next_turn() -> None:
    """Each takes half a millisecond: a hundred connections that ask at once held everybody up for 30 of them."""
    world, answered = World(), list[int]()

    async def app(scope: Any, *_: object) -> None:
        answered.append(scope["number"])
        world.broker.turns.clock()

    guard: Any = Guard(app, world.broker, AdminTable())
    asked = {"type": "http", "method": "GET", "path": "/healthz", "headers": [(b"host", b"localhost")]}
    calls = [guard({**asked, "number": number}, None, None) for number in range(90)]
    waiting: dict[Any, Any] = {}

    def go_on(call: Any) -> None:
        with contextlib.suppress(StopIteration):
            waiting[call] = call.send(None)

    world.turn()
    for call in calls:
        go_on(call)
    assert 0 < len(answered) <= LOOKS
    while waiting:
        before = len(answered)
        world.turn()
        for call in [call for call, waiter in waiting.items() if waiter.done()]:
            del waiting[call]
            go_on(call)
        assert len(answered) - before <= LOOKS
    assert answered == list(range(90))


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        (["stompbox-session=abc"], "abc"),
        (["a=1; stompbox-session=abc ; b=2"], "abc"),
        (["a=1", "stompbox-session=abc"], "abc"),
        (["a-stompbox-session=abc; stompbox-sessions=x"], ""),
        (["a=1;" * 5000], ""),
        ([], ""),
    ],
)
def test_the_cookie_of_a_session(headers: list[str], found: str) -> None:
    raw = [(b"cookie", header.encode()) for header in headers]
    assert access.cookie_of(Request({"type": "http", "headers": raw})) == found
