"""Users, permissions and settings that are defined at run time: they count at once, outlive a restart, and never half."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from stompbox.admin.table import ENDPOINTS
from tests.admin.asking import Answer, ask, post, read
from tests.admin.conftest import PLACES, Start
from tests.admin.test_access import BOB, ROOT, USERS
from tests.conftest import Serve, Served, end
from tests.system.plain import WITHIN, Plain

HOSTS = '[[virtual-host]]\nname = "green"\n[[virtual-host]]\nname = "blue"\ndefault = true\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def begin(serve: Serve, tmp_path: Path, folder: Path) -> Any:
    """begin(toml, *arguments) -> a broker on `folder`, with these lines of configuration."""

    def begun(text: str = USERS, *arguments: str) -> Served:
        path = tmp_path / "stompbox.toml"
        path.write_text(text)
        return serve("--config", str(path), "--data", str(folder), *PLACES, *arguments)

    return begun


def done(served: Served, path: str, body: object, user: str = ROOT) -> Any:
    answer = post(served.admin, path, body, user)
    assert answer.status == 200, answer
    return answer.json


def problem(answer: Answer) -> tuple[int, str, str | None]:
    return answer.status, answer.code, answer.json.get("field")


def logs_in(served: Served, login: str, passcode: str) -> bool:
    with Plain(served.port, None) as client:
        client.send("CONNECT", {"accept-version": "1.2", "host": "x", "login": login, "passcode": passcode})
        return client.receive().command == "CONNECTED"


def user(served: Served, name: str) -> Any:
    return next((one for one in read(served.admin, "users", ROOT)["users"] if one["name"] == name), None)


@pytest.mark.parametrize("fronts", [(), ("--fronts", "1")], ids=["one process", "fronts"])
def test_a_user_comes_changes_and_goes(begin: Any, fronts: tuple[str, ...]) -> None:
    served = begin(USERS, *fronts)
    told = done(served, "users/create", {"name": "eve", "password": "3v3", "groups": ["users"]})
    assert told == {"name": "eve", "is_new": True, "warnings": [], "is_done": True}
    assert logs_in(served, "eve", "3v3")
    with Plain(served.port, headers={"login": "eve", "passcode": "3v3"}) as there:
        done(served, "users/change", {"name": "eve", "groups": ["users", "more"]})
        there.send("SEND", {"destination": "/queue/open.x", "receipt": "1"})
        assert there.receive().command == "RECEIPT", "another group ends nothing"
        done(served, "users/change", {"name": "eve", "password": "new"})
        error = there.receive()
        assert (error.command, error.headers["code"]) == ("ERROR", "login-revoked")
    assert not logs_in(served, "eve", "3v3")
    assert logs_in(served, "eve", "new")
    assert (user(served, "eve")["groups"], user(served, "eve")["login"]) == (["users", "more"], "argon2")
    assert done(served, "users/delete", {"name": "eve"})["is_deleted"]
    assert user(served, "eve") is None
    assert not logs_in(served, "eve", "new")


def test_what_was_defined_outlives_a_restart_and_a_reload(begin: Any, folder: Path, tmp_path: Path) -> None:
    served = begin()
    done(served, "users/create", {"name": "eve", "password": "3v3", "groups": ["users"]})
    done(served, "permissions/set", {"match": "eve.#", "grants": {"send": ["users"]}})
    done(served, "settings/set", {"match": "eve.#", "settings": {"max-size-bytes": "1MiB"}})
    file = folder / "definitions.toml"
    assert file.stat().st_mode & 0o777 == 0o600
    assert "3v3" not in file.read_text()
    end(served)
    served = begin(USERS)
    assert logs_in(served, "eve", "3v3")
    assert user(served, "eve")["source"] == f"run time ({file}:3)"
    [granted] = read(served.admin, "permissions?match=eve", ROOT)["permissions"]
    assert granted["grants"] == {"send": ["users"]}
    setting = read(served.admin, "settings?address=eve.x", ROOT)["settings"]["max-size-bytes"]
    assert (setting["value"], setting["match"]) == (1 << 20, "eve.#")
    (tmp_path / "stompbox.toml").write_text(USERS + '[[user]]\nname = "fay"\n')
    done(served, "reload", {})
    assert user(served, "eve") and user(served, "fay")


def test_in_memory_it_lives_as_long_as_the_broker(start: Start) -> None:
    served = start(USERS)
    done(served, "users/create", {"name": "eve", "password": "3v3"})
    done(served, "reload", {})
    assert user(served, "eve")["source"] == "run time"


def test_what_the_file_says_is_changed_there_alone(begin: Any, tmp_path: Path) -> None:
    served = begin()
    place = f"is at {tmp_path / 'stompbox.toml'}:"
    for path, body in (
        ("users/create", {"name": "bob", "password": "mine"}),
        ("users/change", {"name": "bob", "password": "mine"}),
        ("users/delete", {"name": "bob"}),
        ("permissions/set", {"match": "#", "grants": {"manage": ["users"]}}),
        ("permissions/delete", {"match": "#"}),
    ):
        answer = post(served.admin, path, body, ROOT)
        assert problem(answer) == (409, "defined-elsewhere", "name" if "users" in path else "match")
        assert place in answer.json["detail"]
    assert logs_in(served, "bob", "b0b")


def test_the_file_counts_where_it_says_the_same_later(begin: Any, tmp_path: Path) -> None:
    served = begin()
    done(served, "users/create", {"name": "eve", "password": "3v3", "groups": ["admins"]})
    (tmp_path / "stompbox.toml").write_text(USERS + '[[user]]\nname = "eve"\npassword = "file"\n')
    done(served, "reload", {})
    assert not logs_in(served, "eve", "3v3") and logs_in(served, "eve", "file")
    assert user(served, "eve")["groups"] == []
    assert "user 'eve' is at" in served.log.read_text()
    assert done(served, "users/delete", {"name": "eve"})["is_deleted"], (
        "what does not count can be taken away"
    )
    assert logs_in(served, "eve", "file")


def test_nobody_locks_himself_out(begin: Any) -> None:
    served = begin("")
    answer = post(served.admin, "users/create", {"name": "eve"})
    assert problem(answer) == (409, "would-lock-out", None), "who could log in then?"
    assert post(served.admin, "permissions/set", {"match": "#", "grants": {}}).code == "would-lock-out"
    told = done(served, "users/create", {"name": "root", "password": "r00t", "groups": ["admins"]}, "")
    assert "whoever has no login is refused from now on, here too" in told["warnings"][-1]
    assert ask(served.admin, "/api/v1/users").status == 401, "the first user closes the broker"
    assert post(served.admin, "users/delete", {"name": "root"}, ROOT).code == "would-lock-out"
    answer = post(served.admin, "permissions/set", {"match": "#", "grants": {"manage": ["others"]}}, ROOT)
    assert answer.code == "would-lock-out"
    done(served, "permissions/set", {"match": "#", "grants": {"manage": ["admins"]}})
    answer = post(served.admin, "users/change", {"name": "root", "groups": []}, ROOT)
    assert answer.code == "would-lock-out"
    assert read(served.admin, "users", ROOT)["users"][0]["groups"] == ["admins"]


def test_a_virtual_host_has_definitions_of_its_own(begin: Any) -> None:
    served = begin(HOSTS)
    order = {"match": "#", "settings": {"max-delivery-attempts": 3}, "virtual_host": "green"}
    done(served, "settings/set", order, "")

    def attempts(name: str) -> Any:
        return read(served.admin, f"settings?address={name}")["settings"]["max-delivery-attempts"]["value"]

    assert (attempts("vhost/green.x"), attempts("x")) == (3, 10)
    order["settings"] = {"max-delivery-attempts": None, "redelivery-delay": 5}
    assert done(served, "settings/set", order, "")["is_new"] is False
    assert attempts("vhost/green.x") == 10
    order["virtual_host"] = "grey"
    assert problem(post(served.admin, "settings/set", order)) == (404, "no-such-virtual-host", "virtual_host")
    assert done(served, "settings/delete", {"match": "#", "virtual_host": "green"}, "")["is_deleted"]
    answer = post(served.admin, "settings/delete", {"match": "#", "virtual_host": "green"})
    assert problem(answer) == (404, "not-defined", "match")


def test_settings_count_at_once(start: Start) -> None:
    served = start("")
    order = {"match": "q", "settings": {"address-full-policy": "FAIL", "max-size-messages": 1}}
    done(served, "settings/set", order, "")
    with Plain(served.port, "1.1") as client:
        found = []
        for number in range(2):
            client.send("SEND", {"destination": "/queue/q", "receipt": str(number)})
            found.append(client.receive().command)
    assert found == ["RECEIPT", "ERROR"]


@pytest.mark.parametrize(
    ("path", "body", "code", "field"),
    [
        ("users/create", {"name": "a\n"}, "bad-definition", "name"),
        ("users/create", {"name": ""}, "bad-json", "name"),
        ("users/create", {"name": "a", "password": ""}, "bad-json", "password"),
        ("users/create", {"name": "a", "password": "$2b$x"}, "bad-definition", "password"),
        ("users/create", {"name": "a", "password": "$argon2id$x"}, "bad-definition", "password"),
        ("users/create", {"name": "a", "groups": [1]}, "bad-json", "groups[0]"),
        ("users/create", {"name": "a", "admin": True}, "bad-json", "admin"),
        ("users/change", {"name": "a"}, "bad-definition", "groups"),
        ("users/change", {"name": "a", "groups": []}, "not-defined", "name"),
        ("permissions/set", {"match": "a.#.#*", "grants": {}}, "bad-definition", "match"),
        ("permissions/set", {"match": "a", "grants": {"sned": []}}, "bad-definition", "grants.sned"),
        ("permissions/set", {"match": "a", "grants": {"match": []}}, "bad-definition", "grants.match"),
        ("settings/set", {"match": "a", "settings": {}}, "bad-definition", "settings"),
        ("settings/set", {"match": "a", "settings": {"max-size-bytes": {}}}, "bad-definition", "settings.max-size-bytes"),
        ("settings/set", {"match": "a", "settings": {"redelivery": 1}}, "bad-definition", "settings.redelivery"),
        ("settings/set", {"match": "vhost/x.y", "settings": {"redelivery-delay": 1}}, "bad-definition", "match"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(served: Served, path: str, body: object, code: str, field: str) -> None:
    answer = post(served.admin, path, body)
    assert (answer.code, answer.json["field"]) == (code, field), answer


def test_only_who_manages_the_broker_may(start: Start) -> None:
    served = start(USERS)
    orders = {
        "users/create": {"name": "x"}, "users/change": {"name": "x", "groups": []}, "users/delete": {"name": "x"},
        "permissions/set": {"match": "x", "grants": {}}, "permissions/delete": {"match": "x"},
        "settings/set": {"match": "x", "settings": {"redelivery-delay": 1}}, "settings/delete": {"match": "x"},
        "definitions": {"toml": ""},
    }  # fmt: skip
    tags = {"users", "permissions", "settings", "definitions"}
    assert {f"/api/v1/{path}" for path in orders} == {
        one.path for one in ENDPOINTS if one.changes and one.tag in tags
    }
    for path, body in orders.items():
        assert post(served.admin, path, body, BOB).code == "not-permitted", path
    assert ask(served.admin, "/api/v1/definitions", user=BOB).code == "not-permitted"


def test_passcodes_are_told_nowhere(begin: Any, folder: Path) -> None:
    served = begin(USERS, "--log-level", "debug")
    answers = [
        post(served.admin, "users/create", {"name": "eve", "password": "s3cr3t"}, ROOT),
        post(served.admin, "users/create", {"name": "eve", "password": "s3cr3t"}, ROOT),
        post(served.admin, "users/change", {"name": "eve", "password": "s3cr3t"}, ROOT),
        post(served.admin, "users/change", {"name": "eve", "password": ["s3cr3t"]}, ROOT),
        post(served.admin, "users/create", {"name": "x\n", "password": "s3cr3t"}, ROOT),
        post(served.admin, "definitions", {"toml": '[[user]]\nname = "fay"\npassword = "s3cr3t"\n'}, ROOT),
        post(served.admin, "definitions", {"toml": '[[user]]\npassword = "s3cr3t"\n'}, ROOT),
        *[
            ask(served.admin, f"/api/v1/{path}", user=ROOT)
            for path in ("users", "definitions", "configuration")
        ],
    ]
    assert [answer.status for answer in answers] == [200, 409, 200, 400, 400, 200, 400, 200, 200, 200]
    assert not [answer for answer in answers if b"s3cr3t" in answer.body]
    end(served)
    text = served.log.read_text()
    assert "s3cr3t" not in text + (folder / "definitions.toml").read_text()
    assert text.count("operator 'root' from 127.0.0.1: /api/v1/users/create") == 1, "who has done what"
    assert '{"name":"eve","groups":[],"password":"***"}' in text


@pytest.mark.parametrize(("target", "code"), [("/dev/full", "disk-full"), ("/", "data-not-writable")])
def test_a_disk_that_refuses_leaves_all_as_it_was(begin: Any, folder: Path, target: str, code: str) -> None:
    served = begin()
    done(served, "users/create", {"name": "eve", "password": "3v3"})
    before = (folder / "definitions.toml").read_bytes()
    (folder / "definitions.toml.new").symlink_to(target)
    answer = post(served.admin, "users/create", {"name": "fay", "password": "f4y"}, ROOT)
    assert (answer.status, answer.code) == (503, code)
    assert "nothing was changed" in answer.json["detail"]
    assert (folder / "definitions.toml").read_bytes() == before
    assert user(served, "fay") is None
    done(served, "users/create", {"name": "fay", "password": "f4y"})


def test_what_somebody_else_has_written_is_not_written_over(begin: Any, folder: Path) -> None:
    served = begin()
    done(served, "users/create", {"name": "eve", "password": "3v3"})
    file = folder / "definitions.toml"
    file.write_text(file.read_text() + '[[user]]\nname = "fay"\n')
    answer = post(served.admin, "users/create", {"name": "guy"}, ROOT)
    assert (answer.status, answer.code) == (409, "definitions-changed")
    done(served, "reload", {})
    done(served, "users/create", {"name": "guy"})
    assert all(user(served, name) for name in ("eve", "fay", "guy"))


def test_a_broken_file_is_named_and_nothing_starts_on_it(begin: Any, folder: Path) -> None:
    served = begin()
    done(served, "users/create", {"name": "eve", "password": "3v3"})
    file = folder / "definitions.toml"
    file.write_text(file.read_text() + "[[listener]]\n")
    answer = post(served.admin, "reload", {}, ROOT)
    assert answer.code == "not-reloaded"
    assert f"{file}:7: listener: unknown key" in answer.json["detail"]
    assert logs_in(served, "eve", "3v3")
    end(served)
    with pytest.raises(pytest.fail.Exception, match=r"definitions\.toml:7"):
        begin()


def test_changes_at_the_same_time_and_reloads_between_lose_nothing(begin: Any) -> None:
    served = begin()
    names = [f"user{number}" for number in range(12)]
    answers: list[Answer] = []

    def create(name: str) -> None:
        answers.append(post(served.admin, "users/create", {"name": name, "groups": ["users"]}, ROOT))

    threads = [threading.Thread(target=create, args=(name,)) for name in names]
    for number, thread in enumerate(threads):
        thread.start()
        if number % 3 == 0:
            os.kill(served.process.pid, signal.SIGHUP)
    for thread in threads:
        thread.join(WITHIN)
    assert [answer.status for answer in answers] == [200] * len(names), answers
    assert all(user(served, name) for name in names)
    deadline = time.monotonic() + WITHIN
    while "the configuration was read again" not in served.log.read_text():
        assert time.monotonic() < deadline
    end(served)
    served = begin()
    assert all(user(served, name) for name in names)
