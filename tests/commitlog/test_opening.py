"""URLs of logs: what they say, and a clear word for those that say nothing."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from stompbox.commitlog import opening
from stompbox.commitlog.opening import check_name, open_log, parse
from stompbox.errors import ConfigError


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", "no URL of a log"),
        ("orders", "no URL of a log"),
        ("/var/lib/log", "no URL of a log"),
        ("nats://n1:4222#x", "no URL of a log"),
        ("kafka://n1:9092", "unknown scheme 'kafka'; known here: disk, nats"),
        ("natz://n1", "the nearest known name is 'nats'"),
        ("nats://", "names no server"),
        ("postgresql://", "names no server"),
        ("disk://folder", "names no folder from the root on"),
        ("disk:///folder?sync=always", "unknown option 'sync'"),
        ("nats://n1?insecur=true", "unknown option 'insecur'; the nearest known name is 'insecure'"),
        ("nats://n1?insecure=yes", "insecure is 'yes'; true or false"),
        ("nats://n1?ca=a&ca=b", "gives the option 'ca' twice"),
    ],
)
def test_what_is_no_log_is_named(url: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as error:
        parse(url)
    assert error.value.code == "config-value"


def test_no_error_shows_a_password() -> None:
    with pytest.raises(ConfigError) as error:
        parse("nats://alice:secret@n1?wrong=1")
    assert "secret" not in str(error.value)


def test_a_url_is_taken_apart() -> None:
    found = parse("NATS://alice:p%40ss@n1:4222,n2:4222?ca=/etc/ca.pem&insecure=true")
    assert (found.scheme, found.engine, found.rest) == ("nats", "nats", "alice:p%40ss@n1:4222,n2:4222")
    assert found.options == {"ca": "/etc/ca.pem", "insecure": "true"}
    assert found.is_insecure
    assert not parse("disk:///folder").is_insecure


@pytest.mark.parametrize("name", ["", "-a", "a b", "a.b", "a*", "ä", "x" * 33, "a\n", "٣"])
def test_what_cannot_be_a_clusters_name(name: str) -> None:
    with pytest.raises(ConfigError, match="cluster name"):
        check_name(name)


@pytest.mark.parametrize("name", ["orders", "A-1_b", "x" * 32, "7"])
def test_a_clusters_name(name: str) -> None:
    check_name(name)
    assert opening.NAME.fullmatch(name)


@pytest.mark.parametrize(
    ("url", "package", "extra"),
    [("nats://n1", "nats", "nats"), ("postgresql://db/x", "psycopg", "postgres")],
)
def test_a_missing_library_is_named(
    url: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "find_spec", lambda name: None)
    with pytest.raises(ConfigError) as error:
        open_log(url, "orders")
    assert error.value.code == "missing-package"
    assert f'needs the package {package}: pip install "stompbox[{extra}]"' in str(error.value)
    assert importlib.util.find_spec is not opening.find_spec


def test_a_folder_is_opened(tmp_path: Path) -> None:
    log = open_log(f"disk://{tmp_path}/a%20log", "orders")
    assert log.name == f"log in {tmp_path}/a log"
    log.close()
