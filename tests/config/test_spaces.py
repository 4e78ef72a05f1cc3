"""Names of virtual hosts inside the broker: found again, and never one of another host's."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stompbox.config import load
from stompbox.config.matching import DOTS, is_match
from stompbox.config.spaces import local, space_of, space_of_host

HOSTS = ["green", "a", "a.b", "a*", "#", "vhost/a", "größe", "a b", "%2E"]
NAMES = st.text(st.sampled_from("ab.*#/ö:"), min_size=1).filter(lambda name: not name.startswith("vhost/"))


@given(st.sampled_from(HOSTS), NAMES)
def test_a_name_comes_apart_as_it_was_put_together(host: str, name: str) -> None:
    inside = space_of_host(host) + name
    assert (space_of(inside), local(inside)) == (space_of_host(host), name)
    assert (space_of(name), local(name)) == ("", name)


@given(st.sampled_from(HOSTS), st.sampled_from(HOSTS), NAMES, NAMES)
def test_a_pattern_matches_in_its_own_host_alone(host: str, other: str, pattern: str, name: str) -> None:
    words = (space_of_host(host) + name).split(".")
    assert is_match(DOTS.words(space_of_host(other) + pattern), words) == (
        host == other and is_match(DOTS.words(pattern), name.split("."))
    )
    assert not is_match(DOTS.words(pattern), words)


def test_settings_and_permissions_of_all_hosts_together() -> None:
    configuration = load(
        None,
        {},
        {
            "address-setting": [{"match": "#", "redelivery-delay": 5}],
            "virtual-host": [
                {"name": "main", "default": True},
                {"name": "same"},
                {
                    "name": "own",
                    "address-setting": [{"match": "x", "no-expiry": True}],
                    "permission": [{"match": "x", "send": []}],
                },
            ],
        },
    )
    settings, grants = configuration.settings_of(), configuration.grants_of()
    assert [
        settings.resolve(f"{space}x").redelivery_delay for space in ("", "vhost/same.", "vhost/own.")
    ] == [5, 5, 0]
    assert [settings.resolve(f"{space}x").no_expiry for space in ("", "vhost/same.", "vhost/own.")] == [
        False,
        False,
        True,
    ]
    assert grants is not None
    everybody, nobody = grants.best("y"), grants.best("vhost/own.x")
    assert (
        everybody == grants.best("vhost/same.y")
        and everybody is not None
        and everybody["send"] == frozenset("*")
    )
    assert nobody == {"send": frozenset()} and grants.best("vhost/own.y") is None
