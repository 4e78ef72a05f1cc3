"""What the API says of users, rights, settings, listeners and the configuration, and where each was set."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any, cast

import msgspec
from starlette.requests import Request

from stompbox.admin import configured, exporting, listing
from stompbox.admin.apirequest import ApiRequest, Shared
from stompbox.config.listing import content_of
from stompbox.config.settings import AddressSetting
from stompbox.config.tables import AddressTable, PermissionTable, UserTable
from tests.admin.asking import ask, post, read
from tests.admin.conftest import Start
from tests.admin.test_access import BOB, ROOT, USERS
from tests.conftest import Served
from tests.server.turning import World
from tests.system.plain import Plain

TOML = """
[[address-setting]]
match = "#"
max-delivery-attempts = 3

[[address-setting]]
match = "orders.#"
redelivery-delay = 7
max-delivery-attempts = 4

[[virtual-host]]
name = "green"

[[virtual-host.address-setting]]
match = "#"
max-delivery-attempts = 9

[[virtual-host]]
name = "blue"
default = true
"""


def line_of(text: str, wanted: str) -> int:
    return text.splitlines().index(wanted) + 1


def test_an_address_says_what_it_obeys_and_who_says_so(start: Start) -> None:
    served = start(TOML)
    found = read(served.admin, "settings?address=orders.new")
    assert found["address"] == "orders.new"
    settings = found["settings"]
    delay, attempts = line_of(TOML, "redelivery-delay = 7"), line_of(TOML, "max-delivery-attempts = 4")
    assert settings["redelivery-delay"]["value"] == 7
    assert settings["redelivery-delay"]["match"] == "orders.#"
    assert settings["redelivery-delay"]["source"].endswith(f"stompbox.toml:{delay}")
    assert settings["max-delivery-attempts"]["source"].endswith(f"stompbox.toml:{attempts}")
    assert settings["max-delivery-attempts"]["value"] == 4, "the more specific one"
    assert settings["no-expiry"] == {"value": False, "match": None, "source": "default"}
    other = read(served.admin, "settings?address=stock")["settings"]["max-delivery-attempts"]
    assert (other["value"], other["match"]) == (3, "#")


def test_a_virtual_host_has_its_own(start: Start) -> None:
    found = read(start(TOML).admin, "settings?address=vhost/green.stock")["settings"]["max-delivery-attempts"]
    assert (found["value"], found["match"]) == (9, "#")
    assert found["source"].endswith(f":{line_of(TOML, 'max-delivery-attempts = 9')}")


def test_settings_of_an_address_are_shown_to_who_may_see_it(start: Start) -> None:
    served = start(USERS)
    assert ask(served.admin, "/api/v1/settings?address=open.x", user=BOB).status == 200
    answer = ask(served.admin, "/api/v1/settings?address=closed", user=BOB)
    assert (answer.status, answer.code, answer.json["field"]) == (403, "not-permitted", "address")


def test_users_and_permissions_are_shown_without_secrets(start: Start) -> None:
    served = start(USERS + '[[user]]\nname = "tls"\n')
    with Plain(served.port, headers={"login": "bob", "passcode": "b0b"}):
        answer = ask(served.admin, "/api/v1/users", user=ROOT)
    found = {one.pop("name"): one for one in answer.json["users"]}
    assert {name: one["login"] for name, one in found.items()} == {
        "root": "plain",
        "bob": "plain",
        "tls": "certificate",
    }
    assert (found["bob"]["connections"], found["bob"]["groups"]) == (1, ["users"])
    assert found["tls"]["source"].rpartition(":")[2].isdecimal()
    assert b"r00t" not in answer.body and b"b0b" not in answer.body
    granted = {one["match"]: one for one in read(served.admin, "permissions", ROOT)["permissions"]}
    assert granted["#"]["grants"] == {
        "send": ["admins"], "create-address": ["admins"], "create-durable-queue": ["admins"], "manage": ["admins"],
    }  # fmt: skip
    assert granted["open.#"]["virtual_host"] is None
    for path in ("users", "permissions", "listeners", "configuration", "subscriptions", "transactions"):
        assert ask(served.admin, f"/api/v1/{path}", user=BOB).code == "not-permitted"


def test_listeners_say_what_counts_there(served: Served) -> None:
    with Plain(served.port):
        [found] = read(served.admin, "listeners")["listeners"]
    assert (found["url"], found["port"], found["is_tls"]) == (
        f"tcp://127.0.0.1:{served.port}",
        served.port,
        False,
    )
    assert found["connections"] >= 1
    assert found["options"]["connectionTtl"] == 60000
    assert found["source"] == "--listen"


def test_the_configuration_says_where_it_was_set_and_keeps_passwords(start: Start) -> None:
    served = start(USERS)
    answer = ask(served.admin, "/api/v1/configuration", user=ROOT)
    assert b"r00t" not in answer.body
    values, sources = answer.json["values"], answer.json["sources"]
    assert values["user"][0]["password"] == "***"
    assert values["memory"] is True
    assert sources["memory"] == "--memory"
    assert (
        sources["user[0].name"].startswith(str(Path(served.log).parent))
        or "stompbox.toml:" in sources["user[0].name"]
    )


def test_after_a_reload_what_counts_is_told_and_not_what_was_refused(start: Start, tmp_path: Path) -> None:
    served = start("[[address-setting]]\nmatch = 'a'\nredelivery-delay = 1\n")
    path = tmp_path / "stompbox.toml"
    path.write_text("\n\n[[address-setting]]\nmatch = 'a'\nredelivery-delay = 2\n")
    assert post(served.admin, "reload", {}).json["is_done"]
    path.write_text("redelivery-delay = 3\n")
    assert post(served.admin, "reload", {}).code == "not-reloaded"
    found = read(served.admin, "settings?address=a")["settings"]["redelivery-delay"]
    assert (found["value"], found["source"].rpartition(":")[2]) == (2, "5")


def test_subscriptions_and_transactions_of_all_connections(served: Served) -> None:
    with Plain(served.port, headers={"client-id": "told"}) as client:
        headers = {"destination": "/queue/told", "id": "s1", "ack": "client", "selector": "a = 1"}
        client.send("SUBSCRIBE", headers)
        client.send("BEGIN", {"transaction": "t1"})
        client.send("SEND", {"destination": "/queue/told", "transaction": "t1"}, b"x")
        client.sync()
        [one] = read(served.admin, "subscriptions?match=told")["subscriptions"]
        [other] = read(served.admin, "transactions?match=told")["transactions"]
        only = read(served.admin, f"subscriptions?connection={one['connection']}&sort=-delivering")
        assert only["total"] == 1
    assert {**one, "connection": 0} == {
        "connection": 0, "user": "", "client_id": "told", "id": "s1", "destination": "/queue/told", "ack": "client", "selector": "a = 1",
        "queues": 1, "delivering": 0,
    }  # fmt: skip
    assert (other["connection"], other["name"], other["sends"], other["acks"]) == (
        one["connection"],
        "t1",
        1,
        0,
    )
    assert other["bytes"] > 0


MANY = 300


def in_steps(work: Generator[None, None, Any]) -> tuple[int, Any]:
    """In how many steps it was done, and what came of it."""
    steps = 0
    while True:
        try:
            next(work)
        except StopIteration as done:
            return steps, done.value
        steps += 1


def test_very_many_entries_are_looked_at_in_steps() -> None:
    world = World(
        users=tuple([UserTable(name=f"u{number}", password="p") for number in range(MANY)]),
        permissions=tuple([PermissionTable(match=f"p{number}", send=("g",)) for number in range(MANY)]),
        address_settings=tuple(
            [AddressSetting(match=f"s{number}", no_expiry=True) for number in range(MANY)]
        ),
    )
    asked = ApiRequest(world.broker, cast(Request, None), cast(Shared, None))
    steps, users = in_steps(configured._users(asked))
    assert steps >= MANY
    assert [one.name for one in users] == sorted([f"u{number}" for number in range(MANY)])
    steps, permissions = in_steps(configured._permissions(asked))
    assert steps >= MANY
    assert {one.match for one in permissions} == {f"p{number}" for number in range(MANY)}
    assert in_steps(configured._said(asked, "s7")) == (MANY, {"no_expiry": ("s7", "")})
    tables = [AddressTable(name=f"a{number}") for number in range(MANY)]
    assert in_steps(exporting._new(asked, tables)) == (MANY, (MANY, 0))


def test_the_whole_configuration_is_made_entry_by_entry() -> None:
    world = World(users=tuple([UserTable(name=f"u{number}", password="p") for number in range(20_000)]))
    pieces = configured._whole(world.broker.configuration, None)
    said = msgspec.json.decode(b"".join(pieces))
    values = msgspec.json.decode(msgspec.json.encode(content_of(world.broker.configuration)))
    assert said == {"values": values, "sources": {}}
    assert max([len(piece) for piece in listing.members(said["values"])]) < 500
    assert 1 < len(pieces) < 20
    assert max(map(len, pieces)) < listing.PART + 500
