"""The arguments of `connect`: each wrong one is named, and the URL fills what they leave open."""

from __future__ import annotations

import ssl
from typing import Any

import pytest

from stompbox.client.options import TLS, Options, Reconnect
from stompbox.client.url import parse_url
from stompbox.errors import UsageError

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"login": 7}, "login must be a str"),
    ({"passcode": "a\nb"}, "passcode holds a line end"),
    ({"client_id": "a\0"}, "client_id"),
    ({"versions": ("1.3",)}, "1.0, 1.1, 1.2"),
    ({"versions": ()}, "versions"),
    ({"heart_beat": (1,)}, "heart_beat"),
    ({"heart_beat": (-1, 0)}, "milliseconds"),
    ({"heart_beat": (1.5, 0)}, "whole numbers"),
    ({"headers": {"login": "x"}}, "'login' cannot be added"),
    ({"headers": {"a": None}}, "header 'a'"),
    ({"headers": {"a:b": "x"}}, "'a:b'"),
    ({"headers": ["a"]}, "headers must be a mapping"),
    ({"tls": True}, "SSLContext"),
    ({"reconnect": True}, "stompbox.Reconnect"),
    ({"connect_timeout": 0}, "connect_timeout is 0"),
    ({"connect_timeout": float("inf")}, "connect_timeout is inf"),
    ({"receipt_timeout": float("nan")}, "receipt_timeout is nan"),
    ({"receipt_timeout": "soon"}, "receipt_timeout is 'soon'"),
    ({"close_timeout": -1}, "close_timeout"),
    ({"buffer": 0}, "buffer is 0"),
    ({"buffer": 100, "buffer_limit": 99}, "buffer_limit is 99"),
    ({"text_length": "no"}, "text_length is 'no'"),
    ({"limits": 65536}, "limits must be"),
    ({"versions": None}, "versions is None"),
]


@pytest.mark.parametrize(("given", "text"), WRONG, ids=[text for _, text in WRONG])
def test_wrong_argument_is_named(given: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError) as caught:
        Options(**given)
    assert text in caught.value.message


@pytest.mark.parametrize(
    "given",
    [
        {"attempts": 0},
        {"first_delay": -1},
        {"first_delay": 5, "max_delay": 4},
        {"multiplier": 0.5},
        {"jitter": 2},
        {"attempts": True},
        {"resend": "no"},
        {"initial": 1},
        {"max_delay": float("inf")},
    ],
)
def test_wrong_policy_is_named(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"reconnect\."):
        Reconnect(**given)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"ca": 7}, "tls.ca is 7"),
        ({"cert": b"x"}, "tls.cert is"),
        ({"key": True}, "tls.key is True"),
        ({"password": 1234}, "tls.password must be a str or None, not int"),
        ({"server_name": 7}, "tls.server_name must be"),
        ({"verify": "no"}, "tls.verify is 'no'; allowed are True and False"),
    ],
)
def test_wrong_tls_is_named(given: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError) as caught:
        TLS(**given)
    assert text in caught.value.message


def test_delays_grow_to_the_longest() -> None:
    policy = Reconnect(first_delay=1, max_delay=10, multiplier=2, jitter=0.5)
    assert [policy.delay(failures, 0.5) for failures in range(6)] == [1, 2, 4, 8, 10, 10]
    assert policy.delay(10_000, 0.5) == 10
    assert (policy.delay(0, 0.0), policy.delay(0, 1.0)) == (0.5, 1.5)


def test_the_argument_wins_over_the_url() -> None:
    target = parse_url("stomp://u:p@h?host=v&client-id=c&heart-beat=1,2")
    from_url = Options().merged(target)
    assert (from_url.login, from_url.passcode, from_url.host, from_url.client_id, from_url.heart_beat) == (
        "u",
        "p",
        "v",
        "c",
        (1, 2),
    )
    given = Options(login="a", passcode="b", host="w", client_id="d", heart_beat=(3, 4)).merged(target)
    assert (given.login, given.passcode, given.host, given.client_id, given.heart_beat) == (
        "a",
        "b",
        "w",
        "d",
        (3, 4),
    )


def test_virtual_host_is_the_host_name_unless_named() -> None:
    assert Options().merged(parse_url("stomp://example.org")).host == "example.org"


@pytest.mark.parametrize("url", ["stomp://h?heart-beat=1", "stomp+ssl://h?verify=maybe", "stomp://h?ca=x"])
def test_wrong_url_option_is_named(url: str) -> None:
    with pytest.raises(UsageError, match=url.split("?")[1].split("=", maxsplit=1)[0]):
        Options().merged(parse_url(url))


def test_tls_from_the_url(tls_files: tuple[str, str]) -> None:
    certificate, key = tls_files
    options = Options().merged(parse_url(f"stomp+ssl://h?ca={certificate}&cert={certificate}&key={key}"))
    assert options.tls == TLS(certificate, certificate, key)
    assert options.context().verify_mode is ssl.CERT_REQUIRED
    assert Options().merged(parse_url("stomp+ssl://h?verify=false")).context().verify_mode is ssl.CERT_NONE


def test_missing_certificate_is_named() -> None:
    with pytest.raises(UsageError, match=r"ca='/nowhere\.pem'"):
        TLS(ca="/nowhere.pem").context()


def test_own_context_is_taken_as_it_is() -> None:
    context = ssl.create_default_context()
    assert Options(tls=context).context() is context
    assert Options(tls=TLS(server_name="broker")).server_name == "broker"
    assert Options(tls=context).server_name is None


def test_no_passcode_in_repr() -> None:
    assert "secret" not in repr(Options(passcode="secret"))
    assert "secret" not in repr(TLS(password="secret"))
