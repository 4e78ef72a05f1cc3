"""URLs: what they mean, and what is said about wrong ones."""

from __future__ import annotations

import pytest

from stompbox.client.url import Target, each_of, parse_url
from stompbox.errors import UsageError

GOOD = [
    ("stomp://host", Target("stomp", "host", 61613)),
    ("tcp://host:1", Target("tcp", "host", 1)),
    ("STOMP://HOST:7/", Target("stomp", "host", 7)),
    ("stomp+ssl://host", Target("stomp+ssl", "host", 61614, secure=True)),
    ("ssl://host:9", Target("ssl", "host", 9, secure=True)),
    ("stomp://u%40x:p%3A%2F@[::1]:5", Target("stomp", "::1", 5, login="u@x", passcode="p:/")),
    ("stomp://u@h", Target("stomp", "h", 61613, login="u")),
    ("ws://h", Target("ws", "h", 80, websocket=True)),
    (
        "wss://h:8/a/b?token=1&x=2",
        Target("wss", "h", 8, secure=True, websocket=True, resource="/a/b?token=1&x=2"),
    ),
    (
        "stomp://h?host=%2F&heart-beat=1,2",
        Target(
            "stomp",
            "h",
            61613,
            resource="/?host=%2F&heart-beat=1,2",
            options={"host": "/", "heart-beat": "1,2"},
        ),
    ),
    ("unix:///run/s%20x/stomp.sock", Target("unix", "/run/s x/stomp.sock", 0)),
    (
        "unix://u:p%2F@/run/s?host=%2F",
        Target("unix", "/run/s", 0, login="u", passcode="p/", options={"host": "/"}),
    ),
]
BAD = [
    ("http://host", "stomp://"),
    ("host:61613", "allowed are"),
    ("", "no scheme"),
    ("stomp://", "names no host"),
    ("stomp://:61613", "names no host"),
    ("stomp://host:0", "port 0"),
    ("stomp://host:65536", "out of range"),
    ("stomp://host:abc", "abc"),
    ("stomp://host/queue", "path '/queue'"),
    ("stomp://u:pa#ss@host", "%23"),
    ("stomp://host?heartbeat=1,1", "did you mean 'heart-beat'"),
    ("stomp://host?host=a&host=b", "twice"),
    ("stomp://[::1", "IPv6"),
    ("unix://", "names no file; it looks like unix:///run/stompbox/stomp.sock"),
    ("unix:///", "names no file"),
    ("unix://run/stomp.sock", "names no file"),
    ("unix:///run/s%00", "names no file"),
    ("unix:///run/s?verity=1", "did you mean 'verify'"),
]


@pytest.mark.parametrize(("url", "target"), GOOD, ids=[url for url, _ in GOOD])
def test_url_is_taken_apart(url: str, target: Target) -> None:
    assert parse_url(url) == target


@pytest.mark.parametrize(("url", "text"), BAD, ids=[url for url, _ in BAD])
def test_wrong_url_is_named(url: str, text: str) -> None:
    with pytest.raises(UsageError, match="url") as caught:
        parse_url(url)
    assert text in caught.value.message


def test_url_of_another_type() -> None:
    with pytest.raises(UsageError, match="must be a str"):
        parse_url(7)  # type: ignore[arg-type]


def test_no_passcode_in_texts() -> None:
    with pytest.raises(UsageError) as caught:
        parse_url("stomp://user:secret@host/path")
    assert "secret" not in caught.value.message
    target = parse_url("stomp://user:secret@host")
    assert "secret" not in repr(target)
    assert "secret" not in str(target)


def test_shown_without_query_and_with_brackets() -> None:
    assert str(parse_url("wss://[::1]/ws?token=abc")) == "wss://[::1]:443/ws"
    assert str(parse_url("stomp://h?client-id=c")) == "stomp://h:61613"


@pytest.mark.parametrize(
    "url",
    [
        "stomp://a:secret/b@host",
        "stomp://a:secret@host:x",
        "a:secret@host",
        "stomp://a:b/secret@host:1",
        "http://a:secret#b@host",
    ],
)
def test_no_malformed_url_is_shown_with_its_passcode(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_url(url)
    assert "secret" not in caught.value.message


@pytest.mark.parametrize(
    ("url", "each"),
    [
        ("stomp://a", ["stomp://a"]),
        ("stomp://a,b:1,[::1]:2", ["stomp://a", "stomp://b:1", "stomp://[::1]:2"]),
        (
            "stomps://u:p,q@a,b?client-id=c,d",
            ["stomps://u:p,q@a?client-id=c,d", "stomps://u:p,q@b?client-id=c,d"],
        ),
        ("wss://a,b/ws", ["wss://a/ws", "wss://b/ws"]),
        ("unix:///run/a,b", ["unix:///run/a,b"]),
        ("stomp://a?client-id=x@y,z", ["stomp://a?client-id=x@y,z"]),
        ("no scheme, no URL", ["no scheme, no URL"]),
    ],
)
def test_several_hosts_are_several_urls(url: str, each: list[str]) -> None:
    assert each_of(url) == each


def test_a_host_too_few_is_named() -> None:
    with pytest.raises(UsageError, match="names no host"):
        [parse_url(each) for each in each_of("stomp://a,,b")]
