"""Log-in and log-out by a cookie, what it takes, and how it ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from stompbox.admin import sessions
from stompbox.admin.sessions import Sessions
from stompbox.config.tables import UserTable
from stompbox.security import User, Users
from stompbox.server.logins import Login
from tests.admin.asking import JSON, Answer, ask, post
from tests.admin.conftest import Start
from tests.admin.test_access import USERS
from tests.conftest import Served

GOOD = {"login": "root", "passcode": "r00t"}
BROWSER = {
    "accept": "text/html,application/xhtml+xml",
    "sec-fetch-mode": "navigate",
    "sec-fetch-site": "none",
}


def log_in(served: Served) -> tuple[str, str]:
    """(the cookie, all that was said with it)."""
    answer = post(served.admin, "session/start", GOOD)
    assert (answer.status, answer.json["user"], answer.json["is_session"]) == (200, "root", True)
    said = answer.headers["set-cookie"]
    return said.partition(";")[0], said


def with_cookie(served: Served, path: str, cookie: str, **headers: str) -> Answer:
    return ask(served.admin, path, headers={"cookie": cookie, **headers})


def test_a_session_stands_for_the_passcode_until_the_log_out(start: Start) -> None:
    served = start(USERS)
    cookie, said = log_in(served)
    assert cookie.startswith("stompbox-session=") and len(cookie) > 50
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= {part.strip() for part in said.split(";")}
    assert "Secure" not in said, "it is plain HTTP"
    assert with_cookie(served, "/api/v1/status", cookie).status == 200
    assert with_cookie(served, "/", cookie, **BROWSER).status == 200
    assert with_cookie(served, "/api/v1/session", cookie).json["user"] == "root"
    gone = ask(served.admin, "/api/v1/session/end", "POST", {}, JSON | {"cookie": cookie})
    assert gone.status == 200 and "Max-Age=0" in gone.headers["set-cookie"]
    assert with_cookie(served, "/api/v1/status", cookie).code == "login-required"


def test_the_log_has_no_passcode(start: Start) -> None:
    served = start(USERS)
    log_in(served)
    text = served.log.read_text()
    assert "r00t" not in text
    assert "operator 'root' from 127.0.0.1: /api/v1/session/start" in text


def test_wrong_ones_are_refused_and_counted_with_those_of_stomp(start: Start) -> None:
    served = start(f"failed-login-delay = 0\nmax-failed-logins = 3\n{USERS}")
    for _ in range(2):
        answer = post(served.admin, "session/start", GOOD | {"passcode": "wrong"})
        assert (answer.status, answer.code) == (401, "login-failed")
        assert "set-cookie" not in answer.headers
    by_script = ask(
        served.admin,
        "/api/v1/session/start",
        "POST",
        GOOD | {"passcode": ""},
        JSON | {"sec-fetch-mode": "cors"},
    )
    assert not by_script.headers.get("www-authenticate", "").startswith("Basic"), (
        "a browser would open its dialog"
    )
    assert post(served.admin, "session/start", GOOD).code == "too-many-failed-logins"
    for cookie in ("stompbox-session=", "stompbox-session=x", "stompbox-session=\xff"):
        assert with_cookie(served, "/api/v1/status", cookie).code == "login-required"


@pytest.mark.parametrize(
    "headers",
    [
        {"content-type": "text/plain"},
        JSON | {"origin": "http://evil.example"},
        JSON | {"sec-fetch-site": "cross-site"},
    ],
)
def test_no_other_site_logs_in_or_acts_by_the_cookie(start: Start, headers: dict[str, str]) -> None:
    served = start(USERS)
    cookie, _ = log_in(served)
    assert ask(served.admin, "/api/v1/session/start", "POST", GOOD, headers).status in (403, 415)
    assert ask(
        served.admin, "/api/v1/queues/purge", "POST", {"queue": "q"}, headers | {"cookie": cookie}
    ).status in (403, 415)


def test_a_browser_is_led_to_the_page_and_not_asked_by_a_dialog(start: Start) -> None:
    served = start(USERS)
    answer = ask(served.admin, "/", headers=BROWSER)
    assert (answer.status, answer.headers["location"]) == (303, "/login")
    for path in ("/login", "/login.js", "/console.css", "/icon.svg"):
        assert ask(served.admin, path, headers=BROWSER).status == 200, path
    asked_by_script = ask(
        served.admin, "/api/v1/status", headers={"sec-fetch-mode": "cors", "sec-fetch-site": "same-origin"}
    )
    assert asked_by_script.status == 401
    assert not asked_by_script.headers["www-authenticate"].startswith("Basic")
    assert ask(served.admin, "/").headers["www-authenticate"].startswith("Basic "), "whoever is no browser"


def test_without_users_nobody_needs_one(served: Served) -> None:
    answer = post(served.admin, "session/start", GOOD)
    assert (answer.status, answer.code) == (409, "no-users")
    assert ask(served.admin, "/", headers=BROWSER).status == 200


def test_a_session_ends_with_its_user(start: Start, tmp_path: Path) -> None:
    served = start(USERS)
    cookie, _ = log_in(served)
    text = USERS.replace('"r00t"', '"other"')
    assert text != USERS
    (tmp_path / "stompbox.toml").write_text(text)
    assert ask(served.admin, "/api/v1/reload", "POST", {}, JSON | {"cookie": cookie}).status == 200
    assert with_cookie(served, "/api/v1/status", cookie).code == "login-required"


def known(users: Users) -> Login:
    return Login(User("alice"), users.proof("alice"))


def test_one_that_is_not_used_ends_and_one_that_is_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    users = Users([UserTable(name="alice", password="a")])
    found = Sessions(lambda: now[0], 10_000)
    token = found.open(known(users))
    for now[0] in (9.0, 18.0, 27.0):
        assert found.user(token, users) == User("alice")
    now[0] = 37.0
    assert found.user(token, users) is None
    monkeypatch.setattr(sessions, "MOST", 2)
    first, second = found.open(known(users)), found.open(known(users))
    found.user(first, users)
    found.open(known(users))
    assert (found.user(first, users), found.user(second, users), len(found)) == (User("alice"), None, 2)
    assert found.user(first, Users([UserTable(name="alice", password="b")])) is None


def test_how_long_one_lasts_is_configured(start: Start) -> None:
    served = start(USERS + "[admin]\nsession-timeout = 60000\n")
    cookie, _ = log_in(served)
    assert with_cookie(served, "/api/v1/session", cookie).json == {
        "user": "root",
        "is_session": True,
        "timeout": 60_000,
    }
