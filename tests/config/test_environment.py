"""STOMPBOX_ variables: names, how text becomes a value, and which ones are left alone."""

from __future__ import annotations

from typing import Any

import pytest

from stompbox.config.cluster import ClusterTable
from stompbox.config.configuration import Configuration
from stompbox.config.environment import read, variable_of, variables
from stompbox.config.fields import fields_of
from stompbox.config.tables import AdminTable, WildcardTable
from stompbox.config.tracing import TracingTable
from stompbox.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "text", "path", "value"),
    [
        ("STOMPBOX_DATA", "/var/lib/x", ("data",), "/var/lib/x"),
        ("STOMPBOX_DATA", "7", ("data",), "7"),
        ("STOMPBOX_MEMORY", "true", ("memory",), True),
        ("STOMPBOX_MEMORY", "false", ("memory",), False),
        ("STOMPBOX_ADMIN_ENABLED", "false", ("admin", "enabled"), False),
        ("STOMPBOX_DISK_FULL_POLICY", "block", ("disk-full-policy",), "block"),
        ("STOMPBOX_GLOBAL_MAX_SIZE", "1GiB", ("global-max-size",), "1GiB"),
        ("STOMPBOX_MAX_COMMIT_DELAY", "5", ("max-commit-delay",), 5),
        ("STOMPBOX_MAX_COMMIT_DELAY", "soon", ("max-commit-delay",), "soon"),
        # goes on as text, and is refused there as in the file
        ("STOMPBOX_MAX_COMMIT_DELAY", "1_0", ("max-commit-delay",), "1_0"),
        ("STOMPBOX_MAX_COMMIT_DELAY", "٥", ("max-commit-delay",), "٥"),
        ("STOMPBOX_ADMIN_LISTEN", "127.0.0.1:1", ("admin", "listen"), "127.0.0.1:1"),
        ("STOMPBOX_ADMIN_ALLOWED_HOSTS", "a, b c", ("admin", "allowed-hosts"), ["a", "b", "c"]),
        ("STOMPBOX_ADMIN_ALLOWED_HOSTS", '["a b"]', ("admin", "allowed-hosts"), ["a b"]),
        ("STOMPBOX_ADMIN_ALLOWED_HOSTS", "", ("admin", "allowed-hosts"), []),
        (
            "STOMPBOX_LISTEN",
            " tcp://h:1?anycastPrefix=/a/,/b/\n ssl://h:2 ",
            ("listener",),
            [{"url": "tcp://h:1?anycastPrefix=/a/,/b/"}, {"url": "ssl://h:2"}],
        ),
        ("STOMPBOX_LISTENER", '{"url": "tcp://h:1"}', ("listener",), [{"url": "tcp://h:1"}]),
        ("STOMPBOX_USER", '[{"name": "a", "groups": ["g"]}]', ("user",), [{"name": "a", "groups": ["g"]}]),
        (
            "STOMPBOX_USER",
            '[{name = "a", groups = ["g"]},\n {name = "b"}]',
            ("user",),
            [{"name": "a", "groups": ["g"]}, {"name": "b"}],
        ),
        (
            "STOMPBOX_ADDRESS_SETTING",
            '{match = "#", expiry-delay = 5}',
            ("address-setting",),
            [{"match": "#", "expiry-delay": 5}],
        ),
        ("STOMPBOX_VIRTUAL_HOST", "", ("virtual-host",), []),
    ],
)
def test_a_variable_becomes_a_value(name: str, text: str, path: tuple[str, ...], value: Any) -> None:
    content, origins = read({name: text, "HOME": "/root"})
    for word in path:
        content = content[word]
    assert content == value and type(content) is type(value)
    assert origins == {path: name}


def test_every_key_has_a_variable() -> None:
    names = {
        variable_of(name)
        for name in fields_of(Configuration)
        if name not in ("admin", "cluster", "tracing", "wildcard-addresses")
    }
    names |= {variable_of("cluster", name) for name in fields_of(ClusterTable)}
    names |= {variable_of("tracing", name) for name in fields_of(TracingTable)}
    names |= {variable_of("admin", name) for name in fields_of(AdminTable)}
    names |= {variable_of("wildcard-addresses", name) for name in fields_of(WildcardTable)}
    assert set(variables()) == names
    tables = (AdminTable, ClusterTable, TracingTable, WildcardTable)
    assert len(names) == len(fields_of(Configuration)) - 4 + sum(len(fields_of(table)) for table in tables)


@pytest.mark.parametrize(
    ("environ", "problem"),
    [
        (
            {"STOMPBOX_DTA": "x"},
            "STOMPBOX_DTA: unknown environment variable; the nearest known name is 'STOMPBOX_DATA'",
        ),
        (
            {"STOMPBOX_QQQQ": "x"},
            "STOMPBOX_QQQQ: unknown environment variable; docs/configuration.md lists all names",
        ),
        *[
            ({name: text}, f"{name}: {text!r} is not allowed; allowed: true, false")
            for name in ("STOMPBOX_MEMORY", "STOMPBOX_ADMIN_ENABLED")
            for text in ("perhaps", "", "1", "0", "yes", "no", "on", "off", "True", " true")
        ],
        (
            {"STOMPBOX_USER": "[{"},
            'STOMPBOX_USER: neither JSON nor a TOML value; an array of tables looks like [{name = "alice"',
        ),
        ({"STOMPBOX_USER": "alice:secret"}, "STOMPBOX_USER: neither JSON nor a TOML value"),
        (
            {"STOMPBOX_LISTEN": "tcp://h:1", "STOMPBOX_LISTENER": "[]"},
            "STOMPBOX_LISTEN: STOMPBOX_LISTENER says the same",
        ),
    ],
)
def test_a_wrong_variable_is_refused(environ: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(environ)
    assert str(caught.value).startswith(problem)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        "STOMPBOX_CONFIG",
        "STOMPBOX_URL",
        "STOMPBOX_ADMIN_URL",
        "STOMPBOX_LOGIN",
        "STOMPBOX_PASSCODE",
        "STOMPBOX_TEST_SEED",
        "STOMPBOX_COMPILE",
        "STOMPBOX_SERVICE_HOST",  # these Kubernetes sets next to a service called stompbox
        "STOMPBOX_SERVICE_PORT",
        "STOMPBOX_PORT",
        "STOMPBOX_PORT_61613_TCP_ADDR",
        "OTHER",
    ],
)
def test_variables_of_others_are_left_alone(name: str) -> None:
    assert read({name: "x"}) == ({}, {})
