"""Definitions as TOML: what one broker exports another one imports, whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stompbox.config import toml
from tests.admin.asking import ask, post, read
from tests.admin.conftest import PLACES, Start
from tests.admin.test_access import ROOT
from tests.conftest import Serve, Served
from tests.users import users

HOSTS = '[[virtual-host]]\nname = "green"\n[[virtual-host]]\nname = "blue"\ndefault = true\n'
FILE = (
    HOSTS
    + users("root:r00t@admins")
    + '[[address]]\nname = "of.file"\nrouting-types = ["ANYCAST"]\n[[address.queue]]\nname = "of.file"\n'
)


def exported(served: Served, query: str = "", user: str = "") -> str:
    answer = ask(served.admin, f"/api/v1/definitions{query}", user=user)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/toml")
    return answer.body.decode()


def imported(served: Served, text: str, user: str = "", **more: bool) -> Any:
    answer = post(served.admin, "definitions", {"toml": text, **more}, user)
    assert answer.status == 200, answer
    return answer.json


def test_what_one_broker_exports_another_one_imports(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "one.toml").write_text(FILE)
    (tmp_path / "two.toml").write_text(HOSTS)
    one, two = [
        serve("--config", str(tmp_path / f"{name}.toml"), "--memory", *PLACES) for name in ("one", "two")
    ]
    for path, order in (
        ("users/create", {"name": "eve", "password": "3v3", "groups": ["admins"]}),
        ("permissions/set", {"match": "#", "grants": {"manage": ["admins"], "send": []}}),
        ("settings/set", {"match": "a.#", "settings": {"max-size-bytes": "1MiB"}, "virtual_host": "green"}),
    ):
        assert post(one.admin, path, order, ROOT).status == 200
    assert (
        post(one.admin, "definitions", {"toml": '[[address]]\nname = "made"\n'}, ROOT).code == "not-permitted"
    )
    assert (
        imported(two, '[[address]]\nname = "made"\n[[address.queue]]\nname = "q"\nfilter = "a = 1"\n')[
            "queues"
        ]
        == 1
    )

    text, whole = exported(one, user=ROOT), exported(one, "?all=true", ROOT)
    assert "root" not in text and "of.file" not in text
    assert "r00t" not in whole and "3v3" not in whole
    content = toml.read(whole, "whole")[0]
    assert [one["name"] for one in content["user"]] == ["root", "eve"]
    assert all(one["password"].startswith("$argon2id$") for one in content["user"])
    assert content["address"] == [
        {
            "name": "of.file",
            "routing-types": ["ANYCAST"],
            "queue": [{"name": "of.file", "routing-type": "ANYCAST", "durable": True}],
        }
    ]
    told = imported(two, whole, is_dry_run=True)
    assert told == {
        "users": 2, "permissions": 1, "address_settings": 1, "addresses": 1, "queues": 1, "warnings": [],
        "is_dry_run": True, "is_done": False,
    }  # fmt: skip
    assert read(two.admin, "users")["users"] == [], "nothing has changed"
    assert imported(two, whole) == {**told, "is_dry_run": False, "is_done": True}
    assert [one["name"] for one in read(two.admin, "users", ROOT)["users"]] == ["eve", "root"]
    setting = read(two.admin, "settings?address=vhost/green.a", ROOT)["settings"]["max-size-bytes"]
    assert setting["value"] == 1 << 20
    back = toml.read(exported(two, user=ROOT), "back")[0]
    made = {"name": "q", "routing-type": "ANYCAST", "durable": True, "filter": "a = 1"}
    assert next(one for one in back["address"] if one["name"] == "made")["queue"] == [made]
    assert "operators: operator 'root' from 127.0.0.1: /api/v1/definitions" in one.log.read_text()


def test_an_import_adds_and_replaces(start: Start) -> None:
    served = start(users("root:r00t@admins"))
    text = '[[user]]\nname = "eve"\n[[user]]\nname = "root"\npassword = "mine"\n'
    found = imported(served, text, ROOT)
    assert found["users"] == 1
    assert [line.split(": ")[0] for line in found["warnings"] if "left out" in line] == ["line 3"]
    imported(served, '[[user]]\nname = "fay"\n[[user]]\nname = "eve"\ngroups = ["x"]\n', ROOT)
    known = {one["name"]: one["groups"] for one in read(served.admin, "users", ROOT)["users"]}
    assert known == {"root": ["admins"], "eve": ["x"], "fay": []}
    imported(served, '[[user]]\nname = "guy"\n', ROOT, is_replacing=True)
    assert [one["name"] for one in read(served.admin, "users", ROOT)["users"]] == ["guy", "root"]


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("a =", "bad-definition", "toml:1: not TOML: invalid value"),
        ("a = " + "1" * 5000, "bad-definition", "not TOML"),
        ("a = " + "[" * 2000, "bad-definition", "nested too deeply"),
        ("\n[[usr]]\n", "bad-definition", "line 2: usr: unknown key; the nearest known name is 'user'"),
        ('[[user]]\nname = "a"\npassword = "$1$x"\n', "bad-definition", "line 3: user[0].password: looks like a hash"),
        ('[[user]]\nname = "a"\n[[user]]\nname = "a"\n', "bad-definition", "line 4: user[1].name: is there twice"),
        ('[[address-setting]]\nmatch = "a"\nredelivery-delay = "x"\n', "bad-definition", "line 3: address-setting[0]"),
        ('[[virtual-host]]\nname = "red"\n[[virtual-host.permission]]\nmatch = "#"\n', "no-such-virtual-host", "line 3"),
        ('[[virtual-host]]\nname = "red"\n', "no-such-virtual-host", "line 1"),
        ('[[virtual-host]]\nname = "red"\n[[virtual-host.address]]\nname = "x"\n', "no-such-virtual-host", "line 1"),
        ('[[address]]\nname = "a.*"\n', "bad-name", "line 1"),
        ('[[address]]\nname = "a"\n[[address.queue]]\nname = "a"\nfilter = "="\n', "bad-definition", "line 5: queue 'a': "),
        ("[[listener]]\n", "bad-definition", "listener: unknown key"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_line(served: Served, text: str, code: str, said: str) -> None:
    for is_dry_run in (True, False):
        answer = post(served.admin, "definitions", {"toml": text, "is_dry_run": is_dry_run})
        assert (answer.code, answer.json["field"]) == (code, "toml"), answer
        assert said in answer.json["detail"], answer


def test_what_is_there_otherwise_refuses_all_of_it(served: Served) -> None:
    assert post(served.admin, "queues/create", {"address": "there"}).status == 200
    text = '[[user]]\nname = "x"\npassword = "y"\n[[address]]\nname = "there"\n[[address.queue]]\nname = "there"\nfilter = "a = 1"\n'
    answer = post(served.admin, "definitions", {"toml": text})
    assert (answer.status, answer.code) == (409, "queue-exists")
    assert answer.json["detail"].startswith("line 7: ")
    assert read(served.admin, "users")["users"] == []


def test_an_import_may_be_longer_than_other_requests(start: Start) -> None:
    served = start(users("root:r00t@admins"))
    text = "".join([f'[[user]]\nname = "user{number}"\ngroups = ["{"g" * 100}"]\n' for number in range(1000)])
    assert imported(served, text, ROOT)["users"] == 1000
    answer = post(served.admin, "definitions", {"toml": "#" * (5 << 20)}, ROOT)
    assert (answer.status, answer.code) == (413, "body-too-large")
