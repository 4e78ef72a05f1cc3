"""[cluster]: what it takes to be a node, and what cannot work or would let strangers in."""

from __future__ import annotations

from typing import Any

import pytest

from stompbox.config import ClusterTable, load, needs_restart
from stompbox.config.listing import listing
from stompbox.config.sources import read
from stompbox.errors import ConfigError

GOOD = {"log": "nats://n1,n2,n3", "listen": "127.0.0.1:0", "secret": "0123456789abcdef", "node": "a"}


def made(**tables: Any) -> ClusterTable:
    return load(None, {}, {name.replace("_", "-"): value for name, value in tables.items()}).cluster


def test_without_a_log_there_is_no_cluster() -> None:
    assert made().log is None
    assert made(cluster={"secret": "short", "takeover-after": 300}).log is None


def test_a_node_with_what_it_needs() -> None:
    table = made(cluster=GOOD)
    assert (table.node_name, table.listening(), table.lead_time) == ("a", ("127.0.0.1", 0), 2.0)
    assert made(cluster={**GOOD, "lead-timeout": 100}).lead_time == 0.1
    stores = {"key-store-path": "k", "trust-store-path": "t", "key-path": "p", "key-store-password": "q"}
    assert made(cluster={**GOOD, "secret": "", **stores}).secret is None


@pytest.mark.parametrize(
    ("log", "insecure", "url"),
    [
        ("nats://n1", False, "nats://n1"),
        ("nats://n1", True, "nats://n1?insecure=true"),
        ("postgresql://h/d?sslmode=require", True, "postgresql://h/d?sslmode=require&insecure=true"),
        ("disk:///folder", True, "disk:///folder"),
    ],
)
def test_the_url_of_the_log_says_whether_it_may_be_insecure(log: str, insecure: bool, url: str) -> None:
    assert made(cluster={**GOOD, "log": log, "insecure": insecure}).log_url == url


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"log": "kafka://n1"}, "cluster.log: expected a URL that begins with one of nats://"),
        ({"log": "nats//n1"}, "cluster.log: expected a URL"),
        ({"name": "a b"}, "cluster.name: expected up to 32 letters"),
        ({"node": "ä"}, "cluster.node: expected up to 32 letters"),
        ({"listen": ""}, "cluster.listen is missing"),
        ({"listen": "61700"}, "cluster.listen: '61700' has no port"),
        ({"advertise": "a"}, "cluster.advertise: 'a' has no port"),
        ({"secret": "short"}, "cluster.secret: has 5 characters, 16 are the least"),
        ({"secret": ""}, "cluster.listen: neither a secret nor key-store-path and trust-store-path"),
        ({"key-store-path": "k"}, "cluster.trust-store-path: is missing"),
        ({"trust-store-path": "k"}, "cluster.key-store-path: is missing"),
        ({"lead-timeout": 3000}, "cluster.lead-timeout: is not below takeover-after, 3000"),
        ({"log-timeout": 1}, "cluster.log-timeout: expected"),
        ({"copies": 0}, "cluster.copies: expected"),
        ({"nodes": "n"}, "cluster.nodes: expected"),
    ],
)
def test_what_cannot_be_is_refused(changed: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        made(cluster={**GOOD, **changed})
    assert problem in str(caught.value)


@pytest.mark.parametrize("other", [{"memory": True}, {"fronts": 2}])
def test_what_does_not_go_with_a_cluster(other: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        made(cluster=GOOD, **other)
    assert caught.value.code == "config-conflict"


def test_secrets_are_not_shown() -> None:
    loaded = read(
        None, {}, {"cluster": {**GOOD, "log": "nats://me:hidden@n1", "key-store-password": "hidden"}}
    )
    text = listing(loaded)
    assert "hidden" not in text and GOOD["secret"] not in text
    assert "hidden" not in repr(loaded.configuration.cluster)


def test_a_reload_changes_none_of_it() -> None:
    old, new = load(None, {}, {"cluster": GOOD}), load(None, {}, {"cluster": {**GOOD, "copies": 3}})
    assert needs_restart(old, new) == ["cluster"]
