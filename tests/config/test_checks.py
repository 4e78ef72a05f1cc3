"""What spans keys: what would let anybody in is refused, doubtful things are warned about, and what a reload cannot change."""

from __future__ import annotations

from typing import Any

import pytest

from stompbox.config import check, load, needs_restart
from stompbox.config.configuration import Configuration
from stompbox.errors import ConfigError

ARGON2 = "$argon2id$v=19$m=8,t=1,p=1$c2FsdHNhbHQ$aGFzaA"
ALICE = {"name": "alice", "password": ARGON2, "groups": ["producers"]}


def made(**tables: Any) -> Configuration:
    return load(None, {}, {name.replace("_", "-"): value for name, value in tables.items()})


@pytest.mark.parametrize(
    "url", ["tcp://0.0.0.0:61613", "tcp://[::]:0", "tcp://192.168.1.2:1", "tcp://broker.example:1"]
)
def test_without_users_only_loopback_may_be_listened_on(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check(made(listen=[url]))
    assert caught.value.code == "config-insecure"
    assert str(caught.value) == (
        f"listener {url}: no users are configured, so anyone who reaches it could do anything; "
        "configure at least one [[user]] (`stompbox user hash` makes the password) or listen on 127.0.0.1"
    )
    assert check(made(listen=[url], user=[ALICE])) == []


def test_without_users_the_admin_interface_is_on_loopback_too() -> None:
    with pytest.raises(ConfigError, match=r"^admin.listen 0.0.0.0:8161: no users are configured"):
        check(made(**{"admin.listen": "0.0.0.0:8161"}))
    assert check(made(**{"admin.listen": "0.0.0.0:8161", "user": [ALICE]})) == []


def test_loopback_needs_no_users() -> None:
    assert check(made(listen=["tcp://127.0.0.1:1", "tcp://[::1]:1", "tcp://localhost:2"])) == []


@pytest.mark.parametrize(
    ("tables", "warning"),
    [
        (
            {"user": [{"name": "bob", "password": "plain"}]},
            "the password of user 'bob' is plain text; `stompbox user hash` makes a hash of it",
        ),
        (
            {"user": [{"name": "bob"}]},
            "user 'bob' has no password, and no listener asks for client certificates: they cannot log in",
        ),
        (
            {"permission": [{"match": "#", "send": ["x"]}]},
            "there are [[permission]] but no users: nameless clients belong to no group, so each of them is refused everything",
        ),
        (
            {
                "user": [ALICE],
                "permission": [{"match": "#", "send": ["producers"], "consume": ["consumers"]}],
            },
            "no user is in the group 'consumers' that a [[permission]] names",
        ),
        (
            {
                "user": [ALICE],
                "virtual-host": [
                    {"name": "v", "default": True, "permission": [{"match": "#", "manage": ["boss"]}]}
                ],
            },
            "no user is in the group 'boss' that a [[permission]] names",
        ),
        (
            {"address-setting": [{"match": "/queue/orders"}]},
            "address-setting[0].match is '/queue/orders', a destination: the address of that is 'orders'",
        ),
        (
            {"address-setting": [{"match": "#", "dead-letter-address": "/topic/dead"}]},
            "address-setting[0].dead-letter-address is '/topic/dead', a destination: the address of that is 'dead'",
        ),
        (
            {"virtual-host": [{"name": "v", "default": True, "address": [{"name": "/queue/q"}]}]},
            "virtual-host[0].address[0].name is '/queue/q', a destination: the address of that is 'q'",
        ),
        (
            {"virtual-host": [{"name": "v"}]},
            "no [[virtual-host]] is the default: clients whose `host` names none of them are refused",
        ),
    ],
)
def test_what_is_warned_about(tables: dict[str, Any], warning: str) -> None:
    assert check(made(**tables)) == [warning]


def test_a_name_is_none_of_a_destination_where_no_listener_has_the_prefix() -> None:
    url = "tcp://127.0.0.1:1?anycastPrefix=jms.queue.;multicastPrefix=jms.topic."
    settings = [{"match": "/queue/orders"}, {"match": "jms.queue.orders"}]
    assert check(made(listen=[url], **{"address-setting": settings})) == [
        "address-setting[1].match is 'jms.queue.orders', a destination: the address of that is 'orders'"
    ]


def test_a_user_without_password_can_have_a_certificate() -> None:
    url = "ssl://127.0.0.1:1?keyStorePath=s.pem;trustStorePath=ca.pem;needClientAuth=true"
    assert check(made(listen=[url], user=[{"name": "bob"}])) == []


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({}, []),
        (
            {
                "user": [ALICE],
                "address-setting": [{"match": "#"}],
                "log-level": "DEBUG",
                "transaction-timeout": 3,
            },
            [],
        ),
        ({"max-failed-logins-per-user": 7, "failed-login-window": 7}, []),
        ({"persist-delivery-count-before-delivery": True}, ["persist-delivery-count-before-delivery"]),
        ({"listen": ["tcp://127.0.0.1:61613?maxConnections=5"]}, []),
        ({"listen": ["tcp://127.0.0.1:61614"]}, ["listener"]),
        ({"admin.socket-mode": "0660", "admin.listen": "unix:///run/s"}, ["admin"]),
        ({"data": "other"}, ["data"]),
        (
            {"wildcard-addresses": {"delimiter": "/"}, "literal-match-markers": "()"},
            ["wildcard-addresses", "literal-match-markers"],
        ),
        ({"memory": True, "admin.listen": "off", "log-format": "json"}, ["memory", "admin", "log-format"]),
    ],
)
def test_what_a_reload_cannot_change(change: dict[str, Any], names: list[str]) -> None:
    assert needs_restart(made(), made(**change)) == names


@pytest.mark.parametrize("option", ["socketMode=0660", "socketOwner=stomp", "socketGroup=stomp"])
def test_a_reload_cannot_change_the_file_of_a_listener(option: str) -> None:
    old = made(listen=["unix:///run/s"])
    assert needs_restart(old, made(listen=[f"unix:///run/s?{option}"])) == ["listener"]
    assert needs_restart(old, made(listen=["unix:///run/s?maxConnections=5"])) == []
